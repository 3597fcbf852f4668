//! The state of a channel in a store that no host runs on.

use super::reading::channel_row;
use crate::actors::command::{Refusal, RefusalKind};
use crate::actors::host::SnapshotJson;
use crate::events::{Channel, ChannelId, ServerSeq, Store};
use crate::projections::state;

/// The state of `channel` right after event `at`, now for `None`.
///
/// # Errors
/// A [`Refusal`]: of kind `NotFound` for a channel that is not there or had no events then, of kind `Internal` for a log
/// that cannot be read.
pub fn state_at(store: &dyn Store, channel: &str, at: Option<ServerSeq>) -> Result<SnapshotJson, Refusal> {
    let row = channel_row(store, channel).map_err(|fault| internal(&fault))?;
    let row = row.ok_or_else(|| not_found(format!("there is no channel {channel}")))?;
    let found = state::state_at(store, ChannelId(row.id), row.kind, at).map_err(|fault| internal(&fault))?;
    let then = || match at {
        Some(at) => format!("{channel} had no events at {at}"),
        None => format!("{channel} has no events"),
    };
    let found = found.ok_or_else(|| not_found(then()))?;
    Ok(SnapshotJson { resource: Channel::from(channel), state: found.json.into(), from_seq: found.seq })
}

fn not_found(message: String) -> Refusal {
    Refusal::new(RefusalKind::NotFound, "unknown-channel", message)
}

fn internal(fault: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(RefusalKind::Internal, "internal", fault.to_string())
}
