//! Steering: a message into the turn that runs, when its agent takes one. It never begins a turn while that one runs, and it is
//! never lost.

use std::sync::Arc;

use scrollback::actors::agent::{AgentEvent, AgentExtras, Ending};
use scrollback::events::gated::GatedStore;
use scrollback::events::memory::MemoryStore;
use serde_json::{Value, json};

use crate::harness::{Client, Options, RecordingAgent, TestHost, eventually, markdown, message, on, types, word};

const S: &str = "ahp-session:/s";

fn steer(id: &str, text: &str) -> Value {
    json!({ "type": "chat/pendingMessageSet", "kind": "steering", "id": id, "message": message(text) })
}

fn queue(id: &str, text: &str) -> Value {
    json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": id, "message": message(text) })
}

fn removed(kind: &str, id: &str) -> Value {
    json!({ "type": "chat/pendingMessageRemoved", "kind": kind, "id": id })
}

/// Runs a turn that asks first and takes a steering message then.
async fn asks_first(client: &mut Client, chat: &str, turn: &str) -> Value {
    client.say(chat, turn, "/question sure?\n/await-steering").await;
    client.until_type("chat/inputRequested").await["action"]["request"]["id"].clone()
}

async fn answer(client: &mut Client, chat: &str, asked: &Value) {
    client.dispatch(chat, json!({ "type": "chat/inputCompleted", "requestId": asked, "response": "decline" })).await;
}

async fn state(client: &mut Client, chat: &str) -> Value {
    client.subscribe(chat).await["state"].clone()
}

/// The ids of the queue, and of the slot.
fn waiting(state: &Value) -> (Vec<&str>, Option<&str>) {
    let queued = state["queuedMessages"].as_array().map(Vec::as_slice).unwrap_or_default();
    (queued.iter().map(|queued| queued["id"].as_str().unwrap()).collect(), state["steeringMessage"]["id"].as_str())
}

async fn paused(client: &mut Client) -> Value {
    client.subscribe(S).await["state"]["_meta"]["scrollback.pausedQueues"].clone()
}

/// microsoft/vscode #336305
#[tokio::test]
async fn a_steering_message_goes_into_the_running_turn_and_begins_none() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    client.say(&chat, "t", "/await-steering\n/say on").await;
    client.until_type("chat/turnStarted").await;
    client.accepted(&chat, steer("s", "to the left")).await;
    let seen = client.until_ended("t").await;
    let seen = on(&seen, &chat);
    let left = seen.iter().position(|e| e["action"] == removed("steering", "s")).expect("it stayed in its slot");
    let said = seen.iter().position(|e| e["action"]["type"] == json!("chat/responsePart")).unwrap();
    assert!(left < said, "{seen:?}");
    assert_eq!(types(&seen).last(), Some(&"chat/turnComplete"));
    let state = state(&mut client, &chat).await;
    assert_eq!(waiting(&state), (vec![], None));
    assert_eq!(state["turns"].as_array().unwrap().len(), 1);
    assert_eq!(markdown(&state["turns"][0]), ["steered: to the left \non "]);
    let rest = client.drain().await;
    assert!(rest.iter().all(|m| m["params"]["action"]["type"] != json!("chat/turnStarted")), "{rest:?}");
}

/// microsoft/vscode #336466
#[tokio::test]
async fn a_steering_message_that_was_taken_back_in_time_is_never_delivered() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    let asked = asks_first(&mut client, &chat, "t").await;
    client.accepted(&chat, steer("s1", "one")).await;
    assert_eq!(waiting(&state(&mut client, &chat).await), (vec![], Some("s1")));
    client.accepted(&chat, removed("steering", "s1")).await;
    answer(&mut client, &chat, &asked).await;
    client.accepted(&chat, steer("s2", "two")).await;
    client.until_ended("t").await;
    assert_eq!(markdown(&state(&mut client, &chat).await["turns"][0]), ["declined \nsteered: two "]);
    // Whoever is late hears so, and an id that was used stays used.
    for id in ["s1", "s2"] {
        assert_eq!(client.rejected(&chat, removed("steering", id)).await, "request-not-found");
    }
    let asked = asks_first(&mut client, &chat, "t2").await;
    assert_eq!(client.rejected(&chat, steer("s1", "again")).await, "request-not-found");
    client.cancel(&chat, "t2").await;
    client.until_ended("t2").await;
    assert_ne!(asked, Value::Null);
}

/// microsoft/vscode #336466
#[tokio::test]
async fn a_steering_message_that_was_edited_is_delivered_as_it_was_edited_once() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    let asked = asks_first(&mut client, &chat, "t").await;
    client.accepted(&chat, steer("s", "old")).await;
    client.accepted(&chat, steer("s", "new")).await;
    // The same again changes nothing.
    let now = host.host.store().tail();
    assert_eq!(client.accepted(&chat, steer("s", "new")).await["serverSeq"], json!(now));
    answer(&mut client, &chat, &asked).await;
    let seen = client.until_ended("t").await;
    assert_eq!(seen.iter().filter(|e| e["action"] == removed("steering", "s")).count(), 1);
    assert_eq!(markdown(&state(&mut client, &chat).await["turns"][0]), ["declined \nsteered: new "]);
}

#[tokio::test]
async fn a_new_steering_message_takes_the_place_of_the_one_in_the_slot() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    let asked = asks_first(&mut client, &chat, "t").await;
    client.accepted(&chat, steer("s1", "one")).await;
    client.accepted(&chat, steer("s2", "two")).await;
    assert_eq!(client.rejected(&chat, removed("steering", "s1")).await, "request-not-found");
    answer(&mut client, &chat, &asked).await;
    client.until_ended("t").await;
    assert_eq!(markdown(&state(&mut client, &chat).await["turns"][0]), ["declined \nsteered: two "]);
}

#[tokio::test]
async fn without_a_running_turn_or_with_an_agent_that_takes_none_steering_is_refused() {
    let agent = RecordingAgent::new().with_extras(AgentExtras { steering: false, ..AgentExtras::default() });
    let deaf = TestHost::with(Options { agents: vec![Arc::new(agent)], ..Options::default() });
    let hears = TestHost::in_memory();
    for (host, word) in [(&deaf, "unsupported"), (&hears, "")] {
        let (mut client, chat) = host.open(&[]).await;
        assert_eq!(client.rejected(&chat, steer("s", "left")).await, "no-active-turn");
        client.say(&chat, "t", "/question sure?").await;
        client.until_type("chat/turnStarted").await;
        if !word.is_empty() {
            assert_eq!(client.rejected(&chat, steer("s", "left")).await, word);
            assert_eq!(waiting(&state(&mut client, &chat).await), (vec![], None));
        }
        client.cancel(&chat, "t").await;
        client.until_ended("t").await;
        assert_eq!(client.rejected(&chat, steer("s", "left")).await, "no-active-turn");
    }
}

#[tokio::test]
async fn what_is_left_in_the_slot_when_the_turn_completes_goes_out_before_the_queue() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    client.say(&chat, "t", "/question sure?").await;
    let asked = client.until_type("chat/inputRequested").await["action"]["request"]["id"].clone();
    client.accepted(&chat, queue("m", "/say queued")).await;
    client.accepted(&chat, steer("s", "/say steering")).await;
    answer(&mut client, &chat, &asked).await;
    let seen = client.until(|e| e["action"]["queuedMessageId"] == json!("s")).await;
    let steps = on(&seen, &chat);
    let from = steps.iter().position(|e| e["action"]["type"] == json!("chat/turnComplete")).unwrap();
    assert_eq!(
        types(&steps[from..]),
        [
            "chat/turnComplete",
            "chat/pendingMessageRemoved",
            "chat/pendingMessageSet",
            "chat/queuedMessagesReordered",
            "chat/pendingMessageRemoved",
            "chat/turnStarted"
        ]
    );
    assert_eq!(steps.last().unwrap()["action"]["message"]["text"], json!("/say steering"));
    assert_eq!(client.until_type("chat/turnStarted").await["action"]["queuedMessageId"], json!("m"));
    client.until_type("chat/turnComplete").await;
    assert_eq!(waiting(&state(&mut client, &chat).await), (vec![], None));
}

#[tokio::test]
async fn what_is_left_in_the_slot_of_a_turn_that_was_stopped_is_the_head_of_a_paused_queue() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let (mut client, chat) = host.open(&[]).await;
    asks_first(&mut client, &chat, "t").await;
    client.accepted(&chat, queue("m1", "/say m1")).await;
    client.accepted(&chat, steer("s", "/say s")).await;
    client.cancel(&chat, "t").await;
    client.until_ended("t").await;
    assert_eq!(waiting(&state(&mut client, &chat).await), (vec!["s", "m1"], None));
    assert_eq!(paused(&mut client).await, json!([chat]));
    host.stop();
    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("d").await;
    client.subscribe(&chat).await;
    let rest = client.drain().await;
    assert!(rest.is_empty(), "{rest:?}");
    client.accepted(&chat, queue("m2", "/say m2")).await;
    let mut sent = Vec::new();
    for _ in 0..3 {
        sent.push(client.until_type("chat/turnStarted").await["action"]["queuedMessageId"].clone());
        client.until_type("chat/turnComplete").await;
    }
    assert_eq!(sent, [json!("s"), json!("m1"), json!("m2")]);
}

#[tokio::test]
async fn a_stop_ends_the_wait_for_a_steering_message() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    client.say(&chat, "t", "/await-steering\n/say never").await;
    client.until_type("chat/turnStarted").await;
    client.cancel(&chat, "t").await;
    let ended = client.until_ended("t").await.pop().unwrap();
    assert_eq!(ended["action"]["type"], json!("chat/turnCancelled"));
    assert_eq!(client.rejected(&chat, steer("s", "late")).await, "no-active-turn");
    client.run(&chat, "t2", "/say free").await;
    assert_eq!(markdown(&state(&mut client, &chat).await["turns"][1]), ["free "]);
}

#[tokio::test]
async fn a_message_moves_between_the_queue_and_the_slot_and_is_sent_once() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    let asked = asks_first(&mut client, &chat, "t").await;
    client.accepted(&chat, queue("m", "/say m")).await;
    client.accepted(&chat, steer("m", "/say m")).await;
    assert_eq!(client.until_type("chat/pendingMessageRemoved").await["action"], removed("queued", "m"));
    assert_eq!(waiting(&state(&mut client, &chat).await), (vec![], Some("m")));
    client.accepted(&chat, queue("m", "/say m")).await;
    assert_eq!(client.until_type("chat/pendingMessageRemoved").await["action"], removed("steering", "m"));
    assert_eq!(waiting(&state(&mut client, &chat).await), (vec!["m"], None));
    client.accepted(&chat, steer("m", "in")).await;
    answer(&mut client, &chat, &asked).await;
    client.until_ended("t").await;
    let state = state(&mut client, &chat).await;
    assert_eq!(markdown(&state["turns"][0]), ["declined \nsteered: in "]);
    assert_eq!((state["turns"].as_array().unwrap().len(), waiting(&state)), (1, (vec![], None)));
}

#[tokio::test]
async fn a_steering_message_was_the_draft() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    asks_first(&mut client, &chat, "t").await;
    client.accepted(&chat, json!({ "type": "chat/draftChanged", "draft": message("left") })).await;
    client.accepted(&chat, steer("s", "left")).await;
    assert_eq!(client.until_type("chat/draftChanged").await["action"].get("draft"), None);
    client.accepted(&chat, json!({ "type": "chat/draftChanged", "draft": message("next") })).await;
    client.accepted(&chat, steer("s", "right")).await;
    assert_eq!(state(&mut client, &chat).await["draft"], message("next"));
}

/// A host whose agent says what a test makes it say, and a turn of it that runs.
async fn with_agent() -> (TestHost, RecordingAgent, Client, String) {
    let agent = RecordingAgent::new();
    let host = TestHost::with(Options::of(&agent));
    let (mut client, chat) = host.open(&[]).await;
    client.say(&chat, "t", "go").await;
    eventually("the agent is prompted", || agent.prompts().len() == 1).await;
    (host, agent, client, chat)
}

fn takes(turn: &str) -> AgentEvent {
    AgentEvent::TakesSteering { turn_id: turn.into() }
}

#[tokio::test]
async fn an_agent_is_handed_one_message_each_time_that_it_takes_one() {
    let (_host, agent, mut client, chat) = with_agent().await;
    client.accepted(&chat, steer("s1", "one")).await;
    assert_eq!(waiting(&state(&mut client, &chat).await), (vec![], Some("s1")));
    agent.emits(takes("t")).await;
    assert_eq!(client.until_type("chat/pendingMessageRemoved").await["action"], removed("steering", "s1"));
    eventually("the first is handed over", || agent.steered().len() == 1).await;
    client.accepted(&chat, steer("s2", "two")).await;
    assert_eq!(waiting(&state(&mut client, &chat).await), (vec![], Some("s2")));
    // It takes the next one before it says that it has the first, and a turn that is over takes none.
    agent.emits(takes("old")).await;
    agent.emits(takes("t")).await;
    eventually("the second is handed over", || agent.steered().len() == 2).await;
    for (id, _) in agent.steered() {
        agent.emits(AgentEvent::SteeringTaken { turn_id: "t".into(), id }).await;
    }
    // One that waits for a message is handed it at once.
    agent.emits(takes("t")).await;
    agent.says("t", "ready").await;
    client.until_type("chat/responsePart").await;
    client.accepted(&chat, steer("s3", "three")).await;
    assert_eq!(client.until_type("chat/pendingMessageRemoved").await["action"], removed("steering", "s3"));
    eventually("the third is handed over", || agent.steered().len() == 3).await;
    let told = agent.steered();
    assert_eq!(told, [("s1", "one"), ("s2", "two"), ("s3", "three")].map(|(id, t)| (id.to_owned(), t.to_owned())));
}

#[tokio::test]
async fn what_an_agent_was_handed_and_did_not_take_is_kept_when_the_turn_ends() {
    for (ends, runs) in [("complete", true), ("stopped", false), ("gone", false)] {
        let (_host, agent, mut client, chat) = with_agent().await;
        for id in ["taken", "lost"] {
            agent.emits(takes("t")).await;
            client.accepted(&chat, steer(id, id)).await;
            client.until_type("chat/pendingMessageRemoved").await;
        }
        client.accepted(&chat, queue("m", "later")).await;
        client.accepted(&chat, steer("slot", "slot")).await;
        agent.emits(AgentEvent::SteeringTaken { turn_id: "t".into(), id: "taken".into() }).await;
        match ends {
            "complete" => agent.emits(AgentEvent::Ended { turn_id: "t".into(), ending: Ending::Complete }).await,
            "gone" => agent.emits(AgentEvent::Gone { problem: "gone".into() }).await,
            _ => {
                // Behind what the agent said: else the stop may come first.
                agent.says("t", "heard").await;
                client.until_type("chat/responsePart").await;
                client.cancel(&chat, "t").await;
            }
        }
        client.until_ended("t").await;
        let state = state(&mut client, &chat).await;
        let waits = if runs { vec!["slot", "m"] } else { vec!["lost", "slot", "m"] };
        assert_eq!(waiting(&state), (waits, None), "{ends}");
        let next = if runs { json!("lost") } else { Value::Null };
        assert_eq!(state["activeTurn"]["message"]["text"], next, "{ends}");
        let listed = paused(&mut client).await;
        assert_eq!(listed == json!([chat]), !runs, "{ends}: {listed}");
    }
}

#[tokio::test]
async fn a_message_that_was_handed_over_when_the_host_stopped_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let agent = RecordingAgent::new();
    let start = |agent: &RecordingAgent| {
        let options = Options::of(agent);
        TestHost::on_disk_with(directory.path(), options)
    };
    let host = start(&agent);
    let (mut client, chat) = host.open(&[]).await;
    client.say(&chat, "t", "go").await;
    eventually("the agent is prompted", || agent.prompts().len() == 1).await;
    agent.emits(takes("t")).await;
    client.accepted(&chat, steer("s", "left")).await;
    client.until_type("chat/pendingMessageRemoved").await;
    eventually("it is handed over", || agent.steered().len() == 1).await;
    host.stop();
    let host = start(&RecordingAgent::new());
    let mut client = host.client("d").await;
    let state = state(&mut client, &chat).await;
    // Its turn is taken up on another process, and nobody knows whether the old one took it.
    assert_eq!((&state["activeTurn"]["id"], waiting(&state)), (&json!("t"), (vec!["s"], None)));
}

#[tokio::test]
async fn a_steering_message_reaches_the_agent_only_when_it_is_on_disk_that_it_left_its_slot() {
    let store = GatedStore::new(MemoryStore::new().unwrap());
    let gate = store.gate();
    let agent = RecordingAgent::new();
    let options = Options::of(&agent);
    let host = TestHost::start(Arc::new(store), options);
    let (mut client, chat) = host.open(&[]).await;
    client.say(&chat, "t", "go").await;
    eventually("the agent is prompted", || agent.prompts().len() == 1).await;
    agent.emits(takes("t")).await;
    agent.says("t", "ready").await;
    client.until_type("chat/responsePart").await;
    gate.hold();
    let set = client.dispatch(&chat, steer("s", "left")).await;
    eventually("it is on its way", || gate.held() == 1).await;
    let early = agent.steered();
    // Too late: it has left its slot. Nobody hears of that before it is so.
    let back = client.dispatch(&chat, removed("steering", "s")).await;
    gate.release_all();
    assert_eq!(early, []);
    assert_eq!(client.echo(set).await.get("rejectionReason"), None);
    assert_eq!(word(&client.echo(back).await), "request-not-found");
    eventually("it is handed over", || agent.steered().len() == 1).await;
}
