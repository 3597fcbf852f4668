//! What is remembered of a client beyond its connection: whose it is, its version, and how far back it looked.
//!
//! A client id is only a key to come back with, never an identity: it belongs to the principal that used it first.
//! Source: AHP `reconnect`; AHP threat model.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::actors::connection::Window;
use crate::clock::Millis;

/// How many clients are kept in memory; the one that was not used for longest goes first.
const KEPT: usize = 100_000;
/// How many windows of one client are kept.
const WINDOWS: usize = 10_000;

/// A client as it was when it was last here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RememberedClient {
    /// Who used this client id first.
    pub principal: Arc<str>,
    /// The protocol version that was agreed on.
    pub protocol_version: String,
    /// By the name of the channel that it used; a channel that it has all of is not in here.
    pub windows: HashMap<String, RememberedWindow>,
    /// When it was last here.
    pub used_at: Millis,
}

/// What a client saw of a channel's turns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RememberedWindow {
    /// `view.turns` of its last subscription; `None` asked for all.
    pub turns: Option<u64>,
    /// The oldest turn that it was shown; `None` where it has all.
    pub oldest: Option<Window>,
}

/// The client id belongs to somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this client id belongs to somebody else")]
pub struct Foreign;

/// Where clients are remembered.
pub trait ClientMemory: Send + Sync {
    /// What is known of `client_id`.
    fn recall(&self, client_id: &str) -> Option<RememberedClient>;

    /// Replaces what is known of `client_id`.
    ///
    /// # Errors
    /// [`Foreign`] when it belongs to another principal; then nothing changes. Check and change are one step.
    fn remember(&self, client_id: &str, client: RememberedClient) -> Result<(), Foreign>;

    /// Notes what `client_id`, which is remembered, sees of the channel that it calls `channel`.
    fn remember_window(&self, client_id: &str, channel: &str, window: RememberedWindow);
}

/// A memory that ends with the process.
#[derive(Debug, Default)]
pub struct InMemory {
    clients: Mutex<HashMap<String, RememberedClient>>,
}

impl ClientMemory for InMemory {
    fn recall(&self, client_id: &str) -> Option<RememberedClient> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).get(client_id).cloned()
    }

    fn remember(&self, client_id: &str, client: RememberedClient) -> Result<(), Foreign> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if clients.get(client_id).is_some_and(|known| known.principal != client.principal) {
            return Err(Foreign);
        }
        clients.insert(client_id.to_owned(), client);
        if clients.len() > KEPT {
            forget_older_half(&mut clients);
        }
        Ok(())
    }

    fn remember_window(&self, client_id: &str, channel: &str, window: RememberedWindow) {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(client) = clients.get_mut(client_id) else { return };
        if window == RememberedWindow::default() {
            client.windows.remove(channel);
        } else if client.windows.len() < WINDOWS || client.windows.contains_key(channel) {
            client.windows.insert(channel.to_owned(), window);
        }
    }
}

/// Halves rather than removing one at a time, so that the cost of a look at all is paid rarely.
fn forget_older_half(clients: &mut HashMap<String, RememberedClient>) {
    let mut ages: Vec<Millis> = clients.values().map(|client| client.used_at).collect();
    let middle = ages.len() / 2;
    let (_, median, _) = ages.select_nth_unstable(middle);
    let median = *median;
    clients.retain(|_, client| client.used_at >= median);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(principal: &str, used_at: Millis) -> RememberedClient {
        RememberedClient {
            principal: Arc::from(principal),
            protocol_version: "1.0.0".into(),
            windows: HashMap::new(),
            used_at,
        }
    }

    #[test]
    fn a_client_id_belongs_to_whoever_used_it_first() {
        let memory = InMemory::default();
        assert_eq!(memory.remember("c", client("user:a", 1)), Ok(()));
        assert_eq!(memory.remember("c", client("user:b", 2)), Err(Foreign));
        assert_eq!(memory.remember("c", client("user:a", 3)), Ok(()));
        assert_eq!(memory.recall("c").unwrap().used_at, 3);
    }

    #[test]
    fn the_longest_unused_clients_are_forgotten_first() {
        let mut clients: HashMap<String, RememberedClient> =
            (0..10).map(|n| (n.to_string(), client("user:a", n))).collect();
        forget_older_half(&mut clients);
        assert!(clients.contains_key("9") && !clients.contains_key("0"));
    }
}
