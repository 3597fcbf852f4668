//! How turns end, and what follows: the activity is cleared, and the queue goes on or pauses.
//!
//! The queue's law: the next queued message goes out when a turn completes; any other end pauses a queue that has messages,
//! and nothing leaves a paused queue by itself. A turn that was resumed and completes lifts the pause.

use actix::Context;
use ahp_types::actions::{
    ChatActivityChangedAction, ChatBackgroundWorkRemovedAction, ChatErrorAction, ChatPendingMessageRemovedAction,
    ChatResponsePartAction, ChatTurnCancelledAction, ChatTurnCompleteAction, SessionMetaChangedAction, StateAction,
};
use ahp_types::state::{
    ErrorInfo, ErrorResponsePart, PendingMessageKind, ResponsePart, SystemNotificationResponsePart,
};
use serde_json::json;

use super::ChatActor;
use super::decide::{Effect, Entry, turn_started};
use crate::actors::core::{ChatCell, SessionCore};
use crate::clock::Millis;
use crate::projections::chat::ChatFold;
use crate::projections::mirror;

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
pub fn after(core: &SessionCore, cell: &ChatCell, naturally: bool, at: Millis) -> (Vec<Entry>, Vec<Effect>) {
    let mut entries = Vec::new();
    let state = &cell.fold.state;
    if state.activity.is_some() {
        entries.push(Entry::Host(StateAction::ChatActivityChanged(ChatActivityChangedAction { activity: None })));
    }
    let next = state.queued_messages.iter().flatten().next();
    let Some(next) = next else { return (entries, Vec::new()) };
    if !naturally {
        entries.extend(pause(core, cell, true));
        return (entries, Vec::new());
    }
    if is_paused(core, cell) {
        // Somebody resumed the turn whose ending paused the queue.
        if !cell.fold.attempts.resumed {
            return (entries, Vec::new());
        }
        entries.extend(pause(core, cell, false));
    }
    let (sent, effects) = send_queued(core, cell, &next.id, at);
    entries.extend(sent);
    (entries, effects)
}

/// The two steps in which a queued message goes out: it leaves the queue, and its turn starts.
pub fn send_queued(core: &SessionCore, cell: &ChatCell, id: &str, at: Millis) -> (Vec<Entry>, Vec<Effect>) {
    let queued = cell.fold.state.queued_messages.iter().flatten().find(|message| message.id == id);
    let Some(queued) = queued else { return (Vec::new(), Vec::new()) };
    let removed = ChatPendingMessageRemovedAction { kind: PendingMessageKind::Queued, id: id.to_owned() };
    let mut entries = vec![Entry::Host(StateAction::ChatPendingMessageRemoved(removed))];
    let (started, effects) = turn_started::queued(core, cell, queued, at);
    entries.extend(started);
    (entries, effects)
}

/// Whether the chat's queue is paused.
pub fn is_paused(core: &SessionCore, cell: &ChatCell) -> bool {
    core.fold.paused_queues().iter().any(|chat| chat == cell.channel.as_str())
}

/// The entry that pauses the chat's queue, or lifts the pause; `None` where it is so already.
pub fn pause(core: &SessionCore, cell: &ChatCell, paused: bool) -> Option<Entry> {
    if is_paused(core, cell) == paused {
        return None;
    }
    let mut chats = core.fold.paused_queues();
    if paused {
        chats.push(cell.channel.to_string());
    } else {
        chats.retain(|chat| chat != cell.channel.as_str());
    }
    let mut meta = core.fold.state.meta.clone().unwrap_or_default();
    meta.insert(mirror::PAUSED_QUEUES.into(), json!(chats));
    Some(Entry::Session(StateAction::SessionMetaChanged(SessionMetaChangedAction { meta: Some(meta) })))
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
        self.record(by, entries, effects, ctx);
    }

    /// What is listed as going on in the background ended with the process that did it.
    pub(super) fn end_background_work(&mut self, ctx: &mut Context<Self>) {
        let ids: Vec<String> = {
            let cell = self.cell.borrow();
            let works = cell.fold.state.background_work.iter().flatten();
            works.filter_map(|work| Some(serde_json::to_value(work).ok()?.get("id")?.as_str()?.to_owned())).collect()
        };
        if ids.is_empty() {
            return;
        }
        let removed = |id| StateAction::ChatBackgroundWorkRemoved(ChatBackgroundWorkRemovedAction { id });
        let entries = ids.into_iter().map(|id| Entry::Host(removed(id))).collect();
        let by = self.by_host();
        self.record(by, entries, Vec::new(), ctx);
    }
}
