//! Which clients are here now, by client id, and in which sessions they offer something.
//!
//! A client's entry in a session outlives its connection by a grace time: long enough to come back. One that comes back says
//! which sessions it comes back to; where it is in none of its connections, it has left.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::connection::ConnectionId;
use crate::events::{Channel, ChannelId};

/// The connections of each client id.
#[derive(Default)]
pub struct Clients {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    live: HashMap<Arc<str>, HashMap<ConnectionId, Sees>>,
    /// The awake sessions that list a client as an active one.
    active: HashMap<Arc<str>, HashSet<ChannelId>>,
}

/// The sessions of a connection that came back; `None` for a new one, which may be in any.
type Sees = Option<HashSet<Channel>>;

impl Clients {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection has shaken hands as this client; `returns_to` are the channels that it comes back to.
    pub fn arrived(&self, client_id: &Arc<str>, connection: ConnectionId, returns_to: Option<HashSet<Channel>>) {
        let mut known = self.known();
        known.live.entry(Arc::clone(client_id)).or_default().insert(connection, returns_to);
    }

    /// The client uses a session on this connection.
    pub fn sees(&self, client_id: &Arc<str>, connection: ConnectionId, session: &Channel) {
        let mut known = self.known();
        let sees = known.live.get_mut(client_id).and_then(|connections| connections.get_mut(&connection));
        if let Some(Some(sees)) = sees {
            sees.insert(session.clone());
        }
    }

    /// A connection of this client is gone.
    pub fn gone(&self, client_id: &Arc<str>, connection: ConnectionId) {
        let mut known = self.known();
        if let Some(connections) = known.live.get_mut(client_id) {
            connections.remove(&connection);
            if connections.is_empty() {
                known.live.remove(client_id);
            }
        }
    }

    /// Whether the client may use `session` on another connection than this one.
    pub fn is_elsewhere(&self, client_id: &Arc<str>, session: &Channel, connection: ConnectionId) -> bool {
        let known = self.known();
        let others = known.live.get(client_id).into_iter().flatten().filter(|(id, _)| **id != connection);
        others.into_iter().any(|(_, sees)| sees.as_ref().is_none_or(|sees| sees.contains(session)))
    }

    /// Notes whether an awake session lists the client as an active one.
    pub fn lists(&self, client_id: &str, session: ChannelId, lists: bool) {
        let mut known = self.known();
        if lists {
            known.active.entry(Arc::from(client_id)).or_default().insert(session);
        } else if let Some(sessions) = known.active.get_mut(client_id) {
            sessions.remove(&session);
            if sessions.is_empty() {
                known.active.remove(client_id);
            }
        }
    }

    /// The awake sessions that list the client as an active one.
    pub fn active_in(&self, client_id: &str) -> Vec<ChannelId> {
        self.known().active.get(client_id).into_iter().flatten().copied().collect()
    }
}
