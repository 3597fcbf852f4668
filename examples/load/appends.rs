//! The store alone: commits of 64 events, single events, and what they take on disk.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bytes::Bytes;
use scrollback::events::compacting::Step;
use scrollback::events::sled_store::SledStore;
use scrollback::events::{Batch, EventLog, Record, Rows, ServerSeq, Table};
use scrollback::projections::compaction::Folding;

use crate::Scale;
use crate::report::{Goal, Report, percentile};
use crate::support::author::{Session, Shape};
use crate::support::limit::{self, BareSled, PlainFile};
use crate::support::{directory, store};

pub fn measure(scale: Scale, report: &mut Report) {
    commits(scale, report);
    single(scale, report);
    disk(scale, report);
}

fn commits(scale: Scale, report: &mut Report) {
    let (directory, count) = (directory(), scale.of(400, 100));
    let ours = store(directory.path());
    let mut plain = PlainFile::new(directory.path());
    let mut bare = BareSled::new(&directory.path().join("bare"), false);
    let mut indexed = BareSled::new(&directory.path().join("indexed"), true);
    let batches = limit::commit();
    let bytes = limit::bytes_of(&batches);
    let actions: Vec<Bytes> = batches.iter().flat_map(|b| &b.events).map(|event| event.action.clone()).collect();
    let mut times: [Vec<Duration>; 4] = Default::default();
    for _ in 0..count {
        times[0].push(timed(|| plain.commit(&bytes)));
        times[1].push(timed(|| drop(ours.append(&batches).expect("appended"))));
        times[2].push(timed(|| bare.commit(&actions)));
        times[3].push(timed(|| indexed.commit(&actions)));
    }
    let rate = |mut times: Vec<Duration>| limit::COMMIT_EVENTS as f64 * 1_000.0 / percentile(&mut times, 0.5);
    let [plain, ours, bare, indexed] = times.map(rate);
    let unit = "events/s";
    report.ratio("appends, 64 events a commit, of a plain file", unit, Goal::AtLeast(0.22), plain, ours);
    let what = "appends, 64 events a commit, of the bare engine";
    report.ratio(&format!("{what} with an index by channel"), unit, Goal::AtLeast(1.5), indexed, ours);
    report.ratio(&format!("{what} without one"), unit, Goal::None, bare, ours);
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
    compacted(&store, bytes, report);
}

/// The same after a compaction of everything; of the bytes of events as they were, and as they are then.
fn compacted(store: &SledStore, bytes: u64, report: &mut Report) {
    let whole = Cell::new(Instant::now());
    let wait = Cell::new(Duration::ZERO);
    let reached = |step: Step| match step {
        Step::Whole => whole.set(Instant::now()),
        Step::InPlace => wait.set(whole.get().elapsed()),
        _ => {}
    };
    let scanned = || {
        let mut bytes = 0u64;
        let mut visit = |record: Record| {
            bytes += record.action.len() as u64;
            ControlFlow::Continue(())
        };
        let took = timed(|| store.scan(0, ServerSeq::MAX, &mut visit).expect("scanned"));
        (bytes, took)
    };
    let (before, took_before) = scanned();
    let folding = Folding { before: i64::MAX, given_up: &AtomicBool::new(false), reached: &reached };
    let took = timed(|| {
        store.compact(&folding).expect("compacted");
    });
    let (left, took_after) = scanned();
    let mut live = left;
    for table in Table::ALL {
        let mut of_it = 0u64;
        let mut visit = |key: &[u8], value: &[u8]| {
            of_it += (key.len() + value.len()) as u64;
            ControlFlow::Continue(())
        };
        store.scan_rows(*table, &[], None, &mut visit).expect("scanned");
        live += of_it;
    }
    let disk = store.disk_bytes() as f64;
    report.ratio("disk after a compaction, of the bytes of all that is in it", "bytes", Goal::None, live as f64, disk);
    report.ratio("disk after a compaction", "bytes", Goal::AtMost(1.3), bytes as f64, disk);
    report.ratio("disk after a compaction, of what is left of the events", "bytes", Goal::None, left as f64, disk);
    let rate = |bytes: u64, took: Duration| bytes as f64 / 1_048_576.0 / took.as_secs_f64();
    let (before, after) = (rate(before, took_before), rate(left, took_after));
    report.ratio("a scan of the whole log after it, of one before", "MiB/s", Goal::None, before, after);
    report.number("compaction, whole", "ms", Goal::None, took.as_secs_f64() * 1_000.0);
    report.number("compaction, the renames", "ms", Goal::None, wait.get().as_secs_f64() * 1_000.0);
}
