//! `x-scrollback/sendNow`: a queued message goes out now, whatever runs, in one step.

use serde_json::{Value, json};

use crate::harness::{Client, Options, RecordingAgent, TestHost, envelopes, eventually, message, on, types};

const S: &str = "ahp-session:/s";

/// A turn that waits for a person, and messages that wait for it.
async fn busy(client: &mut Client, chat: &str, turn: &str, waiting: &[&str]) {
    client.say(chat, turn, "/question sure?").await;
    client.until_type("chat/inputRequested").await;
    for id in waiting {
        client.accepted(chat, set("queued", id)).await;
    }
}

fn set(kind: &str, id: &str) -> Value {
    let text = format!("/say {id}\n/question next?");
    json!({ "type": "chat/pendingMessageSet", "kind": kind, "id": id, "message": message(&text) })
}

fn params(chat: &str, id: &str) -> Value {
    json!({ "channel": chat, "id": id })
}

async fn send_now(client: &mut Client, chat: &str, id: &str) -> Vec<Value> {
    let answer = client.ask("x-scrollback/sendNow", params(chat, id)).await.expect("sendNow was refused");
    assert_eq!(answer, Value::Null);
    // What it did was heard before the answer.
    on(&envelopes(&client.taken()), chat)
}

async fn queued(client: &mut Client, chat: &str) -> Vec<String> {
    let state = client.subscribe(chat).await["state"].clone();
    let queued = state["queuedMessages"].as_array().cloned().unwrap_or_default();
    queued.iter().map(|queued| queued["id"].as_str().unwrap().to_owned()).collect()
}

async fn paused(client: &mut Client) -> Value {
    client.subscribe(S).await["state"]["_meta"]["scrollback.pausedQueues"].clone()
}

#[tokio::test]
async fn a_message_sent_now_goes_to_the_front_stops_the_turn_and_goes_out_in_one_step() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    busy(&mut client, &chat, "t", &["m1", "m2", "m3"]).await;
    client.taken();
    let seen = send_now(&mut client, &chat, "m2").await;
    let steps =
        ["chat/queuedMessagesReordered", "chat/turnCancelled", "chat/pendingMessageRemoved", "chat/turnStarted"];
    assert_eq!(types(&seen)[..4], steps, "{seen:?}");
    assert_eq!(seen[0]["action"]["order"], json!(["m2", "m1", "m3"]));
    assert_eq!(seen[1]["action"]["turnId"], json!("t"));
    assert_eq!(seen[2]["action"]["id"], json!("m2"));
    assert_eq!(seen[3]["action"]["queuedMessageId"], json!("m2"));
    let batches: Vec<_> = seen[..4].iter().map(|e| host.batch_of(e["serverSeq"].as_u64().unwrap())).collect();
    assert!(batches.iter().all(|batch| *batch == batches[0]), "{batches:?}");
    assert_eq!(queued(&mut client, &chat).await, ["m1", "m3"]);
    // The rest follow turn by turn: nothing is paused.
    assert_ne!(paused(&mut client).await, json!([chat]));
    let state = client.subscribe(&chat).await["state"].clone();
    assert_eq!(state["turns"][0]["state"], json!("cancelled"));
    assert_eq!(state["activeTurn"]["message"]["text"], json!("/say m2\n/question next?"));
}

#[tokio::test]
async fn a_message_sent_now_leaves_a_paused_queue_and_the_rest_follow() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    busy(&mut client, &chat, "t", &["m1", "m2"]).await;
    client.cancel(&chat, "t").await;
    client.until_ended("t").await;
    assert_eq!(paused(&mut client).await, json!([chat]));
    let seen = send_now(&mut client, &chat, "m2").await;
    let from = seen.iter().position(|e| e["action"]["type"] == json!("chat/queuedMessagesReordered")).unwrap();
    let steps = ["chat/queuedMessagesReordered", "chat/pendingMessageRemoved", "chat/turnStarted"];
    assert_eq!(types(&seen[from..])[..3], steps);
    assert_eq!(paused(&mut client).await, json!([]));
    let asked = client.until_type("chat/inputRequested").await["action"]["request"]["id"].clone();
    client.dispatch(&chat, json!({ "type": "chat/inputCompleted", "requestId": asked, "response": "decline" })).await;
    let next = client.envelope(|e| e["action"]["queuedMessageId"].is_string()).await;
    assert_eq!(next["action"]["queuedMessageId"], json!("m1"));
}

#[tokio::test]
async fn what_steered_the_stopped_turn_waits_behind_what_is_sent_now() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    busy(&mut client, &chat, "t", &["m1", "m2"]).await;
    client.accepted(&chat, set("steering", "s")).await;
    send_now(&mut client, &chat, "m1").await;
    let state = client.subscribe(&chat).await["state"].clone();
    assert_eq!(state["activeTurn"]["message"]["text"], json!("/say m1\n/question next?"));
    assert_eq!(state.get("steeringMessage"), None);
    assert_eq!(queued(&mut client, &chat).await, ["s", "m2"]);
}

#[tokio::test]
async fn what_is_not_queued_is_not_sent_now_and_nothing_changes() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    client.queue(&chat, "went", "/say x").await;
    client.until_type("chat/turnComplete").await;
    busy(&mut client, &chat, "t", &["back", "m"]).await;
    client.accepted(&chat, set("steering", "slot")).await;
    let back = json!({ "type": "chat/pendingMessageRemoved", "kind": "queued", "id": "back" });
    client.accepted(&chat, back).await;
    let before = host.log();
    for id in ["never", "went", "back", "slot"] {
        let refused = client.refused("x-scrollback/sendNow", params(&chat, id)).await;
        assert_eq!(refused, (-32008, "request-not-found".to_owned()), "{id}");
    }
    let nowhere = client.refused("x-scrollback/sendNow", params("ahp-chat:/none", "m")).await;
    assert_eq!(nowhere, (-32008, "not-found".to_owned()));
    let nameless = client.refused("x-scrollback/sendNow", json!({ "channel": chat })).await;
    assert_eq!(nameless, (-32602, "invalid-params".to_owned()));
    assert_eq!(host.log(), before);
    assert_eq!(queued(&mut client, &chat).await, ["m"]);
}

#[tokio::test]
async fn the_agent_is_told_to_stop_and_then_prompted_once_and_late_words_go_nowhere() {
    let agent = RecordingAgent::new();
    let host = TestHost::with(Options::of(&agent));
    let (mut client, chat) = host.open(&[]).await;
    client.say(&chat, "t", "go").await;
    eventually("the agent is prompted", || agent.prompts().len() == 1).await;
    client.accepted(&chat, set("queued", "m")).await;
    send_now(&mut client, &chat, "m").await;
    eventually("it is prompted again", || agent.prompts().len() == 2).await;
    agent.says("t", "late").await;
    let now = agent.prompts()[1].clone();
    agent.says(&now, "right").await;
    let said = client.until_type("chat/delta").await;
    assert_eq!((&said["action"]["turnId"], &said["action"]["content"]), (&json!(now), &json!("right")));
    assert_eq!(client.subscribe(&chat).await["state"]["turns"][0]["responseParts"], json!([]));
    // It went out: it cannot be sent again.
    let again = client.refused("x-scrollback/sendNow", params(&chat, "m")).await;
    assert_eq!(again, (-32008, "request-not-found".to_owned()));
}
