//! Peers that do not read, ask for too much at once, or vanish.

use std::net::SocketAddr;
use std::sync::Arc;

use scrollback::events::gated::GatedStore;
use scrollback::events::memory::MemoryStore;
use scrollback::protocol::ProtocolSettings;
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};

use crate::harness::{Client, Options, TestHost, chat_of, message};

/// A connection whose kernel takes in little that is not read.
async fn narrow(address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.connect(address).await.unwrap()
}

fn in_memory(protocol: ProtocolSettings) -> TestHost {
    TestHost::start(Arc::new(MemoryStore::new().unwrap()), Options { protocol, ..Options::default() })
}

#[tokio::test]
async fn a_peer_that_does_not_read_is_closed_while_others_get_everything_and_misses_nothing() {
    const FLOOD: usize = 60;
    let host = in_memory(ProtocolSettings {
        max_unsent: 1 << 20,
        replay_limit: 64 << 20,
        close_timeout: std::time::Duration::from_secs(600),
        ..Default::default()
    });
    let mut flood = host.client("flood").await;
    let chat = flood.create_session("ahp-session:/s").await;
    flood.subscribe(&chat).await;
    let mut slow = Client::connect_over(host.address, narrow(host.address).await).await;
    slow.initialize("slow", &[]).await;
    let from = slow.subscribe(&chat).await["fromSeq"].as_u64().unwrap();

    let mut sent = Vec::new();
    for n in 0..FLOOD {
        let text = format!("{n} {}", "x".repeat(300_000));
        let seq = flood.dispatch(&chat, json!({ "type": "chat/draftChanged", "draft": message(&text) })).await;
        sent.push(flood.echo(seq).await);
    }

    let (read, close) = slow.read_until_closed().await;
    assert_eq!(close.0, 1013, "{close:?}");
    assert!(crate::harness::met("unsent_bytes") > 0);
    let seen: Vec<Value> = read.into_iter().map(|message| message["params"].clone()).collect();
    assert!(seen.len() < FLOOD / 2, "{} were kept for a peer that reads nothing", seen.len());
    let last_seen = seen.last().map_or(from, |envelope| envelope["serverSeq"].as_u64().unwrap());
    let mut back = Client::connect(host.address).await;
    let replay = back.reconnect("slow", last_seen, &[&chat]).await;
    let missed = replay["actions"].as_array().unwrap();
    let all: Vec<&Value> = seen.iter().chain(missed).collect();
    assert_eq!(all.len(), FLOOD);
    assert!(all.into_iter().eq(&sent), "what it saw and what it missed are not all that happened");
}

#[tokio::test]
async fn an_event_that_is_over_the_limit_by_itself_reaches_everybody_who_reads() {
    let host = in_memory(ProtocolSettings { max_unsent: 100_000, ..Default::default() });
    let (mut a, mut b) = (host.client("a").await, host.client("b").await);
    let chat = a.create_session("ahp-session:/s").await;
    for client in [&mut a, &mut b] {
        client.subscribe(&chat).await;
    }
    for n in 0..3 {
        let text = format!("{n} {}", "x".repeat(300_000));
        let seq = a.dispatch(&chat, json!({ "type": "chat/draftChanged", "draft": message(&text) })).await;
        let echo = a.echo(seq).await;
        let heard = b.envelope(|e| e["serverSeq"] == echo["serverSeq"]).await;
        assert_eq!(heard["action"]["draft"]["text"], json!(text));
    }
}

#[tokio::test]
async fn requests_beyond_256_in_flight_are_refused_and_those_before_are_answered() {
    let store = GatedStore::new(MemoryStore::new().unwrap());
    let gate = store.gate();
    let host = TestHost::start(Arc::new(store), Options::default());
    let mut a = host.client("a").await;
    let chat = a.create_session("ahp-session:/s").await;
    a.until(|e| e["action"]["activeSessions"] == json!(1)).await;
    gate.hold();
    a.dispatch(&chat, json!({ "type": "chat/draftChanged", "draft": message("held") })).await;
    gate.wait_until_held();
    for id in 0..257 {
        let params = json!({ "channel": chat });
        a.send(json!({ "jsonrpc": "2.0", "id": format!("r{id}"), "method": "subscribe", "params": params })).await;
    }
    let refused = a.next().await.unwrap();
    assert_eq!(refused["id"], json!("r256"), "{refused}");
    assert_eq!(
        (&refused["error"]["code"], &refused["error"]["data"]["code"]),
        (&json!(-32000), &json!("limit-exceeded"))
    );
    assert!(crate::harness::met("requests_in_flight") > 0);
    gate.release_all();
    for id in 0..256 {
        let answer = a.next().await.unwrap();
        assert_eq!(answer["id"], json!(format!("r{id}")));
        assert_eq!(answer["result"]["snapshot"]["state"]["draft"]["text"], json!("held"));
    }
    a.subscribe(&chat).await;
}

#[tokio::test]
async fn a_turn_goes_on_when_the_socket_of_its_sender_vanishes() {
    let host = in_memory(ProtocolSettings::default());
    let mut watcher = host.client("watcher").await;
    let mut sender = host.client("sender").await;
    let chat = sender.create_session("ahp-session:/s").await;
    watcher.subscribe(&chat).await;
    sender.say(&chat, "t1", "/words 50 2").await;
    watcher.envelope(|e| e["action"]["type"] == json!("chat/delta")).await;
    sender.drop_socket().await;
    let end = watcher.until_ended("t1").await.pop().unwrap();
    assert_eq!(end["action"]["type"], json!("chat/turnComplete"));
    assert_eq!(watcher.subscribe(&chat_of("ahp-session:/s")).await["state"]["turns"][0]["id"], json!("t1"));
}
