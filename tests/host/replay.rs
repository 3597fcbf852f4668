//! Coming late and coming back: a snapshot and its subscription are one step, and a replay from any number leads to the
//! live state.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use ahp::reducers::{apply_action_to_chat, apply_action_to_root, apply_action_to_session};
use ahp_types::actions::ActionEnvelope;
use ahp_types::common::JsonObject;
use ahp_types::state::{AgentInfo, SessionConfigSchema, Snapshot, SnapshotState};
use scrollback::access::Identity;
use scrollback::actors::agent::{Agent, AgentExtras, AgentProcess, AgentSink, ProcessStart};
use scrollback::actors::host::HostSettings;
use scrollback::agents::demo::DemoAgent;
use scrollback::events::memory::MemoryStore;
use scrollback::events::sled_store::{SledOptions, SledStore};
use scrollback::events::{ChannelId, EventLog, Record, ServerSeq};
use scrollback::projections::action::type_of;
use scrollback::protocol::ProtocolSettings;
use serde_json::{Value, json};

use crate::harness::{
    Client, Mirrored, Options, ROOT, TestHost, canonical, difference, eventually, is_ending, message,
};

const SESSION: &str = "ahp-session:/s";
/// Another name of the session's first chat.
const SYNONYM: &str = "ahp-chat:/s";

fn with(protocol: ProtocolSettings) -> TestHost {
    TestHost::start(Arc::new(MemoryStore::new().unwrap()), Options { protocol, ..Options::default() })
}

fn seq(envelope: &Value) -> u64 {
    envelope["serverSeq"].as_u64().unwrap()
}

fn snapshot(state: &Value) -> SnapshotState {
    serde_json::from_value::<Snapshot>(state.clone()).unwrap().state
}

/// A state with envelopes applied by the official reducers.
fn fold(mut state: SnapshotState, envelopes: &[Value]) -> Value {
    for envelope in envelopes {
        assert!(envelope.get("rejectionReason").is_none(), "a refusal in a replay: {envelope}");
        let envelope: ActionEnvelope = serde_json::from_value(envelope.clone()).unwrap();
        match &mut state {
            SnapshotState::Root(root) => drop(apply_action_to_root(root, &envelope.action)),
            SnapshotState::Session(session) => drop(apply_action_to_session(session, &envelope.action)),
            SnapshotState::Chat(chat) => drop(apply_action_to_chat(chat, &envelope.action)),
            other => panic!("no such channel here: {other:?}"),
        }
    }
    canonical(&state)
}

fn of_channel(envelopes: &Value, channel: &str) -> Vec<Value> {
    let all = envelopes.as_array().unwrap().iter();
    all.filter(|envelope| envelope["channel"] == json!(channel)).cloned().collect()
}

async fn state_at(client: &mut Client, channel: &str, at: u64) -> Option<SnapshotState> {
    let answer = client.ask("x-scrollback/stateAt", json!({ "channel": channel, "serverSeq": at })).await;
    answer.ok().map(|answer| snapshot(&answer))
}

#[tokio::test]
async fn subscribing_in_the_middle_of_a_fast_stream_loses_nothing_and_doubles_nothing() {
    let host = TestHost::in_memory();
    let mut speaker = host.client("speaker").await;
    let chat = speaker.create_session(SESSION).await;
    let words = 3_000;
    speaker.say(&chat, "t", &format!("/words {words}\n/sleep 1\n/words {words} 1")).await;
    let mut late = Vec::new();
    for n in 0..40 {
        let mut mirror = Mirrored::connect(host.address, &format!("late{n}"), &[]).await;
        assert!(mirror.follow(&chat).await);
        late.push(mirror);
    }
    let action = json!({ "type": "chat/turnCancelled", "turnId": "t", "duration": 0 });
    speaker.dispatch(&chat, action).await;
    let mut texts = Vec::new();
    for mirror in &mut late {
        while mirror.chat(&chat).unwrap().active_turn.is_some() {
            mirror.next().await;
        }
        texts.push(json!(mirror.chat(&chat).unwrap().turns));
    }
    let whole = speaker.subscribe(&chat).await["state"]["turns"].clone();
    assert!(texts.iter().all(|text| difference(text, &whole).is_none()));
    let text = whole[0]["responseParts"][0]["content"].as_str().unwrap();
    let said: Vec<&str> = text.split_whitespace().collect();
    let expected = (1..=words).map(|n| format!("w{n}")).cycle();
    assert!(said.len() > 40 && said.iter().copied().eq(expected.take(said.len())), "{text}");
}

#[tokio::test]
async fn initialize_in_the_middle_of_streams_agrees_with_all_that_follows() {
    let host = TestHost::in_memory();
    let mut speaker = host.client("speaker").await;
    let first = speaker.create_session(SESSION).await;
    let second = speaker.create_session("ahp-session:/other").await;
    for chat in [&first, &second] {
        speaker.say(chat, "t", "/words 400 1").await;
    }
    for n in 0..20 {
        let channels = [ROOT, SESSION, &first, &second];
        let mut mirror = Mirrored::connect(host.address, &format!("late{n}"), &channels).await;
        for channel in channels {
            assert!(mirror.compare(channel).await.is_some());
        }
    }
}

/// A recorded run: a session with a second chat, in which everything happened that replays may meet.
async fn record(client: &mut Client) -> Vec<String> {
    let chat = client.create_session(SESSION).await;
    let second = "ahp-chat:/second".to_owned();
    client.subscribe(SESSION).await;
    client.subscribe(&chat).await;
    client.say(&chat, "t1", "/think hm\nhello\n/tool cat x\n/usage 1 2").await;
    client.until_ended("t1").await;
    client.ask("createChat", json!({ "channel": SESSION, "chat": second })).await.unwrap();
    client.subscribe(&second).await;
    client.say(&second, "u1", "/question-async Later? | yes\n/activity busy\n/words 30").await;
    client.until_ended("u1").await;
    client.say(&chat, "t2", "/ask-tool rm all").await;
    let asked = client.envelope(|envelope| envelope["action"]["type"] == json!("chat/toolCallReady")).await;
    for id in ["a", "b"] {
        let action =
            json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": id, "message": message("waits") });
        client.dispatch(&chat, action).await;
    }
    let call = &asked["action"]["toolCallId"];
    let denial = json!({ "type": "chat/toolCallConfirmed", "turnId": "t2", "toolCallId": call, "approved": false,
        "reason": "denied" });
    client.dispatch(&chat, denial).await;
    client.until_ended("t2").await;
    let drained = |envelope: &Value| {
        is_ending(&envelope["action"]) && envelope["action"]["turnId"].as_str().is_some_and(|turn| turn.len() > 20)
    };
    client.until(drained).await;
    client.until(drained).await;
    client.say(&chat, "t3", "/sleep 60000").await;
    client.envelope(|envelope| envelope["action"]["turnId"] == json!("t3")).await;
    client.dispatch(&chat, json!({ "type": "chat/turnCancelled", "turnId": "t3", "duration": 0 })).await;
    client.until_ended("t3").await;
    let draft = client.dispatch(&second, json!({ "type": "chat/draftChanged", "draft": message("half") })).await;
    client.echo(draft).await;
    client.drain().await;
    vec![ROOT.to_owned(), SESSION.to_owned(), chat, second]
}

/// Reconnects from every number of the log, in both forms, and compares what a client holds then with what it holds that
/// was always there.
async fn from_every_number(host: &TestHost, channels: &[String], known: bool) {
    let spans = spans(host);
    let is_gone = |seq: u64| spans.iter().any(|(first, last)| *first <= seq && seq < *last);
    let mut watcher = host.client("watcher").await;
    let tail = host.host.store().tail();
    let (mut live, mut folded, mut asked) = (Vec::new(), 0, 0);
    for channel in channels {
        live.push(canonical(&snapshot(&watcher.subscribe(channel).await)));
    }
    let names: Vec<&str> = channels.iter().map(String::as_str).collect();
    for from in 0..=tail {
        let id = if known { "watcher".to_owned() } else { format!("never seen {from}") };
        let mut client = Client::connect(host.address).await;
        let answer = client.reconnect(&id, from, &names).await;
        if is_gone(from) {
            assert_eq!(answer["type"], json!("snapshot"), "from {from}");
            for (at, live) in live.iter().enumerate() {
                assert_eq!(difference(&canonical(&snapshot(&answer["snapshots"][at])), live), None, "from {from}");
            }
            continue;
        }
        asked += u64::from(from > 0);
        assert_eq!((&answer["type"], &answer["missing"]), (&json!("replay"), &json!([])), "from {from}");
        let numbers: Vec<u64> = answer["actions"].as_array().unwrap().iter().map(seq).collect();
        assert!(numbers.is_sorted() && numbers.iter().all(|seq| *seq > from), "from {from}: {numbers:?}");
        let cursors: Vec<Value> =
            names.iter().map(|name| json!({ "channel": name, "lastSeenServerSeq": from })).collect();
        let mut other = Client::connect(host.address).await;
        let params = json!({ "channel": ROOT, "clientId": id, "subscriptions": cursors });
        let each = other.ask("reconnect", params).await.unwrap()["channels"].clone();
        for (at, (channel, live)) in channels.iter().zip(&live).enumerate() {
            let replayed = of_channel(&answer["actions"], channel);
            if from == 0 {
                assert_eq!(each[at]["kind"], json!("snapshot"));
                assert_eq!(difference(&canonical(&snapshot(&each[at]["snapshot"])), live), None);
            } else {
                assert_eq!(each[at]["kind"], json!("replay"), "from {from}");
                assert_eq!(each[at]["actions"], json!(replayed), "from {from}: {channel}");
            }
            let Some(before) = state_at(&mut watcher, channel, from).await else { continue };
            assert_eq!(difference(&fold(before, &replayed), live), None, "from {from}: {channel}");
            folded += 1;
        }
    }
    assert!(folded > 2 * asked, "only {folded} states were compared of {asked} numbers");
}

/// What compactions made one: the first and the last number of each.
fn spans(host: &TestHost) -> Vec<(ServerSeq, ServerSeq)> {
    let records = host.records();
    records.iter().filter_map(|record| Some((record.covers_from?, record.seq))).collect()
}

#[tokio::test]
async fn reconnect_from_every_number_leads_to_the_live_state_also_across_what_was_compacted() {
    let directory = tempfile::tempdir().unwrap();
    let settings = HostSettings { delta_window: std::time::Duration::ZERO, ..HostSettings::default() };
    let host = TestHost::on_disk_with(directory.path(), Options { settings, ..Options::default() });
    let mut client = host.client("recorder").await;
    let channels = record(&mut client).await;
    host.host.compact(i64::MAX, Box::new(|_| ())).await.unwrap();
    assert!(spans(&host).iter().any(|(first, last)| last - first == 29));
    from_every_number(&host, &channels, true).await;
    client.hang_up().await;
    host.stop();
    let host = TestHost::on_disk(directory.path());
    from_every_number(&host, &channels, false).await;
}

#[tokio::test]
async fn reconnect_from_every_number_leads_to_the_live_state_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("recorder").await;
    let channels = record(&mut client).await;
    from_every_number(&host, &channels, true).await;
    client.hang_up().await;
    host.stop();
    let host = TestHost::on_disk(directory.path());
    from_every_number(&host, &channels, false).await;
}

#[tokio::test]
async fn reconnect_from_every_number_under_a_synonym_leads_to_the_live_state() {
    let host = TestHost::in_memory();
    let mut client = host.client("recorder").await;
    let channels = record(&mut client).await;
    let live = canonical(&snapshot(&client.subscribe(&channels[2]).await));
    for from in 1..=host.host.store().tail() {
        let mut other = Client::connect(host.address).await;
        let answer = other.reconnect("other", from, &[SYNONYM]).await;
        let replayed = of_channel(&answer["actions"], SYNONYM);
        assert_eq!(replayed.len(), answer["actions"].as_array().unwrap().len(), "{answer}");
        let Some(before) = state_at(&mut client, &channels[2], from).await else { continue };
        assert_eq!(difference(&fold(before, &replayed), &live), None, "from {from}");
    }
}

#[tokio::test]
async fn a_name_that_stood_for_another_chat_gets_a_snapshot_of_the_one_that_it_stands_for_now() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    client.subscribe(SESSION).await;
    client.ask("createChat", json!({ "channel": SESSION, "chat": "ahp-chat:/second" })).await.unwrap();
    client.subscribe(&chat).await;
    client.say(&chat, "t1", "in the first").await;
    client.until_ended("t1").await;
    let before = host.host.store().tail();
    let change = json!({ "type": "session/defaultChatChanged", "defaultChat": "ahp-chat:/second" });
    let change = client.dispatch(SESSION, change).await;
    client.echo(change).await;
    client.subscribe("ahp-chat:/second").await;
    client.say("ahp-chat:/second", "u1", "in the second").await;
    client.until_ended("u1").await;
    client.drain().await;
    // Also from a number after the change: the client may have followed the first chat under this name until now.
    for from in [before, host.host.store().tail()] {
        let mut other = Client::connect(host.address).await;
        let answer = other.reconnect("other", from, &[SYNONYM]).await;
        assert_eq!(answer["type"], json!("snapshot"), "{answer}");
        assert_eq!(answer["snapshots"][0]["resource"], json!(SYNONYM));
        assert_eq!(answer["snapshots"][0]["state"]["turns"][0]["id"], json!("u1"));
        let cursor = json!([{ "channel": SYNONYM, "lastSeenServerSeq": from },
            { "channel": chat, "lastSeenServerSeq": from }]);
        let mut other = Client::connect(host.address).await;
        let params = json!({ "channel": ROOT, "clientId": "other", "subscriptions": cursor });
        let each = other.ask("reconnect", params).await.unwrap()["channels"].clone();
        assert_eq!((&each[0]["kind"], &each[1]["kind"]), (&json!("snapshot"), &json!("replay")));
    }
}

#[tokio::test]
async fn a_client_ahead_of_the_host_and_one_that_missed_too_much_get_snapshots_and_are_live_then() {
    let host = with(ProtocolSettings { replay_limit: 2_000, ..ProtocolSettings::default() });
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    client.subscribe(&chat).await;
    client.say(&chat, "t1", "/words 50").await;
    client.until_ended("t1").await;
    client.drain().await;
    for n in 2..5 {
        let from = [1, host.host.store().tail() + 1, (1 << 53) - 1][n - 2];
        let mut mirror = Mirrored::connect(host.address, "late", &[]).await;
        mirror.channels.extend([chat.clone(), SESSION.to_owned(), "ahp-chat:/gone".to_owned()]);
        mirror.last_seen = from;
        mirror.reconnect(host.address).await;
        assert_eq!(mirror.channels.len(), 2, "what is gone has no snapshot");
        let turn = format!("t{n}");
        client.say(&chat, &turn, "more").await;
        client.until_ended(&turn).await;
        while mirror.chat(&chat).unwrap().turns.last().is_none_or(|last| last.id != turn) {
            mirror.next().await;
        }
        assert!(mirror.compare(&chat).await.is_some() && mirror.compare(SESSION).await.is_some());
    }
}

#[tokio::test]
async fn what_was_disposed_is_missing_and_what_was_made_in_the_gap_is_announced() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    client.ask("createChat", json!({ "channel": SESSION, "chat": "ahp-chat:/gone" })).await.unwrap();
    client.drain().await;
    let from = host.host.store().tail();
    client.ask("createChat", json!({ "channel": SESSION, "chat": "ahp-chat:/new" })).await.unwrap();
    client.ask("disposeChat", json!({ "channel": "ahp-chat:/gone" })).await.unwrap();
    let names = [ROOT, SESSION, &chat, "ahp-chat:/gone", "ahp-chat:/never", "ahp-session:/never"];
    let mut other = Client::connect(host.address).await;
    let answer = other.reconnect("other", from, &names).await;
    assert_eq!(answer["missing"], json!(["ahp-chat:/gone", "ahp-chat:/never", "ahp-session:/never"]));
    let session = of_channel(&answer["actions"], SESSION);
    assert_eq!(session[0]["action"]["summary"]["resource"], json!("ahp-chat:/new"));
    assert_eq!(session[1]["action"], json!({ "type": "session/chatRemoved", "chat": "ahp-chat:/gone" }));
    client.ask("disposeSession", json!({ "channel": SESSION })).await.unwrap();
    let mut other = Client::connect(host.address).await;
    let answer = other.reconnect("other", from, &names).await;
    assert_eq!(answer["missing"], json!(names[1..]));
}

#[tokio::test]
async fn a_snapshot_in_reconnect_has_the_window_that_the_client_last_used() {
    let host = with(ProtocolSettings { replay_limit: 0, ..ProtocolSettings::default() });
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    client.subscribe(&chat).await;
    for turn in ["t1", "t2", "t3", "t4"] {
        client.say(&chat, turn, "hello").await;
        client.until_ended(turn).await;
    }
    let mut windowed = host.client("windowed").await;
    let subscribe = json!({ "channel": chat, "view": { "turns": 2 } });
    windowed.ask("subscribe", subscribe).await.unwrap();
    windowed.drop_socket().await;
    let turns = |answer: &Value| answer["snapshots"][0]["state"]["turns"].as_array().unwrap().len();
    let mut back = Client::connect(host.address).await;
    let answer = back.reconnect("windowed", 1, &[&chat]).await;
    assert_eq!(turns(&answer), 2);
    assert!(answer["snapshots"][0]["state"]["turnsNextCursor"].is_string());
    // The window of another client is its own.
    let mut other = Client::connect(host.address).await;
    let answer = other.reconnect("somebody else", 1, &[&chat]).await;
    assert_eq!(turns(&answer), 4);
    assert!(answer["snapshots"][0]["state"].get("turnsNextCursor").is_none());
}

#[tokio::test]
async fn a_window_that_a_page_widened_while_its_client_was_away_has_no_hole_afterwards() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    client.subscribe(&chat).await;
    for turn in 1..=6 {
        client.say(&chat, &format!("t{turn}"), "hello").await;
        client.until_ended(&format!("t{turn}")).await;
    }
    let mut windowed = host.client("windowed").await;
    let answer = windowed.ask("subscribe", json!({ "channel": chat, "view": { "turns": 2 } })).await.unwrap();
    let held = answer["snapshot"].clone();
    let from = held["fromSeq"].as_u64().unwrap();
    let mut narrow = host.client("narrow").await;
    narrow.ask("subscribe", json!({ "channel": chat, "view": { "turns": 1 } })).await.unwrap();
    windowed.drop_socket().await;
    // While it is away somebody else asks for older turns, and the chat goes on.
    narrow.ask("fetchTurns", json!({ "channel": chat })).await.unwrap();
    client.say(&chat, "t7", "hello").await;
    client.until_ended("t7").await;
    let mut back = Client::connect(host.address).await;
    let answer = back.reconnect("windowed", from, &[&chat]).await;
    // Where the page was sent into the dying connection, nobody knows which turns the client has: it gets a snapshot.
    let now = if answer["type"] == json!("replay") {
        fold(snapshot(&held), &of_channel(&answer["actions"], &chat))
    } else {
        canonical(&snapshot(&answer["snapshots"][0]))
    };
    let ids: Vec<&str> = now["turns"].as_array().unwrap().iter().map(|turn| turn["id"].as_str().unwrap()).collect();
    let all = ["t1", "t2", "t3", "t4", "t5", "t6", "t7"];
    assert!(all.ends_with(&ids) && !ids.is_empty(), "a hole: {ids:?}");
    assert_eq!(now.get("turnsNextCursor").is_some(), ids.len() < all.len(), "{ids:?}");
}

#[tokio::test]
async fn a_refusal_goes_to_its_sender_alone_and_changes_nobody() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    let mut third = Mirrored::connect(host.address, "third", &[ROOT, SESSION, &chat]).await;
    let before = third.held(&chat);
    // Behind what the host writes down of its clients.
    client.subscribe(ROOT).await;
    let tail = host.host.store().tail();
    let refused = [
        json!({ "type": "chat/turnCancelled", "turnId": "none", "duration": 0 }),
        json!({ "type": "chat/pendingMessageRemoved", "kind": "queued", "id": "none" }),
        json!({ "type": "chat/toolCallConfirmed", "turnId": "t", "toolCallId": "c", "approved": true }),
        json!({ "type": "chat/turnComplete", "turnId": "none", "duration": 0 }),
        json!({ "type": "chat/levitated" }),
        json!({ "type": "chat/turnStarted" }),
        json!({ "type": "root/configChanged", "config": {} }),
    ];
    for action in refused {
        let seq = client.dispatch(&chat, action.clone()).await;
        let envelope = client.echo(seq).await;
        assert!(envelope["rejectionReason"].is_string(), "{envelope}");
        assert_eq!((&envelope["action"], &envelope["serverSeq"]), (&action, &json!(tail)));
    }
    // What the third hears next is the next accepted action.
    client.dispatch(&chat, json!({ "type": "chat/isArchivedChanged", "isArchived": true })).await;
    let heard = loop {
        let message = third.next().await;
        if message["method"] == json!("action") {
            break message["params"].clone();
        }
    };
    assert_eq!(heard["action"], json!({ "type": "chat/isArchivedChanged", "isArchived": true }));
    assert_eq!(seq(&heard), tail + 1, "a refusal moves no number");
    assert!(third.compare(&chat).await.is_some() && before != third.held(&chat));
    // Nor is it in a replay.
    let mut other = Client::connect(host.address).await;
    let answer = other.reconnect("c", 0, &[ROOT, SESSION, &chat]).await;
    assert!(answer["actions"].as_array().unwrap().iter().all(|envelope| envelope.get("rejectionReason").is_none()));
}

#[tokio::test]
async fn a_number_in_a_refusal_is_never_ahead_of_the_envelopes_on_its_connection() {
    let host = TestHost::in_memory();
    let mut speaker = host.client("speaker").await;
    let busy = speaker.create_session(SESSION).await;
    let quiet = speaker.create_session("ahp-session:/quiet").await;
    let mut mirror = Mirrored::connect(host.address, "m", &[&busy]).await;
    for turn in 0..20 {
        speaker.say(&busy, &format!("t{turn}"), "/think a\n/say b\n/think c\n/say d\n/think e\n/say f").await;
        // [`Mirrored`] fails on an envelope that comes behind its own number.
        for _ in 0..50 {
            let action = json!({ "type": "chat/turnCancelled", "turnId": "none", "duration": 0 });
            mirror.client.dispatch(&quiet, action).await;
        }
        while mirror.chat(&busy).unwrap().turns.len() <= turn {
            mirror.next().await;
        }
    }
}

#[tokio::test]
async fn a_client_that_counts_from_one_again_after_a_reconnect_loses_no_message() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    let mut from = host.host.store().tail();
    for n in 0..5 {
        let mut back = Client::connect(host.address).await;
        let answer = back.reconnect("c", from, &[SESSION, &chat]).await;
        assert_eq!(answer["type"], json!("replay"));
        assert_eq!(back.next_seq, 0);
        let turn = format!("t{n}");
        // The same text under the same number: only the turn's id is another.
        let seq = back.say(&chat, &turn, "the same words").await;
        assert_eq!(seq, 1);
        let echo = back.echo(1).await;
        assert_eq!((&echo["action"]["turnId"], echo.get("rejectionReason")), (&json!(turn), None));
        from = seq_of_last(&back.until_ended(&turn).await);
    }
    let turns = client.subscribe(&chat).await["state"]["turns"].clone();
    assert_eq!(turns.as_array().unwrap().len(), 5);
}

fn seq_of_last(envelopes: &[Value]) -> u64 {
    seq(envelopes.last().unwrap())
}

fn sled(directory: &Path) -> TestHost {
    TestHost::start(Arc::new(SledStore::open(directory, SledOptions::default()).unwrap()), Options::default())
}

/// Sends the same action under the same number again and returns what comes back for it, up to a later action's echo.
async fn send_again(client: &mut Client, channel: &str, action: &Value) -> Vec<Value> {
    client.next_seq = 6;
    assert_eq!(client.dispatch(channel, action.clone()).await, 7);
    let last = client.dispatch(channel, json!({ "type": "chat/levitated" })).await;
    let seen = client.until(|envelope| envelope["origin"]["clientSeq"] == json!(last)).await;
    seen.into_iter().filter(|envelope| envelope["origin"]["clientSeq"] == json!(7)).collect()
}

#[tokio::test]
async fn an_action_that_is_sent_again_after_a_reconnect_is_applied_once_and_echoed_once_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let host = sled(directory.path());
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    client.subscribe(&chat).await;
    let queued = json!({ "type": "chat/turnStarted", "turnId": "t1", "startedAt": "2026-11-30T12:00:00.000Z",
        "message": message("once") });
    client.next_seq = 6;
    client.dispatch(&chat, queued.clone()).await;
    client.until_ended("t1").await;
    client.drain().await;

    let mut back = Client::connect(host.address).await;
    back.reconnect("c", host.host.store().tail(), &[&chat]).await;
    // Behind what the host writes down of its clients.
    back.subscribe(ROOT).await;
    eventually("nothing is on its way to the disk", || host.host.writer().queued() == 0).await;
    let tail = host.host.store().tail();
    let echoes = send_again(&mut back, &chat, &queued).await;
    assert_eq!(echoes.len(), 1, "{echoes:?}");
    assert!(echoes[0].get("rejectionReason").is_none(), "{echoes:?}");
    assert_eq!((seq(&echoes[0]), host.host.store().tail()), (tail, tail));
    // The same by another client is another action.
    let mut other = host.client("other").await;
    assert!(send_again(&mut other, &chat, &queued).await[0]["rejectionReason"].is_string());
    for client in [&mut client, &mut back, &mut other] {
        client.hang_up().await;
    }
    host.stop();

    let host = sled(directory.path());
    let mut back = Client::connect(host.address).await;
    back.reconnect("c", host.host.store().tail(), &[&chat]).await;
    back.subscribe(ROOT).await;
    eventually("nothing is on its way to the disk", || host.host.writer().queued() == 0).await;
    let tail = host.host.store().tail();
    let echoes = send_again(&mut back, &chat, &queued).await;
    assert_eq!(echoes.len(), 1, "{echoes:?}");
    assert!(echoes[0].get("rejectionReason").is_none(), "{echoes:?}");
    assert_eq!((seq(&echoes[0]), host.host.store().tail()), (tail, tail));
    assert_eq!(back.subscribe(&chat).await["state"]["turns"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn envelopes_ascend_on_a_connection_whatever_their_channel() {
    let host = TestHost::in_memory();
    let mut speaker = host.client("speaker").await;
    let mut chats = Vec::new();
    for n in 0..4 {
        chats.push(speaker.create_session(&format!("ahp-session:/s{n}")).await);
    }
    let mut listener = host.client("listener").await;
    for (n, chat) in chats.iter().enumerate() {
        listener.subscribe(&format!("ahp-session:/s{n}")).await;
        listener.subscribe(chat).await;
    }
    for chat in &chats {
        speaker.say(chat, "t", "/words 100 1\n/activity x\n/think y\n/words 20 1").await;
    }
    let mut numbers = Vec::new();
    let mut ended = 0;
    while ended < 4 {
        let envelope = listener.envelope(|_| true).await;
        ended += usize::from(is_ending(&envelope["action"]));
        numbers.push(seq(&envelope));
    }
    assert!(numbers.len() > 100 && numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
}

#[tokio::test]
async fn clients_of_both_served_versions_come_back_with_what_they_agreed_on() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    client.subscribe(&chat).await;
    client.say(&chat, "t1", "hello").await;
    client.until_ended("t1").await;
    for (id, offered, agreed) in [("old", "0.9.0", "0.9.0"), ("new", "1.0.0", "1.0.0"), ("newer", "1.2.3", "1.2.3")] {
        let mut first = Client::connect(host.address).await;
        let params = json!({ "channel": ROOT, "protocolVersions": [offered], "clientId": id });
        assert_eq!(first.ask("initialize", params).await.unwrap()["protocolVersion"], json!(agreed));
        let before = first.subscribe(&chat).await;
        let from = before["fromSeq"].as_u64().unwrap();
        first.drop_socket().await;
        let seq = client.dispatch(&chat, json!({ "type": "chat/draftChanged", "draft": message(id) })).await;
        client.echo(seq).await;
        let mut back = Client::connect(host.address).await;
        let answer = back.reconnect(id, from, &[&chat]).await;
        let replayed = of_channel(&answer["actions"], &chat);
        assert_eq!(replayed.len(), 1, "{answer}");
        let live = canonical(&snapshot(&client.subscribe(&chat).await));
        assert_eq!(difference(&fold(snapshot(&before), &replayed), &live), None);
    }
}

/// The demo as another version of it might be.
struct OtherDemo(DemoAgent);

impl Agent for OtherDemo {
    fn provider(&self) -> &str {
        self.0.provider()
    }
    fn info(&self) -> AgentInfo {
        self.0.info()
    }
    fn extras(&self) -> AgentExtras {
        AgentExtras { images: false, ..self.0.extras() }
    }
    fn configuration(&self) -> (SessionConfigSchema, JsonObject) {
        self.0.configuration()
    }
    fn start(&self, start: ProcessStart, events: AgentSink) -> Box<dyn AgentProcess> {
        self.0.start(start, events)
    }
}

#[tokio::test]
async fn what_no_action_of_the_root_can_change_arrives_as_a_snapshot_and_is_in_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let host = sled(directory.path());
    let mut mirror = Mirrored::connect(host.address, "m", &[ROOT]).await;
    let before = mirror.held(ROOT);
    mirror.client.hang_up().await;
    host.stop();
    for _ in 0..2 {
        let agents: Vec<Arc<dyn Agent>> = vec![Arc::new(OtherDemo(DemoAgent::default()))];
        let store = Arc::new(SledStore::open(directory.path(), SledOptions::default()).unwrap());
        let host = TestHost::start(store, Options { agents, ..Options::default() });
        mirror.reconnect(host.address).await;
        let snapshot = mirror.compare(ROOT).await.unwrap();
        assert!(difference(&mirror.held(ROOT), &before).is_some());
        let folded: Value =
            serde_json::from_slice(&host.host.state_at(&Identity::root("test"), ROOT, None).unwrap().state).unwrap();
        assert_eq!(difference(&snapshot["state"], &folded), None);
        mirror.client.hang_up().await;
        host.stop();
    }
    // What has not changed is not said again.
    let store = SledStore::open(directory.path(), SledOptions::default()).unwrap();
    let mut begun = 0;
    let mut count = |record: Record| {
        begun += usize::from(type_of(&record.action) == "host/rootCreated");
        ControlFlow::Continue(())
    };
    store.scan_channel(ChannelId::ROOT, 0, ServerSeq::MAX, &mut count).unwrap();
    assert_eq!(begun, 2);
}

#[tokio::test]
async fn a_window_is_remembered_over_a_restart_of_the_host() {
    let directory = tempfile::tempdir().unwrap();
    let host = sled(directory.path());
    let mut client = host.client("windowed").await;
    let chat = client.create_session(SESSION).await;
    client.subscribe(&chat).await;
    for turn in ["t1", "t2", "t3"] {
        client.say(&chat, turn, "hello").await;
        client.until_ended(turn).await;
    }
    client.ask("subscribe", json!({ "channel": chat, "view": { "turns": 1 } })).await.unwrap();
    client.subscribe(ROOT).await;
    client.hang_up().await;
    host.stop();
    let store = Arc::new(SledStore::open(directory.path(), SledOptions::default()).unwrap());
    let protocol = ProtocolSettings { replay_limit: 0, ..ProtocolSettings::default() };
    let host = TestHost::start(store, Options { protocol, ..Options::default() });
    let mut back = Client::connect(host.address).await;
    let answer = back.reconnect("windowed", 1, &[&chat]).await;
    let turns = answer["snapshots"][0]["state"]["turns"].as_array().unwrap();
    assert_eq!(turns.iter().map(|turn| &turn["id"]).collect::<Vec<_>>(), ["t3"], "{answer}");
}

#[tokio::test]
async fn a_page_that_was_sent_and_did_not_arrive_is_not_taken_for_seen() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    client.subscribe(&chat).await;
    for turn in ["t1", "t2", "t3"] {
        client.say(&chat, turn, "hello").await;
        client.until_ended(turn).await;
    }
    let mut windowed = host.client("windowed").await;
    let answer = windowed.ask("subscribe", json!({ "channel": chat, "view": { "turns": 1 } })).await.unwrap();
    let held = answer["snapshot"].clone();
    // The page arrives at the socket, but its reader comes back as if it had not.
    windowed.ask("fetchTurns", json!({ "channel": chat, "cursor": held["state"]["turnsNextCursor"] })).await.unwrap();
    windowed.hang_up().await;
    client.say(&chat, "t4", "hello").await;
    client.until_ended("t4").await;
    let mut back = Client::connect(host.address).await;
    let answer = back.reconnect("windowed", held["fromSeq"].as_u64().unwrap(), &[&chat]).await;
    let now = if answer["type"] == json!("replay") {
        fold(snapshot(&held), &of_channel(&answer["actions"], &chat))
    } else {
        canonical(&snapshot(&answer["snapshots"][0]))
    };
    let ids: Vec<&str> = now["turns"].as_array().unwrap().iter().map(|turn| turn["id"].as_str().unwrap()).collect();
    let all = ["t1", "t2", "t3", "t4"];
    assert!(all.ends_with(&ids), "{ids:?}");
    if ids.len() == all.len() {
        // The host had not heard of the end of the connection, and replayed the page.
        return;
    }
    // What it lacks it is still given when it asks.
    back.ask("fetchTurns", json!({ "channel": chat, "cursor": now["turnsNextCursor"] })).await.unwrap();
    let page = back.envelope(|envelope| envelope["action"]["type"] == json!("chat/turnsLoaded")).await;
    let older = page["action"]["turns"].as_array().unwrap().iter().map(|turn| turn["id"].as_str().unwrap());
    assert_eq!(older.chain(ids.iter().copied()).collect::<Vec<_>>(), all);
}

#[tokio::test]
async fn who_has_seen_the_echo_of_a_wish_may_wish_the_same_again_under_the_same_number() {
    let host = TestHost::in_memory();
    let (mut client, mut other) = (host.client("c").await, host.client("other").await);
    client.create_session(SESSION).await;
    client.subscribe(SESSION).await;
    let named = |title: &str| json!({ "type": "session/titleChanged", "title": title });
    client.accepted(SESSION, named("mine")).await;
    other.subscribe(SESSION).await;
    let seen = seq(&other.accepted(SESSION, named("theirs")).await);
    // Clients count from 1 again on each connection.
    let mut back = Client::connect(host.address).await;
    back.reconnect("c", seen, &[SESSION]).await;
    back.accepted(SESSION, named("mine")).await;
    assert_eq!(back.subscribe(SESSION).await["state"]["title"], json!("mine"));
}
