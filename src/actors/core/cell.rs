//! An awake chat: its fold, and what of it may not be on disk yet.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use actix::Addr;

use super::Unsaved;
use crate::actors::chat::{ChatActor, PendingText};
use crate::actors::shared::Shared;
use crate::events::rows;
use crate::events::{Channel, ChannelId, Table};
use crate::projections::FoldFault;
use crate::projections::chat::{ChatFold, Point};
use crate::projections::turns::{self, StoredTurn};

/// An awake chat's fold, and its finished turns that may not be on disk yet.
pub struct ChatCell {
    pub id: ChannelId,
    pub channel: Channel,
    pub fold: ChatFold,
    /// Turns that ended and whose batches are on their way, oldest first.
    pub(super) undurable: VecDeque<Undurable>,
    /// Turns of other chats that its branch has and whose batches are on their way.
    borrowed: Vec<Undurable>,
    pub(super) unsaved: Unsaved,
    /// Ids that were used by batches on their way, with their kind.
    pub(super) used: Vec<(u8, String)>,
    /// The channels of visuals that were published since it woke, by id: the store may not have them yet.
    pub new_canvases: HashMap<String, ChannelId>,
    /// Batches on their way.
    pub on_the_way: usize,
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
    /// The turn that the agent waits for a steering message in.
    pub takes_steering: Option<String>,
}

/// A turn that ended and may not be on disk yet, with what stands beside its row. Named as its cell's chat names it.
#[derive(Debug, Clone)]
pub(super) struct Undurable {
    pub turn: StoredTurn,
    pub turn_id: String,
    pub point: Option<Point>,
}

impl Undurable {
    /// The same as another chat names it.
    fn as_named_outside(&self, chat: ChannelId) -> Self {
        let mut other = self.clone();
        for turn in [&mut other.turn.n, &mut other.turn.row.prev, &mut other.turn.row.jump] {
            *turn = turns::from_outside(chat, *turn);
        }
        other
    }
}

impl ChatCell {
    /// A chat as a replay gives it.
    pub fn new(id: ChannelId, channel: Channel, fold: ChatFold, unsaved: Unsaved) -> Self {
        Self {
            id,
            channel,
            fold,
            undurable: VecDeque::new(),
            borrowed: Vec::new(),
            unsaved,
            used: Vec::new(),
            new_canvases: HashMap::new(),
            on_the_way: 0,
            unread: 0,
            is_gone: false,
            last_used: Instant::now(),
            is_asleep: false,
            pending: None,
            actor: None,
            takes_steering: None,
        }
    }

    /// A finished turn as the chat names it, from memory while its row is on its way, else from the store.
    ///
    /// # Errors
    /// [`FoldFault`] when the row cannot be read.
    pub fn turn(&self, shared: &Shared, n: u64) -> Result<StoredTurn, FoldFault> {
        match self.on_the_way().find(|ended| ended.turn.n == n) {
            Some(ended) => Ok(ended.turn.clone()),
            None => turns::read(shared.store.as_ref(), self.id, n),
        }
    }

    fn on_the_way(&self) -> impl DoubleEndedIterator<Item = &Undurable> {
        self.borrowed.iter().chain(&self.undurable)
    }

    /// The point that the agent can go back to at the end of a turn.
    ///
    /// # Errors
    /// [`FoldFault`] when the rows cannot be read.
    pub fn point(&self, shared: &Shared, n: u64) -> Result<Option<Point>, FoldFault> {
        match self.on_the_way().find(|ended| ended.turn.n == n) {
            Some(ended) => Ok(ended.point.clone()),
            None => turns::point(shared.store.as_ref(), self.id, n),
        }
    }

    /// The turn with this id that the chat's branch has, or ever had: the newest of that id; a fork has those of its source up to
    /// where it began.
    ///
    /// # Errors
    /// [`FoldFault`] when the rows cannot be read.
    pub fn turn_ever(&self, shared: &Shared, turn_id: &str) -> Result<Option<StoredTurn>, FoldFault> {
        if let Some(ended) = self.on_the_way().rfind(|ended| ended.turn_id == turn_id) {
            return Ok(Some(ended.turn.clone()));
        }
        let store = shared.store.as_ref();
        if let Some(n) = turns::ever_ended(store, self.id, turn_id)? {
            return turns::read(store, self.id, n).map(Some);
        }
        for base in &self.fold.bases {
            let (chat, _) = turns::place(self.id, *base);
            let Some(n) = turns::ever_ended(store, chat, turn_id)? else { continue };
            let newest = self.turn(shared, turns::from_outside(chat, n))?;
            if let Some(turn) = self.as_on_branch(shared, *base, newest)? {
                return Ok(Some(turn));
            }
        }
        Ok(None)
    }

    /// The turn with this id on the branch that ends at `head`.
    ///
    /// # Errors
    /// [`FoldFault`] when the rows cannot be read.
    pub fn turn_on_branch(&self, shared: &Shared, head: u64, turn_id: &str) -> Result<Option<StoredTurn>, FoldFault> {
        match self.turn_ever(shared, turn_id)? {
            Some(newest) => self.as_on_branch(shared, head, newest),
            None => Ok(None),
        }
    }

    /// A turn as the branch that ends at `head` has it: a turn that was taken up has ended before, at the same place.
    fn as_on_branch(&self, shared: &Shared, head: u64, newest: StoredTurn) -> Result<Option<StoredTurn>, FoldFault> {
        let read = |n| self.turn(shared, n);
        match turns::at_ordinal(head, newest.row.ordinal, read)? {
            Some(n) if n == newest.n => Ok(Some(newest)),
            Some(n) => Ok(Some(read(n)?).filter(|turn| turn.id() == newest.id())),
            None => Ok(None),
        }
    }

    /// Whether the chat has seen this id: of a turn (`b't'`) or of a pending message (`b'm'`).
    ///
    /// # Errors
    /// [`FoldFault`] when the store cannot be read.
    pub fn has_seen(&self, shared: &Shared, kind: u8, id: &str) -> Result<bool, FoldFault> {
        let on_the_way = self.used.iter().any(|(k, seen)| *k == kind && seen == id);
        if on_the_way || shared.store.get(Table::Used, &rows::used_key(self.id, kind, id))?.is_some() {
            return Ok(true);
        }
        Ok(kind == b't' && !self.fold.bases.is_empty() && self.turn_ever(shared, id)?.is_some())
    }

    /// Takes what `source` has not on disk yet of the branch that this chat begins with.
    pub fn borrow_turns(&mut self, source: &ChatCell) {
        self.borrowed.clone_from(&source.borrowed);
        self.borrowed.extend(source.undurable.iter().map(|ended| ended.as_named_outside(source.id)));
    }

    /// Forgets what is on disk now: turns up to `n`, and `used` of the ids.
    pub fn durable(&mut self, n: u64, used: usize) {
        while self.undurable.front().is_some_and(|ended| ended.turn.n <= n) {
            self.undurable.pop_front();
        }
        // They were on their way before the chat was.
        self.borrowed.clear();
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
