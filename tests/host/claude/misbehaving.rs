//! Programs that are not there, do not start, hang, flood and say what nobody can read: each an error that says what to do,
//! and no harm to anything else.

use std::time::Duration;

use scrollback::agents::AgentLimits;
use serde_json::json;

use super::{Scene, Setup, World, error, notices, that_is};
use crate::harness::eventually;

/// Runs a turn that the agent's end fails: in which words.
async fn gone(scene: &mut Scene, turn: &str, text: &str) -> String {
    let failed = error(&scene.turn(turn, text).await);
    assert_eq!(failed["error"]["errorType"], "agent-gone", "{failed}");
    failed["error"]["message"].as_str().unwrap().to_owned()
}

fn started_as(command: &str) -> Setup {
    Setup { command: vec![command.to_owned()], ..Setup::default() }
}

#[tokio::test]
async fn a_program_that_is_not_there_or_may_not_run_is_named_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("claude");
    std::fs::write(&file, "no program").unwrap();
    for (command, why) in [
        ("/nowhere/claude", "/nowhere/claude is not there"),
        ("no-such-claude", "is not installed"),
        (file.to_str().unwrap(), "no program that the host's user may run"),
    ] {
        let world = World::new();
        let mut scene = world.scene(started_as(command)).await;
        let message = gone(&mut scene, "t1", "hello").await;
        assert!(message.contains(why) && message.contains("`agents.claude`"), "{message}");
        assert!(gone(&mut scene, "t2", "hello").await.contains(why));
        let probe = world.agent(started_as(command)).probe().await;
        assert!(probe.problem.unwrap().contains(why));
    }
}

#[tokio::test]
async fn a_program_that_exits_at_once_is_told_with_its_last_words() {
    let world = World::new();
    let mut scene = world.scene(that_is("exit")).await;
    let message = gone(&mut scene, "t1", "hello").await;
    assert!(message.contains("before it was ready") && message.contains("unknown option"), "{message}");
    let problem = world.agent(that_is("exit")).probe().await.problem.unwrap();
    assert!(problem.contains("exit status: 1") && problem.contains("unknown option"), "{problem}");
}

#[tokio::test]
async fn a_program_that_says_nothing_is_told_as_slow_and_then_given_up() {
    let world = World::new();
    let limits = AgentLimits {
        slow_start: Duration::from_millis(50),
        max_start: Duration::from_millis(300),
        ..AgentLimits::default()
    };
    let mut scene = world.scene(Setup { limits: limits.clone(), ..that_is("mute") }).await;
    let turn = scene.turn("t1", "hello").await;
    assert_eq!(notices(&turn), ["The agent takes long to start."]);
    assert!(error(&turn)["error"]["message"].as_str().unwrap().contains("not ready after 300ms"), "{turn}");
    let problem = world.agent(Setup { limits, ..that_is("mute") }).probe().await.problem.unwrap();
    assert!(problem.contains("not ready after 300ms"), "{problem}");
    world.programs.ended().await;
}

#[tokio::test]
async fn a_program_that_speaks_something_else_is_ended() {
    for how in ["not-json", "broken"] {
        let world = World::new();
        let mut scene = world.scene(that_is(how)).await;
        let message = gone(&mut scene, "t1", "hello").await;
        assert!(message.contains("not stream-json"), "{message}");
        world.programs.ended().await;
    }
}

#[tokio::test]
async fn a_few_plain_lines_are_passed_over() {
    let world = World::new();
    let mut scene = world.scene(that_is("chatty")).await;
    assert_eq!(scene.says("t1", "hello").await, "Hello from the fake.");
}

#[tokio::test]
async fn a_few_plain_lines_now_and_then_are_passed_over_for_as_long_as_it_lives() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    for turn in ["t1", "t2", "t3"] {
        assert_eq!(scene.says(turn, "!plain 8\n!say on").await, "on");
    }
    assert!(gone(&mut scene, "t4", "!plain 9\n!say on").await.contains("not stream-json"));
}

#[tokio::test]
async fn a_program_that_asks_and_reads_no_answer_is_ended() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    let message = gone(&mut scene, "t1", "!deaf").await;
    assert!(message.contains("does not read what it is told"), "{message}");
    world.programs.ended().await;
    assert_eq!(scene.says("t2", "hello").await, "Hello from the fake.");
}

#[tokio::test]
async fn a_hundred_megabytes_on_stderr_hold_up_nothing() {
    let world = World::new();
    let mut scene = world.scene(that_is("flood")).await;
    assert_eq!(scene.says("t1", "hello").await, "Hello from the fake.");
    let message = gone(&mut scene, "t2", "!die").await;
    assert!(message.contains("the last words") && message.len() < 4_096, "{message}");
}

#[tokio::test]
async fn output_that_breaks_off_or_is_garbage_ends_the_turn_and_harms_nothing_else() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    for (turn, text) in [("t1", "!say before\n!cut"), ("t2", "!garbage")] {
        let failed = scene.turn(turn, text).await;
        assert_eq!(error(&failed)["error"]["errorType"], "agent-gone", "{failed}");
    }
    assert_eq!(scene.says("t3", "hello").await, "Hello from the fake.");
}

#[tokio::test]
async fn a_line_that_is_too_long_is_not_read_to_its_end() {
    let world = World::new();
    let limits = AgentLimits { max_message: 64 << 10, ..AgentLimits::default() };
    let mut scene = world.scene(Setup { limits, ..Setup::default() }).await;
    assert!(gone(&mut scene, "t1", "!long 100000").await.contains("more in one line"));
    assert_eq!(scene.says("t2", "hello").await, "Hello from the fake.");
}

#[tokio::test]
async fn a_program_that_does_not_end_a_stopped_turn_is_ended_and_started_again_on_its_conversation() {
    let world = World::new();
    let limits = AgentLimits { cancel_timeout: Duration::from_millis(100), ..AgentLimits::default() };
    let mut scene = world.scene(Setup { limits, ..Setup::default() }).await;
    scene.says("t1", "!say one").await;
    scene.client.say(&scene.chat, "t2", "!say two\n!hang").await;
    scene.client.until_type("chat/responsePart").await;
    scene.client.cancel(&scene.chat, "t2").await;
    scene.client.until_ended("t2").await;
    assert_eq!(scene.history("t3").await, ["!say one", "one", "!say two\n!hang", "two"]);
    eventually("the old program is gone", || world.programs.alive() == 1).await;
}

#[tokio::test]
async fn a_missing_login_says_how_to_log_in() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    let failed = error(&scene.turn("t1", "!login").await);
    assert_eq!(failed["error"]["errorType"], "agent-login");
    let message = failed["error"]["message"].as_str().unwrap();
    assert!(message.contains("Please run /login") && message.contains("ANTHROPIC_API_KEY"), "{message}");
}

#[tokio::test]
async fn a_turn_with_very_much_text_can_be_stopped_at_any_time() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    scene.client.say(&scene.chat, "t1", "!flood 20000\n!wait").await;
    scene.client.until_type("chat/responsePart").await;
    scene.client.cancel(&scene.chat, "t1").await;
    let seen = scene.client.until_ended("t1").await;
    assert_eq!(seen.last().unwrap()["action"]["type"], json!("chat/turnCancelled"));
    assert_eq!(scene.says("t2", "!say on").await, "on");
}
