//! The law of messages that wait in a chat: one pure function, from what waits and what happens to the steps that follow.
//!
//! - Queued messages go out first in, first out, one turn each. The next one goes when a turn completes; any other end
//!   pauses a queue that has messages, and nothing leaves a paused queue by itself.
//! - A pause is lifted by a person's new queued message or turn, by sending one now, and by a resumed turn that completes.
//!   An empty queue is not paused.
//! - A steering message waits in its slot until the agent takes one into the running turn: it leaves the slot first and is
//!   handed over after that. What was not taken when the turn ends becomes the head of the queue.
//! - Sending lets an owed resume lapse.
//!
//! Always: a message that was accepted is in one place (queue, slot, handed over), or it went out, was taken, was taken back,
//! was replaced in its slot or was cleared, once; while no turn runs the slot is empty, and the queue is paused or empty.
//! `waiting` reads the state from the folds and makes entries of the steps. That a turn may be resumed, and that an id is a
//! new one, is for others to know.

use ahp_types::actions::{
    ChatPendingMessageRemovedAction, ChatPendingMessageSetAction, ChatQueuedMessagesReorderedAction,
    ChatTurnStartedAction, StateAction,
};
use ahp_types::state::{PendingMessage, PendingMessageKind};

use crate::actors::rejection::{Code, Rejection};

#[cfg(test)]
mod properties;

/// What waits in a chat, and what its waiting depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting<'a> {
    /// The queue, the next one first.
    pub queued: Vec<&'a PendingMessage>,
    /// The message in the steering slot.
    pub steering: Option<&'a PendingMessage>,
    /// What was handed to the agent, which has not said that it took it, oldest first.
    pub handed: Vec<&'a PendingMessage>,
    /// Whether a turn runs.
    pub running: bool,
    pub paused: bool,
    /// Whether the host is to take up the last turn by itself, later.
    pub owes_resume: bool,
    pub agent: Takes,
    /// How many messages may be in the queue. What becomes its head all the same is not lost.
    pub limit: usize,
}

/// Whether the agent takes a message into the running turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    Never,
    /// It will say when.
    Later,
    /// It waits for one.
    Now,
}

/// What happens.
#[derive(Debug, Clone)]
pub enum Input<'a> {
    /// A person queues a message, edits one that waits, or moves one out of the slot. `used`: the chat has seen its id.
    Queue { message: &'a PendingMessage, used: bool },
    /// A person sets the steering message: a new one, an edit, or one that is queued until now.
    Steer { message: &'a PendingMessage, used: bool },
    /// A person takes a message back.
    TakeBack { kind: PendingMessageKind, id: &'a str },
    /// A person wants this order; ids that do not wait are passed over, and what is not named follows in its old order.
    Order(&'a [String]),
    /// A person begins a turn of their own.
    Start,
    /// A person sends a queued message now, whatever runs.
    SendNow { id: &'a str },
    /// The running turn ends.
    Ended(End),
    /// The agent waits for a message into the running turn.
    AgentTakes,
    /// The agent took what it was handed.
    Taken { id: &'a str },
    /// The running turn goes on with another process of the agent: nobody knows what the old one took.
    TakenUp,
    /// The chat is started over.
    Clear,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Complete,
    /// It completed after it was resumed.
    ResumedComplete,
    /// It was cancelled, failed, met a limit, or was interrupted.
    Other,
}

/// One thing that follows, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Step<'a> {
    /// The person's own action, as it was accepted.
    Accept,
    /// A message leaves the queue or the slot.
    Remove(PendingMessageKind, &'a str),
    /// A message goes to the end of the queue.
    Append(&'a PendingMessage),
    /// The queue is in this order now: every id.
    Order(Vec<&'a str>),
    /// The queue is paused, or its pause is lifted.
    Pause(bool),
    /// The running turn is stopped.
    Stop,
    /// A message is handed to the agent, once that is durable.
    HandOver(&'a PendingMessage),
    /// The agent has what it was handed.
    Settle(&'a str),
    /// The turn of a message that has left the queue begins.
    Begin(&'a PendingMessage),
    /// The owed resume is not owed any more.
    Lapse,
}

impl Step<'_> {
    /// The action on the chat's channel that the step is, where it is one of the host's alone. A turn has this id and begins at
    /// this time.
    pub fn action(&self, turn_id: &str, started_at: &str) -> Option<StateAction> {
        Some(match self {
            Step::Remove(kind, id) => {
                let removed = ChatPendingMessageRemovedAction { kind: *kind, id: (*id).to_owned() };
                StateAction::ChatPendingMessageRemoved(removed)
            }
            Step::Append(message) => StateAction::ChatPendingMessageSet(ChatPendingMessageSetAction {
                kind: PendingMessageKind::Queued,
                id: message.id.clone(),
                message: message.message.clone(),
            }),
            Step::Order(ids) => {
                let order = ids.iter().map(|id| (*id).to_owned()).collect();
                StateAction::ChatQueuedMessagesReordered(ChatQueuedMessagesReorderedAction { order })
            }
            Step::Begin(message) => StateAction::ChatTurnStarted(ChatTurnStartedAction {
                turn_id: turn_id.to_owned(),
                started_at: started_at.to_owned(),
                message: message.message.clone(),
                queued_message_id: Some(message.id.clone()),
                meta: None,
            }),
            _ => return None,
        })
    }
}

/// Why a person's wish is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// No such message waits: it went out, was taken or was taken back, or there never was one.
    NotWaiting,
    /// No turn runs that a message could go into.
    NoTurn,
    /// A turn runs.
    TurnRuns,
    /// The agent takes no messages into a running turn.
    NoSteering,
    /// So many messages wait.
    Full(usize),
}

impl From<Refused> for Rejection {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NotWaiting => {
                Self::new(Code::RequestNotFound, "no such message waits: it went out, was taken back, or never was")
            }
            Refused::NoTurn => {
                Self::new(Code::NoActiveTurn, "no turn is running that the message could go into: queue it")
            }
            Refused::TurnRuns => {
                Self::new(Code::TurnInProgress, "a turn is running: queue the message with chat/pendingMessageSet")
            }
            Refused::NoSteering => {
                Self::new(Code::Unsupported, "this session's agent takes no message into a running turn: queue it")
            }
            Refused::Full(limit) => Self::new(Code::LimitExceeded, format!("at most {limit} messages wait in a chat")),
        }
    }
}

/// Decides: the steps that follow, none where nothing changes.
///
/// # Errors
/// [`Refused`], for what a person asks.
pub fn decide<'a>(waiting: Waiting<'a>, input: Input<'a>) -> Result<Vec<Step<'a>>, Refused> {
    decided(waiting, input).map(|law| law.steps)
}

fn decided<'a>(waiting: Waiting<'a>, input: Input<'a>) -> Result<Law<'a>, Refused> {
    let mut law = Law { now: waiting, steps: Vec::new() };
    match input {
        Input::Queue { message, used } => law.queue(message, used)?,
        Input::Steer { message, used } => law.steer(message, used)?,
        Input::TakeBack { kind, id } => law.take_back(kind, id)?,
        Input::Order(wanted) => law.order(wanted)?,
        Input::Start => law.start()?,
        Input::SendNow { id } => law.send_now(id)?,
        Input::Ended(end) => law.ended(end),
        Input::AgentTakes => {
            law.now.agent = Takes::Now;
            law.hand_over();
        }
        Input::Taken { id } => law.taken(id),
        Input::TakenUp => law.taken_up(),
        Input::Clear => law.clear(),
    }
    Ok(law)
}

/// The steps so far, and what waits after them.
struct Law<'a> {
    now: Waiting<'a>,
    steps: Vec<Step<'a>>,
}

/// What people wish.
impl<'a> Law<'a> {
    fn queue(&mut self, message: &'a PendingMessage, used: bool) -> Result<(), Refused> {
        if let Some(at) = self.place(&message.id) {
            return self.edit_queued(at, message);
        }
        let moves = self.in_slot(&message.id);
        if used && !moves {
            return Err(Refused::NotWaiting);
        }
        if self.now.queued.len() >= self.now.limit {
            return Err(Refused::Full(self.now.limit));
        }
        self.steps.push(Step::Accept);
        self.now.queued.push(message);
        if moves {
            self.leave_slot();
        }
        self.pause(false);
        self.lapse();
        self.go();
        Ok(())
    }

    fn edit_queued(&mut self, at: usize, edited: &'a PendingMessage) -> Result<(), Refused> {
        if let Some(old) = self.now.queued.get_mut(at).filter(|old| **old != edited) {
            *old = edited;
            self.steps.push(Step::Accept);
        }
        Ok(())
    }

    fn steer(&mut self, message: &'a PendingMessage, used: bool) -> Result<(), Refused> {
        if !self.now.running {
            return Err(Refused::NoTurn);
        }
        if self.now.agent == Takes::Never {
            return Err(Refused::NoSteering);
        }
        if self.now.steering == Some(message) {
            return Ok(());
        }
        let queued = self.place(&message.id);
        if used && queued.is_none() && !self.in_slot(&message.id) {
            return Err(Refused::NotWaiting);
        }
        self.steps.push(Step::Accept);
        self.now.steering = Some(message);
        if let Some(at) = queued {
            self.leave_queue(at);
        }
        self.hand_over();
        Ok(())
    }

    fn take_back(&mut self, kind: PendingMessageKind, id: &str) -> Result<(), Refused> {
        let at = match kind {
            PendingMessageKind::Queued => Some(self.place(id).ok_or(Refused::NotWaiting)?),
            PendingMessageKind::Steering if self.in_slot(id) => None,
            PendingMessageKind::Steering => return Err(Refused::NotWaiting),
        };
        self.steps.push(Step::Accept);
        match at {
            Some(at) => drop(self.now.queued.remove(at)),
            None => self.now.steering = None,
        }
        self.unpause_empty();
        Ok(())
    }

    fn order(&mut self, wanted: &[String]) -> Result<(), Refused> {
        if self.now.queued.is_empty() {
            return Err(Refused::NotWaiting);
        }
        let mut left = self.now.queued.clone();
        let mut order = Vec::with_capacity(left.len());
        for id in wanted {
            if let Some(at) = left.iter().position(|message| message.id == *id) {
                order.push(left.remove(at));
            }
        }
        order.append(&mut left);
        self.reorder(order);
        Ok(())
    }

    fn start(&mut self) -> Result<(), Refused> {
        if self.now.running {
            return Err(Refused::TurnRuns);
        }
        self.steps.push(Step::Accept);
        self.now.running = true;
        self.pause(false);
        self.lapse();
        Ok(())
    }

    fn send_now(&mut self, id: &str) -> Result<(), Refused> {
        let at = self.place(id).ok_or(Refused::NotWaiting)?;
        let mut order = self.now.queued.clone();
        let sent = order.remove(at);
        order.insert(0, sent);
        self.reorder(order);
        if self.now.running {
            self.steps.push(Step::Stop);
            self.now.running = false;
            self.keep_untaken(1);
        }
        self.pause(false);
        self.lapse();
        self.go();
        Ok(())
    }

    fn clear(&mut self) {
        if self.now.running {
            self.steps.push(Step::Stop);
            self.now.running = false;
        }
        self.now.handed.clear();
        if self.now.steering.is_some() {
            self.leave_slot();
        }
        while !self.now.queued.is_empty() {
            self.leave_queue(0);
        }
        self.lapse();
    }
}

/// What turns and agents do.
impl<'a> Law<'a> {
    fn ended(&mut self, end: End) {
        self.now.running = false;
        self.keep_untaken(0);
        match end {
            End::Complete => {}
            End::ResumedComplete => self.pause(false),
            End::Other => self.pause(!self.now.queued.is_empty()),
        }
        self.go();
    }

    fn taken(&mut self, id: &str) {
        if let Some(at) = self.now.handed.iter().position(|message| message.id == id) {
            let taken = self.now.handed.remove(at);
            self.steps.push(Step::Settle(&taken.id));
        }
    }

    /// What the old process was handed and nobody knows of waits again, at the head of the queue; the slot waits on.
    fn taken_up(&mut self) {
        let slot = self.now.steering.take();
        for message in &self.now.handed {
            self.steps.push(Step::Settle(&message.id));
        }
        self.keep_untaken(0);
        self.now.steering = slot;
        self.now.agent = if self.now.agent == Takes::Never { Takes::Never } else { Takes::Later };
    }

    /// Hands the slot's message to an agent that waits for one.
    fn hand_over(&mut self) {
        if !self.now.running || self.now.agent != Takes::Now {
            return;
        }
        if let Some(message) = self.leave_slot() {
            self.steps.push(Step::HandOver(message));
            self.now.handed.push(message);
            self.now.agent = Takes::Later;
        }
    }

    /// What was meant for a turn and not taken into it waits in the queue, from this place on, the oldest first.
    fn keep_untaken(&mut self, place: usize) {
        let mut kept = std::mem::take(&mut self.now.handed);
        kept.extend(self.leave_slot());
        if kept.is_empty() {
            return;
        }
        let mut order = self.now.queued.clone();
        for (at, message) in kept.into_iter().enumerate() {
            self.steps.push(Step::Append(message));
            self.now.queued.push(message);
            order.insert(place + at, message);
        }
        self.reorder(order);
    }

    /// The head of the queue goes out, where nothing holds it up.
    fn go(&mut self) {
        if self.now.running || self.now.paused {
            return;
        }
        if let Some(head) = self.leave_queue(0) {
            self.steps.push(Step::Begin(head));
            self.now.running = true;
        }
    }
}

/// The parts that they are made of.
impl<'a> Law<'a> {
    fn place(&self, id: &str) -> Option<usize> {
        self.now.queued.iter().position(|message| message.id == id)
    }

    fn in_slot(&self, id: &str) -> bool {
        self.now.steering.is_some_and(|message| message.id == id)
    }

    fn leave_slot(&mut self) -> Option<&'a PendingMessage> {
        let message = self.now.steering.take()?;
        self.steps.push(Step::Remove(PendingMessageKind::Steering, &message.id));
        Some(message)
    }

    fn leave_queue(&mut self, at: usize) -> Option<&'a PendingMessage> {
        let message = (at < self.now.queued.len()).then(|| self.now.queued.remove(at))?;
        self.steps.push(Step::Remove(PendingMessageKind::Queued, &message.id));
        self.unpause_empty();
        Some(message)
    }

    fn reorder(&mut self, order: Vec<&'a PendingMessage>) {
        let ids = |messages: &[&'a PendingMessage]| messages.iter().map(|m| m.id.as_str()).collect::<Vec<&'a str>>();
        let ordered = ids(&order);
        if ids(&self.now.queued) != ordered {
            self.steps.push(Step::Order(ordered));
            self.now.queued = order;
        }
    }

    fn unpause_empty(&mut self) {
        if self.now.queued.is_empty() {
            self.pause(false);
        }
    }

    fn pause(&mut self, paused: bool) {
        if self.now.paused != paused {
            self.now.paused = paused;
            self.steps.push(Step::Pause(paused));
        }
    }

    fn lapse(&mut self) {
        if std::mem::take(&mut self.now.owes_resume) {
            self.steps.push(Step::Lapse);
        }
    }
}
