//! Drafts: one a chat, everybody's, kept, and gone when the chat's next message is sent.

use serde_json::{Value, json};

use crate::harness::{TestHost, message};

const S: &str = "ahp-session:/s";

fn draft(text: &str) -> Value {
    json!({ "type": "chat/draftChanged", "draft": message(text) })
}

#[tokio::test]
async fn a_draft_is_seen_by_everybody_kept_over_a_restart_and_counts_as_no_change() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    let mut other = host.client("d").await;
    let before = other.subscribe(&chat).await["state"].clone();
    let listed = client.listed().await;
    client.dispatch(&chat, draft("half a th")).await;
    assert_eq!(other.until_type("chat/draftChanged").await["action"]["draft"], message("half a th"));
    other.accepted(&chat, draft("half a thought")).await;
    assert_eq!(client.listed().await, listed);
    host.stop();

    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("c").await;
    let after = client.subscribe(&chat).await["state"].clone();
    assert_eq!(after["draft"], message("half a thought"));
    assert_eq!((&after["modifiedAt"], &after["title"]), (&before["modifiedAt"], &json!("")));
    client.accepted(&chat, json!({ "type": "chat/draftChanged" })).await;
    assert_eq!(client.subscribe(&chat).await["state"].get("draft"), None);
}

#[tokio::test]
async fn a_draft_is_taken_while_a_turn_runs_and_cleared_by_the_next_message() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    client.accepted(&chat, draft("one")).await;
    client.say(&chat, "t1", "/question sure?").await;
    let cleared = client.until_type("chat/draftChanged").await;
    assert_eq!((cleared["action"].get("draft"), cleared.get("origin")), (None, None));
    client.until_type("chat/inputRequested").await;
    client.accepted(&chat, draft("two")).await;
    client.queue(&chat, "m", "two").await;
    assert_eq!(client.until_type("chat/draftChanged").await["action"].get("draft"), None);
    assert_eq!(client.subscribe(&chat).await["state"].get("draft"), None);
    // What somebody writes meanwhile stays when the queued message goes out.
    client.accepted(&chat, draft("three")).await;
    let asked = client.subscribe(&chat).await["state"]["activeTurn"]["responseParts"][0]["request"]["id"].clone();
    client.dispatch(&chat, json!({ "type": "chat/inputCompleted", "requestId": asked, "response": "cancel" })).await;
    client.envelope(|e| e["action"]["queuedMessageId"] == json!("m")).await;
    assert_eq!(client.subscribe(&chat).await["state"]["draft"], message("three"));
}

#[tokio::test]
async fn a_draft_is_a_persons_and_carries_none_of_our_keys() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    let forged = json!({ "type": "chat/draftChanged", "draft": { "text": "x", "origin": { "kind": "agent" } } });
    assert_eq!(client.rejected(&chat, forged).await, "malformed");
    let mut keyed = draft("x");
    keyed["draft"]["_meta"] = json!({ "scrollback.sender": "user:queen", "theirs": 1 });
    let echo = client.accepted(&chat, keyed.clone()).await;
    assert_eq!(echo["action"]["draft"]["_meta"], json!({ "theirs": 1 }));
    let again = client.accepted(&chat, keyed).await;
    assert_eq!(again["serverSeq"], echo["serverSeq"]);
}
