//! A window of the log for somebody who looks at it: so many events, before or after a number, that fit a filter.
//!
//! A window is read in bounded time, whatever the length of the log: what was not reached is said, and is gone on with.

use std::collections::HashMap;
use std::ops::ControlFlow;

use super::{EventFilter, Reader, Scope};
use crate::clock::Millis;
use crate::events::{ChannelId, LogFault, Record, ServerSeq, Store};

/// Events and bytes of actions that one window reads, wanted or not.
const READ_EVENTS: usize = 10_000;
const READ_BYTES: usize = 8 << 20;

/// From where to where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// The newest before this number.
    Before(ServerSeq),
    /// The oldest after this number.
    After(ServerSeq),
}

/// What to look for.
pub struct Asked {
    pub scope: Scope,
    pub filter: EventFilter,
    /// `None`: who asks may read everything.
    pub reader: Option<Reader>,
    pub from: From,
    /// Later and earlier ones only, both excluded.
    pub bounds: (ServerSeq, ServerSeq),
    /// How many.
    pub limit: usize,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Window {
    /// Ascending.
    pub records: Vec<Record>,
    /// The window before it ends before this number; `None` where nothing is.
    pub older: Option<ServerSeq>,
    /// The window after it begins after this number.
    pub newer: ServerSeq,
    /// Whether it ends because so much was read, and not because it is full or nothing is left.
    pub is_cut: bool,
}

impl Asked {
    /// Reads it.
    ///
    /// # Errors
    /// [`LogFault`] when an event cannot be read.
    pub fn read(&self, store: &dyn Store) -> Result<Window, LogFault> {
        let (low, high) = (self.bounds.0, self.bounds.1.saturating_sub(1).min(store.tail()));
        match self.from {
            From::Before(before) => self.back(store, low, high.min(before.saturating_sub(1))),
            From::After(after) => self.forth(store, low.max(after), high),
        }
    }

    fn back(&self, store: &dyn Store, low: ServerSeq, high: ServerSeq) -> Result<Window, LogFault> {
        let mut reading = Reading::new(self);
        match self.channel() {
            Some(channel) => store.scan_channel_back(channel, low, high, &mut |record| reading.visit(record))?,
            None => store.scan_back(low, high, &mut |record| reading.visit(record))?,
        }
        reading.records.reverse();
        let older = reading.stopped_at;
        Ok(Window { records: reading.records, older, newer: high, is_cut: reading.is_cut })
    }

    fn forth(&self, store: &dyn Store, low: ServerSeq, high: ServerSeq) -> Result<Window, LogFault> {
        let mut reading = Reading::new(self);
        match self.channel() {
            Some(channel) => store.scan_channel(channel, low, high, &mut |record| reading.visit(record))?,
            None => store.scan(low, high, &mut |record| reading.visit(record))?,
        }
        let newer = reading.stopped_at.unwrap_or(high.max(low));
        let older = (low > 0).then_some(low.saturating_add(1));
        Ok(Window { records: reading.records, older, newer, is_cut: reading.is_cut })
    }

    fn channel(&self) -> Option<ChannelId> {
        match &self.scope {
            Scope::Channels(channels) => channels.first().copied(),
            Scope::All => None,
        }
    }
}

/// A window that is being read.
struct Reading<'a> {
    asked: &'a Asked,
    may_read: HashMap<ChannelId, bool>,
    records: Vec<Record>,
    events: usize,
    bytes: usize,
    stopped_at: Option<ServerSeq>,
    is_cut: bool,
}

impl<'a> Reading<'a> {
    fn new(asked: &'a Asked) -> Self {
        let (may_read, records) = (HashMap::new(), Vec::new());
        Self { asked, may_read, records, events: 0, bytes: 0, stopped_at: None, is_cut: false }
    }

    fn visit(&mut self, record: Record) -> ControlFlow<()> {
        self.events += 1;
        self.bytes = self.bytes.saturating_add(record.action.len());
        let seq = record.seq;
        if self.asked.filter.wants(&record) && self.may_read(&record) {
            self.records.push(record);
        }
        let is_full = self.records.len() >= self.asked.limit;
        self.is_cut = !is_full && (self.events >= READ_EVENTS || self.bytes >= READ_BYTES);
        if is_full || self.is_cut {
            self.stopped_at = Some(seq);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn may_read(&mut self, record: &Record) -> bool {
        let Some(reader) = &self.asked.reader else { return true };
        *self.may_read.entry(record.channel_id).or_insert_with(|| reader(&record.channel))
    }
}

/// The number of the first event at or after this time, or the next number where there is none.
///
/// # Errors
/// [`LogFault`] when an event cannot be read.
pub fn first_since(store: &dyn Store, at: Millis) -> Result<ServerSeq, LogFault> {
    let tail = store.tail();
    let (mut low, mut high) = (1, tail.saturating_add(1));
    while low < high {
        let middle = low + (high - low) / 2;
        let mut found = None;
        store.scan(middle - 1, tail, &mut |record| {
            found = Some((record.seq, record.at));
            ControlFlow::Break(())
        })?;
        match found {
            Some((seq, time)) if time < at => low = seq.saturating_add(1),
            _ => high = middle,
        }
    }
    Ok(low)
}
