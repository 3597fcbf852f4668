//! What of a session, of directories and of tool calls is refused, each with its word, and the log is the same byte for byte.

use std::ops::ControlFlow;

use scrollback::actors::host::HostSettings;
use scrollback::events::{ServerSeq, Store};
use serde_json::{Value, json};

use crate::harness::{Client, Options, TestHost};

const S: &str = "ahp-session:/s";
const P: &str = "ahp-chat:/p";

/// Everything in the log.
fn log(store: &dyn Store) -> Vec<(ServerSeq, Vec<u8>)> {
    let mut all = Vec::new();
    let mut visit = |record: scrollback::events::Record| {
        all.push((record.seq, record.action.to_vec()));
        ControlFlow::Continue(())
    };
    store.scan(0, ServerSeq::MAX, &mut visit).unwrap();
    all
}

async fn all_refused(host: &TestHost, client: &mut Client, cases: &[(&str, Value, &str)]) {
    let before = log(host.host.store().as_ref());
    for (channel, action, word) in cases {
        assert_eq!(client.rejected(channel, action.clone()).await, *word, "{channel} {action}");
    }
    assert_eq!(log(host.host.store().as_ref()), before);
}

async fn open(host: &TestHost, directories: Value) -> (Client, String) {
    let mut client = host.client("c").await;
    let params = json!({ "channel": S, "workingDirectories": directories });
    client.ask("createSession", params).await.unwrap();
    client.until_type("root/activeSessionsChanged").await;
    let chat = crate::harness::chat_of(S);
    client.subscribe(S).await;
    client.subscribe(&chat).await;
    client.create_chat(S, P).await;
    client.drain().await;
    (client, chat)
}

#[tokio::test]
async fn of_a_session() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("a")).unwrap();
    let settings = HostSettings { allowed_directories: vec![place.path().into()], ..HostSettings::default() };
    let host = TestHost::with(Options { settings, ..Options::default() });
    let (root, a) = (format!("file://{}", place.path().display()), format!("file://{}/a", place.path().display()));
    let (mut client, chat) = open(&host, json!([root])).await;
    let tool = |name: &str| json!({ "name": name });
    let active = |id: &str, tools: Value| json!({ "type": "session/activeClientSet", "activeClient": { "clientId": id, "tools": tools } });
    let default = |chat: Value| json!({ "type": "session/defaultChatChanged", "defaultChat": chat });
    let directory =
        |kind: &str, uri: &str| json!({ "type": format!("session/workingDirectory{kind}"), "directory": uri });
    let replaced = |from: &str, to: &str| json!({ "type": "session/workingDirectoryReplaced", "directory": from, "replacement": to });
    let config =
        |values: Value, replace: bool| json!({ "type": "session/configChanged", "config": values, "replace": replace });
    let long = "x".repeat(5_000);
    all_refused(
        &host,
        &mut client,
        &[
            (S, json!({ "type": "session/titleChanged", "title": " \t" }), "malformed"),
            (S, json!({ "type": "session/titleChanged", "title": long }), "limit-exceeded"),
            (S, json!({ "type": "session/titleChanged" }), "malformed"),
            (S, json!({ "type": "session/isReadChanged", "isRead": "yes" }), "malformed"),
            (S, json!({ "type": "session/isArchivedChanged" }), "malformed"),
            (S, config(json!({ "mode": "sideways" }), false), "malformed"),
            (S, config(json!({ "colour": 1 }), false), "malformed"),
            (S, config(json!({ "greeting": "hi" }), false), "not-permitted"),
            (S, config(json!({}), true), "not-permitted"),
            (S, active("d", json!([])), "not-permitted"),
            (S, active("c", json!([tool("x"), tool("x")])), "malformed"),
            (S, active("c", json!([tool("")])), "malformed"),
            (S, json!({ "type": "session/activeClientSet", "activeClient": { "clientId": "c" } }), "malformed"),
            (S, json!({ "type": "session/activeClientRemoved", "clientId": "d" }), "not-permitted"),
            (S, default(json!("ahp-chat:/none")), "malformed"),
            (S, default(json!("ahp-chat:/s")), "malformed"),
            (S, default(Value::Null), "malformed"),
            (S, directory("Set", "file:///"), "bad-directory"),
            (S, directory("Set", "nowhere"), "bad-directory"),
            (S, directory("Set", &format!("{root}/none")), "bad-directory"),
            (S, directory("Set", &format!("{root}/../..")), "bad-directory"),
            (S, directory("Removed", &root), "bad-directory"),
            (S, replaced(&root, "file:///"), "bad-directory"),
            (S, replaced("file:///", "file:///"), "bad-directory"),
            (S, json!({ "type": "session/customizationToggled", "id": "x", "enablement": [] }), "unsupported"),
            (S, json!({ "type": "session/mcpServerStartRequested", "id": "x" }), "unsupported"),
            (S, json!({ "type": "session/mcpServerStopRequested", "id": "x" }), "unsupported"),
            (S, json!({ "type": "session/mcpServerBackgroundRequested", "id": "x" }), "unsupported"),
            (S, json!({ "type": "session/chatsReordered", "chats": [P, chat] }), "not-dispatchable"),
            (S, json!({ "type": "session/serverToolsChanged", "tools": [tool("x")] }), "not-dispatchable"),
            (&chat, json!({ "type": "chat/movableChanged", "movable": true }), "not-dispatchable"),
            (&chat, directory("Set", &a), "not-dispatchable"),
            (&chat, json!({ "type": "chat/workingDirectorySet", "directory": a }), "bad-directory"),
            (&chat, json!({ "type": "chat/workingDirectorySet", "directory": "nowhere" }), "bad-directory"),
            (S, json!({ "type": "chat/workingDirectorySet", "directory": root }), "not-dispatchable"),
            (S, json!({ "type": "chat/workingDirectoryRemoved", "directory": root }), "not-dispatchable"),
        ],
    )
    .await;
}

#[tokio::test]
async fn of_tool_calls() {
    let host = TestHost::in_memory();
    let (mut client, chat) = open(&host, json!(["file:///"])).await;
    let mut owner = host.client("owner").await;
    owner.subscribe(S).await;
    owner.subscribe(&chat).await;
    let tools = json!([{ "name": "tests" }]);
    let set = json!({ "type": "session/activeClientSet", "activeClient": { "clientId": "owner", "tools": tools } });
    owner.accepted(S, set).await;
    client.until_type("session/activeClientSet").await;
    let of = |kind: &str, turn: &str, call: &str, more: Value| {
        let mut action = json!({ "type": format!("chat/toolCall{kind}"), "turnId": turn, "toolCallId": call });
        action.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        action
    };
    let yes = json!({ "approved": true, "confirmed": "user-action" });
    let result = json!({ "result": { "success": true, "pastTenseMessage": "did" } });
    let content = json!({ "content": [] });
    let nothing = [
        (chat.as_str(), of("Confirmed", "t", "x", yes.clone()), "request-not-found"),
        (&chat, of("Complete", "t", "x", result.clone()), "request-not-found"),
        (&chat, of("ContentChanged", "t", "x", content.clone()), "request-not-found"),
        (&chat, of("ResultConfirmed", "t", "x", json!({ "approved": true })), "request-not-found"),
    ];
    all_refused(&host, &mut client, &nothing).await;

    // One that waits for a person.
    client.say(&chat, "t", "/ask-tool rm x").await;
    let asked = client.until_type("session/inputNeededSet").await["action"]["request"]["toolCall"].clone();
    let id = asked["toolCallId"].as_str().unwrap();
    client.drain().await;
    let waiting = [
        (chat.as_str(), of("Confirmed", "u", id, yes.clone()), "request-not-found"),
        (&chat, of("Confirmed", "t", id, json!({ "approved": true })), "malformed"),
        (&chat, of("Confirmed", "t", id, json!({ "approved": false })), "malformed"),
        (
            &chat,
            of(
                "Confirmed",
                "t",
                id,
                json!({ "approved": true, "confirmed": "user-action",
            "selectedOptionId": "deny" }),
            ),
            "malformed",
        ),
        (
            &chat,
            of(
                "Confirmed",
                "t",
                id,
                json!({ "approved": false, "reason": "denied",
            "selectedOptionId": "allow" }),
            ),
            "malformed",
        ),
        (
            &chat,
            of(
                "Confirmed",
                "t",
                id,
                json!({ "approved": true, "confirmed": "user-action",
            "selectedOptionId": "maybe" }),
            ),
            "malformed",
        ),
        (&chat, of("Complete", "t", id, result.clone()), "not-permitted"),
        (&chat, of("ContentChanged", "t", id, content.clone()), "request-not-found"),
        (&chat, of("ResultConfirmed", "t", id, json!({ "approved": true })), "request-not-found"),
    ];
    all_refused(&host, &mut client, &waiting).await;
    client.cancel(&chat, "t").await;
    client.until_ended("t").await;
    client.drain().await;
    all_refused(&host, &mut client, &[(&chat, of("Confirmed", "t", id, yes.clone()), "request-not-found")]).await;

    // One of another client's.
    client.say(&chat, "t2", "/client-tool tests all").await;
    let called = client.until_type("session/inputNeededSet").await["action"]["request"]["toolCall"].clone();
    let id = called["toolCallId"].as_str().unwrap();
    client.drain().await;
    let running = [
        (chat.as_str(), of("Confirmed", "t2", id, yes), "request-not-found"),
        (&chat, of("Complete", "t2", id, result.clone()), "not-permitted"),
        (&chat, of("ContentChanged", "t2", id, content), "not-permitted"),
        (&chat, of("ResultConfirmed", "t2", id, json!({ "approved": true })), "request-not-found"),
        (&chat, of("Complete", "t2", id, json!({})), "malformed"),
    ];
    all_refused(&host, &mut client, &running).await;
    let mine = [(chat.as_str(), of("Complete", "t", id, result.clone()), "request-not-found")];
    all_refused(&host, &mut owner, &mine).await;
    owner.accepted(&chat, of("Complete", "t2", id, result)).await;
    client.until_ended("t2").await;
}
