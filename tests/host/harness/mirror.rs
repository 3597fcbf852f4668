//! A client that keeps every state with the official mirror, drops and comes back, and compares what it holds with what
//! the host says.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use ahp::hosts::HostId;
use ahp::multi_host_state_mirror::{HostedResourceKey, MultiHostStateMirror};
use ahp_types::actions::ActionEnvelope;
use ahp_types::state::{ChatState, SessionState, Snapshot, SnapshotState};
use serde_json::{Value, json};

use super::Client;

/// The channel of the root.
pub const ROOT: &str = "ahp-root://";

/// A connection and what the official mirror has made of all that came over it.
pub struct Mirrored {
    pub id: String,
    pub client: Client,
    /// The channels that it is subscribed to.
    pub channels: BTreeSet<String>,
    /// The newest number that it has seen on any channel: what it reconnects with.
    pub last_seen: u64,
    /// The reasons of its refused actions.
    pub refused: Vec<String>,
    mirror: MultiHostStateMirror,
    host: HostId,
    /// The newest number on this connection, and the envelope that had it.
    on_connection: u64,
    newest: Value,
}

impl Mirrored {
    /// Shakes hands as `id`, subscribed to `channels`.
    pub async fn connect(address: SocketAddr, id: &str, channels: &[&str]) -> Self {
        let mut mirrored = Self {
            id: id.to_owned(),
            client: Client::connect(address).await,
            channels: channels.iter().map(ToString::to_string).collect(),
            last_seen: 0,
            refused: Vec::new(),
            mirror: MultiHostStateMirror::new(),
            host: HostId::new("host"),
            on_connection: 0,
            newest: Value::Null,
        };
        let answer = mirrored.client.initialize(id, channels).await;
        mirrored.last_seen = answer["serverSeq"].as_u64().unwrap();
        mirrored.on_connection = mirrored.last_seen;
        mirrored.take_snapshots(&answer["snapshots"]);
        mirrored
    }

    /// Drops the socket without a word and comes back on a new one, from the last number that was seen.
    pub async fn reconnect(&mut self, address: SocketAddr) {
        self.client = Client::connect(address).await;
        self.client.next_seq = 0;
        self.on_connection = 0;
        self.newest = Value::Null;
        let channels: Vec<&str> = self.channels.iter().map(String::as_str).collect();
        let answer = self.client.reconnect(&self.id, self.last_seen, &channels).await;
        if answer["type"] == json!("snapshot") {
            let there: BTreeSet<String> = answer["snapshots"].as_array().unwrap().iter().map(resource).collect();
            self.channels.retain(|channel| there.contains(channel));
            self.take_snapshots(&answer["snapshots"]);
            return;
        }
        for channel in answer["missing"].as_array().unwrap() {
            self.channels.remove(channel.as_str().unwrap());
        }
        for envelope in answer["actions"].as_array().unwrap() {
            self.take_envelope(envelope);
        }
    }

    /// Subscribes to a channel; `false` where it is not there.
    pub async fn follow(&mut self, channel: &str) -> bool {
        let Some(snapshot) = self.snapshot(channel).await else { return false };
        self.take_snapshot(&snapshot);
        self.channels.insert(channel.to_owned());
        true
    }

    /// Subscribes once more, which is answered at its place among the envelopes: what is held then has to be the snapshot.
    /// `false` where the channel is gone. Returns the snapshot otherwise.
    pub async fn compare(&mut self, channel: &str) -> Option<Value> {
        let snapshot = self.snapshot(channel).await;
        let Some(snapshot) = snapshot else {
            self.channels.remove(channel);
            return None;
        };
        let decoded: Snapshot = serde_json::from_value(snapshot.clone()).unwrap();
        let (held, said) = (self.held(channel), canonical(&decoded.state));
        let difference = difference(&held, &said);
        assert_eq!(difference, None, "{} holds another {channel} than the host", self.id);
        Some(snapshot)
    }

    async fn snapshot(&mut self, channel: &str) -> Option<Value> {
        let answer = self.client.ask("subscribe", json!({ "channel": channel })).await;
        self.take_waiting();
        let snapshot = answer.ok()?["snapshot"].clone();
        let resource = &snapshot["state"]["resource"];
        if resource.is_string() && *resource != json!(channel) {
            // The first chat's name, after that chat was disposed: it stands for the successor now.
            let params = json!({ "channel": channel });
            self.client.send(json!({ "jsonrpc": "2.0", "method": "unsubscribe", "params": params })).await;
            return None;
        }
        Some(snapshot)
    }

    /// Takes everything that was queued before the answer to a ping.
    pub async fn sync(&mut self) {
        for message in self.client.drain().await {
            self.take(&message);
        }
    }

    fn take_waiting(&mut self) {
        for message in self.client.taken() {
            self.take(&message);
        }
    }

    /// Waits for the next message and takes it.
    pub async fn next(&mut self) -> Value {
        let message = self.client.next().await.expect("the socket ended");
        self.take(&message);
        message
    }

    /// Reads on until the action with this number came back, accepted or refused.
    pub async fn until_echo(&mut self, client_seq: i64) -> Value {
        let origin = json!({ "clientId": self.id, "clientSeq": client_seq });
        loop {
            let message = self.next().await;
            if message["params"]["origin"] == origin {
                return message["params"].clone();
            }
        }
    }

    fn take(&mut self, message: &Value) {
        if message["method"] == json!("action") {
            let envelope = &message["params"];
            let seq = envelope["serverSeq"].as_u64().unwrap();
            // What changes nothing, and what is refused, comes back with the current number; a chat that is heard under two
            // names is heard twice.
            let own = envelope["origin"]["clientId"] == json!(self.id);
            let again = own || envelope["channel"] != self.newest["channel"];
            let in_order = seq > self.on_connection || (again && seq == self.on_connection);
            assert!(in_order, "out of order on one connection: {envelope} after {}", self.newest);
            self.on_connection = seq;
            self.newest = envelope.clone();
            self.take_envelope(envelope);
        }
    }

    fn take_envelope(&mut self, envelope: &Value) {
        self.last_seen = self.last_seen.max(envelope["serverSeq"].as_u64().unwrap());
        if let Some(reason) = envelope["rejectionReason"].as_str() {
            assert_eq!(envelope["origin"]["clientId"], json!(self.id), "somebody else's refusal: {envelope}");
            return self.refused.push(reason.to_owned());
        }
        let envelope: ActionEnvelope = serde_json::from_value(envelope.clone()).unwrap();
        self.mirror.apply_envelope(&self.host, &envelope);
    }

    fn take_snapshots(&mut self, snapshots: &Value) {
        snapshots.as_array().unwrap().iter().for_each(|snapshot| self.take_snapshot(snapshot));
    }

    fn take_snapshot(&mut self, snapshot: &Value) {
        let snapshot: Snapshot = serde_json::from_value(snapshot.clone()).unwrap();
        self.last_seen = self.last_seen.max(u64::try_from(snapshot.from_seq).unwrap());
        self.mirror.apply_snapshot(&self.host, &snapshot);
    }

    fn key(&self, uri: &str) -> HostedResourceKey {
        HostedResourceKey::new(self.host.clone(), uri)
    }

    /// A session as it is mirrored.
    pub fn session(&self, uri: &str) -> Option<&SessionState> {
        self.mirror.sessions().get(&self.key(uri)).filter(|_| self.channels.contains(uri))
    }

    /// A chat as it is mirrored.
    pub fn chat(&self, uri: &str) -> Option<&ChatState> {
        self.mirror.chats().get(&self.key(uri)).filter(|_| self.channels.contains(uri))
    }

    /// All chats that are followed.
    pub fn chats(&self) -> Vec<String> {
        self.channels.iter().filter(|channel| self.chat(channel).is_some()).cloned().collect()
    }

    /// What is held of a channel, in the form of [`canonical`].
    pub fn held(&self, channel: &str) -> Value {
        let state = if channel == ROOT {
            self.mirror.root_states().get(&self.host).cloned().map(|root| SnapshotState::Root(Box::new(root)))
        } else if let Some(session) = self.session(channel) {
            Some(SnapshotState::Session(Box::new(session.clone())))
        } else if let Some(canvas) = self.mirror.canvases().get(&self.key(channel)) {
            Some(SnapshotState::Canvas(Box::new(canvas.clone())))
        } else {
            self.chat(channel).cloned().map(|chat| SnapshotState::Chat(Box::new(chat)))
        };
        canonical(&state.unwrap_or_else(|| panic!("{} holds nothing of {channel}", self.id)))
    }
}

fn resource(snapshot: &Value) -> String {
    snapshot["resource"].as_str().unwrap().to_owned()
}

/// A state as JSON in which equal states are equal. A chat's title is left out: no action of a chat carries it, so the
/// official mirror keeps the one of the snapshot.
pub fn canonical(state: &SnapshotState) -> Value {
    let mut value = serde_json::to_value(state).unwrap();
    if matches!(state, SnapshotState::Chat(_)) {
        value.as_object_mut().unwrap().remove("title");
    }
    value
}

/// Where two values differ first, and how.
pub fn difference(left: &Value, right: &Value) -> Option<String> {
    match (left, right) {
        (Value::Object(l), Value::Object(r)) => {
            let keys: BTreeSet<&String> = l.keys().chain(r.keys()).collect();
            keys.into_iter().find_map(|key| {
                let below = difference(l.get(key).unwrap_or(&Value::Null), r.get(key).unwrap_or(&Value::Null))?;
                Some(format!("/{key}{below}"))
            })
        }
        (Value::Array(l), Value::Array(r)) if l.len() == r.len() => {
            let pairs = l.iter().zip(r).enumerate();
            pairs.into_iter().find_map(|(at, (l, r))| Some(format!("/{at}{}", difference(l, r)?)))
        }
        _ if left == right => None,
        _ => Some(format!(": {left} and {right}")),
    }
}
