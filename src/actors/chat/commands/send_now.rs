//! `x-scrollback/sendNow`: a queued message goes out now, whatever runs, and whether or not the queue is paused.

use ahp_types::state::ChatInteractivity;

use super::Accepted;
use crate::actors::chat::decide::ready;
use crate::actors::chat::queue::Input;
use crate::actors::chat::waiting;
use crate::actors::command::{Refusal, RefusalKind};
use crate::actors::core::{ChatCell, SessionCore};
use crate::clock::Millis;

/// Decides.
pub fn decide(core: &SessionCore, cell: &ChatCell, id: &str, at: Millis) -> Result<Accepted, Refusal> {
    let state = &cell.fold.state;
    if state.interactivity.is_some_and(|how| how != ChatInteractivity::Full) {
        let text = "the chat takes no messages of people";
        return Err(Refusal::new(RefusalKind::InvalidParams, "read-only", text));
    }
    if ready(core).is_err() {
        return Err(Refusal::new(RefusalKind::InvalidRequest, "not-ready", "the session is not ready"));
    }
    let Ok((entries, effects)) = waiting::follow(core, cell, Input::SendNow { id }, None, at) else {
        let text = format!("no message {id} is queued: it went out, was taken back, or never was");
        return Err(Refusal::new(RefusalKind::NotFound, "request-not-found", text));
    };
    Ok(Accepted { ends_turn: state.active_turn.is_some(), ..Accepted::new(entries, effects) })
}
