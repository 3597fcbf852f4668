//! The keys of the one tree.
//!
//! A key is a prefix byte, what it names in big-endian, and the number of a piece (`u16`). The prefix is `E` for a run
//! of events, `O` for the directory of a commit, `N` for what the store notes of itself, or the byte of a table.
//! Frozen by `docs/adr/0002-key-layout.md`.

use crate::events::{ChannelId, ServerSeq, Table};

/// Bytes of a piece's number at the end of each key.
pub const SUFFIX: usize = 2;

/// A key without the number of a piece.
pub type Key = Vec<u8>;

/// The run of `channel` that begins with event `first`.
pub fn run(channel: ChannelId, first: ServerSeq) -> Key {
    numbers(b'E', &[channel.0, first])
}

/// The directory of the commit that begins with event `first`.
pub fn directory(first: ServerSeq) -> Key {
    numbers(b'O', &[first])
}

/// Where the highest channel number that was ever stored is noted.
pub fn highest_channel() -> Key {
    vec![b'N', b'c']
}

/// A row of a table.
pub fn row(table: Table, key: &[u8]) -> Key {
    let mut whole = Vec::with_capacity(key.len().saturating_add(1));
    whole.push(table as u8);
    whole.extend_from_slice(key);
    whole
}

/// The key of piece `number` as the tree has it.
pub fn piece(key: &[u8], number: u16) -> Vec<u8> {
    let mut whole = Vec::with_capacity(key.len().saturating_add(SUFFIX));
    whole.extend_from_slice(key);
    whole.extend_from_slice(&number.to_be_bytes());
    whole
}

/// A key of the tree as key and number of a piece.
pub fn split(stored: &[u8]) -> Option<(&[u8], u16)> {
    let (key, number) = stored.split_last_chunk::<SUFFIX>()?;
    Some((key, u16::from_be_bytes(*number)))
}

/// The number at the end of the key of a run or a directory.
pub fn first_of(key: &[u8]) -> ServerSeq {
    key.last_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// The channel in the key of a run.
pub fn channel_of(key: &[u8]) -> Option<ChannelId> {
    Some(ChannelId(u64::from_be_bytes(*key.get(1..)?.first_chunk::<8>()?)))
}

fn numbers(prefix: u8, numbers: &[u64]) -> Key {
    let mut key = Vec::with_capacity(17);
    key.push(prefix);
    for number in numbers {
        key.extend_from_slice(&number.to_be_bytes());
    }
    key
}
