//! `chat/turnCancelled`: somebody stops the running turn.
//!
//! The turn is over at once, whatever its agent does: late output goes nowhere. A queue with messages pauses. The workers
//! that the turn waits for end with it; those in the background only where the client asks for it. A turn that ended at a
//! limit, and that the host is to take up, is not taken up any more.

use ahp_types::actions::{ChatTurnCancelledAction, StateAction};

use super::{Effect, Entry, Verdict, View};
use crate::actors::chat::ending;
use crate::actors::chat::message::SUBAGENTS;
use crate::actors::rejection::{Code, Rejection};
use crate::projections::action::Action;
use crate::projections::fact::Fact;

fn stops_background(cancel: &ChatTurnCancelledAction) -> bool {
    cancel.meta.as_ref().and_then(|meta| meta.get(SUBAGENTS)).and_then(serde_json::Value::as_bool) == Some(true)
}

/// Decides. The duration is the host's, not the client's.
pub fn decide(view: &View<'_>, cancel: &ChatTurnCancelledAction, action: &Action) -> Result<Verdict, Rejection> {
    let owed = view.cell.fold.attempts.owed.as_ref();
    if let Some(owed) = owed.filter(|owed| owed.turn_id == cancel.turn_id) {
        let took = view.cell.fold.last_turn().and_then(|turn| turn.duration).unwrap_or(0);
        let fact = Fact::ResumeLapsed { turn_id: owed.turn_id.clone() };
        return Ok(Verdict::Noted { fact, sent: with_duration(action, took)?.bytes });
    }
    if view.active() != Some(cancel.turn_id.as_str()) {
        return Err(Rejection::new(Code::NoActiveTurn, format!("turn {} is not running", cancel.turn_id)));
    }
    let action = with_duration(action, ending::duration(&view.cell.fold, view.at))?;
    debug_assert!(matches!(action.decoded, StateAction::ChatTurnCancelled(_)));
    let (after, _) = ending::after(view.core, view.cell, false, view.at);
    let mut entries = vec![Entry::Client(action)];
    if stops_background(cancel) {
        entries.push(Entry::EndBackground);
    }
    entries.extend(after);
    let effects = vec![Effect::Cancel { turn_id: cancel.turn_id.clone() }];
    Ok(Verdict::Record { entries, effects, ends_turn: true })
}

fn with_duration(action: &Action, duration: i64) -> Result<Action, Rejection> {
    let mut value: serde_json::Value =
        serde_json::from_slice(&action.bytes).map_err(|e| Rejection::new(Code::Malformed, e.to_string()))?;
    if let Some(object) = value.as_object_mut() {
        object.insert("duration".into(), duration.into());
    }
    Ok(Action::from_json(value)?)
}
