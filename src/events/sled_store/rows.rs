//! Reading rows, as they are on disk.
//!
//! While an append is under way the tree has its rows already, so what they were is put aside in `before` and shown
//! instead. A scan reads in chunks: each chunk is of one moment, and the lock is not held while rows are visited.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{PoisonError, RwLockReadGuard};

use bytes::Bytes;

use super::tree::Unread;
use super::{SledStore, keys};
use crate::events::log::{Row, VisitRow};
use crate::events::stage::RowChanges;
use crate::events::{LogFault, Table};

/// The most rows and bytes of a scan's chunk; the first chunk has [`FIRST_CHUNK`] rows, and each has twice as many.
const FIRST_CHUNK: usize = 16;
const CHUNK: usize = 512;
const CHUNK_BYTES: usize = 1 << 20;

/// A row as it is stored.
type StoredRow = (Vec<u8>, Bytes);

/// Rows of one moment, and where the next ones begin.
struct Chunk {
    rows: BTreeMap<Vec<u8>, Bytes>,
    /// The last key that was looked at; `None` when there are no more.
    upto: Option<Vec<u8>>,
}

impl SledStore {
    /// See [`crate::events::Rows::get`].
    pub(super) fn row(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, LogFault> {
        let before = self.before();
        if !before.is_empty()
            && let Some(row) = before.get(&(table, key.to_vec()))
        {
            return Ok(row.as_ref().map(|row| row.to_vec()));
        }
        let row = self.engine().tree.get(&keys::row(table, key)).map_err(|e| e.at(place(table, key)))?;
        Ok(row.map(Vec::from))
    }

    /// See [`crate::events::Rows::scan_rows`].
    pub(super) fn visit_rows(
        &self,
        table: Table,
        prefix: &[u8],
        from: Option<&[u8]>,
        visit: VisitRow<'_>,
    ) -> Result<(), LogFault> {
        let mut start = Bound::Included(from.filter(|from| *from > prefix).unwrap_or(prefix).to_vec());
        let mut limit = FIRST_CHUNK;
        loop {
            let chunk = self.chunk(table, prefix, start, limit)?;
            for (key, value) in &chunk.rows {
                if visit(key, value).is_break() {
                    return Ok(());
                }
            }
            match chunk.upto {
                Some(upto) => start = Bound::Excluded(upto),
                None => return Ok(()),
            }
            limit = limit.saturating_mul(2).min(CHUNK);
        }
    }

    /// Calls `visit` with each row of a table that can be read, as it is stored. Returns how many cannot.
    ///
    /// # Errors
    /// [`LogFault::Engine`] and [`LogFault::Damaged`] when not even the keys can be read.
    pub(super) fn visit_readable_rows(
        &self,
        table: Table,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64, LogFault> {
        let engine = self.engine();
        let table_place = |unread: Unread| unread.at(place(table, &[]));
        let prefix = keys::row(table, &[]);
        let mut lost = 0;
        for entry in engine.tree.range((Bound::Included(prefix.clone()), Bound::Unbounded)).map_err(table_place)? {
            let (stored_key, first) = entry.map_err(table_place)?;
            if !stored_key.starts_with(&prefix) {
                break;
            }
            let Some(key) = row_key(&stored_key, &[]) else { continue };
            match engine.tree.whole(&keys::row(table, key), &first) {
                Ok(value) => visit(key, &value),
                Err(_) => lost += 1,
            }
        }
        Ok(lost)
    }

    /// See [`crate::events::Rows::last_row`].
    pub(super) fn newest_row(&self, table: Table, prefix: &[u8], upto: &[u8]) -> Result<Option<Row>, LogFault> {
        if upto < prefix {
            return Ok(None);
        }
        let before = self.before();
        let stored = self.last_stored(table, prefix, upto, &before)?;
        let bounds = (table, prefix.to_vec())..=(table, upto.to_vec());
        let changing = before.range(bounds).rev().filter(|((_, key), _)| key.starts_with(prefix));
        let changing = changing.filter_map(|((_, key), row)| Some((key.clone(), row.clone()?))).next();
        let last = match (stored, changing) {
            (Some(stored), Some(changing)) => Some(if stored.0 > changing.0 { stored } else { changing }),
            (stored, changing) => stored.or(changing),
        };
        Ok(last.map(|(key, value)| (key, Vec::from(value))))
    }

    /// The last stored row in the bounds that no append is changing.
    fn last_stored(
        &self,
        table: Table,
        prefix: &[u8],
        upto: &[u8],
        before: &RowChanges,
    ) -> Result<Option<StoredRow>, LogFault> {
        let bounds = (Bound::Included(keys::row(table, prefix)), Bound::Included(first_piece(table, upto)));
        let table_place = |unread: Unread| unread.at(place(table, prefix));
        let engine = self.engine();
        let mut stored = engine.tree.range(bounds).map_err(table_place)?;
        while let Some(entry) = stored.next_back() {
            let (stored_key, _) = entry.map_err(table_place)?;
            let Some(key) = row_key(&stored_key, prefix) else { continue };
            if before.contains_key(&(table, key.to_vec())) {
                continue;
            }
            let value = engine.tree.get(&keys::row(table, key)).map_err(|e| e.at(place(table, key)))?;
            return Ok(value.map(|value| (key.to_vec(), value)));
        }
        Ok(None)
    }

    fn chunk(&self, table: Table, prefix: &[u8], start: Bound<Vec<u8>>, limit: usize) -> Result<Chunk, LogFault> {
        let before = self.before();
        let stored_start = match &start {
            Bound::Excluded(key) => Bound::Excluded(first_piece(table, key)),
            Bound::Included(key) => Bound::Included(first_piece(table, key)),
            Bound::Unbounded => Bound::Included(keys::row(table, &[])),
        };
        let table_place = |unread: Unread| unread.at(place(table, prefix));
        let whole_prefix = keys::row(table, prefix);
        let mut chunk = Chunk { rows: BTreeMap::new(), upto: None };
        let mut bytes = 0usize;
        let engine = self.engine();
        for entry in engine.tree.range((stored_start, Bound::Unbounded)).map_err(table_place)? {
            let (stored_key, first) = entry.map_err(table_place)?;
            if !stored_key.starts_with(&whole_prefix) {
                break;
            }
            let Some(key) = row_key(&stored_key, prefix) else { continue };
            if chunk.rows.len() >= limit || bytes > CHUNK_BYTES {
                chunk.upto = chunk.rows.last_key_value().map(|(key, _)| key.clone());
                break;
            }
            let stored = keys::row(table, key);
            let value = engine.tree.whole(&stored, &first).map_err(|e| e.at(place(table, key)))?;
            bytes = bytes.saturating_add(key.len()).saturating_add(value.len());
            chunk.rows.insert(key.to_vec(), value);
        }
        chunk.undo(table, prefix, start, &before);
        Ok(chunk)
    }

    fn before(&self) -> RwLockReadGuard<'_, RowChanges> {
        self.before.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Chunk {
    /// Puts the rows that an append is changing back to what they are on disk.
    fn undo(&mut self, table: Table, prefix: &[u8], start: Bound<Vec<u8>>, before: &RowChanges) {
        if before.is_empty() {
            return;
        }
        let start = start.map(|key| (table, key));
        let changing = before.range((start, Bound::Unbounded));
        let changing = changing.take_while(|((t, key), _)| *t == table && key.starts_with(prefix));
        for ((_, key), row) in changing.take_while(|((_, key), _)| self.upto.as_ref().is_none_or(|upto| key <= upto)) {
            match row {
                Some(row) => self.rows.insert(key.clone(), row.clone()),
                None => self.rows.remove(key),
            };
        }
    }
}

/// How a fault names a row: its table, and its key as text or else in hexadecimal.
pub(super) fn place(table: Table, key: &[u8]) -> String {
    let table = char::from(table as u8);
    match std::str::from_utf8(key) {
        Ok(text) if !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic()) => format!("row {table} {text}"),
        _ => format!("row {table} 0x{}", key.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
    }
}

/// The row's key, if a stored key is that of a piece 0 and the row's key begins with `prefix`.
fn row_key<'a>(stored_key: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (key, piece) = keys::split(stored_key)?;
    let key = key.get(1..)?;
    (piece == 0 && key.starts_with(prefix)).then_some(key)
}

fn first_piece(table: Table, key: &[u8]) -> Vec<u8> {
    keys::piece(&keys::row(table, key), 0)
}
