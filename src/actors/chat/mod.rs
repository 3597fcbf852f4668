//! The actor of a chat: it decides on its clients' actions, hands prompts to its agent, and makes events of what the
//! agent says.
//!
//! decide, append, apply, publish, act: a decision is pure and synchronous; its events are applied and queued in the same
//! handler; what the agent is told waits until they are durable. A chat with a running turn and no process (after a crash
//! of the host, of the actor or of a commit) takes that turn up as it wakes, or ends it: none stays open.

mod background;
mod client_tools;
mod commands;
mod compaction;
pub mod conversation;
pub mod decide;
mod ending;
pub mod limits;
mod listed_process;
pub mod message;
mod needs_token;
pub mod pages;
mod process;
mod prompt;
pub mod queue;
pub mod said;
mod taken_up;
mod text;
mod unanswered;
mod visuals;
pub mod waiting;
mod workers;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, Message, SpawnHandle};
use ahp_types::actions::StateAction;
use ahp_types::common::JsonObject;
use tracing::Span;

use super::agent::{AgentEvent, AgentInput};
use super::command::{ChatCommand, Reply};
use super::connection::{Caller, Window};
use super::core::{By, ChatCell, ClientAction, Ends, Recording, SessionCore};
use super::rejection::{Code, Rejection};
use super::session::{
    SessionMessage, Subscriber, echo, echo_recorded, hand_snapshot, no_such_chat, not_there, refuse, reject,
};
use super::shared::Shared;
use super::visuals::VisualCommand;
use super::writer::{Lost, Place};
use crate::events::{Channel, ChannelId};
use crate::projections::action::Action;
use crate::projections::fact::Fact;
use crate::projections::{replay, turns};

pub use client_tools::abandoned;
pub use decide::turn_started::first_turn;
pub use decide::{Effect, Entry, foresee, needs_work, sends, with_chats};
pub use ending::{cancelled, with_the_chat};
pub use listed_process::{Listed, list_process, listed_as_running};
pub use message::{check_length, parse_message};
pub use text::PendingText;
pub use waiting::list_paused;
pub use workers::Workers;

use decide::{Verdict, View};
use process::Process;
use workers::Employer;

/// What a chat is told.
#[derive(Message)]
#[rtype(result = "()")]
pub enum ChatMessage {
    /// A client's action.
    Dispatch {
        client: ClientAction,
        action: Result<Box<Action>, Rejection>,
    },
    Subscribe(Subscriber),
    /// A subscription to a canvas of this chat.
    SubscribeCanvas {
        canvas: Channel,
        id: ChannelId,
        subscriber: Subscriber,
    },
    /// Something is asked of the chat's visuals.
    Visual {
        principal: Arc<str>,
        command: VisualCommand,
        reply: Reply,
    },
    /// What became of what the agent published.
    VisualPublished {
        process: u64,
        request_id: String,
        outcome: Result<String, String>,
    },
    FetchTurns {
        caller: Caller,
        cursor: Option<String>,
        window: Option<Window>,
        reply: Reply,
    },
    Command {
        caller: Caller,
        command: ChatCommand,
        reply: Reply,
    },
    /// A message for the agent whose attachments were read.
    Read(Box<AgentInput>),
    /// A batch of this chat is on disk.
    Durable {
        weight: usize,
        ended: u64,
        used: usize,
    },
    /// What follows from events that are durable now.
    Act(Vec<Effect>),
    /// What the agent's process with this number said.
    Agent {
        process: u64,
        event: Box<AgentEvent>,
    },
    /// Something for a worker that this chat's process with this number speaks for.
    ForWorker {
        process: u64,
        worker: String,
        input: Box<AgentInput>,
    },
    /// The process that spoke for this worker is gone, and says why.
    Dismissed {
        problem: Arc<str>,
    },
    /// The session's configuration values, which are durable.
    Configured {
        config: JsonObject,
    },
    /// The time of a resume that is owed to the chat has come.
    ResumeDue,
    /// The resume that is owed to the chat is turned off.
    Lapse,
    /// The chat goes to sleep, or the host stops.
    Stop,
    /// The chat is gone, or its folds are not what the log says: end at once and write nothing.
    Abandon,
    /// For tests.
    Panic,
}

impl ChatMessage {
    /// Whether the chat must not fall asleep before it has handled it.
    fn keeps_awake(&self) -> bool {
        matches!(
            self,
            ChatMessage::Dispatch { .. }
                | ChatMessage::Subscribe(_)
                | ChatMessage::SubscribeCanvas { .. }
                | ChatMessage::Visual { .. }
                | ChatMessage::FetchTurns { .. }
                | ChatMessage::Command { .. }
                | ChatMessage::ResumeDue
                | ChatMessage::Lapse
        )
    }
}

/// The actor.
pub struct ChatActor {
    core: Rc<RefCell<SessionCore>>,
    cell: Rc<RefCell<ChatCell>>,
    shared: Arc<Shared>,
    process: Option<Process>,
    /// Of a worker: whose process speaks for it.
    employer: Option<Employer>,
    processes_started: u64,
    /// The turn that the process was prompted with.
    handed: Option<String>,
    /// What a collector is told of that turn, from the prompt to its end.
    trail: Span,
    /// The text part that more text of its kind goes into.
    open_part: Option<(text::TextKind, String)>,
    flush: Option<SpawnHandle>,
    in_flight: process::InFlight,
    /// Bytes of pages that wait for the disk.
    pages_in_flight: Arc<AtomicUsize>,
}

impl ChatActor {
    /// An actor for a chat whose fold was read.
    pub fn new(core: Rc<RefCell<SessionCore>>, cell: Rc<RefCell<ChatCell>>) -> Self {
        let shared = Arc::clone(&core.borrow().shared);
        let limit = shared.settings.max_chat_in_flight;
        Self {
            core,
            cell,
            shared,
            process: None,
            employer: None,
            processes_started: 0,
            handed: None,
            trail: Span::none(),
            open_part: None,
            flush: None,
            in_flight: process::InFlight::new(limit),
            pages_in_flight: Arc::default(),
        }
    }

    /// The same for a chat whose first turn begins with it and is handed to its agent next: nobody takes that up.
    pub fn with_turn(core: Rc<RefCell<SessionCore>>, cell: Rc<RefCell<ChatCell>>, turn_id: String) -> Self {
        let mut actor = Self::new(core, cell);
        actor.handed = Some(turn_id);
        actor
    }

    fn by_host(&self) -> By {
        By { principal: Arc::from("host"), at: self.shared.clock.now(), client: None }
    }

    fn by_agent(&self) -> By {
        let provider = self.core.borrow().fold.state.provider.clone();
        By { principal: Arc::from(format!("agent:{provider}")), at: self.shared.clock.now(), client: None }
    }

    /// Records `entries` as one batch, behind the text that waits, and lets `effects` follow once it is durable.
    fn record(&mut self, by: By, entries: Vec<Entry>, effects: Vec<Effect>, ctx: &mut Context<Self>) {
        if let Some(process) = &mut self.process {
            process.is_leaving |= effects.iter().any(|effect| matches!(effect, Effect::EndProcess));
        }
        let address = ctx.address();
        let mut core = self.core.borrow_mut();
        let mut cell = self.cell.borrow_mut();
        cell.touch();
        let mut recording = core.record(by);
        recording.flush_text(&mut cell);
        let more = !entries.is_empty();
        for entry in entries {
            apply(&mut recording, &mut cell, entry);
        }
        if more {
            recording.mirror(&cell, true);
        }
        if let Some(listed) = self.listed() {
            list_process(&mut recording, &cell.channel, Some(cell.id), listed);
        }
        let weight = recording.finish(Some((&mut cell, &address)));
        self.in_flight.add(weight);
        drop((core, cell));
        self.act_once_durable(effects, ctx);
        if let Some(timer) = self.flush.take() {
            ctx.cancel_future(timer);
        }
    }

    /// Lets `effects` follow once what was recorded so far is durable.
    fn act_once_durable(&self, effects: Vec<Effect>, ctx: &mut Context<Self>) {
        if effects.is_empty() {
            return;
        }
        let address = ctx.address();
        let act = move |place: Result<Place, Lost>| {
            if place.is_ok() {
                address.do_send(ChatMessage::Act(effects));
            }
        };
        self.core.borrow().lane.release(None, Box::new(act));
    }

    fn dispatch(&mut self, client: ClientAction, action: Result<Box<Action>, Rejection>, ctx: &mut Context<Self>) {
        let verdict = {
            let (core, cell) = (self.core.borrow(), self.cell.borrow());
            let view = View { core: &core, cell: &cell, client: &client, at: self.shared.clock.now() };
            if self.in_flight.is_full() {
                Err(Rejection::too_much("the chat is waiting for the disk: try again"))
            } else if self.shared.is_stopping() {
                Err(Rejection::new(Code::Busy, "the host is stopping"))
            } else {
                action.and_then(|action| decide::decide(&view, *action))
            }
        };
        match verdict {
            Ok(Verdict::Nothing(sent)) => {
                echo(&self.core.borrow().lane, ClientAction { sent, ..client });
            }
            Ok(Verdict::Noted { fact, sent }) => {
                let echoed = ClientAction { sent, ..client.clone() };
                let principal = Arc::clone(&client.caller.principal);
                let by = By { principal, at: self.shared.clock.now(), client: Some(client) };
                self.record(by, vec![Entry::ClientFact(fact)], Vec::new(), ctx);
                echo_recorded(&self.core.borrow().lane, echoed);
            }
            Err(rejection) => reject(&self.core.borrow().lane, client, rejection),
            Ok(Verdict::Record { entries, effects, ends_turn }) => {
                let attached = client.attached.clone();
                let by = By {
                    principal: Arc::clone(&client.caller.principal),
                    at: self.shared.clock.now(),
                    client: Some(client),
                };
                if ends_turn {
                    self.close_part();
                }
                self.record(by, entries, effects, ctx);
                if let Some(attached) = attached {
                    attached.keep_once_durable(&self.core.borrow().lane);
                }
            }
        }
    }

    fn subscribe(&mut self, subscriber: Subscriber) {
        let core = self.core.borrow();
        let mut cell = self.cell.borrow_mut();
        cell.touch();
        let limit =
            turns::PageLimit { turns: subscriber.turns.unwrap_or(u64::MAX), bytes: self.shared.settings.max_snapshot };
        let read = |n| cell.turn(&self.shared, n);
        let json = match subscriber.caller.knows_canvases {
            true => replay::chat_json(&cell.fold, limit, read),
            false => replay::chat_json_without_canvases(&cell.fold, limit, read),
        };
        match json {
            Ok((state, oldest)) => {
                let window = oldest.map(|oldest| Window { oldest });
                hand_snapshot(&core, cell.channel.clone(), cell.id, state, window, subscriber);
            }
            Err(fault) => {
                tracing::error!(%fault, chat = %cell.channel, "a chat's turns cannot be read");
                let refusal = super::command::Refusal::new(
                    super::command::RefusalKind::Internal,
                    "damaged",
                    format!("the chat's turns cannot be read: {fault}"),
                );
                let Subscriber { caller, then, .. } = subscriber;
                caller.connection.run(Box::new(move |connection| then(connection, Err(refusal))));
            }
        }
    }

    fn act(&mut self, effects: Vec<Effect>, ctx: &mut Context<Self>) {
        for effect in effects {
            self.perform(effect, ctx);
        }
    }

    fn write_checkpoint(&mut self) {
        let core = self.core.borrow();
        let mut cell = self.cell.borrow_mut();
        if SessionCore::is_chat_unsaved(&cell) {
            core.save_chat(&mut cell);
        }
    }

    fn stop(&mut self, ctx: &mut Context<Self>) {
        self.end_process();
        self.flush_text(ctx);
        self.write_checkpoint();
        ctx.stop();
    }

    fn abandon(&mut self, ctx: &mut Context<Self>) {
        self.end_process();
        self.cell.borrow_mut().pending = None;
        ctx.stop();
    }
}

/// Adds one entry to a recording.
pub fn apply(recording: &mut Recording<'_>, cell: &mut ChatCell, entry: Entry) {
    match entry {
        Entry::Client(action) => recording.chat_action(cell, action, true),
        Entry::Host(action) => recording.chat_action(cell, Action::host(action), false),
        Entry::Fetched(action) => recording.chat_action(cell, action, false),
        Entry::Session(action) => {
            recording.mirror(cell, false);
            recording.session_action(Action::host(action), Some(cell.id), false);
        }
        Entry::Pause(paused) => {
            recording.mirror(cell, false);
            waiting::list_paused(recording, &cell.channel, Some(cell.id), paused);
        }
        Entry::ClientFact(fact) => recording.client_fact(cell, &fact),
        Entry::Fact(fact) => {
            if matches!(fact, Fact::SteeringHanded { .. }) {
                cell.takes_steering = None;
            }
            recording.chat_fact(cell, &fact);
        }
        Entry::SessionFact(fact) => recording.session_fact(&fact),
        Entry::EndBackground => recording.end_workers(cell, Ends::Background),
        Entry::EndWorkers => recording.end_workers(cell, Ends::All),
        Entry::EndWorker(worker) => recording.end_workers(cell, Ends::One(&worker)),
        Entry::Published(published) => super::visuals::publish(recording, cell, published),
        Entry::CanvasesClosed(gone) => super::visuals::close(recording, cell, &gone),
    }
}

impl Actor for ChatActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.shared.actors.fetch_add(1, Ordering::AcqRel);
        self.cell.borrow_mut().actor = Some(ctx.address());
        if !self.cell.borrow().is_gone && self.handed.is_none() {
            self.recover(ctx);
        }
    }
}

impl Drop for ChatActor {
    fn drop(&mut self) {
        self.shared.actors.fetch_sub(1, Ordering::AcqRel);
        self.end_process();
        // Else the one who reads the process would wait for ever for batches that were lost.
        self.in_flight.give_up();
        if std::thread::panicking()
            && let Ok(core) = self.core.try_borrow()
        {
            // What it applied last may not be queued: nothing more is decided on these folds.
            core.lane.close("the chat's actor panicked");
            core.address.do_send(SessionMessage::ChatPanicked);
        }
    }
}

impl Handler<ChatMessage> for ChatActor {
    type Result = ();

    fn handle(&mut self, message: ChatMessage, ctx: &mut Context<Self>) {
        if message.keeps_awake() {
            let mut cell = self.cell.borrow_mut();
            cell.unread = cell.unread.saturating_sub(1);
        }
        if self.cell.borrow().is_gone {
            return self.serve_gone(message, ctx);
        }
        if self.cell.borrow().is_asleep && matches!(message, ChatMessage::Agent { .. }) {
            return;
        }
        match message {
            ChatMessage::Dispatch { client, action } => self.dispatch(client, action, ctx),
            ChatMessage::Subscribe(subscriber) => self.subscribe(subscriber),
            ChatMessage::SubscribeCanvas { canvas, id, subscriber } => self.subscribe_canvas(canvas, id, subscriber),
            ChatMessage::Visual { principal, command, reply } => self.visual(principal, command, reply, ctx),
            ChatMessage::VisualPublished { process, request_id, outcome } => {
                self.tell_published(process, request_id, outcome);
            }
            ChatMessage::FetchTurns { caller, cursor, window, reply } => {
                self.fetch_turns(&caller, cursor, window, reply, ctx);
            }
            ChatMessage::Command { caller, command, reply } => self.command(&caller, command, reply, ctx),
            ChatMessage::Read(input) => self.hand_over(*input),
            ChatMessage::Durable { weight, ended, used } => {
                self.in_flight.remove(weight);
                self.cell.borrow_mut().durable(ended, used);
            }
            ChatMessage::Act(effects) => self.act(effects, ctx),
            // A stop freezes the turn: what its agent says meanwhile (that it ends, too) is not the turn's any more.
            ChatMessage::Agent { .. } if self.shared.is_stopping() => {}
            ChatMessage::Agent { process, event } => self.said(process, *event, ctx),
            ChatMessage::ForWorker { process, worker, input } => self.tell_worker(process, worker, *input),
            ChatMessage::Dismissed { problem } => self.dismissed(&problem, ctx),
            ChatMessage::Configured { config } => self.configured(config),
            ChatMessage::ResumeDue => self.resume_due(ctx),
            ChatMessage::Lapse => self.lapse(ctx),
            ChatMessage::Stop => self.stop(ctx),
            ChatMessage::Abandon => self.abandon(ctx),
            #[allow(clippy::panic)]
            ChatMessage::Panic => panic!("a chat's actor was asked to panic"),
        }
    }
}

impl ChatActor {
    /// What reaches a chat that was disposed meanwhile.
    fn serve_gone(&mut self, message: ChatMessage, ctx: &mut Context<Self>) {
        match message {
            ChatMessage::Subscribe(subscriber) | ChatMessage::SubscribeCanvas { subscriber, .. } => {
                not_there(&self.core.borrow(), &subscriber.caller, subscriber.then);
            }
            ChatMessage::FetchTurns { reply, .. }
            | ChatMessage::Visual { reply, .. }
            | ChatMessage::Command { reply, .. } => {
                let refusal = no_such_chat(&self.cell.borrow().channel);
                refuse(&self.core.borrow(), refusal, reply);
            }
            ChatMessage::Stop | ChatMessage::Abandon => self.abandon(ctx),
            // An action for a channel that is not there is ignored.
            _ => {}
        }
    }
}

/// Whether this action says how a turn ended.
pub fn is_ending(action: &StateAction) -> bool {
    matches!(action, StateAction::ChatTurnComplete(_) | StateAction::ChatTurnCancelled(_) | StateAction::ChatError(_))
}
