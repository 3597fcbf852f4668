//! An author of sessions: the batches that the host would append for them, without a host.
//!
//! The same folds, mirrors, rows and checkpoints as the session and chat actors record, so that `log verify` passes and a
//! host can go on from there. Time is counted, not asked.

use std::ops::ControlFlow;
use std::sync::Arc;

use ahp_types::actions::{
    ChatDeltaAction, ChatResponsePartAction, ChatToolCallCompleteAction, ChatToolCallReadyAction,
    ChatToolCallStartAction, ChatTurnCompleteAction, ChatTurnStartedAction, SessionChatAddedAction,
    SessionDefaultChatChangedAction, SessionReadyAction, StateAction,
};
use ahp_types::state::{
    ChatOrigin, ChatState, MarkdownResponsePart, Message, MessageKind, MessageOrigin, ResponsePart, SessionLifecycle,
    SessionState, SessionStatus, ToolCallConfirmationReason, ToolCallResult, ToolInput, ToolResultContent,
    ToolResultTextContent,
};
use bytes::Bytes;
use scrollback::actors::registry::first_chat_uri;
use scrollback::clock::{self, Millis};
use scrollback::events::rows::{self, ChannelKind};
use scrollback::events::{Batch, Channel, ChannelId, Kind, NewEvent, Origin, RowOp, Store, Table};
use scrollback::projections::action::Action;
use scrollback::projections::catalogue::{self, CatalogueRow};
use scrollback::projections::chat::ChatFold;
use scrollback::projections::fact::Fact;
use scrollback::projections::session::SessionFold;
use scrollback::projections::{mirror, summary};
use serde_json::json;

/// When the first session of a log was made: 2026-01-01T00:00:00Z.
const BEGINNING: Millis = 1_767_225_600_000;
/// When a fold is saved, as the host does: after this many events, or bytes of actions.
const CHECKPOINT: (u64, u64) = (2_000, 256 * 1024);

/// How far apart, in numbers of the line, the checkpoints stand that the host keeps.
const CHECKPOINTS_APART: u64 = 10_000;

/// How a turn of the author looks.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Pieces that the answer is streamed in.
    pub deltas: usize,
    /// Bytes of text in each.
    pub bytes: usize,
}

/// Text of `bytes` bytes that ends at a word.
pub fn text(bytes: usize) -> String {
    "all that was said stays said ".chars().cycle().take(bytes).collect()
}

/// A session with one chat, and its folds as they are after what was written so far.
pub struct Session {
    pub id: ChannelId,
    pub uri: Channel,
    pub chat_id: ChannelId,
    pub chat: Channel,
    pub fold: SessionFold,
    pub chat_fold: ChatFold,
    listed: Option<CatalogueRow>,
    unsaved: [(u64, u64); 2],
    now: Millis,
    turns: u64,
    batch: Batch,
    /// Bytes of actions that were written.
    pub action_bytes: u64,
    /// Events that were written.
    pub events: u64,
}

impl Session {
    /// The `number`th session of a log, and the batch that makes it.
    pub fn create(store: &dyn Store, number: u64) -> (Self, Batch) {
        let uri = Channel::from(format!("ahp-session:/load-{number}"));
        let chat = Channel::from(first_chat_uri(uri.as_str()));
        let (id, chat_id) = (store.new_channel_id(), store.new_channel_id());
        let now = BEGINNING + i64::try_from(number).unwrap_or(0) * 1_000;
        let (state, chat_state) = (new_session(), new_chat(&chat, now));
        let created_at = clock::rfc3339(now);
        let mut session = Self {
            id,
            uri: uri.clone(),
            chat_id,
            chat: chat.clone(),
            fold: SessionFold::new(state.clone(), created_at.clone()),
            chat_fold: ChatFold::new(chat_state.clone()),
            listed: None,
            unsaved: [(0, 0); 2],
            now,
            turns: 0,
            batch: Batch::default(),
            action_bytes: 0,
            events: 0,
        };
        session.batch.rows.extend(catalogue::register(&uri, id, ChannelKind::Session, id));
        session.batch.rows.extend(catalogue::register(&chat, chat_id, ChannelKind::Chat, id));
        let by_id = (format!("load-{number}").into_bytes(), Bytes::from(rows::channel_key(id)));
        session.batch.rows.push(RowOp::Put { table: Table::SessionById, key: by_id.0, value: by_id.1 });
        session.fact(Place::Session, &Fact::SessionCreated { created_at, state: Box::new(state) });
        session.fact(
            Place::Chat,
            &Fact::ChatCreated {
                session: uri.to_string(),
                state: Box::new(chat_state.clone()),
                fork: None,
                context: None,
            },
        );
        let added = SessionChatAddedAction { summary: mirror::summary_of(&chat_state) };
        session.session_action(StateAction::SessionChatAdded(added), None);
        let default_chat = Some(chat.to_string());
        let default = SessionDefaultChatChangedAction { default_chat };
        session.session_action(StateAction::SessionDefaultChatChanged(default), None);
        session.session_action(StateAction::SessionReady(SessionReadyAction {}), None);
        let batch = session.finish();
        (session, batch)
    }

    /// The batches of one whole turn, as the host commits them: its start, where the agent can go back to, its text piece by
    /// piece, its end.
    pub fn turn(&mut self, shape: Shape) -> Vec<Batch> {
        let mut batches = vec![self.start_turn()];
        batches.push(self.rewind_point());
        self.answer(shape, &mut batches);
        batches
    }

    /// The same with a tool call before the text, and the place in its turn that the agent keeps behind that.
    pub fn tool_turn(&mut self, shape: Shape) -> Vec<Batch> {
        let mut batches = vec![self.start_turn()];
        batches.push(self.rewind_point());
        batches.extend(self.tool_call());
        self.answer(shape, &mut batches);
        batches
    }

    fn answer(&mut self, shape: Shape, batches: &mut Vec<Batch>) {
        let turn_id = self.turn_id();
        self.part(&turn_id, "p");
        for _ in 0..shape.deltas {
            self.delta(&turn_id, "p", &text(shape.bytes));
            batches.push(self.finish());
            batches.extend(self.checkpoint());
        }
        let done = ChatTurnCompleteAction { turn_id, duration: 16, meta: None };
        self.chat_action(StateAction::ChatTurnComplete(done), None);
        self.mirrors();
        batches.push(self.finish());
    }

    /// Where the agent can go back to: the end of the running turn.
    fn rewind_point(&mut self) -> Batch {
        let turn_id = self.turn_id();
        let fact = Fact::RewindPoint { point: turn_id.clone(), turn_id };
        self.chat_fold.apply_fact(&fact);
        self.fact(Place::Chat, &fact);
        self.finish()
    }

    /// A tool call of the running turn from its start to its result, and the agent's note that this step is done.
    fn tool_call(&mut self) -> Vec<Batch> {
        let (turn_id, tool_call_id, meta) = (self.turn_id(), format!("call-{}", self.turns), None);
        let name = "search".to_owned();
        let start = ChatToolCallStartAction {
            turn_id: turn_id.clone(),
            tool_call_id: tool_call_id.clone(),
            meta: meta.clone(),
            tool_name: name.clone(),
            display_name: name,
            intention: None,
            contributor: None,
        };
        let ready = ChatToolCallReadyAction {
            turn_id: turn_id.clone(),
            tool_call_id: tool_call_id.clone(),
            meta: meta.clone(),
            contributor: None,
            intention: None,
            invocation_message: "Run search".to_owned().into(),
            tool_input: Some(ToolInput::Inline("what was said".to_owned())),
            confirmation_title: None,
            risk_assessment: None,
            edits: None,
            editable: None,
            confirmed: Some(ToolCallConfirmationReason::NotNeeded),
            options: None,
        };
        let result = ToolCallResult {
            success: true,
            past_tense_message: "Ran search".to_owned().into(),
            content: Some(vec![ToolResultContent::Text(ToolResultTextContent { text: text(200) })]),
            structured_content: None,
            error: None,
        };
        let complete = ChatToolCallCompleteAction {
            turn_id: turn_id.clone(),
            tool_call_id,
            meta,
            result,
            requires_result_confirmation: None,
        };
        let actions = [
            StateAction::ChatToolCallStart(start),
            StateAction::ChatToolCallReady(ready),
            StateAction::ChatToolCallComplete(complete),
        ];
        let mut batches = Vec::new();
        for action in actions {
            self.now += 16;
            self.chat_action(action, None);
            batches.push(self.finish());
        }
        let (key, value) = (format!("position:{}", self.chat), json!({ "turn": turn_id, "step": 1 }));
        let fact = Fact::Remembered { key, value };
        self.fold.apply_fact(&fact);
        self.fact(Place::Session, &fact);
        batches.push(self.finish());
        batches
    }

    /// The batch that starts a turn, by a client.
    pub fn start_turn(&mut self) -> Batch {
        self.turns += 1;
        self.now += 250;
        let turn_id = self.turn_id();
        let message = Message {
            text: "What was said?".to_owned(),
            origin: MessageOrigin { kind: MessageKind::User },
            attachments: None,
            model: None,
            agent: None,
            meta: None,
        };
        let started_at = clock::rfc3339(self.now);
        let id = turn_id.clone();
        let started = ChatTurnStartedAction { turn_id, started_at, message, queued_message_id: None, meta: None };
        let origin = Origin { client_id: "load".to_owned(), client_seq: i64::try_from(self.turns).unwrap_or(0) };
        let mut fingerprint = self.chat_id.0.to_be_bytes().to_vec();
        fingerprint.extend_from_slice(&self.turns.to_be_bytes());
        let connection = Bytes::from_static(&[0; 8]);
        let event = self.batch.events.len();
        let key = rows::used_key(self.chat_id, b't', &id);
        self.batch.rows.extend([
            RowOp::Put { table: Table::Running, key: rows::channel_key(self.chat_id), value: Bytes::new() },
            RowOp::Put { table: Table::Used, key, value: Bytes::new() },
            RowOp::PutWithSeq { table: Table::Dispatched, key: fingerprint, event, value: connection },
        ]);
        self.chat_action(StateAction::ChatTurnStarted(started), Some(origin));
        self.mirrors();
        self.finish()
    }

    /// The id of the turn that was started last.
    pub fn turn_id(&self) -> String {
        format!("turn-{}", self.turns)
    }

    /// Adds a markdown part to the running turn.
    pub fn part(&mut self, turn_id: &str, part_id: &str) {
        let part = MarkdownResponsePart { id: part_id.to_owned(), content: String::new() };
        let part = ResponsePart::Markdown(part);
        let action = ChatResponsePartAction { turn_id: turn_id.to_owned(), part, meta: None };
        self.chat_action(StateAction::ChatResponsePart(action), None);
    }

    /// Adds text to a part of the running turn.
    pub fn delta(&mut self, turn_id: &str, part_id: &str, content: &str) {
        self.now += 16;
        self.chat_action(delta(turn_id, part_id, content), None);
    }

    /// What was recorded since the last batch, as one.
    pub fn finish(&mut self) -> Batch {
        let row =
            CatalogueRow { summary: summary::of_session(self.uri.as_str(), &self.fold), disposed: self.fold.disposed };
        let old = self.listed.as_ref();
        if old.is_none_or(|old| old.summary != row.summary) {
            self.batch.rows.extend(catalogue::replace(self.id, old, &row));
            self.listed = Some(row);
        }
        std::mem::take(&mut self.batch)
    }

    /// The folds as they are now, where they are due to be saved.
    fn checkpoint(&mut self) -> Vec<Batch> {
        let due = |(events, bytes): (u64, u64)| events >= CHECKPOINT.0 || bytes >= CHECKPOINT.1;
        let mut batches = Vec::new();
        if due(self.unsaved[0]) {
            self.unsaved[0] = (0, 0);
            batches.push(saved(self.id, self.fold.to_checkpoint()));
        }
        if due(self.unsaved[1]) {
            self.unsaved[1] = (0, 0);
            batches.push(saved(self.chat_id, self.chat_fold.to_checkpoint()));
        }
        batches
    }

    fn chat_action(&mut self, action: StateAction, origin: Option<Origin>) {
        let action = Action::host(action);
        let ended = self.chat_fold.apply(&action, self.now);
        let event = self.batch.events.len();
        self.push(Place::Chat, Kind::Action, action.bytes, None, origin);
        let Some(turn) = ended else { return };
        let key = rows::numbered_key(self.chat_id, turn.n);
        let value = Bytes::from(turn.row.encode(&turn.json));
        let n = Bytes::copy_from_slice(&turn.n.to_be_bytes());
        let used = rows::used_key(self.chat_id, b't', &turn.turn_id);
        let chat = rows::channel_key(self.chat_id);
        if let Some(point) = &turn.point {
            let value = Bytes::from(serde_json::to_vec(point).unwrap_or_default());
            self.batch.rows.push(RowOp::Put { table: Table::Point, key: key.clone(), value });
        }
        self.batch.rows.extend([
            RowOp::Put { table: Table::Turn, key, value },
            RowOp::Put { table: Table::Used, key: used, value: n.clone() },
            RowOp::PutKeyedBySeq { table: Table::Head, key: chat.clone(), event, value: n },
            RowOp::Delete { table: Table::Running, key: chat },
        ]);
    }

    fn mirrors(&mut self) {
        for action in mirror::of_chat(&self.fold.state, &self.chat_fold.state, true) {
            self.session_action(action, Some(self.chat_id));
        }
    }

    fn session_action(&mut self, action: StateAction, about: Option<ChannelId>) {
        let action = Action::host(action);
        self.fold.apply(&action);
        self.push(Place::Session, Kind::Action, action.bytes, about, None);
    }

    fn fact(&mut self, place: Place, fact: &Fact) {
        self.push(place, Kind::Host, fact.bytes(), None, None);
    }

    fn push(&mut self, place: Place, kind: Kind, action: Bytes, about: Option<ChannelId>, origin: Option<Origin>) {
        let (channel, channel_id, unsaved) = match place {
            Place::Session => (&self.uri, self.id, &mut self.unsaved[0]),
            Place::Chat => (&self.chat, self.chat_id, &mut self.unsaved[1]),
        };
        unsaved.0 += 1;
        unsaved.1 += action.len() as u64;
        self.events += 1;
        self.action_bytes += action.len() as u64;
        let principal: Arc<str> = Arc::from(if origin.is_some() { "root:load" } else { "agent:demo" });
        let channel = channel.clone();
        self.batch.events.push(NewEvent { channel, channel_id, kind, at: self.now, principal, origin, about, action });
    }
}

#[derive(Clone, Copy)]
enum Place {
    Session,
    Chat,
}

/// The action that adds text to a part.
pub fn delta(turn_id: &str, part_id: &str, content: &str) -> StateAction {
    StateAction::ChatDelta(ChatDeltaAction {
        turn_id: turn_id.to_owned(),
        part_id: part_id.to_owned(),
        content: content.to_owned(),
        meta: None,
    })
}

fn saved(channel: ChannelId, fold: Vec<u8>) -> Batch {
    let (key, value) = (rows::channel_key(channel), Bytes::from(fold));
    let row = RowOp::PutKeyedByLast { table: Table::Checkpoint, key, channel, value };
    Batch { events: Vec::new(), rows: vec![row] }
}

/// Removes the checkpoints of a channel that the host would not have kept: all that stand near the one before, but the newest.
pub fn thin(store: &dyn Store, channel: ChannelId) {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let collect = &mut |key: &[u8], _: &[u8]| {
        keys.push(key.to_vec());
        ControlFlow::Continue(())
    };
    store.scan_rows(Table::Checkpoint, &rows::channel_key(channel), None, collect).expect("read");
    keys.pop();
    let mut kept = 0;
    keys.retain(|key| {
        let seq = rows::number_of_key(key).unwrap_or(0);
        let goes = kept != 0 && seq < kept + CHECKPOINTS_APART;
        kept = if goes { kept } else { seq };
        goes
    });
    let rows = keys.into_iter().map(|key| RowOp::Delete { table: Table::Checkpoint, key }).collect();
    store.append(&[Batch { events: Vec::new(), rows }]).expect("the log is appended to");
}

/// Sessions `numbers` of a log, each with `turns` turns, appended some thousand events at a time. Returns events and
/// bytes of actions.
pub fn write(store: &dyn Store, numbers: std::ops::Range<u64>, turns: usize, shape: Shape) -> (u64, u64) {
    let (mut events, mut bytes) = (0, 0);
    let mut waiting: Vec<Batch> = Vec::new();
    let mut ready = 0;
    for number in numbers {
        let (mut session, batch) = Session::create(store, number);
        waiting.push(batch);
        for _ in 0..turns {
            waiting.extend(session.turn(shape));
            ready += shape.deltas + 8;
            if ready >= 4_000 {
                store.append(&waiting).expect("the log is appended to");
                waiting.clear();
                ready = 0;
            }
        }
        ready += 8;
        if ready >= 4_000 {
            store.append(&waiting).expect("the log is appended to");
            waiting.clear();
            ready = 0;
        }
        events += session.events;
        bytes += session.action_bytes;
    }
    store.append(&waiting).expect("the log is appended to");
    (events, bytes)
}

fn new_session() -> SessionState {
    SessionState {
        provider: "demo".to_owned(),
        title: String::new(),
        status: SessionStatus::Idle.bits(),
        activity: None,
        origin: None,
        project: None,
        working_directories: Some(vec!["file:///".to_owned()]),
        annotations: None,
        lifecycle: SessionLifecycle::Creating,
        creation_error: None,
        server_tools: None,
        active_clients: Vec::new(),
        chats: Vec::new(),
        default_chat: None,
        config: None,
        customizations: None,
        changesets: None,
        input_needed: None,
        meta: None,
    }
}

fn new_chat(uri: &Channel, at: Millis) -> ChatState {
    ChatState {
        resource: uri.to_string(),
        title: String::new(),
        status: SessionStatus::Idle.bits(),
        activity: None,
        modified_at: clock::rfc3339(at),
        changes: None,
        origin: Some(ChatOrigin::User),
        movable: None,
        interactivity: None,
        working_directories: None,
        changesets: None,
        background_work: None,
        canvases: None,
        turns: Vec::new(),
        turns_next_cursor: None,
        active_turn: None,
        steering_message: None,
        queued_messages: None,
        draft: None,
        meta: None,
    }
}
