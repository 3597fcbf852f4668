//! State as the fold of the log.
//!
//! Every state is made by applying events in order, with the official reducers of the crate `ahp` and, in
//! [`chat::ChatFold::apply`] and [`session::SessionFold::apply`], the little that they lack. Applying is pure and total:
//! no clock, no I/O, and an event that does not fit changes nothing.

pub mod action;
pub mod attempts;
pub mod branches;
pub mod canvas;
pub mod catalogue;
pub mod chat;
pub mod erasure;
pub mod fact;
pub mod inputs;
pub mod mirror;
pub mod people;
#[cfg(test)]
mod properties;
pub mod rebuild;
pub mod replay;
pub mod root;
pub mod session;
pub mod summary;
pub mod transcript;
pub mod turns;
pub mod verify;
pub mod visual;
pub mod workers;

use crate::events::LogFault;

/// What can go wrong when stored events are folded.
#[derive(Debug, thiserror::Error)]
pub enum FoldFault {
    #[error(transparent)]
    Log(#[from] LogFault),
    /// Stored JSON is not what this version writes.
    #[error("event {seq} of {channel} cannot be folded: {problem}")]
    Event { seq: u64, channel: String, problem: String },
    /// A row beside the log is not what the log says.
    #[error("row {place}: {problem}")]
    Row { place: String, problem: String },
}
