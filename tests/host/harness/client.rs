//! A client that speaks raw frames: it sees all that a client library hides.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, client_async, connect_async};

use super::PATIENCE;

/// The URI of a session's first chat, as clients compute it.
pub fn chat_of(session: &str) -> String {
    format!("ahp-chat://default/{}", URL_SAFE_NO_PAD.encode(session))
}

/// A message of a person.
pub fn message(text: &str) -> Value {
    json!({ "text": text, "origin": { "kind": "user" } })
}

/// Whether an action says how a turn ended.
pub fn is_ending(action: &Value) -> bool {
    let kind = action["type"].as_str().unwrap_or_default();
    ["chat/turnComplete", "chat/turnCancelled", "chat/error"].contains(&kind)
}

/// A connection. Messages that nobody has asked for yet are kept in order.
pub struct Client {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    waiting: VecDeque<Value>,
    next_id: u64,
    pub next_seq: i64,
    /// How long it waits for a message.
    pub patience: Duration,
}

impl Client {
    /// A socket, without a handshake.
    pub async fn connect(address: SocketAddr) -> Self {
        let (socket, _) = connect_async(format!("ws://{address}/")).await.unwrap();
        Self { socket, waiting: VecDeque::new(), next_id: 0, next_seq: 0, patience: PATIENCE }
    }

    /// A socket of somebody with this token, or the status that refused it.
    pub async fn connect_with(address: SocketAddr, token: &str) -> Result<Self, u16> {
        match connect_async(format!("ws://{address}/?tkn={token}")).await {
            Ok((socket, _)) => Ok(Self::over(socket)),
            Err(tungstenite::Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    /// The same over a connection that stands.
    pub async fn connect_over(address: SocketAddr, stream: TcpStream) -> Self {
        let (socket, _) = client_async(format!("ws://{address}/"), MaybeTlsStream::Plain(stream)).await.unwrap();
        Self { socket, waiting: VecDeque::new(), next_id: 0, next_seq: 0, patience: PATIENCE }
    }

    /// The same over a socket that stands.
    pub fn over(socket: WebSocketStream<MaybeTlsStream<TcpStream>>) -> Self {
        Self { socket, waiting: VecDeque::new(), next_id: 0, next_seq: 0, patience: PATIENCE }
    }

    /// `initialize`; returns its result.
    pub async fn initialize(&mut self, id: &str, subscriptions: &[&str]) -> Value {
        self.initialize_as("1.0.0", id, subscriptions).await
    }

    /// `initialize` with this version of the protocol; returns its result.
    pub async fn initialize_as(&mut self, version: &str, id: &str, subscriptions: &[&str]) -> Value {
        let params = json!({ "channel": "ahp-root://", "protocolVersions": [version], "clientId": id,
            "initialSubscriptions": subscriptions });
        self.ask("initialize", params).await.expect("initialize was refused")
    }

    /// `reconnect` in the form of 1.0.0; returns its result.
    pub async fn reconnect(&mut self, id: &str, last_seen: u64, subscriptions: &[&str]) -> Value {
        let params = json!({ "channel": "ahp-root://", "clientId": id, "lastSeenServerSeq": last_seen,
            "subscriptions": subscriptions });
        self.ask("reconnect", params).await.expect("reconnect was refused")
    }

    /// A request: its result, or its error object.
    pub async fn ask(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.next_id += 1;
        let id = self.next_id;
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        loop {
            let message = self.receive().await.expect("the socket ended before the answer");
            if message["id"] == json!(id) {
                return match message.get("error") {
                    Some(error) => Err(error.clone()),
                    None => Ok(message["result"].clone()),
                };
            }
            self.waiting.push_back(message);
        }
    }

    /// Sends a message as it is.
    pub async fn send(&mut self, message: Value) {
        self.socket.send(Message::text(message.to_string())).await.unwrap();
    }

    /// Sends a text message as it is, whatever it says.
    pub async fn send_text(&mut self, text: &str) {
        self.socket.send(Message::text(text.to_owned())).await.unwrap();
    }

    /// `createSession` with the demo agent; returns the URI of its first chat.
    pub async fn create_session(&mut self, uri: &str) -> String {
        self.ask("createSession", json!({ "channel": uri, "provider": "demo" }))
            .await
            .expect("createSession was refused");
        chat_of(uri)
    }

    /// `subscribe`; returns the snapshot.
    pub async fn subscribe(&mut self, channel: &str) -> Value {
        let result = self.ask("subscribe", json!({ "channel": channel })).await.expect("subscribe was refused");
        result["snapshot"].clone()
    }

    /// `dispatchAction` with the next number; returns the number.
    pub async fn dispatch(&mut self, channel: &str, action: Value) -> i64 {
        self.next_seq += 1;
        let params = json!({ "channel": channel, "clientSeq": self.next_seq, "action": action });
        self.send(json!({ "jsonrpc": "2.0", "method": "dispatchAction", "params": params })).await;
        self.next_seq
    }

    /// Starts a turn.
    pub async fn say(&mut self, chat: &str, turn: &str, text: &str) -> i64 {
        let action = json!({ "type": "chat/turnStarted", "turnId": turn, "startedAt": "2026-11-30T12:00:00.000Z",
            "message": message(text) });
        self.dispatch(chat, action).await
    }

    /// The next message, waited for: the oldest that nobody has asked for, or a new one; `None` when the socket ended.
    pub async fn next(&mut self) -> Option<Value> {
        match self.waiting.pop_front() {
            Some(message) => Some(message),
            None => self.receive().await,
        }
    }

    /// The first message that fits, waited for; the others stay to be asked for.
    pub async fn take(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(found) = self.waiting.iter().position(&fits) {
            return self.waiting.remove(found).unwrap();
        }
        loop {
            let message = self.receive().await.expect("the socket ended");
            if fits(&message) {
                return message;
            }
            self.waiting.push_back(message);
        }
    }

    /// Reads on until an envelope fits; returns those before it too, the one that fits last.
    pub async fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut seen = Vec::new();
        loop {
            let message = self.next().await.expect("the socket ended");
            if message["method"] != json!("action") {
                continue;
            }
            let envelope = message["params"].clone();
            let found = fits(&envelope);
            seen.push(envelope);
            if found {
                return seen;
            }
        }
    }

    /// The next envelope that fits.
    pub async fn envelope(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        self.until(fits).await.pop().unwrap()
    }

    /// The echo of the client's own action with this number: accepted, or refused with a reason.
    pub async fn echo(&mut self, client_seq: i64) -> Value {
        self.envelope(|envelope| envelope["origin"]["clientSeq"] == json!(client_seq)).await
    }

    /// The echo of another client's action, as this one hears it.
    pub async fn echo_of(&mut self, client: &str, client_seq: i64) -> Value {
        let origin = json!({ "clientId": client, "clientSeq": client_seq });
        self.envelope(|envelope| envelope["origin"] == origin).await
    }

    /// Reads on to the end of a turn; returns every envelope of it.
    pub async fn until_ended(&mut self, turn: &str) -> Vec<Value> {
        self.until(|envelope| is_ending(&envelope["action"]) && envelope["action"]["turnId"] == json!(turn)).await
    }

    /// Everything that was queued for this client before the answer to a ping. What comes of others later is not in it.
    pub async fn drain(&mut self) -> Vec<Value> {
        self.ask("ping", json!({ "channel": "ahp-root://" })).await.unwrap();
        self.waiting.drain(..).collect()
    }

    /// What has arrived and nobody has asked for yet.
    pub fn taken(&mut self) -> Vec<Value> {
        self.waiting.drain(..).collect()
    }

    /// Closes the connection in order; nothing can be asked of this client afterwards.
    pub async fn hang_up(&mut self) {
        let _ = self.socket.close(None).await;
    }

    /// Ends the connection without a word.
    pub async fn drop_socket(self) {
        drop(self.socket);
    }

    /// Reads on until the host closes the connection: what came before, and the code and reason of the close. A message
    /// that was cut off by the close is left out.
    pub async fn read_until_closed(&mut self) -> (Vec<Value>, (u16, String)) {
        let mut read = Vec::from_iter(self.waiting.drain(..));
        loop {
            match timeout(self.patience, self.socket.next()).await.expect("the socket stayed open") {
                Some(Ok(Message::Text(text))) => read.push(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(Some(frame)))) => return (read, (frame.code.into(), frame.reason.to_string())),
                Some(Ok(_)) => {}
                other => panic!("the socket ended without a close frame: {other:?}"),
            }
        }
    }

    async fn receive(&mut self) -> Option<Value> {
        loop {
            match timeout(self.patience, self.socket.next()).await.expect("nothing came") {
                Some(Ok(Message::Text(text))) => return Some(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(_)) => {}
            }
        }
    }
}
