//! One short run of an agent's program, to learn what it can do: it is started, asked for a session that nobody uses, and ended.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol::v1::schema::{CloseSessionRequest, NewSessionRequest, SessionNotification, SessionUpdate};
use agent_client_protocol::{Error, ErrorCode, RawJsonRpcId, RawJsonRpcMessage, RawJsonRpcResponse};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Setup;
use super::known::{self, Known, Settings};
use super::live::{initialize_request, understood};
use super::pipe::{Reader, Said, Writer};
use super::problems::{self, STARTING};
use crate::actors::agent::Probe;
use crate::agents::programs::Running;

/// How long an agent that has opened its session is listened to for its commands.
const COMMANDS: Duration = Duration::from_secs(2);
/// How long the status of a program that has closed its output may take.
const LAST: Duration = Duration::from_secs(2);
/// How long the session's end may take.
const CLOSE: Duration = Duration::from_millis(500);

/// Probes the agent. What was found before stays where it does not start.
pub(super) async fn run(setup: Arc<Setup>) -> Probe {
    let (tell, told) = oneshot::channel();
    let programs = setup.surroundings.programs.clone();
    programs.spawn(async move {
        let _ = tell.send(probe(&setup).await);
    });
    told.await.unwrap_or_else(|_| Probe { version: None, problem: Some("the host is stopping".to_owned()) })
}

async fn probe(setup: &Setup) -> Probe {
    let max_start = setup.surroundings.limits.max_start;
    let found = timeout(max_start, look(setup)).await;
    let found = found.unwrap_or_else(|_| Err(format!("was not ready after {} s", max_start.as_secs_f64())));
    match found {
        Ok(known) => {
            let version = known.version.clone();
            setup.learn(|found| *found = known);
            Probe { version, problem: None }
        }
        Err(problem) => {
            let problem = format!("{} ({}) {problem}", setup.name, setup.program.command);
            Probe { version: setup.found.get().version, problem: Some(problem) }
        }
    }
}

/// An empty directory where there is one, so that no project is looked through.
fn directory(setup: &Setup) -> PathBuf {
    let own = setup.surroundings.data_directory.as_ref().map(|data| data.join("agents").join("probe"));
    let own = own.filter(|directory| std::fs::create_dir_all(directory).is_ok());
    own.unwrap_or_else(|| PathBuf::from("/"))
}

/// What the agent can do, or what is wrong with it, as a sentence about it.
async fn look(setup: &Setup) -> Result<Known, String> {
    let directory = directory(setup);
    let programs = &setup.surroundings.programs;
    let running = programs.start(&setup.program, &directory).map_err(|fault| format!("does not start: {fault}"))?;
    let Running { stdin, stdout, mut stderr, mut group } = running;
    let mut peer = Peer {
        reader: Reader::new(stdout, setup.surroundings.limits.max_message),
        writer: Writer::new(stdin),
        commands: None,
    };
    let found = peer.look(setup, directory).await;
    // Its input ends first.
    drop(peer);
    let problem = match found {
        Ok(known) => {
            group.end();
            return Ok(known);
        }
        Err(Trouble::Ended) => problems::ended(STARTING, timeout(LAST, group.exited()).await.ok().flatten()),
        Err(Trouble::Other(problem)) => problem,
    };
    group.end();
    stderr.last_words().await;
    Err(stderr.explain(&problem))
}

/// Why nothing was found.
enum Trouble {
    Ended,
    /// As a sentence about the agent.
    Other(String),
}

impl From<String> for Trouble {
    fn from(problem: String) -> Self {
        Self::Other(problem)
    }
}

struct Peer {
    reader: Reader,
    writer: Writer,
    commands: Option<Vec<known::Command>>,
}

impl Peer {
    async fn look(&mut self, setup: &Setup, directory: PathBuf) -> Result<Known, Trouble> {
        let failed = |error: &Error| format!("does not start: {}", problems::words(error));
        let answer = self.call("initialize", &initialize_request()).await?.map_err(|error| failed(&error))?;
        let answer = understood(answer)?;
        let mut known = Known::default();
        known.initialized(&answer);
        let opened = match self.call("session/new", &NewSessionRequest::new(directory)).await? {
            Ok(opened) => opened,
            Err(error) if error.code == ErrorCode::AUTH_REQUIRED => {
                let login = problems::login(&setup.name, &setup.program.command, &answer.auth_methods);
                return Err(format!("does not start: {login}").into());
            }
            Err(error) => return Err(failed(&error).into()),
        };
        known.settings = Settings::of(&opened);
        let waited = async {
            while self.commands.is_none() {
                self.listen().await?;
            }
            Ok::<(), Trouble>(())
        };
        let _ = timeout(COMMANDS, waited).await;
        known.commands = self.commands.take().unwrap_or_default();
        let closes = answer.agent_capabilities.session_capabilities.close.is_some();
        if let Some(session) = opened.get("sessionId").and_then(Value::as_str).filter(|_| closes) {
            let request = CloseSessionRequest::new(session.to_owned());
            let _ = timeout(CLOSE, self.call("session/close", &request)).await;
        }
        Ok(known)
    }

    /// Asks and waits for the answer.
    async fn call(&mut self, method: &str, params: &impl serde::Serialize) -> Result<Result<Value, Error>, Trouble> {
        let id = RawJsonRpcId::Number(self.writer.ask(method, params));
        loop {
            match self.listen().await? {
                Some(RawJsonRpcResponse::Result { id: of, result }) if of == id => return Ok(Ok(result)),
                Some(RawJsonRpcResponse::Error { id: of, error }) if of == id => {
                    return Ok(Err(error.into_acp_error()));
                }
                _ => {}
            }
        }
    }

    /// Takes what comes next; returns answers.
    async fn listen(&mut self) -> Result<Option<RawJsonRpcResponse>, Trouble> {
        while self.writer.has_output() {
            if self.writer.write().await.is_err() {
                break;
            }
        }
        match self.reader.read().await {
            Said::Message(RawJsonRpcMessage::Response(response)) => return Ok(Some(response)),
            Said::Message(RawJsonRpcMessage::Request(request)) => {
                self.writer.answer(request.id, Err(Error::method_not_found()));
            }
            Said::Message(RawJsonRpcMessage::Notification(notification)) => {
                let params = notification.params.map_or(Value::Null, |params| params.into_value());
                let said = serde_json::from_value::<SessionNotification>(params);
                if let Ok(SessionNotification { update: SessionUpdate::AvailableCommandsUpdate(update), .. }) = said {
                    self.commands = Some(known::commands(update.available_commands));
                }
            }
            Said::Nothing => {}
            Said::End => return Err(Trouble::Ended),
            Said::Fault(fault) => return Err(format!("is at fault: {fault}").into()),
        }
        Ok(None)
    }
}
