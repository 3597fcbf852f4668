//! One client's connection as the actors see it: what it is subscribed to, and what waits to be sent.
//!
//! A connection belongs to one web worker and is touched by that worker's thread alone: by its router, which puts frames
//! into it, and by the task that writes to its socket, which takes them out. Other threads hold a [`ConnectionRef`] and
//! send through the router.
//!
//! Always: envelopes leave in ascending order of `serverSeq`, each once. The unsent bytes are bounded: beyond the limit
//! the connection is closed, and nothing is left out in silence.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use bytestring::ByteString;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, oneshot};

use super::asked::{Answered, Asked, NoAnswer};
use super::counts::{Counted, Counts};
use super::envelope::{self, Envelope};
use super::identity::Identity;
use super::received::Received;
use super::router::RouterMessage;
use crate::events::{Channel, ServerSeq};

/// A connection's number, never used twice: random at the start of the host, then counted.
pub type ConnectionId = u64;

/// The way to a connection from any thread.
#[derive(Clone, Debug)]
pub struct ConnectionRef {
    pub id: ConnectionId,
    pub(super) router: UnboundedSender<RouterMessage>,
    pub(super) counts: Arc<Counts>,
    /// What the client sent and nothing has become of yet.
    pub received: Arc<Received>,
}

impl ConnectionRef {
    /// Queues a frame that is nobody else's: an answer, a refusal, an echo.
    pub fn send(&self, frame: ByteString) {
        let _ = self.router.send(RouterMessage::To { connection: self.id, frame });
    }

    /// Subscribes under `alias` to `channel` at this place of the line, and then runs `then` on the connection's thread.
    pub fn subscribe(&self, subscription: Subscription, then: Then) {
        let _ = self.router.send(RouterMessage::Subscribe { connection: self.id, subscription, then });
    }

    /// Runs `then` on the connection's thread, at this place among its frames.
    pub fn run(&self, then: Then) {
        let _ = self.router.send(RouterMessage::Run { connection: self.id, then });
    }

    /// Asks the client with a request of the host's own, and waits for the answer.
    ///
    /// # Errors
    /// [`NoAnswer`] when it refuses or is gone. How long to wait is for the caller.
    pub fn ask(&self, method: &'static str, params: Value) -> impl Future<Output = Answered> + use<> {
        let (answer, answered) = oneshot::channel();
        let received = Arc::clone(&self.received);
        self.run(Box::new(move |connection| {
            connection.ask(method, &params, answer);
            // One that is not read for a while is read for its answer.
            received.look_again();
        }));
        async move { answered.await.unwrap_or(Err(NoAnswer::Gone)) }
    }

    /// Counts a request of the client.
    pub fn count_request(&self) -> Counted {
        self.counts.request()
    }

    /// Ends the connection with a WebSocket close code and a reason.
    pub fn close(&self, code: u16, reason: &str) {
        let _ = self.router.send(RouterMessage::Close { connection: self.id, code, reason: reason.to_owned() });
    }
}

/// What runs on the connection's thread, right after its subscription stands and before any later event reaches it.
pub type Then = Box<dyn FnOnce(&Connection) + Send>;

/// A subscription: the channel, the name that the client used, and how far back its turns reach.
#[derive(Debug, Clone)]
pub struct Subscription {
    /// The channel's one name.
    pub channel: Channel,
    /// The name that the client subscribed with; the same, or a synonym.
    pub alias: Channel,
    /// The newest event that its snapshot holds; only later ones are sent.
    pub from_seq: ServerSeq,
    /// n of the oldest turn that the client was shown, where its snapshot was a window; `None` where it has all.
    pub window: Option<Window>,
}

/// How far back a client's turns reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Window {
    /// The ordinal of the oldest turn that it was shown, from 1; the turns before it are the ones it lacks.
    pub oldest: u64,
}

/// Why a connection is to be closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closing {
    pub code: u16,
    pub reason: String,
}

/// The close code for a client that does not read what it is sent.
pub const CLOSE_SLOW: u16 = 1013;

/// The close code for a client that may no longer be here, or no longer read what it is subscribed to.
pub const CLOSE_NOT_PERMITTED: u16 = 1008;

/// The connection's state on its worker's thread.
pub struct Connection {
    pub id: ConnectionId,
    /// Who is behind it, since it was let in.
    pub who: Arc<Identity>,
    /// Whether it is a stream of events over HTTP, which is resumed where it ended.
    pub is_stream: Cell<bool>,
    outgoing: RefCell<Outgoing>,
    subscriptions: RefCell<HashMap<Channel, Vec<Subscription>>>,
    /// The channel that each name stands for: a synonym may come to name another one.
    names: RefCell<HashMap<Channel, Channel>>,
    /// By name, the event with which its window was last widened.
    widened: RefCell<HashMap<Channel, ServerSeq>>,
    last_seq: Cell<ServerSeq>,
    /// Whether the client's version of the protocol has canvases.
    knows_canvases: Cell<bool>,
    unsent_limit: usize,
    /// What the host asked the client.
    asked: RefCell<Asked>,
    /// Wakes the task that writes to the socket.
    pub wake: Notify,
    /// Tells the task that reads from the socket that the connection is to be closed, written out or not.
    pub ending: Notify,
    _counted: Counted,
}

#[derive(Default)]
struct Outgoing {
    frames: VecDeque<ByteString>,
    bytes: usize,
    /// The largest answer in the queue, or event that is over the limit by itself: the limit is on what waits beside it.
    answer: usize,
    /// While an answer that needs several channels is made: envelopes wait here, with the channel's name; without one those
    /// that are in no log, which no snapshot holds.
    held: Option<VecDeque<(ServerSeq, Option<Channel>, ByteString)>>,
    /// Bytes of the held envelopes; they are bounded like the unsent ones.
    held_bytes: usize,
    closing: Option<Closing>,
}

impl Connection {
    /// A connection with nothing in it; `unsent_limit` is in bytes.
    pub fn new(id: ConnectionId, who: Arc<Identity>, unsent_limit: usize, counts: &Counts) -> Rc<Self> {
        Rc::new(Self {
            id,
            who,
            is_stream: Cell::new(false),
            outgoing: RefCell::default(),
            subscriptions: RefCell::default(),
            names: RefCell::default(),
            widened: RefCell::default(),
            last_seq: Cell::new(0),
            knows_canvases: Cell::new(true),
            unsent_limit,
            asked: RefCell::default(),
            wake: Notify::new(),
            ending: Notify::new(),
            _counted: counts.connection(),
        })
    }

    /// Says whether the client's version of the protocol has canvases: else it is not told of any.
    pub fn knows_canvases(&self, does: bool) {
        self.knows_canvases.set(does);
    }

    /// Queues an answer, a refusal or an echo.
    pub fn push(&self, frame: ByteString) {
        let mut out = self.outgoing.borrow_mut();
        if out.closing.is_some() {
            return;
        }
        out.answer = out.answer.max(frame.len());
        out.bytes += frame.len();
        out.frames.push_back(frame);
        self.check_unsent(&mut out);
    }

    /// Asks the client; the answer goes to `answer`, which is dropped when the client goes first.
    fn ask(&self, method: &str, params: &Value, answer: oneshot::Sender<Answered>) {
        let number = self.asked.borrow_mut().note(answer);
        self.push(envelope::request(number, method, params));
    }

    /// Takes the client's answer to the question with this number.
    pub fn answered(&self, number: u64, answer: Answered) {
        self.asked.borrow_mut().answer(number, answer);
    }

    /// Whether the client has still to answer something: then it must be read.
    pub fn is_asked(&self) -> bool {
        self.asked.borrow_mut().is_open()
    }

    /// The client is gone and answers nothing any more.
    pub fn give_up_asking(&self) {
        self.asked.borrow_mut().give_up();
    }

    /// Queues a notification, which is no state: it is bounded like everything else.
    pub fn push_notification(&self, frame: ByteString) {
        let mut out = self.outgoing.borrow_mut();
        if out.closing.is_some() {
            return;
        }
        self.append(&mut out, frame);
    }

    /// Queues `envelope` for each name under which its channel is subscribed. `page` gives the frame of a page of older
    /// turns for a window, or nothing where the client has them all.
    pub fn deliver(&self, envelope: &Envelope, page: &dyn Fn(&Subscription) -> Option<(ByteString, Option<Window>)>) {
        let mut subscriptions = self.subscriptions.borrow_mut();
        let Some(names) = subscriptions.get_mut(&envelope.channel) else { return };
        if envelope.seq <= self.last_seq.get() || (envelope.is_of_canvases && !self.knows_canvases.get()) {
            return;
        }
        for name in names.iter_mut().filter(|s| s.from_seq < envelope.seq) {
            let frame = if envelope.is_page {
                let Some((frame, window)) = page(name) else { continue };
                if name.window != window {
                    self.widened.borrow_mut().insert(name.alias.clone(), envelope.seq);
                }
                name.window = window;
                frame
            } else if envelope.clears && name.window.take().is_some() {
                self.widened.borrow_mut().insert(name.alias.clone(), envelope.seq);
                envelope.renamed(name.alias.as_str())
            } else if name.alias == envelope.channel {
                envelope.frame.clone()
            } else {
                envelope.renamed(name.alias.as_str())
            };
            self.last_seq.set(envelope.seq);
            let mut out = self.outgoing.borrow_mut();
            if out.closing.is_some() {
                return;
            }
            match out.held.as_mut() {
                Some(held) => {
                    let bytes = frame.len();
                    held.push_back((envelope.seq, Some(name.alias.clone()), frame));
                    out.held_bytes += bytes;
                    self.check_unsent(&mut out);
                }
                None => self.append(&mut out, frame),
            }
        }
    }

    /// Queues an action that is in no log, at its place among the envelopes, where its channel is subscribed.
    pub fn pass(&self, envelope: &Envelope) {
        if !self.subscriptions.borrow().contains_key(&envelope.channel) {
            return;
        }
        let mut out = self.outgoing.borrow_mut();
        if out.closing.is_some() {
            return;
        }
        let frame = envelope.frame.clone();
        match out.held.as_mut() {
            Some(held) => {
                let bytes = frame.len();
                held.push_back((envelope.seq, None, frame));
                out.held_bytes += bytes;
                self.check_unsent(&mut out);
            }
            None => self.append(&mut out, frame),
        }
    }

    fn append(&self, out: &mut Outgoing, frame: ByteString) {
        // One message never closes a connection, however long it is: whoever reads at all can read it.
        if frame.len() > self.unsent_limit {
            out.answer = out.answer.max(frame.len());
        }
        out.bytes += frame.len();
        out.frames.push_back(frame);
        self.check_unsent(out);
    }

    fn check_unsent(&self, out: &mut Outgoing) {
        let unsent = out.bytes.saturating_sub(out.answer) + out.held_bytes;
        if unsent > self.unsent_limit && out.closing.is_none() {
            metrics::counter!("scrollback_limit_met_total", "limit" => "unsent_bytes").increment(1);
            out.frames.clear();
            out.bytes = 0;
            out.held = None;
            out.held_bytes = 0;
            out.closing = Some(Closing { code: CLOSE_SLOW, reason: "too slow: reconnect to go on".into() });
            self.wake.notify_one();
            self.ending.notify_one();
        }
    }

    /// Adds or renews a subscription. Returns the channel that lost its last name by that, where the name stood for
    /// another one before.
    pub fn subscribe(&self, subscription: Subscription) -> Option<Channel> {
        let named = self.names.borrow().get(&subscription.alias).cloned();
        let left = if named.is_some_and(|named| named != subscription.channel) {
            self.unsubscribe(&subscription.alias)
        } else {
            None
        };
        self.names.borrow_mut().insert(subscription.alias.clone(), subscription.channel.clone());
        self.widened.borrow_mut().remove(&subscription.alias);
        let mut all = self.subscriptions.borrow_mut();
        let names = all.entry(subscription.channel.clone()).or_default();
        names.retain(|s| s.alias != subscription.alias);
        names.push(subscription);
        left
    }

    /// Removes the subscription under `alias`; returns the channel when no name of it is left.
    pub fn unsubscribe(&self, alias: &Channel) -> Option<Channel> {
        let channel = self.names.borrow_mut().remove(alias)?;
        let mut all = self.subscriptions.borrow_mut();
        let names = all.get_mut(&channel)?;
        names.retain(|s| s.alias != *alias);
        if !names.is_empty() {
            return None;
        }
        all.remove(&channel);
        Some(channel)
    }

    /// Removes every name of a channel that is gone.
    pub fn drop_channel(&self, channel: &Channel) {
        let gone = self.subscriptions.borrow_mut().remove(channel);
        let mut names = self.names.borrow_mut();
        for subscription in gone.into_iter().flatten() {
            names.remove(&subscription.alias);
        }
    }

    /// The window of each name that it is subscribed under.
    pub fn windows(&self) -> Vec<(Channel, Option<Window>)> {
        self.subscriptions.borrow().values().flatten().map(|s| (s.alias.clone(), s.window)).collect()
    }

    /// The event with which the window of `alias` was last widened: who has not seen it has the narrower one.
    pub fn widened_at(&self, alias: &Channel) -> Option<ServerSeq> {
        self.widened.borrow().get(alias).copied()
    }

    /// The names under which a channel is subscribed.
    pub fn names_of(&self, channel: &Channel) -> Vec<Channel> {
        self.subscriptions.borrow().get(channel).into_iter().flatten().map(|s| s.alias.clone()).collect()
    }

    /// The window of the subscription under `alias`.
    pub fn window(&self, alias: &Channel) -> Option<Window> {
        let channel = self.channel_of(alias)?;
        let all = self.subscriptions.borrow();
        all.get(&channel)?.iter().find(|s| s.alias == *alias)?.window
    }

    /// The channel that it is subscribed to under `alias`.
    pub fn channel_of(&self, alias: &Channel) -> Option<Channel> {
        self.names.borrow().get(alias).cloned()
    }

    /// The channels that it is subscribed to.
    pub fn channels(&self) -> Vec<Channel> {
        self.subscriptions.borrow().keys().cloned().collect()
    }

    /// How many names it is subscribed under.
    pub fn subscription_count(&self) -> usize {
        self.names.borrow().len()
    }

    /// Keeps envelopes back until [`Connection::release_held`]: an answer is being made that they must not overtake.
    pub fn hold(&self) {
        self.outgoing.borrow_mut().held.get_or_insert_default();
    }

    /// The channels that have held envelopes at or before `seq`: snapshots of them are older than that number.
    pub fn held_before(&self, seq: ServerSeq) -> Vec<Channel> {
        let out = self.outgoing.borrow();
        let held = out.held.iter().flatten().filter(|(s, _, _)| *s <= seq);
        let mut names: Vec<Channel> = held.filter_map(|(_, alias, _)| alias.clone()).collect();
        names.dedup();
        names
    }

    /// Forgets held envelopes of `alias` at or before `seq`: a newer snapshot holds them.
    pub fn forget_held(&self, alias: &Channel, seq: ServerSeq) {
        let mut out = self.outgoing.borrow_mut();
        if let Some(mut held) = out.held.take() {
            held.retain(|(s, name, _)| name.as_ref() != Some(alias) || *s > seq);
            out.held_bytes = held.iter().map(|(_, _, frame)| frame.len()).sum();
            out.held = Some(held);
        }
    }

    /// Says that the client is given all events of `alias` up to and including `upto`, and was shown turns from `window`
    /// on: neither what is held of them nor what still arrives late is sent again.
    pub fn replayed(&self, alias: &Channel, upto: ServerSeq, window: Option<Window>) {
        self.forget_held(alias, upto);
        let mut all = self.subscriptions.borrow_mut();
        for subscription in all.values_mut().flatten().filter(|s| s.alias == *alias) {
            subscription.from_seq = subscription.from_seq.max(upto);
            if subscription.window != window {
                self.widened.borrow_mut().entry(alias.clone()).or_insert(upto);
            }
            // A page that is held may have shown more than the replay did.
            subscription.window = subscription.window.zip(window).map(|(a, b)| if a.oldest < b.oldest { a } else { b });
        }
    }

    /// The number of the first envelope that is kept back.
    pub fn first_held(&self) -> Option<ServerSeq> {
        self.outgoing.borrow().held.as_ref()?.front().map(|(seq, _, _)| *seq)
    }

    /// Queues `answer` and then what was kept back, without what is at or before `after` (a replay in the answer has it).
    pub fn release_held(&self, answer: ByteString, after: ServerSeq) {
        let held = self.outgoing.borrow_mut().held.take();
        self.outgoing.borrow_mut().held_bytes = 0;
        self.push(answer);
        for (_, _, frame) in held.into_iter().flatten().filter(|(seq, _, _)| *seq > after) {
            self.push_notification(frame);
        }
        self.wake.notify_one();
    }

    /// Ends the connection after what is queued.
    pub fn close(&self, code: u16, reason: String) {
        let mut out = self.outgoing.borrow_mut();
        out.closing.get_or_insert(Closing { code, reason });
        drop(out);
        self.wake.notify_one();
        self.ending.notify_one();
    }

    /// Takes the next frame to write. Its bytes no longer count as unsent.
    pub fn pop(&self) -> Option<ByteString> {
        let mut out = self.outgoing.borrow_mut();
        let frame = out.frames.pop_front()?;
        out.bytes = out.bytes.saturating_sub(frame.len());
        if out.frames.is_empty() || frame.len() == out.answer {
            out.answer = 0;
        }
        Some(frame)
    }

    /// Why it is to be closed, once nothing is left to write.
    pub fn closing(&self) -> Option<Closing> {
        let out = self.outgoing.borrow();
        out.frames.is_empty().then(|| out.closing.clone()).flatten()
    }

    /// Whether it was asked to close, written out or not.
    pub fn is_closing(&self) -> bool {
        self.outgoing.borrow().closing.is_some()
    }
}

/// Who sends: the connection and what is known of its peer since the upgrade and the handshake.
#[derive(Clone, Debug)]
pub struct Caller {
    pub connection: ConnectionRef,
    /// The client id of the handshake.
    pub client_id: Arc<str>,
    /// `user:<id>` or `root:<host>`.
    pub principal: Arc<str>,
    /// Who that is; what they may do is read at every command.
    pub who: Arc<Identity>,
    /// Whether its version of the protocol has canvases.
    pub knows_canvases: bool,
    /// With `reconnect`: the newest number that it said it had seen.
    pub resumed_from: Option<ServerSeq>,
}

impl Caller {
    /// Who asks without a connection, such as an operator: nothing is sent to anybody.
    pub fn nobody(principal: &str) -> Self {
        let (router, _) = tokio::sync::mpsc::unbounded_channel();
        Self {
            connection: ConnectionRef { id: 0, router, counts: Arc::default(), received: Arc::default() },
            client_id: Arc::from(""),
            principal: principal.into(),
            who: Arc::new(Identity::bare(principal)),
            resumed_from: None,
            knows_canvases: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::ChannelId;

    fn subscription(channel: &str, alias: &str, from_seq: ServerSeq) -> Subscription {
        Subscription { channel: channel.into(), alias: alias.into(), from_seq, window: None }
    }

    #[test]
    fn what_is_in_no_log_waits_with_the_envelopes_and_no_snapshot_holds_it() {
        let connection = Connection::new(1, Arc::new(Identity::root("test")), 10_000, &Counts::default());
        for channel in ["a", "w"] {
            connection.subscribe(subscription(channel, channel, 0));
        }
        connection.hold();
        deliver(&connection, "a", 4);
        let passed = Envelope::new("w".into(), ChannelId(0), 4, None, b"{}");
        connection.pass(&passed);
        connection.pass(&Envelope::new("elsewhere".into(), ChannelId(0), 4, None, b"{}"));
        deliver(&connection, "a", 5);
        assert_eq!(connection.held_before(4), [Channel::from("a")]);
        connection.forget_held(&"a".into(), 5);
        connection.forget_held(&"w".into(), 5);
        connection.release_held("answer".into(), 0);
        assert_eq!((connection.pop(), connection.pop()), (Some("answer".into()), Some(passed.frame)));
        assert_eq!(connection.pop(), None);
    }

    fn deliver(connection: &Connection, channel: &str, seq: ServerSeq) {
        let envelope = Envelope::new(channel.into(), ChannelId(2), seq, None, b"{}");
        connection.deliver(&envelope, &|_| None);
    }

    /// The numbers of the frames that wait, and the channels that they name.
    fn sent(connection: &Connection) -> Vec<(String, ServerSeq)> {
        let frames = std::iter::from_fn(|| connection.pop());
        let params = frames.map(|frame| serde_json::from_str::<serde_json::Value>(&frame).unwrap()["params"].clone());
        params.map(|p| (p["channel"].as_str().unwrap().to_owned(), p["serverSeq"].as_u64().unwrap())).collect()
    }

    #[test]
    fn a_channel_that_changed_before_the_newest_snapshot_is_named() {
        let connection = Connection::new(1, Arc::new(Identity::root("test")), 10_000, &Counts::default());
        connection.hold();
        connection.subscribe(subscription("a", "a", 50));
        deliver(&connection, "a", 70);
        connection.subscribe(subscription("b", "b", 80));
        deliver(&connection, "b", 90);
        assert_eq!(connection.held_before(80), [Channel::from("a")]);
        connection.forget_held(&"a".into(), 70);
        assert_eq!((connection.held_before(80), connection.first_held()), (Vec::new(), Some(90)));
    }

    #[test]
    fn what_a_replay_brought_is_not_sent_again_however_late_it_arrives() {
        let connection = Connection::new(1, Arc::new(Identity::root("test")), 10_000, &Counts::default());
        connection.hold();
        connection.subscribe(subscription("a", "a", 10));
        connection.subscribe(subscription("b", "b", 25));
        deliver(&connection, "a", 20);
        deliver(&connection, "b", 26);
        connection.replayed(&"a".into(), 30, None);
        connection.release_held(r#"{"params":{"channel":"answer","serverSeq":0}}"#.into(), 0);
        deliver(&connection, "a", 29);
        deliver(&connection, "a", 31);
        let expected = [("answer", 0), ("b", 26), ("a", 31)].map(|(name, seq)| (name.to_owned(), seq));
        assert_eq!(sent(&connection), expected);
    }

    #[test]
    fn held_envelopes_are_bounded_like_unsent_ones() {
        let connection = Connection::new(1, Arc::new(Identity::root("test")), 500, &Counts::default());
        connection.hold();
        connection.subscribe(subscription("a", "a", 0));
        (1..20).for_each(|seq| deliver(&connection, "a", seq));
        assert_eq!(connection.closing().map(|closing| closing.code), Some(CLOSE_SLOW));
        assert_eq!(connection.first_held(), None);
    }

    #[test]
    fn a_name_that_comes_to_stand_for_another_channel_leaves_the_first() {
        let connection = Connection::new(1, Arc::new(Identity::root("test")), 10_000, &Counts::default());
        connection.subscribe(subscription("a", "name", 0));
        assert_eq!(connection.subscribe(subscription("b", "name", 0)), Some("a".into()));
        deliver(&connection, "a", 1);
        deliver(&connection, "b", 2);
        assert_eq!(sent(&connection), [("name".to_owned(), 2)]);
        assert_eq!(connection.subscription_count(), 1);
    }

    #[test]
    fn a_channel_is_heard_under_each_of_its_names() {
        let connection = Connection::new(1, Arc::new(Identity::root("test")), 10_000, &Counts::default());
        connection.subscribe(subscription("a", "a", 0));
        connection.subscribe(subscription("a", "b", 1));
        deliver(&connection, "a", 1);
        deliver(&connection, "a", 2);
        assert_eq!(sent(&connection), [("a", 1), ("a", 2), ("b", 2)].map(|(name, seq)| (name.to_owned(), seq)));
        assert_eq!(connection.unsubscribe(&"a".into()), None);
        assert_eq!(connection.unsubscribe(&"b".into()), Some("a".into()));
    }
}
