//! Reading the log: of one channel, of the whole line, and the newest event of a channel.
//!
//! Always: a scan of one channel touches that channel's keys alone; records are decoded one by one as they are visited;
//! a run or a commit that is missing between two others is noticed, since each names what came before it.

use std::ops::{Bound, ControlFlow, Range};
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::runs::{Directory, Run};
use super::tree::{Tree, Unread, Values};
use super::{SledStore, keys};
use crate::events::{Channel, ChannelId, LogFault, Record, ServerSeq, codec};

/// What is called with each record.
type Visit<'a> = &'a mut dyn FnMut(Record) -> ControlFlow<()>;

/// A run that a directory lists, with its channel.
type Listed = (ChannelId, Channel, Run);

/// Whether a scan goes on.
type Step = Result<ControlFlow<()>, LogFault>;

impl SledStore {
    /// See [`crate::events::EventLog::scan_channel`].
    pub(super) fn read_channel(
        &self,
        channel: ChannelId,
        after: ServerSeq,
        upto: ServerSeq,
        visit: Visit<'_>,
    ) -> Result<(), LogFault> {
        let upto = upto.min(self.tail.load(Ordering::Acquire));
        if after >= upto {
            return Ok(());
        }
        let place = |unread: Unread| unread.at(format!("the runs of channel {}", channel.0));
        let prefix = channel_prefix(channel);
        let engine = self.engine();
        let start = engine.tree.last_key(&prefix, &keys::run(channel, after.saturating_add(1))).map_err(place)?;
        // Where the scan begins with the channel's first run, nothing is before it.
        let mut previous = if start.is_none() { Some(0) } else { None };
        let bounds = self::upto(start.unwrap_or(prefix), &keys::run(channel, upto));
        let mut name = None;
        for (key, value) in Values::new(engine.tree.range(bounds).map_err(place)?) {
            let name = match &name {
                Some(name) => name,
                None => name.insert(self.name(channel)?),
            };
            let first = keys::first_of(&key);
            let place = event_place(first, name);
            let run = value.and_then(|value| Ok(Run::parse(value, first)?)).map_err(|e| e.at(&place))?;
            refuse_gap(previous, run.previous, &place)?;
            previous = Some(run.last());
            for (seq, range) in run.entries.iter().filter(|(seq, _)| after < *seq && *seq <= upto) {
                if visit(decoded(&run, *seq, range, name, channel)?).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// See [`crate::events::EventLog::scan`].
    pub(super) fn read_line(&self, after: ServerSeq, upto: ServerSeq, visit: Visit<'_>) -> Result<(), LogFault> {
        let tail = self.tail.load(Ordering::Acquire);
        let upto = upto.min(tail);
        if after >= upto {
            return Ok(());
        }
        let place = |unread: Unread| unread.at("the directories of commits");
        let engine = self.engine();
        let start = engine.tree.last_key(b"O", &keys::directory(after.saturating_add(1))).map_err(place)?;
        let mut previous = if start.is_none() { Some(0) } else { None };
        let bounds = self::upto(start.unwrap_or_else(|| b"O".to_vec()), &keys::directory(upto));
        for (key, value) in Values::new(engine.tree.range(bounds).map_err(place)?) {
            let first = keys::first_of(&key);
            let place = format!("commit {first}");
            let mut directory = value.and_then(|value| Ok(Directory::parse(&value)?)).map_err(|e| e.at(&place))?;
            refuse_gap(previous, directory.previous, &place)?;
            previous = Some(directory.last);
            if directory.last > after {
                let runs = match self.runs_of(&engine.tree, &directory) {
                    Ok(runs) => runs,
                    Err(fault) => {
                        // Events that were erased since the directory was read: it says so now.
                        let now = engine.tree.get(&key).map_err(|e| e.at(&place))?;
                        let now = now.and_then(|value| Directory::parse(&value).ok());
                        directory = now.filter(|now| *now != directory).ok_or(fault)?;
                        self.runs_of(&engine.tree, &directory)?
                    }
                };
                if visit_commit(&directory, &runs, &place, after..upto, visit)?.is_break() {
                    return Ok(());
                }
            }
        }
        if upto == tail && previous != Some(tail) {
            let problem = format!("it is missing; the newest that was read is {}", previous.unwrap_or(0));
            return Err(LogFault::Damaged { place: format!("event {tail}"), problem });
        }
        Ok(())
    }

    /// The runs of a commit, with the names of their channels.
    fn runs_of(&self, tree: &Tree, directory: &Directory) -> Result<Vec<Listed>, LogFault> {
        let mut runs = Vec::with_capacity(directory.runs.len());
        for (channel, first) in &directory.runs {
            let name = self.name(*channel)?;
            let run = run(tree, *channel, *first).map_err(|e| e.at(event_place(*first, &name)))?;
            runs.push((*channel, name, run));
        }
        Ok(runs)
    }

    /// See [`crate::events::EventLog::last_of`].
    pub(super) fn newest_at(&self, channel: ChannelId, upto: ServerSeq) -> Result<Option<ServerSeq>, LogFault> {
        let upto = upto.min(self.tail.load(Ordering::Acquire));
        let place = |unread: Unread| unread.at(format!("the newest event of channel {} before {upto}", channel.0));
        let engine = self.engine();
        let last = engine.tree.last_key(&channel_prefix(channel), &keys::run(channel, upto)).map_err(place)?;
        let Some(key) = last else { return Ok(None) };
        let index = run_index(&engine.tree, &key).map_err(place)?;
        Ok(index.entries.iter().rev().map(|(seq, _)| *seq).find(|seq| *seq <= upto))
    }

    /// The URI of a channel that has events.
    fn name(&self, channel: ChannelId) -> Result<Channel, LogFault> {
        self.stored_name(channel)?.ok_or_else(|| LogFault::Damaged {
            place: format!("channel {}", channel.0),
            problem: "it has events and no name".to_owned(),
        })
    }
}

fn run(tree: &Tree, channel: ChannelId, first: ServerSeq) -> Result<Run, Unread> {
    let value = tree.get(&keys::run(channel, first))?.ok_or_else(|| "its run is missing".to_owned())?;
    Ok(Run::parse(value, first)?)
}

/// The index of a run, from its first piece where that has it whole.
fn run_index(tree: &Tree, key: &[u8]) -> Result<Run, Unread> {
    let missing = || Unread::Damaged("piece 0 is missing".to_owned());
    let first = keys::first_of(key);
    let begun = tree.begin(key)?.ok_or_else(missing)?.so_far();
    if let Some(run) = Run::parse_index(&begun, first)? {
        return Ok(run);
    }
    let value: Bytes = tree.get(key)?.ok_or_else(missing)?;
    Ok(Run::parse(value, first)?)
}

/// Visits the events of a commit in the order of the line: in `after < seq <= upto` for the range `after..upto`.
fn visit_commit(
    directory: &Directory,
    runs: &[Listed],
    place: &str,
    wanted: Range<ServerSeq>,
    visit: Visit<'_>,
) -> Step {
    let mut events: Vec<(ServerSeq, usize, &Range<usize>)> = Vec::with_capacity(directory.events as usize & 0xffff);
    for (at, (_, _, run)) in runs.iter().enumerate() {
        events.extend(run.entries.iter().map(|(seq, range)| (*seq, at, range)));
    }
    events.sort_unstable_by_key(|(seq, _, _)| *seq);
    let last = events.last().map_or(0, |(seq, _, _)| *seq);
    let is_last = last == directory.last || (directory.has_erased && last < directory.last);
    if events.len() != directory.events as usize || !is_last {
        let problem = format!("{} events up to {last} instead of {}", events.len(), directory.events);
        return Err(LogFault::Damaged { place: place.to_owned(), problem });
    }
    for (seq, at, range) in events.into_iter().filter(|(seq, _, _)| wanted.start < *seq && *seq <= wanted.end) {
        let Some((channel, name, run)) = runs.get(at) else { continue };
        if visit(decoded(run, seq, range, name, *channel)?).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Decodes one record of a run and holds it against the run's index.
pub(super) fn decoded(
    run: &Run,
    seq: ServerSeq,
    range: &Range<usize>,
    name: &Channel,
    channel: ChannelId,
) -> Result<Record, LogFault> {
    let damaged = |problem: String| LogFault::Damaged { place: event_place(seq, name), problem };
    let record = codec::decode(&run.record(range), name, channel).map_err(|e| damaged(e.to_string()))?;
    if record.seq != seq {
        return Err(damaged(format!("the record is of event {}", record.seq)));
    }
    Ok(record)
}

/// Refuses what does not follow on what was read before it, if that is known.
fn refuse_gap(read: Option<ServerSeq>, named: ServerSeq, place: &str) -> Result<(), LogFault> {
    match read {
        Some(read) if read != named => Err(LogFault::Damaged {
            place: place.to_owned(),
            problem: format!("it follows event {named}, and {read} is the newest before it: some are missing"),
        }),
        _ => Ok(()),
    }
}

fn event_place(seq: ServerSeq, name: &Channel) -> String {
    format!("event {seq} of channel {name}")
}

pub(super) fn channel_prefix(channel: ChannelId) -> Vec<u8> {
    let mut prefix = keys::run(channel, 0);
    prefix.truncate(9);
    prefix
}

pub(super) fn upto(from: Vec<u8>, upto: &[u8]) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    (Bound::Included(from), Bound::Included(keys::piece(upto, u16::MAX)))
}
