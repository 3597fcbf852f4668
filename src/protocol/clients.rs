//! What is remembered of a client beyond its connection: whose it is, its version, and how far back it looked.
//!
//! A client id is only a key to come back with, never an identity: it belongs to the principal that used it first.
//! Source: AHP `reconnect`; AHP threat model.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::actors::connection::Window;
use crate::actors::host::Host;
use crate::clock::Millis;
use crate::events::LogFault;
use crate::events::ServerSeq;

/// How many clients are kept in memory; the one that was not used for longest goes first.
const KEPT: usize = 100_000;
/// How many windows of one client are kept.
const WINDOWS: usize = 256;

/// A client as it was when it was last here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
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

impl RememberedClient {
    /// Notes a window; whether that is new.
    fn sees(&mut self, channel: String, window: RememberedWindow) -> bool {
        let before = self.windows.get(&channel).copied();
        if before.unwrap_or_default() == window || (before.is_none() && self.windows.len() >= WINDOWS) {
            return false;
        }
        match window == RememberedWindow::default() {
            true => self.windows.remove(&channel),
            false => self.windows.insert(channel, window),
        };
        true
    }

    /// Whether nothing but the time of the visit tells them apart.
    fn is_like(&self, other: &Self) -> bool {
        let Self { principal, protocol_version, windows, used_at: _ } = self;
        (principal, protocol_version, windows) == (&other.principal, &other.protocol_version, &other.windows)
    }
}

/// What a client saw of a channel's turns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RememberedWindow {
    /// `view.turns` of its last subscription; `None` asked for all.
    pub turns: Option<u64>,
    /// The oldest turn that it was shown; `None` where it has all.
    pub oldest: Option<Window>,
    /// The event with which the window was widened to that. It was sent, which does not say that it arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub widened_at: Option<ServerSeq>,
}

/// The client id belongs to somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this client id belongs to somebody else")]
pub struct Foreign;

/// Where clients are remembered: in the log, and those of late in memory.
pub struct ClientMemory {
    host: Arc<Host>,
    known: Mutex<HashMap<String, RememberedClient>>,
}

impl ClientMemory {
    /// The memory of this host.
    pub fn new(host: Arc<Host>) -> Self {
        Self { host, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, RememberedClient>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of `client_id`.
    ///
    /// # Errors
    /// [`LogFault`] when the log cannot be read.
    pub fn recall(&self, client_id: &str) -> Result<Option<RememberedClient>, LogFault> {
        if let Some(client) = self.known().get(client_id) {
            return Ok(Some(client.clone()));
        }
        let stored = self.host.recall_client(client_id)?;
        Ok(stored.and_then(|value| serde_json::from_value(value).ok()))
    }

    /// Replaces what is known of `client_id`. Written down where it is more than the time of its visit.
    ///
    /// # Errors
    /// [`Foreign`] when it belongs to another principal; then nothing changes. Check and change are one step.
    pub fn remember(&self, client_id: &str, client: RememberedClient) -> Result<(), Foreign> {
        let mut known = self.known();
        let before = known.get(client_id);
        if before.is_some_and(|known| known.principal != client.principal) {
            return Err(Foreign);
        }
        let same = before.is_some_and(|known| known.is_like(&client));
        if !same {
            self.write_down(client_id, &client);
        }
        known.insert(client_id.to_owned(), client);
        if known.len() > KEPT {
            forget_older_half(&mut known);
        }
        Ok(())
    }

    /// Notes what `client_id`, which is remembered, sees of the channels that it calls so. Written down once, where anything
    /// is new.
    pub fn remember_windows(&self, client_id: &str, windows: impl IntoIterator<Item = (String, RememberedWindow)>) {
        let mut known = self.known();
        let Some(client) = known.get_mut(client_id) else { return };
        let mut changed = false;
        for (channel, window) in windows {
            changed |= client.sees(channel, window);
        }
        if changed {
            self.write_down(client_id, client);
        }
    }

    fn write_down(&self, client_id: &str, client: &RememberedClient) {
        let value = serde_json::to_value(client).unwrap_or_default();
        self.host.remember_client(client_id, value);
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
    fn the_longest_unused_clients_are_forgotten_first() {
        let mut clients: HashMap<String, RememberedClient> =
            (0..10).map(|n| (n.to_string(), client("user:a", n))).collect();
        forget_older_half(&mut clients);
        assert!(clients.contains_key("9") && !clients.contains_key("0"));
    }
}
