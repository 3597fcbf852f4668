//! A copy of the log takes the log's place, while it is read and written.
//!
//! The copy is made in the directory `compacting/`, is held against the log, and catches up with what was appended
//! meanwhile. Appends then stop for as long as two renames take: `log` goes to `compacting/old`, `compacting/log` to `log`,
//! and the engine of the copy is read and written from then on. A scan that runs goes on with the one that it began with.
//!
//! Always: until the log is moved aside it is whole, and after that the copy is; [`recover`] tells by what is there. The
//! engine opens its files once and never by name again, as long as none of its leaves is too large for its file, which
//! the cap on values sees to; so a directory may be moved under it.
//! Source: `docs/adr/0009-compaction.md`.

use std::collections::BTreeSet;
use std::fs::{remove_dir_all, rename};
use std::path::Path;
use std::sync::{Arc, MutexGuard};

use super::copy::Copy;
use super::open::{COMPACTING, LOG};
use super::{Access, Changed, Engine, SledOptions, SledStore, Writer};
use crate::events::compacting::{Compacted, Compacting, Step};
use crate::events::durable::{self, io_fault};
use crate::events::stage::RowKey;
use crate::events::{EventLog, LogFault, ServerSeq};

/// Where the log goes when the copy takes its place.
const OLD: &str = "old";
/// How many events may be left to copy while nothing is appended.
const NEAR: u64 = 500;
/// How often the copy catches up before that, at most.
const ROUNDS: usize = 20;
/// Bytes that the engine of the copy keeps in memory.
const CACHE: u64 = 32 << 20;

/// Finishes what a crash cut short in `directory`, before its log is opened.
///
/// # Errors
/// [`LogFault::Io`].
pub fn recover(directory: &Path, access: Access) -> Result<(), LogFault> {
    let (log, beside) = (directory.join(LOG), directory.join(COMPACTING));
    if !beside.exists() {
        return Ok(());
    }
    let (old, copy) = (beside.join(OLD), beside.join(LOG));
    if !log.exists() && old.exists() {
        // The log is moved aside only when the copy is whole.
        let whole = if copy.exists() { &copy } else { &old };
        rename(whole, &log).and_then(|()| sync(directory)).map_err(io_fault(whole))?;
        tracing::info!("a compaction that was interrupted is done");
    }
    if access == Access::Write && log.exists() {
        remove_dir_all(&beside).and_then(|()| durable::sync_directory(directory)).map_err(io_fault(&beside))?;
    }
    Ok(())
}

/// Makes the names in the data directory and beside the log durable.
fn sync(directory: &Path) -> std::io::Result<()> {
    durable::sync_directory(&directory.join(COMPACTING))?;
    durable::sync_directory(directory)
}

impl SledStore {
    /// See [`EventLog::compact`].
    pub(super) fn compact_beside(&self, work: &dyn Compacting) -> Result<Compacted, LogFault> {
        let disk_before = self.disk_bytes();
        self.refuse_without_room(disk_before / 2)?;
        let (upto, noting) = self.begin_to_note()?;
        let done = self.copied(work, upto);
        let beside = self.directory.join(COMPACTING);
        // Where it is not known what the disk has of the renames, both logs stay.
        if self.writer().read_only.is_none()
            && let Err(fault) = remove_dir_all(&beside)
        {
            tracing::warn!(%fault, path = %beside.display(), "what is left of a compaction cannot be removed");
        }
        // Not before: another one would work in the same place.
        drop(noting);
        let (folded, into) = done?;
        Ok(Compacted { folded, into, disk_bytes_before: disk_before, disk_bytes: self.disk_bytes() })
    }

    /// From now on it is noted what changes beside new events, for as long as what is returned with the newest event lives.
    fn begin_to_note(&self) -> Result<(ServerSeq, Noting<'_>), LogFault> {
        let mut writer = self.writer();
        writer.refuse_when_read_only()?;
        if writer.changed.is_some() {
            return Err(LogFault::NotCompacted("another compaction is under way".to_owned()));
        }
        writer.changed = Some(Changed::default());
        Ok((self.tail(), Noting(self)))
    }

    fn copied(&self, work: &dyn Compacting, upto: ServerSeq) -> Result<(u64, u64), LogFault> {
        let beside = self.directory.join(COMPACTING);
        if beside.exists() {
            remove_dir_all(&beside).map_err(io_fault(&beside))?;
        }
        durable::make_directory(&beside).map_err(io_fault(&beside))?;
        let options = SledOptions { cache_capacity: CACHE, access: Access::Write, ..self.options.clone() };
        let new = SledStore::open(&beside, options)?;
        let mut copy = Copy::planned(self, &new, work, upto)?;
        work.reached(Step::Planned);
        copy.begin(upto)?;
        self.catch_up(&mut copy, &new)?;
        // A moment at which the copy is the log, events and rows.
        let (upto, highest_channel) = {
            let mut writer = self.writer();
            copy.catch_up(noted(&mut writer)?)?;
            (self.tail(), writer.highest_channel)
        };
        // A long sync, which no append waits for.
        copy.complete(highest_channel)?;
        work.reached(Step::Copied);
        work.check(self, &new, upto).map_err(LogFault::NotCompacted)?;
        work.reached(Step::Checked);
        self.catch_up(&mut copy, &new)?;
        let old = {
            let mut writer = self.writer();
            writer.refuse_when_read_only()?;
            copy.catch_up(noted(&mut writer)?)?;
            copy.complete(writer.highest_channel)?;
            work.reached(Step::Whole);
            self.exchange(&new, work, &mut writer)?
        };
        // Not while appends wait: an engine may take a moment to end its threads.
        drop(old);
        work.reached(Step::InPlace);
        Ok((copy.folded, copy.into))
    }

    /// Copies what came since until little is left.
    fn catch_up(&self, copy: &mut Copy<'_>, new: &SledStore) -> Result<(), LogFault> {
        for _ in 0..ROUNDS {
            let changed = noted(&mut self.writer())?;
            if changed.len() as u64 + self.tail().saturating_sub(new.tail()) <= NEAR {
                put_back(&mut self.writer(), changed);
                return Ok(());
            }
            copy.catch_up(changed)?;
        }
        Ok(())
    }

    /// Puts the copy in the place of the log, which has nothing more than it. Returns the engine that was.
    fn exchange(
        &self,
        new: &SledStore,
        work: &dyn Compacting,
        writer: &mut MutexGuard<'_, Writer>,
    ) -> Result<Arc<Engine>, LogFault> {
        let beside = self.directory.join(COMPACTING);
        let (log, old, copy) = (self.directory.join(LOG), beside.join(OLD), beside.join(LOG));
        rename(&log, &old).map_err(io_fault(&log))?;
        let moved = sync(&self.directory).and_then(|()| {
            work.reached(Step::Aside);
            rename(&copy, &log)
        });
        if let Err(problem) = moved {
            return match rename(&old, &log).and_then(|()| sync(&self.directory)) {
                Ok(()) => Err(io_fault(&copy)(problem)),
                Err(worse) => Err(writer.fail(format!("a compaction: {problem}, and then {worse}"))),
            };
        }
        // What is appended from now on is in the copy alone, so its place has to be on disk.
        sync(&self.directory).map_err(|problem| writer.fail(format!("a compaction: {problem}")))?;
        Ok(self.engine.swap(new.engine()))
    }
}

/// Ends the noting of what changes, however the compaction ends.
struct Noting<'a>(&'a SledStore);

impl Drop for Noting<'_> {
    fn drop(&mut self) {
        self.0.writer().changed = None;
    }
}

/// The rows that changed since they were taken last.
fn noted(writer: &mut MutexGuard<'_, Writer>) -> Result<BTreeSet<RowKey>, LogFault> {
    match writer.changed.as_mut() {
        Some(changed) if !changed.erased => Ok(std::mem::take(&mut changed.rows)),
        _ => Err(LogFault::NotCompacted("events were erased meanwhile: try again".to_owned())),
    }
}

fn put_back(writer: &mut MutexGuard<'_, Writer>, rows: BTreeSet<RowKey>) {
    if let Some(changed) = writer.changed.as_mut() {
        changed.rows.extend(rows);
    }
}
