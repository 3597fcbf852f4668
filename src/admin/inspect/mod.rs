//! Reading the log for people: filters, pages, sums and checks.
//!
//! Used by the endpoints and, where no host has the directory open, by the command line, so that both answer the same.
//! Everything here blocks on the store and is for threads where that is fine. Memory is bounded by a page, whatever the
//! length of the log.

mod brief;
mod event;
mod extent;
mod filter;
mod fold;
mod privileged;
mod reading;
mod stats;
mod verify;
mod window;

pub use brief::{brief, one_line};
pub use event::{EventHead, EventLine, OriginLine, has_line_end, on_one_line};
pub use extent::{Around, Extent};
pub use filter::{BadFilter, EventFilter, RawFilter, time};
pub use fold::{diff, state_at};
pub use reading::{Reader, Reading, Scope, find_channel};
pub use stats::{ChannelStats, LogStats, TypeStats};
pub use verify::{Verdict, verify};
pub use window::{Asked, From, Window, first_since};

use crate::events::{EventLog, LogFault, Record, ServerSeq};

/// The event `seq`, if it is there.
///
/// # Errors
/// [`LogFault`] when it cannot be read.
pub fn event_at(log: &(impl EventLog + ?Sized), seq: ServerSeq) -> Result<Option<Record>, LogFault> {
    let mut found = None;
    log.scan(seq.saturating_sub(1), seq, &mut |record| {
        found = Some(record);
        std::ops::ControlFlow::Break(())
    })?;
    Ok(found.filter(|record| record.seq == seq))
}
