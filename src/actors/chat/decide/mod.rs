//! What becomes of a client's action on a chat's channel: one file for each kind of wish.
//!
//! Pure: a decision reads the folds and what came in with the command, writes nothing and asks no clock. What it returns is
//! recorded as one batch.

pub mod directories;
pub mod inputs;
pub mod marks;
pub mod pending;
pub mod tools;
pub mod truncated;
pub mod turn_cancelled;
pub mod turn_resume;
pub mod turn_started;

use std::collections::HashMap;
use std::sync::Arc;

use ahp_types::actions::StateAction;
use ahp_types::state::{
    ChatInputAnswer, ChatInputResponseKind, ChatInteractivity, Message, SessionLifecycle, ToolCallResult,
};
use bytes::Bytes;
use bytestring::ByteString;

use crate::actors::agent::{AgentInput, ToolDecision};
use crate::actors::attaching::Attached;
use crate::actors::core::{ChatCell, ClientAction, SessionCore};
use crate::actors::rejection::{Code, Rejection};
use crate::actors::session::not_for_this_channel;
use crate::actors::visuals::{OpenCanvas, Published};
use crate::attachments::sent;
use crate::clock::Millis;
use crate::projections::action::Action;
use crate::projections::fact::{Fact, MessageOf};

/// What a decision may look at.
pub struct View<'a> {
    pub core: &'a SessionCore,
    pub cell: &'a ChatCell,
    pub client: &'a ClientAction,
    /// Now, by the host's clock.
    pub at: Millis,
}

impl View<'_> {
    /// The state of the chat.
    pub fn chat(&self) -> &ahp_types::state::ChatState {
        &self.cell.fold.state
    }

    /// The id of the running turn.
    pub fn active(&self) -> Option<&str> {
        self.chat().active_turn.as_ref().map(|turn| turn.id.as_str())
    }
}

/// One event of a decision.
#[derive(Debug, Clone)]
pub enum Entry {
    /// The client's own action, on the chat's channel, as it was accepted.
    Client(Action),
    /// The host's, on the chat's channel.
    Host(StateAction),
    /// An action whose bytes the host wrote itself: a page of older turns as the log keeps it, or that all turns went.
    Fetched(Action),
    /// The host's, on the session's channel.
    Session(StateAction),
    /// The chat's queue is paused, or its pause is lifted.
    Pause(bool),
    /// A fact of the host about the chat.
    Fact(Fact),
    /// The same, because of a client's action, which is no event itself.
    ClientFact(Fact),
    /// A fact of the host about the session.
    SessionFact(Fact),
    /// The workers in the background end, as cancelled.
    EndBackground,
    /// All workers end, as cancelled: their process does.
    EndWorkers,
    /// This worker ends, as cancelled.
    EndWorker(String),
    /// A visual of the chat, with its canvas.
    Published(Vec<Published>),
    /// Canvases of the chat are gone.
    CanvasesClosed(Vec<OpenCanvas>),
}

/// What the agent is told once a decision is durable.
#[derive(Debug, Clone)]
pub enum Effect {
    /// The turn begins.
    Prompt { turn_id: String },
    /// The turn is over.
    Cancel { turn_id: String },
    /// Somebody decided about a tool call.
    Decide { tool_call_id: String, decision: ToolDecision },
    /// Somebody answered a question.
    Answer { request_id: String, response: ChatInputResponseKind, answers: HashMap<String, ChatInputAnswer> },
    /// Something for the agent, as it is.
    Tell(Box<AgentInput>),
    /// The agent's process ends: the next message starts it where it is to go on from.
    EndProcess,
    /// A steering message for the turn.
    Steer { turn_id: String, id: String },
    /// A client's tool answered.
    ClientToolDone { tool_call_id: String, result: ToolCallResult },
    /// Not the agent but this person is told, with a notification on the root channel: a token is needed.
    AskForToken { principal: Arc<str>, frame: ByteString },
}

/// What becomes of an action.
#[derive(Debug)]
pub enum Verdict {
    /// It is accepted and changes nothing: its sender alone hears it, as it would have been recorded.
    Nothing(Bytes),
    /// It is accepted and changes no state, only what the host will do: the fact is recorded, and its sender alone hears it.
    Noted { fact: Fact, sent: Bytes },
    Record {
        entries: Vec<Entry>,
        effects: Vec<Effect>,
        /// Whether the running turn ends with it, so that text which follows begins a new part.
        ends_turn: bool,
    },
}

impl Verdict {
    /// The client's action alone.
    pub fn accept(action: Action) -> Self {
        Self::with(vec![Entry::Client(action)], Vec::new())
    }

    /// Entries and what follows them.
    pub fn with(entries: Vec<Entry>, effects: Vec<Effect>) -> Self {
        Self::Record { entries, effects, ends_turn: false }
    }

    /// The action, unless it changes nothing.
    pub fn unless(unchanged: bool, action: Action) -> Self {
        if unchanged { Self::Nothing(action.bytes) } else { Self::accept(action) }
    }
}

/// The message that an action brings.
fn message_of(action: &StateAction) -> Option<&Message> {
    match action {
        StateAction::ChatTurnStarted(started) => Some(&started.message),
        StateAction::ChatPendingMessageSet(set) => Some(&set.message),
        StateAction::ChatDraftChanged(change) => change.draft.as_ref(),
        _ => None,
    }
}

/// Whether an action's message has attachments to be worked on before it is decided.
pub fn needs_work(action: &StateAction) -> bool {
    message_of(action).is_some_and(sent::needs_work)
}

/// Whether an action's message is one that its agent will be given as it is. A draft is not.
pub fn sends(action: &StateAction) -> bool {
    !matches!(action, StateAction::ChatDraftChanged(_))
}

/// Whether an action would be accepted as things are, whatever comes of its message's attachments.
///
/// # Errors
/// The [`Rejection`] that its sender hears.
pub fn foresee(
    core: &SessionCore,
    cell: &ChatCell,
    client: &ClientAction,
    action: &Action,
    at: Millis,
) -> Result<(), Rejection> {
    decide(&View { core, cell, client, at }, action.clone()).map(drop)
}

/// Notes behind a message what its agent is given for the chats that it attaches.
pub fn with_chats(mut entries: Vec<Entry>, attached: Option<&Attached>) -> Vec<Entry> {
    let Some(chats) = attached.map(|attached| attached.chats.clone()).filter(|chats| !chats.is_empty()) else {
        return entries;
    };
    let of = |entry: &Entry| match entry {
        Entry::Client(Action { decoded, .. }) | Entry::Host(decoded) => match decoded {
            StateAction::ChatTurnStarted(started) => Some(MessageOf::Turn(started.turn_id.clone())),
            StateAction::ChatPendingMessageSet(set) => Some(MessageOf::Pending(set.id.clone())),
            _ => None,
        },
        _ => None,
    };
    let found = entries.iter().enumerate().find_map(|(at, entry)| Some((at, of(entry)?)));
    if let Some((at, to)) = found {
        entries.insert(at + 1, Entry::Fact(Fact::ChatsAttached { to, chats }));
    }
    entries
}

/// Decides.
///
/// # Errors
/// The [`Rejection`] that its sender hears.
pub fn decide(view: &View<'_>, action: Action) -> Result<Verdict, Rejection> {
    Ok(match decide_on(view, action)? {
        Verdict::Record { entries, effects, ends_turn } => {
            let entries = with_chats(entries, view.client.attached.as_deref());
            Verdict::Record { entries, effects, ends_turn }
        }
        nothing => nothing,
    })
}

fn decide_on(view: &View<'_>, action: Action) -> Result<Verdict, Rejection> {
    let hidden = view.chat().interactivity == Some(ChatInteractivity::Hidden);
    if hidden {
        return Err(Rejection::new(Code::ReadOnly, "the chat takes no actions of clients"));
    }
    match &action.decoded {
        StateAction::ChatTurnStarted(_)
        | StateAction::ChatTurnResume(_)
        | StateAction::ChatPendingMessageSet(_)
        | StateAction::ChatPendingMessageRemoved(_)
        | StateAction::ChatQueuedMessagesReordered(_)
        | StateAction::ChatDraftChanged(_)
        | StateAction::ChatTruncated(_)
        | StateAction::ChatWorkingDirectorySet(_)
        | StateAction::ChatWorkingDirectoryRemoved(_)
        | StateAction::SessionTitleChanged(_) => writable(view)?,
        _ => {}
    }
    match action.decoded.clone() {
        StateAction::ChatTurnStarted(started) => turn_started::decide(view, &started, &action),
        StateAction::ChatTruncated(cut) => truncated::decide(view, &cut, action),
        StateAction::ChatTurnCancelled(cancel) => turn_cancelled::decide(view, &cancel, &action),
        StateAction::ChatTurnResume(resume) => turn_resume::decide(view, &resume, action),
        StateAction::ChatToolCallConfirmed(decision) => tools::confirmed(view, decision, action),
        StateAction::ChatToolCallResultConfirmed(decision) => tools::result_confirmed(view, &decision, action),
        StateAction::ChatToolCallComplete(done) => tools::complete(view, done, action),
        StateAction::ChatToolCallContentChanged(content) => tools::content(view, &content, action),
        StateAction::ChatInputAnswerChanged(change) => inputs::answer_changed(view, &change, action),
        StateAction::ChatInputCompleted(completed) => inputs::completed(view, completed, action),
        StateAction::ChatPendingMessageSet(set) => pending::set(view, &set, &action),
        StateAction::ChatPendingMessageRemoved(removed) => pending::removed(view, &removed, action),
        StateAction::ChatQueuedMessagesReordered(order) => pending::reordered(view, &order),
        StateAction::ChatDraftChanged(draft) => marks::draft(view, &draft, action),
        StateAction::ChatIsReadChanged(change) => Ok(marks::is_read(view, change.is_read, action)),
        StateAction::ChatIsArchivedChanged(change) => Ok(marks::is_archived(view, change.is_archived, action)),
        StateAction::SessionTitleChanged(change) => marks::title(view, &change.title, action),
        StateAction::ChatWorkingDirectorySet(set) => directories::set(view, &set.directory, action),
        StateAction::ChatWorkingDirectoryRemoved(removed) => directories::removed(view, &removed.directory, action),
        _ => Err(not_for_this_channel(&action.bytes, "a chat's channel")),
    }
}

/// A chat that people may write in, in a session that is ready.
fn writable(view: &View<'_>) -> Result<(), Rejection> {
    if view.chat().interactivity == Some(ChatInteractivity::ReadOnly) {
        return Err(Rejection::new(
            Code::ReadOnly,
            "the chat belongs to an agent: it can be read, answered and stopped",
        ));
    }
    Ok(())
}

/// A session whose chats take turns.
///
/// # Errors
/// [`Code::NotReady`].
pub fn ready(core: &SessionCore) -> Result<(), Rejection> {
    match core.fold.state.lifecycle {
        SessionLifecycle::Ready => Ok(()),
        _ => Err(Rejection::new(Code::NotReady, "the session is not ready")),
    }
}
