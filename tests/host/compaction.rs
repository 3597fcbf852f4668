//! Compactions of an agent's context: a notice, and no turn less.

use std::sync::Arc;

use scrollback::actors::agent::{AgentExtras, AgentInput, PromptKind};
use scrollback::events::Store;
use scrollback::events::memory::MemoryStore;
use serde_json::{Value, json};

use crate::harness::{Client, Mirrored, Options, RecordingAgent, TestHost, is_ending, markdown, types};

const S: &str = "ahp-session:/s";
const COMPACT: &str = "x-scrollback/compact";

/// The notices of a turn.
fn notices(turn: &Value) -> Vec<String> {
    let parts = turn["responseParts"].as_array().into_iter().flatten();
    let notices = parts.filter(|part| part["kind"] == json!("systemNotification"));
    notices.map(|part| part["content"].as_str().unwrap().to_owned()).collect()
}

async fn turns(client: &mut Client, chat: &str) -> Vec<Value> {
    client.subscribe(chat).await["state"]["turns"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_compaction_is_a_notice_that_says_how_many_tokens_went_where() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    client.run(&chat, "t", "before\n/compact 90000 1200\nafter\n/compact").await;
    let turn = turns(&mut client, &chat).await.remove(0);
    let said = notices(&turn);
    assert!(said[0].contains("from 90000 to 1200 tokens"), "{said:?}");
    assert!(said[1].contains("does not say how many tokens"), "{said:?}");
    assert_eq!(markdown(&turn), ["You said: before ", "You said: after "]);
}

#[tokio::test]
async fn somebody_asks_for_one_and_every_turn_stays() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let host = TestHost::start(Arc::clone(&store), Options::default());
    let (mut client, chat) = host.open(&[S]).await;
    let mut mirrored = Mirrored::connect(host.address, "m", &["ahp-root://", S, &chat]).await;
    client.run(&chat, "t", "one two three").await;
    client.drain().await;
    assert_eq!(client.ask(COMPACT, json!({ "channel": chat })).await.unwrap(), Value::Null);
    let seen = client.until(|e| is_ending(&e["action"])).await;
    let started = seen.iter().find(|e| e["action"]["type"] == json!("chat/turnStarted")).unwrap();
    let message = &started["action"]["message"];
    assert_eq!(message["origin"]["kind"], json!("systemNotification"));
    assert_eq!(message["_meta"], json!({ "scrollback.asksFor": "compaction" }), "nobody has sent it");
    assert_eq!(types(&seen).last(), Some(&"chat/turnComplete"));
    let all = turns(&mut client, &chat).await;
    assert_eq!(all.len(), 2);
    // Three words were sent and five answered.
    assert!(notices(&all[1])[0].contains("from 8 to 1 tokens"), "{:?}", notices(&all[1]));
    client.run(&chat, "t3", "/history").await;
    let history: Value = serde_json::from_str(&markdown(&turns(&mut client, &chat).await[2])[0]).unwrap();
    assert_eq!(history.as_array().unwrap().len(), 4, "{history}");
    assert_eq!(history[0]["text"], json!("one two three"));
    assert_eq!(client.subscribe(&chat).await["state"]["title"], json!("one two three"));
    mirrored.compare(&chat).await.unwrap();
    host.stop();
    let host = TestHost::start(store, Options::default());
    let mut client = host.client("c").await;
    assert_eq!(turns(&mut client, &chat).await.len(), 3);
}

#[tokio::test]
async fn the_first_turn_of_a_chat_may_be_one_and_gives_it_no_name() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    client.ask(COMPACT, json!({ "channel": chat })).await.unwrap();
    client.until(|e| is_ending(&e["action"])).await;
    assert_eq!(client.subscribe(&chat).await["state"]["title"], json!(""));
}

#[tokio::test]
async fn the_agent_is_told_what_the_turn_is_for() {
    let agent = RecordingAgent::new();
    let host = TestHost::with(Options::of(&agent));
    let (mut client, chat) = host.open(&[S]).await;
    client.ask(COMPACT, json!({ "channel": chat })).await.unwrap();
    agent.until(|inputs| !inputs.is_empty()).await;
    let kinds = agent.inputs(|input| match input {
        AgentInput::Prompt(prompt) => Some(prompt.kind),
        _ => None,
    });
    assert_eq!(kinds, [PromptKind::Compact]);
    let turn = client.subscribe(&chat).await["state"]["activeTurn"]["id"].as_str().unwrap().to_owned();
    client.cancel(&chat, &turn).await;
    client.until(|e| is_ending(&e["action"])).await;
    client.say(&chat, "t", "go").await;
    agent.until(|inputs| inputs.len() > 2).await;
    assert_eq!(
        agent.inputs(|i| if let AgentInput::Prompt(p) = i { Some(p.kind) } else { None })[1],
        PromptKind::Message
    );
}

/// Nothing is compacted while a turn runs, by an agent that cannot, or in a chat that is an agent's: and nothing changes.
#[tokio::test]
async fn what_cannot_be_compacted_is_refused_and_the_log_stays_as_it_was() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    client.run(&chat, "t", "/subagent hello").await;
    let worker = client.subscribe(S).await["state"]["chats"][1]["resource"].as_str().unwrap().to_owned();
    client.say(&chat, "t2", "/ask-tool rm x").await;
    client.until_type("session/inputNeededSet").await;
    client.drain().await;
    let agent = RecordingAgent::new().with_extras(AgentExtras { compact: false, ..AgentExtras::default() });
    let other = TestHost::with(Options::of(&agent));
    let (mut cannot, its_chat) = other.open(&[S]).await;
    let before = (host.host.store().tail(), other.host.store().tail());
    for (params, code, word) in [
        (json!({ "channel": chat }), -32004, "turn-in-progress"),
        (json!({ "channel": worker }), -32602, "read-only"),
        (json!({ "channel": "ahp-chat:/none" }), -32008, "not-found"),
        (json!({ "channel": S }), -32008, "not-found"),
        (json!({}), -32602, "invalid-params"),
    ] {
        assert_eq!(client.refused(COMPACT, params.clone()).await, (code, word.to_owned()), "{params}");
    }
    let refused = cannot.refused(COMPACT, json!({ "channel": its_chat })).await;
    assert_eq!(refused, (-32602, "unsupported".to_owned()));
    assert_eq!((host.host.store().tail(), other.host.store().tail()), before);
    assert_eq!(agent.starts(), 0);
}
