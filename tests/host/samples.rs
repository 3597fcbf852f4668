//! One well-formed action of each type that AHP 1.0.0 has on a root's, a session's or a chat's channel.

use serde_json::{Value, json};

use crate::harness::message;

const DIRECTORY: &str = "file:///tmp";

/// The kind of channel that an action's type belongs to.
pub fn kind_of(action: &Value) -> &str {
    action["type"].as_str().unwrap().split('/').next().unwrap()
}

/// A client's actions, each with what becomes of it on a new session: `ok`, `nothing` (it changes nothing), or the word of
/// its refusal.
pub fn of_clients() -> Vec<(Value, &'static str)> {
    let client = json!({ "clientId": "c", "tools": [] });
    let result = json!({ "success": true, "pastTenseMessage": "did" });
    let call = |kind: &str| json!({ "type": kind, "turnId": "t", "toolCallId": "x", "approved": true });
    let directory = |kind: &str| json!({ "type": kind, "directory": DIRECTORY });
    vec![
        (json!({ "type": "root/configChanged", "config": { "a": 1 } }), "ok"),
        (json!({ "type": "session/titleChanged", "title": "x" }), "ok"),
        (json!({ "type": "session/isReadChanged", "isRead": true }), "ok"),
        (json!({ "type": "session/isArchivedChanged", "isArchived": false }), "nothing"),
        (json!({ "type": "session/configChanged", "config": { "mode": "auto" } }), "ok"),
        (json!({ "type": "session/activeClientSet", "activeClient": client }), "ok"),
        (json!({ "type": "session/activeClientRemoved", "clientId": "c" }), "ok"),
        (directory("session/workingDirectorySet"), "ok"),
        (directory("session/workingDirectoryRemoved"), "ok"),
        (
            json!({ "type": "session/workingDirectoryReplaced", "directory": DIRECTORY, "replacement": DIRECTORY }),
            "nothing",
        ),
        (json!({ "type": "session/customizationToggled", "id": "x", "enablement": [] }), "unsupported"),
        (json!({ "type": "session/mcpServerStartRequested", "id": "x" }), "unsupported"),
        (json!({ "type": "session/mcpServerStopRequested", "id": "x" }), "unsupported"),
        (json!({ "type": "session/mcpServerBackgroundRequested", "id": "x" }), "unsupported"),
        (json!({ "type": "session/defaultChatChanged", "defaultChat": "ahp-chat:/none" }), "malformed"),
        (json!({ "type": "chat/turnCancelled", "turnId": "t", "duration": 0 }), "no-active-turn"),
        (json!({ "type": "chat/turnResume", "turnId": "t" }), "unknown-turn"),
        (json!({ "type": "chat/truncated", "turnId": "t" }), "unknown-turn"),
        (json!({ "type": "chat/truncated" }), "unsupported"),
        (call("chat/toolCallConfirmed"), "request-not-found"),
        (
            json!({ "type": "chat/toolCallComplete", "turnId": "t", "toolCallId": "x", "result": result }),
            "request-not-found",
        ),
        (
            json!({ "type": "chat/toolCallContentChanged", "turnId": "t", "toolCallId": "x", "content": [] }),
            "request-not-found",
        ),
        (call("chat/toolCallResultConfirmed"), "request-not-found"),
        (json!({ "type": "chat/inputAnswerChanged", "requestId": "x", "questionId": "y" }), "request-not-found"),
        (json!({ "type": "chat/inputCompleted", "requestId": "x", "response": "cancel" }), "request-not-found"),
        (
            json!({ "type": "chat/pendingMessageSet", "kind": "steering", "id": "x", "message": message("x") }),
            "no-active-turn",
        ),
        (json!({ "type": "chat/pendingMessageRemoved", "kind": "queued", "id": "x" }), "request-not-found"),
        (json!({ "type": "chat/queuedMessagesReordered", "order": ["x"] }), "request-not-found"),
        (json!({ "type": "chat/draftChanged", "draft": message("x") }), "ok"),
        (json!({ "type": "chat/isReadChanged", "isRead": true }), "ok"),
        (json!({ "type": "chat/isArchivedChanged", "isArchived": false }), "nothing"),
        (directory("chat/workingDirectorySet"), "bad-directory"),
        (directory("chat/workingDirectoryRemoved"), "nothing"),
        (
            json!({ "type": "chat/turnStarted", "turnId": "t", "startedAt": "2026-11-30T12:00:00.000Z",
                "message": message("/question sure?") }),
            "ok",
        ),
    ]
}

/// Actions that only a host says.
pub fn of_hosts() -> Vec<Value> {
    let in_turn = |kind: &str| json!({ "type": kind, "turnId": "t", "duration": 0 });
    let text = |kind: &str| json!({ "type": kind, "turnId": "t", "partId": "p", "content": "x" });
    let call = |kind: &str| json!({ "type": kind, "turnId": "t", "toolCallId": "x" });
    let with = |mut action: Value, more: Value| {
        action.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        action
    };
    let error = json!({ "errorType": "x", "message": "x" });
    let summary = json!({ "resource": "ahp-chat:/x", "title": "x", "status": 1,
        "modifiedAt": "2026-11-30T12:00:00.000Z" });
    let mcp = json!({ "kind": "stopped" });
    vec![
        json!({ "type": "root/agentsChanged", "agents": [] }),
        json!({ "type": "root/activeSessionsChanged", "activeSessions": 1 }),
        json!({ "type": "root/terminalsChanged", "terminals": [] }),
        json!({ "type": "session/ready" }),
        json!({ "type": "session/creationFailed", "error": error }),
        json!({ "type": "session/chatAdded", "summary": summary }),
        json!({ "type": "session/chatRemoved", "chat": "ahp-chat:/x" }),
        json!({ "type": "session/chatUpdated", "chat": "ahp-chat:/x", "changes": {} }),
        json!({ "type": "session/chatsReordered", "chats": [] }),
        json!({ "type": "session/activityChanged" }),
        json!({ "type": "session/changesetsChanged" }),
        json!({ "type": "session/metaChanged" }),
        json!({ "type": "session/serverToolsChanged", "tools": [] }),
        json!({ "type": "session/inputNeededRemoved", "id": "x" }),
        json!({ "type": "session/inputNeededSet", "request": { "kind": "chatInput", "id": "x", "chat": "ahp-chat:/x",
            "request": { "id": "x" } } }),
        json!({ "type": "session/customizationsChanged", "customizations": [] }),
        json!({ "type": "session/customizationRemoved", "id": "x" }),
        json!({ "type": "session/mcpServerStateChanged", "id": "x", "state": mcp }),
        with(text("chat/delta"), json!({})),
        with(text("chat/reasoning"), json!({})),
        json!({ "type": "chat/responsePart", "turnId": "t", "part": { "kind": "markdown", "id": "p", "content": "" } }),
        json!({ "type": "chat/usage", "turnId": "t", "usage": {} }),
        with(call("chat/toolCallStart"), json!({ "toolName": "x", "displayName": "x" })),
        call("chat/toolCallDelta"),
        with(call("chat/toolCallReady"), json!({ "invocationMessage": "x" })),
        call("chat/toolCallAuthResolved"),
        in_turn("chat/turnComplete"),
        with(in_turn("chat/error"), json!({ "part": { "kind": "error", "error": error } })),
        json!({ "type": "chat/activityChanged", "activity": "x" }),
        json!({ "type": "chat/backgroundWorkRemoved", "id": "x" }),
        json!({ "type": "chat/movableChanged", "movable": true }),
        json!({ "type": "chat/changesetsChanged" }),
        json!({ "type": "chat/canvasesChanged" }),
        json!({ "type": "chat/turnsLoaded", "turns": [] }),
        json!({ "type": "chat/inputRequested", "request": { "id": "x" } }),
    ]
}
