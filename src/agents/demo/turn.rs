//! One turn of the demo: its steps, done in order.
//!
//! Always: a turn may be dropped wherever it waits, and what it had said by then is in the history. Text is counted as
//! said when the chat has taken it.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use ahp_types::common::JsonObject;
use ahp_types::state::{Message, ToolCallResult, ToolResultContent, ToolResultTextContent, UsageInfo};
use serde_json::{Value, json};

use super::asks::{self, ALLOW_ALWAYS, Asks, Steering, unique_id};
use super::background::Backgrounds;
use super::history::History;
use super::rules::SessionRules;
use super::script::{self, Step};
use super::settings::Settings;
use super::workers::{Seats, Worker};
use crate::actors::agent::{
    AgentEvent, AgentInput, AgentSink, Ending, LimitKind, ProcessStart, Prompt, PromptBlock, PromptKind, ToolDecision,
};
use crate::actors::visuals::NewVisual;
use crate::clock::{self, Clock};

/// The `errorType` of a turn that was told to fail.
const ERROR_TYPE: &str = "demo";

/// Why a process is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// The chat closed it, or is gone itself.
    Closed,
    Crashed,
}

/// What a process has on its desk between and during turns.
pub(super) struct Desk {
    pub(super) events: AgentSink,
    clock: Clock,
    directories: Vec<String>,
    rules: Arc<SessionRules>,
    settings: RefCell<Settings>,
    history: RefCell<History>,
    asks: RefCell<Asks>,
    /// The workers of the running turn.
    pub(super) seats: RefCell<Seats>,
    pub(super) background: Backgrounds,
    /// Where the last turn that can be taken up goes on.
    position: RefCell<Option<Position>>,
    /// The key that the session's memory holds the position under.
    position_key: String,
}

/// The step that a turn goes on with when it is taken up.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Position {
    turn_id: String,
    step: usize,
}

impl Position {
    fn to_value(&self) -> Value {
        json!({"turn": self.turn_id, "step": self.step})
    }

    fn from_value(value: &Value) -> Option<Self> {
        let turn_id = value.get("turn")?.as_str()?.to_owned();
        let step = usize::try_from(value.get("step")?.as_u64()?).ok()?;
        Some(Self { turn_id, step })
    }
}

impl Desk {
    pub(super) fn new(start: ProcessStart, rules: Arc<SessionRules>, events: AgentSink) -> Self {
        let position_key = format!("position:{}", start.chat);
        let background = Backgrounds::new(events.clone());
        Self {
            events,
            clock: start.clock,
            directories: start.directories,
            rules,
            settings: RefCell::new(Settings::of(&start.config)),
            history: RefCell::new(History::new(start.conversation, start.back_to.map(|back| back.point))),
            asks: RefCell::default(),
            seats: RefCell::default(),
            background,
            position: RefCell::new(start.memory.get(&position_key).and_then(Position::from_value)),
            position_key,
        }
    }

    /// Hands an event to the chat; waits while the chat is behind.
    pub(super) async fn emit(&self, event: AgentEvent) -> Result<(), Left> {
        self.events.send(event).await.map_err(|_| Left::Closed)
    }

    /// Begins a turn: nothing of the one before it is awaited any more.
    pub(super) fn begin(&self, prompt: &Prompt) {
        self.asks.take();
        self.seats.take();
        self.history.borrow_mut().begin(&prompt.turn_id, &prompt.message.text);
    }

    /// Takes what is told between and during turns. What is for a worker is for whoever asked: no two things that are asked
    /// for have one id.
    pub(super) fn hear(&self, input: AgentInput) {
        match input {
            AgentInput::Configured { config } => self.configure(&config),
            AgentInput::Decide { tool_call_id, decision } => self.asks.borrow_mut().decide(&tool_call_id, decision),
            AgentInput::Answer { request_id, response, answers } => {
                self.asks.borrow_mut().answer(&request_id, &response, &answers);
            }
            AgentInput::Steer { id, message, .. } => {
                self.asks.borrow_mut().steer(Steering { id, text: message.text });
            }
            AgentInput::VisualPublished { request_id, outcome } => {
                self.asks.borrow_mut().published(&request_id, outcome);
            }
            AgentInput::ClientToolDone { tool_call_id, .. } => self.asks.borrow_mut().complete(&tool_call_id),
            AgentInput::StopBackgroundWork { id } => self.background.stop(&id),
            AgentInput::WorkerOpened { worker, .. } => self.seats.borrow_mut().opened(&worker, Ok(())),
            AgentInput::WorkerRefused { worker, problem } => self.seats.borrow_mut().opened(&worker, Err(problem)),
            AgentInput::OfWorker { worker, input } => match *input {
                AgentInput::Cancel { .. } => self.seats.borrow_mut().stop(&worker),
                input => self.hear(input),
            },
            AgentInput::Prompt(_) | AgentInput::Cancel { .. } | AgentInput::Close => {}
        }
    }

    fn configure(&self, config: &JsonObject) {
        *self.settings.borrow_mut() = Settings::of(config);
    }
}

/// The part that the next text or reasoning would go into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenPart {
    Text,
    Reasoning,
}

/// A running turn.
pub(super) struct Turn<'a> {
    desk: &'a Desk,
    prompt: Prompt,
    settings: Settings,
    open: Cell<Option<OpenPart>>,
    /// Of a worker: who it is, and what it has said.
    worker: Option<Worker>,
    /// Questions that the turn did not wait for.
    unawaited: RefCell<Vec<String>>,
}

impl<'a> Turn<'a> {
    pub(super) fn new(desk: &'a Desk, prompt: Prompt) -> Self {
        let settings = desk.settings.borrow().clone();
        Self { desk, prompt, settings, open: Cell::new(None), worker: None, unawaited: RefCell::default() }
    }

    /// The turn of a worker that this turn spawns.
    pub(super) fn of_worker(&self, prompt: Prompt, worker: Worker) -> Turn<'a> {
        Turn { settings: self.settings.clone(), worker: Some(worker), ..Turn::new(self.desk, prompt) }
    }

    pub(super) fn desk(&self) -> &'a Desk {
        self.desk
    }

    pub(super) fn is_worker(&self) -> Option<&Worker> {
        self.worker.as_ref()
    }

    /// The message that it answers.
    pub(super) fn message(&self) -> Message {
        self.prompt.message.clone()
    }

    /// Hands an event to the chat, or to the worker's.
    pub(super) async fn emit(&self, event: AgentEvent) -> Result<(), Left> {
        match &self.worker {
            Some(worker) => self.desk.emit(worker.says(event)).await,
            None => self.desk.emit(event).await,
        }
    }

    /// Does the turn, its ending included.
    pub(super) async fn run(self) -> Result<(), Left> {
        // At the beginning: also a turn that is stopped can be gone back to. The demo's word for its end is the turn's id.
        self.desk.emit(AgentEvent::RewindPoint { turn_id: self.id(), point: self.id() }).await?;
        let ending = self.perform().await?;
        self.emit(AgentEvent::Ended { turn_id: self.id(), ending }).await
    }

    pub(super) async fn perform(&self) -> Result<Ending, Left> {
        if self.prompt.kind == PromptKind::Compact {
            let (before, after) = self.desk.history.borrow().compacted(&self.prompt.turn_id);
            self.compact(Some(before), Some(after)).await?;
            return Ok(Ending::Complete);
        }
        let steps = match &self.worker {
            Some(_) => script::parse_line(&self.prompt.message.text),
            None => script::parse(&self.prompt.message.text),
        };
        let first = self.first_step();
        if first == 0 {
            self.greet().await?;
        }
        for (at, step) in steps.into_iter().enumerate().skip(first) {
            if at > first {
                self.keep_position(at).await?;
            }
            if let Some(ending) = self.step(at, step).await? {
                return Ok(ending);
            }
            self.say_unsaid().await?;
        }
        Ok(Ending::Complete)
    }

    /// The step to begin with. A turn that is taken up and that nothing is known of was at its first.
    fn first_step(&self) -> usize {
        match &*self.desk.position.borrow() {
            Some(position) if self.prompt.attempt > 0 && position.turn_id == self.prompt.turn_id => position.step,
            _ => 0,
        }
    }

    async fn greet(&self) -> Result<(), Left> {
        let greeting = &self.settings.greeting;
        if self.worker.is_some()
            || greeting.is_empty()
            || !self.desk.history.borrow().is_empty_before(&self.prompt.turn_id)
        {
            return Ok(());
        }
        self.say(greeting).await
    }

    /// Does one step; `Some` when it ends the turn.
    async fn step(&self, at: usize, step: Step) -> Result<Option<Ending>, Left> {
        match step {
            Step::Say(text) => self.say(&text).await?,
            Step::Words { count, pause } => self.words(count, pause).await?,
            Step::Think(text) => self.think(text).await?,
            Step::Tool { name, input, asks } => self.tool(&name, input, asks).await?,
            Step::ClientTool { name, input } => self.client_tool(name, input).await?,
            Step::Question { text, options, waits } => self.question(&text, &options, waits).await?,
            Step::Visual { title, html } => self.visual(title, html).await?,
            Step::Sleep(pause) => tokio::time::sleep(pause).await,
            Step::AwaitSteering => self.await_steering().await?,
            Step::Usage { input, output } => self.usage(input, output).await?,
            Step::Notice(text) => self.part(AgentEvent::Notice { turn_id: self.id(), text }).await?,
            Step::Compact { before, after } => self.compact(before, after).await?,
            Step::Background { label, pause } => self.background(label, pause).await?,
            Step::Subagent(script) => self.subagent(at, script).await?,
            Step::Activity(text) => self.emit(AgentEvent::Activity { text }).await?,
            Step::Fail { text, resumable } => return self.fail(at, text, resumable).await.map(Some),
            Step::Limit { kind, lifts_after } => return self.limit(at, kind, lifts_after).await.map(Some),
            Step::Crash => return Err(self.crash(at).await?),
            Step::Context => self.say_whole(&self.context()).await?,
            Step::History => self.say_whole(&self.history()).await?,
            Step::Cwd => self.say_whole(&as_json(&self.desk.directories)).await?,
        }
        Ok(None)
    }

    pub(super) fn id(&self) -> String {
        self.prompt.turn_id.clone()
    }

    // What is said.

    async fn say(&self, text: &str) -> Result<(), Left> {
        let mut separator = self.open_text();
        for word in script::words(&self.settings.worded(text)) {
            self.text(std::mem::take(&mut separator), &word).await?;
            self.settings.pause().await;
        }
        Ok(())
    }

    async fn say_whole(&self, text: &str) -> Result<(), Left> {
        self.text(self.open_text(), text).await
    }

    /// Says the answers to questions that the turn did not wait for and that came meanwhile.
    async fn say_unsaid(&self) -> Result<(), Left> {
        let unsaid = self.desk.asks.borrow_mut().take_unsaid(&self.unawaited.borrow());
        for words in unsaid {
            self.say(&words).await?;
        }
        Ok(())
    }

    async fn words(&self, count: u32, pause: Duration) -> Result<(), Left> {
        for number in 1..=count {
            let separator = if number == 1 { self.open_text() } else { Separator::None };
            if number > 1 && !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            self.text(separator, &format!("w{number} ")).await?;
        }
        Ok(())
    }

    async fn think(&self, text: String) -> Result<(), Left> {
        if !self.settings.thinks {
            return Ok(());
        }
        let joins = self.open.replace(Some(OpenPart::Reasoning)) == Some(OpenPart::Reasoning);
        let text = if joins { format!("\n{text}") } else { text };
        self.emit(AgentEvent::Reasoning { turn_id: self.id(), text }).await
    }

    /// Opens a line of text: what has to stand before its first word.
    fn open_text(&self) -> Separator {
        match self.open.replace(Some(OpenPart::Text)) {
            Some(OpenPart::Text) => Separator::Line,
            _ => Separator::Part,
        }
    }

    async fn text(&self, separator: Separator, words: &str) -> Result<(), Left> {
        let text = if separator == Separator::Line { format!("\n{words}") } else { words.to_owned() };
        self.emit(AgentEvent::Text { turn_id: self.id(), text: text.clone() }).await?;
        match &self.worker {
            Some(worker) => worker.said(&text, separator == Separator::Part),
            None => self.desk.history.borrow_mut().said(&text, separator == Separator::Part),
        }
        Ok(())
    }

    async fn compact(&self, before: Option<u64>, after: Option<u64>) -> Result<(), Left> {
        self.part(AgentEvent::Compacted { turn_id: self.id(), before, after }).await
    }

    async fn background(&self, label: String, pause: Duration) -> Result<(), Left> {
        let worker = self.worker.as_ref().map(|worker| worker.id.clone());
        let work = self.desk.background.begin(label, pause, worker);
        self.emit(AgentEvent::BackgroundWork { work: work.listed() }).await?;
        work.run();
        Ok(())
    }

    /// Emits what is a part of its own, so that text after it begins another.
    pub(super) async fn part(&self, event: AgentEvent) -> Result<(), Left> {
        self.open.set(None);
        self.emit(event).await
    }

    // What is asked.

    async fn tool(&self, name: &str, input: String, asks: bool) -> Result<(), Left> {
        let call = unique_id();
        self.part(AgentEvent::ToolStarted {
            turn_id: self.id(),
            tool_call_id: call.clone(),
            tool_name: name.to_owned(),
            display_name: name.to_owned(),
            intention: None,
            contributor: None,
        })
        .await?;
        let input = if asks && self.settings.asks_for(name) && !self.desk.rules.allows(name) {
            let Some(approved) = self.ask(&call, name, input).await? else { return Ok(()) };
            approved
        } else {
            self.run_unasked(&call, name, &input).await?;
            input
        };
        self.desk
            .emit(AgentEvent::ToolDone { turn_id: self.id(), tool_call_id: call, result: result(name, input) })
            .await
    }

    /// Calls a client's tool and waits until it has ended, one way or another.
    async fn client_tool(&self, tool_name: String, input: String) -> Result<(), Left> {
        let call = unique_id();
        let done = self.desk.asks.borrow_mut().await_completion(&call);
        self.part(AgentEvent::ClientTool { turn_id: self.id(), tool_call_id: call, tool_name, input }).await?;
        done.await.map_err(|_| Left::Closed)
    }

    /// Waits for somebody's decision: the input to run with, or nothing when it was denied.
    async fn ask(&self, call: &str, name: &str, input: String) -> Result<Option<String>, Left> {
        let decision = self.desk.asks.borrow_mut().await_decision(call);
        let ask = asks::tool_ask(name, &input);
        self.emit(AgentEvent::ToolAsked { turn_id: self.id(), tool_call_id: call.to_owned(), ask }).await?;
        match decision.await.map_err(|_| Left::Closed)? {
            ToolDecision::Deny { .. } => Ok(None),
            ToolDecision::Approve { option, edited_input } => {
                if option.as_deref() == Some(ALLOW_ALWAYS) {
                    self.remember(SessionRules::key(name), Value::Bool(true)).await?;
                    self.desk.rules.allow(name);
                }
                Ok(Some(edited_input.unwrap_or(input)))
            }
        }
    }

    async fn run_unasked(&self, call: &str, name: &str, input: &str) -> Result<(), Left> {
        self.desk
            .emit(AgentEvent::ToolRunning {
                turn_id: self.id(),
                tool_call_id: call.to_owned(),
                invocation: format!("Run {name}").into(),
                input: Some(input.to_owned()),
            })
            .await
    }

    async fn question(&self, text: &str, options: &[String], waits: bool) -> Result<(), Left> {
        let request = asks::request(text, options, waits);
        if !waits {
            self.desk.asks.borrow_mut().expect_answer(&request.id);
            self.unawaited.borrow_mut().push(request.id.clone());
            return self.part(AgentEvent::Asked { turn_id: self.id(), request }).await;
        }
        let answer = self.desk.asks.borrow_mut().await_answer(&request.id);
        self.part(AgentEvent::Asked { turn_id: self.id(), request }).await?;
        let words = answer.await.map_err(|_| Left::Closed)?;
        self.say(&words).await
    }

    /// Publishes a page, and says its id or the refusal.
    async fn visual(&self, title: String, html: String) -> Result<(), Left> {
        let request_id = unique_id();
        let outcome = self.desk.asks.borrow_mut().await_visual(&request_id);
        let visual = Box::new(NewVisual { title, html, ..NewVisual::default() });
        self.emit(AgentEvent::Visual { turn_id: self.id(), request_id, visual }).await?;
        match outcome.await.map_err(|_| Left::Closed)? {
            Ok(words) | Err(words) => self.say(&words).await,
        }
    }

    /// Waits for a message into this turn. Until it says that it has it, the host keeps the message.
    async fn await_steering(&self) -> Result<(), Left> {
        if self.worker.is_some() {
            return self.say("nobody steers a subagent").await;
        }
        let message = self.desk.asks.borrow_mut().await_steering();
        self.desk.emit(AgentEvent::TakesSteering { turn_id: self.id() }).await?;
        let Steering { id, text } = message.await.map_err(|_| Left::Closed)?;
        self.desk.emit(AgentEvent::SteeringTaken { turn_id: self.id(), id }).await?;
        self.say(&format!("steered: {text}")).await
    }

    // What is reported, and how it ends.

    async fn usage(&self, input: i64, output: i64) -> Result<(), Left> {
        let chosen = self.prompt.message.model.as_ref().map(|model| model.id.clone());
        let usage = UsageInfo {
            input_tokens: Some(input),
            output_tokens: Some(output),
            model: Some(chosen.unwrap_or_else(|| self.settings.model.clone())),
            ..UsageInfo::default()
        };
        self.emit(AgentEvent::Usage { turn_id: self.id(), usage }).await
    }

    async fn remember(&self, key: String, value: Value) -> Result<(), Left> {
        self.desk.emit(AgentEvent::Remember { key, value }).await
    }

    /// The turn of the chat, and the step in it, that this turn comes from.
    pub(super) fn home(&self, at: usize) -> (String, usize) {
        self.worker.as_ref().map_or_else(|| (self.id(), at), |worker| worker.spawned_at.clone())
    }

    /// Keeps that the turn goes on with this step when it is taken up, by this process or by the next. A worker's is not: it
    /// begins anew with the step that spawned it.
    async fn keep_position(&self, step: usize) -> Result<(), Left> {
        match &self.worker {
            Some(_) => Ok(()),
            None => self.keep(Position { turn_id: self.id(), step }).await,
        }
    }

    async fn keep(&self, position: Position) -> Result<(), Left> {
        let value = position.to_value();
        *self.desk.position.borrow_mut() = Some(position);
        self.remember(self.desk.position_key.clone(), value).await
    }

    async fn fail(&self, at: usize, message: String, resumable: bool) -> Result<Ending, Left> {
        let resumable = resumable && self.worker.is_none();
        if resumable {
            self.keep_position(at + 1).await?;
        }
        Ok(Ending::Failed { error_type: ERROR_TYPE.to_owned(), message, resumable })
    }

    async fn limit(&self, at: usize, kind: LimitKind, lifts_after: Option<Duration>) -> Result<Ending, Left> {
        self.keep_position(at + 1).await?;
        let resets_at = lifts_after.map(|span| clock::later(self.desk.clock.now(), span));
        let message = match kind {
            LimitKind::Usage => "the demo used up its plan, as it was told to",
            LimitKind::Overload => "the demo is overloaded, as it was told to be",
        };
        Ok(Ending::Limited { kind, message: message.to_owned(), resets_at })
    }

    async fn crash(&self, at: usize) -> Result<Left, Left> {
        let (turn_id, at) = self.home(at);
        self.keep(Position { turn_id, step: at + 1 }).await?;
        self.desk.emit(AgentEvent::Gone { problem: "the demo crashed, as it was told to".to_owned() }).await?;
        Ok(Left::Crashed)
    }

    fn context(&self) -> String {
        as_json(&self.prompt.blocks.iter().map(described).collect::<Vec<_>>())
    }

    fn history(&self) -> String {
        if self.worker.is_some() {
            return as_json(&[(); 0]);
        }
        as_json(&self.desk.history.borrow().entries_before(&self.prompt.turn_id))
    }
}

/// What stands between a piece of text and what was said before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Separator {
    /// It goes on.
    #[default]
    None,
    /// It begins a line of the open part.
    Line,
    /// It begins a part.
    Part,
}

fn result(name: &str, output: String) -> ToolCallResult {
    ToolCallResult {
        success: true,
        past_tense_message: format!("Ran {name}").into(),
        content: Some(vec![ToolResultContent::Text(ToolResultTextContent { text: output })]),
        structured_content: None,
        error: None,
    }
}

/// A block as `/context` says it: itself, but an image with its size in place of its data.
#[derive(serde::Serialize)]
#[serde(untagged)]
enum Described<'a> {
    Image {
        r#type: &'static str,
        #[serde(rename = "mimeType")]
        mime_type: &'a str,
        size: usize,
    },
    Block(&'a PromptBlock),
}

fn described(block: &PromptBlock) -> Described<'_> {
    match block {
        PromptBlock::Image { mime_type, data } => {
            Described::Image { r#type: "image", mime_type, size: decoded_length(data) }
        }
        block => Described::Block(block),
    }
}

/// The number of bytes that `base64` stands for.
fn decoded_length(base64: &str) -> usize {
    base64.trim_end_matches('=').len() * 3 / 4
}

/// `value` as JSON; plain data never fails to be written.
fn as_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
