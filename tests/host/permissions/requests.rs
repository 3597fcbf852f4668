//! Every action, command and request, as somebody sends it about a session: all of it well said.

use scrollback::events::ServerSeq;
use serde_json::{Value, json};

use crate::harness::attaching::embedded;
use crate::harness::{Client, ROOT, chat_of, message};
use crate::resources::{Ground, of};

/// A session with what belongs to it: one turn in its first chat, with an attachment, and a page; chats to do things with
/// (`spare`, `moved`), and closed ones (`closed`, `erased`).
#[derive(Clone)]
pub struct Place {
    pub id: String,
    pub session: String,
    pub chat: String,
    pub canvas: String,
    pub attachment: String,
    pub seq: ServerSeq,
}

impl Place {
    /// Makes it, and leaves `root` subscribed to its first chat.
    pub async fn make(root: &mut Client, id: &str) -> Self {
        let session = format!("ahp-session:/{id}");
        let chat = root.create_session(&session).await;
        for name in ["spare", "moved", "closed", "erased"] {
            root.create_chat(&session, &format!("ahp-chat:/{id}-{name}")).await;
        }
        for name in ["closed", "erased"] {
            root.subscribe(&format!("ahp-chat:/{id}-{name}")).await;
            root.run(&format!("ahp-chat:/{id}-{name}"), "t1", "/say closed").await;
            root.ask("disposeChat", json!({ "channel": format!("ahp-chat:/{id}-{name}") })).await.unwrap();
        }
        root.subscribe(&chat).await;
        let attached = json!([embedded("a.txt", "text/plain", b"text")]);
        let (echoed, _) = root.context(&chat, "t1", attached).await;
        let page = json!({ "channel": chat, "title": "Page", "html": "<p>" });
        let visual = root.ask("x-scrollback/publishVisual", page).await.unwrap();
        let seq = root.subscribe(&session).await["fromSeq"].as_u64().unwrap();
        Self {
            id: id.to_owned(),
            session,
            chat,
            canvas: format!("ahp-canvas:/{}", visual["id"].as_str().unwrap()),
            attachment: echoed[0]["uri"].as_str().unwrap().to_owned(),
            seq,
        }
    }

    /// Names of the same form that name nothing.
    pub fn nowhere(id: &str) -> Self {
        let session = format!("ahp-session:/{id}");
        Self {
            id: id.to_owned(),
            chat: chat_of(&session),
            session,
            canvas: format!("ahp-canvas:/{id}"),
            attachment: format!("file:///attachments/7/{:032x}", 7),
            seq: 1_000_000_000,
        }
    }

    pub fn named(&self, name: &str) -> String {
        format!("ahp-chat:/{}-{name}", self.id)
    }

    /// An answer without this place's own names.
    pub fn anonymous(&self, answer: &str) -> String {
        let names = [&self.chat, &self.canvas, &self.attachment];
        names
            .into_iter()
            .fold(answer.to_owned(), |text, name| text.replace(name.as_str(), "X"))
            .replace(&format!(":/{}", self.id), ":/X")
    }

    /// Whether a channel is of this place.
    pub fn has(&self, channel: &str) -> bool {
        channel == self.chat || channel == self.canvas || channel.contains(&format!(":/{}", self.id))
    }
}

/// The channel of an action, and the action. `client` is the id of who sends it.
pub fn action(on: &str, kind: &str, place: &Place, client: &str, ground: &Ground) -> (String, Value) {
    let channel = match on {
        "root" => ROOT,
        "session" => &place.session,
        _ => &place.chat,
    };
    let call = |more: Value| with(json!({ "turnId": "t1", "toolCallId": "x" }), more);
    let directory = ground.uri("");
    let fields = match kind {
        "root/configChanged" => json!({ "config": { "deferredTitleGeneration": false } }),
        "session/titleChanged" => json!({ "title": "Title" }),
        "session/isReadChanged" | "chat/isReadChanged" => json!({ "isRead": true }),
        "session/isArchivedChanged" | "chat/isArchivedChanged" => json!({ "isArchived": false }),
        "session/configChanged" => json!({ "config": { "mode": "auto" } }),
        "session/defaultChatChanged" => json!({ "defaultChat": place.chat }),
        "session/activeClientSet" => json!({ "activeClient": { "clientId": client, "tools": [] } }),
        "session/activeClientRemoved" => json!({ "clientId": client }),
        "session/workingDirectoryReplaced" => json!({ "directory": directory, "replacement": directory }),
        "session/workingDirectorySet"
        | "session/workingDirectoryRemoved"
        | "chat/workingDirectorySet"
        | "chat/workingDirectoryRemoved" => json!({ "directory": directory }),
        "session/customizationToggled" => json!({ "id": "x", "enablement": [] }),
        "session/mcpServerStartRequested"
        | "session/mcpServerStopRequested"
        | "session/mcpServerBackgroundRequested" => json!({ "id": "x" }),
        "chat/turnStarted" => {
            json!({ "turnId": "t2", "startedAt": "2026-11-30T12:00:00.000Z", "message": message("/say hi") })
        }
        "chat/turnCancelled" => json!({ "turnId": "t2", "duration": 0 }),
        "chat/turnResume" | "chat/truncated" => json!({ "turnId": "t1" }),
        "chat/toolCallConfirmed" | "chat/toolCallResultConfirmed" => call(json!({ "approved": true })),
        "chat/toolCallComplete" => {
            call(json!({ "result": { "success": true, "pastTenseMessage": "Done", "content": [] } }))
        }
        "chat/toolCallContentChanged" => call(json!({ "content": [] })),
        "chat/inputAnswerChanged" => json!({ "requestId": "x", "questionId": "y" }),
        "chat/inputCompleted" => json!({ "requestId": "x", "response": "cancel" }),
        "chat/pendingMessageSet" => json!({ "kind": "queued", "id": "q", "message": message("/say queued") }),
        "chat/pendingMessageRemoved" => json!({ "kind": "queued", "id": "gone" }),
        "chat/queuedMessagesReordered" => json!({ "order": [] }),
        "chat/draftChanged" => json!({ "draft": message("draft") }),
        other => panic!("there is nothing to send for the action {other}"),
    };
    (channel.to_owned(), with(json!({ "type": kind }), fields))
}

/// The params of a command. `client` is the id of who sends it, and how many actions they sent.
pub fn command(method: &str, place: &Place, client: (&str, i64), ground: &Ground) -> Value {
    let root = |more: Value| with(json!({ "channel": ROOT }), more);
    let session = |more: Value| with(json!({ "channel": place.session }), more);
    let chat = |more: Value| with(json!({ "channel": place.chat }), more);
    let file = |name: &str, more: Value| of(&ground.uri(name), more);
    let pair = |from: &str, to: &str| root(json!({ "source": ground.uri(from), "destination": ground.uri(to) }));
    match method {
        "ping" => root(json!({})),
        "initialize" => root(json!({ "protocolVersions": ["1.0.0"], "clientId": format!("{} again", client.0) })),
        "reconnect" => {
            let id = format!("{} once more", client.0);
            root(json!({ "clientId": id, "lastSeenServerSeq": 1, "subscriptions": [ROOT] }))
        }
        "setClientManagedSettingsPermissions" => root(json!({})),
        "unsubscribe" => json!({ "channel": place.named("spare") }),
        "dispatchAction" => {
            let draft = json!({ "type": "chat/draftChanged", "draft": message("asked") });
            chat(json!({ "clientSeq": client.1 + 1, "action": draft }))
        }
        "subscribe" | "fetchTurns" | "x-scrollback/listVisuals" | "x-scrollback/compact" => chat(json!({})),
        "x-scrollback/stateAt" => chat(json!({ "serverSeq": ground.host.host.store().tail() })),
        "listSessions" => root(json!({})),
        "authenticate" => root(json!({ "resource": "https://api.example.com", "token": "token" })),
        "completions" => chat(json!({ "kind": "userMessage", "text": "/", "offset": 1 })),
        "resourceRead" | "resourceResolve" | "resourceRequest" => file("a.txt", json!({})),
        "resourceList" | "createResourceWatch" => file("", json!({})),
        "resourceWrite" => file("written.txt", json!({ "data": "text", "encoding": "utf-8" })),
        "resourceMkdir" => file("made", json!({})),
        "resourceCopy" => pair("a.txt", "copied.txt"),
        "resourceMove" => pair("copied.txt", "moved.txt"),
        "resourceDelete" => file("moved.txt", json!({})),
        "resolveSessionConfig" => root(json!({ "provider": "demo" })),
        "sessionConfigCompletions" => root(json!({ "provider": "demo", "property": "mode" })),
        "createSession" => session(json!({ "provider": "demo" })),
        "createChat" => session(json!({ "chat": place.named("new") })),
        "x-scrollback/sendNow" | "x-scrollback/stopBackgroundWork" | "x-scrollback/removeVisual" => {
            chat(json!({ "id": "x" }))
        }
        "x-scrollback/publishVisual" => chat(json!({ "title": "Title", "html": "<p>" })),
        "x-scrollback/forkAt" => chat(json!({ "chat": place.named("fork"), "turnId": "t1" })),
        "moveChat" => {
            let destination = json!({ "kind": "session", "session": place.session });
            json!({ "channel": place.named("moved"), "destination": destination })
        }
        "x-scrollback/clear" => chat(json!({ "force": true })),
        "disposeChat" => json!({ "channel": place.named("spare") }),
        "disposeSession" => session(json!({})),
        other => panic!("there is nothing to send for the command {other}"),
    }
}

/// The path and the body of a request.
pub fn request(route: &str, place: &Place) -> (String, Option<Value>) {
    let path = route.split_once(' ').unwrap().1;
    let about = |name: &str, value: &str| format!("{path}?{name}={}", encoded(value));
    let of = |name: &str| Some(json!({ "uri": place.named(name) }));
    let chat = || Some(json!({ "grants": ["chat:turns"] }));
    let bob = || path.replace("{name}", "bob");
    match route {
        "GET /api/events" | "GET /api/state" | "GET /api/log" | "GET /api/log/window" | "GET /api/extent" => {
            (about("channel", &place.chat), None)
        }
        "GET /api/around" => (format!("{}&at=1000000", about("channel", &place.chat)), None),
        "GET /api/lineage" => (about("session", &place.session), None),
        "GET /api/diff" => {
            let whole = format!("{}&from={}&to={}", about("channel", &place.chat), place.seq, place.seq);
            (whole, None)
        }
        "GET /api/attachments" => (about("uri", &place.attachment), None),
        "GET /api/log/{seq}" => (path.replace("{seq}", &place.seq.to_string()), None),
        "POST /api/backup" => (path.to_owned(), Some(json!({}))),
        "POST /api/log/restore" => (path.to_owned(), of("closed")),
        "POST /api/log/erase" => (path.to_owned(), of("erased")),
        "POST /api/log/compact" => (path.to_owned(), Some(json!({}))),
        "POST /api/users" => (path.to_owned(), Some(json!({ "name": "carol" }))),
        "POST /api/users/{name}/grant" | "POST /api/users/{name}/revoke" => (bob(), chat()),
        "POST /api/users/{name}/token" => (bob(), Some(json!({}))),
        "DELETE /api/users/{name}" => (bob(), None),
        "GET /metrics"
        | "GET /api/host"
        | "GET /api/me"
        | "GET /api/agents"
        | "GET /api/log/stats"
        | "GET /api/log/verify"
        | "GET /api/log/export"
        | "GET /api/overview"
        | "GET /api/sessions"
        | "GET /api/config"
        | "GET /api/users" => (path.to_owned(), None),
        other => panic!("there is nothing to send for the route {other}"),
    }
}

/// A value of a query.
pub fn encoded(value: &str) -> String {
    value.replace('%', "%25").replace('&', "%26").replace('#', "%23").replace('+', "%2B").replace(' ', "%20")
}

pub fn with(mut params: Value, more: Value) -> Value {
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    params
}
