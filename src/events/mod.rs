//! The log: what happened, in one line of numbers, on disk before anybody sees it.
//!
//! Everything else in this crate reads from here or hands batches to it. Nothing here knows what an action
//! means: an event is its bytes and a header. Only `sled_store` names the engine.

pub mod batch;
pub mod channel;
pub mod codec;
#[cfg(test)]
mod conformance;
pub mod directory;
pub(crate) mod durable;
pub mod fault;
pub mod floor;
pub mod gated;
pub mod host_file;
pub mod log;
pub mod memory;
mod quiet;
pub mod record;
pub mod rows;
pub mod sled_store;
pub mod space;
mod stage;

pub use batch::{Batch, NewEvent, RowOp};
pub use channel::{Channel, ChannelId};
pub use directory::{DataDirectory, NewDirectory};
pub use fault::LogFault;
pub use gated::{Gate, GatedStore};
pub use host_file::HostFile;
pub use log::{EventLog, Fate, Rows, Store};
pub use memory::MemoryStore;
pub use record::{Kind, Origin, Record};
pub use rows::{ChannelKind, ChannelRow, Table};
pub use sled_store::{Access, SledOptions, SledStore};
pub use space::FreeSpace;

/// The position of an event on this host's one line.
///
/// Numbers only grow and none is handed out twice, also across restarts; gaps are legal. A channel is a filter
/// over this line, never a counter of its own.
///
/// Source: AHP actions, `ActionEnvelope.serverSeq`.
pub type ServerSeq = u64;

/// The largest position that the wire carries without loss.
///
/// Clients in JavaScript read `serverSeq` as a double, which is exact up to 2^53 - 1.
pub const SERVER_SEQ_MAX: ServerSeq = (1 << 53) - 1;
