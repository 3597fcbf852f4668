//! Subagents as worker chats.

use serde_json::{Value, json};

use super::{Scene, Setup, World, calls, said};

/// The chat of the worker that was added.
async fn worker(scene: &mut Scene) -> String {
    let added = scene.client.until_type("session/chatAdded").await;
    added["action"]["summary"]["resource"].as_str().unwrap().to_owned()
}

async fn turn_of(scene: &mut Scene, chat: &str) -> Value {
    let state = scene.client.subscribe(chat).await["state"].clone();
    state["turns"][0].clone()
}

#[tokio::test]
async fn a_subagent_is_a_chat_of_its_own_and_asks_there() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    scene.client.say(&scene.chat, "t", "!task look\n!say end").await;
    let chat = worker(&mut scene).await;
    let asked = scene.client.until_type("session/inputNeededSet").await["action"]["request"].clone();
    assert_eq!(asked["chat"], json!(chat));
    let running = scene.client.subscribe(&chat).await["state"]["activeTurn"]["id"].clone();
    let answer = json!({ "type": "chat/toolCallConfirmed", "turnId": running,
        "toolCallId": asked["toolCall"]["toolCallId"], "approved": true, "confirmed": "user-action",
        "selectedOptionId": "allow" });
    scene.client.accepted(&chat, answer).await;
    scene.client.until_ended("t").await;
    let of_worker = turn_of(&mut scene, &chat).await;
    assert_eq!((&of_worker["message"]["text"], &of_worker["state"]), (&json!("look"), &json!("complete")));
    assert_eq!(said(&of_worker), "sub: look");
    assert_eq!(calls(&of_worker)[0]["status"], "completed");
    let turn = scene.last().await;
    let content = calls(&turn)[0]["content"].as_array().unwrap().clone();
    assert!(content.iter().any(|one| one["resource"] == json!(chat)), "{turn}");
    assert_eq!(said(&turn), "end");
}

#[tokio::test]
async fn a_subagent_that_is_stopped_alone_lets_its_turn_go_on() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    scene.client.say(&scene.chat, "t", "!task-wait look\n!say on").await;
    let chat = worker(&mut scene).await;
    let running = scene.client.subscribe(&chat).await["state"]["activeTurn"]["id"].clone();
    scene.client.cancel(&chat, running.as_str().unwrap()).await;
    scene.client.until_ended("t").await;
    assert_eq!(turn_of(&mut scene, &chat).await["state"], "cancelled");
    let turn = scene.last().await;
    assert_eq!((calls(&turn)[0]["success"].clone(), said(&turn).as_str()), (json!(false), "on"));
}

#[tokio::test]
async fn a_subagent_in_the_background_has_its_chat_too() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    scene.client.say(&scene.chat, "t", "!task-background look").await;
    let chat = worker(&mut scene).await;
    scene.client.until_ended("t").await;
    let of_worker = turn_of(&mut scene, &chat).await;
    assert_eq!((&of_worker["state"], said(&of_worker).as_str()), (&json!("complete"), "sub: look"));
    assert_eq!(calls(&scene.last().await)[0]["content"][0]["resource"], json!(chat));
}

#[tokio::test]
async fn a_subagent_ends_with_a_turn_that_is_stopped() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    scene.client.say(&scene.chat, "t", "!task-wait look").await;
    let chat = worker(&mut scene).await;
    scene.client.cancel(&scene.chat, "t").await;
    scene.client.until_ended("t").await;
    assert_eq!(turn_of(&mut scene, &chat).await["state"], "cancelled");
    assert_eq!(scene.says("t2", "hello").await, "Hello from the fake.");
}
