//! From the start of the program to an open conversation with the session's settings.

use std::path::PathBuf;

use agent_client_protocol::Error;
use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema::{
    BooleanConfigOptionCapabilities, ClientCapabilities, ClientSessionCapabilities, CompactionCapabilities,
    FileSystemCapabilities, HttpHeader, Implementation, InitializeRequest, InitializeResponse, LoadSessionRequest,
    McpServer, McpServerHttp, NewSessionRequest, NoticeCapabilities, ResumeSessionRequest, SessionConfigOption,
    SessionConfigOptionsCapabilities,
};
use serde_json::Value;
use tokio::time::Instant;

use super::{Asked, Live, Over, Stage};
use crate::agents::acp::known::Settings;
use crate::agents::acp::problems;
use crate::agents::acp::process::Continue;

/// The name of the host's tools among an agent's MCP servers.
const TOOLS: &str = "scrollback";

impl Live<'_> {
    pub(super) fn initialize(&mut self) {
        self.ask("initialize", &initialize_request(), Asked::Initialize);
    }

    pub(super) fn initialized(&mut self, answer: Value) -> Result<(), Over> {
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

    pub(super) fn login(&self) -> String {
        let setup = &self.chat.setup;
        problems::login(&setup.name, &setup.program.command, &self.logins)
    }

    /// Opens the conversation, as far back in it as the agent can.
    pub(super) fn open(&mut self) {
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
    pub(super) fn load(&mut self, why: &str) {
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
    pub(super) fn begin(&mut self, transcript: Option<String>) {
        self.stage = Stage::Starting;
        self.transcript = transcript;
        self.is_trusted = true;
        let (cwd, others) = self.directories();
        let request = NewSessionRequest::new(cwd).additional_directories(others).mcp_servers(self.servers());
        self.ask("session/new", &request, Asked::New);
    }

    /// The directories as the agent takes them.
    pub(super) fn directories(&self) -> (PathBuf, Vec<PathBuf>) {
        let mut directories = self.chat.directories.iter().cloned();
        let primary = directories.next().unwrap_or_else(|| PathBuf::from("/"));
        let takes_more = self.agent.session_capabilities.additional_directories.is_some();
        (primary, directories.filter(|_| takes_more).collect())
    }

    /// The host's own tools, for an agent that reaches them.
    pub(super) fn servers(&self) -> Vec<McpServer> {
        let tools = self.chat.mcp.as_ref().filter(|_| self.agent.mcp_capabilities.http);
        let server = tools.map(|tools| {
            let header = HttpHeader::new("Authorization", format!("Bearer {}", tools.token));
            McpServer::Http(McpServerHttp::new(TOOLS, tools.url.clone()).headers(vec![header]))
        });
        server.into_iter().collect()
    }

    /// An old conversation is open, or is said to be. An agent that loads one that it does not know says nothing of it.
    pub(super) fn reopened(&mut self, answer: &Value) {
        if self.stage == Stage::Loading && self.replayed == 0 && self.chat.has_history() {
            return self.begin(Some("The agent does not know this conversation any more.".to_owned()));
        }
        if let Continue::Resume(id) = self.chat.continues() {
            self.session = Some(id);
        }
        let said = Settings::of(answer);
        let known = || self.chat.setup.found.get().settings.in_another();
        self.settings = if said.is_empty() { known() } else { said };
        self.ready();
    }

    pub(super) fn opened(&mut self, answer: &Value) -> Result<(), Over> {
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

    pub(super) fn ready(&mut self) {
        self.stage = Stage::Ready;
        for (id, value) in self.chat.config.clone() {
            self.set(&id, &value);
        }
        self.rest();
    }

    /// Nothing is waited for any more, unless a setting is.
    pub(super) fn rest(&mut self) {
        if !self.is_setting() {
            self.busy_since = None;
        }
    }

    /// Asks for another value of a setting, where it is not the one that holds.
    pub(super) fn set(&mut self, id: &str, value: &Value) {
        let Some(session) = self.session.clone() else { return };
        if self.settings.lacks(id, value) {
            self.notices.push(format!("The agent has no {id} {}.", shown(value)));
        }
        let Some((method, mut params)) = self.settings.request(id, value) else { return };
        params.insert("sessionId".to_owned(), session.into());
        self.busy_since.get_or_insert_with(Instant::now);
        self.ask(method, &params, Asked::Set { id: id.to_owned(), value: value.clone() });
    }

    pub(super) fn is_setting(&self) -> bool {
        self.asked.values().any(|asked| matches!(asked, Asked::Set { .. }))
    }

    pub(super) fn has_set(&mut self, id: &str, value: Value, result: Result<Value, Error>) {
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
}

/// What every agent is told first.
pub(in crate::agents::acp) fn initialize_request() -> InitializeRequest {
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
pub(in crate::agents::acp) fn understood(answer: Value) -> Result<InitializeResponse, String> {
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

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(super) fn lost(error: &Error) -> String {
    format!("The agent cannot take up this conversation again ({}).", problems::words(error))
}
