//! Real files that were damaged: what opens then, and what is said.
//!
//! Each case gets a copy of one directory that was closed in order, so its floor names the newest event. Whatever is
//! done to the copy: no panic, no file gone, and either a fault or all events as they were written.

use std::fs::{self, OpenOptions};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::test_runner::{Config, TestRunner};
use tempfile::TempDir;

use super::*;
use crate::events::DataDirectory;
use crate::events::conformance::{batch, bytes_of, event, line, put};

/// Events of the original, over five channels.
const EVENTS: u64 = 300;

fn options(access: Access) -> SledOptions {
    SledOptions { access, cache_capacity: 8 << 20, free: FreeSpace::fixed(u64::MAX), ..SledOptions::default() }
}

fn open(dir: &Path) -> Result<SledStore, LogFault> {
    SledStore::open(dir, options(Access::Write))
}

fn action(seq: u64) -> Vec<u8> {
    let length = if seq.is_multiple_of(50) { 100_000 } else { 200 };
    [seq.to_string().as_bytes(), &bytes_of(length)].concat()
}

/// A data directory with [`EVENTS`] events in commits of four, closed in order.
fn original() -> TempDir {
    let dir = TempDir::new().expect("a directory");
    drop(DataDirectory::open_or_create(dir.path()).expect("made"));
    let store = open(dir.path()).expect("opens");
    for first in (1..=EVENTS).step_by(4) {
        let events = (first..first + 4).map(|seq| event(2 + seq % 5, action(seq))).collect();
        let rows = vec![put(Table::Head, &first.to_be_bytes(), "row")];
        store.append(&[batch(events, rows)]).expect("append");
    }
    store.close_clean().expect("closes");
    dir
}

/// A copy of a directory, in a directory of its own.
fn copy_of(original: &Path) -> TempDir {
    let copy = TempDir::new().expect("a directory");
    copy_into(original, copy.path());
    copy
}

fn copy_into(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("read") {
        let entry = entry.expect("entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir(&target).expect("made");
            copy_into(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("copied");
        }
    }
}

/// The names of all files but the engine's own notes, which it replaces at will.
fn names(dir: &Path) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> = ["FORMAT", "floor", "lock", "log/conf", "log/db"].iter().map(PathBuf::from).collect();
    names.retain(|name| dir.join(name).exists());
    names
}

/// Opens a damaged store and reads all of it: the events that it gave, or the fault.
fn read_all(dir: &Path) -> Result<Vec<(ServerSeq, u64, bytes::Bytes)>, LogFault> {
    let store = open(dir)?;
    let mut seen = Vec::new();
    store.scan(0, ServerSeq::MAX, &mut |r| {
        seen.push((r.seq, r.channel_id.0, r.action));
        ControlFlow::Continue(())
    })?;
    for id in 1..8 {
        let mut of_channel = Vec::new();
        store.scan_channel(ChannelId(id), 0, ServerSeq::MAX, &mut |r| {
            of_channel.push(r.seq);
            ControlFlow::Continue(())
        })?;
        let expected: Vec<_> = seen.iter().filter(|(_, channel, _)| *channel == id).map(|(seq, _, _)| *seq).collect();
        assert_eq!(of_channel, expected, "channel {id} and the line differ");
    }
    store.scan_rows(Table::Head, b"", None, &mut |_, _| ControlFlow::Continue(()))?;
    Ok(seen)
}

/// What must hold of a damaged copy. Returns the fault's text, if there was one.
fn is_told_or_whole(dir: &Path) -> Option<String> {
    let before = names(dir);
    let result = read_all(dir);
    assert_eq!(names(dir), before, "files are gone");
    match result {
        Err(fault) => Some(fault.to_string()),
        Ok(events) => {
            let expected: Vec<_> = (1..=EVENTS).map(|seq| (seq, 2 + seq % 5, action(seq).into())).collect();
            assert_eq!(events, expected, "events are missing or changed, and nothing was said");
            None
        }
    }
}

fn assert_one_line(text: &str) {
    assert!(!text.contains('\n') && text.len() < 600, "{text}");
}

#[test]
fn a_truncated_log_is_told_or_whole_at_every_length() {
    let original = original();
    let length = fs::metadata(original.path().join("log/db")).expect("there").len();
    for part in 0..24 {
        let copy = copy_of(original.path());
        let file = OpenOptions::new().write(true).open(copy.path().join("log/db")).expect("opens");
        // Also lengths that are no multiple of anything.
        file.set_len(length * part / 24 + part % 3).expect("cut");
        drop(file);
        if let Some(text) = is_told_or_whole(copy.path()) {
            assert_one_line(&text);
        }
    }
}

#[test]
fn flipped_bits_of_the_log_are_told_or_do_no_harm() {
    let original = original();
    // Beyond its last byte that is not zero the file has nothing to damage.
    let bytes = fs::read(original.path().join("log/db")).expect("read");
    let length = bytes.iter().rposition(|byte| *byte != 0).expect("some bytes") as u64 + 1;
    let mut runner = TestRunner::new(Config { cases: 64, failure_persistence: None, ..Config::default() });
    let flips = proptest::collection::vec((0..length, 0u8..8), 1..6);
    let result = runner.run(&flips, |flips| {
        let copy = copy_of(original.path());
        let file = OpenOptions::new().read(true).write(true).open(copy.path().join("log/db")).expect("opens");
        for (at, bit) in flips {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).expect("read");
            file.write_all_at(&[byte[0] ^ (1 << bit)], at).expect("written");
        }
        drop(file);
        is_told_or_whole(copy.path());
        Ok(())
    });
    result.expect("told or whole");
}

#[test]
fn a_missing_log_file_is_refused_and_not_made_anew() {
    let copy = original();
    fs::remove_file(copy.path().join("log/db")).expect("removed");
    let text = is_told_or_whole(copy.path()).expect("a fault");
    assert!(text.contains("the log's file log/db is missing; nothing was deleted: `scrollback log verify`"), "{text}");
    assert!(!copy.path().join("log/db").exists());
    fs::remove_dir_all(copy.path().join("log")).expect("removed");
    assert!(open(copy.path()).is_err());
}

#[test]
fn an_empty_log_file_is_told_from_a_new_store() {
    let copy = original();
    fs::write(copy.path().join("log/db"), "").expect("emptied");
    let text = is_told_or_whole(copy.path()).expect("a fault");
    assert!(text.contains("the store came back short: its newest event is 0, but numbers from 301 on"), "{text}");
}

#[test]
fn an_older_copy_of_the_log_beside_a_newer_floor_is_refused() {
    let copy = original();
    let older = copy_of(&copy.path().join("log"));
    let store = open(copy.path()).expect("opens");
    store.append(&[batch(vec![event(2, "newer")], vec![])]).expect("append");
    store.close_clean().expect("closes");
    drop(store);
    fs::copy(older.path().join("db"), copy.path().join("log/db")).expect("copied");
    let fault = open(copy.path()).err().expect("a fault");
    assert!(matches!(fault, LogFault::Short { found: 300, promised: 302, .. }), "{fault}");
}

#[test]
fn a_missing_or_garbage_floor_is_refused_and_kept() {
    let copy = original();
    let floor = copy.path().join("floor");
    for garbage in [&b""[..], b"scrollback-floor 1\nstart 1\n", &[0xff; 64]] {
        fs::write(&floor, garbage).expect("written");
        let text = is_told_or_whole(copy.path()).expect("a fault");
        assert!(text.contains("its file floor is damaged") && text.contains("restore"), "{text}");
        assert_eq!(fs::read(&floor).expect("read"), garbage);
    }
    let salvaged = SledStore::open(copy.path(), options(Access::Salvage)).expect("opens");
    assert_eq!(line(&salvaged, 0, ServerSeq::MAX).len() as u64, EVENTS);
    drop(salvaged);
    fs::remove_file(&floor).expect("removed");
    let text = is_told_or_whole(copy.path()).expect("a fault");
    assert!(text.contains("its file floor is missing beside a log that has events"), "{text}");
    assert!(!floor.exists());
}

#[test]
fn a_directory_without_format_is_refused() {
    let copy = original();
    fs::remove_file(copy.path().join("FORMAT")).expect("removed");
    let text = DataDirectory::open_or_create(copy.path()).expect_err("refused").to_string();
    assert!(text.contains("its file FORMAT is missing; nothing was changed"), "{text}");
}

#[test]
fn a_making_that_was_interrupted_says_that_nothing_is_lost() {
    let dir = TempDir::new().expect("a directory");
    fs::create_dir(dir.path().join("log")).expect("made");
    fs::write(dir.path().join("log/db"), vec![7; 5_000_000]).expect("written");
    if let Err(fault) = open(dir.path()) {
        assert!(fault.to_string().contains("it holds no events"), "{fault}");
    }
}

/// The variable that makes the test below the child which appends until it is killed.
const CHILD: &str = "SCROLLBACK_TEST_APPENDS_IN";

#[test]
#[allow(clippy::disallowed_methods)]
fn a_process_that_was_killed_while_it_appended_loses_nothing_that_was_acknowledged() {
    if let Ok(dir) = std::env::var(CHILD) {
        return append_until_killed(Path::new(&dir));
    }
    let dir = TempDir::new().expect("a directory");
    let name = "events::sled_store::damage_tests::\
                a_process_that_was_killed_while_it_appended_loses_nothing_that_was_acknowledged";
    let mut acknowledged = 0;
    for round in 1..=3u64 {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args([name, "--exact", "--nocapture"])
            .env(CHILD, dir.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("started");
        while acknowledged_in(dir.path()) < acknowledged + 20 * round {
            assert!(child.try_wait().expect("asked").is_none(), "the child ended by itself");
            std::thread::yield_now();
        }
        child.kill().expect("killed");
        child.wait().expect("ended");
        acknowledged = acknowledged_in(dir.path());
        let store = open(dir.path()).expect("opens");
        let events = line(&store, 0, ServerSeq::MAX);
        assert!(store.tail() >= acknowledged, "{} of {acknowledged}", store.tail());
        assert!(events.iter().zip(1..).all(|((seq, _, bytes), n)| *seq == n && *bytes == action(n)));
    }
}

/// Appends, and notes the newest number that was acknowledged in a file.
fn append_until_killed(dir: &Path) {
    let store = open(dir).expect("opens");
    let note = OpenOptions::new().create(true).append(true).open(dir.join("acknowledged")).expect("opens");
    loop {
        let seq = store.next_seq();
        store.append(&[batch(vec![event(2 + seq % 5, action(seq))], vec![])]).expect("append");
        std::io::Write::write_all(&mut &note, &seq.to_be_bytes()).expect("noted");
    }
}

fn acknowledged_in(dir: &Path) -> u64 {
    let bytes = fs::read(dir.join("acknowledged")).unwrap_or_default();
    bytes.chunks_exact(8).next_back().map_or(0, |last| u64::from_be_bytes(last.try_into().expect("eight bytes")))
}
