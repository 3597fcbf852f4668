//! What the process says of itself to those who run it: what it logs, to clients that ask for it, and the trail of requests and
//! turns.
//!
//! A log line that clients are given is one that went to stderr too: the same level, the same directives. Nothing that people
//! and agents say is in it. Source: AHP telemetry channel; OTLP, the data model of logs.

mod records;
mod traces;

use std::sync::{Arc, Mutex, PoisonError, Weak};

pub use records::{Record, Severity, ToClients, payload};
pub use traces::Traces;

/// What the names of the channels begin with; a severity follows.
const CHANNEL: &str = "ahp-otlp://logs/";
/// The channels, as clients are told of them.
pub const TEMPLATE: &str = "ahp-otlp://logs/{level}";
/// What the spans of a request's or a turn's trail are called by, for who picks them out.
pub const TRAIL: &str = "scrollback::trail";

/// The channel of logs that `uri` names: its severity is read in any case.
pub fn channel_of(uri: &str) -> Option<String> {
    let severity = uri.strip_prefix(CHANNEL).and_then(Severity::of)?;
    Some(format!("{CHANNEL}{}", severity.name()))
}

/// The channels of logs, and the least severity of each.
pub fn channels() -> impl Iterator<Item = (String, Severity)> {
    Severity::ALL.into_iter().map(|severity| (format!("{CHANNEL}{}", severity.name()), severity))
}

/// Whether `channel` is one of telemetry, there or not.
pub fn is_telemetry(channel: &str) -> bool {
    channel.starts_with("ahp-otlp:")
}

/// Who is told what is logged.
pub trait Reader: Send + Sync {
    /// Takes records, oldest first. Hands them over and returns.
    fn told(&self, records: &Arc<[Record]>);
}

static READERS: Mutex<Vec<Weak<dyn Reader>>> = Mutex::new(Vec::new());

/// Tells `reader` what is logged from now on, for as long as it is there.
pub fn read_by(reader: Weak<dyn Reader>) {
    READERS.lock().unwrap_or_else(PoisonError::into_inner).push(reader);
}

fn tell(records: &Arc<[Record]>) {
    let mut readers = READERS.lock().unwrap_or_else(PoisonError::into_inner);
    readers.retain(|reader| reader.strong_count() > 0);
    let there: Vec<Arc<dyn Reader>> = readers.iter().filter_map(Weak::upgrade).collect();
    drop(readers);
    there.iter().for_each(|reader| reader.told(records));
}
