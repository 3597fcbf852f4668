//! How many files the process may have open: a socket is one, with a second handle to cut it by.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files beside the sockets: the store, programs of agents, what is read and written for clients.
const BESIDE: u64 = 512;
/// Handles of one connection.
const OF_ONE: u64 = 2;

/// Raises the limit as far as may be, and warns where that is not enough for so many connections.
pub fn raise_limit(connections: usize) {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    let Some(allowed) = getrlimit(Resource::Nofile).current else { return };
    let wanted = (connections as u64).saturating_mul(OF_ONE).saturating_add(BESIDE);
    if allowed < wanted {
        tracing::warn!(
            allowed,
            wanted,
            "fewer files may be open than max_connections needs: raise the hard limit, or lower max_connections"
        );
    }
}
