//! The fold of a chat's channel.
//!
//! Of the finished turns only the last is held: the official reducers look no further back, and the others stand as rows
//! beside the log. So a chat's memory does not grow with its turns. A turn that ends comes out of
//! [`ChatFold::apply`] as a row to store.

use std::collections::{HashMap, HashSet};

use ahp::reducers::{ReduceOutcome, apply_action_to_chat};
use ahp_types::actions::StateAction;
use ahp_types::state::{ChatState, Message, PendingMessage, ResponsePart, ToolCallState, Turn, TurnState};
use serde::{Deserialize, Serialize};

use super::action::Action;
use super::attempts::Attempts;
use super::fact::{ChatText, Fact, MessageOf};
use super::visual::Visual;
use crate::clock::{self, Millis};
use crate::events::rows::TurnRow;

/// The format of checkpoints made from this fold; another number means: fold from the start.
pub const CHECKPOINT_FORMAT: u32 = 4;

/// The key of a message's `_meta` that says who sent it.
pub const SENDER: &str = "scrollback.sender";

/// Who sent a message, as the host wrote it there; `None` for the host's own.
pub fn sender(message: &Message) -> Option<&str> {
    message.meta.as_ref()?.get(SENDER)?.as_str()
}

/// The branch up to its last turn: the ordinal and the name of that turn, and of those that remain when the lowest set bit of
/// the ordinal is cleared, again and again. What the next row's `prev` and `jump` are taken from.
pub type Path = Vec<(u64, u64)>;

/// Where an agent can go back to: the end of a turn, in its own words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Point {
    pub turn_id: String,
    pub point: String,
    /// The agent's own id for the conversation that the point is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
}

/// A branch that a chat goes on from, found before it is recorded: a fold looks nothing up.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Branch {
    pub path: Path,
    /// The path of the branch without its last turn.
    pub before: Path,
    /// The last turn: whole where it can be taken up again, else as much as tells that it is there.
    pub last: Option<Box<Turn>>,
    /// What the agent goes on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<Point>,
}

impl Branch {
    /// The branch that ends with this turn.
    pub fn new(path: Path, before: Path, last: Turn, point: Option<Point>) -> Self {
        let last = if is_resumable(&last) { last } else { hollow(last) };
        Self { path, before, last: Some(Box::new(last)), point }
    }
}

/// Whether a turn that has ended can be taken up again: its last part is an error that says so.
pub fn is_resumable(turn: &Turn) -> bool {
    let error = match turn.response_parts.last() {
        Some(ResponsePart::Error(error)) => error.resumable,
        _ => None,
    };
    turn.state == TurnState::Error && error == Some(true)
}

/// A turn without what was said: nobody who folds on looks at that.
fn hollow(turn: Turn) -> Turn {
    let message = Message { text: String::new(), attachments: None, meta: None, ..turn.message };
    Turn { message, response_parts: Vec::new(), usage: None, ..turn }
}

/// A chat's state and where its branch of turns ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChatFold {
    format: u32,
    /// The chat, with its last finished turn only in `turns`.
    pub state: ChatState,
    /// How many turns ever ended in this chat: the n of the newest row.
    pub rows: u64,
    path: Path,
    /// The path without the last turn: what it is again when that turn is taken up.
    before: Path,
    /// For a fork, the last turn that it has of another chat; then of that chat's own origin, and so on.
    pub bases: Vec<u64>,
    /// For a side chat, what its agent is told before the first message.
    pub context: Option<String>,
    /// What the next `chat/truncated` keeps.
    next: Option<Box<Branch>>,
    /// When the running turn started, by the host's clock.
    pub started: Millis,
    /// When the turn that ended last had started.
    last_started: Millis,
    /// The agent's own id for the conversation.
    pub conversation: Option<String>,
    /// Where the agent is to go on from, when its conversation is another than the chat's since a rewind or a fork.
    pub back_to: Option<Point>,
    /// The points of turns that have no row yet.
    points: Vec<Point>,
    /// The attempts at the running turn, or at the one that ended last.
    #[serde(default)]
    pub attempts: Attempts,
    /// What was published in it and is still there, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub visuals: Vec<Visual>,
    /// What the agent is given for attached chats, by the message: of those that wait, of the running turn and of the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    attached: Vec<(MessageOf, Vec<ChatText>)>,
    /// Steering messages that were handed to the agent of the running turn, which has not said that it took them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handed: Vec<PendingMessage>,
    /// The people who asked for the running turn, or for the one that ended last: who sent its message, who took it up again,
    /// who steered it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub askers: Vec<String>,
    /// Where the markdown and reasoning parts and the tool calls of the running turn stand, by id.
    #[serde(skip)]
    parts: Option<HashMap<String, usize>>,
}

/// A turn that has just ended, as its row.
#[derive(Debug, Clone, PartialEq)]
pub struct EndedTurn {
    /// Which ended turn of the chat it is, from 1.
    pub n: u64,
    pub row: TurnRow,
    pub turn_id: String,
    /// The finished turn's JSON.
    pub json: Vec<u8>,
    pub point: Option<Point>,
}

impl ChatFold {
    /// A chat as it was created.
    pub fn new(state: ChatState) -> Self {
        Self {
            format: CHECKPOINT_FORMAT,
            state,
            rows: 0,
            path: Vec::new(),
            before: Vec::new(),
            bases: Vec::new(),
            context: None,
            next: None,
            started: 0,
            last_started: 0,
            conversation: None,
            back_to: None,
            points: Vec::new(),
            attempts: Attempts::default(),
            visuals: Vec::new(),
            attached: Vec::new(),
            handed: Vec::new(),
            askers: Vec::new(),
            parts: None,
        }
    }

    /// A chat as it was created: a fork's branch begins with turns of other chats, a side chat's agent is told of one.
    pub fn created(state: ChatState, fork: Option<Forked>, context: Option<String>) -> Self {
        let mut fold = Self { context, ..Self::new(state) };
        if let Some(fork) = fork {
            fold.bases = fork.bases;
            fold.take(fork.branch);
        }
        fold
    }

    /// A fold read back from a checkpoint, unless it is of another format.
    pub fn from_checkpoint(bytes: &[u8]) -> Option<Self> {
        let fold: Self = serde_json::from_slice(bytes).ok()?;
        (fold.format == CHECKPOINT_FORMAT).then_some(fold)
    }

    /// The fold as a checkpoint.
    pub fn to_checkpoint(&self) -> Vec<u8> {
        serde_json::to_value(self).map(|value| value.to_string().into_bytes()).unwrap_or_default()
    }

    /// n of the last turn on the chat's branch, 0 for none.
    pub fn head(&self) -> u64 {
        self.path.first().map_or(0, |(_, n)| *n)
    }

    /// How many turns the chat's branch has.
    pub fn ordinal(&self) -> u64 {
        self.path.first().map_or(0, |(ordinal, _)| *ordinal)
    }

    /// The path of its branch.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last finished turn, as far as it is held.
    pub fn last_turn(&self) -> Option<&Turn> {
        self.state.turns.last()
    }

    /// Whether a turn or background work runs.
    pub fn works(&self) -> bool {
        self.state.active_turn.is_some() || self.state.background_work.iter().flatten().next().is_some()
    }

    /// Applies an action that happened at `at`. An action that does not fit changes nothing.
    ///
    /// Returns the turn that it ended.
    pub fn apply(&mut self, action: &Action, at: Millis) -> Option<EndedTurn> {
        match &action.decoded {
            StateAction::ChatDelta(delta) => {
                self.append_text(&delta.turn_id, &delta.part_id, &delta.content, false);
                None
            }
            StateAction::ChatReasoning(delta) => {
                self.append_text(&delta.turn_id, &delta.part_id, &delta.content, true);
                None
            }
            // The protocol has no chat action for a title: it is the session's, on the chat's channel.
            StateAction::SessionTitleChanged(title) => {
                self.state.title.clone_from(&title.title);
                None
            }
            // Older turns are rows: a page that is loaded changes nothing of what is held.
            StateAction::ChatTurnsLoaded(_) => None,
            StateAction::ChatTruncated(cut) => {
                self.truncate(cut.turn_id.as_deref());
                self.reduce(action, at)
            }
            _ => self.reduce(action, at),
        }
    }

    fn reduce(&mut self, action: &Action, at: Millis) -> Option<EndedTurn> {
        let outcome = apply_action_to_chat(&mut self.state, &action.decoded);
        if outcome != ReduceOutcome::Applied {
            return None;
        }
        self.attempts.apply(&action.decoded);
        match &action.decoded {
            StateAction::ChatTurnStarted(started) => {
                self.started = at;
                self.parts = None;
                self.askers.clear();
                self.asked_by(sender(&started.message));
                self.attached_goes_out(&started.turn_id, started.queued_message_id.as_deref());
                None
            }
            StateAction::ChatTurnComplete(_) | StateAction::ChatTurnCancelled(_) | StateAction::ChatError(_) => {
                self.end_turn()
            }
            StateAction::ChatTurnResume(_) => {
                self.parts = None;
                self.path = std::mem::take(&mut self.before);
                self.started = self.last_started;
                None
            }
            StateAction::ChatTruncated(_) => {
                self.parts = None;
                self.started = 0;
                self.handed.clear();
                None
            }
            // What the list leaves out is gone.
            StateAction::ChatCanvasesChanged(change) => {
                let listed: HashSet<&str> = change.canvases.iter().flatten().map(|c| c.resource.as_str()).collect();
                self.visuals.retain(|visual| listed.contains(visual.canvas().as_str()));
                None
            }
            StateAction::ChatResponsePart(_) | StateAction::ChatToolCallStart(_) => {
                self.index_last_part();
                None
            }
            _ => None,
        }
    }

    /// Applies a fact of the host.
    pub fn apply_fact(&mut self, fact: &Fact) {
        self.attempts.apply_fact(fact);
        match fact {
            Fact::Conversation { id } => {
                self.conversation = Some(id.clone());
                self.back_to = None;
            }
            Fact::RewindPoint { turn_id, point } => {
                let conversation = self.conversation.clone();
                // The newest of a turn counts.
                self.points.retain(|point| point.turn_id != *turn_id);
                self.points.push(Point { turn_id: turn_id.clone(), point: point.clone(), conversation });
                self.back_to = None;
            }
            Fact::Branch { branch } => self.next = Some(branch.clone()),
            Fact::VisualPublished { visual } => self.visuals.push(visual.clone()),
            Fact::ChatsAttached { to, chats } => {
                self.attached.retain(|(known, _)| known != to);
                self.attached.push((to.clone(), chats.clone()));
            }
            Fact::TakenUp { by } => self.asked_by(Some(by)),
            Fact::SteeringHanded { id, message } => {
                self.asked_by(sender(message));
                self.handed.push(PendingMessage { id: id.clone(), message: (**message).clone() });
            }
            Fact::SteeringSettled { id } => self.handed.retain(|message| message.id != *id),
            _ => {}
        }
    }

    fn asked_by(&mut self, who: Option<&str>) {
        if let Some(who) = who.filter(|who| !self.askers.iter().any(|known| known == who)) {
            self.askers.push(who.to_owned());
        }
    }

    /// What the agent is given for the chats that a message attaches.
    pub fn attached_to(&self, message: &MessageOf) -> &[ChatText] {
        self.attached.iter().find(|(to, _)| to == message).map_or(&[], |(_, chats)| chats)
    }

    /// A turn begins: what its message attaches is its own from now on, and that of messages which are gone is forgotten.
    fn attached_goes_out(&mut self, turn: &str, queued: Option<&str>) {
        let waiting = self.state.queued_messages.iter().flatten().chain(&self.state.steering_message);
        let waiting = waiting.chain(&self.handed);
        let waiting: Vec<&str> = waiting.map(|message| message.id.as_str()).collect();
        self.attached.retain_mut(|(to, _)| match to {
            MessageOf::Pending(id) if queued == Some(id.as_str()) => {
                *to = MessageOf::Turn(turn.to_owned());
                true
            }
            MessageOf::Pending(id) => waiting.contains(&id.as_str()),
            MessageOf::Turn(_) => false,
        });
    }

    /// Makes the branch that is kept the chat's own. The reducer does the rest, and nothing for a turn that is not there.
    fn truncate(&mut self, kept: Option<&str>) {
        let next = self.next.take();
        let Some(kept) = kept else {
            self.take(Branch { path: Vec::new(), before: Vec::new(), last: None, point: None });
            self.conversation = None;
            return;
        };
        if let Some(branch) = next.filter(|branch| branch.last.as_ref().is_some_and(|turn| turn.id == kept)) {
            self.take(*branch);
        }
    }

    fn take(&mut self, branch: Branch) {
        self.path = branch.path;
        self.before = branch.before;
        self.back_to = branch.point;
        self.last_started = branch.last.as_ref().and_then(|turn| started_at(turn)).unwrap_or(0);
        self.askers.clear();
        self.asked_by(branch.last.as_ref().and_then(|turn| sender(&turn.message)));
        self.state.turns = branch.last.map(|turn| *turn).into_iter().collect();
    }

    fn end_turn(&mut self) -> Option<EndedTurn> {
        self.parts = None;
        self.handed.clear();
        self.last_started = std::mem::take(&mut self.started);
        let keep_from = self.state.turns.len().saturating_sub(1);
        self.state.turns.drain(..keep_from);
        let turn = self.state.turns.last()?;
        let json = serde_json::to_value(turn).map(|value| value.to_string().into_bytes()).unwrap_or_default();
        let turn_id = turn.id.clone();
        self.rows += 1;
        let n = self.rows;
        let ordinal = self.ordinal() + 1;
        let prev = self.head();
        let target = ordinal & (ordinal - 1);
        let jump = self.path.iter().find(|(o, _)| *o == target).map_or(0, |(_, n)| *n);
        self.before.clone_from(&self.path);
        self.path.retain(|(o, _)| is_prefix(*o, ordinal));
        self.path.insert(0, (ordinal, n));
        let point = std::mem::take(&mut self.points).into_iter().rfind(|point| point.turn_id == turn_id);
        let row = TurnRow { prev, jump, ordinal, rewindable: point.is_some() };
        Some(EndedTurn { n, row, turn_id, json, point })
    }

    /// Appends to a text part in time that does not depend on how many parts there are; the same as the reducer does.
    fn append_text(&mut self, turn_id: &str, part_id: &str, content: &str, reasoning: bool) {
        let parts = match self.parts.take() {
            Some(parts) => parts,
            None => self.index_parts(),
        };
        let at = parts.get(part_id).copied();
        self.parts = Some(parts);
        let Some(active) = self.state.active_turn.as_mut().filter(|turn| turn.id == turn_id) else { return };
        match at.and_then(|at| active.response_parts.get_mut(at)) {
            Some(ResponsePart::Markdown(part)) if !reasoning => part.content.push_str(content),
            Some(ResponsePart::Reasoning(part)) if reasoning => part.content.push_str(content),
            _ => {}
        }
    }

    fn index_parts(&self) -> HashMap<String, usize> {
        let mut index = HashMap::new();
        let parts = self.state.active_turn.iter().flat_map(|turn| turn.response_parts.iter().enumerate());
        for (at, part) in parts {
            if let Some(id) = part_id(part) {
                index.entry(id.to_owned()).or_insert(at);
            }
        }
        index
    }

    fn index_last_part(&mut self) {
        let Some(index) = self.parts.as_mut() else { return };
        let Some(active) = self.state.active_turn.as_ref() else { return };
        let Some(part) = active.response_parts.last() else { return };
        if let Some(id) = part_id(part) {
            index.entry(id.to_owned()).or_insert(active.response_parts.len() - 1);
        }
    }
}

/// What a fork's chat was created from.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Forked {
    pub branch: Branch,
    /// See [`ChatFold::bases`].
    pub bases: Vec<u64>,
}

fn started_at(turn: &Turn) -> Option<Millis> {
    clock::parse_rfc3339(turn.started_at.as_deref()?)
}

/// Whether clearing low set bits of `ordinal` leads to `candidate`.
fn is_prefix(candidate: u64, ordinal: u64) -> bool {
    let mut rest = ordinal;
    while rest > candidate {
        rest &= rest - 1;
    }
    rest == candidate
}

/// The id of a tool call, whatever its state.
pub fn call_id(call: &ToolCallState) -> &str {
    match call {
        ToolCallState::Streaming(call) => &call.tool_call_id,
        ToolCallState::PendingConfirmation(call) => &call.tool_call_id,
        ToolCallState::Running(call) => &call.tool_call_id,
        ToolCallState::AuthRequired(call) => &call.tool_call_id,
        ToolCallState::PendingResultConfirmation(call) => &call.tool_call_id,
        ToolCallState::Completed(call) => &call.tool_call_id,
        ToolCallState::Cancelled(call) => &call.tool_call_id,
        ToolCallState::Unknown(_) => "",
    }
}

/// The id that a delta finds a part by. The reducer looks at tool calls too, whose ids share one space with the parts'.
fn part_id(part: &ResponsePart) -> Option<&str> {
    match part {
        ResponsePart::Markdown(part) => Some(&part.id),
        ResponsePart::Reasoning(part) => Some(&part.id),
        ResponsePart::ToolCall(part) => Some(call_id(&part.tool_call)),
        _ => None,
    }
}
