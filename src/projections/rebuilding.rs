//! The rows of a directory, made anew from its log.
//!
//! They are written into a copy of the log, which is verified and takes its place: so what cannot be made leaves everything as
//! it was. What no event tells is copied where it can be read: the names of channels, which actions of clients were applied,
//! what is being erased, and what forks keep of chats that are gone.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;

use super::{compaction, rebuild};
use crate::attachments::references;
use crate::events::compacting::{Compacting, Rebuilding, Span};
use crate::events::rows::{leading_number, number_of_key};
use crate::events::{Batch, ChannelId, LogFault, Record, ServerSeq, Store, Table};

/// A copy of the log with its rows made anew.
pub struct Rebuild {
    /// The channels that have events, by number.
    logged: BTreeSet<u64>,
}

impl Rebuild {
    /// What there is to do for `store`.
    ///
    /// # Errors
    /// [`LogFault`] when the log cannot be read.
    pub fn of(store: &dyn Store) -> Result<Self, LogFault> {
        let mut logged = BTreeSet::new();
        store.scan(0, ServerSeq::MAX, &mut |record| {
            logged.insert(record.channel_id.0);
            ControlFlow::Continue(())
        })?;
        Ok(Self { logged })
    }

    fn is_gone(&self, channel: Option<u64>) -> bool {
        channel.is_some_and(|channel| !self.logged.contains(&channel))
    }
}

impl Compacting for Rebuild {
    fn spans(&self, _: &dyn Store, _: ChannelId, _: ServerSeq) -> Result<Vec<Span>, String> {
        Ok(Vec::new())
    }

    fn one(&self, _: &[Record]) -> Result<Bytes, String> {
        Err("nothing becomes one".into())
    }

    fn check(&self, old: &dyn Store, new: &dyn Store, upto: ServerSeq) -> Result<(), String> {
        compaction::check(old, new, upto, &AtomicBool::new(false))
    }

    fn rebuilding(&self) -> Option<&dyn Rebuilding> {
        Some(self)
    }
}

impl Rebuilding for Rebuild {
    fn keeps(&self, table: Table, key: &[u8]) -> bool {
        match table {
            Table::ChannelById | Table::Dispatched | Table::Erasing => true,
            Table::Turn | Table::Point | Table::Used => self.is_gone(leading_number(key)),
            Table::Fork => self.is_gone(number_of_key(key)),
            Table::Attachment => self.is_gone(references::parse_key(key).map(|(chat, _)| chat.0)),
            _ => false,
        }
    }

    fn rows(&self, log: &dyn Store) -> Result<(), String> {
        let mut put = |rows| Ok(log.append(&[Batch { events: Vec::new(), rows }]).map(drop)?);
        rebuild::rows(log, &mut put).map_err(|fault| fault.to_string())
    }
}
