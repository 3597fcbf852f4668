//! The bare limits that the store is held against: the same bytes with nothing of ours around them.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use scrollback::events::{Batch, Channel, ChannelId, Kind, NewEvent};

/// Bytes of an event's action, events of a commit, and channels that they go to.
pub const EVENT_BYTES: usize = 300;
pub const COMMIT_EVENTS: usize = 64;
pub const CHANNELS: u64 = 16;

/// One commit: events of [`EVENT_BYTES`] over [`CHANNELS`] channels, one batch for each event as chats append them.
pub fn commit() -> Vec<Batch> {
    let empty = super::author::delta("turn-1", "p", "").clone();
    let overhead = scrollback::projections::action::Action::host(empty).bytes.len();
    let content = super::author::text(EVENT_BYTES - overhead);
    let action = scrollback::projections::action::Action::host(super::author::delta("turn-1", "p", &content)).bytes;
    let event = |n: u64| {
        let channel_id = ChannelId(100 + n % CHANNELS);
        let channel = Channel::from(format!("ahp-chat:/load-{}", n % CHANNELS));
        let principal: Arc<str> = Arc::from("agent:demo");
        let (kind, at, action) = (Kind::Action, 1_767_225_600_000, action.clone());
        NewEvent { channel, channel_id, kind, at, principal, origin: None, about: None, action }
    };
    (0..COMMIT_EVENTS as u64).map(|n| Batch { events: vec![event(n)], rows: Vec::new() }).collect()
}

/// The bytes of a commit's actions, one after the other.
pub fn bytes_of(batches: &[Batch]) -> Vec<u8> {
    batches.iter().flat_map(|batch| &batch.events).flat_map(|event| event.action.iter().copied()).collect()
}

/// A file that grows, synced at each commit: the least that a durable append can cost.
pub struct PlainFile(File);

impl PlainFile {
    pub fn new(directory: &Path) -> Self {
        let path = directory.join("plain");
        Self(OpenOptions::new().append(true).create(true).open(path).expect("a file"))
    }

    /// Writes `bytes` and waits until they are on disk.
    pub fn commit(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("written");
        self.0.sync_data().expect("synced");
    }
}

/// The engine alone, with one record an event and the same sync as the store's.
pub struct BareSled {
    db: sled::Db,
    file: File,
    next: u64,
    /// Whether each event has an entry that finds it by its channel too.
    indexed: bool,
}

impl BareSled {
    pub fn new(path: &Path, indexed: bool) -> Self {
        let config = sled::Config::new().path(path).segment_size(4 << 20).cache_capacity(64 << 20);
        let db = config.open().expect("the engine opens");
        Self { db, file: File::open(path.join("db")).expect("the engine's file"), next: 0, indexed }
    }

    /// Appends each event under its number, and waits until all are on disk.
    pub fn commit(&mut self, events: &[Bytes]) {
        let mut batch = sled::Batch::default();
        for event in events {
            self.next += 1;
            batch.insert([&b"E"[..], &self.next.to_be_bytes()].concat(), &event[..]);
            if self.indexed {
                let channel = self.next % CHANNELS;
                batch.insert([&b"I"[..], &channel.to_be_bytes(), &self.next.to_be_bytes()].concat(), &[]);
            }
        }
        self.db.apply_batch(batch).expect("applied");
        self.db.flush().expect("flushed");
        self.file.sync_data().expect("synced");
    }
}
