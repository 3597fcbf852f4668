//! What a turn says, does and uses; steering, stopping, and what is configured.

use serde_json::json;

use super::{S, Setup, World, calls, error, notices, said, steer, that_is};
use crate::harness::{message, types};

#[tokio::test]
async fn an_answer_streams_and_nothing_of_it_is_said_twice() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    assert_eq!(scene.says("t1", "hello").await, "Hello from the fake.");
    let turn = scene.turn("t2", "!think why not\n!say one two\n!say three\n!empty").await;
    assert_eq!(said(&turn), "one two\n\nthree");
    let parts = turn["responseParts"].as_array().unwrap();
    assert_eq!((&parts[0]["kind"], &parts[0]["content"]), (&json!("reasoning"), &json!("why not")));
    assert_eq!(turn["state"], "complete");
}

#[tokio::test]
async fn the_same_program_answers_all_turns_of_a_chat_and_ends_with_it() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    scene.says("t1", "hello").await;
    assert_eq!(scene.history("t2").await, ["hello", "Hello from the fake."]);
    assert_eq!(world.programs.alive(), 1);
    scene.client.ask("disposeSession", json!({ "channel": S })).await.unwrap();
    world.programs.ended().await;
}

#[tokio::test]
async fn what_a_turn_used_is_told_and_what_it_cost() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    let usage = scene.turn("t", "hello").await["usage"].clone();
    assert_eq!((&usage["inputTokens"], &usage["outputTokens"]), (&json!(10), &json!(5)));
    assert_eq!((&usage["cacheReadTokens"], &usage["_meta"]["scrollback.cost"]["amount"]), (&json!(3), &json!(0.25)));
    assert_eq!(usage["model"], "fake-model");
}

#[tokio::test]
async fn a_tool_that_nobody_is_asked_about_runs_and_its_result_is_shown() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    let turn = scene.turn("t", "!tool Bash {\"command\":\"ls\"}\n!edit /w/a.txt").await;
    let [bash, edit] = &calls(&turn)[..] else { panic!("{turn}") };
    assert_eq!((&bash["status"], &bash["success"]), (&json!("completed"), &json!(true)));
    assert_eq!(bash["pastTenseMessage"], "Ran ls");
    assert_eq!(bash["content"][0]["text"], "{\"command\":\"ls\"}");
    assert_eq!(edit["content"][0]["type"], "fileEdit");
    assert_eq!(edit["content"][0]["after"]["uri"], "file:///w/a.txt");
    assert_eq!(edit["content"][0]["diff"], json!({ "added": 2, "removed": 1 }));
}

#[tokio::test]
async fn a_call_that_is_left_unfinished_is_closed_with_its_turn() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    let turn = scene.turn("t", "!unfinished ls").await;
    assert_eq!(turn["state"], "complete");
    assert_eq!(calls(&turn)[0]["status"], "cancelled");
}

#[tokio::test]
async fn a_stopped_turn_is_over_at_once_and_what_still_arrives_goes_nowhere() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    scene.client.say(&scene.chat, "t1", "!wait").await;
    scene.client.until_type("chat/responsePart").await;
    scene.client.cancel(&scene.chat, "t1").await;
    scene.client.until_ended("t1").await;
    let turn = scene.last().await;
    assert_eq!((&turn["state"], said(&turn).as_str()), (&json!("cancelled"), "tick"));
    assert_eq!(scene.says("t2", "hello").await, "Hello from the fake.");
    let turns = scene.state().await["turns"].clone();
    assert_eq!(turns[0], turn);
    assert_eq!(
        scene.history("t3").await,
        ["!wait", "tick", "too late", "[Request interrupted by user]", "hello", "Hello from the fake."]
    );
    assert_eq!(world.programs.alive(), 1);
}

#[tokio::test]
async fn a_message_goes_into_the_running_turn_at_its_next_step() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    scene.client.say(&scene.chat, "t", "!await-steering\n!say end").await;
    scene.client.until_type("chat/toolCallStart").await;
    scene.client.accepted(&scene.chat, steer("s1", "to the left")).await;
    let seen = scene.client.until_ended("t").await;
    let removed = seen.iter().position(|e| e["action"]["type"] == json!("chat/pendingMessageRemoved"));
    assert!(removed.is_some(), "{:?}", types(&seen));
    assert_eq!(said(&scene.last().await), "steered: to the left\n\nend");
    assert_eq!(scene.state().await.get("steeringMessage"), None);
}

#[tokio::test]
async fn a_message_into_a_turn_that_takes_no_more_steps_is_answered_in_the_same_turn() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    let ask = "!ask Bash {\"command\":\"x\"}";
    scene.client.say(&scene.chat, "t", ask).await;
    let asked = scene.client.until_type("session/inputNeededSet").await["action"]["request"].clone();
    scene.client.accepted(&scene.chat, steer("s1", "!say the other way")).await;
    let call = asked["toolCall"]["toolCallId"].clone();
    let answer = json!({ "type": "chat/toolCallConfirmed", "turnId": "t", "toolCallId": call, "approved": true,
        "confirmed": "user-action", "selectedOptionId": "allow" });
    scene.client.accepted(&scene.chat, answer).await;
    scene.client.until_ended("t").await;
    let state = scene.state().await;
    assert_eq!(state["turns"].as_array().unwrap().len(), 1);
    assert_eq!(said(&state["turns"][0]), "the other way");
    assert_eq!(state.get("queuedMessages").and_then(|queued| queued.as_array()).map_or(0, Vec::len), 0);
}

#[tokio::test]
async fn the_model_and_the_mode_are_those_of_the_session_and_change_with_it() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    assert_eq!(scene.says("t1", "!mode").await, "fake-model default");
    scene.configure(json!({ "model": "opus", "mode": "acceptEdits" })).await;
    assert_eq!(scene.says("t2", "!mode").await, "opus acceptEdits");
    drop(scene);
    let mut scene = world.again(Setup::default()).await;
    assert_eq!(scene.says("t3", "!mode").await, "opus acceptEdits");
    let said = scene.says("t4", "!args").await;
    assert!(said.contains("--model=opus") && said.contains("--permission-mode=acceptEdits"), "{said}");
}

#[tokio::test]
async fn a_message_may_name_a_model_of_its_own() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    let mut named = message("!mode");
    named["model"] = json!({ "id": "opus" });
    let action = json!({ "type": "chat/turnStarted", "turnId": "t1", "startedAt": "2026-11-30T12:00:00.000Z",
        "message": named });
    scene.client.dispatch(&scene.chat, action).await;
    scene.client.until_ended("t1").await;
    assert_eq!(said(&scene.last().await), "opus default");
    assert_eq!(scene.says("t2", "!mode").await, "default default");
}

#[tokio::test]
async fn a_mode_that_lets_no_tool_ask_is_there_only_where_the_program_is_started_for_it() {
    let world = World::new();
    let modes = |setup| {
        let (schema, _) = world.agent(setup).configuration();
        schema.properties["mode"].r#enum.clone().unwrap()
    };
    assert!(!modes(Setup::default()).contains(&json!("bypassPermissions")));
    let mut setup = Setup::default();
    setup.command.push("--allow-dangerously-skip-permissions".into());
    assert!(modes(setup).contains(&json!("bypassPermissions")));
}

#[tokio::test]
async fn a_compaction_that_is_asked_for_is_told_with_its_tokens() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    scene.says("t1", "hello").await;
    scene.client.ask("x-scrollback/compact", json!({ "channel": scene.chat })).await.unwrap();
    scene.client.until_type("chat/turnComplete").await;
    let turn = scene.last().await;
    assert!(notices(&turn)[0].contains("from 900 to 90 tokens"), "{turn}");
    assert_eq!(said(&turn), "");
}

#[tokio::test]
async fn limits_end_a_turn_as_such_and_say_when_they_lift() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    let usage = error(&scene.turn("t1", "!limit usage 4102444800").await);
    assert_eq!(usage["error"]["errorType"], "usage-limit");
    assert_eq!(
        usage["error"]["_meta"]["scrollback.limit"],
        json!({ "kind": "usage",
        "resetsAt": "2100-01-01T00:00:00.000Z" })
    );
    assert_eq!(usage["resumable"], true);
    let overload = error(&scene.turn("t2", "!limit overload").await);
    assert_eq!(overload["error"]["errorType"], "overloaded");
    // The message that the CLI makes of an error is the error's, and no text.
    assert_eq!(said(&scene.last().await), "");
    let failed = error(&scene.turn("t3", "!fail the model is ill").await);
    assert_eq!(
        (&failed["error"]["errorType"], &failed["error"]["message"]),
        (&json!("agent-error"), &json!("the model is ill"))
    );
}

#[tokio::test]
async fn images_and_files_reach_the_program() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    // A file of the host is named by its path; one that is not there would be asked of the client.
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().canonicalize().unwrap();
    std::fs::write(folder.join("a b.txt"), "a").unwrap();
    let mut sent = message("!heard");
    sent["attachments"] = json!([
        { "type": "embeddedResource", "label": "p.png", "contentType": "image/png", "data": "aGk=" },
        { "type": "resource", "label": "a.txt", "uri": format!("file://{}/a%20b.txt", folder.display()) }]);
    let action = json!({ "type": "chat/turnStarted", "turnId": "t1", "startedAt": "2026-11-30T12:00:00.000Z",
        "message": sent });
    scene.client.dispatch(&scene.chat, action).await;
    scene.client.until_ended("t1").await;
    let said = said(&scene.last().await);
    assert!(said.contains("image image/png aGk="), "{said}");
    assert!(said.contains(&format!("Attached: a.txt ({}/a b.txt)", folder.display())), "{said}");
}

#[tokio::test]
async fn the_program_works_in_the_chats_directory_and_finds_the_hosts_tools() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    let state = scene.client.subscribe(S).await["state"].clone();
    let cwd = scene.says("t1", "!cwd").await;
    assert_eq!(state["workingDirectories"][0], json!(format!("file://{cwd}")));
    let arguments = scene.says("t2", "!args").await;
    assert!(arguments.contains("/mcp/") && arguments.contains("--allowedTools=mcp__scrollback"), "{arguments}");
    let token = scene.says("t3", "!env SCROLLBACK_MCP_TOKEN").await;
    assert!(token.len() > 20 && !arguments.contains(&token), "{token}");
    assert_eq!(scene.says("t4", "!env CLAUDE_CODE_DISABLE_BACKGROUND_TASKS").await, "1");
}

#[tokio::test]
async fn what_is_said_between_two_turns_is_told_in_the_next_one() {
    let world = World::new();
    let mut scene = world.scene(Setup::default()).await;
    scene.says("t1", "!say one\n!after by the way").await;
    let turn = scene.turn("t2", "hello").await;
    // Also where the message overtook what was said: then it is told one turn later.
    let later = scene.turn("t3", "hello").await;
    let told: Vec<String> = [&turn, &later].into_iter().flat_map(notices).collect();
    assert_eq!(told, ["The agent said between the turns: by the way"]);
    assert_eq!(said(&turn), "Hello from the fake.");
}

#[tokio::test]
async fn a_version_that_tells_nothing_of_messages_works_too() {
    let world = World::new();
    let mut scene = world.scene(that_is("old")).await;
    assert_eq!(scene.says("t1", "hello").await, "Hello from the fake.");
    assert_eq!(scene.says("t2", "!say two").await, "two");
    scene.client.say(&scene.chat, "t3", "!wait").await;
    scene.client.until_type("chat/responsePart").await;
    scene.client.cancel(&scene.chat, "t3").await;
    scene.client.until_ended("t3").await;
    assert_eq!(scene.says("t4", "!say four").await, "four");
}

#[tokio::test]
async fn a_probe_finds_models_commands_and_the_version() {
    let world = World::new();
    let agent = world.agent(Setup::default());
    let probe = agent.probe().await;
    assert_eq!((probe.version.as_deref(), probe.problem), (Some("Claude Code 2.1.332"), None));
    let models: Vec<String> = agent.info().models.into_iter().map(|model| model.id).collect();
    assert_eq!(models, ["default", "opus"]);
    assert_eq!(agent.commands()[0].name, "compact");
    let offered = agent.config_values("model", &serde_json::Map::new(), "opu");
    assert_eq!(offered[0].value, "opus");
    world.programs.ended().await;
}
