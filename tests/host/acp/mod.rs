//! ACP agents, as clients of the host see them: against a program of ours that does what real ones were seen to do.

mod conversations;
mod settings;
mod starts;
mod stops;
mod turns;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use scrollback::actors::agent::{Agent, Probe};
use scrollback::actors::host::HostSettings;
use scrollback::agents::programs::{EndingSteps, Programs};
use scrollback::agents::{AgentLimits, Surroundings, configured};
use scrollback::config::{Environment, agents};
use scrollback::resources::Roots;
use serde_json::{Value, json};

use crate::harness::{Client, Options, TestHost, chat_of, eventually};

const S: &str = "ahp-session:/s";
/// The NAME of the agent's table.
const FAKE: &str = "fake";

/// Where a test's agent runs: its program, its files, and what is found out about it.
pub struct Rig {
    /// The working directory, with a place for each file beside it.
    pub folder: tempfile::TempDir,
    pub programs: Programs,
    pub limits: AgentLimits,
    command: Vec<String>,
    more: String,
}

impl Rig {
    /// With the fake agent, able to do this.
    pub fn new(abilities: &[&str]) -> Self {
        let command = std::iter::once(fake().display().to_string());
        Self::of(command.chain(abilities.iter().map(|ability| (*ability).to_owned())).collect())
    }

    /// The same, with conversations that outlive it.
    pub fn lasting(abilities: &[&str]) -> Self {
        let mut rig = Self::new(abilities);
        let state = rig.folder.path().join("state");
        std::fs::create_dir(&state).unwrap();
        rig.command.push(format!("state={}", state.display()));
        rig
    }

    /// With any program.
    pub fn of(command: Vec<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("work")).unwrap();
        let steps = EndingSteps { terminate_after: Duration::from_millis(300), kill_after: Duration::from_millis(300) };
        let environment = Environment::of(&[("PATH", "/usr/bin:/bin"), ("HOME", "/nowhere"), ("SECRET", "hidden")]);
        let programs = Programs::new(&environment, None, steps).unwrap();
        let mut rig = Self { folder, programs, limits: AgentLimits::default(), command, more: String::new() };
        let notes = rig.path("notes");
        if rig.command[0].ends_with("fake_acp") {
            rig.command.push(format!("notes={}", notes.display()));
        }
        rig
    }

    /// Adds lines to the agent's table.
    pub fn with(mut self, lines: &str) -> Self {
        writeln!(self.more, "{lines}").unwrap();
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    pub fn work(&self) -> PathBuf {
        self.path("work")
    }

    /// What the fake agent wrote down.
    pub fn notes(&self) -> Vec<String> {
        let notes = std::fs::read_to_string(self.path("notes")).unwrap_or_default();
        notes.lines().map(str::to_owned).collect()
    }

    pub async fn noted(&self, line: &str) {
        eventually(line, || self.notes().iter().any(|note| note == line)).await;
    }

    pub fn agent(&self) -> Arc<dyn Agent> {
        let command = toml::Value::from(self.command.clone());
        let table = format!("[agents.{FAKE}]\nkind = \"acp\"\ncommand = {command}\n{}", self.more);
        let table: toml::Table = toml::from_str(&table).unwrap();
        let configs = agents::read(&table["agents"]).unwrap();
        let environment = Environment::of(&[("PASSED", "on"), ("SECRET", "hidden")]);
        let surroundings = Surroundings {
            programs: self.programs.clone(),
            roots: Arc::new(Roots::new(&[self.work()], None)),
            data_directory: Some(self.path("data")),
            limits: self.limits.clone(),
        };
        configured(&configs, &environment, &surroundings).remove(0)
    }

    pub async fn probe(&self) -> (Arc<dyn Agent>, Probe) {
        let agent = self.agent();
        let found = agent.probe().await;
        (agent, found)
    }

    pub fn options(&self, agent: Arc<dyn Agent>) -> Options {
        let settings = HostSettings { allowed_directories: vec![self.work()], ..HostSettings::default() };
        Options { settings, agents: vec![agent], ..Options::default() }
    }

    /// A host in memory.
    pub fn host(&self) -> TestHost {
        TestHost::with(self.options(self.agent()))
    }

    /// A host over data that stays.
    pub fn host_on_disk(&self, directory: &Path) -> TestHost {
        TestHost::on_disk_with(directory, self.options(self.agent()))
    }

    /// A client with the session's first chat open.
    pub async fn open(&self, host: &TestHost) -> (Client, String) {
        self.open_with(host, json!({})).await
    }

    pub async fn open_with(&self, host: &TestHost, config: Value) -> (Client, String) {
        let mut client = host.client("c").await;
        let work = format!("file://{}", self.work().display());
        let params = json!({ "channel": S, "provider": FAKE, "workingDirectories": [work], "config": config });
        client.ask("createSession", params).await.unwrap();
        client.subscribe(&chat_of(S)).await;
        client.subscribe(S).await;
        (client, chat_of(S))
    }
}

/// The fake agent's program.
fn fake() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let debug = test.parent().unwrap().parent().unwrap();
    let fake = debug.join("examples").join("fake_acp");
    assert!(fake.exists(), "{} is not there: run cargo build --example fake_acp", fake.display());
    fake
}

/// A turn as it stands when it has ended.
async fn turn(client: &mut Client, chat: &str, id: &str, text: &str) -> Value {
    client.run(chat, id, text).await;
    ended(client, chat, id).await
}

/// The turn with this id among those that have ended.
async fn ended(client: &mut Client, chat: &str, id: &str) -> Value {
    let state = client.subscribe(chat).await["state"].clone();
    let turns = state["turns"].as_array().unwrap();
    turns.iter().find(|turn| turn["id"] == json!(id)).unwrap_or_else(|| panic!("{id} has not ended: {state}")).clone()
}

fn parts<'a>(turn: &'a Value, kind: &str) -> Vec<&'a Value> {
    let parts = turn["responseParts"].as_array().unwrap().iter();
    parts.filter(|part| part["kind"] == json!(kind)).collect()
}

/// What the agent answered, as one text.
fn said(turn: &Value) -> String {
    parts(turn, "markdown").iter().map(|part| part["content"].as_str().unwrap()).collect()
}

fn calls(turn: &Value) -> Vec<Value> {
    parts(turn, "toolCall").iter().map(|part| part["toolCall"].clone()).collect()
}

fn notices(turn: &Value) -> Vec<String> {
    parts(turn, "systemNotification").iter().map(|part| part["content"].as_str().unwrap().to_owned()).collect()
}

/// The type and the words of the error that ended the turn.
fn error(turn: &Value) -> (String, String) {
    let parts = parts(turn, "error");
    let error = &parts.last().unwrap_or_else(|| panic!("no error: {turn}"))["error"];
    (error["errorType"].as_str().unwrap().to_owned(), error["message"].as_str().unwrap().to_owned())
}
