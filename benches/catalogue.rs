//! A page of the list of sessions among many.

#![allow(clippy::expect_used, reason = "a benchmark that cannot go on may say so and end")]

mod support;

use criterion::{Criterion, criterion_group, criterion_main};
use scrollback::projections::catalogue;
use support::author::{self, Shape};

const SESSIONS: u64 = 100_000;

fn pages(c: &mut Criterion) {
    let directory = support::directory();
    let store = support::store(directory.path());
    author::write(&store, 0..SESSIONS, 0, Shape { deltas: 0, bytes: 0 });
    c.bench_function("a page of 100 among 100,000 sessions", |b| {
        b.iter(|| {
            let page = catalogue::page(&store, 100, None, |_| true).expect("read").expect("a page");
            serde_json::to_string(&page.0)
        });
    });
}

criterion_group! { name = benches; config = support::short(); targets = pages }
criterion_main!(benches);
