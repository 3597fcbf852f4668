//! A store that counts what is read of it, and whose writes can be made to fail.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use scrollback::events::memory::MemoryStore;
use scrollback::events::{Batch, ChannelId, EventLog, Fate, LogFault, Record, Rows, ServerSeq, Table};

/// A store in memory that is watched.
pub struct Watched {
    store: Arc<MemoryStore>,
    reads: AtomicU64,
    bytes: AtomicU64,
    /// How many writes still succeed.
    writes: AtomicU64,
}

impl Watched {
    pub fn new() -> Self {
        Self::over(Arc::new(MemoryStore::new().unwrap()))
    }

    /// A handle on a store that others may hold too. Once it fails for good it is that of a process which is gone.
    pub fn over(store: Arc<MemoryStore>) -> Self {
        Self { store, reads: AtomicU64::new(0), bytes: AtomicU64::new(0), writes: AtomicU64::new(u64::MAX) }
    }

    /// How many rows and events were read until now, and their bytes.
    pub fn read(&self) -> (u64, u64) {
        (self.reads.load(Ordering::SeqCst), self.bytes.load(Ordering::SeqCst))
    }

    /// Whether writes fail from now on.
    pub fn fail(&self, fails: bool) {
        self.fail_after(if fails { 0 } else { u64::MAX });
    }

    /// Lets so many more writes succeed.
    pub fn fail_after(&self, writes: u64) {
        self.writes.store(writes, Ordering::SeqCst);
    }

    fn write(&self) -> Result<(), LogFault> {
        let left = self.writes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        left.map(drop).map_err(|_| LogFault::Engine("no write succeeds now".into()))
    }

    fn note(&self, bytes: usize) {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.bytes.fetch_add(bytes as u64, Ordering::SeqCst);
    }
}

impl EventLog for Watched {
    fn append(&self, batches: &[Batch]) -> Result<Vec<ServerSeq>, LogFault> {
        self.write()?;
        self.store.append(batches)
    }
    fn next_seq(&self) -> ServerSeq {
        self.store.next_seq()
    }
    fn tail(&self) -> ServerSeq {
        self.store.tail()
    }
    fn publish_ahead(&self) -> Result<(), LogFault> {
        self.store.publish_ahead()
    }
    fn scan_channel(
        &self,
        channel: ChannelId,
        after: ServerSeq,
        upto: ServerSeq,
        visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<(), LogFault> {
        self.store.scan_channel(channel, after, upto, &mut |record| {
            self.note(record.action.len());
            visit(record)
        })
    }
    fn scan(
        &self,
        after: ServerSeq,
        upto: ServerSeq,
        visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<(), LogFault> {
        self.store.scan(after, upto, &mut |record| {
            self.note(record.action.len());
            visit(record)
        })
    }
    fn last_of(&self, channel: ChannelId, upto: ServerSeq) -> Result<Option<ServerSeq>, LogFault> {
        self.note(8);
        self.store.last_of(channel, upto)
    }
    fn erase(&self, channel: ChannelId, fate: &dyn Fn(&Record) -> Fate) -> Result<u64, LogFault> {
        self.write()?;
        self.store.erase(channel, fate)
    }
    fn disk_bytes(&self) -> u64 {
        self.store.disk_bytes()
    }
}

impl Rows for Watched {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, LogFault> {
        let value = self.store.get(table, key)?;
        self.note(value.as_ref().map_or(0, Vec::len));
        Ok(value)
    }
    fn scan_rows(
        &self,
        table: Table,
        prefix: &[u8],
        from: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), LogFault> {
        self.store.scan_rows(table, prefix, from, &mut |key, value| {
            self.note(key.len() + value.len());
            visit(key, value)
        })
    }
    fn last_row(&self, table: Table, prefix: &[u8], upto: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>, LogFault> {
        let row = self.store.last_row(table, prefix, upto)?;
        self.note(row.as_ref().map_or(0, |(key, value)| key.len() + value.len()));
        Ok(row)
    }
    fn new_channel_id(&self) -> ChannelId {
        self.store.new_channel_id()
    }
    fn last_channel_id(&self) -> ChannelId {
        self.store.last_channel_id()
    }
}
