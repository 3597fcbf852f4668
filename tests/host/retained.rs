//! What the host does by itself with what is old, on a clock of the tests.

use std::sync::Arc;
use std::time::Duration;

use scrollback::actors::command::Refusal;
use scrollback::actors::host::HostSettings;
use scrollback::clock::Clock;
use scrollback::events::MemoryStore;
use scrollback::events::gated::GatedStore;
use scrollback::projections::verify::verify;
use serde_json::json;

use crate::harness::{Client, Options, TestHost, chat_of, eventually};

const S: &str = "ahp-session:/s";
const P: &str = "ahp-chat:/p";
const DAY: i64 = 24 * 3_600 * 1_000;

fn options(clock: &Clock, settings: HostSettings) -> Options {
    let settings = HostSettings { delta_window: Duration::ZERO, ..settings };
    Options { settings, clock: clock.clone(), ..Options::default() }
}

fn deltas(host: &TestHost) -> usize {
    host.records().iter().filter(|record| record.action.starts_with(br#"{"type":"chat/delta""#)).count()
}

fn is_there(host: &TestHost, uri: &str) -> bool {
    let row = host.host.store().get(scrollback::events::Table::ChannelByUri, uri.as_bytes());
    row.unwrap().is_some()
}

async fn told(host: &TestHost, words: &str) -> (Client, String) {
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.create_chat(S, P).await;
    client.subscribe(&chat).await;
    client.run(&chat, "t1", words).await;
    client.drain().await;
    (client, chat)
}

#[tokio::test]
async fn streamed_text_is_folded_when_it_is_as_old_as_it_is_to_be() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::fixed(1_795_000_000_000);
    let host = TestHost::on_disk_with(directory.path(), options(&clock, HostSettings::default()));
    let (mut client, chat) = told(&host, "/words 2500").await;
    assert_eq!(deltas(&host), 2_500);
    clock.advance(29 * DAY);
    client.subscribe(&chat).await;
    client.run(&chat, "t2", "/words 1500").await;
    // It was looked at, more than once, and nothing was old enough; then the first turn is.
    clock.advance(DAY + 1);
    eventually("the first turn's fold", || {
        clock.advance(DAY / 24);
        deltas(&host) < 2_500
    })
    .await;
    assert!(deltas(&host) >= 1_500, "the second turn is new");
    verify(host.host.store().as_ref(), &mut |_| ()).unwrap();
    clock.advance(31 * DAY);
    eventually("the second turn's fold", || {
        clock.advance(DAY);
        deltas(&host) < 1_000
    })
    .await;
}

#[tokio::test]
async fn what_was_closed_is_erased_when_it_is_as_old_as_it_is_to_be_and_its_bytes_go() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::fixed(1_795_000_000_000);
    let kept = Some(Duration::from_secs(10 * 24 * 3_600));
    let settings = HostSettings { retain_closed: kept, retain_deltas: None, ..HostSettings::default() };
    let host = TestHost::on_disk_with(directory.path(), options(&clock, settings));
    let (mut client, chat) = told(&host, "stays").await;
    client.subscribe(P).await;
    client.run(P, "p1", "the secret word").await;
    client.ask("disposeChat", json!({ "channel": P })).await.unwrap();
    client.create_session("ahp-session:/gone").await;
    client.ask("disposeSession", json!({ "channel": "ahp-session:/gone" })).await.unwrap();
    client.create_session("ahp-session:/back").await;
    client.ask("disposeSession", json!({ "channel": "ahp-session:/back" })).await.unwrap();
    host.host.restore("root:test", "ahp-session:/back").await.unwrap();
    client.drain().await;
    let log = directory.path().join("log/db");
    // Between two renames there is no such file.
    let has_secret = || std::fs::read(&log).map_or(true, |file| String::from_utf8_lossy(&file).contains("the secret "));
    clock.advance(9 * DAY);
    client.run(&chat, "t2", "stays too").await;
    assert!(is_there(&host, P) && is_there(&host, "ahp-session:/gone"));
    assert!(has_secret());
    eventually("the erasures", || {
        clock.advance(DAY / 24);
        !is_there(&host, P) && !is_there(&host, "ahp-session:/gone")
    })
    .await;
    eventually("the bytes", || {
        clock.advance(DAY / 24);
        !has_secret()
    })
    .await;
    for there in [S, &chat, &chat_of(S), "ahp-session:/back"] {
        assert!(is_there(&host, there), "{there}");
    }
    verify(host.host.store().as_ref(), &mut |_| ()).unwrap();
}

/// Somebody brings one of them back while the host is at the one before.
#[tokio::test]
async fn what_comes_back_while_others_are_erased_stays() {
    let store = GatedStore::new(MemoryStore::new().unwrap());
    let gate = store.gate();
    let clock = Clock::fixed(1_795_000_000_000);
    let kept = Some(Duration::from_secs(10 * 24 * 3_600));
    let settings = HostSettings { retain_closed: kept, retain_deltas: None, ..HostSettings::default() };
    let host = TestHost::start(Arc::new(store), options(&clock, settings));
    let mut client = host.client("c").await;
    let [first, back, last] = ["ahp-session:/1", "ahp-session:/2", "ahp-session:/3"];
    for session in [first, back, last] {
        client.create_session(session).await;
        client.ask("disposeSession", json!({ "channel": session })).await.unwrap();
    }
    client.create_session(S).await;
    let chat = chat_of(S);
    let q = "ahp-chat:/q";
    client.create_chat(S, q).await;
    client.ask("disposeChat", json!({ "channel": q })).await.unwrap();
    client.hang_up().await;
    gate.hold();
    eventually("the first erasure", || {
        clock.advance(DAY);
        gate.held() > 0
    })
    .await;
    let (of_host, restored) = (Arc::clone(&host.host), [back, q]);
    let restored = tokio::spawn(async move {
        for uri in restored {
            of_host.restore("root:test", uri).await?;
        }
        Ok::<_, Refusal>(())
    });
    tokio::task::yield_now().await;
    gate.release_all();
    restored.await.unwrap().unwrap();
    eventually("the last erasure", || {
        clock.advance(DAY / 24);
        !is_there(&host, first) && !is_there(&host, last)
    })
    .await;
    for there in [back, S, &chat, q] {
        assert!(is_there(&host, there), "{there}");
    }
    verify(host.host.store().as_ref(), &mut |_| ()).unwrap();
}

#[tokio::test]
async fn nothing_is_done_where_nothing_is_to_be() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::fixed(1_795_000_000_000);
    let settings = HostSettings { retain_deltas: None, ..HostSettings::default() };
    let host = TestHost::on_disk_with(directory.path(), options(&clock, settings));
    let (mut client, chat) = told(&host, "/words 1200").await;
    client.ask("disposeChat", json!({ "channel": P })).await.unwrap();
    for _ in 0..400 {
        clock.advance(DAY);
    }
    client.subscribe(&chat).await;
    client.run(&chat, "t2", "/history").await;
    assert!(deltas(&host) >= 1_200);
    assert!(is_there(&host, P));
}
