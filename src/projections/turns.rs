//! Finished turns, read from their rows.
//!
//! A chat is a pointer to the last turn on its branch; each row names the one before it. Rows never change, so they may
//! be read while the chat goes on.
//!
//! A turn is named by a number, relative to a chat: n for the n-th turn that ended in that chat; for a turn of another chat,
//! which a fork's branch begins with, that chat's number in the upper half and n in the lower.

use std::ops::ControlFlow;

use super::FoldFault;
use crate::events::rows::{TurnRow, channel_key, leading_number, number_of_key, numbered_key, used_key};
use crate::events::{ChannelId, Rows, Table};

/// Bits of a turn's name that hold n.
const N_BITS: u32 = 32;
const N_MASK: u64 = (1 << N_BITS) - 1;

/// The chat that the turn named `turn` ended in, as `chat` names it, and its n there.
pub fn place(chat: ChannelId, turn: u64) -> (ChannelId, u64) {
    match turn >> N_BITS {
        0 => (chat, turn),
        other => (ChannelId(other), turn & N_MASK),
    }
}

/// How another chat names the turn that `chat` names `turn`. 0, which is no turn, stays 0.
pub fn from_outside(chat: ChannelId, turn: u64) -> u64 {
    if turn == 0 || turn >> N_BITS != 0 { turn } else { (chat.0 << N_BITS) | turn }
}

/// A finished turn: its place and its JSON as it is spliced into states.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredTurn {
    pub n: u64,
    pub row: TurnRow,
    pub json: Vec<u8>,
}

impl StoredTurn {
    /// Its id.
    pub fn id(&self) -> Option<String> {
        id_of(&self.json)
    }
}

fn id_of(turn: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Id {
        id: String,
    }
    serde_json::from_slice::<Id>(turn).ok().map(|turn| turn.id)
}

/// The turn that `chat` names `n`.
///
/// # Errors
/// [`FoldFault::Row`] where it is missing or does not decode.
pub fn read(rows: &dyn Rows, chat: ChannelId, n: u64) -> Result<StoredTurn, FoldFault> {
    let (of, at) = place(chat, n);
    let words = || format!("of ended turn {at} of chat {}", of.0);
    let Some(mut value) = rows.get(Table::Turn, &numbered_key(of, at))? else {
        return Err(FoldFault::Row { place: words(), problem: "it is missing".into() });
    };
    let Some((mut row, _)) = TurnRow::decode(&value) else {
        return Err(FoldFault::Row { place: words(), problem: "it is no turn".into() });
    };
    if of != chat {
        (row.prev, row.jump) = (from_outside(of, row.prev), from_outside(of, row.jump));
    }
    let json = value.split_off(crate::events::rows::TURN_ROW_HEADER);
    Ok(StoredTurn { n, row, json })
}

/// The newest turn with this id that ever ended in `chat`, on whatever branch, as `chat` names it.
///
/// # Errors
/// [`FoldFault`] when the rows cannot be read.
pub fn ever_ended(rows: &dyn Rows, chat: ChannelId, turn_id: &str) -> Result<Option<u64>, FoldFault> {
    let Some(seen) = rows.get(Table::Used, &used_key(chat, b't', turn_id))? else { return Ok(None) };
    // Hosts before this one wrote no n down.
    leading_number(&seen).map_or_else(|| search(rows, chat, turn_id), |n| Ok(Some(n)))
}

/// The newest turn with this id, found by reading all.
fn search(rows: &dyn Rows, chat: ChannelId, turn_id: &str) -> Result<Option<u64>, FoldFault> {
    let mut found = None;
    rows.scan_rows(Table::Turn, &channel_key(chat), None, &mut |key, value| {
        let id = TurnRow::decode(value).and_then(|(_, json)| id_of(json));
        if id.as_deref() == Some(turn_id) {
            found = number_of_key(key);
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// The point that the agent can go back to at the end of the turn that `chat` names `n`, in the agent's words.
///
/// # Errors
/// [`FoldFault`] when the rows cannot be read.
pub fn point(rows: &dyn Rows, chat: ChannelId, n: u64) -> Result<Option<super::chat::Point>, FoldFault> {
    let (of, at) = place(chat, n);
    let stored = rows.get(Table::Point, &numbered_key(of, at))?;
    Ok(stored.and_then(|value| serde_json::from_slice(&value).ok()))
}

/// The path of the branch that ends at `head`: see [`super::chat::Path`].
///
/// # Errors
/// Those of `read`.
pub fn path(
    head: u64,
    mut read: impl FnMut(u64) -> Result<StoredTurn, FoldFault>,
) -> Result<super::chat::Path, FoldFault> {
    let mut path = Vec::new();
    let mut next = head;
    while next != 0 {
        let turn = read(next)?;
        path.push((turn.row.ordinal, next));
        next = turn.row.jump;
    }
    Ok(path)
}

/// What limits a page of turns.
#[derive(Debug, Clone, Copy)]
pub struct PageLimit {
    /// How many turns, at most.
    pub turns: u64,
    /// How many bytes of JSON, at most; the first turn always comes.
    pub bytes: usize,
}

/// The turns of a branch that end at `head`, newest last, as many as `limit` allows. `read` gives a row by its n.
///
/// Returns them and n of the turn before the oldest of them, 0 when none is left.
///
/// # Errors
/// Those of `read`.
pub fn branch(
    head: u64,
    limit: PageLimit,
    mut read: impl FnMut(u64) -> Result<StoredTurn, FoldFault>,
) -> Result<(Vec<StoredTurn>, u64), FoldFault> {
    let mut turns = Vec::new();
    let mut bytes = 0usize;
    let mut next = head;
    while next != 0 && (turns.len() as u64) < limit.turns {
        let turn = read(next)?;
        bytes = bytes.saturating_add(turn.json.len() + 1);
        if bytes > limit.bytes && !turns.is_empty() {
            break;
        }
        next = turn.row.prev;
        turns.push(turn);
    }
    turns.reverse();
    Ok((turns, next))
}

/// The n of the turn with this ordinal on the branch that ends at `head`, in a number of reads that grows as the square of
/// the logarithm of the branch's length.
///
/// # Errors
/// Those of `read`.
pub fn at_ordinal(
    head: u64,
    ordinal: u64,
    mut read: impl FnMut(u64) -> Result<StoredTurn, FoldFault>,
) -> Result<Option<u64>, FoldFault> {
    let mut n = head;
    while n != 0 {
        let turn = read(n)?;
        if turn.row.ordinal == ordinal {
            return Ok(Some(n));
        }
        if turn.row.ordinal < ordinal {
            return Ok(None);
        }
        let jumps_to = turn.row.ordinal & (turn.row.ordinal - 1);
        n = if jumps_to >= ordinal { turn.row.jump } else { turn.row.prev };
    }
    Ok(None)
}

/// The cursor that stands for "the turns of this chat before the one with this ordinal".
pub fn cursor(chat: &str, oldest: u64) -> String {
    format!("before:{oldest}:{:08x}", crc32fast::hash(chat.as_bytes()))
}

/// The ordinal of a cursor that this chat gave out.
pub fn parse_cursor(chat: &str, text: &str) -> Option<u64> {
    let ordinal = text.strip_prefix("before:")?.split(':').next()?.parse().ok()?;
    (ordinal > 1 && cursor(chat, ordinal) == text).then_some(ordinal)
}

/// The JSON of a chat's state: `state`, an object that was written without its turns, with `turns` and a cursor spliced in.
pub fn splice(state: &str, turns: &[StoredTurn], next_cursor: Option<&str>) -> String {
    let bytes: usize = turns.iter().map(|turn| turn.json.len() + 1).sum();
    let mut text = String::with_capacity(state.len() + bytes + 64);
    text.push_str(r#"{"turns":"#);
    push_list(&mut text, turns);
    if let Some(cursor) = next_cursor {
        text.push_str(r#","turnsNextCursor":"#);
        text.push_str(&serde_json::Value::from(cursor).to_string());
    }
    match state.strip_prefix('{') {
        Some("}") | None => text.push('}'),
        Some(rest) => {
            text.push(',');
            text.push_str(rest);
        }
    }
    text
}

/// Writes `turns` as a JSON array.
pub fn push_list(text: &mut String, turns: &[StoredTurn]) {
    text.push('[');
    for (index, turn) in turns.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(&String::from_utf8_lossy(&turn.json));
    }
    text.push(']');
}
