//! What is appended: one decision with all that it entails.
//!
//! A batch is the atom of the log: after a crash it is there whole or not at all. Numbers are given by the append,
//! so nothing in a batch names its own: an operation on rows that needs one says which event of the batch it means.

use std::sync::Arc;

use bytes::Bytes;

use super::{Channel, ChannelId, Kind, Origin, Table};

/// An event that has no number yet. The fields are those of [`super::Record`].
#[derive(Debug, Clone)]
pub struct NewEvent {
    pub channel: Channel,
    pub channel_id: ChannelId,
    pub kind: Kind,
    pub at: i64,
    pub principal: Arc<str>,
    pub origin: Option<Origin>,
    pub about: Option<ChannelId>,
    pub action: Bytes,
}

/// One change to the rows beside the log, made in the same atomic step as the events.
#[derive(Debug, Clone)]
pub enum RowOp {
    /// Writes `value` under `key`, over whatever was there.
    Put { table: Table, key: Vec<u8>, value: Bytes },
    /// Removes `key`; nothing happens where it is not there.
    Delete { table: Table, key: Vec<u8> },
    /// Writes under `key` followed by the big-endian number of the batch's event `event` (an index into its events).
    PutKeyedBySeq { table: Table, key: Vec<u8>, event: usize, value: Bytes },
    /// Writes the big-endian number of the batch's event `event`, followed by `value`, under `key`.
    PutWithSeq { table: Table, key: Vec<u8>, event: usize, value: Bytes },
    /// Writes under `key` followed by the big-endian number of the newest event of `channel` at this place of the
    /// line: of this batch, of an earlier one of the same append, or of the store; 0 where it has none.
    PutKeyedByLast { table: Table, key: Vec<u8>, channel: ChannelId, value: Bytes },
}

/// One decision: its events in order, and what they change in the rows. Either may be empty.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    pub events: Vec<NewEvent>,
    pub rows: Vec<RowOp>,
}

impl Batch {
    /// Adds what `other` holds behind what is here.
    pub fn join(&mut self, other: Batch) {
        let before = self.events.len();
        self.events.extend(other.events);
        self.rows.extend(other.rows.into_iter().map(|row| match row {
            RowOp::PutKeyedBySeq { table, key, event, value } => {
                RowOp::PutKeyedBySeq { table, key, event: event + before, value }
            }
            RowOp::PutWithSeq { table, key, event, value } => {
                RowOp::PutWithSeq { table, key, event: event + before, value }
            }
            row => row,
        }));
    }

    /// The bytes that this batch brings, for fairness and limits: actions and row values, without keys and headers.
    pub fn weight(&self) -> usize {
        let events: usize = self.events.iter().map(|e| e.action.len() + 64).sum();
        let rows: usize = self
            .rows
            .iter()
            .map(|r| match r {
                RowOp::Put { value, .. }
                | RowOp::PutKeyedBySeq { value, .. }
                | RowOp::PutWithSeq { value, .. }
                | RowOp::PutKeyedByLast { value, .. } => value.len() + 32,
                RowOp::Delete { .. } => 32,
            })
            .sum();
        events + rows
    }
}
