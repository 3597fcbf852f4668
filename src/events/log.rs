//! The contract of a store: a log of events, and rows beside it that change in the same step.
//!
//! Implemented by `sled_store` and, for tests, by `memory`; `conformance` is the suite that both run. Callers share
//! one store over threads: reads go on while an append runs and see all of it or nothing.

use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;

use super::{Batch, ChannelId, LogFault, Record, ServerSeq, Table};

/// A row: its key in the table, and its value.
pub type Row = (Vec<u8>, Vec<u8>);

/// What is called with the key and the value of each row of a scan.
pub type VisitRow<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// What is called with each record of a scan.
type VisitRecord<'a> = &'a mut dyn FnMut(Record) -> ControlFlow<()>;

/// What becomes of an event when events are erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    Stays,
    Goes,
    /// It stays, and says this.
    Says(Bytes),
}

/// The log.
pub trait EventLog: Send + Sync + 'static {
    /// Appends `batches` in order as one atomic, durable step, and returns the first number of each batch (for a
    /// batch without events: the number that the next event gets).
    ///
    /// Events get consecutive numbers, in order. When this returns `Ok`, all of it is on disk (fsync); when it returns
    /// an error, nothing of it will ever be read. Called by one thread at a time.
    ///
    /// # Errors
    /// [`LogFault::NoRoom`] when the disk is nearly full: nothing was tried, a later append may succeed.
    /// [`LogFault::ReadOnly`] after a write or sync that failed: so does every later append.
    fn append(&self, batches: &[Batch]) -> Result<Vec<ServerSeq>, LogFault>;

    /// The number that the next event gets.
    fn next_seq(&self) -> ServerSeq;

    /// The newest number on disk, 0 for an empty log.
    fn tail(&self) -> ServerSeq;

    /// Says that numbers will be shown before they are on disk (`durability = interval`), so that a start after a
    /// crash goes on above the reserved block instead of at the tail. Durable when it returns.
    ///
    /// # Errors
    /// [`LogFault::Io`] when the floor file cannot be written.
    fn publish_ahead(&self) -> Result<(), LogFault>;

    /// Calls `visit` with each event of `channel` in `after < seq <= upto`, ascending, until it breaks.
    ///
    /// # Errors
    /// [`LogFault::Damaged`] at the first record that is not what was written; those before it were visited.
    fn scan_channel(
        &self,
        channel: ChannelId,
        after: ServerSeq,
        upto: ServerSeq,
        visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<(), LogFault>;

    /// Like [`EventLog::scan_channel`] over all channels, in the order of the line.
    ///
    /// # Errors
    /// As [`EventLog::scan_channel`].
    fn scan(
        &self,
        after: ServerSeq,
        upto: ServerSeq,
        visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<(), LogFault>;

    /// Like [`EventLog::scan_channel`], the newest first. A store that may hold much reads no more than is visited.
    ///
    /// # Errors
    /// As [`EventLog::scan_channel`]; those after the damaged one were visited.
    fn scan_channel_back(
        &self,
        channel: ChannelId,
        after: ServerSeq,
        upto: ServerSeq,
        visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<(), LogFault> {
        visit_back(|collect| self.scan_channel(channel, after, upto, collect), visit)
    }

    /// Like [`EventLog::scan_channel_back`] over all channels, against the order of the line.
    ///
    /// # Errors
    /// As [`EventLog::scan_channel_back`].
    fn scan_back(
        &self,
        after: ServerSeq,
        upto: ServerSeq,
        visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<(), LogFault> {
        visit_back(|collect| self.scan(after, upto, collect), visit)
    }

    /// How long the sync of the last append took, where there is one.
    fn last_sync(&self) -> Option<Duration> {
        None
    }

    /// The newest event of `channel` at or before `upto`, if it has one.
    ///
    /// # Errors
    /// [`LogFault::Damaged`] when the record that tells cannot be read.
    fn last_of(&self, channel: ChannelId, upto: ServerSeq) -> Result<Option<ServerSeq>, LogFault>;

    /// Removes events of `channel`, or what they say, for good, as `fate` decides: one atomic, durable step. Numbers are not
    /// given again, and what is left is read as if the rest had never been. Rows stay. Returns how many were changed.
    ///
    /// # Errors
    /// Those of [`EventLog::append`] and of [`EventLog::scan_channel`]; nothing was changed then.
    fn erase(&self, channel: ChannelId, fate: &dyn Fn(&Record) -> Fate) -> Result<u64, LogFault>;

    /// Bytes that the store takes on disk; 0 for a store without files.
    fn disk_bytes(&self) -> u64;

    /// Whether an append would be tried now. Waits for one that runs.
    ///
    /// # Errors
    /// The fault that the next append would get: [`LogFault::NoRoom`] or [`LogFault::ReadOnly`].
    fn accepts_appends(&self) -> Result<(), LogFault> {
        Ok(())
    }
}

/// Visits what `scan` visits, the last first.
fn visit_back(
    scan: impl FnOnce(VisitRecord<'_>) -> Result<(), LogFault>,
    visit: VisitRecord<'_>,
) -> Result<(), LogFault> {
    let mut found = Vec::new();
    scan(&mut |record| {
        found.push(record);
        ControlFlow::Continue(())
    })?;
    let _ = found.into_iter().rev().try_for_each(visit);
    Ok(())
}

/// Rows beside the log: small tables of bytes, sorted by key. They can all be rebuilt from the log.
pub trait Rows: Send + Sync + 'static {
    /// The value under `key`, whole.
    ///
    /// # Errors
    /// [`LogFault::Damaged`] or [`LogFault::Engine`] when it cannot be read.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, LogFault>;

    /// Calls `visit` with key and value of each row whose key begins with `prefix`, ascending from `from` on (a whole
    /// key, inclusive), until it breaks.
    ///
    /// # Errors
    /// As [`Rows::get`].
    fn scan_rows(&self, table: Table, prefix: &[u8], from: Option<&[u8]>, visit: VisitRow<'_>) -> Result<(), LogFault>;

    /// The last row whose key begins with `prefix` and is at or before `upto` (a whole key).
    ///
    /// # Errors
    /// As [`Rows::get`].
    fn last_row(&self, table: Table, prefix: &[u8], upto: &[u8]) -> Result<Option<Row>, LogFault>;

    /// A channel number that was never given before, by this process or an earlier one, to a channel that was stored.
    fn new_channel_id(&self) -> ChannelId;

    /// The highest channel number that was given or stored so far.
    fn last_channel_id(&self) -> ChannelId;
}

/// A log with its rows.
pub trait Store: EventLog + Rows {}

impl<T: EventLog + Rows> Store for T {}
