//! What the store on disk does beyond the common suite: reopening, numbers, room, failed syncs, sizes.

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use super::*;
use crate::events::RowOp;
use crate::events::conformance::{self, batch, bytes_of, event, line, numbers_of, put, rows_of};
use crate::events::floor::{BLOCK, Floor, Found, MARGIN};

fn options() -> SledOptions {
    SledOptions { cache_capacity: 8 << 20, free: FreeSpace::fixed(u64::MAX), ..SledOptions::default() }
}

fn open(dir: &Path) -> SledStore {
    SledStore::open(dir, options()).expect("opens")
}

fn open_for(access: Access, dir: &Path) -> Result<SledStore, LogFault> {
    SledStore::open(dir, SledOptions { access, ..options() })
}

fn append(store: &SledStore, id: u64) -> Vec<ServerSeq> {
    store.append(&[batch(vec![event(id, "x")], vec![])]).expect("append")
}

fn floor_of(dir: &Path) -> Floor {
    match Floor::read(&dir.join(open::FLOOR)).expect("read") {
        Found::Floor(floor) => floor,
        other => panic!("no floor: {other:?}"),
    }
}

/// Every key and the size of its value as the engine has them.
fn stored_sizes(store: &SledStore) -> Vec<usize> {
    let all = store.engine().tree.range((std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)).expect("range");
    all.map(|entry| entry.expect("entry").1.len()).collect()
}

#[test]
fn it_does_what_every_store_must() {
    let root = TempDir::new().expect("a directory");
    let made = AtomicU32::new(0);
    conformance::run(|| {
        let dir = root.path().join(made.fetch_add(1, Ordering::Relaxed).to_string());
        fs::create_dir(&dir).expect("made");
        open(&dir)
    });
}

#[test]
fn what_was_appended_is_there_after_reopening_with_and_without_a_clean_close() {
    let dir = TempDir::new().expect("a directory");
    for round in 0..4u64 {
        let store = open(dir.path());
        assert_eq!((store.tail(), store.next_seq()), (round, round + 1));
        let rows = vec![put(Table::Client, &[round as u8], bytes_of(60_000))];
        store.append(&[batch(vec![event(2 + round, "x")], rows)]).expect("append");
        if round % 2 == 0 {
            store.close_clean().expect("closes");
        }
    }
    let store = open(dir.path());
    assert_eq!(
        line(&store, 0, 9).iter().map(|(seq, id, _)| (*seq, *id)).collect::<Vec<_>>(),
        [(1, 2), (2, 3), (3, 4), (4, 5)]
    );
    assert_eq!(rows_of(&store, Table::Client, b"", None).len(), 4);
    assert_eq!(store.new_channel_id(), ChannelId(6));
}

#[test]
fn a_channel_number_is_not_given_again_after_its_rows_are_gone() {
    let dir = TempDir::new().expect("a directory");
    let store = open(dir.path());
    let key = crate::events::rows::channel_key(ChannelId(9));
    store.append(&[batch(vec![], vec![put(Table::ChannelById, &key, "ahp-chat:/9")])]).expect("append");
    store.append(&[batch(vec![], vec![RowOp::Delete { table: Table::ChannelById, key }])]).expect("append");
    drop(store);
    assert_eq!(open(dir.path()).new_channel_id(), ChannelId(10));
}

#[test]
fn no_value_exceeds_the_cap_and_none_reaches_the_blobs() {
    let dir = TempDir::new().expect("a directory");
    let store = open(dir.path());
    for round in 0..60u8 {
        let rows = (0..20).map(|n| put(Table::Turn, &[round % 7, n], bytes_of(47_000 + usize::from(round) * 100)));
        let events = vec![event(2, bytes_of(500_000)), event(3, bytes_of(100))];
        store.append(&[batch(events, rows.collect())]).expect("append");
    }
    assert!(stored_sizes(&store).into_iter().all(|size| size <= pieces::VALUE_MAX));
    drop(store);
    let store = open(dir.path());
    assert_eq!(numbers_of(&store, 2, 0, 1_000).len(), 60);
    let blobs: Vec<_> = fs::read_dir(dir.path().join("log/blobs")).into_iter().flatten().collect();
    assert!(blobs.is_empty(), "{blobs:?}");
}

#[test]
fn a_full_disk_refuses_appends_lets_reads_go_on_and_ends_when_there_is_room() {
    let dir = TempDir::new().expect("a directory");
    let free = FreeSpace::fixed(u64::MAX);
    let store = SledStore::open(dir.path(), SledOptions { free: free.clone(), ..options() }).expect("opens");
    append(&store, 2);
    free.set((64 << 20) + 100);
    let fault = store.append(&[batch(vec![event(2, "x")], vec![])]).expect_err("no room");
    assert!(matches!(fault, LogFault::NoRoom { available, minimum, .. } if available < minimum), "{fault}");
    assert_eq!((numbers_of(&store, 2, 0, 9), store.next_seq()), (vec![1], 2));
    free.set(u64::MAX);
    assert_eq!(append(&store, 2), [2]);
}

#[test]
fn a_sync_that_fails_makes_the_store_read_only_and_hides_what_it_wrote() {
    let dir = TempDir::new().expect("a directory");
    let mut store = open(dir.path());
    let rows = vec![put(Table::Client, b"a", "old"), put(Table::Client, b"b", "old")];
    store.append(&[batch(vec![event(2, "x")], rows)]).expect("append");
    // fdatasync of this device is refused by the kernel.
    let tree = store.engine().tree.another();
    store.engine = ArcSwap::from_pointee(Engine { tree, synced: File::open("/dev/null").expect("opens") });
    let rows = vec![
        put(Table::Client, b"a", "new"),
        RowOp::Delete { table: Table::Client, key: b"b".to_vec() },
        put(Table::Client, b"c", "new"),
    ];
    let bad = [batch(vec![event(2, "y"), event(7, "z")], rows)];
    for _ in 0..2 {
        assert!(matches!(store.append(&bad), Err(LogFault::ReadOnly { .. })));
    }
    assert!(matches!(store.close_clean(), Err(LogFault::ReadOnly { .. })));
    assert_eq!((store.tail(), store.next_seq(), numbers_of(&store, 2, 0, 9)), (1, 2, vec![1]));
    assert_eq!(store.last_of(ChannelId(2), 9).expect("last_of"), Some(1));
    assert_eq!(store.last_of(ChannelId(7), 9).expect("last_of"), None);
    let old = [(b"a".to_vec(), b"old".to_vec()), (b"b".to_vec(), b"old".to_vec())];
    assert_eq!(rows_of(&store, Table::Client, b"", None), old);
    assert_eq!(rows_of(&store, Table::Client, b"b", None), old[1..]);
    assert_eq!(store.get(Table::Client, b"c").expect("get"), None);
    assert_eq!(store.last_row(Table::Client, b"", b"z").expect("last"), Some(old[1].clone()));
}

#[test]
fn numbers_are_reserved_before_they_are_used_and_well_ahead() {
    let dir = TempDir::new().expect("a directory");
    let store = open(dir.path());
    assert_eq!(floor_of(dir.path()), Floor { start: 1, end: 1 + BLOCK, ahead: false });
    for _ in 0..12 {
        let events = (0..1_000).map(|_| event(2, "x")).collect();
        store.append(&[batch(events, vec![])]).expect("append");
        let floor = floor_of(dir.path());
        assert!(floor.start <= store.tail() + 1 && store.next_seq() + MARGIN <= floor.end, "{floor:?}");
    }
    let events = (0..BLOCK * 3).map(|_| event(2, "x")).collect();
    store.append(&[batch(events, vec![])]).expect("append");
    assert!(store.next_seq() + MARGIN <= floor_of(dir.path()).end);
}

#[test]
fn after_a_crash_of_a_store_that_published_ahead_numbers_go_on_above_its_block() {
    let dir = TempDir::new().expect("a directory");
    let store = open(dir.path());
    append(&store, 2);
    store.publish_ahead().expect("durable");
    assert!(floor_of(dir.path()).ahead);
    drop(store);
    let store = open(dir.path());
    assert_eq!((store.tail(), store.next_seq()), (1, 2 + BLOCK));
    drop(store);
    // Nothing was appended, so the gap is still in doubt and must not be filled, crash or not.
    let store = open(dir.path());
    let next = store.next_seq();
    assert!(next >= 2 + BLOCK);
    store.close_clean().expect("closes");
    drop(store);
    let store = open(dir.path());
    assert_eq!(store.next_seq(), next);
    assert_eq!(append(&store, 2), [next]);
    assert_eq!(numbers_of(&store, 2, 0, ServerSeq::MAX), [1, next]);
    assert_eq!(line(&store, 0, ServerSeq::MAX).len(), 2);
    assert_eq!((line(&store, 1, next - 1).len(), store.last_of(ChannelId(2), next - 1).expect("last")), (0, Some(1)));
    store.close_clean().expect("closes");
    drop(store);
    assert_eq!(open(dir.path()).next_seq(), next + 1);
}

#[test]
fn a_clean_close_leaves_no_jump_and_refuses_appends() {
    let dir = TempDir::new().expect("a directory");
    let store = open(dir.path());
    store.publish_ahead().expect("durable");
    append(&store, 2);
    store.close_clean().expect("closes");
    assert!(matches!(store.append(&[batch(vec![event(2, "x")], vec![])]), Err(LogFault::ReadOnly { .. })));
    assert_eq!(numbers_of(&store, 2, 0, 9), [1]);
    assert_eq!(floor_of(dir.path()), Floor { start: 2, end: 2, ahead: false });
    drop(store);
    assert_eq!(open(dir.path()).next_seq(), 2);
}

#[test]
fn opening_for_reading_writes_no_floor_and_takes_no_appends() {
    let dir = TempDir::new().expect("a directory");
    assert!(open_for(Access::Read, dir.path()).is_err());
    assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 0);
    let store = open(dir.path());
    append(&store, 2);
    drop(store);
    let before = floor_of(dir.path());
    let store = open_for(Access::Read, dir.path()).expect("opens");
    assert_eq!(numbers_of(&store, 2, 0, 9), [1]);
    assert!(matches!(store.append(&[batch(vec![event(2, "x")], vec![])]), Err(LogFault::ReadOnly { .. })));
    assert!(store.close_clean().is_err() && store.publish_ahead().is_err());
    drop(store);
    assert_eq!(floor_of(dir.path()), before);
}

#[test]
fn a_scan_meets_an_append_that_runs_beside_it_whole_or_not_at_all() {
    let dir = TempDir::new().expect("a directory");
    let store = open(dir.path());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for _ in 0..40 {
                let rows = vec![put(Table::Client, b"n", "x"), put(Table::Client, b"m", "x")];
                store.append(&[batch(vec![event(2, "a"), event(3, "b"), event(2, "c")], rows)]).expect("append");
            }
        });
        while !writer.is_finished() {
            let seen = line(&store, 0, ServerSeq::MAX);
            assert_eq!(seen.len() % 3, 0);
            assert_ne!(rows_of(&store, Table::Client, b"", None).len(), 1);
        }
        writer.join().expect("no panic");
    });
    assert_eq!(store.tail(), 120);
}

#[test]
fn disk_bytes_counts_the_files_of_the_log() {
    let dir = TempDir::new().expect("a directory");
    let store = open(dir.path());
    append(&store, 2);
    assert!(store.disk_bytes() > 0);
}

#[test]
fn a_record_that_was_changed_under_way_is_named_by_its_place() {
    let dir = TempDir::new().expect("a directory");
    let store = open(dir.path());
    append(&store, 2);
    append(&store, 2);
    let key = keys::run(ChannelId(2), 2);
    let mut value = store.engine().tree.get(&key).expect("get").expect("a run").to_vec();
    let last = value.len() - 1;
    value[last] ^= 1;
    let mut changes = tree::Changes::default();
    changes.put(&key, &value).expect("put");
    store.engine().tree.apply(changes).expect("applied");
    let mut seen = 0;
    let mut count = |_: Record| {
        seen += 1;
        ControlFlow::Continue(())
    };
    let fault = store.scan_channel(ChannelId(2), 0, 9, &mut count).expect_err("damage").to_string();
    assert!(fault.starts_with("damaged record at event 2 of channel ahp-chat:/2: the checksum is"), "{fault}");
    assert_eq!(seen, 1);
}

#[test]
fn a_run_or_a_commit_that_is_gone_is_noticed() {
    let dir = TempDir::new().expect("a directory");
    let store = open(dir.path());
    for id in [2, 3, 2, 3, 2] {
        append(&store, id);
    }
    let scan = |after| store.scan(after, 9, &mut |_| ControlFlow::Continue(()));
    let scan_2 = |after| store.scan_channel(ChannelId(2), after, 9, &mut |_| ControlFlow::Continue(()));
    let remove = |key: &[u8]| {
        let mut changes = tree::Changes::default();
        changes.remove(key, 0, 1);
        store.engine().tree.apply(changes).expect("applied");
    };
    remove(&keys::run(ChannelId(2), 3));
    let fault = scan_2(0).expect_err("a gap").to_string();
    assert!(fault.contains("event 5 of channel ahp-chat:/2: it follows event 3, and 1 is the newest"), "{fault}");
    let fault = scan(0).expect_err("a gap").to_string();
    assert!(fault.contains("event 3 of channel ahp-chat:/2: its run is missing"), "{fault}");
    assert!(scan(3).is_ok());
    remove(&keys::directory(4));
    assert!(scan(3).expect_err("a gap").to_string().contains("commit 5: it follows event 4"));
    remove(&keys::run(ChannelId(2), 1));
    assert!(scan_2(0).is_err());
    remove(&keys::directory(5));
    assert!(scan(0).is_err());
}

#[test]
fn a_damaged_row_is_named_and_may_be_written_over() {
    let dir = TempDir::new().expect("a directory");
    let store = open(dir.path());
    let row = batch(vec![], vec![put(Table::Turn, b"k", bytes_of(200_000))]);
    store.append(&[row]).expect("append");
    let mut changes = tree::Changes::default();
    changes.remove(&keys::row(Table::Turn, b"k"), 2, 3);
    store.engine().tree.apply(changes).expect("applied");
    let fault = store.get(Table::Turn, b"k").expect_err("damage").to_string();
    assert_eq!(fault, "damaged record at row T k: piece 2 is missing");
    store.append(&[batch(vec![], vec![put(Table::Turn, b"k", "new")])]).expect("append");
    assert_eq!(rows_of(&store, Table::Turn, b"", None), [(b"k".to_vec(), b"new".to_vec())]);
}

/// Makes one of every two events of channel 2.
struct Pairs;

impl Compacting for Pairs {
    fn spans(
        &self,
        store: &dyn crate::events::Store,
        channel: ChannelId,
        upto: ServerSeq,
    ) -> Result<Vec<(ServerSeq, ServerSeq)>, String> {
        let mut all = Vec::new();
        let mut visit = |record: Record| {
            all.push(record.seq);
            ControlFlow::Continue(())
        };
        store.scan_channel(channel, 0, upto, &mut visit).map_err(|e| e.to_string())?;
        let pairs = all.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        Ok(pairs.filter(|_| channel == ChannelId(2)).collect())
    }

    fn one(&self, events: &[Record]) -> Result<bytes::Bytes, String> {
        Ok(events.iter().flat_map(|record| record.action.to_vec()).collect::<Vec<u8>>().into())
    }

    fn check(&self, _: &dyn crate::events::Store, _: &dyn crate::events::Store, _: ServerSeq) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn a_scan_that_runs_while_the_log_is_compacted_goes_on_with_the_log_that_it_began_with() {
    let dir = TempDir::new().expect("a directory");
    let store = open(dir.path());
    for _ in 0..6 {
        store.append(&[batch(vec![event(2, "x"), event(3, "y")], vec![])]).expect("append");
    }
    let mut seen = Vec::new();
    let mut visit = |record: Record| {
        if seen.is_empty() {
            std::thread::scope(|scope| scope.spawn(|| store.compact(&Pairs)).join())
                .expect("no panic")
                .expect("compacts");
        }
        seen.push(record.seq);
        ControlFlow::Continue(())
    };
    store.scan(0, 99, &mut visit).expect("scan");
    assert_eq!(seen, (1..=12).collect::<Vec<_>>());
    assert_eq!(numbers_of(&store, 2, 0, 99), [3, 7, 11]);
    assert_eq!(numbers_of(&store, 3, 0, 99), [2, 4, 6, 8, 10, 12]);
    // Appends, and the next start, go on with the copy.
    assert_eq!((append(&store, 2), store.tail()), (vec![13], 13));
    drop(store);
    let store = open(dir.path());
    assert_eq!(numbers_of(&store, 2, 0, 99), [3, 7, 11, 13]);
    assert_eq!(store.last_of(ChannelId(2), 10).expect("read"), Some(7));
    assert!(!dir.path().join(open::COMPACTING).exists());
}

#[test]
fn a_compaction_without_room_for_the_copy_is_refused() {
    let dir = TempDir::new().expect("a directory");
    let free = FreeSpace::fixed(u64::MAX);
    let store = SledStore::open(dir.path(), SledOptions { free: free.clone(), ..options() }).expect("opens");
    append(&store, 2);
    free.set((64 << 20) + 100);
    assert!(matches!(store.compact(&Pairs), Err(LogFault::NoRoom { .. })));
    free.set(u64::MAX);
    assert_eq!(store.compact(&Pairs).expect("compacts").folded, 0);
}
