//! One decision on its way: applied to the folds event by event, then queued as one batch.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use actix::Addr;
use ahp_types::actions::StateAction;
use bytes::Bytes;
use serde_json::json;

use super::cell::Undurable;
use super::{By, ChatCell, ClientAction, SessionCore, Unsaved, checkpoint};
use crate::actors::chat::decide::Effect;
use crate::actors::chat::{ChatActor, ChatMessage, is_ending};
use crate::actors::envelope;
use crate::actors::session::{SessionActor, SessionMessage, reject_lost};
use crate::actors::shared::Shared;
use crate::actors::writer::{Held, Lost, Place};
use crate::attachments::{FileRef, references};
use crate::clock::Millis;
use crate::events::rows::{self, ChannelKind};
use crate::events::{Batch, Channel, ChannelId, Kind, NewEvent, RowOp, Table};
use crate::projections::action::Action;
use crate::projections::attempts::Owed;
use crate::projections::catalogue::{self, CatalogueRow};
use crate::projections::chat::EndedTurn;
use crate::projections::fact::Fact;
use crate::projections::turns::StoredTurn;
use crate::projections::{mirror, summary};

impl SessionCore {
    /// Begins to record one decision.
    pub fn record(&mut self, by: By) -> Recording<'_> {
        Recording {
            core: self,
            by,
            batch: Batch::default(),
            notes: Vec::new(),
            summary_too: false,
            tallies: Vec::new(),
            also: Vec::new(),
            stopped: Vec::new(),
            beside: 0,
            gone: Vec::new(),
            fingerprinted: false,
            owes: false,
            joined: None,
            unreferred: Vec::new(),
        }
    }
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
    tallies: Vec<Tally>,
    /// Chats that the batch changes beside the one that decides.
    also: Vec<Rc<RefCell<ChatCell>>>,
    /// Workers whose turns the batch ends, with these turns: their agent hears of it.
    pub(super) stopped: Vec<(Addr<ChatActor>, String)>,
    /// Bytes that are bounded by somebody else, and do not count as the chat's own on their way.
    beside: usize,
    /// Channels that are gone once the batch is durable.
    gone: Vec<Channel>,
    fingerprinted: bool,
    /// What is owed to a chat changed.
    owes: bool,
    /// Stored attachments that something no longer refers to.
    unreferred: Vec<FileRef>,
    joined: Option<(Part, Held)>,
}

/// What one session decided of a batch that another one queues.
pub struct Part {
    batch: Batch,
    notes: Vec<bytestring::ByteString>,
    /// The batches on the way of the session that decided it.
    on_the_way: Arc<AtomicUsize>,
}

impl Part {
    /// Adds a frame for the root's subscribers.
    pub fn note(&mut self, frame: bytestring::ByteString) {
        self.notes.push(frame);
    }
}

/// What the batch holds of one chat that is in memory until it is on disk.
#[derive(Debug, Clone, Copy)]
struct Tally {
    chat: ChannelId,
    /// n of the newest turn that ended.
    ended: u64,
    used: usize,
}

impl Recording<'_> {
    /// When this happens.
    pub fn at(&self) -> Millis {
        self.by.at
    }

    /// Whether a client's action is what makes it happen.
    pub(super) fn is_by_client(&self) -> bool {
        self.by.client.is_some()
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

    /// Records an action on a chat's channel. The end of a turn takes the workers with it that the turn waits for.
    pub fn chat_action(&mut self, chat: &mut ChatCell, action: Action, by_client: bool) {
        let ending = is_ending(&action.decoded).then(|| action.decoded.clone());
        if let Some(ending) = &ending {
            self.before_ending(chat, ending);
        }
        self.one_action(chat, action, by_client);
        if let Some(ending) = &ending {
            self.after_ending(chat, ending);
        }
    }

    pub(super) fn one_action(&mut self, chat: &mut ChatCell, action: Action, by_client: bool) {
        let (before, owed) = (chat.fold.head(), chat.fold.attempts.owed.clone());
        let files = references::is_touched_by(&action.decoded).then(|| references::held(&chat.fold.state));
        let ended = chat.fold.apply(&action, self.by.at);
        if let Some(before) = files {
            let changes = references::changes(&before, &chat.fold.state, &action.decoded, by_client);
            self.batch.rows.extend(changes.rows(chat.id));
            self.unreferred.extend(changes.removed.into_iter().map(|(file, _)| file));
        }
        chat.unsaved.add(action.bytes.len());
        self.chat_rows(chat, &action.decoded);
        self.head(chat, before);
        self.owed(chat, owed);
        self.push(chat.channel.clone(), chat.id, Kind::Action, action.bytes, None, by_client);
        if let Some(turn) = ended {
            self.end_turn(chat, turn);
        }
    }

    /// Writes down that the branch ends elsewhere after the event that is recorded next.
    fn head(&mut self, chat: &ChatCell, before: u64) {
        let head = chat.fold.head();
        if head != before {
            let (key, event) = (rows::channel_key(chat.id), self.batch.events.len());
            let value = Bytes::copy_from_slice(&head.to_be_bytes());
            self.batch.rows.push(RowOp::PutKeyedBySeq { table: Table::Head, key, event, value });
        }
    }

    /// Keeps the row of what is owed to the chat.
    fn owed(&mut self, chat: &ChatCell, before: Option<Owed>) {
        let now = &chat.fold.attempts.owed;
        if before == *now {
            return;
        }
        self.owes = true;
        let key = |owed: &Owed| rows::owed_key(owed.at, chat.id);
        self.batch.rows.extend(before.as_ref().map(|owed| RowOp::Delete { table: Table::Owed, key: key(owed) }));
        let put = now.as_ref().map(|owed| RowOp::Put { table: Table::Owed, key: key(owed), value: Bytes::new() });
        self.batch.rows.extend(put);
    }

    fn chat_rows(&mut self, chat: &mut ChatCell, action: &StateAction) {
        match action {
            StateAction::ChatTurnStarted(started) => {
                self.runs(chat);
                self.use_id(chat, b't', &started.turn_id);
            }
            StateAction::ChatTurnResume(_) if chat.fold.state.active_turn.is_some() => self.runs(chat),
            StateAction::ChatBackgroundWorkSet(_) => self.runs(chat),
            StateAction::ChatBackgroundWorkRemoved(_) if !chat.fold.works() => self.rests(chat),
            StateAction::ChatPendingMessageSet(set) => self.use_id(chat, b'm', &set.id),
            _ => {}
        }
    }

    /// A start of the host looks at what runs in the chat: a turn, or background work.
    fn runs(&mut self, chat: &ChatCell) {
        let value = match chat.fold.attempts.taken_up {
            0 => Bytes::new(),
            attempts => Bytes::copy_from_slice(&attempts.to_be_bytes()),
        };
        let row = RowOp::Put { table: Table::Running, key: rows::channel_key(chat.id), value };
        self.batch.rows.push(row);
    }

    fn rests(&mut self, chat: &ChatCell) {
        self.batch.rows.push(RowOp::Delete { table: Table::Running, key: rows::channel_key(chat.id) });
    }

    fn use_id(&mut self, chat: &mut ChatCell, kind: u8, id: &str) {
        let key = rows::used_key(chat.id, kind, id);
        self.batch.rows.push(RowOp::Put { table: Table::Used, key, value: Bytes::new() });
        chat.used.push((kind, id.to_owned()));
        self.tally(chat.id, |tally| tally.used += 1);
    }

    fn tally(&mut self, chat: ChannelId, change: impl FnOnce(&mut Tally)) {
        match self.tallies.iter_mut().find(|tally| tally.chat == chat) {
            Some(tally) => change(tally),
            None => {
                let mut tally = Tally { chat, ended: 0, used: 0 };
                change(&mut tally);
                self.tallies.push(tally);
            }
        }
    }

    /// Records the text that a chat's agent has streamed. Whoever makes it go out now, the agent said it.
    pub fn flush_text(&mut self, chat: &mut ChatCell) {
        let Some(text) = chat.pending.take() else { return };
        let agent = Arc::from(format!("agent:{}", self.core.fold.state.provider));
        let other = self.caused_by(agent);
        text.record(self, chat);
        self.caused_by(other);
    }

    fn end_turn(&mut self, chat: &mut ChatCell, turn: EndedTurn) {
        let key = rows::numbered_key(chat.id, turn.n);
        let value = Bytes::from(turn.row.encode(&turn.json));
        let n = Bytes::copy_from_slice(&turn.n.to_be_bytes());
        if let Some(point) = &turn.point {
            let value = Bytes::from(serde_json::to_vec(point).unwrap_or_default());
            self.batch.rows.push(RowOp::Put { table: Table::Point, key: key.clone(), value });
        }
        self.batch.rows.extend([
            RowOp::Put { table: Table::Turn, key, value },
            RowOp::Put { table: Table::Used, key: rows::used_key(chat.id, b't', &turn.turn_id), value: n },
        ]);
        if !chat.fold.works() {
            self.rests(chat);
        }
        self.tally(chat.id, |tally| tally.ended = turn.n);
        let ended = StoredTurn { n: turn.n, row: turn.row, json: turn.json };
        chat.undurable.push_back(Undurable { turn: ended, turn_id: turn.turn_id, point: turn.point });
    }

    /// Records a fact of the host on a chat's channel.
    pub fn chat_fact(&mut self, chat: &mut ChatCell, fact: &Fact) {
        self.fact(chat, fact, false);
    }

    /// The same, because of the client's own action.
    pub fn client_fact(&mut self, chat: &mut ChatCell, fact: &Fact) {
        self.fact(chat, fact, true);
    }

    /// Nothing is owed any more to a chat that goes.
    pub fn owes_nothing(&mut self, chat: &mut ChatCell) {
        if let Some(owed) = chat.fold.attempts.owed.clone() {
            self.chat_fact(chat, &Fact::ResumeLapsed { turn_id: owed.turn_id });
        }
    }

    fn fact(&mut self, chat: &mut ChatCell, fact: &Fact, by_client: bool) {
        let owed = chat.fold.attempts.owed.clone();
        chat.fold.apply_fact(fact);
        self.owed(chat, owed);
        match fact {
            Fact::ChatCreated { .. } => self.head(chat, 0),
            Fact::Attempt { .. } => self.runs(chat),
            _ => {}
        }
        let bytes = fact.bytes();
        chat.unsaved.add(bytes.len());
        self.push(chat.channel.clone(), chat.id, Kind::Host, bytes, None, by_client);
    }

    /// Records a fact of the host on a canvas's channel.
    pub fn canvas_fact(&mut self, canvas: &Channel, id: ChannelId, fact: &Fact) {
        self.push(canvas.clone(), id, Kind::Host, fact.bytes(), None, false);
    }

    /// Records an action on a canvas's channel.
    pub fn canvas_action(&mut self, canvas: &Channel, id: ChannelId, action: &Action) {
        self.push(canvas.clone(), id, Kind::Action, action.bytes.clone(), None, false);
    }

    /// Says that so many bytes of the batch are bounded by whoever records them: they do not count against what a chat may
    /// have on its way.
    pub fn beside(&mut self, bytes: usize) {
        self.beside += bytes;
    }

    /// Ends the subscriptions to a channel once the batch is durable: it is gone.
    pub fn channel_gone(&mut self, channel: Channel) {
        self.gone.push(channel);
    }

    /// Records what the session's channel has to say about a chat's change. `inputs_too`: whether what it waits for may
    /// have changed.
    pub fn mirror(&mut self, chat: &ChatCell, inputs_too: bool) {
        for action in mirror::of_chat(&self.core.fold.state, &chat.fold.state, inputs_too) {
            self.session_action(Action::host(action), Some(chat.id), false);
        }
    }

    /// A chat whose cell is new, or that is changed beside the one that decides: its actor is told what is on disk too.
    pub fn also(&mut self, chat: Rc<RefCell<ChatCell>>) {
        self.also.push(chat);
    }

    /// Makes a channel known, with its first fact.
    pub fn create_channel(&mut self, channel: &Channel, id: ChannelId, kind: ChannelKind) {
        self.batch.rows.extend(catalogue::register(channel, id, kind, self.core.id));
    }

    /// Changes a row beside the events.
    pub fn row(&mut self, op: RowOp) {
        self.batch.rows.push(op);
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

    /// Ends the recording as a part of the batch that another session queues.
    pub fn into_part(mut self) -> Part {
        if self.summary_too {
            self.list();
        }
        self.core.recorded += 1;
        self.core.on_the_way.fetch_add(1, Ordering::AcqRel);
        let on_the_way = Arc::clone(&self.core.on_the_way);
        Part { batch: std::mem::take(&mut self.batch), notes: std::mem::take(&mut self.notes), on_the_way }
    }

    /// Queues the batch together with the part of another session, whose lane is held for it.
    pub fn finish_with(mut self, part: Part, held: Held) {
        self.joined = Some((part, held));
        self.finish(None);
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
        let joined = self.joined.take().map(|(part, held)| {
            self.batch.join(part.batch);
            self.notes.extend(part.notes);
            (part.on_the_way, held)
        });
        let (other, held) = joined.unzip();
        let weight = self.batch.weight().saturating_sub(self.beside);
        let mut told = Vec::new();
        let mut checkpoints = Vec::new();
        if let Some((cell, address)) = chat {
            self.on_its_way(cell, address.clone(), weight, &mut told, &mut checkpoints);
        }
        self.also_on_its_way(&mut told, &mut checkpoints);
        let after = After {
            of: self.core.channel.clone(),
            notes: std::mem::take(&mut self.notes),
            gone: std::mem::take(&mut self.gone),
            client: self.by.client.take(),
            session: self.core.address.clone(),
            generation: self.core.lane.generation(),
            shared: Arc::clone(&self.core.shared),
        };
        let (session, generation) = (after.session.clone(), after.generation);
        let on_the_way = Arc::clone(&self.core.on_the_way);
        let stopped = std::mem::take(&mut self.stopped);
        let owes = self.owes.then(|| Arc::clone(&after.shared));
        self.core.recorded += 1;
        self.core.on_the_way.fetch_add(1, Ordering::AcqRel);
        let batch = std::mem::take(&mut self.batch);
        match held {
            Some(held) => self.core.lane.append_with(batch, held),
            None => self.core.lane.append(batch),
        }
        for batch in checkpoints {
            self.core.lane.append(batch);
        }
        // Text that streams says nothing more than its envelopes: with nothing between them they are handed over together.
        if after.has_to_say() {
            self.core.lane.release(None, Box::new(move |place| after.run(place)));
        }
        if !stopped.is_empty() {
            self.core.lane.release(None, Box::new(move |place| tell_stopped(place, stopped)));
        }
        let unreferred = std::mem::take(&mut self.unreferred);
        let attachments = (!unreferred.is_empty()).then(|| self.core.shared.attachments.clone());
        self.core.lane.release_on_disk(Box::new(move |place| {
            on_the_way.fetch_sub(1, Ordering::AcqRel);
            if let Some(shared) = &owes {
                shared.owed.look();
            }
            if let Some(other) = other {
                other.fetch_sub(1, Ordering::AcqRel);
            }
            if let Some(attachments) = attachments.filter(|_| place.is_ok()) {
                attachments.collect(unreferred);
            }
            match place {
                Ok(_) => told.into_iter().for_each(|(chat, durable)| chat.do_send(durable)),
                Err(_) => session.do_send(SessionMessage::Lost { generation }),
            }
        }));
        weight
    }

    /// A chat's part of the batch is on its way: its actor is told when it is on disk, and which of it.
    fn on_its_way(
        &self,
        cell: &mut ChatCell,
        actor: Addr<ChatActor>,
        weight: usize,
        told: &mut Vec<(Addr<ChatActor>, ChatMessage)>,
        checkpoints: &mut Vec<Batch>,
    ) {
        if cell.unsaved.is_due() {
            let value = Bytes::from(cell.fold.to_checkpoint());
            cell.unsaved = Unsaved::after_checkpoint(value.len());
            checkpoints.push(checkpoint(self.core.shared.store.as_ref(), cell.id, value));
        }
        cell.on_the_way += 1;
        let tally = self.tallies.iter().find(|tally| tally.chat == cell.id);
        let (ended, used) = tally.map_or((0, 0), |tally| (tally.ended, tally.used));
        told.push((actor, ChatMessage::Durable { weight, ended, used }));
    }

    fn also_on_its_way(&mut self, told: &mut Vec<(Addr<ChatActor>, ChatMessage)>, checkpoints: &mut Vec<Batch>) {
        let mut done: Vec<ChannelId> = Vec::new();
        for cell in std::mem::take(&mut self.also) {
            let Ok(mut cell) = cell.try_borrow_mut() else { continue };
            let Some(actor) = cell.actor.clone().filter(|_| !done.contains(&cell.id)) else { continue };
            done.push(cell.id);
            self.on_its_way(&mut cell, actor, 0, told, checkpoints);
        }
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

/// Lets the agent hear of the workers that are over.
fn tell_stopped(place: Result<Place, Lost>, stopped: Vec<(Addr<ChatActor>, String)>) {
    if place.is_ok() {
        for (worker, turn_id) in stopped {
            worker.do_send(ChatMessage::Act(vec![Effect::Cancel { turn_id }]));
        }
    }
}

/// What follows a batch, once it may be shown or is lost.
struct After {
    /// The session that it is of.
    of: Channel,
    notes: Vec<bytestring::ByteString>,
    gone: Vec<Channel>,
    client: Option<ClientAction>,
    session: Addr<SessionActor>,
    generation: u64,
    shared: Arc<Shared>,
}

impl After {
    /// Whether anybody hears of the batch beside its envelopes.
    fn has_to_say(&self) -> bool {
        !self.notes.is_empty() || !self.gone.is_empty() || self.client.is_some()
    }

    fn run(self, place: Result<Place, Lost>) {
        match place {
            Ok(_) => {
                for note in &self.notes {
                    self.shared.hub.notify(&self.of, note);
                }
                for channel in &self.gone {
                    self.shared.hub.drop_channel(channel);
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
