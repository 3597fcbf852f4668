//! One decision on its way: applied to the folds event by event, then queued as one batch.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use actix::Addr;
use ahp_types::actions::StateAction;
use bytes::Bytes;
use serde_json::json;

use super::cell::Undurable;
use super::{By, ChatCell, ClientAction, SessionCore, Unsaved, checkpoint};
use crate::actors::chat::{ChatActor, ChatMessage};
use crate::actors::envelope;
use crate::actors::session::{SessionActor, SessionMessage, reject_lost};
use crate::actors::shared::Shared;
use crate::actors::writer::{Lost, Place};
use crate::attachments::{FileRef, references};
use crate::clock::Millis;
use crate::events::rows::{self, ChannelKind};
use crate::events::{Batch, Channel, ChannelId, Kind, NewEvent, RowOp, Table};
use crate::projections::action::Action;
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
            ended: 0,
            used: 0,
            fingerprinted: false,
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
    /// n of the newest turn that ended in this batch.
    ended: u64,
    used: usize,
    fingerprinted: bool,
    /// Stored attachments that something no longer refers to.
    unreferred: Vec<FileRef>,
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
        let before = chat.fold.head();
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

    fn chat_rows(&mut self, chat: &mut ChatCell, action: &StateAction) {
        match action {
            StateAction::ChatTurnStarted(started) => {
                self.runs(chat);
                self.use_id(chat, b't', &started.turn_id);
            }
            StateAction::ChatTurnResume(_) if chat.fold.state.active_turn.is_some() => self.runs(chat),
            StateAction::ChatPendingMessageSet(set) => self.use_id(chat, b'm', &set.id),
            _ => {}
        }
    }

    fn runs(&mut self, chat: &ChatCell) {
        let row = RowOp::Put { table: Table::Running, key: rows::channel_key(chat.id), value: Bytes::new() };
        self.batch.rows.push(row);
    }

    fn use_id(&mut self, chat: &mut ChatCell, kind: u8, id: &str) {
        let key = rows::used_key(chat.id, kind, id);
        self.batch.rows.push(RowOp::Put { table: Table::Used, key, value: Bytes::new() });
        chat.used.push((kind, id.to_owned()));
        self.used += 1;
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
            RowOp::Delete { table: Table::Running, key: rows::channel_key(chat.id) },
        ]);
        self.ended = turn.n;
        let ended = StoredTurn { n: turn.n, row: turn.row, json: turn.json };
        chat.undurable.push_back(Undurable { turn: ended, turn_id: turn.turn_id, point: turn.point });
    }

    /// Records a fact of the host on a chat's channel.
    pub fn chat_fact(&mut self, chat: &mut ChatCell, fact: &Fact) {
        chat.fold.apply_fact(fact);
        if let Fact::ChatCreated { .. } = fact {
            self.head(chat, 0);
        }
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
        let (session, generation) = (after.session.clone(), after.generation);
        let on_the_way = Arc::clone(&self.core.on_the_way);
        let durable = ChatMessage::Durable { weight, ended: self.ended, used: self.used };
        self.core.recorded += 1;
        self.core.on_the_way.fetch_add(1, Ordering::AcqRel);
        let batch = std::mem::take(&mut self.batch);
        self.core.lane.append(batch);
        if let Some(batch) = chat_checkpoint {
            self.core.lane.append(batch);
        }
        // Text that streams says nothing more than its envelopes: with nothing between them they are handed over together.
        if after.has_to_say() {
            self.core.lane.release(None, Box::new(move |place| after.run(place)));
        }
        let unreferred = std::mem::take(&mut self.unreferred);
        let attachments = (!unreferred.is_empty()).then(|| self.core.shared.attachments.clone());
        self.core.lane.release_on_disk(Box::new(move |place| {
            on_the_way.fetch_sub(1, Ordering::AcqRel);
            if let Some(attachments) = attachments.filter(|_| place.is_ok()) {
                attachments.collect(unreferred);
            }
            match (place, told) {
                (Ok(_), Some(chat)) => chat.do_send(durable),
                (Ok(_), None) => {}
                (Err(_), _) => session.do_send(SessionMessage::Lost { generation }),
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

/// What follows a batch, once it may be shown or is lost.
struct After {
    notes: Vec<bytestring::ByteString>,
    client: Option<ClientAction>,
    session: Addr<SessionActor>,
    generation: u64,
    shared: Arc<Shared>,
}

impl After {
    /// Whether anybody hears of the batch beside its envelopes.
    fn has_to_say(&self) -> bool {
        !self.notes.is_empty() || self.client.is_some()
    }

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
