//! Every action and every command is served, or refused in the documented way; a refusal moves nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use scrollback::actors::agent::{Agent, AgentExtras};
use scrollback::actors::host::HostSettings;
use scrollback::agents::built_in;
use scrollback::projections::action::{CLIENT_TYPES, KNOWN_TYPES};
use serde_json::{Value, json};

use crate::harness::{Client, Options, RecordingAgent, TestHost, message, word};
use crate::samples::{kind_of, of_clients, of_hosts};

const ROOT: &str = "ahp-root://";
const S: &str = "ahp-session:/s";

async fn open(host: &TestHost, id: &str) -> (Client, String) {
    let mut client = host.client(id).await;
    let chat = client.create_session(S).await;
    client.until_type("root/activeSessionsChanged").await;
    client.subscribe(S).await;
    client.subscribe(&chat).await;
    (client, chat)
}

fn right<'a>(action: &Value, chat: &'a str) -> &'a str {
    match kind_of(action) {
        "root" => ROOT,
        "session" => S,
        _ => chat,
    }
}

#[test]
fn the_samples_hold_every_type_that_a_client_may_dispatch() {
    let sampled: BTreeSet<String> =
        of_clients().iter().map(|(action, _)| action["type"].as_str().unwrap().to_owned()).collect();
    let all: BTreeSet<String> = CLIENT_TYPES.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(sampled, all);
}

/// The few that need an object of a part of AHP that this host does not speak are sent with nothing in them, below.
#[test]
fn the_samples_hold_the_types_that_only_a_host_says() {
    let sampled: BTreeSet<String> =
        of_hosts().iter().map(|action| action["type"].as_str().unwrap().to_owned()).collect();
    let ours = |name: &&&str| ["root/", "session/", "chat/"].iter().any(|kind| name.starts_with(kind));
    let all: BTreeSet<String> =
        KNOWN_TYPES.iter().filter(ours).filter(|name| !CLIENT_TYPES.contains(name)).map(|n| (*n).to_owned()).collect();
    let left: Vec<&str> = all.difference(&sampled).map(String::as_str).collect();
    let without = ["chat/backgroundWorkSet", "chat/toolCallAuthRequired", "session/customizationUpdated"];
    assert_eq!(left, without);
}

#[tokio::test]
async fn every_action_of_a_client_is_served_or_refused_with_its_code() {
    let host = TestHost::in_memory();
    let (mut client, chat) = open(&host, "c").await;
    for (action, fate) in of_clients() {
        let channel = right(&action, &chat);
        let before = host.host.store().tail();
        let envelope = client.act(channel, action.clone()).await;
        assert_eq!(envelope["channel"], json!(channel));
        match fate {
            "ok" => {
                assert_eq!(envelope.get("rejectionReason"), None, "{envelope}");
                assert!(envelope["serverSeq"].as_u64().unwrap() > before, "{envelope}");
            }
            "nothing" => {
                assert_eq!(envelope.get("rejectionReason"), None, "{envelope}");
                assert_eq!((&envelope["serverSeq"], &envelope["action"]), (&json!(before), &action));
            }
            code => {
                assert_eq!(word(&envelope), code, "{action}");
                assert_eq!((&envelope["serverSeq"], &envelope["action"]), (&json!(before), &action));
            }
        }
    }
}

#[tokio::test]
async fn what_only_a_host_says_and_what_is_for_another_channel_is_not_dispatchable() {
    let host = TestHost::in_memory();
    let (mut client, chat) = open(&host, "c").await;
    let state = client.subscribe(&chat).await["state"].clone();
    for action in of_hosts() {
        assert_eq!(client.rejected(right(&action, &chat), action.clone()).await, "not-dispatchable", "{action}");
    }
    for (action, _) in of_clients() {
        let here = right(&action, &chat);
        for channel in [ROOT, S, chat.as_str()].into_iter().filter(|channel| *channel != here) {
            let names_a_chat = action["type"] == json!("session/titleChanged") && channel == chat;
            if !names_a_chat {
                assert_eq!(client.rejected(channel, action.clone()).await, "not-dispatchable", "{channel} {action}");
            }
        }
    }
    for kind in ["terminal/input", "annotations/removed"] {
        let action = json!({ "type": kind, "data": "x", "annotationId": "x" });
        assert_eq!(client.rejected(&chat, action).await, "not-dispatchable", "{kind}");
    }
    assert_eq!(client.subscribe(&chat).await["state"], state);
}

#[tokio::test]
async fn a_known_type_that_lacks_a_field_is_malformed_and_a_type_of_another_protocol_unknown() {
    let host = TestHost::in_memory();
    let (mut client, chat) = open(&host, "c").await;
    let bare = [
        "chat/activityChanged",
        "chat/canvasesChanged",
        "chat/changesetsChanged",
        "chat/draftChanged",
        "chat/truncated",
        "session/activityChanged",
        "session/changesetsChanged",
        "session/defaultChatChanged",
        "session/metaChanged",
        "session/ready",
    ];
    for action in of_clients().into_iter().map(|(action, _)| action).chain(of_hosts()) {
        let kind = action["type"].as_str().unwrap();
        if !bare.contains(&kind) {
            let broken = json!({ "type": kind });
            assert_eq!(client.rejected(right(&action, &chat), broken).await, "malformed", "{kind}");
        }
    }
    for (action, code) in [
        (json!({ "type": "chat/backgroundWorkSet" }), "malformed"),
        (json!({ "type": "chat/toolCallAuthRequired" }), "malformed"),
        (json!({ "type": "session/customizationUpdated" }), "malformed"),
        (json!({ "type": "chat/turnStarted", "turnId": "t", "message": message("x") }), "malformed"),
        (json!({ "type": "chat/turnCancelled", "turnId": "t", "duration": 0.5 }), "malformed"),
        (json!({ "turnId": "t" }), "malformed"),
        (json!({ "type": 7 }), "malformed"),
        (json!([1, 2]), "malformed"),
        (json!(5), "malformed"),
        (json!("chat/turnStarted"), "malformed"),
        (json!({ "type": "chat/levitated" }), "unknown-action"),
        (json!({ "type": "" }), "unknown-action"),
    ] {
        for channel in [ROOT, S, chat.as_str()] {
            let envelope = client.act(channel, action.clone()).await;
            assert_eq!((word(&envelope), &envelope["action"]), (code.to_owned(), &action), "{channel} {action}");
        }
    }
}

#[tokio::test]
async fn an_action_for_an_unknown_channel_is_ignored_in_silence() {
    let host = TestHost::in_memory();
    let (mut client, _) = open(&host, "c").await;
    let draft = json!({ "type": "chat/draftChanged", "draft": message("x") });
    for channel in ["ahp-chat:/none", "ahp-session:/none", "ahp-terminal:/x", "nonsense", "ahp-chat://default/%%"] {
        client.dispatch(channel, draft.clone()).await;
        client.dispatch(channel, json!({ "type": "chat/levitated" })).await;
    }
    let last = client.accepted(ROOT, json!({ "type": "root/configChanged", "config": { "a": 1 } })).await;
    assert_eq!(last["origin"]["clientSeq"], json!(11));
    let rest = client.drain().await;
    assert!(rest.is_empty(), "{rest:?}");
}

#[tokio::test]
async fn refusals_and_what_changes_nothing_are_heard_by_their_sender_alone_and_never_replayed() {
    let host = TestHost::in_memory();
    let (mut client, chat) = open(&host, "c").await;
    let mut other = host.client("d").await;
    other.subscribe(&chat).await;
    let read = json!({ "type": "chat/isReadChanged", "isRead": true });
    let first = client.accepted(&chat, read.clone()).await["serverSeq"].as_u64().unwrap();
    let now = client.until_type("session/chatUpdated").await["serverSeq"].as_u64().unwrap();
    for action in [
        read,
        json!({ "type": "chat/levitated" }),
        json!({ "type": "chat/turnCancelled", "turnId": "t", "duration": 0 }),
        json!({ "type": "chat/turnResume", "turnId": "t" }),
    ] {
        assert_eq!(client.act(&chat, action.clone()).await["serverSeq"], json!(now), "{action}");
    }
    let draft = json!({ "type": "chat/draftChanged", "draft": message("x") });
    let next = client.accepted(&chat, draft).await;
    assert_eq!(next["serverSeq"], json!(now + 1));
    let heard = other.until(|e| e["serverSeq"] == json!(now + 1)).await;
    let heard: Vec<_> = heard.iter().map(|e| e["serverSeq"].as_u64().unwrap()).filter(|seq| *seq >= first).collect();
    assert_eq!(heard, [first, now + 1]);
    let mut late = Client::connect(host.address).await;
    let replay = late.reconnect("c", first - 1, &[&chat]).await;
    let replayed: Vec<_> = replay["actions"].as_array().unwrap().iter().map(|e| e["serverSeq"].clone()).collect();
    assert_eq!(replayed, [json!(first), json!(now + 1)]);
}

/// Clients match what they hear with the oldest of their actions that nothing was heard of.
#[tokio::test]
async fn a_client_hears_of_its_actions_on_a_channel_in_the_order_in_which_it_sent_them() {
    let host = TestHost::in_memory();
    let (mut client, chat) = open(&host, "c").await;
    let mut sent = Vec::new();
    for round in 0..10 {
        for action in [
            json!({ "type": "chat/draftChanged", "draft": message(&format!("{round}")) }),
            json!({ "type": "chat/levitated" }),
            json!({ "type": "chat/turnCancelled", "turnId": "t" }),
            json!({ "type": "chat/draftChanged", "draft": message(&format!("{round}")) }),
            json!({ "type": "chat/turnResume", "turnId": "t" }),
        ] {
            sent.push(client.dispatch(&chat, action).await);
        }
    }
    let last = *sent.last().unwrap();
    let heard = client.until(|e| e["origin"]["clientSeq"] == json!(last)).await;
    let heard: Vec<i64> = heard.iter().filter_map(|e| e["origin"]["clientSeq"].as_i64()).collect();
    assert_eq!(heard, sent);
}

#[tokio::test]
async fn a_client_hears_of_its_actions_in_that_order_also_across_a_session_and_its_chats() {
    let host = TestHost::in_memory();
    let (mut client, chat) = open(&host, "c").await;
    client.create_chat(S, "ahp-chat:/p").await;
    client.subscribe("ahp-chat:/p").await;
    let mut sent = Vec::new();
    for round in 0..20 {
        let title = json!({ "type": "session/titleChanged", "title": format!("{round}") });
        for channel in [chat.as_str(), S, "ahp-chat:/p", S, chat.as_str()] {
            sent.push(client.dispatch(channel, title.clone()).await);
        }
    }
    let mut heard = Vec::new();
    while heard.len() < sent.len() {
        let envelope = client.envelope(|e| e["origin"].is_object()).await;
        heard.push(envelope["origin"]["clientSeq"].as_i64().unwrap());
    }
    assert_eq!(heard, sent);
}

#[tokio::test]
async fn every_command_is_served_or_named_as_one_that_is_not() {
    let host = TestHost::in_memory();
    let (mut client, chat) = open(&host, "c").await;
    for (method, params) in [
        ("ping", json!({ "channel": ROOT })),
        ("listSessions", json!({ "channel": ROOT })),
        ("resolveSessionConfig", json!({ "channel": ROOT })),
        ("createSession", json!({ "channel": "ahp-session:/t" })),
        ("disposeSession", json!({ "channel": "ahp-session:/t" })),
        ("createChat", json!({ "channel": S, "chat": "ahp-chat:/p" })),
        ("subscribe", json!({ "channel": "ahp-chat:/p" })),
        ("fetchTurns", json!({ "channel": "ahp-chat:/p" })),
        ("moveChat", json!({ "channel": "ahp-chat:/p", "destination": { "kind": "session", "session": S } })),
        ("disposeChat", json!({ "channel": "ahp-chat:/p" })),
        ("x-scrollback/stateAt", json!({ "channel": S, "serverSeq": host.host.store().tail() })),
    ] {
        client.ask(method, params).await.unwrap_or_else(|error| panic!("{method}: {error}"));
    }
    let later = "createTerminal disposeTerminal invokeChangesetOperation listAutomationTriggerDefinitions runAutomation \
        fetchAutomationRuns shutdown levitate";
    for method in later.split_whitespace() {
        let refused = client.refused(method, json!({ "channel": chat })).await;
        assert_eq!(refused, (-32601, "unknown-method".to_owned()), "{method}");
    }
    for method in ["initialize", "reconnect"] {
        assert_eq!(client.refused(method, json!({ "channel": ROOT })).await.0, -32600, "{method}");
    }
}

#[tokio::test]
async fn a_client_of_no_common_version_is_told_which_are_served_and_the_connection_ends() {
    let host = TestHost::in_memory();
    let mut client = Client::connect(host.address).await;
    let offer = |versions: Value| json!({ "channel": ROOT, "clientId": "c", "protocolVersions": versions });
    let malformed = client.refused("initialize", offer(json!(["one"]))).await;
    assert_eq!(malformed, (-32602, "invalid-params".to_owned()));
    let error = client.ask("initialize", offer(json!(["2.0.0"]))).await.unwrap_err();
    assert_eq!((&error["code"], &error["data"]["code"]), (&json!(-32005), &json!("unsupported-version")));
    assert_eq!(error["data"]["supportedVersions"], json!(["^1.0.0", "^0.9.0"]));
    assert_eq!(client.next().await, None);
}

#[tokio::test]
async fn every_error_names_its_code() {
    let host = TestHost::in_memory();
    let (mut client, chat) = open(&host, "c").await;
    let nowhere = "ahp-chat:/none";
    for (method, params, code, word) in [
        ("subscribe", json!({ "channel": nowhere }), -32008, "not-found"),
        ("subscribe", json!({ "channel": "ahp-session:/none" }), -32008, "not-found"),
        ("fetchTurns", json!({ "channel": nowhere }), -32008, "not-found"),
        ("fetchTurns", json!({ "channel": S }), -32008, "not-found"),
        ("fetchTurns", json!({ "channel": chat, "cursor": "x" }), -32602, "unknown-cursor"),
        ("x-scrollback/sendNow", json!({ "channel": nowhere, "id": "m" }), -32008, "not-found"),
        ("x-scrollback/sendNow", json!({ "channel": chat, "id": "m" }), -32008, "request-not-found"),
        ("x-scrollback/compact", json!({ "channel": nowhere }), -32008, "not-found"),
        ("x-scrollback/stopBackgroundWork", json!({ "channel": nowhere, "id": "w" }), -32008, "not-found"),
        ("x-scrollback/stopBackgroundWork", json!({ "channel": chat, "id": "w" }), -32008, "request-not-found"),
        ("disposeChat", json!({ "channel": nowhere }), -32008, "not-found"),
        ("disposeChat", json!({ "channel": S }), -32008, "not-found"),
        ("disposeSession", json!({ "channel": "ahp-session:/none" }), -32001, "unknown-session"),
        ("disposeSession", json!({ "channel": chat }), -32001, "unknown-session"),
        ("createChat", json!({ "channel": chat, "chat": "ahp-chat:/p" }), -32001, "unknown-session"),
        ("createChat", json!({ "channel": S }), -32602, "invalid-params"),
        ("createSession", json!({ "channel": S }), -32003, "session-exists"),
        ("createSession", json!({ "channel": 7 }), -32602, "invalid-params"),
        ("createSession", json!({}), -32602, "invalid-params"),
        ("x-scrollback/stateAt", json!({ "channel": nowhere, "serverSeq": 1 }), -32008, "not-found"),
        ("x-scrollback/stateAt", json!({ "channel": S }), -32602, "invalid-params"),
        ("resolveSessionConfig", json!({ "channel": ROOT, "provider": "nobody" }), -32002, "unknown-provider"),
        ("listSessions", json!({ "channel": S }), -32602, "invalid-params"),
    ] {
        assert_eq!(client.refused(method, params.clone()).await, (code, word.to_owned()), "{method} {params}");
    }
    let mut early = Client::connect(host.address).await;
    assert_eq!(early.refused("listSessions", json!({ "channel": ROOT })).await.0, -32600);
}

/// Where a chat stands when somebody wants something of the messages that wait in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    Idle,
    /// A turn runs, `q` is queued, and `s` is in the slot.
    Runs,
    /// The same in a host whose agent takes no steering, without `s`.
    RunsDeaf,
    /// The turn was stopped: `s` and `q` wait in a paused queue.
    Paused,
}

fn waiting(kind: &str, id: &str, text: &str) -> Value {
    json!({ "type": "chat/pendingMessageSet", "kind": kind, "id": id, "message": message(text) })
}

/// What is refused, where, and with which word.
fn refused_while_waiting() -> Vec<(Value, Stands, &'static str)> {
    use Stands::{Idle, Paused, Runs, RunsDeaf};
    let start = |turn: &str, at: &str| json!({ "type": "chat/turnStarted", "turnId": turn, "startedAt": at, "message": message("x") });
    let removed = |kind: &str, id: &str| json!({ "type": "chat/pendingMessageRemoved", "kind": kind, "id": id });
    let order = |ids: &[&str]| json!({ "type": "chat/queuedMessagesReordered", "order": ids });
    let cancel = |turn: &str| json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 });
    let of_agent = |mut action: Value| {
        let field = if action.get("draft").is_some() { "draft" } else { "message" };
        action[field]["origin"]["kind"] = json!("agent");
        action
    };
    let draft = |text: &str| json!({ "type": "chat/draftChanged", "draft": message(text) });
    let now = "2026-11-30T12:00:00.000Z";
    let (long, far) = ("x".repeat(65), "i".repeat(257));
    vec![
        (waiting("steering", "new", "x"), Idle, "no-active-turn"),
        (waiting("steering", "new", "x"), Paused, "no-active-turn"),
        (waiting("steering", "q", "x"), Paused, "no-active-turn"),
        (waiting("steering", "new", "x"), RunsDeaf, "unsupported"),
        (waiting("steering", "went", "x"), Runs, "request-not-found"),
        (waiting("queued", "went", "x"), Idle, "request-not-found"),
        (waiting("queued", "went", "x"), Runs, "request-not-found"),
        (waiting("queued", "went", "x"), Paused, "request-not-found"),
        (waiting("queued", "new", "x"), Paused, "limit-exceeded"),
        (waiting("queued", "", "x"), Idle, "malformed"),
        (waiting("queued", &far, "x"), Idle, "malformed"),
        (waiting("later", "new", "x"), Runs, "malformed"),
        (of_agent(waiting("queued", "new", "x")), Runs, "malformed"),
        (of_agent(waiting("steering", "new", "x")), Runs, "malformed"),
        (waiting("queued", "q", &long), Runs, "limit-exceeded"),
        (waiting("steering", "s", &long), Runs, "limit-exceeded"),
        (removed("queued", "went"), Runs, "request-not-found"),
        (removed("queued", "s"), Runs, "request-not-found"),
        (removed("steering", "q"), Runs, "request-not-found"),
        (removed("steering", "s"), Paused, "request-not-found"),
        (removed("queued", "never"), Idle, "request-not-found"),
        (removed("later", "q"), Runs, "malformed"),
        (order(&["q"]), Idle, "request-not-found"),
        (json!({ "type": "chat/queuedMessagesReordered" }), Paused, "malformed"),
        (draft(&long), Runs, "limit-exceeded"),
        (of_agent(draft("x")), Idle, "malformed"),
        (start("new", now), Runs, "turn-in-progress"),
        (start("done", now), Idle, "duplicate-turn"),
        (start("done", now), Runs, "duplicate-turn"),
        (start("new", "yesterday"), Paused, "malformed"),
        (start("", now), Paused, "malformed"),
        (of_agent(start("new", now)), Paused, "malformed"),
        (cancel("new"), Runs, "no-active-turn"),
        (cancel("done"), Paused, "no-active-turn"),
        (cancel("done"), Idle, "no-active-turn"),
    ]
}

async fn standing(stands: Stands) -> (TestHost, Client, String) {
    let mut agents: Vec<Arc<dyn Agent>> = vec![built_in()];
    if stands == Stands::RunsDeaf {
        agents = vec![Arc::new(RecordingAgent::new().with_extras(AgentExtras::default()))];
    }
    let settings = HostSettings { max_message_text: 64, max_queued_messages: 2, ..HostSettings::default() };
    let host = TestHost::with(Options { agents, settings, ..Options::default() });
    let (mut client, chat) = open(&host, "c").await;
    let deaf = stands == Stands::RunsDeaf;
    if !deaf {
        client.queue(&chat, "went", "x").await;
        client.until_type("chat/turnComplete").await;
        client.run(&chat, "done", "x").await;
    }
    if stands != Stands::Idle {
        client.say(&chat, "t", "/question sure?").await;
        client.until_type(if deaf { "chat/turnStarted" } else { "chat/inputRequested" }).await;
        client.accepted(&chat, waiting("queued", "q", "x")).await;
    }
    if matches!(stands, Stands::Runs | Stands::Paused) {
        client.accepted(&chat, waiting("steering", "s", "x")).await;
    }
    if stands == Stands::Paused {
        client.cancel(&chat, "t").await;
        client.until_ended("t").await;
    }
    client.drain().await;
    (host, client, chat)
}

#[tokio::test]
async fn what_is_refused_of_waiting_messages_leaves_the_log_and_the_state_as_they_are() {
    for stands in [Stands::Idle, Stands::Runs, Stands::RunsDeaf, Stands::Paused] {
        let (host, mut client, chat) = standing(stands).await;
        let state = client.subscribe(&chat).await["state"].clone();
        let before = host.log();
        for (action, at, code) in refused_while_waiting().into_iter().filter(|(_, at, _)| *at == stands) {
            let envelope = client.act(&chat, action.clone()).await;
            assert_eq!(word(&envelope), code, "{at:?} {action}");
            assert_eq!(envelope["action"], action);
        }
        assert_eq!(host.log(), before, "{stands:?}");
        assert_eq!(client.subscribe(&chat).await["state"], state, "{stands:?}");
        assert!(client.drain().await.is_empty());
    }
}
