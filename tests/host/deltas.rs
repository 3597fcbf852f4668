//! Streamed text: joined into fewer pieces, never different, and never behind what came after it.

use std::time::Duration;

use scrollback::actors::host::HostSettings;
use serde_json::json;

use crate::harness::{Client, Options, TestHost, markdown, streamed, types};

async fn open(window: Duration) -> (TestHost, Client, String) {
    let settings = HostSettings { delta_window: window, ..HostSettings::default() };
    let host = TestHost::with(Options { settings, ..Options::default() });
    let mut client = host.client("c").await;
    let chat = client.create_session("ahp-session:/s").await;
    client.subscribe(&chat).await;
    (host, client, chat)
}

#[tokio::test]
async fn words_are_joined_and_the_text_is_the_same() {
    let mut seen = Vec::new();
    for window in [Duration::from_secs(1), Duration::ZERO] {
        let (_host, mut client, chat) = open(window).await;
        let heard = client.run(&chat, "t", "/words 200").await;
        let turn = client.subscribe(&chat).await["state"]["turns"][0].clone();
        assert_eq!(markdown(&turn), [streamed(&heard)]);
        seen.push((streamed(&heard), types(&heard).iter().filter(|kind| **kind == "chat/delta").count()));
    }
    assert_eq!(seen[0].0, seen[1].0);
    assert!(seen[0].0.starts_with("w1 w2 ") && seen[0].0.ends_with("w200 "), "{}", seen[0].0);
    assert_eq!((seen[0].1, seen[1].1), (1, 200));
}

#[tokio::test]
async fn a_pending_run_is_flushed_at_sixteen_kibibytes() {
    let (_host, mut client, chat) = open(Duration::from_secs(1)).await;
    let word = "x".repeat(1_023);
    let text = vec![word.as_str(); 40].join(" ");
    let heard = client.run(&chat, "t", &format!("/say {text}")).await;
    let pieces: Vec<usize> = heard.iter().filter_map(|e| e["action"]["content"].as_str()).map(str::len).collect();
    assert_eq!(pieces, [16_384, 16_384, 8_192]);
    assert_eq!(streamed(&heard), format!("{text} "));
}

#[tokio::test]
async fn text_is_flushed_before_anything_else_of_the_chat() {
    let (_host, mut client, chat) = open(Duration::from_secs(1)).await;
    let heard = client.run(&chat, "t", "/say one\n/tool ls a\n/think deep\n/say two\n/usage 3 4").await;
    let kinds: Vec<&str> = types(&heard).into_iter().filter(|kind| kind.starts_with("chat/")).collect();
    assert_eq!(
        kinds,
        [
            "chat/turnStarted",
            "chat/responsePart",
            "chat/delta",
            "chat/toolCallStart",
            "chat/toolCallReady",
            "chat/toolCallComplete",
            "chat/responsePart",
            "chat/reasoning",
            "chat/responsePart",
            "chat/delta",
            "chat/usage",
            "chat/turnComplete"
        ]
    );
    let turn = client.subscribe(&chat).await["state"]["turns"][0].clone();
    assert_eq!(markdown(&turn), ["one ", "two "]);
    assert_eq!(turn["usage"]["inputTokens"], json!(3));
}
