//! What a session is told, and how a message that cannot be served is refused.

use std::sync::Arc;

use actix::Message;

use super::answers::{no_such_chat, not_there, refuse, reject_at};
use super::looking::{self, OnLook};
use crate::actors::command::{ChatCommand, Refusal, RefusalKind, Reply};
use crate::actors::connection::{Caller, ConnectionId, Window};
use crate::actors::core::{ClientAction, SessionCore};
use crate::actors::host::{CreateChat, CreateSession, OnSnapshot};
use crate::actors::moves::{Accepted, Arrival, MoveChat};
use crate::actors::rejection::{Code, Rejection};
use crate::actors::shared::Shared;
use crate::actors::visuals::VisualCommand;
use crate::events::{Channel, ChannelId};
use crate::projections::action::Action;

/// How a session's actor begins.
pub enum Boot {
    /// A new session.
    Create { caller: Caller, command: Box<CreateSession>, uri: Channel, chat: ChannelId, reply: Reply },
    /// A new session of chats that leave another one.
    Arrive(Box<Arrival>, Channel),
    /// One that is read from the log.
    Load,
}

/// What comes back.
pub enum Restoring {
    Session,
    Chat(Channel),
}

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
    MoveChat(Box<MoveChat>),
    /// Chats of another session come to this one.
    MoveIn(Box<Arrival>),
    /// What became of that, for the session that they leave.
    MoveAnswered {
        number: u64,
        answer: Result<Box<Accepted>, Refusal>,
    },
    /// What was decided before chats were taken in is durable, or lost.
    Reached {
        number: u64,
        kept: bool,
    },
    /// The batch of a move is on disk, or lost.
    Left {
        number: u64,
        kept: bool,
    },
    /// The chats are here now, with what was sent for them meanwhile.
    Arrived {
        number: u64,
        messages: Vec<SessionMessage>,
    },
    /// They are not, or only the log says whether they are.
    NotArrived {
        number: u64,
    },
    /// Something is asked of a chat's visuals.
    Visual {
        principal: Arc<str>,
        chat: Channel,
        command: VisualCommand,
        reply: Reply,
    },
    FetchTurns {
        caller: Caller,
        chat: Channel,
        cursor: Option<String>,
        window: Option<Window>,
        reply: Reply,
    },
    /// A command of the extensions for one chat.
    Command {
        caller: Caller,
        chat: Channel,
        command: ChatCommand,
        reply: Reply,
    },
    /// What a chat is in, for who writes a message to it.
    Look {
        chat: Channel,
        then: OnLook,
    },
    /// What is gone from every list comes back.
    Restore {
        what: Restoring,
        principal: Arc<str>,
        reply: Reply,
    },
    /// The same, once what ended it is on disk.
    BringBack {
        what: Restoring,
        principal: Arc<str>,
        reply: Reply,
    },
    /// The session is disposed and its events are about to go: let go of what is held, and write nothing.
    Forget {
        reply: Reply,
    },
    /// A client has left this session with one of its connections: its entry goes, at once or after the grace time.
    ClientLeft {
        client_id: Arc<str>,
        connection: u64,
        at_once: bool,
    },
    /// Wakes the chat, so that a turn that was interrupted gets its ending.
    Recover {
        chat: Channel,
    },
    /// Is awake, so that what was interrupted goes on.
    Wake,
    /// For tests: panics in a handler of the session.
    PanicHere,
    /// The time of a resume that is owed to the chat has come.
    ResumeDue {
        chat: Channel,
    },
    /// A batch of this generation was lost.
    Lost {
        generation: u64,
    },
    /// A chat's actor panicked.
    ChatPanicked,
    /// Something to say once what was told before was handled, a reading from the log with it.
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
                | SessionMessage::MoveAnswered { .. }
                | SessionMessage::Reached { .. }
                | SessionMessage::Left { .. }
                | SessionMessage::Arrived { .. }
                | SessionMessage::NotArrived { .. }
                | SessionMessage::Stop
        )
    }

    /// The chat, or the session itself, that it is about, for those that were sent for a channel.
    pub fn channel(&self) -> Option<&Channel> {
        match self {
            SessionMessage::Dispatch { channel, .. } | SessionMessage::Subscribe { channel, .. } => Some(channel),
            SessionMessage::DisposeChat { chat, .. }
            | SessionMessage::FetchTurns { chat, .. }
            | SessionMessage::Look { chat, .. }
            | SessionMessage::Command { chat, .. }
            | SessionMessage::Visual { chat, .. }
            | SessionMessage::Recover { chat }
            | SessionMessage::Panic { chat } => Some(chat),
            SessionMessage::MoveChat(command) => Some(&command.chat),
            _ => None,
        }
    }

    /// The connection among whose messages this one keeps its place.
    pub fn in_order_of(&self) -> Option<ConnectionId> {
        match self {
            SessionMessage::Dispatch { client, .. } => Some(client.caller.connection.id),
            SessionMessage::CreateChat { caller, .. }
            | SessionMessage::DisposeChat { caller, .. }
            | SessionMessage::DisposeSession { caller, .. }
            | SessionMessage::Command { caller, .. } => Some(caller.connection.id),
            SessionMessage::MoveChat(command) => Some(command.caller.connection.id),
            _ => None,
        }
    }

    /// Tells the sender of a message that could not be delivered.
    pub fn refuse_busy(self, shared: &Shared) {
        let busy = Rejection::too_much("the session has too much to do: try again");
        self.refuse_as(busy.code, "the session has too much to do: try again", shared);
    }

    /// Tells the sender of a message that the session cannot be read.
    pub fn refuse_unreadable(self, shared: &Shared) {
        self.refuse_as(Code::LogUnavailable, "the session cannot be read from the log: see the host's own log", shared);
    }

    fn refuse_as(self, code: Code, text: &'static str, shared: &Shared) {
        let refusal = || Refusal::new(RefusalKind::Unavailable, code.word(), text);
        match self {
            SessionMessage::Dispatch { client, .. } => {
                reject_at(&client, shared.writer.handed_over(), &Rejection::new(code, text));
            }
            SessionMessage::Subscribe { caller, then, .. } => {
                let refusal = refusal();
                caller.connection.run(Box::new(move |connection| then(connection, Err(refusal))));
            }
            SessionMessage::CreateChat { reply, .. }
            | SessionMessage::DisposeChat { reply, .. }
            | SessionMessage::DisposeSession { reply, .. }
            | SessionMessage::Visual { reply, .. }
            | SessionMessage::FetchTurns { reply, .. }
            | SessionMessage::Command { reply, .. }
            | SessionMessage::Restore { reply, .. }
            | SessionMessage::BringBack { reply, .. }
            | SessionMessage::Forget { reply } => reply(Err(refusal())),
            SessionMessage::MoveChat(command) => (command.reply)(Err(refusal())),
            SessionMessage::MoveIn(arrival) => arrival.back.answer(Err(refusal())),
            SessionMessage::Look { then, .. } => then(Err(refusal())),
            SessionMessage::Tell(tell) => tell(),
            _ => {}
        }
    }
}

/// What reaches a session that was disposed meanwhile. An action for a channel that is not there is ignored.
pub fn refuse_disposed(core: &SessionCore, message: SessionMessage) {
    let unknown = || {
        let text = format!("there is no session {}", core.channel);
        Refusal::new(RefusalKind::UnknownSession, "unknown-session", text)
    };
    match message {
        SessionMessage::Subscribe { caller, then, .. } => not_there(core, &caller, then),
        SessionMessage::CreateChat { reply, .. } | SessionMessage::DisposeSession { reply, .. } => {
            refuse(core, unknown(), reply);
        }
        SessionMessage::DisposeChat { chat, reply, .. }
        | SessionMessage::Visual { chat, reply, .. }
        | SessionMessage::FetchTurns { chat, reply, .. }
        | SessionMessage::Command { chat, reply, .. } => {
            refuse(core, no_such_chat(&chat), reply);
        }
        SessionMessage::MoveChat(command) => refuse(core, no_such_chat(&command.chat), command.reply),
        SessionMessage::MoveIn(arrival) => {
            let text = format!("there is no channel {}", core.channel);
            let refusal = Refusal::new(RefusalKind::NotFound, "not-found", text);
            core.lane.release(None, Box::new(move |_| arrival.back.answer(Err(refusal))));
        }
        SessionMessage::Look { chat, then } => looking::look(core, &chat, then),
        _ => {}
    }
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
