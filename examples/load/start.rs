//! A start over a long log, and over one a tenth as long.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use scrollback::events::EventLog;
use serde_json::{Value, json};

use crate::Scale;
use crate::child::{self, number, resident};
use crate::host::{self, Running};
use crate::report::{Goal, Report, median};
use crate::support::author::{self, Shape};
use crate::support::{directory, store};

const ROUNDS: usize = 3;
const MIB: f64 = 1_048_576.0;

pub fn measure(scale: Scale, report: &mut Report) {
    let chats = scale.of(10_000, 1_000);
    let (long, short) = (directory(), directory());
    let shape = Shape { deltas: 20, bytes: 60 };
    let log = store(long.path());
    let (events, bytes) = author::write(&log, 0..chats, 4, shape);
    let what = format!("disk, {events} events that came in large commits");
    report.ratio(&what, "bytes", Goal::None, bytes as f64, log.disk_bytes() as f64);
    drop(log);
    author::write(&store(short.path()), 0..chats / 10, 4, shape);
    let mut found: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        let (of_long, of_short) = (child::of("start", long.path(), ""), child::of("start", short.path(), ""));
        for (values, value) in found.iter_mut().zip([
            number(&of_long, "open"),
            number(&of_long, "ready"),
            number(&of_long, "resident"),
            number(&of_short, "resident"),
        ]) {
            values.push(value);
        }
    }
    let [open, ready, resident, resident_short] = found.map(|mut values| median(&mut values));
    let log = format!("{events} events in {chats} chats");
    report.number(&format!("opening the store, {log}"), "s", Goal::None, open);
    report.number(&format!("ready after the store has opened, {log}"), "s", Goal::AtMost(1.0), ready);
    let what = format!("memory when ready, {log}, of a tenth of it");
    report.ratio(&what, "MiB", Goal::AtMost(1.2), resident_short / MIB, resident / MIB);
}

/// Seconds to open the store and to listen after that, and the memory then.
pub fn cold(directory: &Path) -> Value {
    let before = Instant::now();
    let store = Arc::new(store(directory));
    let open = before.elapsed().as_secs_f64();
    let before = Instant::now();
    let running = Running::over(store, host::settings());
    let ready = before.elapsed().as_secs_f64();
    let found = json!({ "open": open, "ready": ready, "resident": resident() });
    drop(running);
    found
}
