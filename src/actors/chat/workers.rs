//! Worker chats: opened when an agent says that a tool call spawned a worker, spoken for by the process of another chat.
//!
//! A worker's chat has no process. What the worker says comes through the process that spawned it, straight to the worker's
//! own actor; what the worker is told goes back the same way. So what comes after the spawning chat has gone on is still
//! recorded where it belongs. A worker's chat that wakes with a running turn and nobody to speak for it ends the turn, like
//! any other.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use actix::{Actor, Addr, AsyncContext, Context};
use ahp_types::actions::{
    ChatToolCallCompleteAction, ChatToolCallContentChangedAction, ChatToolCallReadyAction, ChatToolCallStartAction,
    ChatTurnStartedAction, SessionChatAddedAction, StateAction,
};
use ahp_types::state::{
    ChatInteractivity, ChatOrigin, ChatState, Message, MessageKind, MessageOrigin, ResponsePart,
    ToolCallConfirmationReason, ToolCallResult, ToolCallState, ToolResultContent, ToolResultSubagentContent,
};

use super::decide::{Effect, Entry};
use super::{ChatActor, ChatMessage, apply, ending, message};
use crate::actors::agent::{AgentEvent, AgentInput, Ending, NeedsToken, WorkerStart};
use crate::actors::core::{ChatCell, SessionCore, Unsaved};
use crate::actors::registry::worker_uri;
use crate::actors::session::new_chat;
use crate::clock;
use crate::events::rows::ChannelKind;
use crate::events::{Channel, ChannelId};
use crate::projections::action::Action;
use crate::projections::chat::{ChatFold, call_id};
use crate::projections::fact::Fact;
use crate::projections::{mirror, workers};

/// The longest URI of a worker's chat, in bytes.
const URI_LENGTH: usize = 2_048;

/// The workers that a process speaks for, by the ids that it gave them; shared by its chat and theirs.
#[derive(Clone, Default)]
pub struct Workers(Rc<RefCell<HashMap<String, Addr<ChatActor>>>>);

impl Workers {
    /// The chat of the worker with this id.
    pub fn get(&self, worker: &str) -> Option<Addr<ChatActor>> {
        self.0.borrow().get(worker).cloned()
    }

    fn insert(&self, worker: String, chat: Addr<ChatActor>) {
        let before = self.0.borrow_mut().insert(worker, chat);
        // The agent used the name again: nobody can speak for the first any more.
        if let Some(before) = before {
            before.do_send(ChatMessage::Dismissed { problem: "its agent gave its name to another worker".into() });
        }
    }

    /// The process is gone. `frozen`: nobody is told, what runs is seen to at the next start.
    pub fn dismiss(&self, problem: &str, frozen: bool) {
        for (_, worker) in self.0.borrow_mut().drain() {
            if !frozen {
                worker.do_send(ChatMessage::Dismissed { problem: Arc::from(problem) });
            }
        }
    }
}

/// Whose process speaks for a worker.
pub struct Employer {
    /// The chat that has the process.
    chat: Addr<ChatActor>,
    process: u64,
    workers: Workers,
    /// Whether the agent stops one worker alone.
    stops_alone: bool,
    worker: String,
}

impl Employer {
    /// Lets the process hear something for the worker.
    pub fn tell(&self, input: AgentInput) {
        if matches!(input, AgentInput::Cancel { .. }) && !self.stops_alone {
            return;
        }
        let (process, worker) = (self.process, self.worker.clone());
        self.chat.do_send(ChatMessage::ForWorker { process, worker, input: Box::new(input) });
    }
}

/// A worker's turn is never taken up: the turn that it works for begins another worker.
fn for_good(ending: Ending) -> Ending {
    match ending {
        Ending::Failed { error_type, message, .. } => Ending::Failed { error_type, message, resumable: false },
        Ending::Limited { kind, message, .. } => {
            Ending::Failed { error_type: kind.error_type().to_owned(), message, resumable: false }
        }
        Ending::NeedsToken(needed) => {
            Ending::Failed { error_type: NeedsToken::ERROR_TYPE.to_owned(), message: needed.message, resumable: false }
        }
        ending => ending,
    }
}

/// A worker that may be opened: its number, its chat, and how it begins.
struct Opening {
    id: ChannelId,
    uri: Channel,
    state: ChatState,
    started: ChatTurnStartedAction,
    link: ToolResultSubagentContent,
}

impl ChatActor {
    /// What this chat hears of a process: of its own, or of the one that speaks for it. A worker has one turn, whatever its
    /// agent calls it, and after that only the end of its background work is news.
    pub(super) fn heard(&self, process: u64, mut event: AgentEvent) -> Option<AgentEvent> {
        if self.speaking() != Some(process) {
            return None;
        }
        if self.employer.is_none() {
            return Some(event);
        }
        let runs = self.cell.borrow().fold.state.active_turn.is_some();
        let is_news = runs || matches!(event, AgentEvent::BackgroundWorkDone { .. });
        if !is_news {
            return None;
        }
        if let AgentEvent::Ended { ending, .. } = &mut event {
            *ending = for_good(ending.clone());
        }
        if let (Some(turn), Some(own)) = (event.turn_mut(), &self.handed) {
            turn.clone_from(own);
        }
        Some(event)
    }

    /// The number of the process that speaks for this chat: its own, or the one of the chat above.
    pub(super) fn speaking(&self) -> Option<u64> {
        match &self.process {
            Some(own) => (!own.is_leaving).then_some(own.number),
            None => self.employer.as_ref().map(|employer| employer.process),
        }
    }

    /// Hands something to the process for one of its workers.
    pub(super) fn tell_worker(&mut self, process: u64, worker: String, input: AgentInput) {
        if self.process.as_ref().is_some_and(|current| current.number == process) {
            self.tell(AgentInput::OfWorker { worker, input: Box::new(input) });
        }
    }

    /// Nobody speaks for this worker any more.
    pub(super) fn dismissed(&mut self, problem: &str, ctx: &mut Context<Self>) {
        if self.shared.is_stopping() || self.employer.is_none() {
            return;
        }
        self.end_background_work(ctx);
        self.end_turn(|chat, at| ending::failed(chat, at, "agent-gone", problem, false), false, Vec::new(), ctx);
    }

    /// Opens the chat of a worker, in one batch with what links the two, or tells the agent why not.
    pub(super) fn spawn_worker(
        &mut self,
        turn_id: String,
        tool_call_id: String,
        worker: WorkerStart,
        ctx: &mut Context<Self>,
    ) {
        if self.shared.is_stopping() {
            return;
        }
        let announced = self.has_call(&tool_call_id);
        if !announced && self.too_many_parts(ctx) {
            return;
        }
        let opening = match self.opening(&tool_call_id, &worker) {
            Ok(opening) => opening,
            Err(problem) => return self.tell(AgentInput::WorkerRefused { worker: worker.id, problem }),
        };
        if !announced {
            self.flush_text(ctx);
            self.close_part();
        }
        self.open_worker(&turn_id, &tool_call_id, worker, opening, ctx);
    }

    fn opening(&self, tool_call_id: &str, worker: &WorkerStart) -> Result<Opening, String> {
        let (core, cell) = (self.core.borrow(), self.cell.borrow());
        self.within_limits(&core, &cell)?;
        let at = self.shared.clock.now();
        let (id, uri) = self.reserve_worker(&core, tool_call_id)?;
        let chat = cell.channel.to_string();
        let origin = ChatOrigin::Tool { chat, tool_call_id: tool_call_id.to_owned() };
        let prompt = Message {
            text: worker.prompt.clone(),
            origin: MessageOrigin { kind: MessageKind::Tool },
            attachments: None,
            model: None,
            agent: None,
            meta: None,
        };
        let titled = Some(worker.title.trim()).filter(|title| !title.is_empty()).map(str::to_owned);
        let mut state = new_chat(&uri, at, origin, cell.fold.state.working_directories.clone());
        state.title = titled.or_else(|| message::name(&prompt)).unwrap_or_else(|| "Worker".to_owned());
        let hidden = worker.hidden;
        state.interactivity = Some(if hidden { ChatInteractivity::Hidden } else { ChatInteractivity::ReadOnly });
        let link = ToolResultSubagentContent {
            resource: uri.to_string(),
            title: state.title.clone(),
            agent_name: worker.agent_name.clone(),
            description: worker.description.clone(),
        };
        let started = ChatTurnStartedAction {
            turn_id: ulid::Ulid::new().to_string(),
            started_at: clock::rfc3339(at),
            message: prompt,
            queued_message_id: None,
            meta: None,
        };
        Ok(Opening { id, uri, state, started, link })
    }

    fn within_limits(&self, core: &SessionCore, cell: &ChatCell) -> Result<(), String> {
        let settings = &self.shared.settings;
        let state = &core.fold.state;
        let limit = |met: &'static str, text: String| {
            metrics::counter!("scrollback_limit_met_total", "limit" => met).increment(1);
            Err(text)
        };
        let deepest = settings.max_worker_depth;
        if workers::depth(state, cell.channel.as_str()) >= deepest {
            return limit("worker_depth", format!("workers are nested at most {deepest} deep here"));
        }
        let most = settings.max_workers_in_turn;
        let turn = cell.fold.state.active_turn.as_ref();
        if turn.map_or(0, |turn| workers::spawning(turn).flat_map(workers::Spawning::links).count()) >= most {
            return limit("workers", format!("a turn has at most {most} workers here"));
        }
        let chats = settings.max_chats_in_session;
        if state.chats.len() >= chats {
            return limit("chats", format!("a session holds at most {chats} chats"));
        }
        Ok(())
    }

    /// A URI that nobody had: one call may spawn several workers, and an agent may use an id again.
    fn reserve_worker(&self, core: &SessionCore, tool_call_id: &str) -> Result<(ChannelId, Channel), String> {
        let limit = self.shared.settings.max_chats_in_session;
        for attempt in 1..=limit.saturating_add(1) {
            let uri = Channel::from(worker_uri(core.channel.as_str(), tool_call_id, attempt));
            if uri.as_str().len() > URI_LENGTH {
                return Err("the id of the tool call is too long for a chat's name".to_owned());
            }
            match self.shared.registry.reserve(uri.as_str(), ChannelKind::Chat, Some(core.id)) {
                Ok(Some(id)) => return Ok((id, uri)),
                Ok(None) => {}
                Err(fault) => return Err(format!("the worker's chat cannot be made: {fault}")),
            }
        }
        Err("this tool call has spawned too many workers".to_owned())
    }

    fn open_worker(
        &mut self,
        turn_id: &str,
        tool_call_id: &str,
        worker: WorkerStart,
        opening: Opening,
        ctx: &mut Context<Self>,
    ) {
        let Opening { id, uri, state, started, link } = opening;
        let new = ChatCell::new(id, uri.clone(), ChatFold::new(state.clone()), Unsaved::default());
        let new = Rc::new(RefCell::new(new));
        self.start_actor(worker.id.clone(), &new, &started.turn_id, ctx);
        let by = self.by_agent();
        let begun = self.begun(turn_id, tool_call_id, &link.title);
        let content = self.linked(turn_id, tool_call_id, link);
        let address = ctx.address();
        let mut core = self.core.borrow_mut();
        let mut cell = self.cell.borrow_mut();
        core.chats.insert(uri.to_string(), Rc::clone(&new));
        let session = core.channel.to_string();
        let mut recording = core.record(by);
        recording.flush_text(&mut cell);
        for entry in begun.into_iter().chain([content]) {
            apply(&mut recording, &mut cell, entry);
        }
        recording.create_channel(&uri, id, ChannelKind::Chat);
        {
            let mut new = new.borrow_mut();
            let summary = mirror::summary_of(&state);
            recording
                .chat_fact(&mut new, &Fact::ChatCreated { session, state: Box::new(state), fork: None, context: None });
            let added = StateAction::SessionChatAdded(SessionChatAddedAction { summary });
            recording.session_action(Action::host(added), None, false);
            let started = Action::host(StateAction::ChatTurnStarted(started));
            recording.chat_action(&mut new, started, false);
            recording.mirror(&new, true);
        }
        if worker.background {
            let title = new.borrow().fold.state.title.clone();
            recording.list_worker(&mut cell, &title, uri.as_str());
        }
        recording.mirror(&cell, true);
        recording.also(new);
        let weight = recording.finish(Some((&mut cell, &address)));
        self.in_flight.add(weight);
        let (shared, settled) = (Arc::clone(&self.shared), uri.clone());
        core.lane.release_on_disk(Box::new(move |_| shared.registry.settle(settled.as_str())));
        drop((core, cell));
        let opened = AgentInput::WorkerOpened { worker: worker.id, chat: uri };
        self.act_once_durable(vec![Effect::Tell(Box::new(opened))], ctx);
    }

    /// Starts the worker's actor, which its session takes up with its next message.
    fn start_actor(&mut self, worker: String, cell: &Rc<RefCell<ChatCell>>, turn_id: &str, ctx: &mut Context<Self>) {
        let employer = self.employer_of(worker.clone(), ctx);
        let mut actor = ChatActor::with_turn(Rc::clone(&self.core), Rc::clone(cell), turn_id.to_owned());
        actor.in_flight = self.in_flight.clone();
        let workers = employer.workers.clone();
        actor.employer = Some(employer);
        let addr = actor.start();
        cell.borrow_mut().actor = Some(addr.clone());
        self.core.borrow_mut().started.push((cell.borrow().channel.clone(), addr.clone()));
        workers.insert(worker, addr);
    }

    /// Who speaks for a worker of this chat: this chat's process, or the one that speaks for this chat.
    fn employer_of(&self, worker: String, ctx: &mut Context<Self>) -> Employer {
        let provider = self.core.borrow().fold.state.provider.clone();
        let stops_alone = self.shared.agent(&provider).is_some_and(|agent| agent.extras().stops_workers);
        match (&self.employer, &self.process) {
            (Some(above), _) => Employer {
                chat: above.chat.clone(),
                process: above.process,
                workers: above.workers.clone(),
                stops_alone,
                worker,
            },
            (None, process) => Employer {
                chat: ctx.address(),
                process: process.as_ref().map_or(0, |process| process.number),
                workers: process.as_ref().map(|process| process.workers.clone()).unwrap_or_default(),
                stops_alone,
                worker,
            },
        }
    }

    /// What brings the spawning call to where it shows something: a call that nothing announced is begun first.
    fn begun(&self, turn_id: &str, tool_call_id: &str, title: &str) -> Vec<Entry> {
        let mut entries = Vec::new();
        let call = self.call(tool_call_id);
        if call.is_none() {
            entries.push(Entry::Host(StateAction::ChatToolCallStart(ChatToolCallStartAction {
                turn_id: turn_id.to_owned(),
                tool_call_id: tool_call_id.to_owned(),
                meta: None,
                tool_name: "subagent".to_owned(),
                display_name: "Subagent".to_owned(),
                intention: None,
                contributor: None,
            })));
        }
        if matches!(call, None | Some(ToolCallState::Streaming(_))) {
            entries.push(Entry::Host(StateAction::ChatToolCallReady(ChatToolCallReadyAction {
                turn_id: turn_id.to_owned(),
                tool_call_id: tool_call_id.to_owned(),
                meta: None,
                contributor: None,
                intention: None,
                invocation_message: title.to_owned().into(),
                tool_input: None,
                confirmation_title: None,
                risk_assessment: None,
                edits: None,
                editable: None,
                confirmed: Some(ToolCallConfirmationReason::NotNeeded),
                options: None,
            })));
        }
        entries
    }

    /// The call's content with one more link.
    fn linked(&self, turn_id: &str, tool_call_id: &str, link: ToolResultSubagentContent) -> Entry {
        let mut content = match self.call(tool_call_id) {
            Some(ToolCallState::Running(call)) => call.content.unwrap_or_default(),
            _ => Vec::new(),
        };
        content.push(ToolResultContent::Subagent(link));
        Entry::Host(StateAction::ChatToolCallContentChanged(ChatToolCallContentChangedAction {
            turn_id: turn_id.to_owned(),
            tool_call_id: tool_call_id.to_owned(),
            meta: None,
            content,
        }))
    }

    fn call(&self, id: &str) -> Option<ToolCallState> {
        let cell = self.cell.borrow();
        let parts = cell.fold.state.active_turn.iter().flat_map(|turn| &turn.response_parts);
        parts.into_iter().find_map(|part| match part {
            ResponsePart::ToolCall(call) if call_id(&call.tool_call) == id => Some(call.tool_call.clone()),
            _ => None,
        })
    }

    /// New output of a call, which keeps its links.
    pub(super) fn tool_content(
        &self,
        turn_id: String,
        tool_call_id: String,
        content: Vec<ToolResultContent>,
    ) -> Vec<Entry> {
        let content = self.with_links(&tool_call_id, content);
        let changed = ChatToolCallContentChangedAction { turn_id, tool_call_id, meta: None, content };
        vec![Entry::Host(StateAction::ChatToolCallContentChanged(changed))]
    }

    /// The end of a call, whose result keeps its links. One that the host has ended is over.
    pub(super) fn tool_done(&self, turn_id: String, tool_call_id: String, mut result: ToolCallResult) -> Vec<Entry> {
        if matches!(self.call(&tool_call_id), Some(ToolCallState::Completed(_))) {
            return Vec::new();
        }
        let had = result.content.is_some();
        let content = self.with_links(&tool_call_id, result.content.unwrap_or_default());
        result.content = (had || !content.is_empty()).then_some(content);
        let requires_result_confirmation = None;
        let done =
            ChatToolCallCompleteAction { turn_id, tool_call_id, meta: None, result, requires_result_confirmation };
        vec![Entry::Host(StateAction::ChatToolCallComplete(done))]
    }

    fn with_links(&self, tool_call_id: &str, content: Vec<ToolResultContent>) -> Vec<ToolResultContent> {
        let cell = self.cell.borrow();
        let turn = cell.fold.state.active_turn.as_ref();
        match turn.and_then(|turn| workers::spawning_call(turn, tool_call_id)) {
            Some(call) => workers::with_links(call, content),
            None => content,
        }
    }
}
