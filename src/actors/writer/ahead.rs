//! With [`Durability::Interval`]: what was published and is not on disk yet.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::counter;

use super::commit::{Step, Taken, count, hand_over, refuse, settle, split};
use super::{Durability, EVENTS_AHEAD, Lost, Place, Release, Shared};
use crate::events::{Batch, ChannelId, ServerSeq};

/// With [`Durability::Interval`]: what was published and is not on disk yet.
#[derive(Default)]
pub(super) struct Ahead {
    batches: Vec<Batch>,
    /// The lanes of the batches.
    lanes: HashSet<ChannelId>,
    /// What waits until the batches are on disk, in order.
    releases: Vec<Release>,
    events: u64,
    since: Option<Instant>,
    /// Why the last commit failed: nothing more is shown until one succeeds.
    pub(super) failing: Option<Lost>,
}

impl Ahead {
    /// Shows what was taken, and keeps its batches for the next commit.
    pub(super) fn publish(&mut self, shared: &Shared, taken: Taken) {
        let (steps, batches) = split(taken);
        if let Some(lost) = &self.failing {
            return refuse(shared, steps, lost, Some(&mut self.releases));
        }
        let mut next = shared.store.next_seq() + self.events;
        let before = next;
        let firsts: Vec<ServerSeq> = batches
            .iter()
            .map(|batch| {
                let first = next;
                next += batch.events.len() as u64;
                first
            })
            .collect();
        self.events += next - before;
        for (session, _, step) in &steps {
            if let Step::Batch(_, opens) = step {
                self.lanes.extend([*session].into_iter().chain(*opens));
            }
        }
        hand_over(shared, steps, &batches, &firsts, before, Some(&mut self.releases));
        if !batches.is_empty() {
            self.since.get_or_insert_with(Instant::now);
            self.batches.extend(batches);
        }
        if self.batches.is_empty() {
            self.release(shared);
        }
    }

    /// How long until what was shown has to be committed; `None` where nothing waits.
    pub(super) fn due_in(&self, shared: &Shared) -> Option<Duration> {
        let Durability::Interval(interval) = shared.durability else { return None };
        self.since.map(|since| interval.saturating_sub(since.elapsed()))
    }

    pub(super) fn is_due(&self, shared: &Shared) -> bool {
        self.due_in(shared).is_some_and(|wait| wait.is_zero())
            || (self.events >= EVENTS_AHEAD && self.failing.is_none())
    }

    /// Commits what was published. When that fails, it is tried again at the next interval, and until then every append is
    /// refused.
    pub(super) fn commit(&mut self, shared: &Shared) {
        if self.batches.is_empty() {
            return;
        }
        match shared.store.append(&self.batches) {
            Ok(_) => {
                count(shared, &self.batches);
                shared.state().forget_channels();
                self.release(shared);
                *self = Self::default();
            }
            Err(fault) => {
                counter!("scrollback_commits_failed_total").increment(1);
                tracing::error!(%fault, "what was shown could not be written down: it is tried again");
                self.since = Some(Instant::now());
                let mut state = shared.state();
                state.failing = true;
                self.failing = Some(Lost(Arc::from(fault.to_string()), state.handed_over));
            }
        }
    }

    /// What was shown is on disk: who waited for that goes on.
    fn release(&mut self, shared: &Shared) {
        let mut state = shared.state();
        state.failing = false;
        let place = Place { seq: state.handed_over, channel_seq: 0 };
        for release in self.releases.drain(..) {
            release(Ok(place));
        }
        for session in self.lanes.drain() {
            if let Some(queue) = state.lanes.get_mut(&session) {
                queue.ahead = 0;
            }
            settle(&mut state, session);
        }
    }
}
