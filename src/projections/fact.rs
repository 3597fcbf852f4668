//! Facts of the host that no client may see, records of the same log as the actions.
//!
//! Each is JSON with a `type` that begins with `host/`. They begin a state (what a session or a chat was created with) or
//! keep what AHP has no field for. The names are frozen by `docs/adr/0001-record-format.md`.

use ahp_types::state::{CanvasState, ChatState, Message, RootState, SessionState};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::chat::{Branch, Forked};
use super::people::{Grant, Role, known};
use super::visual::Visual;
use crate::clock::Millis;

/// A fact of the host.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum Fact {
    /// The root channel begins with this state.
    #[serde(rename = "host/rootCreated")]
    RootCreated { state: Box<RootState> },
    /// A session begins with this state.
    #[serde(rename = "host/sessionCreated")]
    SessionCreated { created_at: String, state: Box<SessionState> },
    /// A session was disposed: it is on no list any more.
    #[serde(rename = "host/sessionDisposed")]
    SessionDisposed,
    /// A session that was disposed is back.
    #[serde(rename = "host/sessionRestored")]
    SessionRestored,
    /// The events of a session or a chat were removed for good: on the root channel.
    #[serde(rename = "host/erased")]
    Erased {
        uri: String,
        events: u64,
        /// The numbers of the first and the last of them.
        first: u64,
        last: u64,
    },
    /// This log was brought back from a backup of it, up to an event: on the root channel. Numbers in between were given by the log
    /// that the backup was made of, or may have been.
    #[serde(rename = "host/restored")]
    Restored { upto: u64 },
    /// A chat begins with this state.
    #[serde(rename = "host/chatCreated")]
    ChatCreated {
        session: String,
        state: Box<ChatState>,
        /// For a fork, the branch that it begins with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fork: Option<Box<Forked>>,
        /// For a side chat, what its agent is told before the first message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        context: Option<String>,
    },
    /// A chat went to another session.
    #[serde(rename = "host/chatMoved")]
    ChatMoved { session: String },
    /// An agent asked to keep something for its session.
    #[serde(rename = "host/remembered")]
    Remembered { key: String, value: Value },
    /// The agent's own id for the conversation of this chat.
    #[serde(rename = "host/conversation")]
    Conversation { id: String },
    /// Where the agent can go back to: the end of this turn, in its own words.
    #[serde(rename = "host/rewindPoint")]
    RewindPoint { turn_id: String, point: String },
    /// What the agent is given for the chats that a message attaches, as they were when it was accepted.
    #[serde(rename = "host/chatsAttached")]
    ChatsAttached { to: MessageOf, chats: Vec<ChatText> },
    /// A steering message was handed to the agent of the running turn: it has left its slot.
    #[serde(rename = "host/steeringHanded")]
    SteeringHanded { id: String, message: Box<Message> },
    /// The agent took what it was handed, or it waits again.
    #[serde(rename = "host/steeringSettled")]
    SteeringSettled { id: String },
    /// The `chat/turnResume` right before it is this person's.
    #[serde(rename = "host/takenUp")]
    TakenUp { by: String },
    /// The branch that the `chat/truncated` right behind it keeps.
    #[serde(rename = "host/branch")]
    Branch { branch: Box<Branch> },
    /// The turn was interrupted and is handed to a new process: how often it was taken up then, this time included.
    #[serde(rename = "host/attempt")]
    Attempt { turn_id: String, attempt: u32 },
    /// The turn ended at a limit, and the host takes it up by itself at this time.
    #[serde(rename = "host/resumeOwed")]
    ResumeOwed { turn_id: String, at: Millis },
    /// The turn is not taken up by the host any more.
    #[serde(rename = "host/resumeLapsed")]
    ResumeLapsed { turn_id: String },
    /// The `chat/turnResume` right behind it is the host's own, as it was owed.
    #[serde(rename = "host/resumeDue")]
    ResumeDue { turn_id: String },
    /// What is remembered of a client: whose its id is, and the windows that it last used.
    #[serde(rename = "host/client")]
    Client { client_id: String, client: Value },
    /// Something was published in this chat: what is known of it beside its page.
    #[serde(rename = "host/visualPublished")]
    VisualPublished { visual: Visual },
    /// A canvas begins with this state, in a chat. `page` is what is served, and is stored nowhere else.
    #[serde(rename = "host/canvasCreated")]
    CanvasCreated { chat: String, state: Box<CanvasState>, page: String },
    /// The canvas is gone: its page is not served any more.
    #[serde(rename = "host/canvasClosed")]
    CanvasClosed,
    /// Somebody changed files of the host's machine: with which operation, and where to for one that has two places.
    #[serde(rename = "host/resourceChanged")]
    ResourceChanged {
        operation: String,
        uri: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        destination: Option<String>,
    },
    /// There is a new person.
    #[serde(rename = "host/userAdded")]
    UserAdded {
        user: String,
        #[serde(deserialize_with = "known")]
        roles: Vec<Role>,
        #[serde(deserialize_with = "known")]
        grants: Vec<Grant>,
    },
    /// A person was given roles or grants.
    #[serde(rename = "host/userGranted")]
    UserGranted {
        user: String,
        #[serde(deserialize_with = "known")]
        roles: Vec<Role>,
        #[serde(deserialize_with = "known")]
        grants: Vec<Grant>,
    },
    /// Roles or grants were taken from a person.
    #[serde(rename = "host/userRevoked")]
    UserRevoked {
        user: String,
        #[serde(deserialize_with = "known")]
        roles: Vec<Role>,
        #[serde(deserialize_with = "known")]
        grants: Vec<Grant>,
    },
    /// A person has a new token, instead of the ones before where it replaces them. Its hash is shown to nobody.
    #[serde(rename = "host/userTokenMade")]
    UserTokenMade {
        user: String,
        id: String,
        hash: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires_at: Option<Millis>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        replaces: bool,
    },
    /// A person is gone.
    #[serde(rename = "host/userRemoved")]
    UserRemoved { user: String },
}

/// Which message of a chat is meant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MessageOf {
    /// That of the turn with this id.
    Turn(String),
    /// The one that waits under this id.
    Pending(String),
}

/// The text that stands for an attached chat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatText {
    /// The attachment's place in its message, from 0.
    pub index: usize,
    pub text: String,
}

impl Fact {
    /// Its JSON, as it is stored.
    pub fn bytes(&self) -> Bytes {
        Bytes::from(serde_json::to_vec(self).unwrap_or_default())
    }

    /// A fact as it was stored.
    ///
    /// # Errors
    /// The problem, in words.
    pub fn from_stored(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|e| e.to_string())
    }
}
