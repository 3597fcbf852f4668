//! Chats made out of others: a fork goes on with its source's turns, a side chat is told of one.

use std::sync::Arc;

use ahp_types::state::{AgentCapabilities, MultipleChatsCapability};
use scrollback::actors::agent::{Agent, AgentEvent, BackTo};
use scrollback::events::Store;
use scrollback::events::memory::MemoryStore;
use serde_json::{Value, json};

use crate::harness::{Client, Mirrored, Options, RecordingAgent, TestHost, eventually, markdown, message};

const S: &str = "ahp-session:/s";
const F: &str = "ahp-chat:/f";

async fn told(host: &TestHost, turns: &[&str]) -> (Client, String) {
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    for turn in turns {
        client.run(&chat, turn, &format!("/say answer {turn}")).await;
    }
    (client, chat)
}

fn fork(of: &str, new: &str, turn: &str) -> Value {
    json!({ "channel": S, "chat": new, "source": { "kind": "fork", "chat": of, "turnId": turn } })
}

fn side(of: &str, new: &str, turn: &str, selection: Option<&str>) -> Value {
    let mut source = json!({ "kind": "sideChat", "chat": of, "turnId": turn });
    if let Some(text) = selection {
        source["selection"] = json!({ "text": text });
    }
    json!({ "channel": S, "chat": new, "source": source })
}

async fn state(client: &mut Client, chat: &str) -> Value {
    client.subscribe(chat).await["state"].clone()
}

fn ids(state: &Value) -> Vec<String> {
    state["turns"].as_array().unwrap().iter().map(|turn| turn["id"].as_str().unwrap().to_owned()).collect()
}

/// What the demo says in its last turn, as JSON.
async fn asked(client: &mut Client, chat: &str, turn: &str, step: &str) -> Value {
    client.subscribe(chat).await;
    client.run(chat, turn, step).await;
    let state = state(client, chat).await;
    serde_json::from_str(&markdown(state["turns"].as_array().unwrap().last().unwrap()).concat()).unwrap()
}

async fn remembered(client: &mut Client, chat: &str, turn: &str) -> Vec<String> {
    let entries = asked(client, chat, turn, "/history").await;
    let users = entries.as_array().unwrap().iter().filter(|entry| entry["role"] == json!("user"));
    users.map(|entry| entry["id"].as_str().unwrap().to_owned()).collect()
}

fn cut(turn: &str) -> Value {
    json!({ "type": "chat/truncated", "turnId": turn })
}

#[tokio::test]
async fn a_fork_goes_on_with_the_turns_up_to_the_named_one_and_leaves_its_source_alone() {
    let host = TestHost::in_memory();
    let (mut client, chat) = told(&host, &["t1", "t2", "t3"]).await;
    let before = client.subscribe(&chat).await;
    client.ask("createChat", fork(&chat, F, "t2")).await.unwrap();
    assert_eq!(client.subscribe(&chat).await, before);
    let made = state(&mut client, F).await;
    assert_eq!(ids(&made), ["t1", "t2"]);
    assert_eq!(made["turns"][1], before["state"]["turns"][1]);
    assert_eq!(made["origin"], json!({ "kind": "fork", "chat": chat, "turnId": "t2" }));
    assert_eq!(remembered(&mut client, F, "f1").await, ["t1", "t2"]);
    assert_eq!(remembered(&mut client, &chat, "t4").await, ["t1", "t2", "t3"]);
    // One chat was made, under the URI that the client chose.
    let session = state(&mut client, S).await;
    assert_eq!(session["chats"].as_array().unwrap().len(), 2);
    // A turn id that came with the fork is taken; one that the source alone has is not.
    let again = json!({ "type": "chat/turnStarted", "turnId": "t1", "startedAt": "2026-11-30T12:00:00Z",
        "message": message("x") });
    assert_eq!(client.rejected(F, again).await, "duplicate-turn");
    client.run(F, "t3", "/say mine").await;
    assert_eq!(ids(&state(&mut client, F).await), ["t1", "t2", "f1", "t3"]);
}

#[tokio::test]
async fn forks_of_forks_and_rewinds_in_them_reach_over_chats_and_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let (mut client, chat) = told(&host, &["t1", "t2", "t3", "t4", "t5"]).await;
    client.ask("createChat", fork(&chat, F, "t4")).await.unwrap();
    client.subscribe(F).await;
    client.run(F, "f1", "/say f1").await;
    client.run(F, "f2", "/say f2").await;
    let g = "ahp-chat:/g";
    client.ask("createChat", fork(F, g, "f1")).await.unwrap();
    assert_eq!(remembered(&mut client, g, "g1").await, ["t1", "t2", "t3", "t4", "f1"]);
    // Back over two borders: to a turn of the first source.
    client.accepted(g, cut("t2")).await;
    assert_eq!(remembered(&mut client, g, "g2").await, ["t1", "t2"]);
    let h = "ahp-chat:/h";
    client.ask("createChat", fork(g, h, "t1")).await.unwrap();
    host.stop();
    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("d").await;
    assert_eq!(ids(&state(&mut client, g).await), ["t1", "t2", "g2"]);
    assert_eq!(remembered(&mut client, h, "h1").await, ["t1"]);
    assert_eq!(ids(&state(&mut client, F).await), ["t1", "t2", "t3", "t4", "f1", "f2"]);
    let mut mirror = Mirrored::connect(host.address, "m", &[S, F, g, h]).await;
    client.run(h, "h2", "/say on").await;
    mirror.sync().await;
    for chat in [F, g, h, S] {
        assert!(mirror.compare(chat).await.is_some());
    }
    let page = json!({ "channel": g, "view": { "turns": 1 } });
    let cursor = client.ask("subscribe", page).await.unwrap()["snapshot"]["state"]["turnsNextCursor"].clone();
    client.ask("fetchTurns", json!({ "channel": g, "cursor": cursor })).await.unwrap();
    let page = client.until_type("chat/turnsLoaded").await;
    assert_eq!(ids(&page["action"]), ["t1", "t2"]);
}

#[tokio::test]
async fn any_turn_that_ever_was_can_be_forked_at() {
    let host = TestHost::in_memory();
    let (mut client, chat) = told(&host, &["t1", "t2", "t3"]).await;
    let then = client.subscribe(&chat).await["fromSeq"].as_u64().unwrap();
    client.accepted(&chat, cut("t1")).await;
    client.run(&chat, "t4", "/say on").await;
    let at = |new: &str, rest: Value| {
        let mut params = json!({ "channel": chat, "chat": new });
        params.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        params
    };
    let (a, b, c) = ("ahp-chat:/a", "ahp-chat:/b", "ahp-chat:/c");
    let answer = client.ask("x-scrollback/forkAt", at(a, json!({ "turnId": "t2" }))).await.unwrap();
    assert_eq!(answer, Value::Null);
    assert_eq!(ids(&state(&mut client, a).await), ["t1", "t2"]);
    client.ask("x-scrollback/forkAt", at(b, json!({ "serverSeq": then }))).await.unwrap();
    assert_eq!(remembered(&mut client, b, "b1").await, ["t1", "t2", "t3"]);
    // A chat that is cleared, and closed.
    client.ask("x-scrollback/clear", json!({ "channel": b })).await.unwrap();
    client.ask("disposeChat", json!({ "channel": b })).await.unwrap();
    let params = json!({ "channel": b, "chat": c, "turnId": "b1" });
    client.ask("x-scrollback/forkAt", params).await.unwrap();
    assert_eq!(remembered(&mut client, c, "c1").await, ["t1", "t2", "t3", "b1"]);
    let new = |rest| at("ahp-chat:/z", rest);
    let before = client.subscribe(S).await;
    for (params, code) in [
        (new(json!({ "turnId": "none" })), (-32008, "unknown-turn")),
        (new(json!({ "serverSeq": 1 })), (-32008, "unknown-turn")),
        (new(json!({ "serverSeq": 1_000_000 })), (-32008, "not-found")),
        (new(json!({})), (-32602, "invalid-params")),
        (new(json!({ "turnId": "t1", "serverSeq": then })), (-32602, "invalid-params")),
        (at(a, json!({ "turnId": "t1" })), (-32010, "already-exists")),
        (json!({ "channel": "ahp-chat:/none", "chat": "ahp-chat:/z", "turnId": "t1" }), (-32008, "not-found")),
    ] {
        let refused = client.refused("x-scrollback/forkAt", params.clone()).await;
        assert_eq!(refused, (code.0, code.1.to_owned()), "{params}");
    }
    assert_eq!(client.subscribe(S).await, before);
}

#[tokio::test]
async fn a_side_chat_is_empty_and_its_agent_is_told_of_the_turn_once() {
    let host = TestHost::in_memory();
    let (mut client, chat) = told(&host, &["t1", "t2"]).await;
    client.ask("createChat", side(&chat, F, "t1", Some(" answer  "))).await.unwrap();
    let made = state(&mut client, F).await;
    assert_eq!(ids(&made).len(), 0);
    let origin = json!({ "kind": "sideChat", "chat": chat, "turnId": "t1", "selection": { "text": " answer  " } });
    assert_eq!(made["origin"], origin);
    let blocks = asked(&mut client, F, "f1", "/context").await;
    let told = blocks[0]["text"].as_str().unwrap();
    assert!(told.contains("/say answer t1") && told.contains("answer t1 ") && !told.contains("t2"), "{told}");
    assert!(told.contains("picked out of it:\n\n answer  \n"), "{told}");
    assert!(told.contains("get_session_context") && told.contains(&chat), "{told}");
    assert_eq!(blocks[1]["text"], json!("/context"));
    assert_eq!(asked(&mut client, F, "f2", "/context").await.as_array().unwrap().len(), 1);
    // The origin is there whole after every change.
    let session = state(&mut client, S).await;
    assert_eq!(session["chats"][1]["origin"], origin);
    let blank = "ahp-chat:/blank";
    client.ask("createChat", side(&chat, blank, "t1", Some("  \n"))).await.unwrap();
    assert_eq!(state(&mut client, blank).await["origin"].get("selection"), None);
}

#[tokio::test]
async fn a_side_chat_of_a_running_turn_is_told_the_answer_as_it_was_then() {
    let host = TestHost::in_memory();
    let (mut client, chat) = told(&host, &["t1"]).await;
    client.say(&chat, "t2", "/say so far\n/question go on?\n/say and further").await;
    let asked_for = client.until_type("chat/inputRequested").await;
    client.ask("createChat", side(&chat, F, "t2", None)).await.unwrap();
    let answer = json!({ "type": "chat/inputCompleted", "requestId": asked_for["action"]["request"]["id"],
        "response": "decline" });
    client.dispatch(&chat, answer).await;
    client.until_ended("t2").await;
    let blocks = asked(&mut client, F, "f1", "/context").await;
    let told = blocks[0]["text"].as_str().unwrap();
    assert!(told.contains("so far ") && !told.contains("and further "), "{told}");
}

#[tokio::test]
async fn sources_that_cannot_be_are_refused_and_leave_nothing_behind() {
    let host = TestHost::in_memory();
    let (mut client, chat) = told(&host, &["t1", "t2"]).await;
    client.accepted(&chat, cut("t1")).await;
    let other = "ahp-session:/other";
    let foreign = client.create_session(other).await;
    client.create_chat(S, "ahp-chat:/taken").await;
    client.say(&chat, "t3", "/question sure?").await;
    client.until_type("chat/inputRequested").await;
    let before = client.subscribe(S).await;
    let unknown_kind = json!({ "channel": S, "chat": F, "source": { "kind": "copy", "chat": chat, "turnId": "t1" } });
    for (params, code) in [
        (unknown_kind, (-32602, "unsupported")),
        (json!({ "channel": S, "chat": F, "source": { "kind": "fork", "chat": chat } }), (-32602, "malformed")),
        (fork("ahp-chat:/none", F, "t1"), (-32008, "not-found")),
        (fork(&foreign, F, "t1"), (-32602, "invalid-params")),
        (fork(F, F, "t1"), (-32602, "invalid-params")),
        (fork(&chat, F, "t2"), (-32008, "unknown-turn")),
        (fork(&chat, F, "never"), (-32008, "unknown-turn")),
        (fork(&chat, F, "t3"), (-32602, "turn-in-progress")),
        (side(&chat, F, "t2", None), (-32008, "unknown-turn")),
        (side("ahp-chat:/none", F, "t1", None), (-32008, "not-found")),
        (fork(&chat, &chat, "t1"), (-32602, "malformed")),
        (fork(&chat, "ahp-chat:/taken", "t1"), (-32010, "already-exists")),
    ] {
        let refused = client.refused("createChat", params.clone()).await;
        assert_eq!(refused, (code.0, code.1.to_owned()), "{params}");
    }
    assert_eq!(client.subscribe(S).await, before);
    assert_eq!(client.refused("subscribe", json!({ "channel": F })).await.0, -32008);
}

#[tokio::test]
async fn an_agent_without_a_point_for_the_turn_is_not_forked() {
    let agent = RecordingAgent::new();
    let host = TestHost::with(Options { agents: vec![Arc::new(agent.clone())], ..Options::default() });
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    client.say(&chat, "t1", "hello").await;
    eventually("the prompt", || agent.prompts().len() == 1).await;
    agent.ends("t1").await;
    client.until_ended("t1").await;
    assert_eq!(client.refused("createChat", fork(&chat, F, "t1")).await, (-32602, "no-rewind-point".to_owned()));
}

/// A turn of an agent that names its conversation and the end of the turn.
async fn turn(client: &mut Client, agent: &RecordingAgent, chat: &str, turn: &str, conversation: &str) {
    client.subscribe(chat).await;
    client.say(chat, turn, "hello").await;
    eventually("the prompt", || agent.prompts().contains(&turn.to_owned())).await;
    agent.emits(AgentEvent::Conversation { id: conversation.into() }).await;
    agent.emits(AgentEvent::RewindPoint { turn_id: turn.into(), point: format!("after {turn}") }).await;
    agent.ends(turn).await;
    client.until_ended(turn).await;
}

#[tokio::test]
async fn the_agent_begins_a_fork_at_the_point_that_it_named_and_goes_on_under_an_id_of_its_own() {
    let agent = RecordingAgent::new();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let options = || Options { agents: vec![Arc::new(agent.clone())], ..Options::default() };
    let host = TestHost::start(Arc::clone(&store), options());
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    turn(&mut client, &agent, &chat, "t1", "the source's").await;
    turn(&mut client, &agent, &chat, "t2", "the source's").await;
    client.ask("createChat", fork(&chat, F, "t1")).await.unwrap();
    turn(&mut client, &agent, F, "f1", "the fork's").await;
    host.stop();
    let host = TestHost::start(store, options());
    let mut client = host.client("d").await;
    turn(&mut client, &agent, F, "f2", "the fork's").await;
    let point = BackTo { turn_id: "t1".into(), point: "after t1".into(), is_fork: true };
    let of = |conversation: &str| Some(conversation.to_owned());
    assert_eq!(agent.begun(), [(None, None), (of("the source's"), Some(point)), (of("the fork's"), None)]);
}

#[tokio::test]
async fn an_agent_that_cannot_is_asked_for_no_fork_and_no_side_chat() {
    let chats = MultipleChatsCapability { fork: None, side_chat: None };
    let capabilities = AgentCapabilities { multiple_chats: Some(chats), multiple_working_directories: None };
    let agent: Arc<dyn Agent> = Arc::new(RecordingAgent::new().with_capabilities(capabilities));
    let host = TestHost::with(Options { agents: vec![agent], ..Options::default() });
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    let before = client.subscribe(S).await;
    let fork_at = json!({ "channel": chat, "chat": F, "turnId": "t1" });
    for (method, params) in [
        ("createChat", fork(&chat, F, "t1")),
        ("createChat", side(&chat, F, "t1", None)),
        ("x-scrollback/forkAt", fork_at),
    ] {
        let refused = client.refused(method, params.clone()).await;
        assert_eq!(refused, (-32602, "unsupported".to_owned()), "{params}");
    }
    assert_eq!(client.subscribe(S).await, before);
    // Beside the first one it holds others.
    client.create_chat(S, F).await;
}

#[tokio::test]
async fn a_fork_with_a_first_message_starts_at_once_and_one_under_way_with_its_source_holds_its_turns() {
    let host = TestHost::in_memory();
    let (mut client, chat) = told(&host, &["t1"]).await;
    let mut params = fork(&chat, F, "t1");
    params["initialMessage"] = message("/history");
    client.ask("createChat", params).await.unwrap();
    client.subscribe(F).await;
    eventually_ended(&mut client, F).await;
    let made = state(&mut client, F).await;
    assert_eq!(made["turns"].as_array().unwrap().len(), 2);
    let said = markdown(&made["turns"][1]).concat();
    assert!(said.contains("answer t1"), "{said}");
}

async fn eventually_ended(client: &mut Client, chat: &str) {
    loop {
        if state(client, chat).await.get("activeTurn").is_none() {
            return;
        }
        client.until_type("chat/turnComplete").await;
    }
}

#[tokio::test]
async fn a_turn_that_its_source_took_up_again_is_in_the_fork_as_it_was() {
    let host = TestHost::in_memory();
    let (mut client, chat) = told(&host, &["t1"]).await;
    client.say(&chat, "t2", "/visual Drawn <p>x\n/fail-resumable no\n/say went on").await;
    client.until_ended("t2").await;
    let failed = client.subscribe(&chat).await;
    client.ask("createChat", fork(&chat, F, "t2")).await.unwrap();
    client.dispatch(&chat, json!({ "type": "chat/turnResume", "turnId": "t2" })).await;
    client.until_ended("t2").await;
    // At the moment before it went on: the turn as it was then, with what it had published.
    let at = "ahp-chat:/at";
    let params = json!({ "channel": chat, "chat": at, "serverSeq": failed["fromSeq"] });
    client.ask("x-scrollback/forkAt", params).await.unwrap();
    let then = state(&mut client, at).await;
    assert_eq!(then["turns"][1], failed["state"]["turns"][1]);
    assert_eq!(then["canvases"].as_array().map_or(0, Vec::len), 1);
    for erased in [false, true] {
        if erased {
            client.create_chat(S, "ahp-chat:/other").await;
            host.host.erase("root:test", &chat).await.unwrap();
        }
        client.subscribe(F).await;
        let again = json!({ "type": "chat/turnStarted", "turnId": "t2", "startedAt": "2026-11-30T12:00:00Z",
            "message": message("x") });
        assert_eq!(client.rejected(F, again).await, "duplicate-turn");
        let of_fork = format!("ahp-chat:/of-{erased}");
        client.ask("createChat", fork(F, &of_fork, "t2")).await.unwrap();
        assert_eq!(ids(&state(&mut client, &of_fork).await), ["t1", "t2"]);
        let more = format!("more-{erased}");
        client.run(F, &more, "/say more").await;
        client.accepted(F, cut("t2")).await;
        assert_eq!(ids(&state(&mut client, F).await), ["t1", "t2"]);
    }
}
