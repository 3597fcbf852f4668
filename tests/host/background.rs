//! Work that goes on past the turn that began it.

use std::sync::Arc;

use scrollback::actors::agent::{AgentEvent, AgentInput, Ending, WorkerStart};
use scrollback::events::Store;
use scrollback::events::memory::MemoryStore;
use serde_json::{Value, json};

use crate::harness::{Client, Mirrored, Options, RecordingAgent, TestHost, message, types};

const S: &str = "ahp-session:/s";
/// Longer than any test.
const LONG: &str = "/background build it 86400000";

/// What the chat lists.
async fn works(client: &mut Client, chat: &str) -> Vec<Value> {
    let state = client.subscribe(chat).await["state"].clone();
    state["backgroundWork"].as_array().cloned().unwrap_or_default()
}

async fn stop(client: &mut Client, chat: &str, id: &Value) -> Result<Value, Value> {
    client.ask("x-scrollback/stopBackgroundWork", json!({ "channel": chat, "id": id })).await
}

#[tokio::test]
async fn work_is_listed_past_its_turn_and_ends_by_itself() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    let seen = client.run(&chat, "t", "/background run tests 20\nnext").await;
    assert!(types(&seen).contains(&"chat/backgroundWorkSet"));
    let set = seen.iter().find(|e| e["action"]["type"] == json!("chat/backgroundWorkSet")).unwrap();
    let work = &set["action"]["work"];
    assert_eq!((&work["kind"], &work["label"]), (&json!("shell"), &json!("run tests")));
    assert!(scrollback::clock::parse_rfc3339(work["startedAt"].as_str().unwrap()).is_some(), "{work}");
    if !types(&seen).contains(&"chat/backgroundWorkRemoved") {
        let gone = client.until_type("chat/backgroundWorkRemoved").await;
        assert_eq!(gone["action"]["id"], work["id"]);
    }
    assert_eq!(works(&mut client, &chat).await, Vec::<Value>::new());
    client.run(&chat, "t2", LONG).await;
    client.run(&chat, "t3", "hello").await;
    assert_eq!(works(&mut client, &chat).await.len(), 1, "it survives other turns");
}

#[tokio::test]
async fn somebody_stops_one_and_the_others_go_on() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    client.run(&chat, "t", &format!("{LONG}\n{LONG}")).await;
    let listed = works(&mut client, &chat).await;
    assert_eq!(listed.len(), 2);
    assert_eq!(stop(&mut client, &chat, &listed[0]["id"]).await.unwrap(), Value::Null);
    let gone = client.until_type("chat/backgroundWorkRemoved").await;
    assert_eq!(gone["action"]["id"], listed[0]["id"]);
    assert_eq!(works(&mut client, &chat).await, listed[1..]);
    // Also while a turn runs.
    client.say(&chat, "t2", "/ask-tool rm x").await;
    client.until_type("session/inputNeededSet").await;
    stop(&mut client, &chat, &listed[1]["id"]).await.unwrap();
    client.until_type("chat/backgroundWorkRemoved").await;
    let mut mirrored = Mirrored::connect(host.address, "m", &["ahp-root://", S, &chat]).await;
    mirrored.compare(&chat).await.unwrap();
}

/// The stop of what is not there, and of what nobody may name so: refused, and the log is as it was.
#[tokio::test]
async fn a_stop_of_what_does_not_run_is_refused() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    client.run(&chat, "t", LONG).await;
    let listed = works(&mut client, &chat).await;
    stop(&mut client, &chat, &listed[0]["id"]).await.unwrap();
    client.until_type("chat/backgroundWorkRemoved").await;
    let before = (host.quiet_tail().await, client.subscribe(&chat).await["state"].clone());
    let method = "x-scrollback/stopBackgroundWork";
    for (params, code, word) in [
        (json!({ "channel": chat, "id": "nobody" }), -32008, "request-not-found"),
        (json!({ "channel": chat, "id": listed[0]["id"] }), -32008, "request-not-found"),
        (json!({ "channel": chat }), -32602, "invalid-params"),
        (json!({ "channel": chat, "id": 7 }), -32602, "invalid-params"),
        (json!({ "channel": "ahp-chat:/none", "id": "x" }), -32008, "not-found"),
        (json!({ "channel": S, "id": "x" }), -32008, "not-found"),
        (json!({ "id": "x" }), -32602, "invalid-params"),
    ] {
        assert_eq!(client.refused(method, params.clone()).await, (code, word.to_owned()), "{params}");
    }
    assert_eq!((host.host.store().tail(), client.subscribe(&chat).await["state"].clone()), before);
}

/// Nobody has to look at the chat for that: a client that only replays is told too.
#[tokio::test]
async fn after_a_restart_nothing_is_listed_that_does_not_run() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let host = TestHost::start(Arc::clone(&store), Options::default());
    let (mut client, chat) = host.open(&[S]).await;
    client.run(&chat, "t", LONG).await;
    client.run(&chat, "t2", "hello").await;
    let seen = host.quiet_tail().await;
    host.stop();
    let host = TestHost::start(store, Options::default());
    let mut client = Client::connect(host.address).await;
    let replay = client.reconnect("c", seen, &[&chat]).await;
    assert_eq!(types(replay["actions"].as_array().unwrap()), ["chat/backgroundWorkRemoved"]);
    assert_eq!(works(&mut client, &chat).await, Vec::<Value>::new());
}

#[tokio::test]
async fn work_ends_with_the_process_that_did_it() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    client.run(&chat, "t", &format!("{LONG}\n/crash")).await;
    assert_eq!(works(&mut client, &chat).await, Vec::<Value>::new());
}

#[tokio::test]
async fn the_work_of_a_worker_is_listed_in_its_own_chat() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    client.run(&chat, "t", "/subagent /background watch 86400000 ;; done").await;
    let state = client.subscribe(S).await["state"].clone();
    let worker = state["chats"][1]["resource"].as_str().unwrap().to_owned();
    assert_eq!(works(&mut client, &chat).await, Vec::<Value>::new());
    let listed = works(&mut client, &worker).await;
    assert_eq!(listed[0]["label"], json!("watch"));
    stop(&mut client, &worker, &listed[0]["id"]).await.unwrap();
    let gone = client.until_type("chat/backgroundWorkRemoved").await;
    assert_eq!((&gone["channel"], &gone["action"]["id"]), (&json!(worker), &listed[0]["id"]));
    assert_eq!(
        client.rejected(&worker, json!({ "type": "chat/draftChanged", "draft": message("x") })).await,
        "read-only"
    );
}

#[tokio::test]
async fn a_worker_in_the_background_is_stopped_as_background_work() {
    let agent = RecordingAgent::new();
    let host = TestHost::with(Options::of(&agent));
    let (mut client, chat) = host.open(&[S]).await;
    client.say(&chat, "t", "go").await;
    agent.until(|inputs| inputs.iter().any(|input| matches!(input, AgentInput::Prompt(_)))).await;
    let worker = WorkerStart {
        id: "w".into(),
        title: "Look around".into(),
        agent_name: None,
        description: None,
        prompt: "look".into(),
        background: true,
        hidden: false,
    };
    agent.emits(AgentEvent::WorkerStarted { turn_id: "t".into(), tool_call_id: "call".into(), worker }).await;
    agent.emits(AgentEvent::Ended { turn_id: "t".into(), ending: Ending::Complete }).await;
    client.until_ended("t").await;
    let listed = works(&mut client, &chat).await;
    assert_eq!((&listed[0]["kind"], &listed[0]["label"]), (&json!("subagent"), &json!("Look around")));
    let worker = listed[0]["chat"].as_str().unwrap().to_owned();
    stop(&mut client, &chat, &listed[0]["id"]).await.unwrap();
    let own = client.subscribe(&worker).await["state"].clone();
    assert_eq!((own.get("activeTurn"), &own["turns"][0]["state"]), (None, &json!("cancelled")));
    assert_eq!(works(&mut client, &chat).await, Vec::<Value>::new());
}
