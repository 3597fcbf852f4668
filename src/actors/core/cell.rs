//! An awake chat: its fold, and what of it may not be on disk yet.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use actix::Addr;

use super::Unsaved;
use crate::actors::chat::{ChatActor, PendingText};
use crate::actors::shared::Shared;
use crate::events::rows;
use crate::events::{Channel, ChannelId, Table};
use crate::projections::FoldFault;
use crate::projections::chat::ChatFold;
use crate::projections::turns::{self, StoredTurn};

/// An awake chat's fold, and its finished turns that may not be on disk yet.
pub struct ChatCell {
    pub id: ChannelId,
    pub channel: Channel,
    pub fold: ChatFold,
    /// Turns that ended and whose batches are on their way, oldest first.
    pub(super) undurable: VecDeque<StoredTurn>,
    pub(super) unsaved: Unsaved,
    /// Ids that were used by batches on their way, with their kind.
    pub(super) used: Vec<(u8, String)>,
    /// Batches on their way.
    pub(super) on_the_way: usize,
    /// Messages from the session that the chat has not handled yet.
    pub unread: usize,
    /// The chat was disposed: nothing more is recorded in it, also what its actor was sent before.
    pub is_gone: bool,
    /// When the chat was last used.
    pub last_used: Instant,
    /// It was let go of to sleep, and another actor may have followed: what its agent still says is not recorded.
    pub is_asleep: bool,
    /// What its agent has streamed and is not recorded yet: whoever records anything of the chat records this first.
    pub pending: Option<PendingText>,
    /// Its actor.
    pub actor: Option<Addr<ChatActor>>,
    /// Of a worker: the turn that spawned it.
    pub spawned_in: Option<String>,
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
            pending: None,
            actor: None,
            spawned_in: None,
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

/// When a chat was last used, and what keeps it awake.
impl ChatCell {
    /// The chat was used now.
    pub fn touch(&mut self) {
        self.last_used = Instant::now();
    }

    /// Whether nothing keeps the chat in memory: no turn, no background work of its agent, no message, nothing on its way to
    /// the disk, not used for `idle`.
    pub fn can_sleep(&self, idle: Duration) -> bool {
        let state = &self.fold.state;
        let works = state.active_turn.is_some() || state.background_work.iter().flatten().next().is_some();
        !works && self.unread == 0 && self.is_settled() && self.last_used.elapsed() >= idle
    }
}
