//! Lines in and out.

use std::io::{BufRead as _, Write as _};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

/// What the host sent.
pub enum Incoming {
    Request { id: Value, method: String, params: Value },
    Notification { method: String },
    Answer { id: Value, answer: Value },
}

/// The agent's ends of the pipes.
pub struct Wire {
    lines: Receiver<Value>,
    string_ids: bool,
    next_id: u64,
}

impl Wire {
    pub fn new(string_ids: bool) -> Self {
        let (read, lines) = channel();
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                let Ok(line) = line else { return };
                if read.send(serde_json::from_str(&line).unwrap()).is_err() {
                    return;
                }
            }
        });
        Self { lines, string_ids, next_id: 0 }
    }

    /// What comes next; `None` when the host has closed its end.
    pub fn next(&mut self) -> Option<Incoming> {
        let message = self.lines.recv().ok()?;
        let method = message["method"].as_str().map(str::to_owned);
        let id = message.get("id").cloned();
        Some(match (method, id) {
            (Some(method), Some(id)) => Incoming::Request { id, method, params: message["params"].clone() },
            (Some(method), None) => Incoming::Notification { method },
            (None, id) => Incoming::Answer { id: id.unwrap_or_default(), answer: message },
        })
    }

    pub fn send(&self, message: &Value) {
        self.raw(format!("{message}\n").as_bytes());
    }

    /// Writes bytes as they are.
    pub fn raw(&self, bytes: &[u8]) {
        let mut out = std::io::stdout().lock();
        // A host that has gone away is no fault of a test.
        let _ = out.write_all(bytes).and_then(|()| out.flush());
    }

    pub fn update(&self, session: &str, update: Value) {
        let params = json!({ "sessionId": session, "update": update });
        self.send(&json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }));
    }

    /// Sends a request and returns its id: a number of its own, or a word.
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = if self.string_ids { json!(format!("ask-{}", self.next_id)) } else { json!(self.next_id) };
        self.next_id += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    pub fn answer(&self, id: &Value, answer: Result<Value, (i64, String, Value)>) {
        let message = match answer {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err((code, message, data)) => {
                json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message, "data": data } })
            }
        };
        self.send(&message);
    }
}
