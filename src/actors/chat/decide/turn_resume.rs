//! `chat/turnResume`: the latest turn, which ended in a resumable error, is taken up as the same turn.
//!
//! Its parts stay, its duration is counted from its start, and its agent hears of it once that is on disk. What it asked
//! before it ended, nobody waits for any more. Source: AHP `chat/turnResume`.

use ahp_types::actions::ChatTurnResumeAction;

use super::{Effect, Entry, Verdict, View, ready};
use crate::actors::chat::unanswered;
use crate::actors::rejection::{Code, Rejection};
use crate::projections::action::Action;
use crate::projections::chat::is_resumable;
use crate::projections::fact::Fact;

/// Decides.
///
/// # Errors
/// [`Code::NotReady`]; [`Code::TurnInProgress`]; [`Code::UnknownTurn`] for any turn but the latest; [`Code::Malformed`] where
/// that did not end in a resumable error.
pub fn decide(view: &View<'_>, resume: &ChatTurnResumeAction, action: Action) -> Result<Verdict, Rejection> {
    ready(view.core)?;
    if let Some(active) = view.active() {
        return Err(Rejection::new(Code::TurnInProgress, format!("turn {active} is running")));
    }
    let last = view.cell.fold.last_turn().filter(|turn| turn.id == resume.turn_id);
    let Some(last) = last else {
        return Err(Rejection::new(Code::UnknownTurn, format!("{} is not the latest turn", resume.turn_id)));
    };
    if !is_resumable(last) {
        let text = format!("turn {} did not end in an error that can be resumed", last.id);
        return Err(Rejection::new(Code::Malformed, text));
    }
    let by = view.client.caller.principal.to_string();
    let mut entries = vec![Entry::Client(action), Entry::Fact(Fact::TakenUp { by })];
    entries.extend(unanswered::settle(&last.id, &last.response_parts));
    Ok(Verdict::with(entries, vec![Effect::Prompt { turn_id: last.id.clone() }]))
}
