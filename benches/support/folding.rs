//! Actions to decode and fold, and chats to fold them into.

use bytes::Bytes;
use scrollback::events::{Kind, MemoryStore};
use scrollback::projections::action::Action;
use scrollback::projections::chat::ChatFold;

use super::author::{Session, Shape, delta, text};

/// Stored actions of a chat, and the fold before them.
pub struct Folding {
    before: ChatFold,
    actions: Vec<Bytes>,
}

impl Folding {
    /// `count` deltas of one part.
    pub fn deltas(count: usize) -> Self {
        let mut session = new_session();
        session.start_turn();
        let turn = session.turn_id();
        session.part(&turn, "p");
        let action = Action::host(delta(&turn, "p", &text(60))).bytes;
        Self { before: session.chat_fold.clone(), actions: vec![action; count] }
    }

    /// About `count` actions of whole turns of 8 deltas.
    pub fn mixed(count: usize) -> Self {
        let mut session = new_session();
        let before = session.chat_fold.clone();
        let mut actions = Vec::new();
        while actions.len() < count {
            let batches = session.turn(Shape { deltas: 8, bytes: 60 });
            let events = batches.into_iter().flat_map(|batch| batch.events);
            let of_chat = events.filter(|e| e.kind == Kind::Action && e.channel_id == session.chat_id);
            actions.extend(of_chat.map(|event| event.action));
        }
        Self { before, actions }
    }

    /// How many actions there are.
    pub fn len(&self) -> u64 {
        self.actions.len() as u64
    }

    /// Decodes and folds them all.
    pub fn run(&self) -> ChatFold {
        let mut fold = self.before.clone();
        for bytes in &self.actions {
            let action = Action::from_stored(bytes.clone()).expect("an action");
            fold.apply(&action, 0);
        }
        fold
    }
}

/// A chat with this many finished turns and a running one with this many parts, and a delta for the last part.
pub fn running(parts: usize, turns: usize) -> (ChatFold, Action) {
    let mut session = new_session();
    for _ in 0..turns {
        session.turn(Shape { deltas: 1, bytes: 20 });
    }
    session.start_turn();
    let turn = session.turn_id();
    for part in 0..parts {
        session.part(&turn, &format!("p{part}"));
    }
    let delta = Action::host(delta(&turn, &format!("p{}", parts.saturating_sub(1)), "a word or two "));
    (session.chat_fold, delta)
}

fn new_session() -> Session {
    Session::create(&MemoryStore::new().expect("a store"), 1).0
}
