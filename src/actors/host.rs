//! The host as the protocol, the pages and the command line see it: every command, with where its answer goes.
//!
//! Commands that change something are answered through their lane, so an answer leaves only when what it rests on is
//! durable. Nothing here knows the transport.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use actix::Actor;
use ahp_types::common::JsonObject;
use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::agent::Agent;
use super::chat::pages;
use super::clients::Clients;
use super::command::{self, Answer, Refusal, RefusalKind, Reply};
use super::connection::{Caller, Connection, Window};
use super::core::ClientAction;
use super::registry::{Registry, Resolved, first_chat_uri};
use super::rejection::Rejection;
use super::root::{RootActor, RootMessage};
use super::router::Hub;
use super::session::{Boot, SessionMessage, check_value};
use super::shared::Shared;
use super::writer::{Durability, LogWriter};
use crate::clock::Clock;
use crate::events::rows::{ChannelKind, number_of_key};
use crate::events::{Channel, ChannelId, Kind, LogFault, ServerSeq, Store, Table};
use crate::projections::action::{Action, type_of};
use crate::projections::chat::ChatFold;
use crate::projections::replay;
use crate::projections::root::RootFold;
use crate::projections::session::SessionFold;
use crate::projections::turns::PageLimit;
use crate::projections::{FoldFault, catalogue};

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

/// How long a stop waits for the actors to write down what they hold.
const STOP_WAIT: Duration = Duration::from_secs(5);
/// How long a start waits for interrupted turns to get their endings.
const RECOVERY_WAIT: Duration = Duration::from_secs(30);

/// A running host.
pub struct Host {
    shared: Arc<Shared>,
}

fn unavailable(fault: impl std::fmt::Display) -> Refusal {
    Refusal::new(RefusalKind::Unavailable, "log-unavailable", fault.to_string())
}

fn not_found(uri: &str) -> Refusal {
    Refusal::new(RefusalKind::NotFound, "not-found", format!("there is no channel {uri}"))
}

fn no_session(uri: &str) -> Refusal {
    Refusal::new(RefusalKind::UnknownSession, "unknown-session", format!("there is no session {uri}"))
}

impl Host {
    /// Starts the host on `store`: its writer, its root channel and its registry. Must run inside an actix system. Turns
    /// that a crash interrupted get their endings by [`Host::recover`].
    ///
    /// # Errors
    /// [`LogFault`] when the store cannot be read or written.
    pub fn start(
        settings: HostSettings,
        store: Arc<dyn Store>,
        agents: Vec<Arc<dyn Agent>>,
        clock: Clock,
    ) -> Result<Arc<Self>, LogFault> {
        let pages_of = Arc::clone(&store);
        let first = ulid::Ulid::new().random() as u64 >> 16;
        let hub = Hub::new(first, Arc::new(move |e, s| pages::for_subscription(pages_of.as_ref(), e, s)));
        let writer = LogWriter::start(Arc::clone(&store), Arc::clone(&hub), settings.durability)?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
        let shared = Arc::new(Shared {
            settings,
            store,
            hub,
            writer,
            agents,
            clock,
            registry: Registry::new(threads),
            clients: Clients::default(),
            root: OnceLock::new(),
            deferred_titles: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            processes: AtomicU64::new(0),
            actors: AtomicUsize::new(0),
        });
        shared.registry.belongs_to(&shared);
        let root = RootActor::new(Arc::clone(&shared)).map_err(|fault| match fault {
            FoldFault::Log(fault) => fault,
            other => LogFault::Damaged { place: "the root channel".into(), problem: other.to_string() },
        })?;
        let _ = shared.root.set(root.start());
        Ok(Arc::new(Self { shared }))
    }

    /// Ends the turns that a crash interrupted, each with a notice. Returns how many there were.
    ///
    /// # Errors
    /// [`LogFault`] when the store cannot be read.
    pub async fn recover(&self) -> Result<usize, LogFault> {
        let running = self.running()?;
        let mut awaited = Vec::with_capacity(running.len());
        for (chat, uri) in &running {
            match self.shared.registry.resolve(uri.as_str()) {
                Ok(Some(found)) if found.id == *chat => {
                    let message = SessionMessage::Recover { chat: found.channel };
                    self.shared.registry.send(found.session, message);
                    awaited.push(*chat);
                }
                Ok(_) => tracing::warn!(chat = %uri, "a turn runs in a chat that is gone"),
                Err(fault) => tracing::error!(%fault, chat = %uri, "an interrupted turn cannot be ended"),
            }
        }
        let started = Instant::now();
        while started.elapsed() < RECOVERY_WAIT {
            // Where it fails, the running turns are still in the store, and it is tried again.
            let _ = self.shared.writer.barrier().await;
            if !self.running()?.iter().any(|(chat, _)| awaited.contains(chat)) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(running.len())
    }

    fn running(&self) -> Result<Vec<(ChannelId, Channel)>, LogFault> {
        let store = self.shared.store.as_ref();
        let mut ids = Vec::new();
        store.scan_rows(Table::Running, &[], None, &mut |key, _| {
            ids.extend(number_of_key(key).map(ChannelId));
            ControlFlow::Continue(())
        })?;
        let mut running = Vec::new();
        for id in ids {
            match catalogue::uri(store, id) {
                Ok(uri) => running.extend(uri.map(|uri| (id, uri))),
                Err(FoldFault::Log(fault)) => return Err(fault),
                Err(other) => tracing::error!(fault = %other, "a channel's row cannot be read"),
            }
        }
        Ok(running)
    }

    pub fn settings(&self) -> &HostSettings {
        &self.shared.settings
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    pub fn hub(&self) -> &Arc<Hub> {
        &self.shared.hub
    }

    pub fn writer(&self) -> &LogWriter {
        &self.shared.writer
    }

    pub fn agents(&self) -> &[Arc<dyn Agent>] {
        &self.shared.agents
    }

    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Sessions that are awake.
    pub fn awake(&self) -> usize {
        self.shared.registry.awake()
    }

    /// Chats and sessions that hold memory now.
    pub fn actors(&self) -> usize {
        self.shared.actors.load(Ordering::Acquire)
    }

    /// A client's action. Never answered: it is echoed with its number to all subscribers, or comes back to its sender
    /// alone with a reason. An action for a channel that is not there is ignored.
    pub fn dispatch(&self, caller: &Caller, channel: &str, client_seq: i64, action: &RawValue) {
        let found = match self.shared.registry.resolve(channel) {
            Ok(Some(found)) => found,
            Ok(None) => return,
            Err(fault) => return tracing::error!(%fault, channel, "an action's channel cannot be looked up"),
        };
        let parsed: Result<Value, _> = serde_json::from_str(action.get());
        let value = parsed.unwrap_or(Value::Null);
        let client = ClientAction {
            caller: caller.clone(),
            client_seq,
            alias: Channel::from(channel),
            sent: Bytes::copy_from_slice(action.get().as_bytes()),
            fingerprint: fingerprint(caller, client_seq, &found.channel, &value),
        };
        // What is malformed goes the same way, so that a client hears of its actions in the order in which it sent them.
        let action = Action::from_json(value).map(Box::new).map_err(Rejection::from);
        match found.kind {
            ChannelKind::Root => self.to_root(RootMessage::Dispatch { client, action }),
            ChannelKind::Session | ChannelKind::Chat => {
                self.to_session(&found, SessionMessage::Dispatch { channel: found.channel.clone(), client, action });
            }
        }
    }

    fn to_root(&self, message: RootMessage) {
        if let Some(root) = self.shared.root.get() {
            root.do_send(message);
        }
    }

    fn to_session(&self, found: &Resolved, message: SessionMessage) {
        self.shared.registry.send(found.session, message);
    }

    /// Subscribes `caller` to `channel` with the newest `turns` finished turns (all for `None`).
    pub fn subscribe(&self, caller: &Caller, channel: &str, turns: Option<u64>, then: OnSnapshot) {
        let alias = Channel::from(channel);
        let refusal = match self.shared.registry.resolve(channel) {
            Ok(Some(found)) => {
                let caller = caller.clone();
                return match found.kind {
                    ChannelKind::Root => self.to_root(RootMessage::Subscribe { caller, alias, then }),
                    _ => {
                        let channel = found.channel.clone();
                        let message = SessionMessage::Subscribe { channel, alias, caller, turns, then, again: false };
                        self.to_session(&found, message);
                    }
                };
            }
            Ok(None) => not_found(channel),
            Err(fault) => unavailable(fault),
        };
        caller.connection.run(Box::new(move |connection| then(connection, Err(refusal))));
    }

    /// The one name and the number of the channel that `uri` names now (itself, or a synonym), if it is there.
    ///
    /// # Errors
    /// [`LogFault`] when the store cannot be read.
    pub fn resolve(&self, uri: &str) -> Result<Option<(Channel, ChannelId)>, LogFault> {
        match self.shared.registry.resolve(uri) {
            Ok(found) => Ok(found.map(|found| (found.channel, found.id))),
            Err(FoldFault::Log(fault)) => Err(fault),
            Err(other) => Err(LogFault::Engine(other.to_string())),
        }
    }

    /// Whether `uri` has named this channel for as long as it names anything: always for a channel's own name, and for a
    /// synonym while its session's default chat has been the same from the beginning. What somebody saw under a name that
    /// stood for another chat once is no baseline. Reads the session's events for a synonym.
    ///
    /// # Errors
    /// [`LogFault`] when the store cannot be read.
    pub fn has_always_named(&self, uri: &str, channel: &Channel) -> Result<bool, LogFault> {
        if uri == channel.as_str() {
            return Ok(true);
        }
        let Ok(Some(found)) = self.shared.registry.resolve(channel.as_str()) else { return Ok(false) };
        let session = self.shared.registry.session_uri(found.session).ok().flatten();
        if session.is_none_or(|session| first_chat_uri(session.as_str()) != channel.as_str()) {
            return Ok(false);
        }
        let mut always = true;
        self.shared.store.scan_channel(found.session, 0, ServerSeq::MAX, &mut |record| {
            always = record.kind != Kind::Action || keeps_default(&record.action, channel);
            if always { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(always)
    }

    /// `listSessions`: newest first. At most `limit` (1,000 where absent), then a cursor.
    pub fn list_sessions(&self, limit: Option<u64>, cursor: Option<&str>) -> Answer {
        let limit = limit.unwrap_or(catalogue::PAGE_LIMIT).min(catalogue::PAGE_LIMIT);
        match catalogue::page(self.shared.store.as_ref(), limit, cursor).map_err(unavailable)? {
            Some((items, next)) => {
                let result = ahp_types::commands::ListSessionsResult { next_cursor: next, items };
                Ok(command::json(&result))
            }
            None => Err(Refusal::new(RefusalKind::InvalidParams, "unknown-cursor", "cursor: not one of this list")),
        }
    }

    /// `createSession`; the answer is `null`.
    pub fn create_session(&self, caller: &Caller, command: CreateSession, reply: Reply) {
        match self.check_session(caller, command) {
            Ok((command, id, chat)) => {
                let uri = Channel::from(command.uri.as_str());
                let boot = Boot::Create { caller: caller.clone(), command: Box::new(command), uri, chat, reply };
                self.shared.registry.create(id, boot);
            }
            Err(refusal) => reply(Err(refusal)),
        }
    }

    fn check_session(
        &self,
        caller: &Caller,
        mut command: CreateSession,
    ) -> Result<(CreateSession, ChannelId, ChannelId), Refusal> {
        if self.shared.is_stopping() {
            return Err(Refusal::new(RefusalKind::Unavailable, "busy", "the host is stopping"));
        }
        let provider = command.provider.take().or_else(|| self.shared.default_provider().map(str::to_owned));
        let provider = provider.unwrap_or_default();
        let Some(agent) = self.shared.agent(&provider) else {
            let text = format!("provider: there is no agent {provider:?} on this host");
            return Err(Refusal::new(RefusalKind::UnknownProvider, "unknown-provider", text));
        };
        command.provider = Some(provider);
        let own = |client: &ahp_types::state::SessionActiveClient| client.client_id == *caller.client_id;
        if command.active_client.as_ref().is_some_and(|client| !own(client)) {
            let text = "activeClient.clientId: a client speaks for itself alone";
            return Err(Refusal::new(RefusalKind::InvalidParams, "not-permitted", text));
        }
        command.config = Some(checked_config(agent.as_ref(), command.config.take())?);
        let many = agent.info().capabilities.is_some_and(|can| can.multiple_working_directories.is_some());
        command.working_directories = Some(self.directories(command.working_directories.take(), many)?);
        self.check_count()?;
        let (id, chat) = self.reserve(&command.uri)?;
        Ok((command, id, chat))
    }

    fn check_count(&self) -> Result<(), Refusal> {
        let Some(limit) = self.shared.settings.max_sessions else { return Ok(()) };
        let count = catalogue::count(self.shared.store.as_ref()).map_err(unavailable)?;
        if count < limit as u64 {
            return Ok(());
        }
        metrics::counter!("scrollback_limit_met_total", "limit" => "sessions").increment(1);
        Err(Refusal::new(
            RefusalKind::Unavailable,
            "limit-exceeded",
            format!("the host holds at most {limit} sessions"),
        ))
    }

    fn reserve(&self, uri: &str) -> Result<(ChannelId, ChannelId), Refusal> {
        let registry = &self.shared.registry;
        let taken = || {
            let text = format!("there is a session {uri} already");
            Refusal::new(RefusalKind::SessionExists, "session-exists", text)
        };
        let id = registry.reserve(uri, ChannelKind::Session, None).map_err(unavailable)?.ok_or_else(taken)?;
        let first = first_chat_uri(uri);
        match registry.reserve(&first, ChannelKind::Chat, Some(id)).map_err(unavailable) {
            Ok(Some(chat)) => Ok((id, chat)),
            Ok(None) => {
                registry.settle(uri);
                Err(taken())
            }
            Err(refusal) => {
                registry.settle(uri);
                Err(refusal)
            }
        }
    }

    /// The directories of a session: those that it names, in the allowed ones by real path, else the default one.
    fn directories(&self, wanted: Option<Vec<String>>, many: bool) -> Result<Vec<String>, Refusal> {
        let mut wanted = wanted.unwrap_or_default();
        if wanted.is_empty() {
            return Ok(vec![self.shared.settings.default_directory.clone()]);
        }
        if !many {
            wanted.truncate(1);
        }
        for directory in &wanted {
            self.check_directory(directory)?;
        }
        Ok(wanted)
    }

    fn check_directory(&self, uri: &str) -> Result<(), Refusal> {
        let bad = |text: String| Refusal::new(RefusalKind::NotPermitted, "bad-directory", text);
        let path = file_path(uri).ok_or_else(|| bad(format!("{uri} is not a file: URI of this host")))?;
        let real = path.canonicalize().map_err(|e| bad(format!("{uri}: {e}")))?;
        if !real.is_dir() {
            return Err(bad(format!("{uri} is not a directory")));
        }
        let allowed = &self.shared.settings.allowed_directories;
        let inside = allowed.iter().any(|root| root.canonicalize().is_ok_and(|root| real.starts_with(root)));
        if inside { Ok(()) } else { Err(bad(format!("{uri} is outside of the allowed directories"))) }
    }

    /// `disposeSession`; the answer is `null`.
    pub fn dispose_session(&self, caller: &Caller, session: &str, reply: Reply) {
        match self.shared.registry.resolve(session) {
            Ok(Some(found)) if found.kind == ChannelKind::Session => {
                self.to_session(&found, SessionMessage::DisposeSession { caller: caller.clone(), reply });
            }
            Ok(_) => reply(Err(no_session(session))),
            Err(fault) => reply(Err(unavailable(fault))),
        }
    }

    /// `createChat`; the answer is `null`.
    pub fn create_chat(&self, caller: &Caller, command: CreateChat, reply: Reply) {
        match self.shared.registry.resolve(&command.session) {
            Ok(Some(found)) if found.kind == ChannelKind::Session => {
                let message = SessionMessage::CreateChat { caller: caller.clone(), command: Box::new(command), reply };
                self.to_session(&found, message);
            }
            Ok(_) => reply(Err(no_session(&command.session))),
            Err(fault) => reply(Err(unavailable(fault))),
        }
    }

    /// `disposeChat`; the answer is `null`.
    pub fn dispose_chat(&self, caller: &Caller, chat: &str, reply: Reply) {
        self.to_chat(chat, reply, |found, reply| SessionMessage::DisposeChat {
            caller: caller.clone(),
            chat: found.channel.clone(),
            reply,
        });
    }

    /// `fetchTurns`: the page is published before the answer `{}`. `window` is the caller's own.
    pub fn fetch_turns(&self, caller: &Caller, chat: &str, cursor: Option<&str>, window: Option<Window>, reply: Reply) {
        self.to_chat(chat, reply, |found, reply| SessionMessage::FetchTurns {
            caller: caller.clone(),
            chat: found.channel.clone(),
            cursor: cursor.map(str::to_owned),
            window,
            reply,
        });
    }

    fn to_chat(&self, chat: &str, reply: Reply, message: impl FnOnce(&Resolved, Reply) -> SessionMessage) {
        match self.shared.registry.resolve(chat) {
            Ok(Some(found)) if found.kind == ChannelKind::Chat => {
                let message = message(&found, reply);
                self.to_session(&found, message);
            }
            Ok(_) => reply(Err(Refusal::new(RefusalKind::NotFound, "not-found", format!("there is no chat {chat}")))),
            Err(fault) => reply(Err(unavailable(fault))),
        }
    }

    /// `resolveSessionConfig`: the schema of all properties, and the values with defaults filled in.
    pub fn resolve_session_config(&self, provider: Option<&str>, config: Option<&JsonObject>) -> Answer {
        let provider = provider.or_else(|| self.shared.default_provider()).unwrap_or_default();
        let Some(agent) = self.shared.agent(provider) else {
            let text = format!("provider: there is no agent {provider:?} on this host");
            return Err(Refusal::new(RefusalKind::UnknownProvider, "unknown-provider", text));
        };
        let (schema, mut values) = agent.configuration();
        values.extend(checked_config(agent.as_ref(), config.cloned())?);
        Ok(command::json(&ahp_types::commands::ResolveSessionConfigResult { schema, values }))
    }

    /// `x-scrollback/stateAt`, `/api/state` and `log state`: the state of a channel right after event `at` (now for
    /// `None`), as it is on disk; a closed chat's and a disposed session's too. Reads the store: call it where blocking is
    /// fine.
    ///
    /// # Errors
    /// A [`Refusal`] of kind `NotFound` for a channel that is not there or had no events then.
    pub fn state_at(&self, channel: &str, at: Option<ServerSeq>) -> Result<SnapshotJson, Refusal> {
        let store = self.shared.store.as_ref();
        let row = catalogue::channel(store, channel).map_err(unavailable)?;
        let (kind, id) = match row {
            Some(row) => (row.kind, ChannelId(row.id)),
            None => {
                let found = self.shared.registry.resolve(channel).map_err(unavailable)?;
                found.map(|found| (found.kind, found.id)).ok_or_else(|| not_found(channel))?
            }
        };
        state_of(store, channel, kind, id, at, self.shared.settings.max_snapshot)
    }

    /// What is remembered of a client, as it was given to [`Host::remember_client`].
    ///
    /// # Errors
    /// [`LogFault`] when the log cannot be read.
    pub fn recall_client(&self, client_id: &str) -> Result<Option<Value>, LogFault> {
        let row = self.shared.store.get(Table::Client, client_id.as_bytes())?;
        Ok(row.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// Writes down what is to be remembered of a client, over whatever was.
    pub fn remember_client(&self, client_id: &str, client: Value) {
        self.to_root(RootMessage::Remember { client_id: client_id.to_owned(), client });
    }

    /// A connection has shaken hands as this client.
    pub fn client_arrived(&self, caller: &Caller) {
        self.shared.clients.arrived(&caller.client_id, caller.connection.id);
    }

    /// The connection of `caller` ended.
    pub fn client_gone(&self, caller: &Caller) {
        self.shared.clients.gone(&caller.client_id, caller.connection.id);
    }

    /// A connection of `caller` ended, or left `session`: its active-client entries go after the grace time unless the
    /// same client comes back.
    pub fn client_left(&self, caller: &Caller, session: &Channel) {
        if let Ok(Some(found)) = self.shared.registry.resolve(session.as_str()) {
            let client_id = Arc::clone(&caller.client_id);
            let message = SessionMessage::ClientLeft { client_id, connection: caller.connection.id };
            self.shared.registry.send_if_awake(found.session, message);
        }
    }

    /// For tests: makes the actor of this chat panic.
    #[doc(hidden)]
    pub fn panic_in_chat(&self, chat: &str) {
        if let Ok(Some(found)) = self.shared.registry.resolve(chat) {
            self.shared.registry.send(found.session, SessionMessage::Panic { chat: found.channel });
        }
    }

    /// Takes no new work, ends the agents, freezes running turns, writes everything down and closes the sockets.
    pub async fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.registry.send_all(|| SessionMessage::Stop);
        let started = Instant::now();
        while self.actors() > 0 && started.elapsed() < STOP_WAIT {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if let Some(root) = self.shared.root.get() {
            let _ = root.send(RootMessage::Stop).await;
        }
        self.shared.writer.stop();
        self.shared.hub.close_all(1001, "the host is stopping");
        self.shared.registry.stop();
    }
}

/// The state of a stored channel right after event `at`, as JSON.
///
/// # Errors
/// A [`Refusal`] of kind `NotFound` when the channel had no events then, `Internal` when they do not fold.
pub fn state_of(
    store: &dyn Store,
    name: &str,
    kind: ChannelKind,
    id: ChannelId,
    at: Option<ServerSeq>,
    max_bytes: usize,
) -> Result<SnapshotJson, Refusal> {
    let upto = at.unwrap_or(ServerSeq::MAX);
    let damaged = |fault: FoldFault| Refusal::new(RefusalKind::Internal, "damaged", fault.to_string());
    let found = match kind {
        ChannelKind::Root => replay::fold::<RootFold>(store, id, upto, true)
            .map_err(damaged)?
            .map(|at| (at.seq, serde_json::to_string(&at.fold.state).unwrap_or_default())),
        ChannelKind::Session => replay::fold::<SessionFold>(store, id, upto, true)
            .map_err(damaged)?
            .map(|at| (at.seq, serde_json::to_value(&at.fold.state).unwrap_or_default().to_string())),
        ChannelKind::Chat => match replay::fold::<ChatFold>(store, id, upto, true).map_err(damaged)? {
            None => None,
            Some(at) => {
                let limit = PageLimit { turns: u64::MAX, bytes: max_bytes };
                let read = |n| crate::projections::turns::read(store, id, n);
                let (json, _) = replay::chat_json(&at.fold, limit, read).map_err(damaged)?;
                Some((at.seq, json))
            }
        },
    };
    let (from_seq, state) = found.ok_or_else(|| {
        let text = format!("{name} had no events at or before {upto}");
        Refusal::new(RefusalKind::NotFound, "not-found", text)
    })?;
    Ok(SnapshotJson { resource: Channel::from(name), state: state.into(), from_seq })
}

/// What tells a re-sent action from a new one: the client, its number, the channel and the action.
fn fingerprint(caller: &Caller, client_seq: i64, channel: &Channel, action: &Value) -> [u8; 16] {
    let mut hash = Sha256::new();
    for part in [caller.client_id.as_bytes(), &client_seq.to_be_bytes(), channel.as_str().as_bytes()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.update(action.to_string().as_bytes());
    let mut print = [0; 16];
    for (to, from) in print.iter_mut().zip(hash.finalize()) {
        *to = from;
    }
    print
}

/// Whether `channel` is the session's default chat after this action if it was before.
fn keeps_default(action: &[u8], channel: &Channel) -> bool {
    if type_of(action) != "session/defaultChatChanged" {
        return true;
    }
    let value: Value = serde_json::from_slice(action).unwrap_or_default();
    value.get("defaultChat").and_then(Value::as_str) == Some(channel.as_str())
}

/// The path that a `file:` URI of this host names.
pub fn file_path(uri: &str) -> Option<std::path::PathBuf> {
    let rest = uri.strip_prefix("file://")?;
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') {
        return None;
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = tail.get(2..)?;
    }
    let text = String::from_utf8(bytes).ok()?;
    (!text.contains('\0')).then(|| std::path::PathBuf::from(text))
}

/// The values that a session is created with, checked against the agent's schema.
fn checked_config(agent: &dyn Agent, config: Option<JsonObject>) -> Result<JsonObject, Refusal> {
    let config = config.unwrap_or_default();
    let (schema, _) = agent.configuration();
    for (key, value) in &config {
        let invalid = |text: String| Refusal::new(RefusalKind::InvalidParams, "invalid-params", text);
        let property = schema.properties.get(key);
        let property = property.ok_or_else(|| invalid(format!("config: the agent has no property {key}")))?;
        check_value(key, property, value).map_err(|problem| invalid(format!("config: {problem}")))?;
    }
    Ok(config)
}
