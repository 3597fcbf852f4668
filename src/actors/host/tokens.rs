//! `authenticate`, and what is left of it when a connection ends.

use ahp_types::state::ProtectedResourceMetadata;
use secrecy::{ExposeSecret as _, SecretString};

use super::Host;
use crate::actors::command::{Refusal, RefusalKind};
use crate::actors::connection::{Caller, ConnectionId};
use crate::clock::Millis;

impl Host {
    /// Takes a token of `caller`'s for a resource that an agent advertises; the empty one takes back what this connection gave
    /// for it. It is not used from `expires_at` on.
    ///
    /// # Errors
    /// A refusal for a resource that no agent advertises.
    pub fn authenticate(
        &self,
        caller: &Caller,
        resource: &str,
        token: SecretString,
        expires_at: Option<Millis>,
    ) -> Result<(), Refusal> {
        let agents = self.shared.agents.iter();
        let mut advertised = agents.flat_map(|agent| agent.info().protected_resources.unwrap_or_default());
        if !advertised.any(|of: ProtectedResourceMetadata| of.resource == resource) {
            let message = "resource: no agent of this host advertises it";
            return Err(Refusal::new(RefusalKind::InvalidParams, "unknown-resource", message));
        }
        let (tokens, connection) = (&self.shared.resource_tokens, caller.connection.id);
        match token.expose_secret().is_empty() {
            true => tokens.revoke(connection, resource),
            false => tokens.give(connection, &caller.principal, resource, token, expires_at),
        }
        Ok(())
    }

    /// Forgets the tokens that this connection gave.
    pub fn forget_tokens(&self, connection: ConnectionId) {
        self.shared.resource_tokens.gone(connection);
    }
}
