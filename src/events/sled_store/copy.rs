//! A copy of a log: the same records and rows in a new store, without what was erased and with one event for each span.
//!
//! The copy is written in the order of its keys, since the engine writes much more otherwise. So its commits are larger
//! than those that were appended, and none of them is the commit of a batch. Rows are copied as they are, but for
//! checkpoints in the middle of a span.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use super::runs::{Directory, RunWriter};
use super::tree::Changes;
use super::{SledStore, keys};
use crate::events::compacting::{Compacting, Rebuilding, Span};
use crate::events::rows::{leading_number, number_of_key};
use crate::events::stage::RowKey;
use crate::events::{ChannelId, EventLog, LogFault, Record, ServerSeq, Table, codec};

/// Bytes and events of a commit of the copy, at most.
const COMMIT_BYTES: usize = 64 << 10;
const COMMIT_EVENTS: u32 = 2_048;
/// Bytes that are handed to the engine at once.
const STEP_BYTES: u64 = 4 << 20;

/// A copy that is being made.
pub struct Copy<'a> {
    old: &'a SledStore,
    new: &'a SledStore,
    work: &'a dyn Compacting,
    spans: BTreeMap<ChannelId, Vec<Span>>,
    /// The newest event of each channel that is in the copy.
    newest: HashMap<ChannelId, ServerSeq>,
    changes: Changes,
    /// How many events became one with others, and how many stand for them.
    pub folded: u64,
    pub into: u64,
}

/// A commit of the copy that is being gathered.
#[derive(Default)]
struct Commit {
    last: ServerSeq,
    events: u32,
    runs: Vec<(ChannelId, ServerSeq)>,
}

impl<'a> Copy<'a> {
    /// A copy of `old` in `new`, which is empty. Nothing is copied yet, but what becomes one is known.
    ///
    /// # Errors
    /// [`LogFault::NotCompacted`] when the plan cannot be made.
    pub fn planned(
        old: &'a SledStore,
        new: &'a SledStore,
        work: &'a dyn Compacting,
        upto: ServerSeq,
    ) -> Result<Self, LogFault> {
        let mut spans = BTreeMap::new();
        for channel in channels(old)? {
            refuse_given_up(work)?;
            let of_it = work.spans(old, channel, upto).map_err(LogFault::NotCompacted)?;
            spans.insert(channel, of_it);
        }
        let (newest, changes) = (HashMap::new(), Changes::in_order());
        Ok(Self { old, new, work, spans, newest, changes, folded: 0, into: 0 })
    }

    /// Copies all rows, and the events up to `upto`.
    ///
    /// # Errors
    /// Those of reading and of [`LogFault::NotCompacted`].
    pub fn begin(&mut self, upto: ServerSeq) -> Result<(), LogFault> {
        for table in Table::ALL {
            match self.work.rebuilding() {
                Some(rebuilding) => self.kept_rows(*table, rebuilding)?,
                None => self.rows(*table)?,
            }
        }
        let mut commits: Vec<Commit> = self.bounds(upto)?;
        let channels: Vec<ChannelId> = self.spans.keys().copied().collect();
        for channel in channels {
            self.channel(channel, upto, &mut commits)?;
        }
        self.directories(commits, upto)?;
        self.apply()?;
        self.shown(upto);
        self.work.rebuilding().map_or(Ok(()), |rebuilding| rebuilding.rows(self.new)).map_err(LogFault::NotCompacted)
    }

    /// Copies the events that came since, as they are, and `changed` rows.
    ///
    /// # Errors
    /// Those of reading and of [`LogFault::NotCompacted`].
    pub fn catch_up(&mut self, changed: BTreeSet<RowKey>) -> Result<(), LogFault> {
        for (table, key) in changed {
            let value = self.old.row(table, &key)?;
            self.new.put_row(table, &key, value.as_deref(), &mut self.changes)?;
            self.step()?;
        }
        self.apply()?;
        let (after, upto) = (self.new.tail(), self.old.tail());
        let (mut waiting, mut bytes) = (Vec::new(), 0);
        let mut fault = None;
        self.old.read_line(after, upto, &mut |record| {
            bytes += record.action.len();
            waiting.push(record);
            if bytes < COMMIT_BYTES && waiting.len() < COMMIT_EVENTS as usize {
                return ControlFlow::Continue(());
            }
            bytes = 0;
            match self.appended(&std::mem::take(&mut waiting)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(problem) => {
                    fault = Some(problem);
                    ControlFlow::Break(())
                }
            }
        })?;
        match fault {
            Some(fault) => Err(fault),
            None => self.appended(&waiting),
        }
    }

    /// Notes the highest channel number that was ever stored, and syncs the copy.
    ///
    /// # Errors
    /// [`LogFault::NotCompacted`].
    pub fn complete(&mut self, highest_channel: u64) -> Result<(), LogFault> {
        self.put(&keys::highest_channel(), &highest_channel.to_be_bytes())?;
        self.apply()?;
        self.new.write(Changes::default()).map_err(LogFault::NotCompacted)
    }

    fn rows(&mut self, table: Table) -> Result<(), LogFault> {
        let mut fault = None;
        self.old.visit_rows(table, &[], None, &mut |key, value| {
            if table == Table::Checkpoint && self.is_within(key) {
                return ControlFlow::Continue(());
            }
            match self.put(&keys::row(table, key), value) {
                Ok(()) => ControlFlow::Continue(()),
                Err(problem) => {
                    fault = Some(problem);
                    ControlFlow::Break(())
                }
            }
        })?;
        fault.map_or(Ok(()), Err)
    }

    /// Copies the rows that are not made anew and can be read.
    fn kept_rows(&mut self, table: Table, rebuilding: &dyn Rebuilding) -> Result<(), LogFault> {
        let mut fault = None;
        let lost = self.old.visit_readable_rows(table, &mut |key, value| {
            if fault.is_none() && rebuilding.keeps(table, key) {
                fault = self.put(&keys::row(table, key), value).err();
            }
        })?;
        if lost > 0 {
            tracing::warn!(table = %char::from(table as u8), lost, "rows that could not be read were left out");
        }
        fault.map_or(Ok(()), Err)
    }

    /// Whether the checkpoint of this key is of an event that goes.
    fn is_within(&self, key: &[u8]) -> bool {
        let place = leading_number(key).zip(number_of_key(key));
        place.is_some_and(|(channel, seq)| self.span(ChannelId(channel), seq).is_some_and(|(_, last)| seq < last))
    }

    /// The span that this event is in.
    fn span(&self, channel: ChannelId, seq: ServerSeq) -> Option<Span> {
        let spans = self.spans.get(&channel)?;
        let span = spans.get(spans.partition_point(|(_, last)| *last < seq))?;
        (span.0 <= seq).then_some(*span)
    }

    /// The commits of the copy, each with its last event alone.
    fn bounds(&self, upto: ServerSeq) -> Result<Vec<Commit>, LogFault> {
        let mut commits = Vec::new();
        let (mut bytes, mut events, mut last) = (0usize, 0u32, 0);
        self.old.read_line(0, upto, &mut |record| {
            bytes += record.action.len();
            if self.span(record.channel_id, record.seq).is_some_and(|(_, last)| record.seq < last) {
                return ControlFlow::Continue(());
            }
            (last, events) = (record.seq, events + 1);
            if bytes >= COMMIT_BYTES || events >= COMMIT_EVENTS {
                commits.push(Commit { last, ..Commit::default() });
                (bytes, events) = (0, 0);
            }
            if self.work.is_given_up() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        refuse_given_up(self.work)?;
        if events > 0 {
            commits.push(Commit { last, ..Commit::default() });
        }
        Ok(commits)
    }

    /// Copies the runs of one channel.
    fn channel(&mut self, channel: ChannelId, upto: ServerSeq, commits: &mut [Commit]) -> Result<(), LogFault> {
        let mut fault = None;
        let mut within: Vec<Record> = Vec::new();
        let mut run = ChannelRuns { channel, run: None, last: 0 };
        self.old.read_channel(channel, 0, upto, &mut |record| {
            let copied = match self.span(channel, record.seq) {
                None => self.record(&record, &mut run, commits),
                Some((_, last)) => {
                    let is_last = record.seq == last;
                    within.push(record);
                    if is_last { self.together(&std::mem::take(&mut within), &mut run, commits) } else { Ok(()) }
                }
            };
            match copied.and_then(|()| refuse_given_up(self.work)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(problem) => {
                    fault = Some(problem);
                    ControlFlow::Break(())
                }
            }
        })?;
        match fault {
            Some(fault) => return Err(fault),
            None if !within.is_empty() => {
                return Err(LogFault::NotCompacted(format!("events of channel {} went meanwhile", channel.0)));
            }
            None => {}
        }
        if run.last != 0 {
            self.newest.insert(channel, run.last);
        }
        self.end_run(&mut run)
    }

    fn together(&mut self, events: &[Record], run: &mut ChannelRuns, commits: &mut [Commit]) -> Result<(), LogFault> {
        let action = self.work.one(events).map_err(LogFault::NotCompacted)?;
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return Ok(()) };
        let covers_from = Some(first.covers_from.unwrap_or(first.seq));
        self.folded += events.len() as u64;
        self.into += 1;
        self.record(&Record { covers_from, action, ..last.clone() }, run, commits)
    }

    fn record(&mut self, record: &Record, run: &mut ChannelRuns, commits: &mut [Commit]) -> Result<(), LogFault> {
        let at = commits.partition_point(|commit| commit.last < record.seq);
        let Some(commit) = commits.get_mut(at) else {
            return Err(LogFault::NotCompacted(format!("event {} belongs to no commit", record.seq)));
        };
        if run.run.as_ref().is_none_or(|(of, _, _)| *of != at) {
            self.end_run(run)?;
            commit.runs.push((run.channel, record.seq));
            run.run = Some((at, record.seq, RunWriter::new(run.last)));
        }
        commit.events += 1;
        run.last = record.seq;
        if let Some((_, _, writer)) = &mut run.run {
            push(writer, record)?;
        }
        Ok(())
    }

    fn end_run(&mut self, run: &mut ChannelRuns) -> Result<(), LogFault> {
        match run.run.take() {
            Some((_, first, writer)) => self.put(&keys::run(run.channel, first), &writer.finish()),
            None => Ok(()),
        }
    }

    fn directories(&mut self, commits: Vec<Commit>, upto: ServerSeq) -> Result<(), LogFault> {
        let mut previous = 0;
        for Commit { last, events, mut runs } in commits {
            runs.sort_unstable();
            let first = runs.iter().map(|(_, first)| *first).min().unwrap_or(last);
            let directory = Directory { previous, last, events, has_erased: false, runs };
            self.put(&keys::directory(first), &directory.to_bytes())?;
            previous = last;
        }
        if previous < upto {
            // What was the newest was erased: its number stays taken.
            let directory = Directory { previous, last: upto, events: 0, has_erased: true, runs: Vec::new() };
            self.put(&keys::directory(upto), &directory.to_bytes())?;
        }
        Ok(())
    }

    /// Adds a commit of these records, which stand behind all that is there.
    fn appended(&mut self, records: &[Record]) -> Result<(), LogFault> {
        let (Some(first), Some(last)) = (records.first(), records.last()) else { return Ok(()) };
        let mut runs: BTreeMap<ChannelId, (ServerSeq, RunWriter)> = BTreeMap::new();
        for record in records {
            let channel = record.channel_id;
            let previous = self.newest.insert(channel, record.seq).unwrap_or(0);
            let (_, run) = runs.entry(channel).or_insert_with(|| (record.seq, RunWriter::new(previous)));
            push(run, record)?;
        }
        let directory = Directory {
            previous: self.new.tail(),
            last: last.seq,
            events: u32::try_from(records.len()).unwrap_or(u32::MAX),
            has_erased: false,
            runs: runs.iter().map(|(channel, (first, _))| (*channel, *first)).collect(),
        };
        self.put(&keys::directory(first.seq), &directory.to_bytes())?;
        for (channel, (first, run)) in runs {
            self.put(&keys::run(channel, first), &run.finish())?;
        }
        self.apply()?;
        self.shown(last.seq);
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), LogFault> {
        self.changes.put(key, value).map_err(LogFault::NotCompacted)?;
        self.step()
    }

    fn step(&mut self) -> Result<(), LogFault> {
        if self.changes.bytes < STEP_BYTES { Ok(()) } else { self.apply() }
    }

    fn apply(&mut self) -> Result<(), LogFault> {
        let changes = std::mem::replace(&mut self.changes, Changes::in_order());
        self.new.engine().tree.apply_later(changes).map_err(LogFault::NotCompacted)
    }

    /// Lets the copy be read up to here.
    fn shown(&self, upto: ServerSeq) {
        self.new.tail.store(upto, Ordering::Release);
        self.new.next.store(upto.saturating_add(1), Ordering::Release);
    }
}

/// The run of a channel that is being written: in which commit, from which event on.
struct ChannelRuns {
    channel: ChannelId,
    run: Option<(usize, ServerSeq, RunWriter)>,
    /// The channel's newest event in the copy.
    last: ServerSeq,
}

fn push(run: &mut RunWriter, record: &Record) -> Result<(), LogFault> {
    let encode = |out: &mut Vec<u8>| codec::encode_record(record, out).map_err(|e| e.to_string());
    run.push(record.seq, encode).map_err(LogFault::NotCompacted)
}

fn refuse_given_up(work: &dyn Compacting) -> Result<(), LogFault> {
    if work.is_given_up() { Err(LogFault::NotCompacted("it was given up".to_owned())) } else { Ok(()) }
}

/// The channels that have a name, and so may have events.
fn channels(store: &SledStore) -> Result<Vec<ChannelId>, LogFault> {
    let mut channels = Vec::new();
    store.visit_rows(Table::ChannelById, &[], None, &mut |key, _| {
        channels.extend(number_of_key(key).map(ChannelId));
        ControlFlow::Continue(())
    })?;
    Ok(channels)
}
