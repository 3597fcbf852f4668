//! The state of a channel in a store that no host runs on.

use crate::actors::command::{Refusal, RefusalKind};
use crate::actors::host::SnapshotJson;
use crate::events::{ServerSeq, Store};

/// The state of `channel` right after event `at`, now for `None`.
///
/// # Errors
/// A [`Refusal`] of kind `NotFound` for a channel that is not there or had no events then.
pub fn state_at(store: &dyn Store, channel: &str, at: Option<ServerSeq>) -> Result<SnapshotJson, Refusal> {
    let _ = (store, channel, at);
    Err(Refusal::new(RefusalKind::UnknownMethod, "unsupported", "log state needs a running host in this version"))
}
