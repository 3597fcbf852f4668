//! When the fold of a channel is saved, and how.

use bytes::Bytes;

use crate::events::rows;
use crate::events::{Batch, ChannelId, LogFault, RowOp, ServerSeq, Store, Table};

/// When a channel's fold is saved: after this many events, or bytes of actions. A fold that is larger is saved when as much was
/// recorded as the last checkpoint holds, and after that many events only when that is a good part of it: else a long turn would
/// be written again and again, whole.
const CHECKPOINT_EVENTS: u64 = 2_000;
const CHECKPOINT_BYTES: u64 = 256 * 1024;
const GOOD_PART: u64 = 8;
/// Checkpoints of a channel that are kept stand at least this many numbers apart, but for the two newest.
const CHECKPOINTS_APART: ServerSeq = 10_000;

/// A channel's fold since its last checkpoint.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unsaved {
    events: u64,
    bytes: u64,
    /// How long that checkpoint is; 0 where nobody knows.
    saved: u64,
}

impl Unsaved {
    /// What a replay has applied since the checkpoint that it began with.
    pub fn after_replay((events, bytes): (u64, u64)) -> Self {
        Self { events, bytes, saved: 0 }
    }

    /// Nothing, since a checkpoint of this many bytes.
    pub fn after_checkpoint(bytes: usize) -> Self {
        Self { events: 0, bytes: 0, saved: bytes as u64 }
    }

    /// An event with an action of this many bytes was applied.
    pub fn add(&mut self, bytes: usize) {
        self.events += 1;
        self.bytes += bytes as u64;
    }

    /// Whether it is time for a checkpoint.
    pub fn is_due(&self) -> bool {
        self.bytes >= CHECKPOINT_BYTES.max(self.saved)
            || (self.events >= CHECKPOINT_EVENTS && self.bytes >= self.saved / GOOD_PART)
    }

    /// Whether nothing was applied since the checkpoint.
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }
}

/// The batch that saves a channel's fold as it is at this place of the line. A checkpoint that stands close behind another
/// goes when a newer one is written, so that a chat which often falls asleep does not collect them.
pub fn checkpoint(store: &dyn Store, channel: ChannelId, value: Bytes) -> Batch {
    let mut rows = Vec::with_capacity(2);
    // A checkpoint may be deleted at any time: one that cannot be looked up just stays.
    if let Ok(Some(key)) = superfluous(store, channel) {
        rows.push(RowOp::Delete { table: Table::Checkpoint, key });
    }
    rows.push(RowOp::PutKeyedByLast { table: Table::Checkpoint, key: rows::channel_key(channel), channel, value });
    Batch { events: Vec::new(), rows }
}

/// The key of the channel's newest checkpoint, when the one before it is near.
fn superfluous(store: &dyn Store, channel: ChannelId) -> Result<Option<Vec<u8>>, LogFault> {
    let prefix = rows::channel_key(channel);
    let last_before = |upto| store.last_row(Table::Checkpoint, &prefix, &rows::numbered_key(channel, upto));
    let Some((key, _)) = last_before(ServerSeq::MAX)? else { return Ok(None) };
    let Some(newest) = rows::number_of_key(&key).filter(|seq| *seq > 0) else { return Ok(None) };
    let older = last_before(newest - 1)?.and_then(|(key, _)| rows::number_of_key(&key));
    Ok(older.filter(|older| newest - older < CHECKPOINTS_APART).map(|_| key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_for_checkpoints_is_in_proportion_to_what_was_said() {
        // A running turn that only grows, by large outputs and by words.
        for step in [4 << 20, 100_000, 40] {
            let (mut unsaved, mut fold, mut written) = (Unsaved::default(), 0, 0);
            for _ in 0..20_000 {
                fold += step;
                unsaved.add(step);
                if unsaved.is_due() {
                    written += fold;
                    unsaved = Unsaved::after_checkpoint(fold);
                }
            }
            assert!(written > 0 && written <= 9 * fold, "{step}: {written} bytes for a fold of {fold}");
        }
    }
}
