//! Reading back: a scan of one channel, and the wake of a chat with a long past.

#![allow(clippy::expect_used, reason = "a benchmark that cannot go on may say so and end")]

mod support;

use std::ops::ControlFlow;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use scrollback::events::{EventLog, ServerSeq, Store};
use scrollback::projections::chat::ChatFold;
use scrollback::projections::replay;
use scrollback::projections::turns::{self, PageLimit};
use support::author::{self, Shape};

fn scans(c: &mut Criterion) {
    let directory = support::directory();
    let store = support::store(directory.path());
    let (events, _) = author::write(&store, 0..20, 40, Shape { deltas: 20, bytes: 200 });
    let (chat, _) = support::channels_of(&store, 7);
    let mut group = c.benchmark_group("scan");
    let mut count = 0;
    store
        .scan_channel(chat, 0, ServerSeq::MAX, &mut |_| {
            count += 1;
            ControlFlow::Continue(())
        })
        .expect("read");
    group.throughput(Throughput::Elements(count));
    group.bench_function("one channel of 20", |b| {
        b.iter(|| store.scan_channel(chat, 0, ServerSeq::MAX, &mut |_| ControlFlow::Continue(())).expect("read"));
    });
    group.throughput(Throughput::Elements(events));
    group.bench_function("the line", |b| {
        b.iter(|| store.scan(0, ServerSeq::MAX, &mut |_| ControlFlow::Continue(())).expect("read"));
    });
    group.finish();
}

fn wakes(c: &mut Criterion) {
    let directory = support::directory();
    let store = support::store(directory.path());
    let mut group = c.benchmark_group("wake with the newest 50 turns");
    for (number, turns) in [(1, 100), (2, 10_000)] {
        author::write(&store, number..number + 1, turns, Shape { deltas: 2, bytes: 100 });
        group.bench_function(format!("{turns} turns"), |b| b.iter(|| wake(&store, number)));
    }
    group.finish();
}

fn wake(store: &dyn Store, number: u64) -> String {
    let (chat, _) = support::channels_of(store, number);
    let at = replay::fold::<ChatFold>(store, chat, ServerSeq::MAX, true).expect("folded").expect("a chat");
    let limit = PageLimit { turns: 50, bytes: 48 << 20 };
    replay::chat_json(&at.fold, limit, |n| turns::read(store, chat, n)).expect("read").0
}

criterion_group! { name = benches; config = support::short(); targets = scans, wakes }
criterion_main!(benches);
