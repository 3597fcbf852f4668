//! The role of the default chat, and which chats may be moved: all but the default one, workers and hidden ones.
//!
//! Source: AHP session, `defaultChat`; AHP chat, `movable`.

use ahp_types::actions::{ChatMovableChangedAction, StateAction};
use ahp_types::state::{ChatInteractivity, ChatOrigin, ChatSummary, SessionState};

use super::beside::InChat;
use crate::events::Channel;

/// Whether people may write in a chat that is no agent's: such a chat may be the default, and be moved.
pub fn is_peoples(chat: &ChatSummary) -> bool {
    let full = chat.interactivity.is_none_or(|how| how == ChatInteractivity::Full);
    full && !matches!(chat.origin, Some(ChatOrigin::Tool { .. }))
}

/// Whether a chat of the session may be moved.
pub fn is_movable(state: &SessionState, chat: &ChatSummary) -> bool {
    is_peoples(chat) && state.default_chat.as_deref() != Some(chat.resource.as_str())
}

/// What changes in the chats when `next` becomes the default one.
pub fn in_chats(state: &SessionState, next: &str) -> Vec<InChat> {
    let movable = |chat: &ChatSummary, movable: bool| {
        let change = StateAction::ChatMovableChanged(ChatMovableChangedAction { movable });
        let chat = Channel::from(chat.resource.as_str());
        InChat { chat, before: Vec::new(), after: vec![change], effects: Vec::new() }
    };
    let of_role = |chat: &&ChatSummary| chat.resource == next || state.default_chat.as_deref() == Some(&chat.resource);
    let wanted = |chat: &ChatSummary| chat.resource != next && is_peoples(chat);
    let changed = state.chats.iter().filter(of_role).filter(|chat| chat.movable.unwrap_or(false) != wanted(chat));
    changed.map(|chat| movable(chat, wanted(chat))).collect()
}
