//! What the host does by itself with what is old: it erases what was closed long ago, where it is told so, and folds the streamed
//! text of turns that ended long ago.
//!
//! Looked at now and then; each look reads the log. Where there is little to fold the log stays as it is, unless something was
//! erased: its bytes go with a compaction.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{compacting, erasing};
use crate::actors::shared::Shared;
use crate::clock::Millis;
use crate::projections::closed::closed_before;
use crate::projections::compaction::foldable;

/// When it is looked first after a start, at the latest.
const FIRST: Duration = Duration::from_secs(3_600);
/// How many events have to go for a compaction to be worth its copy.
const WORTH: u64 = 1_000;

/// Looks at what is old now and then, until the host stops.
pub fn wait(shared: &Arc<Shared>) {
    let settings = &shared.settings;
    if settings.maintenance {
        return;
    }
    let (weak, clock, often) = (Arc::downgrade(shared), shared.clock.clone(), settings.retention_interval);
    actix_rt::spawn(async move {
        let mut next = FIRST.min(often);
        loop {
            clock.wait(next).await;
            let Some(shared) = weak.upgrade().filter(|shared| !shared.is_stopping()) else { return };
            erase_closed(&shared).await;
            fold(&shared).await;
            next = often;
        }
    });
}

async fn erase_closed(shared: &Arc<Shared>) {
    let Some(kept) = shared.settings.retain_closed else { return };
    let before = ago(shared, kept);
    let store = Arc::clone(&shared.store);
    let closed = match tokio::task::spawn_blocking(move || closed_before(store.as_ref(), before)).await {
        Ok(Ok(closed)) => closed,
        Ok(Err(fault)) => return tracing::error!(%fault, "what was closed long ago cannot be looked for"),
        Err(_) => return,
    };
    for uri in closed {
        if shared.is_stopping() {
            return;
        }
        match erasing::erase_closed(shared, "host", &uri, before).await {
            Ok(Some(erased)) => tracing::info!(uri, events = erased.events, "what was closed long ago was erased"),
            Ok(None) => {}
            Err(refusal) => tracing::warn!(%refusal, uri, "what was closed long ago cannot be erased"),
        }
    }
}

async fn fold(shared: &Arc<Shared>) {
    let before = shared.settings.retain_deltas.map_or(Millis::MIN, |kept| ago(shared, kept));
    let of_task = Arc::clone(shared);
    let counted = tokio::task::spawn_blocking(move || foldable(of_task.store.as_ref(), before, &of_task.stopping));
    let count = match counted.await {
        Ok(Ok(count)) => count,
        Ok(Err(fault)) => return tracing::error!(fault, "what can be compacted cannot be looked for"),
        Err(_) => return,
    };
    let is_erased = shared.erased.swap(false, Ordering::AcqRel);
    if count < WORTH && !is_erased {
        return;
    }
    if let Err(refusal) = compacting::compact(shared, before, Box::new(|_| ())).await {
        tracing::warn!(%refusal, "the log was not compacted; it is tried again");
        shared.erased.fetch_or(is_erased, Ordering::AcqRel);
    }
}

/// The moment that is so long ago.
fn ago(shared: &Shared, span: Duration) -> Millis {
    shared.clock.now().saturating_sub(Millis::try_from(span.as_millis()).unwrap_or(Millis::MAX))
}
