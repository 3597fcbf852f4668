//! Actors that die, sleep and stop: what is in the log is all there is.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use scrollback::access::Identity;
use scrollback::actors::agent::{AgentEvent, Ending};
use scrollback::actors::host::HostSettings;
use scrollback::events::gated::GatedStore;
use scrollback::events::memory::MemoryStore;
use scrollback::events::{EventLog, LogFault, Record, Rows, ServerSeq, Table};
use scrollback::protocol::ProtocolSettings;
use serde_json::{Value, json};

use crate::harness::{Client, Options, RecordingAgent, TestHost, eventually, is_ending, message, opened};

fn draft(text: &str) -> Value {
    json!({ "type": "chat/draftChanged", "draft": message(text) })
}

fn sleepy(idle_timeout: Duration) -> TestHost {
    let settings = HostSettings { idle_timeout, ..HostSettings::default() };
    TestHost::start(Arc::new(MemoryStore::new().unwrap()), Options { settings, ..Options::default() })
}

fn notices(turn: &Value) -> usize {
    let parts = turn["responseParts"].as_array().unwrap();
    parts.iter().filter(|part| part["kind"] == json!("systemNotification")).count()
}

#[tokio::test]
async fn a_chat_that_panics_is_read_from_the_log_again_and_its_running_turn_is_taken_up() {
    let agent = RecordingAgent::new();
    let host = TestHost::start(Arc::new(MemoryStore::new().unwrap()), Options::of(&agent));
    let mut a = host.client("a").await;
    let broken = a.create_session("ahp-session:/broken").await;
    let whole = a.create_session("ahp-session:/whole").await;
    a.subscribe(&broken).await;
    a.subscribe(&whole).await;
    let kept = a.dispatch(&broken, draft("kept")).await;
    a.echo(kept).await;
    a.say(&broken, "t1", "hello").await;
    eventually("the first is prompted", || agent.prompts() == ["t1"]).await;
    a.say(&whole, "t2", "hello").await;
    eventually("the second is prompted", || agent.prompts() == ["t1", "t2"]).await;

    host.host.panic_in_chat(&broken);
    eventually("a new process is prompted", || agent.prompts() == ["t1", "t2", "t1"]).await;
    assert_eq!(agent.last_prompt().attempt, 1);
    agent.says("t2", "unharmed").await;
    let delta = a.envelope(|e| e["action"]["type"] == json!("chat/delta")).await;
    assert_eq!((&delta["channel"], &delta["action"]["content"]), (&json!(whole), &json!("unharmed")));

    agent.ended("t1", Ending::Complete).await;
    let end = a.until_ended("t1").await.pop().unwrap();
    assert_eq!(end["action"]["type"], json!("chat/turnComplete"));
    let state = a.subscribe(&broken).await["state"].clone();
    assert_eq!((notices(&state["turns"][0]), state.get("activeTurn")), (0, None), "{state}");
    a.say(&broken, "t3", "again").await;
    eventually("the new process is prompted", || agent.prompts() == ["t1", "t2", "t1", "t3"]).await;
    assert_eq!(agent.starts(), 3);
}

#[tokio::test]
async fn a_chat_that_panics_while_its_batch_is_on_the_way_loses_nothing_of_it() {
    let store = GatedStore::new(MemoryStore::new().unwrap());
    let gate = store.gate();
    let host = TestHost::start(Arc::new(store), Options::default());
    let mut a = host.client("a").await;
    let chat = a.create_session("ahp-session:/s").await;
    a.subscribe(&chat).await;
    a.until(|e| e["action"]["activeSessions"] == json!(1)).await;
    gate.hold();
    let first = a.dispatch(&chat, json!({ "type": "session/titleChanged", "title": "named" })).await;
    gate.wait_until_held();
    host.host.panic_in_chat(&chat);
    let second = a.dispatch(&chat, draft("after the panic")).await;
    a.drain().await;
    gate.release_all();
    assert_eq!(a.echo(first).await.get("rejectionReason"), None);
    assert_eq!(a.echo(second).await.get("rejectionReason"), None);
    let state = a.subscribe(&chat).await["state"].clone();
    assert_eq!((&state["title"], &state["draft"]["text"]), (&json!("named"), &json!("after the panic")));
}

#[tokio::test]
async fn what_nobody_uses_leaves_memory_and_comes_back_the_same() {
    let host = sleepy(Duration::from_millis(20));
    let mut a = host.client("a").await;
    let chat = a.create_session("ahp-session:/s").await;
    a.subscribe(&chat).await;
    for turn in ["t1", "t2"] {
        a.say(&chat, turn, "/words 30\n/tool look around").await;
        a.until_ended(turn).await;
    }
    let (before, session) = (a.subscribe(&chat).await, a.subscribe("ahp-session:/s").await);
    eventually("everything sleeps", || host.host.actors() == 0 && host.host.awake() == 0).await;
    assert_eq!(a.subscribe(&chat).await, before);
    let mut again = a.subscribe("ahp-session:/s").await;
    assert_eq!(again["state"]["_meta"]["scrollback.process"], json!({ &chat: "ended" }));
    // Its agent's process ended with the chat, and that alone is news.
    (again["fromSeq"], again["state"]["_meta"]) = (session["fromSeq"].clone(), session["state"]["_meta"].clone());
    assert_eq!(again, session);
    eventually("everything sleeps again", || host.host.actors() == 0).await;
    let dispatched = a.dispatch(&chat, draft("awake")).await;
    assert!(a.echo(dispatched).await["serverSeq"].as_u64() > before["fromSeq"].as_u64());
}

#[tokio::test]
async fn a_chat_with_a_running_turn_stays_awake() {
    let host = sleepy(Duration::from_millis(1));
    let mut a = host.client("a").await;
    let busy = a.create_session("ahp-session:/busy").await;
    let idle = a.create_session("ahp-session:/idle").await;
    a.subscribe(&busy).await;
    a.say(&busy, "t1", "/ask-tool write x").await;
    a.envelope(|e| e["action"]["type"] == json!("chat/toolCallReady")).await;
    for _ in 0..3 {
        a.subscribe(&idle).await;
        eventually("the other session sleeps", || host.host.awake() == 1).await;
    }
    a.dispatch(&busy, json!({ "type": "chat/turnCancelled", "turnId": "t1", "duration": 0 })).await;
    let end = a.until_ended("t1").await.pop().unwrap();
    assert_eq!(end["origin"]["clientId"], json!("a"), "it was not ended by anybody else: {end}");
    eventually("everything sleeps", || host.host.actors() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_to_a_chat_that_falls_asleep_is_not_lost() {
    let host = sleepy(Duration::from_millis(1));
    let mut a = host.client("a").await;
    let mut chats = Vec::new();
    for n in 0..4 {
        chats.push(a.create_session(&format!("ahp-session:/s{n}")).await);
    }
    let mut work = Vec::new();
    for (n, chat) in chats.into_iter().enumerate() {
        let mut client = host.client(&format!("client-{n}")).await;
        work.push(tokio::spawn(async move {
            client.subscribe(&chat).await;
            for round in 0..60 {
                changes_and_turns(&mut client, &chat, round).await;
            }
            let state = client.subscribe(&chat).await["state"].clone();
            assert_eq!(state["turns"].as_array().unwrap().len(), 60);
        }));
    }
    for task in work {
        task.await.unwrap();
    }
    eventually("everything sleeps", || host.host.actors() == 0).await;
    let verified = scrollback::projections::verify::verify(host.host.store().as_ref(), &mut |_| ());
    assert!(verified.unwrap().checkpoints > 0);
}

async fn changes_and_turns(client: &mut Client, chat: &str, round: u64) {
    let changed = client.dispatch(chat, draft(&format!("draft {round}"))).await;
    assert_eq!(client.echo(changed).await.get("rejectionReason"), None);
    // About as long as it takes to fall asleep, a bit more each time.
    tokio::time::timeout(Duration::from_millis(15 + round % 10), std::future::pending::<()>()).await.unwrap_err();
    let turn = format!("t{round}");
    client.say(chat, &turn, "hello").await;
    let end = client.until_ended(&turn).await.pop().unwrap();
    assert_eq!(end["action"]["type"], json!("chat/turnComplete"), "{end}");
}

#[tokio::test]
async fn a_stop_in_order_freezes_a_running_turn_and_the_next_start_takes_it_up() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let mut a = host.client("a").await;
    let chat = a.create_session("ahp-session:/s").await;
    a.subscribe(&chat).await;
    a.say(&chat, "t1", "/words 100000 5").await;
    a.envelope(|e| e["action"]["type"] == json!("chat/delta")).await;
    let queued = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": "q1", "message": message("next") });
    let queued = a.dispatch(&chat, queued).await;
    a.echo(queued).await;
    host.stop();

    let stopped_at = opened(directory.path()).tail();
    let host = TestHost::on_disk(directory.path());
    let mut b = host.client("b").await;
    let state = b.subscribe(&chat).await["state"].clone();
    assert_eq!((&state["activeTurn"]["id"], &state["turns"]), (&json!("t1"), &json!([])), "{state}");
    assert_eq!((notices(&state["activeTurn"]), &state["queuedMessages"][0]["id"]), (0, &json!("q1")));
    let session = b.subscribe("ahp-session:/s").await["state"].clone();
    assert_eq!(session["_meta"].get("scrollback.pausedQueues"), None, "nothing ended: nothing is paused");
    let mut back = Client::connect(host.address).await;
    let replay = back.reconnect("a", stopped_at, &[&chat]).await;
    let events = replay["actions"].as_array().unwrap();
    assert!(!events.iter().any(|e| is_ending(&e["action"])), "nothing ended it: {replay}");
}

/// Makes a chat's actor panic, and waits until it is gone: writing the panic down may take its time.
async fn panicked(host: &TestHost, chat: &str) {
    let before = host.host.actors();
    host.host.panic_in_chat(chat);
    eventually("the chat is gone", || host.host.actors() < before).await;
}

/// What is sent while a session waits for the disk after a panic is served when it is read again: here a disposal right
/// behind what it cuts off.
async fn dispose_in_one_go(method: &str, goes: &str, chat: &str) {
    let store = GatedStore::new(MemoryStore::new().unwrap());
    let gate = store.gate();
    let host = TestHost::start(Arc::new(store), Options::default());
    let mut a = host.client("a").await;
    let first = a.create_session("ahp-session:/s").await;
    a.ask("createChat", json!({ "channel": "ahp-session:/s", "chat": "ahp-chat:/peer" })).await.unwrap();
    gate.hold();
    a.dispatch(&first, draft("held")).await;
    gate.wait_until_held();
    panicked(&host, &first).await;
    a.say(chat, "t1", "/sleep 1000000").await;
    a.send(json!({ "jsonrpc": "2.0", "id": "gone", "method": method, "params": { "channel": goes } })).await;
    a.drain().await;
    gate.release_all();
    while a.next().await.unwrap()["id"] != json!("gone") {}
    host.stop_and_scan(|events| {
        let of = |kind: &str| events.iter().filter(|e| e["type"] == json!(kind)).count();
        assert_eq!(of("chat/turnStarted"), of("chat/turnCancelled"));
    });
}

#[tokio::test]
async fn a_chat_that_often_falls_asleep_collects_no_checkpoints() {
    let store = Arc::new(MemoryStore::new().unwrap());
    let settings = HostSettings { idle_timeout: Duration::from_millis(20), ..HostSettings::default() };
    let host = TestHost::start(Arc::clone(&store) as _, Options { settings, ..Options::default() });
    let mut a = host.client("a").await;
    let chat = a.create_session("ahp-session:/s").await;
    for round in 0..8 {
        a.dispatch(&chat, draft(&format!("draft {round}"))).await;
        a.subscribe(&chat).await;
        eventually("everybody sleeps", || host.host.actors() == 0).await;
    }
    let id = host.host.resolve(&Identity::root("test"), &chat).unwrap().unwrap().1;
    let mut checkpoints = 0;
    store
        .scan_rows(Table::Checkpoint, &id.0.to_be_bytes(), None, &mut |_, _| {
            checkpoints += 1;
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    assert!((1..=2).contains(&checkpoints), "{checkpoints} checkpoints");
    assert_eq!(a.subscribe(&chat).await["state"]["draft"]["text"], json!("draft 7"));
}

#[tokio::test]
async fn no_turn_starts_in_a_chat_whose_disposal_came_first() {
    dispose_in_one_go("disposeChat", "ahp-chat:/peer", "ahp-chat:/peer").await;
}

#[tokio::test]
async fn no_turn_starts_in_a_session_whose_disposal_came_first() {
    dispose_in_one_go("disposeSession", "ahp-session:/s", "ahp-chat:/peer").await;
}

#[tokio::test]
async fn what_waits_while_a_session_is_read_again_is_decided_in_the_order_in_which_it_was_sent() {
    let store = GatedStore::new(MemoryStore::new().unwrap());
    let gate = store.gate();
    let protocol = ProtocolSettings { max_actions_in_flight: 100, ..ProtocolSettings::default() };
    let host = TestHost::start(Arc::new(store), Options { protocol, ..Options::default() });
    let mut a = host.client("a").await;
    let chat = a.create_session("ahp-session:/s").await;
    a.subscribe(&chat).await;
    a.subscribe("ahp-session:/s").await;
    a.until(|e| e["action"]["activeSessions"] == json!(1)).await;
    gate.hold();
    let first = a.dispatch(&chat, draft("held")).await;
    gate.wait_until_held();
    panicked(&host, &chat).await;
    // More than a chat's mailbox holds, and some for the session itself.
    let mut last = first;
    for n in 0..60 {
        let title = json!({ "type": "session/titleChanged", "title": format!("title {n}") });
        last = match n % 3 {
            0 => a.dispatch("ahp-session:/s", title).await,
            _ => a.dispatch(&chat, draft(&format!("draft {n}"))).await,
        };
    }
    a.drain().await;
    gate.release_all();
    let seen = a.until(|e| e["origin"]["clientSeq"] == json!(last)).await;
    let echoes: Vec<i64> = seen.iter().filter_map(|e| e["origin"]["clientSeq"].as_i64()).collect();
    assert_eq!(echoes, (first..=last).collect::<Vec<_>>());
}

#[tokio::test]
async fn work_in_the_background_ends_with_its_process() {
    let agent = RecordingAgent::new();
    let host = TestHost::with(Options::of(&agent));
    let mut a = host.client("a").await;
    let chat = a.create_session("ahp-session:/s").await;
    a.subscribe(&chat).await;
    a.say(&chat, "t1", "hello").await;
    eventually("it is prompted", || agent.prompts() == ["t1"]).await;
    let work = json!({ "kind": "shell", "id": "w1", "label": "build", "startedAt": "2026-11-30T12:00:00.000Z",
        "command": "make" });
    agent.emits(AgentEvent::BackgroundWork { work: serde_json::from_value(work).unwrap() }).await;
    a.until_type("chat/backgroundWorkSet").await;
    agent.emits(AgentEvent::Ended { turn_id: "t1".into(), ending: Ending::Complete }).await;
    a.until_ended("t1").await;
    agent.emits(AgentEvent::Gone { problem: "it was killed".into() }).await;
    let removed = a.until_type("chat/backgroundWorkRemoved").await;
    assert_eq!(removed["action"]["id"], json!("w1"));
}

#[tokio::test]
async fn text_is_its_agent_s_whoever_makes_it_go_out() {
    let agent = RecordingAgent::new();
    let agents: Vec<Arc<dyn scrollback::actors::agent::Agent>> = vec![Arc::new(agent.clone())];
    let settings = HostSettings { delta_window: Duration::from_secs(3_600), ..HostSettings::default() };
    let host = TestHost::with(Options { agents, settings, ..Options::default() });
    let mut a = host.client("a").await;
    let chat = a.create_session("ahp-session:/s").await;
    a.subscribe(&chat).await;
    a.say(&chat, "t1", "hello").await;
    eventually("it is prompted", || agent.prompts() == ["t1"]).await;
    agent.says("t1", "held back").await;
    // Behind the text: who says this has said that.
    agent.emits(AgentEvent::Activity { text: Some("thinking".into()) }).await;
    a.until_type("chat/activityChanged").await;
    agent.says("t1", "held back again").await;
    a.cancel(&chat, "t1").await;
    a.until_ended("t1").await;
    let mut said = Vec::new();
    let mut visit = |record: Record| {
        let action: Value = serde_json::from_slice(&record.action).unwrap();
        if ["chat/delta", "chat/turnCancelled"].iter().any(|kind| action["type"] == json!(kind)) {
            said.push((action["type"].as_str().unwrap().to_owned(), record.principal));
        }
        ControlFlow::Continue(())
    };
    host.host.store().scan(0, ServerSeq::MAX, &mut visit).unwrap();
    let (last, deltas) = said.split_last().unwrap();
    assert_eq!(last, &("chat/turnCancelled".to_owned(), "root:test".to_owned()));
    assert!(!deltas.is_empty() && deltas.iter().all(|(_, who)| who == "agent:demo"), "{said:?}");
}

#[tokio::test]
async fn an_agent_never_hears_of_a_configuration_that_was_lost() {
    let store = GatedStore::new(MemoryStore::new().unwrap());
    let gate = store.gate();
    let agent = RecordingAgent::new();
    let host = TestHost::start(Arc::new(store), Options::of(&agent));
    let mut a = host.client("a").await;
    let session = "ahp-session:/s";
    let chat = a.create_session(session).await;
    a.subscribe(&chat).await;
    a.subscribe(session).await;
    a.say(&chat, "t1", "hello").await;
    eventually("it is prompted", || agent.prompts() == ["t1"]).await;
    let verbose = |verbosity| json!({ "type": "session/configChanged", "config": { "verbosity": verbosity } });
    a.accepted(session, verbose(2)).await;
    eventually("it hears of what is kept", || agent.configured() == 1).await;
    gate.fail_next(LogFault::Engine("the test says no".into()));
    assert_eq!(a.rejected(session, verbose(3)).await, "log-unavailable");
    a.subscribe(&chat).await;
    assert_eq!(agent.configured(), 1);
}
