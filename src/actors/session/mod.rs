//! The actor of a session: it opens and closes chats, answers for the session's channel, and forwards to its chats.
//!
//! It shares a thread and a [`SessionCore`] with the actors of its chats. Read back from the log when it wakes; asleep
//! again when nobody used it for a while.

mod actions;
mod answers;
mod attaching;
mod beside;
mod chats;
pub mod configuration;
mod create;
mod directories;
mod loading;
mod looking;
mod messages;
mod moving;
mod owed;
mod restoring;
mod role;
mod sleeping;
pub mod sources;
mod values;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use actix::{Actor, ActorFutureExt, Addr, AsyncContext, Context, Handler};
use ahp_types::actions::StateAction;

pub use actions::{not_for_this_channel, title};
pub use answers::{
    answer, echo, echo_recorded, hand_snapshot, no_such_chat, not_there, refusal_of_lost, refuse, reject, reject_at,
    reject_lost,
};
pub use create::new_chat;
pub use directories::several;
pub use looking::{ChatLook, OnLook};
pub use messages::{Boot, Restoring, SessionMessage, Subscriber};
pub use values::resolved;

use answers::subscribe;
use messages::refuse_disposed;

use super::chat::{self, ChatActor, ChatMessage};
use super::connection::{Caller, ConnectionId};
use super::core::{By, ClientAction, SessionCore};
use super::rejection::{Code, Rejection};
use super::resent;
use super::root::RootMessage;
use super::shared::Shared;
use super::visuals;
use super::writer::{Lost, Place};
use crate::events::{Channel, ChannelId};
use crate::projections::action::Action;
use crate::projections::visual::of_canvas;

/// How many messages a session may be behind before its clients hear `busy`.
pub const MAILBOX: usize = 4_096;

/// How long the host waits before it records something of its own again that was lost.
pub const RETRY: std::time::Duration = std::time::Duration::from_secs(1);

/// The actor.
pub struct SessionActor {
    id: ChannelId,
    shared: Arc<Shared>,
    boot: Option<Boot>,
    /// Absent until the session is read, and when it cannot be.
    core: Option<Rc<RefCell<SessionCore>>>,
    chats: HashMap<Channel, Addr<ChatActor>>,
    /// Clients that left and whose grace runs, each with the number of its leave.
    leaving: HashMap<Arc<str>, u64>,
    leaves: u64,
    last_used: Instant,
    /// Messages that wait until the session can be read, or until those before them are served; absent when nothing has to
    /// wait.
    waiting: Option<VecDeque<SessionMessage>>,
    /// A move of chats of this session to another one.
    moving: Option<moving::Leaving>,
    /// A move of another session's chats to this one.
    receiving: Option<moving::Receiving>,
    /// Messages that wait until the move is over.
    parked: VecDeque<SessionMessage>,
    /// Whether a batch was lost since the folds were read.
    was_lost: bool,
    /// Connections with a message whose attachments are being worked on, each with what it sent after that.
    attaching: HashMap<ConnectionId, VecDeque<SessionMessage>>,
    /// Messages from the registry that were not handled yet.
    unread: Arc<AtomicUsize>,
}

impl SessionActor {
    /// An actor that begins when it is started. `unread` counts the messages that the registry sent it and that it has not
    /// handled.
    pub fn new(id: ChannelId, boot: Boot, unread: Arc<AtomicUsize>, shared: Arc<Shared>) -> Self {
        Self {
            id,
            shared,
            boot: Some(boot),
            core: None,
            chats: HashMap::new(),
            leaving: HashMap::new(),
            leaves: 0,
            last_used: Instant::now(),
            waiting: None,
            moving: None,
            receiving: None,
            parked: VecDeque::new(),
            was_lost: false,
            attaching: HashMap::new(),
            unread,
        }
    }
}

impl Actor for SessionActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.shared.actors.fetch_add(1, Ordering::AcqRel);
        match self.boot.take() {
            Some(Boot::Create { caller, command, uri, chat, reply }) => {
                self.create(&caller, *command, uri, chat, reply, ctx);
            }
            Some(Boot::Arrive(arrival, uri)) => self.create_for(*arrival, uri, ctx),
            Some(Boot::Load) | None => self.load(ctx),
        }
        let period = self.shared.settings.idle_timeout / 2;
        ctx.run_interval(period.max(std::time::Duration::from_millis(20)), Self::doze);
    }
}

impl Drop for SessionActor {
    fn drop(&mut self) {
        self.shared.actors.fetch_sub(1, Ordering::AcqRel);
        // Chats of a session that panicked hold its old folds: they must not go on.
        if std::thread::panicking() {
            if let Some(core) = self.core.as_ref().and_then(|core| core.try_borrow().ok()) {
                core.lane.close("the session's actor panicked");
                core.started.iter().for_each(|(_, chat)| chat.do_send(ChatMessage::Abandon));
            }
            for chat in self.chats.values() {
                chat.do_send(ChatMessage::Abandon);
            }
            // Turns that ran are taken up though nobody asks for the session.
            if let Some(root) = self.shared.root.get() {
                root.do_send(RootMessage::Wake { session: self.id });
            }
        }
    }
}

impl Handler<SessionMessage> for SessionActor {
    type Result = ();

    fn handle(&mut self, message: SessionMessage, ctx: &mut Context<Self>) {
        if message.is_from_outside() {
            self.unread.fetch_sub(1, Ordering::AcqRel);
        }
        self.serve(message, ctx);
    }
}

impl SessionActor {
    fn serve(&mut self, message: SessionMessage, ctx: &mut Context<Self>) {
        self.take_up_started();
        match message {
            SessionMessage::Lost { generation } => return self.lost(generation, ctx),
            SessionMessage::ChatPanicked => return self.panicked(ctx),
            SessionMessage::Settled => return self.settled(ctx),
            SessionMessage::Tell(tell) => return self.say(tell),
            SessionMessage::Stop => return self.stop(ctx),
            SessionMessage::MoveAnswered { number, answer } => {
                return self.move_answered(number, answer.map(|accepted| *accepted), ctx);
            }
            SessionMessage::Reached { number, kept } => return self.reached(number, kept, ctx),
            SessionMessage::Left { number, kept } => return self.left(number, kept, ctx),
            SessionMessage::Arrived { number, messages } => return self.arrived(number, messages, ctx),
            SessionMessage::NotArrived { number } => return self.not_arrived(number, ctx),
            _ => {}
        }
        // What waits already was sent before this.
        if self.waiting.is_some() {
            return self.keep(message);
        }
        let Some(message) = self.hold_back(message) else { return };
        if self.is_moving() {
            return self.park(message);
        }
        self.last_used = Instant::now();
        self.panicked(ctx);
        if self.core.is_none() {
            self.load(ctx);
        }
        if self.waiting.is_some() {
            return self.keep(message);
        }
        let Some(core) = self.core.clone() else {
            return message.refuse_unreadable(&self.shared);
        };
        let message = match message {
            SessionMessage::Restore { what, principal, reply } => {
                return self.restore(&core, what, principal, reply, ctx);
            }
            SessionMessage::BringBack { what, principal, reply } => {
                return self.bring_back(&core, &what, principal, reply);
            }
            SessionMessage::Forget { reply } => return self.forget(&core, reply, ctx),
            message => message,
        };
        if core.borrow().fold.disposed {
            return refuse_disposed(&core.borrow(), message);
        }
        let Some(message) = self.forward(&core.borrow(), message) else { return };
        match message {
            SessionMessage::Dispatch { channel, client, action } => self.dispatch(&core, channel, client, action, ctx),
            SessionMessage::Subscribe { channel, alias, caller, turns, then, again } => {
                let subscriber = Subscriber { caller, alias, turns, then, again };
                if channel == core.borrow().channel {
                    self.is_used_by(&subscriber.caller, &channel);
                    return subscribe(&core.borrow(), subscriber);
                }
                if of_canvas(channel.as_str()).is_some() {
                    return self.subscribe_canvas(&core, channel, subscriber, ctx);
                }
                match self.chat(&core, &channel) {
                    Some(chat) => tell(&core, &channel, &chat, ChatMessage::Subscribe(subscriber), ctx),
                    None => not_there(&core.borrow(), &subscriber.caller, subscriber.then),
                }
            }
            SessionMessage::CreateChat { caller, command, reply } => {
                let todo = self.attach_first(&core, &caller, command, reply, ctx);
                let Some((command, reply)) = todo else { return };
                self.create_chat(&core, &caller, *command, reply);
            }
            SessionMessage::DisposeChat { caller, chat, reply } => self.dispose_chat(&core, &caller, &chat, reply),
            SessionMessage::MoveChat(command) => self.move_chat(&core, *command, ctx),
            SessionMessage::MoveIn(arrival) => self.receive(&core, *arrival),
            SessionMessage::DisposeSession { caller, reply } => self.dispose_session(&core, &caller, reply),
            SessionMessage::FetchTurns { caller, chat, cursor, window, reply } => match self.chat(&core, &chat) {
                Some(addr) => {
                    tell(&core, &chat, &addr, ChatMessage::FetchTurns { caller, cursor, window, reply }, ctx);
                }
                None => refuse(&core.borrow(), no_such_chat(&chat), reply),
            },
            SessionMessage::Visual { principal, chat, command, reply } => match self.chat(&core, &chat) {
                Some(addr) => tell(&core, &chat, &addr, ChatMessage::Visual { principal, command, reply }, ctx),
                None => refuse(&core.borrow(), no_such_chat(&chat), reply),
            },
            SessionMessage::Command { caller, chat, command, reply } => match self.chat(&core, &chat) {
                Some(addr) => {
                    tell(&core, &chat, &addr, ChatMessage::Command { caller, command, reply }, ctx);
                }
                None => refuse(&core.borrow(), no_such_chat(&chat), reply),
            },
            SessionMessage::Look { chat, then } => looking::look(&core.borrow(), &chat, then),
            SessionMessage::ClientLeft { client_id, connection, at_once } => {
                self.client_left(&core, &client_id, connection, at_once, ctx);
            }
            // To be awake is all that it asks for.
            SessionMessage::Wake => {}
            #[allow(clippy::panic)]
            SessionMessage::PanicHere => panic!("a session's actor was asked to panic"),
            SessionMessage::Recover { chat } => {
                self.chat(&core, &chat);
            }
            SessionMessage::ResumeDue { chat } => {
                if let Some(addr) = self.chat(&core, &chat) {
                    tell(&core, &chat, &addr, ChatMessage::ResumeDue, ctx);
                }
            }
            SessionMessage::Panic { chat } => {
                if let Some(chat) = self.chat(&core, &chat) {
                    chat.do_send(ChatMessage::Panic);
                }
            }
            SessionMessage::Restore { .. }
            | SessionMessage::BringBack { .. }
            | SessionMessage::Forget { .. }
            | SessionMessage::Lost { .. }
            | SessionMessage::ChatPanicked
            | SessionMessage::Settled
            | SessionMessage::Tell(_)
            | SessionMessage::MoveAnswered { .. }
            | SessionMessage::Reached { .. }
            | SessionMessage::Left { .. }
            | SessionMessage::Arrived { .. }
            | SessionMessage::NotArrived { .. }
            | SessionMessage::Stop => {}
        }
    }
}

/// Sends a chat what it must not miss: it does not fall asleep before it has handled it. The session takes nothing more until
/// then, so that what a client sends to a session and its chats is decided in the order in which it was sent. A chat never
/// waits for its session: this ends.
fn tell(
    core: &Rc<RefCell<SessionCore>>,
    chat: &Channel,
    addr: &Addr<ChatActor>,
    message: ChatMessage,
    ctx: &mut Context<SessionActor>,
) {
    if let Some(cell) = core.borrow().chats.get(chat.as_str()) {
        cell.borrow_mut().unread += 1;
    }
    ctx.wait(actix::fut::wrap_future::<_, SessionActor>(addr.send(message)).map(|_, _, _| ()));
}

impl SessionActor {
    /// Takes up the actors of workers' chats that other chats have started: no chat has two.
    fn take_up_started(&mut self) {
        if let Some(core) = &self.core {
            self.chats.extend(core.borrow_mut().started.drain(..));
        }
    }

    /// The actor of a chat that is in the catalogue, woken where it sleeps.
    fn chat(&mut self, core: &Rc<RefCell<SessionCore>>, chat: &Channel) -> Option<Addr<ChatActor>> {
        let listed = core.borrow().fold.state.chats.iter().any(|entry| entry.resource == chat.as_str());
        if !listed {
            return None;
        }
        if let Some(addr) = self.chats.get(chat).filter(|addr| addr.connected()) {
            return Some(addr.clone());
        }
        let addr = self.wake_chat(core, chat)?;
        self.chats.insert(chat.clone(), addr.clone());
        Some(addr)
    }

    fn dispatch(
        &mut self,
        core: &Rc<RefCell<SessionCore>>,
        channel: Channel,
        client: ClientAction,
        action: Result<Box<Action>, Rejection>,
        ctx: &mut Context<Self>,
    ) {
        let resent = match &action {
            Ok(action) => core.borrow().is_resent(&client, &action.decoded),
            Err(_) => Ok(false),
        };
        match resent {
            Ok(true) => {
                // With its attachments as they were stored, and not the bytes again.
                let recorded = resent::recorded(self.shared.store.as_ref(), &client).ok().flatten();
                let sent = recorded.unwrap_or_else(|| client.sent.clone());
                return echo(&core.borrow().lane, ClientAction { sent, ..client });
            }
            Ok(false) => {}
            Err(fault) => {
                let rejection = Rejection::new(Code::LogUnavailable, fault.to_string());
                return reject(&core.borrow().lane, client, rejection);
            }
        }
        if channel == core.borrow().channel {
            let action = match action {
                Ok(action) => *action,
                Err(rejection) => return reject(&core.borrow().lane, client, rejection),
            };
            let caller = client.caller.clone();
            let enters = matches!(action.decoded, StateAction::SessionActiveClientSet(_));
            if enters {
                self.is_used_by(&caller, &channel);
            }
            let action = values::keeping_shown(core.borrow().fold.state.config.as_ref(), action);
            let configures = matches!(action.decoded, StateAction::SessionConfigChanged(_));
            let owed = owed::of_change(&core.borrow(), &action.decoded);
            self.act(core, client, action);
            if enters {
                self.expect_entered(core, &caller.client_id, ctx);
            }
            if configures {
                self.tell_configuration(&core.borrow());
            }
            self.lapse(core, owed, ctx);
            return;
        }
        if of_canvas(channel.as_str()).is_some() {
            let rejection =
                action.map_or_else(|bad| bad, |good| not_for_this_channel(&good.bytes, "a canvas's channel"));
            return reject(&core.borrow().lane, client, rejection);
        }
        let Some(chat) = self.chat(core, &channel) else {
            return tracing::debug!(%channel, "an action for a chat that is gone");
        };
        match action {
            Ok(action) if client.attached.is_none() && chat::needs_work(&action.decoded) => {
                self.attach(core, channel, client, &action, ctx);
            }
            action => tell(core, &channel, &chat, ChatMessage::Dispatch { client, action }, ctx),
        }
    }

    /// Subscribes to a canvas: its chat knows it.
    fn subscribe_canvas(
        &mut self,
        core: &Rc<RefCell<SessionCore>>,
        canvas: Channel,
        subscriber: Subscriber,
        ctx: &mut Context<Self>,
    ) {
        let found = visuals::chat_of_canvas(&self.shared, &canvas).unwrap_or_else(|fault| {
            tracing::error!(%fault, "a canvas's chat cannot be looked up");
            None
        });
        let chat = found.and_then(|(id, uri)| Some((id, self.chat(core, &uri)?, uri)));
        match chat {
            Some((id, addr, uri)) => {
                tell(core, &uri, &addr, ChatMessage::SubscribeCanvas { canvas, id, subscriber }, ctx);
            }
            None => not_there(&core.borrow(), &subscriber.caller, subscriber.then),
        }
    }

    /// Tells the agents of the chats that are awake how the session is configured, once that is durable.
    fn tell_configuration(&self, core: &SessionCore) {
        let Some(config) = core.fold.state.config.as_ref().map(|config| config.values.clone()) else { return };
        let chats: Vec<Addr<ChatActor>> = self.chats.values().cloned().collect();
        let tell = move |place: Result<Place, Lost>| {
            if place.is_ok() {
                chats.iter().for_each(|chat| chat.do_send(ChatMessage::Configured { config: config.clone() }));
            }
        };
        core.lane.release(None, Box::new(tell));
    }

    /// By the host itself, now.
    fn by_host(&self) -> By {
        By { principal: Arc::from("host"), at: self.shared.clock.now(), client: None }
    }

    /// By somebody's command, now.
    fn by(&self, caller: &Caller) -> By {
        By { principal: Arc::clone(&caller.principal), at: self.shared.clock.now(), client: None }
    }

    /// Reads everything again where a chat has panicked: what it left of the folds is not what the log says.
    fn panicked(&mut self, ctx: &mut Context<Self>) {
        if self.core.as_ref().is_some_and(|core| core.borrow().lane.is_over()) {
            self.reread(ctx);
        }
    }
}
