//! The only place that asks the time.
//!
//! Time comes in with a command and is never read by a decision or a fold. Tests inject their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use chrono::{DateTime, SecondsFormat, Utc};

/// Milliseconds since 1970-01-01T00:00:00Z.
pub type Millis = i64;

/// Where the host's time comes from. Cheap to clone.
#[derive(Clone, Default)]
pub struct Clock {
    /// In tests, the time that stands until it is moved.
    fixed: Option<Arc<AtomicI64>>,
}

impl Clock {
    /// The clock of the machine.
    pub fn system() -> Self {
        Self::default()
    }

    /// A clock that stands at `at` until [`Clock::advance`].
    pub fn fixed(at: Millis) -> Self {
        Self { fixed: Some(Arc::new(AtomicI64::new(at))) }
    }

    /// Now.
    #[allow(clippy::disallowed_methods)]
    pub fn now(&self) -> Millis {
        match &self.fixed {
            Some(at) => at.load(Ordering::Acquire),
            None => Utc::now().timestamp_millis(),
        }
    }

    /// Moves a fixed clock on; does nothing to the machine's.
    pub fn advance(&self, by: Millis) {
        if let Some(at) = &self.fixed {
            at.fetch_add(by, Ordering::AcqRel);
        }
    }
}

/// `at` as AHP writes times: RFC 3339 in UTC with milliseconds (`2026-11-30T12:00:00.000Z`).
pub fn rfc3339(at: Millis) -> String {
    DateTime::<Utc>::from_timestamp_millis(at).unwrap_or_default().to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// The time that an RFC 3339 text names, to the millisecond.
pub fn parse_rfc3339(text: &str) -> Option<Millis> {
    DateTime::parse_from_rfc3339(text).ok().map(|t| t.timestamp_millis())
}
