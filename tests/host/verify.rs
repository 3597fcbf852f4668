//! Verification finds what does not say what the log says, row by row.

use std::sync::Arc;

use bytes::Bytes;
use scrollback::events::memory::MemoryStore;
use scrollback::events::rows::{channel_key, numbered_key, recent_key, used_key};
use scrollback::events::{Batch, ChannelId, EventLog, RowOp, Rows, ServerSeq, Table};
use scrollback::projections::catalogue::{self, CatalogueRow};
use scrollback::projections::erasure::Erasure;
use scrollback::projections::verify::verify;
use serde_json::{Value, json};

use crate::harness::{Options, TestHost, Watched};

const S: &str = "ahp-session:/s";

/// What a host left that was stopped behind two turns: its store, the session, its chat.
async fn left() -> (Arc<MemoryStore>, ChannelId, ChannelId) {
    let store = Arc::new(MemoryStore::new().unwrap());
    let host = TestHost::start(store.clone(), Options::default());
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    for turn in ["t1", "t2"] {
        client.run(&chat, turn, "hello there").await;
    }
    client.hang_up().await;
    host.stop();
    let id = |uri: &str| ChannelId(catalogue::channel(store.as_ref(), uri).unwrap().unwrap().id);
    let (session, chat) = (id(S), id(&chat));
    (store, session, chat)
}

/// Writes over a row, and takes it back when `problem` was found.
fn is_found(store: &MemoryStore, table: Table, key: &[u8], changed: Option<Vec<u8>>, problem: &str) {
    let before = store.get(table, key).unwrap();
    let op = |value: Option<Vec<u8>>| match value {
        Some(value) => RowOp::Put { table, key: key.to_vec(), value: Bytes::from(value) },
        None => RowOp::Delete { table, key: key.to_vec() },
    };
    let write = |op| drop(store.append(&[Batch { events: Vec::new(), rows: vec![op] }]).unwrap());
    write(op(changed));
    let found = verify(store, &mut |_| {}).map(|verified| format!("{verified:?}"));
    let found = found.expect_err("nothing was found").to_string();
    assert!(found.contains(problem), "{found}");
    write(op(before));
    verify(store, &mut |_| {}).unwrap();
}

#[tokio::test]
async fn a_row_that_is_changed_or_missing_is_found() {
    let (store, session, chat) = left().await;
    let store = store.as_ref();
    let verified = verify(store, &mut |_| {}).unwrap();
    assert!(verified.channels == 3 && verified.checkpoints >= 2 && verified.events > 10, "{verified:?}");

    let key = numbered_key(chat, 1);
    let mut turn = store.get(Table::Turn, &key).unwrap().unwrap();
    *turn.last_mut().unwrap() ^= 1;
    is_found(store, Table::Turn, &key, Some(turn), "t1");
    is_found(store, Table::Turn, &key, None, "missing");

    let (head, value) =
        store.last_row(Table::Head, &channel_key(chat), &numbered_key(chat, ServerSeq::MAX)).unwrap().unwrap();
    assert_eq!(value, 2u64.to_be_bytes());
    is_found(store, Table::Head, &head, Some(1u64.to_be_bytes().to_vec()), "where the branch ends");

    let mut row = catalogue::entry(store, session).unwrap().unwrap();
    row.summary.title = "another".into();
    let changed = serde_json::to_vec(&CatalogueRow { ..row }).unwrap();
    is_found(store, Table::Session, &channel_key(session), Some(changed), "the catalogue's row");

    let newest = numbered_key(chat, ServerSeq::MAX);
    let (key, saved) = store.last_row(Table::Checkpoint, &channel_key(chat), &newest).unwrap().unwrap();
    let mut fold: Value = serde_json::from_slice(&saved).unwrap();
    fold["state"]["title"] = json!("another");
    let changed = fold.to_string().into_bytes();
    is_found(store, Table::Checkpoint, &key, Some(changed), "is not what the log folds to");
    is_found(store, Table::Checkpoint, &numbered_key(chat, 1 << 40), Some(saved), "which it does not have");
}

#[tokio::test]
async fn what_runs_what_was_used_and_how_sessions_are_listed_is_compared_with_the_log() {
    let (store, session, chat) = left().await;
    let store = store.as_ref();
    let nobody = ChannelId(1 << 40);

    is_found(store, Table::Running, &channel_key(chat), Some(Vec::new()), "what runs in ahp-chat:");
    is_found(store, Table::Running, &channel_key(nobody), Some(Vec::new()), "something runs in chat 1099511627776");

    let turn = used_key(chat, b't', "t2");
    is_found(store, Table::Used, &turn, None, "the row of id t2 in ahp-chat:");
    is_found(store, Table::Used, &turn, Some(1u64.to_be_bytes().to_vec()), "the row of id t2 in ahp-chat:");
    is_found(store, Table::Used, &used_key(chat, b'm', "q9"), Some(Vec::new()), "has seen id q9, which it has not");
    is_found(store, Table::Used, &used_key(nobody, b't', "t9"), Some(Vec::new()), "which is not there, has seen id t9");

    let key = store.last_row(Table::Recent, &[], &[0xff; 16]).unwrap().unwrap().0;
    is_found(store, Table::Recent, &key, None, "no row says where ahp-session:/s stands");
    is_found(store, Table::Recent, &recent_key(1, session), Some(Vec::new()), "puts session ahp-session:/s where");
    is_found(store, Table::Recent, &recent_key(1, nobody), Some(Vec::new()), "puts session 1099511627776 where");

    is_found(store, Table::SessionById, b"s", None, "the short name s is not that of ahp-session:/s");
    is_found(store, Table::SessionById, b"s", Some(channel_key(chat)), "the short name s is not that of");
    is_found(store, Table::SessionById, b"z", Some(channel_key(session)), "the short name z, which no session has");
}

#[tokio::test]
async fn a_turn_that_runs_has_its_row() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    client.say(&chat, "t1", "/background watch 60000\n/sleep 60000").await;
    client.until_type("chat/backgroundWorkSet").await;
    let store = Arc::clone(host.host.store());
    verify(store.as_ref(), &mut |_| {}).unwrap();
    let keys = |table| {
        let mut keys = Vec::new();
        let visit = &mut |key: &[u8], _: &[u8]| {
            keys.push(key.to_vec());
            std::ops::ControlFlow::Continue(())
        };
        store.scan_rows(table, &[], None, visit).unwrap();
        keys
    };
    assert_eq!(keys(Table::Running).len(), 1);
    // The work goes on behind its turn.
    client.cancel(&chat, "t1").await;
    client.until_ended("t1").await;
    assert_eq!(keys(Table::Running).len(), 1);
    verify(store.as_ref(), &mut |_| {}).unwrap();
    // With the session goes what runs in it, and its place in the list; its name it keeps.
    client.ask("disposeSession", json!({ "channel": S })).await.unwrap();
    assert_eq!((keys(Table::Running).len(), keys(Table::Recent).len(), keys(Table::SessionById).len()), (0, 0, 1));
    verify(store.as_ref(), &mut |_| {}).unwrap();
}

/// A kill may come between any two steps of an erasure: what it left is no fault, since the next start finishes it.
#[tokio::test]
async fn an_erasure_that_was_cut_short_is_no_fault() {
    const F: &str = "ahp-chat:/f";
    let store = Arc::new(MemoryStore::new().unwrap());
    let host = TestHost::start(store.clone(), Options::default());
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    client.run(&chat, "t1", "hello").await;
    let source = json!({ "kind": "fork", "chat": chat, "turnId": "t1" });
    client.ask("createChat", json!({ "channel": S, "chat": F, "source": source })).await.unwrap();
    client.run(&chat, "t2", "hello").await;
    client.ask("disposeChat", json!({ "channel": chat })).await.unwrap();
    client.hang_up().await;
    host.stop();
    for uri in [chat.as_str(), S] {
        let mut erasure = Erasure::plan(store.as_ref(), uri, "root:test").unwrap().unwrap();
        store.append(&[erasure.begin(0)]).unwrap();
        for writes in 0.. {
            let cut = Watched::over(Arc::clone(&store));
            cut.fail_after(writes);
            let done = erasure.carry_out(&cut, &|_, _| Ok(Vec::new()));
            verify(store.as_ref(), &mut |_| {}).unwrap();
            if done.is_ok() {
                break;
            }
        }
    }
    let verified = verify(store.as_ref(), &mut |_| {}).unwrap();
    assert_eq!(verified.channels, 1);
    // What was kept for the fork went with it.
    for table in [Table::Turn, Table::Used, Table::Fork, Table::Running, Table::Recent, Table::SessionById] {
        let mut rows = 0;
        let count = &mut |_: &[u8], _: &[u8]| {
            rows += 1;
            std::ops::ControlFlow::Continue(())
        };
        store.scan_rows(table, &[], None, count).unwrap();
        assert_eq!(rows, 0, "{table:?}");
    }
}
