//! Messages with attachments, the files that come of them, and clients that are asked for theirs.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Client, message, streamed};

/// The tag of a copy.
pub const SNAPSHOT: &str = "vscode.agentHost.snapshotAttachment";

/// A message with attachments.
pub fn with(text: &str, attachments: Value) -> Value {
    let mut message = message(text);
    message["attachments"] = attachments;
    message
}

/// Bytes in a message.
pub fn embedded(label: &str, content_type: &str, bytes: &[u8]) -> Value {
    json!({ "type": "embeddedResource", "label": label, "contentType": content_type, "data": STANDARD.encode(bytes) })
}

/// A URI in a message.
pub fn resource(label: &str, uri: &str) -> Value {
    json!({ "type": "resource", "label": label, "uri": uri })
}

/// The action that starts a turn with a message.
pub fn starts(turn: &str, message: &Value) -> Value {
    json!({ "type": "chat/turnStarted", "turnId": turn, "startedAt": "2026-11-30T12:00:00.000Z", "message": message })
}

/// The action that queues a message.
pub fn queues(id: &str, message: &Value) -> Value {
    json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": id, "message": message })
}

/// The path of a `file:` URI that has nothing to decode.
pub fn path(uri: &Value) -> PathBuf {
    PathBuf::from(uri.as_str().unwrap().strip_prefix("file://").unwrap())
}

/// Every stored file under the folder of attachments.
pub fn files(attachments: &Path) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(attachments).into_iter().flatten().flatten();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.path()).into_iter().flatten().flatten());
    files.map(|file| file.path()).collect()
}

/// The blocks that a turn of `/context` says.
pub fn context(envelopes: &[Value]) -> Vec<Value> {
    serde_json::from_str(&streamed(envelopes)).unwrap_or_else(|e| panic!("{e}: {}", streamed(envelopes)))
}

impl Client {
    /// Runs a turn of `/context` with attachments: what was echoed of them, and the blocks that the agent had.
    pub async fn context(&mut self, chat: &str, turn: &str, attachments: Value) -> (Vec<Value>, Vec<Value>) {
        let seq = self.dispatch(chat, starts(turn, &with("/context", attachments))).await;
        let echo = self.echo(seq).await;
        assert_eq!(echo.get("rejectionReason"), None, "{echo}");
        let echoed = echo["action"]["message"]["attachments"].as_array().unwrap().clone();
        (echoed, context(&self.until_ended(turn).await))
    }

    /// What the host asks next: the id of the request, and the URI that it wants.
    pub async fn asked(&mut self) -> (Value, String) {
        let message = self.take(|message| message["method"] == json!("resourceRead")).await;
        let params = &message["params"];
        assert_eq!((&params["channel"], &params["encoding"]), (&json!("ahp-root://"), &json!("base64")));
        (message["id"].clone(), params["uri"].as_str().unwrap().to_owned())
    }

    /// Answers what the host asked with a file.
    pub async fn hand_over(&mut self, id: &Value, bytes: &[u8], content_type: Option<&str>) {
        let mut result = json!({ "data": STANDARD.encode(bytes), "encoding": "base64" });
        if let Some(content_type) = content_type {
            result["contentType"] = json!(content_type);
        }
        self.send(json!({ "jsonrpc": "2.0", "id": id, "result": result })).await;
    }
}
