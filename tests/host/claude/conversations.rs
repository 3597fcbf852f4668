//! Conversations over programs and hosts: resumed, gone back in, forked, lost.

use std::time::Duration;

use scrollback::agents::AgentLimits;
use serde_json::{Value, json};

use super::{S, Scene, Setup, World, calls, error, notices, said, that_is};
use crate::harness::eventually;

const F: &str = "ahp-chat:/f";

async fn fork(scene: &mut Scene, turn: &str) {
    let source = json!({ "kind": "fork", "chat": scene.chat, "turnId": turn });
    scene.client.ask("createChat", json!({ "channel": S, "chat": F, "source": source })).await.unwrap();
    scene.client.subscribe(F).await;
}

async fn rewind(scene: &mut Scene, turn: &str) {
    scene.client.accepted(&scene.chat, json!({ "type": "chat/truncated", "turnId": turn })).await;
}

fn strings(value: &str) -> Vec<String> {
    serde_json::from_str(value).unwrap_or_else(|_| panic!("{value} is no history"))
}

#[tokio::test]
async fn a_conversation_goes_on_after_a_restart_of_the_host() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    scene.says("t1", "!say one").await;
    drop(scene);
    let mut scene = world.again(Setup::default()).await;
    assert_eq!(scene.history("t2").await, ["!say one", "one"]);
    assert_eq!(notices(&scene.last().await), [] as [String; 0]);
}

#[tokio::test]
async fn a_rewind_goes_back_in_the_programs_own_conversation() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    for (turn, text) in [("t1", "!say one"), ("t2", "!say two"), ("t3", "!say three")] {
        scene.says(turn, text).await;
    }
    rewind(&mut scene, "t1").await;
    assert_eq!(scene.history("t4").await, ["!say one", "one"]);
    assert_eq!(notices(&scene.last().await), [] as [String; 0]);
    // What came after is there still, and a second rewind reaches behind the first.
    rewind(&mut scene, "t1").await;
    drop(scene);
    let mut scene = world.again(Setup::default()).await;
    assert_eq!(scene.history("t5").await, ["!say one", "one"]);
    assert_eq!(scene.history("t6").await.len(), 4);
}

#[tokio::test]
async fn a_fork_goes_on_by_itself_and_leaves_its_source_alone() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    scene.says("t1", "!say one").await;
    scene.says("t2", "!say two").await;
    fork(&mut scene, "t1").await;
    scene.client.say(F, "f1", "!history").await;
    scene.client.until_ended("f1").await;
    let state = scene.client.subscribe(F).await["state"].clone();
    let turn = state["turns"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(strings(&said(&turn)), ["!say one", "one"]);
    assert_eq!(scene.history("t3").await, ["!say one", "one", "!say two", "two"]);
}

#[tokio::test]
async fn a_turn_that_was_stopped_can_be_gone_back_to() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    scene.client.say(&scene.chat, "t1", "!say one\n!wait").await;
    scene
        .client
        .until(|e| {
            e["action"]["content"] == json!("tick")
                || e["action"]["part"]["content"] == json!("tick")
                || e["action"]["content"] == json!("\n\ntick")
        })
        .await;
    scene.client.cancel(&scene.chat, "t1").await;
    scene.client.until_ended("t1").await;
    scene.says("t2", "!say two").await;
    rewind(&mut scene, "t1").await;
    assert_eq!(scene.history("t3").await, ["!say one\n!wait", "one"]);
}

#[tokio::test]
async fn a_point_that_the_program_has_forgotten_is_gone_back_to_through_the_transcript() {
    for how in ["", "terse", "late"] {
        let world = World::new();
        let mut scene = world.scene(that_is(how)).await;
        scene.says("t1", "!say one").await;
        // A compaction drops the entries before it.
        scene.client.ask("x-scrollback/compact", json!({ "channel": scene.chat })).await.unwrap();
        scene.client.until_type("chat/turnComplete").await;
        scene.says("t2", "!say two").await;
        rewind(&mut scene, "t1").await;
        let turn = scene.turn("t3", "!heard").await;
        let heard = said(&turn);
        assert!(heard.contains("User:\n!say one\n\nYou:\none"), "{heard}");
        assert!(!heard.contains("two"), "{heard}");
        assert!(notices(&turn)[0].contains("transcript"), "{turn}");
        // That is a conversation of its own from then on.
        assert_eq!(scene.history("t4").await.len(), 2);
        assert_eq!(notices(&scene.last().await), [] as [String; 0]);
    }
}

#[tokio::test]
async fn a_conversation_that_the_program_has_lost_begins_anew_with_the_transcript() {
    for how in ["", "terse", "late"] {
        let world = World::new();
        let mut scene = world.scene(that_is(how)).await;
        scene.says("t1", "!say one").await;
        drop(scene);
        world.forget();
        let mut scene = world.again(that_is(how)).await;
        let turn = scene.turn("t2", "!heard").await;
        assert!(said(&turn).contains("You:\none"), "{turn}");
        assert!(notices(&turn)[0].contains("does not know its conversation any more"), "{turn}");
        drop(scene);
        let mut scene = world.again(that_is(how)).await;
        assert_eq!(scene.history("t3").await.len(), 2);
    }
}

#[tokio::test]
async fn what_was_said_since_the_program_started_is_in_the_transcript_too() {
    let world = World::new();
    let limits = AgentLimits { cancel_timeout: Duration::from_millis(100), ..AgentLimits::default() };
    let mut scene = world.scene(Setup { limits, ..Setup::default() }).await;
    scene.says("t1", "!say one\n!tool Read\n!say and one").await;
    // Its program is ended, since it does not end the turn, and the next one finds nothing of the conversation.
    scene.client.say(&scene.chat, "t2", "!say two\n!hang").await;
    scene.client.until_type("chat/responsePart").await;
    scene.client.cancel(&scene.chat, "t2").await;
    scene.client.until_ended("t2").await;
    world.programs.ended().await;
    world.forget();
    let turn = scene.turn("t3", "!heard").await;
    let heard = said(&turn);
    assert!(heard.contains("You:\none\n\nand one\n\nUser:\n!say two"), "{heard}");
    assert!(notices(&turn)[0].contains("does not know its conversation any more"), "{turn}");
}

#[tokio::test]
async fn a_conversation_that_begins_anew_without_anything_to_tell_is_told_all_the_same() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    scene.client.say(&scene.chat, "t1", "!ask Bash {}").await;
    scene.client.until_type("session/inputNeededSet").await;
    drop(scene);
    world.programs.ended().await;
    world.forget();
    let mut scene = world.again(Setup::default()).await;
    scene.client.subscribe(S).await;
    let mut state = scene.state().await;
    while notices(&state["activeTurn"]).is_empty() {
        scene.client.until_type("chat/responsePart").await;
        state = scene.state().await;
    }
    let told = notices(&state["activeTurn"]);
    assert!(told[0].contains("does not know its conversation any more"), "{told:?}");
    assert!(told[0].ends_with("It began a new conversation."), "{told:?}");
}

#[tokio::test]
async fn a_turn_that_runs_when_its_chat_closes_is_stopped_before_the_input_ends() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    scene.client.say(&scene.chat, "t1", "!wait").await;
    scene.client.until_type("chat/responsePart").await;
    drop(scene);
    world.programs.ended().await;
    assert_eq!(std::fs::read_to_string(world.home.path().join("notes.jsonl")).unwrap(), "interrupt");
}

#[tokio::test]
async fn a_turn_that_a_restart_interrupted_is_taken_up_in_the_same_conversation() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    scene.says("t1", "!say one").await;
    scene.client.say(&scene.chat, "t2", "!ask Bash {}\n!history").await;
    scene.client.until_type("session/inputNeededSet").await;
    drop(scene);
    let mut scene = world.again(Setup::default()).await;
    scene.client.subscribe(S).await;
    let needed = async |scene: &mut Scene| -> Value {
        let state = scene.client.subscribe(S).await["state"].clone();
        state["inputNeeded"][0].clone()
    };
    let mut asked = needed(&mut scene).await;
    if asked.is_null() {
        asked = scene.client.until_type("session/inputNeededSet").await["action"]["request"].clone();
    }
    let answer = json!({ "type": "chat/toolCallConfirmed", "turnId": "t2",
        "toolCallId": asked["toolCall"]["toolCallId"], "approved": true, "confirmed": "user-action",
        "selectedOptionId": "allow" });
    scene.client.accepted(&scene.chat, answer).await;
    scene.client.until_ended("t2").await;
    let turn = scene.last().await;
    assert_eq!(turn["state"], "complete");
    let history = strings(&said(&turn));
    assert_eq!(history[..2], ["!say one", "one"]);
    assert!(calls(&turn).iter().any(|call| call["status"] == json!("completed")), "{turn}");
}

#[tokio::test]
async fn a_program_that_died_is_started_again_on_its_conversation_by_the_next_message() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    scene.says("t1", "!say one").await;
    let failed = error(&scene.turn("t2", "!say half\n!die").await);
    assert_eq!((&failed["error"]["errorType"], &failed["resumable"]), (&json!("agent-gone"), &json!(true)));
    let message = failed["error"]["message"].as_str().unwrap();
    assert!(message.contains("exit status: 3") && message.contains("it went wrong"), "{message}");
    assert_eq!(scene.history("t3").await[..3], ["!say one", "one", "!say half\n!die"]);
    eventually("one program is left", || world.programs.alive() == 1).await;
}

#[tokio::test]
async fn a_chat_that_is_cleared_begins_a_conversation() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    scene.says("t1", "!say one").await;
    scene.client.ask("x-scrollback/clear", json!({ "channel": scene.chat })).await.unwrap();
    assert_eq!(scene.history("t2").await, [] as [String; 0]);
    assert_eq!(notices(&scene.last().await), [] as [String; 0]);
}
