//! Compaction of the log while the host runs.
//!
//! On a thread of its own: it reads the whole log, and a stop of the host does not wait for it. What it does until then is lost
//! and nothing else.

use std::sync::Arc;

use super::Host;
use crate::actors::command::{Refusal, RefusalKind};
use crate::actors::shared::Shared;
use crate::clock::Millis;
use crate::events::LogFault;
use crate::events::compacting::{Compacted, Step};
use crate::projections::compaction::Folding;

/// What is told how far a compaction is.
pub type Reached = Box<dyn Fn(Step) + Send>;

impl Host {
    /// `log compact`: folds the streamed text of turns that ended, where it is older than `before`, and leaves nothing of what
    /// was erased.
    ///
    /// # Errors
    /// A [`Refusal`] when the log cannot be compacted now; it is as it was then.
    pub async fn compact(&self, before: Millis, reached: Reached) -> Result<Compacted, Refusal> {
        compact(&self.shared, before, reached).await
    }
}

/// See [`Host::compact`].
pub async fn compact(shared: &Arc<Shared>, before: Millis, reached: Reached) -> Result<Compacted, Refusal> {
    let (done, answer) = tokio::sync::oneshot::channel();
    let of_thread = Arc::clone(shared);
    let work = move || {
        let folding = Folding { before, given_up: &of_thread.stopping, reached: &*reached };
        let _ = done.send(of_thread.store.compact(&folding));
    };
    std::thread::Builder::new().name("compaction".into()).spawn(work).map_err(Refusal::log_unavailable)?;
    let stopped = || LogFault::NotCompacted("the host is stopping".into());
    match answer.await.unwrap_or_else(|_| Err(stopped())) {
        Ok(compacted) => {
            let Compacted { folded, into, disk_bytes_before, disk_bytes } = compacted;
            tracing::info!(folded, into, disk_bytes_before, disk_bytes, "the log was compacted");
            Ok(compacted)
        }
        Err(fault @ LogFault::NotCompacted(_)) => {
            Err(Refusal::new(RefusalKind::Conflict, "not-compacted", fault.to_string()))
        }
        Err(fault) => Err(Refusal::log_unavailable(fault)),
    }
}
