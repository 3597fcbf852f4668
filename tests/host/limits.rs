//! Turns that end at a limit of a plan or of an overloaded model: taken up when it lifts, unless somebody wishes otherwise.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use scrollback::actors::agent::{Ending, LimitKind};
use scrollback::actors::host::HostSettings;
use scrollback::clock::Clock;
use scrollback::events::memory::MemoryStore;
use scrollback::events::{Record, ServerSeq, Store, Table};
use serde_json::{Value, json};

use crate::harness::{Client, Options, RecordingAgent, TestHost, eventually, is_ending, laws, markdown, message};

const S: &str = "ahp-session:/s";
const NOW: i64 = 1_795_996_800_000;

/// A host whose clock a test moves.
struct Scene {
    host: TestHost,
    clock: Clock,
    client: Client,
    chat: String,
}

impl Scene {
    async fn new() -> Self {
        Self::with(Options::default()).await
    }

    async fn with(options: Options) -> Self {
        let clock = Clock::fixed(NOW);
        let host = TestHost::with(Options { clock: clock.clone(), ..options });
        let mut client = host.client("c").await;
        let chat = client.create_session(S).await;
        client.subscribe(&chat).await;
        client.subscribe(S).await;
        Self { host, clock, client, chat }
    }

    async fn run(&mut self, turn: &str, script: &str) -> Value {
        let chat = self.chat.clone();
        self.client.run(&chat, turn, script).await.pop().unwrap()["action"].clone()
    }

    /// What of the host's own records is about resumes, in order.
    fn facts(&self) -> Vec<String> {
        facts(self.host.host.store().as_ref())
    }

    /// How many resumes are owed, as a start would read it.
    fn owed(&self) -> usize {
        owed(self.host.host.store().as_ref())
    }

    /// Nothing is taken up, however late it gets: an hour and a turn of somebody else later all is as it was.
    async fn stays(&mut self) {
        self.clock.advance(3_600_000);
        eventually("nothing is owed", || self.owed() == 0).await;
        let peer = format!("ahp-chat:/peer-{}", self.clock.now());
        self.client.create_chat(S, &peer).await;
        self.client.subscribe(&peer).await;
        self.client.run(&peer, "p", "/say on").await;
        assert!(!self.facts().contains(&"host/resumeDue".to_owned()), "{:?}", self.facts());
        scrollback::projections::verify::verify(self.host.host.store().as_ref(), &mut |_| ()).unwrap();
    }
}

fn facts(store: &dyn Store) -> Vec<String> {
    let mut all = Vec::new();
    let mut visit = |record: Record| {
        let action: Value = serde_json::from_slice(&record.action).unwrap();
        let kind = action["type"].as_str().unwrap();
        if kind.starts_with("host/resume") {
            all.push(kind.to_owned());
        }
        ControlFlow::Continue(())
    };
    store.scan(0, ServerSeq::MAX, &mut visit).unwrap();
    all
}

fn owed(store: &dyn Store) -> usize {
    let mut rows = 0;
    let mut count = |_: &[u8], _: &[u8]| {
        rows += 1;
        ControlFlow::Continue(())
    };
    store.scan_rows(Table::Owed, &[], None, &mut count).unwrap();
    rows
}

fn cancel(turn: &str) -> Value {
    json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 })
}

fn configured(config: Value) -> Value {
    json!({ "type": "session/configChanged", "config": config })
}

#[tokio::test]
async fn a_turn_at_a_limit_says_which_one_and_when_it_lifts_and_pauses_the_queue() {
    let mut scene = Scene::new().await;
    for (turn, script, kind, limit) in [
        ("t1", "/limit usage 60", "usage-limit", json!({ "kind": "usage", "resetsAt": "2026-11-30T00:01:00.000Z" })),
        ("t2", "/limit usage", "usage-limit", json!({ "kind": "usage" })),
        (
            "t3",
            "/limit overload 5",
            "overloaded",
            json!({ "kind": "overload", "resetsAt": "2026-11-30T00:00:05.000Z" }),
        ),
        ("t4", "/limit overload", "overloaded", json!({ "kind": "overload" })),
    ] {
        let ending = scene.run(turn, script).await;
        assert_eq!(ending["type"], json!("chat/error"));
        let part = &ending["part"];
        assert_eq!((&part["error"]["errorType"], &part["resumable"]), (&json!(kind), &json!(true)));
        let at = &part["error"]["_meta"]["scrollback.limit"];
        assert_eq!(at["kind"], limit["kind"]);
        assert_eq!(at.get("resetsAt").is_some(), limit.get("resetsAt").is_some(), "{at}");
    }
    let chat = scene.chat.clone();
    scene.client.say(&chat, "t5", "/question a\n/limit usage").await;
    let asked = scene.client.until_type("chat/inputRequested").await["action"]["request"]["id"].clone();
    let queued = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": "m", "message": message("x") });
    scene.client.accepted(&chat, queued).await;
    let skip = json!({ "type": "chat/inputCompleted", "requestId": asked, "response": "decline" });
    scene.client.dispatch(&chat, skip).await;
    scene.client.until_ended("t5").await;
    let session = scene.client.subscribe(S).await["state"].clone();
    assert_eq!(session["_meta"]["scrollback.pausedQueues"], json!([chat]));
}

#[tokio::test]
async fn a_limited_turn_is_taken_up_when_the_limit_lifts_and_not_before() {
    let mut scene = Scene::new().await;
    scene.run("t", "/say a\n/limit usage 60\n/say b").await;
    eventually("it is owed", || scene.owed() == 1).await;
    scene.clock.advance(59_999);
    scene.client.create_chat(S, "ahp-chat:/peer").await;
    assert_eq!(scene.facts(), ["host/resumeOwed"]);
    scene.clock.advance(1);
    let seen = scene.client.until_ended("t").await;
    let resumed = seen.iter().find(|e| e["action"]["type"] == json!("chat/turnResume")).unwrap();
    assert_eq!(resumed.get("origin"), None, "the host did it");
    let end = &seen.last().unwrap()["action"];
    assert_eq!((&end["type"], &end["duration"]), (&json!("chat/turnComplete"), &json!(60_000)));
    let chat = scene.chat.clone();
    let turn = scene.client.subscribe(&chat).await["state"]["turns"][0].clone();
    assert_eq!(markdown(&turn), ["a ", "b "]);
    eventually("nothing is owed", || scene.owed() == 0).await;
    assert_eq!(scene.facts(), ["host/resumeOwed", "host/resumeDue"]);
    scrollback::projections::verify::verify(scene.host.host.store().as_ref(), &mut |_| ()).unwrap();
    assert_eq!(laws::check(scene.host.host.store().as_ref()), [] as [String; 0]);
}

#[tokio::test]
async fn an_overload_without_a_time_is_tried_after_1_5_and_15_minutes_and_then_waits_for_a_person() {
    let mut scene = Scene::new().await;
    let chat = scene.chat.clone();
    scene.run("t", &"/limit overload\n".repeat(5)).await;
    for minutes in [1, 5, 15] {
        eventually("it is owed", || scene.owed() == 1).await;
        scene.clock.advance(minutes * 60_000 - 1);
        scene.client.drain().await;
        assert_eq!(scene.owed(), 1, "{minutes} minutes are not over");
        scene.clock.advance(1);
        scene.client.until_type("chat/turnResume").await;
        scene.client.until_ended("t").await;
    }
    assert_eq!(scene.owed(), 0);
    let due = scene.facts().iter().filter(|kind| *kind == "host/resumeDue").count();
    assert_eq!(due, 3);
    assert!(crate::harness::met("limit_resumes") > 0);
    scene.clock.advance(86_400_000);
    scene.client.accepted(&chat, json!({ "type": "chat/turnResume", "turnId": "t" })).await;
    scene.client.until_ended("t").await;
    assert_eq!(scene.owed(), 0, "a person's own resume is one more in a row");
    scene.run("t2", "/say fine").await;
    scene.run("t3", "/limit overload").await;
    assert_eq!(scene.owed(), 1, "a turn that completed ends the row");
}

#[tokio::test]
async fn a_usage_limit_without_a_time_waits_for_a_person() {
    let mut scene = Scene::new().await;
    scene.run("t", "/limit usage\n/say b").await;
    assert_eq!((scene.owed(), scene.facts().len()), (0, 0));
    let chat = scene.chat.clone();
    scene.clock.advance(86_400_000);
    scene.client.accepted(&chat, json!({ "type": "chat/turnResume", "turnId": "t" })).await;
    assert_eq!(scene.client.until_ended("t").await.pop().unwrap()["action"]["type"], json!("chat/turnComplete"));
}

#[tokio::test]
async fn whatever_somebody_does_instead_lets_the_owed_resume_lapse() {
    let start = json!({ "type": "chat/turnStarted", "turnId": "own", "startedAt": "2026-11-30T12:00:00.000Z",
        "message": message("/say own") });
    let queue = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": "m", "message": message("/say q") });
    let resume = json!({ "type": "chat/turnResume", "turnId": "t" });
    for action in [start, queue, resume] {
        let mut scene = Scene::new().await;
        scene.run("t", "/limit usage 60\n/say b").await;
        assert_eq!(scene.owed(), 1);
        let chat = scene.chat.clone();
        scene.client.accepted(&chat, action.clone()).await;
        scene.client.envelope(|e| is_ending(&e["action"])).await;
        assert_eq!(scene.owed(), 0, "{action}");
        scene.stays().await;
    }
}

#[tokio::test]
async fn going_back_and_starting_over_let_the_owed_resume_lapse() {
    for to in [Some("t0"), Some("t"), None] {
        let mut scene = Scene::new().await;
        let chat = scene.chat.clone();
        scene.run("t0", "/say before").await;
        scene.run("t", "/limit usage 60\n/say b").await;
        assert_eq!(scene.owed(), 1);
        match to {
            Some(turn) => {
                let back = json!({ "type": "chat/truncated", "turnId": turn });
                drop(scene.client.accepted(&chat, back).await);
            }
            None => drop(scene.client.ask("x-scrollback/clear", json!({ "channel": chat })).await.unwrap()),
        }
        assert_eq!(scene.owed(), 0, "{to:?}");
        scene.stays().await;
    }
}

#[tokio::test]
async fn stopping_a_limited_turn_lets_its_resume_lapse_and_is_heard_by_its_sender_alone() {
    let mut scene = Scene::new().await;
    let chat = scene.chat.clone();
    let mut other = scene.host.client("d").await;
    other.subscribe(&chat).await;
    scene.run("t", "/limit usage 60\n/say b").await;
    other.until_ended("t").await;
    assert_eq!(scene.client.rejected(&chat, cancel("none")).await, "no-active-turn");
    assert_eq!(scene.owed(), 1);
    let echo = scene.client.accepted(&chat, cancel("t")).await;
    assert_eq!(echo["action"]["turnId"], json!("t"));
    assert_eq!((scene.owed(), scene.facts()), (0, vec!["host/resumeOwed".into(), "host/resumeLapsed".into()]));
    assert_eq!(scene.client.rejected(&chat, cancel("t")).await, "no-active-turn");
    scene.stays().await;
    let heard = other.drain().await;
    assert!(!heard.iter().any(|m| m["params"]["action"]["turnId"] == json!("t")), "{heard:?}");
    let state = scene.client.subscribe(&chat).await["state"].clone();
    assert_eq!((&state["turns"][0]["state"], &state["status"]), (&json!("error"), &json!(2)));
    // The turn itself can still be resumed by somebody.
    scene.client.accepted(&chat, json!({ "type": "chat/turnResume", "turnId": "t" })).await;
    assert_eq!(scene.client.until_ended("t").await.pop().unwrap()["action"]["type"], json!("chat/turnComplete"));
    assert_eq!(laws::check(scene.host.host.store().as_ref()), [] as [String; 0]);
}

#[tokio::test]
async fn turned_off_for_the_session_or_for_the_chat_nothing_is_owed_and_what_is_owed_lapses() {
    for off in [json!({ "resumeAtReset": false }), json!({ "resumeAtResetOff": ["CHAT", "ahp-chat:/other"] })] {
        let mut scene = Scene::new().await;
        let off = json_with(&off, &scene.chat);
        scene.run("t", "/limit usage 60\n/say b").await;
        assert_eq!(scene.owed(), 1);
        scene.client.accepted(S, configured(off.clone())).await;
        eventually("it lapses", || scene.owed() == 0).await;
        scene.run("t2", "/limit usage 60").await;
        assert_eq!(scene.owed(), 0, "{off}");
        let on = json!({ "resumeAtReset": true, "resumeAtResetOff": ["ahp-chat:/other"] });
        scene.client.accepted(S, configured(on)).await;
        scene.stays().await;
        scene.run("t3", "/limit usage 60").await;
        assert_eq!(scene.owed(), 1, "it is on again");
    }
}

fn json_with(value: &Value, chat: &str) -> Value {
    serde_json::from_str(&value.to_string().replace("CHAT", chat)).unwrap()
}

#[tokio::test]
async fn the_configuration_of_every_session_has_it_and_is_checked() {
    let mut scene = Scene::new().await;
    let config = scene.client.subscribe(S).await["state"]["config"].clone();
    assert_eq!((&config["values"]["resumeAtReset"], &config["values"]["resumeAtResetOff"]), (&json!(true), &json!([])));
    assert_eq!(config["schema"]["properties"]["resumeAtReset"]["sessionMutable"], json!(true));
    let resolved =
        scene.client.ask("resolveSessionConfig", json!({ "channel": "ahp-root://", "provider": "demo" })).await;
    assert_eq!(resolved.unwrap()["values"]["resumeAtReset"], json!(true));
    for wrong in
        [json!({ "resumeAtReset": "no" }), json!({ "resumeAtResetOff": "x" }), json!({ "resumeAtResetOff": [1] })]
    {
        assert_eq!(scene.client.rejected(S, configured(wrong.clone())).await, "malformed", "{wrong}");
    }
    let params = json!({ "channel": "ahp-session:/off", "provider": "demo", "config": { "resumeAtReset": false } });
    scene.client.ask("createSession", params).await.unwrap();
    let chat = crate::harness::chat_of("ahp-session:/off");
    scene.client.subscribe(&chat).await;
    scene.client.run(&chat, "t", "/limit usage 5").await;
    assert_eq!(scene.owed(), 0);
}

#[tokio::test]
async fn an_owed_resume_outlives_a_restart_and_a_chat_that_sleeps() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::fixed(NOW);
    let options = || {
        let settings = HostSettings { idle_timeout: Duration::from_millis(20), ..HostSettings::default() };
        Options { clock: clock.clone(), settings, ..Options::default() }
    };
    let host = TestHost::on_disk_with(directory.path(), options());
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    client.run(&chat, "t", "/say a\n/limit usage 60\n/limit overload 60\n/say b").await;
    eventually("everybody sleeps", || host.host.actors() == 0).await;
    assert_eq!(owed(host.host.store().as_ref()), 1);
    clock.advance(60_000);
    client.until_type("chat/turnResume").await;
    client.until_ended("t").await;
    host.stop();

    // It falls due while the host is down.
    clock.advance(3_600_000);
    let host = TestHost::on_disk_with(directory.path(), options());
    let mut client = host.client("d").await;
    let state = client.subscribe(&chat).await["state"].clone();
    let running = state.get("activeTurn").is_some() || state["turns"][0]["state"] == json!("error");
    if running {
        client.until_type("chat/turnComplete").await;
    }
    let turn = client.subscribe(&chat).await["state"]["turns"][0].clone();
    assert_eq!((markdown(&turn), &turn["state"]), (vec!["a ".to_owned(), "b ".to_owned()], &json!("complete")));
    scrollback::projections::verify::verify(host.host.store().as_ref(), &mut |_| ()).unwrap();
}

#[tokio::test]
async fn turning_it_off_reaches_a_chat_that_sleeps_and_a_disposal_leaves_nothing_owed() {
    let settings = HostSettings { idle_timeout: Duration::from_millis(20), ..HostSettings::default() };
    let mut scene = Scene::with(Options { settings, ..Options::default() }).await;
    scene.run("t", "/limit usage 60").await;
    eventually("everybody sleeps", || scene.host.host.actors() == 0).await;
    scene.client.accepted(S, configured(json!({ "resumeAtReset": false }))).await;
    eventually("it lapses", || scene.owed() == 0).await;
    scene.client.accepted(S, configured(json!({ "resumeAtReset": true }))).await;
    scene.client.create_chat(S, "ahp-chat:/peer").await;
    scene.client.subscribe("ahp-chat:/peer").await;
    for (method, channel) in [("disposeChat", "ahp-chat:/peer"), ("disposeSession", S)] {
        let chat = if method == "disposeChat" { "ahp-chat:/peer".to_owned() } else { scene.chat.clone() };
        scene.client.run(&chat, "u", "/limit usage 60").await;
        eventually("everybody sleeps", || scene.host.host.actors() == 0).await;
        assert_eq!(scene.owed(), 1);
        scene.client.ask(method, json!({ "channel": channel })).await.unwrap();
        assert_eq!(scene.owed(), 0, "{method}");
    }
    scrollback::projections::verify::verify(scene.host.host.store().as_ref(), &mut |_| ()).unwrap();
}

#[tokio::test]
async fn the_agent_of_a_limited_turn_is_prompted_when_the_resume_is_in_the_log() {
    let agent = RecordingAgent::new();
    let clock = Clock::fixed(NOW);
    let options = Options { agents: vec![Arc::new(agent.clone())], clock: clock.clone(), ..Options::default() };
    let host = TestHost::start(Arc::new(MemoryStore::new().unwrap()), options);
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    client.say(&chat, "t", "hello").await;
    eventually("it is prompted", || agent.prompts() == ["t"]).await;
    // What has lifted already is taken up at once.
    let limited = Ending::Limited { kind: LimitKind::Usage, message: "no".into(), resets_at: Some(NOW - 5_000) };
    agent.ended("t", limited).await;
    eventually("it is prompted again", || agent.prompts() == ["t", "t"]).await;
    assert_eq!((agent.last_prompt().attempt, agent.starts()), (1, 1));
    let facts = facts(host.host.store().as_ref());
    assert_eq!(facts, ["host/resumeOwed", "host/resumeDue"]);
}
