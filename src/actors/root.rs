//! The actor of the root channel: the agents, the root's configuration, and how many sessions there are.
//!
//! Its lane is its own. Its state begins with a fact of the host and is brought up to date at each start: the agents are
//! those of this start's configuration.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, Message};
use ahp_types::actions::{RootActiveSessionsChangedAction, RootAgentsChangedAction, StateAction};
use ahp_types::common::JsonObject;
use ahp_types::state::{ConfigPropertySchema, ConfigSchema, RootConfigState, RootState};
use bytes::Bytes;
use serde_json::{Value, json};

use super::agent::Agent;
use super::command::{Reply, null};
use super::connection::{Caller, Subscription};
use super::core::{ClientAction, Unsaved, checkpoint};
use super::host::{OnSnapshot, SnapshotJson};
use super::rejection::{Code, Rejection};
use super::resent;
use super::session::{RETRY, SessionMessage, echo, refusal_of_lost, reject, reject_lost};
use super::shared::Shared;
use super::writer::Lane;
use crate::clock::Millis;
use crate::events::rows::ChannelKind;
use crate::events::{Batch, Channel, ChannelId, Kind, NewEvent, RowOp, ServerSeq, Table};
use crate::projections::action::Action;
use crate::projections::fact::Fact;
use crate::projections::replay;
use crate::projections::root::RootFold;
use crate::projections::{FoldFault, catalogue};

/// The root configuration key that leaves naming chats to people.
pub const DEFERRED_TITLES: &str = "deferredTitleGeneration";
/// The key of the root's `_meta` that says what AHP has no field for, by provider.
pub const AGENT_EXTRAS: &str = "scrollback.agents";

/// The lane of what is remembered of clients; no channel has this number.
const CLIENTS_LANE: ChannelId = ChannelId(u64::MAX);

/// What the root is told.
#[derive(Message)]
#[rtype(result = "()")]
pub enum RootMessage {
    Dispatch {
        client: ClientAction,
        action: Result<Box<Action>, Rejection>,
    },
    Subscribe {
        caller: Caller,
        alias: Channel,
        then: OnSnapshot,
        /// It rested on something that was lost, and is asked for again.
        again: bool,
    },
    /// Sessions came or went.
    SessionsChanged {
        by: i64,
    },
    /// Something to remember of a client.
    Remember {
        client_id: String,
        client: Value,
    },
    /// A fact of the host about what is gone, with its rows; answered once it is durable.
    Record {
        batch: Batch,
        reply: Reply,
    },
    /// The events of this session or chat, which was closed, are to be removed for good.
    Erase {
        principal: Arc<str>,
        uri: Channel,
    },
    /// The actor of this session panicked: it is read from the log again.
    Wake {
        session: ChannelId,
    },
    /// What an agent can do may have changed.
    AgentsProbed,
    /// Changes a row beside the log that belongs to nobody any more.
    Row(RowOp),
    /// A batch was lost.
    Lost {
        generation: u64,
    },
    /// Ends when everything before was handed to the lane.
    Stop,
}

/// The actor.
pub struct RootActor {
    shared: Arc<Shared>,
    fold: RootFold,
    lane: Lane,
    unsaved: Unsaved,
}

impl RootActor {
    /// Reads the root from the log and brings it up to date with this start's agents.
    ///
    /// # Errors
    /// [`FoldFault`] when it cannot be read.
    pub fn new(shared: Arc<Shared>) -> Result<Self, FoldFault> {
        let lane = shared.writer.lane(ChannelId::ROOT);
        let read = replay::fold::<RootFold>(shared.store.as_ref(), ChannelId::ROOT, ServerSeq::MAX, true)?;
        let sessions = i64::try_from(catalogue::count(shared.store.as_ref())?).unwrap_or(i64::MAX);
        let begins = read.is_none();
        let unsaved = read.as_ref().map_or_else(Unsaved::default, |at| Unsaved::after_replay(at.since_checkpoint));
        let fold = read.map_or_else(|| RootFold::new(first_state(&shared.agents)), |at| at.fold);
        let mut root = Self { shared, fold, lane, unsaved };
        if begins {
            root.begin();
        }
        // What a host that only keeps the log in order lacks is no news.
        if !root.shared.settings.maintenance {
            root.bring_up_to_date(sessions);
        }
        root.note_configuration();
        root.handed_over();
        Ok(root)
    }

    /// Waits, at a start, until what was appended is with the routers: who comes back must not read a log that lacks it.
    fn handed_over(&self) {
        let (done, wait) = std::sync::mpsc::channel();
        self.lane.release(None, Box::new(move |_| done.send(()).unwrap_or_default()));
        let _ = wait.recv();
    }

    fn begin(&mut self) {
        let fact = Fact::RootCreated { state: Box::new(self.fold.state.clone()) };
        self.append(Kind::Host, fact.bytes());
    }

    /// Appends what differs between the log and this start: the agents, and the number of sessions.
    fn bring_up_to_date(&mut self, sessions: i64) {
        let want = first_state(&self.shared.agents);
        if self.fold.state.agents != want.agents {
            self.say(StateAction::RootAgentsChanged(RootAgentsChangedAction { agents: want.agents }));
        }
        // What AHP has no field for has no action either: a change of it begins the root's state anew, with what it holds.
        if self.fold.state.meta != want.meta
            || self.fold.state.config.as_ref().map(|c| &c.schema) != want.config.as_ref().map(|c| &c.schema)
        {
            self.fold.state.meta = want.meta;
            let values = self.fold.state.config.take().map(|config| config.values).unwrap_or_default();
            self.fold.state.config = want.config.map(|config| RootConfigState { values, ..config });
            self.begin();
        }
        if self.fold.state.active_sessions != Some(sessions) {
            self.say(StateAction::RootActiveSessionsChanged(RootActiveSessionsChangedAction {
                active_sessions: sessions,
            }));
        }
    }

    fn note_configuration(&self) {
        let values = self.fold.state.config.as_ref().map(|config| &config.values);
        let deferred = values.and_then(|values| values.get(DEFERRED_TITLES)).and_then(Value::as_bool);
        self.shared.deferred_titles.store(deferred.unwrap_or(false), Ordering::Release);
    }

    fn say(&mut self, action: StateAction) {
        let action = Action::host(action);
        self.fold.apply(&action);
        self.append(Kind::Action, action.bytes);
    }

    fn append(&mut self, kind: Kind, action: Bytes) {
        let rows = match kind {
            Kind::Host => catalogue::register(&Channel::root(), ChannelId::ROOT, ChannelKind::Root, ChannelId(0)),
            Kind::Action => Vec::new(),
        };
        let event = self.event(kind, action);
        self.queue(event, rows);
    }

    /// Queues an event that the fold holds already, and the fold itself where it is time to save it.
    fn queue(&mut self, event: NewEvent, rows: Vec<RowOp>) {
        self.unsaved.add(event.action.len());
        self.hand_over(Batch { events: vec![event], rows });
        if self.unsaved.is_due() {
            self.save();
        }
    }

    fn save(&mut self) {
        let fold = Bytes::from(self.fold.to_checkpoint());
        self.unsaved = Unsaved::after_checkpoint(fold.len());
        self.hand_over(checkpoint(self.shared.store.as_ref(), ChannelId::ROOT, fold));
    }

    fn event(&self, kind: Kind, action: Bytes) -> NewEvent {
        NewEvent {
            channel: Channel::root(),
            channel_id: ChannelId::ROOT,
            kind,
            at: self.shared.clock.now(),
            principal: Arc::from("host"),
            origin: None,
            about: None,
            action,
        }
    }

    fn dispatch(&mut self, client: ClientAction, action: Action) {
        if self.lane.is_full() {
            return reject(&self.lane, client, Rejection::too_much("the root is waiting for the disk: try again"));
        }
        let StateAction::RootConfigChanged(change) = &action.decoded else {
            let rejection = super::session::not_for_this_channel(&action.bytes, "the root channel");
            return reject(&self.lane, client, rejection);
        };
        if let Some(value) = change.config.get(DEFERRED_TITLES).filter(|value| !value.is_boolean()) {
            let text = format!("{DEFERRED_TITLES} is true or false, not {value}");
            return reject(&self.lane, client, Rejection::new(Code::Malformed, text));
        }
        // Where the log cannot be read the action is new: it is refused with the log, or changes what is so already.
        if resent::was_recorded(self.shared.store.as_ref(), &client, &action.decoded).unwrap_or(false) {
            return echo(&self.lane, client);
        }
        let values = self.fold.state.config.as_ref().map(|config| &config.values);
        let same = |(key, value): (&String, &Value)| values.and_then(|values| values.get(key)) == Some(value);
        let drops = change.replace == Some(true) && values.is_some_and(|values| values.len() > change.config.len());
        if change.config.iter().all(same) && !drops {
            return echo(&self.lane, client);
        }
        self.fold.apply(&action);
        self.note_configuration();
        self.record(client, action);
    }

    fn record(&mut self, client: ClientAction, action: Action) {
        let event = NewEvent {
            channel: Channel::root(),
            channel_id: ChannelId::ROOT,
            kind: Kind::Action,
            at: self.shared.clock.now(),
            principal: Arc::clone(&client.caller.principal),
            origin: Some(client.origin()),
            about: None,
            action: action.bytes,
        };
        let value = Bytes::copy_from_slice(&client.caller.connection.id.to_be_bytes());
        let key = client.fingerprint.to_vec();
        let row = RowOp::PutWithSeq { table: Table::Dispatched, key, event: 0, value };
        self.queue(event, vec![row]);
        self.lane.release(
            None,
            Box::new(move |place| {
                if let Err(lost) = place {
                    reject_lost(&client, &lost);
                }
            }),
        );
    }

    /// Records facts that change nothing of the root's state, and answers when they are on disk.
    fn note(&mut self, batch: Batch, reply: Reply) {
        self.unsaved.add(batch.events.iter().map(|event| event.action.len()).sum());
        self.hand_over(batch);
        self.lane.release_on_disk(Box::new(move |place| match place {
            Ok(_) => reply(Ok(null())),
            Err(lost) => reply(Err(refusal_of_lost(&lost))),
        }));
    }

    fn remember(&self, client_id: String, client: Value) {
        let row = RowOp::Put {
            table: Table::Client,
            key: client_id.as_bytes().to_vec(),
            value: Bytes::from(client.to_string()),
        };
        // A lane of its own: nothing rests on it, so that a client which cannot be remembered is served all the same.
        let lane = self.shared.writer.lane(CLIENTS_LANE);
        let event = self.event(Kind::Host, Fact::Client { client_id, client }.bytes());
        lane.append(Batch { events: vec![event], rows: vec![row] });
    }

    fn subscribe(&self, caller: Caller, alias: Channel, then: OnSnapshot, again: bool) {
        let state = serde_json::to_vec(&self.fold.state).unwrap_or_default();
        let connection = caller.connection.clone();
        let shared = Arc::clone(&self.shared);
        self.lane.release(
            Some(ChannelId::ROOT),
            Box::new(move |place| match place {
                Ok(place) => {
                    let from_seq = place.channel_seq;
                    let subscription =
                        Subscription { channel: Channel::root(), alias: alias.clone(), from_seq, window: None };
                    let snapshot = SnapshotJson { resource: alias, state: state.into(), from_seq, folded: None };
                    connection.subscribe(subscription, Box::new(move |connection| then(connection, Ok(snapshot))));
                }
                // The old state is there to be read.
                Err(_) if !again && !shared.is_stopping() => {
                    if let Some(root) = shared.root.get() {
                        root.do_send(RootMessage::Subscribe { caller, alias, then, again: true });
                    }
                }
                Err(lost) => {
                    let refusal = refusal_of_lost(&lost);
                    connection.run(Box::new(move |connection| then(connection, Err(refusal))));
                }
            }),
        );
    }

    /// Subscribes once the root was read again.
    fn subscribe_again(&self, caller: Caller, alias: Channel, then: OnSnapshot, ctx: &Context<Self>) {
        if self.shared.writer.is_settled(ChannelId::ROOT) {
            return self.subscribe(caller, alias, then, true);
        }
        let address = ctx.address();
        let later = move || address.do_send(RootMessage::Subscribe { caller, alias, then, again: true });
        self.shared.writer.when_settled(ChannelId::ROOT, Box::new(later));
    }

    /// Gives a batch to the lane, and hears of it when it is lost: before anybody else does, who may ask again at once.
    fn hand_over(&self, batch: Batch) {
        self.lane.append(batch);
        let shared = Arc::clone(&self.shared);
        let generation = self.lane.generation();
        self.lane.release(
            None,
            Box::new(move |place| {
                if place.is_err()
                    && let Some(root) = shared.root.get()
                {
                    root.do_send(RootMessage::Lost { generation });
                }
            }),
        );
    }

    /// A batch was lost: the root is read from the log again, and a moment later what the host has to say of itself is
    /// said again.
    fn reload(&mut self, generation: u64, ctx: &mut Context<Self>) {
        if generation != self.lane.generation() {
            return;
        }
        if !self.shared.writer.is_settled(ChannelId::ROOT) {
            let address = ctx.address();
            let again = move || address.do_send(RootMessage::Lost { generation });
            return self.shared.writer.when_settled(ChannelId::ROOT, Box::new(again));
        }
        self.lane.reopen();
        match self.read() {
            Ok(Some(fold)) => self.fold = fold,
            Ok(None) => {}
            Err(fault) => tracing::error!(%fault, "the root cannot be read again"),
        }
        self.note_configuration();
        ctx.run_later(RETRY, Self::say_again);
    }

    fn read(&self) -> Result<Option<RootFold>, FoldFault> {
        let store = self.shared.store.as_ref();
        Ok(replay::fold::<RootFold>(store, ChannelId::ROOT, ServerSeq::MAX, true)?.map(|at| at.fold))
    }

    fn say_again(&mut self, _: &mut Context<Self>) {
        match self.read() {
            Ok(None) => self.begin(),
            Ok(Some(_)) => {}
            Err(fault) => return tracing::error!(%fault, "the root cannot be read again"),
        }
        match catalogue::count(self.shared.store.as_ref()) {
            Ok(sessions) => self.bring_up_to_date(i64::try_from(sessions).unwrap_or(i64::MAX)),
            Err(fault) => tracing::error!(%fault, "the sessions cannot be counted"),
        }
    }
}

impl Actor for RootActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.set_mailbox_capacity(4_096);
    }
}

impl Handler<RootMessage> for RootActor {
    type Result = ();

    fn handle(&mut self, message: RootMessage, ctx: &mut Context<Self>) {
        match message {
            RootMessage::Dispatch { client, action: Ok(action) } => self.dispatch(client, *action),
            RootMessage::Dispatch { client, action: Err(rejection) } => reject(&self.lane, client, rejection),
            RootMessage::Subscribe { caller, alias, then, again: false } => self.subscribe(caller, alias, then, false),
            RootMessage::Subscribe { caller, alias, then, again: true } => {
                self.subscribe_again(caller, alias, then, ctx)
            }
            RootMessage::SessionsChanged { by } => {
                let sessions = self.fold.state.active_sessions.unwrap_or(0).saturating_add(by).max(0);
                self.say(StateAction::RootActiveSessionsChanged(RootActiveSessionsChangedAction {
                    active_sessions: sessions,
                }));
            }
            RootMessage::AgentsProbed => {
                let sessions = self.fold.state.active_sessions.unwrap_or(0);
                self.bring_up_to_date(sessions);
            }
            RootMessage::Lost { generation } => self.reload(generation, ctx),
            RootMessage::Record { batch, reply } => self.note(batch, reply),
            RootMessage::Erase { principal, uri } => {
                let shared = Arc::clone(&self.shared);
                actix_rt::spawn(async move {
                    // Somebody may have brought it back before.
                    let erased = super::host::erase_closed(&shared, &principal, uri.as_str(), Millis::MAX).await;
                    if let Err(refusal) = erased {
                        tracing::error!(%refusal, %uri, "what was closed cannot be erased now: the next start does it");
                    }
                });
            }
            RootMessage::Remember { client_id, client } => self.remember(client_id, client),
            // In a while: its mailbox may still be closing.
            RootMessage::Wake { session } => drop(ctx.run_later(RETRY, move |root, _| {
                root.shared.registry.send(session, SessionMessage::Wake);
            })),
            RootMessage::Row(row) => self.hand_over(Batch { events: Vec::new(), rows: vec![row] }),
            RootMessage::Stop => {
                if !self.unsaved.is_empty() {
                    self.save();
                }
                ctx.stop();
            }
        }
    }
}

fn first_state(agents: &[Arc<dyn Agent>]) -> RootState {
    let extras: JsonObject = agents.iter().map(|agent| (agent.provider().to_owned(), json!(agent.extras()))).collect();
    let mut meta = JsonObject::new();
    meta.insert(AGENT_EXTRAS.into(), Value::Object(extras));
    RootState {
        agents: agents.iter().map(|agent| agent.info()).collect(),
        active_sessions: Some(0),
        terminals: None,
        config: Some(RootConfigState { schema: configuration(), values: JsonObject::new() }),
        meta: Some(meta),
    }
}

fn configuration() -> ConfigSchema {
    let property = ConfigPropertySchema {
        r#type: "boolean".into(),
        title: "Leave naming chats to people".into(),
        description: Some("A chat is named after its first message unless this is on.".into()),
        default: Some(Value::Bool(false)),
        r#enum: None,
        enum_labels: None,
        enum_descriptions: None,
        read_only: None,
        items: None,
        min_items: None,
        max_items: None,
        properties: None,
        required: None,
        additional_properties: None,
    };
    ConfigSchema {
        r#type: "object".into(),
        properties: HashMap::from([(DEFERRED_TITLES.to_owned(), property)]),
        required: None,
    }
}
