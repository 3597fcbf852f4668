//! The CLI itself against the stub model, where real agents are asked for: see `real_agents`.

use serde_json::{Value, json};

use super::{S, Scene, Setup, World, calls, notices, said, steer};
use crate::real_agents::{self, Stub};

/// The CLI itself with a model to talk to; nothing where it is not asked for.
fn real(world: &World) -> Option<Stub> {
    if !real_agents::are_asked_for() {
        println!("skipped: {} is not 1", real_agents::ASKED);
        return None;
    }
    Some(Stub::start(&world.home.path().join("stub.log")))
}

fn setup(world: &World, stub: &Stub) -> Setup {
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let program = format!("claude/node_modules/@anthropic-ai/claude-code-linux-{arch}/claude");
    let program = real_agents::folder().join(program).display().to_string();
    let env = [
        ("HOME", world.home.path().display().to_string()),
        ("ANTHROPIC_BASE_URL", stub.url.clone()),
        ("ANTHROPIC_API_KEY", "none".to_owned()),
        ("CLAUDE_CODE_MAX_RETRIES", "1".to_owned()),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
        ("DISABLE_TELEMETRY", "1".to_owned()),
        ("DISABLE_AUTOUPDATER", "1".to_owned()),
    ];
    Setup { command: vec![program, "--model=stub".to_owned()], env: env.to_vec(), ..Setup::default() }
}

async fn allow(scene: &mut Scene, chat: &str, turn: &str, asked: &Value, option: &str) {
    let answer = json!({ "type": "chat/toolCallConfirmed", "turnId": turn,
        "toolCallId": asked["toolCall"]["toolCallId"], "approved": true, "confirmed": "user-action",
        "selectedOptionId": option });
    scene.client.accepted(chat, answer).await;
}

async fn asked(scene: &mut Scene) -> Value {
    scene.client.until_type("session/inputNeededSet").await["action"]["request"].clone()
}

#[tokio::test]
async fn it_answers_asks_edits_is_steered_and_stopped() {
    let world = World::new();
    let Some(stub) = real(&world) else { return };
    let mut scene = world.scene(setup(&world, &stub)).await;
    let first = scene.turn("t1", "hello").await;
    assert_eq!((said(&first).is_empty(), &first["state"]), (false, &json!("complete")));
    assert!(first["usage"]["inputTokens"].as_i64() > Some(0), "{first}");
    // In the session's own directory, so that it needs no further leave.
    let directory = scene.client.subscribe(S).await["state"]["workingDirectories"][0].as_str().unwrap().to_owned();
    let file = format!("{}/made-by-a-test-{}", directory.trim_start_matches("file://"), std::process::id());
    let text = format!("USE_TOOL:Write:{{\"file_path\":\"{file}\",\"content\":\"x\"}}");
    scene.client.say(&scene.chat, "t2", &text).await;
    let ask = asked(&mut scene).await;
    let chat = scene.chat.clone();
    allow(&mut scene, &chat, "t2", &ask, "allow").await;
    scene.client.until_ended("t2").await;
    let turn = scene.last().await;
    let made = std::fs::remove_file(&file).is_ok();
    assert!(made, "{turn}");
    assert_eq!(calls(&turn)[0]["content"][0]["type"], "fileEdit", "{turn}");
    // A message into a turn that says its last words is answered behind them.
    scene.client.say(&chat, "t3", "SLOW").await;
    scene.client.until_type("chat/responsePart").await;
    scene.client.accepted(&chat, steer("s1", "hello again")).await;
    scene.client.until_ended("t3").await;
    let turn = scene.last().await;
    assert!(said(&turn).contains("tick19 \n\n"), "{turn}");
    scene.client.say(&chat, "t4", "SLOW").await;
    scene.client.until_type("chat/responsePart").await;
    scene.client.cancel(&chat, "t4").await;
    scene.client.until_ended("t4").await;
    assert_eq!(scene.turn("t5", "hello").await["state"], "complete");
    assert_eq!(world.programs.alive(), 1);
}

#[tokio::test]
async fn it_goes_back_forks_compacts_and_goes_on_after_a_restart() {
    let world = World::new();
    let Some(stub) = real(&world) else { return };
    let mut scene = world.scene(setup(&world, &stub)).await;
    for turn in ["t1", "t2", "t3"] {
        scene.turn(turn, turn).await;
    }
    scene.client.accepted(&scene.chat, json!({ "type": "chat/truncated", "turnId": "t1" })).await;
    let turn = scene.turn("t4", "hello").await;
    assert_eq!((&turn["state"], notices(&turn).len()), (&json!("complete"), 0), "{turn}");
    drop(scene);
    let mut scene = world.again(setup(&world, &stub)).await;
    let turn = scene.turn("t5", "hello").await;
    assert_eq!((&turn["state"], notices(&turn).len()), (&json!("complete"), 0), "{turn}");
    let source = json!({ "kind": "fork", "chat": scene.chat, "turnId": "t4" });
    let fork = "ahp-chat:/f";
    scene.client.ask("createChat", json!({ "channel": S, "chat": fork, "source": source })).await.unwrap();
    scene.client.subscribe(fork).await;
    scene.client.say(fork, "f1", "hello").await;
    scene.client.until_ended("f1").await;
    let state = scene.client.subscribe(fork).await["state"].clone();
    let turn = state["turns"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&turn["state"], notices(&turn).len()), (&json!("complete"), 0), "{turn}");
    scene.client.ask("x-scrollback/compact", json!({ "channel": scene.chat })).await.unwrap();
    scene.client.until_type("chat/turnComplete").await;
    assert!(notices(&scene.last().await)[0].contains("compacted its context from"));
    scene.client.accepted(&scene.chat, json!({ "type": "chat/truncated", "turnId": "t4" })).await;
    let turn = scene.turn("t6", "hello").await;
    assert!(notices(&turn)[0].contains("transcript"), "{turn}");
}

#[tokio::test]
async fn its_subagents_are_workers_and_its_questions_are_asked() {
    let world = World::new();
    let Some(stub) = real(&world) else { return };
    let mut scene = world.scene(setup(&world, &stub)).await;
    let task = "USE_TOOL:Task:{\"description\":\"look\",\"prompt\":\"hello\",\"subagent_type\":\"general-purpose\"}";
    scene.client.say(&scene.chat, "t1", task).await;
    let added = scene.client.until_type("session/chatAdded").await;
    let worker = added["action"]["summary"]["resource"].as_str().unwrap().to_owned();
    scene.client.until_ended("t1").await;
    let state = scene.client.subscribe(&worker).await["state"].clone();
    assert_eq!(state["turns"][0]["state"], "complete");
    assert!(!said(&state["turns"][0]).is_empty(), "{state}");
    let probe = world.agent(setup(&world, &stub)).probe().await;
    assert!(probe.version.is_some_and(|version| version.starts_with("Claude Code 2.")), "{:?}", probe.problem);
}
