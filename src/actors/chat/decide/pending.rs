//! Waiting messages: queued ones go out one a turn, first in, first out.

use ahp_types::actions::{
    ChatPendingMessageRemovedAction, ChatPendingMessageSetAction, ChatQueuedMessagesReorderedAction, StateAction,
};
use ahp_types::state::{PendingMessage, PendingMessageKind};
use serde_json::Value;

use super::turn_started::{around, id, queued};
use super::{Effect, Entry, Verdict, View, ready};
use crate::actors::chat::{ending, message};
use crate::actors::rejection::{Code, Rejection};
use crate::projections::action::Action;

/// `chat/pendingMessageSet`: a new message waits, or one that waits is edited.
pub fn set(view: &View<'_>, set: &ChatPendingMessageSetAction, action: &Action) -> Result<Verdict, Rejection> {
    ready(view.core)?;
    id(&set.id)?;
    message::check(&set.message, view.core.shared.settings.max_message_text)?;
    if set.kind == PendingMessageKind::Steering {
        return Err(steering(view));
    }
    let waiting = view.chat().queued_messages.iter().flatten().find(|message| message.id == set.id);
    let action = signed(action, &view.client.caller.principal)?;
    if let Some(waiting) = waiting {
        let StateAction::ChatPendingMessageSet(edited) = &action.decoded else {
            return Err(Rejection::new(Code::Malformed, "no message"));
        };
        return Ok(Verdict::unless(waiting.message == edited.message, action));
    }
    let seen = view.cell.has_seen(&view.core.shared, b'm', &set.id);
    if seen.map_err(|fault| Rejection::new(Code::LogUnavailable, fault.to_string()))? {
        return Err(Rejection::new(Code::RequestNotFound, format!("message {} went out or was taken back", set.id)));
    }
    new(view, action)
}

fn signed(action: &Action, principal: &str) -> Result<Action, Rejection> {
    let mut value: Value =
        serde_json::from_slice(&action.bytes).map_err(|e| Rejection::new(Code::Malformed, e.to_string()))?;
    if let Some(sent) = value.get_mut("message") {
        message::sign(sent, principal);
    }
    Ok(Action::from_json(value)?)
}

fn steering(view: &View<'_>) -> Rejection {
    if view.active().is_none() {
        return Rejection::new(Code::NoActiveTurn, "no turn is running that the message could go into");
    }
    Rejection::unsupported("a message into a running turn")
}

/// A new queued message: it waits behind those that wait, and the head goes out where nothing runs.
fn new(view: &View<'_>, action: Action) -> Result<Verdict, Rejection> {
    let StateAction::ChatPendingMessageSet(set) = action.decoded.clone() else {
        return Err(Rejection::new(Code::Malformed, "no message"));
    };
    let limit = view.core.shared.settings.max_queued_messages;
    let waiting: Vec<&PendingMessage> = view.chat().queued_messages.iter().flatten().collect();
    if waiting.len() >= limit {
        metrics::counter!("scrollback_limit_met_total", "limit" => "queued_messages").increment(1);
        return Err(Rejection::new(Code::LimitExceeded, format!("at most {limit} messages wait in a chat")));
    }
    let added = PendingMessage { id: set.id, message: set.message };
    let mut entries = vec![Entry::Client(action)];
    let mut effects = Vec::new();
    entries.extend(ending::pause(view.core, view.cell, false));
    if view.active().is_none() {
        let head = waiting.first().copied().unwrap_or(&added);
        entries.push(Entry::Host(StateAction::ChatPendingMessageRemoved(ChatPendingMessageRemovedAction {
            kind: PendingMessageKind::Queued,
            id: head.id.clone(),
        })));
        let (started, prompt): (Vec<Entry>, Vec<Effect>) = queued(view.core, view.cell, head, view.at);
        entries.extend(started);
        effects.extend(prompt);
    }
    // The draft was what has just been sent; a name that the chat lacks comes with the turn.
    let draft = around(view.core, view.cell, &added.message, true).into_iter();
    entries.extend(draft.filter(|entry| matches!(entry, Entry::Host(StateAction::ChatDraftChanged(_)))));
    Ok(Verdict::with(entries, effects))
}

/// `chat/pendingMessageRemoved`: a waiting message is taken back.
pub fn removed(
    view: &View<'_>,
    removed: &ChatPendingMessageRemovedAction,
    action: Action,
) -> Result<Verdict, Rejection> {
    let chat = view.chat();
    let waits = match removed.kind {
        PendingMessageKind::Queued => chat.queued_messages.iter().flatten().any(|m| m.id == removed.id),
        PendingMessageKind::Steering => chat.steering_message.as_ref().is_some_and(|m| m.id == removed.id),
    };
    if !waits {
        return Err(Rejection::new(Code::RequestNotFound, format!("no message {} waits", removed.id)));
    }
    let mut entries = vec![Entry::Client(action)];
    let was_last = chat.queued_messages.iter().flatten().count() == 1;
    if removed.kind == PendingMessageKind::Queued && was_last {
        entries.extend(ending::pause(view.core, view.cell, false));
    }
    Ok(Verdict::with(entries, Vec::new()))
}

/// `chat/queuedMessagesReordered`: broadcast with every id, so that every client agrees.
pub fn reordered(view: &View<'_>, wanted: &ChatQueuedMessagesReorderedAction) -> Result<Verdict, Rejection> {
    let waiting: Vec<&str> = view.chat().queued_messages.iter().flatten().map(|m| m.id.as_str()).collect();
    if waiting.is_empty() {
        return Err(Rejection::new(Code::RequestNotFound, "no message waits"));
    }
    let mut order: Vec<String> = Vec::with_capacity(waiting.len());
    for id in wanted.order.iter().filter(|id| waiting.contains(&id.as_str())) {
        if !order.contains(id) {
            order.push(id.clone());
        }
    }
    let rest: Vec<String> =
        waiting.iter().filter(|id| !order.iter().any(|o| o == *id)).map(ToString::to_string).collect();
    order.extend(rest);
    let unchanged = order.iter().map(String::as_str).eq(waiting.iter().copied());
    let action = StateAction::ChatQueuedMessagesReordered(ChatQueuedMessagesReorderedAction { order });
    Ok(Verdict::unless(unchanged, Action::host(action)))
}
