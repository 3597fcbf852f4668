//! A whole conversation with the official Rust client: what it can read and send is what other clients can.

use ahp::client::{Client, ClientConfig, ClientEventStream, SubscriptionEvent};
use ahp::error::ClientError;
use ahp::hosts::HostId;
use ahp::multi_host_state_mirror::{HostedResourceKey, MultiHostStateMirror};
use ahp_types::actions::{ActionEnvelope, StateAction};
use ahp_types::commands::{ListSessionsResult, ReconnectResult, SubscribeView};
use ahp_types::state::{ChatState, ResponsePart, SessionInputRequest, TurnState};
use ahp_ws::WebSocketTransport;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::harness::{PATIENCE, ROOT, TestHost, chat_of, is_ending, message};

const SESSION: &str = "ahp-session:/official";

/// The official client, its mirror, and the stream of all that arrives.
struct Official {
    client: Client,
    events: ClientEventStream,
    mirror: MultiHostStateMirror,
    host: HostId,
    last_seen: i64,
}

impl Official {
    async fn connect(host: &TestHost) -> Self {
        let transport = WebSocketTransport::connect(&format!("ws://{}/", host.address)).await.unwrap();
        // A reader that lags loses events without a word: the buffer holds all that these tests make.
        let config = ClientConfig { subscription_buffer: 65_536, ..ClientConfig::default() };
        let client = Client::connect(transport, config).await.unwrap();
        let events = client.events();
        Self { client, events, mirror: MultiHostStateMirror::new(), host: HostId::new("h"), last_seen: 0 }
    }

    async fn initialize(host: &TestHost, id: &str) -> Self {
        let mut official = Self::connect(host).await;
        let versions = vec!["1.0.0".to_owned()];
        let answer = official.client.initialize(id.into(), versions, vec![ROOT.into()]).await.unwrap();
        assert_eq!(answer.protocol_version, "1.0.0");
        assert_eq!(answer.snapshots.len(), 1);
        official.last_seen = answer.server_seq;
        official.mirror.apply_snapshot(&official.host, &answer.snapshots[0]);
        official
    }

    async fn subscribe(&mut self, channel: &str, turns: Option<i64>) {
        let view = turns.map(|turns| SubscribeView { turns: Some(turns) });
        let (answer, _) = self.client.subscribe_with_options(channel.into(), None, view).await.unwrap();
        let snapshot = answer.snapshot.unwrap();
        self.last_seen = self.last_seen.max(snapshot.from_seq);
        self.mirror.apply_snapshot(&self.host, &snapshot);
    }

    async fn ask(&self, method: &str, params: Value) -> Result<Value, ClientError> {
        self.client.request(method, params).await
    }

    async fn dispatch(&self, channel: &str, action: Value) -> i64 {
        let action: StateAction = serde_json::from_value(action).unwrap();
        assert!(!matches!(action, StateAction::Unknown(_)));
        self.client.dispatch(channel.into(), action).await.unwrap().client_seq
    }

    async fn say(&self, chat: &str, turn: &str, text: &str) -> i64 {
        let action = json!({ "type": "chat/turnStarted", "turnId": turn, "startedAt": "2026-11-30T12:00:00.000Z",
            "message": message(text) });
        self.dispatch(chat, action).await
    }

    /// The next envelope, mirrored unless it is a refusal.
    async fn next(&mut self) -> ActionEnvelope {
        loop {
            let event = timeout(PATIENCE, self.events.recv()).await.expect("nothing came").expect("the client ended");
            let SubscriptionEvent::Action(envelope) = event.event else { continue };
            self.last_seen = self.last_seen.max(envelope.server_seq as i64);
            if envelope.rejection_reason.is_none() {
                self.mirror.apply_envelope(&self.host, &envelope);
            }
            return envelope;
        }
    }

    async fn until(&mut self, fits: impl Fn(&ActionEnvelope) -> bool) -> ActionEnvelope {
        loop {
            let envelope = self.next().await;
            if fits(&envelope) {
                return envelope;
            }
        }
    }

    async fn until_ended(&mut self, turn: &str) {
        let ends = |envelope: &ActionEnvelope| {
            let action = serde_json::to_value(&envelope.action).unwrap();
            is_ending(&action) && action["turnId"] == json!(turn)
        };
        self.until(ends).await;
    }

    fn chat(&self, uri: &str) -> &ChatState {
        &self.mirror.chats()[&HostedResourceKey::new(self.host.clone(), uri)]
    }

    fn waiting(&self) -> Vec<SessionInputRequest> {
        let session = &self.mirror.sessions()[&HostedResourceKey::new(self.host.clone(), SESSION)];
        session.input_needed.clone().unwrap_or_default()
    }
}

fn text_of(parts: &[ResponsePart]) -> String {
    parts
        .iter()
        .filter_map(|part| match part {
            ResponsePart::Markdown(part) => Some(part.content.as_str()),
            _ => None,
        })
        .collect()
}

fn code(error: &ClientError) -> i64 {
    match error {
        ClientError::Rpc(error) => i64::from(error.code),
        other => panic!("not an answer of the host: {other}"),
    }
}

#[tokio::test]
async fn the_official_client_holds_a_whole_conversation_and_comes_back_to_it_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let chat = chat_of(SESSION);
    let mut official = Official::initialize(&host, "official").await;
    official.client.ping().await.unwrap();

    let made = official.ask("createSession", json!({ "channel": SESSION, "provider": "demo" })).await.unwrap();
    assert_eq!(made, Value::Null);
    let again = official.ask("createSession", json!({ "channel": SESSION, "provider": "demo" })).await.unwrap_err();
    assert_eq!(code(&again), -32003);
    official.subscribe(SESSION, None).await;
    official.subscribe(&chat, None).await;

    // A turn: one echo of the client's own action, the streamed answer, the ending.
    let seq = official.say(&chat, "t1", "hello official world").await;
    let echo = official.until(|envelope| envelope.origin.is_some()).await;
    assert_eq!(echo.origin.unwrap().client_seq, seq);
    official.until_ended("t1").await;
    let turn = official.chat(&chat).turns.last().unwrap();
    assert_eq!(turn.state, TurnState::Complete);
    assert_eq!(text_of(&turn.response_parts), "You said: hello official world ");

    // A tool call that asks, and a question: both found by the session's list, answered on the chat.
    official.say(&chat, "t2", "/ask-tool rm all\n/question Sure? | yes | no").await;
    official.until(|envelope| matches!(envelope.action, StateAction::SessionInputNeededSet(_))).await;
    let waiting = serde_json::to_value(official.waiting()).unwrap();
    let call = waiting[0]["toolCall"]["toolCallId"].as_str().unwrap();
    let approval = json!({ "type": "chat/toolCallConfirmed", "turnId": "t2", "toolCallId": call, "approved": true,
        "confirmed": "user-action", "selectedOptionId": "allow" });
    official.dispatch(&chat, approval).await;
    official.until(|envelope| matches!(envelope.action, StateAction::ChatInputRequested(_))).await;
    official.until(|envelope| matches!(envelope.action, StateAction::SessionInputNeededSet(_))).await;
    let waiting = serde_json::to_value(official.waiting()).unwrap();
    assert_eq!(waiting.as_array().unwrap().len(), 1, "{waiting}");
    let answers = json!({ "answer": { "state": "submitted", "value": { "kind": "selected", "value": "yes" } } });
    let answer = json!({ "type": "chat/inputCompleted", "requestId": waiting[0]["request"]["id"], "response": "accept",
        "answers": answers });
    official.dispatch(&chat, answer).await;
    official.until_ended("t2").await;
    assert!(text_of(&official.chat(&chat).turns[1].response_parts).contains("answered: yes"));

    // A message waits for a running turn and goes out by itself.
    official.say(&chat, "t3", "/words 50 2").await;
    let queued = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": "q1", "message": message("next") });
    official.dispatch(&chat, queued).await;
    official.until_ended("t3").await;
    let sent = official.until(|envelope| matches!(envelope.action, StateAction::ChatTurnStarted(_))).await;
    let StateAction::ChatTurnStarted(sent) = sent.action else { unreachable!() };
    assert_eq!(sent.queued_message_id.as_deref(), Some("q1"));
    official.until_ended(&sent.turn_id).await;

    // A refusal comes back to its sender, with a reason, and moves nothing.
    let before = official.chat(&chat).clone();
    let seq = official.say(&chat, "t1", "the same id again").await;
    let refused = official.until(|envelope| envelope.origin.as_ref().is_some_and(|o| o.client_seq == seq)).await;
    assert!(refused.rejection_reason.unwrap().starts_with("duplicate-turn:"));
    assert_eq!(official.chat(&chat), &before);

    // The list, a second chat, and what is said of channels that are not there.
    let listed: ListSessionsResult = official.client.request("listSessions", json!({ "channel": ROOT })).await.unwrap();
    assert_eq!(listed.items.iter().map(|item| item.resource.as_str()).collect::<Vec<_>>(), [SESSION]);
    let second = json!({ "channel": SESSION, "chat": "ahp-chat:/second", "initialMessage": message("at once") });
    official.ask("createChat", second).await.unwrap();
    official.subscribe("ahp-chat:/second", None).await;
    let missing = official.client.subscribe("ahp-chat:/missing".into()).await.map(|_| ()).unwrap_err();
    assert_eq!(code(&missing), -32008);
    while official.chat("ahp-chat:/second").active_turn.is_some() {
        official.next().await;
    }
    assert_eq!(text_of(&official.chat("ahp-chat:/second").turns[0].response_parts), "You said: at once ");

    // The host restarts; the client comes back with its last number and has everything.
    let seen = official.last_seen;
    let held = official.chat(&chat).clone();
    official.client.shutdown().await;
    host.stop();
    let host = TestHost::on_disk(directory.path());
    let mut back = Official::connect(&host).await;
    let names = vec![ROOT.to_owned(), SESSION.to_owned(), chat.clone(), "ahp-chat:/missing".to_owned()];
    let ReconnectResult::Replay(replay) = back.client.reconnect("official".into(), seen, names).await.unwrap() else {
        panic!("a short gap is replayed");
    };
    assert_eq!(replay.missing, ["ahp-chat:/missing"]);
    let is_new = |envelope: &ActionEnvelope| envelope.server_seq as i64 > seen && envelope.channel != chat;
    assert!(replay.actions.iter().all(is_new), "{:?}", replay.actions);
    back.subscribe(&chat, None).await;
    let mut now = back.chat(&chat).clone();
    // No action of a chat carries its title.
    now.title.clone_from(&held.title);
    assert_eq!(now, held);

    // Older turns come in pages, in front of the newest ones.
    back.subscribe(&chat, Some(1)).await;
    assert_eq!(back.chat(&chat).turns.len(), 1);
    let cursor = back.chat(&chat).turns_next_cursor.clone().unwrap();
    back.ask("fetchTurns", json!({ "channel": chat, "cursor": cursor })).await.unwrap();
    back.until(|envelope| matches!(envelope.action, StateAction::ChatTurnsLoaded(_))).await;
    assert_eq!(back.chat(&chat).turns, held.turns);

    back.ask("disposeSession", json!({ "channel": SESSION })).await.unwrap();
    let listed: ListSessionsResult = back.client.request("listSessions", json!({ "channel": ROOT })).await.unwrap();
    assert_eq!(listed.items, []);
}

#[tokio::test]
async fn the_official_client_comes_back_into_the_middle_of_what_was_compacted() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk_with(directory.path(), crate::folded::separate());
    let chat = chat_of(SESSION);
    let mut official = Official::initialize(&host, "official").await;
    official.ask("createSession", json!({ "channel": SESSION, "provider": "demo" })).await.unwrap();
    official.subscribe(&chat, None).await;
    official.say(&chat, "t1", "/words 20").await;
    let of_word = |word: &'static str| move |envelope: &ActionEnvelope| matches!(&envelope.action, StateAction::ChatDelta(d) if d.content == word);
    let before =
        official.until(|envelope| matches!(envelope.action, StateAction::ChatResponsePart(_))).await.server_seq;
    let held_before = official.chat(&chat).clone();
    let within = official.until(of_word("w10 ")).await.server_seq;
    official.until_ended("t1").await;
    let held = official.chat(&chat).clone();
    drop(official);
    host.host.compact(i64::MAX, Box::new(|_| ())).await.unwrap();

    // Who has none of it gets it as one event.
    let mut back = Official::connect(&host).await;
    let answer = back.client.reconnect("official".into(), before as i64, vec![chat.clone()]).await.unwrap();
    let ReconnectResult::Replay(replay) = answer else { panic!("nothing of it was seen") };
    let deltas = replay.actions.iter().filter(|e| matches!(e.action, StateAction::ChatDelta(_))).count();
    assert_eq!(deltas, 1);
    let snapshot = ahp_types::state::Snapshot {
        resource: chat.clone(),
        state: ahp_types::state::SnapshotState::Chat(Box::new(held_before)),
        from_seq: before as i64,
    };
    back.mirror.apply_snapshot(&back.host, &snapshot);
    replay.actions.iter().for_each(|envelope| back.mirror.apply_envelope(&back.host, envelope));
    assert_eq!(back.chat(&chat), &held);
    // No action of a chat carries its title.
    let held = ChatState { title: "/words 20".into(), ..held };

    // Who has some of it gets a snapshot.
    let mut back = Official::connect(&host).await;
    let answer = back.client.reconnect("official".into(), within as i64, vec![chat.clone()]).await.unwrap();
    let ReconnectResult::Snapshot(answer) = answer else { panic!("some of it was seen") };
    back.mirror.apply_snapshot(&back.host, &answer.snapshots[0]);
    assert_eq!(back.chat(&chat), &held);
    back.say(&chat, "t2", "and on").await;
    back.until_ended("t2").await;
    assert_eq!(back.chat(&chat).turns.len(), 2);
}
