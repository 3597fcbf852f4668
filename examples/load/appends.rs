//! The store alone: commits of 64 events, single events, and what they take on disk.

use std::time::{Duration, Instant};

use bytes::Bytes;
use scrollback::events::{Batch, EventLog};

use crate::Scale;
use crate::report::{Goal, Report, median, percentile};
use crate::support::author::{Session, Shape};
use crate::support::limit::{self, BareSled, PlainFile};
use crate::support::{directory, store};

/// Turns between ours and the limits.
const ROUNDS: usize = 7;

pub fn measure(scale: Scale, report: &mut Report) {
    commits(scale, report);
    single(scale, report);
    disk(scale, report);
}

fn commits(scale: Scale, report: &mut Report) {
    let (directory, times) = (directory(), scale.of(60, 15));
    let ours = store(directory.path());
    let mut plain = PlainFile::new(directory.path());
    let mut bare = BareSled::new(directory.path());
    let batches = limit::commit();
    let bytes = limit::bytes_of(&batches);
    let actions: Vec<Bytes> = batches.iter().flat_map(|b| &b.events).map(|event| event.action.clone()).collect();
    let mut rates: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        rates[0].push(rate(times, || plain.commit(&bytes)));
        rates[1].push(rate(times, || drop(ours.append(&batches).expect("appended"))));
        rates[2].push(rate(times, || bare.commit(&actions)));
    }
    let [plain, ours, bare] = rates.map(|mut rates| median(&mut rates));
    let unit = "events/s";
    report.ratio("appends, 64 events a commit, of a plain file", unit, Goal::AtLeast(0.22), plain, ours);
    report.ratio("appends, 64 events a commit, of the bare engine", unit, Goal::AtLeast(1.5), bare, ours);
}

fn rate(times: usize, mut commit: impl FnMut()) -> f64 {
    let before = Instant::now();
    (0..times).for_each(|_| commit());
    (times * limit::COMMIT_EVENTS) as f64 / before.elapsed().as_secs_f64()
}

fn single(scale: Scale, report: &mut Report) {
    let directory = directory();
    let ours = store(directory.path());
    let mut plain = PlainFile::new(directory.path());
    let batches = limit::commit();
    let one = batches.get(..1).unwrap_or_default();
    let bytes = limit::bytes_of(one);
    let (mut plain_times, mut our_times) = (Vec::new(), Vec::new());
    for _ in 0..scale.of(1_000, 200) {
        plain_times.push(timed(|| plain.commit(&bytes)));
        our_times.push(timed(|| drop(ours.append(one).expect("appended"))));
    }
    let (plain, ours) = (percentile(&mut plain_times, 0.5), percentile(&mut our_times, 0.5));
    report.ratio("one event to durable, p50", "ms", Goal::AtMost(3.0), plain, ours);
}

fn timed(act: impl FnOnce()) -> Duration {
    let before = Instant::now();
    act();
    before.elapsed()
}

/// Sixteen sessions that stream at the same time, in commits of 64 batches, with all rows and checkpoints.
fn disk(scale: Scale, report: &mut Report) {
    let directory = directory();
    let store = store(directory.path());
    let shape = Shape { deltas: 40, bytes: 200 };
    let (mut sessions, made): (Vec<Session>, Vec<Batch>) = (0..16).map(|n| Session::create(&store, n)).unzip();
    store.append(&made).expect("appended");
    for _ in 0..scale.of(40, 5) {
        let turns: Vec<Vec<Batch>> = sessions.iter_mut().map(|session| session.turn(shape)).collect();
        let longest = turns.iter().map(Vec::len).max().unwrap_or(0);
        let mut commit = Vec::new();
        for at in 0..longest {
            commit.extend(turns.iter().filter_map(|turn| turn.get(at).cloned()));
            if commit.len() >= 64 {
                store.append(&commit).expect("appended");
                commit.clear();
            }
        }
        store.append(&commit).expect("appended");
    }
    let bytes: u64 = sessions.iter().map(|session| session.action_bytes).sum();
    report.ratio("disk, rows and checkpoints too", "bytes", Goal::AtMost(3.2), bytes as f64, store.disk_bytes() as f64);
}
