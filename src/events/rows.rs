//! The tables beside the log, their keys and what their values hold.
//!
//! Keys are big-endian, so that a scan in the order of bytes is a scan in the order of numbers. The layout is frozen by
//! `docs/adr/0002-key-layout.md`. Every table can be rebuilt from the log.

use serde::{Deserialize, Serialize};

use super::{ChannelId, ServerSeq};

/// A table of rows. The discriminant is the first byte of its keys in the store; `E`, `O` and `N` are the log's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Table {
    /// URI → [`ChannelRow`] (JSON). Written in the batch that makes the channel, and in one that moves a chat.
    ChannelByUri = b'C',
    /// Channel number → URI.
    ChannelById = b'c',
    /// Chat, n-th ended turn (`u64`, from 1) → [`TurnRow`] header and the turn's JSON.
    Turn = b'T',
    /// Chat, number of the event after which its branch ends elsewhere → the last turn of the branch then (`u64`, 0: none), as
    /// the chat names it.
    Head = b'H',
    /// Channel, number of the newest event in it → a checkpoint (JSON), which may be deleted at any time.
    Checkpoint = b'K',
    /// Session → its entry in the catalogue (JSON).
    Session = b'S',
    /// `u64::MAX` - modifiedAt in ms, session → empty: the order of `listSessions`. Disposed sessions have no row.
    Recent = b'L',
    /// Chat, kind (`t` turn, `m` pending message), id → ids that the chat has seen; for a turn that has ended, its n.
    Used = b'I',
    /// Hash of a client's action (`u128`) → number of the event, then the id of the connection (`u64`).
    Dispatched = b'D',
    /// Client id → what is remembered of a client (JSON).
    Client = b'U',
    /// Chat → how often the turn that runs in it was taken up (`u32`; empty: never, or only background work runs). What a
    /// start after a crash has to look at.
    Running = b'R',
    /// The last path segment of a session's URI → session: the synonym `ahp-chat:/<id>`. The oldest session keeps it.
    SessionById = b'A',
    /// Folder, name of a file (`u128`), chat, kind (`t` turn, `m` pending message, `d` draft), id → empty: what in the chat
    /// refers to the attachment.
    Attachment = b'B',
    /// Chat, n → where the agent can go back to at the end of that turn (JSON).
    Point = b'P',
    /// When a chat's owed resume is due in ms (`u64`), chat → empty: what a start has to wait for.
    Owed = b'W',
    /// Chat, n, fork → empty: a fork's branch begins with that turn of the chat.
    Fork = b'F',
    /// Channel → what is being erased with it (JSON); gone when it is done.
    Erasing = b'X',
    /// Canvas that is open → the number of its chat (`u64`).
    Canvas = b'V',
}

impl Table {
    /// All tables, for verification and rebuilds.
    pub const ALL: &[Table] = &[
        Table::ChannelByUri,
        Table::ChannelById,
        Table::Turn,
        Table::Head,
        Table::Checkpoint,
        Table::Session,
        Table::Recent,
        Table::Used,
        Table::Dispatched,
        Table::Client,
        Table::Running,
        Table::SessionById,
        Table::Attachment,
        Table::Point,
        Table::Owed,
        Table::Fork,
        Table::Erasing,
        Table::Canvas,
    ];
}

/// What kind of channel a URI names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChannelKind {
    Root,
    Session,
    Chat,
    Canvas,
    /// The people and what they were granted. No client sees it.
    People,
}

/// The row of [`Table::ChannelByUri`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChannelRow {
    /// Its number in stored keys.
    pub id: u64,
    pub kind: ChannelKind,
    /// The number of the session that it belongs to: its own for a session, 0 for the root.
    pub session: u64,
}

/// What stands before a finished turn's JSON in its row. Fixed size, big-endian: see [`TurnRow::encode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnRow {
    /// The turn before it on its branch, 0 for none, as its chat names it: n, or for a turn of another chat that chat's number
    /// in the upper 32 bits. Turns are commits of a tree.
    pub prev: u64,
    /// A turn further back on its branch (0 for none), for "is this turn on this branch" in logarithmic steps.
    pub jump: u64,
    /// How many turns its branch has up to and including it.
    pub ordinal: u64,
    /// The number of the event that ended it is not here: [`Table::Head`] has it as its key.
    /// Whether the agent can go back to the end of it; the point itself is a record of the log.
    pub rewindable: bool,
}

/// Bytes of an encoded [`TurnRow`] header.
pub const TURN_ROW_HEADER: usize = 25;

impl TurnRow {
    /// The header followed by `turn`, the JSON of the finished turn.
    pub fn encode(&self, turn: &[u8]) -> Vec<u8> {
        let mut row = Vec::with_capacity(TURN_ROW_HEADER + turn.len());
        row.extend_from_slice(&self.prev.to_be_bytes());
        row.extend_from_slice(&self.jump.to_be_bytes());
        row.extend_from_slice(&self.ordinal.to_be_bytes());
        row.push(u8::from(self.rewindable));
        row.extend_from_slice(turn);
        row
    }

    /// The header and the turn's JSON, or `None` for bytes that are no such row.
    pub fn decode(row: &[u8]) -> Option<(TurnRow, &[u8])> {
        let (header, turn) = row.split_at_checked(TURN_ROW_HEADER)?;
        let word = |at: usize| -> Option<u64> { Some(u64::from_be_bytes(header.get(at..at + 8)?.try_into().ok()?)) };
        let rewindable = match header.get(24)? {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some((TurnRow { prev: word(0)?, jump: word(8)?, ordinal: word(16)?, rewindable }, turn))
    }
}

/// The key that begins with a channel's number.
pub fn channel_key(channel: ChannelId) -> Vec<u8> {
    channel.0.to_be_bytes().to_vec()
}

/// The key of a channel's number followed by another: a turn's n, or a position of the line.
pub fn numbered_key(channel: ChannelId, number: u64) -> Vec<u8> {
    let mut key = channel_key(channel);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// The number at the end of such a key.
pub fn number_of_key(key: &[u8]) -> Option<u64> {
    let at = key.len().checked_sub(8)?;
    Some(u64::from_be_bytes(key.get(at..)?.try_into().ok()?))
}

/// The key of [`Table::Used`]. `kind` is `b't'` for a turn and `b'm'` for a pending message.
pub fn used_key(chat: ChannelId, kind: u8, id: &str) -> Vec<u8> {
    let mut key = channel_key(chat);
    key.push(kind);
    key.extend_from_slice(id.as_bytes());
    key
}

/// The key of [`Table::Recent`]: newest first.
pub fn recent_key(modified_at: i64, session: ChannelId) -> Vec<u8> {
    let mut key = (u64::MAX - u64::try_from(modified_at).unwrap_or(0)).to_be_bytes().to_vec();
    key.extend_from_slice(&session.0.to_be_bytes());
    key
}

/// The key of [`Table::Owed`]: the first to be due first.
pub fn owed_key(at: i64, chat: ChannelId) -> Vec<u8> {
    let mut key = u64::try_from(at).unwrap_or(0).to_be_bytes().to_vec();
    key.extend_from_slice(&chat.0.to_be_bytes());
    key
}

/// The time in such a key.
pub fn owed_at(key: &[u8]) -> Option<i64> {
    i64::try_from(leading_number(key)?).ok()
}

/// The number in the value of a [`Table::Head`] row, or at the start of a [`Table::Dispatched`] one.
pub fn leading_number(value: &[u8]) -> Option<ServerSeq> {
    Some(u64::from_be_bytes(value.get(..8)?.try_into().ok()?))
}
