//! A store whose appends wait at a gate and fail on demand, for tests of what must happen before, during and after
//! an append.
//!
//! Reads pass at all times. Nothing here waits for time to pass: a test holds the gate, waits until an append stands
//! before it, looks at what it wants, and lets it through.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::log::{Row, VisitRow};
use super::{Batch, ChannelId, EventLog, Fate, LogFault, Record, Rows, ServerSeq, Table};

/// The handle by which a test works the gate. Cheap to clone.
#[derive(Clone, Default)]
pub struct Gate(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    holding: bool,
    /// How many appends may pass although the gate holds.
    permits: usize,
    /// How many stand before it.
    waiting: usize,
    /// What the next appends fail with.
    failures: VecDeque<LogFault>,
    /// Set once an append failed with [`LogFault::ReadOnly`]: so does every later one.
    read_only: Option<String>,
}

impl Gate {
    /// From now on appends wait before the gate.
    pub fn hold(&self) {
        self.state().holding = true;
    }

    /// Lets one append through: the one that waits, or the next that comes.
    pub fn release_one(&self) {
        let mut state = self.state();
        state.permits = state.permits.saturating_add(1);
        self.0.changed.notify_all();
    }

    /// Opens the gate.
    pub fn release_all(&self) {
        let mut state = self.state();
        state.holding = false;
        state.permits = 0;
        self.0.changed.notify_all();
    }

    /// Makes the next append fail with `fault` once it is through the gate, and nothing of it is written. After
    /// [`LogFault::ReadOnly`] every later one fails too, as the contract says.
    pub fn fail_next(&self, fault: LogFault) {
        self.state().failures.push_back(fault);
    }

    /// Blocks until an append waits before the gate.
    pub fn wait_until_held(&self) {
        let state = self.state();
        drop(self.0.changed.wait_while(state, |s| s.waiting == 0).unwrap_or_else(PoisonError::into_inner));
    }

    /// How many appends wait before the gate now.
    pub fn held(&self) -> usize {
        self.state().waiting
    }

    /// Waits for its turn, then says whether the append may be made.
    fn pass(&self) -> Result<(), LogFault> {
        let mut state = self.state();
        state.waiting = state.waiting.saturating_add(1);
        self.0.changed.notify_all();
        let closed = |s: &mut State| s.holding && s.permits == 0;
        state = self.0.changed.wait_while(state, closed).unwrap_or_else(PoisonError::into_inner);
        state.waiting = state.waiting.saturating_sub(1);
        if state.holding {
            state.permits = state.permits.saturating_sub(1);
        }
        state.verdict()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn verdict(&mut self) -> Result<(), LogFault> {
        if let Some(cause) = &self.read_only {
            return Err(LogFault::ReadOnly { cause: cause.clone() });
        }
        let Some(fault) = self.failures.pop_front() else { return Ok(()) };
        if let LogFault::ReadOnly { cause } = &fault {
            self.read_only = Some(cause.clone());
        }
        Err(fault)
    }
}

/// A store behind a [`Gate`], which is open at first.
pub struct GatedStore<S> {
    store: S,
    gate: Gate,
}

impl<S> GatedStore<S> {
    /// `store` behind a gate of its own.
    pub fn new(store: S) -> Self {
        Self { store, gate: Gate::default() }
    }

    /// The gate, to keep when the store is handed away.
    pub fn gate(&self) -> Gate {
        self.gate.clone()
    }
}

impl<S: EventLog> EventLog for GatedStore<S> {
    fn append(&self, batches: &[Batch]) -> Result<Vec<ServerSeq>, LogFault> {
        self.gate.pass()?;
        self.store.append(batches)
    }

    fn next_seq(&self) -> ServerSeq {
        self.store.next_seq()
    }

    fn tail(&self) -> ServerSeq {
        self.store.tail()
    }

    fn publish_ahead(&self) -> Result<(), LogFault> {
        self.store.publish_ahead()
    }

    fn scan_channel(
        &self,
        channel: ChannelId,
        after: ServerSeq,
        upto: ServerSeq,
        visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<(), LogFault> {
        self.store.scan_channel(channel, after, upto, visit)
    }

    fn scan(
        &self,
        after: ServerSeq,
        upto: ServerSeq,
        visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<(), LogFault> {
        self.store.scan(after, upto, visit)
    }

    fn last_of(&self, channel: ChannelId, upto: ServerSeq) -> Result<Option<ServerSeq>, LogFault> {
        self.store.last_of(channel, upto)
    }

    fn accepts_appends(&self) -> Result<(), LogFault> {
        self.store.accepts_appends()
    }

    fn erase(&self, channel: ChannelId, fate: &dyn Fn(&Record) -> Fate) -> Result<u64, LogFault> {
        self.store.erase(channel, fate)
    }

    fn disk_bytes(&self) -> u64 {
        self.store.disk_bytes()
    }
}

impl<S: Rows> Rows for GatedStore<S> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, LogFault> {
        self.store.get(table, key)
    }

    fn scan_rows(&self, table: Table, prefix: &[u8], from: Option<&[u8]>, visit: VisitRow<'_>) -> Result<(), LogFault> {
        self.store.scan_rows(table, prefix, from, visit)
    }

    fn last_row(&self, table: Table, prefix: &[u8], upto: &[u8]) -> Result<Option<Row>, LogFault> {
        self.store.last_row(table, prefix, upto)
    }

    fn new_channel_id(&self) -> ChannelId {
        self.store.new_channel_id()
    }

    fn last_channel_id(&self) -> ChannelId {
        self.store.last_channel_id()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::events::MemoryStore;
    use crate::events::conformance::{self, batch, event};

    fn gated() -> GatedStore<MemoryStore> {
        GatedStore::new(MemoryStore::new().expect("a store"))
    }

    #[test]
    fn an_open_gate_changes_nothing() {
        conformance::run(gated);
    }

    #[test]
    fn held_appends_pass_one_by_one_and_then_freely() {
        let store = gated();
        let gate = store.gate();
        let one = [batch(vec![event(2, "a")], vec![])];
        gate.hold();
        thread::scope(|scope| {
            let appends = scope.spawn(|| [store.append(&one), store.append(&one), store.append(&one)]);
            gate.wait_until_held();
            assert_eq!((store.tail(), gate.held()), (0, 1));
            gate.release_one();
            while store.tail() == 0 {
                thread::yield_now();
            }
            gate.wait_until_held();
            assert_eq!(store.tail(), 1);
            gate.release_all();
            let firsts = appends.join().expect("no panic").map(|a| a.expect("append"));
            assert_eq!(firsts, [[1], [2], [3]]);
        });
    }

    #[test]
    fn a_failure_is_met_once_and_a_read_only_one_for_good() {
        let store = gated();
        let one = [batch(vec![event(2, "a")], vec![])];
        store.gate().fail_next(LogFault::Engine("no".to_owned()));
        assert!(matches!(store.append(&one), Err(LogFault::Engine(_))));
        assert_eq!(store.append(&one).expect("append"), [1]);
        store.gate().fail_next(LogFault::ReadOnly { cause: "disk".to_owned() });
        for _ in 0..2 {
            assert!(matches!(store.append(&one), Err(LogFault::ReadOnly { .. })));
        }
        assert_eq!(store.tail(), 1);
    }
}
