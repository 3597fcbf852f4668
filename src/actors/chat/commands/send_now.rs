//! `x-scrollback/sendNow`: a queued message goes out now, whatever runs, and whether or not the queue is paused.

use super::Accepted;
use crate::actors::chat::decide::ready;
use crate::actors::chat::queue::Input;
use crate::actors::chat::waiting;
use crate::actors::command::{Refusal, RefusalKind};
use crate::actors::core::{ChatCell, SessionCore};
use crate::clock::Millis;

/// Decides.
pub fn decide(core: &SessionCore, cell: &ChatCell, id: &str, at: Millis) -> Result<Accepted, Refusal> {
    if ready(core).is_err() {
        return Err(Refusal::new(RefusalKind::InvalidRequest, "not-ready", "the session is not ready"));
    }
    let Ok((entries, effects)) = waiting::follow(core, cell, Input::SendNow { id }, None, at) else {
        let text = format!("no message {id} is queued: it went out, was taken back, or never was");
        return Err(Refusal::new(RefusalKind::NotFound, "request-not-found", text));
    };
    Ok(Accepted { ends_turn: cell.fold.state.active_turn.is_some(), ..Accepted::new(entries, effects) })
}
