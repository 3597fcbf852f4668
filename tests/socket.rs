//! What the socket itself promises, through real connections: who is let in, what is answered to what is no command,
//! and how a connection ends. Commands have tests of their own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_web::{App as WebApp, HttpServer};
use futures_util::{SinkExt, StreamExt};
use scrollback::access::Gate;
use scrollback::actors::host::{Host, HostSettings};
use scrollback::clock::Clock;
use scrollback::events::memory::MemoryStore;
use scrollback::protocol::{App, ProtocolSettings, on_connect, routes};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

type Client = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// What every wait here may take at most.
const PATIENCE: Duration = Duration::from_secs(20);

fn serve(settings: ProtocolSettings, token: Option<&str>) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let bind = listener.local_addr().unwrap();
    let store = Arc::new(MemoryStore::new().unwrap());
    let host = Host::start(HostSettings::default(), store, Vec::new(), Clock::system()).unwrap();
    let gate = Gate {
        token: token.map(str::to_owned),
        host_name: "test".into(),
        allowed_origins: vec!["vscode-file://vscode-app".into()],
        ..Gate::at(bind)
    };
    let app = Arc::new(App::new(host, gate, settings));
    let factory = move || WebApp::new().configure(|cfg| routes(cfg, Arc::clone(&app)));
    let server = HttpServer::new(factory).workers(1).disable_signals().on_connect(on_connect);
    actix_web::rt::spawn(server.listen(listener).unwrap().run());
    bind
}

async fn connect(address: SocketAddr) -> Client {
    connect_async(format!("ws://{address}/")).await.unwrap().0
}

async fn open(settings: ProtocolSettings) -> Client {
    connect(serve(settings, None)).await
}

/// The status of an upgrade: 101 where it is not refused.
async fn upgrade(address: SocketAddr, query: &str, headers: &[(&'static str, &str)]) -> u16 {
    let mut request = format!("ws://{address}/{query}").into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    match connect_async(request).await {
        Err(Error::Http(response)) => response.status().as_u16(),
        Ok(_) => 101,
        Err(other) => panic!("{other}"),
    }
}

async fn message(client: &mut Client) -> Message {
    timeout(PATIENCE, client.next()).await.expect("nothing came").expect("the socket ended").unwrap()
}

async fn answer(client: &mut Client) -> Value {
    loop {
        if let Message::Text(text) = message(client).await {
            return serde_json::from_str(&text).unwrap();
        }
    }
}

async fn ask(client: &mut Client, text: &str) -> Value {
    client.send(Message::text(text)).await.unwrap();
    answer(client).await
}

async fn close_of(client: &mut Client) -> CloseFrame {
    loop {
        if let Message::Close(close) = message(client).await {
            return close.unwrap();
        }
    }
}

fn request(method: &str, params: Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

fn initialize(client_id: &str, versions: &[&str]) -> String {
    request("initialize", json!({ "channel": "ahp-root://", "clientId": client_id, "protocolVersions": versions }))
}

fn code(answer: &Value) -> (i64, &str) {
    (answer["error"]["code"].as_i64().unwrap(), answer["error"]["data"]["code"].as_str().unwrap_or_default())
}

#[actix_web::test]
async fn a_ping_is_answered_null_before_and_after_the_handshake() {
    let mut client = open(ProtocolSettings::default()).await;
    let ping = request("ping", json!({ "channel": "ahp-root://" }));
    let expected = json!({ "jsonrpc": "2.0", "id": 1, "result": null });
    assert_eq!(ask(&mut client, &ping).await, expected);
    ask(&mut client, &initialize("c", &["1.0.0"])).await;
    assert_eq!(ask(&mut client, &ping).await, expected);
}

#[actix_web::test]
async fn string_ids_come_back_as_they_were_sent() {
    let mut client = open(ProtocolSettings::default()).await;
    client.send(Message::text(r#"{"jsonrpc":"2.0","id":"caf\u00e9","method":"ping"}"#)).await.unwrap();
    let Message::Text(text) = message(&mut client).await else { panic!() };
    assert_eq!(text.as_str(), r#"{"jsonrpc":"2.0","id":"caf\u00e9","result":null}"#);
}

#[actix_web::test]
async fn what_is_no_message_is_answered_and_the_socket_stays() {
    let mut client = open(ProtocolSettings::default()).await;
    let malformed = ask(&mut client, "{nonsense").await;
    assert_eq!((&malformed["id"], malformed["error"]["code"].as_i64()), (&Value::Null, Some(-32700)));
    client.send(Message::binary(vec![1, 2, 3])).await.unwrap();
    let binary = answer(&mut client).await;
    assert_eq!((&binary["id"], code(&binary)), (&Value::Null, (-32600, "binary-frame")));
    let deep = format!(r#"{{"jsonrpc":"2.0","id":5,"method":"ping","params":{}{}}}"#, "[".repeat(64), "]".repeat(64));
    let deep = ask(&mut client, &deep).await;
    assert_eq!((deep["id"].as_i64(), code(&deep)), (Some(5), (-32600, "limit-exceeded")));
    assert_eq!(code(&ask(&mut client, "[]").await), (-32600, "invalid-request"));
    assert!(ask(&mut client, r#"{"jsonrpc":"2.0","id":6,"method":"ping"}"#).await["result"].is_null());
}

#[actix_web::test]
async fn before_the_handshake_requests_are_refused_and_notifications_dropped() {
    let mut client = open(ProtocolSettings::default()).await;
    client.send(Message::text(r#"{"jsonrpc":"2.0","method":"unsubscribe","params":{"channel":"x"}}"#)).await.unwrap();
    let early = ask(&mut client, &request("listSessions", json!({ "channel": "ahp-root://" }))).await;
    assert_eq!(code(&early), (-32600, "not-initialized"));
}

#[actix_web::test]
async fn unknown_requests_are_refused_and_unknown_notifications_and_responses_ignored() {
    let mut client = open(ProtocolSettings::default()).await;
    ask(&mut client, &initialize("c", &["1.0.0"])).await;
    for ignored in [r#"{"jsonrpc":"2.0","method":"nonesuch"}"#, r#"{"jsonrpc":"2.0","id":3,"result":null}"#] {
        client.send(Message::text(ignored)).await.unwrap();
    }
    let unknown = ask(&mut client, &request("nonesuch", json!({}))).await;
    assert_eq!(code(&unknown), (-32601, "unknown-method"));
}

#[actix_web::test]
async fn the_handshake_says_what_the_host_is() {
    let mut client = open(ProtocolSettings::default()).await;
    let result = ask(&mut client, &initialize("c", &["0.9.0", "1.0.0"])).await["result"].clone();
    assert_eq!(result["protocolVersion"], "1.0.0");
    assert!(result["serverSeq"].is_u64());
    assert_eq!(result["snapshots"], json!([]));
    assert_eq!(result["serverInfo"]["name"], "scrollback");
    assert_eq!(result["_meta"]["scrollback.extensions"], json!(scrollback::protocol::EXTENSIONS));
    assert_eq!(result["completionTriggerCharacters"], json!(["/", "@", "#"]));
    serde_json::from_value::<ahp_types::commands::InitializeResult>(result).unwrap();
}

#[actix_web::test]
async fn a_second_handshake_is_refused() {
    let mut client = open(ProtocolSettings::default()).await;
    ask(&mut client, &initialize("c", &["1.0.0"])).await;
    assert_eq!(code(&ask(&mut client, &initialize("c", &["1.0.0"])).await).0, -32600);
    let reconnect = json!({ "channel": "ahp-root://", "clientId": "c", "lastSeenServerSeq": 0, "subscriptions": [] });
    assert_eq!(code(&ask(&mut client, &request("reconnect", reconnect)).await).0, -32600);
}

#[actix_web::test]
async fn a_malformed_version_may_be_corrected_and_a_foreign_one_ends_the_connection() {
    let mut client = open(ProtocolSettings::default()).await;
    assert_eq!(code(&ask(&mut client, &initialize("c", &["1.0.0", "one"])).await), (-32602, "invalid-params"));
    let foreign = ask(&mut client, &initialize("c", &["2.0.0"])).await;
    assert_eq!(code(&foreign), (-32005, "unsupported-version"));
    assert_eq!(foreign["error"]["data"]["supportedVersions"], json!(["^1.0.0", "^0.9.0"]));
    assert_eq!(u16::from(close_of(&mut client).await.code), 1008);
}

#[actix_web::test]
async fn wrong_params_are_named() {
    let mut client = open(ProtocolSettings::default()).await;
    let without = request("initialize", json!({ "channel": "ahp-root://", "protocolVersions": ["1.0.0"] }));
    let refused = ask(&mut client, &without).await;
    assert_eq!(refused["error"]["message"], "clientId: is missing");
    ask(&mut client, &initialize("c", &["1.0.0"])).await;
    for (method, params, field) in [
        ("subscribe", json!({}), "channel"),
        ("subscribe", json!({ "channel": "x", "view": { "turns": -1 } }), "view"),
        ("listSessions", json!({ "channel": "ahp-root://", "limit": 1001 }), "limit"),
        ("listSessions", json!({ "channel": "ahp-session:/s" }), "channel"),
        ("createSession", json!({ "channel": "ahp-chat:/c" }), "channel"),
        ("createChat", json!({ "channel": "ahp-session:/s" }), "chat"),
        ("x-scrollback/stateAt", json!({ "channel": "ahp-root://" }), "serverSeq"),
        ("dispatchAction", json!({ "channel": "ahp-root://", "action": {} }), "clientSeq"),
    ] {
        let refused = ask(&mut client, &request(method, params)).await;
        assert_eq!(code(&refused), (-32602, "invalid-params"), "{method}");
        assert!(refused["error"]["message"].as_str().unwrap().starts_with(field), "{method}: {refused}");
    }
}

#[actix_web::test]
async fn a_client_nobody_knows_is_taken_up_and_what_is_not_there_is_missing() {
    let mut client = open(ProtocolSettings::default()).await;
    let params =
        json!({ "channel": "ahp-root://", "clientId": "c", "lastSeenServerSeq": 0, "subscriptions": ["ahp-chat:/x"] });
    let answer = ask(&mut client, &request("reconnect", params)).await;
    assert_eq!(answer["result"], json!({ "type": "replay", "actions": [], "missing": ["ahp-chat:/x"] }));
}

#[actix_web::test]
async fn reconnecting_with_cursors_is_answered_for_each_channel() {
    let mut client = open(ProtocolSettings::default()).await;
    let subscriptions = json!([{ "channel": "ahp-chat:/x", "lastSeenServerSeq": 3 }]);
    let params = json!({ "channel": "ahp-root://", "clientId": "c", "subscriptions": subscriptions });
    let answer = ask(&mut client, &request("reconnect", params)).await;
    assert_eq!(answer["result"], json!({ "channels": [{ "kind": "missing", "channel": "ahp-chat:/x" }] }));
}

#[actix_web::test]
async fn a_message_over_the_limit_closes_with_1009() {
    let settings = ProtocolSettings { max_message_before_handshake: 300, max_message: 500, ..Default::default() };
    let address = serve(settings, None);
    let mut early = connect(address).await;
    early.send(Message::text("x".repeat(301))).await.unwrap();
    assert_eq!(u16::from(close_of(&mut early).await.code), 1009);
    let mut late = connect(address).await;
    ask(&mut late, &initialize("c", &["1.0.0"])).await;
    let padded = |length: usize| format!("{}{}", request("ping", json!({})), " ".repeat(length));
    assert!(ask(&mut late, &padded(400)).await["result"].is_null());
    late.send(Message::text(padded(600))).await.unwrap();
    assert_eq!(u16::from(close_of(&mut late).await.code), 1009);
}

#[actix_web::test]
async fn what_came_before_a_message_over_the_limit_is_answered() {
    let mut client = open(ProtocolSettings { max_message_before_handshake: 300, ..Default::default() }).await;
    client.feed(Message::text(request("ping", json!({})))).await.unwrap();
    client.feed(Message::text("x".repeat(301))).await.unwrap();
    client.flush().await.unwrap();
    assert!(answer(&mut client).await["result"].is_null());
    assert_eq!(u16::from(close_of(&mut client).await.code), 1009);
}

#[actix_web::test]
async fn text_that_is_not_utf_8_closes_with_1007() {
    let mut client = open(ProtocolSettings::default()).await;
    let frame = Frame::message(vec![b'"', 0xff, b'"'], OpCode::Data(Data::Text), true);
    client.send(Message::Frame(frame)).await.unwrap();
    assert_eq!(u16::from(close_of(&mut client).await.code), 1007);
}

#[actix_web::test]
async fn continuations_are_joined_in_both_directions() {
    let mut client = open(ProtocolSettings { max_frame_sent: 7, ..Default::default() }).await;
    let text = r#"{"jsonrpc":"2.0","id":"é","method":"ping"}"#.as_bytes();
    let (first, rest) = text.split_at(23);
    let (second, third) = rest.split_at(5);
    let pieces = [(first, Data::Text, false), (second, Data::Continue, false), (third, Data::Continue, true)];
    for (piece, kind, is_last) in pieces {
        let frame = Frame::message(piece.to_vec(), OpCode::Data(kind), is_last);
        client.send(Message::Frame(frame)).await.unwrap();
        client.send(Message::Ping("between".into())).await.unwrap();
    }
    assert_eq!(answer(&mut client).await["id"], "é");
}

#[actix_web::test]
async fn a_client_that_does_not_shake_hands_is_closed() {
    let handshake_timeout = Duration::from_millis(50);
    let mut client = open(ProtocolSettings { handshake_timeout, ..Default::default() }).await;
    let close = close_of(&mut client).await;
    assert_eq!((u16::from(close.code), close.reason.as_str()), (1008, "no handshake"));
}

#[actix_web::test]
async fn a_silent_peer_is_pinged_then_closed_then_cut() {
    let soon = Duration::from_millis(50);
    let settings = ProtocolSettings { ping_after: soon, pong_timeout: soon, close_timeout: soon, ..Default::default() };
    let mut raw = raw_upgrade(serve(settings, None)).await;
    let mut bytes = Vec::new();
    timeout(PATIENCE, raw.read_to_end(&mut bytes)).await.unwrap().unwrap();
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(bytes[head..head + 2], [0x89, 0], "a ping");
    assert_eq!(bytes[head + 2], 0x88, "then a close");
    assert_eq!(bytes[head + 4..head + 6], 1001_u16.to_be_bytes());
}

/// A connection that answers nothing by itself, with its upgrade sent.
async fn raw_upgrade(address: SocketAddr) -> TcpStream {
    let mut raw = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    raw.write_all(head.as_bytes()).await.unwrap();
    raw
}

#[actix_web::test]
async fn a_peer_that_does_not_read_is_cut_off() {
    let settings = ProtocolSettings { close_timeout: Duration::from_millis(100), ..Default::default() };
    let mut client = open(settings).await;
    // Each answer carries its id back; none of them is read.
    let ping = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "x".repeat(256 * 1024));
    let sends = async { while client.send(Message::text(ping.as_str())).await.is_ok() {} };
    timeout(PATIENCE, sends).await.expect("the connection was not cut");
}

#[actix_web::test]
async fn a_peer_that_comes_back_to_reading_learns_that_it_was_too_slow() {
    let mut client = open(ProtocolSettings { max_unsent: 1_000, ..Default::default() }).await;
    let ping = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "x".repeat(900_000));
    for _ in 0..40 {
        client.send(Message::text(ping.as_str())).await.unwrap();
    }
    assert_eq!(u16::from(close_of(&mut client).await.code), 1013);
}

#[actix_web::test]
async fn a_close_is_answered() {
    let mut client = open(ProtocolSettings::default()).await;
    client.close(None).await.unwrap();
    let end = async { while let Some(Ok(_)) = client.next().await {} };
    timeout(PATIENCE, end).await.unwrap();
}

#[actix_web::test]
async fn without_the_token_the_upgrade_is_401() {
    let address = serve(ProtocolSettings::default(), Some("secret"));
    assert_eq!(upgrade(address, "", &[]).await, 401);
    assert_eq!(upgrade(address, "?tkn=wrong", &[]).await, 401);
    assert_eq!(upgrade(address, "?tkn=secret", &[]).await, 101);
    assert_eq!(upgrade(address, "", &[("authorization", "Bearer secret")]).await, 101);
}

#[actix_web::test]
async fn foreign_pages_and_names_are_403() {
    let address = serve(ProtocolSettings::default(), None);
    assert_eq!(upgrade(address, "", &[("origin", "https://evil.example")]).await, 403);
    assert_eq!(upgrade(address, "", &[("host", "evil.example")]).await, 403);
    assert_eq!(upgrade(address, "", &[("origin", &format!("http://{address}"))]).await, 101);
    assert_eq!(upgrade(address, "", &[("origin", "vscode-file://vscode-app")]).await, 101);
}

#[actix_web::test]
async fn connections_over_the_limits_are_503_and_429() {
    let address = serve(ProtocolSettings { max_connections: 1, ..Default::default() }, None);
    let _first = connect(address).await;
    assert_eq!(upgrade(address, "", &[]).await, 503);
    let address = serve(ProtocolSettings { max_connections_of_one: 1, ..Default::default() }, None);
    let _second = connect(address).await;
    assert_eq!(upgrade(address, "", &[]).await, 429);
}

#[actix_web::test]
async fn a_browser_is_told_what_this_is() {
    let address = serve(ProtocolSettings::default(), None);
    let mut raw = TcpStream::connect(address).await.unwrap();
    let head = format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    raw.write_all(head.as_bytes()).await.unwrap();
    let mut text = String::new();
    timeout(PATIENCE, raw.read_to_string(&mut text)).await.unwrap().unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("Agent Host Protocol"), "{text}");
}
