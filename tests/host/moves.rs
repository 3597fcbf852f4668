//! `moveChat`: to another place, to another session, to one of its own; in one batch, whatever happens meanwhile.

use std::sync::Arc;
use std::time::Duration;

use scrollback::actors::agent::{Agent, AgentEvent, Ending, WorkerStart};
use scrollback::actors::host::HostSettings;
use scrollback::actors::writer::Durability;
use scrollback::events::gated::GatedStore;
use scrollback::events::memory::MemoryStore;
use scrollback::events::{LogFault, Store};
use scrollback::projections::verify::verify;
use serde_json::{Value, json};

use crate::harness::{
    Client, Mirrored, Options, RecordingAgent, TestHost, chat_of, envelopes, eventually, message, on, streamed, types,
};

const A: &str = "ahp-session:/a";
const B: &str = "ahp-session:/b";
const P: &str = "ahp-chat:/p";
const ROOT: &str = "ahp-root://";

/// Two sessions: the first with the peers p and q, the second with r.
async fn open(host: &TestHost) -> Client {
    let mut client = host.client("c").await;
    client.create_session(A).await;
    client.create_session(B).await;
    for (session, chat) in [(A, P), (A, "ahp-chat:/q"), (B, "ahp-chat:/r")] {
        client.create_chat(session, chat).await;
    }
    client
}

fn to(chat: &str, session: &str, after: Option<&str>) -> Value {
    match after {
        Some(after) => {
            json!({ "channel": chat, "destination": { "kind": "session", "session": session, "after": after } })
        }
        None => json!({ "channel": chat, "destination": { "kind": "session", "session": session } }),
    }
}

fn to_new(chat: &str) -> Value {
    json!({ "channel": chat, "destination": { "kind": "newSession" } })
}

async fn moved(client: &mut Client, params: Value) -> String {
    client.ask("moveChat", params).await.unwrap()["session"].as_str().unwrap().to_owned()
}

async fn chats(client: &mut Client, session: &str) -> Vec<String> {
    let state = client.subscribe(session).await["state"].clone();
    state["chats"].as_array().unwrap().iter().map(|chat| chat["resource"].as_str().unwrap().to_owned()).collect()
}

fn draft(text: &str) -> Value {
    json!({ "type": "chat/draftChanged", "draft": message(text) })
}

fn sound(host: &TestHost) {
    verify(host.host.store().as_ref(), &mut |_| {}).unwrap();
    crate::harness::rebuilt::has_the_rows_that_its_records_say(host.host.store().as_ref());
}

#[tokio::test]
async fn a_chat_goes_to_another_place_of_its_session_and_the_order_is_kept() {
    let store = Arc::new(MemoryStore::new().unwrap());
    let host = TestHost::start(Arc::clone(&store) as _, Options::default());
    let mut client = open(&host).await;
    let (first, q) = (chat_of(A), "ahp-chat:/q");
    client.subscribe(A).await;
    client.drain().await;
    assert_eq!(moved(&mut client, to(q, A, None)).await, A);
    let said = envelopes(&client.drain().await);
    assert_eq!(types(&said), ["session/chatsReordered"]);
    assert_eq!(said[0]["action"]["chats"], json!([q, first, P]));
    assert_eq!(moved(&mut client, to(q, A, Some(P))).await, A);
    assert_eq!(chats(&mut client, A).await, [first.as_str(), P, q]);
    assert_eq!(moved(&mut client, to(P, A, Some(q))).await, A);
    let before = store_tail(&host);
    // It stands there already.
    assert_eq!(moved(&mut client, to(P, A, Some(q))).await, A);
    assert_eq!(store_tail(&host), before);
    host.stop();
    let host = TestHost::start(store, Options::default());
    let mut client = host.client("c").await;
    assert_eq!(chats(&mut client, A).await, [first.as_str(), q, P]);
    let listed = client.listed().await;
    let listed = listed.iter().find(|listed| listed["resource"] == json!(A)).unwrap();
    assert_eq!(listed["chats"][2]["resource"], json!(P));
    sound(&host);
}

fn store_tail(host: &TestHost) -> u64 {
    host.host.store().tail()
}

#[tokio::test]
async fn a_chat_goes_to_another_session_and_stays_the_same_chat() {
    let host = TestHost::in_memory();
    let mut client = open(&host).await;
    let mut mirrored = Mirrored::connect(host.address, "m", &[ROOT, A, B, P]).await;
    client.subscribe(P).await;
    client.run(P, "t1", "hello there").await;
    client.accepted(P, draft("half a thought")).await;
    let before = client.subscribe(P).await["state"].clone();
    client.subscribe(A).await;
    client.subscribe(B).await;
    client.drain().await;
    assert_eq!(moved(&mut client, to(P, B, Some(&chat_of(B)))).await, B);
    let said = envelopes(&client.drain().await);
    assert_eq!(
        (types(&on(&said, A)), types(&on(&said, P))),
        (vec!["session/chatRemoved", "session/metaChanged"], vec![])
    );
    assert_eq!(types(&on(&said, B)), ["session/chatAdded", "session/chatsReordered"]);
    assert_eq!(on(&said, B)[1]["action"]["chats"], json!([chat_of(B), P, "ahp-chat:/r"]));
    let seqs: Vec<u64> = said.iter().map(|e| e["serverSeq"].as_u64().unwrap()).collect();
    assert!(seqs.is_sorted(), "{seqs:?}");
    assert_eq!(client.subscribe(P).await["state"], before);
    // The conversation goes on, with another process of the agent, for those who listened before.
    let history = client.run(P, "t2", "/history").await;
    assert!(streamed(&history).contains("hello there"), "{history:?}");
    client.run(P, "t3", "on we go").await;
    assert_eq!(chats(&mut client, A).await, [chat_of(A).as_str(), "ahp-chat:/q"]);
    assert_eq!(chats(&mut client, B).await, [chat_of(B).as_str(), P, "ahp-chat:/r"]);
    // What a moved chat does shows in the session that it is in.
    client.subscribe(B).await;
    client.accepted(P, json!({ "type": "session/titleChanged", "title": "moved" })).await;
    client.envelope(|e| e["channel"] == json!(B) && e["action"]["changes"]["title"] == json!("moved")).await;
    for channel in [ROOT, A, B, P] {
        mirrored.compare(channel).await.unwrap();
    }
    sound(&host);
}

#[tokio::test]
async fn a_chat_becomes_the_default_one_of_a_session_of_its_own() {
    let store = Arc::new(MemoryStore::new().unwrap());
    let host = TestHost::start(Arc::clone(&store) as _, Options::default());
    let mut client = open(&host).await;
    let mut mirrored = Mirrored::connect(host.address, "m", &[ROOT, A, P]).await;
    client.subscribe(P).await;
    client.run(P, "t1", "a name for it").await;
    client.drain().await;
    let session = moved(&mut client, to_new(P)).await;
    let messages = client.drain().await;
    let added = messages.iter().find(|m| m["method"] == json!("root/sessionAdded")).unwrap();
    assert_eq!(added["params"]["summary"]["resource"], json!(session));
    assert_eq!(added["params"]["summary"]["chats"][0]["resource"], json!(P));
    let state = client.subscribe(&session).await["state"].clone();
    assert_eq!(
        (&state["defaultChat"], &state["lifecycle"], &state["title"]),
        (&json!(P), &json!("ready"), &json!("a name for it"))
    );
    let source = client.subscribe(A).await["state"].clone();
    for field in ["provider", "config", "workingDirectories"] {
        assert_eq!(state[field], source[field], "{field}");
    }
    assert_eq!(client.subscribe(P).await["state"]["movable"], json!(false));
    assert_eq!(client.listed().await.len(), 3);
    let id = session.rsplit('/').next().unwrap();
    for synonym in [chat_of(&session), format!("ahp-chat:/{id}")] {
        assert_eq!(client.subscribe(&synonym).await["state"]["resource"], json!(P), "{synonym}");
    }
    for channel in [ROOT, A, P] {
        mirrored.compare(channel).await.unwrap();
    }
    client.create_chat(&session, "ahp-chat:/more").await;
    host.stop();
    let host = TestHost::start(store, Options::default());
    let mut client = host.client("c").await;
    assert_eq!(chats(&mut client, &session).await, [P, "ahp-chat:/more"]);
    client.subscribe(P).await;
    assert!(streamed(&client.run(P, "t2", "/history").await).contains("a name for it"));
    // The session that it left goes without it.
    client.ask("disposeSession", json!({ "channel": A })).await.unwrap();
    client.run(P, "t3", "still here").await;
    sound(&host);
}

#[tokio::test]
async fn a_first_chat_that_moves_keeps_its_name_also_when_its_session_ends() {
    let host = TestHost::in_memory();
    let mut client = open(&host).await;
    let first = chat_of(A);
    client.subscribe(A).await;
    client.accepted(A, json!({ "type": "session/defaultChatChanged", "defaultChat": P })).await;
    moved(&mut client, to(&first, B, None)).await;
    assert_eq!(chats(&mut client, B).await, [first.as_str(), chat_of(B).as_str(), "ahp-chat:/r"]);
    assert_eq!(client.subscribe(&first).await["state"]["resource"], json!(first));
    assert_eq!(client.subscribe("ahp-chat:/a").await["state"]["resource"], json!(P));
    client.ask("disposeSession", json!({ "channel": A })).await.unwrap();
    client.subscribe(&first).await;
    client.run(&first, "t", "hello").await;
    // Gone, its name names nothing any more: the session that it stood for is gone too.
    client.ask("disposeChat", json!({ "channel": first })).await.unwrap();
    assert_eq!(client.refused("subscribe", json!({ "channel": first })).await.0, -32008);
    sound(&host);
}

#[tokio::test]
async fn what_cannot_move_is_refused_by_its_own_code_and_nothing_moves() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (one, two) = (format!("file://{}", one.path().display()), format!("file://{}", two.path().display()));
    let settings = HostSettings { max_chats_in_session: 3, max_sessions: Some(4), ..HostSettings::default() };
    let host = TestHost::with(Options { settings, ..Options::default() });
    let mut client = host.client("c").await;
    for (session, directories) in [(A, json!([one, two])), (B, json!([one])), ("ahp-session:/full", json!([one, two]))]
    {
        client.ask("createSession", json!({ "channel": session, "workingDirectories": directories })).await.unwrap();
    }
    for (session, chat) in
        [(A, P), (B, "ahp-chat:/r"), ("ahp-session:/full", "ahp-chat:/f"), ("ahp-session:/full", "ahp-chat:/g")]
    {
        client.create_chat(session, chat).await;
    }
    let less = json!({ "channel": A, "chat": "ahp-chat:/less", "workingDirectories": [one] });
    client.ask("createChat", less).await.unwrap();
    client.subscribe("ahp-chat:/less").await;
    client.create_session("ahp-session:/fourth").await;
    client.until(|e| e["action"]["activeSessions"] == json!(4)).await;
    let (first, less) = (chat_of(A), "ahp-chat:/less");
    let before = store_tail(&host);
    for (params, code, word) in [
        (to("ahp-chat:/none", B, None), -32008, "not-found"),
        (to(A, B, None), -32008, "not-found"),
        (to(P, "ahp-session:/none", None), -32008, "not-found"),
        (to(P, P, None), -32008, "not-found"),
        (to(&first, B, None), -32602, "not-movable"),
        (to(&first, A, Some(P)), -32602, "not-movable"),
        (to("ahp-chat:/a", A, Some(P)), -32602, "not-movable"),
        (to_new(&first), -32602, "not-movable"),
        (to(P, A, Some(P)), -32602, "bad-anchor"),
        (to(P, A, Some("ahp-chat:/r")), -32602, "bad-anchor"),
        (to(less, B, Some(P)), -32602, "bad-anchor"),
        (to(less, B, Some("ahp-chat:/none")), -32602, "bad-anchor"),
        (to(P, B, None), -32602, "bad-directory"),
        (to(P, "ahp-session:/full", None), -32000, "limit-exceeded"),
        (to_new(P), -32000, "limit-exceeded"),
        (json!({ "channel": P }), -32602, "invalid-params"),
        (json!({ "channel": P, "destination": "there" }), -32602, "invalid-params"),
        (json!({ "channel": P, "destination": {} }), -32602, "invalid-params"),
        (json!({ "channel": P, "destination": { "kind": "session" } }), -32602, "invalid-params"),
        (json!({ "channel": P, "destination": { "kind": "elsewhere" } }), -32602, "invalid-params"),
    ] {
        assert_eq!(client.refused("moveChat", params.clone()).await, (code, word.to_owned()), "{params}");
    }
    assert_eq!(store_tail(&host), before);
    client.say(less, "t", "/question sure?").await;
    client.until_type("chat/inputRequested").await;
    let running = client.refused("moveChat", to(less, B, None)).await;
    assert_eq!(running, (-32004, "turn-in-progress".to_owned()));
    // In its own session it only stands elsewhere: what runs goes on.
    moved(&mut client, to(less, A, None)).await;
    client.cancel(less, "t").await;
    client.until_ended("t").await;
    moved(&mut client, to(less, B, None)).await;
    sound(&host);
}

#[tokio::test]
async fn a_chat_of_another_agent_or_with_work_in_the_background_does_not_move() {
    let other = RecordingAgent::named("other");
    let agents: Vec<Arc<dyn Agent>> = vec![scrollback::agents::built_in(), Arc::new(other.clone())];
    let host = TestHost::with(Options { agents, ..Options::default() });
    let mut client = open(&host).await;
    let params = json!({ "channel": "ahp-session:/other", "provider": "other" });
    client.ask("createSession", params).await.unwrap();
    client.create_chat("ahp-session:/other", "ahp-chat:/o").await;
    let refused = client.refused("moveChat", to(P, "ahp-session:/other", None)).await;
    assert_eq!(refused, (-32602, "other-agent".to_owned()));
    client.subscribe("ahp-chat:/o").await;
    client.say("ahp-chat:/o", "t", "x").await;
    eventually("it is prompted", || other.prompts() == ["t"]).await;
    let work = json!({ "kind": "shell", "id": "w1", "label": "build", "startedAt": "2026-11-30T12:00:00.000Z",
        "command": "make" });
    other.emits(AgentEvent::BackgroundWork { work: serde_json::from_value(work).unwrap() }).await;
    client.until_type("chat/backgroundWorkSet").await;
    client.cancel("ahp-chat:/o", "t").await;
    client.until_ended("t").await;
    assert_eq!(client.refused("moveChat", to_new("ahp-chat:/o")).await, (-32004, "turn-in-progress".to_owned()));
    other.emits(AgentEvent::BackgroundWorkDone { id: "w1".into() }).await;
    client.until_type("chat/backgroundWorkRemoved").await;
    let session = moved(&mut client, to_new("ahp-chat:/o")).await;
    assert_eq!(client.subscribe(&session).await["state"]["provider"], json!("other"));
}

#[tokio::test]
async fn a_paused_queue_waits_where_the_chat_is() {
    let host = TestHost::in_memory();
    let mut client = open(&host).await;
    client.subscribe(P).await;
    client.say(P, "t", "/question sure?").await;
    client.until_type("chat/inputRequested").await;
    client.queue(P, "m1", "later").await;
    client.cancel(P, "t").await;
    client.until_ended("t").await;
    moved(&mut client, to(P, B, None)).await;
    let paused = |state: &Value| state["_meta"]["scrollback.pausedQueues"].clone();
    let (a, b) = (client.subscribe(A).await["state"].clone(), client.subscribe(B).await["state"].clone());
    assert_eq!((paused(&a), paused(&b)), (json!([]), json!([P])));
    // A message lifts the pause: both go out, the older first.
    client.queue(P, "m2", "and that").await;
    let started = client.until_type("chat/turnStarted").await;
    assert_eq!(started["action"]["queuedMessageId"], json!("m1"));
    client.envelope(|e| e["action"]["queuedMessageId"] == json!("m2")).await;
    sound(&host);
}

#[tokio::test]
async fn what_is_sent_to_a_chat_while_it_moves_is_served_once_and_in_order() {
    let store = GatedStore::new(MemoryStore::new().unwrap());
    let gate = store.gate();
    let host = TestHost::start(Arc::new(store), Options::default());
    let mut client = open(&host).await;
    for channel in [P, A, B] {
        client.subscribe(channel).await;
    }
    client.drain().await;
    gate.hold();
    let mut sent = vec![client.dispatch(P, draft("held")).await];
    gate.wait_until_held();
    client.send(json!({ "jsonrpc": "2.0", "id": "move", "method": "moveChat", "params": to(P, B, None) })).await;
    for n in 0..40 {
        let title = json!({ "type": "session/titleChanged", "title": format!("title {n}") });
        match n % 4 {
            0 => drop(client.dispatch(A, title).await),
            1 => drop(client.dispatch(B, title).await),
            _ => sent.push(client.dispatch(P, draft(&format!("draft {n}"))).await),
        }
        if n % 5 == 0 {
            gate.release_one();
        }
    }
    gate.release_all();
    let last = *sent.last().unwrap();
    let mut echoes = Vec::new();
    while echoes.last() != Some(&last) {
        let seen = client.next().await.unwrap();
        let envelope = &seen["params"];
        if envelope["channel"] == json!(P) && envelope["origin"]["clientId"] == json!("c") {
            assert_eq!(envelope.get("rejectionReason"), None, "{envelope}");
            echoes.push(envelope["origin"]["clientSeq"].as_i64().unwrap());
        }
        if seen["id"] == json!("move") {
            assert_eq!(seen["result"], json!({ "session": B }));
        }
    }
    assert_eq!(echoes, sent);
    assert_eq!(client.subscribe(P).await["state"]["draft"]["text"], json!("draft 39"));
    assert!(chats(&mut client, B).await.contains(&P.to_owned()));
    sound(&host);
}

#[tokio::test]
async fn a_move_that_is_lost_changes_nothing_and_can_be_tried_again() {
    let store = GatedStore::new(MemoryStore::new().unwrap());
    let gate = store.gate();
    let host = TestHost::start(Arc::new(store), Options::default());
    let mut client = open(&host).await;
    client.subscribe(P).await;
    client.run(P, "t1", "hello").await;
    for (params, session) in [(to(P, B, None), B.to_owned()), (to_new(P), String::new())] {
        let before = (chats(&mut client, A).await, chats(&mut client, B).await, client.listed().await);
        let tail = store_tail(&host);
        gate.fail_next(LogFault::Engine("the test says no".into()));
        let refused = client.refused("moveChat", params.clone()).await;
        assert_eq!(refused, (-32000, "log-unavailable".to_owned()));
        let after = (chats(&mut client, A).await, chats(&mut client, B).await, client.listed().await);
        assert_eq!((before, tail), (after, store_tail(&host)));
        // It is served where it was.
        client.subscribe(P).await;
        client.accepted(P, draft(&format!("still here {tail}"))).await;
        let there = moved(&mut client, params).await;
        assert!(session.is_empty() || there == session);
        client.accepted(P, draft(&format!("there {tail}"))).await;
        sound(&host);
    }
    client.subscribe(P).await;
    assert!(streamed(&client.run(P, "t2", "/history").await).contains("hello"));
}

#[tokio::test]
async fn a_source_or_a_destination_that_panics_leaves_the_chat_where_the_log_says() {
    let store = GatedStore::new(MemoryStore::new().unwrap());
    let gate = store.gate();
    let host = TestHost::start(Arc::new(store), Options::default());
    let mut client = open(&host).await;
    for panics in [chat_of(B), chat_of(A)] {
        let from = if chats(&mut client, A).await.contains(&P.to_owned()) { (A, B) } else { (B, A) };
        client.drain().await;
        gate.hold();
        client.dispatch(&chat_of(A), draft(&format!("held for {panics}"))).await;
        gate.wait_until_held();
        client.dispatch(&chat_of(B), draft(&format!("held for {panics}"))).await;
        let request = json!({ "jsonrpc": "2.0", "id": "move", "method": "moveChat", "params": to(P, from.1, None) });
        client.send(request).await;
        client.ask("ping", json!({ "channel": ROOT })).await.unwrap();
        host.host.panic_in_chat(&panics);
        gate.release_all();
        let answer = loop {
            let seen = client.next().await.unwrap();
            if seen["id"] == json!("move") {
                break seen;
            }
        };
        let there = if answer.get("result").is_some() { from.1 } else { from.0 };
        let other = if there == A { B } else { A };
        assert!(chats(&mut client, there).await.contains(&P.to_owned()), "{answer}");
        assert!(!chats(&mut client, other).await.contains(&P.to_owned()), "{answer}");
        client.subscribe(P).await;
        client.accepted(P, draft(&format!("after {panics}"))).await;
        sound(&host);
    }
}

#[tokio::test]
async fn opposite_moves_at_once_all_end() {
    let host = TestHost::in_memory();
    let mut client = open(&host).await;
    client.create_session("ahp-session:/c").await;
    let mut others = Vec::new();
    for n in 0..6 {
        let chat = format!("ahp-chat:/n{n}");
        client.create_chat([A, B, "ahp-session:/c"][n % 3], &chat).await;
        let mut mover = host.client(&format!("mover {n}")).await;
        others.push(tokio::spawn(async move {
            mover.subscribe(&chat).await;
            for round in 0..8 {
                let session = [A, B, "ahp-session:/c"][(n + round) % 3];
                mover.accepted(&chat, draft(&format!("before {round}"))).await;
                moved(&mut mover, to(&chat, session, None)).await;
                mover.accepted(&chat, draft(&format!("after {round}"))).await;
            }
        }));
    }
    for other in others {
        other.await.unwrap();
    }
    let mut all = Vec::new();
    for session in [A, B, "ahp-session:/c"] {
        all.extend(chats(&mut client, session).await);
    }
    all.sort();
    let mut expected: Vec<String> = (0..6).map(|n| format!("ahp-chat:/n{n}")).collect();
    expected.extend([A, B, "ahp-session:/c"].map(chat_of));
    expected.extend(["p", "q", "r"].map(|name| format!("ahp-chat:/{name}")));
    expected.sort();
    assert_eq!(all, expected);
    sound(&host);
}

#[tokio::test]
async fn agents_of_other_chats_go_on_while_a_chat_moves() {
    let host = TestHost::in_memory();
    let mut client = open(&host).await;
    for session in [A, B] {
        client.subscribe(&chat_of(session)).await;
        client.say(&chat_of(session), "t", "/words 300 1").await;
    }
    for round in 0..6 {
        moved(&mut client, to(P, if round % 2 == 0 { B } else { A }, None)).await;
    }
    let mut seen = Vec::new();
    while seen.iter().filter(|e: &&Value| e["action"]["type"] == json!("chat/turnComplete")).count() < 2 {
        seen.push(client.envelope(|_| true).await);
    }
    let words: String = (1..=300).map(|n| format!("w{n} ")).collect();
    for session in [A, B] {
        assert_eq!(streamed(&on(&seen, &chat_of(session))), words);
    }
    sound(&host);
}

#[tokio::test]
async fn a_move_is_shown_at_once_and_kept_where_commits_wait() {
    let store = Arc::new(MemoryStore::new().unwrap());
    let settings =
        || HostSettings { durability: Durability::Interval(Duration::from_millis(50)), ..HostSettings::default() };
    let host =
        TestHost::start(Arc::clone(&store) as Arc<dyn Store>, Options { settings: settings(), ..Options::default() });
    let mut client = open(&host).await;
    client.subscribe(P).await;
    for round in 0..4 {
        client.run(P, &format!("t{round}"), &format!("round {round}")).await;
        let session = if round % 2 == 0 { B } else { A };
        moved(&mut client, to(P, session, None)).await;
        client.accepted(P, draft(&format!("draft {round}"))).await;
        assert!(chats(&mut client, session).await.contains(&P.to_owned()));
    }
    let session = moved(&mut client, to_new(P)).await;
    assert_eq!(client.subscribe(P).await["state"]["movable"], json!(false));
    host.stop();
    let host = TestHost::start(store, Options { settings: settings(), ..Options::default() });
    let mut client = host.client("c").await;
    assert_eq!(chats(&mut client, &session).await, [P]);
    assert_eq!(client.subscribe(P).await["state"]["turns"].as_array().unwrap().len(), 4);
    sound(&host);
}

#[tokio::test]
async fn a_moved_chat_is_whole_for_those_who_come_back() {
    let host = TestHost::in_memory();
    let mut client = open(&host).await;
    let mut mirrored = Mirrored::connect(host.address, "m", &[ROOT, A, B, P]).await;
    mirrored.client.hang_up().await;
    client.subscribe(P).await;
    client.run(P, "t1", "before").await;
    moved(&mut client, to(P, B, None)).await;
    client.run(P, "t2", "behind").await;
    mirrored.reconnect(host.address).await;
    for channel in [ROOT, A, B, P] {
        mirrored.compare(channel).await.unwrap();
    }
    assert!(mirrored.channels.contains(P));
}

#[tokio::test]
async fn workers_go_with_the_chat_that_spawned_them_and_never_alone() {
    let store = Arc::new(MemoryStore::new().unwrap());
    let host = TestHost::start(Arc::clone(&store) as _, Options::default());
    let mut client = open(&host).await;
    client.subscribe(P).await;
    client.run(P, "t", "/subagent /say inner ;; /subagent /say innermost").await;
    let before = chats(&mut client, A).await;
    let workers: Vec<String> = before.iter().filter(|chat| chat.starts_with("ahp-chat://subagent/")).cloned().collect();
    assert_eq!(workers.len(), 2);
    for worker in &workers {
        let refused = client.refused("moveChat", to(worker, B, None)).await;
        assert_eq!(refused, (-32602, "not-movable".to_owned()));
    }
    let told = client.subscribe(&workers[1]).await["state"].clone();
    let mut mirrored = Mirrored::connect(host.address, "m", &[ROOT, A, B, P, &workers[0], &workers[1]]).await;
    moved(&mut client, to(P, B, Some("ahp-chat:/r"))).await;
    assert_eq!(chats(&mut client, A).await, [chat_of(A).as_str(), "ahp-chat:/q"]);
    let of_b = chat_of(B);
    let there = [of_b.as_str(), "ahp-chat:/r", P, &workers[0], &workers[1]];
    assert_eq!(chats(&mut client, B).await, there);
    assert_eq!(client.subscribe(&workers[1]).await["state"], told);
    // In its own session only the entry of the chat itself goes to another place.
    moved(&mut client, to(P, B, None)).await;
    assert_eq!(chats(&mut client, B).await[0], P);
    for channel in [ROOT, A, B, P, &workers[0], &workers[1]] {
        mirrored.compare(channel).await.unwrap();
    }
    let session = moved(&mut client, to_new(P)).await;
    assert_eq!(chats(&mut client, &session).await, [P, workers[0].as_str(), workers[1].as_str()]);
    host.stop();
    let host = TestHost::start(store, Options::default());
    let mut client = host.client("c").await;
    assert_eq!(client.subscribe(&workers[1]).await["state"], told);
    sound(&host);
}

#[tokio::test]
async fn a_hidden_worker_is_listed_takes_no_action_and_moves_only_with_its_chat() {
    let agent = RecordingAgent::new();
    let host = TestHost::with(Options::of(&agent));
    let mut client = open(&host).await;
    client.subscribe(A).await;
    client.subscribe(P).await;
    client.say(P, "t", "x").await;
    eventually("it is prompted", || agent.prompts() == ["t"]).await;
    let worker = WorkerStart {
        id: "w".into(),
        title: "What nobody is to see".into(),
        agent_name: None,
        description: None,
        prompt: "look".into(),
        background: false,
        hidden: true,
    };
    agent.emits(AgentEvent::WorkerStarted { turn_id: "t".into(), tool_call_id: "call".into(), worker }).await;
    let added = client.until_type("session/chatAdded").await["action"]["summary"].clone();
    let hidden = added["resource"].as_str().unwrap().to_owned();
    assert_eq!(added["interactivity"], json!("hidden"));
    client.subscribe(&hidden).await;
    let running = client.subscribe(&hidden).await["state"]["activeTurn"]["id"].as_str().unwrap().to_owned();
    let before = store_tail(&host);
    for action in [
        draft("x"),
        json!({ "type": "chat/isReadChanged", "isRead": true }),
        json!({ "type": "chat/turnCancelled", "turnId": running, "duration": 0 }),
        json!({ "type": "session/titleChanged", "title": "x" }),
        json!({ "type": "chat/workingDirectorySet", "directory": "file:///" }),
        json!({ "type": "chat/toolCallConfirmed", "turnId": "t", "toolCallId": "x", "approved": true }),
        json!({ "type": "chat/turnStarted", "turnId": "u", "startedAt": "2026-11-30T12:00:00Z", "message": message("x") }),
    ] {
        assert_eq!(client.rejected(&hidden, action.clone()).await, "read-only", "{action}");
    }
    for command in ["stopBackgroundWork", "sendNow"] {
        let params = json!({ "channel": hidden, "id": "x" });
        let refused = client.refused(&format!("x-scrollback/{command}"), params).await;
        assert_eq!(refused, (-32602, "read-only".to_owned()), "{command}");
    }
    let wish = json!({ "type": "session/defaultChatChanged", "defaultChat": hidden });
    assert_eq!(client.rejected(A, wish).await, "malformed");
    assert_eq!(client.refused("moveChat", to(&hidden, B, None)).await, (-32602, "not-movable".to_owned()));
    // A worker that runs keeps its chat where it is.
    assert_eq!(client.refused("moveChat", to(P, B, None)).await, (-32004, "turn-in-progress".to_owned()));
    assert_eq!(store_tail(&host), before);
    let ended = Box::new(AgentEvent::Ended { turn_id: running, ending: Ending::Complete });
    agent.emits(AgentEvent::OfWorker { worker: "w".into(), event: ended }).await;
    agent.emits(AgentEvent::Ended { turn_id: "t".into(), ending: Ending::Complete }).await;
    client.until_ended("t").await;
    moved(&mut client, to(P, B, None)).await;
    assert_eq!(chats(&mut client, B).await, [P, hidden.as_str(), chat_of(B).as_str(), "ahp-chat:/r"]);
    for gone in [chat_of(B).as_str(), "ahp-chat:/r"] {
        client.ask("disposeChat", json!({ "channel": gone })).await.unwrap();
    }
    assert_eq!(client.subscribe(B).await["state"]["defaultChat"], json!(P));
    sound(&host);
}
