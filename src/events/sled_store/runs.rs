//! What the log's own values hold: runs of events, and the directories of commits.
//!
//! A run is what one commit wrote to one channel: `previous (8) | count (4) | count × (number (8), length (4)) |
//! records`. `previous` is the channel's newest event before it, so that a run that went missing is noticed. A
//! directory is `previous (8) | last (8) | events (4) | count (4) | count × (channel (8), first number (8))`:
//! `previous` is the line's newest number before the commit. Numbers of a run may have gaps, as compaction leaves them.

use std::ops::Range;

use bytes::Bytes;

use crate::events::{ChannelId, ServerSeq};

/// Bytes before the entries of a run, and of each entry.
const RUN_HEAD: usize = 12;
const RUN_ENTRY: usize = 12;

/// A run that is being written.
pub struct RunWriter {
    previous: ServerSeq,
    entries: Vec<(ServerSeq, u32)>,
    records: Vec<u8>,
}

impl RunWriter {
    /// A run without events; `previous` is the channel's newest event before it, 0 for none.
    pub fn new(previous: ServerSeq) -> Self {
        Self { previous, entries: Vec::new(), records: Vec::new() }
    }

    /// Adds event `seq`, whose record `write` appends to the bytes that it gets.
    ///
    /// # Errors
    /// What `write` says, and a text for a record of 4 GiB.
    pub fn push(
        &mut self,
        seq: ServerSeq,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), String>,
    ) -> Result<(), String> {
        let before = self.records.len();
        write(&mut self.records)?;
        let length = u32::try_from(self.records.len().saturating_sub(before)).map_err(|_| "a record is too large")?;
        self.entries.push((seq, length));
        Ok(())
    }

    /// The value to store.
    pub fn finish(self) -> Vec<u8> {
        let mut value = Vec::with_capacity(RUN_HEAD + self.entries.len() * RUN_ENTRY + self.records.len());
        value.extend_from_slice(&self.previous.to_be_bytes());
        value.extend_from_slice(&(self.entries.len() as u32).to_be_bytes());
        for (seq, length) in &self.entries {
            value.extend_from_slice(&seq.to_be_bytes());
            value.extend_from_slice(&length.to_be_bytes());
        }
        value.extend_from_slice(&self.records);
        value
    }
}

/// A run as it was read; its records are not decoded yet.
pub struct Run {
    /// The channel's newest event before the run, 0 for none.
    pub previous: ServerSeq,
    /// The number of each event and where its record is in the value, ascending.
    pub entries: Vec<(ServerSeq, Range<usize>)>,
    value: Bytes,
}

impl Run {
    /// Reads the run that begins with event `first`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(value: Bytes, first: ServerSeq) -> Result<Self, String> {
        let run = Self::parse_index(&value, first)?.ok_or("the run is cut off")?;
        match run.entries.last() {
            Some((_, last)) if last.end == value.len() => Ok(Self { value, ..run }),
            _ => Err("the run's lengths do not add up".to_owned()),
        }
    }

    /// Reads the run's index alone from the beginning of its value; `None` when more of the value is needed.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse_index(value: &[u8], first: ServerSeq) -> Result<Option<Self>, String> {
        let mut reader = Reader(value);
        let (Some(previous), Some(count)) = (reader.u64(), reader.u32()) else { return Ok(None) };
        let index = (count as usize).saturating_mul(RUN_ENTRY);
        if index > reader.0.len() {
            return Ok(None);
        }
        let mut entries = Vec::with_capacity(count as usize);
        let (mut at, mut newest) = (RUN_HEAD.saturating_add(index), 0);
        for _ in 0..count {
            let (seq, length) = reader.u64().zip(reader.u32()).ok_or("the run's index is cut off")?;
            let end = at.saturating_add(length as usize);
            if seq <= newest {
                return Err("the run's numbers do not ascend".to_owned());
            }
            entries.push((seq, at..end));
            (at, newest) = (end, seq);
        }
        if previous >= first || entries.first().is_none_or(|(seq, _)| *seq != first) {
            return Err(format!("the run does not begin with event {first}"));
        }
        Ok(Some(Self { previous, entries, value: Bytes::new() }))
    }

    /// The newest event of the run.
    pub fn last(&self) -> ServerSeq {
        self.entries.last().map_or(0, |(seq, _)| *seq)
    }

    /// The bytes of a record; empty for a range outside of the run.
    pub fn record(&self, range: &Range<usize>) -> Bytes {
        if range.start <= range.end && range.end <= self.value.len() {
            return self.value.slice(range.clone());
        }
        Bytes::new()
    }
}

/// The directory of a commit: which runs it wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// The line's newest event before the commit, 0 for none.
    pub previous: ServerSeq,
    /// The commit's newest event.
    pub last: ServerSeq,
    /// How many events it has now.
    pub events: u32,
    /// Whether it had more, which were erased.
    pub has_erased: bool,
    /// The channel and the first event of each run.
    pub runs: Vec<(ChannelId, ServerSeq)>,
}

/// The bit of a directory's count that says that events of the commit were erased. No commit has so many events.
const ERASED: u32 = 1 << 31;

impl Directory {
    /// Takes `dropped` events of a run out, which begins with event `now` then, or is gone.
    pub fn erase(&mut self, run: (ChannelId, ServerSeq), now: Option<ServerSeq>, dropped: usize) {
        self.has_erased = true;
        self.events = self.events.saturating_sub(u32::try_from(dropped).unwrap_or(u32::MAX));
        match now {
            Some(first) => {
                self.runs.iter_mut().filter(|listed| **listed == run).for_each(|listed| listed.1 = first);
            }
            None => self.runs.retain(|listed| *listed != run),
        }
    }

    /// The value to store.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(24 + self.runs.len() * 16);
        value.extend_from_slice(&self.previous.to_be_bytes());
        value.extend_from_slice(&self.last.to_be_bytes());
        let erased = if self.has_erased { ERASED } else { 0 };
        value.extend_from_slice(&(self.events | erased).to_be_bytes());
        value.extend_from_slice(&(self.runs.len() as u32).to_be_bytes());
        for (channel, first) in &self.runs {
            value.extend_from_slice(&channel.0.to_be_bytes());
            value.extend_from_slice(&first.to_be_bytes());
        }
        value
    }

    /// Reads a stored directory.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(value: &[u8]) -> Result<Self, String> {
        let mut reader = Reader(value);
        let cut_off = "the directory is cut off";
        let previous = reader.u64().ok_or(cut_off)?;
        let last = reader.u64().ok_or(cut_off)?;
        let events = reader.u32().ok_or(cut_off)?;
        let count = reader.u32().ok_or(cut_off)?;
        if (count as usize).checked_mul(16) != Some(reader.0.len()) {
            return Err("the directory's length is wrong".to_owned());
        }
        let mut runs = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let (channel, first) = reader.u64().zip(reader.u64()).ok_or(cut_off)?;
            runs.push((ChannelId(channel), first));
        }
        Ok(Self { previous, last, events: events & !ERASED, has_erased: events & ERASED != 0, runs })
    }
}

/// Big-endian numbers off the front of some bytes.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn u64(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*number))
    }

    fn u32(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*number))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> Vec<u8> {
        let mut run = RunWriter::new(3);
        for (seq, record) in [(5, "one"), (9, ""), (10, "three")] {
            let write = |out: &mut Vec<u8>| {
                out.extend_from_slice(record.as_bytes());
                Ok(())
            };
            run.push(seq, write).expect("pushed");
        }
        run.finish()
    }

    #[test]
    fn a_run_gives_back_its_records_by_number() {
        let run = Run::parse(Bytes::from(sample()), 5).expect("a run");
        let records: Vec<_> = run.entries.iter().map(|(seq, range)| (*seq, run.record(range))).collect();
        assert_eq!(records, [(5, "one".into()), (9, Bytes::new()), (10, "three".into())]);
        assert_eq!((run.previous, run.last()), (3, 10));
    }

    #[test]
    fn the_index_is_read_from_the_beginning_alone() {
        let value = sample();
        assert!(Run::parse_index(&value[..40], 5).expect("no error").is_none());
        let index = Run::parse_index(&value[..48], 5).expect("no error").expect("an index");
        assert_eq!(index.last(), 10);
    }

    #[test]
    fn a_run_that_is_cut_off_or_begins_elsewhere_is_refused() {
        let value = sample();
        for length in 0..value.len() {
            assert!(Run::parse(Bytes::copy_from_slice(&value[..length]), 5).is_err(), "{length}");
        }
        assert!(Run::parse(Bytes::from(value), 6).is_err());
    }

    #[test]
    fn a_directory_is_read_back_and_every_truncation_is_refused() {
        let directory = Directory {
            previous: 4,
            last: 9,
            events: 5,
            has_erased: true,
            runs: vec![(ChannelId(1), 5), (ChannelId(7), 6)],
        };
        let value = directory.to_bytes();
        assert_eq!(Directory::parse(&value), Ok(directory));
        for length in 0..value.len() {
            assert!(Directory::parse(&value[..length]).is_err(), "{length}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..120), first in 0u64..300) {
            let _ = Directory::parse(&bytes);
            let _ = Run::parse(Bytes::from(bytes), first);
        }
    }
}
