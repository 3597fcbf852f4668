//! Tools that clients offer: one owner a call, who answers, leaves, or takes too long.

use std::sync::Arc;
use std::time::Duration;

use scrollback::access::Identity;
use scrollback::actors::agent::AgentInput;
use scrollback::actors::connection::Caller;
use scrollback::actors::host::{CreateSession, HostSettings};
use scrollback::clock::Clock;
use scrollback::events::memory::MemoryStore;
use scrollback::projections::verify::verify;
use serde_json::{Value, json};

use crate::harness::{Client, Mirrored, Options, RecordingAgent, TestHost, chat_of, eventually, is_ending, types};

const S: &str = "ahp-session:/s";
const ROOT: &str = "ahp-root://";
const NOON: i64 = 1_796_040_000_000;

fn offers(client: &str, tools: &[&str]) -> Value {
    let tools: Vec<Value> = tools.iter().map(|name| json!({ "name": name, "title": format!("The {name}") })).collect();
    json!({ "type": "session/activeClientSet", "activeClient": { "clientId": client, "tools": tools } })
}

/// A client that is in the session and offers tools there.
async fn join(host: &TestHost, name: &str, tools: &[&str]) -> Client {
    let mut client = host.client(name).await;
    client.subscribe(S).await;
    client.subscribe(&chat_of(S)).await;
    client.accepted(S, offers(name, tools)).await;
    client
}

async fn open(host: &TestHost) -> (Client, String) {
    let mut watcher = host.client("w").await;
    let chat = watcher.create_session(S).await;
    watcher.subscribe(S).await;
    watcher.subscribe(&chat).await;
    (watcher, chat)
}

/// Calls `tests --all` and waits until the session lists it; returns the entry.
async fn call(watcher: &mut Client, chat: &str, turn: &str) -> Value {
    watcher.say(chat, turn, "/client-tool tests --all\n/say on we go").await;
    watcher.until_type("session/inputNeededSet").await["action"]["request"].clone()
}

fn completed(entry: &Value, text: &str) -> Value {
    json!({ "type": "chat/toolCallComplete", "turnId": entry["turnId"], "toolCallId": entry["toolCall"]["toolCallId"],
        "result": { "success": true, "pastTenseMessage": text } })
}

fn content(entry: &Value, text: &str) -> Value {
    json!({ "type": "chat/toolCallContentChanged", "turnId": entry["turnId"],
        "toolCallId": entry["toolCall"]["toolCallId"], "content": [{ "type": "text", "text": text }] })
}

/// The call of a turn that has ended, as its chat keeps it.
async fn kept(client: &mut Client, chat: &str) -> Value {
    let state = client.subscribe(chat).await["state"].clone();
    let turn = state["turns"].as_array().unwrap().last().unwrap().clone();
    let parts = turn["responseParts"].as_array().unwrap();
    parts.iter().find(|part| part["kind"] == json!("toolCall")).unwrap()["toolCall"].clone()
}

fn clocked(clock: &Clock) -> Options {
    Options { clock: clock.clone(), ..Options::default() }
}

#[tokio::test]
async fn a_call_is_its_clients_who_streams_and_completes_it_and_nobody_elses() {
    let host = TestHost::in_memory();
    let (mut watcher, chat) = open(&host).await;
    let mut mirrored = Mirrored::connect(host.address, "m", &[ROOT, S, &chat]).await;
    let mut owner = join(&host, "owner", &["lint", "tests"]).await;
    // Who offers the same later is not called.
    let mut other = join(&host, "other", &["tests"]).await;
    let entry = call(&mut watcher, &chat, "t").await;
    assert_eq!((&entry["kind"], &entry["clientId"]), (&json!("toolClientExecution"), &json!("owner")));
    let running = &entry["toolCall"];
    assert_eq!(running["contributor"], json!({ "kind": "client", "clientId": "owner" }));
    assert_eq!((&running["toolName"], &running["displayName"]), (&json!("tests"), &json!("The tests")));
    assert_eq!((&running["toolInput"], &running["confirmed"]), (&json!("--all"), &json!("not-needed")));
    // It waits for a client and for no person.
    let listed = watcher.listed().await[0].clone();
    assert_eq!((&listed["_meta"]["scrollback.waiting"], &listed["status"]), (&json!(0), &json!(8)));
    let before = host.quiet_tail().await;
    for client in [&mut other, &mut watcher] {
        assert_eq!(client.rejected(&chat, completed(&entry, "mine")).await, "not-permitted");
        assert_eq!(client.rejected(&chat, content(&entry, "mine")).await, "not-permitted");
    }
    assert_eq!(host.host.store().tail(), before);
    owner.accepted(&chat, content(&entry, "half")).await;
    watcher.envelope(|e| e["action"]["content"][0]["text"] == json!("half")).await;
    // Offering it no more changes nothing about a call that runs.
    owner.accepted(S, offers("owner", &[])).await;
    owner.accepted(&chat, completed(&entry, "all passed")).await;
    let seen = watcher.until_ended("t").await;
    assert!(types(&seen).contains(&"session/inputNeededRemoved"), "{:?}", types(&seen));
    assert_eq!(seen.last().unwrap()["action"]["type"], json!("chat/turnComplete"));
    let call = kept(&mut watcher, &chat).await;
    assert_eq!((&call["status"], &call["pastTenseMessage"]), (&json!("completed"), &json!("all passed")));
    let late = owner.rejected(&chat, completed(&entry, "again")).await;
    assert_eq!(late, "request-not-found");
    for channel in [ROOT, S, &chat] {
        mirrored.compare(channel).await.unwrap();
    }
    verify(host.host.store().as_ref(), &mut |_| {}).unwrap();
}

#[tokio::test]
async fn a_tool_that_nobody_offers_fails_at_once_and_says_so() {
    let host = TestHost::in_memory();
    let (mut watcher, chat) = open(&host).await;
    let _other = join(&host, "other", &["lint"]).await;
    let seen = watcher.run(&chat, "t", "/client-tool tests --all\n/say on we go").await;
    assert!(!types(&seen).contains(&"session/inputNeededSet"));
    assert_eq!(seen.last().unwrap()["action"]["type"], json!("chat/turnComplete"));
    let call = kept(&mut watcher, &chat).await;
    assert_eq!((&call["status"], &call["success"]), (&json!("completed"), &json!(false)));
    assert_eq!(call["error"]["message"], json!("no active client offers tests"));
    assert_eq!(call.get("contributor"), None);
}

/// What ends the calls of a client, by name: `leave` does it.
async fn fails_when(host: &TestHost, watcher: &mut Client, chat: &str, reason: &str) {
    let seen = watcher.until(|e| is_ending(&e["action"])).await;
    let kinds = types(&seen);
    let at = |kind: &str| kinds.iter().position(|seen| *seen == kind).unwrap_or_else(|| panic!("{kind}: {kinds:?}"));
    assert!(at("chat/toolCallComplete") < at("chat/turnComplete"), "{kinds:?}");
    let call = kept(watcher, chat).await;
    assert_eq!((&call["status"], &call["success"]), (&json!("completed"), &json!(false)));
    assert_eq!(call["error"]["message"], json!(reason));
    assert_eq!(watcher.subscribe(S).await["state"].get("inputNeeded"), None);
    verify(host.host.store().as_ref(), &mut |_| {}).unwrap();
}

const LEFT: &str = "the client that offers it left the session";

#[tokio::test]
async fn a_call_fails_when_its_client_unsubscribes_from_the_session_or_says_that_it_leaves() {
    let host = TestHost::in_memory();
    let (mut watcher, chat) = open(&host).await;
    let mut owner = join(&host, "owner", &["tests"]).await;
    call(&mut watcher, &chat, "t1").await;
    owner.unsubscribe(S).await;
    fails_when(&host, &mut watcher, &chat, LEFT).await;
    let state = watcher.subscribe(S).await["state"].clone();
    assert_eq!(state["activeClients"], json!([]));
    owner.subscribe(S).await;
    owner.accepted(S, offers("owner", &["tests"])).await;
    call(&mut watcher, &chat, "t2").await;
    owner.accepted(S, json!({ "type": "session/activeClientRemoved", "clientId": "owner" })).await;
    fails_when(&host, &mut watcher, &chat, LEFT).await;
}

#[tokio::test]
async fn a_call_fails_when_its_client_is_gone_for_longer_than_its_grace_and_not_before() {
    let clock = Clock::fixed(NOON);
    let ages = Duration::from_secs(3_600_000_000);
    let settings = HostSettings { client_tool_timeout: ages, ..HostSettings::default() };
    let host = TestHost::with(Options { settings, ..clocked(&clock) });
    let (mut watcher, chat) = open(&host).await;
    let owner = join(&host, "owner", &["tests"]).await;
    call(&mut watcher, &chat, "t1").await;
    owner.drop_socket().await;
    // Back in time, it answers as if nothing had been.
    clock.advance(29_000);
    let mut owner = Client::connect(host.address).await;
    owner.reconnect("owner", 0, &[S, &chat]).await;
    clock.advance(29_000);
    let waiting = watcher.subscribe(S).await["state"]["inputNeeded"][0].clone();
    owner.accepted(&chat, completed(&waiting, "all passed")).await;
    watcher.until_ended("t1").await;
    call(&mut watcher, &chat, "t2").await;
    owner.drop_socket().await;
    // The host notices that at its own time: the grace runs from then.
    let waits = async {
        loop {
            clock.advance(1_000);
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = waits => {}
        () = fails_when(&host, &mut watcher, &chat, LEFT) => {}
    }
}

#[tokio::test]
async fn a_client_that_comes_back_without_the_session_has_left_it() {
    let host = TestHost::in_memory();
    let (mut watcher, chat) = open(&host).await;
    let mut owner = join(&host, "owner", &["tests"]).await;
    call(&mut watcher, &chat, "t1").await;
    owner.hang_up().await;
    drop(owner);
    let mut owner = Client::connect(host.address).await;
    let last = host.quiet_tail().await;
    owner.reconnect("owner", last, &[ROOT, &chat]).await;
    fails_when(&host, &mut watcher, &chat, LEFT).await;
    // It may come in again.
    owner.subscribe(S).await;
    owner.accepted(S, offers("owner", &["tests"])).await;
    let entry = call(&mut watcher, &chat, "t2").await;
    owner.accepted(&chat, completed(&entry, "all passed")).await;
    watcher.until_ended("t2").await;
}

#[tokio::test]
async fn after_a_restart_a_client_that_comes_back_without_the_session_is_active_there_no_more() {
    let clock = Clock::fixed(NOON);
    let store = Arc::new(MemoryStore::new().unwrap());
    let host = TestHost::start(Arc::clone(&store) as _, clocked(&clock));
    open(&host).await;
    let (_a, _b) = (join(&host, "away", &["lint"]).await, join(&host, "back", &["tests"]).await);
    let last = host.quiet_tail().await;
    host.stop();
    let host = TestHost::start(Arc::clone(&store) as _, clocked(&clock));
    let (mut away, mut back) = (Client::connect(host.address).await, Client::connect(host.address).await);
    away.reconnect("away", last, &[ROOT]).await;
    back.reconnect("back", last, &[ROOT, S]).await;
    // Whoever wakes the session starts the grace.
    back.subscribe(S).await;
    clock.advance(30_000);
    let removed = back.until_type("session/activeClientRemoved").await;
    assert_eq!(removed["action"]["clientId"], json!("away"));
    let state = back.subscribe(S).await["state"].clone();
    assert_eq!(state["activeClients"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_call_that_takes_too_long_fails_and_its_client_comes_too_late() {
    let clock = Clock::fixed(NOON);
    let settings = HostSettings { client_tool_timeout: Duration::from_secs(600), ..HostSettings::default() };
    let host = TestHost::with(Options { settings, ..clocked(&clock) });
    let (mut watcher, chat) = open(&host).await;
    let mut owner = join(&host, "owner", &["tests"]).await;
    let entry = call(&mut watcher, &chat, "t").await;
    clock.advance(599_000);
    owner.accepted(&chat, content(&entry, "nearly there")).await;
    clock.advance(1_000);
    fails_when(&host, &mut watcher, &chat, "its client did not answer within 600 s").await;
    assert!(crate::harness::met("client_tool_time") > 0);
    assert_eq!(owner.rejected(&chat, completed(&entry, "late")).await, "request-not-found");
    // One that ended in time is not ended again.
    let entry = call(&mut watcher, &chat, "t2").await;
    owner.accepted(&chat, completed(&entry, "all passed")).await;
    watcher.until_ended("t2").await;
    let tail = host.quiet_tail().await;
    clock.advance(3_600_000);
    watcher.subscribe(&chat).await;
    assert_eq!(host.host.store().tail(), tail);
}

#[tokio::test]
async fn a_result_that_a_person_is_to_look_at_reaches_the_agent_when_they_did() {
    let agent = RecordingAgent::new();
    let host = TestHost::with(Options::of(&agent));
    let (mut watcher, chat) = open(&host).await;
    let mut owner = join(&host, "owner", &["tests"]).await;
    watcher.say(&chat, "t", "x").await;
    crate::harness::eventually("it is prompted", || agent.prompts() == ["t"]).await;
    let told = || -> Vec<bool> {
        let done = |input| match input {
            AgentInput::ClientToolDone { result, .. } => Some(result.success),
            _ => None,
        };
        agent.told().into_iter().filter_map(done).collect()
    };
    for (id, approved) in [("one", true), ("two", false)] {
        agent
            .emits(scrollback::actors::agent::AgentEvent::ClientTool {
                turn_id: "t".into(),
                tool_call_id: id.into(),
                tool_name: "tests".into(),
                input: String::new(),
            })
            .await;
        let entry = watcher.until_type("session/inputNeededSet").await["action"]["request"].clone();
        let mut done = completed(&entry, "all passed");
        done["requiresResultConfirmation"] = json!(true);
        owner.accepted(&chat, done).await;
        let asked = watcher.until_type("session/inputNeededSet").await["action"]["request"].clone();
        assert_eq!(asked["kind"], json!("toolConfirmation"));
        assert_eq!(told().len(), usize::from(!approved));
        let decision = json!({ "type": "chat/toolCallResultConfirmed", "turnId": "t", "toolCallId": id,
            "approved": approved });
        watcher.accepted(&chat, decision.clone()).await;
        assert_eq!(watcher.rejected(&chat, decision).await, "request-not-found");
        let all = usize::from(!approved) + 1;
        crate::harness::eventually("the agent is told", || told().len() == all).await;
    }
    assert_eq!(told(), [true, false]);
}

#[tokio::test]
async fn tools_have_one_name_each_and_a_client_speaks_for_itself() {
    let host = TestHost::in_memory();
    let (mut watcher, _) = open(&host).await;
    let before = host.quiet_tail().await;
    for (tools, word) in [(vec!["a", "b", "a"], "malformed"), (vec![""], "malformed")] {
        assert_eq!(watcher.rejected(S, offers("w", &tools)).await, word, "{tools:?}");
    }
    assert_eq!(watcher.rejected(S, offers("somebody", &[])).await, "not-permitted");
    assert_eq!(host.host.store().tail(), before);
    watcher.accepted(S, offers("w", &["a", "b"])).await;
    let same = host.quiet_tail().await;
    assert_eq!(watcher.accepted(S, offers("w", &["a", "b"])).await["serverSeq"], json!(same));
}

#[tokio::test]
async fn a_call_that_a_restart_cut_off_has_failed_and_is_made_again_when_its_turn_is_taken_up() {
    let store = Arc::new(MemoryStore::new().unwrap());
    let host = TestHost::start(Arc::clone(&store) as _, Options::default());
    let (mut watcher, chat) = open(&host).await;
    let _owner = join(&host, "owner", &["tests"]).await;
    let cut_off = call(&mut watcher, &chat, "t").await;
    host.stop();
    let host = TestHost::start(Arc::clone(&store) as _, Options::default());
    let mut client = host.client("c").await;
    client.subscribe(&chat).await;
    let mut owner = join(&host, "owner", &["tests"]).await;
    let again = loop {
        let listed = client.subscribe(S).await["state"]["inputNeeded"].clone();
        if let Some(entry) = listed.as_array().and_then(|listed| listed.first()) {
            break entry.clone();
        }
    };
    assert_ne!(again["toolCall"]["toolCallId"], cut_off["toolCall"]["toolCallId"]);
    assert_eq!(owner.rejected(&chat, completed(&cut_off, "late")).await, "request-not-found");
    owner.accepted(&chat, completed(&again, "all passed")).await;
    client.until_ended("t").await;
    let turn = client.subscribe(&chat).await["state"]["turns"][0].clone();
    let calls: Vec<Value> = turn["responseParts"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|part| part["kind"] == json!("toolCall"))
        .map(|part| part["toolCall"]["success"].clone())
        .collect();
    assert_eq!(calls, [json!(false), json!(true)]);
    verify(store.as_ref(), &mut |_| {}).unwrap();
}

/// Its session would be awake for ever, and its tools offered by nobody: nobody says a second time that it left.
#[tokio::test]
async fn a_client_whose_connection_was_gone_before_it_was_listed_has_the_grace_time_to_come_back() {
    let short = Duration::from_millis(20);
    let settings = HostSettings { idle_timeout: short, client_grace: short, ..HostSettings::default() };
    let host = TestHost::with(Options { settings, ..Options::default() });
    let nobody = Caller::nobody("root:test");
    let gone = Caller { client_id: "gone".into(), who: Arc::new(Identity::root("test")), ..nobody };
    let client = serde_json::from_value(json!({ "clientId": "gone", "tools": [] })).unwrap();
    let command = CreateSession { uri: S.into(), active_client: Some(client), ..CreateSession::default() };
    let (answered, answer) = tokio::sync::oneshot::channel();
    host.host.create_session(&gone, command, Box::new(|answer| answered.send(answer.is_ok()).unwrap()));
    assert!(answer.await.unwrap(), "createSession was refused");
    eventually("the session sleeps", || host.host.actors() == 0).await;
    let mut watcher = host.client("w").await;
    assert_eq!(watcher.subscribe(S).await["state"]["activeClients"], json!([]));
}

#[tokio::test]
async fn a_session_that_is_disposed_falls_asleep_whoever_offered_tools_in_it() {
    let short = Duration::from_millis(30);
    let settings = HostSettings { idle_timeout: short, client_grace: short, ..HostSettings::default() };
    let host = TestHost::with(Options { settings, ..Options::default() });
    let mut client = host.client("c").await;
    let own = json!({ "clientId": "c", "tools": [{ "name": "t" }] });
    let create = json!({ "channel": "ahp-session:/s", "provider": "demo", "activeClient": own });
    client.ask("createSession", create).await.unwrap();
    client.ask("disposeSession", json!({ "channel": "ahp-session:/s" })).await.unwrap();
    eventually("it sleeps, while the client is here", || host.host.actors() == 0).await;
    client.ask("ping", json!({ "channel": "ahp-root://" })).await.unwrap();
}
