//! What the CLI can do here: asked of it once a start of the host, in a program that ends again at once.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::pipe::Pipe;
use super::settings::Model;
use super::wire::{self, Said};
use super::{Setup, launch};
use crate::actors::agent::{AgentCommand, Probe};

/// The id of the one request.
const REQUEST: &str = "probe";

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Knowledge {
    pub(super) models: Vec<Model>,
    commands: Vec<Command>,
    version: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Command {
    name: String,
    description: String,
    arguments: String,
}

impl Knowledge {
    fn of(answer: &Value) -> Self {
        let list = |key: &str| answer.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
        let word = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let model = |model: &Value| {
            let id = word(model, "value")?;
            let name = word(model, "displayName").unwrap_or_else(|| id.clone());
            Some(Model { id, name, description: word(model, "description").unwrap_or_default() })
        };
        let command = |command: &Value| {
            Some(Command {
                name: word(command, "name")?,
                description: word(command, "description").unwrap_or_default(),
                arguments: word(command, "argumentHint").unwrap_or_default(),
            })
        };
        Self {
            models: list("models").iter().filter_map(model).collect(),
            commands: list("commands").iter().filter_map(command).collect(),
            version: word(answer, "claude_code_version"),
        }
    }

    pub(super) fn commands(self) -> Vec<AgentCommand> {
        let command = |Command { name, description, arguments }| AgentCommand { name, description, arguments };
        self.commands.into_iter().map(command).collect()
    }
}

/// Asks the CLI on the threads of the programs.
pub(super) fn probe(setup: Arc<Setup>) -> BoxFuture<'static, Probe> {
    Box::pin(async move {
        let (tell, told) = oneshot::channel();
        let programs = setup.surroundings.programs.clone();
        programs.spawn(async move {
            let _ = tell.send(ask(&setup).await);
        });
        told.await.unwrap_or_else(|_| Probe { version: None, problem: Some("the host is stopping".to_owned()) })
    })
}

async fn ask(setup: &Setup) -> Probe {
    let problem = |problem: String| Probe { version: None, problem: Some(problem) };
    let started = setup.surroundings.programs.start(&launch::probed(&setup.program), launch::anywhere());
    let mut pipe = match started {
        Ok(running) => Pipe::new(running, setup.surroundings.limits.max_message),
        Err(fault) => return problem(fault.to_string()),
    };
    pipe.write(&wire::request(REQUEST, &json!({ "subtype": "initialize" })));
    let answer = timeout(setup.surroundings.limits.max_start, answered(&mut pipe)).await;
    match answer {
        Ok(Ok(answer)) => {
            let knowledge = Knowledge::of(&answer);
            let mut version = knowledge.version.clone();
            setup.known.set(knowledge);
            if version.is_none() {
                version = self::version(setup).await;
            }
            let version = version.map(|version| format!("Claude Code {version}"));
            Probe { version, problem: None }
        }
        Ok(Err(why)) => problem(pipe.stderr.explain(&format!("the program {why}"))),
        Err(_) => {
            let waited = humantime::format_duration(setup.surroundings.limits.max_start);
            problem(pipe.stderr.explain(&format!("the program was not ready after {waited}")))
        }
    }
}

async fn answered(pipe: &mut Pipe) -> Result<Value, String> {
    loop {
        if let Said::Answer { request, answer } = Said::of(&pipe.next().await?)
            && request == REQUEST
        {
            return answer.map_err(|problem| format!("refuses to begin: {problem}"));
        }
    }
}

/// What `--version` says, for versions that say it nowhere else.
async fn version(setup: &Setup) -> Option<String> {
    let mut program = setup.program.clone();
    program.arguments = vec!["--version".to_owned()];
    let running = setup.surroundings.programs.start(&program, launch::anywhere()).ok()?;
    let line = timeout(setup.surroundings.limits.max_start, first_line(running.stdout)).await.ok()??;
    Some(line.split(" (").next().unwrap_or_default().trim().to_owned()).filter(|version| !version.is_empty())
}

async fn first_line(output: tokio::process::ChildStdout) -> Option<String> {
    use tokio::io::AsyncReadExt as _;

    /// The longest version, in bytes.
    const VERSION: u64 = 200;
    let mut text = Vec::new();
    output.take(VERSION).read_to_end(&mut text).await.ok()?;
    String::from_utf8(text).ok()?.lines().next().map(str::to_owned)
}
