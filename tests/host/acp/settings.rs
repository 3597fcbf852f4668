//! Modes, models and options of the agent, as the configuration of a session.

use serde_json::json;

use super::{Rig, S, notices, said, turn};
use crate::harness::{TestHost, message};

#[tokio::test]
async fn the_values_of_a_session_are_set_before_its_first_turn_and_a_change_from_the_next_one() {
    for (form, model, fast) in [("modes", "model", "false"), ("options", "llm", "true")] {
        let rig = Rig::new(&[form]);
        let (agent, _) = rig.probe().await;
        let host = TestHost::with(rig.options(agent));
        let mut config = json!({ "mode": "auto", model: "large" });
        if form == "options" {
            config["fast"] = json!(true);
        }
        let (mut client, chat) = rig.open_with(&host, config).await;
        let first = turn(&mut client, &chat, "t1", "/settings").await;
        assert_eq!(said(&first), format!("mode auto, model large, fast {fast}"));
        let changed = json!({ "type": "session/configChanged", "config": { "mode": "ask" } });
        client.accepted(S, changed).await;
        let second = turn(&mut client, &chat, "t2", "/settings").await;
        assert_eq!(said(&second), format!("mode ask, model large, fast {fast}"));
    }
}

#[tokio::test]
async fn a_message_that_names_its_model_is_answered_by_it_and_the_next_by_the_sessions() {
    let rig = Rig::new(&["modes"]);
    let (agent, _) = rig.probe().await;
    let host = TestHost::with(rig.options(agent));
    let (mut client, chat) = rig.open(&host).await;
    for (turn, model, held) in [("t1", Some("large"), "large"), ("t2", None, "small"), ("t3", Some("nobody"), "small")]
    {
        let mut sent = message("/settings");
        if let Some(model) = model {
            sent["model"] = json!({ "id": model });
        }
        let action = json!({ "type": "chat/turnStarted", "turnId": turn, "startedAt": "2026-11-30T12:00:00.000Z", "message": sent });
        client.dispatch(&chat, action).await;
        client.until_ended(turn).await;
        let ended = super::ended(&mut client, &chat, turn).await;
        assert_eq!(said(&ended), format!("mode ask, model {held}, fast false"));
        let told = if model == Some("nobody") { vec!["The agent has no model nobody.".to_owned()] } else { vec![] };
        assert_eq!(notices(&ended), told);
    }
}

#[tokio::test]
async fn a_value_that_the_agent_does_not_take_is_told_and_the_turn_goes_on() {
    let rig = Rig::new(&["modes"]);
    let (agent, _) = rig.probe().await;
    let host = TestHost::with(rig.options(agent));
    let (mut client, chat) = rig.open_with(&host, json!({ "mode": "refused" })).await;
    let first = turn(&mut client, &chat, "t", "/settings").await;
    assert_eq!(said(&first), "mode ask, model small, fast false");
    assert_eq!(notices(&first), ["The agent does not take mode = refused: Invalid params: not today."]);
    assert_eq!(notices(&turn(&mut client, &chat, "u", "/settings").await), [] as [String; 0]);
}

#[tokio::test]
async fn a_change_while_a_turn_runs_reaches_the_agent_at_once() {
    let rig = Rig::new(&["modes"]);
    let (agent, _) = rig.probe().await;
    let host = TestHost::with(rig.options(agent));
    let (mut client, chat) = rig.open(&host).await;
    client.say(&chat, "t", "/say x\n/wait").await;
    client.until_type("chat/delta").await;
    client.accepted(S, json!({ "type": "session/configChanged", "config": { "mode": "auto" } })).await;
    rig.noted("session/set_mode \"auto\"").await;
    client.cancel(&chat, "t").await;
    client.until_ended("t").await;
}

#[tokio::test]
async fn the_commands_of_the_agent_are_offered_behind_a_slash() {
    let rig = Rig::new(&[]);
    let (agent, _) = rig.probe().await;
    let host = TestHost::with(rig.options(agent));
    let (mut client, chat) = rig.open(&host).await;
    let params = json!({ "channel": chat, "kind": "userMessage", "text": "/re", "offset": 3 });
    let offered = client.ask("completions", params).await.unwrap();
    assert!(offered.to_string().contains("/review"), "{offered}");
}

#[tokio::test]
async fn a_compaction_is_the_agents_own_command_and_says_what_it_made_of_the_context() {
    let rig = Rig::new(&[]);
    let (agent, _) = rig.probe().await;
    let host = TestHost::with(rig.options(agent));
    let (mut client, chat) = rig.open(&host).await;
    turn(&mut client, &chat, "t", "/usage 900 1000").await;
    client.ask("x-scrollback/compact", json!({ "channel": chat })).await.unwrap();
    client.until_type("chat/turnComplete").await;
    let state = client.subscribe(&chat).await["state"].clone();
    let compacted = state["turns"].as_array().unwrap().last().unwrap();
    assert_eq!(said(compacted), "Context compacted");
    assert!(notices(compacted)[0].contains("from 900 to 50 tokens"), "{compacted}");
}
