//! A page of 100 of the list of sessions.

use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use crate::Scale;
use crate::child::{self, number};
use crate::client::Client;
use crate::host::Running;
use crate::report::{Goal, Report, percentile};
use crate::support::author::{self, Shape};
use crate::support::{directory, store};

pub fn measure(scale: Scale, report: &mut Report) {
    let directory = directory();
    let sessions = scale.of(100_000, 10_000);
    author::write(&store(directory.path()), 0..sessions, 0, Shape { deltas: 0, bytes: 0 });
    let found = child::of("list", directory.path(), "");
    let what = format!("listSessions, 100 of {sessions}");
    report.number(&format!("{what}, p50"), "ms", Goal::AtMost(5.0), number(&found, "median"));
    report.number(&format!("{what}, the first one cold"), "ms", Goal::None, number(&found, "first"));
}

/// Milliseconds of the first page, and of the median of the pages after it.
pub fn cold(directory: &Path) -> Value {
    let running = Running::on(directory);
    let mut client = Client::shaken(running.address, "lister");
    let mut times = Vec::new();
    let mut cursor = Value::Null;
    for _ in 0..60 {
        let params = json!({ "channel": "ahp-root://", "limit": 100, "cursor": cursor });
        let before = Instant::now();
        let answer = client.ask_raw("listSessions", &params);
        times.push(before.elapsed());
        let answer: Value = serde_json::from_slice(&answer).expect("JSON");
        cursor = answer.pointer("/result/nextCursor").cloned().unwrap_or_default();
    }
    let first = times.first().map_or(f64::NAN, |time| time.as_secs_f64() * 1_000.0);
    json!({ "first": first, "median": percentile(&mut times, 0.5) })
}
