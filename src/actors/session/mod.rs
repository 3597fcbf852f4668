//! The actor of a session: it opens and closes chats, answers for the session's channel, and forwards to its chats.
//!
//! It shares a thread and a [`SessionCore`] with the actors of its chats. Read back from the log when it wakes; asleep
//! again when nobody used it for a while.

mod actions;

mod chats;
mod create;
mod loading;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use actix::{Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message};

pub use actions::{check_value, not_for_this_channel, title};

use ahp_types::actions::StateAction;

use super::chat::{ChatActor, ChatMessage};
use super::command::{Answer, Refusal, RefusalKind, Reply};
use super::connection::{Caller, Subscription, Window};
use super::core::{By, ClientAction, SessionCore};
use super::envelope;
use super::host::{CreateChat, CreateSession, OnSnapshot, SnapshotJson};
use super::rejection::{Code, Rejection};
use super::shared::Shared;
use super::writer::{Lane, Lost, Place};
use crate::events::{Channel, ChannelId};
use crate::projections::action::Action;

/// How many messages a session may be behind before its clients hear `busy`.
pub const MAILBOX: usize = 4_096;

/// How a session's actor begins.
pub enum Boot {
    /// A new session.
    Create { caller: Caller, command: Box<CreateSession>, uri: Channel, chat: ChannelId, reply: Reply },
    /// One that is read from the log.
    Load,
}

/// How long the host waits before it records something of its own again that was lost.
pub const RETRY: std::time::Duration = std::time::Duration::from_secs(1);

/// What a session is told.
#[derive(Message)]
#[rtype(result = "()")]
pub enum SessionMessage {
    /// A client's action on the session's channel or on one of its chats'.
    Dispatch {
        channel: Channel,
        client: ClientAction,
        /// The action, or what is wrong with it: also that is said in its turn.
        action: Result<Box<Action>, Rejection>,
    },
    /// A snapshot and the subscription that comes with it.
    Subscribe {
        channel: Channel,
        alias: Channel,
        caller: Caller,
        turns: Option<u64>,
        then: OnSnapshot,
        /// It rested on something that was lost, and is asked for again.
        again: bool,
    },
    CreateChat {
        caller: Caller,
        command: Box<CreateChat>,
        reply: Reply,
    },
    DisposeChat {
        caller: Caller,
        chat: Channel,
        reply: Reply,
    },
    DisposeSession {
        caller: Caller,
        reply: Reply,
    },
    FetchTurns {
        caller: Caller,
        chat: Channel,
        cursor: Option<String>,
        window: Option<Window>,
        reply: Reply,
    },
    /// A client is gone from this session: its entry goes after the grace time.
    ClientLeft {
        client_id: Arc<str>,
        connection: u64,
    },
    /// Wakes the chat, so that a turn that was interrupted gets its ending.
    Recover {
        chat: Channel,
    },
    /// A batch of this generation was lost.
    Lost {
        generation: u64,
    },
    /// A chat's actor panicked.
    ChatPanicked,
    /// Something to say once what was told before was handled.
    Tell(Box<dyn FnOnce() + Send>),
    /// Nothing of the session is on its way to the disk: it can be read.
    Settled,
    /// Everything that is to be kept is written down, and the actor ends.
    Stop,
    /// For tests: panic in a handler of this chat.
    Panic {
        chat: Channel,
    },
}

impl SessionMessage {
    /// Whether it was sent through the registry, and not by the session's own parts.
    pub fn is_from_outside(&self) -> bool {
        !matches!(
            self,
            SessionMessage::Lost { .. }
                | SessionMessage::ChatPanicked
                | SessionMessage::Settled
                | SessionMessage::Tell(_)
                | SessionMessage::Stop
        )
    }

    /// Tells the sender of a message that could not be delivered.
    pub fn refuse_busy(self, shared: &Shared) {
        let refusal = || Refusal::new(RefusalKind::Unavailable, "busy", "the session has too much to do: try again");
        match self {
            SessionMessage::Dispatch { client, .. } => {
                let rejection = Rejection::new(Code::Busy, "the session has too much to do: try again");
                reject_at(&client, shared.writer.handed_over(), &rejection);
            }
            SessionMessage::Subscribe { caller, then, .. } => {
                caller.connection.run(Box::new(move |connection| then(connection, Err(refusal()))));
            }
            SessionMessage::CreateChat { reply, .. }
            | SessionMessage::DisposeChat { reply, .. }
            | SessionMessage::DisposeSession { reply, .. }
            | SessionMessage::FetchTurns { reply, .. } => reply(Err(refusal())),
            _ => {}
        }
    }
}

/// Sends a refused action back to its sender, with this number.
pub fn reject_at(client: &ClientAction, seq: u64, rejection: &Rejection) {
    let frame = envelope::rejection(client.alias.as_str(), seq, &client.origin(), &client.sent, &rejection.to_string());
    client.caller.connection.send(frame);
}

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
    /// Whether a batch was lost since the folds were read.
    was_lost: bool,
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
            was_lost: false,
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
            }
            for chat in self.chats.values() {
                chat.do_send(ChatMessage::Abandon);
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
        match message {
            SessionMessage::Lost { generation } => return self.lost(generation, ctx),
            SessionMessage::ChatPanicked => return self.panicked(ctx),
            SessionMessage::Settled => return self.settled(ctx),
            SessionMessage::Tell(tell) => return tell(),
            SessionMessage::Stop => return self.stop(ctx),
            _ => {}
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
        if core.borrow().fold.disposed {
            return refuse_disposed(&core.borrow(), message);
        }
        match message {
            SessionMessage::Dispatch { channel, client, action } => self.dispatch(&core, channel, client, action, ctx),
            SessionMessage::Subscribe { channel, alias, caller, turns, then, again } => {
                let subscriber = Subscriber { caller, alias, turns, then, again };
                if channel == core.borrow().channel {
                    self.leaving.remove(&subscriber.caller.client_id);
                    return subscribe(&core.borrow(), subscriber);
                }
                match self.chat(&core, &channel) {
                    Some(chat) => tell(&core, &channel, &chat, ChatMessage::Subscribe(subscriber), ctx),
                    None => not_there(&core.borrow(), &subscriber.caller, subscriber.then),
                }
            }
            SessionMessage::CreateChat { caller, command, reply } => {
                self.create_chat(&core, &caller, *command, reply, ctx)
            }
            SessionMessage::DisposeChat { caller, chat, reply } => self.dispose_chat(&core, &caller, &chat, reply),
            SessionMessage::DisposeSession { caller, reply } => self.dispose_session(&core, &caller, reply),
            SessionMessage::FetchTurns { caller, chat, cursor, window, reply } => match self.chat(&core, &chat) {
                Some(addr) => {
                    tell(&core, &chat, &addr, ChatMessage::FetchTurns { caller, cursor, window, reply }, ctx);
                }
                None => refuse(&core.borrow(), no_such_chat(&chat), reply),
            },
            SessionMessage::ClientLeft { client_id, connection } => {
                self.client_left(&core, &client_id, connection, ctx);
            }
            SessionMessage::Recover { chat } => {
                self.chat(&core, &chat);
            }
            SessionMessage::Panic { chat } => {
                if let Some(chat) = self.chat(&core, &chat) {
                    chat.do_send(ChatMessage::Panic);
                }
            }
            SessionMessage::Lost { .. }
            | SessionMessage::ChatPanicked
            | SessionMessage::Settled
            | SessionMessage::Tell(_)
            | SessionMessage::Stop => {}
        }
    }
}

/// What reaches a session that was disposed meanwhile. An action for a channel that is not there is ignored.
fn refuse_disposed(core: &SessionCore, message: SessionMessage) {
    let unknown = || {
        let text = format!("there is no session {}", core.channel);
        Refusal::new(RefusalKind::UnknownSession, "unknown-session", text)
    };
    match message {
        SessionMessage::Subscribe { caller, then, .. } => not_there(core, &caller, then),
        SessionMessage::CreateChat { reply, .. } | SessionMessage::DisposeSession { reply, .. } => {
            refuse(core, unknown(), reply);
        }
        SessionMessage::DisposeChat { chat, reply, .. } | SessionMessage::FetchTurns { chat, reply, .. } => {
            refuse(core, no_such_chat(&chat), reply);
        }
        _ => {}
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
    tell_then(core, (chat, addr), message, ctx, || ());
}

/// The same, and runs `then` when the chat has handled it.
fn tell_then(
    core: &Rc<RefCell<SessionCore>>,
    (chat, addr): (&Channel, &Addr<ChatActor>),
    message: ChatMessage,
    ctx: &mut Context<SessionActor>,
    then: impl FnOnce() + 'static,
) {
    if let Some(cell) = core.borrow().chats.get(chat.as_str()) {
        cell.borrow_mut().unread += 1;
    }
    ctx.wait(actix::fut::wrap_future::<_, SessionActor>(addr.send(message)).map(|_, _, _| then()));
}

impl SessionMessage {
    fn refuse_unreadable(self, shared: &Shared) {
        const TEXT: &str = "the session cannot be read from the log: see the host's own log";
        let refusal = || Refusal::new(RefusalKind::Unavailable, "log-unavailable", TEXT);
        match self {
            SessionMessage::Dispatch { client, .. } => {
                reject_at(&client, shared.writer.handed_over(), &Rejection::new(Code::LogUnavailable, TEXT));
            }
            SessionMessage::Subscribe { caller, then, .. } => {
                caller.connection.run(Box::new(move |connection| then(connection, Err(refusal()))));
            }
            SessionMessage::CreateChat { reply, .. }
            | SessionMessage::DisposeChat { reply, .. }
            | SessionMessage::DisposeSession { reply, .. }
            | SessionMessage::FetchTurns { reply, .. } => reply(Err(refusal())),
            _ => {}
        }
    }
}

/// A refusal that rests on what was decided before it.
pub fn refuse(core: &SessionCore, refusal: Refusal, reply: Reply) {
    answer(core, Err(refusal), reply);
}

/// An answer that rests on what was decided before it.
pub fn answer(core: &SessionCore, answer: Answer, reply: Reply) {
    let of_lost = |lost: Lost| Err(refusal_of_lost(&lost));
    core.lane.release(None, Box::new(move |place| reply(place.map_or_else(of_lost, |_| answer))));
}

/// The refusal for a chat that is not there.
pub fn no_such_chat(chat: &Channel) -> Refusal {
    Refusal::new(RefusalKind::NotFound, "not-found", format!("there is no chat {chat}"))
}

/// Answers a subscription to a chat that is not there.
pub fn not_there(core: &SessionCore, caller: &Caller, then: OnSnapshot) {
    let connection = caller.connection.clone();
    let refusal = Refusal::new(RefusalKind::NotFound, "not-found", "there is no such chat");
    let answer = move |place: Result<Place, Lost>| {
        let refusal = place.map_or_else(|lost| refusal_of_lost(&lost), |_| refusal);
        connection.run(Box::new(move |connection| then(connection, Err(refusal))));
    };
    core.lane.release(None, Box::new(answer));
}

/// Sends back an action that was lost, or whose outcome rested on something that was.
pub fn reject_lost(client: &ClientAction, lost: &Lost) {
    reject_at(client, lost.1, &Rejection::new(Code::LogUnavailable, lost.0.to_string()));
}

/// The refusal of a command that was lost, or whose outcome rested on something that was.
pub fn refusal_of_lost(lost: &Lost) -> Refusal {
    Refusal::new(RefusalKind::Unavailable, "log-unavailable", lost.0.to_string())
}

/// Sends a refused action back to its sender, behind what it rests on.
pub fn reject(lane: &Lane, client: ClientAction, rejection: Rejection) {
    lane.release(
        None,
        Box::new(move |place| match place {
            Ok(place) => reject_at(&client, place.seq, &rejection),
            Err(lost) => reject_lost(&client, &lost),
        }),
    );
}

/// Sends an accepted action that changes nothing back to its sender alone, behind what that rests on.
pub fn echo(lane: &Lane, client: ClientAction) {
    lane.release(
        None,
        Box::new(move |place| match place {
            Ok(place) => {
                let frame = envelope::echo(client.alias.as_str(), place.seq, &client.origin(), &client.sent);
                client.caller.connection.send(frame);
            }
            Err(lost) => reject_lost(&client, &lost),
        }),
    );
}

/// Who wants a snapshot and the subscription that comes with it.
pub struct Subscriber {
    pub caller: Caller,
    /// The name that the client used.
    pub alias: Channel,
    /// How many of the newest finished turns; all for `None`.
    pub turns: Option<u64>,
    pub then: OnSnapshot,
    /// It rested on something that was lost, and was asked for again.
    pub again: bool,
}

/// Hands a snapshot over at its place of the line, with the subscription.
pub fn hand_snapshot(
    core: &SessionCore,
    channel: Channel,
    id: ChannelId,
    state: String,
    window: Option<Window>,
    subscriber: Subscriber,
) {
    let Subscriber { caller, alias, turns, then, again } = subscriber;
    let connection = caller.connection.clone();
    let (shared, session) = (Arc::clone(&core.shared), core.id);
    let release = move |place: Result<Place, Lost>| match place {
        Ok(place) => {
            let from_seq = place.channel_seq;
            let subscription = Subscription { channel, alias: alias.clone(), from_seq, window };
            let snapshot = SnapshotJson { resource: alias, state: state.into(), from_seq };
            connection.subscribe(subscription, Box::new(move |connection| then(connection, Ok(snapshot))));
        }
        // The old state is there to be read.
        Err(_) if !again && !shared.is_stopping() => {
            let message = SessionMessage::Subscribe { channel, alias, caller, turns, then, again: true };
            shared.registry.send(session, message);
        }
        Err(lost) => {
            let refusal = refusal_of_lost(&lost);
            connection.run(Box::new(move |connection| then(connection, Err(refusal))));
        }
    };
    core.lane.release(Some(id), Box::new(release));
}

fn subscribe(core: &SessionCore, subscriber: Subscriber) {
    let state = serde_json::to_value(&core.fold.state).map(|value| value.to_string()).unwrap_or_default();
    hand_snapshot(core, core.channel.clone(), core.id, state, None, subscriber);
}

impl SessionActor {
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
            Ok(true) => return echo(&core.borrow().lane, client),
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
            if matches!(action.decoded, StateAction::SessionActiveClientSet(_)) {
                self.leaving.remove(&client.caller.client_id);
            }
            let configures = matches!(action.decoded, StateAction::SessionConfigChanged(_));
            actions::dispatch(&mut core.borrow_mut(), client, action);
            if configures {
                self.tell_configuration(&core.borrow());
            }
            return;
        }
        match self.chat(core, &channel) {
            Some(chat) => tell(core, &channel, &chat, ChatMessage::Dispatch { client, action }, ctx),
            None => tracing::debug!(%channel, "an action for a chat that is gone"),
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

    fn doze(&mut self, ctx: &mut Context<Self>) {
        let idle = self.shared.settings.idle_timeout;
        let Some(core) = self.core.clone() else {
            if self.waiting.is_none() && self.last_used.elapsed() >= idle {
                self.shared.registry.sleep(self.id, &ctx.address(), SessionMessage::Stop);
            }
            return;
        };
        if self.waiting.is_some() {
            return;
        }
        self.forget_sleeping(&core);
        let asleep = self.chats.is_empty() && self.last_used.elapsed() >= idle && core.borrow().is_settled();
        let clients = !core.borrow().fold.state.active_clients.is_empty();
        if asleep && !clients {
            // Now and not at the end: by then an actor that follows may have recorded more, and the checkpoint, which is
            // keyed by the newest event of its place, would claim to hold that too.
            let mut core = core.borrow_mut();
            if core.is_unsaved() {
                core.save();
            }
            drop(core);
            self.shared.registry.sleep(self.id, &ctx.address(), SessionMessage::Stop);
        }
    }

    /// Lets go of chats that have been idle for long: they hold nothing that is not on disk.
    fn forget_sleeping(&mut self, core: &Rc<RefCell<SessionCore>>) {
        let idle = self.shared.settings.idle_timeout;
        let core_ref = core.borrow();
        let sleepy: Vec<Channel> = self
            .chats
            .keys()
            .filter(|uri| {
                let cell = core_ref.chats.get(uri.as_str());
                cell.is_none_or(|cell| cell.borrow().can_sleep(idle))
            })
            .cloned()
            .collect();
        drop(core_ref);
        for uri in sleepy {
            // Saved here for the same reason: the chat may be awake again before this actor of it has ended.
            let cell = core.borrow_mut().chats.remove(uri.as_str());
            if let Some(cell) = cell {
                let mut cell = cell.borrow_mut();
                cell.is_asleep = true;
                if SessionCore::is_chat_unsaved(&cell) {
                    core.borrow().save_chat(&mut cell);
                }
            }
            if let Some(chat) = self.chats.remove(&uri) {
                chat.do_send(ChatMessage::Stop);
            }
        }
    }

    fn stop(&mut self, ctx: &mut Context<Self>) {
        for chat in self.chats.values() {
            chat.do_send(ChatMessage::Stop);
        }
        self.chats.clear();
        for message in self.waiting.take().into_iter().flatten() {
            message.refuse_busy(&self.shared);
        }
        if let Some(core) = self.core.take() {
            let mut core = core.borrow_mut();
            if core.is_unsaved() {
                core.save();
            }
        }
        ctx.stop();
    }
}
