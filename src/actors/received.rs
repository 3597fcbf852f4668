//! What a connection has sent and nothing has become of yet: bounded, so that nobody is read faster than served.
//!
//! An action is held until it is on disk, refused or lost, a request until it is answered. Who has too much of it is not read
//! until some of it is done; nothing is refused for that. Any thread may let go.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// How much of one connection is held.
#[derive(Debug, Default)]
pub struct Received {
    actions: AtomicUsize,
    bytes: AtomicUsize,
    less: Notify,
}

/// Something that was sent, until it is dropped.
#[derive(Debug)]
pub struct Held {
    of: Arc<Received>,
    actions: usize,
    bytes: usize,
}

impl Received {
    /// Holds an action of so many bytes.
    pub fn hold_action(self: &Arc<Self>, bytes: usize) -> Held {
        self.hold(1, bytes)
    }

    /// Holds a request of so many bytes; how many there may be has a limit of its own.
    pub fn hold_request(self: &Arc<Self>, bytes: usize) -> Held {
        self.hold(0, bytes)
    }

    fn hold(self: &Arc<Self>, actions: usize, bytes: usize) -> Held {
        self.actions.fetch_add(actions, Ordering::AcqRel);
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
        Held { of: Arc::clone(self), actions, bytes }
    }

    /// Whether so many actions or bytes are held.
    pub fn is_full(&self, actions: usize, bytes: usize) -> bool {
        self.actions.load(Ordering::Acquire) >= actions || self.bytes.load(Ordering::Acquire) >= bytes
    }

    /// Lets the reader look again, though nothing was let go of.
    pub fn look_again(&self) {
        self.less.notify_one();
    }

    /// Waits until something was let go of, also before this was called.
    pub async fn less(&self) {
        self.less.notified().await;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.of.actions.fetch_sub(self.actions, Ordering::AcqRel);
        self.of.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        self.of.less.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_is_full_by_number_or_by_bytes_until_some_of_it_is_let_go_of() {
        let received = Arc::<Received>::default();
        let first = received.hold_action(10);
        let second = received.hold_request(90);
        assert!(received.is_full(1, 1_000) && received.is_full(9, 100));
        assert!(!received.is_full(2, 101));
        drop(first);
        received.less().await;
        assert!(!received.is_full(1, 100));
        drop(second);
        assert_eq!(received.bytes.load(Ordering::Acquire), 0);
    }
}
