//! Erasure and restoring: what is closed can come back, and what is erased is gone for good while its forks stay whole.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use scrollback::actors::agent::{AgentEvent, AgentInput, EVENTS_AHEAD};
use scrollback::actors::host::HostSettings;
use scrollback::events::gated::GatedStore;
use scrollback::events::memory::MemoryStore;
use scrollback::events::{Batch, ChannelId, Kind, ServerSeq};
use scrollback::projections::erasure::Erasure;
use scrollback::projections::inputs::id_and_chat;
use scrollback::projections::session::SessionFold;
use scrollback::projections::{catalogue, replay, verify};
use serde_json::{Value, json};

use crate::harness::rebuilt::has_the_rows_that_its_records_say;
use crate::harness::{Client, Options, RecordingAgent, TestHost, Watched, markdown, message};

const S: &str = "ahp-session:/s";
const P: &str = "ahp-chat:/p";
const F: &str = "ahp-chat:/f";

/// A session with a chat beside the default one, in which secrets were said.
async fn told(host: &TestHost) -> Client {
    let mut client = host.client("c").await;
    client.create_session(S).await;
    client.create_chat(S, P).await;
    client.subscribe(P).await;
    client.subscribe(S).await;
    client.run(P, "t1", "/say the shared word").await;
    client.say(P, "t2", "/question the secret question?").await;
    let asked = client.until_type("chat/inputRequested").await;
    let id = asked["action"]["request"]["id"].clone();
    client.dispatch(P, json!({ "type": "chat/inputCompleted", "requestId": id, "response": "decline" })).await;
    client.until_ended("t2").await;
    client
}

async fn state(client: &mut Client, channel: &str) -> Value {
    client.subscribe(channel).await["state"].clone()
}

fn ids(state: &Value) -> Vec<String> {
    state["turns"].as_array().unwrap().iter().map(|turn| turn["id"].as_str().unwrap().to_owned()).collect()
}

/// The first event of the host that says `text`.
fn says(host: &TestHost, text: &str) -> Option<String> {
    let mut found = None;
    let mut visit = |record: scrollback::events::Record| {
        let action = String::from_utf8_lossy(&record.action).into_owned();
        found = action.contains(text).then(|| format!("{} {}: {action}", record.seq, record.channel));
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    host.host.store().scan(0, ServerSeq::MAX, &mut visit).unwrap();
    found
}

fn verified(host: &TestHost) {
    verify::verify(host.host.store().as_ref(), &mut |_| ()).unwrap();
    has_the_rows_that_its_records_say(host.host.store().as_ref());
}

/// The records of erasures: URI, events, principal.
fn records(host: &TestHost) -> Vec<(String, u64, String)> {
    let mut found = Vec::new();
    let mut visit = |record: scrollback::events::Record| {
        let value: Value = serde_json::from_slice(&record.action).unwrap();
        if record.kind == Kind::Host && value["type"] == json!("host/erased") {
            assert!(value["first"].as_u64() <= value["last"].as_u64());
            let uri = value["uri"].as_str().unwrap().to_owned();
            found.push((uri, value["events"].as_u64().unwrap(), record.principal));
        }
        ControlFlow::Continue(())
    };
    host.host.store().scan(0, ServerSeq::MAX, &mut visit).unwrap();
    found
}

#[tokio::test]
async fn an_erased_chat_is_gone_with_what_was_said_and_its_fork_is_whole() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let mut client = told(&host).await;
    let source = json!({ "kind": "fork", "chat": P, "turnId": "t1" });
    client.ask("createChat", json!({ "channel": S, "chat": F, "source": source })).await.unwrap();
    let fork = state(&mut client, F).await;
    let session = state(&mut client, S).await;
    assert!(says(&host, "secret question").is_some());
    let erased = host.host.erase("root:test", P).await.unwrap();
    assert!(erased.events > 10 && erased.first < erased.last, "{erased:?}");
    assert_eq!(says(&host, "secret"), None);
    assert_eq!(client.refused("subscribe", json!({ "channel": P })).await.0, -32008);
    let params = json!({ "channel": P, "serverSeq": erased.last });
    assert_eq!(client.refused("x-scrollback/stateAt", params).await.0, -32008);
    assert_eq!(state(&mut client, F).await, fork);
    assert_eq!(state(&mut client, S).await["chats"][0], session["chats"][0]);
    assert_eq!(records(&host), [(P.to_owned(), erased.events, "root:test".to_owned())]);
    verified(&host);
    // The fork goes on, and back, and a new chat may have the name.
    client.subscribe(F).await;
    client.run(F, "f1", "/history").await;
    let state_of_fork = state(&mut client, F).await;
    assert!(markdown(&state_of_fork["turns"][1]).concat().contains("the shared word"));
    client.create_chat(S, P).await;
    assert_eq!(ids(&state(&mut client, P).await).len(), 0);
    host.stop();
    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("d").await;
    assert_eq!(ids(&state(&mut client, F).await), ["t1", "f1"]);
    verified(&host);
    // With the last fork of it the turns go too.
    host.host.erase("root:test", F).await.unwrap();
    verified(&host);
    let mut rows = 0;
    let table = scrollback::events::Table::Turn;
    host.host
        .store()
        .scan_rows(table, &[], None, &mut |_, _| {
            rows += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(rows, 0);
}

#[tokio::test]
async fn an_open_session_is_disposed_first_and_erased_with_all_its_chats() {
    let host = TestHost::in_memory();
    let mut client = told(&host).await;
    let other = client.create_session("ahp-session:/other").await;
    client.subscribe(&other).await;
    client.run(&other, "o1", "/say untouched").await;
    let kept = client.subscribe(&other).await;
    client.subscribe("ahp-root://").await;
    client.say(P, "t3", "/question sure?").await;
    client.until_type("chat/inputRequested").await;
    let erased = host.host.erase("root:test", S).await.unwrap();
    client.notification("root/sessionRemoved").await;
    assert_eq!(says(&host, "secret"), None);
    assert_eq!(client.listed().await.len(), 1);
    assert_eq!(client.subscribe(&other).await, kept);
    for channel in [S, P] {
        assert!(client.ask("subscribe", json!({ "channel": channel })).await.is_err(), "{channel}");
    }
    assert_eq!(records(&host), [(S.to_owned(), erased.events, "root:test".to_owned())]);
    verified(&host);
    let again = host.host.erase("root:test", S).await.unwrap_err();
    assert_eq!(again.code, "not-found");
    client.create_session(S).await;
    assert_eq!(client.listed().await.len(), 2);
}

#[tokio::test]
async fn an_erasure_that_a_crash_cut_short_is_finished_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let mut client = told(&host).await;
    client.ask("disposeChat", json!({ "channel": P })).await.unwrap();
    client.drain().await;
    host.stop();
    // All that a crash leaves between what is written down and what is removed: the record and its row.
    {
        use scrollback::events::EventLog;
        let store = crate::harness::opened(directory.path());
        let mut erasure = Erasure::plan(&store, P, "root:test").unwrap().unwrap();
        store.append(&[erasure.begin(0)]).unwrap();
        store.close_clean().unwrap();
    }
    let host = TestHost::on_disk(directory.path());
    assert_eq!(says(&host, "secret"), None);
    assert_eq!(records(&host).len(), 1);
    verified(&host);
}

#[tokio::test]
async fn what_is_closed_is_erased_where_the_host_is_told_so() {
    let settings = HostSettings { erase_closed: true, erase_disposed: true, ..HostSettings::default() };
    let host = TestHost::with(Options { settings, ..Options::default() });
    let mut client = told(&host).await;
    client.ask("disposeChat", json!({ "channel": P })).await.unwrap();
    crate::harness::eventually("the chat's erasure", || says(&host, "secret").is_none()).await;
    let first = crate::harness::chat_of(S);
    client.subscribe(&first).await;
    client.run(&first, "d1", "/say the secret of the session").await;
    client.ask("disposeSession", json!({ "channel": S })).await.unwrap();
    crate::harness::eventually("the session's erasure", || says(&host, "secret").is_none()).await;
    crate::harness::eventually("the records", || records(&host).len() == 2).await;
    crate::harness::eventually("the end", || verify::verify(host.host.store().as_ref(), &mut |_| ()).is_ok()).await;
}

/// The erasure that a host was to make of a closed chat failed, and somebody brought the chat back before the next start.
#[tokio::test]
async fn a_start_does_not_erase_what_came_back() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let mut client = told(&host).await;
    client.ask("disposeChat", json!({ "channel": P })).await.unwrap();
    client.drain().await;
    let store = host.host.store();
    let id = |uri: &str| ChannelId(catalogue::channel(store.as_ref(), uri).unwrap().unwrap().id);
    let wanted = Erasure::wanted(P, id(P), Some(id(S)), "root:test");
    store.append(&[Batch { events: Vec::new(), rows: vec![wanted] }]).unwrap();
    host.host.restore("root:test", P).await.unwrap();
    let before = state(&mut client, P).await;
    client.hang_up().await;
    host.stop();
    for _ in 0..2 {
        let host = TestHost::on_disk(directory.path());
        let mut client = host.client("d").await;
        assert_eq!(state(&mut client, P).await, before);
        verify::verify(host.host.store().as_ref(), &mut |_| ()).unwrap();
        client.hang_up().await;
        host.stop();
    }
}

#[tokio::test]
async fn a_closed_chat_and_a_disposed_session_come_back_as_they_were() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let mut client = told(&host).await;
    client.subscribe("ahp-root://").await;
    let before = state(&mut client, P).await;
    client.ask("disposeChat", json!({ "channel": P })).await.unwrap();
    host.host.restore("root:test", P).await.unwrap();
    assert_eq!(state(&mut client, P).await, before);
    client.run(P, "t4", "/say back").await;
    let listed = client.listed().await;
    client.ask("disposeSession", json!({ "channel": S })).await.unwrap();
    assert_eq!(client.listed().await.len(), 0);
    assert_eq!(host.host.restore("root:test", P).await.unwrap_err().code, "disposed");
    host.stop();
    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("d").await;
    client.subscribe("ahp-root://").await;
    host.host.restore("root:test", S).await.unwrap();
    let added = client.notification("root/sessionAdded").await;
    assert_eq!(added["summary"]["resource"], json!(S));
    assert_eq!(client.listed().await, listed);
    assert_eq!(ids(&state(&mut client, P).await), ["t1", "t2", "t4"]);
    for (uri, code) in [(S, "not-gone"), (P, "not-gone"), ("ahp-chat:/none", "not-found"), ("ahp-root://", "not-found")]
    {
        assert_eq!(host.host.restore("root:test", uri).await.unwrap_err().code, code, "{uri}");
    }
    verified(&host);
}

#[tokio::test]
async fn an_erased_chat_that_had_moved_leaves_no_word_in_the_session_that_it_was_in() {
    let host = TestHost::in_memory();
    let mut client = told(&host).await;
    client.create_session("ahp-session:/other").await;
    let destination = json!({ "kind": "session", "session": "ahp-session:/other" });
    client.ask("moveChat", json!({ "channel": P, "destination": destination })).await.unwrap();
    host.host.erase("root:test", P).await.unwrap();
    assert_eq!(says(&host, "secret"), None);
    assert_eq!(says(&host, "the shared word"), None);
    verified(&host);
}

#[tokio::test]
async fn what_comes_back_is_at_rest_and_its_queue_waits_for_a_person() {
    let host = TestHost::in_memory();
    let mut client = told(&host).await;
    client.subscribe("ahp-root://").await;
    let waits = |kind: &str, id: &str| json!({ "type": "chat/pendingMessageSet", "kind": kind, "id": id, "message": crate::harness::message("later") });
    for (turn, closes, closed) in [("t3", "disposeChat", P), ("t4", "disposeSession", S)] {
        client.say(P, turn, "/background watch 60000\n/activity digging\n/sleep 60000").await;
        client.until_type("chat/backgroundWorkSet").await;
        client.until_type("chat/activityChanged").await;
        client.accepted(P, waits("queued", &format!("q-{turn}"))).await;
        client.accepted(P, waits("steering", &format!("s-{turn}"))).await;
        client.ask(closes, json!({ "channel": closed })).await.unwrap();
        verified(&host);
        host.host.restore("root:test", closed).await.unwrap();
        verified(&host);
        let back = state(&mut client, P).await;
        for key in ["activeTurn", "activity", "steeringMessage"] {
            assert_eq!(back.get(key), None, "{closed}: {key}");
        }
        assert!(back["backgroundWork"].as_array().is_none_or(Vec::is_empty), "{closed}: {back}");
        let queued = back["queuedMessages"].as_array().unwrap();
        assert!(queued.iter().any(|message| message["id"] == json!(format!("s-{turn}"))), "{closed}: {queued:?}");
        let session = state(&mut client, S).await;
        assert_eq!(session["_meta"]["scrollback.pausedQueues"], json!([P]), "{closed}");
        // What waits goes out when a turn ends well.
        client.run(P, &format!("{turn}-go"), "/say on").await;
        client.envelope(|e| e["action"]["type"] == json!("chat/turnComplete")).await;
        client.envelope(|e| e["action"]["type"] == json!("chat/turnComplete")).await;
    }
    let running = scrollback::events::Table::Running;
    let mut rows = 0;
    let count = &mut |_: &[u8], _: &[u8]| {
        rows += 1;
        ControlFlow::Continue(())
    };
    host.host.store().scan_rows(running, &[], None, count).unwrap();
    assert_eq!(rows, 0);
}

/// The chats that come back are read from the store, where what ended them has to be.
#[tokio::test]
async fn what_is_restored_while_its_end_is_on_its_way_comes_back_with_it() {
    let store = GatedStore::new(MemoryStore::new().unwrap());
    let gate = store.gate();
    let host = TestHost::start(Arc::new(store), Options::default());
    let mut client = told(&host).await;
    for (turn, closes, closed) in [("t3", "disposeChat", P), ("t4", "disposeSession", S)] {
        client.subscribe(P).await;
        client.say(P, turn, "/sleep 60000").await;
        client.envelope(|e| e["action"]["turnId"] == json!(turn)).await;
        gate.hold();
        client.send(json!({ "jsonrpc": "2.0", "id": turn, "method": closes, "params": { "channel": closed } })).await;
        crate::harness::eventually("the end is on its way", || gate.held() > 0).await;
        let restored = {
            let (host, closed) = (Arc::clone(&host.host), closed.to_owned());
            tokio::spawn(async move {
                loop {
                    match host.restore("root:test", &closed).await {
                        Err(refused) if refused.code == "not-gone" => tokio::task::yield_now().await,
                        restored => return restored,
                    }
                }
            })
        };
        client.drain().await;
        gate.release_all();
        restored.await.unwrap().unwrap();
        let back = state(&mut client, P).await;
        assert_eq!((back.get("activeTurn"), ids(&back).last().unwrap().as_str()), (None, turn), "{closed}");
        client.run(P, &format!("{turn}-on"), "/say on").await;
    }
    host.stop_and_scan(|actions| {
        let ends =
            |turn: &str| actions.iter().filter(|a| a["type"] == "chat/turnCancelled" && a["turnId"] == turn).count();
        assert_eq!((ends("t3"), ends("t4")), (1, 1));
    });
}

#[tokio::test]
async fn a_chat_that_comes_back_fits_into_what_its_session_is_by_now() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let uris = ["file:///usr", "file:///tmp", "file:///etc"];
    client.ask("createSession", json!({ "channel": S, "workingDirectories": uris })).await.unwrap();
    let first = crate::harness::chat_of(S);
    let own = json!({ "channel": S, "chat": P, "workingDirectories": [uris[1], uris[2]] });
    client.ask("createChat", own).await.unwrap();
    client.subscribe(S).await;
    client.subscribe(P).await;
    client.run(P, "t", "/say hello").await;
    // The default chat comes back as a peer, which may be moved.
    client.ask("disposeChat", json!({ "channel": first })).await.unwrap();
    host.host.restore("root:test", &first).await.unwrap();
    let session = state(&mut client, S).await;
    assert_eq!(session["defaultChat"], json!(P));
    let movable = |session: &Value, chat: &str| {
        let chats = session["chats"].as_array().unwrap();
        chats.iter().find(|listed| listed["resource"] == json!(chat)).unwrap()["movable"].clone()
    };
    assert_eq!((movable(&session, &first), movable(&session, P)), (json!(true), json!(false)));
    let source = json!({ "kind": "fork", "chat": P, "turnId": "t" });
    // What went from the session meanwhile is gone from the chat too, and from what is made of it.
    client.ask("disposeChat", json!({ "channel": P })).await.unwrap();
    client.accepted(S, json!({ "type": "session/workingDirectoryRemoved", "directory": uris[1] })).await;
    assert!(client.ask("createChat", json!({ "channel": S, "chat": F, "source": source })).await.is_err());
    client.ask("x-scrollback/forkAt", json!({ "channel": P, "chat": F, "turnId": "t" })).await.unwrap();
    host.host.restore("root:test", P).await.unwrap();
    let session = state(&mut client, S).await;
    for chat in [P, F] {
        assert_eq!(state(&mut client, chat).await["workingDirectories"], json!([uris[2]]), "{chat}");
        assert_eq!(movable(&session, chat), json!(true), "{chat}");
    }
    verified(&host);
}

/// Between the record of an erasure and its end.
#[tokio::test]
async fn nothing_is_made_of_a_chat_that_is_being_erased_and_it_does_not_come_back() {
    let store = GatedStore::new(MemoryStore::new().unwrap());
    let gate = store.gate();
    let host = TestHost::start(Arc::new(store), Options::default());
    let mut client = told(&host).await;
    let page = json!({ "channel": P, "title": "page", "html": "<p>hello</p>" });
    client.ask("x-scrollback/publishVisual", page).await.unwrap();
    client.ask("disposeChat", json!({ "channel": P })).await.unwrap();
    gate.hold();
    let erased = {
        let host = Arc::clone(&host.host);
        tokio::spawn(async move { host.erase("root:test", P).await })
    };
    crate::harness::eventually("it is to be written down", || gate.held() > 0).await;
    gate.release_one();
    let under_way = || !Erasure::under_way(host.host.store().as_ref()).unwrap().is_empty();
    crate::harness::eventually("it is written down", under_way).await;
    let fork = json!({ "channel": P, "chat": F, "turnId": "t1" });
    assert_eq!(client.refused("x-scrollback/forkAt", fork).await, (-32008, "not-found".to_owned()));
    let restored = {
        let host = Arc::clone(&host.host);
        tokio::spawn(async move { host.restore("root:test", P).await })
    };
    client.drain().await;
    gate.release_all();
    assert!(erased.await.unwrap().unwrap().events > 10);
    assert_eq!(restored.await.unwrap().unwrap_err().code, "not-found");
    verified(&host);
}

/// The session's own events name what an erased chat waited for, without its words.
#[tokio::test]
async fn what_a_session_says_of_what_an_erased_chat_waited_for_is_still_read_and_has_no_words() {
    let host = TestHost::in_memory();
    let mut client = told(&host).await;
    let tools = json!({ "clientId": "c", "tools": [{ "name": "secret-tool" }] });
    client.accepted(S, json!({ "type": "session/activeClientSet", "activeClient": tools })).await;
    for (turn, script) in [
        ("t3", "/question the secret? | secret-red | secret-blue"),
        ("t4", "/ask-tool secret-rm all"),
        ("t5", "/client-tool secret-tool all"),
    ] {
        client.say(P, turn, script).await;
        let asked = client.until_type("session/inputNeededSet").await["action"]["request"].clone();
        if asked["kind"] == json!("chatInput") {
            let question = &asked["request"]["questions"][0];
            let value = json!({ "kind": "selected", "value": question["options"][0]["id"] });
            let answer = json!({ "type": "chat/inputAnswerChanged", "requestId": asked["request"]["id"],
                "questionId": question["id"], "answer": { "state": "draft", "value": value } });
            client.accepted(P, answer).await;
        }
        client.cancel(P, turn).await;
        client.until_ended(turn).await;
    }
    let before = state(&mut client, S).await;
    host.host.erase("root:test", P).await.unwrap();
    assert_eq!(says(&host, "secret-r").or(says(&host, "secret-b")), None);
    let mut at = None;
    let mut entries = BTreeSet::new();
    let mut visit = |record: scrollback::events::Record| {
        if record.channel.as_str() == S {
            replay::step::<SessionFold>(&mut at, &record).unwrap();
            let waits = at.as_ref().unwrap().fold.state.input_needed.clone();
            entries.extend(waits.iter().flatten().map(|entry| id_and_chat(entry).unwrap().0.to_owned()));
        }
        ControlFlow::Continue(())
    };
    host.host.store().scan(0, ServerSeq::MAX, &mut visit).unwrap();
    assert_eq!(entries.len(), 4, "{entries:?}");
    let after = state(&mut client, S).await;
    assert_eq!((&after["inputNeeded"], &after["chats"][0]), (&before["inputNeeded"], &before["chats"][0]));
    verified(&host);
}

/// A fork of a fork has turns of both, in whatever order these are erased.
#[tokio::test]
async fn a_fork_of_a_fork_is_whole_when_both_that_it_comes_from_are_erased() {
    const G: &str = "ahp-chat:/g";
    for order in [[P, F], [F, P]] {
        let host = TestHost::in_memory();
        let mut client = told(&host).await;
        let fork = |of: &str, turn: &str| json!({ "kind": "fork", "chat": of, "turnId": turn });
        client.ask("createChat", json!({ "channel": S, "chat": F, "source": fork(P, "t1") })).await.unwrap();
        client.subscribe(F).await;
        client.run(F, "f1", "/say more").await;
        client.ask("createChat", json!({ "channel": S, "chat": G, "source": fork(F, "f1") })).await.unwrap();
        let whole = state(&mut client, G).await;
        assert_eq!(ids(&whole), ["t1", "f1"]);
        for chat in order {
            host.host.erase("root:test", chat).await.unwrap();
            assert_eq!(state(&mut client, G).await, whole, "without {chat} of {order:?}");
            verified(&host);
        }
        client.run(G, "g1", "/say on").await;
        assert_eq!(ids(&state(&mut client, G).await), ["t1", "f1", "g1"]);
        host.host.erase("root:test", G).await.unwrap();
        verified(&host);
        use scrollback::events::Table;
        for table in [Table::Turn, Table::Used, Table::Fork, Table::Point] {
            let mut rows = 0;
            let count = &mut |_: &[u8], _: &[u8]| {
                rows += 1;
                ControlFlow::Continue(())
            };
            host.host.store().scan_rows(table, &[], None, count).unwrap();
            assert_eq!(rows, 0, "{table:?}");
        }
    }
}

#[tokio::test]
async fn a_session_that_is_disposed_while_its_turn_is_still_to_be_taken_up_ends_it() {
    let store = Arc::new(Watched::new());
    let agent = RecordingAgent::new();
    let host = TestHost::start(Arc::clone(&store) as _, Options::of(&agent));
    let (mut client, chat) = host.open(&[]).await;
    client.say(&chat, "t", "hello").await;
    agent.until(|told| told.iter().any(|input| matches!(input, AgentInput::Prompt(_)))).await;
    // What is lost with a commit is read again, and a turn that ran is taken up a moment later.
    store.fail(true);
    let draft = json!({ "type": "chat/draftChanged", "draft": message("x") });
    assert_eq!(client.rejected(&chat, draft).await, "log-unavailable");
    store.fail(false);
    while client.ask("disposeSession", json!({ "channel": S })).await.is_err() {}
    assert!(says(&host, "chat/turnCancelled").is_some());
}

#[tokio::test]
async fn what_an_agent_said_a_moment_before_its_chat_was_closed_is_kept() {
    let agent = RecordingAgent::new();
    let settings = HostSettings { delta_window: Duration::from_secs(1), ..HostSettings::default() };
    let host = TestHost::with(Options { settings, ..Options::of(&agent) });
    let mut client = host.client("c").await;
    client.create_session(S).await;
    client.create_chat(S, P).await;
    client.say(P, "t1", "x").await;
    agent.until(|told| told.iter().any(|input| matches!(input, AgentInput::Prompt(_)))).await;
    agent.says("t1", "the last word").await;
    // What says nothing, until the word must have reached the chat.
    for _ in 0..=EVENTS_AHEAD + 1 {
        agent.emits(AgentEvent::SteeringTaken { turn_id: "t1".into(), id: "none".into() }).await;
    }
    client.ask("disposeChat", json!({ "channel": P })).await.unwrap();
    host.host.restore("root:test", P).await.unwrap();
    assert_eq!(markdown(&state(&mut client, P).await["turns"][0]), ["the last word"]);
}
