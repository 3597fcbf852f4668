//! A session's folds and its way to the log, shared by the actors of the session and of its chats.
//!
//! They live on one thread, and each borrows the core inside one synchronous handler: decide, apply, enqueue, with no
//! await in between. So one batch may write the channels of the session and of a chat, two chats never wait for each
//! other's sync, and nothing can deadlock.

mod cell;
mod checkpoints;
mod recording;
mod workers;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use actix::Addr;
use ahp_types::actions::StateAction;
use ahp_types::state::SessionSummary;
use bytes::Bytes;

pub use cell::ChatCell;
pub use checkpoints::{Unsaved, checkpoint};
pub use recording::{Part, Recording};
pub use workers::Ends;

use crate::actors::attaching::Attached;
use crate::actors::chat::ChatActor;
use crate::actors::connection::{Caller, ConnectionId};
use crate::actors::received::Held;
use crate::actors::resent;
use crate::actors::session::SessionActor;
use crate::actors::shared::Shared;
use crate::actors::writer::Lane;
use crate::clock::Millis;
use crate::events::{Batch, Channel, ChannelId, LogFault, Origin, ServerSeq};
use crate::projections::catalogue::CatalogueRow;
use crate::projections::session::SessionFold;

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
    /// What came of its message's attachments, once they were worked on.
    pub attached: Option<Arc<Attached>>,
    /// Counted among what its connection sent, until something has become of it.
    pub held: Arc<Held>,
}

impl ClientAction {
    /// The origin as it goes on the wire.
    pub fn origin(&self) -> Origin {
        Origin { client_id: self.caller.client_id.to_string(), client_seq: self.client_seq }
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
    /// Actors of chats that were started beside the session's actor, which it has not taken up yet.
    pub started: Vec<(Channel, Addr<ChatActor>)>,
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
            started: Vec::new(),
            listed,
            unsaved,
            dispatched: VecDeque::new(),
            recorded: 0,
            on_the_way: Arc::default(),
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
        let value = Bytes::from(self.fold.to_checkpoint());
        self.unsaved = Unsaved::after_checkpoint(value.len());
        self.lane.append(checkpoint(self.shared.store.as_ref(), self.id, value));
    }

    /// Saves a chat's fold as it is now.
    pub fn save_chat(&self, chat: &mut ChatCell) {
        let value = Bytes::from(chat.fold.to_checkpoint());
        chat.unsaved = Unsaved::after_checkpoint(value.len());
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

impl SessionCore {
    /// The session's summary as the queued batches leave it.
    pub fn summary(&self) -> Option<&SessionSummary> {
        self.listed.as_ref().map(|row| &row.summary)
    }

    fn save_after(&mut self, batch: &mut Batch) {
        let value = Bytes::from(self.fold.to_checkpoint());
        self.unsaved = Unsaved::after_checkpoint(value.len());
        batch.rows.extend(checkpoint(self.shared.store.as_ref(), self.id, value).rows);
    }
}
