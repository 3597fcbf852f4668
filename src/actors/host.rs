//! The host as the protocol, the pages and the command line see it: every command, with where its answer goes.
//!
//! Commands that change something are answered through their lane, so an answer leaves only when what it rests on is
//! durable. Nothing here knows the transport.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::agent::Agent;
use super::command::{Answer, Refusal, RefusalKind, Reply};
use super::connection::{Caller, Connection, Window};
use super::router::Hub;
use super::writer::{Durability, LogWriter};
use crate::clock::Clock;
use crate::events::{Channel, LogFault, ServerSeq, Store};

/// What the host is told by its configuration. Every field is a key of the configuration file.
#[derive(Debug, Clone)]
pub struct HostSettings {
    pub host_name: String,
    pub durability: Durability,
    /// `file:` URI of the directory that sessions get which name none.
    pub default_directory: String,
    /// Directories that sessions may work in, by real path.
    pub allowed_directories: Vec<std::path::PathBuf>,
    /// Provider of sessions that name none.
    pub default_agent: Option<String>,
    pub idle_timeout: Duration,
    pub delta_window: Duration,
    pub client_grace: Duration,
    /// Bytes.
    pub max_message_text: usize,
    pub max_queued_messages: usize,
    pub max_chats_in_session: usize,
    pub max_parts_in_turn: usize,
    /// `None`: no limit.
    pub max_sessions: Option<usize>,
    /// Bytes of one snapshot's JSON.
    pub max_snapshot: usize,
    /// Bytes of one chat that wait for the disk, beyond which its agent is not read and clients hear `busy`.
    pub max_chat_in_flight: usize,
}

impl Default for HostSettings {
    fn default() -> Self {
        Self {
            host_name: "localhost".into(),
            durability: Durability::Commit,
            default_directory: "file:///".into(),
            allowed_directories: vec!["/".into()],
            default_agent: None,
            idle_timeout: Duration::from_secs(60),
            delta_window: Duration::from_millis(16),
            client_grace: Duration::from_secs(30),
            max_message_text: 1 << 20,
            max_queued_messages: 1_000,
            max_chats_in_session: 1_000,
            max_parts_in_turn: 10_000,
            max_sessions: None,
            max_snapshot: 48 << 20,
            max_chat_in_flight: 256 << 10,
        }
    }
}

/// A snapshot on its way to a client.
#[derive(Debug, Clone)]
pub struct SnapshotJson {
    /// The name that the client used.
    pub resource: Channel,
    /// The JSON of the state.
    pub state: Bytes,
    /// The newest event of the channel that it holds.
    pub from_seq: ServerSeq,
}

impl SnapshotJson {
    /// The AHP `Snapshot` as JSON text, the state spliced in.
    pub fn json(&self) -> String {
        format!(
            r#"{{"resource":{},"state":{},"fromSeq":{}}}"#,
            serde_json::Value::from(self.resource.as_str()),
            String::from_utf8_lossy(&self.state),
            self.from_seq
        )
    }
}

/// What happens with a snapshot. Runs on the connection's thread, right after the subscription stands and before any later
/// event of the channel is queued; for a refusal nothing was subscribed.
pub type OnSnapshot = Box<dyn FnOnce(&Connection, Result<SnapshotJson, Refusal>) + Send>;

/// `createSession`, checked for shape by the protocol.
#[derive(Debug, Clone, Default)]
pub struct CreateSession {
    pub uri: String,
    pub provider: Option<String>,
    pub working_directories: Option<Vec<String>>,
    pub config: Option<serde_json::Map<String, serde_json::Value>>,
    pub active_client: Option<ahp_types::state::SessionActiveClient>,
    pub progress_token: Option<String>,
}

/// `createChat`, checked for shape by the protocol.
#[derive(Debug, Clone)]
pub struct CreateChat {
    pub session: String,
    pub chat: String,
    pub initial_message: Option<Box<RawValue>>,
    /// The `source` as it was sent: its kind is read first.
    pub source: Option<serde_json::Value>,
    pub working_directories: Option<Vec<String>>,
}

/// A running host.
pub struct Host {
    settings: HostSettings,
    store: Arc<dyn Store>,
    hub: Arc<Hub>,
    writer: LogWriter,
    agents: Vec<Arc<dyn Agent>>,
    clock: Clock,
}

fn not_yet() -> Refusal {
    Refusal::new(RefusalKind::UnknownMethod, "unsupported", "not served yet")
}

impl Host {
    /// Starts the host on `store`: its writer, its root channel, and what a crash left to end. Must run inside an actix
    /// system. Turns that a crash interrupted get their ending when this returns.
    ///
    /// # Errors
    /// [`LogFault`] when the store cannot be read or written.
    pub fn start(
        settings: HostSettings,
        store: Arc<dyn Store>,
        agents: Vec<Arc<dyn Agent>>,
        clock: Clock,
    ) -> Result<Arc<Self>, LogFault> {
        let hub = Hub::new(1, Arc::new(|_, _| None));
        let writer = LogWriter::start(Arc::clone(&store), Arc::clone(&hub), settings.durability)?;
        Ok(Arc::new(Self { settings, store, hub, writer, agents, clock }))
    }

    pub fn settings(&self) -> &HostSettings {
        &self.settings
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    pub fn writer(&self) -> &LogWriter {
        &self.writer
    }

    pub fn agents(&self) -> &[Arc<dyn Agent>] {
        &self.agents
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// A client's action. Never answered: it is echoed with its number to all subscribers, or comes back to its sender
    /// alone with a reason. An action for a channel that is not there is ignored.
    pub fn dispatch(&self, _caller: &Caller, _channel: &str, _client_seq: i64, _action: &RawValue) {}

    /// Subscribes `caller` to `channel` with the newest `turns` finished turns (all for `None`).
    pub fn subscribe(&self, caller: &Caller, _channel: &str, _turns: Option<u64>, then: OnSnapshot) {
        caller.connection.run(Box::new(move |connection| then(connection, Err(not_yet()))));
    }

    /// The one name and the number of the channel that `uri` names now (itself, or a synonym), if it is there.
    ///
    /// # Errors
    /// [`LogFault`] when the store cannot be read.
    pub fn resolve(&self, _uri: &str) -> Result<Option<(Channel, crate::events::ChannelId)>, LogFault> {
        Ok(None)
    }

    /// `listSessions`: newest first. At most `limit` (1,000 where absent), then a cursor.
    pub fn list_sessions(&self, _limit: Option<u64>, _cursor: Option<&str>) -> Answer {
        Err(not_yet())
    }

    /// `createSession`; the answer is `null`.
    pub fn create_session(&self, _caller: &Caller, _command: CreateSession, reply: Reply) {
        reply(Err(not_yet()));
    }

    /// `disposeSession`; the answer is `null`.
    pub fn dispose_session(&self, _caller: &Caller, _session: &str, reply: Reply) {
        reply(Err(not_yet()));
    }

    /// `createChat`; the answer is `null`.
    pub fn create_chat(&self, _caller: &Caller, _command: CreateChat, reply: Reply) {
        reply(Err(not_yet()));
    }

    /// `disposeChat`; the answer is `null`.
    pub fn dispose_chat(&self, _caller: &Caller, _chat: &str, reply: Reply) {
        reply(Err(not_yet()));
    }

    /// `fetchTurns`: the page is published before the answer `{}`. `window` is the caller's own.
    pub fn fetch_turns(
        &self,
        _caller: &Caller,
        _chat: &str,
        _cursor: Option<&str>,
        _window: Option<Window>,
        reply: Reply,
    ) {
        reply(Err(not_yet()));
    }

    /// `resolveSessionConfig`: the schema of all properties, and the values with defaults filled in.
    pub fn resolve_session_config(
        &self,
        _provider: Option<&str>,
        _config: Option<&serde_json::Map<String, serde_json::Value>>,
    ) -> Answer {
        Err(not_yet())
    }

    /// `x-scrollback/stateAt`, `/api/state` and `log state`: the state of a channel right after event `at` (now for
    /// `None`), as it is on disk. Reads the store: call it where blocking is fine.
    ///
    /// # Errors
    /// A [`Refusal`] of kind `NotFound` for a channel that is not there or had no events then.
    pub fn state_at(&self, _channel: &str, _at: Option<ServerSeq>) -> Result<SnapshotJson, Refusal> {
        Err(not_yet())
    }

    /// A connection of `caller` ended, or left `session`: its active-client entries go after the grace time unless the
    /// same client comes back.
    pub fn client_left(&self, _caller: &Caller, _session: &Channel) {}

    /// Takes no new work, ends the agents, freezes running turns, writes everything down and closes the sockets.
    pub async fn stop(&self) {
        self.hub.close_all(1001, "the host is stopping");
        self.writer.stop();
    }
}
