//! A start over a log with many sessions: the engine's opening, and what the host does after it.

#![allow(clippy::expect_used, reason = "a benchmark that cannot go on may say so and end")]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use scrollback::actors::host::{Host, HostSettings};
use scrollback::agents;
use scrollback::clock::Clock;
use scrollback::events::Store;
use support::author::{self, Shape};

const SESSIONS: u64 = 2_000;

fn starts(c: &mut Criterion) {
    let directory = support::directory();
    let store = support::store(directory.path());
    author::write(&store, 0..SESSIONS, 2, Shape { deltas: 20, bytes: 60 });
    drop(store);
    let mut group = c.benchmark_group("start over 2,000 chats");
    group.bench_function("open", |b| b.iter_custom(|times| (0..times).map(|_| open(directory.path())).sum()));
    let store: Arc<dyn Store> = Arc::new(support::store(directory.path()));
    group.bench_function("ready after the store has opened", |b| {
        b.iter_custom(|times| (0..times).map(|_| start(&store)).sum());
    });
    group.finish();
}

/// One at a time: the store that was opened is closed before the next one is.
fn open(directory: &Path) -> Duration {
    let before = Instant::now();
    let store = support::store(directory);
    let opened = before.elapsed();
    drop(store);
    opened
}

fn start(store: &Arc<dyn Store>) -> Duration {
    actix_rt::System::new().block_on(async {
        let before = Instant::now();
        let agents = vec![agents::built_in()];
        let host = Host::start(HostSettings::default(), Arc::clone(store), agents, Clock::system()).expect("started");
        host.recover().await.expect("recovered");
        let ready = before.elapsed();
        host.stop().await;
        ready
    })
}

criterion_group! { name = benches; config = support::short(); targets = starts }
criterion_main!(benches);
