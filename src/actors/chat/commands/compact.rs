//! `x-scrollback/compact`: the agent is asked for a smaller context, in a turn that the host opens. No turn is dropped.

use ahp_types::actions::{ChatTurnStartedAction, StateAction};

use super::Accepted;
use crate::actors::chat::compaction;
use crate::actors::chat::decide::{Effect, Entry, ready};
use crate::actors::command::{Refusal, RefusalKind};
use crate::actors::core::{ChatCell, SessionCore};
use crate::clock::{self, Millis};

/// Decides.
pub fn decide(core: &SessionCore, cell: &ChatCell, at: Millis) -> Result<Accepted, Refusal> {
    let state = &cell.fold.state;
    if ready(core).is_err() {
        return Err(Refusal::new(RefusalKind::InvalidRequest, "not-ready", "the session is not ready"));
    }
    if let Some(turn) = &state.active_turn {
        let text = format!("turn {} is running: ask when it has ended", turn.id);
        return Err(Refusal::new(RefusalKind::TurnInProgress, "turn-in-progress", text));
    }
    let can = core.shared.agent(&core.fold.state.provider).is_some_and(|agent| agent.extras().compact);
    if !can {
        let text = "this session's agent does not compact its context when it is asked";
        return Err(Refusal::new(RefusalKind::InvalidParams, "unsupported", text));
    }
    let turn_id = ulid::Ulid::new().to_string();
    let started = ChatTurnStartedAction {
        turn_id: turn_id.clone(),
        started_at: clock::rfc3339(at),
        message: compaction::request(),
        queued_message_id: None,
        meta: None,
    };
    let entries = vec![Entry::Host(StateAction::ChatTurnStarted(started))];
    Ok(Accepted::new(entries, vec![Effect::Prompt { turn_id }]))
}
