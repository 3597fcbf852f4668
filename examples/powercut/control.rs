//! The controls: bare sled, once as its documentation says to use it, with `flush()` after each batch, and once with an
//! fdatasync of its file after that.
//!
//! The first must lose. On Linux `flush()` ends in `sync_file_range`, which does not reach the drive's cache, so power cuts must lose what it
//! acknowledged. If they do not, the rig cuts nothing and its verdict on the real store is worth nothing. All else is as
//! good as can be, so that this is the only cause: the files and folders are synced once when they are made, segments
//! are large and values small, so that nothing goes to sled's `blobs/`. The second must hold: where it loses, the rig is
//! harsher than a power cut, or sled has another hole. It runs only when it is asked for.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use bytes::Bytes;
use scrollback::events::{Batch, Channel, ChannelId, Kind, Origin, Record, ServerSeq, Table};

use crate::script::{Line, RowMap};
use crate::victim::Victim;

/// The first byte of a record's keys; its number and a number of the piece follow.
const RECORD: u8 = b'E';
/// The first byte of a row's keys; table, key and a number of the piece follow.
const ROW: u8 = b'R';
/// Bytes of a piece: under the size at which sled moves a value to `blobs/`.
const PIECE: usize = 32 << 10;
/// More pieces than any value of the script has.
const PIECES: u8 = 16;

/// A record without its action, as the control stores it.
type Header = (u64, String, bool, i64, String, Option<(String, i64)>, Option<u64>, (u64, u64));

/// Bare sled.
pub struct BareSled {
    db: sled::Db,
    /// Its file, where it is synced after each flush.
    synced: Option<File>,
    next: ServerSeq,
    line: Line,
}

impl BareSled {
    /// Opens or makes the store in `folder`; `fdatasync` says whether a flush is followed by one.
    ///
    /// # Errors
    /// What sled or the file system says.
    pub fn open(folder: &Path, fdatasync: bool) -> Result<Self, String> {
        let config = sled::Config::new().path(folder).cache_capacity(64 << 20).segment_size(4 << 20);
        let db = config.open().map_err(text)?;
        db.flush().map_err(text)?;
        sync_all_below(folder).map_err(text)?;
        let newest = db.scan_prefix([RECORD]).keys().next_back().transpose().map_err(text)?;
        let next = newest.as_deref().and_then(number_of_record).map_or(1, |seq| seq + 1);
        let synced = fdatasync.then(|| File::open(folder.join("db"))).transpose().map_err(text)?;
        Ok(Self { db, synced, next, line: Line::default() })
    }
}

impl Victim for BareSled {
    fn next_seq(&self) -> ServerSeq {
        self.next
    }

    fn append(&mut self, batches: &[Batch]) -> Result<(), String> {
        let (records, changes) = self.line.append(self.next, batches);
        let mut batch = sled::Batch::default();
        for record in &records {
            put(&mut batch, &record_key(record.seq), &encode(record)?);
        }
        for ((table, key), value) in changes {
            let key = row_key(table, &key);
            (0..PIECES).for_each(|piece| batch.remove(piece_key(&key, piece)));
            if let Some(value) = value {
                put(&mut batch, &key, &value);
            }
        }
        self.db.apply_batch(batch).map_err(text)?;
        self.db.flush().map_err(text)?;
        self.synced.as_ref().map_or(Ok(()), File::sync_data).map_err(text)?;
        self.next += records.len() as u64;
        Ok(())
    }

    fn read(&self) -> Result<(Vec<Record>, RowMap), String> {
        let (mut records, mut rows) = (Vec::new(), RowMap::new());
        for (key, value) in whole(&self.db, RECORD)? {
            let seq = number_of_record(&key).ok_or("a record under no number")?;
            records.push(decode(seq, &value)?);
        }
        for (key, value) in whole(&self.db, ROW)? {
            let table = Table::ALL.iter().copied().find(|table| key.get(1) == Some(&(*table as u8)));
            let key = key.get(2..).unwrap_or_default().to_vec();
            rows.insert((table.ok_or("a row of no table")?, key), value);
        }
        Ok((records, rows))
    }
}

/// Syncs every file below `folder`, the folders, and the one that `folder` is in.
fn sync_all_below(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { sync_all_below(&path)? } else { File::open(&path)?.sync_all()? }
    }
    File::open(folder)?.sync_all()?;
    folder.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

/// Puts `value` under `key`, in pieces; an empty one has one piece.
fn put(batch: &mut sled::Batch, key: &[u8], value: &[u8]) {
    let count = value.len().div_ceil(PIECE).max(1);
    let pieces = value.chunks(PIECE).chain([&[][..]]).take(count);
    (0..).zip(pieces).for_each(|(piece, bytes)| batch.insert(piece_key(key, piece), bytes));
}

/// All values whose keys begin with `kind`, put together again, by key.
fn whole(db: &sled::Db, kind: u8) -> Result<Vec<(Vec<u8>, Vec<u8>)>, String> {
    let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for entry in db.scan_prefix([kind]) {
        let (key, bytes) = entry.map_err(text)?;
        let Some((piece, key)) = key.split_last() else { continue };
        match found.last_mut() {
            Some((last, value)) if *piece > 0 && last == key => value.extend_from_slice(&bytes),
            _ => found.push((key.to_vec(), bytes.to_vec())),
        }
    }
    Ok(found)
}

/// `key` followed by the number of a piece.
fn piece_key(key: &[u8], piece: u8) -> Vec<u8> {
    [key, &[piece]].concat()
}

/// The key of a record, without the number of a piece.
fn record_key(seq: ServerSeq) -> Vec<u8> {
    [&[RECORD][..], &seq.to_be_bytes()].concat()
}

/// The number in the key of a record, with or without the number of a piece.
fn number_of_record(key: &[u8]) -> Option<ServerSeq> {
    Some(u64::from_be_bytes(key.get(1..9)?.try_into().ok()?))
}

/// The key of a row, without the number of a piece.
fn row_key(table: Table, key: &[u8]) -> Vec<u8> {
    [&[ROW, table as u8][..], key].concat()
}

/// A record as bytes: its header as a line of JSON, then the action.
fn encode(record: &Record) -> Result<Vec<u8>, String> {
    let header: Header = (
        record.channel_id.0,
        record.channel.to_string(),
        record.kind == Kind::Host,
        record.at,
        record.principal.clone(),
        record.origin.as_ref().map(|origin| (origin.client_id.clone(), origin.client_seq)),
        record.about.map(|about| about.0),
        record.batch,
    );
    let mut bytes = serde_json::to_vec(&header).map_err(text)?;
    bytes.push(b'\n');
    bytes.extend_from_slice(&record.action);
    Ok(bytes)
}

/// The record of such bytes.
fn decode(seq: ServerSeq, bytes: &[u8]) -> Result<Record, String> {
    let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
    let header: Header = serde_json::from_slice(parts.next().unwrap_or_default()).map_err(text)?;
    let (channel_id, channel, host, at, principal, origin, about, batch) = header;
    Ok(Record {
        seq,
        channel: Channel::from(channel),
        channel_id: ChannelId(channel_id),
        kind: if host { Kind::Host } else { Kind::Action },
        at,
        principal,
        origin: origin.map(|(client_id, client_seq)| Origin { client_id, client_seq }),
        about: about.map(ChannelId),
        covers_from: None,
        batch,
        action: Bytes::copy_from_slice(parts.next().ok_or("a record without an action")?),
    })
}

/// An error as text.
fn text(error: impl ToString) -> String {
    error.to_string()
}
