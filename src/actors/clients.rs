//! Which clients are here now, by client id.
//!
//! A client's entry in a session outlives its connection by a grace time: long enough to come back.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use super::connection::ConnectionId;

/// The connections of each client id.
#[derive(Default)]
pub struct Clients {
    live: Mutex<HashMap<Arc<str>, HashSet<ConnectionId>>>,
}

impl Clients {
    /// A connection has shaken hands as this client.
    pub fn arrived(&self, client_id: &Arc<str>, connection: ConnectionId) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.entry(Arc::clone(client_id)).or_default().insert(connection);
    }

    /// A connection of this client is gone.
    pub fn gone(&self, client_id: &Arc<str>, connection: ConnectionId) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connections) = live.get_mut(client_id) {
            connections.remove(&connection);
            if connections.is_empty() {
                live.remove(client_id);
            }
        }
    }

    /// Whether the client is here on another connection than this one.
    pub fn is_elsewhere(&self, client_id: &Arc<str>, connection: ConnectionId) -> bool {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.get(client_id).is_some_and(|connections| connections.iter().any(|id| *id != connection))
    }
}
