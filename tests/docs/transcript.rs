//! Sends the frames of the documents through a real socket.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::command::{Host, scrollback};
use super::pages::page;

const PATIENCE: Duration = Duration::from_secs(30);
/// Stands for anything.
const ANYTHING: &str = "«…»";

struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket {
    async fn open(port: u16) -> Self {
        Self(connect_async(format!("ws://127.0.0.1:{port}/")).await.unwrap().0)
    }

    async fn send(&mut self, frame: &Value) {
        self.0.send(Message::text(frame.to_string())).await.unwrap();
    }

    async fn next(&mut self) -> Value {
        loop {
            match timeout(PATIENCE, self.0.next()).await.expect("nothing came").expect("the socket ended").unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                _ => continue,
            }
        }
    }

    /// Fails when there is anything that nobody has read.
    async fn is_drained(&mut self, place: &str) {
        self.send(&json!({ "jsonrpc": "2.0", "id": 999, "method": "ping", "params": { "channel": "ahp-root://" } }))
            .await;
        let next = self.next().await;
        assert_eq!(next, json!({ "jsonrpc": "2.0", "id": 999, "result": null }), "before {place}");
    }
}

/// The name of a placeholder.
fn name_of(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| text.starts_with('«') && text.ends_with('»'))
}

/// Puts what was heard in the place of names.
fn filled(said: &Value, heard: &HashMap<String, Value>) -> Value {
    match said {
        Value::String(_) if name_of(said).is_some() => {
            let name = name_of(said).unwrap();
            heard.get(name).unwrap_or_else(|| panic!("{name} was not heard yet")).clone()
        }
        Value::Array(items) => items.iter().map(|item| filled(item, heard)).collect(),
        Value::Object(members) => members.iter().map(|(key, value)| (key.clone(), filled(value, heard))).collect(),
        other => other.clone(),
    }
}

/// Compares what was said with what came, and notes what stands for names.
fn compare(said: &Value, came: &Value, at: &str, heard: &mut HashMap<String, Value>) -> Result<(), String> {
    let differ = || Err(format!("{at}: the document says {said}, the host {came}"));
    match (said, came) {
        (said, came) if name_of(said).is_some() => {
            let name = name_of(said).unwrap();
            if name != ANYTHING && heard.entry(name.to_owned()).or_insert_with(|| came.clone()) != came {
                return differ();
            }
            Ok(())
        }
        (Value::Object(a), Value::Object(b)) => {
            if a.keys().any(|key| !b.contains_key(key)) || b.keys().any(|key| !a.contains_key(key)) {
                return differ();
            }
            a.iter().try_for_each(|(key, value)| compare(value, &b[key], &format!("{at}.{key}"), heard))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().try_for_each(|(i, (a, b))| compare(a, b, &format!("{at}[{i}]"), heard))
        }
        (a, b) if a == b => Ok(()),
        _ => differ(),
    }
}

#[tokio::test]
async fn the_frames_of_the_page_for_clients_are_answered_as_it_says() {
    let home = tempfile::tempdir().unwrap();
    // A slow machine must not cut an answer into more pieces than the document shows.
    let args = ["serve", "--listen", "127.0.0.1:0", "--data", "data"];
    let host = Host::spawn(scrollback(home.path(), &args).env("SCROLLBACK_DELTA_WINDOW", "1s"));
    let mut socket = Socket::open(host.port).await;
    let mut heard = HashMap::new();
    let mut frames = 0;
    for block in page("docs/clients.md").blocks() {
        if block.info.starts_with("json client") {
            if block.info.ends_with("new connection") {
                socket.is_drained(&block.place).await;
                socket = Socket::open(host.port).await;
            }
            for line in block.text.lines() {
                socket.send(&filled(&serde_json::from_str(line).unwrap(), &heard)).await;
            }
        } else if block.info == "json host" {
            for (number, line) in block.text.lines().enumerate() {
                let came = socket.next().await;
                let place = format!("{} frame {}", block.place, number + 1);
                let said = serde_json::from_str(line).unwrap_or_else(|problem| panic!("{place}: {problem}"));
                compare(&said, &came, "", &mut heard).unwrap_or_else(|difference| panic!("{place}{difference}"));
                frames += 1;
            }
        }
    }
    assert!(frames > 10, "{frames} frames");
    socket.is_drained("the end").await;
}

#[tokio::test]
async fn the_frames_of_the_readme_make_a_conversation() {
    let home = tempfile::tempdir().unwrap();
    let host = Host::start(home.path(), &home.path().join("data"), &[]);
    let mut socket = Socket::open(host.port).await;
    let blocks = page("README.md").blocks();
    let frames: Vec<Value> = blocks
        .iter()
        .flat_map(|block| block.text.lines())
        .filter(|line| line.starts_with("{\"jsonrpc\""))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(!frames.is_empty());
    for frame in &frames {
        socket.send(frame).await;
        while frame.get("id").is_some() {
            let came = socket.next().await;
            if came["id"] == frame["id"] {
                assert!(came.get("result").is_some(), "{came}");
                break;
            }
        }
    }
    while socket.next().await["params"]["action"]["type"] != "chat/turnComplete" {}
}
