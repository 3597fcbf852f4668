//! `chat/turnStarted`: a message begins a turn.
//!
//! The reducer would put it over a running turn, so everything is checked here. The chat's draft is sent with it, the chat
//! and its session get their names from it, and a paused queue goes on.

use ahp_types::actions::{ChatDraftChangedAction, ChatTurnStartedAction, SessionTitleChangedAction, StateAction};
use ahp_types::state::{Message, MessageKind, MessageOrigin, PendingMessage};
use serde_json::Value;

use super::{Effect, Entry, Verdict, View, ready};
use crate::actors::chat::{ending, message};
use crate::actors::core::{ChatCell, SessionCore};
use crate::actors::rejection::{Code, Rejection};
use crate::clock::{self, Millis};
use crate::projections::action::Action;

/// The longest id that a client may choose, in bytes.
pub const ID_LENGTH: usize = 256;
/// The years that a turn may say it started in: its end is computed from it, and must be a time too.
const YEARS: std::ops::Range<i64> = 0..253_000_000_000_000;
/// The most digits of a second that the reducers read. A turn that started at a time which they cannot read never ends.
const FRACTION: usize = 9;

/// Decides on a client's own turn.
pub fn decide(view: &View<'_>, started: &ChatTurnStartedAction, action: &Action) -> Result<Verdict, Rejection> {
    ready(view.core)?;
    id(&started.turn_id)?;
    message::check(&started.message, view.core.shared.settings.max_message_text)?;
    let seen = view.cell.has_seen(&view.core.shared, b't', &started.turn_id);
    if seen.map_err(|fault| Rejection::new(Code::LogUnavailable, fault.to_string()))? {
        return Err(Rejection::new(Code::DuplicateTurn, format!("the chat has seen turn {}", started.turn_id)));
    }
    if let Some(active) = view.active() {
        let text = format!("turn {active} is running: queue the message with chat/pendingMessageSet");
        return Err(Rejection::new(Code::TurnInProgress, text));
    }
    if !is_start(&started.started_at) {
        return Err(Rejection::new(Code::Malformed, "startedAt is a time as in RFC 3339"));
    }
    let signed = signed(action, &view.client.caller.principal)?;
    let mut entries = vec![Entry::Client(signed)];
    entries.extend(around(view.core, view.cell, &started.message, true));
    entries.extend(ending::pause(view.core, view.cell, false));
    Ok(Verdict::with(entries, vec![Effect::Prompt { turn_id: started.turn_id.clone() }]))
}

/// Whether `time` is a time that a turn can start at, and that the reducers can read too.
fn is_start(time: &str) -> bool {
    let digits = time.split_once('.').map_or(0, |(_, rest)| rest.bytes().take_while(u8::is_ascii_digit).count());
    let is_read = time.is_ascii() && digits <= FRACTION;
    is_read && clock::parse_rfc3339(time).is_some_and(|at| YEARS.contains(&at))
}

/// The action with its sender in the message, and nothing in it that only the host says.
fn signed(action: &Action, principal: &str) -> Result<Action, Rejection> {
    let mut value: Value =
        serde_json::from_slice(&action.bytes).map_err(|e| Rejection::new(Code::Malformed, e.to_string()))?;
    if let Some(sent) = value.get_mut("message") {
        message::sign(sent, principal);
    }
    if let Some(object) = value.as_object_mut() {
        object.remove("queuedMessageId");
    }
    message::clean(&mut value);
    Ok(Action::from_json(value)?)
}

/// What goes with a message that is sent: the draft is cleared, and who has no name gets one.
pub fn around(core: &SessionCore, cell: &ChatCell, message: &Message, by_a_person: bool) -> Vec<Entry> {
    let mut entries = Vec::new();
    if by_a_person && cell.fold.state.draft.is_some() {
        entries.push(Entry::Host(StateAction::ChatDraftChanged(ChatDraftChangedAction { draft: None })));
    }
    let deferred = core.shared.deferred_titles.load(std::sync::atomic::Ordering::Acquire);
    let names = cell.fold.state.title.is_empty() && !deferred;
    if let Some(title) = message::name(message).filter(|_| names) {
        entries.push(Entry::Host(titled(&title)));
        entries.extend(session_title(core, cell, &title));
    }
    entries
}

/// The action that gives a chat, or a session, its title.
pub fn titled(title: &str) -> StateAction {
    StateAction::SessionTitleChanged(SessionTitleChangedAction { title: title.to_owned() })
}

/// A session without a name takes its default chat's.
pub fn session_title(core: &SessionCore, cell: &ChatCell, title: &str) -> Option<Entry> {
    let state = &core.fold.state;
    let is_default = state.default_chat.as_deref() == Some(cell.channel.as_str());
    (is_default && state.title.is_empty()).then(|| Entry::Session(titled(title)))
}

/// An id that a client chose.
///
/// # Errors
/// [`Code::Malformed`] for an empty one or one that is too long.
pub fn id(id: &str) -> Result<(), Rejection> {
    if id.is_empty() || id.len() > ID_LENGTH {
        return Err(Rejection::new(Code::Malformed, format!("an id has 1 to {ID_LENGTH} bytes")));
    }
    Ok(())
}

/// The turn of a queued message whose time has come. The message was signed when it was queued.
pub fn queued(core: &SessionCore, cell: &ChatCell, queued: &PendingMessage, at: Millis) -> (Vec<Entry>, Vec<Effect>) {
    let turn_id = ulid::Ulid::new().to_string();
    let started = ChatTurnStartedAction {
        turn_id: turn_id.clone(),
        started_at: clock::rfc3339(at),
        message: queued.message.clone(),
        queued_message_id: Some(queued.id.clone()),
        meta: None,
    };
    let mut entries = vec![Entry::Host(StateAction::ChatTurnStarted(started))];
    entries.extend(around(core, cell, &queued.message, false));
    (entries, vec![Effect::Prompt { turn_id }])
}

/// The first turn of a chat that was created with a message.
pub fn by_host(
    core: &SessionCore,
    cell: &ChatCell,
    mut sent: Value,
    principal: &str,
    at: Millis,
) -> Result<(Vec<Entry>, Vec<Effect>), Rejection> {
    message::sign(&mut sent, principal);
    let mut message: Message =
        serde_json::from_value(sent).map_err(|e| Rejection::new(Code::Malformed, e.to_string()))?;
    message.origin = MessageOrigin { kind: MessageKind::User };
    message::check(&message, core.shared.settings.max_message_text)?;
    let turn_id = ulid::Ulid::new().to_string();
    let mut entries = vec![Entry::Host(StateAction::ChatTurnStarted(ChatTurnStartedAction {
        turn_id: turn_id.clone(),
        started_at: clock::rfc3339(at),
        message: message.clone(),
        queued_message_id: None,
        meta: None,
    }))];
    entries.extend(around(core, cell, &message, true));
    Ok((entries, vec![Effect::Prompt { turn_id }]))
}
