//! A session's folds and its way to the log, shared by the actors of the session and of its chats.
//!
//! They live on one thread, and each borrows the core inside one synchronous handler: decide, apply, enqueue, with no
//! await in between. So one batch may write the channels of the session and of a chat, two chats never wait for each
//! other's sync, and nothing can deadlock.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use actix::Addr;
use ahp_types::actions::StateAction;
use ahp_types::state::SessionSummary;
use bytes::Bytes;
use serde_json::json;

use super::chat::{ChatActor, ChatMessage};
use super::connection::{Caller, ConnectionId};
use super::envelope;
use super::resent;
use super::session::{SessionActor, SessionMessage, reject_lost};
use super::shared::Shared;
use super::writer::{Lane, Lost, Place};
use crate::clock::Millis;
use crate::events::rows::{self, ChannelKind};
use crate::events::{Batch, Channel, ChannelId, Kind, LogFault, NewEvent, Origin, RowOp, ServerSeq, Store, Table};
use crate::projections::action::Action;
use crate::projections::catalogue::{self, CatalogueRow};
use crate::projections::chat::ChatFold;
use crate::projections::fact::Fact;
use crate::projections::session::SessionFold;
use crate::projections::turns::{self, StoredTurn};
use crate::projections::{FoldFault, mirror, summary};

/// When a channel's fold is saved: after this many events, or bytes of actions.
const CHECKPOINT_EVENTS: u64 = 2_000;
const CHECKPOINT_BYTES: u64 = 256 * 1024;
/// Checkpoints of a channel that are kept stand at least this many numbers apart, but for the two newest.
const CHECKPOINTS_APART: ServerSeq = 10_000;

/// Who causes what is recorded, when, and through which client action.
#[derive(Clone)]
pub struct By {
    pub principal: Arc<str>,
    pub at: Millis,
    /// The client's action, for the events that are it.
    pub client: Option<ClientAction>,
}

/// A client's action on its way: who sent it, its own number, and the name of the channel that it used.
#[derive(Clone)]
pub struct ClientAction {
    pub caller: Caller,
    pub client_seq: i64,
    pub alias: Channel,
    /// The action as it was sent, for the refusal.
    pub sent: Bytes,
    /// What tells a re-sent action from a new one.
    pub fingerprint: [u8; 16],
}

impl ClientAction {
    /// The origin as it goes on the wire.
    pub fn origin(&self) -> Origin {
        Origin { client_id: self.caller.client_id.to_string(), client_seq: self.client_seq }
    }
}

/// A channel's fold since its last checkpoint.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unsaved {
    events: u64,
    bytes: u64,
}

impl Unsaved {
    /// What a replay has applied since the checkpoint that it began with.
    pub fn after_replay((events, bytes): (u64, u64)) -> Self {
        Self { events, bytes }
    }

    /// An event with an action of this many bytes was applied.
    pub fn add(&mut self, bytes: usize) {
        self.events += 1;
        self.bytes += bytes as u64;
    }

    /// Whether it is time for a checkpoint.
    pub fn is_due(&self) -> bool {
        self.events >= CHECKPOINT_EVENTS || self.bytes >= CHECKPOINT_BYTES
    }

    /// Whether nothing was applied since the checkpoint.
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }
}

/// An awake chat's fold, and its finished turns that may not be on disk yet.
pub struct ChatCell {
    pub id: ChannelId,
    pub channel: Channel,
    pub fold: ChatFold,
    /// Turns that ended and whose batches are on their way, oldest first.
    undurable: VecDeque<StoredTurn>,
    unsaved: Unsaved,
    /// Ids that were used by batches on their way, with their kind.
    used: Vec<(u8, String)>,
    /// Batches on their way.
    on_the_way: usize,
    /// Messages from the session that the chat has not handled yet.
    pub unread: usize,
    /// The chat was disposed: nothing more is recorded in it, also what its actor was sent before.
    pub is_gone: bool,
    /// When the chat was last used.
    pub last_used: Instant,
    /// It was let go of to sleep, and another actor may have followed: what its agent still says is not recorded.
    pub is_asleep: bool,
}

impl ChatCell {
    /// A chat as a replay gives it.
    pub fn new(id: ChannelId, channel: Channel, fold: ChatFold, unsaved: Unsaved) -> Self {
        Self {
            id,
            channel,
            fold,
            undurable: VecDeque::new(),
            unsaved,
            used: Vec::new(),
            on_the_way: 0,
            unread: 0,
            is_gone: false,
            last_used: Instant::now(),
            is_asleep: false,
        }
    }

    /// A finished turn, from memory while its row is on its way, else from the store.
    ///
    /// # Errors
    /// [`FoldFault`] when the row cannot be read.
    pub fn turn(&self, shared: &Shared, n: u64) -> Result<StoredTurn, FoldFault> {
        match self.undurable.iter().find(|turn| turn.n == n) {
            Some(turn) => Ok(turn.clone()),
            None => turns::read(shared.store.as_ref(), self.id, n),
        }
    }

    /// Whether the chat has seen this id: of a turn (`b't'`) or of a pending message (`b'm'`).
    ///
    /// # Errors
    /// [`FoldFault`] when the store cannot be read.
    pub fn has_seen(&self, shared: &Shared, kind: u8, id: &str) -> Result<bool, FoldFault> {
        let on_the_way = self.used.iter().any(|(k, seen)| *k == kind && seen == id);
        Ok(on_the_way || shared.store.get(Table::Used, &rows::used_key(self.id, kind, id))?.is_some())
    }

    /// Forgets what is on disk now: turns up to `n`, and `used` of the ids.
    pub fn durable(&mut self, n: u64, used: usize) {
        while self.undurable.front().is_some_and(|turn| turn.n <= n) {
            self.undurable.pop_front();
        }
        self.used.drain(..used.min(self.used.len()));
        self.on_the_way = self.on_the_way.saturating_sub(1);
    }

    /// Whether all that was recorded is on disk.
    pub fn is_settled(&self) -> bool {
        self.on_the_way == 0 && self.undurable.is_empty()
    }
}

/// The folds of a session and of its awake chats, and their lane.
pub struct SessionCore {
    pub id: ChannelId,
    pub channel: Channel,
    pub fold: SessionFold,
    pub shared: Arc<Shared>,
    pub lane: Lane,
    pub address: Addr<SessionActor>,
    /// The awake chats, by URI.
    pub chats: HashMap<String, Rc<RefCell<ChatCell>>>,
    /// The catalogue's entry as the queued batches leave it.
    listed: Option<CatalogueRow>,
    unsaved: Unsaved,
    /// Client actions of batches on their way, oldest first.
    dispatched: VecDeque<Dispatched>,
    /// Batches that were recorded until now.
    recorded: usize,
    /// Batches on their way: the newest of those that were recorded.
    on_the_way: Arc<AtomicUsize>,
}

/// A client action whose batch may be on its way.
struct Dispatched {
    fingerprint: [u8; 16],
    connection: ConnectionId,
    /// Which batch it is in, counted from 1.
    batch: usize,
}

impl SessionCore {
    /// A session as a replay gives it.
    pub fn new(
        id: ChannelId,
        channel: Channel,
        fold: SessionFold,
        unsaved: Unsaved,
        listed: Option<CatalogueRow>,
        shared: Arc<Shared>,
        address: Addr<SessionActor>,
    ) -> Self {
        let lane = shared.writer.lane(id);
        Self {
            id,
            channel,
            fold,
            shared,
            lane,
            address,
            chats: HashMap::new(),
            listed,
            unsaved,
            dispatched: VecDeque::new(),
            recorded: 0,
            on_the_way: Arc::default(),
        }
    }

    /// Begins to record one decision.
    pub fn record(&mut self, by: By) -> Recording<'_> {
        Recording {
            core: self,
            by,
            batch: Batch::default(),
            notes: Vec::new(),
            summary_too: false,
            ended: 0,
            used: 0,
            fingerprinted: false,
        }
    }

    /// Whether this client action was accepted before, on another connection: it is re-sent, not new.
    ///
    /// # Errors
    /// [`LogFault`] when the store cannot be read.
    pub fn is_resent(&self, client: &ClientAction, action: &StateAction) -> Result<bool, LogFault> {
        // What is on disk is asked of the store, which knows its number.
        let on_disk = self.on_disk();
        let on_its_way = self.dispatched.iter().rev().take_while(|sent| sent.batch > on_disk);
        match on_its_way.into_iter().find(|sent| sent.fingerprint == client.fingerprint) {
            Some(sent) => Ok(resent::is_resent(client, action, ServerSeq::MAX, sent.connection)),
            None => resent::was_recorded(self.shared.store.as_ref(), client, action),
        }
    }

    /// How many of the recorded batches are on disk: the oldest.
    fn on_disk(&self) -> usize {
        self.recorded.saturating_sub(self.on_the_way.load(Ordering::Acquire))
    }

    fn note_dispatched(&mut self, client: &ClientAction) {
        let on_disk = self.on_disk();
        while self.dispatched.front().is_some_and(|sent| sent.batch <= on_disk) {
            self.dispatched.pop_front();
        }
        let (fingerprint, connection) = (client.fingerprint, client.caller.connection.id);
        self.dispatched.push_back(Dispatched { fingerprint, connection, batch: self.recorded + 1 });
    }

    /// Saves the session's fold as it is now.
    pub fn save(&mut self) {
        self.unsaved = Unsaved::default();
        let value = Bytes::from(self.fold.to_checkpoint());
        self.lane.append(checkpoint(self.shared.store.as_ref(), self.id, value));
    }

    /// Saves a chat's fold as it is now.
    pub fn save_chat(&self, chat: &mut ChatCell) {
        chat.unsaved = Unsaved::default();
        let value = Bytes::from(chat.fold.to_checkpoint());
        self.lane.append(checkpoint(self.shared.store.as_ref(), chat.id, value));
    }

    /// Whether all that was recorded is on disk.
    pub fn is_settled(&self) -> bool {
        self.on_the_way.load(Ordering::Acquire) == 0
    }

    /// Whether anything was recorded since the session's fold was saved.
    pub fn is_unsaved(&self) -> bool {
        !self.unsaved.is_empty()
    }

    /// Whether anything was recorded since a chat's fold was saved.
    pub fn is_chat_unsaved(chat: &ChatCell) -> bool {
        !chat.unsaved.is_empty()
    }
}

/// The batch that saves a channel's fold as it is at this place of the line. A checkpoint that stands close behind another
/// goes when a newer one is written, so that a chat which often falls asleep does not collect them.
pub fn checkpoint(store: &dyn Store, channel: ChannelId, value: Bytes) -> Batch {
    let mut rows = Vec::with_capacity(2);
    // A checkpoint may be deleted at any time: one that cannot be looked up just stays.
    if let Ok(Some(key)) = superfluous(store, channel) {
        rows.push(RowOp::Delete { table: Table::Checkpoint, key });
    }
    rows.push(RowOp::PutKeyedByLast { table: Table::Checkpoint, key: rows::channel_key(channel), channel, value });
    Batch { events: Vec::new(), rows }
}

/// The key of the channel's newest checkpoint, when the one before it is near.
fn superfluous(store: &dyn Store, channel: ChannelId) -> Result<Option<Vec<u8>>, LogFault> {
    let prefix = rows::channel_key(channel);
    let last_before = |upto| store.last_row(Table::Checkpoint, &prefix, &rows::numbered_key(channel, upto));
    let Some((key, _)) = last_before(ServerSeq::MAX)? else { return Ok(None) };
    let Some(newest) = rows::number_of_key(&key).filter(|seq| *seq > 0) else { return Ok(None) };
    let older = last_before(newest - 1)?.and_then(|(key, _)| rows::number_of_key(&key));
    Ok(older.filter(|older| newest - older < CHECKPOINTS_APART).map(|_| key))
}

/// One decision being recorded: each event is applied to its fold as it is added, and [`Recording::finish`] queues them all
/// as one batch.
pub struct Recording<'a> {
    pub core: &'a mut SessionCore,
    by: By,
    batch: Batch,
    /// Frames for the root's subscribers, once the batch is durable.
    notes: Vec<bytestring::ByteString>,
    summary_too: bool,
    /// n of the newest turn that ended in this batch.
    ended: u64,
    used: usize,
    fingerprinted: bool,
}

impl Recording<'_> {
    /// When this happens.
    pub fn at(&self) -> Millis {
        self.by.at
    }

    /// Lets `principal` be who causes what is recorded next. Returns who it was.
    pub fn caused_by(&mut self, principal: Arc<str>) -> Arc<str> {
        std::mem::replace(&mut self.by.principal, principal)
    }

    /// Records an action on the session's channel. `by_client`: it is the client's own.
    pub fn session_action(&mut self, action: Action, about: Option<ChannelId>, by_client: bool) {
        self.core.fold.apply(&action);
        self.core.unsaved.add(action.bytes.len());
        self.summary_too = true;
        let (channel, id) = (self.core.channel.clone(), self.core.id);
        self.push(channel, id, Kind::Action, action.bytes, about, by_client);
    }

    /// Records a fact of the host on the session's channel.
    pub fn session_fact(&mut self, fact: &Fact) {
        self.core.fold.apply_fact(fact);
        let bytes = fact.bytes();
        self.core.unsaved.add(bytes.len());
        self.summary_too = true;
        let (channel, id) = (self.core.channel.clone(), self.core.id);
        self.push(channel, id, Kind::Host, bytes, None, false);
    }

    /// Records an action on a chat's channel.
    pub fn chat_action(&mut self, chat: &mut ChatCell, action: Action, by_client: bool) {
        let ended = chat.fold.apply(&action, self.by.at);
        chat.unsaved.add(action.bytes.len());
        let event = self.batch.events.len();
        self.chat_rows(chat, &action.decoded);
        self.push(chat.channel.clone(), chat.id, Kind::Action, action.bytes, None, by_client);
        if let Some(turn) = ended {
            self.end_turn(chat, event, turn);
        }
    }

    fn chat_rows(&mut self, chat: &mut ChatCell, action: &StateAction) {
        match action {
            StateAction::ChatTurnStarted(started) => {
                let row = RowOp::Put { table: Table::Running, key: rows::channel_key(chat.id), value: Bytes::new() };
                self.batch.rows.push(row);
                self.use_id(chat, b't', &started.turn_id);
            }
            StateAction::ChatPendingMessageSet(set) => self.use_id(chat, b'm', &set.id),
            _ => {}
        }
    }

    fn use_id(&mut self, chat: &mut ChatCell, kind: u8, id: &str) {
        let key = rows::used_key(chat.id, kind, id);
        self.batch.rows.push(RowOp::Put { table: Table::Used, key, value: Bytes::new() });
        chat.used.push((kind, id.to_owned()));
        self.used += 1;
    }

    fn end_turn(&mut self, chat: &mut ChatCell, event: usize, turn: crate::projections::chat::EndedTurn) {
        let key = rows::numbered_key(chat.id, turn.n);
        let value = Bytes::from(turn.row.encode(&turn.json));
        let head = Bytes::copy_from_slice(&turn.n.to_be_bytes());
        self.batch.rows.extend([
            RowOp::Put { table: Table::Turn, key, value },
            RowOp::PutKeyedBySeq { table: Table::Head, key: rows::channel_key(chat.id), event, value: head },
            RowOp::Delete { table: Table::Running, key: rows::channel_key(chat.id) },
        ]);
        self.ended = turn.n;
        chat.undurable.push_back(StoredTurn { n: turn.n, row: turn.row, json: turn.json });
    }

    /// Records a fact of the host on a chat's channel.
    pub fn chat_fact(&mut self, chat: &mut ChatCell, fact: &Fact) {
        chat.fold.apply_fact(fact);
        let bytes = fact.bytes();
        chat.unsaved.add(bytes.len());
        self.push(chat.channel.clone(), chat.id, Kind::Host, bytes, None, false);
    }

    /// Records what the session's channel has to say about a chat's change. `inputs_too`: whether what it waits for may
    /// have changed.
    pub fn mirror(&mut self, chat: &ChatCell, inputs_too: bool) {
        for action in mirror::of_chat(&self.core.fold.state, &chat.fold.state, inputs_too) {
            self.session_action(Action::host(action), Some(chat.id), false);
        }
    }

    /// Makes a channel known, with its first fact.
    pub fn create_channel(&mut self, channel: &Channel, id: ChannelId, kind: ChannelKind) {
        self.batch.rows.extend(catalogue::register(channel, id, kind, self.core.id));
    }

    /// Changes a row beside the events.
    pub fn row(&mut self, op: RowOp) {
        self.batch.rows.push(op);
    }

    /// Tells the root's subscribers something once the batch is durable.
    pub fn notify_root(&mut self, frame: bytestring::ByteString) {
        self.notes.push(frame);
    }

    fn push(
        &mut self,
        channel: Channel,
        channel_id: ChannelId,
        kind: Kind,
        action: Bytes,
        about: Option<ChannelId>,
        by_client: bool,
    ) {
        let client = self.by.client.as_ref().filter(|_| by_client);
        let origin = client.map(ClientAction::origin);
        if let Some(client) = client.filter(|_| !self.fingerprinted) {
            self.fingerprinted = true;
            let value = Bytes::copy_from_slice(&client.caller.connection.id.to_be_bytes());
            let (table, key) = (Table::Dispatched, client.fingerprint.to_vec());
            self.batch.rows.push(RowOp::PutWithSeq { table, key, event: self.batch.events.len(), value });
            self.core.note_dispatched(client);
        }
        self.batch.events.push(NewEvent {
            channel,
            channel_id,
            kind,
            at: self.by.at,
            principal: Arc::clone(&self.by.principal),
            origin,
            about,
            action,
        });
    }

    /// Queues the batch, with the catalogue's entry where it changed, and what follows once it is durable. `chat` is the one
    /// that is told how much of its own has reached the disk. Returns the weight of the batch.
    pub fn finish(mut self, chat: Option<(&mut ChatCell, &Addr<ChatActor>)>) -> usize {
        if self.summary_too {
            self.list();
        }
        if self.core.unsaved.is_due() {
            self.core.save_after(&mut self.batch);
        }
        let mut told = None;
        let mut chat_checkpoint = None;
        if let Some((cell, address)) = chat {
            if cell.unsaved.is_due() {
                cell.unsaved = Unsaved::default();
                chat_checkpoint = Some({
                    let value = Bytes::from(cell.fold.to_checkpoint());
                    checkpoint(self.core.shared.store.as_ref(), cell.id, value)
                });
            }
            cell.on_the_way += 1;
            told = Some(address.clone());
        }
        let weight = self.batch.weight();
        let after = After {
            notes: std::mem::take(&mut self.notes),
            client: self.by.client.take(),
            session: self.core.address.clone(),
            generation: self.core.lane.generation(),
            shared: Arc::clone(&self.core.shared),
        };
        let on_the_way = Arc::clone(&self.core.on_the_way);
        let durable = ChatMessage::Durable { weight, ended: self.ended, used: self.used };
        self.core.recorded += 1;
        self.core.on_the_way.fetch_add(1, Ordering::AcqRel);
        let batch = std::mem::take(&mut self.batch);
        self.core.lane.append(batch);
        if let Some(batch) = chat_checkpoint {
            self.core.lane.append(batch);
        }
        self.core.lane.release(None, Box::new(move |place| after.run(place)));
        self.core.lane.release_on_disk(Box::new(move |place| {
            on_the_way.fetch_sub(1, Ordering::AcqRel);
            if let Some(chat) = told.filter(|_| place.is_ok()) {
                chat.do_send(durable);
            }
        }));
        weight
    }

    /// Brings the catalogue's entry up to date and tells the root's subscribers what changed.
    fn list(&mut self) {
        let core = &mut *self.core;
        let row = CatalogueRow {
            summary: summary::of_session(core.channel.as_str(), &core.fold),
            disposed: core.fold.disposed,
        };
        let old = core.listed.as_ref();
        let changes = old.and_then(|old| summary::changes(&old.summary, &row.summary));
        if old.is_some_and(|old| changes.is_none() && old.disposed == row.disposed) {
            return;
        }
        self.batch.rows.extend(catalogue::replace(core.id, old, &row));
        if let Some(changes) = changes.filter(|_| !row.disposed) {
            let params = json!({ "channel": "ahp-root://", "session": core.channel.as_str(), "changes": changes });
            self.notes.push(envelope::notification("root/sessionSummaryChanged", &params));
        }
        core.shared.registry.list(core.id, &row);
        core.listed = Some(row);
    }
}

impl SessionCore {
    /// The session's summary as the queued batches leave it.
    pub fn summary(&self) -> Option<&SessionSummary> {
        self.listed.as_ref().map(|row| &row.summary)
    }

    fn save_after(&mut self, batch: &mut Batch) {
        self.unsaved = Unsaved::default();
        let value = Bytes::from(self.fold.to_checkpoint());
        batch.rows.extend(checkpoint(self.shared.store.as_ref(), self.id, value).rows);
    }
}

/// What follows a batch, once it may be shown or is lost.
struct After {
    notes: Vec<bytestring::ByteString>,
    client: Option<ClientAction>,
    session: Addr<SessionActor>,
    generation: u64,
    shared: Arc<Shared>,
}

impl After {
    fn run(self, place: Result<Place, Lost>) {
        match place {
            Ok(_) => {
                for note in &self.notes {
                    self.shared.hub.notify(&Channel::root(), note);
                }
            }
            Err(lost) => {
                if let Some(client) = &self.client {
                    reject_lost(client, &lost);
                }
                self.session.do_send(SessionMessage::Lost { generation: self.generation });
            }
        }
    }
}
