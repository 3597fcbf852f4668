//! Logs that leave a directory and come into another one, by the real binary: exports and imports, backups and restores.

mod backups;
mod exports;
mod points;
mod refused;
mod under_load;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::command::{Host, Ran, run};
use crate::harness::attaching::{embedded, starts, with};
use crate::harness::{Client, chat_of};

const S: &str = "ahp-session:/s";
const P: &str = "ahp-chat:/p";
/// Forks of the first chat, and of one that is erased.
const F: &str = "ahp-chat:/f";
const G: &str = "ahp-chat:/g";
const SECRET: &str = "a word that nobody knows";

/// A home with a data directory in it.
struct Place {
    home: TempDir,
    data: PathBuf,
}

impl Place {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let data = home.path().join("data");
        Self { home, data }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn host(&self) -> Host {
        Host::start(self.home.path(), &self.data, &[])
    }

    /// Runs a verb; `args` are separated by spaces, `{}` stands for each of `paths`.
    fn run(&self, args: &str, paths: &[&Path]) -> Ran {
        let mut paths = paths.iter();
        let mut take = || paths.next().unwrap().to_str().unwrap().to_owned();
        let args: Vec<String> =
            args.split(' ').map(|word| if word == "{}" { take() } else { word.to_owned() }).collect();
        run(self.home.path(), &args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The one object that a verb prints.
    #[track_caller]
    fn object(&self, args: &str, paths: &[&Path]) -> Value {
        let mut lines = self.run(&format!("{args} --json"), paths).json_lines();
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines.remove(0)
    }

    #[track_caller]
    fn events(&self, data: &Path) -> Vec<Value> {
        self.run("log list --data {} --json", &[data]).json_lines()
    }

    /// The state of every channel that `data` has at `at`, by URI.
    #[track_caller]
    fn states(&self, data: &Path, at: Option<u64>) -> BTreeMap<String, Value> {
        let channels = self.object("log stats --data {}", &[data])["channels"].as_array().unwrap().clone();
        let at = at.map(|at| format!(" --at {at}")).unwrap_or_default();
        let state = |uri: &str| self.run(&format!("log state {uri} --data {{}} --json{at}"), &[data]);
        let uris = channels.iter().map(|channel| channel["channel"].as_str().unwrap());
        let states = uris.map(|uri| (uri.to_owned(), state(uri)));
        // Those that had no events yet have no state.
        let there = states.filter(|(_, ran)| !ran.err.contains("had no events"));
        there.map(|(uri, ran)| (uri, ran.json_lines().remove(0))).collect()
    }

    #[track_caller]
    fn is_sound(&self, data: &Path) {
        let verdict = self.run("log verify --data {} --json", &[data]);
        assert!(verdict.status == 0 && verdict.out.contains("\"ok\":true"), "{verdict:?}");
    }

    /// Fills the data directory with all that a log may have: people, turns, a rewind, forks of chats that are there and that were
    /// erased, an attachment, a visual, a draft, a queue that waits.
    async fn fill(&self) {
        let host = self.host();
        let mut client = client_of(&host, "c").await;
        let chat = client.create_session(S).await;
        client.subscribe(&chat).await;
        for turn in ["t1", "t2", "t3"] {
            client.run(&chat, turn, &format!("/say {turn} says something")).await;
        }
        client.run(&chat, "v", "/visual Title <p>page</p>").await;
        let sent = with("/say kept", json!([embedded("x.bin", "application/octet-stream", &[7; 700_000])]));
        client.dispatch(&chat, starts("a", &sent)).await;
        client.until_ended("a").await;
        client.create_chat(S, P).await;
        client.subscribe(P).await;
        client.run(P, "p1", &format!("/say {SECRET}")).await;
        client.run(P, "p2", "/say to be dropped").await;
        let fork = |of: &str, turn: &str| json!({ "kind": "fork", "chat": of, "turnId": turn });
        for (name, source) in [(F, fork(&chat, "a")), (G, fork(P, "p1"))] {
            client.ask("createChat", json!({ "channel": S, "chat": name, "source": source })).await.unwrap();
        }
        client.accepted(&chat, json!({ "type": "chat/truncated", "turnId": "t2" })).await;
        client.accepted(&chat, json!({ "type": "chat/draftChanged", "draft": with("a draft", json!([])) })).await;
        client.hang_up().await;
        assert!(self.object("user add ada --role member --data {}", &[&self.data])["token"].is_string());
        self.run("log erase {} --yes --data {}", &[Path::new(P), &self.data]).printed();
        assert_eq!(host.stop("TERM").0, 0);
    }
}

/// A client of the real binary.
async fn client_of(host: &Host, id: &str) -> Client {
    let mut client = Client::connect(SocketAddr::from(([127, 0, 0, 1], host.port))).await;
    client.initialize(id, &[]).await;
    client
}

fn first_chat() -> String {
    chat_of(S)
}

/// Bytes of all files under a directory.
fn bytes_under(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => bytes_under(&entry.path()),
            found => found.map_or(0, |found| found.len()),
        })
        .sum()
}

/// Every file under a directory, with its permissions and those of the folders.
fn modes_under(directory: &Path) -> Vec<(PathBuf, u32)> {
    use std::os::unix::fs::PermissionsExt;

    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let mut modes = vec![(directory.to_owned(), mode(directory))];
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => modes.extend(modes_under(&entry.path())),
            false => modes.push((entry.path(), mode(&entry.path()))),
        }
    }
    modes
}

/// What must hold of what a log is copied into: it is its owner's alone. The engine's own files are behind a folder that is.
#[track_caller]
fn is_for_the_owner_alone(directory: &Path) {
    let of_the_engine = directory.join("log");
    let ours = |path: &Path| path == of_the_engine || !path.starts_with(&of_the_engine);
    for (path, mode) in modes_under(directory).into_iter().filter(|(path, _)| ours(path)) {
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
    }
}
