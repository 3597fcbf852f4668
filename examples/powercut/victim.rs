//! What is put under the power cuts.

use std::path::Path;

use clap::ValueEnum;
use scrollback::events::{Batch, Record, ServerSeq};

use crate::control::BareSled;
use crate::script::{Line, RowMap};
use crate::store::HostStore;

/// A store that can be written to, and read back after a cut.
pub trait Victim {
    /// The number that the next event gets.
    fn next_seq(&self) -> ServerSeq;

    /// Appends a commit; when it returns `Ok`, the victim says that it is on disk.
    ///
    /// # Errors
    /// What the store says, as text for a person.
    fn append(&mut self, batches: &[Batch]) -> Result<(), String>;

    /// All records in the order of the line, and all rows.
    ///
    /// # Errors
    /// As [`Victim::append`].
    fn read(&self) -> Result<(Vec<Record>, RowMap), String>;

    /// Other ways of reading, held against what [`Victim::read`] gave.
    ///
    /// # Errors
    /// What differs.
    fn cross_check(&self, _records: &[Record], _line: &Line) -> Result<(), String> {
        Ok(())
    }
}

/// The victims by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Which {
    /// The store of the host. It must hold.
    Store,
    /// The control: bare sled that calls `flush()` and nothing else. It must lose.
    SledFlushOnly,
    /// Bare sled with an fdatasync after each `flush()`, to see that the rig is not harsher than a power cut.
    SledFdatasync,
}

impl Which {
    /// Opens, and makes where it is not there, the victim in `folder`.
    ///
    /// # Errors
    /// What the store says, as text for a person.
    pub fn open(self, folder: &Path) -> Result<Box<dyn Victim>, String> {
        Ok(match self {
            Which::Store => Box::new(HostStore::open(folder)?),
            Which::SledFlushOnly => Box::new(BareSled::open(folder, false)?),
            Which::SledFdatasync => Box::new(BareSled::open(folder, true)?),
        })
    }

    /// Whether it can be written to again after a cut. Bare sled knows its channels' newest numbers only while it runs.
    pub fn can_go_on(self) -> bool {
        self == Which::Store
    }

    /// The name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Which::Store => "store",
            Which::SledFlushOnly => "sled-flush-only",
            Which::SledFdatasync => "sled-fdatasync",
        }
    }
}
