//! The port that every agent stands behind: the demo, ACP programs, the Claude Code CLI, OpenAI-compatible endpoints.
//!
//! An [`Agent`] is configured once and advertised in `RootState.agents`. It starts an [`AgentProcess`] for a chat at its
//! first message; a process stays up between turns. What the process says arrives as [`AgentEvent`]s through a bounded
//! queue: a chat that is behind stops reading, and the process waits. The chat alone turns them into AHP actions, and
//! drops what still arrives for a turn that has ended. A process never sees a prompt, an answer or a decision before the
//! event that it follows from is durable.
//!
//! The shape follows what real agents do on the wire: an ask may name a tool call that nothing announced, updates arrive
//! outside any turn, and tool calls are left unfinished.
//!
//! A process also speaks for the workers that it spawns, each under the id that it gave it: what one says, and what it is
//! told, is wrapped in `OfWorker`. Workers of workers are named by their own id, wherever they hang; wrapping them in each
//! other is taken too, and the innermost id counts. A worker has one turn; the turn ids in what it says are not read.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ahp_types::commands::SessionConfigValueItem;
use ahp_types::common::{JsonObject, StringOrMarkdown};
use ahp_types::notifications::AuthRequiredReason;
use ahp_types::state::{
    AgentInfo, BackgroundWork, ChatInputAnswer, ChatInputRequest, ChatInputResponseKind, ConfirmationOption, Message,
    ProtectedResourceMetadata, SessionConfigSchema, ToolCallContributor, ToolCallResult, ToolResultContent, UsageInfo,
};
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;

use super::resource_tokens::ResourceTokens;
use super::tools::HostTools;
use super::visuals::NewVisual;
use crate::clock::{Clock, Millis};
use crate::events::Channel;

/// How many events a process may be ahead of its chat.
pub const EVENTS_AHEAD: usize = 64;

/// What AHP has no field for; goes into `RootState._meta["scrollback.agents"]`, by provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct AgentExtras {
    /// Takes a message into a running turn.
    pub steering: bool,
    /// Goes back to an earlier turn by itself.
    pub rewind: bool,
    /// Compacts its context when asked.
    pub compact: bool,
    /// Takes up an interrupted turn on a new process.
    pub resume: bool,
    /// Takes images.
    pub images: bool,
    /// Stops one worker without stopping the turn that spawned it.
    #[serde(rename = "stopsWorkers")]
    pub stops_workers: bool,
}

/// One configured agent.
pub trait Agent: Send + Sync + 'static {
    /// The provider id, as in `AgentInfo.provider` and in a session's `provider`.
    fn provider(&self) -> &str;

    /// What `RootState.agents` says of it: only what it can really do.
    fn info(&self) -> AgentInfo;

    /// What AHP has no field for.
    fn extras(&self) -> AgentExtras;

    /// The configuration that its sessions have: the schema of all properties and their defaults.
    fn configuration(&self) -> (SessionConfigSchema, JsonObject);

    /// What a message to it may begin with: its commands, each under `/` and its name.
    fn commands(&self) -> Vec<AgentCommand> {
        Vec::new()
    }

    /// The values that `property` of the configuration can have and that fit `query`, for a property whose values are not
    /// all in the schema; `config` are the other values so far. Runs where blocking is fine.
    fn config_values(&self, _property: &str, _config: &JsonObject, _query: &str) -> Vec<SessionConfigValueItem> {
        Vec::new()
    }

    /// Whether `property`, whose values are not all in the schema, can have this one. Runs on a session's thread, at once.
    fn takes_config_value(&self, _property: &str, _value: &Value) -> bool {
        true
    }

    /// Finds out, once a start of the host, whether the agent starts here and what it can do. What it finds is what the other
    /// methods say from then on.
    fn probe(&self) -> BoxFuture<'static, Probe> {
        Box::pin(std::future::ready(Probe::default()))
    }

    /// How long a process that nobody uses is kept up, where that is longer than a chat that nobody uses is kept awake.
    fn idle_timeout(&self) -> Duration {
        Duration::ZERO
    }

    /// Starts a process for one chat. Runs on the chat's thread, inside an actix `LocalSet`, and must not block; a start
    /// that fails says so with [`AgentEvent::Gone`].
    fn start(&self, start: ProcessStart, events: AgentSink) -> Box<dyn AgentProcess>;
}

/// What a probe of an agent found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// What the program or the endpoint says that it is, such as `codex-acp 0.16.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Why it does not start here, in words that a person can act on; `None` where it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A command that an agent takes in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCommand {
    /// Without the `/`.
    pub name: String,
    pub description: String,
    /// What is written behind it, in words; empty for nothing.
    pub arguments: String,
}

/// What a process is started with.
pub struct ProcessStart {
    pub session: Channel,
    pub chat: Channel,
    /// Working directories as `file:` URIs, the primary one first.
    pub directories: Vec<String>,
    /// The session's configuration values.
    pub config: JsonObject,
    /// The conversation so far, read when it is asked for. Empty for a new one.
    pub conversation: Arc<dyn Conversation>,
    /// The agent's own id of the conversation to go on with; `None` starts a new one.
    pub resume: Option<String>,
    /// Where in `resume` to go on, after a rewind, or for a fork, which goes on under an id of its own.
    pub back_to: Option<BackTo>,
    /// What it asked the host to keep for the session ([`AgentEvent::Remember`]).
    pub memory: BTreeMap<String, Value>,
    /// The host's own tools, for an agent that takes MCP servers; its URL names this chat. `None` where none are served.
    pub mcp: Option<HostTools>,
    /// Where the time comes from, for who says when a limit lifts.
    pub clock: Clock,
    /// What people gave for the resources that the agent advertises: it asks with that of who sent the message.
    pub resource_tokens: Arc<ResourceTokens>,
}

/// An earlier point of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackTo {
    /// The turn that is the last one then.
    pub turn_id: String,
    /// Its end in the agent's own words: see [`AgentEvent::RewindPoint`].
    pub point: String,
    /// Whether the conversation belongs to another chat, which goes on with it.
    pub is_fork: bool,
}

/// A chat's finished turns as its agent may read them.
pub trait Conversation: Send + Sync {
    /// All messages and answers up to when the process was started, oldest first.
    fn exchanges(&self) -> Vec<Exchange>;
}

/// One finished turn: what was asked, and what was answered as plain markdown, its parts joined by a blank line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Exchange {
    pub turn_id: String,
    pub message: String,
    pub answer: String,
}

/// One piece of a prompt, as the agent is handed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PromptBlock {
    Text {
        text: String,
    },
    /// `data` is base64.
    Image {
        #[serde(rename = "mimeType")]
        mime_type: String,
        data: String,
    },
    ResourceLink {
        uri: String,
        name: String,
        #[serde(rename = "mimeType", skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
    },
}

/// A running process of one chat. Its methods hand over and return; they never wait.
pub trait AgentProcess {
    /// Hands something over, in order. A process that is gone ignores it.
    fn send(&mut self, input: AgentInput);
}

/// What a process is told.
#[derive(Debug, Clone)]
pub enum AgentInput {
    /// A turn begins.
    Prompt(Prompt),
    /// The running turn is over for everybody: stop it, whatever it waits for. Nothing of it is read any more.
    Cancel { turn_id: String },
    /// The answer to [`AgentEvent::ToolAsked`].
    Decide { tool_call_id: String, decision: ToolDecision },
    /// The answer to [`AgentEvent::Asked`].
    Answer { request_id: String, response: ChatInputResponseKind, answers: HashMap<String, ChatInputAnswer> },
    /// What became of [`AgentEvent::Visual`]: its id, or why it is refused and what to change.
    VisualPublished { request_id: String, outcome: Result<String, String> },
    /// A message for the running turn: the answer to [`AgentEvent::TakesSteering`]. An agent that has it says
    /// [`AgentEvent::SteeringTaken`]; while it has not, the message comes back when the turn ends.
    /// `blocks` is the message with its attachments resolved, as in a [`Prompt`].
    Steer { turn_id: String, id: String, message: Message, blocks: Vec<PromptBlock> },
    /// The session's configuration values as they are now; a turn that is running may go on with the old ones.
    Configured { config: JsonObject },
    /// How a call of a client's tool ended: with what the client answered, or as failed.
    ClientToolDone { tool_call_id: String, result: ToolCallResult },
    /// The answer to [`AgentEvent::WorkerStarted`]: the worker's chat is there, and what it says is read.
    WorkerOpened { worker: String, chat: Channel },
    /// The other one: a limit is met. What the worker says goes nowhere.
    WorkerRefused { worker: String, problem: String },
    /// Something for a worker: a decision or an answer to what it asked, a stop of its background work, or, where the
    /// extras say `stops_workers`, that it is over. Its tool call ends as failed then, and the turn goes on.
    OfWorker { worker: String, input: Box<AgentInput> },
    /// Stop this background work. It is listed until [`AgentEvent::BackgroundWorkDone`] says that it is over.
    StopBackgroundWork { id: String },
    /// End. Waits for nothing.
    Close,
}

/// A turn's prompt.
#[derive(Debug, Clone)]
pub struct Prompt {
    pub turn_id: String,
    /// The message as it stands in the log.
    pub message: Message,
    /// The message as the agent is to be given it, attachments resolved; behind it, for a turn that is taken up, the words
    /// that say so.
    pub blocks: Vec<PromptBlock>,
    /// How often this turn was handed to a process before: 0 at first, more when it is taken up again.
    pub attempt: u32,
    /// What is asked for.
    pub kind: PromptKind,
}

/// What a turn is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PromptKind {
    /// An answer to the message.
    #[default]
    Message,
    /// A smaller context; only for agents whose extras say `compact`. The message is the host's own, in words.
    Compact,
}

/// What somebody decided about a tool call.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolDecision {
    Approve {
        /// The id of the option that was chosen, where there were options.
        option: Option<String>,
        /// The input as the person edited it.
        edited_input: Option<String>,
    },
    Deny {
        option: Option<String>,
        reason: Option<String>,
    },
}

/// The way of a process's events to its chat. Waits while the chat is behind.
pub type AgentSink = mpsc::Sender<AgentEvent>;

/// What a process says. `turn_id` names the turn that it was prompted with; events of another turn are dropped.
#[derive(Debug, Clone)]
pub enum AgentEvent {
    /// The agent's own id for the conversation, to resume it by; kept in the log.
    Conversation {
        id: String,
    },
    /// Text of the answer. Text that nothing else interrupts goes into one markdown part.
    Text {
        turn_id: String,
        text: String,
    },
    /// Reasoning, joined in the same way.
    Reasoning {
        turn_id: String,
        text: String,
    },
    /// A tool call begins.
    ToolStarted {
        turn_id: String,
        tool_call_id: String,
        tool_name: String,
        display_name: String,
        intention: Option<String>,
        contributor: Option<ToolCallContributor>,
    },
    /// The call's input is known and it runs without asking.
    ToolRunning {
        turn_id: String,
        tool_call_id: String,
        invocation: StringOrMarkdown,
        input: Option<String>,
    },
    /// The call waits for somebody's decision. A call that nothing announced is begun first.
    ToolAsked {
        turn_id: String,
        tool_call_id: String,
        ask: ToolAsk,
    },
    /// The agent settled the ask by itself: nobody's decision is awaited any more.
    ToolAskSettled {
        turn_id: String,
        tool_call_id: String,
        approved: bool,
    },
    /// Output of a running call, whole each time.
    ToolContent {
        turn_id: String,
        tool_call_id: String,
        content: Vec<ToolResultContent>,
    },
    /// A call of a tool that a client offers in the session. The host begins it and says who runs it; its end comes as
    /// [`AgentInput::ClientToolDone`], also where nobody offers such a tool.
    ClientTool {
        turn_id: String,
        tool_call_id: String,
        tool_name: String,
        input: String,
    },
    /// The call ended.
    ToolDone {
        turn_id: String,
        tool_call_id: String,
        result: ToolCallResult,
    },
    /// A question to a person.
    Asked {
        turn_id: String,
        request: ChatInputRequest,
    },
    /// A notice in the answer.
    Notice {
        turn_id: String,
        text: String,
    },
    /// The agent made its context smaller: how many tokens it held before and after, where it says so. The conversation
    /// stays as it is.
    Compacted {
        turn_id: String,
        before: Option<u64>,
        after: Option<u64>,
    },
    /// A tool call spawned a worker, which gets a chat of its own. A call that nothing announced is begun first.
    WorkerStarted {
        turn_id: String,
        tool_call_id: String,
        worker: WorkerStart,
    },
    /// What a worker says.
    OfWorker {
        worker: String,
        event: Box<AgentEvent>,
    },
    Usage {
        turn_id: String,
        usage: UsageInfo,
    },
    /// What the chat is doing, in words; `None` clears it.
    Activity {
        text: Option<String>,
    },
    /// Work that goes on past the turn. The host says when it started where the agent leaves that empty.
    BackgroundWork {
        work: BackgroundWork,
    },
    BackgroundWorkDone {
        id: String,
    },
    /// The agent can take one message into the turn, now or when there is one. An agent that takes messages at any time says
    /// it as the turn begins and after each message.
    TakesSteering {
        turn_id: String,
    },
    /// The message of [`AgentInput::Steer`] is in the turn.
    SteeringTaken {
        turn_id: String,
        id: String,
    },
    /// Something to keep for the session, durable before the turn goes on. What is kept under a key that ends with a colon
    /// and the chat's URI is the chat's: it goes along when the chat moves to another session.
    Remember {
        key: String,
        value: Value,
    },
    /// Where the agent can go back to: the end of this turn, in its own words.
    RewindPoint {
        turn_id: String,
        point: String,
    },
    /// A page for people to look at. Answered with [`AgentInput::VisualPublished`].
    Visual {
        turn_id: String,
        request_id: String,
        visual: Box<NewVisual>,
    },
    /// The turn ended.
    Ended {
        turn_id: String,
        ending: Ending,
    },
    /// The process is gone; `problem` says why, with the tail of what it wrote to stderr.
    Gone {
        problem: String,
    },
    /// The process is gone, and worked on nothing: a message that it was handed meanwhile is for another one.
    Left {
        problem: String,
    },
}

impl AgentEvent {
    /// The turn that the event belongs to, for those that belong to one.
    pub fn turn_mut(&mut self) -> Option<&mut String> {
        match self {
            AgentEvent::Text { turn_id, .. }
            | AgentEvent::Reasoning { turn_id, .. }
            | AgentEvent::ToolStarted { turn_id, .. }
            | AgentEvent::ToolRunning { turn_id, .. }
            | AgentEvent::ToolAsked { turn_id, .. }
            | AgentEvent::ToolAskSettled { turn_id, .. }
            | AgentEvent::ToolContent { turn_id, .. }
            | AgentEvent::ToolDone { turn_id, .. }
            | AgentEvent::Asked { turn_id, .. }
            | AgentEvent::Notice { turn_id, .. }
            | AgentEvent::Compacted { turn_id, .. }
            | AgentEvent::WorkerStarted { turn_id, .. }
            | AgentEvent::Usage { turn_id, .. }
            | AgentEvent::RewindPoint { turn_id, .. }
            | AgentEvent::ClientTool { turn_id, .. }
            | AgentEvent::Visual { turn_id, .. }
            | AgentEvent::TakesSteering { turn_id }
            | AgentEvent::SteeringTaken { turn_id, .. }
            | AgentEvent::Ended { turn_id, .. } => Some(turn_id),
            AgentEvent::Conversation { .. }
            | AgentEvent::OfWorker { .. }
            | AgentEvent::Activity { .. }
            | AgentEvent::BackgroundWork { .. }
            | AgentEvent::BackgroundWorkDone { .. }
            | AgentEvent::Remember { .. }
            | AgentEvent::Gone { .. }
            | AgentEvent::Left { .. } => None,
        }
    }
}

/// A worker that a tool call spawned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerStart {
    /// The agent's own name for it among the workers of the process, such as the id of the call.
    pub id: String,
    /// What its chat is called; blank for a name from the prompt.
    pub title: String,
    /// The agent's name for its kind of worker.
    pub agent_name: Option<String>,
    /// What it is for, in words.
    pub description: Option<String>,
    /// What it was asked.
    pub prompt: String,
    /// The turn does not wait for it.
    pub background: bool,
    /// Its chat is hidden: listed as such, and nobody's to answer or to stop.
    pub hidden: bool,
}

/// A question about a tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolAsk {
    pub tool_name: String,
    pub display_name: String,
    pub invocation: StringOrMarkdown,
    pub input: Option<String>,
    pub title: Option<String>,
    pub options: Vec<ConfirmationOption>,
    /// Whether a person may edit the input.
    pub editable: bool,
}

/// How a turn ended, in the agent's eyes.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    Complete,
    Cancelled,
    Failed {
        error_type: String,
        message: String,
        resumable: bool,
    },
    /// It hit a limit, and goes on when it is taken up again; `resets_at` says when the limit lifts, where that is known.
    Limited {
        kind: LimitKind,
        message: String,
        resets_at: Option<Millis>,
    },
    /// It needs a token of who sent its message, and goes on when it is taken up again.
    NeedsToken(Box<NeedsToken>),
}

/// What a turn needs a token for.
#[derive(Debug, Clone, PartialEq)]
pub struct NeedsToken {
    /// One that the agent advertises.
    pub resource: ProtectedResourceMetadata,
    pub reason: AuthRequiredReason,
    pub message: String,
}

impl NeedsToken {
    /// The `errorType` of the ending.
    pub const ERROR_TYPE: &str = "auth-required";
}

/// What a turn was limited by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitKind {
    /// The usage that a plan allows.
    Usage,
    /// A model that is overloaded.
    Overload,
}

impl LimitKind {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            LimitKind::Usage => "usage",
            LimitKind::Overload => "overload",
        }
    }

    /// The `errorType` of the ending.
    pub fn error_type(self) -> &'static str {
        match self {
            LimitKind::Usage => "usage-limit",
            LimitKind::Overload => "overloaded",
        }
    }
}
