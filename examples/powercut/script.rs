//! What the writer writes, so that the checker can tell it from the number that it begins at.
//!
//! A commit follows from the seed of the run, the life that writes it (how often the power was cut before) and its
//! first number alone. So the checker needs no copy of what was written: it walks what it finds and says what
//! should have been there. The life stands in each record's principal.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use scrollback::events::rows::{ChannelKind, ChannelRow, TurnRow, channel_key, numbered_key, recent_key, used_key};
use scrollback::events::{Batch, Channel, ChannelId, Kind, NewEvent, Origin, Record, RowOp, ServerSeq, Table};

use crate::chance::Chance;

/// Sessions that are written to, as channel numbers. The root is 1.
const SESSIONS: &[u64] = &[2, 3];
/// Chats that are written to, all of the first session.
const CHATS: &[u64] = &[4, 5, 6, 7, 8, 9];
/// All of them.
pub const CHANNELS: [u64; 8] = [2, 3, 4, 5, 6, 7, 8, 9];
/// The largest event or row, in bytes.
const LARGEST: u64 = 200 << 10;
/// The time of the first event, in milliseconds; later ones follow by number.
const EPOCH: i64 = 1_790_000_000_000;

/// What stands in a table, by table and key.
pub type RowMap = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

/// One change of a row with its number filled in; `None` removes the row.
pub type RowChange = ((Table, Vec<u8>), Option<Vec<u8>>);

/// What makes the commits of a run differ from those of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Script {
    /// The seed of the run.
    pub seed: u64,
    /// How often the power had been cut when the writer was started.
    pub life: u64,
}

impl Script {
    /// The commit that begins at `first`: one to three batches, at least one event.
    pub fn commit(self, first: ServerSeq) -> Vec<Batch> {
        let mut chance = Chance::of(&[self.seed, self.life, first]);
        let mut next = first;
        let count = chance.between(1, 3);
        let mut batches: Vec<Batch> = Vec::new();
        for place in 0..count {
            let least = u64::from(place == 0);
            let batch = self.batch(next, least, &mut chance);
            next += batch.events.len() as u64;
            batches.push(batch);
        }
        if first == 1 {
            batches.iter_mut().take(1).for_each(|batch| batch.rows.splice(0..0, channel_rows()).for_each(drop));
        }
        batches
    }

    /// A batch of at least `least` and at most five events, with rows.
    fn batch(self, first: ServerSeq, least: u64, chance: &mut Chance) -> Batch {
        let count = chance.between(least, 5);
        let events: Vec<NewEvent> = (first..first + count).map(|seq| self.event(seq, chance)).collect();
        let mut rows = Vec::new();
        for _ in 0..chance.between(u64::from(count == 0), 4) {
            rows.push(row(first, events.len(), chance));
        }
        Batch { events, rows }
    }

    /// The event with the number `seq`. Nothing but its time and its text depends on the number.
    fn event(self, seq: ServerSeq, chance: &mut Chance) -> NewEvent {
        let id = pick(&CHANNELS, chance);
        // Now and then a large one, of more pieces than one.
        let size = if chance.below(12) == 0 { chance.size(16 << 10, LARGEST) } else { chance.size(100, 8 << 10) };
        let text = chance.text(size);
        let client = chance.below(2) == 0;
        NewEvent {
            channel: Channel::from(uri(id)),
            channel_id: ChannelId(id),
            kind: if chance.below(8) == 0 { Kind::Host } else { Kind::Action },
            at: EPOCH + i64::try_from(seq).unwrap_or(0),
            principal: Arc::from(format!("user:life-{}", self.life)),
            origin: client.then(|| Origin { client_id: chance.text(12), client_seq: chance.below(1 << 40) as i64 }),
            about: (SESSIONS.contains(&id) && chance.below(2) == 0).then(|| ChannelId(pick(CHATS, chance))),
            action: Bytes::from(format!(r#"{{"type":"chat/delta","content":"{text}"}}"#)),
        }
    }
}

/// The life that wrote a record, from its principal.
pub fn life_of(record: &Record) -> Option<u64> {
    record.principal.strip_prefix("user:life-")?.parse().ok()
}

/// The URI of a channel of the script.
pub fn uri(id: u64) -> String {
    let scheme = if SESSIONS.contains(&id) { "ahp-session" } else { "ahp-chat" };
    format!("{scheme}:/powercut-{id}")
}

/// The rows that make the channels known, written with the first batch.
fn channel_rows() -> Vec<RowOp> {
    let rows = CHANNELS.iter().flat_map(|&id| {
        let kind = if SESSIONS.contains(&id) { ChannelKind::Session } else { ChannelKind::Chat };
        let session = if SESSIONS.contains(&id) { id } else { 2 };
        let row = serde_json::to_vec(&ChannelRow { id, kind, session }).unwrap_or_default();
        let by_uri = RowOp::Put { table: Table::ChannelByUri, key: uri(id).into_bytes(), value: row.into() };
        let by_id = RowOp::Put {
            table: Table::ChannelById,
            key: channel_key(ChannelId(id)),
            value: uri(id).into_bytes().into(),
        };
        [by_uri, by_id]
    });
    rows.collect()
}

/// One change of a row of any kind, in a batch of `events` events that begins at `first`.
fn row(first: ServerSeq, events: usize, chance: &mut Chance) -> RowOp {
    let chat = ChannelId(pick(CHATS, chance));
    let kind = if events == 0 { chance.below(5) } else { chance.below(7) };
    let event = chance.below(events as u64) as usize;
    match kind {
        // A turn that ended: written once, under a key of its own.
        0 => {
            let row = TurnRow { prev: first, jump: first / 2, ordinal: chance.below(99), rewindable: true };
            let size = chance.size(100, LARGEST / 2);
            let value = row.encode(chance.text(size).as_bytes()).into();
            RowOp::Put { table: Table::Turn, key: numbered_key(chat, first), value }
        }
        // The catalogue: written over and over.
        1 => {
            let session = ChannelId(pick(SESSIONS, chance));
            let size = chance.size(200, 4 << 10);
            RowOp::Put { table: Table::Session, key: channel_key(session), value: value(size, chance) }
        }
        // Rows without a value that come and go, under a few keys.
        2 => RowOp::Put { table: Table::Used, key: some_used_key(chat, chance), value: Bytes::new() },
        3 => RowOp::Delete { table: Table::Used, key: some_used_key(chat, chance) },
        // A checkpoint: large, and named by what is newest in its channel.
        4 => {
            let size = chance.size(1 << 10, LARGEST);
            let (table, key) = (Table::Checkpoint, channel_key(chat));
            RowOp::PutKeyedByLast { table, key, channel: chat, value: value(size, chance) }
        }
        5 => {
            let head = value(8, chance);
            RowOp::PutKeyedBySeq { table: Table::Head, key: channel_key(chat), event, value: head }
        }
        _ => {
            let key = recent_key(chance.below(1 << 40) as i64, chat);
            RowOp::PutWithSeq { table: Table::Dispatched, key, event, value: value(8, chance) }
        }
    }
}

/// One of twenty keys of a chat's used ids.
fn some_used_key(chat: ChannelId, chance: &mut Chance) -> Vec<u8> {
    used_key(chat, b'm', &format!("message-{}", chance.below(20)))
}

/// A value of `size` bytes.
fn value(size: usize, chance: &mut Chance) -> Bytes {
    chance.text(size).into()
}

/// One of `from`, which is not empty.
fn pick(from: &[u64], chance: &mut Chance) -> u64 {
    let place = chance.below(from.len() as u64) as usize;
    from.get(place).copied().unwrap_or_default()
}

/// The newest number of each channel, from which numbers in rows are filled in.
#[derive(Debug, Default)]
pub struct Line {
    last: BTreeMap<ChannelId, ServerSeq>,
}

impl Line {
    /// What `batches` leave in a store when they are appended at `first`: its records and, in order, its changes of
    /// rows. This is the contract of `EventLog::append`, said a second time.
    pub fn append(&mut self, first: ServerSeq, batches: &[Batch]) -> (Vec<Record>, Vec<RowChange>) {
        let (mut records, mut changes, mut next) = (Vec::new(), Vec::new(), first);
        for batch in batches {
            let start = next;
            let end = start + batch.events.len() as u64;
            for (seq, event) in (start..).zip(&batch.events) {
                self.last.insert(event.channel_id, seq);
                records.push(record(seq, (start, end - 1), event));
            }
            changes.extend(batch.rows.iter().map(|op| self.change(start, op)));
            next = end;
        }
        (records, changes)
    }

    /// The newest number of `channel`, 0 where it has none.
    pub fn last_of(&self, channel: ChannelId) -> ServerSeq {
        self.last.get(&channel).copied().unwrap_or(0)
    }

    /// What `op`, in a batch that begins at `start`, does to which row.
    fn change(&self, start: ServerSeq, op: &RowOp) -> RowChange {
        let then = |key: &[u8], number: u64| [key, &number.to_be_bytes()].concat();
        match op {
            RowOp::Put { table, key, value } => ((*table, key.clone()), Some(value.to_vec())),
            RowOp::Delete { table, key } => ((*table, key.clone()), None),
            RowOp::PutKeyedBySeq { table, key, event, value } => {
                ((*table, then(key, start + *event as u64)), Some(value.to_vec()))
            }
            RowOp::PutWithSeq { table, key, event, value } => {
                let number = (start + *event as u64).to_be_bytes();
                ((*table, key.clone()), Some([&number, value.as_ref()].concat()))
            }
            RowOp::PutKeyedByLast { table, key, channel, value } => {
                ((*table, then(key, self.last_of(*channel))), Some(value.to_vec()))
            }
        }
    }
}

/// `event` as it is read back.
fn record(seq: ServerSeq, batch: (ServerSeq, ServerSeq), event: &NewEvent) -> Record {
    Record {
        seq,
        channel: event.channel.clone(),
        channel_id: event.channel_id,
        kind: event.kind,
        at: event.at,
        principal: event.principal.to_string(),
        origin: event.origin.clone(),
        about: event.about,
        covers_from: None,
        batch,
        action: event.action.clone(),
    }
}
