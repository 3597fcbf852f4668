//! What was closed and when: chats that are on no list any more, and disposed sessions.

use std::collections::HashMap;
use std::ops::ControlFlow;

use ahp_types::actions::StateAction;

use super::action::{Action, type_of};
use super::fact::Fact;
use super::{FoldFault, catalogue};
use crate::clock::Millis;
use crate::events::rows::{ChannelKind, ChannelRow};
use crate::events::{ChannelId, Kind, Record, ServerSeq, Store, Table};

/// The sessions that were disposed before a moment, and the chats of others that were closed before it. One that came back is
/// not among them, nor a chat that went to another session.
///
/// # Errors
/// [`FoldFault`] when the store cannot be read.
pub fn closed_before(store: &dyn Store, before: Millis) -> Result<Vec<String>, FoldFault> {
    let mut closed = Vec::new();
    for (uri, id) in sessions(store)? {
        let left = Left::of(store, id)?;
        if left.disposed.is_some_and(|at| at < before) {
            closed.push(uri);
            continue;
        }
        for (chat, _) in left.chats.into_iter().filter(|(_, at)| *at < before) {
            if catalogue::channel(store, &chat)?.is_some_and(|row| row.session == id.0) {
                closed.push(chat);
            }
        }
    }
    Ok(closed)
}

/// Whether `uri` is what [`closed_before`] would name, now.
///
/// # Errors
/// [`FoldFault`] when the store cannot be read.
pub fn is_closed_before(store: &dyn Store, uri: &str, before: Millis) -> Result<bool, FoldFault> {
    let Some(row) = catalogue::channel(store, uri)? else { return Ok(false) };
    let mut left = Left::of(store, ChannelId(row.session))?;
    let closed = if row.kind == ChannelKind::Session { left.disposed } else { left.chats.remove(uri) };
    Ok(closed.is_some_and(|at| at < before))
}

fn sessions(store: &dyn Store) -> Result<Vec<(String, ChannelId)>, FoldFault> {
    let mut sessions = Vec::new();
    store.scan_rows(Table::ChannelByUri, &[], None, &mut |key, value| {
        // A row that does not decode is for the verification to find.
        if let Ok(row) = serde_json::from_slice::<ChannelRow>(value)
            && row.kind == ChannelKind::Session
        {
            sessions.push((String::from_utf8_lossy(key).into_owned(), ChannelId(row.id)));
        }
        ControlFlow::Continue(())
    })?;
    Ok(sessions)
}

/// When a session was disposed, and the chats that left it.
#[derive(Default)]
struct Left {
    disposed: Option<Millis>,
    chats: HashMap<String, Millis>,
}

impl Left {
    fn of(store: &dyn Store, session: ChannelId) -> Result<Self, FoldFault> {
        let mut left = Self::default();
        store.scan_channel(session, 0, ServerSeq::MAX, &mut |record| {
            left.after(&record);
            ControlFlow::Continue(())
        })?;
        Ok(left)
    }

    fn after(&mut self, record: &Record) {
        let kind = type_of(&record.action);
        if record.kind == Kind::Host {
            match Fact::from_stored(&record.action) {
                Ok(Fact::SessionDisposed) => self.disposed = Some(record.at),
                Ok(Fact::SessionRestored) => self.disposed = None,
                _ => {}
            }
        } else if matches!(&*kind, "session/chatAdded" | "session/chatRemoved")
            && let Ok(action) = Action::from_stored(record.action.clone())
        {
            match action.decoded {
                StateAction::SessionChatRemoved(removed) => drop(self.chats.insert(removed.chat, record.at)),
                StateAction::SessionChatAdded(added) => drop(self.chats.remove(&added.summary.resource)),
                _ => {}
            }
        }
    }
}
