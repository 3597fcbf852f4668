//! What there is of connections now: for `/metrics`, and for whoever looks for what was left behind.
//!
//! Always: a number is that of the things themselves. Each holds its [`Counted`], so that none is forgotten on any way out.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The counts of a host.
#[derive(Debug, Default)]
pub struct Counts {
    connections: Arc<AtomicUsize>,
    subscriptions: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

/// One thing that is counted as long as this is held.
#[derive(Debug)]
pub struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn one(of: &Arc<AtomicUsize>) -> Self {
        of.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(of))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Counts {
    /// Counts a connection.
    pub fn connection(&self) -> Counted {
        Counted::one(&self.connections)
    }

    /// Counts the subscription of a connection to a channel.
    pub fn subscription(&self) -> Counted {
        Counted::one(&self.subscriptions)
    }

    /// Counts a request that waits for its answer.
    pub fn request(&self) -> Counted {
        Counted::one(&self.requests)
    }

    /// Connections that anything still holds: their sockets, or work that was begun for them.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }

    /// Channels that connections are subscribed to.
    pub fn subscriptions(&self) -> usize {
        self.subscriptions.load(Ordering::Acquire)
    }

    /// Requests that are not answered yet.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Acquire)
    }
}
