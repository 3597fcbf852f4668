//! Where a channel's events are on the line: what a slider over them needs.

use std::ops::ControlFlow;

use serde::Serialize;

use crate::clock;
use crate::events::{ChannelId, LogFault, Record, ServerSeq, Store};
use crate::projections::FoldFault;
use crate::projections::branches::Branches;

/// How many places a slider has, at most.
const MARKS: usize = 500;
/// Events that are counted; of a longer channel it is only said that there are more.
const COUNTED: usize = 50_000;

/// An event's place and time.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Point {
    pub server_seq: ServerSeq,
    pub at: String,
}

/// A turn that ended.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnMark {
    /// The event that ended it.
    pub server_seq: ServerSeq,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dropped: bool,
}

/// The answer of `/api/extent`.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Extent {
    pub first: Option<Point>,
    pub last: Option<Point>,
    /// How many events there are, or at least are.
    pub events: u64,
    pub is_counted: bool,
    /// Numbers of events, ascending, from the first to the last: all of a short channel.
    pub marks: Vec<ServerSeq>,
    /// For a chat, the newest of the turns that ended in it, ascending.
    pub turns: Vec<TurnMark>,
    /// How many turns ended in it.
    pub ended: u64,
}

impl Extent {
    /// That of `channel`, which is a chat's where `is_chat`.
    ///
    /// # Errors
    /// [`FoldFault`] when the store cannot be read.
    pub fn of(store: &dyn Store, channel: ChannelId, is_chat: bool) -> Result<Self, FoldFault> {
        let tail = store.tail();
        let mut seqs: Vec<ServerSeq> = Vec::new();
        let mut first = None;
        store.scan_channel(channel, 0, tail, &mut |record| {
            seqs.push(record.seq);
            first.get_or_insert_with(|| Point::of(&record));
            if seqs.len() >= COUNTED { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let last = before(store, channel, tail.saturating_add(1))?;
        let (Some(first), Some(last)) = (first, last) else { return Ok(Self::default()) };
        let is_counted = seqs.last() == Some(&last.server_seq);
        let marks = match is_counted {
            true => evenly(&seqs),
            false => over_the_line(store, channel, first.server_seq, last.server_seq)?,
        };
        let branches = if is_chat { Branches::read(store, channel)? } else { Branches::default() };
        let ended = branches.turns.len();
        let newest = branches.turns.iter().skip(ended.saturating_sub(MARKS));
        let turns = newest.map(|turn| TurnMark { server_seq: turn.seq, dropped: turn.is_dropped }).collect();
        let (events, ended) = (seqs.len() as u64, ended as u64);
        Ok(Self { first: Some(first), last: Some(last), events, is_counted, marks, turns, ended })
    }
}

impl Point {
    fn of(record: &Record) -> Self {
        Self { server_seq: record.seq, at: clock::rfc3339(record.at) }
    }
}

/// So many of `seqs` as there may be marks, with the first and the last.
fn evenly(seqs: &[ServerSeq]) -> Vec<ServerSeq> {
    let last = seqs.len().saturating_sub(1);
    let steps = last.min(MARKS - 1);
    let at = |step: usize| seqs.get(last * step / steps.max(1)).copied();
    (0..=steps).filter_map(at).collect()
}

/// Events at even distances of the line.
fn over_the_line(
    store: &dyn Store,
    channel: ChannelId,
    first: ServerSeq,
    last: ServerSeq,
) -> Result<Vec<ServerSeq>, LogFault> {
    let steps = MARKS as u64 - 1;
    let mut marks = Vec::with_capacity(MARKS);
    for step in 0..=steps {
        let at = first + (last - first) / steps * step + (last - first) % steps * step / steps;
        marks.extend(store.last_of(channel, at)?);
    }
    marks.dedup();
    Ok(marks)
}

/// The events beside a number.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Around {
    /// The newest event at or before the number.
    pub here: Option<Point>,
    pub previous: Option<Point>,
    pub next: Option<Point>,
}

impl Around {
    /// What is beside `seq` in `channel`.
    ///
    /// # Errors
    /// [`LogFault`] when an event cannot be read.
    pub fn of(store: &dyn Store, channel: ChannelId, seq: ServerSeq) -> Result<Self, LogFault> {
        let here = before(store, channel, seq.saturating_add(1))?;
        let previous = match &here {
            Some(here) => before(store, channel, here.server_seq)?,
            None => None,
        };
        let mut next = None;
        store.scan_channel(channel, seq, ServerSeq::MAX, &mut |record| {
            next = Some(Point::of(&record));
            ControlFlow::Break(())
        })?;
        Ok(Self { here, previous, next })
    }
}

/// The newest event of `channel` before `seq`.
fn before(store: &dyn Store, channel: ChannelId, seq: ServerSeq) -> Result<Option<Point>, LogFault> {
    let mut found = None;
    store.scan_channel_back(channel, 0, seq.saturating_sub(1), &mut |record| {
        found = Some(Point::of(&record));
        ControlFlow::Break(())
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_all_events_of_a_short_channel_and_spread_over_a_long_one() {
        assert_eq!(evenly(&[]), [] as [u64; 0]);
        assert_eq!(evenly(&[4]), [4]);
        assert_eq!(evenly(&[4, 9, 11]), [4, 9, 11]);
        let long: Vec<u64> = (1..=10_000).collect();
        let marks = evenly(&long);
        assert_eq!((marks.len(), marks.first(), marks.last()), (MARKS, Some(&1), Some(&10_000)));
        assert!(marks.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
