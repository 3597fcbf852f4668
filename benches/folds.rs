//! Stored actions decoded and folded: deltas, whole turns, and one delta beside many parts and many turns.

#![allow(clippy::expect_used, reason = "a benchmark that cannot go on may say so and end")]

mod support;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use scrollback::projections::action::Action;
use support::folding::{self, Folding};

fn actions(c: &mut Criterion) {
    let mut group = c.benchmark_group("decode and fold");
    for (name, folding) in [("deltas", Folding::deltas(1_000)), ("whole turns", Folding::mixed(1_000))] {
        group.throughput(Throughput::Elements(folding.len()));
        group.bench_function(name, |b| b.iter(|| folding.run()));
    }
    group.finish();
}

fn one_delta(c: &mut Criterion) {
    let mut group = c.benchmark_group("one delta");
    for (parts, turns) in [(10, 0), (1_000, 0), (10_000, 0), (10, 10_000)] {
        let (mut fold, delta) = folding::running(parts, turns);
        group.bench_function(format!("{parts} parts, {turns} turns"), |b| b.iter(|| fold.apply(&delta, 0)));
    }
    group.bench_function("written by the host", |b| {
        b.iter(|| Action::host(support::author::delta("turn-1", "p", "a word or two ")));
    });
    group.finish();
}

criterion_group! { name = benches; config = support::short(); targets = actions, one_delta }
criterion_main!(benches);
