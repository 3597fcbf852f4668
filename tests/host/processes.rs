//! What a session says of its agents' processes.

use std::time::Duration;

use scrollback::actors::host::HostSettings;
use serde_json::{Value, json};

use crate::harness::{Client, Options, TestHost};

const S: &str = "ahp-session:/s";

/// What the session says of each chat's process.
async fn listed(client: &mut Client) -> Value {
    client.subscribe(S).await["state"]["_meta"]["scrollback.process"].clone()
}

/// The next thing that is said of the chat's process.
async fn next(client: &mut Client, chat: &str) -> String {
    let is_news = |e: &Value| e["action"]["_meta"]["scrollback.process"][chat].is_string();
    let heard = client.envelope(is_news).await;
    heard["action"]["_meta"]["scrollback.process"][chat].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_session_says_of_each_chat_what_there_is_of_its_process() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.create_chat(S, "ahp-chat:/quiet").await;
    assert_eq!(listed(&mut client).await, Value::Null, "no message, no process");
    client.subscribe(&chat).await;
    client.say(&chat, "t1", "hello").await;
    assert_eq!(next(&mut client, &chat).await, "starting");
    assert_eq!(next(&mut client, &chat).await, "alive");
    client.until_ended("t1").await;
    client.run(&chat, "t2", "it stays up between turns").await;
    assert_eq!(listed(&mut client).await, json!({ &chat: "alive" }));
    client.say(&chat, "t3", "/crash").await;
    assert_eq!(next(&mut client, &chat).await, "ended");
    client.subscribe(&chat).await;
    client.say(&chat, "t4", "again").await;
    assert_eq!(next(&mut client, &chat).await, "starting");
    client.until_ended("t4").await;
    client.ask("disposeChat", json!({ "channel": chat })).await.unwrap();
    assert_eq!(listed(&mut client).await, json!({}));
}

#[tokio::test]
async fn a_process_that_ended_with_its_host_or_with_a_chat_that_fell_asleep_is_listed_as_ended() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    client.run(&chat, "t1", "hello").await;
    assert_eq!(listed(&mut client).await, json!({ &chat: "alive" }));
    host.stop();
    let settings = HostSettings { idle_timeout: Duration::from_millis(200), ..HostSettings::default() };
    let host = TestHost::on_disk_with(directory.path(), Options { settings, ..Options::default() });
    let mut client = host.client("d").await;
    assert_eq!(listed(&mut client).await, json!({ &chat: "ended" }));
    client.subscribe(&chat).await;
    client.run(&chat, "t2", "hello again").await;
    assert_eq!(next(&mut client, &chat).await, "ended");
}
