//! Durable appends: the store beside a plain file and beside the bare engine, each synced at every commit.

#![allow(clippy::expect_used, reason = "a benchmark that cannot go on may say so and end")]

mod support;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use scrollback::events::EventLog;
use support::limit::{self, BareSled, PlainFile};

fn commits(c: &mut Criterion) {
    let directory = support::directory();
    let store = support::store(directory.path());
    let mut plain = PlainFile::new(directory.path());
    let mut bare = BareSled::new(&directory.path().join("bare"), true);
    let batches = limit::commit();
    let bytes = limit::bytes_of(&batches);
    let actions: Vec<Bytes> = batches.iter().flat_map(|b| &b.events).map(|event| event.action.clone()).collect();
    let mut group = c.benchmark_group("append 64 events of 300 bytes");
    group.throughput(Throughput::Elements(limit::COMMIT_EVENTS as u64));
    group.bench_function("plain file", |b| b.iter(|| plain.commit(&bytes)));
    group.bench_function("store", |b| b.iter(|| store.append(&batches).expect("appended")));
    group.bench_function("bare engine with an index by channel", |b| b.iter(|| bare.commit(&actions)));
    group.finish();
}

fn single(c: &mut Criterion) {
    let directory = support::directory();
    let store = support::store(directory.path());
    let mut plain = PlainFile::new(directory.path());
    let batches = limit::commit();
    let one = batches.get(..1).unwrap_or_default();
    let bytes = limit::bytes_of(one);
    let mut group = c.benchmark_group("append one event");
    group.bench_function("plain file", |b| b.iter(|| plain.commit(&bytes)));
    group.bench_function("store", |b| b.iter(|| store.append(one).expect("appended")));
    group.finish();
}

criterion_group! { name = benches; config = support::short(); targets = commits, single }
criterion_main!(benches);
