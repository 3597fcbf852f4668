//! Chats that a message attaches: pinned, kept as sent for clients, and told to the agent by their end.

use serde_json::{Value, json};

use crate::harness::attaching::{context, queues, starts, with};
use crate::harness::{Client, Options, TestHost, message, word};
use scrollback::actors::host::HostSettings;

const S: &str = "ahp-session:/s";
const OTHER: &str = "ahp-session:/other";

fn attached(label: &str, chat: &str, end: Option<&str>) -> Value {
    let mut attachment = json!({ "type": "chat", "label": label, "resource": chat });
    if let Some(end) = end {
        attachment["endTurn"] = json!(end);
    }
    attachment
}

/// A client with a chat of its own, and another chat in another session with three turns.
async fn scene(host: &TestHost) -> (Client, String, String) {
    let mut client = host.client("c").await;
    let source = client.create_session(OTHER).await;
    client.subscribe(&source).await;
    for (turn, text) in [("one", "/say alpha"), ("two", "/think hidden\n/say beta"), ("three", "gamma")] {
        client.run(&source, turn, text).await;
    }
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    (client, chat, source)
}

fn pointer(label: &str, link: &str) -> String {
    format!("{label}\n{link}\nAnother chat. Call get_session_context with this link to read it.")
}

fn excerpt(label: &str, link: &str, said: &str) -> Value {
    json!({ "type": "text", "text": format!("{}\n\nThe end of it:\n\n{said}", pointer(label, link)) })
}

#[tokio::test]
async fn a_chat_is_pinned_where_nobody_did_and_its_end_is_told_to_the_agent() {
    let host = TestHost::in_memory();
    let (mut client, chat, source) = scene(&host).await;
    let (echoed, blocks) = client.context(&chat, "t1", json!([attached("plan", &source, None)])).await;
    assert_eq!(echoed, [attached("plan", &source, Some("three"))]);
    let said = "User: /say alpha\n\nAgent: alpha\n\nUser: /think hidden\n/say beta\n\nAgent: beta\n\nUser: gamma\n\nAgent: You said: gamma";
    assert_eq!(blocks[1], excerpt("plan", &source, said));

    let (echoed, blocks) = client.context(&chat, "t2", json!([attached("plan", &source, Some("one"))])).await;
    assert_eq!(echoed, [attached("plan", &source, Some("one"))]);
    assert_eq!(blocks[1], excerpt("plan", &source, "User: /say alpha\n\nAgent: alpha"));
    // By a synonym, the link is the chat's own name.
    let (echoed, blocks) = client.context(&chat, "t3", json!([attached("plan", "ahp-chat:/other", Some("one"))])).await;
    assert_eq!(echoed, [attached("plan", "ahp-chat:/other", Some("one"))]);
    assert_eq!(blocks[1], excerpt("plan", &source, "User: /say alpha\n\nAgent: alpha"));
    assert_eq!(client.subscribe(&chat).await["state"]["turns"][0]["message"]["attachments"][0]["endTurn"], "three");
}

#[tokio::test]
async fn a_chat_that_is_not_there_is_pointed_at_and_one_without_turns_is_empty() {
    let host = TestHost::in_memory();
    let (mut client, chat, _) = scene(&host).await;
    let gone = attached("gone", "ahp-chat:/gone", Some("t"));
    let session = attached("no chat", S, None);
    let empty = attached("empty", &chat, None);
    let (echoed, blocks) = client.context(&chat, "t", json!([gone, session, empty])).await;
    assert_eq!(echoed, [gone, session, empty]);
    let texts: Vec<&str> = blocks[1..].iter().map(|block| block["text"].as_str().unwrap()).collect();
    assert_eq!(texts, [pointer("gone", "ahp-chat:/gone"), pointer("no chat", S), pointer("empty", &chat)]);
}

#[tokio::test]
async fn a_turn_that_runs_or_is_not_there_cannot_be_pinned_and_nothing_is_left_of_the_message() {
    let host = TestHost::in_memory();
    let (mut client, chat, source) = scene(&host).await;
    client.say(&source, "running", "/question go on?").await;
    client.until_type("chat/inputRequested").await;
    let before = client.subscribe(&chat).await;
    for end in ["running", "nobody's", ""] {
        let sent = with("x", json!([attached("plan", &source, Some(end))]));
        for action in [starts("t", &sent), queues("m", &sent)] {
            let refused = client.act(&chat, action).await;
            assert_eq!(word(&refused), "bad-attachment", "{end}");
        }
        let params = json!({ "channel": S, "chat": "ahp-chat:/new", "initialMessage": sent });
        assert_eq!(client.refused("createChat", params).await, (-32602, "bad-attachment".into()));
    }
    assert_eq!(client.subscribe(&chat).await, before);
    // What runs is not told: the last turn that is complete is pinned.
    let (echoed, _) = client.context(&chat, "t", json!([attached("plan", &source, None)])).await;
    assert_eq!(echoed[0]["endTurn"], "three");
    // A draft is refused for its size alone, and is pinned when it is sent.
    let drafted = with("x", json!([attached("plan", &source, Some("running")), attached("plan", &source, None)]));
    let echo = client.accepted(&chat, json!({ "type": "chat/draftChanged", "draft": drafted })).await;
    assert_eq!(echo["action"]["draft"], drafted);
}

#[tokio::test]
async fn the_end_is_a_thousand_characters_and_a_chat_inside_stands_as_its_label() {
    let host = TestHost::in_memory();
    let (mut client, chat, source) = scene(&host).await;
    let long = "ž".repeat(1_500);
    let seq = client.dispatch(&source, starts("four", &with(&long, json!([attached("inner", &chat, None)])))).await;
    client.echo(seq).await;
    client.until_ended("four").await;
    let (_, blocks) = client.context(&chat, "t1", json!([attached("plan", &source, None)])).await;
    let text = blocks[1]["text"].as_str().unwrap();
    let said = text.split("The end of it:\n\n").nth(1).unwrap();
    assert_eq!(said.chars().count(), 1_000);
    assert!(said.chars().all(|c| c == 'ž'), "{said}");
    client.run(&source, "five", "/say short").await;

    let inner = with("look", json!([attached("the inner one", &chat, None)]));
    client.accepted(&source, starts("six", &inner)).await;
    client.until_ended("six").await;
    let (_, blocks) = client.context(&chat, "t2", json!([attached("plan", &source, None)])).await;
    let text = blocks[1]["text"].as_str().unwrap();
    assert!(text.ends_with("User: look [the inner one]\n\nAgent: You said: look"), "{text}");
    assert!(
        !text.contains("get_session_context with this link to read it.\n\nThe end of it:\n\nUser: /context"),
        "{text}"
    );
}

#[tokio::test]
async fn what_was_read_is_kept_with_the_message_whatever_becomes_of_the_chat() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let (mut client, chat, source) = scene(&host).await;
    client.say(&chat, "busy", "/question go on?").await;
    client.until_type("chat/inputRequested").await;
    let sent = with("/context", json!([attached("plan", &source, None)]));
    let echo = client.accepted(&chat, queues("m", &sent)).await;
    assert_eq!(echo["action"]["message"]["attachments"], json!([attached("plan", &source, Some("three"))]));
    client.ask("disposeSession", json!({ "channel": OTHER })).await.unwrap();
    // Which pauses the queue: another message lets it go on.
    client.cancel(&chat, "busy").await;
    client.until_ended("busy").await;
    host.stop();

    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("c").await;
    client.subscribe(&chat).await;
    client.queue(&chat, "more", "more").await;
    let started = client.envelope(|e| e["action"]["queuedMessageId"] == json!("m")).await;
    let blocks = context(&client.until_ended(started["action"]["turnId"].as_str().unwrap()).await);
    assert!(blocks[1]["text"].as_str().unwrap().ends_with("User: gamma\n\nAgent: You said: gamma"), "{blocks:?}");
    // Nobody but the agent sees it.
    let listed = client.ask("x-scrollback/stateAt", json!({ "channel": chat, "serverSeq": host.host.store().tail() }));
    assert!(!listed.await.unwrap()["state"].to_string().contains("attached\":"));
}

#[tokio::test]
async fn an_edited_message_has_what_its_last_form_attached() {
    let host = TestHost::in_memory();
    let (mut client, chat, source) = scene(&host).await;
    client.say(&chat, "busy", "/question go on?").await;
    client.until_type("chat/inputRequested").await;
    client.accepted(&chat, queues("m", &with("/context", json!([attached("a", &source, Some("one"))])))).await;
    client.accepted(&chat, queues("m", &with("/context", json!([attached("b", &source, Some("two"))])))).await;
    client.cancel(&chat, "busy").await;
    client.queue(&chat, "more", "more").await;
    let started = client.envelope(|e| e["action"]["queuedMessageId"] == json!("m")).await;
    let blocks = context(&client.until_ended(started["action"]["turnId"].as_str().unwrap()).await);
    let text = blocks[1]["text"].as_str().unwrap();
    assert!(text.starts_with("b\n") && text.ends_with("Agent: beta"), "{text}");
}

#[tokio::test]
async fn a_sleeping_chat_is_read_from_its_rows() {
    let settings = HostSettings { idle_timeout: std::time::Duration::from_millis(20), ..HostSettings::default() };
    let host = TestHost::with(Options { settings, ..Options::default() });
    let (mut client, chat, source) = scene(&host).await;
    client.unsubscribe(&source).await;
    crate::harness::eventually("all sleep", || host.host.awake() == 0).await;
    let (echoed, _) = client.context(&chat, "t", json!([attached("plan", &source, Some("two"))])).await;
    assert_eq!(echoed[0]["endTurn"], "two");
    let _ = message("x");
}

#[tokio::test]
async fn a_turn_that_was_dropped_cannot_be_pinned_and_a_fork_is_read_through_its_source() {
    let host = TestHost::in_memory();
    let (mut client, chat, source) = scene(&host).await;
    let fork = json!({ "kind": "fork", "chat": source, "turnId": "two" });
    client.ask("createChat", json!({ "channel": OTHER, "chat": "ahp-chat:/fork", "source": fork })).await.unwrap();
    client.accepted(&source, json!({ "type": "chat/truncated", "turnId": "one" })).await;
    let dropped = with("x", json!([attached("plan", &source, Some("two"))]));
    assert_eq!(client.rejected(&chat, starts("t", &dropped)).await, "bad-attachment");
    let sent = json!([attached("plan", &source, None), attached("fork", "ahp-chat:/fork", None)]);
    let (echoed, blocks) = client.context(&chat, "t", sent).await;
    assert_eq!((&echoed[0]["endTurn"], &echoed[1]["endTurn"]), (&json!("one"), &json!("two")));
    assert_eq!(blocks[1], excerpt("plan", &source, "User: /say alpha\n\nAgent: alpha"));
    let said = "User: /say alpha\n\nAgent: alpha\n\nUser: /think hidden\n/say beta\n\nAgent: beta";
    assert_eq!(blocks[2], excerpt("fork", "ahp-chat:/fork", said));
}
