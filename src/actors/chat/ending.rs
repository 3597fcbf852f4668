//! How turns end. What follows is for the law of what waits: the queue goes on or pauses.

use actix::Context;
use ahp_types::actions::{
    ChatActivityChangedAction, ChatBackgroundWorkRemovedAction, ChatErrorAction, ChatResponsePartAction,
    ChatTurnCancelledAction, ChatTurnCompleteAction, StateAction,
};
use ahp_types::state::{ErrorInfo, ErrorResponsePart, ResponsePart, SystemNotificationResponsePart};
use tracing::Span;

use super::ChatActor;
use super::decide::Entry;
use super::queue::{End, Input};
use super::waiting::{self, Following};
use crate::actors::core::{ChatCell, SessionCore};
use crate::clock::Millis;
use crate::projections::chat::ChatFold;
use crate::projections::workers::work_id;

/// How long the running turn took until `at`, by the host's clock: whole milliseconds, never negative.
pub fn duration(chat: &ChatFold, at: Millis) -> i64 {
    at.saturating_sub(chat.started).max(0)
}

/// The action that ends the running turn as cancelled, when there is one.
pub fn cancelled(chat: &ChatFold, at: Millis) -> Option<StateAction> {
    let turn = chat.state.active_turn.as_ref()?;
    let (turn_id, duration) = (turn.id.clone(), duration(chat, at));
    Some(StateAction::ChatTurnCancelled(ChatTurnCancelledAction { turn_id, duration, meta: None }))
}

/// The action that ends the running turn as completed, when there is one.
pub fn completed(chat: &ChatFold, at: Millis) -> Option<StateAction> {
    let turn = chat.state.active_turn.as_ref()?;
    let (turn_id, duration) = (turn.id.clone(), duration(chat, at));
    Some(StateAction::ChatTurnComplete(ChatTurnCompleteAction { turn_id, duration, meta: None }))
}

/// The action that ends the running turn in an error, when there is one.
pub fn failed(chat: &ChatFold, at: Millis, error_type: &str, message: &str, resumable: bool) -> Option<StateAction> {
    let turn = chat.state.active_turn.as_ref()?;
    let error = ErrorInfo { error_type: error_type.to_owned(), message: message.to_owned(), stack: None, meta: None };
    Some(StateAction::ChatError(ChatErrorAction {
        turn_id: turn.id.clone(),
        duration: duration(chat, at),
        part: ErrorResponsePart { error, resumable: resumable.then_some(true) },
        meta: None,
    }))
}

/// A notice in the running turn.
pub fn notice(turn_id: &str, text: &str) -> StateAction {
    let part = SystemNotificationResponsePart { content: text.into(), meta: None };
    let part = ResponsePart::SystemNotification(part);
    StateAction::ChatResponsePart(ChatResponsePartAction { turn_id: turn_id.to_owned(), part, meta: None })
}

/// What follows the end of the running turn: entries, and what the agent is told once they are durable.
///
/// `naturally`: it completed. Decided on the state before the end is applied.
pub fn after(core: &SessionCore, cell: &ChatCell, naturally: bool, at: Millis) -> Following {
    let end = match naturally {
        true if cell.fold.attempts.resumed => End::ResumedComplete,
        true => End::Complete,
        false => End::Other,
    };
    let mut entries: Vec<Entry> = quiet(cell).into_iter().collect();
    let (after, effects) = waiting::follow(core, cell, Input::Ended(end), None, at).unwrap_or_default();
    entries.extend(after);
    (entries, effects)
}

/// What goes when the chat goes: its turn, with all that follows, and what went on in the background.
pub fn with_the_chat(core: &SessionCore, cell: &ChatCell, at: Millis) -> Vec<Entry> {
    let mut entries = Vec::new();
    if let Some(action) = cancelled(&cell.fold, at) {
        entries.push(Entry::Host(action));
        entries.extend(after(core, cell, false, at).0);
    }
    entries.extend(background_over(&cell.fold));
    entries
}

/// Takes what goes on in the background off its list.
fn background_over(chat: &ChatFold) -> impl Iterator<Item = Entry> {
    let works = chat.state.background_work.iter().flatten();
    let ids = works.filter_map(work_id).map(str::to_owned);
    let removed = |id| StateAction::ChatBackgroundWorkRemoved(ChatBackgroundWorkRemovedAction { id });
    ids.map(move |id| Entry::Host(removed(id)))
}

/// Clears what the chat says that it is doing.
pub fn quiet(cell: &ChatCell) -> Option<Entry> {
    let clear = || Entry::Host(StateAction::ChatActivityChanged(ChatActivityChangedAction { activity: None }));
    cell.fold.state.activity.as_ref().map(|_| clear())
}

impl ChatActor {
    /// Ends the running turn with `end`, whatever else is open.
    pub(super) fn end_turn(
        &mut self,
        end: impl FnOnce(&ChatFold, Millis) -> Option<StateAction>,
        naturally: bool,
        before: Vec<Entry>,
        ctx: &mut Context<Self>,
    ) {
        let by = self.by_agent();
        let (entries, effects) = {
            let (core, cell) = (self.core.borrow(), self.cell.borrow());
            let Some(action) = end(&cell.fold, by.at) else { return };
            let (after, effects) = after(&core, &cell, naturally, by.at);
            let mut entries = before;
            entries.push(Entry::Host(action));
            entries.extend(after);
            (entries, effects)
        };
        self.close_part();
        self.handed = None;
        self.trail = Span::none();
        self.record(by, entries, effects, ctx);
    }

    /// What is listed as going on in the background ended with the process that did it.
    pub(super) fn end_background_work(&mut self, ctx: &mut Context<Self>) {
        let entries: Vec<Entry> = background_over(&self.cell.borrow().fold).collect();
        if entries.is_empty() {
            return;
        }
        let by = self.by_host();
        self.record(by, entries, Vec::new(), ctx);
    }
}
