//! What the benchmarks and the load run share: logs as the host writes them, and the bare limits beside them.
//!
//! Used by every file of `benches/` and by `examples/load`. Always: a log of [`author`] passes `log verify`. Left out on
//! purpose: anything that measures; each user has its own clock.

#![allow(dead_code, reason = "each benchmark uses its own part of this")]

pub mod author;
pub mod folding;
pub mod limit;

use std::path::Path;
use std::time::Duration;

use scrollback::actors::registry::first_chat_uri;
use scrollback::events::sled_store::{SledOptions, SledStore};
use scrollback::events::{ChannelId, Store};
use scrollback::projections::catalogue;
use tempfile::TempDir;

/// A directory on the disk that the program itself is on: `/tmp` may be memory, where a sync costs nothing.
pub fn directory() -> TempDir {
    let program = std::env::current_exe().expect("the program's own path");
    let beside = program.parent().unwrap_or(Path::new("."));
    tempfile::Builder::new().prefix("scrollback-").tempdir_in(beside).expect("a directory beside the program")
}

/// The store in `directory`, as the host opens it.
pub fn store(directory: &Path) -> SledStore {
    SledStore::open(directory, SledOptions::default()).expect("the store opens")
}

/// Measures that end within seconds: what they compare is in one file.
pub fn short() -> criterion::Criterion {
    let criterion = criterion::Criterion::default().sample_size(10).without_plots();
    criterion.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1))
}

/// The chat and the session that an author wrote as `number`.
pub fn channels_of(store: &dyn Store, number: u64) -> (ChannelId, ChannelId) {
    let uri = format!("ahp-session:/load-{number}");
    let id = |uri: &str| ChannelId(catalogue::channel(store, uri).expect("read").expect("a channel").id);
    (id(&first_chat_uri(&uri)), id(&uri))
}
