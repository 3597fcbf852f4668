//! A lane that waits for a batch of another one: what two sessions decide together is one batch, in the lane of one of them.
//!
//! What the held lane's session decides meanwhile stands behind its place, and is appended after the batch. When the batch is
//! lost, or never comes, all of that is lost with it.

use std::sync::Arc;

use super::commit::{lose, settle};
use super::lane::Lane;
use super::{Entry, Hold, Lost, Release};
use crate::events::Batch;

/// The right to let a held lane go on. Dropped, what the lane holds behind its place is lost.
#[must_use]
pub struct Held {
    lane: Option<Lane>,
}

impl Lane {
    /// Holds the lane at this place until the batch of another one that [`Lane::append_with`] takes is handed over.
    pub fn hold(&self) -> Held {
        let mut state = self.shared.state();
        let hold = Hold { generation: self.generation, behind: Default::default() };
        state.lanes.entry(self.session).or_default().hold = Some(hold);
        Held { lane: Some(self.clone()) }
    }

    /// Queues `batch`, which belongs to the held lane too.
    pub fn append_with(&self, batch: Batch, mut held: Held) {
        let Some(other) = held.lane.take() else { return };
        let mut state = self.shared.state();
        let lost = self.is_lost(&state).or_else(|| {
            state.stopping.then(|| self.lose_from_now_on(&mut state, "the host is stopping"))?;
            self.is_lost(&state)
        });
        match lost {
            None => self.queue(&mut state, Entry::Append { batch, opens: Some(other.session) }),
            Some(lost) => {
                drop(state);
                other.give_up(&lost.0);
            }
        }
    }

    /// The batch that the lane is held for never comes: what stands behind its place is lost. What was queued before is still
    /// appended.
    fn give_up(&self, why: &str) {
        let mut state = self.shared.state();
        let lost = Lost(Arc::from(why), state.handed_over);
        let is_held = |hold: &Hold| hold.generation == self.generation;
        let hold = state.lanes.get_mut(&self.session).and_then(|queue| queue.hold.take_if(|hold| is_held(hold)));
        let Some(hold) = hold else { return };
        self.lose_from_now_on(&mut state, why);
        let mut refused: Vec<Release> = Vec::new();
        for (_, entry) in hold.behind {
            match entry {
                Entry::Release { release, .. } => refused.push(release),
                Entry::Append { opens: Some(other), .. } => lose(&mut state, other, u64::MAX, &lost, &mut refused),
                Entry::Append { .. } => {}
            }
        }
        settle(&mut state, self.session);
        drop(state);
        for release in refused {
            release(Err(lost.clone()));
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(lane) = self.lane.take() {
            lane.give_up("what it waited for was refused");
        }
    }
}
