//! What a session's channel has to say after its chat changed.
//!
//! Derived by comparing the two folds, so whatever changed is announced and nothing is announced twice. The actions go
//! into the same batch as the change. Source: AHP session, `chatUpdated`, `inputNeededSet`.

use std::collections::{HashMap, HashSet};

use ahp_types::actions::{
    PartialChatSummary, SessionChatAddedAction, SessionChatUpdatedAction, SessionInputNeededRemovedAction,
    SessionInputNeededSetAction, StateAction,
};
use ahp_types::state::{ChatState, ChatSummary, SessionInputRequest, SessionState};

use super::inputs;

/// The key of a session's `_meta` that lists the chats whose queues are paused.
pub const PAUSED_QUEUES: &str = "scrollback.pausedQueues";
/// Where a session's `_meta` says what there is of each chat's process.
pub const PROCESSES: &str = "scrollback.process";

/// A chat's summary: the fields that its state shares with it.
pub fn summary_of(chat: &ChatState) -> ChatSummary {
    ChatSummary {
        resource: chat.resource.clone(),
        title: chat.title.clone(),
        status: chat.status,
        activity: chat.activity.clone(),
        modified_at: chat.modified_at.clone(),
        changes: chat.changes.clone(),
        origin: chat.origin.clone(),
        movable: chat.movable,
        interactivity: chat.interactivity,
        working_directories: chat.working_directories.clone(),
    }
}

/// The actions for the session's channel that bring its entry of `chat` up to date. `inputs_too`: whether what the chat
/// waits for may have changed.
pub fn of_chat(session: &SessionState, chat: &ChatState, inputs_too: bool) -> Vec<StateAction> {
    let mut actions = Vec::new();
    if let Some(listed) = session.chats.iter().find(|entry| entry.resource == chat.resource) {
        actions.extend(of_summary(listed, chat));
        if inputs_too {
            of_inputs(session, chat, &mut actions);
        }
    }
    actions
}

fn of_summary(listed: &ChatSummary, chat: &ChatState) -> Option<StateAction> {
    let cleared = (listed.activity.is_some() && chat.activity.is_none())
        || (listed.changes.is_some() && chat.changes.is_none())
        || (listed.working_directories.is_some() && chat.working_directories.is_none());
    if cleared || listed.movable != chat.movable || listed.interactivity != chat.interactivity {
        return Some(StateAction::SessionChatAdded(SessionChatAddedAction { summary: summary_of(chat) }));
    }
    let mut changes = PartialChatSummary::default();
    let mut changed = false;
    macro_rules! compare {
        ($($field:ident => $value:expr),*) => {$(
            if listed.$field != chat.$field {
                changes.$field = $value;
                changed = true;
            }
        )*};
    }
    compare!(
        title => Some(chat.title.clone()),
        status => Some(chat.status),
        activity => chat.activity.clone(),
        modified_at => Some(chat.modified_at.clone()),
        changes => chat.changes.clone(),
        origin => chat.origin.clone(),
        working_directories => chat.working_directories.clone()
    );
    changed.then(|| StateAction::SessionChatUpdated(SessionChatUpdatedAction { chat: chat.resource.clone(), changes }))
}

fn of_inputs(session: &SessionState, chat: &ChatState, actions: &mut Vec<StateAction>) {
    let wanted = inputs::of_chat(chat);
    let listed: Vec<_> = session
        .input_needed
        .iter()
        .flatten()
        .filter(|entry| inputs::id_and_chat(entry).is_some_and(|(_, of)| of == chat.resource))
        .collect();
    if listed.is_empty() && wanted.is_empty() {
        return;
    }
    fn id(entry: &SessionInputRequest) -> Option<&str> {
        inputs::id_and_chat(entry).map(|(id, _)| id)
    }
    let still: HashSet<&str> = wanted.iter().filter_map(id).collect();
    for gone in listed.iter().filter_map(|entry| id(entry)).filter(|id| !still.contains(id)) {
        actions.push(StateAction::SessionInputNeededRemoved(SessionInputNeededRemovedAction { id: gone.to_owned() }));
    }
    let known: HashMap<&str, &SessionInputRequest> =
        listed.iter().filter_map(|entry| Some((id(entry)?, *entry))).collect();
    for request in wanted.iter().filter(|request| id(request).and_then(|id| known.get(id).copied()) != Some(*request)) {
        let request = request.clone();
        actions.push(StateAction::SessionInputNeededSet(Box::new(SessionInputNeededSetAction { request })));
    }
}
