//! Runs the real binary: once, or as a host; and fills a data directory for it.

// Each test file uses its own part of this.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use scrollback::events::sled_store::{SledOptions, SledStore};
use scrollback::events::{Batch, Channel, ChannelId, DataDirectory, EventLog, HostFile, Kind, NewEvent, Origin};

/// The binary, in an environment that says nothing but where its user's home is.
pub fn scrollback(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scrollback"));
    command.env_clear().env("HOME", home).current_dir(home).args(args).stdin(Stdio::null());
    command
}

/// What a run left behind.
#[derive(Debug)]
pub struct Ran {
    pub status: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Runs the binary to its end.
pub fn run(home: &Path, args: &[&str]) -> Ran {
    scrollback(home, args).output().unwrap().into()
}

impl Ran {
    /// Fails unless it was refused with `status` and one line that holds all of `words`.
    #[track_caller]
    pub fn is_refused(&self, status: i32, words: &[&str]) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.out, "", "{self:?}");
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "{word} is missing in {self:?}");
        }
    }

    /// What a run that went well printed.
    #[track_caller]
    pub fn printed(self) -> String {
        assert_eq!((self.status, self.err.as_str()), (0, ""), "{self:?}");
        self.out
    }

    /// The JSON lines that a run that went well printed.
    #[track_caller]
    pub fn json_lines(self) -> Vec<serde_json::Value> {
        self.printed().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A running host. Ends with the test.
pub struct Host {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub port: u16,
}

impl Host {
    /// Starts a host on `data` at a free port, and returns when it said that it is ready.
    #[track_caller]
    pub fn start(home: &Path, data: &Path, more: &[&str]) -> Self {
        let mut command = scrollback(home, &["serve", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()]);
        Self::spawn(command.args(more))
    }

    /// Starts a host as `command` says.
    #[track_caller]
    pub fn spawn(command: &mut Command) -> Self {
        Self::spawn_logging(command, Stdio::piped())
    }

    /// Starts a host as `command` says, whose log goes to `log`.
    #[track_caller]
    pub fn spawn_logging(command: &mut Command, log: Stdio) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let Some(port) = line.strip_prefix("READY:") else {
            panic!("no READY line but {line:?}: {:?}", child.wait_with_output())
        };
        Self { port: port.trim_end().parse().unwrap(), child, stdout }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Sends `signal` and returns the exit status, and what it printed after its first line.
    pub fn stop(mut self, signal: &str) -> (i32, String) {
        let sent = Command::new("kill").args([&format!("-{signal}"), &self.pid().to_string()]).status().unwrap();
        assert!(sent.success());
        let status = self.child.wait().unwrap().code().unwrap_or(-1);
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        (status, rest)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The action that says how many sessions there are.
pub fn sessions(count: u64) -> String {
    format!(r#"{{"type":"root/activeSessionsChanged","activeSessions":{count}}}"#)
}

/// An event of the root channel, a minute after the one with the number before it.
pub fn event(number: u64, kind: Kind, principal: &str, action: String) -> NewEvent {
    NewEvent {
        channel: Channel::root(),
        channel_id: ChannelId::ROOT,
        kind,
        at: i64::try_from(number).unwrap() * 60_000,
        principal: principal.into(),
        origin: (principal != "host").then(|| Origin { client_id: "client \"one\"".into(), client_seq: 7 }),
        about: None,
        action: action.into(),
    }
}

/// The events of a log of the root channel: a record of the host, then `count - 1` actions, the even ones by ada.
pub fn events(count: u64) -> Vec<NewEvent> {
    let created = r#"{"type":"host/rootCreated","state":{"agents":[]}}"#.to_owned();
    let mut all = vec![event(1, Kind::Host, "host", created)];
    all.extend((2..=count).map(|number| {
        let principal = if number % 2 == 0 { "user:ada" } else { "host" };
        event(number, Kind::Action, principal, sessions(number))
    }));
    all
}

/// A data directory whose log holds [`events`].
pub fn filled(home: &Path, count: u64) -> PathBuf {
    let path = home.join("filled");
    let directory = DataDirectory::open_or_create(&path).unwrap();
    let store = SledStore::open(directory.path(), SledOptions::default()).unwrap();
    for part in events(count).chunks(1_000) {
        store.append(&[Batch { events: part.to_vec(), rows: Vec::new() }]).unwrap();
    }
    store.close_clean().unwrap();
    path
}

/// What the host of `data` says of itself.
pub fn host_file(data: &Path) -> HostFile {
    HostFile::read(data).unwrap().unwrap()
}
