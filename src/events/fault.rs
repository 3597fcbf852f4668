//! What can go wrong with the log.

use std::path::PathBuf;

use super::ServerSeq;

/// A fault of storage. A refusal of a client's wish is a rejection, never one of these.
#[derive(Debug, thiserror::Error)]
pub enum LogFault {
    /// The directory is not one of ours, or is one that this build cannot read.
    #[error("{path}: {problem}")]
    Directory { path: PathBuf, problem: String },
    /// Another process has the directory open.
    #[error("{path} is in use by {holder}")]
    Held { path: PathBuf, holder: String },
    /// The store opened with less than was promised to be on disk.
    #[error(
        "{path}: the store came back short: its newest event is {found}, but numbers from {promised} on were in use"
    )]
    Short { path: PathBuf, found: ServerSeq, promised: ServerSeq },
    /// Stored bytes are not what was written.
    #[error("damaged record at {place}: {problem}")]
    Damaged { place: String, problem: String },
    /// There is no room for the append. Nothing was written; it is tried again with the next one.
    #[error("{path}: {available} bytes free, and appends stop below {minimum}")]
    NoRoom { path: PathBuf, available: u64, minimum: u64 },
    /// A write or a sync failed. The store takes no further append until the host is started again.
    #[error("the log is read-only since a write failed: {cause}")]
    ReadOnly { cause: String },
    /// A compaction was not done. The log is as it was.
    #[error("the log was not compacted, and is as it was: {0}")]
    NotCompacted(String),
    /// The engine or the file system said no.
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    /// The engine failed on a read.
    #[error("the store could not be read: {0}")]
    Engine(String),
}
