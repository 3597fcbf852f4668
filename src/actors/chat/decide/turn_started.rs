//! `chat/turnStarted`: a message begins a turn.
//!
//! The reducer would put it over a running turn, so everything is checked here. The chat's draft is sent with it, the chat
//! and its session get their names from it, and a paused queue goes on.

use ahp_types::actions::{ChatDraftChangedAction, ChatTurnStartedAction, SessionTitleChangedAction, StateAction};
use ahp_types::state::{Message, MessageKind, MessageOrigin};
use serde_json::Value;

use super::{Effect, Entry, Verdict, View, ready};
use crate::actors::chat::queue::Input;
use crate::actors::chat::{message, waiting};
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
    message::check(&started.message, &view.core.shared.settings)?;
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
    let (mut entries, mut effects) = waiting::follow(view.core, view.cell, Input::Start, Some(signed), view.at)?;
    entries.extend(draft_sent(view.cell));
    entries.extend(named(view.core, view.cell, &started.message));
    effects.push(Effect::Prompt { turn_id: started.turn_id.clone() });
    Ok(Verdict::with(entries, effects))
}

/// Whether `time` is a time that a turn can start at, and that the reducers can read too.
fn is_start(time: &str) -> bool {
    let digits = time.split_once('.').map_or(0, |(_, rest)| rest.bytes().take_while(u8::is_ascii_digit).count());
    let is_read = time.is_ascii() && digits <= FRACTION;
    is_read && clock::parse_rfc3339(time).is_some_and(|at| YEARS.contains(&at))
}

/// The action with its sender in the message, and no queued message that it came from: only the host says that.
fn signed(action: &Action, principal: &str) -> Result<Action, Rejection> {
    let mut value: Value =
        serde_json::from_slice(&action.bytes).map_err(|e| Rejection::new(Code::Malformed, e.to_string()))?;
    if let Some(sent) = value.get_mut("message") {
        message::sign(sent, principal);
    }
    if let Some(object) = value.as_object_mut() {
        object.remove("queuedMessageId");
    }
    Ok(Action::from_json(value)?)
}

/// What a person sends was the draft until now: it is cleared.
pub fn draft_sent(cell: &ChatCell) -> Option<Entry> {
    let cleared = StateAction::ChatDraftChanged(ChatDraftChangedAction { draft: None });
    cell.fold.state.draft.is_some().then_some(Entry::Host(cleared))
}

/// Who has no name gets one from the message whose turn begins.
pub fn named(core: &SessionCore, cell: &ChatCell, message: &Message) -> Vec<Entry> {
    let mut entries = Vec::new();
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

/// The first turn of a chat that is created with a message: its id, and its entries.
///
/// # Errors
/// As [`message::check`].
pub fn first_turn(
    core: &SessionCore,
    cell: &ChatCell,
    mut sent: Value,
    principal: &str,
    at: Millis,
) -> Result<(String, Vec<Entry>), Rejection> {
    message::sign(&mut sent, principal);
    let mut message: Message =
        serde_json::from_value(sent).map_err(|e| Rejection::new(Code::Malformed, e.to_string()))?;
    message.origin = MessageOrigin { kind: MessageKind::User };
    message::check(&message, &core.shared.settings)?;
    let turn_id = ulid::Ulid::new().to_string();
    let mut entries = vec![Entry::Host(StateAction::ChatTurnStarted(ChatTurnStartedAction {
        turn_id: turn_id.clone(),
        started_at: clock::rfc3339(at),
        message: message.clone(),
        queued_message_id: None,
        meta: None,
    }))];
    entries.extend(draft_sent(cell));
    entries.extend(named(core, cell, &message));
    Ok((turn_id, entries))
}
