//! Copies of a host that is busy, and that is killed; and copies that are killed themselves.

use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::*;
use crate::command::scrollback;
use crate::harness::Random;

/// People who work until they are told to stop, or their host is gone.
struct Load {
    stop: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    fn begin(host: &Host, name: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let address = SocketAddr::from(([127, 0, 0, 1], host.port));
        let tasks = (0..2).map(|number| {
            let (stop, id) = (Arc::clone(&stop), format!("{name}{number}"));
            tokio::spawn(async move {
                // The host may be killed under it.
                let _ = tokio::spawn(works(address, id, stop)).await;
            })
        });
        let tasks = tasks.collect();
        Self { stop, tasks }
    }

    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

async fn works(address: SocketAddr, id: String, stop: Arc<AtomicBool>) {
    let mut client = Client::connect(address).await;
    client.initialize(&id, &[]).await;
    let session = format!("ahp-session:/{id}");
    let chat = client.create_session(&session).await;
    client.subscribe(&chat).await;
    let mut turn = 0;
    while !stop.load(Ordering::Relaxed) {
        turn += 1;
        let bytes = [turn as u8; 3_000];
        let sent = with("/words 30 1\n/tool read x", json!([embedded("x", "application/octet-stream", &bytes)]));
        client.dispatch(&chat, starts(&format!("t{turn}"), &sent)).await;
        client.until_ended(&format!("t{turn}")).await;
        if turn % 16 == 1 {
            let source = json!({ "kind": "fork", "chat": chat, "turnId": format!("t{turn}") });
            let fork = format!("ahp-chat:/{id}-{turn}");
            let _ = client.ask("createChat", json!({ "channel": session, "chat": fork, "source": source })).await;
        }
    }
}

/// Waits until `directory` has so many bytes more than now, or the program is over.
fn until_it_wrote(program: &mut Child, directory: &Path, bytes: u64) {
    let before = bytes_under(directory);
    while program.try_wait().unwrap().is_none() && bytes_under(directory) < before + bytes {
        std::thread::yield_now();
    }
}

/// Fails unless the copy has the states that the host had then.
#[track_caller]
fn has_the_states_of(place: &Place, copy: &Path, upto: u64) {
    place.is_sound(copy);
    let (mut then, mut now) = (place.states(&place.data, Some(upto)), place.states(copy, None));
    for states in [&mut then, &mut now] {
        states.get_mut("ahp-root://").unwrap()["fromSeq"] = json!(null);
    }
    assert_eq!(now, then);
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_of_a_busy_host_are_whole_at_one_number() {
    let place = Place::new();
    let host = place.host();
    let load = Load::begin(&host, "c");
    let backup = place.at("backup");
    let mut written = Vec::new();
    for round in 0..2 {
        let made = place.object("backup {} --data {}", &[&backup, &place.data]);
        written.push(made["written"].as_u64().unwrap());
        let (restored, file, imported) = (
            place.at(&format!("restored{round}")),
            place.at(&format!("{round}.jsonl")),
            place.at(&format!("imported{round}")),
        );
        place.object("restore {} --data {}", &[&backup, &restored]);
        has_the_states_of(&place, &restored, made["upto"].as_u64().unwrap());
        place.run("log export --data {} -o {}", &[&place.data, &file]).printed();
        let loaded = place.object("log import {} --data {}", &[&file, &imported]);
        has_the_states_of(&place, &imported, loaded["upto"].as_u64().unwrap());
    }
    load.end().await;
    assert_eq!(host.stop("TERM").0, 0);
    assert!(written.iter().all(|bytes| *bytes > 0), "{written:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_that_are_made_while_the_log_is_compacted_are_whole_at_one_number() {
    let place = Place::new();
    let host = place.host();
    let load = Load::begin(&host, "k");
    let backup = place.at("backup");
    let mut folded = 0;
    for round in 0..3 {
        // What is copied ends behind this moment, so that no compaction folds what stands at the end of the copy.
        let moment = scrollback::clock::rfc3339(scrollback::clock::Clock::system().now());
        let spawn = |args: &str, paths: &[&Path]| {
            let mut paths = paths.iter().map(|path| path.to_str().unwrap());
            let args = args.split(' ').map(|word| if word == "{}" { paths.next().unwrap() } else { word });
            let args: Vec<&str> = args.collect();
            scrollback(place.home.path(), &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        while place
            .run(&format!("log list --since {moment} --limit 1 --data {{}}"), &[&place.data])
            .printed()
            .is_empty()
        {
            std::thread::yield_now();
        }
        let compact = format!("log compact --before {moment} --json --data {{}}");
        let (restored, imported) = (place.at(&format!("restored{round}")), place.at(&format!("imported{round}")));
        let file = place.at(&format!("{round}.jsonl"));
        let compacting = spawn(&compact, &[&place.data]);
        let exporting = spawn("log export --json --data {} -o {}", &[&place.data, &file]);
        let made = place.object("backup {} --data {}", &[&backup, &place.data]);
        for program in [compacting, exporting] {
            let ran = Ran::from(program.wait_with_output().unwrap());
            assert_eq!(ran.status, 0, "{ran:?}");
            folded += ran.json_lines().first().map_or(0, |compacted| compacted["folded"].as_u64().unwrap_or(0));
        }
        place.object("restore {} --data {}", &[&backup, &restored]);
        has_the_states_of(&place, &restored, made["upto"].as_u64().unwrap());
        let loaded = place.object("log import {} --data {}", &[&file, &imported]);
        has_the_states_of(&place, &imported, loaded["upto"].as_u64().unwrap());
    }
    assert!(folded > 0);
    load.end().await;
    assert_eq!(host.stop("TERM").0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_of_the_host_and_of_the_backup_leave_a_whole_one() {
    let place = Place::new();
    let backup = place.at("backup");
    let mut random = Random::new(7);
    let mut newest = 0;
    for round in 0..3 {
        let host = place.host();
        let load = Load::begin(&host, &format!("r{round}-"));
        let made = place.object("backup {} --data {}", &[&backup, &place.data]);
        assert!(made["upto"].as_u64().unwrap() > newest, "{made}");
        newest = made["upto"].as_u64().unwrap();
        // One backup is killed at a random moment, and one loses its host.
        let args = ["backup", backup.to_str().unwrap(), "--data", place.data.to_str().unwrap()];
        let spawn = || {
            let mut command = scrollback(place.home.path(), &args);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let mut killed = spawn();
        until_it_wrote(&mut killed, &backup, random.below(80_000));
        let _ = killed.kill();
        killed.wait().unwrap();
        let mut orphan = spawn();
        until_it_wrote(&mut orphan, &backup, random.below(80_000));
        host.stop("KILL");
        orphan.wait().unwrap();
        load.end().await;
        let copy = place.at(&format!("copy{round}"));
        let restored = place.object("restore {} --data {}", &[&backup, &copy]);
        assert!(restored["upto"].as_u64().unwrap() >= newest, "{restored}");
        has_the_states_of(&place, &copy, restored["upto"].as_u64().unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_is_killed_leaves_no_data_directory_and_can_be_done_again() {
    let place = Place::new();
    place.fill().await;
    let (backup, copy) = (place.at("backup"), place.at("copy"));
    place.object("backup {} --data {}", &[&backup, &place.data]);
    let mut random = Random::new(8);
    for _ in 0..8 {
        let args = ["restore", backup.to_str().unwrap(), "--data", copy.to_str().unwrap()];
        let mut command = scrollback(place.home.path(), &args);
        let mut killed = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until_it_wrote(&mut killed, &copy, random.below(3_000_000));
        let _ = killed.kill();
        killed.wait().unwrap();
        if copy.join("FORMAT").exists() {
            place.is_sound(&copy);
            std::fs::remove_dir_all(&copy).unwrap();
        } else if copy.exists() {
            place.run("log list --data {}", &[&copy]).is_refused(1, &[copy.to_str().unwrap()]);
        }
    }
    place.object("restore {} --data {}", &[&backup, &copy]);
    place.is_sound(&copy);
}
