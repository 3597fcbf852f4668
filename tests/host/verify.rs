//! Verification finds what does not say what the log says, row by row.

use std::sync::Arc;

use bytes::Bytes;
use scrollback::events::memory::MemoryStore;
use scrollback::events::rows::{channel_key, numbered_key};
use scrollback::events::{Batch, ChannelId, EventLog, RowOp, Rows, ServerSeq, Table};
use scrollback::projections::catalogue::{self, CatalogueRow};
use scrollback::projections::verify::verify;
use serde_json::{Value, json};

use crate::harness::{Options, TestHost};

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
