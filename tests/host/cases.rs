//! What went wrong in other hosts, and what must happen in this one. The kind of fault is meant, not the single report.

use std::sync::Arc;
use std::time::Duration;

use scrollback::access::Identity;
use scrollback::actors::host::HostSettings;
use scrollback::events::Store;
use scrollback::events::memory::MemoryStore;
use scrollback::events::sled_store::{SledOptions, SledStore};
use scrollback::projections::verify::verify;
use scrollback::protocol::ProtocolSettings;
use serde_json::{Value, json};

use crate::harness::{Client, Mirrored, Options, ROOT, TestHost, Watched, chat_of, laws, message};

const SESSION: &str = "ahp-session:/s";

fn over(store: Arc<dyn Store>) -> TestHost {
    TestHost::start(store, Options::default())
}

fn with_settings(store: Arc<dyn Store>, settings: HostSettings) -> TestHost {
    TestHost::start(store, Options { settings, ..Options::default() })
}

/// microsoft/vscode #332087
#[tokio::test]
async fn every_accepted_start_has_one_echo_with_its_origin_and_the_same_turn_again_is_refused_without_harm() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    client.subscribe(&chat).await;
    let first = client.say(&chat, "t", "/words 30 1").await;
    let again = client.say(&chat, "t", "the same turn").await;
    let seen = client.until_ended("t").await;
    client.say(&chat, "t", "the same turn once more").await;
    let all = [seen, client.until(|envelope| envelope["origin"]["clientSeq"] == json!(3)).await].concat();
    let echoes = |seq: i64| {
        let origin = json!({ "clientId": "c", "clientSeq": seq });
        all.iter().filter(|envelope| envelope["origin"] == origin).cloned().collect::<Vec<_>>()
    };
    assert_eq!(echoes(first).len(), 1);
    assert!(echoes(first)[0].get("rejectionReason").is_none());
    for seq in [again, 3] {
        let reason = echoes(seq)[0]["rejectionReason"].as_str().unwrap().to_owned();
        assert!(echoes(seq).len() == 1 && reason.starts_with("duplicate-turn:"), "{reason}");
    }
    let state = client.subscribe(&chat).await["state"].clone();
    assert_eq!(state["turns"].as_array().unwrap().len(), 1);
    assert_eq!(state["turns"][0]["message"]["text"], json!("/words 30 1"));
}

/// microsoft/vscode #330514
#[tokio::test]
async fn flags_of_what_is_not_loaded_are_durable_at_once_and_start_no_agent() {
    let directory = tempfile::tempdir().unwrap();
    let store = || Arc::new(SledStore::open(directory.path(), SledOptions::default()).unwrap());
    let host = over(store());
    let mut client = host.client("c").await;
    let sessions: Vec<String> = (0..132).map(|n| format!("ahp-session:/s{n}")).collect();
    for session in &sessions {
        client.create_session(session).await;
    }
    client.hang_up().await;
    host.stop();
    let host = over(store());
    let mut client = host.client("c").await;
    assert_eq!(host.host.actors(), 0, "nothing is loaded");
    for session in &sessions {
        client.dispatch(session, json!({ "type": "session/isArchivedChanged", "isArchived": true })).await;
        client.dispatch(&chat_of(session), json!({ "type": "chat/isReadChanged", "isRead": true })).await;
    }
    // What was told is on disk: read from the log, whatever the actors hold.
    let last = format!("{}{}", "ahp-session:/s", sessions.len() - 1);
    let told = |message: &Value| {
        let params = &message["params"];
        params["session"] == json!(last) && params["changes"]["status"].as_u64().is_some_and(|status| status & 64 != 0)
    };
    while !told(&client.next().await.unwrap()) {}
    let listed = client.ask("listSessions", json!({ "channel": ROOT })).await.unwrap();
    let archived = listed["items"].as_array().unwrap().iter().filter(|item| item["status"].as_u64().unwrap() & 64 != 0);
    assert_eq!(archived.count(), sessions.len());
    for session in &sessions {
        let state = host.host.state_at(&Identity::root("test"), session, None).unwrap();
        let state: Value = serde_json::from_slice(&state.state).unwrap();
        assert_ne!(state["status"].as_u64().unwrap() & 64, 0, "{session}");
    }
    client.drain().await;
    for session in &sessions {
        let read = client.subscribe(&chat_of(session)).await["state"]["status"].as_u64().unwrap();
        assert_ne!(read & 32, 0, "{session}");
    }
}

/// microsoft/vscode #322790, #313360, #329796, #308080
#[tokio::test]
async fn a_session_is_announced_once_and_keeps_its_one_name() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let mut listener = host.client("listener").await;
    let mut one = host.client("one").await;
    let mut other = host.client("other").await;
    let params = json!({ "channel": SESSION, "provider": "demo" });
    let (a, b) = tokio::join!(one.ask("createSession", params.clone()), other.ask("createSession", params.clone()));
    assert_eq!([&a, &b].iter().filter(|answer| answer.is_ok()).count(), 1);
    assert_eq!(a.and(b).unwrap_err()["code"], json!(-32003));
    // A commit, a reconnect and a second creation announce nothing.
    let chat = chat_of(SESSION);
    one.subscribe(&chat).await;
    one.say(&chat, "t", "hello").await;
    one.until_ended("t").await;
    let mut back = Client::connect(host.address).await;
    back.reconnect("one", 1, &[ROOT, SESSION, &chat]).await;
    assert_eq!(back.ask("createSession", params.clone()).await.unwrap_err()["code"], json!(-32003));
    let second = json!({ "channel": "ahp-session:/second", "provider": "demo" });
    back.ask("createSession", second).await.unwrap();
    let mut added = Vec::new();
    while !added.contains(&json!("ahp-session:/second")) {
        let message = listener.next().await.unwrap();
        if message["method"] == json!("root/sessionAdded") {
            added.push(message["params"]["summary"]["resource"].clone());
        }
    }
    assert_eq!(added, [SESSION, "ahp-session:/second"]);
    for client in [&mut listener, &mut one, &mut other, &mut back] {
        client.hang_up().await;
    }
    host.stop();
    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("one").await;
    assert_eq!(client.ask("createSession", params).await.unwrap_err()["code"], json!(-32003));
    let drained = client.drain().await;
    assert!(drained.iter().all(|message| message["method"] != json!("root/sessionAdded")), "{drained:?}");
    let listed = client.ask("listSessions", json!({ "channel": ROOT })).await.unwrap();
    let names: Vec<&Value> = listed["items"].as_array().unwrap().iter().map(|item| &item["resource"]).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

/// microsoft/vscode #329421
#[tokio::test]
async fn actions_that_arrive_before_the_chat_is_restored_wait_for_it_and_apply_once_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    client.subscribe(&chat).await;
    client.say(&chat, "t", "/words 200").await;
    client.until_ended("t").await;
    client.drain().await;
    let seen = host.quiet_tail().await;
    client.hang_up().await;
    host.stop();
    let host = TestHost::on_disk(directory.path());
    let mut back = Client::connect(host.address).await;
    // All at once, without waiting for an answer.
    let params =
        json!({ "channel": ROOT, "clientId": "c", "lastSeenServerSeq": seen, "subscriptions": [SESSION, chat] });
    back.send(json!({ "jsonrpc": "2.0", "id": 900, "method": "reconnect", "params": params })).await;
    back.say(&chat, "busy", "/sleep 60000").await;
    for n in 0..20 {
        let action = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": format!("q{n}"),
            "message": message("in order") });
        back.dispatch(&chat, action).await;
    }
    let mut echoed = Vec::new();
    while echoed.last() != Some(&21) {
        let message = back.next().await.unwrap();
        assert!(message["params"].get("rejectionReason").is_none(), "{message}");
        echoed.extend(message["params"]["origin"]["clientSeq"].as_i64());
    }
    assert_eq!(echoed, (1..=21).collect::<Vec<i64>>());
    let state = back.subscribe(&chat).await["state"].clone();
    let queued = state["queuedMessages"].as_array().unwrap().iter().map(|message| message["id"].as_str().unwrap());
    assert!(queued.eq((0..20).map(|n| format!("q{n}")).collect::<Vec<_>>().iter().map(String::as_str)));
    assert_eq!(state["turns"].as_array().unwrap().len(), 1);
}

/// openai/codex #47124
#[tokio::test]
async fn a_turn_that_completes_between_the_history_and_the_stream_is_in_one_of_them() {
    let host = TestHost::in_memory();
    let mut speaker = host.client("speaker").await;
    let chat = speaker.create_session(SESSION).await;
    speaker.subscribe(&chat).await;
    for n in 0..60 {
        let turn = format!("t{n}");
        speaker.say(&chat, &turn, "a b").await;
        let mut late = Mirrored::connect(host.address, "late", &[]).await;
        if n % 2 == 0 {
            speaker.envelope(|envelope| envelope["action"]["type"] == json!("chat/delta")).await;
        }
        assert!(late.follow(&chat).await);
        speaker.until_ended(&turn).await;
        while late.chat(&chat).unwrap().turns.last().is_none_or(|last| last.id != turn) {
            late.next().await;
        }
        assert!(late.compare(&chat).await.is_some());
    }
}

/// openclaw/openclaw #76931, hachej/boring-ui #1338, receptron/mulmoterminal #1377
#[tokio::test]
async fn the_cost_of_the_list_does_not_depend_on_transcripts() {
    let store = Arc::new(Watched::new());
    let host = over(store.clone());
    let mut client = host.client("c").await;
    let mut chats = Vec::new();
    for n in 0..20 {
        let chat = client.create_session(&format!("ahp-session:/s{n}")).await;
        client.subscribe(&chat).await;
        client.say(&chat, "t0", "name").await;
        client.until_ended("t0").await;
        chats.push(chat);
    }
    client.drain().await;
    let mut cost = Vec::new();
    for round in 0..2 {
        let before = store.read();
        let listed = client.ask("listSessions", json!({ "channel": ROOT })).await.unwrap();
        assert_eq!(listed["items"].as_array().unwrap().len(), 20);
        let after = store.read();
        cost.push((after.0 - before.0, after.1 - before.1));
        if round == 0 {
            let words = "word ".repeat(4_000);
            for chat in &chats {
                for turn in ["t1", "t2", "t3"] {
                    client.say(chat, turn, &words).await;
                    client.until_ended(turn).await;
                }
            }
            client.drain().await;
        }
    }
    assert_eq!(cost[0].0, cost[1].0, "rows and events that were read");
    // Times are written with more or fewer digits; nothing else of a summary grows.
    assert!(cost[1].1 <= cost[0].1 + 20 * 64, "{cost:?}");
    assert!(cost[1].0 <= 20 * 2 + 1, "{cost:?}");
}

/// SkillfulAgents/SuperAgent PR 749
#[tokio::test]
async fn a_chat_of_21_megabytes_opens_in_a_window_and_only_what_is_shown_is_read() {
    const MEGABYTE: usize = 1_000_000;
    let store = Arc::new(Watched::new());
    let settings = HostSettings { max_snapshot: 8 << 20, ..HostSettings::default() };
    let host = with_settings(store.clone(), settings.clone());
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    client.subscribe(SESSION).await;
    // Half of each turn is the question, half the answer.
    let text = "x".repeat(MEGABYTE);
    let mut turns = 0;
    for turn in 0..11 {
        client.say(&chat, &format!("t{turn}"), &text).await;
        let ended = |envelope: &Value| {
            let status = envelope["action"]["changes"]["status"].as_u64();
            envelope["action"]["type"] == json!("session/chatUpdated") && status.is_some_and(|status| status & 1 != 0)
        };
        client.until(ended).await;
        turns += 1;
    }
    assert_eq!(turns, 11);
    client.hang_up().await;
    host.stop();
    // Asleep, with a checkpoint: waking it reads no transcript.
    let host = with_settings(store.clone(), settings);
    let mut client = host.client("c").await;
    let before = store.read().1;
    let windowed = client.ask("subscribe", json!({ "channel": chat, "view": { "turns": 1 } })).await.unwrap();
    let state = &windowed["snapshot"]["state"];
    assert_eq!(state["turns"].as_array().unwrap().len(), 1);
    let read = store.read().1 - before;
    assert!(read < 7 * MEGABYTE as u64, "{read} bytes were read for two that are shown");
    // All of it is over the limit: the newest turns that fit, and a cursor for the rest.
    let mut other = host.client("other").await;
    let whole = other.subscribe(&chat).await["state"].clone();
    let shown = whole["turns"].as_array().unwrap();
    assert!((1..=4).contains(&shown.len()) && whole.to_string().len() <= 8 << 20, "{} turns", shown.len());
    assert_eq!(shown.last().unwrap()["id"], json!("t10"));
    let mut held: Vec<Value> = shown.clone();
    let mut cursor = whole["turnsNextCursor"].clone();
    while !cursor.is_null() {
        other.ask("fetchTurns", json!({ "channel": chat, "cursor": cursor })).await.unwrap();
        let page = other.envelope(|envelope| envelope["action"]["type"] == json!("chat/turnsLoaded")).await;
        let older = page["action"]["turns"].as_array().unwrap();
        assert!(!older.is_empty());
        held.splice(0..0, older.iter().cloned());
        cursor = page["action"]["turnsNextCursor"].clone();
    }
    let ids: Vec<String> = held.iter().map(|turn| turn["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, (0..11).map(|turn| format!("t{turn}")).collect::<Vec<_>>());
}

/// damianvtran/local-operator PR 505
#[tokio::test]
async fn a_frame_over_the_limit_ends_the_socket_with_a_reason_and_nothing_else_is_lost() {
    let protocol = ProtocolSettings { max_message: 20_000, ..ProtocolSettings::default() };
    let host = TestHost::start(Arc::new(MemoryStore::new().unwrap()), Options { protocol, ..Options::default() });
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    client.say(&chat, "t1", "before").await;
    client.say(&chat, "t2", &"x".repeat(30_000)).await;
    let (_, (code, reason)) = client.read_until_closed().await;
    assert!(code == 1009 && !reason.is_empty(), "{code} {reason:?}");
    let mut back = Client::connect(host.address).await;
    back.reconnect("c", 1, &[SESSION, &chat]).await;
    back.subscribe(&chat).await;
    back.say(&chat, "t3", "after").await;
    // t1 may be running still: then the start of t3 is refused, which somebody sees too.
    let echo = back.echo(1).await;
    if echo.get("rejectionReason").is_none() {
        back.until_ended("t3").await;
    }
    let turns = back.subscribe(&chat).await["state"]["turns"].clone();
    assert_eq!(turns[0]["id"], json!("t1"));
    assert!(turns.as_array().unwrap().iter().all(|turn| turn["id"] != json!("t2")));
}

/// anomalyco/opencode #13947, #25657, #19584
#[tokio::test]
async fn coming_back_resumes_from_a_number_and_what_cannot_be_resumed_is_said() {
    let protocol = ProtocolSettings { replay_limit: 4_000, ..ProtocolSettings::default() };
    let host = TestHost::start(Arc::new(MemoryStore::new().unwrap()), Options { protocol, ..Options::default() });
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    client.subscribe(&chat).await;
    let seen = client.drain().await.len();
    assert!(seen < 100);
    let from = host.quiet_tail().await;
    client.say(&chat, "t1", "short").await;
    client.until_ended("t1").await;
    let mut back = Client::connect(host.address).await;
    let answer = back.reconnect("c", from, &[&chat]).await;
    assert_eq!(answer["type"], json!("replay"));
    assert_eq!(answer["actions"][0]["action"]["turnId"], json!("t1"));
    client.say(&chat, "t2", &"many words ".repeat(1_000)).await;
    client.until_ended("t2").await;
    // Too much, ahead, gone: each says so in its own way.
    for number in [from, 1 << 50] {
        let mut back = Client::connect(host.address).await;
        assert_eq!(back.reconnect("c", number, &[&chat]).await["type"], json!("snapshot"));
    }
    assert!(crate::harness::met("replay") > 0);
    let mut back = Client::connect(host.address).await;
    let answer = back.reconnect("c", host.host.store().tail(), &["ahp-chat:/gone"]).await;
    assert_eq!(answer["missing"], json!(["ahp-chat:/gone"]));
    let mut back = Client::connect(host.address).await;
    let params = json!({ "channel": ROOT, "clientId": "c", "lastSeenServerSeq": -1, "subscriptions": [chat] });
    assert_eq!(back.ask("reconnect", params).await.unwrap_err()["code"], json!(-32602));
}

/// microsoft/vscode #328590
#[tokio::test]
async fn no_error_removes_anything_that_has_events() {
    let store = Arc::new(Watched::new());
    let host = over(store.clone());
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    client.subscribe(&chat).await;
    for (turn, script) in [("t1", "kept"), ("t2", "/fail broken"), ("t3", "/crash"), ("t4", "/limit usage")] {
        client.say(&chat, turn, script).await;
        client.until_ended(turn).await;
    }
    let whole = client.subscribe(&chat).await["state"]["turns"].clone();
    assert_eq!(whole.as_array().unwrap().len(), 4);
    // The disk fails for a while: what is asked then is refused, and nothing is gone afterwards.
    store.fail(true);
    let seq = client.say(&chat, "t5", "lost").await;
    let refused = client.echo(seq).await;
    assert!(refused["rejectionReason"].as_str().unwrap().starts_with("log-unavailable:"), "{refused}");
    let refused = client.ask("createSession", json!({ "channel": "ahp-session:/lost", "provider": "demo" })).await;
    assert!(refused.is_err());
    store.fail(false);
    let mut again = host.client("again").await;
    assert_eq!(again.subscribe(&chat).await["state"]["turns"], whole);
    let mut number = 6;
    loop {
        let turn = format!("t{number}");
        let seq = again.say(&chat, &turn, "the disk is back").await;
        if again.echo(seq).await.get("rejectionReason").is_none() {
            again.until_ended(&turn).await;
            break;
        }
        number += 1;
    }
    client.hang_up().await;
    again.hang_up().await;
    host.stop();
    // The agent is not configured any more.
    let host = TestHost::start(store.clone(), Options { agents: Vec::new(), ..Options::default() });
    let mut client = host.client("c").await;
    client.subscribe(&chat).await;
    client.say(&chat, "t9", "who answers?").await;
    let ended = client.until_ended("t9").await;
    assert_eq!(ended.last().unwrap()["action"]["part"]["error"]["errorType"], json!("agent-missing"));
    let listed = client.ask("listSessions", json!({ "channel": ROOT })).await.unwrap();
    assert_eq!(listed["items"][0]["resource"], json!(SESSION));
    let turns = client.subscribe(&chat).await["state"]["turns"].clone();
    assert_eq!(turns.as_array().unwrap()[..4], whole.as_array().unwrap()[..]);
    assert_eq!(laws::check(store.as_ref()), Vec::<String>::new());
    verify(store.as_ref(), &mut |_| {}).unwrap();
}

#[tokio::test]
async fn a_session_that_lost_a_batch_and_fell_asleep_takes_actions_again() {
    let store = Arc::new(Watched::new());
    let settings = HostSettings { idle_timeout: Duration::from_millis(20), ..HostSettings::default() };
    let host = with_settings(store.clone(), settings);
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    client.subscribe(&chat).await;
    store.fail(true);
    let action = json!({ "type": "chat/isReadChanged", "isRead": true });
    let seq = client.dispatch(&chat, action.clone()).await;
    assert!(client.echo(seq).await["rejectionReason"].is_string());
    store.fail(false);
    while host.host.awake() > 0 {
        client.drain().await;
    }
    let seq = client.dispatch(&chat, action).await;
    let echo = client.echo(seq).await;
    assert!(echo.get("rejectionReason").is_none(), "{echo}");
}

#[tokio::test]
async fn what_is_on_its_way_to_a_chat_that_is_disposed_starts_nothing() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    for n in 0..40 {
        let peer = format!("ahp-chat:/p{n}");
        let session = format!("ahp-session:/d{n}");
        let first = client.create_session(&session).await;
        client.ask("createChat", json!({ "channel": SESSION, "chat": peer })).await.unwrap();
        // Sent at once: the start is in the chat's mailbox when its session hears of the end.
        client.say(&peer, "t", "/sleep 60000").await;
        client.say(&first, "t", "/sleep 60000").await;
        client
            .send(json!({ "jsonrpc": "2.0", "id": 5_000 + n, "method": "disposeChat", "params": { "channel": peer } }))
            .await;
        let params = json!({ "channel": session });
        client.send(json!({ "jsonrpc": "2.0", "id": 6_000 + n, "method": "disposeSession", "params": params })).await;
        client.say(&peer, "late", "/sleep 60000").await;
        client.say(&first, "late", "/sleep 60000").await;
    }
    while client.next().await.unwrap()["id"] != json!(6_039) {}
    let draft = client.dispatch(&chat, json!({ "type": "chat/draftChanged", "draft": message("last") })).await;
    client.subscribe(&chat).await;
    let _ = draft;
    assert_eq!(laws::check(host.host.store().as_ref()), Vec::<String>::new());
}
