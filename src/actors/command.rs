//! Commands that are answered, and how they are refused.

use std::fmt::Display;

use serde_json::Value;
use serde_json::value::RawValue;

use super::rejection::Code;
use crate::projections::people::Operation;

/// What kind of refusal it is; the protocol maps each to a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    InvalidRequest,
    UnknownMethod,
    InvalidParams,
    Internal,
    /// A limit is met, or the log takes no appends now.
    Unavailable,
    UnknownSession,
    UnknownProvider,
    SessionExists,
    TurnInProgress,
    UnsupportedVersion,
    NotFound,
    NotPermitted,
    AlreadyExists,
    /// A resource is no longer the version that was named.
    Conflict,
}

/// A command that is refused: nothing was changed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub kind: RefusalKind,
    /// The stable word of `data.code`, such as `bad-directory`.
    pub code: &'static str,
    pub message: String,
    /// What else goes into `data`.
    pub data: Option<Value>,
}

impl Refusal {
    /// A refusal with nothing but its word and its sentence.
    pub fn new(kind: RefusalKind, code: &'static str, message: impl Into<String>) -> Self {
        Self { kind, code, message: message.into(), data: None }
    }

    /// Something that needs an operation which was not granted.
    pub fn not_permitted(operation: Operation) -> Self {
        Self::new(RefusalKind::NotPermitted, Code::NotPermitted.word(), operation.not_granted())
    }

    /// The log cannot be read, or takes nothing now.
    pub fn log_unavailable(fault: impl Display) -> Self {
        Self::new(RefusalKind::Unavailable, Code::LogUnavailable.word(), fault.to_string())
    }
}

/// A command for one chat, of the extensions. Each is decided like a client's action: see `actors/chat/commands.rs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChatCommand {
    /// `x-scrollback/sendNow`: a queued message goes out now, and a running turn is stopped for it.
    SendNow { id: String },
    /// `x-scrollback/compact`: the agent is asked for a smaller context.
    Compact,
    /// `x-scrollback/stopBackgroundWork`.
    StopBackgroundWork { id: String },
    /// `x-scrollback/clear`: the chat starts over; a running turn is cancelled first with `force`.
    Clear { force: bool },
}

/// The answer to a command: the JSON of its result, or why it is refused.
pub type Answer = Result<Box<RawValue>, Refusal>;

/// Where an answer goes. Called once, when everything that the answer rests on is durable; hands over and returns.
pub type Reply = Box<dyn FnOnce(Answer) + Send>;

/// Asks something that is answered with a [`Reply`].
pub async fn ask(send: impl FnOnce(Reply)) -> Answer {
    let (answered, answer) = tokio::sync::oneshot::channel();
    send(Box::new(move |given| drop(answered.send(given))));
    answer.await.unwrap_or_else(|_| {
        Err(Refusal::new(RefusalKind::Unavailable, "busy", "the host is stopping, or has too much to do: try again"))
    })
}

/// The result `null`.
pub fn null() -> Box<RawValue> {
    RawValue::NULL.to_owned()
}

/// The result as JSON; `null` when it cannot be written, which plain data never is.
pub fn json(value: &impl serde::Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap_or_else(|_| null())
}
