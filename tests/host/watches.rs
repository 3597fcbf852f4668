//! Watches of files: channels beside the log.

use std::fs;

use ahp_types::actions::ActionEnvelope;
use ahp_types::state::ResourceWatchState;
use scrollback::actors::host::HostSettings;
use serde_json::{Value, json};

use crate::harness::{Client, Options, TestHost, envelopes, eventually};
use crate::resources::{Ground, of};

const S: &str = "ahp-session:/s";

async fn watch(client: &mut Client, uri: &str, more: Value) -> String {
    let answer = client.ask("createResourceWatch", of(uri, more)).await.unwrap();
    answer["channel"].as_str().unwrap().to_owned()
}

/// Reads on until the changes of a watch name this resource; returns what happened to it.
async fn change(client: &mut Client, channel: &str, uri: &str) -> String {
    loop {
        let heard = client.envelope(|envelope| envelope["channel"] == json!(channel)).await;
        let _: ActionEnvelope = serde_json::from_value(heard.clone()).unwrap();
        assert_eq!(heard["action"]["type"], json!("resourceWatch/changed"));
        let items = heard["action"]["changes"]["items"].as_array().unwrap();
        assert!(!items.is_empty());
        if let Some(item) = items.iter().find(|item| item["uri"] == json!(uri)) {
            return item["type"].as_str().unwrap().to_owned();
        }
    }
}

#[tokio::test]
async fn a_watch_tells_what_changes_and_its_snapshot_what_it_is_for() {
    let ground = Ground::new();
    ground.put("w/old", "x");
    ground.put("w/d/deep", "x");
    let mut client = ground.host.client("c").await;
    let channel = watch(&mut client, &ground.uri("w"), json!({ "excludes": { "items": ["*.tmp"] } })).await;
    assert!(channel.starts_with("ahp-resource-watch:/"));
    let snapshot = client.subscribe(&channel).await;
    let state: ResourceWatchState = serde_json::from_value(snapshot["state"].clone()).unwrap();
    assert_eq!((state.root, state.recursive), (ground.uri("w"), false));
    assert_eq!(snapshot["state"]["excludes"], json!({ "items": ["*.tmp"] }));
    ground.put("w/gone.tmp", "x");
    ground.put("w/d/unheard", "x");
    let new = ground.put("w/new", "x");
    assert_eq!(change(&mut client, &channel, &ground.uri("w/new")).await, "added");
    fs::write(&new, "y").unwrap();
    assert_eq!(change(&mut client, &channel, &ground.uri("w/new")).await, "updated");
    fs::remove_file(&new).unwrap();
    assert_eq!(change(&mut client, &channel, &ground.uri("w/new")).await, "deleted");
    // A write of this host takes the place of a file, which is a change of it.
    let write = of(&ground.uri("w/old"), json!({ "data": "y", "encoding": "utf-8" }));
    client.ask("resourceWrite", write).await.unwrap();
    assert_eq!(change(&mut client, &channel, &ground.uri("w/old")).await, "updated");
    let write = of(&ground.uri("w/made"), json!({ "data": "y", "encoding": "utf-8" }));
    client.ask("resourceWrite", write).await.unwrap();
    assert_eq!(change(&mut client, &channel, &ground.uri("w/made")).await, "added");
    let rest = client.drain().await;
    let odd = |message: &Value| message.to_string().contains("tmp") || message.to_string().contains("unheard");
    assert!(!rest.iter().any(odd), "{rest:?}");
}

#[tokio::test]
async fn a_recursive_watch_hears_of_directories_that_come_later_and_of_nothing_behind_a_link() {
    let ground = Ground::new();
    ground.put("w/a/b/c", "x");
    std::os::unix::fs::symlink(&ground.outside, ground.inside.join("w/door")).unwrap();
    let mut client = ground.host.client("c").await;
    let more = json!({ "recursive": true, "excludes": { "items": ["**/node_modules/**"] } });
    let channel = watch(&mut client, &ground.uri(""), more).await;
    client.subscribe(&channel).await;
    fs::write(ground.outside.join("unheard"), "x").unwrap();
    ground.put("data/unheard", "x");
    ground.put("w/node_modules/unheard", "x");
    ground.put("w/a/b/d", "x");
    assert_eq!(change(&mut client, &channel, &ground.uri("w/a/b/d")).await, "added");
    ground.put("w/new/deep/er", "x");
    assert_eq!(change(&mut client, &channel, &ground.uri("w/new/deep/er")).await, "added");
    ground.put("w/new/deep/later", "x");
    assert_eq!(change(&mut client, &channel, &ground.uri("w/new/deep/later")).await, "added");
    fs::rename(ground.inside.join("w/new"), ground.outside.join("new")).unwrap();
    assert_eq!(change(&mut client, &channel, &ground.uri("w/new")).await, "deleted");
    fs::write(ground.outside.join("new/deep/unheard"), "x").unwrap();
    ground.put("w/last", "x");
    assert_eq!(change(&mut client, &channel, &ground.uri("w/last")).await, "added");
    let rest = client.drain().await;
    assert!(!rest.iter().any(|message| message.to_string().contains("unheard")), "{rest:?}");
}

#[tokio::test]
async fn a_file_is_watched_also_while_another_takes_its_place() {
    let ground = Ground::new();
    let path = ground.put("f", "x");
    let mut client = ground.host.client("c").await;
    let channel = watch(&mut client, &ground.uri("f"), json!({})).await;
    client.subscribe(&channel).await;
    ground.put("other", "x");
    fs::rename(ground.put("g", "y"), &path).unwrap();
    assert_eq!(change(&mut client, &channel, &ground.uri("f")).await, "updated");
    fs::remove_file(&path).unwrap();
    assert_eq!(change(&mut client, &channel, &ground.uri("f")).await, "deleted");
    assert_eq!(envelopes(&client.drain().await), [] as [Value; 0]);
}

#[tokio::test]
async fn changes_carry_the_current_number_in_order_and_are_in_no_log() {
    let ground = Ground::new();
    ground.put("w/x", "x");
    let mut client = ground.host.client("c").await;
    let chat = client.create_session(S).await;
    client.until_type("root/activeSessionsChanged").await;
    client.subscribe(&chat).await;
    let channel = watch(&mut client, &ground.uri("w"), json!({})).await;
    client.subscribe(&channel).await;
    // What is remembered of the client is in the log before this is.
    client.accepted("ahp-root://", json!({ "type": "root/configChanged", "config": { "a": 1 } })).await;
    let before = ground.host.host.store().tail();
    ground.put("w/y", "x");
    let heard = client.envelope(|envelope| envelope["channel"] == json!(channel)).await;
    assert_eq!((&heard["serverSeq"], heard.get("origin")), (&json!(before), None));
    assert_eq!(ground.host.host.store().tail(), before, "the number did not move");
    // Among the events of a turn numbers never go back.
    client.say(&chat, "t1", "/words 300 5").await;
    let mut seen = Vec::new();
    for number in 0.. {
        ground.put(&format!("w/{number}"), "x");
        let heard = client.envelope(|_| true).await;
        seen.push((heard["serverSeq"].as_u64().unwrap(), heard["channel"] == json!(channel)));
        if heard["action"]["type"] == json!("chat/turnComplete") {
            break;
        }
    }
    assert!(seen.windows(2).all(|two| two[0].0 <= two[1].0), "{seen:?}");
    assert!(seen.iter().any(|(_, is_watch)| *is_watch), "nothing was told while the turn ran");
    ground.host.stop_and_scan(|actions| {
        assert!(actions.iter().all(|action| action["type"] != json!("resourceWatch/changed")));
    });
}

#[tokio::test]
async fn a_watch_ends_with_its_last_subscriber_or_with_the_connection_that_began_it() {
    let ground = Ground::new();
    let (mut one, mut two) = (ground.host.client("one").await, ground.host.client("two").await);
    let channel = watch(&mut one, &ground.uri(""), json!({})).await;
    one.subscribe(&channel).await;
    two.subscribe(&channel).await;
    one.unsubscribe(&channel).await;
    one.drain().await;
    ground.put("f", "x");
    assert_eq!(change(&mut two, &channel, &ground.uri("f")).await, "added");
    assert_eq!(envelopes(&one.drain().await), [] as [Value; 0]);
    two.unsubscribe(&channel).await;
    two.drain().await;
    assert_eq!(ground.host.host.watches(), 0);
    assert_eq!(two.refused("subscribe", json!({ "channel": channel })).await, (-32008, "not-found".to_owned()));
    // Subscribed or not, those of a connection that drops are over.
    let subscribed = watch(&mut one, &ground.uri(""), json!({})).await;
    one.subscribe(&subscribed).await;
    watch(&mut one, &ground.uri(""), json!({ "recursive": true })).await;
    assert_eq!(ground.host.host.watches(), 2);
    drop(one);
    eventually("the watches to end", || ground.host.host.watches() == 0).await;
    let mut back = Client::connect(ground.host.address).await;
    let answer = back.reconnect("one", 1, &["ahp-root://", &subscribed]).await;
    assert_eq!(answer["missing"], json!([subscribed]));
}

#[tokio::test]
async fn watches_are_limited_and_refused_outside_of_the_allowed_directories() {
    let ground = Ground::new();
    let settings = HostSettings {
        max_watches: 2,
        max_watched_directories: 3,
        allowed_directories: vec![ground.inside.clone()],
        ..HostSettings::default()
    };
    for directory in ["many/a", "many/b", "many/c", "few/a"] {
        ground.put(&format!("{directory}/f"), "x");
    }
    let host = TestHost::with(Options { settings, ..Options::default() });
    let mut client = host.client("c").await;
    for (uri, more, code, word) in [
        (ground.uri("../out"), json!({}), -32009, "not-permitted"),
        (ground.uri("none"), json!({}), -32008, "not-found"),
        (ground.uri("many"), json!({ "recursive": true }), -32000, "limit-exceeded"),
        (ground.uri("many"), json!({ "excludes": { "items": ["["] } }), -32602, "invalid-params"),
        (ground.uri("many"), json!({ "excludes": ["a"] }), -32602, "invalid-params"),
        (ground.uri("many"), json!({ "recursive": "yes" }), -32602, "invalid-params"),
    ] {
        let refused = client.refused("createResourceWatch", of(&uri, more.clone())).await;
        assert_eq!(refused, (code, word.to_owned()), "{uri} {more}");
        assert_eq!(host.host.watches(), 0, "{uri} {more}");
    }
    watch(&mut client, &ground.uri("many"), json!({ "recursive": true, "excludes": { "items": ["a", "b"] } })).await;
    watch(&mut client, &ground.uri("few"), json!({ "recursive": true })).await;
    let refused = client.refused("createResourceWatch", of(&ground.uri("few"), json!({}))).await;
    assert_eq!(refused, (-32000, "limit-exceeded".to_owned()));
    assert!(crate::harness::met("watches") > 0);
    // Another connection has its own.
    watch(&mut host.client("d").await, &ground.uri("few"), json!({})).await;
}

#[tokio::test]
async fn a_flood_of_changes_is_told_as_one_of_the_whole() {
    let ground = Ground::new();
    let many = ground.outside.join("many");
    fs::create_dir(&many).unwrap();
    for number in 0..1_500 {
        fs::write(many.join(number.to_string()), "").unwrap();
    }
    let mut client = ground.host.client("c").await;
    let channel = watch(&mut client, &ground.uri(""), json!({ "recursive": true })).await;
    client.subscribe(&channel).await;
    fs::rename(&many, ground.inside.join("many")).unwrap();
    let heard = client.envelope(|envelope| envelope["channel"] == json!(channel)).await;
    let whole = json!([{ "uri": ground.uri("").trim_end_matches('/'), "type": "updated" }]);
    assert_eq!(heard["action"]["changes"]["items"], whole);
    assert!(crate::harness::met("watch_changes") > 0);
    // It goes on one by one.
    fs::remove_file(ground.inside.join("many/7")).unwrap();
    assert_eq!(change(&mut client, &channel, &ground.uri("many/7")).await, "deleted");
}
