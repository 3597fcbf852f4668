//! Appending: what is written in one commit, in which order, and what happens when that fails.
//!
//! Always, in this order: room on the disk is checked, numbers are reserved, the rows as they are on disk are put
//! aside for readers, the engine takes the batch and flushes, its file is synced, and only then does anybody read
//! what was appended. Nothing that failed is tried again: what the kernel did with the pages is unknown.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, ErrorKind};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::runs::{Directory, RunWriter};
use super::tree::{Changes, Unread};
use super::{SledStore, Writer, keys, open, pieces, remember, rows};
use crate::events::durable::io_fault;
use crate::events::floor::Floor;
use crate::events::stage::{self, Known, RowChanges, Staged};
use crate::events::{Batch, Channel, ChannelId, LogFault, ServerSeq, Table, codec};

/// An append as the engine gets it.
struct Prepared {
    changes: Changes,
    /// Its rows as they are on disk.
    before: RowChanges,
}

/// The store's answers while an append is staged.
struct Stored<'a> {
    store: &'a SledStore,
    newest: &'a HashMap<ChannelId, ServerSeq>,
}

impl Known for Stored<'_> {
    fn newest_of(&self, channel: ChannelId) -> Result<Option<ServerSeq>, LogFault> {
        match self.newest.get(&channel) {
            Some(seq) => Ok(Some(*seq)),
            None => self.store.newest_at(channel, ServerSeq::MAX),
        }
    }

    fn name_of(&self, channel: ChannelId) -> Result<Option<Channel>, LogFault> {
        self.store.stored_name(channel)
    }
}

impl SledStore {
    pub(super) fn commit(&self, batches: &[Batch]) -> Result<Vec<ServerSeq>, LogFault> {
        let mut writer = self.writer();
        writer.refuse_when_read_only()?;
        let known = Stored { store: self, newest: &writer.newest };
        let staged = stage::stage(batches, self.next.load(Ordering::Acquire), &known)?;
        if staged.is_empty() {
            return Ok(staged.firsts);
        }
        let prepared = self.prepare(&staged, &known, writer.highest_channel)?;
        self.refuse_without_room(prepared.changes.bytes)?;
        self.reserve(&mut writer, staged.next)?;
        *self.before.write().unwrap_or_else(PoisonError::into_inner) = prepared.before;
        self.write(prepared.changes).map_err(|cause| writer.fail(cause))?;
        self.show(&mut writer, &staged);
        Ok(staged.firsts)
    }

    /// See [`crate::events::EventLog::accepts_appends`].
    pub(super) fn accepts(&self) -> Result<(), LogFault> {
        self.writer().refuse_when_read_only()?;
        self.refuse_without_room(0)
    }

    /// See [`crate::events::EventLog::publish_ahead`].
    pub(super) fn reserve_ahead(&self) -> Result<(), LogFault> {
        let mut writer = self.writer();
        writer.refuse_when_read_only()?;
        writer.ahead = true;
        let next = self.next.load(Ordering::Acquire);
        let floor = Floor::reserve(self.tail.load(Ordering::Acquire), next, next, true);
        let path = self.directory.join(open::FLOOR);
        floor.write(&path).map_err(io_fault(&path))?;
        writer.floor = floor;
        Ok(())
    }

    /// See [`SledStore::close_clean`].
    pub(super) fn close_in_order(&self) -> Result<(), LogFault> {
        let mut writer = self.writer();
        writer.refuse_when_read_only()?;
        self.write(Changes::default()).map_err(|cause| writer.fail(cause))?;
        let floor = Floor::closed(self.tail.load(Ordering::Acquire), self.next.load(Ordering::Acquire));
        floor.write(&self.directory.join(open::FLOOR)).map_err(|e| writer.fail(format!("the floor: {e}")))?;
        writer.floor = floor;
        writer.read_only = Some("the log was closed".to_owned());
        Ok(())
    }

    fn prepare(&self, staged: &Staged<'_>, known: &Stored<'_>, noted: u64) -> Result<Prepared, LogFault> {
        let mut changes = Changes::default();
        put_events(staged, known, self.tail.load(Ordering::Acquire), &mut changes)?;
        if staged.highest_channel > noted {
            let number = staged.highest_channel.to_be_bytes();
            changes.put(&keys::highest_channel(), &number).map_err(unfit)?;
        }
        let mut before = RowChanges::new();
        for ((table, key), value) in &staged.rows {
            let old = self.put_row(*table, key, value.as_deref(), &mut changes)?;
            before.insert((*table, key.clone()), old);
        }
        Ok(Prepared { changes, before })
    }

    /// Writes or removes a row with all its pieces, and returns it as it is on disk.
    fn put_row(
        &self,
        table: Table,
        key: &[u8],
        value: Option<&[u8]>,
        changes: &mut Changes,
    ) -> Result<Option<bytes::Bytes>, LogFault> {
        let stored = keys::row(table, key);
        let (old, old_pieces) = match self.tree.get(&stored) {
            Ok(None) => (None, 0),
            Ok(Some(old)) => (Some(old.clone()), pieces::count(old.len())),
            // A damaged row may be written over: that is how it is rebuilt.
            Err(Unread::Damaged(_)) => (None, self.tree.pieces_there(&stored)),
            Err(unread) => return Err(unread.at(rows::place(table, key))),
        };
        let kept = match value {
            Some(value) => {
                changes.put(&stored, value).map_err(unfit)?;
                pieces::count(value.len())
            }
            None => 0,
        };
        changes.remove(&stored, kept, old_pieces);
        Ok(old)
    }

    fn refuse_without_room(&self, bytes: u64) -> Result<(), LogFault> {
        let available = self.options.free.at(&self.directory).map_err(io_fault(&self.directory))?;
        let minimum = self.options.min_free.saturating_add(bytes.saturating_mul(2));
        if available < minimum {
            return Err(LogFault::NoRoom { path: self.directory.clone(), available, minimum });
        }
        Ok(())
    }

    /// Reserves the next block when `next` comes near the end of this one.
    pub(super) fn reserve(&self, writer: &mut Writer, next: ServerSeq) -> Result<(), LogFault> {
        if writer.floor.covers(next) {
            return Ok(());
        }
        let (tail, unused) = (self.tail.load(Ordering::Acquire), self.next.load(Ordering::Acquire));
        let floor = Floor::reserve(tail, unused, next, writer.ahead);
        let path = self.directory.join(open::FLOOR);
        match floor.write(&path) {
            Ok(()) => {
                writer.floor = floor;
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::StorageFull => {
                let (available, minimum) = (0, self.options.min_free);
                Err(LogFault::NoRoom { path, available, minimum })
            }
            Err(e) => Err(writer.fail(format!("the floor: {e}"))),
        }
    }

    /// Writes and syncs. On an error it is unknown what the disk has.
    pub(super) fn write(&self, changes: Changes) -> Result<(), String> {
        self.tree.apply(changes)?;
        let started = Instant::now();
        self.synced.sync_data().map_err(|e: io::Error| format!("sync of the log: {e}"))?;
        self.last_sync.store(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX), Ordering::Release);
        Ok(())
    }

    /// Lets readers see what was appended, all of it at once.
    fn show(&self, writer: &mut Writer, staged: &Staged<'_>) {
        for ((table, key), value) in &staged.rows {
            if let (Table::ChannelById, Some(id)) = (table, crate::events::rows::number_of_key(key)) {
                let uri = value.as_ref().map(|uri| Channel::from(String::from_utf8_lossy(uri).into_owned()));
                self.names.set(ChannelId(id), uri);
            }
        }
        for numbered in &staged.events {
            remember(&mut writer.newest, numbered.event.channel_id, numbered.seq);
        }
        writer.highest_channel = writer.highest_channel.max(staged.highest_channel);
        self.channels.fetch_max(staged.highest_channel, Ordering::AcqRel);
        let mut before = self.before.write().unwrap_or_else(PoisonError::into_inner);
        before.clear();
        if let Some(last) = staged.events.last() {
            self.next.store(staged.next, Ordering::Release);
            self.tail.store(last.seq, Ordering::Release);
        }
    }
}

impl Writer {
    pub(super) fn refuse_when_read_only(&self) -> Result<(), LogFault> {
        match &self.read_only {
            Some(cause) => Err(LogFault::ReadOnly { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// From now on nothing is written.
    pub(super) fn fail(&mut self, cause: String) -> LogFault {
        tracing::error!(%cause, "the log is read-only from now on");
        self.read_only = Some(cause.clone());
        LogFault::ReadOnly { cause }
    }
}

/// Writes the runs of the append's events and the directory of the commit.
fn put_events(
    staged: &Staged<'_>,
    known: &Stored<'_>,
    previous: ServerSeq,
    changes: &mut Changes,
) -> Result<(), LogFault> {
    let (Some(first), Some(last)) = (staged.events.first(), staged.events.last()) else { return Ok(()) };
    let mut runs: BTreeMap<ChannelId, (ServerSeq, RunWriter)> = BTreeMap::new();
    for numbered in &staged.events {
        let (_, run) = match runs.entry(numbered.event.channel_id) {
            Entry::Occupied(run) => run.into_mut(),
            Entry::Vacant(none) => {
                let previous = known.newest_of(numbered.event.channel_id)?.unwrap_or(0);
                none.insert((numbered.seq, RunWriter::new(previous)))
            }
        };
        let encode = |out: &mut Vec<u8>| {
            codec::encode(numbered.event, numbered.seq, numbered.batch, out).map_err(|e| e.to_string())
        };
        run.push(numbered.seq, encode).map_err(unfit)?;
    }
    let directory = Directory {
        previous,
        last: last.seq,
        events: staged.events.len() as u32,
        has_erased: false,
        runs: runs.iter().map(|(channel, (first, _))| (*channel, *first)).collect(),
    };
    changes.put(&keys::directory(first.seq), &directory.to_bytes()).map_err(unfit)?;
    runs.into_iter()
        .try_for_each(|(channel, (first, run))| changes.put(&keys::run(channel, first), &run.finish()).map_err(unfit))
}

/// The fault of an append that no store could keep. Nothing was written.
fn unfit(problem: String) -> LogFault {
    LogFault::Damaged { place: "an append".to_owned(), problem }
}
