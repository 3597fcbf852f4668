//! `x-scrollback/clear`: the chat starts over. Every turn goes, what waits, and the visuals; the agent begins a new conversation. What was
//! said stays in the log.

use bytes::Bytes;

use super::Accepted;
use crate::actors::chat::decide::{Effect, Entry};
use crate::actors::chat::queue::Input;
use crate::actors::chat::waiting;
use crate::actors::command::{Refusal, RefusalKind};
use crate::actors::core::{ChatCell, SessionCore};
use crate::actors::envelope::CLEARED;
use crate::actors::visuals;
use crate::clock::Millis;
use crate::projections::action::Action;

/// Decides.
pub fn decide(core: &SessionCore, cell: &ChatCell, force: bool, at: Millis) -> Result<Accepted, Refusal> {
    let active = cell.fold.state.active_turn.as_ref().map(|turn| turn.id.clone());
    if let Some(turn_id) = active.as_ref().filter(|_| !force) {
        let text = format!("turn {turn_id} is running: force cancels it");
        return Err(Refusal::new(RefusalKind::TurnInProgress, "turn-in-progress", text));
    }
    let (mut entries, mut effects) = waiting::follow(core, cell, Input::Clear, None, at).unwrap_or_default();
    entries.push(Entry::EndWorkers);
    let shown = visuals::open(&core.shared, cell, |_| true).map_err(Refusal::log_unavailable)?;
    entries.push(Entry::CanvasesClosed(shown));
    let cleared = Action::from_stored(Bytes::from_static(CLEARED));
    entries.push(Entry::Fetched(cleared.map_err(|text| Refusal::new(RefusalKind::Internal, "internal", text))?));
    effects.push(Effect::EndProcess);
    Ok(Accepted { ends_turn: true, ..Accepted::new(entries, effects) })
}
