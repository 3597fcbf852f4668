//! The hand-over to the connections: one router on each web worker, which owns that worker's connections.
//!
//! The writer gives every router the same envelopes in the order of the line; answers and subscriptions travel in the
//! same queue, so their place among the envelopes is kept. No locks: a router's table is touched by its own thread alone.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytestring::ByteString;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::connection::{Connection, ConnectionId, ConnectionRef, Subscription, Then, Window};
use super::counts::{Counted, Counts};
use super::envelope::Envelope;
use crate::events::Channel;

/// What a router is told.
pub enum RouterMessage {
    /// Events of one commit, in order.
    Publish(Arc<[Envelope]>),
    /// A notification for the subscribers of a channel: not state, never replayed.
    Notify { channel: Channel, frame: ByteString },
    /// An action that is in no log, for the subscribers of its channel, at this place among the events.
    Pass(Arc<Envelope>),
    /// A frame for one connection.
    To { connection: ConnectionId, frame: ByteString },
    /// A subscription, and what follows it on the connection's thread.
    Subscribe { connection: ConnectionId, subscription: Subscription, then: Then },
    /// Something to do on a connection's thread, at this place among its frames.
    Run { connection: ConnectionId, then: Then },
    /// All subscriptions to a channel end: it is gone.
    Drop { channel: Channel },
    /// The end of a connection.
    Close { connection: ConnectionId, code: u16, reason: String },
    /// The end of all connections.
    CloseAll { code: u16, reason: String },
}

/// Widens a stored page of older turns for one subscription: the frame and the window that follows, or nothing.
///
/// Given by whoever knows how to read turns; runs on the router's thread.
pub type PageFor = Arc<dyn Fn(&Envelope, &Subscription) -> Option<(ByteString, Option<Window>)> + Send + Sync>;

/// The routers of all workers.
pub struct Hub {
    routers: Mutex<Vec<UnboundedSender<RouterMessage>>>,
    next_connection: AtomicU64,
    page_for: PageFor,
    counts: Arc<Counts>,
}

impl Hub {
    /// A hub without workers. `first` is where connection numbers begin: a random one, so that they tell starts apart.
    pub fn new(first: ConnectionId, page_for: PageFor) -> Arc<Self> {
        let next_connection = AtomicU64::new(first);
        Arc::new(Self { routers: Mutex::default(), next_connection, page_for, counts: Arc::default() })
    }

    /// What there is of connections now.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Hands the events of one commit to every router.
    pub fn publish(&self, envelopes: Vec<Envelope>) {
        let envelopes: Arc<[Envelope]> = envelopes.into();
        self.tell_all(|| RouterMessage::Publish(Arc::clone(&envelopes)));
    }

    /// Sends a notification to the subscribers of `channel`.
    pub fn notify(&self, channel: &Channel, frame: &ByteString) {
        self.tell_all(|| RouterMessage::Notify { channel: channel.clone(), frame: frame.clone() });
    }

    /// Sends an action that is in no log to the subscribers of its channel.
    pub fn pass(&self, envelope: Envelope) {
        let envelope = Arc::new(envelope);
        self.tell_all(|| RouterMessage::Pass(Arc::clone(&envelope)));
    }

    /// Ends all subscriptions to a channel that is gone.
    pub fn drop_channel(&self, channel: &Channel) {
        self.tell_all(|| RouterMessage::Drop { channel: channel.clone() });
    }

    /// A stored page of older turns as one subscription is shown it, for a replay. May read the store.
    pub fn page(&self, envelope: &Envelope, subscription: &Subscription) -> Option<(ByteString, Option<Window>)> {
        (self.page_for)(envelope, subscription)
    }

    /// Ends all connections.
    pub fn close_all(&self, code: u16, reason: &str) {
        self.tell_all(|| RouterMessage::CloseAll { code, reason: reason.to_owned() });
    }

    fn tell_all(&self, message: impl Fn() -> RouterMessage) {
        let mut routers = self.routers.lock().unwrap_or_else(PoisonError::into_inner);
        routers.retain(|router| router.send(message()).is_ok());
    }
}

/// One worker's router. Lives on that worker's thread.
pub struct Router {
    hub: Arc<Hub>,
    sender: UnboundedSender<RouterMessage>,
    connections: RefCell<HashMap<ConnectionId, Rc<Connection>>>,
    subscribers: RefCell<HashMap<Channel, HashMap<ConnectionId, Counted>>>,
    watchers: RefCell<HashMap<ConnectionId, Watch>>,
}

/// What a watcher hears: the envelopes as they are stored, without windows, synonyms or notifications.
#[derive(Debug, Clone)]
pub enum Watch {
    All,
    Channels(HashSet<Channel>),
}

impl Watch {
    fn hears(&self, channel: &Channel) -> bool {
        match self {
            Watch::All => true,
            Watch::Channels(channels) => channels.contains(channel),
        }
    }
}

impl Router {
    /// Starts a router on this thread, which must run an actix or tokio `LocalSet`.
    pub fn start(hub: &Arc<Hub>) -> Rc<Self> {
        let (sender, receiver) = unbounded_channel();
        hub.routers.lock().unwrap_or_else(PoisonError::into_inner).push(sender.clone());
        let router = Rc::new(Self {
            hub: Arc::clone(hub),
            sender,
            connections: RefCell::default(),
            subscribers: RefCell::default(),
            watchers: RefCell::default(),
        });
        actix_rt::spawn(Rc::clone(&router).run(receiver));
        router
    }

    /// Takes a new connection in.
    pub fn connect(&self, unsent_limit: usize) -> (Rc<Connection>, ConnectionRef) {
        let id = self.hub.next_connection.fetch_add(1, Ordering::Relaxed);
        let connection = Connection::new(id, unsent_limit, &self.hub.counts);
        self.connections.borrow_mut().insert(id, Rc::clone(&connection));
        (connection, ConnectionRef { id, router: self.sender.clone(), counts: Arc::clone(&self.hub.counts) })
    }

    /// Lets a connection go, with its subscriptions; returns the channels that it was subscribed to.
    pub fn disconnect(&self, id: ConnectionId) -> Vec<Channel> {
        let Some(connection) = self.connections.borrow_mut().remove(&id) else { return Vec::new() };
        self.watchers.borrow_mut().remove(&id);
        let channels = connection.channels();
        for channel in &channels {
            self.remove_subscriber(channel, id);
        }
        channels
    }

    /// Ends the subscription under `alias`.
    pub fn unsubscribe(&self, connection: &Connection, alias: &Channel) {
        if let Some(channel) = connection.unsubscribe(alias) {
            self.remove_subscriber(&channel, connection.id);
        }
    }

    /// Subscribes at once, on this thread: for a replay, which is read afterwards from the log. Nothing happens for a connection
    /// that was let go of meanwhile.
    pub fn subscribe(&self, connection: &Connection, subscription: Subscription) {
        if !self.connections.borrow().contains_key(&connection.id) {
            return;
        }
        let mut subscribers = self.subscribers.borrow_mut();
        let of_channel = subscribers.entry(subscription.channel.clone()).or_default();
        of_channel.entry(connection.id).or_insert_with(|| self.hub.counts.subscription());
        drop(subscribers);
        if let Some(left) = connection.subscribe(subscription) {
            self.remove_subscriber(&left, connection.id);
        }
    }

    /// Makes `connection` a watcher, at once: every later event that `watch` hears is queued in it, whatever it is
    /// subscribed to.
    pub fn watch(&self, connection: &Connection, watch: Watch) {
        self.watchers.borrow_mut().insert(connection.id, watch);
    }

    fn remove_subscriber(&self, channel: &Channel, id: ConnectionId) {
        let mut subscribers = self.subscribers.borrow_mut();
        if let Some(ids) = subscribers.get_mut(channel) {
            ids.remove(&id);
            if ids.is_empty() {
                subscribers.remove(channel);
            }
        }
    }

    async fn run(self: Rc<Self>, mut receiver: UnboundedReceiver<RouterMessage>) {
        let mut dirty = HashSet::new();
        while let Some(message) = receiver.recv().await {
            self.handle(message, &mut dirty);
            while let Ok(message) = receiver.try_recv() {
                self.handle(message, &mut dirty);
                if dirty.len() > 4_096 {
                    break;
                }
            }
            let connections = self.connections.borrow();
            for id in dirty.drain() {
                if let Some(connection) = connections.get(&id) {
                    connection.wake.notify_one();
                }
            }
        }
    }

    fn handle(&self, message: RouterMessage, dirty: &mut HashSet<ConnectionId>) {
        match message {
            RouterMessage::Publish(envelopes) => {
                for envelope in envelopes.iter() {
                    self.deliver(envelope, dirty);
                }
            }
            RouterMessage::Notify { channel, frame } => {
                self.each_subscriber(&channel, dirty, |connection| connection.push_notification(frame.clone()));
            }
            RouterMessage::Pass(envelope) => {
                self.each_subscriber(&envelope.channel, dirty, |connection| connection.pass(&envelope));
            }
            RouterMessage::To { connection, frame } => self.with(connection, dirty, |c| c.push(frame)),
            RouterMessage::Subscribe { connection, subscription, then } => {
                self.with(connection, dirty, |c| {
                    self.subscribe(c, subscription);
                    then(c);
                });
            }
            RouterMessage::Run { connection, then } => self.with(connection, dirty, then),
            RouterMessage::Drop { channel } => self.drop_channel(&channel),
            RouterMessage::Close { connection, code, reason } => {
                self.with(connection, dirty, |c| c.close(code, reason));
            }
            RouterMessage::CloseAll { code, reason } => {
                for connection in self.connections.borrow().values() {
                    connection.close(code, reason.clone());
                }
            }
        }
    }

    fn deliver(&self, envelope: &Envelope, dirty: &mut HashSet<ConnectionId>) {
        let page = |subscription: &Subscription| (self.hub.page_for)(envelope, subscription);
        self.each_subscriber(&envelope.channel, dirty, |connection| connection.deliver(envelope, &page));
        for (id, watch) in self.watchers.borrow().iter() {
            if watch.hears(&envelope.channel) {
                self.with(*id, dirty, |connection| connection.push_notification(envelope.frame.clone()));
            }
        }
    }

    fn each_subscriber(&self, channel: &Channel, dirty: &mut HashSet<ConnectionId>, act: impl Fn(&Connection)) {
        let subscribers = self.subscribers.borrow();
        let Some(ids) = subscribers.get(channel) else { return };
        let connections = self.connections.borrow();
        for id in ids.keys() {
            if let Some(connection) = connections.get(id) {
                act(connection);
                dirty.insert(*id);
            }
        }
    }

    fn with(&self, id: ConnectionId, dirty: &mut HashSet<ConnectionId>, act: impl FnOnce(&Connection)) {
        let connection = self.connections.borrow().get(&id).cloned();
        if let Some(connection) = connection {
            act(&connection);
            dirty.insert(id);
        }
    }

    fn drop_channel(&self, channel: &Channel) {
        let ids = self.subscribers.borrow_mut().remove(channel);
        for id in ids.unwrap_or_default().into_keys() {
            if let Some(connection) = self.connections.borrow().get(&id) {
                connection.drop_channel(channel);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_was_let_go_of_is_subscribed_to_nothing() {
        actix_rt::System::new().block_on(async {
            let router = Router::start(&Hub::new(1, Arc::new(|_, _| None)));
            let (connection, _) = router.connect(1_000);
            let subscription = Subscription { channel: "a".into(), alias: "a".into(), from_seq: 0, window: None };
            router.subscribe(&connection, subscription.clone());
            assert_eq!(router.subscribers.borrow().len(), 1);
            router.disconnect(connection.id);
            router.subscribe(&connection, subscription);
            assert!(router.subscribers.borrow().is_empty());
        });
    }
}
