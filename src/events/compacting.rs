//! What a store is told by whoever has it compacted: which events become one, what that says, and whether the copy is good.
//!
//! The store copies its log beside itself without looking into an action, and puts the copy in its own place. Used by
//! `sled_store`, told by `projections::compaction`.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{ChannelId, Record, ServerSeq, Store, Table};

/// The first and the last number of neighbouring events of one channel. The event that stands for them gets the last.
pub type Span = (ServerSeq, ServerSeq);

/// How far a compaction is. A crash after any step loses nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The events that become one are known.
    Planned,
    /// The copy has what the log had when it began, and what came meanwhile.
    Copied,
    /// The copy was held against the log.
    Checked,
    /// The copy is whole and on disk; nothing is appended meanwhile.
    Whole,
    /// The log was moved out of its place.
    Aside,
    /// The copy is in its place, and is read and written from now on.
    InPlace,
}

/// What a compaction is told.
pub trait Compacting {
    /// The events of `channel` up to `upto` that become one each time, ascending.
    ///
    /// # Errors
    /// What is wrong with the log, in words.
    fn spans(&self, store: &dyn Store, channel: ChannelId, upto: ServerSeq) -> Result<Vec<Span>, String>;

    /// The action of the event that stands for `events`, the events of one span.
    ///
    /// # Errors
    /// What is wrong with them, in words.
    fn one(&self, events: &[Record]) -> Result<Bytes, String>;

    /// Holds the copy `new` against `old`, of which it has everything up to `upto`.
    ///
    /// # Errors
    /// What is wrong with the copy, in words. It is thrown away then.
    fn check(&self, old: &dyn Store, new: &dyn Store, upto: ServerSeq) -> Result<(), String>;

    /// Where the rows are made anew from the log: who makes them.
    fn rebuilding(&self) -> Option<&dyn Rebuilding> {
        None
    }

    /// Is told how far it is.
    fn reached(&self, _step: Step) {}

    /// Whether it is to be given up.
    fn is_given_up(&self) -> bool {
        false
    }
}

/// Makes the rows of a copy anew.
pub trait Rebuilding {
    /// Whether a row is copied all the same, where it can be read.
    fn keeps(&self, table: Table, key: &[u8]) -> bool;

    /// Writes the rest of the rows, as `log` says, which has all events.
    ///
    /// # Errors
    /// What is wrong with the log, in words.
    fn rows(&self, log: &dyn Store) -> Result<(), String>;
}

/// What a compaction did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Compacted {
    /// How many events became one with others.
    pub folded: u64,
    /// How many stand for them now.
    pub into: u64,
    /// Bytes on disk before.
    pub disk_bytes_before: u64,
    /// Bytes on disk now.
    pub disk_bytes: u64,
}
