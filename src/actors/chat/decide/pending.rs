//! Waiting messages: what people put in, change and take back. What follows is for the law of the queue.

use ahp_types::actions::{
    ChatPendingMessageRemovedAction, ChatPendingMessageSetAction, ChatQueuedMessagesReorderedAction, StateAction,
};
use ahp_types::state::{PendingMessage, PendingMessageKind};
use serde_json::Value;

use super::turn_started::{draft_sent, id};
use super::{Verdict, View, ready};
use crate::actors::chat::queue::{self, Input, Step};
use crate::actors::chat::{message, waiting};
use crate::actors::rejection::{Code, Rejection};
use crate::projections::action::Action;

/// `chat/pendingMessageSet`: a new message waits, or one that waits is edited.
pub fn set(view: &View<'_>, set: &ChatPendingMessageSetAction, action: &Action) -> Result<Verdict, Rejection> {
    ready(view.core)?;
    id(&set.id)?;
    message::check(&set.message, &view.core.shared.settings)?;
    let action = signed(action, &view.client.caller.principal)?;
    let StateAction::ChatPendingMessageSet(set) = action.decoded.clone() else {
        return Err(Rejection::new(Code::Malformed, "no message"));
    };
    let seen = view.cell.has_seen(&view.core.shared, b'm', &set.id);
    let used = seen.map_err(|fault| Rejection::new(Code::LogUnavailable, fault.to_string()))?;
    let message = PendingMessage { id: set.id, message: set.message };
    let input = match set.kind {
        PendingMessageKind::Queued => Input::Queue { message: &message, used },
        PendingMessageKind::Steering => Input::Steer { message: &message, used },
    };
    let unchanged = action.bytes.clone();
    let (mut entries, effects) = waiting::follow(view.core, view.cell, input, Some(action), view.at)?;
    if entries.is_empty() {
        return Ok(Verdict::Nothing(unchanged));
    }
    if !used {
        entries.extend(draft_sent(view.cell));
    }
    Ok(Verdict::with(entries, effects))
}

fn signed(action: &Action, principal: &str) -> Result<Action, Rejection> {
    let mut value: Value =
        serde_json::from_slice(&action.bytes).map_err(|e| Rejection::new(Code::Malformed, e.to_string()))?;
    if let Some(sent) = value.get_mut("message") {
        message::sign(sent, principal);
    }
    Ok(Action::from_json(value)?)
}

/// `chat/pendingMessageRemoved`: a waiting message is taken back.
pub fn removed(
    view: &View<'_>,
    removed: &ChatPendingMessageRemovedAction,
    action: Action,
) -> Result<Verdict, Rejection> {
    let input = Input::TakeBack { kind: removed.kind, id: &removed.id };
    let (entries, effects) = waiting::follow(view.core, view.cell, input, Some(action), view.at)?;
    Ok(Verdict::with(entries, effects))
}

/// `chat/queuedMessagesReordered`: broadcast with every id, so that every client agrees.
pub fn reordered(view: &View<'_>, wanted: &ChatQueuedMessagesReorderedAction) -> Result<Verdict, Rejection> {
    let waiting = waiting::of(view.core, view.cell);
    let now = waiting.queued.iter().map(|message| message.id.as_str()).collect();
    let steps = queue::decide(waiting, Input::Order(&wanted.order))?;
    let action = |order: Vec<&str>| Step::Order(order).action("", "").map(Action::host);
    Ok(match steps.into_iter().next() {
        Some(Step::Order(order)) => {
            action(order).map_or_else(|| Verdict::with(Vec::new(), Vec::new()), Verdict::accept)
        }
        _ => Verdict::Nothing(action(now).map(|action| action.bytes).unwrap_or_default()),
    })
}
