//! The agent's process behind a chat: started at the first message, told what is durable, read as fast as the disk takes it.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use actix::{Addr, AsyncContext, Context};
use ahp_types::common::JsonObject;
use tokio::sync::{Notify, mpsc};
use tracing::Span;

use super::conversation::StoredConversation;
use super::decide::Effect;
use super::{ChatActor, ChatMessage, Workers, compaction};
use crate::actors::agent::{
    AgentEvent, AgentInput, AgentProcess, BackTo, EVENTS_AHEAD, ProcessStart, Prompt, PromptBlock,
};
use crate::actors::core::{ChatCell, SessionCore};
use crate::actors::tools::{HostTools, PATH, name_in_path};
use crate::projections::chat::Point;
use crate::projections::fact::MessageOf;
use crate::projections::turns;
use crate::telemetry::TRAIL;

/// A process that was started.
pub struct Process {
    pub number: u64,
    /// What it was started in.
    directories: Vec<String>,
    handle: Box<dyn AgentProcess>,
    /// Whether it has said anything.
    pub has_spoken: bool,
    /// The workers that it speaks for.
    pub workers: Workers,
    /// It ends when what was decided is durable: what it says until then is of a conversation that is over.
    pub is_leaving: bool,
}

/// The bytes of a chat that wait for the disk. Beyond the limit its agent is not read.
#[derive(Clone)]
pub struct InFlight {
    bytes: Rc<Cell<usize>>,
    limit: usize,
    room: Rc<Notify>,
}

impl InFlight {
    /// Nothing in flight; `limit` in bytes.
    pub fn new(limit: usize) -> Self {
        Self { bytes: Rc::default(), limit, room: Rc::default() }
    }

    /// A batch of this weight was queued.
    pub fn add(&self, weight: usize) {
        self.bytes.set(self.bytes.get() + weight);
    }

    /// A batch of this weight is on disk.
    pub fn remove(&self, weight: usize) {
        self.bytes.set(self.bytes.get().saturating_sub(weight));
        if !self.is_full() {
            self.room.notify_waiters();
        }
    }

    /// Nobody counts any more: who waits goes on.
    pub fn give_up(&self) {
        self.bytes.set(0);
        self.room.notify_waiters();
    }

    /// Whether the limit is met.
    pub fn is_full(&self) -> bool {
        self.bytes.get() >= self.limit
    }

    async fn wait(&self) {
        while self.is_full() {
            self.room.notified().await;
        }
    }
}

/// Reads a process's events and gives them to its chat, one after the other.
///
/// What a worker says goes to the worker's chat in the same way, and counts as the process's: so order is kept among all of
/// them, and one that is behind holds up the process.
async fn pump(
    mut events: mpsc::Receiver<AgentEvent>,
    chat: Addr<ChatActor>,
    workers: Workers,
    process: u64,
    in_flight: InFlight,
) {
    while let Some(event) = events.recv().await {
        let (worker, event) = unwrapped(event);
        let message = ChatMessage::Agent { process, event: Box::new(event) };
        match worker {
            None => {
                if chat.send(message).await.is_err() {
                    return;
                }
            }
            Some(worker) => match workers.get(&worker) {
                // A chat of a worker that fell asleep has nothing more to hear.
                Some(worker) => drop(worker.send(message).await),
                None => tracing::debug!(worker, "an agent speaks for a worker that is not there"),
            },
        }
        in_flight.wait().await;
    }
}

/// An event and the worker that says it: the innermost one that is named.
fn unwrapped(mut event: AgentEvent) -> (Option<String>, AgentEvent) {
    let mut named = None;
    while let AgentEvent::OfWorker { worker, event: inner } = event {
        named = Some(worker);
        event = *inner;
    }
    (named, event)
}

/// The directories that a chat works in: its own, or all of its session's.
fn directories(core: &SessionCore, cell: &ChatCell) -> Vec<String> {
    let own = cell.fold.state.working_directories.as_ref();
    own.or(core.fold.state.working_directories.as_ref()).cloned().unwrap_or_default()
}

impl ChatActor {
    /// Does what follows from events that are durable.
    pub(super) fn perform(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        match effect {
            Effect::Prompt { turn_id } => self.prompt(&turn_id, ctx),
            Effect::Cancel { turn_id } => self.tell(AgentInput::Cancel { turn_id }),
            Effect::Decide { tool_call_id, decision } => self.tell(AgentInput::Decide { tool_call_id, decision }),
            Effect::Answer { request_id, response, answers } => {
                self.tell(AgentInput::Answer { request_id, response, answers });
            }
            Effect::EndProcess => {
                self.end_process();
                self.end_background_work(ctx);
                self.list_process(ctx);
            }
            Effect::Steer { turn_id, id } => self.steer(turn_id, &id, ctx),
            Effect::ClientToolDone { tool_call_id, result } => {
                self.tell(AgentInput::ClientToolDone { tool_call_id, result });
            }
            Effect::Tell(input) => self.tell(*input),
            Effect::AskForToken { principal, frame } => self.shared.hub.notify_one(&principal, &frame),
        }
    }

    /// Hands the running turn to the agent, whose process is started where none is up.
    pub(super) fn prompt(&mut self, turn_id: &str, ctx: &mut Context<Self>) {
        if self.shared.is_stopping() {
            return;
        }
        let handed = {
            let cell = self.cell.borrow();
            let active = cell.fold.state.active_turn.as_ref().filter(|turn| turn.id == turn_id);
            active.map(|turn| (turn.message.clone(), cell.fold.attempts.taken_up))
        };
        let Some((message, attempt)) = handed else { return };
        self.leave_old_directories(ctx);
        if self.process.is_none() && !self.start_process(ctx) {
            let text = "the agent of this session is not configured on this host";
            return self.end_turn(
                |chat, at| super::ending::failed(chat, at, "agent-missing", text, false),
                false,
                Vec::new(),
                ctx,
            );
        }
        self.list_process(ctx);
        self.handed = Some(turn_id.to_owned());
        self.trail = self.trail_of(turn_id, attempt);
        // What a side chat is told of the other one stands first.
        let context = self.cell.borrow().fold.context.clone().filter(|_| self.is_first_turn());
        let blocks = context.into_iter().map(|text| PromptBlock::Text { text }).collect();
        let kind = compaction::kind(&message);
        let prompt = Prompt { turn_id: turn_id.to_owned(), message, blocks, attempt, kind };
        self.resolve(MessageOf::Turn(turn_id.to_owned()), AgentInput::Prompt(prompt), ctx);
    }

    /// The span of a turn: ids and names, and nothing that is said in it.
    fn trail_of(&self, turn: &str, attempt: u32) -> Span {
        let (core, cell) = (self.core.borrow(), self.cell.borrow());
        let (session, chat, agent) = (core.channel.as_str(), cell.channel.as_str(), core.fold.state.provider.as_str());
        tracing::info_span!(target: TRAIL, parent: None, "turn", session, chat, turn, agent, attempt)
    }

    /// Where the chat works elsewhere than its process was started in, the process ends, and another goes on with the
    /// conversation. Between two turns: none is broken by that.
    fn leave_old_directories(&mut self, ctx: &mut Context<Self>) {
        let directories = directories(&self.core.borrow(), &self.cell.borrow());
        if self.process.as_ref().is_some_and(|process| process.directories != directories) {
            self.end_process();
            self.end_background_work(ctx);
        }
    }

    /// Lists what there is of the process, where that changed.
    pub(super) fn list_process(&mut self, ctx: &mut Context<Self>) {
        let by = self.by_host();
        self.record(by, Vec::new(), Vec::new(), ctx);
    }

    fn is_first_turn(&self) -> bool {
        self.cell.borrow().fold.ordinal() == 0
    }

    /// Hands a steering message to the agent, unless the turn ended meanwhile: then it waits again.
    fn steer(&mut self, turn_id: String, id: &str, ctx: &mut Context<Self>) {
        if self.handed.as_deref() != Some(&turn_id) {
            return;
        }
        let message = {
            let cell = self.cell.borrow();
            let runs = cell.fold.state.active_turn.as_ref().is_some_and(|turn| turn.id == turn_id);
            let handed = cell.fold.handed.iter().find(|handed| runs && handed.id == id);
            handed.map(|handed| handed.message.clone())
        };
        if let Some(message) = message {
            let steer = AgentInput::Steer { turn_id, id: id.to_owned(), message, blocks: Vec::new() };
            self.resolve(MessageOf::Pending(id.to_owned()), steer, ctx);
        }
    }

    fn start_process(&mut self, ctx: &mut Context<Self>) -> bool {
        let core = self.core.borrow();
        let cell = self.cell.borrow();
        let Some(agent) = self.shared.agent(&core.fold.state.provider) else { return false };
        let directories = directories(&core, &cell);
        let start = ProcessStart {
            session: core.channel.clone(),
            chat: cell.channel.clone(),
            directories: directories.clone(),
            config: core.fold.state.config.as_ref().map(|config| config.values.clone()).unwrap_or_default(),
            conversation: Arc::new(StoredConversation {
                store: Arc::clone(&self.shared.store),
                chat: cell.id,
                head: cell.fold.head(),
            }),
            resume: match &cell.fold.back_to {
                Some(point) => point.conversation.clone(),
                None => cell.fold.conversation.clone(),
            },
            back_to: cell.fold.back_to.clone().map(|Point { turn_id, point, .. }| BackTo {
                turn_id,
                point,
                is_fork: turns::place(cell.id, cell.fold.head()).0 != cell.id,
            }),
            memory: core.fold.memory.clone(),
            mcp: Some(HostTools {
                url: format!("{}{PATH}/{}", self.shared.settings.inner_url, name_in_path(&cell.channel)),
                token: self.shared.tokens.of(core.id),
            }),
            clock: self.shared.clock.clone(),
            resource_tokens: Arc::clone(&self.shared.resource_tokens),
        };
        let (sink, events) = mpsc::channel(EVENTS_AHEAD);
        self.processes_started += 1;
        let number = self.processes_started;
        let handle = agent.start(start, sink);
        let workers = Workers::default();
        self.process = Some(Process {
            number,
            directories,
            handle,
            has_spoken: false,
            workers: workers.clone(),
            is_leaving: false,
        });
        self.shared.processes.fetch_add(1, Ordering::Relaxed);
        actix_rt::spawn(pump(events, ctx.address(), workers, number, self.in_flight.clone()));
        true
    }

    /// Tells the process something; a worker's chat tells it through the chat that has one.
    pub(super) fn tell(&mut self, input: AgentInput) {
        match (&mut self.process, &self.employer) {
            (Some(process), _) => process.handle.send(input),
            (None, Some(employer)) => employer.tell(input),
            (None, None) => {}
        }
    }

    /// The session's configuration changed: the process hears of it.
    pub(super) fn configured(&mut self, config: JsonObject) {
        self.tell(AgentInput::Configured { config });
    }

    /// Ends the process, without waiting for it. Its workers end with it, unless the host stops: that freezes them.
    pub(super) fn end_process(&mut self) {
        self.end_process_since("the agent's process has ended");
    }

    /// The same, and says to its workers what is wrong.
    pub(super) fn end_process_since(&mut self, problem: &str) {
        if let Some(mut process) = self.process.take() {
            process.handle.send(AgentInput::Close);
            self.shared.processes.fetch_sub(1, Ordering::Relaxed);
            process.workers.dismiss(problem, self.shared.is_stopping());
        }
        if let Ok(mut cell) = self.cell.try_borrow_mut() {
            cell.takes_steering = None;
        }
        self.handed = None;
        self.trail = Span::none();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_room_goes_on_when_there_is_some_and_when_nobody_counts_any_more() {
        let in_flight = InFlight::new(10);
        actix_rt::System::new().block_on(async {
            for make_room in [InFlight::give_up, |all: &InFlight| all.remove(5)] {
                in_flight.add(10);
                let waits = in_flight.clone();
                let waits = actix_rt::spawn(async move { waits.wait().await });
                tokio::task::yield_now().await;
                assert!(!waits.is_finished());
                make_room(&in_flight);
                tokio::time::timeout(std::time::Duration::from_secs(30), waits).await.unwrap().unwrap();
            }
        });
    }
}
