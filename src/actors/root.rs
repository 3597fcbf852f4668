//! The actor of the root channel: the agents, the root's configuration, and how many sessions there are.
//!
//! Its lane is its own. Its state begins with a fact of the host and is brought up to date at each start: the agents are
//! those of this start's configuration.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use actix::{Actor, ActorContext, Context, Handler, Message};
use ahp_types::actions::{RootActiveSessionsChangedAction, RootAgentsChangedAction, StateAction};
use ahp_types::common::JsonObject;
use ahp_types::state::{ConfigPropertySchema, ConfigSchema, RootConfigState, RootState};
use bytes::Bytes;
use serde_json::{Value, json};

use super::agent::Agent;
use super::command::{Refusal, RefusalKind};
use super::connection::{Caller, Subscription};
use super::core::{ClientAction, Unsaved, checkpoint};
use super::envelope;
use super::host::{OnSnapshot, SnapshotJson};
use super::rejection::{Code, Rejection};
use super::session::reject_at;
use super::shared::Shared;
use super::writer::Lane;
use crate::events::rows::{self, ChannelKind};
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

/// What the root is told.
#[derive(Message)]
#[rtype(result = "()")]
pub enum RootMessage {
    Dispatch {
        client: ClientAction,
        action: Box<Action>,
    },
    Subscribe {
        caller: Caller,
        alias: Channel,
        then: OnSnapshot,
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
    /// A count of sessions was lost: it is made anew with the next one.
    recount: bool,
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
        let mut root = match read {
            Some(at) => {
                let unsaved = Unsaved::after_replay(at.since_checkpoint);
                Self { shared, fold: at.fold, lane, unsaved, recount: false }
            }
            None => Self::begin(shared, lane),
        };
        root.bring_up_to_date(sessions);
        root.note_configuration();
        Ok(root)
    }

    fn begin(shared: Arc<Shared>, lane: Lane) -> Self {
        let fold = RootFold::new(first_state(&shared.agents));
        let mut root = Self { shared, fold, lane, unsaved: Unsaved::default(), recount: false };
        let fact = Fact::RootCreated { state: Box::new(root.fold.state.clone()) };
        root.append(Kind::Host, fact.bytes());
        root
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
            let fact = Fact::RootCreated { state: Box::new(self.fold.state.clone()) };
            self.append(Kind::Host, fact.bytes());
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
        self.append_with(kind, action, rows);
    }

    fn append_with(&mut self, kind: Kind, action: Bytes, rows: Vec<RowOp>) {
        let event = NewEvent {
            channel: Channel::root(),
            channel_id: ChannelId::ROOT,
            kind,
            at: self.shared.clock.now(),
            principal: Arc::from("host"),
            origin: None,
            about: None,
            action,
        };
        self.append_event(event, rows);
        self.lane.release(None, self.when_lost());
    }

    /// Queues an event that the fold holds already, and the fold itself where it is time to save it.
    fn append_event(&mut self, event: NewEvent, rows: Vec<RowOp>) {
        self.unsaved.add(event.action.len());
        self.lane.append(Batch { events: vec![event], rows });
        if self.unsaved.is_due() {
            self.save();
        }
    }

    fn save(&mut self) {
        self.unsaved = Unsaved::default();
        self.lane.append(checkpoint(ChannelId::ROOT, Bytes::from(self.fold.to_checkpoint())));
    }

    /// Tells this actor when what it queued before is lost.
    fn when_lost(&self) -> super::writer::Release {
        let shared = Arc::clone(&self.shared);
        let generation = self.lane.generation();
        Box::new(move |place| {
            if let (Err(_), Some(root)) = (place, shared.root.get()) {
                root.do_send(RootMessage::Lost { generation });
            }
        })
    }

    fn dispatch(&mut self, client: ClientAction, action: Action) {
        let StateAction::RootConfigChanged(change) = &action.decoded else {
            let rejection = super::session::not_for_this_channel(&action.bytes, "the root channel");
            return self.refuse(client, rejection);
        };
        if let Some(value) = change.config.get(DEFERRED_TITLES).filter(|value| !value.is_boolean()) {
            let text = format!("{DEFERRED_TITLES} is true or false, not {value}");
            return self.refuse(client, Rejection::new(Code::Malformed, text));
        }
        if self.is_resent(&client) {
            return self.echo(client);
        }
        let values = self.fold.state.config.as_ref().map(|config| &config.values);
        let same = |(key, value): (&String, &Value)| values.and_then(|values| values.get(key)) == Some(value);
        if change.replace != Some(true) && change.config.iter().all(same) {
            return self.echo(client);
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
        self.append_event(event, vec![row]);
        let shared = Arc::clone(&self.shared);
        self.lane.release(
            None,
            Box::new(move |place| {
                let Err(lost) = place else { return };
                let rejection = Rejection::new(Code::LogUnavailable, lost.0.to_string());
                reject_at(&client, shared.store.tail(), &rejection);
            }),
        );
        self.lane.release(None, self.when_lost());
    }

    fn remember(&mut self, client_id: String, client: Value) {
        let row = RowOp::Put {
            table: Table::Client,
            key: client_id.as_bytes().to_vec(),
            value: Bytes::from(client.to_string()),
        };
        self.append_with(Kind::Host, Fact::Client { client_id, client }.bytes(), vec![row]);
    }

    fn is_resent(&self, client: &ClientAction) -> bool {
        let row = self.shared.store.get(Table::Dispatched, &client.fingerprint).ok().flatten();
        let at = row.and_then(|value| rows::leading_number(value.get(8..)?));
        at.is_some_and(|connection| connection != client.caller.connection.id)
    }

    fn refuse(&self, client: ClientAction, rejection: Rejection) {
        let fallback = self.shared.store.tail();
        self.lane.release(
            None,
            Box::new(move |place| reject_at(&client, place.map_or(fallback, |place| place.seq), &rejection)),
        );
    }

    fn echo(&self, client: ClientAction) {
        self.lane.release(
            None,
            Box::new(move |place| {
                let seq = place.map_or(0, |place| place.seq);
                let frame = envelope::echo(client.alias.as_str(), seq, &client.origin(), &client.sent);
                client.caller.connection.send(frame);
            }),
        );
    }

    fn subscribe(&self, caller: &Caller, alias: Channel, then: OnSnapshot) {
        let state = serde_json::to_vec(&self.fold.state).unwrap_or_default();
        let connection = caller.connection.clone();
        self.lane.release(
            Some(ChannelId::ROOT),
            Box::new(move |place| match place {
                Ok(place) => {
                    let from_seq = place.channel_seq;
                    let subscription =
                        Subscription { channel: Channel::root(), alias: alias.clone(), from_seq, window: None };
                    let snapshot = SnapshotJson { resource: alias, state: state.into(), from_seq };
                    connection.subscribe(subscription, Box::new(move |connection| then(connection, Ok(snapshot))));
                }
                Err(lost) => {
                    let refusal = Refusal::new(RefusalKind::Unavailable, "log-unavailable", lost.0.to_string());
                    connection.run(Box::new(move |connection| then(connection, Err(refusal))));
                }
            }),
        );
    }

    /// How many sessions there are after `by` came or went.
    fn count(&mut self, by: i64) -> i64 {
        if self.recount
            && let Ok(count) = catalogue::count(self.shared.store.as_ref())
        {
            self.recount = false;
            return i64::try_from(count).unwrap_or(i64::MAX);
        }
        self.fold.state.active_sessions.unwrap_or(0).saturating_add(by).max(0)
    }

    fn reload(&mut self, generation: u64) {
        if generation != self.lane.generation() {
            return;
        }
        self.recount = true;
        self.lane.reopen();
        let store = self.shared.store.as_ref();
        match replay::fold::<RootFold>(store, ChannelId::ROOT, ServerSeq::MAX, true) {
            Ok(Some(at)) => {
                self.unsaved = Unsaved::after_replay(at.since_checkpoint);
                self.fold = at.fold;
            }
            Ok(None) => {}
            Err(fault) => tracing::error!(%fault, "the root cannot be read again"),
        }
        self.note_configuration();
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
            RootMessage::Dispatch { client, action } => self.dispatch(client, *action),
            RootMessage::Subscribe { caller, alias, then } => self.subscribe(&caller, alias, then),
            RootMessage::SessionsChanged { by } => {
                let sessions = self.count(by);
                self.say(StateAction::RootActiveSessionsChanged(RootActiveSessionsChangedAction {
                    active_sessions: sessions,
                }));
            }
            RootMessage::Remember { client_id, client } => self.remember(client_id, client),
            RootMessage::Lost { generation } => self.reload(generation),
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
