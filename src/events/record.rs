//! One stored event: a versioned header, the action's bytes as they go on the wire, and a checksum.
//!
//! The format is frozen by `docs/adr/0001-record-format.md` and by the fixtures under `tests/fixtures`.

use bytes::Bytes;

use super::{Channel, ChannelId, ServerSeq};

/// Whether an event is an AHP action, or a fact of the host that no client may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An accepted AHP action, published to the channel's subscribers.
    Action,
    /// A fact of the host. Its JSON has a `type` that begins with `host/`; it is never published.
    Host,
}

/// The client action that an event came from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The client id of the connection, never of the payload.
    pub client_id: String,
    /// The client's own number for the action.
    pub client_seq: i64,
}

/// An event as it was read back from the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its place on the line.
    pub seq: ServerSeq,
    /// The channel that it belongs to.
    pub channel: Channel,
    /// The channel's number in stored keys.
    pub channel_id: ChannelId,
    /// Action or fact of the host.
    pub kind: Kind,
    /// When it was appended, in milliseconds since 1970-01-01T00:00:00Z. The clock of every state folded from it.
    pub at: i64,
    /// Who caused it: `user:<id>`, `root:<host>`, `agent:<provider>`, or `host` for what the host did by itself.
    pub principal: String,
    /// The client action that it came from, absent for what the host did.
    pub origin: Option<Origin>,
    /// The chat whose mirror this event is, for events of a session's channel that follow from a chat's.
    pub about: Option<ChannelId>,
    /// The first position that a compaction folded into this event; `None` where it stands for itself alone.
    pub covers_from: Option<ServerSeq>,
    /// The first and the last position of the batch that it was appended in.
    pub batch: (ServerSeq, ServerSeq),
    /// The JSON of the action, byte for byte as it goes on the wire.
    pub action: Bytes,
}
