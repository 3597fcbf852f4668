//! Whether the log is what was written.

use std::collections::HashSet;
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use crate::events::{LogFault, Store, Table};

/// The answer of `log verify` and `/api/log/verify`.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub ok: bool,
    pub events: u64,
    pub channels: u64,
    pub checkpoints: u64,
    /// The first fault; what was counted lies before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// Reads every event and says what was found; `progress` is told how many there were so far.
pub fn verify(store: &dyn Store, progress: &mut dyn FnMut(u64)) -> Verdict {
    let mut verdict = Verdict::default();
    match read_all(store, &mut verdict, progress) {
        Ok(()) => verdict.ok = true,
        Err(fault) => verdict.fault = Some(fault.to_string()),
    }
    verdict
}

/// How many events are read between two calls of `progress`.
const STRIDE: u64 = 10_000;

/// The store compares each record with its checksum; the folds are not compared with their checkpoints here.
fn read_all(store: &dyn Store, verdict: &mut Verdict, progress: &mut dyn FnMut(u64)) -> Result<(), LogFault> {
    let mut channels = HashSet::new();
    let read = store.scan(0, store.tail(), &mut |record| {
        verdict.events += 1;
        channels.insert(record.channel_id);
        if verdict.events.is_multiple_of(STRIDE) {
            progress(verdict.events);
        }
        ControlFlow::Continue(())
    });
    verdict.channels = channels.len() as u64;
    read?;
    store.scan_rows(Table::Checkpoint, &[], None, &mut |_, _| {
        verdict.checkpoints += 1;
        ControlFlow::Continue(())
    })
}
