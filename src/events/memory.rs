//! A store in memory, with the contract of the one on disk, for tests and for sessions that nobody keeps.
//!
//! Always: an append becomes visible in one step, under one lock. Nothing is left of it when it is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;

use super::log::{Row, VisitRow};
use super::rows::channel_key;
use super::stage::{self, Known, Numbered, RowKey};
use super::{Batch, Channel, ChannelId, EventLog, Fate, LogFault, Record, Rows, ServerSeq, Table};

/// How many rows or events are copied out at once, so that a visit never holds the lock.
const CHUNK: usize = 64;

/// See the head of this file.
pub struct MemoryStore {
    state: RwLock<State>,
    /// The highest channel number that was given or stored.
    channels: AtomicU64,
}

#[derive(Default)]
struct State {
    events: BTreeMap<ServerSeq, Record>,
    by_channel: BTreeSet<(ChannelId, ServerSeq)>,
    rows: BTreeMap<RowKey, Bytes>,
    /// A number that was given is not given again, also when its event is gone.
    next: ServerSeq,
}

impl MemoryStore {
    /// An empty store, which has the root channel.
    ///
    /// # Errors
    /// None in practice: [`LogFault::Engine`] when the root channel's row cannot be written as JSON.
    pub fn new() -> Result<Self, LogFault> {
        let rows = BTreeMap::from(stage::root_rows()?);
        let state = State { rows, ..State::default() };
        Ok(Self { state: RwLock::new(state), channels: AtomicU64::new(ChannelId::ROOT.0) })
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn tail(&self) -> ServerSeq {
        self.events.last_key_value().map_or(0, |(seq, _)| *seq)
    }

    fn next_seq(&self) -> ServerSeq {
        self.next.max(self.tail().saturating_add(1))
    }

    fn last_of(&self, channel: ChannelId, upto: ServerSeq) -> Option<ServerSeq> {
        self.by_channel.range((channel, 0)..=(channel, upto)).next_back().map(|(_, seq)| *seq)
    }

    fn record(&mut self, numbered: &Numbered<'_>) {
        let event = numbered.event;
        let record = Record {
            seq: numbered.seq,
            channel: event.channel.clone(),
            channel_id: event.channel_id,
            kind: event.kind,
            at: event.at,
            principal: event.principal.as_ref().to_owned(),
            origin: event.origin.clone(),
            about: event.about,
            covers_from: None,
            batch: numbered.batch,
            action: event.action.clone(),
        };
        self.by_channel.insert((event.channel_id, numbered.seq));
        self.events.insert(numbered.seq, record);
    }

    /// The next events after `after`, of one channel or of all.
    fn chunk(&self, channel: Option<ChannelId>, after: ServerSeq, upto: ServerSeq) -> Vec<Record> {
        if after >= upto {
            return Vec::new();
        }
        match channel {
            None => self.events.range((Excluded(after), Included(upto))).take(CHUNK).map(|(_, r)| r.clone()).collect(),
            Some(id) => self
                .by_channel
                .range((Excluded((id, after)), Included((id, upto))))
                .take(CHUNK)
                .filter_map(|(_, seq)| self.events.get(seq).cloned())
                .collect(),
        }
    }
}

impl Known for State {
    fn newest_of(&self, channel: ChannelId) -> Result<Option<ServerSeq>, LogFault> {
        Ok(self.last_of(channel, ServerSeq::MAX))
    }

    fn name_of(&self, channel: ChannelId) -> Result<Option<Channel>, LogFault> {
        let uri = self.rows.get(&(Table::ChannelById, channel_key(channel)));
        Ok(uri.map(|uri| Channel::from(String::from_utf8_lossy(uri).into_owned())))
    }
}

impl MemoryStore {
    fn visit(
        &self,
        channel: Option<ChannelId>,
        mut after: ServerSeq,
        upto: ServerSeq,
        visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) {
        let upto = upto.min(self.tail());
        loop {
            let chunk = self.read().chunk(channel, after, upto);
            let Some(last) = chunk.last() else { return };
            after = last.seq;
            if chunk.into_iter().try_for_each(&mut *visit).is_break() {
                return;
            }
        }
    }
}

impl EventLog for MemoryStore {
    fn append(&self, batches: &[Batch]) -> Result<Vec<ServerSeq>, LogFault> {
        let mut state = self.write();
        let staged = stage::stage(batches, state.next_seq(), &*state)?;
        for numbered in &staged.events {
            state.record(numbered);
        }
        for (key, value) in staged.rows {
            match value {
                Some(value) => state.rows.insert(key, value),
                None => state.rows.remove(&key),
            };
        }
        self.channels.fetch_max(staged.highest_channel, Ordering::AcqRel);
        Ok(staged.firsts)
    }

    fn next_seq(&self) -> ServerSeq {
        self.read().next_seq()
    }

    fn tail(&self) -> ServerSeq {
        self.read().tail()
    }

    fn publish_ahead(&self) -> Result<(), LogFault> {
        Ok(())
    }

    fn scan_channel(
        &self,
        channel: ChannelId,
        after: ServerSeq,
        upto: ServerSeq,
        visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<(), LogFault> {
        self.visit(Some(channel), after, upto, visit);
        Ok(())
    }

    fn scan(
        &self,
        after: ServerSeq,
        upto: ServerSeq,
        visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<(), LogFault> {
        self.visit(None, after, upto, visit);
        Ok(())
    }

    fn last_of(&self, channel: ChannelId, upto: ServerSeq) -> Result<Option<ServerSeq>, LogFault> {
        Ok(self.read().last_of(channel, upto))
    }

    fn erase(&self, channel: ChannelId, fate: &dyn Fn(&Record) -> Fate) -> Result<u64, LogFault> {
        let mut state = self.write();
        let of_channel = state.by_channel.range((channel, 0)..=(channel, ServerSeq::MAX)).map(|(_, seq)| *seq);
        let fates = of_channel.filter_map(|seq| Some((seq, fate(state.events.get(&seq)?))));
        let changed: Vec<_> = fates.filter(|(_, fate)| *fate != Fate::Stays).collect();
        state.next = state.next_seq();
        let count = changed.len() as u64;
        for (seq, fate) in changed {
            match fate {
                Fate::Says(action) => {
                    state.events.entry(seq).and_modify(|record| record.action = action);
                }
                Fate::Goes | Fate::Stays => {
                    state.events.remove(&seq);
                    state.by_channel.remove(&(channel, seq));
                }
            }
        }
        Ok(count)
    }

    fn disk_bytes(&self) -> u64 {
        0
    }
}

impl Rows for MemoryStore {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, LogFault> {
        Ok(self.read().rows.get(&(table, key.to_vec())).map(|value| value.to_vec()))
    }

    fn scan_rows(&self, table: Table, prefix: &[u8], from: Option<&[u8]>, visit: VisitRow<'_>) -> Result<(), LogFault> {
        let mut start = Included((table, from.filter(|from| *from > prefix).unwrap_or(prefix).to_vec()));
        loop {
            let chunk: Vec<(RowKey, Bytes)> = {
                let state = self.read();
                let rows = state.rows.range((start, Unbounded));
                let rows = rows.take_while(|((t, key), _)| *t == table && key.starts_with(prefix));
                rows.take(CHUNK).map(|(key, value)| (key.clone(), value.clone())).collect()
            };
            let Some((last, _)) = chunk.last() else { return Ok(()) };
            start = Excluded(last.clone());
            if chunk.iter().try_for_each(|((_, key), value)| visit(key, value)).is_break() {
                return Ok(());
            }
        }
    }

    fn last_row(&self, table: Table, prefix: &[u8], upto: &[u8]) -> Result<Option<Row>, LogFault> {
        if upto < prefix {
            return Ok(None);
        }
        let state = self.read();
        let mut rows = state.rows.range((table, prefix.to_vec())..=(table, upto.to_vec()));
        let last = rows.rfind(|((_, key), _)| key.starts_with(prefix));
        Ok(last.map(|((_, key), value)| (key.clone(), value.to_vec())))
    }

    fn new_channel_id(&self) -> ChannelId {
        ChannelId(self.channels.fetch_add(1, Ordering::AcqRel).saturating_add(1))
    }

    fn last_channel_id(&self) -> ChannelId {
        ChannelId(self.channels.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::conformance;

    #[test]
    fn it_does_what_every_store_must() {
        conformance::run(|| MemoryStore::new().expect("a store"));
    }
}
