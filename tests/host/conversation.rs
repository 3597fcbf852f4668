//! A conversation, from the first message to the listing.

use serde_json::json;

use crate::harness::{TestHost, message};

#[tokio::test]
async fn a_turn_is_echoed_once_streamed_and_completed() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session("ahp-session:/s").await;
    client.subscribe(&chat).await;
    let seq = client.say(&chat, "t1", "hello").await;
    let seen = client.until_ended("t1").await;
    let echoes: Vec<_> = seen.iter().filter(|e| e["action"]["type"] == json!("chat/turnStarted")).collect();
    assert_eq!(echoes.len(), 1);
    assert_eq!(echoes[0]["origin"], json!({ "clientId": "c", "clientSeq": seq }));
    let text: String = seen.iter().filter_map(|e| e["action"]["content"].as_str()).collect();
    assert_eq!(text, "You said: hello ");
    assert_eq!(seen.last().unwrap()["action"]["type"], json!("chat/turnComplete"));
    let numbers: Vec<u64> = seen.iter().map(|e| e["serverSeq"].as_u64().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
}

#[tokio::test]
async fn a_restart_on_the_same_directory_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("c").await;
    let chat = client.create_session("ahp-session:/s").await;
    client.subscribe(&chat).await;
    client.say(&chat, "t1", "/words 20").await;
    client.until_ended("t1").await;
    client.dispatch(&chat, json!({ "type": "chat/draftChanged", "draft": message("half a th") })).await;
    client.echo(2).await;
    let before = client.subscribe(&chat).await;
    host.stop();

    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("c").await;
    assert_eq!(client.subscribe(&chat).await, before);
}
