//! Batches with their numbers given: what every store writes, worked out once for all of them.
//!
//! Pure but for two questions to the store: the newest event of a channel, and a channel's stored name. Each store
//! then only has to write what is here in one atomic step.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

use super::rows::channel_key;
use super::{Batch, Channel, ChannelId, ChannelKind, ChannelRow, LogFault, NewEvent, RowOp, ServerSeq, Table};

/// A table and a key in it.
pub(super) type RowKey = (Table, Vec<u8>);

/// The rows that an append leaves: a value, or `None` for a row that is to be gone. The last operation on a key wins.
pub(super) type RowChanges = BTreeMap<RowKey, Option<Bytes>>;

/// An event with its number.
pub(super) struct Numbered<'a> {
    pub seq: ServerSeq,
    /// The first and the last number of its batch.
    pub batch: (ServerSeq, ServerSeq),
    pub event: &'a NewEvent,
}

/// An append that is ready to be written.
pub(super) struct Staged<'a> {
    /// What [`super::EventLog::append`] returns.
    pub firsts: Vec<ServerSeq>,
    pub events: Vec<Numbered<'a>>,
    pub rows: RowChanges,
    /// The number after the last one given.
    pub next: ServerSeq,
    /// The highest channel number that the append mentions, 0 for none.
    pub highest_channel: u64,
}

impl Staged<'_> {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.rows.is_empty()
    }
}

/// What staging asks of a store.
pub(super) trait Known {
    /// The newest stored event of a channel.
    fn newest_of(&self, channel: ChannelId) -> Result<Option<ServerSeq>, LogFault>;
    /// The stored URI of a channel.
    fn name_of(&self, channel: ChannelId) -> Result<Option<Channel>, LogFault>;
}

/// Gives numbers from `next` on to the events of `batches`, and resolves the operations on rows.
///
/// A channel that gets its first event also gets its row in [`Table::ChannelById`], without which its records could
/// not be read back; a row for it in the batch itself is kept.
///
/// # Errors
/// [`LogFault::Damaged`], with nothing written, for an operation that names an event which its batch does not have,
/// and for a channel number that belongs to another URI. Faults of the store's answers.
pub(super) fn stage<'a>(batches: &'a [Batch], next: ServerSeq, known: &dyn Known) -> Result<Staged<'a>, LogFault> {
    let mut stage = Stage {
        known,
        newest: HashMap::new(),
        staged: Staged {
            firsts: Vec::with_capacity(batches.len()),
            events: Vec::new(),
            rows: BTreeMap::new(),
            next,
            highest_channel: 0,
        },
    };
    for (index, batch) in batches.iter().enumerate() {
        stage.batch(batch).map_err(|problem| problem.in_batch(index))?;
    }
    Ok(stage.staged)
}

/// The rows of the root channel, which every store has from its creation.
pub(super) fn root_rows() -> Result<[(RowKey, Bytes); 2], LogFault> {
    let root = Channel::root();
    let row = ChannelRow { id: ChannelId::ROOT.0, kind: ChannelKind::Root, session: 0 };
    let row = serde_json::to_vec(&row).map_err(|e| LogFault::Engine(format!("the root channel's row: {e}")))?;
    let uri = root.as_str().as_bytes().to_vec();
    Ok([
        ((Table::ChannelByUri, uri.clone()), Bytes::from(row)),
        ((Table::ChannelById, channel_key(ChannelId::ROOT)), Bytes::from(uri)),
    ])
}

/// Why a batch cannot be staged.
enum Problem {
    Fault(LogFault),
    Unfit(String),
}

impl Problem {
    fn in_batch(self, index: usize) -> LogFault {
        match self {
            Problem::Fault(fault) => fault,
            Problem::Unfit(problem) => LogFault::Damaged { place: format!("batch {index} of an append"), problem },
        }
    }
}

impl From<LogFault> for Problem {
    fn from(fault: LogFault) -> Self {
        Problem::Fault(fault)
    }
}

struct Stage<'a, 'k> {
    known: &'k dyn Known,
    /// The newest event of each channel that the append wrote so far, and the channel's name.
    newest: HashMap<ChannelId, (ServerSeq, &'a Channel)>,
    staged: Staged<'a>,
}

impl<'a> Stage<'a, '_> {
    fn batch(&mut self, batch: &'a Batch) -> Result<(), Problem> {
        let first = self.staged.next;
        let next = first.saturating_add(batch.events.len() as u64);
        if next > super::SERVER_SEQ_MAX {
            return Err(Problem::Unfit("the numbers of the line are used up".to_owned()));
        }
        self.staged.firsts.push(first);
        for (seq, event) in (first..).zip(&batch.events) {
            self.channel(event)?;
            self.newest.insert(event.channel_id, (seq, &event.channel));
            self.staged.events.push(Numbered { seq, batch: (first, next.saturating_sub(1)), event });
        }
        self.staged.next = next;
        batch.rows.iter().try_for_each(|op| self.row(op, first, batch.events.len()))
    }

    /// Sees to it that the event's channel can be named when it is read back.
    fn channel(&mut self, event: &NewEvent) -> Result<(), Problem> {
        let id = event.channel_id;
        let other = |name: &Channel| Problem::Unfit(format!("channel {} is {name}, not {}", id.0, event.channel));
        if let Some((_, name)) = self.newest.get(&id) {
            return if **name == event.channel { Ok(()) } else { Err(other(name)) };
        }
        self.staged.highest_channel = self.staged.highest_channel.max(id.0);
        match self.known.name_of(id)? {
            Some(name) if name == event.channel => {}
            Some(name) => return Err(other(&name)),
            None if id.0 == 0 => return Err(Problem::Unfit("channel 0 stands for none".to_owned())),
            None => {
                let uri = Bytes::copy_from_slice(event.channel.as_str().as_bytes());
                self.staged.rows.entry((Table::ChannelById, channel_key(id))).or_insert(Some(uri));
            }
        }
        Ok(())
    }

    fn row(&mut self, op: &RowOp, first: ServerSeq, events: usize) -> Result<(), Problem> {
        let number = |event: usize| -> Result<ServerSeq, Problem> {
            if event >= events {
                return Err(Problem::Unfit(format!("a row names event {event} of {events}")));
            }
            Ok(first.saturating_add(event as u64))
        };
        let (table, key, value) = match op {
            RowOp::Put { table, key, value } => (*table, key.clone(), Some(value.clone())),
            RowOp::Delete { table, key } => (*table, key.clone(), None),
            RowOp::PutKeyedBySeq { table, key, event, value } => {
                (*table, with_number(key, number(*event)?), Some(value.clone()))
            }
            RowOp::PutWithSeq { table, key, event, value } => {
                (*table, key.clone(), Some(number_before(number(*event)?, value)))
            }
            RowOp::PutKeyedByLast { table, key, channel, value } => {
                (*table, with_number(key, self.newest(*channel)?), Some(value.clone()))
            }
        };
        if table == Table::ChannelById && value.is_some() {
            let id = super::rows::number_of_key(&key).unwrap_or(0);
            self.staged.highest_channel = self.staged.highest_channel.max(id);
        }
        self.staged.rows.insert((table, key), value);
        Ok(())
    }

    /// The newest event of `channel` at this place of the line, 0 for none.
    fn newest(&self, channel: ChannelId) -> Result<ServerSeq, LogFault> {
        match self.newest.get(&channel) {
            Some((seq, _)) => Ok(*seq),
            None => Ok(self.known.newest_of(channel)?.unwrap_or(0)),
        }
    }
}

fn with_number(key: &[u8], number: u64) -> Vec<u8> {
    let mut whole = key.to_vec();
    whole.extend_from_slice(&number.to_be_bytes());
    whole
}

fn number_before(number: u64, value: &[u8]) -> Bytes {
    let mut whole = number.to_be_bytes().to_vec();
    whole.extend_from_slice(value);
    Bytes::from(whole)
}
