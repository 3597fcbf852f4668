//! What is said with a running CLI: its lines become events, what a chat tells it becomes lines.
//!
//! Nothing here waits. Always: what the CLI says counts for a turn from when it has the turn's message to when it says that
//! the run is over; what it says besides goes nowhere, but for text, which the next turn begins with.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use ahp_types::common::JsonObject;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::asks;
use super::calls;
use super::ending;
use super::settings::Chosen;
use super::wire::{self, Ask, MessageState, Outcome, Said};
use crate::actors::agent::{AgentEvent, AgentInput, Ending, Prompt, PromptBlock, PromptKind};
use crate::agents::transcript::Since;
use crate::clock::Millis;

/// A call that nobody was asked about for this long runs without asking.
const UNASKED: Duration = Duration::from_millis(400);
/// The point of a turn that only the host's transcript goes back to.
pub(super) const TRANSCRIPT: &str = "transcript";
/// What the CLI says when it cannot go on with a conversation, or not at a point of it.
const LOST: [&str; 3] = ["No conversation found", "No message found", "unknown option '--resume-session-at"];
/// How much text from between two turns is kept, in bytes.
const BETWEEN: usize = 16 << 10;

/// Whether these words of the CLI say that it cannot go on with its conversation.
pub(super) fn says_lost(text: &str) -> bool {
    LOST.iter().any(|words| text.contains(words))
}

/// A conversation with a CLI.
pub(super) struct Talk {
    /// The agent's name in the configuration.
    name: String,
    /// Events for the chat, oldest first.
    pub(super) out: VecDeque<AgentEvent>,
    /// Lines for the CLI, oldest first.
    pub(super) lines: VecDeque<Value>,
    pub(super) turn: Option<Turn>,
    /// The CLI's own id of the conversation; as of `back_to` and before its first run, of the one that it goes back in.
    pub(super) conversation: Option<String>,
    /// Whether a run began since the program started: then the conversation is its own.
    pub(super) is_own: bool,
    /// Whether the chat knows that, so that points of it may be told.
    pub(super) knows_conversation: bool,
    /// Whether the conversation is gone back in, which the chat forgets with the first point that it is told.
    pub(super) goes_back: bool,
    /// What the next prompt begins with, where the conversation begins anew.
    pub(super) preface: Option<String>,
    /// What people are told of that.
    pub(super) preface_notice: Option<String>,
    /// What was said since the process started.
    pub(super) since: Since,
    pub(super) in_run: bool,
    /// A run of messages that are not wanted any more.
    unwanted_run: bool,
    /// Whether it tells what becomes of messages.
    tells_messages: bool,
    /// The last thing that was said, for what is joined to it.
    pub(super) open: Option<Part>,
    /// How much of the block that streams was said, in bytes.
    pub(super) said: usize,
    pub(super) calls: HashMap<String, Call>,
    /// Calls whose input is known, and that nobody was asked about so far, oldest first.
    pub(super) announced: Vec<String>,
    pub(super) announce_at: Option<Instant>,
    /// What waits for a person, by the id that the answer names.
    asks: HashMap<String, Ask>,
    pub(super) workers: HashMap<String, Worker>,
    /// Commands that go on past their turn.
    pub(super) background: HashSet<String>,
    /// What was asked of the CLI and has no answer yet.
    requests: HashMap<String, Requested>,
    next_request: u64,
    between: String,
    /// The kind of error that was told in this run.
    pub(super) error: Option<String>,
    resets_at: Option<Millis>,
    total_cost: Option<f64>,
    model: Option<String>,
    busy: bool,
    chosen: Chosen,
    current_model: String,
    default_model: String,
}

/// The running turn, or one that was stopped and that the CLI is not through with.
pub(super) struct Turn {
    pub(super) id: String,
    /// Its message in the CLI's conversation.
    message: String,
    pub(super) begun: bool,
    pub(super) cancelled: bool,
    /// How it ends, unless a message that still waits goes into it.
    over: Option<Ending>,
    /// Messages into it that the CLI does not have yet: the host's id, and the entry's.
    steering: Vec<(String, String)>,
}

/// What was said last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Text,
    Reasoning,
}

/// A tool call.
#[derive(Debug, Clone, Default)]
pub(super) struct Call {
    pub(super) tool: String,
    pub(super) input: Value,
    /// The worker that made it.
    pub(super) worker: Option<String>,
    pub(super) runs: bool,
}

/// A subagent, under the id of the call that spawned it.
#[derive(Debug, Clone, Default)]
pub(super) struct Worker {
    pub(super) task: Option<String>,
    pub(super) parent: Option<String>,
    pub(super) background: bool,
    pub(super) over: bool,
    /// Nobody hears of it.
    pub(super) silent: bool,
}

/// What was asked of the CLI.
enum Requested {
    Initialize,
    /// A change of the configuration, in words.
    Change(String),
    /// To drop a message that it may not have begun with.
    Drop {
        message: String,
    },
    Other,
}

/// What a line means for the program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Nothing,
    /// It takes prompts.
    Ready,
    /// It knows nothing of the conversation, or of the point in it.
    Lost(String),
}

impl Talk {
    pub(super) fn new(name: &str, chosen: Chosen, default_model: &str, conversation: Option<String>) -> Self {
        Self {
            name: name.to_owned(),
            out: VecDeque::new(),
            lines: VecDeque::new(),
            turn: None,
            conversation,
            is_own: false,
            knows_conversation: false,
            goes_back: false,
            preface: None,
            preface_notice: None,
            since: Since::default(),
            in_run: false,
            unwanted_run: false,
            tells_messages: false,
            open: None,
            said: 0,
            calls: HashMap::new(),
            announced: Vec::new(),
            announce_at: None,
            asks: HashMap::new(),
            workers: HashMap::new(),
            background: HashSet::new(),
            requests: HashMap::new(),
            next_request: 0,
            between: String::new(),
            error: None,
            resets_at: None,
            total_cost: None,
            model: None,
            busy: false,
            current_model: chosen.model.clone(),
            default_model: default_model.to_owned(),
            chosen,
        }
    }

    /// A program was started: nothing of the one before it is awaited.
    pub(super) fn restarted(&mut self) {
        self.lines.clear();
        self.asks.clear();
        self.calls.clear();
        self.announced.clear();
        self.announce_at = None;
        self.workers.clear();
        self.background.clear();
        self.requests.clear();
        (self.in_run, self.unwanted_run, self.is_own) = (false, false, false);
        (self.open, self.said, self.error, self.total_cost) = (None, 0, None, None);
        self.current_model = self.chosen.model.clone();
        self.ask(&json!({ "subtype": "initialize" }), Requested::Initialize);
    }

    /// What the sessions's configuration has chosen.
    pub(super) fn chosen(&self) -> &Chosen {
        &self.chosen
    }

    /// The turn whose output is read now.
    pub(super) fn live(&self) -> Option<&Turn> {
        self.turn.as_ref().filter(|turn| turn.begun && !turn.cancelled)
    }

    /// Tells something of the running turn, for the chat or for the worker that it is of.
    pub(super) fn say(&mut self, worker: Option<&str>, event: impl FnOnce(String) -> AgentEvent) {
        let turn_id = self.turn.as_ref().map(|turn| turn.id.clone());
        // A worker may go on past the turn, and its events name none.
        if turn_id.is_none() && worker.is_none() {
            return;
        }
        let event = event(turn_id.unwrap_or_default());
        self.out.push_back(match worker {
            Some(worker) => AgentEvent::OfWorker { worker: worker.to_owned(), event: Box::new(event) },
            None => event,
        });
    }

    /// Something that is a part of its own.
    pub(super) fn say_part(&mut self, worker: Option<&str>, event: impl FnOnce(String) -> AgentEvent) {
        if worker.is_none() {
            self.open = None;
        }
        self.say(worker, event);
    }

    fn ask(&mut self, what: &Value, requested: Requested) {
        self.next_request += 1;
        let id = format!("host-{}", self.next_request);
        self.lines.push_back(wire::request(&id, what));
        self.requests.insert(id, requested);
    }

    // What the chat tells it.

    /// Hands over a prompt. No turn may run.
    pub(super) fn begin(&mut self, prompt: Prompt) {
        let message = uuid::Uuid::new_v4().to_string();
        self.choose_model(prompt.message.model.as_ref().map(|model| model.id.clone()));
        let mut blocks = match prompt.kind {
            PromptKind::Message => {
                self.since.asked(prompt.turn_id.clone(), prompt.message.text);
                prompt.blocks
            }
            PromptKind::Compact => vec![PromptBlock::Text { text: "/compact".to_owned() }],
        };
        let id = prompt.turn_id;
        self.turn = Some(Turn {
            id: id.clone(),
            message: message.clone(),
            begun: false,
            cancelled: false,
            over: None,
            steering: Vec::new(),
        });
        (self.open, self.said, self.error) = (None, 0, None);
        if self.knows_conversation || !self.goes_back {
            let point = TRANSCRIPT.to_owned();
            self.say(None, |turn_id| AgentEvent::RewindPoint { turn_id, point });
        }
        if let Some(text) = self.preface.clone() {
            blocks.insert(0, PromptBlock::Text { text });
        }
        if let Some(text) = self.preface_notice.clone() {
            self.say_part(None, |turn_id| AgentEvent::Notice { turn_id, text });
        }
        let between = std::mem::take(&mut self.between);
        if !between.trim().is_empty() {
            let text = format!("The agent said between the turns: {}", between.trim());
            self.say_part(None, |turn_id| AgentEvent::Notice { turn_id, text });
        }
        self.lines.push_back(wire::message(&message, &blocks));
        if prompt.kind == PromptKind::Message {
            self.out.push_back(AgentEvent::TakesSteering { turn_id: id });
        }
    }

    fn choose_model(&mut self, of_message: Option<String>) {
        let wanted = of_message.unwrap_or_else(|| self.chosen.model.clone());
        if wanted != self.current_model {
            let what = format!("use the model {wanted}");
            self.ask(&json!({ "subtype": "set_model", "model": wanted }), Requested::Change(what));
            self.current_model = wanted;
        }
    }

    /// Takes what it is told, but for prompts, cancels and the end.
    pub(super) fn told(&mut self, input: AgentInput) {
        match input {
            AgentInput::Decide { tool_call_id, decision } => {
                if let Some(ask) = self.asks.remove(&tool_call_id) {
                    if let Some(call) = self.calls.get_mut(&tool_call_id) {
                        call.runs = true;
                    }
                    self.lines.push_back(wire::answer(&ask.request, &asks::decided(&ask, decision)));
                }
            }
            AgentInput::Answer { request_id, response, answers } => {
                if let Some(ask) = self.asks.remove(&request_id) {
                    self.lines.push_back(wire::answer(&ask.request, &asks::answered(&ask, &response, &answers)));
                }
            }
            AgentInput::Steer { turn_id, id, blocks, .. } => self.steer(&turn_id, id, &blocks),
            AgentInput::Configured { config } => self.configure(&config),
            AgentInput::StopBackgroundWork { id } => {
                self.ask(&json!({ "subtype": "stop_task", "task_id": id }), Requested::Other);
            }
            AgentInput::WorkerRefused { worker, .. } => self.silence(&worker),
            AgentInput::OfWorker { worker, input } => match *input {
                AgentInput::Cancel { .. } => {
                    self.silence(&worker);
                    if let Some(task) = self.workers.get(&worker).and_then(|worker| worker.task.clone()) {
                        self.ask(&json!({ "subtype": "stop_task", "task_id": task }), Requested::Other);
                    }
                }
                input => self.told(input),
            },
            _ => {}
        }
    }

    /// Nobody hears of a worker any more that was stopped, or that the host has no chat for: what it asks is denied.
    fn silence(&mut self, worker: &str) {
        let Some(silenced) = self.workers.get_mut(worker) else { return };
        silenced.silent = true;
        let asked: Vec<String> =
            self.asks.iter().filter(|(_, ask)| self.is_silent(&ask.call)).map(|(id, _)| id.clone()).collect();
        for ask in asked.iter().filter_map(|id| self.asks.remove(id)).collect::<Vec<_>>() {
            self.deny(&ask);
        }
    }

    /// Whether a call is of a worker that nobody hears of, or of one that such a worker has.
    fn is_silent(&self, call: &str) -> bool {
        let mut worker = self.calls.get(call).and_then(|call| call.worker.as_ref());
        // No chain is longer than there are workers, whatever a program says of them.
        for _ in 0..self.workers.len() {
            let Some(found) = worker.and_then(|id| self.workers.get(id)) else { return false };
            if found.silent {
                return true;
            }
            worker = found.parent.as_ref();
        }
        false
    }

    fn deny(&mut self, ask: &Ask) {
        let denial = asks::denial("Nobody can be asked now. Go on without it.");
        self.lines.push_back(wire::answer(&ask.request, &denial));
    }

    fn steer(&mut self, turn_id: &str, id: String, blocks: &[PromptBlock]) {
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.id == turn_id && !turn.cancelled) else { return };
        let message = uuid::Uuid::new_v4().to_string();
        turn.steering.push((id, message.clone()));
        self.lines.push_back(wire::message(&message, blocks));
    }

    fn configure(&mut self, config: &JsonObject) {
        let chosen = Chosen::of(config, &self.default_model);
        if chosen.mode != self.chosen.mode {
            let what = format!("go on in the permission mode {}", chosen.mode);
            self.ask(&json!({ "subtype": "set_permission_mode", "mode": chosen.mode }), Requested::Change(what));
        }
        // The next prompt chooses the model: this one may have named its own.
        self.chosen = chosen;
    }

    /// Stops the running turn, if it is this one: what is left of it goes nowhere.
    pub(super) fn cancel(&mut self, turn_id: &str) -> bool {
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.id == turn_id && !turn.cancelled) else { return false };
        turn.cancelled = true;
        let waiting: Vec<String> = turn.steering.iter().map(|(_, message)| message.clone()).collect();
        let unbegun = (!turn.begun).then(|| turn.message.clone());
        let over = turn.over.is_some();
        self.out.retain_mut(|event| event.turn_mut().is_none_or(|turn| turn != turn_id));
        self.out.push_back(AgentEvent::Ended { turn_id: turn_id.to_owned(), ending: Ending::Cancelled });
        for message in waiting.into_iter().chain(unbegun) {
            let what = json!({ "subtype": "cancel_async_message", "message_uuid": message });
            self.ask(&what, Requested::Drop { message });
        }
        self.ask(&json!({ "subtype": "interrupt" }), Requested::Other);
        for (_, ask) in self.asks.drain() {
            self.lines.push_back(wire::answer(&ask.request, &asks::stop()));
        }
        self.close_turn();
        if over {
            self.turn = None;
        }
        true
    }

    /// Stops whatever runs: nothing of it is read any more.
    pub(super) fn stop(&mut self) {
        match self.turn.as_ref().map(|turn| turn.id.clone()) {
            Some(turn) => drop(self.cancel(&turn)),
            None if self.in_run => self.ask(&json!({ "subtype": "interrupt" }), Requested::Other),
            None => {}
        }
    }

    /// Forgets what only the turn that ends now had open.
    fn close_turn(&mut self) {
        self.asks.clear();
        self.announced.clear();
        self.announce_at = None;
        self.workers.retain(|_, worker| worker.background && !worker.over);
        let workers = &self.workers;
        self.calls.retain(|_, call| call.worker.as_ref().is_some_and(|worker| workers.contains_key(worker)));
    }

    // What the CLI says.

    /// Takes a line.
    pub(super) fn heard(&mut self, said: Said) -> Heard {
        match said {
            Said::Init { conversation, model, .. } => self.begun_run(conversation, model),
            Said::Message { id, state } => self.message(&id, state),
            Said::Answer { request, answer } => return self.answered(&request, answer),
            Said::Ask(ask) => self.asked(ask),
            Said::Withdrawn { request } => self.withdrawn(&request),
            Said::Request { request, what } => {
                let problem = format!("this host does not do {what}");
                self.lines.push_back(wire::refusal(&request, &problem));
            }
            Said::Result(outcome) => return self.over(&outcome),
            Said::Limit { resets_at } => self.resets_at = resets_at,
            Said::TaskStarted(task) => self.task_started(task),
            Said::TaskEnded { task, call, status } => self.task_ended(task, call, &status),
            Said::Compacting(is) => self.activity(is.then(|| "Compacting its context".to_owned())),
            Said::Retry { why } => self.activity(Some(format!("Waiting to ask the model again: {why}"))),
            Said::Compacted { before, after } if self.live().is_some() => {
                self.say_part(None, |turn_id| AgentEvent::Compacted { turn_id, before, after });
            }
            Said::Stream { parent: None, event } => self.streamed(&event),
            Said::Assistant(entry) => self.assistant(entry),
            Said::User(entry) => {
                if entry.replayed {
                    // What a control request did, such as a change of the model, is repeated as if it had been a message.
                    if !entry.is_of_a_command() {
                        self.started(&entry.id.clone());
                    }
                } else {
                    self.user(&entry);
                }
            }
            Said::Mode(_) | Said::Compacted { .. } | Said::Stream { .. } | Said::Other => {}
        }
        Heard::Nothing
    }

    pub(super) fn activity(&mut self, text: Option<String>) {
        if self.live().is_some() && (text.is_some() || self.busy) {
            self.busy = text.is_some();
            self.out.push_back(AgentEvent::Activity { text });
        }
    }

    fn begun_run(&mut self, conversation: String, model: Option<String>) {
        self.in_run = true;
        self.is_own = true;
        self.model = model;
        // It is in the conversation now.
        (self.preface, self.preface_notice) = (None, None);
        if !conversation.is_empty() && (!self.knows_conversation || self.conversation.as_ref() != Some(&conversation)) {
            self.out.push_back(AgentEvent::Conversation { id: conversation.clone() });
            self.conversation = Some(conversation);
            self.knows_conversation = true;
        }
        let message = self.turn.as_ref().filter(|turn| !turn.begun).map(|turn| turn.message.clone());
        match message {
            Some(message) if !self.tells_messages => self.started(&message),
            _ => self.tell_point(),
        }
    }

    fn message(&mut self, id: &str, state: MessageState) {
        self.tells_messages = true;
        match state {
            MessageState::Started => self.started(id),
            MessageState::Dropped => self.dropped(id),
            MessageState::Queued | MessageState::Done => {}
        }
    }

    /// The CLI has a message of ours.
    fn started(&mut self, id: &str) {
        let Some(turn) = self.turn.as_mut() else {
            self.unwanted_run = true;
            return;
        };
        if turn.message == id {
            // Whatever the run was about before.
            self.unwanted_run = false;
            if !turn.begun {
                turn.begun = true;
                self.tell_point();
            }
        } else if let Some(at) = turn.steering.iter().position(|(_, message)| message == id) {
            let (steering, _) = turn.steering.remove(at);
            turn.over = None;
            if !turn.cancelled {
                let turn_id = turn.id.clone();
                self.out.push_back(AgentEvent::SteeringTaken { turn_id: turn_id.clone(), id: steering });
                self.out.push_back(AgentEvent::TakesSteering { turn_id });
                self.point(id);
            }
        } else if !turn.begun {
            self.unwanted_run = true;
        }
    }

    /// Where the turn's message stands, once both are known: that it is in, and in which conversation.
    fn tell_point(&mut self) {
        if let Some(message) = self.live().map(|turn| turn.message.clone()) {
            self.point(&message);
        }
    }

    /// The conversation can be gone back to here.
    pub(super) fn point(&mut self, entry: &str) {
        if self.live().is_some() && self.knows_conversation && self.is_own && !entry.is_empty() {
            let point = entry.to_owned();
            self.say(None, |turn_id| AgentEvent::RewindPoint { turn_id, point });
        }
    }

    fn dropped(&mut self, id: &str) {
        let Some(turn) = self.turn.as_mut() else { return };
        turn.steering.retain(|(_, message)| message != id);
        if turn.message == id && !turn.begun {
            if turn.cancelled {
                self.turn = None;
                return;
            }
            let message = "the program refused the message".to_owned();
            return self.end(Ending::Failed { error_type: "agent-error".to_owned(), message, resumable: true });
        }
        if turn.steering.is_empty()
            && let Some(ending) = turn.over.take()
        {
            self.end(ending);
        }
    }

    fn answered(&mut self, request: &str, answer: Result<Value, String>) -> Heard {
        match (self.requests.remove(request), answer) {
            (Some(Requested::Initialize), _) => return Heard::Ready,
            (Some(Requested::Change(what)), Err(problem)) => {
                let text = format!("The agent does not {what}: {problem}");
                match self.turn.is_some() {
                    true => self.say_part(None, |turn_id| AgentEvent::Notice { turn_id, text }),
                    false => self.keep_between(&text),
                }
            }
            (Some(Requested::Drop { message }), Ok(answer)) if answer.get("cancelled") == Some(&Value::Bool(true)) => {
                self.dropped(&message);
            }
            _ => {}
        }
        Heard::Nothing
    }

    fn asked(&mut self, ask: Ask) {
        if self.live().is_none() || self.is_silent(&ask.call) {
            return self.deny(&ask);
        }
        let worker = self.calls.get(&ask.call).and_then(|call| call.worker.clone());
        let worker = worker.as_deref();
        self.announced.retain(|call| *call != ask.call);
        let known = self.calls.entry(ask.call.clone()).or_default();
        (known.tool, known.input) = (ask.tool.clone(), ask.input.clone());
        if ask.tool == asks::QUESTIONS {
            self.run(&ask.call.clone());
            let request = asks::questions(&ask);
            self.asks.insert(ask.request.clone(), ask);
            return self.say_part(worker, |turn_id| AgentEvent::Asked { turn_id, request });
        }
        let (tool_call_id, question) = (ask.call.clone(), asks::tool_ask(&ask));
        self.asks.insert(ask.call.clone(), ask);
        self.say_part(worker, |turn_id| AgentEvent::ToolAsked { turn_id, tool_call_id, ask: question });
    }

    fn withdrawn(&mut self, request: &str) {
        let Some(id) = self.asks.iter().find(|(_, ask)| ask.request == request).map(|(id, _)| id.clone()) else {
            return;
        };
        if let Some(ask) = self.asks.remove(&id)
            && ask.tool != asks::QUESTIONS
        {
            let worker = self.calls.get(&ask.call).and_then(|call| call.worker.clone());
            let settled = |turn_id| AgentEvent::ToolAskSettled { turn_id, tool_call_id: ask.call, approved: false };
            self.say(worker.as_deref(), settled);
        }
    }

    /// A run is over.
    fn over(&mut self, outcome: &Outcome) -> Heard {
        let is_stopped = self.turn.as_ref().is_some_and(|turn| turn.cancelled);
        let is_first = !self.is_own && self.conversation.is_some() && outcome.rounds == 0;
        if is_first && outcome.is_error && !is_stopped && says_lost(&outcome.text) {
            return Heard::Lost(outcome.text.clone());
        }
        let was_in_run = std::mem::take(&mut self.in_run);
        let was_unwanted = std::mem::take(&mut self.unwanted_run);
        let cost = outcome.cost.or_else(|| Some(outcome.total_cost? - self.total_cost?));
        self.total_cost = outcome.total_cost.or(self.total_cost);
        if was_unwanted {
            return Heard::Nothing;
        }
        let error = self.error.take();
        let Some(turn) = &mut self.turn else { return Heard::Nothing };
        if !turn.begun && was_in_run {
            // It was about something else; the message waits.
            return Heard::Nothing;
        }
        if turn.cancelled {
            self.turn = None;
            return Heard::Nothing;
        }
        turn.begun = true;
        if let Some(usage) = ending::usage(outcome, self.model.as_deref(), cost) {
            self.say(None, |turn_id| AgentEvent::Usage { turn_id, usage });
        }
        let ending = ending::of(outcome, error.as_deref(), self.resets_at, &self.name);
        match &mut self.turn {
            // The CLI goes on with them by itself.
            Some(turn) if ending == Ending::Complete && !turn.steering.is_empty() => turn.over = Some(ending),
            _ => self.end(ending),
        }
        Heard::Nothing
    }

    /// Ends the running turn.
    pub(super) fn end(&mut self, ending: Ending) {
        let waiting: Vec<String> =
            self.turn.iter().flat_map(|turn| &turn.steering).map(|(_, message)| message.clone()).collect();
        for message in waiting {
            let what = json!({ "subtype": "cancel_async_message", "message_uuid": message });
            self.ask(&what, Requested::Drop { message });
        }
        self.end_workers(&ending);
        self.say(None, |turn_id| AgentEvent::Ended { turn_id, ending });
        self.close_turn();
        self.turn = None;
    }

    /// Text that belongs to no turn.
    pub(super) fn keep_between(&mut self, text: &str) {
        let room = BETWEEN.saturating_sub(self.between.len());
        let cut = text.floor_char_boundary(room.min(text.len()));
        self.between.push_str(text.get(..cut).unwrap_or_default());
        self.between.push('\n');
    }

    /// Whether what is said now, outside of a turn, is worth keeping.
    pub(super) fn is_unasked(&self) -> bool {
        !self.unwanted_run && self.turn.as_ref().is_none_or(|turn| !turn.begun && !turn.cancelled)
    }

    // Tool calls.

    /// A call's input is known: it runs, unless somebody is asked about it soon.
    pub(super) fn announce(&mut self, call: String) {
        self.announced.push(call);
        self.announce_at.get_or_insert_with(|| Instant::now() + UNASKED);
    }

    /// The calls that were announced run without asking.
    pub(super) fn run_announced(&mut self) {
        self.announce_at = None;
        for call in std::mem::take(&mut self.announced) {
            self.run(&call);
        }
    }

    /// The call runs.
    pub(super) fn run(&mut self, id: &str) {
        self.announced.retain(|call| call != id);
        let Some(call) = self.calls.get_mut(id).filter(|call| !call.runs) else { return };
        call.runs = true;
        let (worker, invocation) = (call.worker.clone(), calls::invocation(&call.tool, &call.input));
        let input = (!call.input.is_null()).then(|| calls::input_text(&call.input));
        let tool_call_id = id.to_owned();
        let invocation = invocation.into();
        self.say(worker.as_deref(), |turn_id| AgentEvent::ToolRunning { turn_id, tool_call_id, invocation, input });
    }
}
