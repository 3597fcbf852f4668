//! What every store must do, as one suite that each of them runs.
//!
//! Each check gets an empty store of its own. Nothing here knows which store it is.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::rows::channel_key;
use super::*;

/// Sizes around the largest value that the engine is given, and some far from it.
const SIZES: [usize; 7] = [0, 1, 48 * 1024 - 1, 48 * 1024, 48 * 1024 + 1, 1 << 20, 5 << 20];

/// Runs all checks, each on a store that `make` makes.
pub fn run<S: Store>(make: impl Fn() -> S) {
    a_new_store_has_the_root_channel_and_no_events(&make());
    numbers_are_consecutive_over_batches_and_appends(&make());
    an_empty_batch_gets_the_next_number_and_writes_nothing(&make());
    a_record_is_read_back_as_it_was_given(&make());
    interleaved_channels_are_read_apart_and_in_the_order_of_the_line(&make());
    scans_keep_to_their_bounds_and_stop_when_told(&make());
    the_newest_event_of_a_channel_is_found_at_every_position(&make());
    operations_on_rows_take_effect_in_order(&make());
    rows_are_keyed_by_the_newest_event_of_a_channel(&make());
    rows_are_scanned_by_prefix_and_from_a_key(&make());
    keys_that_begin_like_another_are_kept_apart(&make());
    the_last_row_is_found_within_its_bounds(&make());
    values_of_every_size_are_read_back(&make());
    large_rows_shrink_grow_and_go(&make());
    a_batch_that_cannot_be_stored_leaves_nothing(&make());
    channel_numbers_are_new_and_above_the_stored_ones(&make());
    erased_events_are_gone_and_the_rest_is_read_without_a_gap(&make());
    random_batches_match_a_simple_model(&make);
}

/// An event of the channel `ahp-chat:/<id>`.
pub fn event(id: u64, action: impl Into<Bytes>) -> NewEvent {
    NewEvent {
        channel: uri(id),
        channel_id: ChannelId(id),
        kind: Kind::Action,
        at: 1_000 + id as i64,
        principal: "user:ann".into(),
        origin: None,
        about: None,
        action: action.into(),
    }
}

pub fn uri(id: u64) -> Channel {
    if id == 1 { Channel::root() } else { Channel::from(format!("ahp-chat:/{id}")) }
}

pub fn batch(events: Vec<NewEvent>, rows: Vec<RowOp>) -> Batch {
    Batch { events, rows }
}

pub fn put(table: Table, key: &[u8], value: impl Into<Bytes>) -> RowOp {
    RowOp::Put { table, key: key.to_vec(), value: value.into() }
}

/// Number, channel and action of each event of the line in the bounds.
pub fn line(store: &dyn Store, after: ServerSeq, upto: ServerSeq) -> Vec<(ServerSeq, u64, Bytes)> {
    // Another thread may append meanwhile.
    let upto = upto.min(store.tail());
    let mut seen = Vec::new();
    store
        .scan(after, upto, &mut |r| {
            seen.push((r.seq, r.channel_id.0, r.action));
            ControlFlow::Continue(())
        })
        .expect("scan");
    let mut back = Vec::new();
    store
        .scan_back(after, upto, &mut |r| {
            back.push((r.seq, r.channel_id.0, r.action));
            ControlFlow::Continue(())
        })
        .expect("scan back");
    back.reverse();
    assert_eq!(back, seen, "back from {upto} to {after}");
    seen
}

pub fn numbers_of(store: &dyn Store, id: u64, after: ServerSeq, upto: ServerSeq) -> Vec<ServerSeq> {
    let upto = upto.min(store.tail());
    let mut seen = Vec::new();
    store
        .scan_channel(ChannelId(id), after, upto, &mut |r| {
            assert_eq!((r.channel_id, r.channel), (ChannelId(id), uri(id)));
            seen.push(r.seq);
            ControlFlow::Continue(())
        })
        .expect("scan of a channel");
    let mut back = Vec::new();
    store
        .scan_channel_back(ChannelId(id), after, upto, &mut |r| {
            back.push(r.seq);
            ControlFlow::Continue(())
        })
        .expect("scan of a channel back");
    back.reverse();
    assert_eq!(back, seen, "back from {upto} to {after}");
    seen
}

pub fn rows_of(store: &dyn Store, table: Table, prefix: &[u8], from: Option<&[u8]>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut seen = Vec::new();
    store
        .scan_rows(table, prefix, from, &mut |key, value| {
            seen.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })
        .expect("scan of rows");
    seen
}

fn get(store: &dyn Store, table: Table, key: &[u8]) -> Option<Vec<u8>> {
    store.get(table, key).expect("get")
}

fn append(store: &dyn Store, batches: &[Batch]) -> Vec<ServerSeq> {
    store.append(batches).expect("append")
}

/// Bytes that differ from place to place.
pub fn bytes_of(length: usize) -> Bytes {
    (0..length).map(|i| (i % 251) as u8 ^ (i / 65_536) as u8).collect::<Vec<u8>>().into()
}

fn a_new_store_has_the_root_channel_and_no_events(store: &dyn Store) {
    assert_eq!((store.tail(), store.next_seq()), (0, 1));
    assert_eq!(line(store, 0, ServerSeq::MAX), []);
    let row = get(store, Table::ChannelByUri, b"ahp-root://").expect("the root's row");
    let row: ChannelRow = serde_json::from_slice(&row).expect("JSON");
    assert_eq!(row, ChannelRow { id: 1, kind: ChannelKind::Root, session: 0 });
    assert_eq!(get(store, Table::ChannelById, &channel_key(ChannelId::ROOT)).as_deref(), Some(&b"ahp-root://"[..]));
    assert_eq!(store.new_channel_id(), ChannelId(2));
}

fn numbers_are_consecutive_over_batches_and_appends(store: &dyn Store) {
    let two = batch(vec![event(2, "a"), event(3, "b")], vec![]);
    let one = batch(vec![event(2, "c")], vec![]);
    assert_eq!(append(store, &[two.clone(), one.clone()]), [1, 3]);
    assert_eq!(append(store, &[one]), [4]);
    assert_eq!((store.tail(), store.next_seq()), (4, 5));
    let mut batches = Vec::new();
    store
        .scan(0, 9, &mut |r| {
            batches.push(r.batch);
            ControlFlow::Continue(())
        })
        .expect("scan");
    assert_eq!(batches, [(1, 2), (1, 2), (3, 3), (4, 4)]);
}

fn an_empty_batch_gets_the_next_number_and_writes_nothing(store: &dyn Store) {
    assert!(append(store, &[]).is_empty());
    assert_eq!(append(store, &[Batch::default()]), [1]);
    let only_rows = batch(vec![], vec![put(Table::Client, b"k", "v")]);
    assert_eq!(append(store, &[only_rows, batch(vec![event(2, "a")], vec![]), Batch::default()]), [1, 1, 2]);
    assert_eq!((store.tail(), get(store, Table::Client, b"k")), (1, Some(b"v".to_vec())));
}

fn a_record_is_read_back_as_it_was_given(store: &dyn Store) {
    let given = NewEvent {
        kind: Kind::Host,
        at: -5,
        origin: Some(Origin { client_id: "c".to_owned(), client_seq: -7 }),
        about: Some(ChannelId(9)),
        ..event(2, "{\"type\":\"host/x\"}")
    };
    append(store, &[batch(vec![event(3, "x"), given], vec![])]);
    let expected = Record {
        seq: 2,
        channel: uri(2),
        channel_id: ChannelId(2),
        kind: Kind::Host,
        at: -5,
        principal: "user:ann".to_owned(),
        origin: Some(Origin { client_id: "c".to_owned(), client_seq: -7 }),
        about: Some(ChannelId(9)),
        covers_from: None,
        batch: (1, 2),
        action: Bytes::from_static(b"{\"type\":\"host/x\"}"),
    };
    for whole_line in [true, false] {
        let mut last = None;
        let mut keep = |r: Record| {
            last = Some(r);
            ControlFlow::Continue(())
        };
        match whole_line {
            true => store.scan(0, 2, &mut keep).expect("scan"),
            false => store.scan_channel(ChannelId(2), 0, 2, &mut keep).expect("scan"),
        }
        assert_eq!(last.as_ref(), Some(&expected));
    }
}

/// Seven events of three channels in three appends.
fn interleave(store: &dyn Store) {
    append(store, &[batch(vec![event(2, "a"), event(3, "b"), event(2, "c")], vec![])]);
    append(store, &[batch(vec![event(4, "d")], vec![]), batch(vec![event(2, "e"), event(4, "f")], vec![])]);
    append(store, &[batch(vec![event(3, "g")], vec![])]);
}

fn interleaved_channels_are_read_apart_and_in_the_order_of_the_line(store: &dyn Store) {
    interleave(store);
    let actions: Vec<u8> = line(store, 0, ServerSeq::MAX).iter().map(|(_, _, action)| action[0]).collect();
    assert_eq!(actions, b"abcdefg");
    assert_eq!(numbers_of(store, 2, 0, ServerSeq::MAX), [1, 3, 5]);
    assert_eq!(numbers_of(store, 3, 0, ServerSeq::MAX), [2, 7]);
    assert_eq!(numbers_of(store, 4, 0, ServerSeq::MAX), [4, 6]);
    assert!(numbers_of(store, 5, 0, ServerSeq::MAX).is_empty());
}

fn scans_keep_to_their_bounds_and_stop_when_told(store: &dyn Store) {
    interleave(store);
    for after in 0..9 {
        for upto in 0..9 {
            let wanted =
                |all: &[u64]| -> Vec<u64> { all.iter().copied().filter(|seq| after < *seq && *seq <= upto).collect() };
            let numbers: Vec<u64> = line(store, after, upto).iter().map(|(seq, _, _)| *seq).collect();
            assert_eq!(numbers, wanted(&[1, 2, 3, 4, 5, 6, 7]), "{after}..={upto}");
            assert_eq!(numbers_of(store, 2, after, upto), wanted(&[1, 3, 5]), "{after}..={upto}");
        }
    }
    let (mut of_line, mut of_channel) = (0, 0);
    let stop_at_two = |count: &mut u32| {
        *count += 1;
        if *count == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    store.scan(0, 9, &mut |_| stop_at_two(&mut of_line)).expect("scan");
    store.scan_channel(ChannelId(2), 0, 9, &mut |_| stop_at_two(&mut of_channel)).expect("scan");
    assert_eq!((of_line, of_channel), (2, 2));
    (of_line, of_channel) = (0, 0);
    store.scan_back(0, 9, &mut |_| stop_at_two(&mut of_line)).expect("scan");
    store.scan_channel_back(ChannelId(2), 0, 9, &mut |_| stop_at_two(&mut of_channel)).expect("scan");
    assert_eq!((of_line, of_channel), (2, 2));
}

fn the_newest_event_of_a_channel_is_found_at_every_position(store: &dyn Store) {
    interleave(store);
    let newest = |id: u64, upto: u64| store.last_of(ChannelId(id), upto).expect("last_of");
    let of_2: Vec<_> = (0..=8).map(|upto| newest(2, upto)).collect();
    assert_eq!(of_2, [None, Some(1), Some(1), Some(3), Some(3), Some(5), Some(5), Some(5), Some(5)]);
    assert_eq!((newest(3, ServerSeq::MAX), newest(4, 5), newest(5, 9)), (Some(7), Some(4), None));
}

fn operations_on_rows_take_effect_in_order(store: &dyn Store) {
    let (table, key) = (Table::Head, b"h".to_vec());
    let ops = vec![
        put(table, b"twice", "one"),
        put(table, b"twice", "two"),
        put(table, b"gone", "x"),
        RowOp::Delete { table, key: b"gone".to_vec() },
        RowOp::Delete { table, key: b"never there".to_vec() },
        RowOp::PutKeyedBySeq { table, key: key.clone(), event: 1, value: "by".into() },
        RowOp::PutWithSeq { table, key: b"with".to_vec(), event: 0, value: "tail".into() },
    ];
    append(store, &[batch(vec![event(2, "a")], vec![])]);
    append(store, &[batch(vec![event(2, "b")], vec![]), batch(vec![event(2, "c"), event(3, "d")], ops)]);
    assert_eq!(get(store, table, b"twice"), Some(b"two".to_vec()));
    assert_eq!(get(store, table, b"gone"), None);
    assert_eq!(get(store, table, b"h\0\0\0\0\0\0\0\x04"), Some(b"by".to_vec()));
    assert_eq!(get(store, table, b"with"), Some(b"\0\0\0\0\0\0\0\x03tail".to_vec()));
    assert_eq!(get(store, Table::Used, b"twice"), None);
    append(store, &[batch(vec![], vec![RowOp::Delete { table, key: b"twice".to_vec() }])]);
    assert_eq!(get(store, table, b"twice"), None);
}

fn rows_are_keyed_by_the_newest_event_of_a_channel(store: &dyn Store) {
    let keyed = |channel: u64, value: &'static str| RowOp::PutKeyedByLast {
        table: Table::Checkpoint,
        key: b"k".to_vec(),
        channel: ChannelId(channel),
        value: value.into(),
    };
    append(store, &[batch(vec![event(2, "a")], vec![])]);
    let batches = [
        batch(vec![], vec![keyed(2, "stored"), keyed(3, "none")]),
        batch(vec![event(3, "b")], vec![]),
        batch(vec![event(2, "c"), event(2, "d")], vec![keyed(2, "own"), keyed(3, "earlier batch")]),
    ];
    append(store, &batches);
    let at = |seq: u8| get(store, Table::Checkpoint, &[b'k', 0, 0, 0, 0, 0, 0, 0, seq]);
    assert_eq!(at(0), Some(b"none".to_vec()));
    assert_eq!(at(1), Some(b"stored".to_vec()));
    assert_eq!(at(2), Some(b"earlier batch".to_vec()));
    assert_eq!((at(3), at(4)), (None, Some(b"own".to_vec())));
}

fn rows_are_scanned_by_prefix_and_from_a_key(store: &dyn Store) {
    let ops = (0..1_500u16).map(|n| put(Table::Turn, &[&b"p"[..], &n.to_be_bytes()].concat(), "v")).collect();
    let around = vec![put(Table::Turn, b"o", "before"), put(Table::Turn, b"q", "after"), put(Table::Used, b"p", "x")];
    append(store, &[batch(vec![], ops), batch(vec![], around)]);
    assert_eq!(rows_of(store, Table::Turn, b"p", None).len(), 1_500);
    assert_eq!(rows_of(store, Table::Turn, b"", None).len(), 1_502);
    let from = rows_of(store, Table::Turn, b"p", Some(&[b'p', 5, 0xdb]));
    assert_eq!((from.len(), from[0].0.as_slice()), (1, &[b'p', 5, 0xdb][..]));
    assert_eq!(rows_of(store, Table::Turn, b"p", Some(b"a")).len(), 1_500);
    assert_eq!(rows_of(store, Table::Turn, b"p", Some(b"q")), []);
    let mut visited = 0;
    store
        .scan_rows(Table::Turn, b"p", None, &mut |_, _| {
            visited += 1;
            if visited == 70 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .expect("scan");
    assert_eq!(visited, 70);
}

fn keys_that_begin_like_another_are_kept_apart(store: &dyn Store) {
    let keys: [&[u8]; 9] = [b"", b"\0", b"\0\0", b"\0\0\0", b"\0\x01", b"a", b"a\0", b"a\0\0", b"a\0\x01"];
    let large = bytes_of(100_000);
    let ops = keys.iter().map(|key| put(Table::Client, key, large.clone())).collect();
    append(store, &[batch(vec![], ops)]);
    let all = rows_of(store, Table::Client, b"", None);
    assert_eq!(all.iter().map(|(key, _)| key.as_slice()).collect::<Vec<_>>(), keys);
    assert!(all.iter().all(|(_, value)| *value == large));
    assert_eq!(rows_of(store, Table::Client, b"a\0", None).len(), 3);
    let last = store.last_row(Table::Client, b"\0", b"\0\0\0").expect("last").expect("a row");
    assert_eq!(last.0, b"\0\0\0");
    append(store, &[batch(vec![], vec![RowOp::Delete { table: Table::Client, key: b"a\0".to_vec() }])]);
    assert_eq!(rows_of(store, Table::Client, b"a", None).len(), 3);
}

fn the_last_row_is_found_within_its_bounds(store: &dyn Store) {
    let ops = [b"a1", b"a5", b"b0"].iter().map(|key| put(Table::Head, &key[..], "v")).collect();
    append(store, &[batch(vec![], ops)]);
    let last = |prefix: &[u8], upto: &[u8]| store.last_row(Table::Head, prefix, upto).expect("last").map(|(k, _)| k);
    assert_eq!(last(b"a", b"a9"), Some(b"a5".to_vec()));
    assert_eq!(last(b"a", b"a5"), Some(b"a5".to_vec()));
    assert_eq!(last(b"a", b"a4"), Some(b"a1".to_vec()));
    assert_eq!((last(b"a", b"a0"), last(b"a", b"Z"), last(b"c", b"c9")), (None, None, None));
    assert_eq!(last(b"a", b"zz"), Some(b"a5".to_vec()));
    assert_eq!(last(b"", b"zz"), Some(b"b0".to_vec()));
}

fn values_of_every_size_are_read_back(store: &dyn Store) {
    for (at, size) in SIZES.into_iter().enumerate() {
        let ops = vec![put(Table::Turn, &[at as u8], bytes_of(size))];
        append(store, &[batch(vec![event(2, bytes_of(size)), event(3, "small")], ops)]);
    }
    for (at, size) in SIZES.into_iter().enumerate() {
        assert_eq!(get(store, Table::Turn, &[at as u8]), Some(bytes_of(size).to_vec()), "a row of {size} bytes");
        let seq = at as u64 * 2 + 1;
        assert_eq!(line(store, seq - 1, seq), [(seq, 2, bytes_of(size))], "an action of {size} bytes");
        assert_eq!(store.last_of(ChannelId(2), seq + 1).expect("last_of"), Some(seq));
    }
    let sizes: Vec<usize> = rows_of(store, Table::Turn, b"", None).iter().map(|(_, value)| value.len()).collect();
    assert_eq!(sizes, SIZES);
    let last = store.last_row(Table::Turn, b"", &[9]).expect("last").expect("a row");
    assert_eq!((last.0, last.1.len()), (vec![6], 5 << 20));
    assert_eq!(numbers_of(store, 2, 0, ServerSeq::MAX), [1, 3, 5, 7, 9, 11, 13]);
    assert_eq!(numbers_of(store, 3, 0, ServerSeq::MAX), [2, 4, 6, 8, 10, 12, 14]);
}

fn large_rows_shrink_grow_and_go(store: &dyn Store) {
    for size in [300_000, 10, 200_000, 0, 100_000] {
        append(store, &[batch(vec![], vec![put(Table::Turn, b"k", bytes_of(size))])]);
        assert_eq!(rows_of(store, Table::Turn, b"", None), [(b"k".to_vec(), bytes_of(size).to_vec())]);
    }
    append(store, &[batch(vec![], vec![RowOp::Delete { table: Table::Turn, key: b"k".to_vec() }])]);
    assert_eq!(rows_of(store, Table::Turn, b"", None), []);
}

fn a_batch_that_cannot_be_stored_leaves_nothing(store: &dyn Store) {
    append(store, &[batch(vec![event(2, "a")], vec![])]);
    let good = batch(vec![event(2, "b")], vec![put(Table::Client, b"k", "v")]);
    let names_no_event = RowOp::PutWithSeq { table: Table::Client, key: b"k".to_vec(), event: 1, value: "v".into() };
    let other_name = NewEvent { channel: Channel::from("ahp-chat:/other"), ..event(2, "b") };
    for bad in [batch(vec![event(2, "b")], vec![names_no_event]), batch(vec![other_name], vec![])] {
        assert!(store.append(&[good.clone(), bad]).is_err());
        assert_eq!((store.tail(), get(store, Table::Client, b"k")), (1, None));
    }
    assert_eq!(append(store, &[good]), [2]);
}

fn channel_numbers_are_new_and_above_the_stored_ones(store: &dyn Store) {
    assert_eq!((store.new_channel_id(), store.new_channel_id()), (ChannelId(2), ChannelId(3)));
    append(store, &[batch(vec![event(40, "a")], vec![])]);
    assert_eq!(store.new_channel_id(), ChannelId(41));
    let row = put(Table::ChannelById, &channel_key(ChannelId(50)), uri(50).as_str().to_owned());
    append(store, &[batch(vec![], vec![row])]);
    assert_eq!(store.new_channel_id(), ChannelId(51));
}

/// What a store holds, kept in the plainest way.
#[derive(Default)]
struct Model {
    events: Vec<(u64, Bytes)>,
    rows: BTreeMap<Vec<u8>, Bytes>,
}

impl Model {
    fn append(&mut self, batches: &[Batch]) -> Vec<ServerSeq> {
        batches.iter().map(|batch| self.batch(batch)).collect()
    }

    fn batch(&mut self, batch: &Batch) -> ServerSeq {
        let first = self.events.len() as u64 + 1;
        self.events.extend(batch.events.iter().map(|e| (e.channel_id.0, e.action.clone())));
        for op in &batch.rows {
            match op {
                RowOp::Put { key, value, .. } => drop(self.rows.insert(key.clone(), value.clone())),
                RowOp::Delete { key, .. } => drop(self.rows.remove(key)),
                RowOp::PutKeyedBySeq { key, event, value, .. } => {
                    let key = [key, &(first + *event as u64).to_be_bytes()[..]].concat();
                    self.rows.insert(key, value.clone());
                }
                RowOp::PutWithSeq { key, event, value, .. } => {
                    let value = [&(first + *event as u64).to_be_bytes()[..], value].concat();
                    self.rows.insert(key.clone(), value.into());
                }
                RowOp::PutKeyedByLast { key, channel, value, .. } => {
                    let newest = self.numbers(channel.0).last().copied().unwrap_or(0);
                    self.rows.insert([key, &newest.to_be_bytes()[..]].concat(), value.clone());
                }
            }
        }
        first
    }

    fn numbers(&self, id: u64) -> Vec<ServerSeq> {
        (1..).zip(&self.events).filter(|(_, (channel, _))| *channel == id).map(|(seq, _)| seq).collect()
    }
}

fn erased_events_are_gone_and_the_rest_is_read_without_a_gap(store: &dyn Store) {
    interleave(store);
    let before = line(store, 0, ServerSeq::MAX);
    let (second, third) = (numbers_of(store, 2, 0, ServerSeq::MAX), numbers_of(store, 3, 0, ServerSeq::MAX));
    let said = Bytes::from_static(b"{\"type\":\"chat/silent\"}");
    let fate = |record: &Record| match record.seq {
        seq if Some(&seq) == second.first() => Fate::Says(said.clone()),
        seq if Some(&seq) == second.last() => Fate::Stays,
        _ => Fate::Goes,
    };
    assert_eq!(store.erase(ChannelId(2), &fate).expect("erased"), second.len() as u64 - 1);
    assert_eq!(store.erase(ChannelId(3), &|_| Fate::Goes).expect("erased"), third.len() as u64);
    assert_eq!(store.erase(ChannelId(99), &|_| Fate::Goes).expect("nothing"), 0);
    let kept = [second[0], *second.last().expect("events")];
    let expected: Vec<_> = before
        .iter()
        .filter(|(seq, id, _)| *id != 3 && (*id != 2 || kept.contains(seq)))
        .map(|(seq, id, action)| (*seq, *id, if *seq == second[0] { said.clone() } else { action.clone() }))
        .collect();
    assert_eq!(line(store, 0, ServerSeq::MAX), expected);
    assert_eq!(numbers_of(store, 2, 0, ServerSeq::MAX), kept);
    assert_eq!(numbers_of(store, 2, kept[0], ServerSeq::MAX), [kept[1]]);
    assert_eq!(store.last_of(ChannelId(3), ServerSeq::MAX).expect("none"), None);
    // Numbers go on, and a channel that lost its events has a first one again.
    let next = append(store, &[batch(vec![event(3, "x"), event(2, "y")], Vec::new())])[0];
    assert!(next > before.last().expect("events").0);
    assert_eq!(numbers_of(store, 3, 0, ServerSeq::MAX), [next]);
    assert_eq!(numbers_of(store, 2, 0, ServerSeq::MAX), [kept[0], kept[1], next + 1]);
    assert_eq!(line(store, 0, ServerSeq::MAX).len(), expected.len() + 2);
}

fn any_value() -> impl Strategy<Value = Bytes> {
    prop_oneof![6 => 0usize..60, 1 => 40_000usize..120_000].prop_map(bytes_of)
}

fn any_row(events: usize) -> impl Strategy<Value = RowOp> {
    let key = proptest::collection::vec(0u8..3, 0..3);
    let names_event = events > 0;
    (0..if names_event { 5 } else { 3 }, key, 0..events.max(1), 2u64..6, any_value()).prop_map(
        |(kind, key, event, channel, value)| {
            let table = Table::Head;
            match kind {
                0 => RowOp::Put { table, key, value },
                1 => RowOp::Delete { table, key },
                2 => RowOp::PutKeyedByLast { table, key, channel: ChannelId(channel), value },
                3 => RowOp::PutKeyedBySeq { table, key, event, value },
                _ => RowOp::PutWithSeq { table, key, event, value },
            }
        },
    )
}

fn any_batch() -> impl Strategy<Value = Batch> {
    proptest::collection::vec((2u64..6, any_value()), 0..5).prop_flat_map(|events| {
        let rows = proptest::collection::vec(any_row(events.len()), 0..5);
        rows.prop_map(move |rows| {
            let events = events.iter().map(|(id, action)| event(*id, action.clone())).collect();
            Batch { events, rows }
        })
    })
}

fn random_batches_match_a_simple_model<S: Store>(make: &impl Fn() -> S) {
    let appends = proptest::collection::vec(proptest::collection::vec(any_batch(), 0..4), 1..8);
    let mut runner = TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
    let result = runner.run(&(appends, 0u64..40, 0u64..40), |(appends, after, upto)| {
        let (store, mut model) = (make(), Model::default());
        for batches in &appends {
            prop_assert_eq!(append(&store, batches), model.append(batches));
        }
        let expected: Vec<_> = (1..).zip(&model.events).map(|(seq, (id, action))| (seq, *id, action.clone())).collect();
        prop_assert_eq!(line(&store, 0, ServerSeq::MAX), expected);
        let within = |seq: &u64| after < *seq && *seq <= upto;
        for id in 2..6 {
            let numbers = model.numbers(id);
            prop_assert_eq!(
                store.last_of(ChannelId(id), upto).ok(),
                Some(numbers.iter().copied().rfind(|n| *n <= upto))
            );
            let wanted: Vec<u64> = numbers.into_iter().filter(within).collect();
            prop_assert_eq!(numbers_of(&store, id, after, upto), wanted);
        }
        let rows: Vec<_> = model.rows.iter().map(|(k, v)| (k.clone(), v.to_vec())).collect();
        prop_assert_eq!(rows_of(&store, Table::Head, b"", None), rows);
        Ok(())
    });
    result.expect("the store and the model agree");
}
