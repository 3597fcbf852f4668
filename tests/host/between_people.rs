//! What people of one host cannot do to each other.

use std::fs;

use scrollback::projections::people::Role;
use serde_json::{Value, json};

use crate::harness::attaching::{embedded, path, resource, starts, with};
use crate::harness::{Client, TestHost, chat_of, eventually};

const S: &str = "ahp-session:/s";
const T: &str = "ahp-session:/t";
/// What one needs to work in [`T`] and nowhere else.
const IN_T: [&str; 2] = ["session:read@ahp-session:/t", "session:write@ahp-session:/t"];

/// A host on disk with two sessions of the deployment, and a client of somebody who works in the second alone.
async fn two_sessions() -> (tempfile::TempDir, TestHost, Client, Client) {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let mut root = host.client("root").await;
    for session in [S, T] {
        root.create_session(session).await;
    }
    root.subscribe(&chat_of(S)).await;
    let token = host.add_person("ada", &[], &IN_T).await;
    let mut ada = host.client_of("ada", &token).await;
    ada.subscribe(&chat_of(T)).await;
    (directory, host, root, ada)
}

fn drafts(attachments: Value) -> Value {
    json!({ "type": "chat/draftChanged", "draft": with("x", attachments) })
}

#[tokio::test]
async fn a_stored_attachment_is_named_by_those_alone_who_may_read_it() {
    let (_directory, host, mut root, mut ada) = two_sessions().await;
    let echo = root.accepted(&chat_of(S), drafts(json!([embedded("secret", "text/plain", b"secret")]))).await;
    let stored = echo["action"]["draft"]["attachments"].clone();
    let queued =
        json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": "q", "message": with("x", stored.clone()) });
    for action in [drafts(stored.clone()), starts("t", &with("/context", stored.clone())), queued] {
        assert_eq!(ada.rejected(&chat_of(T), action).await, "bad-attachment");
    }
    // A message of the one who may read it takes it along into the other session, and from then on it is read there.
    root.subscribe(&chat_of(T)).await;
    root.accepted(&chat_of(T), drafts(stored.clone())).await;
    ada.accepted(&chat_of(T), starts("t", &with("/context", stored.clone()))).await;
    ada.until_ended("t").await;
    assert!(path(&stored[0]["uri"]).exists());
    drop(host);
}

#[tokio::test]
async fn whether_a_file_is_there_is_told_to_those_alone_who_may_read_files() {
    let (directory, host, mut root, mut ada) = two_sessions().await;
    let there = directory.path().join("there.txt");
    fs::write(&there, "x").unwrap();
    let (there, not) = (format!("file://{}", there.display()), "file:///not/there.txt");
    // Who may not look is asked for either, and sees the same become of both.
    for uri in [there.as_str(), not] {
        ada.dispatch(&chat_of(T), drafts(json!([resource("file", uri)]))).await;
        let (id, wanted) = ada.asked().await;
        assert_eq!(wanted, uri);
        ada.hand_over(&id, b"mine", None).await;
        let echo = ada.until_type("chat/draftChanged").await;
        assert_ne!(echo["action"]["draft"]["attachments"][0]["uri"], uri);
    }
    // The deployment may look: it is asked for what is not there.
    let echo = root.accepted(&chat_of(S), drafts(json!([resource("file", &there)]))).await;
    assert_eq!(echo["action"]["draft"]["attachments"][0]["uri"], there);
    root.dispatch(&chat_of(S), drafts(json!([resource("file", not)]))).await;
    assert_eq!(root.asked().await.1, not);
    drop(host);
}

#[tokio::test]
async fn no_session_comes_under_whose_short_name_a_chat_of_another_one_is_reached() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    client.create_session(S).await;
    client.ask("createChat", json!({ "channel": S, "chat": "ahp-chat:/to-come" })).await.unwrap();
    let create = json!({ "channel": "ahp-session:/to-come", "provider": "demo" });
    let error = client.ask("createSession", create.clone()).await.unwrap_err();
    assert_eq!((&error["code"], &error["data"]["code"]), (&json!(-32003), &json!("session-exists")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("ahp-chat:/to-come"), "{error}");
    // Once the chat is gone the name is free.
    client.ask("disposeChat", json!({ "channel": "ahp-chat:/to-come" })).await.unwrap();
    client.ask("createSession", create).await.unwrap();
    let snapshot = client.subscribe("ahp-chat:/to-come").await;
    eventually("it is the session's own", || snapshot["resource"].is_string()).await;
    assert_eq!(snapshot["state"]["resource"], chat_of("ahp-session:/to-come"));
}

#[tokio::test]
async fn what_stands_under_the_hosts_keys_is_the_hosts_own_in_every_action() {
    let host = TestHost::in_memory();
    let token = host.add_person("ada", &[Role::Member], &[]).await;
    let mut ada = host.client_of("ada", &token).await;
    let chat = ada.create_session(S).await;
    ada.subscribe(S).await;
    ada.subscribe(&chat).await;
    let meta = json!({ "scrollback.sender": "root:x", "scrollback.process": "forged", "theirs": 1 });
    let own = json!({ "clientId": "ada", "tools": [{ "name": "t", "_meta": meta }], "_meta": meta });
    let actions = [
        (S, json!({ "type": "session/titleChanged", "title": "a", "_meta": meta })),
        (S, json!({ "type": "session/activeClientSet", "activeClient": own, "_meta": meta })),
        (
            chat.as_str(),
            json!({ "type": "chat/draftChanged", "draft": { "text": "x", "origin": { "kind": "user" },
            "_meta": meta }, "_meta": meta }),
        ),
    ];
    for (channel, action) in actions {
        let echo = ada.accepted(channel, action).await.to_string();
        assert!(!echo.contains("forged") && echo.contains("theirs"), "{echo}");
    }
    let forged = host.records().into_iter().filter(|r| String::from_utf8_lossy(&r.action).contains("forged"));
    assert_eq!(forged.count(), 0);
}
