//! Moves of chats, one after the other in the whole host, and what a session hands another for one.
//!
//! A move between sessions is one decision of two of them, on threads of their own: the source says what goes, the destination
//! takes it into its fold and holds its lane, and the source queues one batch for both. One at a time, so that no two wait for each
//! other. Everything here answers by itself when it is dropped on the way: nobody waits for an actor that is gone.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use actix::Addr;
use ahp_types::state::{ChatSummary, SessionConfigState};
use serde_json::Value;

use super::command::{Refusal, RefusalKind, Reply};
use super::connection::Caller;
use super::core::{By, Part};
use super::session::{SessionActor, SessionMessage};
use super::writer::Held;
use crate::events::{Channel, ChannelId};

/// Begins a move that has its turn.
type Begin = Box<dyn FnOnce(Ticket) + Send>;

/// Whose turn it is.
#[derive(Default)]
pub struct Moves {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Begin>,
    begun: u64,
    /// A move is going on.
    busy: bool,
    /// Somebody lets the next one begin.
    calling: bool,
}

/// The turn of one move, until it is dropped.
pub struct Ticket {
    moves: Arc<Moves>,
    pub number: u64,
}

impl Moves {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `begin` when no other move is going on: at once, or where the one before ends.
    pub fn enter(self: &Arc<Self>, begin: Begin) {
        self.queue().waiting.push_back(begin);
        self.call_next();
    }

    /// Lets the next ones begin, one by one: a move that is refused at once has ended when its `begin` returns.
    fn call_next(self: &Arc<Self>) {
        loop {
            let (begin, number) = {
                let mut queue = self.queue();
                if queue.busy || queue.calling {
                    return;
                }
                let Some(begin) = queue.waiting.pop_front() else { return };
                queue.begun += 1;
                (queue.busy, queue.calling) = (true, true);
                (begin, queue.begun)
            };
            begin(Ticket { moves: Arc::clone(self), number });
            self.queue().calling = false;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.moves.queue().busy = false;
        self.moves.call_next();
    }
}

/// Where a chat is to go.
#[derive(Debug, Clone)]
pub enum MoveTo {
    /// Into a session, behind the chat `after`; to its first place without one.
    Session { session: Channel, id: ChannelId, after: Option<String> },
    /// Into a session of its own.
    NewSession,
}

/// `moveChat`, on its way to the chat's session.
pub struct MoveChat {
    pub caller: Caller,
    pub chat: Channel,
    pub to: MoveTo,
    pub ticket: Ticket,
    pub reply: Reply,
}

/// A chat that moves.
#[derive(Debug, Clone, PartialEq)]
pub struct MovedChat {
    pub uri: Channel,
    pub id: ChannelId,
    /// As the destination is to list it.
    pub summary: ChatSummary,
    /// Its queue is paused.
    pub is_paused: bool,
}

/// What a session is to take in: the chat that was named first, then its workers.
pub struct Arrival {
    pub number: u64,
    pub by: By,
    pub chats: Vec<MovedChat>,
    /// The chat that the first one is to stand behind.
    pub after: Option<String>,
    pub provider: String,
    /// The configuration of the session that they leave.
    pub config: Option<SessionConfigState>,
    /// All directories that they work in, in the order of the session that they leave.
    pub directories: Vec<String>,
    /// What their agent kept for them.
    pub memory: Vec<(String, Value)>,
    pub back: Back,
}

/// What a session that takes chats in gives the one that they leave.
pub struct Accepted {
    /// Its own part of the batch.
    pub part: Part,
    /// Its lane, which waits for the batch.
    pub held: Held,
    pub gate: Gate,
}

/// The way back to the session that chats leave. Dropped, it says that the destination is gone.
pub struct Back {
    pub source: Addr<SessionActor>,
    pub number: u64,
    told: bool,
}

impl Back {
    pub fn new(source: Addr<SessionActor>, number: u64) -> Self {
        Self { source, number, told: false }
    }

    pub fn answer(mut self, answer: Result<Accepted, Refusal>) {
        self.told = true;
        self.source.do_send(SessionMessage::MoveAnswered { number: self.number, answer: answer.map(Box::new) });
    }
}

impl Drop for Back {
    fn drop(&mut self) {
        if !self.told {
            let refusal = Refusal::new(RefusalKind::Unavailable, "busy", "the destination was read anew: try again");
            self.source.do_send(SessionMessage::MoveAnswered { number: self.number, answer: Err(refusal) });
        }
    }
}

/// The destination takes nothing from outside until it opens. Dropped, what became of the batch is for the log to say.
pub struct Gate {
    destination: Addr<SessionActor>,
    number: u64,
    opened: bool,
}

impl Gate {
    pub fn new(destination: Addr<SessionActor>, number: u64) -> Self {
        Self { destination, number, opened: false }
    }

    /// The chats are there: the destination serves `messages`, which came for them before, and goes on.
    pub fn open(mut self, messages: Vec<SessionMessage>) {
        self.opened = true;
        self.destination.do_send(SessionMessage::Arrived { number: self.number, messages });
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if !self.opened {
            self.destination.do_send(SessionMessage::NotArrived { number: self.number });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_begin_one_after_the_other_and_a_refused_one_holds_nobody_up() {
        let moves = Arc::new(Moves::default());
        let begun = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::new(Mutex::new(None));
        for name in 0..1_000 {
            let (begun, kept) = (Arc::clone(&begun), Arc::clone(&kept));
            moves.enter(Box::new(move |ticket| {
                begun.lock().unwrap().push(name);
                if name == 0 {
                    *kept.lock().unwrap() = Some(ticket);
                }
            }));
        }
        assert_eq!(*begun.lock().unwrap(), [0]);
        drop(kept.lock().unwrap().take());
        assert_eq!(*begun.lock().unwrap(), (0..1_000).collect::<Vec<_>>());
    }
}
