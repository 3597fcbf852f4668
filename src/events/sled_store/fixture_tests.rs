//! The frozen data directory of format 1: every build that reads format 1 reads these bytes.
//!
//! `tests/fixtures/format-1` is a data directory as this code left it after a clean close. It was made by the generator
//! below:
//! `SCROLLBACK_MAKE_FIXTURE=<an empty directory> cargo test --lib makes_the_fixture`. It is never made again: a change
//! that these tests refuse is a new format, with a fixture of its own beside this one.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tempfile::TempDir;

use super::*;
use crate::events::conformance::rows_of;
use crate::events::rows::{TurnRow, numbered_key, recent_key, used_key};
use crate::events::{Batch, DataDirectory, Kind, NewEvent, Origin, RowOp};

const SESSION: ChannelId = ChannelId(2);
const CHAT: ChannelId = ChannelId(3);

/// The files of a data directory that was closed in order.
const FILES: [&str; 5] = ["FORMAT", "floor", "lock", "log/conf", "log/db"];

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1")
}

fn options() -> SledOptions {
    SledOptions { cache_capacity: 8 << 20, free: FreeSpace::fixed(u64::MAX), ..SledOptions::default() }
}

fn session_event(action: &'static str, about: Option<ChannelId>) -> NewEvent {
    NewEvent {
        channel: Channel::from("ahp-session:/s1"),
        channel_id: SESSION,
        kind: Kind::Action,
        at: 1_795_000_000_000,
        principal: "user:ann".into(),
        origin: None,
        about,
        action: Bytes::from_static(action.as_bytes()),
    }
}

fn chat_event(at: i64, action: impl Into<Bytes>) -> NewEvent {
    NewEvent {
        channel: Channel::from("ahp-chat:/c1"),
        channel_id: CHAT,
        kind: Kind::Action,
        at,
        principal: "host".into(),
        origin: None,
        about: None,
        action: action.into(),
    }
}

fn put(table: Table, key: impl Into<Vec<u8>>, value: impl Into<Bytes>) -> RowOp {
    RowOp::Put { table, key: key.into(), value: value.into() }
}

/// An action and a turn of three pieces each.
fn large() -> Vec<u8> {
    (0..100_000u32).map(|i| b'a' + (i / 1_000 % 26) as u8).collect()
}

fn turn_row() -> Vec<u8> {
    TurnRow { prev: 1, jump: 0, ordinal: 2, rewindable: true }.encode(&large())
}

/// What the fixture was made of, an append each.
fn appends() -> Vec<Vec<Batch>> {
    let made = Batch {
        events: vec![
            session_event(r#"{"type":"session/created"}"#, None),
            chat_event(1_795_000_000_001, r#"{"type":"chat/created"}"#),
            session_event(r#"{"type":"session/chatAdded"}"#, Some(CHAT)),
        ],
        rows: vec![
            put(Table::ChannelByUri, "ahp-session:/s1", r#"{"id":2,"kind":"session","session":2}"#),
            put(Table::ChannelByUri, "ahp-chat:/c1", r#"{"id":3,"kind":"chat","session":2}"#),
            put(Table::Session, SESSION.0.to_be_bytes(), r#"{"title":"first"}"#),
            put(Table::Recent, recent_key(1_795_000_000_001, SESSION), ""),
            put(Table::SessionById, "s1", SESSION.0.to_be_bytes().to_vec()),
            put(Table::Client, "client-1", r#"{"name":"ann's editor"}"#),
        ],
    };
    let dispatched = NewEvent {
        principal: "user:ann".into(),
        origin: Some(Origin { client_id: "client-1".to_owned(), client_seq: -7 }),
        ..chat_event(-1, r#"{"type":"chat/turnStarted","text":"häh?"}"#)
    };
    let started = Batch {
        events: vec![dispatched],
        rows: vec![
            put(Table::Used, used_key(CHAT, b't', "turn-1"), ""),
            RowOp::PutWithSeq {
                table: Table::Dispatched,
                key: vec![0xab; 16],
                event: 0,
                value: "\0\0\0\0\0\0\0\x05".into(),
            },
        ],
    };
    let prompt = NewEvent { kind: Kind::Host, ..chat_event(1_795_000_000_002, r#"{"type":"host/promptHandedOver"}"#) };
    let ended = Batch {
        events: vec![prompt, chat_event(1_795_000_000_003, large())],
        rows: vec![
            put(Table::Turn, numbered_key(CHAT, 2), turn_row()),
            RowOp::PutKeyedBySeq {
                table: Table::Head,
                key: CHAT.0.to_be_bytes().to_vec(),
                event: 1,
                value: 2u64.to_be_bytes().to_vec().into(),
            },
            RowOp::PutKeyedByLast {
                table: Table::Checkpoint,
                key: SESSION.0.to_be_bytes().to_vec(),
                channel: SESSION,
                value: r#"{"fold":1}"#.into(),
            },
            RowOp::Delete { table: Table::Client, key: b"client-1".to_vec() },
        ],
    };
    vec![vec![made], vec![started, ended]]
}

#[test]
#[allow(clippy::disallowed_methods)]
fn makes_the_fixture() {
    let Ok(target) = std::env::var("SCROLLBACK_MAKE_FIXTURE") else { return };
    let target = PathBuf::from(target);
    let made = TempDir::new().expect("a directory");
    let directory = DataDirectory::open_or_create(made.path()).expect("made");
    let store = SledStore::open(directory.path(), options()).expect("opens");
    for batches in appends() {
        store.append(&batches).expect("append");
    }
    store.close_clean().expect("closes");
    drop(store);
    fs::create_dir_all(target.join("log")).expect("made");
    for name in FILES {
        fs::copy(made.path().join(name), target.join(name)).expect("copied");
    }
}

/// A copy of the fixture, since opening writes.
fn copy() -> TempDir {
    let copy = TempDir::new().expect("a directory");
    fs::create_dir_all(copy.path().join("log/blobs")).expect("made");
    for name in FILES {
        fs::copy(fixture().join(name), copy.path().join(name)).expect("copied");
    }
    copy
}

/// An event of the fixture as a line of text; the large action as its length.
fn described(r: &Record) -> String {
    let action = if r.action == large() { "large".to_owned() } else { String::from_utf8_lossy(&r.action).into_owned() };
    format!(
        "{} {} {} {:?} {} {} {:?} {:?} {:?} {:?} {action}",
        r.seq, r.channel, r.channel_id.0, r.kind, r.at, r.principal, r.origin, r.about, r.covers_from, r.batch
    )
}

#[test]
fn every_event_of_format_1_is_read() {
    let dir = copy();
    let _lock = DataDirectory::open_existing(dir.path()).expect("ours");
    let store = SledStore::open(dir.path(), options()).expect("opens");
    let mut events = Vec::new();
    store
        .scan(0, ServerSeq::MAX, &mut |r| {
            events.push(described(&r));
            ControlFlow::Continue(())
        })
        .expect("scan");
    let expected = [
        r#"1 ahp-session:/s1 2 Action 1795000000000 user:ann None None None (1, 3) {"type":"session/created"}"#,
        r#"2 ahp-chat:/c1 3 Action 1795000000001 host None None None (1, 3) {"type":"chat/created"}"#,
        r#"3 ahp-session:/s1 2 Action 1795000000000 user:ann None Some(ChannelId(3)) None (1, 3) {"type":"session/chatAdded"}"#,
        r#"4 ahp-chat:/c1 3 Action -1 user:ann Some(Origin { client_id: "client-1", client_seq: -7 }) None None (4, 4) {"type":"chat/turnStarted","text":"häh?"}"#,
        r#"5 ahp-chat:/c1 3 Host 1795000000002 host None None None (5, 6) {"type":"host/promptHandedOver"}"#,
        r#"6 ahp-chat:/c1 3 Action 1795000000003 host None None None (5, 6) large"#,
    ];
    assert_eq!(events, expected);
    assert_eq!((store.tail(), store.next_seq(), store.new_channel_id()), (6, 7, ChannelId(4)));
    assert_eq!(store.last_of(SESSION, 9).expect("last_of"), Some(3));
}

#[test]
fn every_row_of_format_1_is_read() {
    let dir = copy();
    let store = SledStore::open(dir.path(), options()).expect("opens");
    let mut rows = Vec::new();
    for &table in Table::ALL {
        rows.extend(rows_of(&store, table, b"", None).into_iter().map(|(key, value)| (table as u8, key, value)));
    }
    let row = |table: u8, key: &[u8], value: &[u8]| (table, key.to_vec(), value.to_vec());
    let expected = [
        row(b'C', b"ahp-chat:/c1", br#"{"id":3,"kind":"chat","session":2}"#),
        row(b'C', b"ahp-root://", br#"{"id":1,"kind":"root","session":0}"#),
        row(b'C', b"ahp-session:/s1", br#"{"id":2,"kind":"session","session":2}"#),
        row(b'c', b"\0\0\0\0\0\0\0\x01", b"ahp-root://"),
        row(b'c', b"\0\0\0\0\0\0\0\x02", b"ahp-session:/s1"),
        row(b'c', b"\0\0\0\0\0\0\0\x03", b"ahp-chat:/c1"),
        row(b'T', b"\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x02", &turn_row()),
        row(b'H', b"\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x06", b"\0\0\0\0\0\0\0\x02"),
        row(b'K', b"\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03", br#"{"fold":1}"#),
        row(b'S', b"\0\0\0\0\0\0\0\x02", br#"{"title":"first"}"#),
        row(b'L', b"\xff\xff\xfe\x5e\x11\xa9\xa1\xfe\0\0\0\0\0\0\0\x02", b""),
        row(b'I', b"\0\0\0\0\0\0\0\x03tturn-1", b""),
        row(b'D', &[0xab; 16], b"\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x05"),
        row(b'A', b"s1", b"\0\0\0\0\0\0\0\x02"),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn format_1_can_be_appended_to() {
    let dir = copy();
    let store = SledStore::open(dir.path(), options()).expect("opens");
    let batch = Batch { events: vec![chat_event(1, "{}")], rows: vec![] };
    assert_eq!(store.append(&[batch]).expect("append"), [7]);
    drop(store);
    assert_eq!(SledStore::open(dir.path(), options()).expect("opens").tail(), 7);
}
