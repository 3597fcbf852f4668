//! Every command, refused for each of its reasons: with its code, and with a log that is the same before and after.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use scrollback::events::{Store, Table};
use serde_json::{Value, json};

use crate::harness::{Client, TestHost, eventually, message};

const ROOT: &str = "ahp-root://";
const S: &str = "ahp-session:/s";
const P: &str = "ahp-chat:/p";
const NOWHERE: &str = "ahp-chat:/none";

/// Commands that are never refused, or only for reasons of other tests.
const NEVER: [&str; 1] = ["ping"];

/// Everything that a store holds: events, with all that is in them, and rows.
fn everything(store: &dyn Store) -> Vec<String> {
    let mut all = Vec::new();
    store
        .scan(0, u64::MAX, &mut |record| {
            all.push(format!("{record:?}"));
            ControlFlow::Continue(())
        })
        .unwrap();
    for table in Table::ALL {
        store
            .scan_rows(*table, &[], None, &mut |key, value| {
                all.push(format!("{table:?} {key:?} {value:?}"));
                ControlFlow::Continue(())
            })
            .unwrap();
    }
    all
}

/// A session with two chats, of which one has a turn, a closed chat, a disposed session, and a session with one chat.
async fn ground(host: &TestHost) -> (Client, String) {
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.create_session("ahp-session:/gone").await;
    client.ask("disposeSession", json!({ "channel": "ahp-session:/gone" })).await.unwrap();
    client.create_session("ahp-session:/one").await;
    for uri in [P, "ahp-chat:/closed"] {
        client.create_chat(S, uri).await;
    }
    client.ask("disposeChat", json!({ "channel": "ahp-chat:/closed" })).await.unwrap();
    client.subscribe(&chat).await;
    client.run(&chat, "t1", "hello").await;
    client.drain().await;
    client.accepted(ROOT, json!({ "type": "root/configChanged", "config": { "a": 1 } })).await;
    (client, chat)
}

/// Method, params, code, word.
fn refusals(chat: &str, newest: u64) -> Vec<(&'static str, Value, i64, &'static str)> {
    let create = |more: Value| with(json!({ "channel": "ahp-session:/new" }), more);
    let open = |more: Value| with(json!({ "channel": S, "chat": "ahp-chat:/new" }), more);
    let fork = |more: Value| with(json!({ "channel": chat, "chat": "ahp-chat:/new" }), more);
    let of = |uri: &str, more: Value| with(json!({ "channel": ROOT, "uri": uri }), more);
    let complete =
        |more: Value| with(json!({ "channel": chat, "kind": "userMessage", "text": "@", "offset": 1 }), more);
    let other = json!({ "clientId": "somebody", "tools": [] });
    let one = crate::harness::chat_of("ahp-session:/one");
    let nothing = "file:///none-of-this-name";
    vec![
        ("initialize", json!({ "channel": ROOT }), -32600, "already-initialized"),
        ("reconnect", json!({ "channel": ROOT }), -32600, "already-initialized"),
        (
            "authenticate",
            json!({ "channel": ROOT, "resource": "https://none.example", "token": "t" }),
            -32602,
            "unknown-resource",
        ),
        ("subscribe", json!({ "channel": NOWHERE }), -32008, "not-found"),
        ("subscribe", json!({ "channel": "ahp-session:/gone" }), -32008, "not-found"),
        ("subscribe", json!({ "channel": "ahp-chat:/closed" }), -32008, "not-found"),
        ("subscribe", json!({ "channel": "ahp-terminal:/t" }), -32008, "not-found"),
        ("subscribe", json!({ "channel": format!("{S}/annotations") }), -32008, "not-found"),
        ("subscribe", json!({ "channel": "ahp-changeset:/x" }), -32008, "not-found"),
        ("subscribe", json!({ "channel": "ahp-automations://" }), -32008, "not-found"),
        ("subscribe", json!({ "channel": "ahp-resource-watch:/none" }), -32008, "not-found"),
        ("subscribe", json!({ "channel": chat, "view": { "turns": -1 } }), -32602, "invalid-params"),
        ("subscribe", json!({}), -32602, "invalid-params"),
        ("listSessions", json!({ "channel": S }), -32602, "invalid-params"),
        ("listSessions", json!({ "channel": ROOT, "limit": 0 }), -32602, "invalid-params"),
        ("listSessions", json!({ "channel": ROOT, "limit": 1_001 }), -32602, "invalid-params"),
        ("listSessions", json!({ "channel": ROOT, "cursor": "garbage" }), -32602, "unknown-cursor"),
        ("createSession", json!({ "channel": S }), -32003, "session-exists"),
        ("createSession", json!({ "channel": "ahp-session:/gone" }), -32003, "session-exists"),
        ("createSession", json!({ "channel": NOWHERE }), -32602, "invalid-params"),
        ("createSession", create(json!({ "provider": "nobody" })), -32002, "unknown-provider"),
        ("createSession", create(json!({ "workingDirectories": [nothing] })), -32009, "bad-directory"),
        ("createSession", create(json!({ "workingDirectories": ["http://x/"] })), -32009, "bad-directory"),
        ("createSession", create(json!({ "activeClient": other })), -32602, "invalid-params"),
        ("createSession", create(json!({ "config": { "colour": 1 } })), -32602, "invalid-params"),
        ("createSession", create(json!({ "config": { "mode": "sideways" } })), -32602, "invalid-params"),
        ("createSession", create(json!({ "config": { "version": "9" } })), -32602, "invalid-params"),
        ("createSession", create(json!({ "config": { "language": "xx" } })), -32602, "invalid-params"),
        ("createSession", create(json!({ "config": [] })), -32602, "invalid-params"),
        ("disposeSession", json!({ "channel": "ahp-session:/none" }), -32001, "unknown-session"),
        ("disposeSession", json!({ "channel": "ahp-session:/gone" }), -32001, "unknown-session"),
        ("disposeSession", json!({ "channel": chat }), -32001, "unknown-session"),
        ("resolveSessionConfig", json!({ "channel": ROOT, "provider": "nobody" }), -32002, "unknown-provider"),
        ("resolveSessionConfig", json!({ "channel": ROOT, "config": { "mode": 1 } }), -32602, "invalid-params"),
        ("sessionConfigCompletions", json!({ "channel": ROOT }), -32602, "invalid-params"),
        ("sessionConfigCompletions", json!({ "channel": ROOT, "property": "colour" }), -32602, "invalid-params"),
        (
            "sessionConfigCompletions",
            json!({ "channel": ROOT, "property": "language", "provider": "x" }),
            -32002,
            "unknown-provider",
        ),
        ("createChat", json!({ "channel": NOWHERE, "chat": "ahp-chat:/new" }), -32001, "unknown-session"),
        ("createChat", json!({ "channel": "ahp-session:/gone", "chat": "ahp-chat:/new" }), -32001, "unknown-session"),
        ("createChat", json!({ "channel": S }), -32602, "invalid-params"),
        ("createChat", open(json!({ "chat": P })), -32010, "already-exists"),
        ("createChat", open(json!({ "chat": "ahp-chat:/closed" })), -32010, "already-exists"),
        ("createChat", open(json!({ "chat": "ahp-session:/x" })), -32602, "invalid-params"),
        ("createChat", open(json!({ "initialMessage": "text" })), -32602, "invalid-params"),
        ("createChat", open(json!({ "workingDirectories": [nothing] })), -32602, "bad-directory"),
        ("disposeChat", json!({ "channel": NOWHERE }), -32008, "not-found"),
        ("disposeChat", json!({ "channel": "ahp-chat:/closed" }), -32008, "not-found"),
        ("disposeChat", json!({ "channel": S }), -32008, "not-found"),
        ("disposeChat", json!({ "channel": one }), -32602, "last-chat"),
        ("fetchTurns", json!({ "channel": NOWHERE }), -32008, "not-found"),
        ("fetchTurns", json!({ "channel": chat, "cursor": "before:18446744073709551617" }), -32602, "unknown-cursor"),
        ("fetchTurns", json!({ "channel": chat, "cursor": 5 }), -32602, "invalid-params"),
        ("completions", complete(json!({ "offset": 2 })), -32602, "invalid-params"),
        ("completions", complete(json!({ "channel": NOWHERE })), -32008, "not-found"),
        ("completions", complete(json!({ "channel": S })), -32008, "not-found"),
        ("resourceRead", of(nothing, json!({})), -32008, "not-found"),
        ("resourceRead", of("virtual://x/y", json!({})), -32009, "not-permitted"),
        ("resourceWrite", of(&format!("{nothing}/x"), json!({ "data": "", "encoding": "utf-8" })), -32008, "not-found"),
        ("resourceList", of(nothing, json!({})), -32008, "not-found"),
        ("resourceCopy", json!({ "channel": ROOT, "source": nothing, "destination": nothing }), -32008, "not-found"),
        ("resourceMove", json!({ "channel": ROOT, "source": nothing, "destination": nothing }), -32008, "not-found"),
        ("resourceDelete", of(nothing, json!({})), -32008, "not-found"),
        ("resourceResolve", of(nothing, json!({})), -32008, "not-found"),
        ("resourceMkdir", of("file:relative", json!({})), -32602, "invalid-params"),
        ("resourceRequest", of("virtual://x/y", json!({})), -32009, "not-permitted"),
        ("createResourceWatch", of(nothing, json!({})), -32008, "not-found"),
        ("createResourceWatch", of("virtual://x/y", json!({})), -32009, "not-permitted"),
        ("x-scrollback/stateAt", json!({ "channel": chat }), -32602, "invalid-params"),
        ("x-scrollback/stateAt", json!({ "channel": NOWHERE, "serverSeq": 1 }), -32008, "not-found"),
        ("x-scrollback/stateAt", json!({ "channel": chat, "serverSeq": newest + 1_000 }), -32008, "not-found"),
        ("createChat", open(json!({ "source": { "kind": "dream" } })), -32602, "unsupported"),
        (
            "createChat",
            open(json!({ "source": { "kind": "fork", "chat": chat, "turnId": "none" } })),
            -32008,
            "unknown-turn",
        ),
        (
            "createChat",
            open(json!({ "source": { "kind": "fork", "chat": NOWHERE, "turnId": "t1" } })),
            -32008,
            "not-found",
        ),
        (
            "createChat",
            open(json!({ "source": { "kind": "sideChat", "chat": chat, "turnId": "none" } })),
            -32008,
            "unknown-turn",
        ),
        ("x-scrollback/clear", json!({ "channel": NOWHERE }), -32008, "not-found"),
        ("x-scrollback/clear", json!({ "channel": S }), -32008, "not-found"),
        ("x-scrollback/clear", json!({ "channel": chat, "force": "yes" }), -32602, "invalid-params"),
        ("x-scrollback/forkAt", fork(json!({ "turnId": "none" })), -32008, "unknown-turn"),
        ("x-scrollback/forkAt", fork(json!({ "channel": NOWHERE, "turnId": "t1" })), -32008, "not-found"),
        ("x-scrollback/forkAt", fork(json!({ "chat": P, "turnId": "t1" })), -32010, "already-exists"),
        ("x-scrollback/forkAt", fork(json!({ "serverSeq": 1, "turnId": "t1" })), -32602, "invalid-params"),
        ("x-scrollback/forkAt", fork(json!({ "serverSeq": newest + 1_000 })), -32008, "not-found"),
        ("createTerminal", json!({ "channel": "ahp-terminal:/t" }), -32601, "unknown-method"),
        ("disposeTerminal", json!({ "channel": "ahp-terminal:/t" }), -32601, "unknown-method"),
        ("invokeChangesetOperation", json!({ "channel": "ahp-changeset:/x" }), -32601, "unknown-method"),
        ("listAutomationTriggerDefinitions", json!({ "channel": "ahp-automations://" }), -32601, "unknown-method"),
        ("runAutomation", json!({ "channel": "ahp-automations://" }), -32601, "unknown-method"),
        ("fetchAutomationRuns", json!({ "channel": "ahp-automations://" }), -32601, "unknown-method"),
    ]
}

fn with(mut params: Value, more: Value) -> Value {
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    params
}

/// The requests that the host serves, as its table and its announcement say.
fn served(extensions: &Value) -> BTreeSet<String> {
    let source = include_str!("../../src/protocol/methods.rs");
    let table = source.split("const METHODS").nth(1).unwrap().split("];").next().unwrap();
    let requests = table.lines().filter(|line| line.contains("Handler::Request") || line.contains("Handler::Always"));
    let named = requests.filter_map(|line| Some(line.trim().strip_prefix("(\"")?.split('"').next()?.to_owned()));
    let ours = extensions.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned());
    named.chain(ours).collect()
}

#[tokio::test]
async fn a_refused_command_has_its_code_and_leaves_the_log_as_it_was() {
    let host = TestHost::in_memory();
    let (mut client, chat) = ground(&host).await;
    let store = host.host.store();
    let before = everything(store.as_ref());
    let rows = refusals(&chat, store.tail());
    let mut wrong = Vec::new();
    for (method, params, code, word) in &rows {
        let refused = client.refused(method, params.clone()).await;
        if refused != (*code, (*word).to_owned()) {
            wrong.push(format!("{method} {params}: {refused:?} instead of {code} {word}"));
        }
        assert_eq!(everything(store.as_ref()), before, "{method} {params}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // Those without a row of their own are refused for a channel that is not there, and for one that is no text.
    let mut fresh = Client::connect(host.address).await;
    let extensions = fresh.initialize("fresh", &[]).await["_meta"]["scrollback.extensions"].clone();
    for method in served(&extensions) {
        if NEVER.contains(&method.as_str()) || rows.iter().any(|row| row.0 == method) {
            continue;
        }
        let all = json!({ "channel": NOWHERE, "id": "x", "chat": "ahp-chat:/new", "turnId": "t1", "title": "T",
            "html": "<p>", "destination": { "kind": "session", "session": S } });
        let refused = client.refused(&method, all).await;
        assert_eq!(refused.0, -32008, "{method}: {}", refused.1);
        let refused = client.refused(&method, json!({ "channel": 7 })).await;
        assert_eq!(refused, (-32602, "invalid-params".to_owned()), "{method}");
    }
    eventually("all that was queued to be written", || host.host.writer().queued() == 0).await;
    let known = |line: &String| line.contains("Client") || line.contains("clientRemembered") || line.contains("fresh");
    let after: Vec<String> = everything(store.as_ref()).into_iter().filter(|line| !known(line)).collect();
    let before: Vec<String> = before.into_iter().filter(|line| !known(line)).collect();
    assert_eq!(after, before);
    let draft = json!({ "type": "chat/draftChanged", "draft": message("still here") });
    client.accepted(&chat, draft).await;
}
