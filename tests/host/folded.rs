//! Compaction of the log: no state changes, a crash anywhere loses nothing, and who was in the middle of what became one is
//! told so.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use scrollback::admin::inspect;
use scrollback::clock::Millis;
use scrollback::events::compacting::{Compacted, Step};
use scrollback::events::rows::ChannelRow;
use scrollback::events::sled_store::SledStore;
use scrollback::events::{Batch, ChannelId, DataDirectory, EventLog, Fate, Record, RowOp, ServerSeq, Store, Table};
use scrollback::projections::compaction::Folding;
use scrollback::projections::rebuilding::Rebuild;
use scrollback::projections::verify::verify;
use serde_json::{Value, json};

use crate::command;
use crate::harness::walk::{Choice, Deed, Walk};
use crate::harness::{Client, Options, TestHost, chat_of, message, opened};

const S: &str = "ahp-session:/s";
const P: &str = "ahp-chat:/p";

/// Every delta is an event of its own.
pub fn separate() -> Options {
    let mut options = Options::default();
    options.settings.delta_window = Duration::ZERO;
    options
}

/// Two chats in which much was streamed.
async fn told(host: &TestHost) -> String {
    let mut client = host.client("teller").await;
    let chat = client.create_session(S).await;
    client.create_chat(S, P).await;
    client.subscribe(&chat).await;
    client.subscribe(P).await;
    client.run(&chat, "t1", "/words 20\n/think one two three four\n/tool cat x\n/words 5").await;
    client.run(P, "p1", "the secret word is told here").await;
    client.run(&chat, "t2", "/words 12\n/fail-resumable no").await;
    client.dispatch(&chat, json!({ "type": "chat/turnResume", "turnId": "t2" })).await;
    client.until_ended("t2").await;
    client.run(&chat, "t3", "/words 8\n/subagent /words 9").await;
    client.dispatch(&chat, json!({ "type": "chat/truncated", "turnId": "t2" })).await;
    client.run(&chat, "t4", "/words 7").await;
    client.drain().await;
    chat
}

fn compact(
    store: &dyn Store,
    before: Millis,
    reached: &dyn Fn(Step),
) -> Result<Compacted, scrollback::events::LogFault> {
    store.compact(&Folding { before, given_up: &AtomicBool::new(false), reached })
}

fn channels(store: &dyn Store) -> Vec<(String, ChannelId)> {
    let mut all = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        let row: ChannelRow = serde_json::from_slice(value).unwrap();
        all.push((String::from_utf8_lossy(key).into_owned(), ChannelId(row.id)));
        ControlFlow::Continue(())
    };
    store.scan_rows(Table::ChannelByUri, &[], None, &mut visit).unwrap();
    all
}

fn records(store: &dyn Store, channel: ChannelId) -> Vec<Record> {
    let mut all = Vec::new();
    let mut visit = |record| {
        all.push(record);
        ControlFlow::Continue(())
    };
    store.scan_channel(channel, 0, ServerSeq::MAX, &mut visit).unwrap();
    all
}

fn state_at(store: &dyn Store, channel: &str, at: ServerSeq) -> Value {
    serde_json::from_str(&inspect::state_at(store, channel, Some(at)).unwrap().json()).unwrap()
}

/// The state of every channel right after each of its events.
type States = BTreeMap<(String, ServerSeq), Value>;

fn states(store: &dyn Store) -> States {
    let mut all = BTreeMap::new();
    for (uri, id) in channels(store) {
        for record in records(store, id) {
            all.insert((uri.clone(), record.seq), state_at(store, &uri, record.seq));
        }
    }
    all
}

/// The state of every channel as it is now.
fn newest_states(store: &dyn Store) -> BTreeMap<String, Value> {
    let now = |uri: &str| serde_json::from_str(&inspect::state_at(store, uri, None).unwrap().json()).unwrap();
    channels(store).into_iter().map(|(uri, _)| (uri.clone(), now(&uri))).collect()
}

/// Holds the log against the states that it had. Returns how many numbers are gone.
fn same_states(store: &dyn Store, before: &States) -> usize {
    verify(store, &mut |_| ()).unwrap();
    // What was recorded since is none of what is compared.
    let newest = before.keys().map(|(_, seq)| *seq).max().unwrap();
    let mut now = states(store);
    now.retain(|(_, seq), _| *seq <= newest);
    let mut gone = 0;
    for ((uri, seq), state) in before {
        match now.get(&(uri.clone(), *seq)) {
            Some(same) => assert_eq!(same, state, "{uri} at {seq}"),
            None => {
                let told = state_at(store, uri, *seq);
                let folded = told["folded"].as_array().unwrap_or_else(|| panic!("{uri} at {seq}: {told}"));
                let (first, last) = (folded[0].as_u64().unwrap(), folded[1].as_u64().unwrap());
                assert!(first <= *seq && *seq < last, "{uri} at {seq}: {folded:?}");
                assert_eq!(told["fromSeq"], json!(last));
                assert_eq!(told["state"], before[&(uri.clone(), last)]["state"], "{uri} at {seq}");
                gone += 1;
            }
        }
    }
    assert_eq!(now.len() + gone, before.len());
    gone
}

#[tokio::test]
async fn every_state_at_a_number_that_stays_is_what_it_was_and_one_within_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk_with(directory.path(), separate());
    let chat = told(&host).await;
    let store = Arc::clone(host.host.store());
    let before = states(store.as_ref());
    let compacted = host.host.compact(Millis::MAX, Box::new(|_| ())).await.unwrap();
    let gone = same_states(store.as_ref(), &before);
    assert_eq!(compacted.folded - compacted.into, gone as u64, "{compacted:?}");
    assert!(gone > 50, "{compacted:?}");
    // Again there is nothing to do.
    let again = host.host.compact(Millis::MAX, Box::new(|_| ())).await.unwrap();
    assert_eq!((again.folded, again.into), (0, 0));
    // The host goes on, and what is streamed then becomes one with nothing before it.
    let mut client = host.client("later").await;
    client.subscribe(&chat).await;
    client.run(&chat, "t5", "/words 6\n/history").await;
    let before = states(store.as_ref());
    drop(store);
    host.stop();
    let host = TestHost::on_disk(directory.path());
    same_states(host.host.store().as_ref(), &before);
    host.host.compact(Millis::MAX, Box::new(|_| ())).await.unwrap();
    assert!(same_states(host.host.store().as_ref(), &before) > 5);
}

#[tokio::test]
async fn what_is_newer_and_what_runs_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk_with(directory.path(), separate());
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    client.say(&chat, "t1", "/words 10\n/sleep 60000").await;
    client.until(|envelope| envelope["action"]["content"] == json!("w10 ")).await;
    let none = host.host.compact(Millis::MAX, Box::new(|_| ())).await.unwrap();
    assert_eq!(none.folded, 0, "a turn that runs");
    client.dispatch(&chat, json!({ "type": "chat/turnCancelled", "turnId": "t1", "duration": 0 })).await;
    client.until_ended("t1").await;
    let none = host.host.compact(0, Box::new(|_| ())).await.unwrap();
    assert_eq!(none.folded, 0, "what is newer");
    let all = host.host.compact(Millis::MAX, Box::new(|_| ())).await.unwrap();
    assert_eq!((all.folded, all.into), (10, 1));
}

/// Walks of two clients over everything that a chat can do, and then all their states before and after.
#[test]
fn whatever_was_done_every_state_is_the_same_after_a_compaction() {
    let choice = || {
        (0u64..2, 0u64..Deed::weights(), 0u64..1024, 0u64..1024).prop_map(|(who, what, a, b)| Choice {
            who,
            what,
            a,
            b,
        })
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { cases: 6, failure_persistence: None, max_shrink_iters: 16, ..Config::default() };
    TestRunner::new(config)
        .run(&proptest::collection::vec(choice(), 20..60), |choices| {
            runtime.block_on(async {
                let directory = tempfile::tempdir().unwrap();
                let store = Arc::new(opened(directory.path()));
                let kept: Arc<dyn Store> = Arc::<SledStore>::clone(&store);
                let mut walk = Walk::begin(TestHost::start(kept, separate())).await;
                for choice in choices {
                    walk.step(choice).await;
                }
                walk.finish().await;
                drop(walk);
                let before = states(store.as_ref());
                compact(store.as_ref(), Millis::MAX, &|_| ()).unwrap();
                same_states(store.as_ref(), &before);
            });
            Ok(())
        })
        .unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

#[tokio::test]
async fn a_crash_between_any_two_steps_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk_with(directory.path(), separate());
    told(&host).await;
    host.stop();
    let crashed = tempfile::tempdir().unwrap();
    let store = opened(directory.path());
    let before = states(&store);
    // What a crash at each step would leave: the files as they are then.
    let steps: Mutex<Vec<Step>> = Mutex::default();
    let reached = |step: Step| {
        let mut steps = steps.lock().unwrap();
        copy(directory.path(), &crashed.path().join(steps.len().to_string()));
        steps.push(step);
    };
    compact(&store, Millis::MAX, &reached).unwrap();
    drop(store);
    let steps = steps.into_inner().unwrap();
    use Step::{Aside, Checked, Copied, InPlace, Planned, Whole};
    assert_eq!(steps, [Planned, Copied, Checked, Whole, Aside, InPlace]);
    for (at, step) in steps.iter().enumerate() {
        let left = crashed.path().join(at.to_string());
        assert_eq!(left.join("log").exists(), *step != Aside);
        let store = opened(&left);
        let gone = same_states(&store, &before);
        assert_eq!(gone > 0, matches!(step, Aside | InPlace), "{step:?}");
        drop(store);
        assert!(!left.join("compacting").exists());
    }
    // The same where the copy is gone too, and the log that was moved aside is all there is.
    let left = crashed.path().join("4");
    fs::remove_dir_all(crashed.path()).unwrap();
    copy(directory.path(), &left);
    fs::create_dir(left.join("compacting")).unwrap();
    fs::rename(left.join("log"), left.join("compacting/old")).unwrap();
    same_states(&opened(&left), &before);
}

#[tokio::test]
async fn a_compaction_that_is_given_up_or_met_by_an_erasure_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk_with(directory.path(), separate());
    told(&host).await;
    host.stop();
    let store = opened(directory.path());
    let before = states(&store);
    let given_up = AtomicBool::new(false);
    for at in [Step::Planned, Step::Copied] {
        given_up.store(false, Ordering::Relaxed);
        let reached = |step: Step| given_up.store(step == at, Ordering::Relaxed);
        let fault =
            store.compact(&Folding { before: Millis::MAX, given_up: &given_up, reached: &reached }).unwrap_err();
        assert!(fault.to_string().contains("given up"), "{fault}");
        assert_eq!(same_states(&store, &before), 0);
    }
    let (_, id) = channels(&store).into_iter().find(|(uri, _)| uri == P).unwrap();
    let reached = |step: Step| {
        if step == Step::Checked {
            store
                .erase(id, &|record| {
                    if record.kind == scrollback::events::Kind::Host { Fate::Stays } else { Fate::Goes }
                })
                .unwrap();
        }
    };
    let fault = compact(&store, Millis::MAX, &reached).unwrap_err();
    assert!(fault.to_string().contains("erased meanwhile"), "{fault}");
    assert!(!directory.path().join("compacting").exists());
}

#[tokio::test]
async fn what_is_said_and_changed_meanwhile_is_there_afterwards() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(opened(directory.path()));
    let kept: Arc<dyn Store> = Arc::<SledStore>::clone(&store);
    let host = TestHost::start(kept, separate());
    let chat = told(&host).await;
    let mut busy = Vec::new();
    for name in ["a", "b", "c"] {
        let mut client = host.client(name).await;
        let session = format!("ahp-session:/{name}");
        let chat = client.create_session(&session).await;
        client.subscribe(&chat).await;
        busy.push((client, chat));
    }
    let over = AtomicBool::new(false);
    let talk = async |(mut client, chat): (Client, String)| {
        let mut turn = 0;
        while !over.load(Ordering::Relaxed) {
            client.run(&chat, &format!("t{turn}"), "/words 30\n/think a b c\n/tool cat x").await;
            turn += 1;
        }
        (turn, client, chat)
    };
    let compacting = async {
        for _ in 0..3 {
            host.host.compact(Millis::MAX, Box::new(|_| ())).await.unwrap();
        }
        over.store(true, Ordering::Relaxed);
    };
    let talks = busy.into_iter().map(talk).collect::<Vec<_>>();
    let (said, ()) = tokio::join!(futures_util::future::join_all(talks), compacting);
    for (turns, mut client, chat) in said {
        assert!(turns > 0);
        let state = client.subscribe(&chat).await;
        assert_eq!(state["state"]["turns"].as_array().unwrap().len(), turns);
    }
    let mut client = host.client("last").await;
    client.subscribe(&chat).await;
    client.run(&chat, "t9", "/history").await;
    host.stop();
    let before = newest_states(store.as_ref());
    drop(Arc::into_inner(store));
    let store = opened(directory.path());
    verify(&store, &mut |_| ()).unwrap();
    assert_eq!(newest_states(&store), before);
}

fn holds(directory: &Path, words: &str) -> bool {
    let file = fs::read(directory.join("log/db")).unwrap();
    file.windows(words.len()).any(|window| window == words.as_bytes())
}

#[tokio::test]
async fn the_bytes_of_an_erased_chat_are_gone() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    told(&host).await;
    host.host.erase("root:test", P).await.unwrap();
    assert!(holds(directory.path(), "the secret word"));
    host.host.compact(Millis::MAX, Box::new(|_| ())).await.unwrap();
    assert!(!holds(directory.path(), "the secret word"));
    verify(host.host.store().as_ref(), &mut |_| ()).unwrap();
}

async fn get(host: &TestHost, path: &str) -> String {
    let url = format!("http://{}{path}", host.address);
    tokio::task::spawn_blocking(move || ureq::get(&url).call().unwrap().body_mut().read_to_string().unwrap())
        .await
        .unwrap()
}

#[tokio::test]
async fn events_after_a_number_that_is_gone_begin_with_a_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk_with(directory.path(), separate());
    let chat = told(&host).await;
    host.host.compact(Millis::MAX, Box::new(|_| ())).await.unwrap();
    let store = host.host.store().as_ref();
    let (_, id) = channels(store).into_iter().find(|(uri, _)| *uri == chat).unwrap();
    let one = records(store, id).into_iter().find(|record| record.covers_from.is_some()).unwrap();
    let first = one.covers_from.unwrap();
    for channel in [format!("&channel={chat}"), String::new()] {
        for after in [first, one.seq - 1] {
            let text = get(&host, &format!("/api/events?after={after}{channel}")).await;
            let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let at = lines.iter().position(|line| line.get("resource").is_some()).unwrap();
            assert_eq!((&lines[at]["resource"], &lines[at]["fromSeq"]), (&json!(chat), &json!(one.seq)));
            assert_eq!(lines[at]["state"], state_at(store, &chat, one.seq)["state"]);
            assert_eq!(lines.iter().filter(|line| line.get("action").is_none()).count(), 1);
        }
        // Who has none of it, and who has all of it, gets events alone.
        for after in [0, first - 1, one.seq] {
            let text = get(&host, &format!("/api/events?after={after}{channel}")).await;
            let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert!(!lines.is_empty() && lines.iter().all(|line| line.get("action").is_some()), "after {after}");
        }
    }
    let state = get(&host, &format!("/api/state?channel={chat}&at={first}")).await;
    assert_eq!(serde_json::from_str::<Value>(&state).unwrap()["folded"], json!([first, one.seq]));
    let line: Value = serde_json::from_str(&get(&host, &format!("/api/log/{}", one.seq)).await).unwrap();
    assert_eq!(line["folded"], json!([first, one.seq]));
    let streamed = last_event(&host, &chat, first + 1).await;
    assert!(streamed.starts_with(&format!("event: snapshot\nid: {}\ndata: {{\"resource\"", one.seq)), "{streamed}");
}

/// The first event that a stream brings which is resumed after `last`.
async fn last_event(host: &TestHost, channel: &str, last: ServerSeq) -> String {
    use std::io::{BufRead, BufReader};

    let url = format!("http://{}/api/events?channel={channel}", host.address);
    tokio::task::spawn_blocking(move || {
        let request = ureq::get(&url).header("Accept", "text/event-stream").header("Last-Event-ID", last.to_string());
        let lines = BufReader::new(request.call().unwrap().into_body().into_reader()).lines();
        let lines = lines.map_while(Result::ok).skip_while(|line| line.starts_with(':') || line.is_empty());
        lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    })
    .await
    .unwrap()
}

/// The real binary, killed again and again while it compacts.
#[tokio::test]
async fn a_compaction_that_is_killed_anywhere_leaves_a_whole_log() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    drop(DataDirectory::open_or_create(&data).unwrap());
    let host = TestHost::on_disk_with(&data, separate());
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    for turn in 0..10 {
        client.run(&chat, &format!("t{turn}"), "/words 40\n/think a b c d e").await;
    }
    host.stop();
    let before = states(&opened(&data));
    let newest = newest_states(&opened(&data));
    let arguments = ["log", "compact", "--data", "data", "--json"];
    let mut wait = Duration::from_millis(10);
    let mut killed = 0;
    loop {
        let mut child =
            command::scrollback(home.path(), &arguments).stdout(std::process::Stdio::null()).spawn().unwrap();
        // No condition of the child's is waited for: it is killed wherever it is by then.
        let over = tokio::task::spawn_blocking(move || {
            std::thread::park_timeout(wait);
            let over = child.try_wait().unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            over
        });
        let over = over.await.unwrap();
        let store = opened(&data);
        verify(&store, &mut |_| ()).unwrap();
        assert_eq!(newest_states(&store), newest);
        drop(store);
        if over.is_some_and(|status| status.success()) {
            break;
        }
        killed += 1;
        wait = wait.mul_f64(1.3);
    }
    assert!(killed > 2, "{killed}");
    same_states(&opened(&data), &before);
    let last = command::run(home.path(), &arguments).json_lines().remove(0);
    assert_eq!(last["folded"], json!(0), "{last}");
    assert_eq!(
        command::run(home.path(), &["log", "verify", "--data", "data", "--json"]).json_lines()[0]["ok"],
        json!(true)
    );
}

#[tokio::test]
async fn a_running_host_compacts_when_the_command_line_asks_it() {
    let home = tempfile::tempdir().unwrap();
    let mut serve = command::scrollback(home.path(), &["serve", "--listen", "127.0.0.1:0", "--data", "data"]);
    let host = command::Host::spawn(serve.env("SCROLLBACK_DELTA_WINDOW", "0s"));
    let mut client = Client::connect(([127, 0, 0, 1], host.port).into()).await;
    client.initialize("c", &[]).await;
    client.create_session(S).await;
    let chat = chat_of(S);
    client.subscribe(&chat).await;
    client.run(&chat, "t1", "/words 10").await;
    let run = |arguments: &'static [&'static str]| {
        let home = home.path().to_owned();
        tokio::task::spawn_blocking(move || command::run(&home, arguments))
    };
    let none =
        run(&["log", "compact", "--before", "1d", "--data", "data", "--json"]).await.unwrap().json_lines().remove(0);
    assert_eq!(none["folded"], json!(0));
    let told = run(&["log", "compact", "--data", "data"]).await.unwrap().printed();
    assert!(told.starts_with("10 events folded into 1; "), "{told}");
    let at =
        run(&["log", "list", "--type", "chat/delta", "--data", "data", "--json"]).await.unwrap().json_lines().remove(0);
    let (first, last) = (at["folded"][0].as_u64().unwrap(), at["folded"][1].as_u64().unwrap());
    assert_eq!((last - first, &at["serverSeq"]), (9, &json!(last)));
    run(&["log", "compact", "--before", "soon", "--data", "data"]).await.unwrap().is_refused(2, &["--before", "soon"]);
    client.run(&chat, "t2", "still here").await;
    let (status, _) = host.stop("TERM");
    assert_eq!(status, 0);
}

/// Every row of every table, but for checkpoints.
fn rows(store: &dyn Store) -> BTreeMap<(Table, Vec<u8>), Vec<u8>> {
    let mut all = BTreeMap::new();
    for table in Table::ALL.iter().copied().filter(|table| *table != Table::Checkpoint) {
        let mut visit = |key: &[u8], value: &[u8]| {
            all.insert((table, key.to_vec()), value.to_vec());
            ControlFlow::Continue(())
        };
        store.scan_rows(table, &[], None, &mut visit).unwrap();
    }
    all
}

/// A log with forks, workers, visuals, attachments, a closed and an erased chat, and clients that come back.
async fn varied(host: &TestHost) {
    let chat = told(host).await;
    let mut client = host.client("varied").await;
    client.subscribe(&chat).await;
    client.run(&chat, "v1", "/visual Title <p>\n/usage 1 2\n/notice hm").await;
    for (fork, of, turn) in [("ahp-chat:/f", &chat, "t1"), ("ahp-chat:/g", &P.to_owned(), "p1")] {
        let source = json!({ "kind": "fork", "chat": of, "turnId": turn });
        client.ask("createChat", json!({ "channel": S, "chat": fork, "source": source })).await.unwrap();
    }
    client.create_session("ahp-session:/gone").await;
    client.ask("disposeSession", json!({ "channel": "ahp-session:/gone" })).await.unwrap();
    let mut waits = message("waits");
    waits["attachments"] =
        json!([{ "type": "embeddedResource", "label": "a", "contentType": "text/plain", "data": "aGk=" }]);
    client.dispatch(&chat, json!({ "type": "chat/draftChanged", "draft": waits })).await;
    client.drain().await;
    host.host.erase("root:test", P).await.unwrap();
}

#[tokio::test]
async fn rows_are_made_anew_as_they_were_whatever_became_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk_with(directory.path(), separate());
    varied(&host).await;
    host.host.compact(Millis::MAX, Box::new(|_| ())).await.unwrap();
    host.stop();
    let store = opened(directory.path());
    let before = rows(&store);
    let states_before = states(&store);
    let told =
        [Table::ChannelByUri, Table::Turn, Table::Head, Table::Session, Table::Recent, Table::Used, Table::Client];
    let also = [Table::SessionById, Table::Point, Table::Fork, Table::Canvas, Table::Attachment];
    let kept: BTreeMap<u64, String> = channels(&store).into_iter().map(|(uri, id)| (id.0, uri)).collect();
    for table in told.into_iter().chain(also) {
        let of_it: Vec<Vec<u8>> = before.keys().filter(|(of, _)| *of == table).map(|(_, key)| key.clone()).collect();
        assert!(!of_it.is_empty(), "{table:?} has no rows here");
        // What is gone of an erased chat stays; the rest is changed, or goes.
        let is_logged = |key: &[u8]| match table {
            Table::Turn | Table::Point | Table::Used => {
                kept.contains_key(&u64::from_be_bytes(key[..8].try_into().unwrap()))
            }
            _ => true,
        };
        let ops = of_it.into_iter().filter(|key| is_logged(key)).enumerate().map(|(at, key)| match at % 2 {
            0 => RowOp::Delete { table, key },
            _ => RowOp::Put { table, key, value: Bytes::from_static(b"nonsense") },
        });
        store.append(&[Batch { events: Vec::new(), rows: ops.collect() }]).unwrap();
    }
    store
        .append(&[Batch {
            events: Vec::new(),
            rows: vec![RowOp::Put { table: Table::Running, key: vec![0, 0, 0, 0, 0, 0, 9, 9], value: Bytes::new() }],
        }])
        .unwrap();
    assert!(verify(&store, &mut |_| ()).is_err());
    store.compact(&Rebuild::of(&store).unwrap()).unwrap();
    let now = rows(&store);
    for (key, value) in &before {
        assert_eq!(now.get(key), Some(value), "{key:?}");
    }
    assert_eq!(now.len(), before.len());
    assert_eq!(same_states(&store, &states_before), 0);
}

#[tokio::test]
async fn a_log_whose_rows_were_made_anew_is_served_and_a_running_host_refuses_it() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    drop(DataDirectory::open_or_create(&data).unwrap());
    let host = TestHost::on_disk_with(&data, separate());
    varied(&host).await;
    host.stop();
    let arguments = ["log", "verify", "--rebuild", "--data", "data", "--json"];
    let verdict = command::run(home.path(), &arguments).json_lines().remove(0);
    assert_eq!((&verdict["ok"], &verdict["checkpoints"]), (&json!(true), &json!(0)), "{verdict}");
    let host = TestHost::on_disk(&data);
    let mut client = host.client("c").await;
    assert_eq!(client.listed().await.len(), 1);
    client.subscribe("ahp-chat:/g").await;
    client.run("ahp-chat:/g", "g1", "/history").await;
    host.stop();
    let mut serve = command::scrollback(home.path(), &["serve", "--listen", "127.0.0.1:0", "--data", "data"]);
    let host = command::Host::spawn(&mut serve);
    command::run(home.path(), &arguments).is_refused(1, &["--rebuild", "running host", "stop it"]);
    host.stop("TERM");
}
