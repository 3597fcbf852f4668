//! What one client may take of the host: each limit that its socket can meet, met, said, counted, and nothing lost by it. Limits
//! of turns, queues, visuals and the like are met where those are tested; `tests/docs/limits.rs` has the list.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use scrollback::actors::host::HostSettings;
use scrollback::events::gated::GatedStore;
use scrollback::events::memory::MemoryStore;
use scrollback::projections::verify::verify;
use scrollback::protocol::ProtocolSettings;
use serde_json::{Value, json};
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::Error;

use crate::harness::attaching::{embedded, resource, starts, with as message_with};
use crate::harness::{Client, Options, TestHost, eventually, message, met, word};

const ROOT: &str = "ahp-root://";
const S: &str = "ahp-session:/s";
const NEVER: Duration = Duration::from_secs(3_600);

fn of_sockets(protocol: ProtocolSettings) -> TestHost {
    TestHost::with(Options { protocol, ..Options::default() })
}

fn of_host(settings: HostSettings) -> TestHost {
    TestHost::with(Options { settings, ..Options::default() })
}

fn draft(message: Value) -> Value {
    json!({ "type": "chat/draftChanged", "draft": message })
}

/// The connection goes on, what was there is there, and the log holds what it says.
async fn nothing_is_lost(host: &TestHost, client: &mut Client, chat: &str) {
    let before = client.subscribe(chat).await["state"]["turns"].as_array().unwrap().len();
    client.say(chat, "afterwards", "/say on").await;
    client.until_ended("afterwards").await;
    let turns = client.subscribe(chat).await["state"]["turns"].clone();
    assert_eq!(turns.as_array().unwrap().len(), before + 1);
    verify(host.host.store().as_ref(), &mut |_| ()).unwrap();
}

/// Arrays so deep within each other.
fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| json!([inner]))
}

#[tokio::test]
async fn a_message_over_the_limit_ends_its_own_connection_and_the_client_comes_back() {
    let host = of_sockets(ProtocolSettings { max_message: 20_000, ..ProtocolSettings::default() });
    let (mut client, chat) = host.open(&[]).await;
    let mut other = host.client("d").await;
    other.subscribe(&chat).await;
    let kept = client.accepted(&chat, draft(message("kept"))).await;
    client.dispatch(&chat, draft(message(&"x".repeat(20_001)))).await;
    assert_eq!(client.read_until_closed().await.1.0, 1009);
    assert_eq!(met("message"), 1);
    let seq = kept["serverSeq"].as_u64().unwrap();
    other.envelope(|e| e["serverSeq"] == json!(seq)).await;
    let mut back = Client::connect(host.address).await;
    let replay = back.reconnect("c", seq - 1, &[&chat]).await;
    assert_eq!(replay["actions"][0]["action"], kept["action"]);
    nothing_is_lost(&host, &mut back, &chat).await;
}

#[tokio::test]
async fn what_nests_too_deep_is_refused_with_its_id_and_the_limit_can_be_set() {
    let host = of_sockets(ProtocolSettings { max_nesting: 20, ..ProtocolSettings::default() });
    let (mut client, chat) = host.open(&[]).await;
    // The envelope and its params are the first two.
    let of = |depth: usize| json!({ "channel": ROOT, "more": nested(depth - 2) });
    client.ask("ping", of(20)).await.unwrap();
    for depth in [21, 1_000] {
        assert_eq!(client.refused("ping", of(depth)).await, (-32600, "limit-exceeded".to_owned()));
    }
    assert_eq!(met("nesting"), 2);
    nothing_is_lost(&host, &mut client, &chat).await;
}

#[tokio::test]
async fn the_deepest_message_that_can_be_allowed_is_read_back_everywhere() {
    let directory = tempfile::tempdir().unwrap();
    let options = || Options {
        protocol: ProtocolSettings { max_nesting: 100, ..ProtocolSettings::default() },
        ..Options::default()
    };
    let host = TestHost::on_disk_with(directory.path(), options());
    let (mut client, chat) = host.open(&[]).await;
    let mut deep = message("deep");
    // Envelope, params, action and message are four, `_meta` is one.
    deep["_meta"] = json!({ "theirs": nested(95) });
    let seq = client.accepted(&chat, starts("t", &deep)).await["serverSeq"].as_u64().unwrap();
    client.until_ended("t").await;
    client.accepted(&chat, draft(deep.clone())).await;
    let is_whole = |state: &Value| {
        assert_eq!(state["turns"][0]["message"]["_meta"]["theirs"], deep["_meta"]["theirs"]);
        assert_eq!(state["draft"]["_meta"], deep["_meta"]);
    };
    is_whole(&client.subscribe(&chat).await["state"]);
    let mut back = Client::connect(host.address).await;
    let replay = back.reconnect("c", seq - 1, &[&chat]).await;
    assert_eq!(replay["actions"][0]["action"]["message"]["_meta"]["theirs"], deep["_meta"]["theirs"]);
    let fork = json!({ "channel": S, "chat": "ahp-chat:/fork",
        "source": { "kind": "fork", "chat": chat, "turnId": "t" } });
    client.ask("createChat", fork).await.unwrap();
    verify(host.host.store().as_ref(), &mut |_| ()).unwrap();
    host.stop();
    let host = TestHost::on_disk_with(directory.path(), options());
    let mut client = host.client("d").await;
    is_whole(&client.subscribe(&chat).await["state"]);
    nothing_is_lost(&host, &mut client, &chat).await;
}

#[tokio::test]
async fn an_action_is_bounded_as_a_whole_beside_the_files_that_it_brings() {
    let host = of_host(HostSettings { max_action: 2_000, ..HostSettings::default() });
    let (mut client, chat) = host.open(&[]).await;
    let mut long = message("short");
    long["_meta"] = json!({ "theirs": "x".repeat(2_000) });
    for action in [starts("t", &long), draft(long.clone())] {
        assert_eq!(client.rejected(&chat, action).await, "limit-exceeded");
    }
    let first = json!({ "channel": S, "chat": "ahp-chat:/p", "initialMessage": long });
    assert_eq!(client.refused("createChat", first).await, (-32000, "limit-exceeded".to_owned()));
    assert!(met("action") >= 3);
    let bytes = embedded("a.bin", "application/octet-stream", &[7; 10_000]);
    client.accepted(&chat, starts("t", &message_with("/context", json!([bytes])))).await;
    client.until_ended("t").await;
    nothing_is_lost(&host, &mut client, &chat).await;
}

#[tokio::test]
async fn a_message_has_so_many_attachments_and_no_more() {
    let host = of_host(HostSettings { max_attachments: 2, ..HostSettings::default() });
    let (mut client, chat) = host.open(&[]).await;
    let of = |count: usize| message_with("/context", json!(vec![resource("x", "https://example.org/x"); count]));
    assert_eq!(client.rejected(&chat, starts("t", &of(3))).await, "limit-exceeded");
    assert_eq!(client.rejected(&chat, draft(of(3))).await, "limit-exceeded");
    let first = json!({ "channel": S, "chat": "ahp-chat:/p", "initialMessage": of(3) });
    assert_eq!(client.refused("createChat", first).await, (-32000, "limit-exceeded".to_owned()));
    assert!(met("attachments") >= 3);
    client.accepted(&chat, starts("t", &of(2))).await;
    client.until_ended("t").await;
    nothing_is_lost(&host, &mut client, &chat).await;
}

#[tokio::test]
async fn a_title_is_bounded() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    let title = |length: usize| json!({ "type": "session/titleChanged", "title": "x".repeat(length) });
    client.accepted(S, title(4_096)).await;
    assert_eq!(client.rejected(S, title(4_097)).await, "limit-exceeded");
    assert_eq!(met("title"), 1);
    nothing_is_lost(&host, &mut client, &chat).await;
}

#[tokio::test]
async fn a_connection_has_so_many_subscriptions_and_those_before_go_on() {
    let host = of_sockets(ProtocolSettings { max_subscriptions: 2, ..ProtocolSettings::default() });
    let (mut client, chat) = host.open(&[]).await;
    assert_eq!(client.refused("subscribe", json!({ "channel": S })).await, (-32000, "limit-exceeded".to_owned()));
    let mut other = Client::connect(host.address).await;
    let three = json!({ "channel": ROOT, "protocolVersions": ["1.0.0"], "clientId": "d",
        "initialSubscriptions": [ROOT, S, chat] });
    assert_eq!(other.refused("initialize", three).await, (-32000, "limit-exceeded".to_owned()));
    assert_eq!(met("subscriptions"), 2);
    client.unsubscribe(ROOT).await;
    client.subscribe(S).await;
    client.unsubscribe(S).await;
    nothing_is_lost(&host, &mut client, &chat).await;
}

/// The status of an upgrade that is refused.
async fn refused(address: SocketAddr) -> Option<u16> {
    match connect_async(format!("ws://{address}/")).await {
        Err(Error::Http(response)) => Some(response.status().as_u16()),
        _ => None,
    }
}

#[tokio::test]
async fn connections_over_the_limit_are_refused_and_a_seat_that_is_left_is_taken_again() {
    for (in_all, of_one, status, limit) in [(2, 9, 503, "connections"), (9, 2, 429, "connections_of_one")] {
        let host = of_sockets(ProtocolSettings {
            max_connections: in_all,
            max_connections_of_one: of_one,
            ..ProtocolSettings::default()
        });
        let (mut client, chat) = host.open(&[]).await;
        let other = host.client("d").await;
        assert_eq!(refused(host.address).await, Some(status));
        assert_eq!(met(limit), 1);
        other.drop_socket().await;
        let mut often = tokio::time::interval(Duration::from_millis(5));
        let taken = async {
            while refused(host.address).await.is_some() {
                often.tick().await;
            }
        };
        tokio::time::timeout(crate::harness::PATIENCE, taken).await.expect("the seat was kept");
        nothing_is_lost(&host, &mut client, &chat).await;
    }
}

#[tokio::test]
async fn a_client_that_sends_faster_than_the_disk_takes_is_read_later_and_loses_nothing() {
    for settings in [
        ProtocolSettings { max_actions_in_flight: 4, ..ProtocolSettings::default() },
        ProtocolSettings { max_received: 600, ..ProtocolSettings::default() },
    ] {
        let store = GatedStore::new(MemoryStore::new().unwrap());
        let gate = store.gate();
        let options = Options { protocol: settings, ..Options::default() };
        let host = TestHost::start(Arc::new(store), options);
        let (mut client, chat) = host.open(&[]).await;
        host.quiet_tail().await;
        let before = met("received");
        gate.hold();
        let mut sent = Vec::new();
        for n in 0..40 {
            sent.push(client.dispatch(&chat, draft(message(&format!("{n}")))).await);
        }
        eventually("it is not read", || met("received") > before).await;
        // Others are.
        let mut other = Client::connect(host.address).await;
        other.ask("ping", json!({ "channel": ROOT })).await.unwrap();
        gate.release_all();
        let mut heard = Vec::new();
        while heard.len() < sent.len() {
            let envelope = client.envelope(|e| e["origin"].is_object()).await;
            assert_eq!(envelope.get("rejectionReason"), None, "{envelope}");
            heard.push(envelope["origin"]["clientSeq"].as_i64().unwrap());
        }
        assert_eq!(heard, sent);
        nothing_is_lost(&host, &mut client, &chat).await;
    }
}

#[tokio::test]
async fn a_client_that_is_read_later_and_asked_for_a_file_is_read_for_its_answer() {
    let directory = tempfile::tempdir().unwrap();
    let settings = HostSettings {
        attachment_timeout: NEVER,
        data_directory: Some(directory.path().canonicalize().unwrap()),
        ..HostSettings::default()
    };
    let protocol = ProtocolSettings { max_actions_in_flight: 1, ..ProtocolSettings::default() };
    let host = TestHost::with(Options { settings, protocol, ..Options::default() });
    let (mut client, chat) = host.open(&[]).await;
    let theirs = message_with("/context", json!([resource("theirs", "file:///only/the/client/has/this.txt")]));
    let seq = client.dispatch(&chat, starts("t", &theirs)).await;
    let behind = client.dispatch(&chat, json!({ "type": "chat/isReadChanged", "isRead": true })).await;
    let (id, _) = client.asked().await;
    client.hand_over(&id, b"hello", None).await;
    assert_eq!(client.echo(seq).await.get("rejectionReason"), None);
    client.echo(behind).await;
    client.until_ended("t").await;
    nothing_is_lost(&host, &mut client, &chat).await;
}

#[tokio::test]
async fn a_chat_that_waits_for_the_disk_is_busy_and_says_so() {
    let store = GatedStore::new(MemoryStore::new().unwrap());
    let gate = store.gate();
    let settings = HostSettings { max_chat_in_flight: 1, ..HostSettings::default() };
    let host = TestHost::start(Arc::new(store), Options { settings, ..Options::default() });
    let (mut client, chat) = host.open(&[]).await;
    host.quiet_tail().await;
    gate.hold();
    let first = client.dispatch(&chat, draft(message("kept"))).await;
    let second = client.dispatch(&chat, draft(message("refused"))).await;
    eventually("it is full", || met("busy") == 1).await;
    gate.release_all();
    assert_eq!(client.echo(first).await.get("rejectionReason"), None);
    assert_eq!(word(&client.echo(second).await), "busy");
    assert_eq!(client.subscribe(&chat).await["state"]["draft"]["text"], json!("kept"));
    nothing_is_lost(&host, &mut client, &chat).await;
}

#[tokio::test]
async fn a_client_without_a_handshake_is_closed_and_others_stay() {
    let protocol = ProtocolSettings { handshake_timeout: Duration::from_millis(100), ..ProtocolSettings::default() };
    let host = of_sockets(protocol);
    let (mut client, chat) = host.open(&[]).await;
    let mut silent = Client::connect(host.address).await;
    let (_, close) = silent.read_until_closed().await;
    assert_eq!(close, (1008, "no handshake".to_owned()));
    assert_eq!(met("handshake_time"), 1);
    nothing_is_lost(&host, &mut client, &chat).await;
}

#[tokio::test]
async fn a_socket_that_answers_no_ping_is_closed_and_its_client_comes_back() {
    let soon = Duration::from_millis(50);
    let host = of_sockets(ProtocolSettings { ping_after: soon, pong_timeout: soon, ..ProtocolSettings::default() });
    let (mut silent, chat) = host.open(&[]).await;
    // Nobody reads it, so its library answers nothing.
    eventually("it is closed", || met("silence") == 1).await;
    let (_, close) = silent.read_until_closed().await;
    assert_eq!(close.0, 1001);
    let mut back = host.client("c").await;
    back.subscribe(&chat).await;
    nothing_is_lost(&host, &mut back, &chat).await;
}

#[tokio::test]
async fn a_long_action_is_read_elsewhere_and_keeps_its_place() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    let long = "x".repeat(600_000);
    let mut sent = Vec::new();
    for n in 0..5 {
        for text in [format!("{n} {long}"), format!("{n} short")] {
            sent.push(client.dispatch(&chat, draft(message(&text))).await);
        }
    }
    // What is sent behind is answered behind.
    client.ask("ping", json!({ "channel": ROOT })).await.unwrap();
    let mut heard = Vec::new();
    while heard.len() < sent.len() {
        let envelope = client.envelope(|e| e["origin"].is_object()).await;
        assert_eq!(envelope.get("rejectionReason"), None, "{}", envelope["rejectionReason"]);
        heard.push(envelope["origin"]["clientSeq"].as_i64().unwrap());
    }
    assert_eq!(heard, sent);
    assert_eq!(client.subscribe(&chat).await["state"]["draft"]["text"], json!("4 short"));
    // Its sender may go meanwhile.
    client.dispatch(&chat, draft(message(&format!("last {long}")))).await;
    client.drop_socket().await;
    let mut other = host.client("d").await;
    nothing_is_lost(&host, &mut other, &chat).await;
}

#[tokio::test]
async fn a_client_that_is_quicker_than_its_pace_is_served_later_and_others_at_once() {
    for settings in [
        ProtocolSettings { max_messages_a_second: 20, ..ProtocolSettings::default() },
        ProtocolSettings { max_bytes_a_second: 4_000, max_message: 5_000, ..ProtocolSettings::default() },
    ] {
        let host = of_sockets(settings);
        let (mut client, chat) = host.open(&[]).await;
        let before = met("received");
        let mut sent = Vec::new();
        for n in 0..40 {
            sent.push(client.dispatch(&chat, draft(message(&format!("{n} {}", "x".repeat(100))))).await);
        }
        eventually("it waits", || met("received") > before).await;
        let mut other = host.client("d").await;
        other.ask("ping", json!({ "channel": ROOT })).await.unwrap();
        let mut heard = Vec::new();
        while heard.len() < sent.len() {
            let envelope = client.envelope(|e| e["origin"].is_object()).await;
            assert_eq!(envelope.get("rejectionReason"), None, "{envelope}");
            heard.push(envelope["origin"]["clientSeq"].as_i64().unwrap());
        }
        assert_eq!(heard, sent);
        nothing_is_lost(&host, &mut client, &chat).await;
    }
}
