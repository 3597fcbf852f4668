//! `fetchTurns`: a page of older turns, published to everybody on the channel before the answer.
//!
//! The page is one event with a number of its own, of which the log keeps the range, not the turns again. Each connection is
//! shown the range extended up to its own window, so that nobody gets a hole; one that has all turns is shown none.

use actix::Context;
use bytes::Bytes;
use bytestring::ByteString;
use serde_json::{Value, json};

use super::ChatActor;
use crate::actors::command::{self, Refusal, RefusalKind, Reply};
use crate::actors::connection::{Caller, Subscription, Window};
use crate::actors::core::{By, ChatCell};
use crate::actors::envelope::{self, Envelope};
use crate::actors::session::{answer, refuse};
use crate::actors::shared::Shared;
use crate::events::{ChannelId, Record, Store};
use crate::projections::FoldFault;
use crate::projections::action::Action;
use crate::projections::turns::{self, PageLimit, StoredTurn};

/// The most that one page holds.
const PAGE: PageLimit = PageLimit { turns: 50, bytes: 512 * 1024 };

/// The most bytes of turns that a client is shown before they are dropped.
const SHORT_LIVED: usize = 4 * 1024 * 1024;

/// The range that a stored page stands for, by ordinals on the branch that ends at `head`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Range {
    /// The oldest turn of the page.
    pub oldest: u64,
    /// The newest turn of the page; smaller than `oldest` for an empty page.
    pub newest: u64,
    /// The last turn of the branch when the page was fetched, as the chat names it.
    pub head: u64,
    /// The turns behind the oldest are dropped by the next event.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub goes: bool,
}

impl Range {
    /// The range in a stored `chat/turnsLoaded`.
    pub fn of(action: &[u8]) -> Option<Self> {
        if !envelope::is_page(action) {
            return None;
        }
        let value: Value = serde_json::from_slice(action).ok()?;
        serde_json::from_value(value.get("range")?.clone()).ok()
    }

    /// The range as it is recorded.
    ///
    /// # Errors
    /// The problem, in words.
    pub fn action(self) -> Result<Action, String> {
        // `type` comes first: that is how a page is known without parsing it.
        let range = serde_json::to_string(&self).map_err(|e| e.to_string())?;
        Action::from_stored(Bytes::from(format!(r#"{{"type":"chat/turnsLoaded","turns":[],"range":{range}}}"#)))
    }
}

impl ChatActor {
    pub(super) fn fetch_turns(
        &mut self,
        caller: &Caller,
        cursor: Option<String>,
        window: Option<Window>,
        reply: Reply,
        ctx: &mut Context<Self>,
    ) {
        let range = {
            let mut cell = self.cell.borrow_mut();
            cell.touch();
            range(&self.shared, &cell, cursor.as_deref(), window)
        };
        let range = match range {
            Ok(range) => range,
            Err(refusal) => return refuse(&self.core.borrow(), refusal, reply),
        };
        self.flush_text(ctx);
        let action = match range.action() {
            Ok(action) => action,
            Err(problem) => {
                let refusal = Refusal::new(RefusalKind::Internal, "internal", problem);
                return refuse(&self.core.borrow(), refusal, reply);
            }
        };
        let by = By { principal: std::sync::Arc::clone(&caller.principal), at: self.shared.clock.now(), client: None };
        self.record(by, vec![super::Entry::Fetched(action)], Vec::new(), ctx);
        answer(&self.core.borrow(), Ok(command::json(&json!({}))), reply);
    }
}

fn range(shared: &Shared, cell: &ChatCell, cursor: Option<&str>, window: Option<Window>) -> Result<Range, Refusal> {
    let all = cell.fold.ordinal();
    let before = match cursor {
        Some(text) => turns::parse_cursor(&cell.fold.state.resource, text)
            .filter(|before| *before <= all + 1)
            .ok_or_else(|| {
                Refusal::new(
                    RefusalKind::InvalidParams,
                    "unknown-cursor",
                    format!("cursor: {text:?} is not of this chat"),
                )
            })?,
        None => window.map_or(1, |window| window.oldest),
    };
    let head = cell.fold.head();
    if before <= 1 {
        return Ok(Range { oldest: 1, newest: 0, head, goes: false });
    }
    let internal = |fault: FoldFault| Refusal::new(RefusalKind::Internal, "damaged", fault.to_string());
    let read = |n| cell.turn(shared, n);
    let newest = turns::at_ordinal(head, before - 1, read).map_err(internal)?.unwrap_or(0);
    let (page, _) = turns::branch(newest, PAGE, read).map_err(internal)?;
    let oldest = page.first().map_or(before, |turn| turn.row.ordinal);
    Ok(Range { oldest, newest: before - 1, head, goes: false })
}

/// A stored page for one subscription: the frame, and the window that it has then.
pub fn for_subscription(
    store: &dyn Store,
    envelope: &Envelope,
    subscription: &Subscription,
) -> Option<(ByteString, Option<Window>)> {
    let value: Value = serde_json::from_str(envelope.json()).ok()?;
    let range: Range = serde_json::from_value(value.get("action")?.get("range")?.clone()).ok()?;
    let (turns, window) = widened(store, envelope.channel_id, range, subscription.window);
    let action = action_json(envelope.channel.as_str(), &turns, window);
    let frame = envelope::echo_like(subscription.alias.as_str(), envelope.seq, &action);
    Some((frame, window))
}

/// The turns that a client with this window lacks down to the page's oldest, and its window then.
fn widened(
    store: &dyn Store,
    chat: ChannelId,
    range: Range,
    window: Option<Window>,
) -> (Vec<StoredTurn>, Option<Window>) {
    let Some(Window { oldest }) = window else { return (Vec::new(), None) };
    if range.oldest >= oldest {
        return (Vec::new(), window);
    }
    let turns = match range.goes {
        true => before_they_go(store, chat, range, oldest - 1),
        false => between(store, chat, range.head, range.oldest, oldest - 1),
    };
    let left = (range.oldest > 1).then_some(Window { oldest: range.oldest });
    match turns {
        Ok(turns) => (turns, left),
        Err(fault) => {
            tracing::error!(%fault, "a page of turns cannot be read");
            (Vec::new(), window)
        }
    }
}

/// The turns from the oldest of the range on that a client lacks; of many, which it would hold for a moment only, the oldest.
fn before_they_go(store: &dyn Store, chat: ChannelId, range: Range, newest: u64) -> Result<Vec<StoredTurn>, FoldFault> {
    let read = |n| turns::read(store, chat, n);
    let Some(last) = turns::at_ordinal(range.head, newest, read)? else { return Ok(Vec::new()) };
    let limit = PageLimit { turns: newest.saturating_sub(range.oldest) + 1, bytes: SHORT_LIVED };
    let (page, _) = turns::branch(last, limit, read)?;
    match page.first() {
        Some(first) if first.row.ordinal > range.oldest => between(store, chat, range.head, range.oldest, range.oldest),
        _ => Ok(page),
    }
}

fn between(
    store: &dyn Store,
    chat: ChannelId,
    head: u64,
    oldest: u64,
    newest: u64,
) -> Result<Vec<StoredTurn>, FoldFault> {
    let read = |n| turns::read(store, chat, n);
    let Some(last) = turns::at_ordinal(head, newest, read)? else { return Ok(Vec::new()) };
    let limit = PageLimit { turns: newest.saturating_sub(oldest) + 1, bytes: usize::MAX };
    Ok(turns::branch(last, limit, read)?.0)
}

fn action_json(chat: &str, turns: &[StoredTurn], window: Option<Window>) -> String {
    let mut text = String::from(r#"{"type":"chat/turnsLoaded","turns":"#);
    turns::push_list(&mut text, turns);
    if let Some(window) = window {
        text.push_str(&format!(r#","turnsNextCursor":{}"#, Value::from(turns::cursor(chat, window.oldest))));
    }
    text.push('}');
    text
}

/// The AHP envelope of a stored event under `name`; of a page, which the log keeps as a range, with its turns: for those who
/// read the log rather than a window of a chat.
pub fn envelope(store: &dyn Store, record: &Record, name: &str) -> String {
    let whole = Range::of(&record.action).map(|range| whole_page(store, record, range));
    let action = whole.as_ref().map_or(record.action.as_ref(), String::as_bytes);
    envelope::envelope_json(name, record.seq, record.origin.as_ref(), action)
}

fn whole_page(store: &dyn Store, record: &Record, range: Range) -> String {
    let turns = match range.newest < range.oldest {
        true => Vec::new(),
        false => between(store, record.channel_id, range.head, range.oldest, range.newest).unwrap_or_default(),
    };
    let window = (range.oldest > 1).then_some(Window { oldest: range.oldest });
    action_json(record.channel.as_str(), &turns, window)
}
