//! Clients that come back: what they missed arrives once, in order, under the names that they use.
//!
//! A witness that stays connected hears everything; what another client hears over its connections must be the same.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_web::{App as WebApp, HttpServer};
use futures_util::{SinkExt, StreamExt};
use scrollback::access::Gate;
use scrollback::actors::host::{Host, HostSettings};
use scrollback::agents::demo::DemoAgent;
use scrollback::clock::Clock;
use scrollback::events::memory::MemoryStore;
use scrollback::protocol::{App, ProtocolSettings, on_connect, routes};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

const PATIENCE: Duration = Duration::from_secs(20);
const ROOT: &str = "ahp-root://";
const SESSION: &str = "ahp-session:/s1";
/// The default chat of [`SESSION`].
const CHAT: &str = "ahp-chat://default/YWhwLXNlc3Npb246L3Mx";
/// Another name of [`CHAT`].
const SYNONYM: &str = "ahp-chat:/s1";

fn serve(settings: ProtocolSettings) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let bind = listener.local_addr().unwrap();
    let store = Arc::new(MemoryStore::new().unwrap());
    let agents: Vec<Arc<dyn scrollback::actors::agent::Agent>> = vec![Arc::new(DemoAgent::default())];
    let host = Host::start(HostSettings::default(), store, agents, Clock::system()).unwrap();
    let gate = Gate { host_name: "test".into(), ..Gate::at(bind) };
    let app = Arc::new(App::new(host, gate, settings));
    let factory = move || WebApp::new().configure(|cfg| routes(cfg, Arc::clone(&app)));
    let server = HttpServer::new(factory).workers(2).disable_signals().on_connect(on_connect);
    actix_web::rt::spawn(server.listen(listener).unwrap().run());
    bind
}

/// A client that keeps every envelope that it hears.
struct Client {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    id: &'static str,
    next: u64,
    heard: Vec<Value>,
}

impl Client {
    async fn connect(address: SocketAddr, id: &'static str) -> Self {
        let socket = connect_async(format!("ws://{address}/")).await.unwrap().0;
        Self { socket, id, next: 0, heard: Vec::new() }
    }

    /// The next message that is no notification but an envelope or an answer.
    async fn next(&mut self) -> Value {
        loop {
            let message = timeout(PATIENCE, self.socket.next()).await.expect("nothing came");
            let Message::Text(text) = message.expect("the socket ended").unwrap() else { continue };
            let message: Value = serde_json::from_str(&text).unwrap();
            if message["method"] == "action" {
                self.heard.push(message["params"].clone());
                return message;
            }
            if message.get("id").is_some() {
                return message;
            }
        }
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        self.socket.send(Message::text(request.to_string())).await.unwrap();
        loop {
            let message = self.next().await;
            if message["id"] == self.next {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }

    async fn initialize(&mut self, subscriptions: &[&str]) -> Value {
        let params = json!({ "channel": ROOT, "clientId": self.id, "protocolVersions": ["1.0.0"],
            "initialSubscriptions": subscriptions });
        self.ask("initialize", params).await
    }

    async fn reconnect(&mut self, last_seen: u64, subscriptions: &[&str]) -> Value {
        let params = json!({ "channel": ROOT, "clientId": self.id, "lastSeenServerSeq": last_seen,
            "subscriptions": subscriptions });
        let answer = self.ask("reconnect", params).await;
        serde_json::from_value::<ahp_types::commands::ReconnectResult>(answer.clone()).unwrap();
        answer
    }

    async fn say(&mut self, turn: &str, text: &str) {
        let message = json!({ "text": text, "origin": { "kind": "user" } });
        let action = json!({ "type": "chat/turnStarted", "turnId": turn, "startedAt": "2026-11-30T12:00:00.000Z",
            "message": message });
        let params = json!({ "channel": CHAT, "clientSeq": 1, "action": action });
        let notification = json!({ "jsonrpc": "2.0", "method": "dispatchAction", "params": params });
        self.socket.send(Message::text(notification.to_string())).await.unwrap();
    }

    /// The newest number that its channels have shown it: whatever comes on them later is heard.
    async fn newest(&mut self) -> u64 {
        let mut newest = 0;
        for channel in [ROOT, SESSION, CHAT] {
            let answer = self.ask("subscribe", json!({ "channel": channel })).await;
            newest = newest.max(answer["snapshot"]["fromSeq"].as_u64().unwrap());
        }
        newest
    }

    /// Listens until a turn has ended.
    async fn until_done(&mut self) {
        while self.next().await["params"]["action"]["type"] != "chat/turnComplete" {}
    }

    /// Asks for something small, so that everything that was sent before has been heard.
    async fn drain(&mut self) {
        self.ask("ping", json!({ "channel": ROOT })).await;
    }
}

/// A host with [`SESSION`], and a witness that is subscribed to it, to [`CHAT`] and to the root.
async fn scene(settings: ProtocolSettings) -> (SocketAddr, Client) {
    let address = serve(settings);
    let mut witness = Client::connect(address, "witness").await;
    witness.initialize(&[ROOT]).await;
    witness.ask("createSession", json!({ "channel": SESSION, "provider": "demo" })).await;
    for channel in [SESSION, CHAT] {
        witness.ask("subscribe", json!({ "channel": channel })).await;
    }
    (address, witness)
}

fn seq(envelope: &Value) -> u64 {
    envelope["serverSeq"].as_u64().unwrap()
}

fn later_than(envelopes: &[Value], last_seen: u64) -> Vec<Value> {
    envelopes.iter().filter(|envelope| seq(envelope) > last_seen).cloned().collect()
}

#[actix_web::test]
async fn a_replay_is_what_a_witness_heard_after_the_watermark() {
    let (address, mut witness) = scene(ProtocolSettings::default()).await;
    witness.say("t1", "hello there").await;
    witness.until_done().await;
    witness.drain().await;
    let middle = seq(&witness.heard[witness.heard.len() / 2]);
    let mut client = Client::connect(address, "c").await;
    let answer = client.reconnect(middle, &[ROOT, SESSION, CHAT, "ahp-chat:/gone"]).await;
    assert_eq!(answer["type"], "replay");
    assert_eq!(answer["missing"], json!(["ahp-chat:/gone"]));
    assert_eq!(answer["actions"], Value::from(later_than(&witness.heard, middle)));
}

#[actix_web::test]
async fn a_replay_under_a_synonym_carries_the_synonym() {
    let (address, mut witness) = scene(ProtocolSettings::default()).await;
    let before = witness.newest().await;
    witness.say("t1", "hello").await;
    witness.until_done().await;
    let mut client = Client::connect(address, "c").await;
    let answer = client.reconnect(before, &[SYNONYM]).await;
    let actions = answer["actions"].as_array().unwrap();
    assert!(!actions.is_empty() && actions.iter().all(|envelope| envelope["channel"] == SYNONYM), "{answer}");
    witness.say("t2", "more").await;
    client.until_done().await;
    assert!(client.heard.iter().all(|envelope| envelope["channel"] == SYNONYM));
}

#[actix_web::test]
async fn a_client_that_is_ahead_or_missed_too_much_gets_snapshots() {
    let (address, mut witness) = scene(ProtocolSettings { replay_limit: 500, ..Default::default() }).await;
    witness.say("t1", "a few words that make more than one envelope").await;
    witness.until_done().await;
    for last_seen in [1, 1 << 40] {
        let mut client = Client::connect(address, "c").await;
        let answer = client.reconnect(last_seen, &[SESSION, "ahp-chat:/gone", CHAT]).await;
        assert_eq!(answer["type"], "snapshot", "{answer}");
        let snapshots = answer["snapshots"].as_array().unwrap();
        assert_eq!(snapshots.iter().map(|s| s["resource"].as_str().unwrap()).collect::<Vec<_>>(), [SESSION, CHAT]);
        witness.say(&format!("after-{last_seen}"), "more").await;
        client.until_done().await;
        let newest = snapshots.iter().map(|snapshot| snapshot["fromSeq"].as_u64().unwrap()).max().unwrap();
        assert!(client.heard.iter().all(|envelope| seq(envelope) > newest));
    }
}

#[actix_web::test]
async fn cursors_are_answered_channel_by_channel() {
    let (address, mut witness) = scene(ProtocolSettings::default()).await;
    let before = witness.newest().await;
    witness.say("t1", "hello").await;
    witness.until_done().await;
    witness.drain().await;
    let cursor = |channel: &str, seen: u64| json!({ "channel": channel, "lastSeenServerSeq": seen });
    let subscriptions = [cursor(CHAT, before), cursor(SESSION, 0), cursor("ahp-chat:/gone", 5), cursor(ROOT, 1 << 40)];
    let params = json!({ "channel": ROOT, "clientId": "c", "subscriptions": subscriptions });
    let mut client = Client::connect(address, "c").await;
    let channels = client.ask("reconnect", params).await["channels"].clone();
    let kinds: Vec<_> = channels.as_array().unwrap().iter().map(|channel| channel["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["replay", "snapshot", "missing", "snapshot"]);
    let of_chat: Vec<_> =
        later_than(&witness.heard, before).into_iter().filter(|envelope| envelope["channel"] == CHAT).collect();
    assert_eq!(channels[0]["actions"], Value::from(of_chat));
    assert_eq!(channels[1]["snapshot"]["resource"], SESSION);
}

#[actix_web::test]
async fn a_client_that_drops_again_and_again_hears_everything_once() {
    let (address, mut witness) = scene(ProtocolSettings::default()).await;
    let begin = witness.newest().await;
    witness.say("t1", "/words 300 1").await;
    let mut heard: Vec<Value> = Vec::new();
    let is_done = |heard: &[Value]| heard.iter().any(|envelope| envelope["action"]["type"] == "chat/turnComplete");
    for round in 0.. {
        let last_seen = heard.last().map_or(begin, seq);
        let mut client = Client::connect(address, "c").await;
        let answer = client.reconnect(last_seen, &[ROOT, SESSION, CHAT]).await;
        assert_eq!(answer["type"], "replay", "{answer}");
        heard.extend(answer["actions"].as_array().unwrap().iter().cloned());
        if is_done(&heard) {
            break;
        }
        for _ in 0..round % 7 {
            if is_done(&client.heard) {
                break;
            }
            client.next().await;
        }
        // Everything that it heard on this connection; it drops without a word.
        heard.append(&mut client.heard);
    }
    witness.until_done().await;
    let upto = heard.last().map_or(0, seq);
    while witness.heard.last().map_or(0, seq) < upto {
        witness.next().await;
    }
    let expected: Vec<Value> =
        later_than(&witness.heard, begin).into_iter().filter(|envelope| seq(envelope) <= upto).collect();
    assert!(expected.len() > 20);
    assert_eq!(heard, expected);
}

#[actix_web::test]
async fn a_window_is_remembered_for_the_snapshot_after_a_drop() {
    let (address, mut witness) = scene(ProtocolSettings { replay_limit: 0, ..Default::default() }).await;
    for turn in ["t1", "t2", "t3"] {
        witness.say(turn, "hello").await;
        witness.until_done().await;
    }
    let mut client = Client::connect(address, "c").await;
    client.initialize(&[]).await;
    client.ask("subscribe", json!({ "channel": CHAT, "view": { "turns": 1 } })).await;
    drop(client);
    let mut client = Client::connect(address, "c").await;
    let answer = client.reconnect(1, &[CHAT]).await;
    assert_eq!(answer["snapshots"][0]["state"]["turns"].as_array().unwrap().len(), 1, "{answer}");
}
