//! The state of a channel in a store that no host runs on, and what changed between two states.

use json_patch::Patch;

use super::reading::channel_row;
use crate::actors::command::{Refusal, RefusalKind};
use crate::actors::host::{SnapshotJson, state_of, there_is};
use crate::events::{ChannelId, ServerSeq, Store};

/// The state of `channel` right after event `at`, now for `None`; a chat comes with all turns of its branch.
///
/// # Errors
/// A [`Refusal`]: of kind `NotFound` for a channel that is not there or had no events then, of kind `Internal` for a log
/// that cannot be read.
pub fn state_at(store: &dyn Store, channel: &str, at: Option<ServerSeq>) -> Result<SnapshotJson, Refusal> {
    let unread = |fault| Refusal::new(RefusalKind::Internal, "internal", format!("{fault}"));
    let row = channel_row(store, channel).map_err(unread)?;
    let missing = || Refusal::new(RefusalKind::NotFound, "unknown-channel", format!("there is no channel {channel}"));
    let row = row.ok_or_else(missing)?;
    there_is(at, store.tail())?;
    state_of(store, channel, row.kind, ChannelId(row.id), at, usize::MAX)
}

/// What makes the state right after event `to` of the one right after event `from`, which may also be the later one: a
/// JSON Patch (RFC 6902). `state` is asked for both.
///
/// # Errors
/// Those of `state`, and a [`Refusal`] of kind `Internal` for a state that is no JSON.
pub fn diff(
    state: impl Fn(ServerSeq) -> Result<SnapshotJson, Refusal>,
    from: ServerSeq,
    to: ServerSeq,
) -> Result<Patch, Refusal> {
    let read = |at| {
        let unread = |error: serde_json::Error| Refusal::new(RefusalKind::Internal, "internal", error.to_string());
        serde_json::from_slice(&state(at)?.state).map_err(unread)
    };
    Ok(json_patch::diff(&read(from)?, &read(to)?))
}
