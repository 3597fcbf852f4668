//! Finished turns, read from their rows.
//!
//! A chat is a pointer to the last turn on its branch; each row names the one before it. Rows never change, so they may
//! be read while the chat goes on.

use super::FoldFault;
use crate::events::rows::{TurnRow, channel_key, leading_number, numbered_key};
use crate::events::{ChannelId, Rows, Table};

/// A finished turn: its place and its JSON as it is spliced into states.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredTurn {
    pub n: u64,
    pub row: TurnRow,
    pub json: Vec<u8>,
}

/// The n-th ended turn of `chat`.
///
/// # Errors
/// [`FoldFault::Row`] where it is missing or does not decode.
pub fn read(rows: &dyn Rows, chat: ChannelId, n: u64) -> Result<StoredTurn, FoldFault> {
    let place = || format!("of ended turn {n} of chat {}", chat.0);
    let Some(mut value) = rows.get(Table::Turn, &numbered_key(chat, n))? else {
        return Err(FoldFault::Row { place: place(), problem: "it is missing".into() });
    };
    let Some((row, _)) = TurnRow::decode(&value) else {
        return Err(FoldFault::Row { place: place(), problem: "it is no turn".into() });
    };
    let json = value.split_off(crate::events::rows::TURN_ROW_HEADER);
    Ok(StoredTurn { n, row, json })
}

/// n of the last turn on the branch of `chat`, 0 for none, as its newest head says.
///
/// # Errors
/// [`FoldFault`] when the rows cannot be read.
pub fn head(rows: &dyn Rows, chat: ChannelId) -> Result<u64, FoldFault> {
    let newest = rows.last_row(Table::Head, &channel_key(chat), &numbered_key(chat, u64::MAX))?;
    Ok(newest.and_then(|(_, value)| leading_number(&value)).unwrap_or(0))
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

/// The cursor that stands for "the turns before the one with this ordinal".
pub fn cursor(oldest: u64) -> String {
    format!("before:{oldest}")
}

/// The ordinal of a cursor.
pub fn parse_cursor(cursor: &str) -> Option<u64> {
    cursor.strip_prefix("before:")?.parse().ok().filter(|ordinal| *ordinal > 1)
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
