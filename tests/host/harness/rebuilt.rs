//! The rows beside a log against those that are made anew of its records.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use scrollback::events::rows::{ChannelKind, ChannelRow, leading_number, number_of_key};
use scrollback::events::sled_store::{SledOptions, SledStore};
use scrollback::events::{Batch, EventLog, Rows, ServerSeq, Store, Table};
use scrollback::projections::rebuild;

/// The rows of a table, but for what is kept of chats that are not there any more.
fn rows(store: &dyn Store, table: Table) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut rows = BTreeMap::new();
    store
        .scan_rows(table, &[], None, &mut |key, value| {
            rows.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        })
        .unwrap();
    let chat_of = |key: &[u8]| match table {
        Table::Turn | Table::Point | Table::Used | Table::Fork => leading_number(key),
        Table::Attachment => leading_number(&key[24..]),
        _ => None,
    };
    let is_known = |chat: u64| store.get(Table::ChannelById, &chat.to_be_bytes()).unwrap().is_some();
    rows.retain(|key, _| chat_of(key).is_none_or(is_known));
    if table == Table::Fork {
        rows.retain(|key, _| number_of_key(key).is_some_and(is_known));
    }
    if table == Table::ChannelByUri {
        rows.values_mut().for_each(without_session);
    }
    rows
}

/// The row of a canvas names the session that its chat was in when it was published; the chat may have moved since.
fn without_session(row: &mut Vec<u8>) {
    let mut value: ChannelRow = serde_json::from_slice(row).unwrap();
    if value.kind == ChannelKind::Canvas {
        value.session = 0;
        *row = serde_json::to_vec(&value).unwrap();
    }
}

/// Loads the records of `store` into a new log, makes the rows anew, and fails where they are others.
pub fn has_the_rows_that_its_records_say(store: &dyn Store) {
    let directory = tempfile::tempdir().unwrap();
    let copy = SledStore::open(directory.path(), SledOptions::default()).unwrap();
    let mut records = Vec::new();
    store
        .scan(0, ServerSeq::MAX, &mut |record| {
            records.push(record);
            ControlFlow::Continue(())
        })
        .unwrap();
    records.chunks(700).for_each(|some| copy.load(some).unwrap());
    copy.go_on_at(store.next_seq(), store.last_channel_id()).unwrap();
    rebuild::rows(&copy, &mut |rows| Ok(copy.append(&[Batch { events: Vec::new(), rows }]).map(drop)?)).unwrap();
    for table in Table::ALL {
        if !matches!(table, Table::Checkpoint | Table::Dispatched | Table::Erasing) {
            assert_eq!(rows(&copy, *table), rows(store, *table), "{table:?}");
        }
    }
    assert_eq!((copy.tail(), copy.next_seq()), (store.tail(), store.next_seq()));
    assert!(copy.last_channel_id() >= store.last_channel_id());
    let mut copied = Vec::new();
    copy.scan(0, ServerSeq::MAX, &mut |record| {
        copied.push(record);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(copied, records);
}
