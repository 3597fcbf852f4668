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

use std::rc::Rc;

use tokio::sync::mpsc::unbounded_channel;

use super::error::count_limit;
use super::peer::Peer;
use crate::actors::command::{Refusal, RefusalKind};
use crate::actors::connection::Caller;
use crate::actors::host::SnapshotJson;
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

/// Snapshots on the way into one answer.
pub struct Collection<'a> {
    peer: &'a Rc<Peer>,
    caller: &'a Caller,
    wanted: &'a [Wanted],
    found: Vec<Option<SnapshotJson>>,
    /// Bytes of the states that were found.
    bytes: usize,
}

impl<'a> Collection<'a> {
    /// Subscribes to what is wanted; the connection must be holding. What is not there is left out.
    pub async fn of(peer: &'a Rc<Peer>, caller: &'a Caller, wanted: &'a [Wanted]) -> Self {
        let mut collection = Self { peer, caller, wanted, found: vec![None; wanted.len()], bytes: 0 };
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
            self.peer.app.host.subscribe(self.caller, wanted.alias.as_str(), wanted.turns, then);
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
