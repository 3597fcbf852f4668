//! A disk that is full, and files that are not what was written.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use scrollback::events::FreeSpace;
use scrollback::events::sled_store::{SledOptions, SledStore};
use serde_json::{Value, json};

use crate::command::{filled, run};
use crate::harness::{Client, Options, TestHost, eventually, message, opened};

fn draft(text: &str) -> Value {
    json!({ "type": "chat/draftChanged", "draft": message(text) })
}

fn served(directory: &Path, options: SledOptions) -> TestHost {
    fs::create_dir_all(directory).unwrap();
    if directory.join("log").exists() {
        drop(opened(directory));
    }
    TestHost::start(Arc::new(SledStore::open(directory, options).unwrap()), Options::default())
}

/// Dispatches a draft; whether it was accepted, or told that the log takes nothing.
async fn keeps(client: &mut Client, chat: &str, text: &str) -> bool {
    let seq = client.dispatch(chat, draft(text)).await;
    let echo = client.echo(seq).await;
    match echo["rejectionReason"].as_str() {
        None => true,
        Some(reason) => {
            assert!(reason.starts_with("log-unavailable: "), "{echo}");
            false
        }
    }
}

#[tokio::test]
async fn a_full_disk_refuses_changes_serves_reads_and_goes_on_when_there_is_room() {
    let directory = tempfile::tempdir().unwrap();
    let free = FreeSpace::fixed(1 << 40);
    let host = served(directory.path(), SledOptions { free: free.clone(), ..SledOptions::default() });
    let mut a = host.client("a").await;
    let chat = a.create_session("ahp-session:/s").await;
    a.subscribe(&chat).await;
    assert!(keeps(&mut a, &chat, "before").await);
    a.say(&chat, "t1", "/words 100000 1").await;
    a.envelope(|e| e["action"]["type"] == json!("chat/delta")).await;

    free.set(0);
    while keeps(&mut a, &chat, "no room").await {}
    let mut b = host.client("b").await;
    assert_ne!(b.subscribe(&chat).await["state"]["draft"]["text"], json!("no room"));
    let refused = b.ask("createSession", json!({ "channel": "ahp-session:/more", "provider": "demo" })).await;
    assert_eq!(refused.unwrap_err()["data"]["code"], json!("log-unavailable"));

    free.set(1 << 40);
    // The turn goes on, or it is over: what was lost with it was nobody's to see.
    while !keeps(&mut a, &chat, "after").await {}
    if a.subscribe(&chat).await["state"].get("activeTurn").is_some() {
        a.cancel(&chat, "t1").await;
        a.until_ended("t1").await;
    }
    a.say(&chat, "t2", "hello").await;
    let end = a.until_ended("t2").await.pop().unwrap();
    assert_eq!(end["action"]["type"], json!("chat/turnComplete"));
}

/// A file system in memory of its own size, which goes with the test.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` where this user may not mount, with a word why.
    fn mounted(mib: u32) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "scrollback-test"]).arg(directory.path());
        match mount.output() {
            Ok(output) if output.status.success() => Some(Self(directory)),
            Ok(output) => {
                eprintln!("skipped: no tmpfs here: {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(error) => {
                eprintln!("skipped: no tmpfs here: {error}");
                None
            }
        }
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    /// Fills the disk to the last byte.
    fn fill(&self) {
        let mut ballast = fs::File::create(self.ballast()).unwrap();
        while std::io::Write::write_all(&mut ballast, &[0; 4_096]).is_ok() {}
    }

    fn ballast(&self) -> PathBuf {
        self.0.path().join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn a_real_disk_that_fills_up_stops_the_log_before_it_is_full() {
    let Some(disk) = SmallDisk::mounted(64) else { return };
    let host = served(&disk.data(), SledOptions { min_free: 16 << 20, ..SledOptions::default() });
    let mut a = host.client("a").await;
    let chat = a.create_session("ahp-session:/s").await;
    a.subscribe(&chat).await;
    assert!(keeps(&mut a, &chat, "before").await);
    disk.fill();
    assert!(!keeps(&mut a, &chat, "no room").await);
    assert_eq!(a.subscribe(&chat).await["state"]["draft"]["text"], json!("before"));
    fs::remove_file(disk.ballast()).unwrap();
    assert!(keeps(&mut a, &chat, "after").await);
    host.stop();
    let host = served(&disk.data(), SledOptions { min_free: 16 << 20, ..SledOptions::default() });
    assert_eq!(host.client("b").await.subscribe(&chat).await["state"]["draft"]["text"], json!("after"));
}

#[tokio::test]
async fn a_write_that_meets_a_full_disk_loses_nothing_that_was_accepted() {
    let Some(disk) = SmallDisk::mounted(64) else { return };
    let options = SledOptions { min_free: 0, free: FreeSpace::fixed(u64::MAX), ..SledOptions::default() };
    let host = served(&disk.data(), options.clone());
    let mut a = host.client("a").await;
    let chat = a.create_session("ahp-session:/s").await;
    a.subscribe(&chat).await;
    disk.fill();
    let mut kept = 0;
    while keeps(&mut a, &chat, &format!("{kept} {}", "x".repeat(100_000))).await {
        kept += 1;
    }
    let state = a.subscribe(&chat).await["state"].clone();
    if kept > 0 {
        assert!(state["draft"]["text"].as_str().unwrap().starts_with(&format!("{} ", kept - 1)));
    }
    assert!(!keeps(&mut a, &chat, "still no room").await, "what failed is not tried again");
    fs::remove_file(disk.ballast()).unwrap();
    host.stop();
    let host = served(&disk.data(), options);
    let mut b = host.client("b").await;
    assert_eq!(b.subscribe(&chat).await["state"], state);
    assert!(keeps(&mut b, &chat, "after").await);
}

/// The files of a data directory, without the notes that the engine replaces at will.
fn files(data: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(data).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else if !path.file_name().unwrap().to_string_lossy().starts_with("snap.") {
            all.push(path);
        }
    }
    all.sort();
    all
}

fn assert_kept(before: &[PathBuf], data: &Path) {
    assert_eq!(files(data), before);
}

fn refused(home: &Path, data: &Path, words: &[&str]) {
    let data = data.to_str().unwrap();
    run(home, &["serve", "--listen", "127.0.0.1:0", "--data", data]).is_refused(1, words);
    let verified = run(home, &["log", "verify", "--data", data]);
    assert_eq!(verified.status, 1, "{verified:?}");
    let said = format!("{}{}", verified.out, verified.err);
    assert_eq!(said.lines().count(), 1, "{verified:?}");
    assert!(words.iter().all(|word| said.contains(word)), "{verified:?}");
}

#[test]
fn a_log_file_that_was_cut_is_refused_in_one_line_and_nothing_is_deleted() {
    let home = tempfile::tempdir().unwrap();
    let data = filled(home.path(), 2_000);
    let db = data.join("log/db");
    let length = fs::metadata(&db).unwrap().len();
    for cut in [length / 2, 4_096, 0] {
        fs::OpenOptions::new().write(true).open(&db).unwrap().set_len(cut).unwrap();
        let before = files(&data);
        refused(home.path(), &data, &[data.to_str().unwrap()]);
        assert_kept(&before, &data);
    }
}

#[test]
fn a_flipped_bit_in_an_event_is_refused_in_one_line_and_nothing_is_deleted() {
    let home = tempfile::tempdir().unwrap();
    let data = filled(home.path(), 2_000);
    let db = data.join("log/db");
    let bytes = fs::read(&db).unwrap();
    let wanted = br#""activeSessions":1234}"#;
    let places: Vec<usize> =
        bytes.windows(wanted.len()).enumerate().filter(|(_, found)| found == wanted).map(|(at, _)| at).collect();
    assert!(!places.is_empty());
    let file = fs::OpenOptions::new().write(true).open(&db).unwrap();
    for place in places {
        let at = place + wanted.len() - 2;
        file.write_all_at(&[bytes[at] ^ 1], at as u64).unwrap();
    }
    let before = files(&data);
    refused(home.path(), &data, &[data.to_str().unwrap()]);
    assert_kept(&before, &data);
}

#[tokio::test]
async fn a_turn_gets_its_ending_when_the_disk_takes_appends_again() {
    let directory = tempfile::tempdir().unwrap();
    let free = FreeSpace::fixed(1 << 40);
    let host = served(directory.path(), SledOptions { free: free.clone(), ..SledOptions::default() });
    let mut a = host.client("a").await;
    let chat = a.create_session("ahp-session:/s").await;
    a.subscribe(&chat).await;
    a.say(&chat, "t1", "/sleep 1\nthe end is lost").await;
    a.envelope(|e| e["action"]["type"] == json!("chat/turnStarted")).await;
    free.set(0);
    eventually("the agent is gone", || !keeps_room(&host)).await;
    free.set(1 << 40);
    let end = a.until_ended("t1").await.pop().unwrap();
    assert!(end["action"]["duration"].as_i64().unwrap() >= 0);
}

fn keeps_room(host: &TestHost) -> bool {
    host.host.store().accepts_appends().is_ok()
}
