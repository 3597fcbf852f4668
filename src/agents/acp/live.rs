//! One run of an agent's program: from its start to its end.
//!
//! One loop waits for all that can happen, and none of it holds up the rest: the program is read only while the chat takes
//! what it says and it takes what it is told itself; a stop and a close are heard always.
//!
//! Always: what arrives for a turn that was stopped goes nowhere, whatever the agent says of it; a question to people is
//! answered once, at the latest when its turn ends; and the program is ended when this run is dropped.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, AuthMethod, AvailableCommandsUpdate, BooleanConfigOptionCapabilities, CancelNotification,
    ClientCapabilities, ClientSessionCapabilities, CloseSessionRequest, CompactionCapabilities, ContentBlock,
    FileSystemCapabilities, HttpHeader, ImageContent, Implementation, InitializeRequest, InitializeResponse,
    LoadSessionRequest, McpServer, McpServerHttp, NewSessionRequest, NoticeCapabilities, PromptRequest, PromptResponse,
    ReadTextFileRequest, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse, ResourceLink,
    ResumeSessionRequest, SelectedPermissionOutcome, SessionConfigOption, SessionConfigOptionsCapabilities,
    SessionNotification, SessionUpdate, TextContent, WriteTextFileRequest,
};
use agent_client_protocol::{Error, ErrorCode, RawJsonRpcId, RawJsonRpcMessage, RawJsonRpcParams, RawJsonRpcResponse};
use ahp_types::common::JsonObject;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until, timeout};

use super::known::{self, Settings};
use super::pipe::{Reader, Said, Writer};
use super::process::{Chat, Continue};
use super::turn::Turn;
use super::{files, problems};
use crate::actors::agent::{AgentEvent, AgentInput, AgentSink, Ending, Prompt, PromptBlock, PromptKind, ToolDecision};
use crate::agents::programs::{Group, Running, Tail};

/// How long the rest of what a program wrote is waited for when it has exited, or takes nothing any more.
const REST: Duration = Duration::from_secs(2);
/// How long a session's end may take at the agent.
const CLOSE: Duration = Duration::from_millis(500);
/// Requests of a program that are worked on at once.
const MAX_WORKS: usize = 16;
/// The ids of calls of earlier turns that are known as such.
const MAX_OLD_CALLS: usize = 4_096;
/// The name of the host's tools among an agent's MCP servers.
const TOOLS: &str = "scrollback";
/// The notification that takes a request back.
const CANCEL_REQUEST: &str = "$/cancel_request";

/// How a run of the program ended.
pub(super) enum Over {
    /// The chat closed it, or is gone itself.
    Closed,
    /// It is not up, and nobody waits for it.
    Down,
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
    old_calls: HashSet<String>,
    used: Option<u64>,
    /// Requests of the program that are worked on elsewhere.
    works: usize,
    done: UnboundedSender<(RawJsonRpcId, Result<Value, Error>)>,
    /// Since when a message cannot be handed over, and whether somebody was told.
    busy_since: Option<Instant>,
    told_slow: bool,
    cancel_by: Option<Instant>,
    /// The program has exited, or is deaf; its output is read until then.
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

    /// Whether the program is read: not while anybody is behind.
    fn reads(&self) -> bool {
        self.chat.out.is_empty() && !self.writer.is_full() && self.works < MAX_WORKS
    }

    // Times.

    fn due(&self) -> Option<Instant> {
        let limits = &self.chat.setup.surroundings.limits;
        let slow = self.slow();
        let late = self.busy_since.map(|since| since + limits.max_start);
        [slow, late, self.cancel_by, self.drain_by].into_iter().flatten().min()
    }

    /// When the message that waits is told that it does.
    fn slow(&self) -> Option<Instant> {
        let waits = self.busy_since.filter(|_| !self.told_slow && !self.chat.waiting.is_empty());
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
            return Err(Over::Down);
        }
        if is_due(self.busy_since.map(|since| since + limits.max_start)) {
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

    // Ends.

    /// It exited, or closed its output.
    async fn exited(&mut self, status: Option<ExitStatus>) -> Over {
        let when = match (self.stage, &self.turn) {
            (Stage::Ready, Some(_)) => "in the middle of a turn",
            (Stage::Ready, None) => "by itself",
            _ => problems::STARTING,
        };
        self.failed(&problems::ended(when, status)).await
    }

    /// It goes no further: told to who waits for it, else to the process's log.
    async fn failed(&mut self, problem: &str) -> Over {
        let setup = Arc::clone(&self.chat.setup);
        self.stderr.last_words().await;
        let problem = format!("{} ({}) {problem}", setup.name, setup.program.command);
        let problem = self.stderr.explain(&problem);
        match self.turn.take() {
            Some(turn) if turn.cancelled => self.over(turn, Ending::Cancelled),
            Some(_) => return Over::Gone(problem),
            None => {}
        }
        if self.stage != Stage::Ready || !self.chat.waiting.is_empty() {
            return Over::Gone(problem);
        }
        tracing::warn!(problem, "the program of an agent ended while nothing was asked of it");
        Over::Down
    }

    /// Tells an idle agent that its session is not needed any more.
    async fn close(&mut self, reader: &mut Reader) {
        let has_close = self.agent.session_capabilities.close.is_some();
        let (true, None, Some(session)) = (has_close, &self.turn, self.session.clone()) else { return };
        let id = self.ask("session/close", &CloseSessionRequest::new(session), Asked::Close);
        let closed = async {
            while self.writer.has_output() {
                if self.writer.write().await.is_err() {
                    return;
                }
            }
            loop {
                match reader.read().await {
                    Said::Message(message) if message.response_id() == Some(&RawJsonRpcId::Number(id)) => return,
                    Said::Message(_) | Said::Nothing => {}
                    Said::End | Said::Fault(_) => return,
                }
            }
        };
        let _ = timeout(CLOSE, closed).await;
    }

    // What the program is asked.

    fn ask(&mut self, method: &str, params: &impl serde::Serialize, asked: Asked) -> i64 {
        let id = self.writer.ask(method, params);
        self.asked.insert(id, asked);
        id
    }

    fn initialize(&mut self) {
        self.ask("initialize", &initialize_request(), Asked::Initialize);
    }

    /// Opens the conversation, as far back in it as the agent can.
    fn open(&mut self) {
        match self.chat.continues() {
            Continue::Begin => self.begin(None),
            Continue::Transcript(why) => self.begin(Some(why.to_owned())),
            Continue::Resume(id) => {
                self.is_trusted = false;
                if self.agent.session_capabilities.resume.is_some() {
                    let (cwd, others) = self.directories();
                    let request = ResumeSessionRequest::new(id, cwd);
                    let request = request.additional_directories(others).mcp_servers(self.servers());
                    self.ask("session/resume", &request, Asked::Resume);
                } else {
                    self.load("This agent cannot take up a conversation again.");
                }
            }
        }
    }

    /// Loads the old conversation; where the agent cannot, it begins with the transcript, and `why` says why.
    fn load(&mut self, why: &str) {
        let Continue::Resume(id) = self.chat.continues() else { return self.begin(Some(why.to_owned())) };
        if !self.agent.load_session {
            return self.begin(Some(why.to_owned()));
        }
        self.stage = Stage::Loading;
        let (cwd, others) = self.directories();
        let request = LoadSessionRequest::new(id, cwd).additional_directories(others).mcp_servers(self.servers());
        self.ask("session/load", &request, Asked::Load);
    }

    /// Begins a conversation: with the transcript of the chat's, where there is a reason to.
    fn begin(&mut self, transcript: Option<String>) {
        self.stage = Stage::Starting;
        self.transcript = transcript;
        self.is_trusted = true;
        let (cwd, others) = self.directories();
        let request = NewSessionRequest::new(cwd).additional_directories(others).mcp_servers(self.servers());
        self.ask("session/new", &request, Asked::New);
    }

    /// The directories as the agent takes them.
    fn directories(&self) -> (PathBuf, Vec<PathBuf>) {
        let mut directories = self.chat.directories.iter().cloned();
        let primary = directories.next().unwrap_or_else(|| PathBuf::from("/"));
        let takes_more = self.agent.session_capabilities.additional_directories.is_some();
        (primary, directories.filter(|_| takes_more).collect())
    }

    /// The host's own tools, for an agent that reaches them.
    fn servers(&self) -> Vec<McpServer> {
        let tools = self.chat.mcp.as_ref().filter(|_| self.agent.mcp_capabilities.http);
        let server = tools.map(|tools| {
            let header = HttpHeader::new("Authorization", format!("Bearer {}", tools.token));
            McpServer::Http(McpServerHttp::new(TOOLS, tools.url.clone()).headers(vec![header]))
        });
        server.into_iter().collect()
    }

    /// Asks for another value of a setting, where it is not the one that holds.
    fn set(&mut self, id: &str, value: &Value) {
        let Some(session) = self.session.clone() else { return };
        if self.settings.lacks(id, value) {
            self.notices.push(format!("The agent has no {id} {}.", shown(value)));
        }
        let Some((method, mut params)) = self.settings.request(id, value) else { return };
        params.insert("sessionId".to_owned(), session.into());
        self.busy_since.get_or_insert_with(Instant::now);
        self.ask(method, &params, Asked::Set { id: id.to_owned(), value: value.clone() });
    }

    fn is_setting(&self) -> bool {
        self.asked.values().any(|asked| matches!(asked, Asked::Set { .. }))
    }

    // What it is told.

    fn told(&mut self, input: AgentInput) {
        match input {
            AgentInput::Prompt(prompt) => {
                self.chat.take(prompt);
                self.prompt();
            }
            AgentInput::Cancel { turn_id } => self.cancel(&turn_id),
            AgentInput::Decide { tool_call_id, decision } => self.decide(&tool_call_id, &decision),
            AgentInput::Configured { config } => self.configure(config),
            // Nothing that asks for any of it is ever said.
            _ => {}
        }
    }

    fn configure(&mut self, config: JsonObject) {
        let before = std::mem::replace(&mut self.chat.config, config);
        if self.stage != Stage::Ready {
            return;
        }
        for (id, value) in self.chat.config.clone() {
            if before.get(&id) != Some(&value) {
                self.set(&id, &value);
            }
        }
    }

    /// Hands the message that waits to the agent, if it can take one.
    fn prompt(&mut self) {
        if self.stage != Stage::Ready || self.turn.is_some() || self.is_setting() {
            return;
        }
        let Some(prompt) = self.chat.waiting.front() else { return };
        let chosen = prompt.message.model.as_ref().map(|model| Value::from(model.id.clone()));
        if let Some(model) = self.settings.model().map(str::to_owned) {
            let back = self.chat.config.get(&model).cloned().filter(|_| self.chosen_model);
            self.chosen_model = chosen.is_some();
            if let Some(wanted) = chosen.or(back) {
                self.set(&model, &wanted);
                if self.is_setting() {
                    return;
                }
            }
        }
        let (Some(prompt), Some(session)) = (self.chat.waiting.pop_front(), self.session.clone()) else { return };
        let mut turn = Turn::new(prompt, self.used);
        if turn.prompt.kind == PromptKind::Compact && self.transcript.is_some() {
            let text =
                "The agent begins this conversation anew with the next message: there is nothing to compact yet.";
            self.chat.out.push_back(turn.notice(text.to_owned()));
            return self.over(turn, Ending::Complete);
        }
        let mut blocks = Vec::new();
        if let Some(why) = self.transcript.take()
            && let Some(transcript) = self.chat.transcript(&turn.prompt.turn_id)
        {
            self.notices.push(transcript.notice(&why));
            blocks.push(text(transcript.text));
            // It is not the agent's until it is known to have it.
            self.transcript = Some(why);
        }
        for notice in self.notices.drain(..) {
            self.chat.out.push_back(turn.notice(notice));
        }
        blocks.extend(self.blocks(&turn.prompt));
        self.turn = Some(turn);
        self.ask("session/prompt", &PromptRequest::new(session, blocks), Asked::Prompt);
    }

    fn blocks(&self, prompt: &Prompt) -> Vec<ContentBlock> {
        if prompt.kind == PromptKind::Compact {
            return vec![text(format!("/{}", known::COMPACT))];
        }
        let images = self.agent.prompt_capabilities.image;
        let block = |block: &PromptBlock| match block {
            PromptBlock::Text { text: words } => text(words.clone()),
            PromptBlock::Image { mime_type, data } if images => {
                ContentBlock::Image(ImageContent::new(data.clone(), mime_type.clone()))
            }
            PromptBlock::Image { .. } => text("(an image, which this agent does not take)".to_owned()),
            PromptBlock::ResourceLink { uri, name, mime_type } => {
                ContentBlock::ResourceLink(ResourceLink::new(name.clone(), uri.clone()).mime_type(mime_type.clone()))
            }
        };
        prompt.blocks.iter().map(block).collect()
    }

    fn cancel(&mut self, turn_id: &str) {
        if self.chat.cancel_waiting(turn_id) {
            return;
        }
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.prompt.turn_id == turn_id && !turn.cancelled) else {
            return;
        };
        turn.cancelled = true;
        self.chat.out.retain_mut(|event| event.turn_mut().is_none_or(|turn| turn != turn_id));
        self.cancel_by = Some(Instant::now() + self.chat.setup.surroundings.limits.cancel_timeout);
        if let Some(session) = self.session.clone() {
            self.writer.notify("session/cancel", &CancelNotification::new(session));
        }
        self.give_up_questions();
    }

    /// What the agent asked people and nobody answers any more.
    fn give_up_questions(&mut self) {
        let open = self.turn.as_mut().map(|turn| turn.calls.unanswered()).unwrap_or_default();
        for id in open {
            self.writer.answer(id, outcome(None));
        }
    }

    fn decide(&mut self, tool_call_id: &str, decision: &ToolDecision) {
        let decided = self.turn.as_mut().and_then(|turn| turn.calls.decided(tool_call_id, decision));
        if let Some((id, option, events)) = decided {
            self.writer.answer(id, outcome(option));
            self.chat.out.extend(events);
        }
    }

    // What it says.

    fn heard(&mut self, message: RawJsonRpcMessage) -> Result<(), Over> {
        match message {
            RawJsonRpcMessage::Request(request) => self.requested(request.id, &request.method, request.params),
            RawJsonRpcMessage::Notification(notification) => self.notified(&notification.method, notification.params),
            RawJsonRpcMessage::Response(response) => {
                let (id, result) = match response {
                    RawJsonRpcResponse::Result { id, result } => (id, Ok(result)),
                    RawJsonRpcResponse::Error { id, error } => (id, Err(error.into_acp_error())),
                };
                let RawJsonRpcId::Number(id) = id else { return Ok(()) };
                if let Some(asked) = self.asked.remove(&id) {
                    return self.answered(asked, result);
                }
            }
        }
        Ok(())
    }

    fn requested(&mut self, id: RawJsonRpcId, method: &str, params: Option<RawJsonRpcParams>) {
        let params = params.map_or(Value::Null, RawJsonRpcParams::into_value);
        match method {
            "session/request_permission" => match parsed(params) {
                Ok(request) => self.permission(id, request),
                Err(error) => self.writer.answer(id, Err(error)),
            },
            "fs/read_text_file" => {
                self.work(id, params, |roots, request: ReadTextFileRequest| files::read(roots, &request))
            }
            "fs/write_text_file" => {
                self.work(id, params, |roots, request: WriteTextFileRequest| files::write(roots, &request));
            }
            other => self.writer.answer(id, Err(Error::method_not_found().data(other.to_owned()))),
        }
    }

    /// Does what blocks on a thread for it.
    fn work<T: DeserializeOwned + Send + 'static>(
        &mut self,
        id: RawJsonRpcId,
        params: Value,
        work: fn(&crate::resources::Roots, T) -> Result<Value, Error>,
    ) {
        let request = match parsed(params) {
            Ok(request) => request,
            Err(error) => return self.writer.answer(id, Err(error)),
        };
        let (roots, done) = (Arc::clone(&self.chat.setup.surroundings.roots), self.done.clone());
        self.works += 1;
        tokio::task::spawn_blocking(move || {
            // A run that is over needs no answer.
            let _ = done.send((id, work(&roots, request)));
        });
    }

    fn permission(&mut self, id: RawJsonRpcId, request: RequestPermissionRequest) {
        let is_known = self.session.as_deref() == Some(&*request.session_id.0);
        let Some(turn) = self.turn.as_mut().filter(|turn| is_known && !turn.cancelled) else {
            return self.writer.answer(id, outcome(None));
        };
        turn.heard = true;
        turn.interrupted();
        let asked = turn.calls.asked(id, request);
        self.alive();
        match asked {
            Ok(events) => self.chat.out.extend(events),
            Err(ask) => self.writer.answer(ask.id, outcome(None)),
        }
    }

    fn notified(&mut self, method: &str, params: Option<RawJsonRpcParams>) {
        let params = params.map_or(Value::Null, RawJsonRpcParams::into_value);
        if method == CANCEL_REQUEST {
            let id = params.get("requestId").and_then(|id| serde_json::from_value::<RawJsonRpcId>(id.clone()).ok());
            return self.withdrawn(id);
        }
        if method != "session/update" {
            return;
        }
        match serde_json::from_value::<SessionNotification>(params) {
            Ok(said) if self.is_of_session(&said) => self.updated(said.update),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "an agent says something that is not known"),
        }
    }

    /// Before the conversation is open its id is not known.
    fn is_of_session(&self, said: &SessionNotification) -> bool {
        self.session.as_deref().is_none_or(|session| session == &*said.session_id.0)
    }

    fn withdrawn(&mut self, id: Option<RawJsonRpcId>) {
        let Some(id) = id else { return };
        if let Some(settled) = self.turn.as_mut().and_then(|turn| turn.calls.withdrawn(&id)) {
            self.writer.answer(id, Err(Error::request_cancelled()));
            self.chat.out.push_back(settled);
        }
    }

    fn updated(&mut self, update: SessionUpdate) {
        match update {
            SessionUpdate::AvailableCommandsUpdate(AvailableCommandsUpdate { available_commands, .. }) => {
                let commands = known::commands(available_commands);
                return self.chat.setup.learn(|known| known.commands = commands);
            }
            SessionUpdate::CurrentModeUpdate(update) => return self.settings.take_mode(&update.current_mode_id.0),
            SessionUpdate::ConfigOptionUpdate(update) => return self.settings.take_options(update.config_options),
            SessionUpdate::UsageUpdate(ref usage) => self.used = Some(usage.used),
            _ => {}
        }
        if self.stage == Stage::Loading {
            let is_history = !matches!(update, SessionUpdate::UsageUpdate(_) | SessionUpdate::SessionInfoUpdate(_));
            self.replayed += usize::from(is_history);
            return;
        }
        if self.is_of_an_old_call(&update) {
            return;
        }
        let Some(turn) = self.turn.as_mut().filter(|turn| !turn.cancelled) else { return };
        let events = turn.update(update);
        let is_first = !turn.heard && !events.is_empty();
        if is_first {
            turn.heard = true;
            self.alive();
        }
        self.chat.out.extend(events);
    }

    fn is_of_an_old_call(&self, update: &SessionUpdate) -> bool {
        let id = match update {
            SessionUpdate::ToolCall(call) => &call.tool_call_id,
            SessionUpdate::ToolCallUpdate(update) => &update.tool_call_id,
            _ => return false,
        };
        self.old_calls.contains(&*id.0)
    }

    /// The agent works in the conversation: it can be gone on with from now on.
    fn alive(&mut self) {
        self.transcript = None;
        self.is_trusted = true;
        if let Some(session) = self.session.clone() {
            self.chat.known(&session);
        }
    }

    fn answered(&mut self, asked: Asked, result: Result<Value, Error>) -> Result<(), Over> {
        match (asked, result) {
            (Asked::Initialize, Ok(answer)) => self.initialized(answer)?,
            (Asked::Resume | Asked::Load, Ok(answer)) => self.reopened(&answer),
            (Asked::New, Ok(answer)) => self.opened(&answer)?,
            (Asked::Set { id, value }, result) => self.has_set(&id, value, result),
            (Asked::Prompt, result) => self.prompted(result),
            (Asked::Initialize | Asked::New | Asked::Resume | Asked::Load, Err(error))
                if error.code == ErrorCode::AUTH_REQUIRED =>
            {
                return Err(Over::Gone(self.stderr.explain(&self.login())));
            }
            (Asked::Resume, Err(error)) => {
                tracing::info!(%error, "an agent does not resume its conversation");
                self.load(&lost(&error));
            }
            (Asked::Load, Err(error)) => self.begin(Some(lost(&error))),
            (Asked::Initialize | Asked::New, Err(error)) => {
                let setup = &self.chat.setup;
                let problem =
                    format!("{} ({}) does not start: {}", setup.name, setup.program.command, problems::words(&error));
                return Err(Over::Gone(self.stderr.explain(&problem)));
            }
            (Asked::Close, _) => {}
        }
        self.prompt();
        Ok(())
    }

    fn login(&self) -> String {
        let setup = &self.chat.setup;
        problems::login(&setup.name, &setup.program.command, &self.logins)
    }

    fn initialized(&mut self, answer: Value) -> Result<(), Over> {
        let answer = understood(answer).map_err(|problem| {
            let setup = &self.chat.setup;
            Over::Gone(self.stderr.explain(&format!("{} ({}) {problem}", setup.name, setup.program.command)))
        })?;
        self.chat.setup.learn(|known| known.initialized(&answer));
        self.agent = answer.agent_capabilities;
        self.logins = answer.auth_methods;
        self.open();
        Ok(())
    }

    /// An old conversation is open, or is said to be. An agent that loads one that it does not know says nothing of it.
    fn reopened(&mut self, answer: &Value) {
        if self.stage == Stage::Loading && self.replayed == 0 && self.chat.has_history() {
            return self.begin(Some("The agent does not know this conversation any more.".to_owned()));
        }
        if let Continue::Resume(id) = self.chat.continues() {
            self.session = Some(id);
        }
        self.settings = Settings::of(answer);
        self.ready();
    }

    fn opened(&mut self, answer: &Value) -> Result<(), Over> {
        let Some(session) = answer.get("sessionId").and_then(Value::as_str) else {
            let setup = &self.chat.setup;
            let problem = format!("{} ({}) opened a session without an id", setup.name, setup.program.command);
            return Err(Over::Gone(self.stderr.explain(&problem)));
        };
        self.session = Some(session.to_owned());
        self.settings = Settings::of(answer);
        let settings = self.settings.clone();
        self.chat.setup.learn(|known| known.settings = settings);
        self.ready();
        Ok(())
    }

    fn ready(&mut self) {
        self.stage = Stage::Ready;
        for (id, value) in self.chat.config.clone() {
            self.set(&id, &value);
        }
        self.rest();
    }

    /// Nothing is waited for any more, unless a setting is.
    fn rest(&mut self) {
        if !self.is_setting() {
            self.busy_since = None;
        }
    }

    fn has_set(&mut self, id: &str, value: Value, result: Result<Value, Error>) {
        match result {
            Ok(answer) => {
                let options = answer.get("configOptions").and_then(Value::as_array).into_iter().flatten();
                let options =
                    options.filter_map(|option| serde_json::from_value::<SessionConfigOption>(option.clone()).ok());
                let options = options.collect();
                self.settings.take(id, value);
                self.settings.take_options(options);
            }
            Err(error) => {
                // As if it held: it is not asked for again and again.
                let problem = problems::words(&error);
                self.notices.push(format!("The agent does not take {id} = {}: {problem}.", shown(&value)));
                self.settings.take(id, value);
            }
        }
        self.rest();
    }

    fn prompted(&mut self, result: Result<Value, Error>) {
        self.give_up_questions();
        let Some(mut turn) = self.turn.take() else { return };
        self.cancel_by = None;
        let ending = match result {
            _ if turn.cancelled => Ending::Cancelled,
            Ok(answer) => {
                self.alive();
                self.chat.out.extend(turn.closing(&answer));
                let reason = serde_json::from_value::<PromptResponse>(answer).map(|answer| answer.stop_reason);
                let ending = reason.map_or(Ending::Complete, problems::of_stop);
                if turn.prompt.kind == PromptKind::Compact && ending == Ending::Complete {
                    self.chat.out.push_back(turn.compacted());
                }
                ending
            }
            Err(error) if !self.is_trusted && !turn.heard && problems::is_unknown_session(&error) => {
                self.chat.waiting.push_front(turn.prompt);
                self.session = None;
                self.busy_since = Some(Instant::now());
                return self.begin(Some(lost(&error)));
            }
            Err(error) => problems::of_error(&error, &self.login(), self.chat.clock.now()),
        };
        self.over(turn, ending);
    }

    /// A turn is over.
    fn over(&mut self, turn: Turn, ending: Ending) {
        if self.old_calls.len() > MAX_OLD_CALLS {
            self.old_calls.clear();
        }
        self.old_calls.extend(turn.calls.ids().cloned());
        self.chat.ended(&turn.id(), ending);
        self.chat.remember(turn.exchange());
    }
}

/// What every agent is told first.
pub(super) fn initialize_request() -> InitializeRequest {
    let files = FileSystemCapabilities::new().read_text_file(true).write_text_file(true);
    let options = SessionConfigOptionsCapabilities::new().boolean(BooleanConfigOptionCapabilities::new());
    let session = ClientSessionCapabilities::new()
        .config_options(options)
        .notices(NoticeCapabilities::new())
        .compaction(CompactionCapabilities::new());
    InitializeRequest::new(ProtocolVersion::V1)
        .client_capabilities(ClientCapabilities::new().fs(files).session(session))
        .client_info(Implementation::new("scrollback", env!("CARGO_PKG_VERSION")))
}

/// The answer to it, from an agent of the same version.
///
/// # Errors
/// What is wrong with it, as a sentence about the agent.
pub(super) fn understood(answer: Value) -> Result<InitializeResponse, String> {
    let answer: InitializeResponse = serde_json::from_value(answer)
        .map_err(|error| format!("does not speak the Agent Client Protocol: its first answer is odd: {error}"))?;
    if answer.protocol_version != ProtocolVersion::V1 {
        return Err(format!(
            "speaks version {} of the Agent Client Protocol, and the host speaks version 1: install a release of it that does",
            answer.protocol_version
        ));
    }
    Ok(answer)
}

fn parsed<T: DeserializeOwned>(params: Value) -> Result<T, Error> {
    serde_json::from_value(params).map_err(|error| Error::invalid_params().data(error.to_string()))
}

fn outcome(option: Option<String>) -> Result<Value, Error> {
    let outcome = match option {
        Some(option) => RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option)),
        None => RequestPermissionOutcome::Cancelled,
    };
    serde_json::to_value(RequestPermissionResponse::new(outcome)).map_err(Error::into_internal_error)
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn lost(error: &Error) -> String {
    format!("The agent cannot take up this conversation again ({}).", problems::words(error))
}

fn text(text: String) -> ContentBlock {
    ContentBlock::Text(TextContent::new(text))
}
