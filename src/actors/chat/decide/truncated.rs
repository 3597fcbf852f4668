//! `chat/truncated`: the chat goes back to an earlier turn, and its agent with it. What is dropped stays in the log.

use ahp_types::actions::ChatTruncatedAction;
use ahp_types::state::Turn;

use super::{Effect, Entry, Verdict, View, ready};
use crate::actors::chat::ending;
use crate::actors::chat::pages::Range;
use crate::actors::core::ChatCell;
use crate::actors::rejection::{Code, Rejection};
use crate::actors::shared::Shared;
use crate::projections::action::Action;
use crate::projections::chat::{Branch, Point};
use crate::projections::fact::Fact;
use crate::projections::turns::{self, StoredTurn};
use crate::projections::{FoldFault, chat};

/// Decides.
pub fn decide(view: &View<'_>, cut: &ChatTruncatedAction, action: Action) -> Result<Verdict, Rejection> {
    let Some(turn_id) = &cut.turn_id else {
        return Err(Rejection::new(Code::Unsupported, "name a turn; x-scrollback/clear starts a chat over"));
    };
    ready(view.core)?;
    let shared = &view.core.shared;
    let can = shared.agent(&view.core.fold.state.provider).is_some_and(|agent| agent.extras().rewind);
    if !can {
        return Err(Rejection::new(Code::Unsupported, "this session's agent cannot go back"));
    }
    let unreadable = |fault: FoldFault| Rejection::new(Code::LogUnavailable, fault.to_string());
    if view.active() == Some(turn_id) {
        return Err(Rejection::new(Code::UnknownTurn, format!("turn {turn_id} is running: name one that has ended")));
    }
    let kept = view.cell.turn_on_branch(shared, view.cell.fold.head(), turn_id).map_err(unreadable)?;
    let Some(kept) = kept else {
        return Err(Rejection::new(Code::UnknownTurn, format!("the chat has no turn {turn_id}")));
    };
    let Some(point) = view.cell.point(shared, kept.n).map_err(unreadable)? else {
        let text = format!("the agent does not know how to go back to turn {turn_id}");
        return Err(Rejection::new(Code::NoRewindPoint, text));
    };
    let branch = branch(shared, view.cell, &kept, Some(point)).map_err(unreadable)?;
    let mut entries = Vec::new();
    let mut effects = Vec::new();
    let mut head = view.cell.fold.head();
    if let (Some(cancelled), Some(active)) = (ending::cancelled(&view.cell.fold, view.at), view.active()) {
        entries.push(Entry::Host(cancelled));
        entries.extend(ending::after(view.core, view.cell, false, view.at).0);
        effects.push(Effect::Cancel { turn_id: active.to_owned() });
        head = view.cell.fold.rows + 1;
    }
    entries.push(Entry::EndWorkers);
    // Who does not hold the turn is shown it first: a reducer that does not know it would do nothing.
    if head != kept.n {
        let page = Range { oldest: kept.row.ordinal, newest: kept.row.ordinal, head, goes: true };
        let page = page.action().map_err(|text| Rejection::new(Code::Malformed, text))?;
        entries.push(Entry::Fetched(page));
    }
    entries.push(Entry::Fact(Fact::Branch { branch: Box::new(branch) }));
    entries.push(Entry::Client(action));
    effects.push(Effect::EndProcess);
    Ok(Verdict::Record { entries, effects, ends_turn: true })
}

/// The branch that ends with `last`, in a number of reads that grows as the logarithm of its length.
///
/// # Errors
/// [`FoldFault`] when the rows cannot be read.
pub fn branch(shared: &Shared, cell: &ChatCell, last: &StoredTurn, point: Option<Point>) -> Result<Branch, FoldFault> {
    let read = |n| cell.turn(shared, n);
    let path: chat::Path = turns::path(last.n, read)?;
    let before: chat::Path = turns::path(last.row.prev, read)?;
    let turn: Turn = serde_json::from_slice(&last.json).map_err(|e| FoldFault::Row {
        place: format!("of ended turn {} of chat {}", last.n, cell.id.0),
        problem: e.to_string(),
    })?;
    Ok(Branch::new(path, before, turn, point))
}
