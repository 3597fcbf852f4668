//! A session as the root lists it, made from the session's fold.
//!
//! Source: AHP root, `SessionSummary`: the activity comes from the default chat, a chat that waits for somebody or is in
//! error raises it, and read and archived are the session's own.

use ahp_types::common::JsonObject;
use ahp_types::state::{ChatSummary, SessionChatSummary, SessionStatus, SessionSummary};
use serde_json::Value;

use super::inputs;
use super::session::SessionFold;

/// The bits of a status that say what is going on; the others are flags.
pub const ACTIVITY_BITS: u32 = 0b1_1111;
/// The key of a summary's `_meta` that counts what waits for a person.
pub const WAITING: &str = "scrollback.waiting";

/// The summary of the session named `resource`.
pub fn of_session(resource: &str, fold: &SessionFold) -> SessionSummary {
    let state = &fold.state;
    let lead = lead_chat(fold);
    let mut meta = JsonObject::new();
    let waiting = state.input_needed.iter().flatten().filter(|entry| inputs::waits_for_a_person(entry)).count();
    meta.insert(WAITING.into(), Value::from(waiting));
    SessionSummary {
        provider: state.provider.clone(),
        title: state.title.clone(),
        status: status(fold, lead),
        activity: lead.and_then(|chat| chat.activity.clone()),
        origin: state.origin.clone(),
        project: state.project.clone(),
        working_directories: state.working_directories.clone(),
        annotations: state.annotations.clone(),
        resource: resource.to_owned(),
        created_at: fold.created_at.clone(),
        modified_at: modified_at(fold),
        changes: None,
        meta: Some(meta),
        chats: Some(state.chats.iter().map(compact).collect()),
        default_chat: state.default_chat.clone(),
    }
}

/// The chat that gives the session its activity: the default one, else the one that was modified last.
fn lead_chat(fold: &SessionFold) -> Option<&ChatSummary> {
    let state = &fold.state;
    let default = state.default_chat.as_ref().and_then(|uri| state.chats.iter().find(|chat| chat.resource == *uri));
    default.or_else(|| state.chats.iter().max_by(|a, b| a.modified_at.cmp(&b.modified_at)))
}

fn status(fold: &SessionFold, lead: Option<&ChatSummary>) -> u32 {
    let chats = &fold.state.chats;
    let activity_of = |chat: &ChatSummary| chat.status & ACTIVITY_BITS;
    let activity = if chats.iter().any(|chat| activity_of(chat) == SessionStatus::InputNeeded.bits()) {
        SessionStatus::InputNeeded.bits()
    } else if chats.iter().any(|chat| activity_of(chat) == SessionStatus::Error.bits()) {
        SessionStatus::Error.bits()
    } else {
        lead.map_or(SessionStatus::Idle.bits(), activity_of)
    };
    (fold.state.status & !ACTIVITY_BITS) | activity
}

fn modified_at(fold: &SessionFold) -> String {
    let chats = fold.state.chats.iter().map(|chat| &chat.modified_at);
    chats
        .filter_map(|at| Some((crate::clock::parse_rfc3339(at)?, at)))
        .max()
        .map_or_else(|| fold.created_at.clone(), |(_, at)| at.clone())
}

fn compact(chat: &ChatSummary) -> SessionChatSummary {
    SessionChatSummary {
        resource: chat.resource.clone(),
        title: chat.title.clone(),
        origin: chat.origin.clone(),
        interactivity: chat.interactivity,
        status: Some(chat.status),
        changes: chat.changes.clone(),
    }
}

/// What `root/sessionSummaryChanged` says about the way from `old` to `new`; `None` where they are the same.
///
/// Identity fields never change. A cleared text is sent as an empty one, since an absent field means "unchanged".
pub fn changes(old: &SessionSummary, new: &SessionSummary) -> Option<Value> {
    let (Ok(Value::Object(old)), Ok(Value::Object(new))) = (serde_json::to_value(old), serde_json::to_value(new))
    else {
        return None;
    };
    let mut changes: JsonObject =
        new.iter().filter(|(key, value)| old.get(*key) != Some(value)).map(|(k, v)| (k.clone(), v.clone())).collect();
    for (key, value) in old {
        if !new.contains_key(&key) && value.is_string() {
            changes.insert(key, Value::from(""));
        }
    }
    (!changes.is_empty()).then_some(Value::Object(changes))
}
