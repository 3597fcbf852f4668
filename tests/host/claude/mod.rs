//! The Claude Code CLI behind chats: the program `fake_claude` in its place, which says what the real one was seen to say.

mod asks;
mod conversations;
mod misbehaving;
mod real;
mod turns;
mod workers;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use scrollback::actors::agent::Agent;
use scrollback::agents::programs::{EndingSteps, Programs};
use scrollback::agents::{self, AgentLimits, Surroundings};
use scrollback::config::Environment;
use scrollback::config::agents::{AgentConfig, AgentKind, ProgramConfig};
use scrollback::events::Store;
use scrollback::events::memory::MemoryStore;
use scrollback::resources::Roots;
use serde_json::{Value, json};

use crate::harness::{Client, Options, TestHost, chat_of, markdown, message};

const S: &str = "ahp-session:/s";

/// The program in the CLI's place, which is built beside the tests.
fn fake() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let examples = test.parent().and_then(Path::parent).unwrap().join("examples");
    let fake = examples.join("fake_claude");
    assert!(fake.exists(), "{} is not there: run cargo build --example fake_claude", fake.display());
    fake
}

/// How the agent is set up.
struct Setup {
    command: Vec<String>,
    env: Vec<(&'static str, String)>,
    limits: AgentLimits,
}

impl Default for Setup {
    fn default() -> Self {
        let command = vec![fake().display().to_string()];
        Self { command, env: Vec::new(), limits: AgentLimits::default() }
    }
}

/// A setup whose program misbehaves in this way.
fn that_is(how: &str) -> Setup {
    Setup { env: vec![("FAKE_CLAUDE", how.to_owned())], ..Setup::default() }
}

/// What outlives a host: the log, and the CLI's own conversations.
struct World {
    store: Arc<dyn Store>,
    home: tempfile::TempDir,
    programs: Programs,
}

impl World {
    fn new() -> Self {
        let steps = EndingSteps { terminate_after: Duration::from_millis(500), kill_after: Duration::from_millis(500) };
        let environment = Environment::of(&[("PATH", "/usr/bin:/bin")]);
        Self {
            store: Arc::new(MemoryStore::new().unwrap()),
            home: tempfile::tempdir().unwrap(),
            programs: Programs::new(&environment, None, steps).unwrap(),
        }
    }

    fn agent(&self, setup: Setup) -> Arc<dyn Agent> {
        let conversations = self.home.path().display().to_string();
        let mut env: std::collections::BTreeMap<String, String> =
            setup.env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        env.insert("CLAUDE_CONFIG_DIR".into(), conversations);
        let config = AgentConfig {
            name: "claude".into(),
            display_name: "Claude Code".into(),
            kind: AgentKind::Claude(ProgramConfig { command: setup.command, env, pass_env: Vec::new(), model: None }),
        };
        let surroundings = Surroundings {
            programs: self.programs.clone(),
            roots: Arc::new(Roots::new(&[], None)),
            data_directory: None,
            limits: setup.limits,
        };
        agents::configured(&[config], &Environment::of(&[]), &surroundings).remove(0)
    }

    fn host(&self, setup: Setup) -> TestHost {
        let agents = vec![agents::built_in(), self.agent(setup)];
        TestHost::start(Arc::clone(&self.store), Options { agents, ..Options::default() })
    }

    /// Loses the CLI's own conversations.
    fn forget(&self) {
        for file in std::fs::read_dir(self.home.path()).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
    }

    /// A host, a client of it, and a chat with the agent.
    async fn scene(&self, setup: Setup) -> Scene {
        let host = self.host(setup);
        let mut client = host.client("c").await;
        client.ask("createSession", json!({ "channel": S, "provider": "claude" })).await.unwrap();
        let chat = chat_of(S);
        client.subscribe(&chat).await;
        client.subscribe(S).await;
        Scene { client, chat, _host: host }
    }

    /// The same after a restart.
    async fn again(&self, setup: Setup) -> Scene {
        let host = self.host(setup);
        let mut client = host.client("c2").await;
        let chat = chat_of(S);
        client.subscribe(&chat).await;
        Scene { client, chat, _host: host }
    }
}

struct Scene {
    client: Client,
    chat: String,
    // The last to go: a host waits for who is connected.
    _host: TestHost,
}

impl Scene {
    /// Runs a turn to its end: the turn.
    async fn turn(&mut self, id: &str, text: &str) -> Value {
        self.client.say(&self.chat, id, text).await;
        self.client.until_ended(id).await;
        self.last().await
    }

    async fn state(&mut self) -> Value {
        self.client.subscribe(&self.chat).await["state"].clone()
    }

    /// The newest finished turn.
    async fn last(&mut self) -> Value {
        self.state().await["turns"].as_array().unwrap().last().unwrap().clone()
    }

    /// Runs a turn: its text.
    async fn says(&mut self, id: &str, text: &str) -> String {
        said(&self.turn(id, text).await)
    }

    /// What the CLI holds of the conversation before this turn.
    async fn history(&mut self, id: &str) -> Vec<String> {
        let said = self.says(id, "!history").await;
        serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said} is no history"))
    }

    async fn configure(&mut self, config: Value) {
        self.client.accepted(S, json!({ "type": "session/configChanged", "config": config })).await;
    }
}

fn said(turn: &Value) -> String {
    markdown(turn).join("|")
}

/// The tool calls of a turn.
fn calls(turn: &Value) -> Vec<Value> {
    let parts = turn["responseParts"].as_array().into_iter().flatten();
    parts.filter(|part| part["kind"] == json!("toolCall")).map(|part| part["toolCall"].clone()).collect()
}

/// The notices of a turn.
fn notices(turn: &Value) -> Vec<String> {
    let parts = turn["responseParts"].as_array().into_iter().flatten();
    let notices = parts.filter(|part| part["kind"] == json!("systemNotification"));
    notices.map(|notice| notice["content"].as_str().unwrap().to_owned()).collect()
}

fn error(turn: &Value) -> Value {
    let mut parts = turn["responseParts"].as_array().into_iter().flatten();
    parts.rfind(|part| part["kind"] == json!("error")).cloned().unwrap_or_default()
}

fn steer(id: &str, text: &str) -> Value {
    json!({ "type": "chat/pendingMessageSet", "kind": "steering", "id": id, "message": message(text) })
}
