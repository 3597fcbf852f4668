//! The limits that are met over HTTP, in the real binary: requests that come slowly or are too long, connections of one person,
//! and files that may be open.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::command::{Host, scrollback};
use crate::harness::{Client, PATIENCE, met_in};

/// A host with these variables, and the folder of its data.
fn started(variables: &[(&str, &str)]) -> (Host, tempfile::TempDir) {
    let home = tempfile::tempdir().unwrap();
    let mut command = scrollback(home.path(), &["serve", "--listen", "127.0.0.1:0", "--data", "data"]);
    command.env("SCROLLBACK_METRICS_PUBLIC", "true").envs(variables.iter().copied());
    (Host::spawn(&mut command), home)
}

fn connect(host: &Host) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", host.port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends `bytes` and reads until the host closes the connection.
fn answer(host: &Host, bytes: &[u8]) -> String {
    let mut stream = connect(host);
    // The host may answer before it has read all of it.
    let _ = stream.write_all(bytes);
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

fn get(host: &Host, path: &str) -> String {
    answer(host, format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
}

fn post(host: &Host, length: usize, body: &str) -> String {
    let head = "POST /api/log/erase HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";
    answer(host, format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes())
}

/// The status and the body of an answer.
fn read(answer: &str) -> (u16, Value) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer but {answer:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

#[track_caller]
fn counted(host: &Host, limit: &str, times: u64) {
    let since = std::time::Instant::now();
    while met_in(&get(host, "/metrics"), limit) != times {
        assert!(since.elapsed() < PATIENCE, "{limit} was not counted {times} times");
    }
}

#[test]
fn an_upgrade_that_comes_slowly_is_cut_off_and_others_are_served() {
    let (host, _home) = started(&[("SCROLLBACK_HANDSHAKE_TIMEOUT", "2s")]);
    let mut slow = connect(&host);
    slow.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: webso").unwrap();
    assert_eq!(read(&get(&host, "/healthz")).0, 200);
    let mut text = String::new();
    slow.read_to_string(&mut text).unwrap();
    assert_eq!(read(&text).0, 408);
    // Also who had an answer before: there is no second request on a connection.
    let mut again = connect(&host);
    again.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HT").unwrap();
    let mut text = String::new();
    let _ = again.read_to_string(&mut text);
    assert_eq!(read(&text).0, 200);
    counted(&host, "request_head_time", 1);
    assert_eq!(read(&get(&host, "/healthz")).0, 200);
}

#[test]
fn a_head_that_is_too_long_is_refused() {
    let (host, _home) = started(&[]);
    let long = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: {}\r\n\r\n", "x".repeat(300_000));
    let refused = answer(&host, long.as_bytes());
    // Its connection may be cut before it has read the answer.
    assert!(refused.is_empty() || read(&refused).0 == 431, "{refused}");
    assert_eq!(read(&get(&host, "/healthz")).0, 200);
}

#[test]
fn a_body_that_comes_slowly_is_refused_in_time() {
    let (host, _home) = started(&[("SCROLLBACK_REQUEST_BODY_TIMEOUT", "300ms")]);
    let (status, body) = read(&post(&host, 100, r#"{"uri": "#));
    assert_eq!((status, &body["error"]["code"]), (408, &json!("limit-exceeded")));
    counted(&host, "request_body_time", 1);
    assert_eq!(read(&post(&host, 13, r#"{"uri":"nil"}"#)).0, 404, "a whole one is read");
}

#[test]
fn a_body_that_is_too_long_is_refused() {
    let (host, _home) = started(&[("SCROLLBACK_MAX_REQUEST_BODY", "1KiB")]);
    let long = format!(r#"{{"uri":"{}"}}"#, "x".repeat(1_100));
    let (status, body) = read(&post(&host, long.len(), &long));
    assert_eq!((status, &body["error"]["code"]), (413, &json!("limit-exceeded")));
    counted(&host, "request_body", 1);
    assert_eq!(read(&post(&host, 13, r#"{"uri":"nil"}"#)).0, 404, "a shorter one is read");
}

#[tokio::test]
async fn live_streams_and_sockets_of_one_person_share_their_seats() {
    let (host, _home) = started(&[("SCROLLBACK_MAX_CONNECTIONS_PER_PERSON", "2")]);
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], host.port));
    let mut client = Client::connect(address).await;
    client.initialize("c", &["ahp-root://"]).await;
    let mut live = connect(&host);
    live.write_all(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n").unwrap();
    let mut first = [0; 12];
    live.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    for (path, accept) in [("/api/events", "text/event-stream"), ("/api/log?follow=true", "*/*")] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n");
        let (status, body) = read(&answer(&host, request.as_bytes()));
        assert_eq!((status, &body["error"]["code"]), (429, &json!("limit-exceeded")), "{path}");
    }
    let upgrade = tokio_tungstenite::connect_async(format!("ws://{address}/")).await;
    assert!(upgrade.unwrap_err().to_string().contains("429"));
    assert_eq!(met_in(&get(&host, "/metrics"), "connections_of_one"), 3);
    // What is no connection that stays needs no seat.
    assert_eq!(read(&get(&host, "/api/events")).0, 200);
    drop(live);
    let (mut often, mut made) = (tokio::time::interval(Duration::from_millis(20)), 0);
    let seated = async {
        while tokio_tungstenite::connect_async(format!("ws://{address}/")).await.is_err() {
            often.tick().await;
            // A stream finds out that its reader is gone when it has something to say.
            made += 1;
            client.create_session(&format!("ahp-session:/{made}")).await;
        }
    };
    tokio::time::timeout(PATIENCE, seated).await.expect("the seat was kept");
    client.ask("ping", json!({ "channel": "ahp-root://" })).await.unwrap();
}

#[test]
fn a_host_takes_all_the_open_files_that_it_may_have_and_says_when_they_are_few() {
    let home = tempfile::tempdir().unwrap();
    let serve = format!(
        "ulimit -Sn 200; ulimit -Hn 1000; exec {} serve --listen 127.0.0.1:0 --data data 2>words",
        env!("CARGO_BIN_EXE_scrollback")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &serve]).env_clear().env("HOME", home.path()).current_dir(home.path());
    let host = Host::spawn(&mut command);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", host.pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(line.split_whitespace().filter(|word| *word == "1000").count(), 2, "{line}");
    let words = std::fs::read_to_string(home.path().join("words")).unwrap();
    assert!(words.contains("fewer files may be open than max_connections needs"), "{words}");
}
