//! What a session and the list say of their chats, and the marks that need no agent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ahp::reducers::{apply_action_to_chat, apply_action_to_session};
use ahp_types::actions::StateAction;
use ahp_types::common::JsonObject;
use ahp_types::state::{AgentInfo, ChatState, SessionConfigSchema, SessionState};
use scrollback::access::Identity;
use scrollback::actors::agent::{Agent, AgentExtras, AgentProcess, AgentSink, ProcessStart};
use serde_json::{Value, json};

use crate::harness::{Client, Options, TestHost, envelopes, message, types};

const S: &str = "ahp-session:/s";

/// The demo, with a count of the processes that were started.
struct Counting {
    demo: Arc<dyn Agent>,
    started: Arc<AtomicUsize>,
}

impl Agent for Counting {
    fn provider(&self) -> &str {
        self.demo.provider()
    }
    fn info(&self) -> AgentInfo {
        self.demo.info()
    }
    fn extras(&self) -> AgentExtras {
        self.demo.extras()
    }
    fn configuration(&self) -> (SessionConfigSchema, JsonObject) {
        self.demo.configuration()
    }
    fn start(&self, start: ProcessStart, events: AgentSink) -> Box<dyn AgentProcess> {
        self.started.fetch_add(1, Ordering::Relaxed);
        self.demo.start(start, events)
    }
}

fn counted() -> (Options, Arc<AtomicUsize>) {
    let started = Arc::<AtomicUsize>::default();
    let agent = Counting { demo: scrollback::agents::built_in(), started: Arc::clone(&started) };
    (Options { agents: vec![Arc::new(agent)], ..Options::default() }, started)
}

#[tokio::test]
async fn what_a_chat_does_travels_to_its_session_and_to_the_list() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(S).await;
    client.subscribe(&chat).await;
    client.drain().await;
    client.say(&chat, "t", "/activity busy\n/say x").await;
    client.until_ended("t").await;
    client.accepted(S, json!({ "type": "session/isReadChanged", "isRead": true })).await;
    client.unsubscribe(&chat).await;
    client.say(&chat, "t2", "/activity busy\n/say x").await;
    let busy = |e: &Value| e["action"]["changes"]["activity"] == json!("busy");
    let seen = client.until(busy).await;
    let first = &seen.iter().find(|e| e["action"]["type"] == json!("session/chatUpdated")).unwrap()["action"];
    assert_eq!((&first["chat"], &first["changes"]["status"]), (&json!(chat), &json!(8)));
    assert!(seen.iter().all(|e| e["action"]["changes"].get("resource").is_none()), "{seen:?}");
    // The reducer of `session/chatUpdated` cannot clear an activity.
    let cleared = client.until_type("session/chatAdded").await;
    assert_eq!(cleared["action"]["summary"]["status"], json!(1));
    assert_eq!(cleared["action"]["summary"].get("activity"), None);
}

#[tokio::test]
async fn the_list_hears_whole_catalogues_and_never_an_identity() {
    let host = TestHost::in_memory();
    let mut watcher = host.client("w").await;
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.create_chat(S, "ahp-chat:/p").await;
    client.subscribe(&chat).await;
    client.run(&chat, "t", "/activity busy\n/say x").await;
    client.dispatch(S, json!({ "type": "session/titleChanged", "title": "the end" })).await;
    let mut titles = Vec::new();
    loop {
        let told = watcher.notification("root/sessionSummaryChanged").await;
        assert_eq!(told["session"], json!(S));
        let changes = told["changes"].as_object().unwrap().clone();
        for identity in ["resource", "provider", "createdAt"] {
            assert!(!changes.contains_key(identity), "{changes:?}");
        }
        if let Some(chats) = changes.get("chats") {
            titles.push(chats.as_array().unwrap().len());
        }
        if changes.get("title") == Some(&json!("the end")) {
            break;
        }
    }
    assert!(titles.iter().all(|count| *count == 2), "{titles:?}");
    assert_eq!(client.listed().await[0]["title"], json!("the end"));
}

/// A client that folds what it hears with the official reducers has what the host would show it.
#[tokio::test]
async fn a_snapshot_is_the_fold_of_what_was_sent() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    let mut session: SessionState = serde_json::from_value(client.subscribe(S).await["state"].clone()).unwrap();
    let mut state: ChatState = serde_json::from_value(client.subscribe(&chat).await["state"].clone()).unwrap();
    client.drain().await;
    let script = "/activity busy\n/think hm\n/tool ls a\n/say x\n/usage 3 4\n/notice n\n/ask-tool rm x";
    client.say(&chat, "t1", script).await;
    let mut seen = client.until(|e| e["action"]["type"] == json!("session/inputNeededSet")).await;
    let call = seen.last().unwrap()["action"]["request"]["toolCall"]["toolCallId"].clone();
    let deny = json!({ "type": "chat/toolCallConfirmed", "turnId": "t1", "toolCallId": call, "approved": false,
        "reason": "denied", "selectedOptionId": "deny" });
    client.dispatch(&chat, deny).await;
    seen.extend(client.until_ended("t1").await);
    client.say(&chat, "t2", "/fail no").await;
    seen.extend(client.until_ended("t2").await);
    // Nothing happens by itself from here on: the turn waits for an answer, and the message for the turn.
    client.say(&chat, "t3", "/ask-tool rm y").await;
    seen.extend(client.until(|e| e["action"]["type"] == json!("session/inputNeededSet")).await);
    client.queue(&chat, "m", "waits").await;
    client.dispatch(&chat, json!({ "type": "chat/draftChanged", "draft": message("d") })).await;
    seen.extend(client.until(|e| e["action"]["draft"]["text"] == json!("d")).await);
    let later_session = client.subscribe(S).await["state"].clone();
    seen.extend(envelopes(&client.drain().await));
    let later_chat = client.subscribe(&chat).await["state"].clone();
    for envelope in &seen {
        let action: StateAction = serde_json::from_value(envelope["action"].clone()).unwrap();
        if envelope["channel"] == json!(S) {
            apply_action_to_session(&mut session, &action);
        } else {
            apply_action_to_chat(&mut state, &action);
        }
    }
    assert_eq!(serde_json::to_value(&session).unwrap(), later_session);
    let mut folded = serde_json::to_value(&state).unwrap();
    // The protocol has no chat action for a title.
    folded["title"] = later_chat["title"].clone();
    assert_eq!(folded, later_chat);
    for field in ["title", "status", "modifiedAt", "activity"] {
        assert_eq!(later_session["chats"][0].get(field), later_chat.get(field), "{field}");
    }
}

#[tokio::test]
async fn a_session_without_a_name_takes_that_of_its_default_chat_and_of_no_other() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.create_chat(S, "ahp-chat:/p").await;
    for (channel, name, session) in [("ahp-chat:/p", "peer", ""), (&chat, "first", "first"), (&chat, "second", "first")]
    {
        client.subscribe(channel).await;
        client.accepted(channel, json!({ "type": "session/titleChanged", "title": name })).await;
        assert_eq!(client.subscribe(S).await["state"]["title"], json!(session), "{name}");
        assert_eq!(client.listed().await[0]["title"], json!(session), "{name}");
    }
}

#[tokio::test]
async fn a_session_in_the_list_waits_or_fails_as_its_chats_do() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.create_chat(S, "ahp-chat:/p").await;
    client.subscribe(&chat).await;
    client.subscribe("ahp-chat:/p").await;
    client.run("ahp-chat:/p", "t", "/fail no").await;
    assert_eq!(client.listed().await[0]["status"], json!(2));
    client.say("ahp-chat:/p", "t2", "/question sure?").await;
    client.until_type("chat/inputRequested").await;
    assert_eq!(client.listed().await[0]["status"], json!(24));
    client.cancel("ahp-chat:/p", "t2").await;
    client.until_ended("t2").await;
    assert_eq!(client.listed().await[0]["status"], json!(1));
}

async fn mark(client: &mut Client, chat: &str) {
    for (channel, action) in [
        (S, json!({ "type": "session/isReadChanged", "isRead": true })),
        (S, json!({ "type": "session/isArchivedChanged", "isArchived": true })),
        (S, json!({ "type": "session/titleChanged", "title": "session" })),
        (chat, json!({ "type": "chat/isReadChanged", "isRead": true })),
        (chat, json!({ "type": "chat/isArchivedChanged", "isArchived": true })),
        (chat, json!({ "type": "session/titleChanged", "title": "chat" })),
    ] {
        client.accepted(channel, action).await;
    }
}

/// The store is read here, not the actors: what was echoed is on disk.
#[tokio::test]
async fn marks_are_durable_at_once_on_a_session_that_nothing_runs_for_and_wake_no_agent() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    client.run(&chat, "t", "hello").await;
    let before = client.listed().await[0]["modifiedAt"].clone();
    host.stop();

    let (options, started) = counted();
    let host = TestHost::on_disk_with(directory.path(), options);
    assert_eq!(host.host.awake(), 0);
    let mut client = host.client("c").await;
    client.subscribe(S).await;
    client.subscribe(&chat).await;
    mark(&mut client, &chat).await;
    let stored = |uri: &str| -> Value {
        let snapshot = host.host.state_at(&Identity::root("test"), uri, None).unwrap();
        serde_json::from_slice(&snapshot.state).unwrap()
    };
    assert_eq!((&stored(S)["status"], &stored(S)["title"]), (&json!(1 | 32 | 64), &json!("session")));
    assert_eq!((&stored(&chat)["status"], &stored(&chat)["title"]), (&json!(1 | 32 | 64), &json!("chat")));
    let listed = client.listed().await;
    assert_eq!(listed[0]["status"], json!(1 | 32 | 64));
    assert_eq!(listed[0]["modifiedAt"], before);
    assert_eq!(listed[0]["chats"][0]["status"], json!(1 | 32 | 64));
    assert_eq!(started.load(Ordering::Relaxed), 0);
    host.stop();

    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("c").await;
    assert_eq!(client.listed().await, listed);
    let said = client.subscribe(S).await["state"]["title"].clone();
    assert_eq!(said, json!("session"));
}

#[tokio::test]
async fn a_process_starts_at_the_first_message_and_stays_up_between_turns() {
    let (options, started) = counted();
    let host = TestHost::with(options);
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    assert_eq!(started.load(Ordering::Relaxed), 0);
    let seen = client.run(&chat, "t1", "one").await;
    assert!(types(&seen).contains(&"chat/delta"));
    client.run(&chat, "t2", "two").await;
    assert_eq!(started.load(Ordering::Relaxed), 1);
    client.run(&chat, "t3", "/crash").await;
    client.run(&chat, "t4", "up again").await;
    assert_eq!(started.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn the_root_says_of_each_agent_what_ahp_has_no_field_for() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let said = client.subscribe("ahp-root://").await["state"]["_meta"]["scrollback.agents"].clone();
    let agents: Vec<&String> = said.as_object().unwrap().keys().collect();
    assert_eq!(agents, ["demo"]);
    let extras = scrollback::agents::built_in().extras();
    assert_eq!(said["demo"], json!(extras));
    for can in ["steering", "rewind", "compact", "resume", "images"] {
        assert!(said["demo"].get(can).is_some(), "{can} is not said: {said}");
    }
}
