//! The host as the protocol, the pages and the command line see it: every command, with where its answer goes.
//!
//! Commands that change something are answered through their lane, so an answer leaves only when what it rests on is
//! durable. Nothing here knows the transport.

mod compacting;
mod directories;
mod erasing;
mod retaining;
mod sessions;
mod settings;
mod states;
mod tokens;
mod tools;
mod visuals;
mod watches;

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use actix::Actor;
use actix::prelude::SendError;
use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

pub use erasing::{Erased, erase_closed};
pub use sessions::check_count;
pub use settings::HostSettings;
pub use states::{state_of, there_is, window_of};
pub use tools::{ToolUser, TranscriptPage};
pub use watches::{Watches, is_watch};

use crate::actors::agent::Agent;
use crate::actors::attaching::Attached;
use crate::actors::chat::{self, message, pages};
use crate::actors::clients::Clients;
use crate::actors::command::{ChatCommand, Refusal, RefusalKind, Reply};
use crate::actors::connection::{Caller, Connection, Window};
use crate::actors::core::ClientAction;
use crate::actors::identity::Identity;
use crate::actors::moves::{MoveChat, MoveTo};
use crate::actors::owed::{self, OwedResumes};
use crate::actors::people::{PeopleInForce, Reads};
use crate::actors::probing::{AgentReport, Probes};
use crate::actors::registry::{Registry, Resolved};
use crate::actors::rejection::{Code, Rejection};
use crate::actors::root::{RootActor, RootMessage};
use crate::actors::router::Hub;
use crate::actors::session::sources::{Moment, Source};
use crate::actors::session::{OnLook, SessionMessage, reject_at};
use crate::actors::shared::Shared;
use crate::actors::tools::ToolTokens;
use crate::actors::visuals::Links;
use crate::actors::writer::LogWriter;
use crate::attachments::{Attachments, sent};
use crate::clock::Clock;
use crate::events::rows::{ChannelKind, number_of_key};
use crate::events::{Batch, Channel, ChannelId, FreeSpace, Kind, LogFault, NewEvent, ServerSeq, Store, Table};
use crate::projections::action::{Action, ActionFault, type_of};
use crate::projections::fact::Fact;
use crate::projections::people::Operation;
use crate::projections::{FoldFault, catalogue};
use crate::resources::Roots;
use crate::telemetry;

/// A snapshot on its way to a client.
#[derive(Debug, Clone)]
pub struct SnapshotJson {
    /// The name that the client used.
    pub resource: Channel,
    /// The JSON of the state.
    pub state: Bytes,
    /// The newest event of the channel that it holds.
    pub from_seq: ServerSeq,
    /// The first and the last of the events that became one, where the one that was asked for is among them.
    pub folded: Option<(ServerSeq, ServerSeq)>,
}

impl SnapshotJson {
    /// The AHP `Snapshot` as JSON text, the state spliced in.
    pub fn json(&self) -> String {
        let folded = self.folded.map(|(first, last)| format!(r#","folded":[{first},{last}]"#));
        format!(
            r#"{{"resource":{},"state":{},"fromSeq":{}{}}}"#,
            serde_json::Value::from(self.resource.as_str()),
            String::from_utf8_lossy(&self.state),
            self.from_seq,
            folded.unwrap_or_default()
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
#[derive(Debug, Clone, Default)]
pub struct CreateChat {
    pub session: String,
    pub chat: String,
    pub initial_message: Option<Box<RawValue>>,
    pub source: Option<Source>,
    pub working_directories: Option<Vec<String>>,
    /// The first message with the bytes that it attaches, where it does.
    pub with_bytes: Option<Box<RawValue>>,
    /// What came of its attachments.
    pub attached: Option<Arc<Attached>>,
}

impl CreateChat {
    /// Takes what only the host says, and the bytes, out of the first message.
    fn lighten(mut self) -> Self {
        let first = self.initial_message.as_ref();
        let Some(mut message) = first.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok()) else {
            return self;
        };
        message::clean(&mut message);
        sent::lighten(&mut message);
        if let Ok(light) = RawValue::from_string(message.to_string()) {
            self.with_bytes = self.initial_message.replace(light);
        }
        self
    }
}

/// Where `moveChat` is to bring a chat, checked for shape by the protocol.
#[derive(Debug, Clone)]
pub enum Destination {
    /// Into a session, behind the chat `after`; to its first place without one.
    Session { session: String, after: Option<String> },
    /// Into a session of its own.
    NewSession,
}

/// What an action of a type needs on a channel of a kind; `None` where nothing is written down for it.
pub type Needs = dyn Fn(ChannelKind, &str) -> Option<Operation>;

/// How long a stop waits for the actors to write down what they hold.
const STOP_WAIT: Duration = Duration::from_secs(5);
/// How long a start waits for interrupted turns to get their endings.
const RECOVERY_WAIT: Duration = Duration::from_secs(30);

/// A chat in which a turn runs, or background work.
struct Running {
    chat: ChannelId,
    uri: Channel,
    /// Its newest event.
    newest: Option<ServerSeq>,
}

/// A running host.
pub struct Host {
    pub(super) shared: Arc<Shared>,
}

/// What a start says of a place that does not fold.
fn damaged(place: &'static str) -> impl Fn(FoldFault) -> LogFault {
    move |fault| match fault {
        FoldFault::Log(fault) => fault,
        other => LogFault::Damaged { place: place.into(), problem: other.to_string() },
    }
}

fn not_found(uri: &str) -> Refusal {
    Refusal::new(RefusalKind::NotFound, "not-found", format!("there is no channel {uri}"))
}

fn no_session(uri: &str) -> Refusal {
    Refusal::new(RefusalKind::UnknownSession, "unknown-session", format!("there is no session {uri}"))
}

impl Host {
    /// Starts the host on `store`: its writer, its root channel and its registry. Must run inside an actix system. Turns
    /// that were interrupted are taken up or ended by [`Host::recover`].
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
        telemetry::read_by(Arc::<Hub>::downgrade(&hub));
        let attachments = Attachments::start(settings.data_directory.as_deref(), Arc::clone(&store));
        erasing::finish(store.as_ref(), &attachments, clock.now()).map_err(damaged("what was being erased"))?;
        let people = PeopleInForce::read(store.as_ref()).map_err(damaged("the people"))?;
        let writer = LogWriter::start(Arc::clone(&store), Arc::clone(&hub), settings.durability)?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
        let links = Links::new(settings.public_url.as_deref().unwrap_or(&settings.address_url));
        let began_after = store.next_seq().saturating_sub(1);
        let roots = Roots::new(&settings.allowed_directories, settings.data_directory.as_deref());
        let roots = roots.without(&settings.secret_files);
        let shared = Arc::new(Shared {
            roots: Arc::new(roots),
            settings,
            store,
            attachments,
            hub,
            writer,
            agents,
            probes: Probes::default(),
            clock,
            registry: Registry::new(threads),
            moves: Arc::default(),
            clients: Clients::default(),
            people: Arc::new(people),
            tokens: ToolTokens::default(),
            resource_tokens: Arc::default(),
            watches: Watches::default(),
            owed: OwedResumes::default(),
            links,
            began_after,
            root: OnceLock::new(),
            keeping: tokio::sync::Mutex::new(()),
            deferred_titles: AtomicBool::new(false),
            erased: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            processes: AtomicU64::new(0),
            actors: AtomicUsize::new(0),
        });
        shared.registry.belongs_to(&shared);
        shared.hub.belongs_to(&shared);
        let root = RootActor::new(Arc::clone(&shared)).map_err(damaged("the root channel"))?;
        let _ = shared.root.set(root.start());
        owed::wait(&shared);
        retaining::wait(&shared);
        Ok(Arc::new(Self { shared }))
    }

    /// Takes up the turns that a crash or a stop interrupted, or ends them. Returns how many there were, once the log says
    /// of each what becomes of it.
    ///
    /// # Errors
    /// Where the log and the attachments are; `None` for a host without a directory.
    pub fn data_directory(&self) -> Option<&std::path::Path> {
        self.shared.settings.data_directory.as_deref()
    }

    /// [`LogFault`] when the store cannot be read.
    pub async fn recover(&self) -> Result<usize, LogFault> {
        let running = self.running()?;
        let mut awaited = Vec::with_capacity(running.len());
        for Running { chat, uri, newest } in &running {
            match self.shared.registry.resolve(uri.as_str()) {
                Ok(Some(found)) if found.id == *chat => {
                    let message = SessionMessage::Recover { chat: found.channel };
                    self.shared.registry.send(found.session, message);
                    awaited.push((*chat, *newest));
                }
                Ok(_) => tracing::warn!(chat = %uri, "a turn runs in a chat that is gone"),
                Err(fault) => tracing::error!(%fault, chat = %uri, "an interrupted turn cannot be ended"),
            }
        }
        let started = Instant::now();
        while started.elapsed() < RECOVERY_WAIT {
            // Where it fails, the running turns are still in the store, and it is tried again.
            let _ = self.shared.writer.barrier().await;
            // What is decided of a chat is the first that is recorded in it. What runs in it by then may be the next turn.
            let running = self.running()?;
            if !running.into_iter().any(|running| awaited.contains(&(running.chat, running.newest))) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // It is decided at once, in more than one batch where background work ends too.
        let _ = self.shared.writer.barrier().await;
        Ok(running.len())
    }

    fn running(&self) -> Result<Vec<Running>, LogFault> {
        let store = self.shared.store.as_ref();
        let mut ids = Vec::new();
        store.scan_rows(Table::Running, &[], None, &mut |key, _| {
            ids.extend(number_of_key(key).map(ChannelId));
            ControlFlow::Continue(())
        })?;
        let mut running = Vec::new();
        for chat in ids {
            let newest = store.last_of(chat, ServerSeq::MAX)?;
            match catalogue::uri(store, chat) {
                Ok(uri) => running.extend(uri.map(|uri| Running { chat, uri, newest })),
                Err(FoldFault::Log(fault)) => return Err(fault),
                Err(other) => tracing::error!(fault = %other, "a channel's row cannot be read"),
            }
        }
        Ok(running)
    }

    pub fn settings(&self) -> &HostSettings {
        &self.shared.settings
    }

    pub fn attachments(&self) -> &Attachments {
        &self.shared.attachments
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

    /// Where resources may be.
    pub fn roots(&self) -> &Arc<Roots> {
        &self.shared.roots
    }

    pub fn agents(&self) -> &[Arc<dyn Agent>] {
        &self.shared.agents
    }

    /// Probes every agent, once a start. What is found is what clients are told of the agents from then on.
    pub fn probe_agents(&self) {
        for agent in &self.shared.agents {
            let (shared, provider, probe) = (Arc::clone(&self.shared), agent.provider().to_owned(), agent.probe());
            actix_rt::spawn(async move {
                let probe = probe.await;
                if let Some(problem) = &probe.problem {
                    tracing::warn!(agent = provider, problem, "an agent does not start here");
                }
                shared.probes.note(&provider, probe);
                if let Some(root) = shared.root.get() {
                    root.do_send(RootMessage::AgentsProbed);
                }
            });
        }
    }

    /// Which agents start here and what they can do, once every one was probed: see [`Host::probe_agents`].
    pub async fn agent_reports(&self) -> Vec<AgentReport> {
        self.shared.probes.of(&self.shared.agents).await
    }

    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Which sessions are awake, in no order.
    pub fn awake_sessions(&self) -> Vec<ChannelId> {
        self.shared.registry.awake_sessions()
    }

    /// Bytes free on the disk of the data directory, where there is one.
    pub fn free_bytes(&self) -> Option<u64> {
        let directory = self.shared.settings.data_directory.as_deref()?;
        FreeSpace::disk().at(directory).ok()
    }

    /// Agents' processes that are up.
    pub fn processes(&self) -> u64 {
        self.shared.processes.load(Ordering::Acquire)
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
    /// `needs` says what an action of this type needs on a channel of this kind; one that needs nothing written down is the
    /// deployment's.
    pub fn dispatch(&self, caller: &Caller, channel: &str, client_seq: i64, action: &RawValue, needs: &Needs) {
        let found = match self.shared.find(&caller.who, channel) {
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
            attached: None,
            held: Arc::new(caller.connection.received.hold_action(action.get().len())),
        };
        let mut value = value;
        message::clean(&mut value);
        if let Some(message) = sent::message_of(&mut value) {
            sent::lighten(message);
        }
        // What is refused goes the same way, so that a client hears of its actions in the order in which it sent them.
        let parsed = Action::from_json(value);
        let action = self.check_permitted(caller, &found, &parsed, needs).and_then(|()| {
            let action = parsed.map_err(Rejection::from)?;
            if found.kind == ChannelKind::Session {
                self.check_granted(&action.decoded)?;
            }
            chat::check_length(action.bytes.len(), &self.shared.settings)?;
            Ok(Box::new(action))
        });
        match found.kind {
            ChannelKind::Root => self.dispatch_to_root(client, action),
            // Its name is nobody's to find.
            ChannelKind::People => {}
            ChannelKind::Session | ChannelKind::Chat | ChannelKind::Canvas => {
                self.to_session(&found, SessionMessage::Dispatch { channel: found.channel.clone(), client, action });
            }
        }
    }

    /// Whether `caller` may send an action of this type, before anything else of it is looked at.
    fn check_permitted(
        &self,
        caller: &Caller,
        found: &Resolved,
        action: &Result<Action, ActionFault>,
        needs: &Needs,
    ) -> Result<(), Rejection> {
        let kind = match action {
            Ok(action) => type_of(&action.bytes),
            Err(ActionFault::Malformed { action, .. }) => action.as_str().into(),
            // What nobody knows is refused as such, for everybody.
            Err(ActionFault::NoType | ActionFault::Unknown(_)) => return Ok(()),
        };
        let operation = needs(found.kind, &kind);
        let may = |operation| self.shared.may_there(&caller.who, operation, found);
        if caller.who.is_root() || operation.is_some_and(may) {
            return Ok(());
        }
        let text = match operation {
            Some(operation) => operation.not_granted(),
            None => "is not granted to anybody".to_owned(),
        };
        Err(Rejection::new(Code::NotPermitted, text))
    }

    /// Those with tokens of their own.
    pub fn people_in_force(&self) -> &Arc<PeopleInForce> {
        &self.shared.people
    }

    /// Whether `who` may do it in the session that has this very URI. Looks nothing up.
    pub fn may_in(&self, who: &Identity, operation: Operation, session: &str) -> bool {
        self.shared.may(who, operation, Some(session))
    }

    /// Whether `who` may do it: for the host as a whole, or in the session of the channel that `channel` names.
    pub fn may(&self, who: &Identity, operation: Operation, channel: Option<&str>) -> bool {
        if self.shared.may(who, operation, channel) {
            return true;
        }
        let found = channel.and_then(|channel| self.shared.registry.resolve(channel).ok().flatten());
        found.is_some_and(|found| self.shared.may_there(who, operation, &found))
    }

    /// Whether `who` may do it in any session at all.
    pub fn may_somewhere(&self, who: &Identity, operation: Operation) -> bool {
        self.shared.may_somewhere(who, operation)
    }

    /// Whether `who` may read what `channel` names now.
    pub fn may_read(&self, who: &Identity, channel: &str) -> bool {
        self.shared.reads(who, channel) == Reads::Yes
    }

    /// Whether who was let in would be let in now.
    pub fn is_known(&self, who: &Identity) -> bool {
        self.shared.is_known(who)
    }

    fn dispatch_to_root(&self, client: ClientAction, action: Result<Box<Action>, Rejection>) {
        let Some(root) = self.shared.root.get() else { return };
        let refused = root.try_send(RootMessage::Dispatch { client, action });
        if let Err(SendError::Full(RootMessage::Dispatch { client, .. })) = refused {
            let rejection = Rejection::too_much("the root has too much to do: try again");
            reject_at(&client, self.shared.writer.handed_over(), &rejection);
        }
    }

    fn to_root(&self, message: RootMessage) {
        if let Some(root) = self.shared.root.get() {
            root.do_send(message);
        }
    }

    fn to_session(&self, found: &Resolved, message: SessionMessage) {
        self.shared.registry.deliver(found, message);
    }

    /// Subscribes `caller` to `channel` with the newest `turns` finished turns (all for `None`).
    pub fn subscribe(&self, caller: &Caller, channel: &str, turns: Option<u64>, then: OnSnapshot) {
        let Some(then) = self.subscribe_to_watch(caller, channel, then) else { return };
        let alias = Channel::from(channel);
        let refusal = match self.shared.find(&caller.who, channel) {
            Ok(Some(found)) => {
                let caller = caller.clone();
                return match found.kind {
                    ChannelKind::Root => self.to_root(RootMessage::Subscribe { caller, alias, then, again: false }),
                    _ => {
                        let channel = found.channel.clone();
                        let message = SessionMessage::Subscribe { channel, alias, caller, turns, then, again: false };
                        self.to_session(&found, message);
                    }
                };
            }
            Ok(None) => not_found(channel),
            Err(fault) => Refusal::log_unavailable(fault),
        };
        caller.connection.run(Box::new(move |connection| then(connection, Err(refusal))));
    }

    /// The agent with this provider id.
    pub fn agent(&self, provider: &str) -> Option<Arc<dyn Agent>> {
        self.shared.agent(provider).map(Arc::clone)
    }

    /// The one name and the number of the channel that `uri` names now (itself, or a synonym), if it is there and `who` may read
    /// it.
    ///
    /// # Errors
    /// [`LogFault`] when the store cannot be read.
    pub fn resolve(&self, who: &Identity, uri: &str) -> Result<Option<(Channel, ChannelId)>, LogFault> {
        match self.shared.find(who, uri) {
            Ok(found) => Ok(found.map(|found| (found.channel, found.id))),
            Err(FoldFault::Log(fault)) => Err(fault),
            Err(other) => Err(LogFault::Engine(other.to_string())),
        }
    }

    /// `disposeSession`; the answer is `null`.
    pub fn dispose_session(&self, caller: &Caller, session: &str, reply: Reply) {
        match self.shared.find(&caller.who, session) {
            Ok(Some(found)) if found.kind == ChannelKind::Session => {
                self.to_session(&found, SessionMessage::DisposeSession { caller: caller.clone(), reply });
            }
            Ok(_) => reply(Err(no_session(session))),
            Err(fault) => reply(Err(Refusal::log_unavailable(fault))),
        }
    }

    /// `createChat`; the answer is `null`.
    pub fn create_chat(&self, caller: &Caller, command: CreateChat, reply: Reply) {
        if let Some(source) = command.source.as_ref().map(Source::chat)
            && !matches!(command.source, Some(Source::ForkAt { .. }))
            && self.shared.reads(&caller.who, source) != Reads::Yes
        {
            let text = format!("source: there is no chat {source}");
            return reply(Err(Refusal::new(RefusalKind::NotFound, "not-found", text)));
        }
        match self.shared.find(&caller.who, &command.session) {
            Ok(Some(found)) if found.kind == ChannelKind::Session => {
                let command = Box::new(command.lighten());
                let message = SessionMessage::CreateChat { caller: caller.clone(), command, reply };
                self.to_session(&found, message);
            }
            Ok(_) => reply(Err(no_session(&command.session))),
            Err(fault) => reply(Err(Refusal::log_unavailable(fault))),
        }
    }

    /// `x-scrollback/forkAt`; the answer is `null`.
    pub fn fork_at(&self, caller: &Caller, source: &str, chat: String, moment: Moment, reply: Reply) {
        if let Moment::Seq(seq) = moment
            && let Err(refusal) = states::there_is(Some(seq), self.shared.writer.handed_over())
        {
            return reply(Err(refusal));
        }
        // A closed chat is for those who read the log.
        let reads = match self.shared.registry.resolve(source) {
            Ok(Some(found)) => self.shared.may_read(&caller.who, &found),
            _ => self.may_read_log_of(&caller.who, source),
        };
        let forks = |session: &Channel| self.shared.may(&caller.who, Operation::ChatFork, Some(session.as_str()));
        let session = match self.shared.registry.session_of_chat(source) {
            Ok(Some(session)) if caller.who.is_root() || reads && forks(&session) => session,
            Ok(Some(_)) if reads => {
                return reply(Err(Refusal::not_permitted(Operation::ChatFork)));
            }
            Ok(_) => {
                let text = format!("there is no chat {source}");
                return reply(Err(Refusal::new(RefusalKind::NotFound, "not-found", text)));
            }
            Err(fault) => return reply(Err(Refusal::log_unavailable(fault))),
        };
        let source = Some(Source::ForkAt { chat: source.to_owned(), moment });
        let command = CreateChat { session: session.to_string(), chat, source, ..CreateChat::default() };
        self.create_chat(caller, command, reply);
    }

    /// `disposeChat`; the answer is `null`.
    pub fn dispose_chat(&self, caller: &Caller, chat: &str, reply: Reply) {
        self.to_chat(self.shared.find(&caller.who, chat), chat, reply, |found, reply| SessionMessage::DisposeChat {
            caller: caller.clone(),
            chat: found.channel.clone(),
            reply,
        });
    }

    /// `moveChat`; the answer names the session that the chat is in then.
    pub fn move_chat(&self, caller: &Caller, chat: &str, destination: Destination, reply: Reply) {
        let (shared, caller, chat) = (Arc::clone(&self.shared), caller.clone(), chat.to_owned());
        let begin = move |ticket| match way_of(&shared, &caller.who, &chat, destination) {
            Ok((found, to)) => {
                let command = MoveChat { caller, chat: found.channel.clone(), to, ticket, reply };
                shared.registry.deliver(&found, SessionMessage::MoveChat(Box::new(command)));
            }
            Err(refusal) => reply(Err(refusal)),
        };
        self.shared.moves.enter(Box::new(begin));
    }

    /// `fetchTurns`: the page is published before the answer `{}`. `window` is the caller's own.
    pub fn fetch_turns(&self, caller: &Caller, chat: &str, cursor: Option<&str>, window: Option<Window>, reply: Reply) {
        self.to_chat(self.shared.find(&caller.who, chat), chat, reply, |found, reply| SessionMessage::FetchTurns {
            caller: caller.clone(),
            chat: found.channel.clone(),
            cursor: cursor.map(str::to_owned),
            window,
            reply,
        });
    }

    /// A command of the extensions for one chat.
    pub fn command(&self, caller: &Caller, chat: &str, command: ChatCommand, reply: Reply) {
        self.to_chat(self.shared.find(&caller.who, chat), chat, reply, |found, reply| SessionMessage::Command {
            caller: caller.clone(),
            chat: found.channel.clone(),
            command,
            reply,
        });
    }

    /// Looks at what a chat is in: its agent, its directories, the session's other chats. `then` only hands over.
    pub fn look_at_chat(&self, who: &Identity, chat: &str, then: OnLook) {
        match self.shared.find(who, chat) {
            Ok(Some(found)) if found.kind == ChannelKind::Chat => {
                self.to_session(&found, SessionMessage::Look { chat: found.channel.clone(), then });
            }
            Ok(_) => then(Err(Refusal::new(RefusalKind::NotFound, "not-found", format!("there is no chat {chat}")))),
            Err(fault) => then(Err(Refusal::log_unavailable(fault))),
        }
    }

    pub(super) fn to_chat(
        &self,
        found: Result<Option<Resolved>, FoldFault>,
        chat: &str,
        reply: Reply,
        message: impl FnOnce(&Resolved, Reply) -> SessionMessage,
    ) {
        match found {
            Ok(Some(found)) if found.kind == ChannelKind::Chat => {
                let message = message(&found, reply);
                self.to_session(&found, message);
            }
            Ok(_) => reply(Err(Refusal::new(RefusalKind::NotFound, "not-found", format!("there is no chat {chat}")))),
            Err(fault) => reply(Err(Refusal::log_unavailable(fault))),
        }
    }

    /// Writes down that `principal` changed files; answers once it is durable.
    ///
    /// # Errors
    /// A [`Refusal`] when the log takes nothing: the files are changed all the same.
    pub async fn note_resource_change(&self, principal: &Arc<str>, change: Fact) -> Result<(), Refusal> {
        let event = NewEvent {
            channel: Channel::root(),
            channel_id: ChannelId::ROOT,
            kind: Kind::Host,
            at: self.shared.clock.now(),
            principal: Arc::clone(principal),
            origin: None,
            about: None,
            action: change.bytes(),
        };
        self.shared.record(Batch { events: vec![event], rows: Vec::new() }).await
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

    /// A connection has shaken hands as this client. One that comes back names what it comes back to: in other sessions it is
    /// active no more.
    pub fn client_arrived(&self, caller: &Caller, returns_to: Option<HashSet<Channel>>) {
        let clients = &self.shared.clients;
        clients.arrived(&caller.client_id, caller.connection.id, returns_to.clone());
        let Some(returns_to) = returns_to else { return };
        for session in clients.active_in(&caller.client_id) {
            let uri = self.shared.registry.session_uri(session).ok().flatten();
            if uri.is_some_and(|uri| !returns_to.contains(&uri)) {
                self.tell_left(caller, session, true);
            }
        }
    }

    /// The connection of `caller` ended: its active-client entries go after the grace time, unless it comes back.
    pub fn client_gone(&self, caller: &Caller) {
        self.shared.clients.gone(&caller.client_id, caller.connection.id);
        for session in self.shared.clients.active_in(&caller.client_id) {
            self.tell_left(caller, session, false);
        }
    }

    /// A connection of `caller` left `session`: its active-client entry goes at once.
    pub fn client_left(&self, caller: &Caller, session: &Channel) {
        if let Ok(Some(found)) = self.shared.registry.resolve(session.as_str()) {
            self.tell_left(caller, found.session, true);
        }
    }

    fn tell_left(&self, caller: &Caller, session: ChannelId, at_once: bool) {
        let (client_id, connection) = (Arc::clone(&caller.client_id), caller.connection.id);
        let message = SessionMessage::ClientLeft { client_id, connection, at_once };
        self.shared.registry.send_if_awake(session, message);
    }

    /// For tests: makes the actor of this chat panic.
    #[doc(hidden)]
    pub fn panic_in_chat(&self, chat: &str) {
        if let Ok(Some(found)) = self.shared.registry.resolve(chat) {
            self.shared.registry.send(found.session, SessionMessage::Panic { chat: found.channel });
        }
    }

    /// For tests: makes the actor of this session panic.
    #[doc(hidden)]
    pub fn panic_in_session(&self, session: &str) {
        if let Ok(Some(found)) = self.shared.registry.resolve(session) {
            self.shared.registry.send(found.session, SessionMessage::PanicHere);
        }
    }

    /// Takes no new work, ends the agents, freezes running turns, writes everything down and closes the sockets.
    pub async fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.owed.look();
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

/// The chat, and where it is to go.
fn way_of(
    shared: &Shared,
    who: &Identity,
    chat: &str,
    destination: Destination,
) -> Result<(Resolved, MoveTo), Refusal> {
    let find = |uri: &str, kind: ChannelKind| match shared.find(who, uri) {
        Ok(Some(found)) if found.kind == kind => Ok(found),
        Ok(_) => Err(not_found(uri)),
        Err(fault) => Err(Refusal::log_unavailable(fault)),
    };
    // Moves go one at a time: what was so when this one was asked for may be otherwise now.
    let permit = |operation: Operation, found: &Resolved| match shared.may_there(who, operation, found) {
        true => Ok(()),
        false => Err(Refusal::not_permitted(operation)),
    };
    let found = find(chat, ChannelKind::Chat)?;
    permit(Operation::ChatMove, &found)?;
    let to = match destination {
        Destination::NewSession => MoveTo::NewSession,
        Destination::Session { session, after } => {
            let session = find(&session, ChannelKind::Session)?;
            permit(Operation::ChatCreate, &session)?;
            MoveTo::Session { session: session.channel, id: session.id, after }
        }
    };
    Ok((found, to))
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
