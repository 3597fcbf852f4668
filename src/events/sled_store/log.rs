//! Reading the log: of one channel, of the whole line, and the newest event of a channel.
//!
//! Always: a scan of one channel touches that channel's keys alone; records are decoded one by one as they are visited;
//! a run or a commit that is missing between two others is noticed, since each names what came before it.

use std::ops::{Bound, ControlFlow, Range};
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::runs::{Directory, Run};
use super::tree::{Unread, Values};
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
        let start = self.tree.last_key(&prefix, &keys::run(channel, after.saturating_add(1))).map_err(place)?;
        // Where the scan begins with the channel's first run, nothing is before it.
        let mut previous = if start.is_none() { Some(0) } else { None };
        let bounds = self::upto(start.unwrap_or(prefix), &keys::run(channel, upto));
        let mut name = None;
        for (key, value) in Values::new(self.tree.range(bounds).map_err(place)?) {
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
        let start = self.tree.last_key(b"O", &keys::directory(after.saturating_add(1))).map_err(place)?;
        let mut previous = if start.is_none() { Some(0) } else { None };
        let bounds = self::upto(start.unwrap_or_else(|| b"O".to_vec()), &keys::directory(upto));
        for (key, value) in Values::new(self.tree.range(bounds).map_err(place)?) {
            let first = keys::first_of(&key);
            let place = format!("commit {first}");
            let mut directory = value.and_then(|value| Ok(Directory::parse(&value)?)).map_err(|e| e.at(&place))?;
            refuse_gap(previous, directory.previous, &place)?;
            previous = Some(directory.last);
            if directory.last > after {
                let runs = self.runs_now(&mut directory, &key, &place)?;
                if visit_placed(placed(&directory, &runs, &place)?, &runs, after..upto, visit)?.is_break() {
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

    /// See [`crate::events::EventLog::scan_channel_back`].
    pub(super) fn read_channel_back(
        &self,
        channel: ChannelId,
        after: ServerSeq,
        upto: ServerSeq,
        visit: Visit<'_>,
    ) -> Result<(), LogFault> {
        let mut upto = upto.min(self.tail.load(Ordering::Acquire));
        let prefix = channel_prefix(channel);
        // What the run after it says is the newest before it.
        let mut named = None;
        let mut name = None;
        while upto > after {
            let place = |unread: Unread| unread.at(format!("the runs of channel {}", channel.0));
            let Some(key) = self.tree.last_key(&prefix, &keys::run(channel, upto)).map_err(place)? else {
                return refuse_gap(named.map(|_| 0), named.unwrap_or(0), &format!("event {upto}"));
            };
            let name = match &name {
                Some(name) => name,
                None => name.insert(self.name(channel)?),
            };
            let first = keys::first_of(&key);
            let place = event_place(first, name);
            let run = self.run(channel, first).map_err(|e| e.at(&place))?;
            if let Some(named) = named {
                refuse_gap(Some(run.last()), named, &place)?;
            }
            for (seq, range) in run.entries.iter().rev().filter(|(seq, _)| after < *seq && *seq <= upto) {
                if visit(decoded(&run, *seq, range, name, channel)?).is_break() {
                    return Ok(());
                }
            }
            (named, upto) = (Some(run.previous), run.previous);
        }
        Ok(())
    }

    /// See [`crate::events::EventLog::scan_back`].
    pub(super) fn read_line_back(&self, after: ServerSeq, upto: ServerSeq, visit: Visit<'_>) -> Result<(), LogFault> {
        let mut upto = upto.min(self.tail.load(Ordering::Acquire));
        let mut named = None;
        while upto > after {
            let place = |unread: Unread| unread.at("the directories of commits");
            let Some(key) = self.tree.last_key(b"O", &keys::directory(upto)).map_err(place)? else {
                return refuse_gap(named.map(|_| 0), named.unwrap_or(0), &format!("event {upto}"));
            };
            let place = format!("commit {}", keys::first_of(&key));
            let value = self.tree.get(&key).map_err(|e| e.at(&place))?;
            let value = value.ok_or_else(|| Unread::Damaged("it is missing".to_owned()).at(&place))?;
            let mut directory = Directory::parse(&value).map_err(|e| Unread::from(e).at(&place))?;
            if let Some(named) = named {
                refuse_gap(Some(directory.last), named, &place)?;
            }
            let runs = self.runs_now(&mut directory, &key, &place)?;
            let back = |events: Vec<Placed>| events.into_iter().rev().collect();
            if visit_placed(back(placed(&directory, &runs, &place)?), &runs, after..upto, visit)?.is_break() {
                return Ok(());
            }
            (named, upto) = (Some(directory.previous), directory.previous);
        }
        Ok(())
    }

    /// The runs of a commit, and its directory as it is now where events were erased since it was read.
    fn runs_now(&self, directory: &mut Directory, key: &[u8], place: &str) -> Result<Vec<Listed>, LogFault> {
        match self.runs_of(directory) {
            Ok(runs) => Ok(runs),
            Err(fault) => {
                let now = self.tree.get(key).map_err(|e| e.at(place))?;
                let now = now.and_then(|value| Directory::parse(&value).ok());
                *directory = now.filter(|now| now != directory).ok_or(fault)?;
                self.runs_of(directory)
            }
        }
    }

    /// The runs of a commit, with the names of their channels.
    fn runs_of(&self, directory: &Directory) -> Result<Vec<Listed>, LogFault> {
        let mut runs = Vec::with_capacity(directory.runs.len());
        for (channel, first) in &directory.runs {
            let name = self.name(*channel)?;
            let run = self.run(*channel, *first).map_err(|e| e.at(event_place(*first, &name)))?;
            runs.push((*channel, name, run));
        }
        Ok(runs)
    }

    /// See [`crate::events::EventLog::last_of`].
    pub(super) fn newest_at(&self, channel: ChannelId, upto: ServerSeq) -> Result<Option<ServerSeq>, LogFault> {
        let upto = upto.min(self.tail.load(Ordering::Acquire));
        let place = |unread: Unread| unread.at(format!("the newest event of channel {} before {upto}", channel.0));
        let last = self.tree.last_key(&channel_prefix(channel), &keys::run(channel, upto)).map_err(place)?;
        let Some(key) = last else { return Ok(None) };
        let index = self.run_index(&key).map_err(place)?;
        Ok(index.entries.iter().rev().map(|(seq, _)| *seq).find(|seq| *seq <= upto))
    }

    fn run(&self, channel: ChannelId, first: ServerSeq) -> Result<Run, Unread> {
        let value = self.tree.get(&keys::run(channel, first))?.ok_or_else(|| "its run is missing".to_owned())?;
        Ok(Run::parse(value, first)?)
    }

    /// The index of a run, from its first piece where that has it whole.
    fn run_index(&self, key: &[u8]) -> Result<Run, Unread> {
        let missing = || Unread::Damaged("piece 0 is missing".to_owned());
        let first = keys::first_of(key);
        let begun = self.tree.begin(key)?.ok_or_else(missing)?.so_far();
        if let Some(run) = Run::parse_index(&begun, first)? {
            return Ok(run);
        }
        let value: Bytes = self.tree.get(key)?.ok_or_else(missing)?;
        Ok(Run::parse(value, first)?)
    }

    /// The URI of a channel that has events.
    fn name(&self, channel: ChannelId) -> Result<Channel, LogFault> {
        self.stored_name(channel)?.ok_or_else(|| LogFault::Damaged {
            place: format!("channel {}", channel.0),
            problem: "it has events and no name".to_owned(),
        })
    }
}

/// An event of a commit: its number, the place of its run, and where it is there.
type Placed = (ServerSeq, usize, Range<usize>);

/// The events of a commit in the order of the line, held against its directory.
fn placed(directory: &Directory, runs: &[Listed], place: &str) -> Result<Vec<Placed>, LogFault> {
    let mut events: Vec<Placed> = Vec::with_capacity(directory.events as usize & 0xffff);
    for (at, (_, _, run)) in runs.iter().enumerate() {
        events.extend(run.entries.iter().map(|(seq, range)| (*seq, at, range.clone())));
    }
    events.sort_unstable_by_key(|(seq, _, _)| *seq);
    let last = events.last().map_or(0, |(seq, _, _)| *seq);
    let is_last = last == directory.last || (directory.has_erased && last < directory.last);
    if events.len() != directory.events as usize || !is_last {
        let problem = format!("{} events up to {last} instead of {}", events.len(), directory.events);
        return Err(LogFault::Damaged { place: place.to_owned(), problem });
    }
    Ok(events)
}

/// Visits events of a commit in the order that they come: in `after < seq <= upto` for the range `after..upto`.
fn visit_placed(events: Vec<Placed>, runs: &[Listed], wanted: Range<ServerSeq>, visit: Visit<'_>) -> Step {
    for (seq, at, range) in events.into_iter().filter(|(seq, _, _)| wanted.start < *seq && *seq <= wanted.end) {
        let Some((channel, name, run)) = runs.get(at) else { continue };
        if visit(decoded(run, seq, &range, name, *channel)?).is_break() {
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
