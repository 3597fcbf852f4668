//! The only place that asks the time.
//!
//! Time comes in with a command and is never read by a decision or a fold. Tests inject their own.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use tokio::sync::watch;

/// Milliseconds since 1970-01-01T00:00:00Z.
pub type Millis = i64;

/// How long the machine's clock is waited for before it is read again: it may be set meanwhile.
const READ_AGAIN: Duration = Duration::from_secs(30);

/// Where the host's time comes from. Cheap to clone.
#[derive(Clone, Default)]
pub struct Clock {
    /// In tests, the time that stands until it is moved.
    fixed: Option<Arc<watch::Sender<Millis>>>,
}

impl Clock {
    /// The clock of the machine.
    pub fn system() -> Self {
        Self::default()
    }

    /// A clock that stands at `at` until [`Clock::advance`].
    pub fn fixed(at: Millis) -> Self {
        Self { fixed: Some(Arc::new(watch::Sender::new(at))) }
    }

    /// Now.
    #[allow(clippy::disallowed_methods)]
    pub fn now(&self) -> Millis {
        match &self.fixed {
            Some(at) => *at.borrow(),
            None => Utc::now().timestamp_millis(),
        }
    }

    /// Moves a fixed clock on; does nothing to the machine's.
    pub fn advance(&self, by: Millis) {
        if let Some(at) = &self.fixed {
            at.send_modify(|at| *at = at.saturating_add(by));
        }
    }

    /// Waits until it is `at` or later. A fixed clock gets there when it is moved. Needs a runtime with a timer.
    pub async fn wait_until(&self, at: Millis) {
        if let Some(fixed) = &self.fixed {
            // It fails when the clock is gone, and it is not while `self` holds it.
            let _ = fixed.subscribe().wait_for(|now| *now >= at).await;
            return;
        }
        loop {
            let left = u64::try_from(at.saturating_sub(self.now())).unwrap_or(0);
            if left == 0 {
                return;
            }
            tokio::time::sleep(READ_AGAIN.min(Duration::from_millis(left))).await;
        }
    }

    /// Waits for `span`, counted from now.
    pub async fn wait(&self, span: Duration) {
        self.wait_until(later(self.now(), span)).await;
    }
}

/// The time that is `span` after `at`.
pub fn later(at: Millis, span: Duration) -> Millis {
    at.saturating_add(Millis::try_from(span.as_millis()).unwrap_or(Millis::MAX))
}

/// `at` as AHP writes times: RFC 3339 in UTC with milliseconds (`2026-11-30T12:00:00.000Z`).
pub fn rfc3339(at: Millis) -> String {
    DateTime::<Utc>::from_timestamp_millis(at).unwrap_or_default().to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// The time that an RFC 3339 text names, to the millisecond.
pub fn parse_rfc3339(text: &str) -> Option<Millis> {
    DateTime::parse_from_rfc3339(text).ok().map(|t| t.timestamp_millis())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    /// Whether `waits` is over, asked once.
    async fn is_over(waits: &mut std::pin::Pin<&mut impl Future<Output = ()>>) -> bool {
        poll_fn(|cx| Poll::Ready(waits.as_mut().poll(cx).is_ready())).await
    }

    #[tokio::test]
    async fn a_fixed_clock_is_waited_for_until_it_is_moved_there() {
        let clock = Clock::fixed(1_000);
        let mut waits = pin!(clock.wait_until(3_000));
        assert!(!is_over(&mut waits).await);
        clock.advance(1_999);
        assert!(!is_over(&mut waits).await);
        clock.advance(1);
        assert!(is_over(&mut waits).await);
        clock.wait_until(3_000).await;
        clock.wait(Duration::ZERO).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_of_the_machine_is_waited_for_by_its_own_time() {
        let clock = Clock::system();
        let before = clock.now();
        clock.wait_until(before - 1).await;
        clock.wait(Duration::from_millis(5)).await;
        assert!(clock.now() >= before + 5);
    }

    #[test]
    fn no_span_is_too_long_to_be_added() {
        assert_eq!(later(5, Duration::from_secs(1)), 1_005);
        assert_eq!(later(5, Duration::MAX), Millis::MAX);
    }
}
