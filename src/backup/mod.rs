//! A log as lines: how it leaves a host, and how it comes into a new directory.
//!
//! One format ([`line`]) for an export, for what a host sends to whoever makes a backup of it, and for the parts of a backup.
//! [`outgoing`] makes lines of a store, [`incoming`] makes a data directory of lines, [`folder`] is a backup on disk.
//!
//! Always: only records and what no record says travel; rows are made anew. What comes in is whole and verified before there is a
//! data directory. A host writes no file for anybody: who asks for a backup gets lines, and writes them down.

pub mod folder;
pub mod incoming;
pub mod line;
pub mod manifest;
pub mod outgoing;

use std::path::{Path, PathBuf};

use crate::events::LogFault;
use crate::projections::FoldFault;
use crate::projections::verify::Fault;

/// What can go wrong on the way.
#[derive(Debug, thiserror::Error)]
pub enum BackupFault {
    #[error(transparent)]
    Log(#[from] LogFault),
    #[error(transparent)]
    Fold(#[from] FoldFault),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    /// What is read is not what was written.
    #[error("{of}: line {line}: {problem}")]
    Line { of: String, line: u64, problem: String },
    /// It is well said and cannot be done.
    #[error("{0}")]
    Refused(String),
    #[error("there is no channel {0}")]
    NoChannel(String),
    /// The log was changed while it was sent: it has to be asked for again.
    #[error("the log was changed meanwhile: try again")]
    Changed,
    /// What was made of it does not say what it should.
    #[error("what was read does not hold together: {0}")]
    Verification(#[from] Fault),
    /// Nobody takes the lines any more.
    #[error("nobody takes what is sent")]
    Gone,
}

impl BackupFault {
    /// The fault of a step that names the file.
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self + '_ {
        move |source| BackupFault::Io { path: path.to_owned(), source }
    }
}
