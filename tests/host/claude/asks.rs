//! Permissions and questions.

use serde_json::{Value, json};

use super::{S, Scene, Setup, World, calls, said};

const BASH: &str = "!ask Bash {\"command\":\"touch x\"}";

/// Runs a turn up to the ask: the entry of what the session waits for.
async fn asked(scene: &mut Scene, turn: &str, text: &str) -> Value {
    scene.client.say(&scene.chat, turn, text).await;
    scene.client.until_type("session/inputNeededSet").await["action"]["request"].clone()
}

async fn decide(scene: &mut Scene, turn: &str, asked: &Value, change: Value) -> Value {
    let call = &asked["toolCall"]["toolCallId"];
    let mut answer = json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": call, "approved": true,
        "confirmed": "user-action", "selectedOptionId": "allow" });
    for (key, value) in change.as_object().unwrap() {
        answer[key] = value.clone();
    }
    scene.client.accepted(&scene.chat, answer).await;
    scene.client.until_ended(turn).await;
    scene.last().await
}

#[tokio::test]
async fn what_is_allowed_runs_and_the_options_say_what_they_grant() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    let ask = asked(&mut scene, "t1", BASH).await;
    let options = ask["toolCall"]["options"].as_array().unwrap();
    let options: Vec<(&str, &str)> =
        options.iter().map(|option| (option["id"].as_str().unwrap(), option["label"].as_str().unwrap())).collect();
    assert_eq!(
        options,
        [
            ("allow", "Allow"),
            ("allow-always", "Always allow Bash(x)"),
            ("allow-always-2", "Allow, and accept all edits in this session"),
            ("deny", "Deny")
        ]
    );
    let turn = decide(&mut scene, "t1", &ask, json!({})).await;
    assert_eq!(calls(&turn)[0]["content"][0]["text"], "{\"command\":\"touch x\"}");
}

#[tokio::test]
async fn allow_always_grants_exactly_what_was_suggested() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    let ask = asked(&mut scene, "t1", BASH).await;
    let turn = decide(&mut scene, "t1", &ask, json!({ "selectedOptionId": "allow-always" })).await;
    let ran: Value = serde_json::from_str(calls(&turn)[0]["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(
        ran["granted"],
        json!([{ "type": "addRules", "rules": [{ "toolName": "Bash", "ruleContent": "x" }],
        "behavior": "allow", "destination": "localSettings" }])
    );
}

#[tokio::test]
async fn an_edited_input_is_what_runs() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    let ask = asked(&mut scene, "t1", BASH).await;
    let edited = json!({ "editedToolInput": "{\"command\":\"touch y\"}" });
    let turn = decide(&mut scene, "t1", &ask, edited).await;
    assert_eq!(calls(&turn)[0]["content"][0]["text"], "{\"command\":\"touch y\"}");
}

#[tokio::test]
async fn what_is_denied_does_not_run_and_the_turn_goes_on() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    let ask = asked(&mut scene, "t1", &format!("{BASH}\n!say then not")).await;
    let denied = json!({ "approved": false, "confirmed": null, "reason": "denied", "selectedOptionId": "deny",
        "reasonMessage": "not today" });
    let turn = decide(&mut scene, "t1", &ask, denied).await;
    assert_eq!(calls(&turn)[0]["status"], "cancelled");
    assert_eq!(said(&turn), "then not");
    let history = scene.history("t2").await;
    assert!(history.contains(&"not today".to_owned()), "{history:?}");
}

#[tokio::test]
async fn an_ask_may_come_before_its_call_is_announced() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    let ask = asked(&mut scene, "t1", "!ask-first ls").await;
    let turn = decide(&mut scene, "t1", &ask, json!({})).await;
    let calls = calls(&turn);
    assert_eq!(calls.len(), 1);
    assert_eq!((&calls[0]["status"], &calls[0]["content"][0]["text"]), (&json!("completed"), &json!("ran")));
}

#[tokio::test]
async fn an_ask_that_the_program_takes_back_is_open_no_more() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    let turn = scene.turn("t1", "!withdraw\n!say on").await;
    assert_eq!(calls(&turn)[0]["status"], "cancelled");
    assert_eq!(said(&turn), "on");
    assert_eq!(scene.client.subscribe(S).await["state"].get("inputNeeded"), None);
}

#[tokio::test]
async fn stopping_a_turn_that_asks_answers_the_ask() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    asked(&mut scene, "t1", BASH).await;
    scene.client.cancel(&scene.chat, "t1").await;
    scene.client.until_ended("t1").await;
    assert_eq!(calls(&scene.last().await)[0]["status"], "cancelled");
    assert_eq!(scene.says("t2", "hello").await, "Hello from the fake.");
    assert_eq!(world.programs.alive(), 1);
}

#[tokio::test]
async fn questions_are_a_persons_to_answer() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    scene.client.say(&scene.chat, "t1", "!question").await;
    let request = scene.client.until_type("chat/inputRequested").await["action"]["request"].clone();
    let questions = request["questions"].as_array().unwrap();
    assert_eq!((&questions[0]["kind"], &questions[1]["kind"]), (&json!("single-select"), &json!("multi-select")));
    assert_eq!((&questions[0]["title"], &questions[0]["message"]), (&json!("Colour"), &json!("Which colour?")));
    let answers = json!({
        "0": { "state": "submitted", "value": { "kind": "selected", "value": "Red" } },
        "1": { "state": "submitted", "value": { "kind": "selected-many", "value": ["A"], "freeformValues": ["C"] } } });
    let completed = json!({ "type": "chat/inputCompleted", "requestId": request["id"], "response": "accept",
        "answers": answers });
    scene.client.accepted(&scene.chat, completed).await;
    scene.client.until_ended("t1").await;
    let call = &calls(&scene.last().await)[0];
    let heard: Value = serde_json::from_str(call["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(heard, json!({ "Which colour?": "Red", "What else?": "A, C" }));
}

#[tokio::test]
async fn questions_that_nobody_answers_are_told_as_such() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    scene.client.say(&scene.chat, "t1", "!question").await;
    let request = scene.client.until_type("chat/inputRequested").await["action"]["request"].clone();
    let completed = json!({ "type": "chat/inputCompleted", "requestId": request["id"], "response": "cancel" });
    scene.client.accepted(&scene.chat, completed).await;
    scene.client.until_ended("t1").await;
    let call = &calls(&scene.last().await)[0];
    assert_eq!(call["error"]["message"], "The user did not answer the questions.");
}
