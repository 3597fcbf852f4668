//! Shorthand for what many tests ask, and for what they look for in the answers.

use std::sync::Arc;

use scrollback::events::memory::MemoryStore;
use serde_json::{Value, json};

use super::opened;
use super::{Client, Options, RecordingAgent, TestHost, message};

/// The types of actions, in their order.
pub fn types(envelopes: &[Value]) -> Vec<&str> {
    envelopes.iter().map(|envelope| envelope["action"]["type"].as_str().unwrap_or_default()).collect()
}

/// Those of one channel.
pub fn on(seen: &[Value], channel: &str) -> Vec<Value> {
    seen.iter().filter(|envelope| envelope["channel"] == json!(channel)).cloned().collect()
}

/// The envelopes among messages.
pub fn envelopes(messages: &[Value]) -> Vec<Value> {
    let actions = messages.iter().filter(|message| message["method"] == json!("action"));
    actions.map(|message| message["params"].clone()).collect()
}

/// The text that was streamed.
pub fn streamed(envelopes: &[Value]) -> String {
    let deltas = envelopes.iter().filter(|envelope| envelope["action"]["type"] == json!("chat/delta"));
    deltas.filter_map(|envelope| envelope["action"]["content"].as_str()).collect()
}

/// The markdown of a turn in a state.
pub fn markdown(turn: &Value) -> Vec<String> {
    let parts = turn["responseParts"].as_array().into_iter().flatten();
    let text = parts.filter(|part| part["kind"] == json!("markdown")).filter_map(|part| part["content"].as_str());
    text.map(str::to_owned).collect()
}

/// The stable word that a refused action came back with; panics for one that was accepted.
pub fn word(envelope: &Value) -> String {
    let reason = envelope["rejectionReason"].as_str();
    let reason = reason.unwrap_or_else(|| panic!("{envelope} was accepted"));
    reason.split_once(": ").map(|(word, _)| word.to_owned()).expect("a code and a colon")
}

impl Options {
    /// With this agent in the place of the demo.
    pub fn of(agent: &RecordingAgent) -> Self {
        Self { agents: vec![Arc::new(agent.clone())], ..Self::default() }
    }
}

impl TestHost {
    /// A client `c` that has made the session `ahp-session:/s` and is subscribed to these channels and its first chat; and that chat.
    pub async fn open(&self, channels: &[&str]) -> (Client, String) {
        let mut client = self.client("c").await;
        let chat = client.create_session("ahp-session:/s").await;
        for channel in channels {
            client.subscribe(channel).await;
        }
        client.subscribe(&chat).await;
        (client, chat)
    }

    /// A host over a store in memory.
    pub fn with(options: Options) -> Self {
        Self::start(Arc::new(MemoryStore::new().unwrap()), options)
    }

    /// A host over the data in `directory`.
    pub fn on_disk_with(directory: &std::path::Path, mut options: Options) -> Self {
        options.settings.data_directory.get_or_insert_with(|| directory.canonicalize().unwrap());
        Self::start(Arc::new(opened(directory)), options)
    }
}

impl Client {
    /// A request that is refused: its number and its word.
    pub async fn refused(&mut self, method: &str, params: Value) -> (i64, String) {
        let error = match self.ask(method, params.clone()).await {
            Err(error) => error,
            Ok(result) => panic!("{method} {params} was answered {result}"),
        };
        let code = error["data"]["code"].as_str().unwrap_or_else(|| panic!("{method}: {error} has no data.code"));
        (error["code"].as_i64().unwrap(), code.to_owned())
    }

    /// Dispatches, and waits for the echo.
    pub async fn act(&mut self, channel: &str, action: Value) -> Value {
        let seq = self.dispatch(channel, action).await;
        self.echo(seq).await
    }

    /// Dispatches what is accepted, and waits for the echo.
    pub async fn accepted(&mut self, channel: &str, action: Value) -> Value {
        let envelope = self.act(channel, action).await;
        assert_eq!(envelope.get("rejectionReason"), None, "{envelope}");
        envelope
    }

    /// Dispatches what is refused: the word of the refusal.
    pub async fn rejected(&mut self, channel: &str, action: Value) -> String {
        word(&self.act(channel, action).await)
    }

    /// The params of the next notification of this kind.
    pub async fn notification(&mut self, method: &str) -> Value {
        loop {
            let message = self.next().await.expect("the socket ended");
            if message["method"] == json!(method) {
                return message["params"].clone();
            }
        }
    }

    /// The list of sessions.
    pub async fn listed(&mut self) -> Vec<Value> {
        let list = self.ask("listSessions", json!({ "channel": "ahp-root://" })).await.unwrap();
        list["items"].as_array().unwrap().clone()
    }

    /// Queues a message.
    pub async fn queue(&mut self, chat: &str, id: &str, text: &str) -> i64 {
        let action = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": id, "message": message(text) });
        self.dispatch(chat, action).await
    }

    /// Stops a turn.
    pub async fn cancel(&mut self, chat: &str, turn: &str) -> i64 {
        self.dispatch(chat, json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 })).await
    }

    /// Opens a peer chat.
    pub async fn create_chat(&mut self, session: &str, chat: &str) {
        let params = json!({ "channel": session, "chat": chat });
        self.ask("createChat", params).await.expect("createChat was refused");
    }

    /// Runs a turn to its end; returns every envelope of it.
    pub async fn run(&mut self, chat: &str, turn: &str, text: &str) -> Vec<Value> {
        self.say(chat, turn, text).await;
        self.until_ended(turn).await
    }

    /// `unsubscribe`.
    pub async fn unsubscribe(&mut self, channel: &str) {
        let params = json!({ "channel": channel });
        self.send(json!({ "jsonrpc": "2.0", "method": "unsubscribe", "params": params })).await;
    }

    /// Reads on to the first envelope of this type.
    pub async fn until_type(&mut self, kind: &str) -> Value {
        self.envelope(|envelope| envelope["action"]["type"] == json!(kind)).await
    }
}
