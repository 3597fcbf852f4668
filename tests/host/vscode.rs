//! The traffic of VS Code's remote client, replayed from a transcript.
//!
//! A line of a transcript is one of: `send`, a message as it goes out; `hear`, what the next message that fits must hold (an
//! object at least these members, an array these items); `do`, which is `connect`, `drop`, `restart` (of the host) or
//! `remember` (the newest number that was heard, for `"$remembered"`).
//! Source: PROTOCOL of AHP 1.0.0 as VS Code speaks it, from the opening of the socket to a drop.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::harness::{Client, TestHost};

const TRANSCRIPT: &str = include_str!("transcripts/vscode.jsonl");

/// Whether `message` holds all of `pattern`.
fn holds(message: &Value, pattern: &Value) -> bool {
    match (message, pattern) {
        (Value::Object(message), Value::Object(pattern)) => {
            pattern.iter().all(|(key, wanted)| message.get(key).is_some_and(|value| holds(value, wanted)))
        }
        (Value::Array(message), Value::Array(pattern)) => {
            message.len() == pattern.len() && message.iter().zip(pattern).all(|(value, wanted)| holds(value, wanted))
        }
        _ => message == pattern,
    }
}

struct Replay {
    directory: tempfile::TempDir,
    host: Option<TestHost>,
    client: Option<Client>,
    heard: Vec<Value>,
    newest: u64,
    remembered: u64,
    /// How often each request was answered.
    answers: BTreeMap<u64, usize>,
}

impl Replay {
    async fn step(&mut self, line: &Value) {
        if let Some(message) = line.get("send") {
            let text = message.to_string().replace("\"$remembered\"", &self.remembered.to_string());
            if let Some(id) = message["id"].as_u64() {
                self.answers.insert(id, 0);
            }
            self.client.as_mut().unwrap().send(serde_json::from_str(&text).unwrap()).await;
        } else if let Some(pattern) = line.get("hear") {
            self.hear(pattern).await;
        } else {
            self.act(line["do"].as_str().unwrap()).await;
        }
    }

    async fn hear(&mut self, pattern: &Value) {
        if let Some(at) = self.heard.iter().position(|message| holds(message, pattern)) {
            self.heard.drain(..=at);
            return;
        }
        loop {
            let message = self.client.as_mut().unwrap().next().await.unwrap_or_else(|| panic!("no {pattern}"));
            self.newest = self.newest.max(message["params"]["serverSeq"].as_u64().unwrap_or(0));
            if let Some(id) = message.get("id") {
                let times = self.answers.get_mut(&id.as_u64().unwrap());
                *times.unwrap_or_else(|| panic!("{message} answers nothing")) += 1;
            }
            if holds(&message, pattern) {
                return;
            }
            let other = message.get("id").is_some() && message.get("id") == pattern.get("id");
            assert!(!other, "{message} does not hold {pattern}");
            self.heard.push(message);
        }
    }

    async fn act(&mut self, what: &str) {
        match what {
            "connect" => self.client = Some(Client::connect(self.host.as_ref().unwrap().address).await),
            "drop" => {
                self.client.take().unwrap().drop_socket().await;
                self.heard.clear();
            }
            "restart" => {
                self.host.take().unwrap().stop();
                self.host = Some(TestHost::on_disk(self.directory.path()));
            }
            "remember" => self.remembered = self.newest,
            other => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn visual_studio_codes_opening_traffic_is_served_and_a_drop_loses_and_doubles_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let host = Some(TestHost::on_disk(directory.path()));
    let answers = BTreeMap::new();
    let mut replay = Replay { directory, host, client: None, heard: Vec::new(), newest: 0, remembered: 0, answers };
    for line in TRANSCRIPT.lines() {
        replay.step(&serde_json::from_str(line).unwrap()).await;
    }
    assert!(replay.answers.values().all(|times| *times == 1), "{:?}", replay.answers);
    // What was sent again was applied once: the log holds each draft one time.
    let host = replay.host.as_ref().unwrap();
    let mut drafts = Vec::new();
    host.host
        .store()
        .scan(0, u64::MAX, &mut |record| {
            let action: Value = serde_json::from_slice(&record.action).unwrap();
            if action["type"] == json!("chat/draftChanged") {
                drafts.push(action["draft"]["text"].clone());
            }
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(drafts, [json!("draft 11"), json!("draft 12")]);
}
