//! One run of an agent's program: from its start to its end.
//!
//! One loop waits for all that can happen, and none of it holds up the rest: the program is read only while the chat takes
//! what it says and it takes what it is told itself; a stop and a close are heard always.
//!
//! Always: what arrives for a turn that was stopped goes nowhere, whatever the agent says of it; a question to people is
//! answered once, at the latest when its turn ends; and the program is ended when this run is dropped.

mod hearing;
mod opening;
mod telling;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol::v1::schema::{AgentCapabilities, AuthMethod, CloseSessionRequest};
use agent_client_protocol::{Error, RawJsonRpcId};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until, timeout};

use super::known::Settings;
use super::pipe::{Reader, Said, Writer};
use super::problems;
use super::process::Chat;
use super::turn::Turn;
use crate::actors::agent::{AgentEvent, AgentInput, AgentSink, Ending};
use crate::agents::programs::{Group, Running, Tail};
pub(super) use opening::{initialize_request, understood};

/// How long the rest of what a program wrote is waited for when it has exited, or takes nothing any more.
const REST: Duration = Duration::from_secs(2);
/// How long a session's end may take at the agent.
const CLOSE: Duration = Duration::from_millis(500);
/// Requests of a program that are worked on at once.
const MAX_WORKS: usize = 16;

/// How a run of the program ended.
pub(super) enum Over {
    /// The chat closed it, or is gone itself.
    Closed,
    /// It ended while nobody waited for it; why.
    Down(String),
    /// It failed somebody.
    Gone(String),
}

/// Something that happens.
enum Happening {
    Input(Option<AgentInput>),
    /// The chat is gone.
    Left,
    /// The chat, or the program, took something.
    Moved,
    /// The program does not take what it is sent.
    Deaf,
    Said(Said),
    Worked(RawJsonRpcId, Result<Value, Error>),
    Exited,
    Due,
}

/// How far the program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Starting,
    /// An old conversation is loaded: its history is said again.
    Loading,
    Ready,
}

/// A request that the program has not answered.
enum Asked {
    Initialize,
    Resume,
    Load,
    New,
    Set { id: String, value: Value },
    Prompt,
    Close,
}

/// The run.
struct Live<'a> {
    chat: &'a mut Chat,
    writer: Writer,
    group: Group,
    stderr: Tail,
    stage: Stage,
    asked: HashMap<i64, Asked>,
    agent: AgentCapabilities,
    logins: Vec<AuthMethod>,
    /// The conversation, once it is open.
    session: Option<String>,
    settings: Settings,
    /// The model was chosen by a message and not by the configuration.
    chosen_model: bool,
    /// It was opened as an old one, and nothing has shown yet that the agent knows it.
    is_trusted: bool,
    /// What the agent said of the history while it was loaded.
    replayed: usize,
    /// Why the first prompt begins with the transcript.
    transcript: Option<String>,
    /// What the next turn is told.
    notices: Vec<String>,
    turn: Option<Turn>,
    /// The ids of calls of earlier turns, as the agent names them.
    old_calls: HashSet<String>,
    /// A turn has ended in this run.
    has_served: bool,
    used: Option<u64>,
    /// Requests of the program that are worked on elsewhere.
    works: usize,
    done: UnboundedSender<(RawJsonRpcId, Result<Value, Error>)>,
    /// Since when a message cannot be handed over, and whether somebody was told.
    busy_since: Option<Instant>,
    told_slow: bool,
    cancel_by: Option<Instant>,
    /// The program has exited, or is deaf; its output is read until then. While it is not read, that is put off.
    drain_by: Option<Instant>,
}

/// Runs the program until it is over. What was said by then is in the chat's `out`.
pub(super) async fn run(chat: &mut Chat, inputs: &mut UnboundedReceiver<AgentInput>, events: &AgentSink) -> Over {
    let directory = chat.directories.first().cloned().unwrap_or_else(|| PathBuf::from("/"));
    let setup = Arc::clone(&chat.setup);
    let surroundings = &setup.surroundings;
    let Running { stdin, stdout, stderr, group } = match surroundings.programs.start(&setup.program, &directory) {
        Ok(running) => running,
        Err(fault) => return Over::Gone(format!("{} does not start: {fault}", setup.name)),
    };
    let mut reader = Reader::new(stdout, surroundings.limits.max_message);
    let (done, mut works) = unbounded_channel();
    let mut live = Live::new(chat, Writer::new(stdin), group, stderr, done);
    live.initialize();
    loop {
        let due = live.due();
        let reads = live.reads();
        let since = Instant::now();
        let happening = tokio::select! {
            biased;
            input = inputs.recv() => Happening::Input(input),
            () = events.closed() => Happening::Left,
            Ok(room) = events.reserve(), if !live.chat.out.is_empty() => {
                if let Some(event) = live.chat.out.pop_front() {
                    room.send(event);
                }
                Happening::Moved
            }
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => Happening::Due,
            written = live.writer.write(), if live.writer.has_output() && live.drain_by.is_none() => {
                if written.is_ok() { Happening::Moved } else { Happening::Deaf }
            }
            Some((id, result)) = works.recv() => Happening::Worked(id, result),
            said = reader.read(), if reads => Happening::Said(said),
            _ = live.group.exited(), if live.drain_by.is_none() => Happening::Exited,
        };
        if !reads {
            live.put_off(since.elapsed());
        }
        if let Err(over) = live.take(happening).await {
            if matches!(over, Over::Closed) {
                live.close(&mut reader).await;
            }
            return over;
        }
    }
}

impl<'a> Live<'a> {
    fn new(
        chat: &'a mut Chat,
        writer: Writer,
        group: Group,
        stderr: Tail,
        done: UnboundedSender<(RawJsonRpcId, Result<Value, Error>)>,
    ) -> Self {
        Self {
            chat,
            writer,
            group,
            stderr,
            stage: Stage::Starting,
            asked: HashMap::new(),
            agent: AgentCapabilities::default(),
            logins: Vec::new(),
            session: None,
            settings: Settings::default(),
            chosen_model: false,
            is_trusted: true,
            replayed: 0,
            transcript: None,
            notices: Vec::new(),
            turn: None,
            old_calls: HashSet::new(),
            has_served: false,
            used: None,
            works: 0,
            done,
            busy_since: Some(Instant::now()),
            told_slow: false,
            cancel_by: None,
            drain_by: None,
        }
    }

    async fn take(&mut self, happening: Happening) -> Result<(), Over> {
        match happening {
            Happening::Input(None | Some(AgentInput::Close)) | Happening::Left => Err(Over::Closed),
            Happening::Input(Some(input)) => {
                self.told(input);
                Ok(())
            }
            Happening::Moved => Ok(()),
            Happening::Said(Said::Message(message)) => self.heard(message),
            Happening::Said(Said::Nothing) => Ok(()),
            Happening::Said(Said::Fault(fault)) => Err(self.failed(&format!("is at fault: {fault}")).await),
            Happening::Said(Said::End) => {
                let status = timeout(REST, self.group.exited()).await.ok().flatten();
                Err(self.exited(status).await)
            }
            Happening::Worked(id, result) => {
                self.works -= 1;
                self.writer.answer(id, result);
                Ok(())
            }
            Happening::Exited | Happening::Deaf => {
                self.drain_by = Some(Instant::now() + REST);
                Ok(())
            }
            Happening::Due => self.overdue().await,
        }
    }

    /// Whether the program is read: not while anybody is behind. One that takes nothing any more is behind for good.
    fn reads(&self) -> bool {
        let takes = self.drain_by.is_some() || !self.writer.is_full();
        self.chat.out.is_empty() && takes && self.works < MAX_WORKS
    }

    /// The program was not read for this long.
    fn put_off(&mut self, waited: Duration) {
        self.drain_by = self.drain_by.map(|at| at + waited);
    }

    fn due(&self) -> Option<Instant> {
        let limits = &self.chat.setup.surroundings.limits;
        let slow = self.slow();
        let late = self.busy().map(|since| since + limits.max_start);
        let drained = self.drain_by.filter(|_| self.reads());
        [slow, late, self.cancel_by, drained].into_iter().flatten().min()
    }

    /// Since when a message cannot be handed over. While a turn runs, that is what it waits for.
    fn busy(&self) -> Option<Instant> {
        self.busy_since.filter(|_| self.turn.is_none())
    }

    /// When the message that waits is told that it does.
    fn slow(&self) -> Option<Instant> {
        let waits = self.busy().filter(|_| !self.told_slow && !self.chat.waiting.is_empty());
        waits.map(|since| since + self.chat.setup.surroundings.limits.slow_start)
    }

    async fn overdue(&mut self) -> Result<(), Over> {
        let limits = self.chat.setup.surroundings.limits.clone();
        let now = Instant::now();
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.drain_by) {
            let status = self.group.status();
            return Err(self.exited(status).await);
        }
        if is_due(self.cancel_by) {
            let name = &self.chat.setup.name;
            tracing::warn!(agent = name, "a turn that was stopped did not end in time: its program is ended");
            if let Some(turn) = self.turn.take() {
                self.over(turn, Ending::Cancelled);
            }
            return Err(Over::Down(format!("{} was ended, since it did not stop a turn", self.chat.setup.name)));
        }
        if is_due(self.busy().map(|since| since + limits.max_start)) {
            let problem = format!("was not ready after {} s", limits.max_start.as_secs_f64());
            return Err(self.failed(&problem).await);
        }
        let is_slow = is_due(self.slow());
        if let Some(prompt) = self.chat.waiting.front().filter(|_| is_slow) {
            self.told_slow = true;
            let turn_id = prompt.turn_id.clone();
            let text = format!("{} is still starting.", self.chat.setup.display_name);
            self.chat.out.push_back(AgentEvent::Notice { turn_id, text });
        }
        Ok(())
    }

    /// It exited, or closed its output. A message that it was not prompted with is for its next run; but a program that
    /// has ended no turn in this one might end in the next one too, and so on for ever.
    async fn exited(&mut self, status: Option<ExitStatus>) -> Over {
        let can_go_on = self.has_served && self.stage == Stage::Ready && self.turn.is_none();
        let when = match (self.stage, &self.turn) {
            (Stage::Ready, Some(_)) => "in the middle of a turn",
            (Stage::Ready, None) => "by itself",
            _ => problems::STARTING,
        };
        match self.failed(&problems::ended(when, status)).await {
            Over::Gone(problem) if can_go_on => Over::Down(problem),
            over => over,
        }
    }

    /// It goes no further.
    async fn failed(&mut self, problem: &str) -> Over {
        let setup = Arc::clone(&self.chat.setup);
        self.stderr.last_words().await;
        let problem = format!("{} ({}) {problem}", setup.name, setup.program.command);
        let problem = self.stderr.explain(&problem);
        match self.turn.take() {
            Some(turn) if turn.cancelled => {
                self.over(turn, Ending::Cancelled);
                return Over::Down(problem);
            }
            Some(_) => return Over::Gone(problem),
            None => {}
        }
        if self.stage != Stage::Ready || !self.chat.waiting.is_empty() {
            return Over::Gone(problem);
        }
        tracing::warn!(problem, "the program of an agent ended while nothing was asked of it");
        Over::Down(problem)
    }

    /// Writes what waits for the agent, with a stop of the turn that runs, and tells it that its session is not needed any
    /// more.
    async fn close(&mut self, reader: &mut Reader) {
        if let Some(turn_id) = self.turn.as_ref().map(Turn::id) {
            self.cancel(&turn_id);
        }
        let session = self.session.clone().filter(|_| self.agent.session_capabilities.close.is_some());
        let close = session.map(|session| {
            let id = self.ask("session/close", &CloseSessionRequest::new(session), Asked::Close);
            RawJsonRpcId::Number(id)
        });
        let closed = async {
            while self.writer.has_output() || close.is_some() {
                let said = tokio::select! {
                    biased;
                    written = self.writer.write(), if self.writer.has_output() => match written {
                        Ok(()) => continue,
                        Err(_) => return,
                    },
                    said = reader.read() => said,
                };
                match said {
                    Said::Message(message) if close.is_some() && message.response_id() == close.as_ref() => return,
                    Said::Message(_) | Said::Nothing => {}
                    Said::End | Said::Fault(_) => return,
                }
            }
        };
        let _ = timeout(CLOSE, closed).await;
    }

    fn ask(&mut self, method: &str, params: &impl serde::Serialize, asked: Asked) -> i64 {
        let id = self.writer.ask(method, params);
        self.asked.insert(id, asked);
        id
    }
}
