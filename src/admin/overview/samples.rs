//! What the host did lately, sampled by its clock: the plots of the overview.
//!
//! Always: a bounded number of samples, the oldest goes. They are of this run and are in no log.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

use super::counted::Counted;
use crate::clock::Millis;

/// How far samples are apart.
pub const EVERY: Duration = Duration::from_secs(10);
/// How many are kept: a day of them.
const KEPT: usize = 8_640;

/// What was there, and what happened since the sample before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    pub at: Millis,
    pub events: u64,
    pub bytes: u64,
    pub commits: u64,
    /// How long a commit took, and the sync in it, in milliseconds: half were quicker, and all but one of a hundred.
    pub commit_p50: f64,
    pub commit_p99: f64,
    pub sync_p50: f64,
    pub sync_p99: f64,
    pub connections: u64,
    pub replays: u64,
    pub snapshots: u64,
}

/// See the head of this file.
#[derive(Default)]
pub struct Samples(Mutex<Ring>);

#[derive(Default)]
struct Ring {
    samples: VecDeque<Sample>,
    /// The counters as they were at the newest one.
    counters: [u64; 5],
}

impl Samples {
    /// Takes a sample of what was counted by now.
    pub fn take(&self, at: Millis, counted: &Counted) {
        let milliseconds = |name: &str| (counted.get(name) * 1e6).round() / 1e3;
        let total = |name: &str| counted.get(name) as u64;
        let counters = [
            total("scrollback_events_total"),
            total("scrollback_event_bytes_total"),
            total("scrollback_commits_total"),
            total("scrollback_reconnects_total{answer=\"replay\"}"),
            total("scrollback_reconnects_total{answer=\"snapshot\"}"),
        ];
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut ring.counters, counters);
        let mut since = counters.into_iter().zip(before).map(|(now, before)| now.saturating_sub(before));
        let mut next = || since.next().unwrap_or(0);
        let (events, bytes, commits, replays, snapshots) = (next(), next(), next(), next(), next());
        let is_quiet = commits == 0;
        // Without a commit there is no time of one: the summary still tells of those before.
        let time = |name: &str| if is_quiet { 0.0 } else { milliseconds(name) };
        let sample = Sample {
            at,
            events,
            bytes,
            commits,
            commit_p50: time("scrollback_commit_seconds{quantile=\"0.5\"}"),
            commit_p99: time("scrollback_commit_seconds{quantile=\"0.99\"}"),
            sync_p50: time("scrollback_sync_seconds{quantile=\"0.5\"}"),
            sync_p99: time("scrollback_sync_seconds{quantile=\"0.99\"}"),
            connections: counted.get("scrollback_connections") as u64,
            replays,
            snapshots,
        };
        if ring.samples.len() >= KEPT {
            ring.samples.pop_front();
        }
        ring.samples.push_back(sample);
    }

    /// The samples after `since`, at most `most` of them: where there are more, neighbours are put together.
    pub fn after(&self, since: Millis, most: usize) -> Vec<Sample> {
        let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted: Vec<Sample> = ring.samples.iter().filter(|sample| sample.at > since).copied().collect();
        let together = wanted.len().div_ceil(most.max(1)).max(1);
        wanted.chunks(together).map(|chunk| chunk.iter().copied().reduce(Sample::and).unwrap_or_default()).collect()
    }
}

impl Sample {
    /// Two neighbours as one: what happened in both, and the longer times.
    fn and(self, later: Self) -> Self {
        Self {
            at: later.at,
            events: self.events + later.events,
            bytes: self.bytes + later.bytes,
            commits: self.commits + later.commits,
            commit_p50: self.commit_p50.max(later.commit_p50),
            commit_p99: self.commit_p99.max(later.commit_p99),
            sync_p50: self.sync_p50.max(later.sync_p50),
            sync_p99: self.sync_p99.max(later.sync_p99),
            connections: self.connections.max(later.connections),
            replays: self.replays + later.replays,
            snapshots: self.snapshots + later.snapshots,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(events: u64) -> Counted {
        let quantile = "scrollback_commit_seconds{quantile=\"0.99\"} 0.0025";
        Counted::of(&format!("scrollback_events_total {events}\nscrollback_commits_total {events}\n{quantile}\n"))
    }

    #[test]
    fn a_sample_says_what_happened_since_the_one_before() {
        let samples = Samples::default();
        [3, 10, 10].into_iter().zip([100, 200, 300]).for_each(|(events, at)| samples.take(at, &counted(events)));
        let all = samples.after(0, 100);
        assert_eq!(all.iter().map(|sample| sample.events).collect::<Vec<_>>(), [3, 7, 0]);
        assert_eq!(all.iter().map(|sample| sample.commit_p99).collect::<Vec<_>>(), [2.5, 2.5, 0.0]);
        assert_eq!(samples.after(100, 100).len(), 2);
    }

    #[test]
    fn many_samples_are_put_together_and_nothing_is_lost_of_what_they_count() {
        let samples = Samples::default();
        (1..=1_001).for_each(|n| samples.take(n, &counted(n as u64)));
        let some = samples.after(0, 100);
        assert!(some.len() <= 100, "{}", some.len());
        assert_eq!(some.iter().map(|sample| sample.events).sum::<u64>(), 1_001);
        (0..2 * KEPT as i64).for_each(|n| samples.take(n, &counted(5)));
        assert_eq!(samples.after(-1, usize::MAX).len(), KEPT);
    }
}
