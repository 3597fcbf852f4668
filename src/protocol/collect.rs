//! Several snapshots for one answer, such that the answer's number is sound.
//!
//! A client keeps one watermark over all its channels. So an answer with snapshots up to number `m` must not leave out
//! an event at or before `m` of any of its channels: if the connection dropped right then, a replay from `m` would never
//! bring it. While snapshots are collected the connection holds envelopes back; a channel with one at or before the
//! newest snapshot is asked for again, until none is left.
//!
//! Why that is enough: a router hears everything in the order of the line, and a subscription stands at its place in it.
//! When the subscription with the newest snapshot stands, all that is older has been delivered and is held.
//! Source: AHP delivery order; AHP `initialize`, `reconnect`.

use tokio::sync::mpsc::unbounded_channel;

use super::error::count_limit;
use super::peer::Peer;
use crate::actors::command::{Refusal, RefusalKind};
use crate::actors::connection::Caller;
use crate::actors::host::{OnSnapshot, SnapshotJson};
use crate::events::{Channel, ServerSeq};

/// How often channels are asked for again before the host calls itself too busy.
const ROUNDS: usize = 8;
/// How many snapshots are made at a time.
const AT_A_TIME: usize = 64;
/// Bytes of an answer that are not snapshots.
const FRAME: usize = 64 * 1024;

/// A channel that is to be in the answer.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The name that the client uses.
    pub alias: Channel,
    /// How many finished turns; all for `None`.
    pub turns: Option<u64>,
}

/// Asks for a subscription: the host, or what stands for it in a test.
type Subscribe<'a> = dyn Fn(&str, Option<u64>, OnSnapshot) + 'a;

/// Snapshots on the way into one answer.
pub struct Collection<'a> {
    peer: &'a Peer,
    subscribe: Box<Subscribe<'a>>,
    wanted: &'a [Wanted],
    found: Vec<Option<SnapshotJson>>,
    /// Bytes of the states that were found.
    bytes: usize,
}

impl<'a> Collection<'a> {
    /// Subscribes to what is wanted; the connection must be holding. What is not there is left out.
    pub async fn of(peer: &'a Peer, caller: &'a Caller, wanted: &'a [Wanted]) -> Self {
        let host = &peer.app.host;
        Self::by(peer, Box::new(move |alias, turns, then| host.subscribe(caller, alias, turns, then)), wanted).await
    }

    async fn by(peer: &'a Peer, subscribe: Box<Subscribe<'a>>, wanted: &'a [Wanted]) -> Self {
        let mut collection = Self { peer, subscribe, wanted, found: vec![None; wanted.len()], bytes: 0 };
        let all: Vec<usize> = (0..wanted.len()).collect();
        collection.ask(&all).await;
        collection
    }

    /// Asks again until no held envelope is older than a snapshot.
    ///
    /// # Errors
    /// A refusal when the channels change faster than they can be read together.
    pub async fn settle(&mut self) -> Result<(), Refusal> {
        for _ in 0..ROUNDS {
            let stale = self.stale();
            if stale.is_empty() {
                return Ok(());
            }
            self.ask(&stale).await;
        }
        if self.stale().is_empty() {
            return Ok(());
        }
        count_limit("handshake_rounds");
        Err(Refusal::new(RefusalKind::Unavailable, "busy", "these channels change too fast now: try again"))
    }

    /// The snapshots, in the order of what was wanted.
    pub fn snapshots(&self) -> impl Iterator<Item = &SnapshotJson> {
        self.found.iter().flatten()
    }

    /// The snapshots as a JSON array.
    pub fn json(&self) -> String {
        let all: Vec<String> = self.snapshots().map(SnapshotJson::json).collect();
        format!("[{}]", all.join(","))
    }

    /// The greatest number such that the client has every event of its channels up to it, once it has this answer.
    /// `before` is what was handed over when the collecting began.
    pub fn server_seq(&self, before: ServerSeq) -> ServerSeq {
        match self.peer.connection.first_held() {
            Some(first) => first.saturating_sub(1),
            // An event up to `before` was handed over before a channel was asked for, so its snapshot has it.
            None => before.max(self.newest()),
        }
    }

    /// Ends all subscriptions of this collection.
    pub fn give_up(&self) {
        for wanted in self.wanted {
            self.drop_subscription(&wanted.alias);
        }
    }

    fn newest(&self) -> ServerSeq {
        self.snapshots().map(|snapshot| snapshot.from_seq).max().unwrap_or(0)
    }

    fn stale(&self) -> Vec<usize> {
        let held = self.peer.connection.held_before(self.newest());
        let is_held = |index: &usize| {
            let found = self.found.get(*index).is_some_and(Option::is_some);
            found && self.wanted.get(*index).is_some_and(|wanted| held.contains(&wanted.alias))
        };
        if held.is_empty() { Vec::new() } else { (0..self.wanted.len()).filter(is_held).collect() }
    }

    async fn ask(&mut self, indexes: &[usize]) {
        for some in indexes.chunks(AT_A_TIME) {
            for (index, answer) in self.ask_some(some).await {
                self.take(index, answer);
            }
        }
    }

    async fn ask_some(&self, indexes: &[usize]) -> Vec<(usize, Result<SnapshotJson, Refusal>)> {
        let (sender, mut receiver) = unbounded_channel();
        for (index, wanted) in indexes.iter().filter_map(|index| Some((*index, self.wanted.get(*index)?))) {
            let sender = sender.clone();
            let then = Box::new(move |_: &_, answer| drop(sender.send((index, answer))));
            (self.subscribe)(wanted.alias.as_str(), wanted.turns, then);
        }
        drop(sender);
        let mut answers = Vec::with_capacity(indexes.len());
        while let Some(answer) = receiver.recv().await {
            answers.push(answer);
        }
        answers
    }

    fn take(&mut self, index: usize, answer: Result<SnapshotJson, Refusal>) {
        let Some(alias) = self.wanted.get(index).map(|wanted| wanted.alias.clone()) else { return };
        self.bytes -= self.found.get_mut(index).and_then(Option::take).map_or(0, |s| s.state.len());
        let room = self.peer.app.settings.max_message_sent.saturating_sub(FRAME + self.bytes);
        let found = match answer {
            Ok(snapshot) if snapshot.state.len() <= room => {
                self.peer.connection.forget_held(&alias, snapshot.from_seq);
                self.bytes += snapshot.state.len();
                Some(snapshot)
            }
            Ok(_) => {
                count_limit("message_sent");
                None
            }
            Err(refusal) => {
                tracing::debug!(channel = %alias, %refusal, "left out of a handshake");
                None
            }
        };
        if found.is_none() {
            self.drop_subscription(&alias);
        }
        if let Some(place) = self.found.get_mut(index) {
            *place = found;
        }
    }

    fn drop_subscription(&self, alias: &Channel) {
        self.peer.router.unsubscribe(&self.peer.connection, alias);
        self.peer.connection.forget_held(alias, ServerSeq::MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::rc::Rc;
    use std::sync::Arc;

    use serde_json::Value;

    use super::*;
    use crate::access::{Gate, Identity};
    use crate::actors::connection::Subscription;
    use crate::actors::envelope::Envelope;
    use crate::actors::host::{Host, HostSettings};
    use crate::actors::router::{Hub, Router};
    use crate::clock::Clock;
    use crate::events::ChannelId;
    use crate::events::memory::MemoryStore;
    use crate::protocol::{App, ProtocolSettings};

    /// Stands for a host in which chats go on while they are subscribed to, as a seed says.
    struct Busy {
        peer: Rc<Peer>,
        hub: Arc<Hub>,
        names: Vec<Channel>,
        random: RefCell<u64>,
        /// What happened: the channel of each number, from 1.
        line: RefCell<Vec<Channel>>,
        /// How many subscriptions were asked for.
        asked: RefCell<u64>,
    }

    impl Busy {
        fn new(seed: u64) -> Self {
            let store = Arc::new(MemoryStore::new().unwrap());
            let host = Host::start(HostSettings::default(), store, Vec::new(), Clock::fixed(0)).unwrap();
            let gate = Gate { host_name: "test".into(), ..Gate::at("127.0.0.1:1".parse().unwrap()) };
            let hub = Hub::new(1, Arc::new(|_, _| None));
            let app = Arc::new(App::new(host, gate, ProtocolSettings::default()));
            let peer = Peer::new(app, Router::start(&hub), Identity::root("test"));
            let names = (0..4).map(|n| Channel::from(format!("ahp-chat:/{n}"))).collect();
            let (line, asked) = (RefCell::default(), RefCell::default());
            Self { peer, hub, names, random: RefCell::new(seed * 2 + 1), line, asked }
        }

        fn random(&self, below: u64) -> u64 {
            let next =
                self.random.borrow().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            self.random.replace(next);
            (next >> 33) % below
        }

        fn happen(&self, events: u64) {
            for _ in 0..events {
                let channel = self.names[self.random(4) as usize].clone();
                self.line.borrow_mut().push(channel.clone());
                let seq = self.line.borrow().len() as ServerSeq;
                self.hub.publish(vec![Envelope::new(channel, ChannelId(2), seq, None, b"{}")]);
            }
        }

        fn subscribe(&self, alias: &str, then: OnSnapshot) {
            // It calms down, so that most rounds settle.
            let asked = self.asked.replace_with(|asked| *asked + 1);
            let events = if self.random(2 + asked) < 3 { self.random(4) } else { 0 };
            self.happen(events);
            let resource = Channel::from(alias);
            let from_seq = self.events_of(&resource).last().copied().unwrap_or(0);
            let (channel, alias) = (resource.clone(), resource.clone());
            let subscription = Subscription { channel, alias, from_seq, window: None };
            let snapshot = SnapshotJson { resource, state: "{}".into(), from_seq, folded: None };
            self.peer.to.subscribe(subscription, Box::new(move |connection| then(connection, Ok(snapshot))));
            self.happen(self.random(1 + 4 / (asked + 1)));
        }

        fn events_of(&self, channel: &Channel) -> Vec<ServerSeq> {
            let line = self.line.borrow();
            (1..).zip(line.iter()).filter(|(_, c)| *c == channel).map(|(seq, _)| seq).collect()
        }
    }

    /// Runs the handshake and returns its number, its snapshots' numbers and what was sent after it; nothing where the
    /// host called itself busy.
    async fn handshake(busy: &Busy) -> Option<(ServerSeq, HashMap<Channel, ServerSeq>, Vec<(Channel, ServerSeq)>)> {
        busy.happen(busy.random(10));
        let before = busy.line.borrow().len() as ServerSeq;
        busy.peer.connection.hold();
        let wanted: Vec<Wanted> = busy.names.iter().map(|n| Wanted { alias: n.clone(), turns: None }).collect();
        let subscribe = Box::new(|alias: &str, _, then| busy.subscribe(alias, then));
        let mut collection = Collection::by(&busy.peer, subscribe, &wanted).await;
        collection.settle().await.ok()?;
        let server_seq = collection.server_seq(before);
        let snapshots = collection.snapshots().map(|s| (s.resource.clone(), s.from_seq)).collect();
        busy.peer.connection.release_held("{}".into(), 0);
        busy.happen(5);
        let (done, waits) = tokio::sync::oneshot::channel();
        busy.peer.to.run(Box::new(|_| assert_eq!(done.send(()), Ok(()))));
        waits.await.unwrap();
        let frames = std::iter::from_fn(|| busy.peer.connection.pop()).skip(1);
        let sent = frames.map(|frame| {
            let frame: Value = serde_json::from_str(&frame).unwrap();
            let channel = frame["params"]["channel"].as_str().unwrap();
            (Channel::from(channel), frame["params"]["serverSeq"].as_u64().unwrap())
        });
        Some((server_seq, snapshots, sent.collect()))
    }

    #[actix_web::test]
    async fn no_event_up_to_the_number_of_the_answer_is_missing_and_none_comes_twice() {
        let mut settled = 0;
        for seed in 0..500 {
            let busy = Busy::new(seed);
            let Some((server_seq, snapshots, sent)) = handshake(&busy).await else { continue };
            settled += 1;
            assert!(sent.is_sorted_by_key(|(_, seq)| *seq), "seed {seed}");
            assert!(sent.iter().all(|(_, seq)| *seq > server_seq), "seed {seed}: sent at or before {server_seq}");
            for name in &busy.names {
                let from_seq = snapshots[name];
                let later: Vec<_> = busy.events_of(name).into_iter().filter(|seq| *seq > from_seq).collect();
                let heard: Vec<_> = sent.iter().filter(|(channel, _)| channel == name).map(|(_, seq)| *seq).collect();
                assert_eq!(heard, later, "seed {seed}: {name} from {from_seq}");
                assert!(from_seq <= server_seq, "seed {seed}: a snapshot beyond the answer's number");
            }
        }
        assert!(settled > 250, "only {settled} settled");
    }
}
