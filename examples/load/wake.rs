//! The first subscription to a chat that sleeps, with its newest 50 turns.

use std::path::Path;
use std::time::Instant;

use scrollback::actors::registry::first_chat_uri;
use serde_json::{Value, json};

use crate::Scale;
use crate::child::{self, number};
use crate::client::Client;
use crate::host::Running;
use crate::report::{Goal, Report, median};
use crate::support::author::{self, Shape};
use crate::support::{directory, store};

const ROUNDS: usize = 5;

pub fn measure(scale: Scale, report: &mut Report) {
    let directory = directory();
    let (shape, turns) = (Shape { deltas: 4, bytes: 100 }, scale.of(10_000, 2_000));
    let log = store(directory.path());
    author::write(&log, 0..1, turns, shape);
    author::write(&log, 1..2, turns / 10, shape);
    drop(log);
    let (mut long, mut short) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        long.push(number(&child::of("wake", directory.path(), "0"), "ms"));
        short.push(number(&child::of("wake", directory.path(), "1"), "ms"));
    }
    let (long, short) = (median(&mut long), median(&mut short));
    report.number(&format!("cold wake of a chat of {turns} turns, newest 50"), "ms", Goal::AtMost(20.0), long);
    report.ratio(&format!("cold wake, {turns} turns, of a tenth of them"), "ms", Goal::AtMost(2.0), short, long);
}

/// Milliseconds until the snapshot of a chat of a host that has just started.
pub fn cold(directory: &Path, number: &str) -> Value {
    let running = Running::on(directory);
    let mut client = Client::shaken(running.address, "waker");
    let chat = first_chat_uri(&format!("ahp-session:/load-{number}"));
    let before = Instant::now();
    let answer = client.ask_raw("subscribe", &json!({ "channel": chat, "view": { "turns": 50 } }));
    let ms = before.elapsed().as_secs_f64() * 1_000.0;
    json!({ "ms": ms, "bytes": answer.len() })
}
