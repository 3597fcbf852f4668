//! Who is behind a connection or a request, as it was admitted.
//!
//! What somebody may do is not in here: it is read from the people at every command.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Millis;
use crate::projections::people::{Role, USER};

/// What the deployment's principal begins with.
const ROOT: &str = "root:";

/// Somebody who was let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// `user:<id>`, or `root:<host>` for the deployment's token, this run's secret and an open loopback address.
    pub principal: Arc<str>,
    /// The roles that its issuer says it has, beside those that it was given here.
    pub roles: Arc<[Role]>,
    /// What the token that it came with is called; `None` for one of an issuer, and for the deployment's.
    pub token: Option<Arc<str>>,
    /// When it ends to be who it is; `None` for never.
    pub expires_at: Option<Millis>,
}

impl Identity {
    /// The deployment of the host called so: it may do everything.
    pub fn root(host_name: &str) -> Self {
        Self::bare(&format!("{ROOT}{host_name}"))
    }

    /// A person with a token of this host.
    pub fn person(name: &str, token: &str, expires_at: Option<Millis>) -> Self {
        let principal = Arc::from(format!("{USER}{name}"));
        Self { principal, roles: Arc::default(), token: Some(Arc::from(token)), expires_at }
    }

    /// A person with a token of an issuer.
    pub fn of_issuer(name: &str, roles: Vec<Role>, expires_at: Millis) -> Self {
        let principal = Arc::from(format!("{USER}{name}"));
        Self { principal, roles: roles.into(), token: None, expires_at: Some(expires_at) }
    }

    /// Somebody known by the principal alone, such as in whose name the host does something.
    pub fn bare(principal: &str) -> Self {
        Self { principal: Arc::from(principal), roles: Arc::default(), token: None, expires_at: None }
    }

    /// Whether a principal is the deployment's or a person's: neither the host's own nor an agent's.
    pub fn is_of_somebody(principal: &str) -> bool {
        principal.starts_with(ROOT) || principal.starts_with(USER)
    }

    /// Whether it may do everything.
    pub fn is_root(&self) -> bool {
        self.principal.starts_with(ROOT)
    }

    /// How long it goes on being who it is; `None` for ever.
    pub fn time_left(&self, now: Millis) -> Option<Duration> {
        let left = self.expires_at?.saturating_sub(now);
        Some(Duration::from_millis(u64::try_from(left).unwrap_or(0)))
    }

    /// Whether its time is over.
    pub fn is_over(&self, now: Millis) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}
