//! The hand-over to the connections: one router on each web worker, which owns that worker's connections.
//!
//! The writer gives every router the same envelopes in the order of the line; answers and subscriptions travel in the
//! same queue, so their place among the envelopes is kept. No locks: a router's table is touched by its own thread alone.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use bytestring::ByteString;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::connection::{CLOSE_NOT_PERMITTED, Connection, ConnectionId, ConnectionRef, Subscription, Then, Window};
use super::counts::{Counted, Counts};
use super::envelope::{self, Envelope};
use super::identity::Identity;
use super::people::Reads;
use super::shared::Shared;
use crate::events::Channel;
use crate::projections::people::Operation;
use crate::projections::visual::of_canvas;
use crate::telemetry::{self, Record};

/// What a router is told.
pub enum RouterMessage {
    /// Events of one commit, in order.
    Publish(Arc<[Envelope]>),
    /// A notification about a session, for those of the root's subscribers who may see it in the list: not state, never
    /// replayed.
    Notify { session: Channel, frame: ByteString },
    /// The same for one person alone.
    NotifyOne { principal: Arc<str>, frame: ByteString },
    /// What the process logged, for those who are subscribed to it.
    Logs(Arc<[Record]>),
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
    /// What these people may do has changed (`None`: anybody): who may not be here, or not read what they hear, is cut off.
    LookAgain { principal: Option<Arc<str>> },
    /// A channel is in another session now, and other people may read it.
    Moved { channel: Channel },
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
    /// Whose it is: who may read what is asked there.
    shared: OnceLock<Weak<Shared>>,
}

impl Hub {
    /// A hub without workers. `first` is where connection numbers begin: a random one, so that they tell starts apart.
    pub fn new(first: ConnectionId, page_for: PageFor) -> Arc<Self> {
        Arc::new(Self {
            routers: Mutex::default(),
            next_connection: AtomicU64::new(first),
            page_for,
            counts: Arc::default(),
            shared: OnceLock::new(),
        })
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

    /// Tells the hub whose it is; done once, when the host is put together. Before, it serves the deployment alone.
    pub fn belongs_to(&self, shared: &Arc<Shared>) {
        let _ = self.shared.set(Arc::downgrade(shared));
    }

    fn asks(&self, who: &Identity, ask: impl FnOnce(&Shared) -> bool) -> bool {
        who.is_root() || self.shared.get().and_then(Weak::upgrade).is_some_and(|shared| ask(&shared))
    }

    fn reads(&self, who: &Identity, channel: &Channel) -> Reads {
        if who.is_root() {
            return Reads::Yes;
        }
        let shared = self.shared.get().and_then(Weak::upgrade);
        shared.map_or(Reads::No, |shared| shared.reads(who, channel.as_str()))
    }

    /// Whether who was let in would be let in now.
    pub fn knows(&self, who: &Identity) -> bool {
        self.asks(who, |shared| shared.is_known(who))
    }

    fn may_list(&self, who: &Identity, session: &Channel) -> bool {
        self.asks(who, |shared| shared.may(who, Operation::SessionList, Some(session.as_str())))
    }

    /// Sends a notification about `session` to those of the root's subscribers who may see it in the list.
    pub fn notify(&self, session: &Channel, frame: &ByteString) {
        self.tell_all(|| RouterMessage::Notify { session: session.clone(), frame: frame.clone() });
    }

    /// Sends a notification to the connections of this principal among the root's subscribers.
    pub fn notify_one(&self, principal: &Arc<str>, frame: &ByteString) {
        self.tell_all(|| RouterMessage::NotifyOne { principal: Arc::clone(principal), frame: frame.clone() });
    }

    /// What this principal may do has changed; `None` for what anybody may do.
    pub fn look_again(&self, principal: Option<Arc<str>>) {
        self.tell_all(|| RouterMessage::LookAgain { principal: principal.clone() });
    }

    /// A channel is in another session now.
    pub fn moved(&self, channel: &Channel) {
        self.tell_all(|| RouterMessage::Moved { channel: channel.clone() });
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

impl telemetry::Reader for Hub {
    fn told(&self, records: &Arc<[Record]>) {
        self.tell_all(|| RouterMessage::Logs(Arc::clone(records)));
    }
}

/// One worker's router. Lives on that worker's thread.
pub struct Router {
    hub: Arc<Hub>,
    sender: UnboundedSender<RouterMessage>,
    connections: RefCell<HashMap<ConnectionId, Rc<Connection>>>,
    subscribers: RefCell<HashMap<Channel, HashMap<ConnectionId, Counted>>>,
    watchers: RefCell<HashMap<ConnectionId, Watching>>,
}

/// A watcher, and what it is known to be allowed to read.
struct Watching {
    watch: Watch,
    readable: RefCell<HashMap<Channel, bool>>,
}

/// How many channels a watcher's permissions are remembered of.
const REMEMBERED: usize = 10_000;

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
    pub fn connect(&self, who: Arc<Identity>, unsent_limit: usize) -> (Rc<Connection>, ConnectionRef) {
        let id = self.hub.next_connection.fetch_add(1, Ordering::Relaxed);
        let connection = Connection::new(id, who, unsent_limit, &self.hub.counts);
        self.connections.borrow_mut().insert(id, Rc::clone(&connection));
        let (router, counts) = (self.sender.clone(), Arc::clone(&self.hub.counts));
        (connection, ConnectionRef { id, router, counts, received: Arc::default() })
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
    /// that was let go of meanwhile; one that may not read the channel (any more) is closed.
    pub fn subscribe(&self, connection: &Connection, subscription: Subscription) {
        if !self.connections.borrow().contains_key(&connection.id) {
            return;
        }
        if self.hub.reads(&connection.who, &subscription.channel) == Reads::No {
            return cut_off(connection);
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
        self.watchers.borrow_mut().insert(connection.id, Watching { watch, readable: RefCell::default() });
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
            RouterMessage::Notify { session, frame } => {
                self.each_subscriber(&Channel::root(), dirty, |connection| {
                    if self.hub.may_list(&connection.who, &session) {
                        connection.push_notification(frame.clone());
                    }
                });
            }
            RouterMessage::NotifyOne { principal, frame } => {
                self.each_subscriber(&Channel::root(), dirty, |connection| {
                    if connection.who.principal == principal {
                        connection.push_notification(frame.clone());
                    }
                });
            }
            RouterMessage::Logs(records) => self.deliver_logs(&records, dirty),
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
            RouterMessage::LookAgain { principal } => self.look_again(principal.as_deref()),
            RouterMessage::Moved { channel } => self.look_again_at(&channel),
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
        for (id, watching) in self.watchers.borrow().iter() {
            if watching.watch.hears(&envelope.channel) {
                self.with(*id, dirty, |connection| {
                    if self.may_hear(connection, watching, &envelope.channel) {
                        connection.push_notification(envelope.frame.clone());
                    }
                });
            }
        }
    }

    fn deliver_logs(&self, records: &[Record], dirty: &mut HashSet<ConnectionId>) {
        for (channel, severity) in telemetry::channels() {
            let channel = Channel::from(channel);
            if !self.subscribers.borrow().contains_key(&channel) {
                continue;
            }
            let Some(payload) = telemetry::payload(records, severity) else { continue };
            self.each_subscriber(&channel, dirty, |connection| {
                for alias in connection.names_of(&channel) {
                    connection.push_notification(envelope::logs(&alias, &payload));
                }
            });
        }
    }

    fn may_hear(&self, connection: &Connection, watching: &Watching, channel: &Channel) -> bool {
        if connection.who.is_root() {
            return true;
        }
        if let Some(known) = watching.readable.borrow().get(channel).copied() {
            return known;
        }
        let reads = self.hub.reads(&connection.who, channel);
        // What is not there now may be there with the next event.
        if reads != Reads::NotThere {
            let mut readable = watching.readable.borrow_mut();
            if readable.len() >= REMEMBERED {
                readable.clear();
            }
            readable.insert(channel.clone(), reads == Reads::Yes);
        }
        reads == Reads::Yes
    }

    /// Cuts off who may not be here any more, or not read all that they are subscribed to. A stream ends with any change: it is
    /// resumed for what may be read then.
    fn look_again(&self, principal: Option<&str>) {
        let connections = self.connections.borrow();
        let concerned = |connection: &&Rc<Connection>| principal.is_none_or(|name| *connection.who.principal == *name);
        for connection in connections.values().filter(concerned).filter(|connection| !connection.who.is_root()) {
            let hidden = |channel: &Channel| self.hub.reads(&connection.who, channel) == Reads::No;
            if !self.hub.knows(&connection.who) {
                connection.close(CLOSE_NOT_PERMITTED, TOKEN_ENDED.into());
            } else if connection.is_stream.get() || connection.channels().iter().any(hidden) {
                cut_off(connection);
            }
        }
    }

    /// The same for who hears a chat that is in another session now, or a canvas, which goes along with its chat.
    fn look_again_at(&self, moved: &Channel) {
        let watchers = self.watchers.borrow();
        watchers.values().for_each(|watching| watching.readable.borrow_mut().clear());
        for (id, connection) in self.connections.borrow().iter().filter(|(_, c)| !c.who.is_root()) {
            let mut heard = connection.channels();
            if let Some(Watching { watch: Watch::Channels(all), .. }) = watchers.get(id) {
                heard.extend(all.iter().cloned());
            }
            let goes_along = |channel: &&Channel| *channel == moved || of_canvas(channel.as_str()).is_some();
            let hidden = |channel: &Channel| self.hub.reads(&connection.who, channel) == Reads::No;
            if heard.iter().filter(goes_along).any(hidden) {
                cut_off(connection);
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

/// What a connection hears whose token has ended.
pub const TOKEN_ENDED: &str = "the token has ended: come back with another one";

/// Ends a connection that may no longer hear what it hears. It may come back for what is left to it.
fn cut_off(connection: &Connection) {
    connection.close(CLOSE_NOT_PERMITTED, "not permitted any more: reconnect for what you may still read".into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_was_let_go_of_is_subscribed_to_nothing() {
        actix_rt::System::new().block_on(async {
            let router = Router::start(&Hub::new(1, Arc::new(|_, _| None)));
            let (connection, _) = router.connect(Arc::new(Identity::root("box")), 1_000);
            let subscription = Subscription { channel: "a".into(), alias: "a".into(), from_seq: 0, window: None };
            router.subscribe(&connection, subscription.clone());
            assert_eq!(router.subscribers.borrow().len(), 1);
            router.disconnect(connection.id);
            router.subscribe(&connection, subscription);
            assert!(router.subscribers.borrow().is_empty());
        });
    }
}
