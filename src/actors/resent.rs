//! Which of a client's actions are sent again, and which are new.
//!
//! A client whose connection dropped sends again what it has no echo of, with the old number; that must not happen twice.
//! But other clients count from 1 again on each connection, so the same number says nothing by itself. An action that names
//! something by an id of its own is the same when it is equal. One that only says how something is to be ("read", a title, a
//! draft) may well be wished again: it is taken for the old one only where the client has come back from before it was
//! accepted, and so cannot have seen its echo.

use std::ops::ControlFlow;

use ahp_types::actions::StateAction;
use bytes::Bytes;

use super::connection::ConnectionId;
use super::core::ClientAction;
use crate::events::rows::leading_number;
use crate::events::{LogFault, ServerSeq, Store, Table};

/// Whether an equal action with this number and client, accepted as event `seq` on `connection`, is this one.
pub fn is_resent(client: &ClientAction, action: &StateAction, seq: ServerSeq, connection: ConnectionId) -> bool {
    if connection == client.caller.connection.id {
        return false;
    }
    let unseen = client.caller.resumed_from.is_some_and(|seen| seq > seen);
    unseen || !may_be_wished_again(action)
}

/// Whether the log has this action from another connection.
///
/// # Errors
/// [`LogFault`] when the store cannot be read.
pub fn was_recorded(store: &dyn Store, client: &ClientAction, action: &StateAction) -> Result<bool, LogFault> {
    let row = store.get(Table::Dispatched, &client.fingerprint)?;
    let known = row.and_then(|value| Some((leading_number(&value)?, leading_number(value.get(8..)?)?)));
    Ok(known.is_some_and(|(seq, connection)| is_resent(client, action, seq, connection)))
}

/// The action as the log has it, where it does: what its sender is told again.
///
/// # Errors
/// [`LogFault`] when the store cannot be read.
pub fn recorded(store: &dyn Store, client: &ClientAction) -> Result<Option<Bytes>, LogFault> {
    let row = store.get(Table::Dispatched, &client.fingerprint)?;
    let Some(seq) = row.and_then(|value| leading_number(&value)) else { return Ok(None) };
    let mut found = None;
    store.scan(seq.saturating_sub(1), seq, &mut |record| {
        found = Some(record.action);
        ControlFlow::Break(())
    })?;
    Ok(found)
}

/// Whether the action says how something is to be, so that the same words may be meant anew.
fn may_be_wished_again(action: &StateAction) -> bool {
    matches!(
        action,
        StateAction::RootConfigChanged(_)
            | StateAction::SessionTitleChanged(_)
            | StateAction::SessionIsReadChanged(_)
            | StateAction::SessionIsArchivedChanged(_)
            | StateAction::SessionConfigChanged(_)
            | StateAction::SessionActiveClientSet(_)
            | StateAction::SessionActiveClientRemoved(_)
            | StateAction::SessionDefaultChatChanged(_)
            | StateAction::SessionWorkingDirectorySet(_)
            | StateAction::SessionWorkingDirectoryRemoved(_)
            | StateAction::SessionWorkingDirectoryReplaced(_)
            | StateAction::ChatQueuedMessagesReordered(_)
            | StateAction::ChatTurnResume(_)
            | StateAction::ChatDraftChanged(_)
            | StateAction::ChatIsReadChanged(_)
            | StateAction::ChatIsArchivedChanged(_)
            | StateAction::ChatInputAnswerChanged(_)
    )
}
