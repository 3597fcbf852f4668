//! The catalogue: what is listed without opening anything.
//!
//! One row a session, written in the batch that changes its summary, and an index by the time of its last turn. The cost of
//! a page does not depend on transcripts.

use std::ops::ControlFlow;

use ahp_types::state::SessionSummary;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::FoldFault;
use crate::clock;
use crate::events::rows::{self, ChannelKind, ChannelRow, number_of_key};
use crate::events::{Channel, ChannelId, RowOp, Rows, Table};

/// A session's row.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogueRow {
    pub summary: SessionSummary,
    pub disposed: bool,
}

/// The most sessions that one answer lists.
pub const PAGE_LIMIT: u64 = 1_000;

/// The row operations that replace the catalogue's entry of `session`. `old` is the entry before, if there was one.
pub fn replace(session: ChannelId, old: Option<&CatalogueRow>, new: &CatalogueRow) -> Vec<RowOp> {
    let mut ops = Vec::with_capacity(3);
    let old_place = old.and_then(|row| place(session, row));
    let new_place = place(session, new);
    if old_place != new_place {
        ops.extend(old_place.map(|key| RowOp::Delete { table: Table::Recent, key }));
        ops.extend(new_place.map(|key| RowOp::Put { table: Table::Recent, key, value: bytes::Bytes::new() }));
    }
    let value = serde_json::to_vec(new).unwrap_or_default().into();
    ops.push(RowOp::Put { table: Table::Session, key: rows::channel_key(session), value });
    ops
}

/// The key of the row that lists a session; `None` for one that is not listed.
pub fn place(session: ChannelId, row: &CatalogueRow) -> Option<Vec<u8>> {
    (!row.disposed).then(|| rows::recent_key(modified(row), session))
}

/// The last segment of a URI's path: the short name of a session.
pub fn last_segment(uri: &str) -> Option<&str> {
    uri.rsplit('/').next().filter(|segment| !segment.is_empty())
}

/// The row operations that take the entry of `session` away for good.
pub fn forget(session: ChannelId, old: &CatalogueRow) -> Vec<RowOp> {
    vec![
        RowOp::Delete { table: Table::Recent, key: rows::recent_key(modified(old), session) },
        RowOp::Delete { table: Table::Session, key: rows::channel_key(session) },
    ]
}

fn modified(row: &CatalogueRow) -> i64 {
    clock::parse_rfc3339(&row.summary.modified_at).unwrap_or(0)
}

/// The catalogue's entry of `session`.
///
/// # Errors
/// [`FoldFault::Row`] for a row that does not decode.
pub fn entry(rows: &dyn Rows, session: ChannelId) -> Result<Option<CatalogueRow>, FoldFault> {
    let Some(value) = rows.get(Table::Session, &rows::channel_key(session))? else { return Ok(None) };
    serde_json::from_slice(&value)
        .map(Some)
        .map_err(|e| FoldFault::Row { place: format!("of session {}", session.0), problem: e.to_string() })
}

/// A page of the list, newest first: the summaries of the sessions that `sees` is true of, by URI, and a cursor when there
/// are more.
///
/// `cursor` is where an earlier page ended. `None` is returned for one that this function did not make.
///
/// # Errors
/// [`FoldFault`] when the store cannot be read.
pub fn page(
    rows: &dyn Rows,
    limit: u64,
    cursor: Option<&str>,
    sees: impl Fn(&str) -> bool,
) -> Result<Option<(Vec<SessionSummary>, Option<String>)>, FoldFault> {
    let mut from = match cursor.map(decode_cursor) {
        None => None,
        Some(Some(key)) => Some(key),
        Some(None) => return Ok(None),
    };
    let wanted = usize::try_from(limit.min(PAGE_LIMIT)).unwrap_or(usize::MAX);
    let mut summaries = Vec::with_capacity(wanted.min(100));
    loop {
        let (keys, next) = recent(rows, from.as_deref(), wanted.saturating_add(1))?;
        for key in keys {
            let Some(session) = number_of_key(&key) else { continue };
            let Some(row) = entry(rows, ChannelId(session))?.filter(|row| sees(&row.summary.resource)) else {
                continue;
            };
            if summaries.len() >= wanted {
                return Ok(Some((summaries, Some(URL_SAFE_NO_PAD.encode(key)))));
            }
            summaries.push(row.summary);
        }
        match next {
            Some(next) => from = Some(next),
            None => return Ok(Some((summaries, None))),
        }
    }
}

/// The keys of the list from `from` on, at most `wanted`, and the one behind them. What is read of each is not read while
/// the list is.
fn recent(rows: &dyn Rows, from: Option<&[u8]>, wanted: usize) -> Result<(Vec<Vec<u8>>, Option<Vec<u8>>), FoldFault> {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    rows.scan_rows(Table::Recent, &[], from, &mut |key, _| {
        keys.push(key.to_vec());
        if keys.len() > wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    let next = if keys.len() > wanted { keys.pop() } else { None };
    Ok((keys, next))
}

fn decode_cursor(cursor: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(cursor).ok().filter(|key| key.len() == 16)
}

/// How many sessions are listed.
///
/// # Errors
/// [`FoldFault::Log`] when the store cannot be read.
pub fn count(rows: &dyn Rows) -> Result<u64, FoldFault> {
    let mut count = 0;
    rows.scan_rows(Table::Recent, &[], None, &mut |_, _| {
        count += 1;
        ControlFlow::Continue(())
    })?;
    Ok(count)
}

/// The row of the channel that has this URI.
///
/// # Errors
/// [`FoldFault`] when it cannot be read.
pub fn channel(rows: &dyn Rows, uri: &str) -> Result<Option<ChannelRow>, FoldFault> {
    let Some(value) = rows.get(Table::ChannelByUri, uri.as_bytes())? else { return Ok(None) };
    serde_json::from_slice(&value)
        .map(Some)
        .map_err(|e| FoldFault::Row { place: format!("of channel {uri}"), problem: e.to_string() })
}

/// The URI of the channel that has this number.
///
/// # Errors
/// [`FoldFault::Log`] when it cannot be read.
pub fn uri(rows: &dyn Rows, channel: ChannelId) -> Result<Option<Channel>, FoldFault> {
    let value = rows.get(Table::ChannelById, &rows::channel_key(channel))?;
    Ok(value.and_then(|bytes| String::from_utf8(bytes).ok()).map(Channel::from))
}

/// The row operations that make a channel known.
pub fn register(uri: &Channel, id: ChannelId, kind: ChannelKind, session: ChannelId) -> Vec<RowOp> {
    let row = ChannelRow { id: id.0, kind, session: session.0 };
    vec![
        RowOp::Put {
            table: Table::ChannelByUri,
            key: uri.as_str().as_bytes().to_vec(),
            value: serde_json::to_vec(&row).unwrap_or_default().into(),
        },
        RowOp::Put {
            table: Table::ChannelById,
            key: rows::channel_key(id),
            value: bytes::Bytes::copy_from_slice(uri.as_str().as_bytes()),
        },
    ]
}
