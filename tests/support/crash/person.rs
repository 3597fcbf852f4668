//! Somebody who works with the host: what they do, what they are shown, and how they come back.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::Broken;
use super::dice::Dice;
use super::mirror::{Mirror, State};
use super::operator::Closed;

const ROOT: &str = "ahp-root://";
const PATIENCE: Duration = Duration::from_secs(30);
/// How many sessions one person makes, and chats in each.
const SESSIONS: usize = 3;
const CHATS: usize = 3;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// What a frame may hold. The parameters keep their bytes.
#[derive(Deserialize)]
struct Frame<'a> {
    id: Option<u64>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    result: Option<Value>,
    error: Option<Value>,
}

/// What an answer is awaited for.
enum Asked {
    Session(String),
    /// A chat, and the session that it is made in or moved to.
    Chat(String, String),
    Gone(Closed),
    Subscription,
    /// Nothing that has to be known.
    Answer,
}

/// The name of a session's first chat, which nobody closes here.
fn first_chat(session: &str) -> String {
    format!("ahp-chat://default/{}", URL_SAFE_NO_PAD.encode(session))
}

/// See the head of this file.
pub struct Person {
    id: String,
    dice: Dice,
    /// Every event that was shown, by number, as its envelope stood on the wire.
    seen: BTreeMap<u64, String>,
    mirrors: BTreeMap<String, Mirror>,
    /// The newest number that was shown.
    last_seen: u64,
    next_seq: i64,
    next_id: u64,
    next_name: u64,
    asked: HashMap<u64, Asked>,
    /// Sessions and chats whose creation was answered, and whose end was not asked for: chats with their sessions.
    created: BTreeMap<String, Option<String>>,
    /// Where what was closed is told.
    closes: Option<UnboundedSender<Closed>>,
    knows: bool,
    socket: Option<Socket>,
}

impl Person {
    pub fn new(number: usize, dice: Dice) -> Self {
        Self {
            id: format!("person-{number}"),
            dice,
            seen: BTreeMap::new(),
            mirrors: BTreeMap::new(),
            last_seen: 0,
            next_seq: 0,
            next_id: 0,
            next_name: 0,
            asked: HashMap::new(),
            created: BTreeMap::new(),
            closes: None,
            knows: false,
            socket: None,
        }
    }

    /// Somebody who only looks.
    pub fn inspector() -> Self {
        Self { id: "inspector".into(), ..Self::new(0, Dice::new(0)) }
    }

    /// How many events this person was shown.
    pub fn shown(&self) -> usize {
        self.seen.len()
    }

    pub fn seen(&self) -> impl Iterator<Item = (&u64, &str)> {
        self.seen.iter().map(|(seq, envelope)| (seq, envelope.as_str()))
    }

    pub fn created(&self) -> BTreeSet<String> {
        self.created.keys().cloned().collect()
    }

    fn name(&mut self, kind: &str) -> String {
        self.next_name += 1;
        format!("{kind}-{}-{}", self.id, self.next_name)
    }

    /// Works until the socket ends, which is when the host is killed.
    pub async fn work(
        &mut self,
        port: u16,
        received: &AtomicU64,
        closes: UnboundedSender<Closed>,
    ) -> Result<(), Broken> {
        self.closes = Some(closes);
        let worked = self.work_on(port, received).await;
        self.closes = None;
        worked
    }

    async fn work_on(&mut self, port: u16, received: &AtomicU64) -> Result<(), Broken> {
        if self.socket.is_none() {
            self.shake_hands(port).await?;
        }
        let Some(mut socket) = self.socket.take() else { return Ok(()) };
        loop {
            if let Some(message) = self.next_deed() {
                // Where it fails, what still arrived before the end is read all the same.
                let _ = socket.send(Message::text(message.to_string())).await;
            }
            let pause = Duration::from_millis(self.dice.between(0, 4));
            let until = tokio::time::Instant::now() + pause;
            loop {
                match tokio::time::timeout_at(until, socket.next()).await {
                    Err(_) => break,
                    Ok(Some(Ok(Message::Text(text)))) => {
                        received.fetch_add(1, Ordering::Relaxed);
                        for message in self.take(&text)? {
                            let _ = socket.send(Message::text(message.to_string())).await;
                        }
                    }
                    Ok(Some(Ok(Message::Close(close)))) => {
                        return Err(Broken::new(format!("{}: the host closed the socket: {close:?}", self.id)));
                    }
                    Ok(Some(Ok(_))) => {}
                    Ok(Some(Err(_)) | None) => {
                        self.asked.clear();
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Connects for the first time.
    pub async fn shake_hands(&mut self, port: u16) -> Result<(), Broken> {
        self.connect(port).await?;
        let params = json!({ "channel": ROOT, "protocolVersions": ["1.0.0"], "clientId": self.id,
            "initialSubscriptions": [ROOT] });
        let result = self.ask("initialize", params).await?.map_err(Broken::new)?;
        self.knows = true;
        self.take_snapshots(&result["snapshots"])
    }

    /// Connects again from the newest number that was shown.
    pub async fn come_back(&mut self, port: u16) -> Result<(), Broken> {
        if !self.knows {
            return self.shake_hands(port).await;
        }
        self.connect(port).await?;
        let subscriptions: Vec<&String> = self.mirrors.keys().collect();
        let params = json!({ "channel": ROOT, "clientId": self.id, "lastSeenServerSeq": self.last_seen,
            "subscriptions": subscriptions });
        let result = self.ask("reconnect", params).await?.map_err(Broken::new)?;
        if result["type"] == "snapshot" {
            self.mirrors.clear();
            self.last_seen = 0;
            return self.take_snapshots(&result["snapshots"]);
        }
        for missing in result["missing"].as_array().into_iter().flatten() {
            self.mirrors.remove(missing.as_str().unwrap_or_default());
        }
        let before = self.last_seen;
        for envelope in result["actions"].as_array().into_iter().flatten() {
            if envelope["serverSeq"].as_u64().unwrap_or(0) <= before {
                return Err(Broken::new(format!("{} was sent again what it saw: {envelope}", self.id)));
            }
            self.fold(envelope)?;
        }
        Ok(())
    }

    async fn connect(&mut self, port: u16) -> Result<(), Broken> {
        let (socket, _) = connect_async(format!("ws://127.0.0.1:{port}/")).await.map_err(Broken::new)?;
        self.socket = Some(socket);
        Ok(())
    }

    /// A request and its answer; what else comes meanwhile is taken as always.
    async fn ask(&mut self, method: &str, params: Value) -> Result<Result<Value, Value>, Broken> {
        self.next_id += 1;
        let id = self.next_id;
        let mut socket = self.socket.take().ok_or_else(|| Broken::new("no socket"))?;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        socket.send(Message::text(request.to_string())).await.map_err(Broken::new)?;
        loop {
            let message = timeout(PATIENCE, socket.next()).await;
            let message = message.map_err(|_| Broken::new(format!("{method} was not answered")))?;
            let Some(Ok(Message::Text(text))) = message else {
                return Err(Broken::new(format!("{}: the socket ended before the answer to {method}", self.id)));
            };
            let frame: Frame<'_> = serde_json::from_str(&text).map_err(Broken::new)?;
            if frame.id == Some(id) {
                self.socket = Some(socket);
                return Ok(frame.result.ok_or_else(|| frame.error.unwrap_or_default()));
            }
            self.take(&text)?;
        }
    }

    fn take_snapshots(&mut self, snapshots: &Value) -> Result<(), Broken> {
        for snapshot in snapshots.as_array().into_iter().flatten() {
            self.take_snapshot(snapshot)?;
        }
        let newest = self.mirrors.values().map(|mirror| mirror.seq).max().unwrap_or(0);
        self.last_seen = self.last_seen.max(newest);
        Ok(())
    }

    fn take_snapshot(&mut self, snapshot: &Value) -> Result<(), Broken> {
        let resource = snapshot["resource"].as_str().unwrap_or_default().to_owned();
        self.mirrors.insert(resource, Mirror::of(snapshot)?);
        Ok(())
    }

    /// Takes what was received, and says what is to be sent in return.
    fn take(&mut self, text: &str) -> Result<Vec<Value>, Broken> {
        let frame: Frame<'_> = serde_json::from_str(text).map_err(|e| Broken::new(format!("{e}: {text}")))?;
        if let Some(id) = frame.id {
            return self.answered(id, frame.result, frame.error);
        }
        let Some(params) = frame.params else { return Ok(Vec::new()) };
        match frame.method.as_deref() {
            Some("action") => self.envelope(params.get()),
            Some("root/sessionAdded") => {
                let params: Value = serde_json::from_str(params.get()).map_err(Broken::new)?;
                let session = params["summary"]["resource"].as_str().unwrap_or_default().to_owned();
                Ok(if self.dice.chance(50) { self.look_at_session(&session) } else { Vec::new() })
            }
            Some("root/sessionRemoved") => {
                let params: Value = serde_json::from_str(params.get()).map_err(Broken::new)?;
                self.session_is_gone(params["session"].as_str().unwrap_or_default());
                Ok(Vec::new())
            }
            _ => Ok(Vec::new()),
        }
    }

    fn envelope(&mut self, text: &str) -> Result<Vec<Value>, Broken> {
        let envelope: Value = serde_json::from_str(text).map_err(Broken::new)?;
        if envelope.get("rejectionReason").is_some() {
            return Ok(Vec::new());
        }
        let seq = envelope["serverSeq"].as_u64().unwrap_or(0);
        if seq <= self.last_seen && self.seen.contains_key(&seq) {
            return Err(Broken::new(format!("{} was shown event {seq} twice: {text}", self.id)));
        }
        self.seen.insert(seq, text.to_owned());
        self.fold(&envelope)?;
        // It comes back without its subscribers, if it does.
        if envelope["action"]["type"] == "session/chatRemoved" {
            self.mirrors.remove(envelope["action"]["chat"].as_str().unwrap_or_default());
        }
        let added = envelope["action"]["summary"]["resource"].as_str();
        match added.filter(|_| envelope["action"]["type"] == "session/chatAdded") {
            Some(chat) if self.dice.chance(70) => Ok(vec![self.subscribe(chat)]),
            _ => Ok(Vec::new()),
        }
    }

    fn fold(&mut self, envelope: &Value) -> Result<(), Broken> {
        let seq = envelope["serverSeq"].as_u64().unwrap_or(0);
        self.last_seen = self.last_seen.max(seq);
        match self.mirrors.get_mut(envelope["channel"].as_str().unwrap_or_default()) {
            Some(mirror) => mirror.apply(seq, &envelope["action"]),
            None => Ok(()),
        }
    }

    fn answered(&mut self, id: u64, result: Option<Value>, error: Option<Value>) -> Result<Vec<Value>, Broken> {
        let Some(asked) = self.asked.remove(&id) else { return Ok(Vec::new()) };
        if error.is_some() {
            return Ok(Vec::new());
        }
        match asked {
            Asked::Session(uri) => {
                self.created.insert(uri.clone(), None);
                Ok(self.look_at_session(&uri))
            }
            Asked::Chat(uri, session) => {
                // One that was made in a session that is disposed by now went with it.
                if self.created.contains_key(&session) {
                    self.created.insert(uri.clone(), Some(session));
                }
                Ok(vec![self.subscribe(&uri)])
            }
            Asked::Gone(closed) => {
                match &closed.session {
                    Some(_) => drop(self.mirrors.remove(&closed.uri)),
                    None => self.session_is_gone(&closed.uri),
                }
                if let Some(closes) = &self.closes {
                    let _ = closes.send(closed);
                }
                Ok(Vec::new())
            }
            Asked::Answer => Ok(Vec::new()),
            Asked::Subscription => {
                self.take_snapshot(&result.unwrap_or_default()["snapshot"])?;
                Ok(Vec::new())
            }
        }
    }

    fn request(&mut self, method: &str, params: Value, asked: Asked) -> Value {
        self.next_id += 1;
        self.asked.insert(self.next_id, asked);
        json!({ "jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params })
    }

    fn subscribe(&mut self, channel: &str) -> Value {
        self.request("subscribe", json!({ "channel": channel }), Asked::Subscription)
    }

    fn session_is_gone(&mut self, session: &str) {
        if let Some(Mirror { state: State::Session(state), .. }) = self.mirrors.remove(session) {
            state.chats.iter().for_each(|chat| drop(self.mirrors.remove(&chat.resource)));
        }
        self.mirrors.remove(&first_chat(session));
    }

    fn look_at_session(&mut self, session: &str) -> Vec<Value> {
        vec![self.subscribe(session), self.subscribe(&first_chat(session))]
    }

    fn dispatch(&mut self, channel: &str, action: Value) -> Value {
        self.next_seq += 1;
        let params = json!({ "channel": channel, "clientSeq": self.next_seq, "action": action });
        json!({ "jsonrpc": "2.0", "method": "dispatchAction", "params": params })
    }

    /// What this person does next. No two actions are the same, so that none is taken for a re-sent one and every echo
    /// stands for an event.
    fn next_deed(&mut self) -> Option<Value> {
        let mine: Vec<String> = self.created.keys().filter(|uri| uri.starts_with("ahp-session:")).cloned().collect();
        if mine.len() < SESSIONS && self.dice.chance(if mine.is_empty() { 100 } else { 5 }) {
            if self.asked.values().any(|asked| matches!(asked, Asked::Session(_))) {
                return None;
            }
            let uri = format!("ahp-session:/{}", self.name("s"));
            let params = json!({ "channel": uri, "provider": "demo" });
            return Some(self.request("createSession", params, Asked::Session(uri)));
        }
        let chats = self.created.len() - mine.len();
        if chats < mine.len() * CHATS && self.dice.chance(10) {
            let session = self.dice.pick(&mine)?.clone();
            return Some(self.create_chat(session, None));
        }
        let peers: Vec<String> = self.created.keys().filter(|uri| uri.starts_with("ahp-chat:")).cloned().collect();
        if peers.len() > 1 && self.dice.chance(6) {
            let uri = self.dice.pick(&peers)?.clone();
            let session = self.created.remove(&uri)?;
            return Some(self.request("disposeChat", json!({ "channel": uri }), Asked::Gone(Closed { uri, session })));
        }
        if mine.len() > 1 && self.dice.chance(2) {
            let uri = self.dice.pick(&mine)?.clone();
            self.created.retain(|known, session| *known != uri && session.as_ref() != Some(&uri));
            let params = json!({ "channel": uri });
            return Some(self.request("disposeSession", params, Asked::Gone(Closed { uri, session: None })));
        }
        if !peers.is_empty() && mine.len() > 1 && self.dice.chance(2) {
            // Until it is answered nobody can say where it is.
            let uri = self.dice.pick(&peers)?.clone();
            let session = self.dice.pick(&mine)?.clone();
            self.created.remove(&uri);
            let params = json!({ "channel": uri, "destination": { "kind": "session", "session": session } });
            return Some(self.request("moveChat", params, Asked::Chat(uri, session)));
        }
        let chats: Vec<String> = self.mirrors.keys().filter(|uri| uri.starts_with("ahp-chat:")).cloned().collect();
        let chat = self.dice.pick(&chats)?.clone();
        if self.dice.chance(8)
            && let Some(command) = self.command_in(&chat)
        {
            return Some(command);
        }
        let action = self.deed_in(&chat)?;
        Some(self.dispatch(&chat, action))
    }

    fn create_chat(&mut self, session: String, source: Option<Value>) -> Value {
        let uri = format!("ahp-chat:/{}", self.name("c"));
        let mut params = json!({ "channel": session, "chat": uri });
        if let Some(source) = source {
            params["source"] = source;
        }
        self.request("createChat", params, Asked::Chat(uri, session))
    }

    /// A fork, a start over, or a queued message that goes out now.
    fn command_in(&mut self, chat: &str) -> Option<Value> {
        let Mirror { state: State::Chat(state), .. } = self.mirrors.get(chat)? else { return None };
        let turns: Vec<String> = state.turns.iter().map(|turn| turn.id.clone()).collect();
        let queued: Vec<String> = state.queued_messages.iter().flatten().map(|message| message.id.clone()).collect();
        match self.dice.between(0, 3) {
            0 => {
                let params = json!({ "channel": chat, "force": self.dice.chance(50) });
                Some(self.request("x-scrollback/clear", params, Asked::Answer))
            }
            1 => {
                let params = json!({ "channel": chat, "id": self.dice.pick(&queued)? });
                Some(self.request("x-scrollback/sendNow", params, Asked::Answer))
            }
            _ => {
                let of_first = |session: &&String| first_chat(session) == chat;
                let known = self.created.get(chat).cloned().flatten();
                let session = known.or_else(|| self.created.keys().find(of_first).cloned())?;
                if self.created.len() > SESSIONS * (CHATS + 2) {
                    return None;
                }
                let source = json!({ "kind": "fork", "chat": chat, "turnId": self.dice.pick(&turns)? });
                Some(self.create_chat(session, Some(source)))
            }
        }
    }

    fn deed_in(&mut self, chat: &str) -> Option<Value> {
        let Mirror { state: State::Chat(state), .. } = self.mirrors.get(chat)? else { return None };
        let state = serde_json::to_value(state).ok()?;
        let turn = state["activeTurn"]["id"].as_str().map(str::to_owned);
        let text = self.script();
        let message = json!({ "text": text, "origin": { "kind": "user" } });
        let Some(turn) = turn else {
            let id = self.name("t");
            let turns: Vec<Value> = state["turns"].as_array()?.iter().map(|turn| turn["id"].clone()).collect();
            return Some(match self.dice.between(0, 10) {
                10 => json!({ "type": "chat/truncated", "turnId": self.dice.pick(&turns)? }),
                0..=6 => json!({ "type": "chat/turnStarted", "turnId": id, "message": message,
                    "startedAt": "2026-11-30T12:00:00.000Z" }),
                7 => json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": id, "message": message }),
                8 => json!({ "type": "session/titleChanged", "title": id }),
                _ => self.draft(),
            });
        };
        for part in state["activeTurn"]["responseParts"].as_array()? {
            let call = &part["toolCall"];
            if call["status"] == "pending-confirmation" && self.dice.chance(50) {
                let approved = self.dice.chance(70);
                let mut confirmed = json!({ "type": "chat/toolCallConfirmed", "turnId": turn,
                    "toolCallId": call["toolCallId"], "approved": approved });
                confirmed[if approved { "confirmed" } else { "reason" }] =
                    json!(if approved { "user-action" } else { "denied" });
                return Some(confirmed);
            }
            let unanswered = part["kind"] == "inputRequest" && part.get("response").is_none();
            if unanswered && self.dice.chance(50) {
                return Some(json!({ "type": "chat/inputCompleted", "requestId": part["request"]["id"],
                    "response": "cancel" }));
            }
        }
        let id = self.name("q");
        match self.dice.between(0, 9) {
            0..=2 => Some(json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": id, "message": message })),
            3 => Some(json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 })),
            7 => Some(json!({ "type": "chat/pendingMessageSet", "kind": "steering", "id": id, "message": message })),
            4 | 5 => Some(self.draft()),
            6 => Some(json!({ "type": "session/titleChanged", "title": id })),
            _ => None,
        }
    }

    fn draft(&mut self) -> Value {
        let text = self.name("draft");
        json!({ "type": "chat/draftChanged", "draft": { "text": text, "origin": { "kind": "user" } } })
    }

    /// What the demo is asked to do.
    fn script(&mut self) -> String {
        let step = |dice: &mut Dice| match dice.between(0, 9) {
            0 => "/words 40 1".to_owned(),
            1 => "/think about it for a while".to_owned(),
            2 => "/tool look around".to_owned(),
            3 => "/ask-tool write a file".to_owned(),
            4 => "/question which one | this | that".to_owned(),
            5 => "/sleep 20".to_owned(),
            8 => "/await-steering".to_owned(),
            9 => "/background watch 30".to_owned(),
            6 => "/usage 10 20".to_owned(),
            _ => "a line that is said back, word by word".to_owned(),
        };
        let steps = self.dice.between(1, 4);
        (0..steps).map(|_| step(&mut self.dice)).collect::<Vec<_>>().join("\n")
    }

    /// Which of these are not there.
    pub async fn misses(&mut self, created: &BTreeSet<String>) -> Result<BTreeSet<String>, Broken> {
        let mut missing = BTreeSet::new();
        for uri in created {
            if self.ask("subscribe", json!({ "channel": uri })).await?.is_err() {
                missing.insert(uri.clone());
                continue;
            }
            let unsubscribe = json!({ "jsonrpc": "2.0", "method": "unsubscribe", "params": { "channel": uri } });
            if let Some(socket) = &mut self.socket {
                socket.send(Message::text(unsubscribe.to_string())).await.map_err(Broken::new)?;
            }
        }
        Ok(missing)
    }

    /// Counts no longer on what is gone.
    pub fn forget(&mut self, gone: &BTreeSet<String>) {
        self.created.retain(|uri, _| !gone.contains(uri));
    }

    /// Compares what `person` has with new snapshots; returns how many states there were. Turns that were taken up go on
    /// meanwhile, so that both are looked at until they are of one moment.
    pub async fn compare(&mut self, person: &mut Person) -> Result<usize, Broken> {
        let channels: Vec<String> = person.mirrors.keys().cloned().collect();
        for channel in &channels {
            let since = tokio::time::Instant::now();
            loop {
                let answer = self.ask("subscribe", json!({ "channel": channel })).await?;
                let answer = answer.map_err(|error| Broken::new(format!("{channel} is not there: {error}")))?;
                let is = Mirror::of(&answer["snapshot"])?.comparable();
                // What was sent before the answer is there with it.
                let _ = person.ask("ping", json!({ "channel": ROOT })).await?;
                let has = person.mirrors.get(channel).map(Mirror::comparable).unwrap_or_default();
                if has == is {
                    break;
                }
                if since.elapsed() > PATIENCE {
                    return Err(Broken::new(format!("{} has of {channel}\n{has}\nwhich is\n{is}", person.id)));
                }
            }
        }
        Ok(channels.len())
    }
}
