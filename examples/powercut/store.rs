//! The store of the host, as the victim that must hold.

use std::ops::ControlFlow;
use std::path::Path;

use scrollback::events::{
    Batch, ChannelId, DataDirectory, EventLog, LogFault, Record, Rows, ServerSeq, SledOptions, SledStore, Table,
};

use crate::script::{CHANNELS, Line, RowMap};
use crate::victim::Victim;

/// The store in a data directory of its own, as `scrollback serve` opens it.
pub struct HostStore {
    store: SledStore,
    /// Held as long as the store is open.
    _directory: DataDirectory,
}

impl HostStore {
    /// Opens or makes the data directory `folder` and its store.
    ///
    /// # Errors
    /// What the store says.
    pub fn open(folder: &Path) -> Result<Self, String> {
        let directory = DataDirectory::open_or_create(folder).map_err(text)?;
        let store = SledStore::open(folder, SledOptions::default()).map_err(text)?;
        Ok(Self { store, _directory: directory })
    }
}

impl Victim for HostStore {
    fn next_seq(&self) -> ServerSeq {
        self.store.next_seq()
    }

    fn append(&mut self, batches: &[Batch]) -> Result<(), String> {
        self.store.append(batches).map(drop).map_err(text)
    }

    fn read(&self) -> Result<(Vec<Record>, RowMap), String> {
        let records = collect(|visit| self.store.scan(0, self.store.tail(), visit))?;
        let mut rows = RowMap::new();
        for &table in Table::ALL {
            let mut visit = |key: &[u8], value: &[u8]| {
                rows.insert((table, key.to_vec()), value.to_vec());
                ControlFlow::Continue(())
            };
            self.store.scan_rows(table, &[], None, &mut visit).map_err(text)?;
        }
        Ok((records, rows))
    }

    /// Each channel by its own scan, its newest number, and a channel number that is given next.
    fn cross_check(&self, records: &[Record], line: &Line) -> Result<(), String> {
        let tail = self.store.tail();
        for channel in CHANNELS.map(ChannelId) {
            let alone = collect(|visit| self.store.scan_channel(channel, 0, tail, visit))?;
            let among = records.iter().filter(|record| record.channel_id == channel);
            if !alone.iter().eq(among) {
                return Err(format!("channel {} reads otherwise alone than among all", channel.0));
            }
            let last = self.store.last_of(channel, tail).map_err(text)?.unwrap_or(0);
            if last != line.last_of(channel) {
                return Err(format!(
                    "channel {} ends at {}, and the store says {last}",
                    channel.0,
                    line.last_of(channel)
                ));
            }
        }
        let given = self.store.new_channel_id();
        if !records.is_empty() && CHANNELS.contains(&given.0) {
            return Err(format!("the channel number {} was given a second time", given.0));
        }
        Ok(())
    }
}

/// All records that a scan visits.
fn collect(
    scan: impl FnOnce(&mut dyn FnMut(Record) -> ControlFlow<()>) -> Result<(), LogFault>,
) -> Result<Vec<Record>, String> {
    let mut records = Vec::new();
    let mut visit = |record| {
        records.push(record);
        ControlFlow::Continue(())
    };
    scan(&mut visit).map_err(text)?;
    Ok(records)
}

/// A fault as text.
fn text(fault: LogFault) -> String {
    fault.to_string()
}
