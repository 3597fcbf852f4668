//! Valid params of every method and valid actions, about few channels; and how they are bent.

use serde_json::{Value, json};

use super::script::Place;
use crate::harness::{chat_of, message};

/// Every method that the host serves, and one that it does not.
pub const METHODS: &[&str] = &[
    "dispatchAction",
    "authenticate",
    "ping",
    "initialize",
    "reconnect",
    "subscribe",
    "subscribe",
    "unsubscribe",
    "listSessions",
    "createSession",
    "createSession",
    "disposeSession",
    "resolveSessionConfig",
    "sessionConfigCompletions",
    "createChat",
    "disposeChat",
    "moveChat",
    "fetchTurns",
    "completions",
    "resourceRead",
    "resourceWrite",
    "resourceList",
    "resourceCopy",
    "resourceMove",
    "resourceDelete",
    "resourceResolve",
    "resourceMkdir",
    "resourceRequest",
    "createResourceWatch",
    "x-scrollback/stateAt",
    "x-scrollback/sendNow",
    "x-scrollback/publishVisual",
    "x-scrollback/listVisuals",
    "x-scrollback/removeVisual",
    "x-scrollback/clear",
    "x-scrollback/compact",
    "x-scrollback/stopBackgroundWork",
    "x-scrollback/forkAt",
    "setClientManagedSettingsPermissions",
    "unheardOf",
];

/// What sessions are called. One that was disposed of never comes back.
const SESSIONS: [&str; 3] = ["ahp-session:/s", "demo:/t", "ahp-session:/u"];
const PEER: &str = "ahp-chat:/p";

/// What the demo is told: nothing that waits for a person.
const SCRIPTS: &[&str] = &[
    "hello",
    "/say a\n/usage 1 2",
    "/words 9 1",
    "/think deep",
    "/tool t {}",
    "/client-tool tests {}",
    "/visual T <b>x</b>",
    "/background b 5",
    "/subagent /say hi",
    "/notice n\n/activity a",
    "/compact 5 2",
    "/fail x",
    "/fail-resumable x",
    "/limit overload",
    "/crash",
    "/history\n/context\n/cwd",
];

fn session(of: usize) -> &'static str {
    SESSIONS[of % 3]
}

fn chat(of: usize) -> String {
    if of % 4 == 3 { PEER.to_owned() } else { chat_of(session(of)) }
}

/// The channel that an action is for.
pub fn channel(of: usize) -> String {
    match of % 5 {
        0 => session(of / 5).to_owned(),
        4 => "ahp-root://".to_owned(),
        _ => chat(of / 5),
    }
}

/// Valid params of a method.
pub fn params(method: &str, of: usize, place: &Place) -> Value {
    let root = place.root_uri();
    let uri = match of % 4 {
        0 => root.clone(),
        1 => format!("{root}/dir"),
        2 => format!("{root}/dir/file"),
        _ => format!("{root}/new{}", of % 3),
    };
    let (session, chat, channel) = (session(of), chat(of), channel(of));
    let (from, to) = (format!("{root}/dir"), format!("{root}/new{}", of % 3));
    let fork = format!("ahp-chat:/f{}", of % 3);
    match method {
        "dispatchAction" => json!({ "channel": channel, "clientSeq": 1, "action": action(of / 7, of, place) }),
        "initialize" => {
            json!({ "channel": "ahp-root://", "protocolVersions": ["1.0.0"], "clientId": format!("p{}", of % 3),
            "initialSubscriptions": ["ahp-root://", session] })
        }
        "reconnect" => {
            json!({ "channel": "ahp-root://", "clientId": format!("p{}", of % 3), "lastSeenServerSeq": of % 9,
            "subscriptions": ["ahp-root://", session, chat] })
        }
        "subscribe" => json!({ "channel": channel, "view": { "turns": of % 3 } }),
        "createSession" => json!({ "channel": session, "provider": "demo", "workingDirectories": [root],
            "activeClient": { "clientId": "p0", "tools": [{ "name": "tests" }] } }),
        "listSessions" => json!({ "channel": "ahp-root://", "limit": of % 5 }),
        "resolveSessionConfig" => json!({ "channel": "ahp-root://", "provider": "demo", "config": { "mode": "auto" } }),
        "sessionConfigCompletions" => json!({ "channel": "ahp-root://", "provider": "demo", "config": {},
            "property": "mode", "query": "a" }),
        "disposeSession" => json!({ "channel": session }),
        "createChat" => {
            json!({ "channel": session, "chat": PEER, "initialMessage": message(SCRIPTS[of % SCRIPTS.len()]),
            "source": if of.is_multiple_of(2) { Value::Null } else { json!({ "kind": "fork", "chat": chat, "turnId": format!("t{}", of % 4) }) } })
        }
        "moveChat" => {
            json!({ "channel": chat, "destination": { "kind": "session", "session": session, "after": chat_of(session) } })
        }
        "fetchTurns" => {
            json!({ "channel": chat, "cursor": if of.is_multiple_of(2) { Value::Null } else { json!("MQ") } })
        }
        "completions" => json!({ "channel": chat, "kind": "userMessage", "text": "/dir @f #", "offset": of % 9 }),
        "resourceRead" => json!({ "channel": "ahp-root://", "uri": uri, "encoding": "utf-8" }),
        "resourceWrite" => {
            json!({ "channel": "ahp-root://", "uri": uri, "encoding": "utf-8", "data": "x", "position": of % 3 })
        }
        "resourceCopy" | "resourceMove" => json!({ "channel": "ahp-root://", "source": from, "destination": to }),
        "resourceDelete" | "createResourceWatch" => {
            json!({ "channel": "ahp-root://", "uri": uri, "recursive": of % 8 < 4 })
        }
        "resourceRequest" => json!({ "channel": "ahp-root://", "uri": uri, "read": true, "write": true }),
        "resourceList" | "resourceResolve" | "resourceMkdir" => json!({ "channel": "ahp-root://", "uri": uri }),
        "x-scrollback/stateAt" => json!({ "channel": channel, "serverSeq": of % 30 }),
        "x-scrollback/sendNow" => json!({ "channel": chat, "id": format!("m{}", of % 3) }),
        "x-scrollback/publishVisual" => json!({ "channel": chat, "title": "T", "html": "<b>x</b>", "maxHeight": 100 }),
        "x-scrollback/removeVisual" | "x-scrollback/stopBackgroundWork" => json!({ "channel": chat, "id": "x" }),
        "x-scrollback/clear" => json!({ "channel": chat, "force": of.is_multiple_of(2) }),
        "x-scrollback/forkAt" => json!({ "channel": chat, "chat": fork, "serverSeq": of % 60 }),
        "disposeChat" => json!({ "channel": if of.is_multiple_of(2) { fork } else { chat } }),
        "authenticate" => json!({ "channel": "ahp-root://", "resource": root, "token": "x", "expiresIn": of }),
        "ping" => json!({ "channel": "ahp-root://" }),
        _ => json!({ "channel": chat }),
    }
}

/// How many actions there are.
pub const ACTIONS: usize = 24;

/// A valid action of a client.
pub fn action(which: usize, of: usize, place: &Place) -> Value {
    let turn = format!("t{}", of % 4);
    let directory = format!("{}/dir", place.root_uri());
    let queued = format!("m{}", of % 3);
    match which % ACTIONS {
        0..=5 => json!({ "type": "chat/turnStarted", "turnId": turn, "startedAt": "2026-11-30T12:00:00.000Z",
            "message": message(SCRIPTS[of % SCRIPTS.len()]) }),
        6 => json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 1 }),
        7 | 8 => {
            json!({ "type": "chat/pendingMessageSet", "kind": if of.is_multiple_of(2) { "queued" } else { "steering" },
            "id": queued, "message": message(SCRIPTS[of % SCRIPTS.len()]) })
        }
        9 => json!({ "type": "chat/pendingMessageRemoved", "kind": "queued", "id": queued }),
        10 => json!({ "type": "chat/queuedMessagesReordered", "order": ["m1", "m0"] }),
        11 => json!({ "type": "chat/draftChanged", "draft": message("d") }),
        12 => json!({ "type": "chat/truncated", "turnId": turn }),
        13 => json!({ "type": "chat/turnResume", "turnId": turn }),
        14 => json!({ "type": "chat/isReadChanged", "isRead": of.is_multiple_of(2) }),
        15 => json!({ "type": "chat/workingDirectorySet", "directory": directory }),
        16 => json!({ "type": "chat/toolCallComplete", "turnId": turn, "toolCallId": "x",
            "result": { "success": true, "pastTenseMessage": "ran" } }),
        17 => json!({ "type": "session/titleChanged", "title": "T" }),
        18 => {
            json!({ "type": "session/configChanged", "config": { "resumeAtReset": of.is_multiple_of(2) }, "replace": false })
        }
        19 => json!({ "type": "session/activeClientSet",
            "activeClient": { "clientId": format!("p{}", of % 3), "tools": [{ "name": "tests" }] } }),
        20 => json!({ "type": "session/activeClientRemoved", "clientId": "p0" }),
        21 => json!({ "type": "session/workingDirectorySet", "directory": directory }),
        22 => json!({ "type": "session/defaultChatChanged", "defaultChat": PEER }),
        _ => json!({ "type": "root/configChanged", "config": {}, "replace": false }),
    }
}

/// What a value may be bent to.
fn odd(how: usize) -> Value {
    match how % 14 {
        0 => Value::Null,
        1 => json!(0),
        2 => json!(-1),
        3 => json!(u64::MAX),
        4 => json!(1.5e308),
        5 => json!(""),
        6 => json!("x".repeat(3_000)),
        7 => json!([]),
        8 => json!({}),
        9 => json!(true),
        10 => json!("ahp-root://"),
        11 => json!("a\u{0}\u{202e}\u{1f600}"),
        12 => (0..30).fold(json!(1), |inner, _| json!([inner])),
        _ => json!([null, "x", 1, {}]),
    }
}

/// Bends the node at this place of a message, counted from the outside: to something odd, or away.
pub fn bend(value: &mut Value, at: usize, how: usize) {
    let mut left = at % count(value);
    walk(value, &mut left, how);
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(members) => members.values().map(count).sum::<usize>(),
        _ => 0,
    }
}

/// Whether the place was met.
fn walk(value: &mut Value, left: &mut usize, how: usize) -> bool {
    if *left == 0 {
        *value = odd(how);
        return true;
    }
    *left -= 1;
    match value {
        Value::Array(items) => items.iter_mut().any(|item| walk(item, left, how)),
        Value::Object(members) => {
            if *left == 0 && how.is_multiple_of(3) {
                let first = members.keys().next().cloned();
                first.map(|key| members.remove(&key));
                return true;
            }
            members.values_mut().any(|member| walk(member, left, how))
        }
        _ => false,
    }
}
