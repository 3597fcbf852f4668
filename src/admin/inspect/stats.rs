//! What the log holds, by channel and by type.

use std::collections::HashMap;
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use crate::events::{ChannelId, LogFault, Record, Store};
use crate::projections::action::type_of;

/// The answer of `log stats` and `/api/log/stats`. Bytes are those of the actions as they are stored.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogStats {
    pub events: u64,
    pub bytes: u64,
    /// What the store takes on disk, with rows and checkpoints.
    pub disk_bytes: u64,
    /// The first number; 0 for an empty log.
    pub oldest: u64,
    pub newest: u64,
    /// The largest first.
    pub channels: Vec<ChannelStats>,
    /// The largest first.
    pub types: Vec<TypeStats>,
}

/// The events of one channel.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelStats {
    pub channel: String,
    pub events: u64,
    pub bytes: u64,
}

/// The events of one type.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeStats {
    #[serde(rename = "type")]
    pub kind: String,
    pub events: u64,
    pub bytes: u64,
}

#[derive(Default)]
struct Sums {
    total: LogStats,
    channels: HashMap<ChannelId, ChannelStats>,
    types: HashMap<String, TypeStats>,
}

impl LogStats {
    /// Reads the whole log.
    ///
    /// # Errors
    /// [`LogFault`] at the first event that cannot be read.
    pub fn of(store: &dyn Store) -> Result<Self, LogFault> {
        let mut sums = Sums::default();
        store.scan(0, store.tail(), &mut |record| {
            sums.add(&record);
            ControlFlow::Continue(())
        })?;
        Ok(sums.into_stats(store.disk_bytes()))
    }
}

impl Sums {
    fn add(&mut self, record: &Record) {
        let bytes = record.action.len() as u64;
        if self.total.events == 0 {
            self.total.oldest = record.seq;
        }
        self.total.newest = record.seq;
        self.total.events += 1;
        self.total.bytes += bytes;
        let channel = self.channels.entry(record.channel_id).or_insert_with(|| ChannelStats {
            channel: record.channel.to_string(),
            events: 0,
            bytes: 0,
        });
        channel.events += 1;
        channel.bytes += bytes;
        self.add_type(&type_of(&record.action), bytes);
    }

    fn add_type(&mut self, kind: &str, bytes: u64) {
        if !self.types.contains_key(kind) {
            self.types.insert(kind.to_owned(), TypeStats { kind: kind.to_owned(), events: 0, bytes: 0 });
        }
        if let Some(sum) = self.types.get_mut(kind) {
            sum.events += 1;
            sum.bytes += bytes;
        }
    }

    fn into_stats(self, disk_bytes: u64) -> LogStats {
        let mut channels: Vec<ChannelStats> = self.channels.into_values().collect();
        channels.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.channel.cmp(&b.channel)));
        let mut types: Vec<TypeStats> = self.types.into_values().collect();
        types.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.kind.cmp(&b.kind)));
        LogStats { disk_bytes, channels, types, ..self.total }
    }
}
