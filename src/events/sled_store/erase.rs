//! Events that are removed for good, or what they say: their runs are written again, and the directories of their commits say
//! what is missing.
//!
//! One atomic step, however many they are. What is left names what is before it as if they had never been, so that a scan finds
//! no gap.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::log::{channel_prefix, decoded, upto};
use super::runs::{Directory, Run, RunWriter};
use super::tree::{Changes, Unread, Values};
use super::{SledStore, keys, pieces, remember};
use crate::events::{ChannelId, Fate, LogFault, Record, ServerSeq, codec};

/// The directories that change, by key, each with the pieces that it had.
type Directories = BTreeMap<Vec<u8>, (Directory, usize)>;

impl SledStore {
    /// See [`crate::events::EventLog::erase`].
    pub(super) fn remove_events(&self, channel: ChannelId, fate: &dyn Fn(&Record) -> Fate) -> Result<u64, LogFault> {
        let mut writer = self.writer();
        writer.refuse_when_read_only()?;
        let Some(name) = self.stored_name(channel)? else { return Ok(0) };
        let place = |unread: Unread| unread.at(format!("the runs of channel {}", channel.0));
        let mut changes = Changes::default();
        let mut directories = Directories::new();
        let (mut gone, mut last) = (0u64, 0);
        let bounds = upto(channel_prefix(channel), &keys::run(channel, ServerSeq::MAX));
        for (key, value) in Values::new(self.engine().tree.range(bounds).map_err(place)?) {
            let first = keys::first_of(&key);
            let value = value.map_err(place)?;
            let had = pieces::count(value.len());
            let run = Run::parse(value, first).map_err(|e| place(Unread::Damaged(e)))?;
            let mut rest = RunWriter::new(last);
            let mut kept = Vec::with_capacity(run.entries.len());
            let mut said = 0;
            for (seq, range) in &run.entries {
                let record = decoded(&run, *seq, range, &name, channel)?;
                let bytes = match fate(&record) {
                    Fate::Goes => continue,
                    Fate::Stays => run.record(range).to_vec(),
                    Fate::Says(action) => {
                        said += 1;
                        again(record, action).map_err(|e| place(Unread::Damaged(e)))?
                    }
                };
                rest.push(*seq, |out| {
                    out.extend_from_slice(&bytes);
                    Ok(())
                })
                .map_err(|e| place(Unread::Damaged(e)))?;
                kept.push(*seq);
            }
            let dropped = run.entries.len() - kept.len();
            if dropped == 0 && said == 0 && run.previous == last {
                last = run.last();
                continue;
            }
            gone += dropped as u64 + said;
            last = kept.last().copied().unwrap_or(last);
            let stays = kept.first().map(|first| keys::run(channel, *first));
            let mut pieces_now = 0;
            if let Some(stays) = &stays {
                let value = rest.finish();
                if *stays == key {
                    pieces_now = pieces::count(value.len());
                }
                changes.put(stays, &value).map_err(|e| place(Unread::Damaged(e)))?;
            }
            changes.remove(&key, pieces_now, had);
            if dropped > 0 {
                let directory = self.directory_of(first, &mut directories)?;
                directory.erase((channel, first), kept.first().copied(), dropped);
            }
        }
        for (key, (directory, had)) in directories {
            let value = directory.to_bytes();
            changes.put(&key, &value).map_err(|e| place(Unread::Damaged(e)))?;
            changes.remove(&key, pieces::count(value.len()), had);
        }
        // A write that finds no room would leave the log read-only.
        self.refuse_without_room(changes.bytes)?;
        self.write(changes).map_err(|cause| writer.fail(cause))?;
        if let Some(changed) = writer.changed.as_mut().filter(|_| gone > 0) {
            changed.erased = true;
        }
        writer.newest.remove(&channel);
        if last != 0 {
            remember(&mut writer.newest, channel, last);
        }
        Ok(gone)
    }

    /// The directory of the commit that event `first` is in.
    fn directory_of<'a>(&self, first: ServerSeq, found: &'a mut Directories) -> Result<&'a mut Directory, LogFault> {
        let place = |unread: Unread| unread.at(format!("the commit of event {first}"));
        let missing = || LogFault::Damaged {
            place: format!("the commit of event {first}"),
            problem: "its directory is missing".to_owned(),
        };
        let engine = self.engine();
        let key = engine.tree.last_key(b"O", &keys::directory(first)).map_err(place)?.ok_or_else(missing)?;
        match found.entry(key) {
            Entry::Occupied(known) => Ok(&mut known.into_mut().0),
            Entry::Vacant(new) => {
                let value = engine.tree.get(new.key()).map_err(place)?.ok_or_else(missing)?;
                let directory = Directory::parse(&value).map_err(|e| place(Unread::Damaged(e)))?;
                Ok(&mut new.insert((directory, pieces::count(value.len()))).0)
            }
        }
    }
}

/// The bytes of a record that says something else now.
fn again(record: Record, action: bytes::Bytes) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    codec::encode_record(&Record { action, ..record }, &mut bytes).map_err(|e| e.to_string())?;
    Ok(bytes)
}
