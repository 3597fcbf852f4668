//! Whether the log is what was written, as it is told.

use serde::{Deserialize, Serialize};

use crate::events::Store;
use crate::projections::verify::{self as checks, Fault, Verified};

/// The answer of `log verify` and `/api/log/verify`.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub ok: bool,
    pub events: u64,
    pub channels: u64,
    pub checkpoints: u64,
    /// The first fault, with the event that it is at where it is at one; nothing is counted then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

impl Verdict {
    /// The same, with `fault` where nothing else was found: what is not there cannot be read and found at fault.
    #[must_use]
    pub fn or_fault(self, fault: Option<&str>) -> Self {
        match fault {
            Some(fault) if self.ok => Self { fault: Some(fault.to_owned()), ..Self::default() },
            _ => self,
        }
    }
}

/// Reads every record, folds every channel again and says what was found; `progress` is told how many events were read
/// so far.
pub fn verify(store: &dyn Store, progress: &mut dyn FnMut(u64)) -> Verdict {
    match checks::verify(store, progress) {
        Ok(Verified { events, channels, checkpoints }) => {
            Verdict { ok: true, events, channels, checkpoints, fault: None }
        }
        Err(fault) => Verdict { fault: Some(words(&fault)), ..Verdict::default() },
    }
}

fn words(fault: &Fault) -> String {
    match fault.seq {
        Some(seq) if !fault.problem.contains(&format!("event {seq}")) => format!("event {seq}: {fault}"),
        _ => fault.to_string(),
    }
}
