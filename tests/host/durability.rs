//! What must wait for the disk, what must not, and what becomes of it when the disk says no.

use std::sync::Arc;
use std::time::Duration;

use scrollback::actors::agent::Ending;
use scrollback::actors::host::HostSettings;
use scrollback::actors::writer::Durability;
use scrollback::events::gated::{Gate, GatedStore};
use scrollback::events::memory::MemoryStore;
use scrollback::events::sled_store::{SledOptions, SledStore};
use scrollback::events::{EventLog, LogFault, Table};
use scrollback::protocol::ProtocolSettings;
use serde_json::{Value, json};

use crate::harness::{Client, Options, RecordingAgent, TestHost, eventually, is_ending, message, opened};

/// What a prompt puts on its way: its batch, what follows when it may be shown and when it is on disk, and the prompt.
const PROMPT: usize = 4;
/// A change without effects.
const CHANGE: usize = 3;
/// A new chat: a change, the end of its reservation, and the answer.
const NEW_CHAT: usize = 5;
/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3_600);

struct Scene {
    host: TestHost,
    gate: Gate,
    agent: RecordingAgent,
}

impl Scene {
    fn start(durability: Durability) -> Self {
        Self::with(HostSettings { durability, ..HostSettings::default() })
    }

    fn with(settings: HostSettings) -> Self {
        Self::of(Options { settings, ..Options::default() })
    }

    fn of(options: Options) -> Self {
        let store = GatedStore::new(MemoryStore::new().unwrap());
        let (gate, agent) = (store.gate(), RecordingAgent::new());
        let options = Options { agents: vec![Arc::new(agent.clone())], ..options };
        Self { host: TestHost::start(Arc::new(store), options), gate, agent }
    }

    /// Waits until what is written down of a client that came is on disk: nothing waits for that by itself.
    async fn remembered(&self, client: &str) {
        let is_there = || self.host.host.store().get(Table::Client, client.as_bytes()).unwrap().is_some();
        eventually("the client is remembered", is_there).await;
    }

    /// Waits until this many entries are on their way to the disk.
    async fn queued(&self, entries: usize) {
        eventually("queued", || self.host.host.writer().queued() == entries).await;
    }

    fn tail(&self) -> u64 {
        self.host.host.store().tail()
    }

    fn fail_next(&self) {
        self.gate.fail_next(LogFault::Engine("the test says no".into()));
    }
}

fn draft(text: &str) -> Value {
    json!({ "type": "chat/draftChanged", "draft": message(text) })
}

async fn send(client: &mut Client, id: &str, method: &str, params: Value) {
    client.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
}

/// The answer to a request that was sent with [`send`].
async fn answer(client: &mut Client, id: &str) -> Value {
    loop {
        let message = client.next().await.expect("the socket ended");
        if message["id"] == json!(id) {
            return message;
        }
    }
}

#[track_caller]
fn is_lost(echo: &Value, current: u64) {
    let reason = echo["rejectionReason"].as_str().unwrap_or_default();
    assert!(reason.starts_with("log-unavailable: "), "{echo}");
    assert_eq!(echo["serverSeq"], json!(current), "{echo}");
}

#[tokio::test]
async fn while_a_sync_runs_nobody_hears_anything_of_its_batch_and_then_all_in_order() {
    let scene = Scene::start(Durability::Commit);
    let (mut a, mut b) = (scene.host.client("a").await, scene.host.client("b").await);
    let chat = a.create_session("ahp-session:/s").await;
    for client in [&mut a, &mut b] {
        client.subscribe(&chat).await;
        client.subscribe("ahp-session:/s").await;
    }
    a.envelope(|e| e["action"]["type"] == json!("root/activeSessionsChanged")).await;
    b.drain().await;
    let before = scene.tail();

    scene.gate.hold();
    let first = a.say(&chat, "t1", "hello").await;
    scene.gate.wait_until_held();
    let second = a.say(&chat, "t2", "too early").await;
    scene.queued(PROMPT + 1).await;
    send(&mut a, "snapshot", "subscribe", json!({ "channel": chat })).await;
    scene.queued(PROMPT + 2).await;
    assert_eq!(a.drain().await, [] as [Value; 0]);
    assert_eq!(b.drain().await, [] as [Value; 0]);
    let listed = b.ask("listSessions", json!({ "channel": "ahp-root://" })).await.unwrap();
    assert_eq!(listed["items"][0]["title"], json!(""), "{listed}");
    assert_eq!((scene.agent.starts(), scene.tail()), (0, before));

    scene.gate.release_all();
    let echo = a.echo(first).await;
    assert_eq!(echo.get("rejectionReason"), None);
    let refused = a.echo(second).await;
    assert!(refused["rejectionReason"].as_str().unwrap().starts_with("turn-in-progress"), "{refused}");
    let snapshot = answer(&mut a, "snapshot").await;
    assert_eq!(snapshot["result"]["snapshot"]["state"]["activeTurn"]["id"], json!("t1"));
    assert!(snapshot["result"]["snapshot"]["fromSeq"].as_u64() >= echo["serverSeq"].as_u64());
    let heard = b.until(|e| e["action"]["type"] == json!("chat/turnStarted")).await;
    assert!(heard.iter().all(|e| e["serverSeq"].as_u64() > Some(before)));
    eventually("the agent is prompted", || scene.agent.prompts() == ["t1"]).await;
}

#[tokio::test]
async fn answers_leave_at_once_in_a_session_with_nothing_pending_while_another_one_waits() {
    let scene = Scene::start(Durability::Commit);
    let mut a = scene.host.client("a").await;
    let waiting = a.create_session("ahp-session:/waiting").await;
    let idle = a.create_session("ahp-session:/idle").await;
    a.subscribe(&waiting).await;
    a.until(|e| e["action"]["activeSessions"] == json!(2)).await;

    scene.gate.hold();
    let held = a.dispatch(&waiting, draft("one")).await;
    scene.gate.wait_until_held();
    let snapshot = a.subscribe(&idle).await;
    assert_eq!(snapshot["resource"], json!(idle));
    let cancel = json!({ "type": "chat/turnCancelled", "turnId": "none", "duration": 0 });
    let refused = a.dispatch(&idle, cancel).await;
    assert!(a.echo(refused).await["rejectionReason"].as_str().is_some());
    let queued = a.dispatch(&idle, draft("two")).await;
    scene.queued(2 * CHANGE).await;

    scene.gate.release_one();
    assert_eq!(a.echo(held).await.get("rejectionReason"), None);
    scene.gate.wait_until_held();
    assert_eq!(a.drain().await, [] as [Value; 0], "the second commit is not on disk");
    scene.gate.release_all();
    assert_eq!(a.echo(queued).await.get("rejectionReason"), None);
}

#[tokio::test]
async fn a_failed_append_is_told_to_all_who_rested_on_it_and_to_nobody_else() {
    let scene = Scene::start(Durability::Commit);
    let mut clients = Vec::new();
    for id in ["a", "b", "other", "witness"] {
        clients.push(scene.host.client(id).await);
    }
    let [mut a, mut b, mut other, mut witness] = <[Client; 4]>::try_from(clients).ok().unwrap();
    let chat = a.create_session("ahp-session:/s").await;
    let elsewhere = other.create_session("ahp-session:/other").await;
    other.until(|e| e["action"]["activeSessions"] == json!(2)).await;
    for channel in [chat.as_str(), "ahp-session:/s"] {
        witness.subscribe(channel).await;
    }
    let before = witness.subscribe(&chat).await;
    for client in [&mut a, &mut b, &mut other, &mut witness] {
        client.drain().await;
    }

    scene.gate.hold();
    let lost = a.say(&chat, "t1", "hello").await;
    scene.gate.wait_until_held();
    let current = scene.host.host.writer().handed_over();
    let behind = b.dispatch(&chat, draft("behind")).await;
    scene.queued(PROMPT + CHANGE).await;
    let rests_on_it = b.say(&chat, "t2", "a turn is running").await;
    scene.queued(PROMPT + CHANGE + 1).await;
    send(&mut a, "snapshot", "subscribe", json!({ "channel": chat })).await;
    scene.queued(PROMPT + CHANGE + 2).await;
    other.dispatch(&elsewhere, draft("mine")).await;
    scene.queued(PROMPT + 2 * CHANGE + 2).await;
    scene.fail_next();
    scene.gate.release_all();

    is_lost(&a.echo(lost).await, current);
    is_lost(&b.echo(behind).await, current);
    is_lost(&b.echo(rests_on_it).await, current);
    let snapshot = answer(&mut a, "snapshot").await;
    assert_eq!(snapshot["result"]["snapshot"], before, "{snapshot}");
    // It was behind a commit that failed, and in another one.
    assert_eq!(other.subscribe(&elsewhere).await["state"]["draft"]["text"], json!("mine"));

    let heard: Vec<Value> =
        witness.drain().await.into_iter().filter(|m| m["params"]["session"] != json!("ahp-session:/other")).collect();
    assert_eq!(heard, [] as [Value; 0]);
    assert_eq!(scene.agent.starts(), 0);
    assert_eq!(witness.subscribe(&chat).await, before, "the old state is read as before");
    let again = a.say(&chat, "t1", "hello").await;
    assert_eq!(witness.echo_of("a", again).await.get("rejectionReason"), None);
    eventually("the agent is prompted", || scene.agent.prompts() == ["t1"]).await;
}

#[tokio::test]
async fn a_turn_whose_batch_was_lost_is_taken_up_without_what_was_lost() {
    let scene = Scene::start(Durability::Commit);
    let mut a = scene.host.client("a").await;
    let chat = a.create_session("ahp-session:/s").await;
    a.subscribe(&chat).await;
    a.say(&chat, "t1", "hello").await;
    eventually("the agent is prompted", || scene.agent.prompts() == ["t1"]).await;
    scene.fail_next();
    scene.agent.says("t1", "these words are lost").await;
    eventually("a new process is prompted", || scene.agent.prompts() == ["t1", "t1"]).await;
    scene.agent.says("t1", "said again").await;
    scene.agent.ended("t1", Ending::Complete).await;
    let seen = a.until_ended("t1").await;
    assert_eq!(seen.last().unwrap()["action"]["type"], json!("chat/turnComplete"));
    assert!(!json!(seen).to_string().contains("these words are lost"));
    assert!(json!(seen).to_string().contains("said again"), "{seen:?}");
}

#[tokio::test]
async fn a_session_that_woke_after_a_loss_takes_its_first_action() {
    let idle_timeout = Duration::from_millis(20);
    let scene = Scene::with(HostSettings { idle_timeout, ..HostSettings::default() });
    let mut a = scene.host.client("a").await;
    let chat = a.create_session("ahp-session:/s").await;
    a.subscribe(&chat).await;
    // What falls asleep writes too, and that may be what the disk refuses.
    for attempt in 0.. {
        scene.fail_next();
        let lost = a.dispatch(&chat, draft(&format!("lost {attempt}"))).await;
        if a.echo(lost).await["rejectionReason"].is_string() {
            break;
        }
    }
    eventually("everything sleeps", || scene.host.host.actors() == 0).await;
    let kept = a.dispatch(&chat, draft("kept")).await;
    assert_eq!(a.echo(kept).await.get("rejectionReason"), None);
}

#[tokio::test]
async fn commands_that_were_lost_are_errors_and_leave_nothing_behind() {
    let scene = Scene::start(Durability::Commit);
    let mut a = scene.host.client("a").await;
    let chat = a.create_session("ahp-session:/s").await;
    a.until(|e| e["action"]["activeSessions"] == json!(1)).await;

    let create = json!({ "channel": "ahp-session:/lost", "provider": "demo" });
    scene.fail_next();
    let refused = a.ask("createSession", create.clone()).await.unwrap_err();
    assert_eq!(refused["data"]["code"], json!("log-unavailable"));
    let listed = a.ask("listSessions", json!({ "channel": "ahp-root://" })).await.unwrap();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert!(a.ask("subscribe", json!({ "channel": "ahp-session:/lost" })).await.is_err());
    a.ask("createSession", create).await.expect("the URI is free again");
    a.until(|e| e["action"]["activeSessions"] == json!(2)).await;

    let chat_command = json!({ "channel": "ahp-session:/s", "chat": "ahp-chat:/second" });
    scene.fail_next();
    let refused = a.ask("createChat", chat_command.clone()).await.unwrap_err();
    assert_eq!(refused["data"]["code"], json!("log-unavailable"));
    assert!(a.ask("subscribe", json!({ "channel": "ahp-chat:/second" })).await.is_err());
    a.ask("createChat", chat_command).await.expect("the URI is free again");

    scene.fail_next();
    let refused = a.ask("disposeChat", json!({ "channel": "ahp-chat:/second" })).await.unwrap_err();
    assert_eq!(refused["data"]["code"], json!("log-unavailable"));
    a.dispatch("ahp-chat:/second", draft("still here")).await;
    assert_eq!(a.subscribe("ahp-chat:/second").await["state"]["draft"]["text"], json!("still here"));
    scene.fail_next();
    let refused = a.ask("disposeSession", json!({ "channel": "ahp-session:/s" })).await.unwrap_err();
    assert_eq!(refused["data"]["code"], json!("log-unavailable"));
    assert_eq!(a.subscribe(&chat).await["resource"], json!(chat));
}

#[tokio::test]
async fn a_second_command_of_the_same_name_does_not_rest_on_one_that_is_lost() {
    let scene = Scene::start(Durability::Commit);
    let mut a = scene.host.client("a").await;
    a.create_session("ahp-session:/s").await;
    a.until(|e| e["action"]["activeSessions"] == json!(1)).await;
    scene.gate.hold();
    let command = json!({ "channel": "ahp-session:/s", "chat": "ahp-chat:/second" });
    send(&mut a, "one", "createChat", command.clone()).await;
    scene.gate.wait_until_held();
    scene.queued(NEW_CHAT).await;
    send(&mut a, "two", "createChat", command).await;
    scene.queued(NEW_CHAT + 1).await;
    scene.fail_next();
    scene.gate.release_all();
    for id in ["one", "two"] {
        assert_eq!(answer(&mut a, id).await["error"]["data"]["code"], json!("log-unavailable"));
    }
}

#[tokio::test]
async fn the_root_channel_is_served_after_a_loss_and_says_what_was_lost_again() {
    let scene = Scene::start(Durability::Commit);
    let mut a = scene.host.client("a").await;
    scene.remembered("a").await;
    scene.gate.hold();
    send(&mut a, "create", "createSession", json!({ "channel": "ahp-session:/s", "provider": "demo" })).await;
    scene.gate.wait_until_held();
    scene.gate.release_one();
    answer(&mut a, "create").await;
    scene.gate.wait_until_held();
    scene.fail_next();
    scene.gate.release_all();
    let mut b = Client::connect(scene.host.address).await;
    let shaken = b.initialize("b", &["ahp-root://"]).await;
    assert_eq!(shaken["snapshots"][0]["resource"], json!("ahp-root://"), "{shaken}");
    a.envelope(|e| e["action"]["activeSessions"] == json!(1)).await;
}

#[tokio::test]
async fn an_erasure_that_is_lost_changes_nothing_and_the_root_takes_the_next() {
    let scene = Scene::start(Durability::Commit);
    let mut a = scene.host.client("a").await;
    a.create_session("ahp-session:/s").await;
    a.until(|e| e["action"]["activeSessions"] == json!(1)).await;
    a.ask("disposeSession", json!({ "channel": "ahp-session:/s" })).await.unwrap();
    a.until(|e| e["action"]["activeSessions"] == json!(0)).await;
    scene.fail_next();
    let refused = scene.host.host.erase("root:test", "ahp-session:/s").await.unwrap_err();
    assert_eq!(refused.code, "log-unavailable");
    scene.host.host.erase("root:test", "ahp-session:/s").await.expect("the root goes on");
    a.create_session("ahp-session:/next").await;
    a.until(|e| e["action"]["activeSessions"] == json!(1)).await;
}

#[tokio::test]
async fn with_an_interval_events_are_shown_first_and_are_there_for_whoever_reads_the_log() {
    let scene = Scene::start(Durability::Interval(NEVER));
    let mut a = scene.host.client("a").await;
    let chat = a.create_session("ahp-session:/s").await;
    a.subscribe(&chat).await;
    let seq = a.say(&chat, "t1", "hello").await;
    let shown = a.echo(seq).await["serverSeq"].as_u64().unwrap();
    assert!(shown > scene.tail(), "it was shown before it was on disk");
    let create = json!({ "channel": "ahp-session:/s", "provider": "demo" });
    let twice = a.ask("createSession", create).await.unwrap_err();
    assert_eq!(twice["code"], json!(-32003), "{twice}");
    let cancel = json!({ "type": "chat/turnCancelled", "turnId": "t1", "duration": 0 });
    a.dispatch(&chat, cancel).await;
    a.until_ended("t1").await;
    let again = a.say(&chat, "t1", "the same id").await;
    assert!(a.echo(again).await["rejectionReason"].as_str().unwrap().starts_with("duplicate-turn"));
    assert_eq!(a.subscribe(&chat).await["state"]["turns"][0]["id"], json!("t1"));

    let listed = a.ask("listSessions", json!({ "channel": "ahp-root://" })).await.unwrap();
    assert_eq!(listed["items"][0]["resource"], json!("ahp-session:/s"));
    assert!(scene.tail() >= shown, "a reader of the log waits for the disk");
    let mut b = Client::connect(scene.host.address).await;
    a.dispatch(&chat, draft("newest")).await;
    let newest = a.echo(a.next_seq).await["serverSeq"].as_u64().unwrap();
    assert!(newest > scene.tail());
    let replay = b.reconnect("b", shown, &[&chat]).await;
    let seen: Vec<u64> =
        replay["actions"].as_array().unwrap().iter().map(|e| e["serverSeq"].as_u64().unwrap()).collect();
    assert_eq!(seen.last(), Some(&newest), "{replay}");
}

#[tokio::test]
async fn with_an_interval_the_synonym_of_a_first_chat_is_there_before_the_disk_has_it() {
    let scene = Scene::start(Durability::Interval(NEVER));
    let mut a = scene.host.client("a").await;
    let chat = a.create_session("demo:/s").await;
    a.create_session("ahp-session:/s").await;
    let tail = scene.tail();
    let snapshot = a.subscribe("ahp-chat:/s").await;
    assert_eq!(snapshot["state"]["resource"], json!(chat), "the older session has the name");
    let sent = a.say("ahp-chat:/s", "t", "hello").await;
    let echo = a.echo(sent).await;
    assert_eq!((&echo["channel"], echo.get("rejectionReason")), (&json!("ahp-chat:/s"), None));
    assert_eq!(scene.tail(), tail);

    scene.host.host.writer().barrier().await.unwrap();
    let snapshot = a.subscribe("ahp-chat:/s").await;
    assert_eq!(snapshot["state"]["resource"], json!(chat));
}

#[tokio::test]
async fn with_an_interval_what_was_shown_is_committed_by_itself() {
    let scene = Scene::start(Durability::Interval(Duration::from_millis(20)));
    let mut a = scene.host.client("a").await;
    let chat = a.create_session("ahp-session:/s").await;
    a.subscribe(&chat).await;
    let seq = a.dispatch(&chat, draft("kept")).await;
    let shown = a.echo(seq).await["serverSeq"].as_u64().unwrap();
    eventually("on disk", || scene.tail() >= shown).await;
}

#[tokio::test]
async fn with_an_interval_a_commit_that_fails_refuses_new_work_until_one_succeeds() {
    let scene = Scene::start(Durability::Interval(Duration::from_millis(5)));
    let mut a = scene.host.client("a").await;
    let chat = a.create_session("ahp-session:/s").await;
    a.subscribe(&chat).await;
    a.until(|e| e["action"]["activeSessions"] == json!(1)).await;
    let newest = scene.host.host.writer().handed_over();
    eventually("all is on disk", || scene.tail() >= newest).await;

    scene.gate.hold();
    let shown = a.dispatch(&chat, draft("shown")).await;
    let shown = a.echo(shown).await["serverSeq"].as_u64().unwrap();
    scene.gate.wait_until_held();
    let refused = a.dispatch(&chat, draft("refused")).await;
    scene.queued(CHANGE).await;
    scene.fail_next();
    scene.gate.release_one();
    is_lost(&a.echo(refused).await, shown);
    scene.gate.wait_until_held();
    assert!(scene.tail() < shown);

    scene.gate.release_all();
    eventually("a commit succeeds", || !scene.host.host.writer().is_failing()).await;
    let kept = a.dispatch(&chat, draft("kept")).await;
    let kept = a.echo(kept).await;
    assert_eq!(kept.get("rejectionReason"), None, "{kept}");
    assert!(kept["serverSeq"].as_u64() > Some(shown));
    let replay = a_reader(&scene, &chat, shown - 1).await;
    assert_eq!(replay[0]["serverSeq"], json!(shown));
    assert_eq!(replay[0]["action"]["draft"]["text"], json!("shown"));
    assert_eq!(replay.last().unwrap()["action"]["draft"]["text"], json!("kept"));
}

async fn a_reader(scene: &Scene, chat: &str, after: u64) -> Vec<Value> {
    let mut reader = Client::connect(scene.host.address).await;
    let replay = reader.reconnect("reader", after, &[chat]).await;
    replay["actions"].as_array().unwrap().clone()
}

#[tokio::test]
async fn with_an_interval_numbers_go_on_above_those_that_a_crash_lost() {
    let directory = tempfile::tempdir().unwrap();
    let store = GatedStore::new(SledStore::open(directory.path(), SledOptions::default()).unwrap());
    let gate = store.gate();
    let settings = HostSettings { durability: Durability::Interval(NEVER), ..HostSettings::default() };
    let host = TestHost::start(Arc::new(store), Options { settings, ..Options::default() });
    let mut a = host.client("a").await;
    let chat = a.create_session("ahp-session:/s").await;
    a.subscribe(&chat).await;
    a.ask("listSessions", json!({ "channel": "ahp-root://" })).await.unwrap();
    let lost = a.dispatch(&chat, draft("shown and lost")).await;
    let lost = a.echo(lost).await["serverSeq"].as_u64().unwrap();
    assert!(host.host.store().tail() < lost);
    // The process is gone before the commit.
    gate.fail_next(LogFault::ReadOnly { cause: "a crash".into() });
    host.stop();

    let store = opened(directory.path());
    assert!(store.tail() < lost && store.next_seq() > lost);
    let host = TestHost::start(Arc::new(store), Options::default());
    let mut a = Client::connect(host.address).await;
    let back = a.reconnect("a", lost, &[&chat]).await;
    assert_eq!(back["type"], json!("snapshot"), "what it saw is not in the log: {back}");
    let kept = a.dispatch(&chat, draft("kept")).await;
    assert!(a.echo(kept).await["serverSeq"].as_u64() > Some(lost));
}

#[tokio::test]
async fn a_store_that_is_read_only_serves_reads_and_refuses_every_change() {
    let scene = Scene::start(Durability::Commit);
    let mut a = scene.host.client("a").await;
    let chat = a.create_session("ahp-session:/s").await;
    a.until(|e| e["action"]["activeSessions"] == json!(1)).await;
    let before = a.subscribe(&chat).await;
    scene.gate.fail_next(LogFault::ReadOnly { cause: "the disk is gone".into() });
    for text in ["one", "two", "three"] {
        let refused = a.dispatch(&chat, draft(text)).await;
        is_lost(&a.echo(refused).await, scene.host.host.writer().handed_over());
    }
    let mut b = scene.host.client("b").await;
    assert_eq!(b.subscribe(&chat).await, before);
    assert!(!b.drain().await.iter().any(|m| is_ending(&m["params"]["action"])));
}

#[tokio::test]
async fn what_floods_a_session_while_the_disk_is_slow_is_busy_and_bounded() {
    // One connection alone would be read later: this is what many do together.
    let protocol =
        ProtocolSettings { max_actions_in_flight: 10_000, max_received: 1 << 30, ..ProtocolSettings::default() };
    let scene = Scene::of(Options { protocol, ..Options::default() });
    let mut client = scene.host.client("flood").await;
    client.create_session("ahp-session:/flood").await;
    client.subscribe("ahp-session:/flood").await;
    scene.gate.hold();
    let title = "x".repeat(4_000);
    for n in 0..700 {
        let action = json!({ "type": "session/titleChanged", "title": format!("{title}{n}") });
        client.dispatch("ahp-session:/flood", action).await;
    }
    eventually("much is refused", || scene.host.host.writer().queued() >= 1_500).await;
    scene.gate.release_all();
    let seen = client.until(|envelope| envelope["origin"]["clientSeq"] == json!(700)).await;
    let busy = |e: &&Value| e["rejectionReason"].as_str().is_some_and(|reason| reason.starts_with("busy: "));
    assert!(seen.iter().filter(busy).count() > 10);
    let next = client.dispatch("ahp-session:/flood", json!({ "type": "session/titleChanged", "title": "calm" })).await;
    assert_eq!(client.echo(next).await.get("rejectionReason"), None);
}
