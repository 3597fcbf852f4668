//! Drafts, titles, and the marks "read" and "archived": durable at once, whatever runs, and no agent is woken.

use ahp_types::actions::ChatDraftChangedAction;
use ahp_types::state::SessionStatus;

use super::turn_started::session_title;
use super::{Entry, Verdict, View};
use crate::actors::chat::message;
use crate::actors::rejection::Rejection;
use crate::actors::session;
use crate::projections::action::Action;

fn has_flag(view: &View<'_>, flag: SessionStatus) -> bool {
    view.chat().status & flag.bits() != 0
}

/// `chat/isReadChanged`.
pub fn is_read(view: &View<'_>, wanted: bool, action: Action) -> Verdict {
    Verdict::unless(has_flag(view, SessionStatus::IsRead) == wanted, action)
}

/// `chat/isArchivedChanged`.
pub fn is_archived(view: &View<'_>, wanted: bool, action: Action) -> Verdict {
    Verdict::unless(has_flag(view, SessionStatus::IsArchived) == wanted, action)
}

/// `session/titleChanged` on a chat's channel: the chat's name.
pub fn title(view: &View<'_>, title: &str, action: Action) -> Result<Verdict, Rejection> {
    session::title(title)?;
    if view.chat().title == title {
        return Ok(Verdict::Nothing(action.bytes));
    }
    let mut entries = vec![Entry::Client(action)];
    entries.extend(session_title(view.core, view.cell, title));
    Ok(Verdict::with(entries, Vec::new()))
}

/// `chat/draftChanged`: refused for its size alone, never for what the session is doing.
pub fn draft(view: &View<'_>, change: &ChatDraftChangedAction, action: Action) -> Result<Verdict, Rejection> {
    if let Some(draft) = &change.draft {
        message::check(draft, &view.core.shared.settings)?;
    }
    Ok(Verdict::unless(change.draft == view.chat().draft, action))
}
