//! Why a client's action was refused: nothing is wrong with the host, and nothing was changed.

use std::fmt;

use crate::projections::action::ActionFault;

/// The stable words that a `rejectionReason` begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    TurnInProgress,
    NoActiveTurn,
    DuplicateTurn,
    NotReady,
    RequestNotFound,
    NotPermitted,
    NotDispatchable,
    Malformed,
    UnknownAction,
    Busy,
    LogUnavailable,
    UnknownTurn,
    NoRewindPoint,
    Unsupported,
    ReadOnly,
    BadAttachment,
    BadDirectory,
    LimitExceeded,
}

impl Code {
    /// The word as it goes on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Code::TurnInProgress => "turn-in-progress",
            Code::NoActiveTurn => "no-active-turn",
            Code::DuplicateTurn => "duplicate-turn",
            Code::NotReady => "not-ready",
            Code::RequestNotFound => "request-not-found",
            Code::NotPermitted => "not-permitted",
            Code::NotDispatchable => "not-dispatchable",
            Code::Malformed => "malformed",
            Code::UnknownAction => "unknown-action",
            Code::Busy => "busy",
            Code::LogUnavailable => "log-unavailable",
            Code::UnknownTurn => "unknown-turn",
            Code::NoRewindPoint => "no-rewind-point",
            Code::Unsupported => "unsupported",
            Code::ReadOnly => "read-only",
            Code::BadAttachment => "bad-attachment",
            Code::BadDirectory => "bad-directory",
            Code::LimitExceeded => "limit-exceeded",
        }
    }
}

/// A refusal of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    pub code: Code,
    pub detail: String,
}

impl Rejection {
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }

    /// So much waits already that nothing more is taken now.
    pub fn too_much(what: &str) -> Self {
        metrics::counter!("scrollback_limit_met_total", "limit" => "busy").increment(1);
        Self::new(Code::Busy, what)
    }

    /// What a later version serves.
    pub fn unsupported(what: &str) -> Self {
        Self::new(Code::Unsupported, format!("{what} is not served by this version"))
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.word(), self.detail)
    }
}

impl From<ActionFault> for Rejection {
    fn from(fault: ActionFault) -> Self {
        let code = match &fault {
            ActionFault::Unknown(_) => Code::UnknownAction,
            ActionFault::NoType | ActionFault::Malformed { .. } => Code::Malformed,
        };
        Self::new(code, fault.to_string())
    }
}
