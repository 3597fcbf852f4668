//! Sessions: created once, listed by their last turn, disposed without a trace on any list, and never lost.

use scrollback::actors::host::HostSettings;
use scrollback::clock::{Clock, rfc3339};
use serde_json::{Value, json};

use crate::harness::{Options, TestHost, chat_of, message, types};

const ROOT: &str = "ahp-root://";
/// 2026-11-30T00:00:00Z
const DAY: i64 = 1_795_996_800_000;

fn uris(listed: &[Value]) -> Vec<&str> {
    listed.iter().map(|summary| summary["resource"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_created_session_is_announced_once_and_ready() {
    let host = TestHost::in_memory();
    let mut watcher = host.client("w").await;
    let mut client = host.client("c").await;
    let chat = client.create_session("ahp-session:/s").await;
    let added = watcher.notification("root/sessionAdded").await;
    assert_eq!(added["summary"]["resource"], json!("ahp-session:/s"));
    assert_eq!(added["summary"]["defaultChat"], json!(chat));
    let counted = watcher.until_type("root/activeSessionsChanged").await;
    assert_eq!(counted["action"]["activeSessions"], json!(1));

    let state = client.subscribe("ahp-session:/s").await["state"].clone();
    assert_eq!((&state["lifecycle"], &state["provider"]), (&json!("ready"), &json!("demo")));
    client.accepted(ROOT, json!({ "type": "root/configChanged", "config": { "later": true } })).await;
    watcher.until_type("root/configChanged").await;
    let rest = watcher.drain().await;
    assert!(rest.iter().all(|message| message["method"] != json!("root/sessionAdded")), "{rest:?}");
}

#[tokio::test]
async fn a_uri_that_has_events_stays_taken_also_after_dispose() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    client.create_session("ahp-session:/s").await;
    let again = json!({ "channel": "ahp-session:/s", "provider": "demo" });
    let taken = (-32003, "session-exists".to_owned());
    assert_eq!(client.refused("createSession", again.clone()).await, taken);
    client.ask("disposeSession", json!({ "channel": "ahp-session:/s" })).await.unwrap();
    assert_eq!(client.refused("createSession", again).await, taken);
}

#[tokio::test]
async fn a_disposed_session_is_off_the_list_and_nothing_of_it_can_be_reached() {
    let host = TestHost::in_memory();
    let mut watcher = host.client("w").await;
    let mut client = host.client("c").await;
    let chat = client.create_session("ahp-session:/s").await;
    client.subscribe(&chat).await;
    client.say(&chat, "t", "/sleep 60000").await;
    client.until_type("chat/turnStarted").await;
    let params = json!({ "channel": "ahp-session:/s" });
    client.ask("disposeSession", params.clone()).await.unwrap();
    assert_eq!(client.until_ended("t").await.pop().unwrap()["action"]["type"], json!("chat/turnCancelled"));
    assert_eq!(watcher.notification("root/sessionRemoved").await["session"], json!("ahp-session:/s"));
    assert_eq!(watcher.until_type("root/activeSessionsChanged").await["action"]["activeSessions"], json!(0));

    assert_eq!(client.listed().await, Vec::<Value>::new());
    assert_eq!(client.refused("subscribe", params.clone()).await.0, -32008);
    assert_eq!(client.refused("subscribe", json!({ "channel": chat })).await.0, -32008);
    assert_eq!(client.refused("disposeSession", params).await, (-32001, "unknown-session".to_owned()));
    let into = json!({ "channel": "ahp-session:/s", "chat": "ahp-chat:/late" });
    assert_eq!(client.refused("createChat", into).await.0, -32001);
    client.say(&chat, "t2", "anybody there?").await;
    client.accepted(ROOT, json!({ "type": "root/configChanged", "config": { "later": true } })).await;
    let rest = client.drain().await;
    assert!(rest.iter().all(|message| message["params"]["channel"] != json!(chat)), "{rest:?}");
}

/// The second reaches the session when it is already gone, whatever the host looked up before.
#[tokio::test]
async fn what_arrives_right_behind_a_dispose_finds_no_session() {
    let host = TestHost::in_memory();
    let mut watcher = host.client("w").await;
    let mut client = host.client("c").await;
    let chat = client.create_session("ahp-session:/s").await;
    let requests = [
        ("disposeSession", json!({ "channel": "ahp-session:/s" }), Value::Null),
        ("disposeSession", json!({ "channel": "ahp-session:/s" }), json!(-32001)),
        ("subscribe", json!({ "channel": "ahp-session:/s" }), json!(-32008)),
        ("subscribe", json!({ "channel": chat }), json!(-32008)),
        ("createChat", json!({ "channel": "ahp-session:/s", "chat": "ahp-chat:/x" }), json!(-32001)),
        ("disposeChat", json!({ "channel": chat }), json!(-32008)),
    ];
    for (id, (method, params, _)) in requests.iter().enumerate() {
        client.send(json!({ "jsonrpc": "2.0", "id": 100 + id, "method": method, "params": params })).await;
    }
    let mut answers = vec![None; requests.len()];
    while answers.contains(&None) {
        let message = client.next().await.unwrap();
        if let Some(id) = message["id"].as_u64() {
            answers[id as usize - 100] = Some(message["error"]["code"].clone());
        }
    }
    for ((method, params, code), answer) in requests.iter().zip(answers) {
        assert_eq!(answer.as_ref(), Some(code), "{method} {params}");
    }
    watcher.notification("root/sessionRemoved").await;
    client.accepted(ROOT, json!({ "type": "root/configChanged", "config": { "later": true } })).await;
    let seen = watcher.until(|envelope| envelope["action"]["type"] == json!("root/configChanged")).await;
    let counts = seen.iter().filter(|e| e["action"]["type"] == json!("root/activeSessionsChanged"));
    assert_eq!(counts.map(|e| e["action"]["activeSessions"].clone()).collect::<Vec<_>>(), [json!(0)]);
}

#[tokio::test]
async fn sessions_are_listed_newest_first_by_their_last_turn_and_a_name_moves_nothing() {
    let clock = Clock::fixed(DAY);
    let host = TestHost::with(Options { clock: clock.clone(), ..Options::default() });
    let mut client = host.client("c").await;
    for name in ["a", "b", "c"] {
        client.create_session(&format!("ahp-session:/{name}")).await;
        clock.advance(1_000);
    }
    assert_eq!(uris(&client.listed().await), ["ahp-session:/c", "ahp-session:/b", "ahp-session:/a"]);

    client.subscribe("ahp-session:/b").await;
    client.accepted("ahp-session:/b", json!({ "type": "session/titleChanged", "title": "B" })).await;
    assert_eq!(uris(&client.listed().await)[0], "ahp-session:/c");

    let chat = chat_of("ahp-session:/a");
    client.subscribe(&chat).await;
    let started = json!({ "type": "chat/turnStarted", "turnId": "t", "startedAt": rfc3339(clock.now()),
        "message": message("hello") });
    client.dispatch(&chat, started).await;
    client.until_ended("t").await;
    let listed = client.listed().await;
    assert_eq!(uris(&listed), ["ahp-session:/a", "ahp-session:/c", "ahp-session:/b"]);
    assert_eq!(listed[0]["modifiedAt"], json!(rfc3339(clock.now())));
    assert_eq!(listed[0]["createdAt"], json!(rfc3339(DAY)));
}

#[tokio::test]
async fn the_list_comes_in_pages_and_an_unknown_cursor_is_refused() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    for number in 0..5 {
        client.create_session(&format!("ahp-session:/{number}")).await;
    }
    let (mut seen, mut sizes, mut cursor) = (Vec::new(), Vec::new(), None);
    loop {
        let mut params = json!({ "channel": ROOT, "limit": 2 });
        if let Some(cursor) = cursor.take() {
            params["cursor"] = cursor;
        }
        let page = client.ask("listSessions", params).await.unwrap();
        let items = page["items"].as_array().unwrap();
        sizes.push(items.len());
        seen.extend(uris(items).into_iter().map(str::to_owned));
        match page.get("nextCursor") {
            Some(next) => cursor = Some(next.clone()),
            None => break,
        }
    }
    assert_eq!(sizes, [2, 2, 1]);
    assert_eq!(seen, uris(&client.listed().await));
    for cursor in ["o2", "", "AAAA"] {
        let refused = client.refused("listSessions", json!({ "channel": ROOT, "cursor": cursor })).await;
        assert_eq!(refused.0, -32602, "{cursor:?}");
    }
    assert_eq!(client.refused("listSessions", json!({ "channel": ROOT, "limit": 0 })).await.0, -32602);
}

#[tokio::test]
async fn progress_is_told_for_a_token_and_ends_with_all_of_it() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    client.create_session("ahp-session:/silent").await;
    let before = client.drain().await;
    assert!(before.iter().all(|message| message["method"] != json!("root/progress")), "{before:?}");
    let params = json!({ "channel": "ahp-session:/s", "provider": "demo", "progressToken": "p1" });
    client.ask("createSession", params).await.unwrap();
    let progress = client.notification("root/progress").await;
    assert_eq!((&progress["progressToken"], &progress["progress"]), (&json!("p1"), &progress["total"]));
}

#[tokio::test]
async fn a_session_that_cannot_be_made_is_refused_by_its_own_code() {
    let settings = HostSettings { max_sessions: Some(1), ..HostSettings::default() };
    let allowed = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let settings = HostSettings { allowed_directories: vec![allowed.path().into()], ..settings };
    let host = TestHost::with(Options { settings, ..Options::default() });
    let mut client = host.client("c").await;
    let inside = format!("file://{}", allowed.path().display());
    let outside = format!("file://{}", outside.path().display());
    let gone = format!("{inside}/gone");
    std::os::unix::fs::symlink("/", allowed.path().join("escape")).unwrap();
    let escape = format!("{inside}/escape");
    let other = json!({ "clientId": "somebody", "tools": [] });
    let cases = [
        (json!({ "provider": "nobody" }), (-32002, "unknown-provider")),
        (json!({ "workingDirectories": [outside] }), (-32009, "bad-directory")),
        (json!({ "workingDirectories": [inside, gone] }), (-32009, "bad-directory")),
        (json!({ "workingDirectories": [escape] }), (-32009, "bad-directory")),
        (json!({ "workingDirectories": ["https://example.com/"] }), (-32009, "bad-directory")),
        (json!({ "activeClient": other }), (-32602, "invalid-params")),
        (json!({ "config": { "mode": "sideways" } }), (-32602, "invalid-params")),
        (json!({ "config": { "colour": 1 } }), (-32602, "invalid-params")),
    ];
    for (mut params, (code, word)) in cases {
        params["channel"] = json!("ahp-session:/s");
        assert_eq!(client.refused("createSession", params.clone()).await, (code, word.to_owned()), "{params}");
    }
    let misnamed = json!({ "channel": "ahp-chat:/s" });
    assert_eq!(client.refused("createSession", misnamed).await.0, -32602);
    let good = json!({ "channel": "ahp-session:/s", "workingDirectories": [inside] });
    client.ask("createSession", good).await.unwrap();
    let more = client.refused("createSession", json!({ "channel": "ahp-session:/t" })).await;
    assert_eq!(more, (-32000, "limit-exceeded".to_owned()));
    assert!(crate::harness::met("sessions") > 0);
    assert_eq!(client.listed().await.len(), 1);
}

#[tokio::test]
async fn a_session_that_says_nothing_gets_the_defaults_and_shows_them() {
    let settings = HostSettings { default_directory: "file:///tmp".into(), ..HostSettings::default() };
    let host = TestHost::with(Options { settings, ..Options::default() });
    let mut client = host.client("c").await;
    client.ask("createSession", json!({ "channel": "ahp-session:/s" })).await.unwrap();
    let state = client.subscribe("ahp-session:/s").await["state"].clone();
    assert_eq!(state["provider"], json!("demo"));
    assert_eq!(state["workingDirectories"], json!(["file:///tmp"]));
    assert_eq!(state["config"]["values"]["model"], json!("demo-1"));
    assert_eq!(state["config"]["values"]["mode"], json!("interactive"));
    let resolved = client.ask("resolveSessionConfig", json!({ "channel": ROOT })).await.unwrap();
    assert_eq!(resolved["values"], state["config"]["values"]);
    let chat = chat_of("ahp-session:/s");
    client.subscribe(&chat).await;
    let seen = client.run(&chat, "t", "/cwd").await;
    assert_eq!(crate::harness::streamed(&seen), r#"["file:///tmp"]"#);
}

#[tokio::test]
async fn a_changed_configuration_counts_from_the_next_turn() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session("ahp-session:/s").await;
    client.subscribe(&chat).await;
    client.run(&chat, "t1", "/say up").await;
    client.subscribe("ahp-session:/s").await;
    let change = json!({ "type": "session/configChanged", "config": { "mode": "auto" } });
    client.accepted("ahp-session:/s", change).await;
    let seen = client.run(&chat, "t2", "/ask-tool rm x").await;
    assert!(types(&seen).contains(&"chat/toolCallComplete"), "{:?}", types(&seen));
    assert_eq!(seen.last().unwrap()["action"]["type"], json!("chat/turnComplete"));
}

#[tokio::test]
async fn what_is_set_at_creation_is_never_changed_also_not_by_leaving_it_out() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let params = json!({ "channel": "ahp-session:/s", "config": { "greeting": "hi " } });
    client.ask("createSession", params).await.unwrap();
    let change = |config: Value, replace: bool| {
        json!({ "type": "session/configChanged", "config": config,
        "replace": replace })
    };
    let other = change(json!({ "greeting": "yo" }), false);
    assert_eq!(client.rejected("ahp-session:/s", other).await, "not-permitted");
    let without = change(json!({ "mode": "auto" }), true);
    assert_eq!(client.rejected("ahp-session:/s", without).await, "not-permitted");
    for config in [json!({ "colour": 1 }), json!({ "mode": "sideways" }), json!({ "verbosity": "high" })] {
        assert_eq!(client.rejected("ahp-session:/s", change(config, false)).await, "malformed");
    }
    let whole = change(json!({ "greeting": "hi ", "mode": "auto", "language": "" }), true);
    client.subscribe("ahp-session:/s").await;
    client.accepted("ahp-session:/s", whole).await;
    let values = client.subscribe("ahp-session:/s").await["state"]["config"]["values"].clone();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(values, json!({ "greeting": "hi ", "mode": "auto", "language": "", "version": version }));
}

#[tokio::test]
async fn a_host_without_the_agent_keeps_the_session_and_ends_its_turns_in_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("c").await;
    let chat = client.create_session("ahp-session:/s").await;
    client.subscribe(&chat).await;
    client.run(&chat, "t1", "hello").await;
    host.stop();

    let host = TestHost::on_disk_with(directory.path(), Options { agents: Vec::new(), ..Options::default() });
    let mut client = host.client("c").await;
    assert_eq!(uris(&client.listed().await), ["ahp-session:/s"]);
    client.subscribe(&chat).await;
    let ending = client.run(&chat, "t2", "anybody?").await.pop().unwrap();
    assert_eq!(ending["action"]["part"]["error"]["errorType"], json!("agent-missing"));
    host.stop();

    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("c").await;
    let turns = client.subscribe(&chat).await["state"]["turns"].clone();
    assert_eq!(turns.as_array().unwrap().len(), 2);
    assert_eq!(client.run(&chat, "t3", "again").await.last().unwrap()["action"]["type"], json!("chat/turnComplete"));
}

fn active(client: &str) -> Value {
    json!({ "type": "session/activeClientSet", "activeClient": { "clientId": client, "tools": [] } })
}

#[tokio::test]
async fn a_client_speaks_for_itself_alone() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    client.create_session("ahp-session:/s").await;
    client.subscribe("ahp-session:/s").await;
    assert_eq!(client.rejected("ahp-session:/s", active("d")).await, "not-permitted");
    let other = json!({ "type": "session/activeClientRemoved", "clientId": "d" });
    assert_eq!(client.rejected("ahp-session:/s", other).await, "not-permitted");
    client.accepted("ahp-session:/s", active("c")).await;
    let state = client.subscribe("ahp-session:/s").await["state"].clone();
    assert_eq!(state["activeClients"][0]["clientId"], json!("c"));
}

/// The grace of the one that came back is over before that of the one that did not.
#[tokio::test]
async fn a_client_that_leaves_is_active_no_more_after_its_grace_unless_it_is_back() {
    let settings = HostSettings { client_grace: std::time::Duration::from_millis(50), ..HostSettings::default() };
    let host = TestHost::with(Options { settings, ..Options::default() });
    let mut watcher = host.client("w").await;
    watcher.create_session("ahp-session:/s").await;
    watcher.subscribe("ahp-session:/s").await;
    let (mut back, mut gone) = (host.client("back").await, host.client("gone").await);
    for (client, name) in [(&mut back, "back"), (&mut gone, "gone")] {
        client.subscribe("ahp-session:/s").await;
        client.accepted("ahp-session:/s", active(name)).await;
    }
    gone.drop_socket().await;
    back.drop_socket().await;
    let back = host.client("back").await;
    let seen = watcher.until(|e| e["action"]["type"] == json!("session/activeClientRemoved")).await;
    assert_eq!(seen.last().unwrap()["action"]["clientId"], json!("gone"));
    let state = watcher.subscribe("ahp-session:/s").await["state"].clone();
    assert_eq!(state["activeClients"].as_array().unwrap().len(), 1);
    back.drop_socket().await;
    assert_eq!(watcher.until_type("session/activeClientRemoved").await["action"]["clientId"], json!("back"));
}

#[tokio::test]
async fn a_client_that_does_not_come_back_after_a_restart_is_active_no_more() {
    let settings = || HostSettings { client_grace: std::time::Duration::from_millis(50), ..HostSettings::default() };
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk_with(directory.path(), Options { settings: settings(), ..Options::default() });
    let mut clients = [host.client("back").await, host.client("gone").await];
    clients[0].create_session("ahp-session:/s").await;
    for (client, name) in clients.iter_mut().zip(["back", "gone"]) {
        client.subscribe("ahp-session:/s").await;
        client.accepted("ahp-session:/s", active(name)).await;
    }
    host.stop();

    let host = TestHost::on_disk_with(directory.path(), Options { settings: settings(), ..Options::default() });
    let mut back = host.client("back").await;
    back.subscribe("ahp-session:/s").await;
    assert_eq!(back.until_type("session/activeClientRemoved").await["action"]["clientId"], json!("gone"));
    let state = back.subscribe("ahp-session:/s").await["state"].clone();
    assert_eq!(state["activeClients"], json!([{ "clientId": "back", "tools": [] }]));
}
