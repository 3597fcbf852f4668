//! Rewinds: a chat goes back to an earlier turn and its agent with it, and what was dropped stays in the log. A clear starts the
//! chat over.

use scrollback::actors::agent::{AgentEvent, AgentExtras, AgentInput};
use serde_json::{Value, json};

use crate::harness::{Client, Mirrored, Options, RecordingAgent, TestHost, eventually, markdown, on, types};

const S: &str = "ahp-session:/s";

/// A chat in which these turns were said and answered.
async fn told(host: &TestHost, turns: &[&str]) -> (Client, String) {
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    for turn in turns {
        client.run(&chat, turn, &format!("/say answer {turn}")).await;
    }
    (client, chat)
}

fn cut(turn: &str) -> Value {
    json!({ "type": "chat/truncated", "turnId": turn })
}

fn ids(state: &Value) -> Vec<String> {
    state["turns"].as_array().unwrap().iter().map(|turn| turn["id"].as_str().unwrap().to_owned()).collect()
}

async fn state(client: &mut Client, chat: &str) -> Value {
    client.subscribe(chat).await["state"].clone()
}

/// What the agent says that it holds, as (turn, role).
async fn history(client: &mut Client, chat: &str, turn: &str) -> Vec<(String, String)> {
    client.run(chat, turn, "/history").await;
    let state = state(client, chat).await;
    let said = markdown(state["turns"].as_array().unwrap().last().unwrap()).concat();
    let entries: Vec<Value> = serde_json::from_str(&said).unwrap();
    entries.iter().map(|e| (e["id"].as_str().unwrap().into(), e["role"].as_str().unwrap().into())).collect()
}

fn pairs(turns: &[&str]) -> Vec<(String, String)> {
    turns.iter().flat_map(|turn| ["user", "assistant"].map(|role| ((*turn).to_owned(), role.to_owned()))).collect()
}

async fn clear(client: &mut Client, chat: &str, force: bool) {
    let params = json!({ "channel": chat, "force": force });
    assert_eq!(client.ask("x-scrollback/clear", params).await.unwrap(), Value::Null);
}

#[tokio::test]
async fn a_rewind_drops_the_turns_after_the_named_one_and_the_agent_forgets_them() {
    let host = TestHost::in_memory();
    let (mut client, chat) = told(&host, &["t1", "t2", "t3"]).await;
    assert_eq!(history(&mut client, &chat, "t4").await, pairs(&["t1", "t2", "t3"]));
    client.accepted(&chat, cut("t1")).await;
    assert_eq!(ids(&state(&mut client, &chat).await), ["t1"]);
    assert_eq!(history(&mut client, &chat, "t5").await, pairs(&["t1"]));
    assert_eq!(ids(&state(&mut client, &chat).await), ["t1", "t5"]);
    // And once more, to a turn of the new branch.
    client.run(&chat, "t6", "/say more").await;
    client.accepted(&chat, cut("t5")).await;
    assert_eq!(history(&mut client, &chat, "t7").await, pairs(&["t1", "t5"]));
}

#[tokio::test]
async fn a_rewind_is_there_after_a_restart_and_what_it_dropped_can_still_be_looked_at() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let (mut client, chat) = told(&host, &["t1", "t2", "t3"]).await;
    let before = client.subscribe(&chat).await;
    client.accepted(&chat, cut("t1")).await;
    host.stop();
    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("d").await;
    assert_eq!(ids(&state(&mut client, &chat).await), ["t1"]);
    let params = json!({ "channel": chat, "serverSeq": before["fromSeq"] });
    let then = client.ask("x-scrollback/stateAt", params).await.unwrap();
    assert_eq!(then["state"], before["state"]);
    assert_eq!(history(&mut client, &chat, "t4").await, pairs(&["t1"]));
}

#[tokio::test]
async fn a_running_turn_is_cancelled_first_in_the_same_batch_and_its_questions_go() {
    let host = TestHost::in_memory();
    let (mut client, chat) = told(&host, &["t1", "t2"]).await;
    client.subscribe(S).await;
    client.say(&chat, "t3", "/question sure?").await;
    client.until_type("session/inputNeededSet").await;
    client.queue(&chat, "m", "later").await;
    client.dispatch(&chat, cut("t1")).await;
    let seen = client.until(|e| e["action"]["type"] == json!("chat/truncated")).await;
    let of_chat = on(&seen, &chat);
    let order = types(&of_chat).into_iter().filter(|kind| *kind != "chat/pendingMessageSet").collect::<Vec<_>>();
    assert_eq!(order, ["chat/turnCancelled", "chat/turnsLoaded", "chat/truncated"]);
    let now = state(&mut client, &chat).await;
    assert_eq!((ids(&now), now.get("activeTurn")), (vec!["t1".to_owned()], None));
    let session = client.subscribe(S).await["state"].clone();
    assert_eq!(session.get("inputNeeded"), None);
    assert_eq!(session["_meta"]["scrollback.pausedQueues"], json!([chat]));
    let seqs: Vec<u64> = of_chat.iter().map(|envelope| envelope["serverSeq"].as_u64().unwrap()).collect();
    assert_eq!(host.batch_of(seqs[seqs.len() - 3]), host.batch_of(seqs[seqs.len() - 1]));
}

#[tokio::test]
async fn a_window_that_does_not_reach_the_named_turn_is_shown_the_turns_between_first() {
    let host = TestHost::in_memory();
    let (mut client, chat) = told(&host, &["t1", "t2", "t3", "t4", "t5", "t6"]).await;
    let mut narrow = host.client("narrow").await;
    let params = json!({ "channel": chat, "view": { "turns": 2 } });
    let shown = narrow.ask("subscribe", params).await.unwrap()["snapshot"]["state"].clone();
    let mut fold: ahp_types::state::ChatState = serde_json::from_value(shown).unwrap();
    client.accepted(&chat, cut("t3")).await;
    client.run(&chat, "t7", "/say on").await;
    for envelope in on(&narrow.until_ended("t7").await, &chat) {
        if envelope["action"]["type"] == json!("chat/turnsLoaded") {
            assert_eq!(ids(&envelope["action"]), ["t3", "t4"]);
        }
        let action = serde_json::from_value(envelope["action"].clone()).unwrap();
        ahp::reducers::apply_action_to_chat(&mut fold, &action);
    }
    let folded: Vec<_> = fold.turns.iter().map(|turn| turn.id.as_str()).collect();
    assert_eq!(folded, ["t3", "t7"]);
    let cursor = fold.turns_next_cursor.clone().unwrap();
    narrow.ask("fetchTurns", json!({ "channel": chat, "cursor": cursor })).await.unwrap();
    let page = narrow.until_type("chat/turnsLoaded").await;
    ahp::reducers::apply_action_to_chat(&mut fold, &serde_json::from_value(page["action"].clone()).unwrap());
    assert_eq!(serde_json::to_value(&fold).unwrap(), state(&mut client, &chat).await);
}

#[tokio::test]
async fn a_client_that_was_away_with_a_window_follows_rewinds_and_clears_in_its_replay() {
    let host = TestHost::in_memory();
    let (mut client, chat) = told(&host, &["t1", "t2", "t3", "t4"]).await;
    let view = json!({ "channel": chat, "view": { "turns": 1 } });
    let mut seen = Vec::new();
    for id in ["first", "second"] {
        let mut away = host.client(id).await;
        let snapshot = away.ask("subscribe", view.clone()).await.unwrap()["snapshot"].clone();
        seen.push((id, snapshot));
        away.hang_up().await;
    }
    // What still goes to them would move their windows.
    eventually("both are away", || host.host.hub().counts().connections() == 1).await;
    client.accepted(&chat, cut("t2")).await;
    client.run(&chat, "t5", "/say on").await;
    let (turns, has_more) = replayed(&host, &chat, &seen[0]).await;
    assert_eq!((turns, has_more), (vec!["t2".to_owned(), "t5".to_owned()], true));
    clear(&mut client, &chat, false).await;
    client.run(&chat, "t6", "/say anew").await;
    let (turns, has_more) = replayed(&host, &chat, &seen[1]).await;
    assert_eq!((turns, has_more), (vec!["t6".to_owned()], false));
}

/// The turns that a client which comes back with `seen` holds after its replay, and whether it has a cursor.
async fn replayed(host: &TestHost, chat: &str, (id, seen): &(&str, Value)) -> (Vec<String>, bool) {
    let mut fold: ahp_types::state::ChatState = serde_json::from_value(seen["state"].clone()).unwrap();
    let mut back = Client::connect(host.address).await;
    let answer = back.reconnect(id, seen["fromSeq"].as_u64().unwrap(), &[chat]).await;
    assert_eq!(answer["type"], json!("replay"), "{answer}");
    for envelope in answer["actions"].as_array().unwrap() {
        let action = serde_json::from_value(envelope["action"].clone()).unwrap();
        ahp::reducers::apply_action_to_chat(&mut fold, &action);
    }
    (fold.turns.into_iter().map(|turn| turn.id).collect(), fold.turns_next_cursor.is_some())
}

#[tokio::test]
async fn an_official_mirror_agrees_after_rewinds_and_clears() {
    let host = TestHost::in_memory();
    let (mut client, chat) = told(&host, &["t1", "t2", "t3"]).await;
    let mut mirror = Mirrored::connect(host.address, "m", &[S, &chat]).await;
    client.accepted(&chat, cut("t2")).await;
    client.run(&chat, "t4", "/say on").await;
    mirror.sync().await;
    assert!(mirror.compare(&chat).await.is_some() && mirror.compare(S).await.is_some());
    clear(&mut client, &chat, false).await;
    client.run(&chat, "t5", "/say anew").await;
    mirror.sync().await;
    assert!(mirror.compare(&chat).await.is_some() && mirror.compare(S).await.is_some());
    assert_eq!(mirror.chat(&chat).unwrap().turns.len(), 1);
}

#[tokio::test]
async fn rewinds_that_cannot_be_done_are_refused_and_change_nothing() {
    let host = TestHost::in_memory();
    let (mut client, chat) = told(&host, &["t1", "t2", "t3"]).await;
    client.accepted(&chat, cut("t2")).await;
    client.say(&chat, "t4", "/question sure?").await;
    client.until_type("chat/inputRequested").await;
    let before = client.subscribe(&chat).await;
    let cases = [
        (json!({ "type": "chat/truncated" }), "unsupported"),
        (cut("t3"), "unknown-turn"),
        (cut("t4"), "unknown-turn"),
        (cut("never"), "unknown-turn"),
        (json!({ "type": "chat/truncated", "turnId": 5 }), "malformed"),
    ];
    for (action, code) in cases {
        assert_eq!(client.rejected(&chat, action.clone()).await, code, "{action}");
    }
    assert_eq!(client.subscribe(&chat).await, before);
    let refused = client.refused("x-scrollback/clear", json!({ "channel": chat })).await;
    assert_eq!(refused, (-32004, "turn-in-progress".to_owned()));
    let unknown = client.refused("x-scrollback/clear", json!({ "channel": "ahp-chat:/none" })).await;
    assert_eq!(unknown.0, -32008);
    let params = json!({ "channel": chat, "force": "yes" });
    assert_eq!(client.refused("x-scrollback/clear", params).await.0, -32602);
    assert_eq!(client.subscribe(&chat).await, before);
}

#[tokio::test]
async fn a_turn_that_the_agent_named_no_point_for_is_not_gone_back_to() {
    let agent = RecordingAgent::new();
    let options = Options::of(&agent);
    let host = TestHost::with(options);
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    for turn in ["t1", "t2"] {
        client.say(&chat, turn, "hello").await;
        crate::harness::eventually("the prompt", || agent.prompts().contains(&turn.to_owned())).await;
        agent.ends(turn).await;
        client.until_ended(turn).await;
    }
    let before = client.subscribe(&chat).await;
    assert_eq!(client.rejected(&chat, cut("t1")).await, "no-rewind-point");
    assert_eq!(client.subscribe(&chat).await, before);
}

#[tokio::test]
async fn an_agent_that_cannot_go_back_is_not_asked_to() {
    let agent = RecordingAgent::new().with_extras(AgentExtras { rewind: false, ..AgentExtras::default() });
    let options = Options::of(&agent);
    let host = TestHost::with(options);
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    for turn in ["t1", "t2"] {
        client.say(&chat, turn, "hello").await;
        crate::harness::eventually("the prompt", || agent.prompts().contains(&turn.to_owned())).await;
        agent.emits(AgentEvent::RewindPoint { turn_id: turn.into(), point: turn.into() }).await;
        agent.ends(turn).await;
        client.until_ended(turn).await;
    }
    let before = client.subscribe(&chat).await;
    assert_eq!(client.rejected(&chat, cut("t1")).await, "unsupported");
    assert_eq!(client.subscribe(&chat).await, before);
    assert_eq!(agent.starts(), 1);
}

#[tokio::test]
async fn a_clear_empties_the_chat_its_queue_and_the_agents_memory() {
    let host = TestHost::in_memory();
    let (mut client, chat) = told(&host, &["t1", "t2"]).await;
    client.subscribe(S).await;
    client.say(&chat, "t3", "/question sure?\n/await-steering").await;
    client.until_type("chat/inputRequested").await;
    client.queue(&chat, "m1", "later").await;
    client.queue(&chat, "m2", "later still").await;
    let steering = json!({ "type": "chat/pendingMessageSet", "kind": "steering", "id": "m3",
        "message": crate::harness::message("to the left") });
    client.accepted(&chat, steering).await;
    clear(&mut client, &chat, true).await;
    let now = state(&mut client, &chat).await;
    assert_eq!((ids(&now).len(), now.get("activeTurn"), now.get("queuedMessages")), (0, None, None));
    assert_eq!(now.get("steeringMessage"), None);
    let session = client.subscribe(S).await["state"].clone();
    assert_eq!(session.get("inputNeeded"), None);
    assert_eq!(history(&mut client, &chat, "t4").await, []);
    assert_eq!(
        client
            .rejected(
                &chat,
                json!({ "type": "chat/turnStarted", "turnId": "t1",
        "startedAt": "2026-11-30T12:00:00Z", "message": crate::harness::message("x") })
            )
            .await,
        "duplicate-turn"
    );
}

#[tokio::test]
async fn what_an_agent_says_of_its_conversation_while_it_is_ended_is_not_of_the_new_one() {
    let agent = RecordingAgent::new();
    let host = TestHost::with(Options::of(&agent));
    let mut client = host.client("c").await;
    let chat = client.create_session("ahp-session:/s").await;
    client.say(&chat, "t", "x").await;
    eventually("it is prompted", || agent.prompts() == ["t"]).await;
    let speaker = agent.clone();
    let speaks = tokio::spawn(async move {
        loop {
            speaker.emits(AgentEvent::Conversation { id: "the old one".into() }).await;
        }
    });
    let said = |text: &str| {
        let log = host.log();
        log.into_iter().rfind(|(_, bytes)| String::from_utf8_lossy(bytes).contains(text)).map(|(seq, _)| seq)
    };
    eventually("it speaks", || said("the old one").is_some()).await;
    client.ask("x-scrollback/clear", json!({ "channel": chat, "force": true })).await.unwrap();
    agent.until(|told| told.iter().any(|input| matches!(input, AgentInput::Close))).await;
    speaks.abort();
    assert!(said("the old one") < said("chat/truncated"));
}
