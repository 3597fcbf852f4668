//! What is near a limit, or went wrong: said before somebody is refused.

use serde::Serialize;

use super::counted::Counted;
use super::{Connected, Now};

/// How much of a limit is near it, in percent.
const NEAR: u64 = 80;
/// The disk is nearly full when this many times the room that is kept free is left.
const ROOM: u64 = 8;

/// What the host may have, as far as somebody has to be warned before.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    pub connections: usize,
    pub connections_of_one: usize,
    pub sessions: Option<usize>,
    /// Bytes that stay free on the disk.
    pub min_free: u64,
}

/// Something to look after.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// Whether something does not work now.
    pub serious: bool,
    /// The configuration's key, or the metric, that it is about.
    pub about: &'static str,
    pub text: String,
}

impl Limits {
    /// What there is to warn of.
    pub(super) fn warnings(
        &self,
        now: &Now,
        connected: &[Connected],
        problem: Option<&str>,
        counted: &Counted,
    ) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let mut warn = |serious, about, text: String| warnings.push(Warning { serious, about, text });
        if let Some(problem) = problem {
            warn(true, "log", format!("The log takes no events: {problem}."));
        }
        if now.commits_failed > 0 {
            let text = format!("{} commits failed since the start; what was in them was refused.", now.commits_failed);
            warn(true, "scrollback_commits_failed_total", text);
        }
        if let Some(free) = now.free_bytes.filter(|free| *free < self.min_free.saturating_mul(ROOM)) {
            let text =
                format!("The disk has {} MiB left; below {} nothing is appended.", free >> 20, self.min_free >> 20);
            warn(false, "min_free", text);
        }
        if is_near(now.connections, self.connections) {
            let text = format!("{} of {} connections are taken.", now.connections, self.connections);
            warn(false, "max_connections", text);
        }
        for one in connected.iter().filter(|one| is_near(one.connections, self.connections_of_one)) {
            let text = format!("{} has {} of {} connections.", one.principal, one.connections, self.connections_of_one);
            warn(false, "max_connections_per_person", text);
        }
        if let Some(most) = self.sessions.filter(|most| is_near(usize::try_from(now.sessions).unwrap_or(0), *most)) {
            warn(false, "max_sessions", format!("There are {} of {most} sessions.", now.sessions));
        }
        let failed = counted.get("scrollback_tls_reloads_failed_total");
        if failed > 0.0 {
            let text =
                format!("A changed certificate or key could not be used, {failed} times; the one before it stays.");
            warn(false, "scrollback_tls_reloads_failed_total", text);
        }
        warnings
    }
}

fn is_near(there: usize, most: usize) -> bool {
    most > 0 && there as u64 * 100 >= most as u64 * NEAR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_far_from_a_limit_and_each_is_said_near_it() {
        let limits = Limits { connections: 100, connections_of_one: 10, sessions: Some(10), min_free: 64 << 20 };
        let quiet = Now { connections: 79, sessions: 7, free_bytes: Some(10 << 30), ..Now::default() };
        let one = |connections| [Connected { principal: "user:ada".into(), connections }];
        let counted = Counted::default();
        assert_eq!(limits.warnings(&quiet, &one(7), None, &counted), []);
        let busy =
            Now { connections: 80, sessions: 8, free_bytes: Some(511 << 20), commits_failed: 1, ..Now::default() };
        let said = limits.warnings(&busy, &one(8), Some("no room"), &counted);
        let about: Vec<&str> = said.iter().map(|warning| warning.about).collect();
        let expected = [
            "log",
            "scrollback_commits_failed_total",
            "min_free",
            "max_connections",
            "max_connections_per_person",
            "max_sessions",
        ];
        assert_eq!(about, expected);
        assert_eq!(said.iter().filter(|warning| warning.serious).count(), 2);
    }
}
