//! How fast one connection is served: so many messages and bytes a second, and at once as many as in one second, or the longest
//! message.
//!
//! Who sends more is not read for a while, so that who sends little beside it is served soon. Nothing is refused.

use std::time::Duration;

use tokio::time::Instant;

/// What may still be served now; below zero, what has to be waited for.
pub struct Pace {
    messages: Allowance,
    bytes: Allowance,
    at: Instant,
}

struct Allowance {
    left: f64,
    a_second: f64,
    most: f64,
}

impl Allowance {
    fn new(a_second: usize, most: usize) -> Self {
        let most = most.max(a_second) as f64;
        Self { left: most, a_second: a_second.max(1) as f64, most }
    }

    fn refill(&mut self, passed: Duration) {
        self.left = (self.left + self.a_second * passed.as_secs_f64()).min(self.most);
    }

    /// How long until something is left.
    fn wait(&self) -> Duration {
        Duration::from_secs_f64((-self.left).max(0.0) / self.a_second)
    }
}

impl Pace {
    /// So many messages and bytes a second; `longest` is how long a message may be.
    pub fn new(messages: usize, bytes: usize, longest: usize, now: Instant) -> Self {
        Self { messages: Allowance::new(messages, 0), bytes: Allowance::new(bytes, longest), at: now }
    }

    /// So many bytes have arrived.
    pub fn took_bytes(&mut self, bytes: usize) {
        self.bytes.left -= bytes as f64;
    }

    /// A message is served.
    pub fn took_message(&mut self) {
        self.messages.left -= 1.0;
    }

    /// When the next may be served, where that is not now.
    pub fn waits_until(&mut self, now: Instant) -> Option<Instant> {
        let passed = now.saturating_duration_since(self.at);
        self.at = now;
        self.messages.refill(passed);
        self.bytes.refill(passed);
        let wait = self.messages.wait().max(self.bytes.wait());
        (!wait.is_zero()).then(|| now + wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_s_worth_goes_at_once_and_then_as_much_as_a_second_allows() {
        let start = Instant::now();
        let mut pace = Pace::new(10, 1_000, 0, start);
        for _ in 0..12 {
            assert_eq!(pace.waits_until(start).is_some(), pace.messages.left < 0.0);
            pace.took_message();
        }
        let wait = pace.waits_until(start).unwrap() - start;
        assert!((0.15..0.25).contains(&wait.as_secs_f64()), "{wait:?}");
        assert_eq!(pace.waits_until(start + Duration::from_secs(60)), None);
        assert!((pace.messages.left - 10.0).abs() < f64::EPSILON, "no more is saved up");
    }

    #[test]
    fn the_longest_message_may_come_at_once_and_is_worked_off_by_the_second() {
        let start = Instant::now();
        let mut pace = Pace::new(10, 1_000, 5_000, start);
        pace.took_bytes(5_000);
        assert_eq!(pace.waits_until(start), None);
        pace.took_bytes(2_000);
        assert_eq!(pace.waits_until(start), Some(start + Duration::from_secs(2)));
    }
}
