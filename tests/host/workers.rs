//! Workers: the chats that agents spawn with a tool call.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use scrollback::actors::agent::{AgentEvent, AgentExtras, AgentInput, Ending, LimitKind, ToolDecision, WorkerStart};
use scrollback::actors::host::HostSettings;
use scrollback::events::Store;
use scrollback::events::memory::MemoryStore;
use serde_json::{Value, json};

use crate::harness::{
    Client, Mirrored, Options, RecordingAgent, TestHost, eventually, is_ending, markdown, message, on, types,
};

const S: &str = "ahp-session:/s";

/// The URI of a worker's chat, as clients compute it.
fn worker_of(call: &str) -> String {
    format!("ahp-chat://subagent/{}/{call}", URL_SAFE_NO_PAD.encode(S))
}

/// A client that hears the session and its first chat.
async fn state(client: &mut Client, channel: &str) -> Value {
    client.subscribe(channel).await["state"].clone()
}

/// The entry of a chat in the session's catalogue.
async fn listed(client: &mut Client, chat: &str) -> Option<Value> {
    let state = state(client, S).await;
    state["chats"].as_array().unwrap().iter().find(|entry| entry["resource"] == json!(chat)).cloned()
}

/// The links to workers in the calls of a turn: the call's id and the chat.
fn links(turn: &Value) -> Vec<(String, String)> {
    let mut links = Vec::new();
    for part in turn["responseParts"].as_array().into_iter().flatten() {
        let call = &part["toolCall"];
        let content = call["content"].as_array().into_iter().flatten();
        for item in content.filter(|item| item["type"] == json!("subagent")) {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            links.push((text(&call["toolCallId"]), text(&item["resource"])));
        }
    }
    links
}

/// The texts of the results of a turn's calls.
fn results(turn: &Value) -> Vec<String> {
    let mut texts = Vec::new();
    for part in turn["responseParts"].as_array().into_iter().flatten() {
        let content = part["toolCall"]["content"].as_array().into_iter().flatten();
        texts.extend(content.filter_map(|item| Some(item["text"].as_str()?.to_owned())));
    }
    texts
}

/// The worker of the newest turn, when that turn has one.
async fn newest_worker(client: &mut Client, chat: &str) -> (Value, String) {
    let state = state(client, chat).await;
    let turn = match state.get("activeTurn") {
        Some(turn) => turn.clone(),
        None => state["turns"].as_array().unwrap().last().unwrap().clone(),
    };
    let link = links(&turn).pop().unwrap_or_else(|| panic!("no worker in {turn}"));
    (turn, link.1)
}

#[tokio::test]
async fn a_worker_has_a_chat_of_its_own_and_both_name_each_other() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    let seen = client.run(&chat, "t", "/subagent /think hard ;; hello ;; /tool ls -l\nback").await;
    let (turn, worker) = newest_worker(&mut client, &chat).await;
    let (call, _) = links(&turn).remove(0);
    assert_eq!(worker, worker_of(&call));
    assert_eq!(results(&turn), ["You said: hello "]);
    assert_eq!(markdown(&turn), ["You said: back "]);
    assert_eq!(turn["responseParts"][0]["toolCall"]["status"], json!("completed"));

    let own = state(&mut client, &worker).await;
    assert_eq!(own["origin"], json!({ "kind": "tool", "chat": chat, "toolCallId": call }));
    assert_eq!(own["interactivity"], json!("read-only"));
    let prompt = &own["turns"][0]["message"];
    assert_eq!(prompt["text"], json!("/think hard ;; hello ;; /tool ls -l"));
    assert_eq!((&prompt["origin"]["kind"], prompt.get("_meta")), (&json!("tool"), None));
    assert_eq!(own["turns"][0]["state"], json!("complete"));
    let kinds: Vec<&Value> = own["turns"][0]["responseParts"].as_array().unwrap().iter().map(|p| &p["kind"]).collect();
    assert_eq!(kinds, [&json!("reasoning"), &json!("markdown"), &json!("toolCall")]);

    // One batch: the link, the chat and its turn are there at once.
    let at = |kind: &str| seen.iter().position(|e| e["action"]["type"] == json!(kind)).unwrap();
    let (content, added) = (at("chat/toolCallContentChanged"), at("session/chatAdded"));
    let seqs = [&seen[content]["serverSeq"], &seen[added]["serverSeq"]].map(|seq| seq.as_u64().unwrap());
    assert!(seqs[0] < seqs[1] && seqs[1] - seqs[0] < 4, "{seen:?}");
    assert_eq!(seen[added]["action"]["summary"]["interactivity"], json!("read-only"));
    // Nobody takes it for a session or for the default chat.
    assert_eq!(client.listed().await.len(), 1);
    assert_eq!(state(&mut client, S).await["defaultChat"], json!(chat));
    let default = json!({ "type": "session/defaultChatChanged", "defaultChat": worker });
    assert_eq!(client.rejected(S, default).await, "malformed");
}

#[tokio::test]
async fn a_worker_of_a_worker_names_the_chat_that_spawned_it() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    client.run(&chat, "t", "/subagent one ;; /subagent two ;; /subagent three ;; four").await;
    let mut above = chat;
    for (said, result) in
        [("You said: one ", true), ("You said: two ", true), ("You said: three \nYou said: four ", false)]
    {
        let (turn, worker) = newest_worker(&mut client, &above).await;
        let own = state(&mut client, &worker).await;
        assert_eq!(own["origin"]["chat"], json!(above));
        assert_eq!(markdown(&own["turns"][0])[0], said);
        assert_eq!(results(&turn)[0], if result { said } else { "You said: three \nYou said: four " });
        above = worker;
    }
}

#[tokio::test]
async fn a_worker_asks_and_is_answered_in_its_own_chat() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    client.say(&chat, "t", "/subagent /ask-tool rm x ;; /question Which? | a | b").await;
    let asked = client.until_type("session/inputNeededSet").await["action"]["request"].clone();
    let worker = asked["chat"].as_str().unwrap().to_owned();
    assert_ne!(worker, chat);
    let own = state(&mut client, &worker).await;
    let turn = own["activeTurn"]["id"].clone();
    let allow = json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": asked["toolCall"]["toolCallId"],
        "approved": true, "confirmed": "user-action", "selectedOptionId": "allow" });
    client.accepted(&worker, allow).await;
    let asked = client.until_type("chat/inputRequested").await["action"]["request"].clone();
    let answers = json!({ "answer": { "state": "submitted", "value": { "kind": "selected", "value": "b" } } });
    let done =
        json!({ "type": "chat/inputCompleted", "requestId": asked["id"], "response": "accept", "answers": answers });
    client.accepted(&worker, done).await;
    client.until_ended("t").await;
    let own = state(&mut client, &worker).await;
    assert_eq!(markdown(&own["turns"][0]), ["answered: b "]);
    let (turn, _) = newest_worker(&mut client, &chat).await;
    assert_eq!(results(&turn), ["answered: b "]);
    assert_eq!(state(&mut client, S).await.get("inputNeeded"), None);
}

#[tokio::test]
async fn the_stop_of_a_turn_ends_its_workers_at_every_depth_in_the_same_batch() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    client.say(&chat, "t", "/subagent /say outer ;; /subagent /say inner ;; /ask-tool rm x").await;
    client.until_type("session/inputNeededSet").await;
    let (_, outer) = newest_worker(&mut client, &chat).await;
    let (_, inner) = newest_worker(&mut client, &outer).await;
    client.subscribe(&inner).await;
    let seq = client.cancel(&chat, "t").await;
    let seen = client.until(|e| e["origin"]["clientSeq"] == json!(seq)).await;
    let ends = seen.iter().filter(|e| is_ending(&e["action"]));
    let ends: Vec<&str> = ends.map(|e| e["channel"].as_str().unwrap()).collect();
    assert_eq!(ends, [inner.as_str(), outer.as_str(), chat.as_str()]);
    for (chat, said) in [(&outer, "outer "), (&inner, "inner ")] {
        let own = state(&mut client, chat).await;
        assert_eq!((own.get("activeTurn"), &own["turns"][0]["state"]), (None, &json!("cancelled")));
        assert_eq!(markdown(&own["turns"][0]), [said], "what was said until then is kept");
        assert!(listed(&mut client, chat).await.is_some());
    }
    // The calls keep their links, and nothing waits for anybody.
    let (turn, still) = newest_worker(&mut client, &chat).await;
    assert_eq!((still, &turn["responseParts"][0]["toolCall"]["success"]), (outer, &json!(false)));
    assert_eq!(state(&mut client, S).await.get("inputNeeded"), None);
    // The agent is free for the next turn.
    let next = client.run(&chat, "t2", "hello").await;
    assert_eq!(types(&next).last(), Some(&"chat/turnComplete"));
}

#[tokio::test]
async fn a_worker_that_is_stopped_alone_lets_its_turn_go_on_with_a_failed_call() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    client.say(&chat, "t", "/subagent /say first ;; /ask-tool rm x\nafterwards").await;
    client.until_type("session/inputNeededSet").await;
    let (_, worker) = newest_worker(&mut client, &chat).await;
    let own = state(&mut client, &worker).await;
    client.cancel(&worker, own["activeTurn"]["id"].as_str().unwrap()).await;
    let seen = client.until_ended("t").await;
    assert_eq!(seen.last().unwrap()["action"]["type"], json!("chat/turnComplete"));
    let own = state(&mut client, &worker).await;
    assert_eq!(own["turns"][0]["state"], json!("cancelled"));
    let (turn, _) = newest_worker(&mut client, &chat).await;
    assert_eq!(results(&turn), ["the subagent was stopped"]);
    assert_eq!((&turn["responseParts"][0]["toolCall"]["success"]), &json!(false));
    assert_eq!(markdown(&turn), ["You said: afterwards "]);
}

#[tokio::test]
async fn a_worker_that_fails_does_not_block_the_turn_that_spawned_it() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    client.run(&chat, "t", "/subagent /say half ;; /fail it broke\ngoes on").await;
    let (turn, worker) = newest_worker(&mut client, &chat).await;
    assert_eq!((turn["state"].clone(), markdown(&turn)), (json!("complete"), vec!["You said: goes on ".to_owned()]));
    assert_eq!(results(&turn), ["it broke"]);
    let own = state(&mut client, &worker).await;
    assert_eq!(own["turns"][0]["state"], json!("error"));
    // When the whole agent goes away, both have their endings.
    client.run(&chat, "t2", "/subagent /say half ;; /crash\nnever").await;
    let (turn, worker) = newest_worker(&mut client, &chat).await;
    assert_eq!(turn["state"], json!("error"));
    let own = state(&mut client, &worker).await;
    assert_eq!((own.get("activeTurn"), &own["turns"][0]["state"]), (None, &json!("cancelled")));
}

#[tokio::test]
async fn a_worker_publishes_in_its_own_chat() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    client.run(&chat, "t", "/subagent /visual Page <p>hello</p>").await;
    let (turn, worker) = newest_worker(&mut client, &chat).await;
    let own = state(&mut client, &worker).await;
    assert_eq!(own["canvases"].as_array().map(Vec::len), Some(1), "{own}");
    assert_eq!(state(&mut client, &chat).await.get("canvases"), None);
    assert_eq!(results(&turn)[0], markdown(&own["turns"][0])[0]);
}

/// What a person may do in a worker's chat, and what not. Each is refused before anything else is looked at.
#[tokio::test]
async fn a_worker_is_read_only_for_people() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    client.say(&chat, "t", "/subagent /ask-tool rm x").await;
    let asked = client.until_type("session/inputNeededSet").await["action"]["request"].clone();
    let worker = asked["chat"].as_str().unwrap().to_owned();
    client.subscribe(&worker).await;
    let before = (host.host.store().tail(), state(&mut client, &worker).await);
    for action in [
        json!({ "type": "chat/turnStarted", "turnId": "x", "startedAt": "2026-11-30T12:00:00.000Z", "message": message("x") }),
        json!({ "type": "chat/turnResume", "turnId": "x" }),
        json!({ "type": "chat/truncated", "turnId": "x" }),
        json!({ "type": "chat/truncated" }),
        json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": "m", "message": message("x") }),
        json!({ "type": "chat/pendingMessageSet", "kind": "steering", "id": "m", "message": message("x") }),
        json!({ "type": "chat/pendingMessageRemoved", "kind": "queued", "id": "m" }),
        json!({ "type": "chat/queuedMessagesReordered", "order": [] }),
        json!({ "type": "chat/draftChanged", "draft": message("x") }),
        json!({ "type": "chat/draftChanged" }),
        json!({ "type": "chat/workingDirectorySet", "directory": "file:///" }),
        json!({ "type": "chat/workingDirectoryRemoved", "directory": "file:///" }),
        json!({ "type": "session/titleChanged", "title": "mine" }),
    ] {
        assert_eq!(client.rejected(&worker, action.clone()).await, "read-only", "{action}");
    }
    assert_eq!((host.host.store().tail(), state(&mut client, &worker).await), before);
    for mark in ["chat/isReadChanged", "chat/isArchivedChanged"] {
        let field = if mark == "chat/isReadChanged" { "isRead" } else { "isArchived" };
        client.accepted(&worker, json!({ "type": mark, field: true })).await;
    }
    let deny = json!({ "type": "chat/toolCallConfirmed", "turnId": before.1["activeTurn"]["id"],
        "toolCallId": asked["toolCall"]["toolCallId"], "approved": false, "reason": "denied" });
    client.accepted(&worker, deny.clone()).await;
    assert_eq!(client.rejected(&worker, deny).await, "request-not-found");
}

#[tokio::test]
async fn workers_and_their_links_are_there_after_a_restart_and_running_ones_have_endings() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let host = TestHost::start(Arc::clone(&store), Options::default());
    let (mut client, chat) = host.open(&[S]).await;
    client.run(&chat, "t", "/subagent done").await;
    let (_, done) = newest_worker(&mut client, &chat).await;
    client.say(&chat, "t2", "/subagent /say so far ;; /subagent /ask-tool rm x").await;
    client.until_type("session/inputNeededSet").await;
    let (_, outer) = newest_worker(&mut client, &chat).await;
    let (_, inner) = newest_worker(&mut client, &outer).await;
    host.stop();

    let host = TestHost::start(store, Options::default());
    let mut client = host.client("c").await;
    for worker in [&done, &outer, &inner] {
        let own = state(&mut client, worker).await;
        assert_eq!((own.get("activeTurn"), &own["interactivity"]), (None, &json!("read-only")), "{own}");
        assert_eq!(listed(&mut client, worker).await.unwrap()["status"].as_u64().unwrap() & 8, 0);
    }
    assert_eq!(markdown(&state(&mut client, &done).await["turns"][0]), ["You said: done "]);
    assert_eq!(markdown(&state(&mut client, &outer).await["turns"][0]), ["so far "]);
    let (_, link) = newest_worker(&mut client, &outer).await;
    assert_eq!(link, inner);
    assert_eq!(client.listed().await.len(), 1);
    // The turn that they worked for is taken up, and spawns others; its first call has failed and keeps its link.
    let state = state(&mut client, S).await;
    let open: Vec<&Value> = state["inputNeeded"].as_array().into_iter().flatten().map(|entry| &entry["chat"]).collect();
    assert!(!open.contains(&&json!(inner)), "{open:?}");
    let parent = client.subscribe(&chat).await["state"].clone();
    assert_eq!(links(&parent["activeTurn"])[0].1, outer);
    assert_eq!(parent["activeTurn"]["responseParts"][0]["toolCall"]["success"], json!(false));
}

#[tokio::test]
async fn the_official_mirror_follows_a_session_with_workers() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    let mut mirrored = Mirrored::connect(host.address, "m", &["ahp-root://", S, &chat]).await;
    client.run(&chat, "t", "/subagent one ;; /subagent two").await;
    let (_, worker) = newest_worker(&mut client, &chat).await;
    assert!(mirrored.follow(&worker).await);
    client.say(&chat, "t2", "/subagent /ask-tool rm x").await;
    client.until_type("session/inputNeededSet").await;
    let (_, running) = newest_worker(&mut client, &chat).await;
    assert!(mirrored.follow(&running).await);
    client.cancel(&chat, "t2").await;
    client.until_ended("t2").await;
    client.run(&chat, "t3", "hello").await;
    for channel in [S, &chat, &worker, &running] {
        mirrored.compare(channel).await.unwrap();
    }
    mirrored.reconnect(host.address).await;
    for channel in [S, &chat, &worker, &running] {
        mirrored.compare(channel).await.unwrap();
    }
}

#[tokio::test]
async fn a_disposed_chat_ends_its_workers_which_stay_listed() {
    let host = TestHost::in_memory();
    let (mut client, first) = host.open(&[S]).await;
    let peer = "ahp-chat:/p";
    client.create_chat(S, peer).await;
    client.subscribe(peer).await;
    client.say(peer, "t", "/subagent /ask-tool rm x").await;
    client.until_type("session/inputNeededSet").await;
    let (_, worker) = newest_worker(&mut client, peer).await;
    client.ask("disposeChat", json!({ "channel": peer })).await.unwrap();
    let own = state(&mut client, &worker).await;
    assert_eq!((own.get("activeTurn"), &own["turns"][0]["state"]), (None, &json!("cancelled")));
    assert!(listed(&mut client, &worker).await.is_some());
    // A worker is nobody's successor.
    let last = client.refused("disposeChat", json!({ "channel": first })).await;
    assert_eq!(last, (-32602, "last-chat".to_owned()));
    client.ask("disposeChat", json!({ "channel": worker })).await.unwrap();
    assert!(listed(&mut client, &worker).await.is_none());
}

#[tokio::test]
async fn the_depth_and_the_number_of_workers_are_bounded() {
    let settings = HostSettings { max_worker_depth: 2, max_workers_in_turn: 2, ..HostSettings::default() };
    let host = TestHost::with(Options { settings, ..Options::default() });
    let (mut client, chat) = host.open(&[S]).await;
    client.run(&chat, "t", "/subagent /subagent /subagent too deep").await;
    let (_, one) = newest_worker(&mut client, &chat).await;
    let (_, two) = newest_worker(&mut client, &one).await;
    let own = state(&mut client, &two).await;
    assert_eq!(links(&own["turns"][0]), []);
    assert_eq!(results(&own["turns"][0]), ["workers are nested at most 2 deep here"]);
    let seen = client.run(&chat, "t2", "/subagent a\n/subagent b\n/subagent c\ngoes on").await;
    let (turn, _) = newest_worker(&mut client, &chat).await;
    assert_eq!(links(&turn).len(), 2);
    assert_eq!(results(&turn), ["You said: a ", "You said: b ", "a turn has at most 2 workers here"]);
    assert!(crate::harness::met("worker_depth") > 0);
    assert!(crate::harness::met("workers") > 0);
    assert_eq!(on(&seen, &chat).last().unwrap()["action"]["type"], json!("chat/turnComplete"));
}

// What the demo does not do: workers in the background, agents that cannot stop one alone, ids that come again.

/// A worker that an agent announces.
fn start(turn: &str, call: &str, id: &str, background: bool) -> AgentEvent {
    AgentEvent::WorkerStarted {
        turn_id: turn.into(),
        tool_call_id: call.into(),
        worker: WorkerStart {
            id: id.into(),
            title: format!("Worker {id}"),
            agent_name: Some("Explore".into()),
            description: None,
            prompt: "look around".into(),
            background,
            hidden: false,
        },
    }
}

fn of(worker: &str, event: AgentEvent) -> AgentEvent {
    AgentEvent::OfWorker { worker: worker.into(), event: Box::new(event) }
}

fn text(text: &str) -> AgentEvent {
    AgentEvent::Text { turn_id: "whatever".into(), text: text.into() }
}

fn ended(turn: &str) -> AgentEvent {
    AgentEvent::Ended { turn_id: turn.into(), ending: Ending::Complete }
}

/// A host whose agent says what the test makes it say, with a turn `t` running.
async fn scripted(agent: &RecordingAgent) -> (TestHost, Client, String) {
    let host = TestHost::with(Options::of(agent));
    let (mut client, chat) = host.open(&[S]).await;
    prompt(&mut client, agent, &chat, "t").await;
    (host, client, chat)
}

async fn prompt(client: &mut Client, agent: &RecordingAgent, chat: &str, turn: &str) {
    client.say(chat, turn, "go").await;
    client.until(|e| e["action"]["type"] == json!("chat/turnStarted") && e["action"]["turnId"] == json!(turn)).await;
    agent.until(|inputs| inputs.iter().any(|input| matches!(input, AgentInput::Prompt(p) if p.turn_id == turn))).await;
}

#[tokio::test]
async fn a_call_that_nothing_announced_is_begun_and_an_id_that_comes_again_gets_a_chat_of_its_own() {
    let agent = RecordingAgent::new();
    let (_host, mut client, chat) = scripted(&agent).await;
    agent.emits(start("t", "toolu 1/ä", "w1", false)).await;
    agent.emits(of("w1", text("first "))).await;
    agent.emits(start("t", "toolu 1/ä", "w2", false)).await;
    agent.emits(of("w1", of("w2", text("second ")))).await;
    agent.emits(of("w1", ended("x"))).await;
    agent.emits(of("w2", ended("x"))).await;
    agent.emits(ended("t")).await;
    client.until_ended("t").await;
    let (turn, _) = newest_worker(&mut client, &chat).await;
    let names = [worker_of("toolu%201%2F%C3%A4"), format!("{};2", worker_of("toolu%201%2F%C3%A4"))];
    let linked: Vec<String> = links(&turn).into_iter().map(|(_, chat)| chat).collect();
    assert_eq!(linked, names);
    for (name, said) in names.iter().zip(["first ", "second "]) {
        let own = state(&mut client, name).await;
        assert_eq!(markdown(&own["turns"][0]), [said]);
        assert_eq!(own["origin"]["toolCallId"], json!("toolu 1/ä"));
    }
    let opened = agent.inputs(|input| match input {
        AgentInput::WorkerOpened { worker, chat } => Some((worker.clone(), chat.to_string())),
        _ => None,
    });
    assert_eq!(opened, [("w1".to_owned(), names[0].clone()), ("w2".to_owned(), names[1].clone())]);
}

#[tokio::test]
async fn what_a_worker_says_after_its_spawner_has_gone_on_is_kept_where_it_belongs() {
    let agent = RecordingAgent::new();
    let (_host, mut client, chat) = scripted(&agent).await;
    agent.emits(start("t", "call", "w", false)).await;
    agent.emits(of("w", text("early "))).await;
    // The turn is over, and its worker is not: it goes on in the background.
    agent.emits(ended("t")).await;
    client.until_ended("t").await;
    let worker = worker_of("call");
    let work = state(&mut client, &chat).await["backgroundWork"][0].clone();
    assert_eq!(
        (&work["kind"], &work["chat"], &work["label"]),
        (&json!("subagent"), &json!(worker), &json!("Worker w"))
    );
    prompt(&mut client, &agent, &chat, "t2").await;
    agent.says("t2", "next").await;
    agent.emits(of("w", text("late "))).await;
    agent.emits(of("w", AgentEvent::Usage { turn_id: "t".into(), usage: Default::default() })).await;
    agent.emits(of("w", ended("t"))).await;
    agent.emits(ended("t2")).await;
    client.until_ended("t2").await;
    let own = state(&mut client, &worker).await;
    assert_eq!(markdown(&own["turns"][0]), ["early late "]);
    assert_eq!(own["turns"][0]["state"], json!("complete"));
    let parent = state(&mut client, &chat).await;
    assert_eq!(markdown(&parent["turns"][1]), ["next"]);
    assert_eq!(parent.get("backgroundWork").and_then(|list| list.get(0)), None);
    assert_eq!(links(&parent["turns"][0]), [("call".to_owned(), worker)]);
}

#[tokio::test]
async fn a_worker_that_fails_or_meets_a_limit_is_over_for_good() {
    let agent = RecordingAgent::new();
    let (_host, mut client, chat) = scripted(&agent).await;
    let message = || "it broke".to_owned();
    let failed = Ending::Failed { error_type: "odd".into(), message: message(), resumable: true };
    let limited = Ending::Limited { kind: LimitKind::Overload, message: message(), resets_at: None };
    let ends = [("one", "odd", failed), ("two", "overloaded", limited)];
    for (call, _, ending) in &ends {
        agent.emits(start("t", call, call, false)).await;
        agent.emits(of(call, AgentEvent::Ended { turn_id: "x".into(), ending: ending.clone() })).await;
    }
    // The turn that they worked for goes on.
    agent.says("t", "on").await;
    agent.emits(ended("t")).await;
    client.until_ended("t").await;
    assert_eq!(state(&mut client, &chat).await["turns"][0]["state"], json!("complete"));
    for (call, kind, _) in ends {
        let own = state(&mut client, &worker_of(call)).await;
        let error = json!({ "kind": "error", "error": { "errorType": kind, "message": "it broke" } });
        assert_eq!(own["turns"][0]["responseParts"], json!([error]), "nobody is to take it up");
    }
}

#[tokio::test]
async fn a_worker_whose_process_went_away_has_an_ending_and_is_no_longer_listed_as_work() {
    let agent = RecordingAgent::new();
    let (_host, mut client, chat) = scripted(&agent).await;
    agent.emits(start("t", "call", "w", true)).await;
    agent.emits(of("w", text("half "))).await;
    agent.emits(ended("t")).await;
    client.until_ended("t").await;
    let worker = worker_of("call");
    assert_eq!(state(&mut client, &chat).await["backgroundWork"][0]["chat"], json!(worker));
    client.subscribe(&worker).await;
    agent.dies("t", "it went").await;
    client.envelope(|e| e["channel"] == json!(worker) && is_ending(&e["action"])).await;
    let own = state(&mut client, &worker).await;
    assert_eq!((own.get("activeTurn"), &own["turns"][0]["state"]), (None, &json!("error")));
    assert_eq!(markdown(&own["turns"][0]), ["half "]);
    let parent = state(&mut client, &chat).await;
    assert_eq!(parent.get("backgroundWork").and_then(|list| list.get(0)), None);
    prompt(&mut client, &agent, &chat, "t2").await;
    assert_eq!(agent.starts(), 2);
}

#[tokio::test]
async fn a_stop_spares_the_workers_in_the_background_unless_it_asks_for_them_too() {
    let agent = RecordingAgent::new();
    let (_host, mut client, chat) = scripted(&agent).await;
    for (turn, both) in [("t", false), ("t2", true)] {
        if both {
            prompt(&mut client, &agent, &chat, turn).await;
        }
        let (back, front) = (format!("{turn}-back"), format!("{turn}-front"));
        agent.emits(start(turn, &back, &back, true)).await;
        agent.emits(start(turn, &front, &front, false)).await;
        agent.emits(of(&back, text("b "))).await;
        agent.emits(of(&front, text("f "))).await;
        client.until(|e| e["action"]["type"] == json!("session/chatAdded")).await;
        client.until(|e| e["action"]["type"] == json!("session/chatAdded")).await;
        let mut cancel = json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 });
        if both {
            cancel["_meta"] = json!({ "scrollback.subagents": true });
        }
        client.accepted(&chat, cancel).await;
        agent.emits(of(&front, text("too late "))).await;
        agent.emits(of(&back, text("more "))).await;
        let back = state(&mut client, &worker_of(&back)).await;
        let front = state(&mut client, &worker_of(&front)).await;
        assert_eq!(front["turns"][0]["state"], json!("cancelled"));
        assert_eq!(back.get("activeTurn").is_none(), both, "{back}");
    }
    let listed = state(&mut client, &chat).await["backgroundWork"].clone();
    assert_eq!(listed, json!([]), "{listed}");
    // The one that was spared in the first stop was ended by the second.
    let first = state(&mut client, &worker_of("t-back")).await;
    assert_eq!(
        (&first["turns"][0]["state"], markdown(&first["turns"][0])),
        (&json!("cancelled"), vec!["b more ".to_owned()])
    );
    let front = state(&mut client, &worker_of("t-front")).await;
    assert_eq!(markdown(&front["turns"][0]), ["f "], "what came after the stop went nowhere");
    let told = agent.inputs(|input| match input {
        AgentInput::OfWorker { worker, input } if matches!(**input, AgentInput::Cancel { .. }) => Some(worker.clone()),
        _ => None,
    });
    for worker in ["t-front", "t-back", "t2-front", "t2-back"] {
        assert!(told.iter().any(|told| told == worker), "{told:?}");
    }
}

#[tokio::test]
async fn where_the_agent_cannot_stop_one_alone_the_worker_ends_here_and_the_call_with_it() {
    let agent = RecordingAgent::new().with_extras(AgentExtras { stops_workers: false, ..AgentExtras::default() });
    let (host, mut client, chat) = scripted(&agent).await;
    agent.emits(start("t", "call", "w", false)).await;
    agent.emits(of("w", text("so far "))).await;
    client.until(|e| e["action"]["type"] == json!("session/chatAdded")).await;
    let worker = worker_of("call");
    let own = state(&mut client, &worker).await;
    client.cancel(&worker, own["activeTurn"]["id"].as_str().unwrap()).await;
    client.until_type("chat/toolCallComplete").await;
    let tail = host.host.store().tail();
    agent.emits(of("w", text("late "))).await;
    agent.emits(of("w", ended("x"))).await;
    agent
        .emits(AgentEvent::ToolDone {
            turn_id: "t".into(),
            tool_call_id: "call".into(),
            result: serde_json::from_value(json!({ "success": true, "pastTenseMessage": "Ran" })).unwrap(),
        })
        .await;
    agent.says("t", "goes on").await;
    agent.emits(ended("t")).await;
    let seen = client.until_ended("t").await;
    assert!(!types(&on(&seen, &chat)).contains(&"chat/toolCallComplete"), "{seen:?}");
    assert!(tail < host.host.store().tail());
    let own = state(&mut client, &worker).await;
    assert_eq!(
        (&own["turns"][0]["state"], markdown(&own["turns"][0])),
        (&json!("cancelled"), vec!["so far ".to_owned()])
    );
    let (turn, _) = newest_worker(&mut client, &chat).await;
    assert_eq!((&turn["responseParts"][0]["toolCall"]["success"], &turn["state"]), (&json!(false), &json!("complete")));
    let told = agent.inputs(|input| matches!(input, AgentInput::OfWorker { .. }).then_some(()));
    assert_eq!(told.len(), 0);
}

#[tokio::test]
async fn the_answer_to_a_worker_reaches_the_process_that_speaks_for_it() {
    let agent = RecordingAgent::new();
    let (_host, mut client, _) = scripted(&agent).await;
    agent.emits(start("t", "call", "w", false)).await;
    let ask = serde_json::from_value::<ahp_types::state::ConfirmationOption>(
        json!({ "id": "yes", "label": "Yes", "kind": "approve" }),
    );
    agent
        .emits(of(
            "w",
            AgentEvent::ToolAsked {
                turn_id: "x".into(),
                tool_call_id: "inner".into(),
                ask: scrollback::actors::agent::ToolAsk {
                    tool_name: "rm".into(),
                    display_name: "rm".into(),
                    invocation: "Run rm".into(),
                    input: None,
                    title: None,
                    options: vec![ask.unwrap()],
                    editable: false,
                },
            },
        ))
        .await;
    let asked = client.until_type("session/inputNeededSet").await["action"]["request"].clone();
    assert_eq!(asked["chat"], json!(worker_of("call")));
    let allow = json!({ "type": "chat/toolCallConfirmed", "turnId": asked["turnId"], "toolCallId": "inner",
        "approved": true, "confirmed": "user-action", "selectedOptionId": "yes" });
    client.subscribe(&worker_of("call")).await;
    client.accepted(&worker_of("call"), allow).await;
    agent.until(|inputs| inputs.iter().any(|input| matches!(input, AgentInput::OfWorker { .. }))).await;
    let decided = agent.inputs(|input| match input {
        AgentInput::OfWorker { worker, input } => match &**input {
            AgentInput::Decide { tool_call_id, decision } => {
                Some((worker.clone(), tool_call_id.clone(), decision.clone()))
            }
            _ => None,
        },
        _ => None,
    });
    let decision = ToolDecision::Approve { option: Some("yes".into()), edited_input: None };
    assert_eq!(decided, [("w".to_owned(), "inner".to_owned(), decision)]);
}

#[tokio::test]
async fn a_chat_whose_workers_run_does_not_fall_asleep() {
    let agent = RecordingAgent::new();
    let settings = HostSettings { idle_timeout: std::time::Duration::from_millis(40), ..HostSettings::default() };
    let host = TestHost::with(Options { agents: vec![Arc::new(agent.clone())], settings, ..Options::default() });
    let (mut client, chat) = host.open(&[S]).await;
    client.create_chat(S, "ahp-chat:/other").await;
    prompt(&mut client, &agent, &chat, "t").await;
    agent.emits(start("t", "outer", "o", false)).await;
    agent.emits(of("o", start("t", "inner", "i", true))).await;
    agent.emits(of("o", ended("x"))).await;
    agent.emits(ended("t")).await;
    client.until_ended("t").await;
    // The other chat has fallen asleep, and so has whoever may.
    eventually("the other chat sleeps", || host.host.actors() <= 4).await;
    client.subscribe(&worker_of("inner")).await;
    agent.emits(of("i", text("still here "))).await;
    agent.emits(of("i", ended("x"))).await;
    client.envelope(|e| e["channel"] == json!(worker_of("inner")) && is_ending(&e["action"])).await;
    let own = state(&mut client, &worker_of("inner")).await;
    assert_eq!(markdown(&own["turns"][0]), ["still here "]);
}
