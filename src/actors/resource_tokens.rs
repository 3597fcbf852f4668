//! The tokens that clients gave for the resources that agents advertise.
//!
//! Used by the host, which takes them, and by agents, which ask in the name of the person whose message they answer.
//! Always: a token is held in memory alone, for the connection that gave it, and gone with that; its `Debug` says nothing of
//! it, and its bytes are wiped when nobody holds it any more. Left out on purpose: scopes, which the endpoint judges, and
//! renewing, which is the client's.
//! Source: AHP `authenticate`; AHP threat model, tokens.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahp_types::notifications::AuthRequiredReason;
use secrecy::SecretString;

use super::connection::ConnectionId;
use crate::clock::Millis;

/// Bytes of the longest token that is taken.
pub const MAX_TOKEN: usize = 16 << 10;

/// All tokens of a host.
#[derive(Debug, Default)]
pub struct ResourceTokens(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    /// How many were given so far.
    given: u64,
    connections: HashMap<ConnectionId, OfConnection>,
}

/// What one connection gave, by resource.
#[derive(Debug)]
struct OfConnection {
    principal: Arc<str>,
    tokens: HashMap<String, Given>,
}

#[derive(Debug)]
struct Given {
    /// Its place among all that were given.
    number: u64,
    /// `None` for one that is over: what is left says so.
    token: Option<SecretString>,
    expires_at: Option<Millis>,
}

/// A token to ask with.
#[derive(Debug, Clone)]
pub struct ResourceToken {
    number: u64,
    pub secret: SecretString,
}

impl ResourceTokens {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a token of `principal` for `resource`, in place of the one that this connection gave before.
    pub fn give(
        &self,
        connection: ConnectionId,
        principal: &Arc<str>,
        resource: &str,
        token: SecretString,
        expires_at: Option<Millis>,
    ) {
        let mut held = self.held();
        held.given += 1;
        let given = Given { number: held.given, token: Some(token), expires_at };
        let of = held.connections.entry(connection);
        let of = of.or_insert_with(|| OfConnection { principal: Arc::clone(principal), tokens: HashMap::new() });
        of.tokens.insert(resource.to_owned(), given);
    }

    /// Forgets what this connection gave for `resource`.
    pub fn revoke(&self, connection: ConnectionId, resource: &str) {
        if let Some(of) = self.held().connections.get_mut(&connection) {
            of.tokens.remove(resource);
        }
    }

    /// Forgets all that this connection gave: it ends.
    pub fn gone(&self, connection: ConnectionId) {
        self.held().connections.remove(&connection);
    }

    /// The newest token for `resource` that a connection of `principal` gave and that is good at `now`.
    ///
    /// # Errors
    /// Why there is none.
    pub fn find(&self, principal: &str, resource: &str, now: Millis) -> Result<ResourceToken, AuthRequiredReason> {
        let mut held = self.held();
        let all = held.connections.values_mut();
        let of_person = all.filter(|of| *of.principal == *principal).filter_map(|of| of.tokens.get_mut(resource));
        let (mut newest, mut was_one): (Option<ResourceToken>, bool) = (None, false);
        for given in of_person {
            if given.expires_at.is_some_and(|at| at <= now) {
                given.token = None;
            }
            was_one = true;
            let is_newer = newest.as_ref().is_none_or(|newest| newest.number < given.number);
            if let Some(secret) = given.token.as_ref().filter(|_| is_newer) {
                newest = Some(ResourceToken { number: given.number, secret: secret.clone() });
            }
        }
        newest.ok_or(if was_one { AuthRequiredReason::Expired } else { AuthRequiredReason::Required })
    }

    /// Forgets this token: the resource did not take it.
    pub fn refused(&self, token: &ResourceToken) {
        let mut held = self.held();
        let all = held.connections.values_mut().flat_map(|of| of.tokens.values_mut());
        for given in all.filter(|given| given.number == token.number) {
            given.token = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    const R: &str = "https://api.example.com";

    fn give(tokens: &ResourceTokens, connection: ConnectionId, who: &str, token: &str, expires_at: Option<Millis>) {
        tokens.give(connection, &Arc::from(who), R, token.to_owned().into(), expires_at);
    }

    fn found(tokens: &ResourceTokens, who: &str, now: Millis) -> Result<String, AuthRequiredReason> {
        tokens.find(who, R, now).map(|token| token.secret.expose_secret().to_owned())
    }

    #[test]
    fn the_newest_good_token_of_a_person_is_found_and_no_other_persons() {
        let tokens = ResourceTokens::default();
        give(&tokens, 1, "user:ada", "a1", None);
        give(&tokens, 2, "user:ada", "a2", Some(50));
        give(&tokens, 3, "user:bob", "b", None);
        assert_eq!(found(&tokens, "user:ada", 49).as_deref(), Ok("a2"));
        assert_eq!(found(&tokens, "user:ada", 50).as_deref(), Ok("a1"));
        assert_eq!(found(&tokens, "user:eve", 0), Err(AuthRequiredReason::Required));
        assert!(tokens.find("user:ada", "https://other.example.com", 0).is_err());
        tokens.gone(1);
        assert_eq!(found(&tokens, "user:ada", 51), Err(AuthRequiredReason::Expired));
        tokens.revoke(2, R);
        assert_eq!(found(&tokens, "user:ada", 51), Err(AuthRequiredReason::Required));
        assert_eq!(found(&tokens, "user:bob", 51).as_deref(), Ok("b"));
    }

    #[test]
    fn a_refused_token_is_forgotten_and_one_that_was_given_since_is_not() {
        let tokens = ResourceTokens::default();
        give(&tokens, 1, "user:ada", "old", None);
        let old = tokens.find("user:ada", R, 0).unwrap();
        tokens.refused(&old);
        assert_eq!(found(&tokens, "user:ada", 0), Err(AuthRequiredReason::Expired));
        give(&tokens, 1, "user:ada", "new", None);
        tokens.refused(&old);
        assert_eq!(found(&tokens, "user:ada", 0).as_deref(), Ok("new"));
    }

    #[test]
    fn no_debug_shows_a_token() {
        let tokens = ResourceTokens::default();
        give(&tokens, 1, "user:ada", "sesame", None);
        let found = tokens.find("user:ada", R, 0).unwrap();
        let shown = format!("{tokens:?} {found:#?}");
        assert!(shown.contains("user:ada") && !shown.contains("sesame"), "{shown}");
    }
}
