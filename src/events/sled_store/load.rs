//! Records that are put into a log as they are: with the numbers, the batches and the times that they have.
//!
//! For what copies a log from elsewhere into a new directory, which nobody reads before it is whole. Rows are not loaded but made of
//! the records; what no record says is appended beside them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::Ordering;

use super::runs::{Directory, RunWriter};
use super::tree::{Changes, Unread};
use super::{SledStore, keys, remember};
use crate::events::{Channel, ChannelId, EventLog, LogFault, Record, ServerSeq, Table, codec, rows};

impl SledStore {
    /// Puts `records`, which stand behind what is here and ascend, into the log as one step. Their channels become known by number.
    ///
    /// # Errors
    /// [`LogFault::Damaged`], with nothing written, for records that do not ascend and for a channel's number that belongs to
    /// another one; those of [`EventLog::append`].
    pub fn load(&self, records: &[Record]) -> Result<(), LogFault> {
        let mut writer = self.writer();
        writer.refuse_when_read_only()?;
        let (Some(first), Some(last)) = (records.first(), records.last()) else { return Ok(()) };
        let previous = self.tail();
        let mut changes = Changes::default();
        let mut named: BTreeMap<ChannelId, Channel> = BTreeMap::new();
        let mut runs: BTreeMap<ChannelId, (ServerSeq, RunWriter)> = BTreeMap::new();
        let mut before = previous;
        for record in records {
            let unfit = |problem: String| LogFault::Damaged { place: format!("event {}", record.seq), problem };
            if record.seq <= before {
                return Err(unfit(format!("it stands behind event {before}")));
            }
            before = record.seq;
            let id = record.channel_id;
            let known = named.get(&id).cloned().map_or_else(|| self.stored_name(id), |name| Ok(Some(name)))?;
            match known {
                Some(name) if name == record.channel => {}
                Some(name) => return Err(unfit(format!("channel {} is {name}, not {}", id.0, record.channel))),
                None if id.0 == 0 => return Err(unfit("channel 0 stands for none".into())),
                None => {
                    let key = keys::row(Table::ChannelById, &rows::channel_key(id));
                    changes.put(&key, record.channel.as_str().as_bytes()).map_err(unfit)?;
                }
            }
            named.entry(id).or_insert_with(|| record.channel.clone());
            let (_, run) = match runs.entry(id) {
                Entry::Occupied(run) => run.into_mut(),
                Entry::Vacant(none) => {
                    let newest = match writer.newest.get(&id) {
                        Some(seq) => Some(*seq),
                        None => self.newest_at(id, ServerSeq::MAX)?,
                    };
                    none.insert((record.seq, RunWriter::new(newest.unwrap_or(0))))
                }
            };
            run.push(record.seq, |out| codec::encode_record(record, out).map_err(|e| e.to_string())).map_err(unfit)?;
        }
        let unfit = |problem| Unread::Damaged(problem).at("records to load");
        let directory = Directory {
            previous,
            last: last.seq,
            events: u32::try_from(records.len()).unwrap_or(u32::MAX),
            has_erased: false,
            runs: runs.iter().map(|(channel, (first, _))| (*channel, *first)).collect(),
        };
        changes.put(&keys::directory(first.seq), &directory.to_bytes()).map_err(unfit)?;
        for (channel, (first, run)) in runs {
            changes.put(&keys::run(channel, first), &run.finish()).map_err(unfit)?;
        }
        let highest = named.last_key_value().map_or(0, |(id, _)| id.0);
        if highest > writer.highest_channel {
            changes.put(&keys::highest_channel(), &highest.to_be_bytes()).map_err(unfit)?;
        }
        let next = last.seq.saturating_add(1);
        self.reserve(&mut writer, next)?;
        self.write(changes).map_err(|cause| writer.fail(cause))?;
        writer.highest_channel = writer.highest_channel.max(highest);
        self.channels.fetch_max(highest, Ordering::AcqRel);
        for record in records {
            remember(&mut writer.newest, record.channel_id, record.seq);
        }
        named.into_iter().for_each(|(id, name)| self.names.set(id, Some(name)));
        self.next.fetch_max(next, Ordering::AcqRel);
        self.tail.store(last.seq, Ordering::Release);
        Ok(())
    }

    /// Lets numbers go on at `next`, and those of channels above `channels`: those before were given where the log comes from.
    ///
    /// # Errors
    /// Those of [`EventLog::append`].
    pub fn go_on_at(&self, next: ServerSeq, channels: ChannelId) -> Result<(), LogFault> {
        let mut writer = self.writer();
        writer.refuse_when_read_only()?;
        let unfit = |problem| Unread::Damaged(problem).at("records to load");
        if channels.0 > writer.highest_channel {
            let mut changes = Changes::default();
            changes.put(&keys::highest_channel(), &channels.0.to_be_bytes()).map_err(unfit)?;
            self.write(changes).map_err(|cause| writer.fail(cause))?;
            writer.highest_channel = channels.0;
            self.channels.fetch_max(channels.0, Ordering::AcqRel);
        }
        self.reserve(&mut writer, next)?;
        self.next.fetch_max(next, Ordering::AcqRel);
        Ok(())
    }
}
