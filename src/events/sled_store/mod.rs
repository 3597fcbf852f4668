//! The store on disk: the log and its rows in one tree of sled, synced at every commit.
//!
//! Nothing outside of this folder names the engine. The data directory holds `log/`, the engine's own, and the file
//! `floor`. `keys`, `pieces` and `runs` say what is stored, `tree` tames the engine, `open` brings a store up, `commit`
//! appends, `load` takes in a log from elsewhere, `log` and `rows` read.
//!
//! Always: an append is one batch of the engine, then its flush, then fdatasync through a second descriptor of its
//! file, since the flush alone does not survive a power cut. After a write or sync that failed nothing is written any
//! more. Reads end at the newest event that is on disk, and see rows as they were until their append is on disk.
//! Source: `docs/adr/0002-key-layout.md` and `0003-durability.md`.

mod commit;
mod erase;
mod keys;
mod load;
mod log;
mod open;
mod rows;
mod tree;

// Open for `fuzz/`, which hands them whatever a disk may hold.
#[doc(hidden)]
pub mod pieces;
#[doc(hidden)]
pub mod runs;

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod fixture_tests;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use super::log::{Row, VisitRow};
use super::stage::RowChanges;
use super::{Batch, Channel, ChannelId, EventLog, Fate, FreeSpace, LogFault, Record, Rows, ServerSeq, Table};
use tree::Tree;

/// What a store is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Reading and appending.
    #[default]
    Write,
    /// Reading alone: the floor is checked and not written. The engine may still tidy its own files.
    Read,
    /// Reading what can be read of a store that is refused otherwise, for `scrollback log verify` and exports.
    Salvage,
}

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct SledOptions {
    /// Reading, or appending too.
    pub access: Access,
    /// Bytes that the engine keeps in memory; it may take 2.4 times as much.
    pub cache_capacity: u64,
    /// Bytes that stay free on the disk: an append that would leave less, with twice its own size, is not tried.
    pub min_free: u64,
    /// Where the free room is learnt from.
    pub free: FreeSpace,
}

impl Default for SledOptions {
    fn default() -> Self {
        Self { access: Access::Write, cache_capacity: 64 << 20, min_free: 64 << 20, free: FreeSpace::disk() }
    }
}

/// See the head of this file.
pub struct SledStore {
    /// The data directory.
    directory: PathBuf,
    tree: Tree,
    /// A second descriptor of the engine's file, for the syncs.
    synced: File,
    options: SledOptions,
    /// What a store that is salvaged has lost.
    lost: Option<String>,
    writer: Mutex<Writer>,
    /// The rows that the append under way changes, as they are on disk. Kept for good when it fails.
    before: RwLock<RowChanges>,
    names: Names,
    /// The newest event on disk.
    tail: AtomicU64,
    /// The number that the next event gets.
    next: AtomicU64,
    /// The highest channel number that was given or stored.
    channels: AtomicU64,
    /// How long the last sync took, in nanoseconds.
    last_sync: AtomicU64,
}

/// What only an append changes.
struct Writer {
    floor: super::floor::Floor,
    /// Whether numbers are shown before they are on disk.
    ahead: bool,
    /// The highest channel number that is noted in the store.
    highest_channel: u64,
    /// The newest event of channels that were written lately.
    newest: HashMap<ChannelId, ServerSeq>,
    /// Why nothing is written any more.
    read_only: Option<String>,
}

/// The most channels that are remembered by name or by newest event; beyond it they are asked of the tree again.
const REMEMBERED: usize = 16_384;

/// The URIs of channels that were read or written lately.
#[derive(Default)]
struct Names(RwLock<HashMap<ChannelId, Channel>>);

impl Names {
    fn get(&self, id: ChannelId) -> Option<Channel> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    fn set(&self, id: ChannelId, name: Option<Channel>) {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match name {
            Some(name) => remember(&mut names, id, name),
            None => drop(names.remove(&id)),
        }
    }
}

fn remember<T>(map: &mut HashMap<ChannelId, T>, id: ChannelId, value: T) {
    if map.len() >= REMEMBERED && !map.contains_key(&id) {
        map.clear();
    }
    map.insert(id, value);
}

impl SledStore {
    /// What this store, which was opened to salvage it, has lost of what was promised to be on disk.
    pub fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// Opens the store in the data directory `directory`, made there when it has none.
    ///
    /// The caller holds the directory's lock (see [`super::DataDirectory`]).
    ///
    /// # Errors
    /// [`LogFault::Directory`] when the log or the floor is missing, damaged or cannot be opened: its text says what to
    /// do. [`LogFault::Short`] when the log has less than the floor promises. [`LogFault::Io`] from the file system.
    pub fn open(directory: &Path, options: SledOptions) -> Result<SledStore, LogFault> {
        open::open(directory, options)
    }

    /// Closes the log in order: syncs once more, and says in the floor that no number is in doubt. Appends are refused
    /// from then on, reads go on.
    ///
    /// # Errors
    /// [`LogFault::ReadOnly`] when a write failed before or fails now: the floor is then left as it is.
    pub fn close_clean(&self) -> Result<(), LogFault> {
        self.close_in_order()
    }

    /// Where the data directory is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stored URI of a channel.
    fn stored_name(&self, id: ChannelId) -> Result<Option<Channel>, LogFault> {
        if let Some(name) = self.names.get(id) {
            return Ok(Some(name));
        }
        let key = super::rows::channel_key(id);
        let Some(uri) = self.row(Table::ChannelById, &key)? else { return Ok(None) };
        let uri = String::from_utf8(uri).map_err(|_| LogFault::Damaged {
            place: rows::place(Table::ChannelById, &key),
            problem: "the URI is not text".to_owned(),
        })?;
        let name = Channel::from(uri);
        self.names.set(id, Some(name.clone()));
        Ok(Some(name))
    }
}

impl EventLog for SledStore {
    fn append(&self, batches: &[Batch]) -> Result<Vec<ServerSeq>, LogFault> {
        self.commit(batches)
    }

    fn next_seq(&self) -> ServerSeq {
        self.next.load(Ordering::Acquire)
    }

    fn tail(&self) -> ServerSeq {
        self.tail.load(Ordering::Acquire)
    }

    fn publish_ahead(&self) -> Result<(), LogFault> {
        self.reserve_ahead()
    }

    fn scan_channel(
        &self,
        channel: ChannelId,
        after: ServerSeq,
        upto: ServerSeq,
        visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<(), LogFault> {
        self.read_channel(channel, after, upto, visit)
    }

    fn scan(
        &self,
        after: ServerSeq,
        upto: ServerSeq,
        visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<(), LogFault> {
        self.read_line(after, upto, visit)
    }

    fn scan_channel_back(
        &self,
        channel: ChannelId,
        after: ServerSeq,
        upto: ServerSeq,
        visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<(), LogFault> {
        self.read_channel_back(channel, after, upto, visit)
    }

    fn scan_back(
        &self,
        after: ServerSeq,
        upto: ServerSeq,
        visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<(), LogFault> {
        self.read_line_back(after, upto, visit)
    }

    fn last_sync(&self) -> Option<Duration> {
        Some(Duration::from_nanos(self.last_sync.load(Ordering::Acquire)))
    }

    fn last_of(&self, channel: ChannelId, upto: ServerSeq) -> Result<Option<ServerSeq>, LogFault> {
        self.newest_at(channel, upto)
    }

    fn erase(&self, channel: ChannelId, fate: &dyn Fn(&Record) -> Fate) -> Result<u64, LogFault> {
        self.remove_events(channel, fate)
    }

    fn accepts_appends(&self) -> Result<(), LogFault> {
        self.accepts()
    }

    fn disk_bytes(&self) -> u64 {
        let files = std::fs::read_dir(self.directory.join(open::LOG)).into_iter().flatten().flatten();
        files.filter_map(|file| file.metadata().ok()).map(|file| file.blocks().saturating_mul(512)).sum()
    }
}

impl Rows for SledStore {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, LogFault> {
        self.row(table, key)
    }

    fn scan_rows(&self, table: Table, prefix: &[u8], from: Option<&[u8]>, visit: VisitRow<'_>) -> Result<(), LogFault> {
        self.visit_rows(table, prefix, from, visit)
    }

    fn last_row(&self, table: Table, prefix: &[u8], upto: &[u8]) -> Result<Option<Row>, LogFault> {
        self.newest_row(table, prefix, upto)
    }

    fn new_channel_id(&self) -> ChannelId {
        ChannelId(self.channels.fetch_add(1, Ordering::AcqRel).saturating_add(1))
    }

    fn last_channel_id(&self) -> ChannelId {
        ChannelId(self.channels.load(Ordering::Acquire))
    }
}
