//! A session's way to the log.

use std::sync::Arc;

use super::commit::place;
use super::{Entry, Lost, Release, Shared, State};
use crate::events::{Batch, ChannelId, ServerSeq};

/// How many bytes may wait in a lane before its session and the root take nothing more from clients. A chat has a limit of
/// its own, which is smaller.
const LANE_BYTES: usize = 4 << 20;

/// A session's way to the log. Entries keep their order.
#[derive(Clone)]
pub struct Lane {
    pub(super) session: ChannelId,
    pub(super) generation: u64,
    pub(super) shared: Arc<Shared>,
}

impl Lane {
    /// Queues `batch`. Whether it became durable is told to the releases behind it.
    pub fn append(&self, batch: Batch) {
        if batch.events.is_empty() && batch.rows.is_empty() {
            return;
        }
        let mut state = self.shared.state();
        if self.is_lost(&state).is_some() {
            return;
        }
        if state.stopping {
            return self.lose_from_now_on(&mut state, "the host is stopping");
        }
        self.queue(&mut state, Entry::Append { batch, opens: None });
    }

    /// Runs `release` once everything before it may be shown: once it is durable, or with [`Durability::Interval`] at
    /// once. `asks` names the channel whose newest number it wants.
    pub fn release(&self, asks: Option<ChannelId>, release: Release) {
        self.release_at(asks, false, release);
    }

    /// Runs `release` once everything before it is on disk, also with [`Durability::Interval`]: for who reads the store
    /// afterwards.
    pub fn release_on_disk(&self, release: Release) {
        self.release_at(None, true, release);
    }

    fn release_at(&self, asks: Option<ChannelId>, on_disk: bool, release: Release) {
        let mut state = self.shared.state();
        if let Some(lost) = self.is_lost(&state) {
            drop(state);
            return release(Err(lost));
        }
        let waits = state
            .lanes
            .get(&self.session)
            .is_some_and(|q| q.in_commit > 0 || !q.entries.is_empty() || q.hold.is_some() || (on_disk && q.ahead > 0));
        if waits {
            return self.queue(&mut state, Entry::Release { asks, on_disk, release });
        }
        let place = place(&self.shared, &mut state, asks, ServerSeq::MAX);
        // Held over the hand-over: an append of this lane by another thread must not overtake it.
        release(place);
    }

    /// The same lane after a loss: what is queued from now on rests on a fold that was read from the log again.
    pub fn reopen(&mut self) {
        let mut state = self.shared.state();
        state.generation += 1;
        self.generation = state.generation;
    }

    /// Takes nothing more in this generation: its fold cannot be trusted. What is queued already is still appended.
    pub fn close(&self, why: &str) {
        let mut state = self.shared.state();
        self.lose_from_now_on(&mut state, why);
    }

    /// Whether something was lost in this generation, or it was closed.
    pub fn is_over(&self) -> bool {
        self.is_lost(&self.shared.state()).is_some()
    }

    pub(super) fn lose_from_now_on(&self, state: &mut State, why: &str) {
        let lost = Lost(Arc::from(why), state.handed_over);
        let queue = state.lanes.entry(self.session).or_default();
        if queue.lost.as_ref().is_none_or(|(generation, _)| *generation < self.generation) {
            queue.lost = Some((self.generation, lost));
        }
    }

    /// Whether so much waits for the disk that nothing more is to be taken from clients.
    pub fn is_full(&self) -> bool {
        self.shared.state().lanes.get(&self.session).is_some_and(|queue| queue.bytes >= LANE_BYTES)
    }

    /// The generation that entries of this handle belong to.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn is_lost(&self, state: &State) -> Option<Lost> {
        let (generation, lost) = state.lanes.get(&self.session)?.lost.as_ref()?;
        (*generation >= self.generation).then(|| lost.clone())
    }

    pub(super) fn queue(&self, state: &mut State, entry: Entry) {
        let queue = state.lanes.entry(self.session).or_default();
        if let Some(hold) = &mut queue.hold {
            queue.bytes += entry.weight();
            return hold.behind.push_back((self.generation, entry));
        }
        if queue.entries.is_empty() {
            state.turns.push_back(self.session);
        }
        queue.bytes += entry.weight();
        queue.entries.push_back((self.generation, entry));
        self.shared.wake.notify_one();
    }
}
