//! Turns that a crash or a stop of the host interrupted: taken up on a new process, or ended with a reason.

use std::ops::ControlFlow;
use std::sync::Arc;

use ahp_types::common::JsonObject;
use ahp_types::state::{AgentInfo, SessionConfigSchema};
use scrollback::actors::agent::{
    Agent, AgentEvent, AgentExtras, AgentInput, AgentProcess, AgentSink, Ending, ProcessStart, ToolAsk,
};
use scrollback::actors::host::HostSettings;
use scrollback::events::{Record, ServerSeq, Store};
use serde_json::{Value, json};

use crate::command::{Host, scrollback};
use crate::harness::{
    Client, Options, RecordingAgent, TestHost, Watched, eventually, is_ending, laws, markdown, message, types,
};

const S: &str = "ahp-session:/s";

fn notice(turn: &Value) -> Option<String> {
    let parts = turn["responseParts"].as_array().unwrap();
    let notice = parts.iter().find(|part| part["kind"] == json!("systemNotification"))?;
    Some(notice["content"].as_str().unwrap().to_owned())
}

/// The types of all records of the log.
fn kinds(store: &dyn Store) -> Vec<String> {
    let mut all = Vec::new();
    let mut visit = |record: Record| {
        let action: Value = serde_json::from_slice(&record.action).unwrap();
        all.push(action["type"].as_str().unwrap().to_owned());
        ControlFlow::Continue(())
    };
    store.scan(0, ServerSeq::MAX, &mut visit).unwrap();
    all
}

fn verified(host: &TestHost) {
    scrollback::projections::verify::verify(host.host.store().as_ref(), &mut |_| ()).unwrap();
}

#[tokio::test]
async fn a_turn_that_a_stop_froze_is_handed_to_a_new_process_which_is_told_so() {
    let directory = tempfile::tempdir().unwrap();
    let first = RecordingAgent::new();
    let host = TestHost::on_disk_with(directory.path(), Options::of(&first));
    let (mut client, chat) = host.open(&[]).await;
    client.say(&chat, "t", "hello").await;
    eventually("it is prompted", || first.prompts() == ["t"]).await;
    first.says("t", "half ").await;
    client.until_type("chat/delta").await;
    host.stop();

    let second = RecordingAgent::new();
    let settings = HostSettings { resume_words: "Go on.".into(), ..HostSettings::default() };
    let host = TestHost::on_disk_with(directory.path(), Options { settings, ..Options::of(&second) });
    let attempts = kinds(host.host.store().as_ref()).iter().filter(|kind| *kind == "host/attempt").count();
    assert_eq!(attempts, 1, "it is in the log when the start is done");
    eventually("a new process is prompted", || second.prompts() == ["t"]).await;
    let prompt = second.last_prompt();
    let blocks = serde_json::to_value(&prompt.blocks).unwrap();
    assert_eq!(
        (prompt.attempt, blocks),
        (1, json!([{ "type": "text", "text": "hello" }, { "type": "text", "text": "Go on." }]))
    );
    let mut client = host.client("c").await;
    client.subscribe(&chat).await;
    second.says("t", "whole").await;
    second.ended("t", Ending::Complete).await;
    client.until_ended("t").await;
    let turn = client.subscribe(&chat).await["state"]["turns"][0].clone();
    assert_eq!((markdown(&turn), &turn["state"]), (vec!["half ".to_owned(), "whole".to_owned()], &json!("complete")));
    verified(&host);
}

/// What the agent still says while the host stops, that it is gone above all, is not the turn's any more.
#[tokio::test]
async fn a_stop_never_reads_as_a_failure_of_the_agent() {
    let directory = tempfile::tempdir().unwrap();
    let agent = RecordingAgent::new();
    let host = TestHost::on_disk_with(directory.path(), Options::of(&agent));
    let (mut client, chat) = host.open(&[]).await;
    client.create_chat(S, "ahp-chat:/peer").await;
    client.say(&chat, "t", "hello").await;
    eventually("it is prompted", || agent.prompts() == ["t"]).await;
    // The thread of the session is busy when the host begins to stop and the agent goes away.
    agent.hold_up();
    client.say("ahp-chat:/peer", "u", "hello").await;
    eventually("the thread is busy", || agent.holds_up()).await;
    agent.dies("t", "SIGTERM").await;
    let mut other = host.client("d").await;
    let stopping = std::thread::spawn(move || host.stop());
    // Nobody has such an agent, and a host that stops does not even look.
    let params = json!({ "channel": "ahp-session:/other", "provider": "nobody" });
    while other.ask("createSession", params.clone()).await.unwrap_err()["data"]["code"] != json!("busy") {}
    agent.let_go();
    stopping.join().unwrap();

    let host = TestHost::on_disk_with(directory.path(), Options::of(&agent));
    let mut client = host.client("c").await;
    let state = client.subscribe(&chat).await["state"].clone();
    assert_eq!((&state["activeTurn"]["id"], &state["turns"]), (&json!("t"), &json!([])));
    assert!(!kinds(host.host.store().as_ref()).iter().any(|kind| kind == "chat/error"));
}

#[tokio::test]
async fn at_most_two_processes_work_on_a_turn_and_a_person_who_resumes_it_begins_a_new_count() {
    let directory = tempfile::tempdir().unwrap();
    let agent = RecordingAgent::new();
    let start = || TestHost::on_disk_with(directory.path(), Options::of(&agent));
    let host = start();
    let (mut client, chat) = host.open(&[]).await;
    client.say(&chat, "t", "hello").await;
    eventually("it is prompted", || agent.prompts().len() == 1).await;
    host.stop();
    let host = start();
    eventually("it is taken up", || agent.prompts().len() == 2).await;
    let failed = Ending::Failed { error_type: "x".into(), message: "no".into(), resumable: true };
    let mut client = host.client("d").await;
    client.subscribe(&chat).await;
    agent.ended("t", failed).await;
    client.until_ended("t").await;
    client.accepted(&chat, json!({ "type": "chat/turnResume", "turnId": "t" })).await;
    eventually("it is resumed", || agent.prompts().len() == 3).await;
    host.stop();
    let host = start();
    eventually("it is taken up again", || agent.prompts().len() == 4).await;
    assert_eq!(agent.last_prompt().attempt, 3);
    host.stop();
    let host = start();
    let mut client = host.client("e").await;
    let state = client.subscribe(&chat).await["state"].clone();
    let turn = &state["turns"][0];
    assert_eq!((&turn["state"], agent.prompts().len()), (&json!("cancelled"), 4));
    assert!(notice(turn).unwrap().contains("taken up before"), "{turn}");
    assert!(crate::harness::met("turn_processes") > 0);
    verified(&host);
}

#[tokio::test]
async fn where_the_agent_cannot_take_it_up_a_notice_says_why_and_the_queue_pauses() {
    let directory = tempfile::tempdir().unwrap();
    let agent = RecordingAgent::new().with_extras(AgentExtras::default());
    let host = TestHost::on_disk_with(directory.path(), Options::of(&agent));
    let (mut client, chat) = host.open(&[]).await;
    client.say(&chat, "t", "hello").await;
    eventually("it is prompted", || agent.prompts() == ["t"]).await;
    let queued = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": "m", "message": message("next") });
    client.accepted(&chat, queued).await;
    host.stop();
    let host = TestHost::on_disk_with(directory.path(), Options::of(&agent));
    let mut client = host.client("c").await;
    let state = client.subscribe(&chat).await["state"].clone();
    let turn = &state["turns"][0];
    assert_eq!((&turn["state"], agent.prompts().len()), (&json!("cancelled"), 1));
    assert!(notice(turn).unwrap().contains("cannot take up"), "{turn}");
    assert_eq!(client.subscribe(S).await["state"]["_meta"]["scrollback.pausedQueues"], json!([chat]));
    host.stop();

    // An agent that is not there any more ends its turns in the same way.
    let host = TestHost::on_disk_with(directory.path(), Options { agents: Vec::new(), ..Options::default() });
    verified(&host);
}

/// Whatever waited for the process that is gone: a new one cannot answer it.
#[tokio::test]
async fn what_the_old_process_had_open_is_settled_before_the_new_one_begins() {
    let directory = tempfile::tempdir().unwrap();
    let agent = RecordingAgent::new();
    let host = TestHost::on_disk_with(directory.path(), Options::of(&agent));
    let (mut client, chat) = host.open(&[]).await;
    client.say(&chat, "t", "hello").await;
    eventually("it is prompted", || agent.prompts() == ["t"]).await;
    let turn_id = || "t".to_owned();
    for (call, state) in [("streams", 0), ("runs", 1), ("asks", 2), ("done", 3)] {
        let name = || call.to_owned();
        let started = AgentEvent::ToolStarted {
            turn_id: turn_id(),
            tool_call_id: name(),
            tool_name: name(),
            display_name: name(),
            intention: None,
            contributor: None,
        };
        agent.emits(started).await;
        let running = AgentEvent::ToolRunning {
            turn_id: turn_id(),
            tool_call_id: name(),
            invocation: "it runs".into(),
            input: None,
        };
        let ask = ToolAsk {
            tool_name: name(),
            display_name: name(),
            invocation: "it asks".into(),
            input: None,
            title: None,
            options: Vec::new(),
            editable: false,
        };
        match state {
            0 => {}
            2 => agent.emits(AgentEvent::ToolAsked { turn_id: turn_id(), tool_call_id: name(), ask }).await,
            _ => agent.emits(running).await,
        }
        if state == 3 {
            let result = serde_json::from_value(json!({ "success": true, "pastTenseMessage": "done" })).unwrap();
            agent.emits(AgentEvent::ToolDone { turn_id: turn_id(), tool_call_id: name(), result }).await;
        }
    }
    let request = serde_json::from_value(json!({ "id": "q", "message": "why?" })).unwrap();
    agent.emits(AgentEvent::Asked { turn_id: turn_id(), request }).await;
    agent.emits(AgentEvent::Activity { text: Some("busy".into()) }).await;
    let work = json!({ "kind": "shell", "id": "w", "label": "build", "startedAt": "2026-11-30T12:00:00.000Z",
        "command": "make" });
    agent.emits(AgentEvent::BackgroundWork { work: serde_json::from_value(work).unwrap() }).await;
    client.until_type("chat/backgroundWorkSet").await;
    host.stop();

    let host = TestHost::on_disk_with(directory.path(), Options::of(&agent));
    let mut client = host.client("d").await;
    let state = client.subscribe(&chat).await["state"].clone();
    let parts = state["activeTurn"]["responseParts"].as_array().unwrap();
    let call = |name: &str| {
        let call = parts.iter().find(|part| part["toolCall"]["toolCallId"] == json!(name)).unwrap();
        call["toolCall"].clone()
    };
    for skipped in ["streams", "asks"] {
        let call = call(skipped);
        assert_eq!((&call["status"], &call["reason"]), (&json!("cancelled"), &json!("skipped")), "{call}");
    }
    let runs = call("runs");
    assert_eq!((&runs["status"], &runs["success"]), (&json!("completed"), &json!(false)), "{runs}");
    assert_eq!(call("done")["success"], json!(true));
    let question = parts.iter().find(|part| part["kind"] == json!("inputRequest")).unwrap();
    assert_eq!(question["response"], json!("cancel"));
    assert_eq!((&state["status"], state.get("activity")), (&json!(8), None));
    assert_eq!(state["backgroundWork"].as_array().map_or(0, Vec::len), 0);
    let session = client.subscribe(S).await["state"].clone();
    assert_eq!(session.get("inputNeeded").and_then(Value::as_array).map_or(0, Vec::len), 0);
    assert_eq!(session["chats"][0]["status"], json!(8));
    verified(&host);
}

#[tokio::test]
async fn what_somebody_stopped_is_not_taken_up() {
    let directory = tempfile::tempdir().unwrap();
    let agent = RecordingAgent::new();
    let host = TestHost::on_disk_with(directory.path(), Options::of(&agent));
    let (mut client, chat) = host.open(&[]).await;
    client.say(&chat, "t", "hello").await;
    eventually("it is prompted", || agent.prompts() == ["t"]).await;
    client.cancel(&chat, "t").await;
    client.until_ended("t").await;
    host.stop();
    let host = TestHost::on_disk_with(directory.path(), Options::of(&agent));
    let mut client = host.client("c").await;
    let state = client.subscribe(&chat).await["state"].clone();
    assert_eq!((state.get("activeTurn"), &state["turns"][0]["state"]), (None, &json!("cancelled")));
    assert_eq!(agent.prompts().len(), 1);
}

#[tokio::test]
async fn a_turn_in_a_session_whose_actor_panics_is_taken_up_though_nobody_uses_the_session() {
    let agent = RecordingAgent::new();
    let host = TestHost::with(Options::of(&agent));
    let (mut client, chat) = host.open(&[]).await;
    client.say(&chat, "t", "hello").await;
    eventually("it is prompted", || agent.prompts() == ["t"]).await;
    host.host.panic_in_session(S);
    eventually("it is taken up", || agent.prompts() == ["t", "t"]).await;
    agent.ended("t", Ending::Complete).await;
    assert_eq!(client.until_ended("t").await.pop().unwrap()["action"]["type"], json!("chat/turnComplete"));
    assert_eq!(laws::check(host.host.store().as_ref()), [] as [String; 0]);
}

/// The log takes nothing for a while: the turn waits, and gets its ending all the same.
#[tokio::test]
async fn a_turn_that_is_interrupted_while_the_disk_takes_nothing_goes_on_when_it_does() {
    let store = Arc::new(Watched::new());
    let agent = RecordingAgent::new();
    let host = TestHost::start(Arc::clone(&store) as _, Options::of(&agent));
    let (mut client, chat) = host.open(&[]).await;
    client.say(&chat, "t", "hello").await;
    eventually("it is prompted", || agent.prompts() == ["t"]).await;
    store.fail(true);
    agent.says("t", "lost").await;
    let refused = client.rejected(&chat, json!({ "type": "chat/draftChanged", "draft": message("x") })).await;
    assert_eq!(refused, "log-unavailable");
    store.fail(false);
    eventually("it is taken up", || agent.prompts() == ["t", "t"]).await;
    agent.ended("t", Ending::Complete).await;
    let mut other = host.client("d").await;
    let state = other.subscribe(&chat).await["state"].clone();
    if state.get("activeTurn").is_some() {
        other.until_ended("t").await;
    }
    assert_eq!(laws::check(store.as_ref()), [] as [String; 0]);
}

/// Ends at once what it is handed again, and works on what is new.
struct Finishing(RecordingAgent);

struct FinishingProcess(AgentSink);

impl Agent for Finishing {
    fn provider(&self) -> &str {
        self.0.provider()
    }
    fn info(&self) -> AgentInfo {
        self.0.info()
    }
    fn extras(&self) -> AgentExtras {
        self.0.extras()
    }
    fn configuration(&self) -> (SessionConfigSchema, JsonObject) {
        self.0.configuration()
    }
    fn start(&self, _: ProcessStart, events: AgentSink) -> Box<dyn AgentProcess> {
        Box::new(FinishingProcess(events))
    }
}

impl AgentProcess for FinishingProcess {
    fn send(&mut self, input: AgentInput) {
        let AgentInput::Prompt(prompt) = input else { return };
        if prompt.attempt > 0 {
            let (events, turn_id) = (self.0.clone(), prompt.turn_id);
            actix_web::rt::spawn(async move {
                let _ = events.send(AgentEvent::Ended { turn_id, ending: Ending::Complete }).await;
            });
        }
    }
}

#[tokio::test]
async fn a_start_does_not_wait_for_the_turns_that_follow_those_it_takes_up() {
    let store = Arc::new(Watched::new());
    let agent = RecordingAgent::new();
    let host = TestHost::start(Arc::clone(&store) as _, Options::of(&agent));
    let (mut client, chat) = host.open(&[]).await;
    client.say(&chat, "t", "hello").await;
    eventually("it is prompted", || agent.prompts() == ["t"]).await;
    client.queue(&chat, "q", "next").await;
    client.envelope(|e| e["action"]["type"] == json!("chat/pendingMessageSet")).await;
    client.hang_up().await;
    host.stop();
    let began = std::time::Instant::now();
    let agents: Vec<Arc<dyn Agent>> = vec![Arc::new(Finishing(agent))];
    let host = TestHost::start(Arc::clone(&store) as _, Options { agents, ..Options::default() });
    // It would wait for half a minute.
    assert!(began.elapsed() < std::time::Duration::from_secs(15), "{:?}", began.elapsed());
    let mut client = host.client("d").await;
    let state = client.subscribe(&chat).await["state"].clone();
    if state["turns"].as_array().unwrap().is_empty() {
        client.until_ended("t").await;
    }
    verified(&host);
}

/// The real host, killed: the demo goes on with the step at which it was.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_the_demo_goes_on_with_its_step_and_repeats_none_that_was_done() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let script = "/say one\n/tool look around\n/ask-tool write x\n/words 200 5\n/say last";
    let mut host = Host::start(home.path(), &data, &[]);
    let mut client = Client::connect(([127, 0, 0, 1], host.port).into()).await;
    client.initialize("c", &[]).await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    client.say(&chat, "t", script).await;
    let ask = client.until_type("chat/toolCallReady").await;
    let ask =
        if ask["action"].get("confirmed").is_some() { client.until_type("chat/toolCallReady").await } else { ask };
    let first = ask["action"]["toolCallId"].clone();
    host.stop("KILL");

    host = Host::spawn(&mut scrollback(
        home.path(),
        &["serve", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()],
    ));
    let mut client = Client::connect(([127, 0, 0, 1], host.port).into()).await;
    client.initialize("c", &[]).await;
    let state = client.subscribe(&chat).await["state"].clone();
    let pending = |state: &Value| {
        let parts = state["activeTurn"]["responseParts"].as_array().unwrap().clone();
        parts.into_iter().find(|part| part["toolCall"]["status"] == json!("pending-confirmation"))
    };
    // It asks again, under another name; the old ask is settled.
    let asked = match pending(&state) {
        Some(part) => part["toolCall"]["toolCallId"].clone(),
        None => {
            let ready = client.envelope(|e| e["action"]["type"] == json!("chat/toolCallReady")).await;
            ready["action"]["toolCallId"].clone()
        }
    };
    assert_ne!(asked, first);
    let approve = json!({ "type": "chat/toolCallConfirmed", "turnId": "t", "toolCallId": asked, "approved": true,
        "confirmed": "user-action", "selectedOptionId": "allow" });
    client.accepted(&chat, approve).await;
    let seen = client.until_ended("t").await;
    assert_eq!(seen.last().unwrap()["action"]["type"], json!("chat/turnComplete"), "{:?}", types(&seen));
    assert!(seen.iter().filter(|e| is_ending(&e["action"])).count() == 1);
    let turn = client.subscribe(&chat).await["state"]["turns"][0].clone();
    let said = markdown(&turn).join("|");
    assert_eq!(
        (said.matches("one").count(), said.matches("last").count(), said.matches("w200 ").count()),
        (1, 1, 1),
        "{said}"
    );
    let calls: Vec<(Value, Value)> = turn["responseParts"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|part| part["kind"] == json!("toolCall"))
        .map(|part| (part["toolCall"]["toolName"].clone(), part["toolCall"]["status"].clone()))
        .collect();
    let call = |name: &str, status: &str| (json!(name), json!(status));
    assert_eq!(calls, [call("look", "completed"), call("write", "cancelled"), call("write", "completed")]);
    host.stop("TERM");
}
