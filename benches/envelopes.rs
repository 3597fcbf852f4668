//! An event's frame: the stored bytes spliced in, beside the same written from the decoded action.

#![allow(clippy::expect_used, reason = "a benchmark that cannot go on may say so and end")]

mod support;

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use scrollback::actors::envelope::Envelope;
use scrollback::projections::action::Action;
use serde_json::json;

fn frames(c: &mut Criterion) {
    let batches = support::limit::commit();
    let event = batches.first().and_then(|batch| batch.events.first()).expect("an event");
    let mut group = c.benchmark_group("frame of a delta of 300 bytes");
    group.throughput(Throughput::Elements(1));
    group.bench_function("spliced", |b| {
        b.iter(|| Envelope::new(event.channel.clone(), event.channel_id, 7, None, black_box(&event.action)));
    });
    let decoded = Action::from_stored(event.action.clone()).expect("an action").decoded;
    group.bench_function("serialised", |b| {
        b.iter(|| {
            let params = json!({ "channel": event.channel.as_str(), "action": black_box(&decoded), "serverSeq": 7 });
            json!({ "jsonrpc": "2.0", "method": "action", "params": params }).to_string()
        });
    });
    group.finish();
}

criterion_group! { name = benches; config = support::short(); targets = frames }
criterion_main!(benches);
