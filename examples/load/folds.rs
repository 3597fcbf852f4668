//! Decoding and folding, on one core and in memory. The clock is that of the thread: others on the machine do not count.

use std::hint::black_box;

use crate::Scale;
use crate::report::{Goal, Report, median};
use crate::support::folding::{self, Folding};

const ROUNDS: usize = 7;

pub fn measure(scale: Scale, report: &mut Report) {
    let count = scale.of(100_000, 20_000);
    for (name, folding) in [("deltas", Folding::deltas(count)), ("whole turns", Folding::mixed(count))] {
        let mut rates: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let before = on_core();
                black_box(folding.run());
                folding.len() as f64 / (on_core() - before)
            })
            .collect();
        let what = format!("parse and fold, {name}");
        report.number(&what, "actions/s and core", Goal::AtLeast(500_000.0), median(&mut rates));
    }
    let few = one_delta(10, 0);
    report.ratio("one delta at 10,000 parts, of 10 parts", "ns", Goal::AtMost(2.0), few, one_delta(10_000, 0));
    report.ratio("one delta after 10,000 turns, of none", "ns", Goal::AtMost(2.0), few, one_delta(10, 10_000));
}

/// Seconds that this thread has spent on a core.
fn on_core() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = stat.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok());
    nanos.map_or(f64::NAN, |nanos| nanos / 1e9)
}

/// Nanoseconds of one delta.
fn one_delta(parts: usize, turns: usize) -> f64 {
    const TIMES: usize = 100_000;
    let (mut fold, delta) = folding::running(parts, turns);
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let before = on_core();
            for _ in 0..TIMES {
                fold.apply(black_box(&delta), 0);
            }
            (on_core() - before) * 1e9 / TIMES as f64
        })
        .collect();
    median(&mut times)
}
