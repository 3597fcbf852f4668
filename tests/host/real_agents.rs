//! Real agents against a stub model, where they are installed and asked for.
//!
//! `SCROLLBACK_TEST_AGENTS=1` runs them, after `scripts/install-test-agents.sh`; what they did is written into the table of
//! docs/agents.md. Without it this says what it skips. The model is `tests/agents/stub_model.py`, on loopback.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use scrollback::actors::agent::Agent;
use scrollback::actors::host::HostSettings;
use scrollback::agents::programs::{EndingSteps, Programs};
use scrollback::agents::{AgentLimits, Surroundings, configured};
use scrollback::config::Environment;
use scrollback::config::agents::read;
use scrollback::resources::Roots;
use serde_json::{Value, json};

use crate::harness::{Client, Options, TestHost, is_ending};

/// Set to `1`, the variable that asks for these.
pub const ASKED: &str = "SCROLLBACK_TEST_AGENTS";
/// Real agents take their time, on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(180);
const S: &str = "ahp-session:/real";

/// A real agent, and what to say so that it does something.
struct Real {
    name: &'static str,
    /// What was installed, with its version.
    what: &'static str,
    /// Its table of the configuration. `$AGENTS` is where agents are installed, `$HOME` an empty folder, `$STUB` the model.
    table: &'static str,
    /// Files of `$HOME`, by their path in it.
    files: &'static [(&'static str, &'static str)],
    /// What makes the stub use a tool that writes `$FILE`; empty for an agent that has no model.
    tool: &'static str,
}

const CODEX: &str = r#"model = "stub"
model_provider = "stub"
approval_policy = "untrusted"
sandbox_mode = "workspace-write"
check_for_update_on_startup = false
[model_providers.stub]
name = "Stub"
base_url = "$STUB/v1"
env_key = "STUB_API_KEY"
wire_api = "responses"
"#;

const OPENCODE: &str = r#"{"model":"stub/stub","small_model":"stub/stub","autoupdate":false,"share":"disabled",
"permission":{"edit":"ask","bash":"ask","webfetch":"deny"},"provider":{"stub":{"npm":"@ai-sdk/openai-compatible","name":"Stub",
"options":{"baseURL":"$STUB/v1","apiKey":"stub"},"models":{"stub":{"name":"Stub","limit":{"context":100000,"output":4000}}}}}}"#;

const ALL: [Real; 6] = [
    Real {
        name: "sdk",
        what: "@agentclientprotocol/sdk 1.9.0, example agent",
        table: r#"kind = "acp"
command = ["node", "$AGENTS/sdk/node_modules/@agentclientprotocol/sdk/dist/examples/agent.js"]"#,
        files: &[],
        tool: "",
    },
    Real {
        name: "codex",
        what: "@zed-industries/codex-acp 0.16.0",
        table: r#"preset = "codex"
command = ["$AGENTS/codex/node_modules/@zed-industries/codex-acp-linux-$ARCH/bin/codex-acp"]
env = { HOME = "$HOME", CODEX_HOME = "$HOME", STUB_API_KEY = "stub", OPENAI_API_KEY = "stub" }"#,
        files: &[("config.toml", CODEX)],
        tool: r#"USE_TOOL:exec_command:{"cmd":"touch $FILE"}"#,
    },
    Real {
        name: "claude-acp",
        what: "@agentclientprotocol/claude-agent-acp 0.49.0",
        table: r#"preset = "claude"
command = ["node", "$AGENTS/claude-acp/node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js"]
env = { HOME = "$HOME", CLAUDE_CONFIG_DIR = "$HOME/.claude", ANTHROPIC_BASE_URL = "$STUB", ANTHROPIC_API_KEY = "stub-key", ANTHROPIC_MODEL = "stub", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC = "1", DISABLE_TELEMETRY = "1", DISABLE_AUTOUPDATER = "1", DISABLE_ERROR_REPORTING = "1" }"#,
        files: &[],
        tool: r#"USE_TOOL:Write:{"file_path":"$FILE","content":"hi"}"#,
    },
    Real {
        name: "qwen",
        what: "@qwen-code/qwen-code 0.15.10",
        table: r#"preset = "qwen"
command = ["node", "$AGENTS/qwen/node_modules/.bin/qwen", "--auth-type", "openai", "--acp"]
env = { HOME = "$HOME", OPENAI_API_KEY = "stub", OPENAI_BASE_URL = "$STUB/v1", OPENAI_MODEL = "stub", QWEN_CODE_NO_RELAUNCH = "1" }"#,
        files: &[],
        tool: r#"USE_TOOL:write_file:{"file_path":"$FILE","content":"hi"}"#,
    },
    Real {
        name: "opencode",
        what: "opencode-ai 1.18.33",
        table: r#"preset = "opencode"
command = ["$AGENTS/opencode/node_modules/opencode-linux-$ARCH/bin/opencode", "acp"]
env = { HOME = "$HOME", OPENCODE_CONFIG = "$HOME/opencode.json", OPENCODE_DISABLE_AUTOUPDATE = "1", OPENCODE_DISABLE_MODELS_FETCH = "1", OPENCODE_DISABLE_DEFAULT_PLUGINS = "1", OPENCODE_DISABLE_LSP_DOWNLOAD = "1" }"#,
        files: &[("opencode.json", OPENCODE)],
        tool: r#"USE_TOOL:write:{"filePath":"$FILE","content":"hi"}"#,
    },
    Real {
        name: "claude",
        what: "Claude Code 2.1.332",
        table: r#"kind = "claude"
command = ["$AGENTS/claude/node_modules/@anthropic-ai/claude-code-linux-$ARCH/claude"]
model = "stub"
env = { HOME = "$HOME", CLAUDE_CONFIG_DIR = "$HOME/.claude", ANTHROPIC_BASE_URL = "$STUB", ANTHROPIC_API_KEY = "stub-key", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC = "1", DISABLE_TELEMETRY = "1", DISABLE_AUTOUPDATER = "1", DISABLE_ERROR_REPORTING = "1" }"#,
        files: &[],
        tool: r#"USE_TOOL:Write:{"file_path":"$FILE","content":"hi"}"#,
    },
];

/// The stub model, on a port of its own. It ends with this.
pub struct Stub {
    program: Child,
    pub url: String,
}

impl Stub {
    pub fn start(log: &Path) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agents/stub_model.py");
        let program = Command::new("python3").arg(script).arg(port.to_string()).arg(log).stderr(Stdio::null()).spawn();
        let program = program.expect("the stub model needs python3");
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::yield_now();
        }
        Self { program, url: format!("http://127.0.0.1:{port}") }
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// Where an agent is tried: an empty home, a folder to work in, and the data of its host.
struct Ground {
    root: tempfile::TempDir,
    stub: Stub,
    agents: PathBuf,
}

impl Ground {
    fn new(agents: &Path) -> Self {
        let root = tempfile::tempdir().unwrap();
        for folder in ["home", "work", "data"] {
            fs::create_dir(root.path().join(folder)).unwrap();
        }
        let stub = Stub::start(&root.path().join("stub.log"));
        Self { root, stub, agents: agents.to_owned() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().canonicalize().unwrap().join(name)
    }

    fn filled(&self, text: &str) -> String {
        let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
        text.replace("$AGENTS", &self.agents.to_string_lossy())
            .replace("$HOME", &self.path("home").to_string_lossy())
            .replace("$STUB", &self.stub.url)
            .replace("$ARCH", arch)
    }

    /// A host with the agent. The programs are ended when it has stopped.
    fn host(&self, real: &Real) -> (TestHost, Programs, Arc<dyn Agent>) {
        for (name, text) in real.files {
            fs::write(self.path("home").join(name), self.filled(text)).unwrap();
        }
        let table = format!("[agents.{}]\n{}", real.name, self.filled(real.table));
        let table: toml::Table = toml::from_str(&table).unwrap();
        let environment = Environment::of_process();
        let data = self.path("data");
        let programs = Programs::new(&environment, Some(&data), EndingSteps::default()).unwrap();
        let work = self.path("work");
        let surroundings = Surroundings {
            programs: programs.clone(),
            roots: Arc::new(Roots::new(std::slice::from_ref(&work), Some(&data))),
            data_directory: Some(data.clone()),
            limits: AgentLimits::default(),
        };
        let agent = configured(&read(&table["agents"]).unwrap(), &environment, &surroundings).remove(0);
        let settings = HostSettings {
            default_directory: format!("file://{}", work.display()),
            allowed_directories: vec![work],
            data_directory: Some(data.clone()),
            ..HostSettings::default()
        };
        let options = Options { settings, agents: vec![Arc::clone(&agent)], ..Options::default() };
        (TestHost::on_disk_with(&data, options), programs, agent)
    }
}

/// What one agent did, by what was asked of it.
type Results = Vec<(&'static str, String)>;

/// A client of a chat with a real agent.
struct Talk {
    client: Client,
    chat: String,
    turns: usize,
}

impl Talk {
    /// Says something and reads to the end of the turn; asks of tools are answered with `approve`. Returns the turn's
    /// ending, its text, and the notices in it.
    async fn say(&mut self, text: &str, approve: Option<bool>) -> (String, String, Vec<String>) {
        self.turns += 1;
        let turn = format!("t{}", self.turns);
        self.client.say(&self.chat, &turn, text).await;
        loop {
            let chat = self.chat.clone();
            let envelope = self.client.envelope(|e| e["channel"] == json!(chat)).await;
            let action = &envelope["action"];
            let waits = action["type"] == json!("chat/toolCallReady") && action.get("confirmed").is_none();
            if waits && let Some(approved) = approve {
                // Without an option the host takes the one that holds once: the next call asks again.
                let mut answer = json!({ "type": "chat/toolCallConfirmed", "turnId": turn,
                    "toolCallId": action["toolCallId"], "approved": approved });
                match approved {
                    true => answer["confirmed"] = json!("user-action"),
                    false => answer["reason"] = json!("denied"),
                }
                self.client.dispatch(&self.chat, answer).await;
            }
            if is_ending(action) && action["turnId"] == json!(turn) {
                let kind = action["type"].as_str().unwrap().trim_start_matches("chat/").to_owned();
                let kind = if kind == "error" { action["part"]["error"]["message"].to_string() } else { kind };
                return self.seen(&turn, kind).await;
            }
        }
    }

    async fn seen(&mut self, turn: &str, ending: String) -> (String, String, Vec<String>) {
        let state = self.client.subscribe(&self.chat).await["state"].clone();
        let turns = state["turns"].as_array().unwrap();
        let parts = turns.iter().find(|one| one["id"] == json!(turn)).unwrap()["responseParts"].clone();
        let of = |kind: &str| {
            let parts = parts.as_array().unwrap().iter().filter(|part| part["kind"] == json!(kind));
            parts.map(|part| part["content"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        (ending, of("markdown").join(""), of("systemNotification"))
    }
}

fn verdict(is_good: bool, good: &str, (ending, text, notices): &(String, String, Vec<String>)) -> String {
    match is_good {
        true => good.to_owned(),
        false => format!("FAILED: {ending}; {text:?}; {notices:?}"),
    }
}

/// The way that a conversation went on: the agent's own, or begun anew with the transcript.
fn way(notices: &[String]) -> &'static str {
    if notices.iter().any(|notice| notice.contains("transcript")) { "by transcript" } else { "its own" }
}

async fn tried(real: &Real, agents: &Path) -> Results {
    let ground = Ground::new(agents);
    let mut results = Results::new();
    let (host, programs, agent) = ground.host(real);
    let probe = agent.probe().await;
    results.push(("version", probe.version.or(probe.problem).unwrap_or_default()));
    let answers = |text: &str| real.tool.is_empty() || text.trim_end().ends_with("Hello from the stub model.");

    let mut client = host.client("c").await;
    client.patience = PATIENCE;
    let create = json!({ "channel": S, "provider": real.name });
    client.ask("createSession", create).await.unwrap();
    let chat = crate::harness::chat_of(S);
    client.subscribe(&chat).await;
    let mut talk = Talk { client, chat, turns: 0 };

    let said = talk.say("Say hello", Some(true)).await;
    results.push(("a turn", verdict(said.0 == "turnComplete" && answers(&said.1), "works", &said)));
    for (what, approve, name) in [("tool allowed", true, "allowed"), ("tool denied", false, "denied")] {
        let file = ground.path("work").join(name);
        let prompt = match real.tool {
            "" => "Go on".to_owned(),
            tool => tool.replace("$FILE", &file.to_string_lossy()),
        };
        let said = talk.say(&prompt, Some(approve)).await;
        // An agent may end a turn whose tool was denied.
        let ended = said.0 == "turnComplete" || (!approve && said.0 == "turnCancelled");
        let good = ended && (real.tool.is_empty() || file.exists() == approve);
        results.push((what, verdict(good, "works", &said)));
    }

    talk.client.say(&talk.chat, "slow", "SLOW please").await;
    talk.client.envelope(|e| e["action"]["type"] == json!("chat/delta")).await;
    let cancel = json!({ "type": "chat/turnCancelled", "turnId": "slow", "duration": 0 });
    talk.client.dispatch(&talk.chat, cancel).await;
    talk.client.until_ended("slow").await;
    let said = talk.say("Say hello again", Some(true)).await;
    results.push(("cancel", verdict(said.0 == "turnComplete" && answers(&said.1), "works", &said)));

    let Talk { client, chat, turns } = talk;
    drop(client);
    host.stop();
    programs.ended().await;
    let (host, programs, _) = ground.host(real);
    let mut client = host.client("d").await;
    client.patience = PATIENCE;
    client.subscribe(&chat).await;
    let mut talk = Talk { client, chat: chat.clone(), turns };
    let said = talk.say("Say hello after the restart", Some(true)).await;
    let good = said.0 == "turnComplete" && answers(&said.1);
    results.push(("resume", verdict(good, way(&said.2), &said)));

    let fork = json!({ "channel": S, "chat": "ahp-chat:/fork",
        "source": { "kind": "fork", "chat": chat, "turnId": "t1" } });
    results.push((
        "fork",
        match talk.client.ask("createChat", fork).await {
            Ok(_) => {
                talk.client.subscribe("ahp-chat:/fork").await;
                talk.chat = "ahp-chat:/fork".to_owned();
                let said = talk.say("Say hello in the fork", Some(true)).await;
                talk.chat = chat;
                verdict(said.0 == "turnComplete" && answers(&said.1), way(&said.2), &said)
            }
            Err(refused) => format!("FAILED: {refused}"),
        },
    ));

    let rewind = talk.client.dispatch(&talk.chat, json!({ "type": "chat/truncated", "turnId": "t1" })).await;
    let echo = talk.client.echo(rewind).await;
    results.push((
        "rewind",
        match echo.get("rejectionReason") {
            None => {
                let said = talk.say("Say hello after the rewind", Some(true)).await;
                verdict(said.0 == "turnComplete" && answers(&said.1), way(&said.2), &said)
            }
            Some(reason) => format!("FAILED: {reason}"),
        },
    ));
    drop(talk);
    host.stop();
    programs.ended().await;
    results
}

/// Writes the table into docs/agents.md, between its marks.
fn write_down(rows: &[(&Real, Results)]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/agents.md");
    let page = fs::read_to_string(&path).unwrap();
    let (begin, end) = ("<!-- real agents: begin -->\n", "<!-- real agents: end -->");
    let (before, rest) = page.split_once(begin).expect("docs/agents.md has a place for the table");
    let (_, after) = rest.split_once(end).unwrap();
    let date = Command::new("date").args(["-u", "+%F"]).output().unwrap();
    let date = String::from_utf8(date.stdout).unwrap();
    let heads: Vec<&str> = rows[0].1.iter().map(|(what, _)| *what).collect();
    let mut table = format!("Run on {}, against the stub model.\n\n| agent | {} |\n", date.trim(), heads.join(" | "));
    writeln!(table, "|{}", "---|".repeat(heads.len() + 1)).unwrap();
    for (real, results) in rows {
        let cells: Vec<String> =
            results.iter().map(|(_, result)| result.replace('|', "\\|").replace('\n', " ")).collect();
        writeln!(table, "| {} | {} |", real.what, cells.join(" | ")).unwrap();
    }
    fs::write(path, format!("{before}{begin}{table}{end}{after}")).unwrap();
}

#[allow(clippy::disallowed_methods)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether real agents are to be tried.
pub fn are_asked_for() -> bool {
    variable(ASKED).as_deref() == Some("1")
}

/// Where they are installed.
pub fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(".test-agents");
    assert!(folder.is_dir(), "run scripts/install-test-agents.sh first");
    folder
}

#[tokio::test]
async fn real_agents_do_what_the_table_in_the_pages_says() {
    if !are_asked_for() {
        println!("skipped: {} real agents, since {ASKED} is not 1", ALL.len());
        return;
    }
    let agents = folder();
    let only = variable("SCROLLBACK_TEST_AGENTS_ONLY");
    let mut rows = Vec::new();
    for real in ALL.iter().filter(|real| only.as_deref().is_none_or(|only| only.split(',').any(|one| one == real.name)))
    {
        println!("{}", real.what);
        let results = tried(real, &agents).await;
        for (what, result) in &results {
            println!("  {what}: {result}");
        }
        rows.push((real, results));
    }
    if only.is_none() {
        write_down(&rows);
    }
    let failed: Vec<Value> = rows
        .iter()
        .flat_map(|(real, results)| results.iter().map(move |(what, result)| (real.name, what, result)))
        .filter(|(_, _, result)| result.starts_with("FAILED"))
        .map(|failure| json!(failure))
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
}
