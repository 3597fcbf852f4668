//! How turns end, and how one that ended in an error is taken up again by somebody.

use std::ops::ControlFlow;
use std::sync::Arc;

use scrollback::actors::agent::{AgentEvent, Ending};
use scrollback::clock::Clock;
use scrollback::events::gated::GatedStore;
use scrollback::events::memory::MemoryStore;
use scrollback::events::{Record, ServerSeq, Store};
use serde_json::{Value, json};

use crate::harness::{Client, Options, RecordingAgent, TestHost, eventually, laws, markdown, message, on, types, word};

const S: &str = "ahp-session:/s";

fn resume(turn: &str) -> Value {
    json!({ "type": "chat/turnResume", "turnId": turn })
}

/// Every record of the log, whole.
fn records(store: &dyn Store) -> Vec<Record> {
    let mut all = Vec::new();
    store
        .scan(0, ServerSeq::MAX, &mut |record| {
            all.push(record);
            ControlFlow::Continue(())
        })
        .unwrap();
    all
}

fn verified(host: &TestHost) {
    scrollback::projections::verify::verify(host.host.store().as_ref(), &mut |_| ()).unwrap();
    assert_eq!(laws::check(host.host.store().as_ref()), [] as [String; 0]);
}

fn kinds(turn: &Value) -> Vec<&str> {
    turn["responseParts"].as_array().unwrap().iter().map(|part| part["kind"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_turn_that_is_resumed_goes_on_as_the_same_turn_after_the_step_that_failed() {
    let clock = Clock::fixed(1_795_996_800_000);
    let host = TestHost::with(Options { clock: clock.clone(), ..Options::default() });
    let (mut client, chat) = host.open(&[]).await;
    let mut other = host.client("d").await;
    other.subscribe(&chat).await;
    other.subscribe(S).await;
    client.run(&chat, "t", "/say a\n/fail-resumable broke\n/say b").await;
    other.until_ended("t").await;
    client.accepted(&chat, json!({ "type": "chat/isReadChanged", "isRead": true })).await;
    clock.advance(4_000);
    let mut forged = resume("t");
    forged["_meta"] = json!({ "scrollback.x": 1, "theirs": 2 });
    let echo = client.accepted(&chat, forged).await;
    assert_eq!(echo["action"]["_meta"], json!({ "theirs": 2 }));
    let ending = client.until_ended("t").await.pop().unwrap();
    assert_eq!(ending["action"]["type"], json!("chat/turnComplete"));
    assert_eq!(ending["action"]["duration"], json!(4_000), "from the start of the turn");
    let heard = other.until_ended("t").await;
    assert_eq!(on(&heard, &chat).iter().filter(|e| e["action"]["type"] == json!("chat/turnResume")).count(), 1);
    let mirrored: Vec<Value> = on(&heard, S).iter().map(|e| e["action"]["changes"]["status"].clone()).collect();
    assert!(mirrored.contains(&json!(8)), "the session hears that it runs again, unread: {mirrored:?}");
    let state = client.subscribe(&chat).await["state"].clone();
    let turn = &state["turns"][0];
    assert_eq!(
        (state["turns"].as_array().unwrap().len(), &turn["id"], &turn["state"]),
        (1, &json!("t"), &json!("complete"))
    );
    assert_eq!(
        (markdown(turn), kinds(turn)),
        (vec!["a ".to_owned(), "b ".to_owned()], vec!["markdown", "error", "markdown"])
    );
    verified(&host);
}

#[tokio::test]
async fn a_turn_may_fail_and_be_resumed_again_and_again() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    client.run(&chat, "t", "/fail-resumable one\n/crash\n/fail-resumable three\n/fail four\n/say five").await;
    for (n, kind) in ["agent-gone", "demo", "demo"].into_iter().enumerate() {
        client.dispatch(&chat, resume("t")).await;
        let part = client.until_ended("t").await.pop().unwrap()["action"]["part"].clone();
        assert_eq!(part["error"]["errorType"], json!(kind));
        assert_eq!(part.get("resumable").is_some(), n < 2, "{part}");
    }
    assert_eq!(client.rejected(&chat, resume("t")).await, "malformed");
    let state = client.subscribe(&chat).await["state"].clone();
    assert_eq!((kinds(&state["turns"][0]), &state["status"]), (vec!["error"; 4], &json!(2)));
    verified(&host);
}

#[tokio::test]
async fn a_resume_goes_on_after_the_step_that_failed_also_when_the_host_was_started_anew() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let (mut client, chat) = host.open(&[]).await;
    client.run(&chat, "t1", "/say before").await;
    client.run(&chat, "t2", "/say a\n/crash\n/say b\n/history").await;
    host.stop();
    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("d").await;
    client.subscribe(&chat).await;
    client.accepted(&chat, resume("t2")).await;
    let ending = client.until_ended("t2").await.pop().unwrap();
    assert_eq!(ending["action"]["type"], json!("chat/turnComplete"));
    let state = client.subscribe(&chat).await["state"].clone();
    let said = markdown(&state["turns"][1]);
    assert_eq!((said[0].as_str(), state["turns"].as_array().unwrap().len()), ("a ", 2));
    assert!(said[1].starts_with("b \n[") && said[1].contains("before"), "{said:?}");
    verified(&host);
}

#[tokio::test]
async fn a_resume_that_is_refused_changes_nothing() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    assert_eq!(client.rejected(&chat, resume("none")).await, "unknown-turn");
    client.run(&chat, "t1", "/fail-resumable one").await;
    client.run(&chat, "t2", "/say done").await;
    let mut before = records(host.host.store().as_ref());
    let mut refuse = async |client: &mut Client, cases: &[(Value, &str)]| {
        for (action, code) in cases {
            let envelope = client.act(&chat, action.clone()).await;
            assert_eq!((word(&envelope).as_str(), &envelope["action"]), (*code, action));
            let after = records(host.host.store().as_ref());
            assert_eq!(after, before, "{action}");
            before = after;
        }
    };
    let cancel = |turn: &str| json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 });
    refuse(
        &mut client,
        &[
            (resume("t1"), "unknown-turn"),
            (resume(""), "unknown-turn"),
            (resume("t2"), "malformed"),
            (json!({ "type": "chat/turnResume" }), "malformed"),
            (json!({ "type": "chat/turnResume", "turnId": 2 }), "malformed"),
            (cancel("t1"), "no-active-turn"),
            (cancel("t2"), "no-active-turn"),
            (cancel("none"), "no-active-turn"),
            (json!({ "type": "chat/turnCancelled", "turnId": "t2" }), "malformed"),
        ],
    )
    .await;
    for (turn, script, end) in [("t3", "/fail no", ""), ("t4", "/question sure?", "cancelled")] {
        client.say(&chat, turn, script).await;
        if end == "cancelled" {
            client.until_type("chat/inputRequested").await;
            before = records(host.host.store().as_ref());
            for named in [turn, "t1", "none"] {
                assert_eq!(client.rejected(&chat, resume(named)).await, "turn-in-progress");
            }
            assert_eq!(client.rejected(&chat, cancel("t1")).await, "no-active-turn");
            assert_eq!(records(host.host.store().as_ref()), before);
            client.dispatch(&chat, cancel(turn)).await;
        }
        client.until_ended(turn).await;
        assert_eq!(client.rejected(&chat, resume(turn)).await, "malformed", "{turn}");
    }
    verified(&host);
}

#[tokio::test]
async fn the_agent_hears_of_a_resume_when_it_is_on_disk_and_not_before() {
    let store = GatedStore::new(MemoryStore::new().unwrap());
    let gate = store.gate();
    let agent = RecordingAgent::new();
    let host = TestHost::start(Arc::new(store), Options::of(&agent));
    let (mut client, chat) = host.open(&[]).await;
    client.say(&chat, "t", "hello").await;
    eventually("it is prompted", || agent.prompts() == ["t"]).await;
    let failed = |text: &str| Ending::Failed { error_type: "x".into(), message: text.into(), resumable: true };
    agent.ended("t", failed("one")).await;
    client.until_ended("t").await;
    gate.hold();
    let seq = client.dispatch(&chat, resume("t")).await;
    gate.wait_until_held();
    assert_eq!(agent.prompts(), ["t"]);
    gate.release_all();
    client.echo(seq).await;
    eventually("it is prompted again", || agent.prompts() == ["t", "t"]).await;
    let prompt = agent.last_prompt();
    let blocks = serde_json::to_value(&prompt.blocks).unwrap();
    assert_eq!((prompt.attempt, agent.starts(), &blocks[0]["text"]), (1, 1, &json!("hello")));
    assert_eq!(blocks[1]["text"], json!(scrollback::config::RESUME_WORDS));
    agent.says("t", "more").await;
    agent.ended("t", Ending::Complete).await;
    client.until_ended("t").await;
    client.say(&chat, "u", "next").await;
    eventually("the next turn is a first attempt", || agent.prompts() == ["t", "t", "u"]).await;
    let prompt = agent.last_prompt();
    assert_eq!((prompt.attempt, prompt.blocks.len()), (0, 1));
}

#[tokio::test]
async fn a_resumed_turn_that_completes_lifts_the_pause_of_the_queue() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    client.subscribe(S).await;
    client.say(&chat, "t", "/question a\n/fail-resumable one\n/fail-resumable two\n/say b").await;
    let asked = client.until_type("chat/inputRequested").await["action"]["request"]["id"].clone();
    let queued =
        json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": "m", "message": message("/say next") });
    client.accepted(&chat, queued).await;
    client.dispatch(&chat, json!({ "type": "chat/inputCompleted", "requestId": asked, "response": "decline" })).await;
    client.until_ended("t").await;
    for _ in 0..2 {
        let session = client.subscribe(S).await["state"].clone();
        assert_eq!(session["_meta"]["scrollback.pausedQueues"], json!([chat]), "a resume alone lifts nothing");
        client.dispatch(&chat, resume("t")).await;
        client.until_ended("t").await;
    }
    let sent = client.until_type("chat/turnStarted").await;
    assert_eq!(sent["action"]["queuedMessageId"], json!("m"));
    client.until_type("chat/turnComplete").await;
    assert_eq!(client.subscribe(S).await["state"]["_meta"]["scrollback.pausedQueues"], json!([]));
    verified(&host);
}

/// The process that asked it has ended the turn: it hears no answer any more.
#[tokio::test]
async fn a_question_that_was_open_when_the_turn_failed_is_closed_when_it_is_resumed() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    client.subscribe(S).await;
    client.run(&chat, "t", "/question-async why?\n/fail-resumable one\n/question really?\n/say b").await;
    client.dispatch(&chat, resume("t")).await;
    let seen = client.until(|e| e["action"]["type"] == json!("chat/inputRequested")).await;
    assert_eq!(types(&on(&seen, &chat)).first(), Some(&"chat/turnResume"));
    let closed = seen.iter().find(|e| e["action"]["type"] == json!("chat/inputCompleted")).expect("it is closed");
    assert_eq!(closed["action"]["response"], json!("cancel"));
    let needed = client.subscribe(S).await["state"]["inputNeeded"].clone();
    assert_eq!(needed.as_array().unwrap().len(), 1, "{needed}");
    client.cancel(&chat, "t").await;
    client.until_ended("t").await;
    verified(&host);
}

/// Where something drops a running turn, its ending comes first, in the same batch.
#[tokio::test]
async fn a_disposal_ends_the_running_turn_first_in_the_same_batch() {
    for (method, channel) in [("disposeChat", "ahp-chat:/peer"), ("disposeSession", S)] {
        let host = TestHost::in_memory();
        let (mut client, _) = host.open(&[]).await;
        client.create_chat(S, "ahp-chat:/peer").await;
        client.subscribe("ahp-chat:/peer").await;
        client.say("ahp-chat:/peer", "t", "/ask-tool rm x").await;
        client.until_type("chat/toolCallReady").await;
        client.ask(method, json!({ "channel": channel })).await.unwrap();
        let all = records(host.host.store().as_ref());
        let end = all.iter().position(|record| kind(record) == "chat/turnCancelled").unwrap();
        let batch = all[end].batch;
        assert_eq!(all[end].seq, batch.0, "{method}: the ending comes first");
        let rest: Vec<String> = all[end..].iter().take_while(|r| r.batch == batch).map(kind).collect();
        let goes = if method == "disposeChat" { "session/chatRemoved" } else { "host/sessionDisposed" };
        assert!(rest.iter().any(|kind| kind == goes), "{method}: {rest:?}");
        assert!(rest.iter().any(|kind| kind == "session/inputNeededRemoved"), "{method}: {rest:?}");
        assert_eq!(laws::check(host.host.store().as_ref()), [] as [String; 0]);
    }
}

fn kind(record: &Record) -> String {
    let action: Value = serde_json::from_slice(&record.action).unwrap();
    action["type"].as_str().unwrap().to_owned()
}

/// An agent says what it does before it hears that its turn was stopped: nobody is told that of a chat in which nothing runs.
#[tokio::test]
async fn what_an_agent_says_that_it_does_after_its_turn_is_not_shown() {
    let agent = RecordingAgent::new();
    let host = TestHost::with(Options { agents: vec![Arc::new(agent.clone())], ..Options::default() });
    let (mut client, chat) = host.open(&[]).await;
    client.say(&chat, "t", "hello").await;
    eventually("it is prompted", || agent.prompts() == ["t"]).await;
    client.cancel(&chat, "t").await;
    client.until_ended("t").await;
    agent.emits(AgentEvent::Activity { text: Some("digging".into()) }).await;
    agent.emits(AgentEvent::Remember { key: "later".into(), value: json!(1) }).await;
    let said = |record: &Record| serde_json::from_slice::<Value>(&record.action).unwrap()["key"] == json!("later");
    eventually("it is heard", || records(host.host.store().as_ref()).iter().any(said)).await;
    assert_eq!(client.subscribe(&chat).await["state"].get("activity"), None);
}
