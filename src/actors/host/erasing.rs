//! Erasure and restoring: what an operator asks of sessions and chats that are gone from every list.
//!
//! An erasure ends what is open first, writes down what goes, and then removes it; a start finishes what a crash left.

use std::cell::RefCell;
use std::sync::Arc;

use serde::Serialize;

use super::Host;
use crate::actors::command::{Refusal, RefusalKind, ask};
use crate::actors::connection::Caller;
use crate::actors::root::RootMessage;
use crate::actors::session::{Restoring, SessionMessage};
use crate::actors::shared::Shared;
use crate::attachments::{Attachments, references};
use crate::clock::Millis;
use crate::events::rows::ChannelKind;
use crate::events::{ChannelId, ServerSeq, Store};
use crate::projections::closed::is_closed_before;
use crate::projections::erasure::{Beside, Erasure};
use crate::projections::{FoldFault, catalogue};

/// What was erased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Erased {
    pub uri: String,
    /// How many events went, and the numbers of the first and the last of them.
    pub events: u64,
    pub first: ServerSeq,
    pub last: ServerSeq,
}

fn not_there(uri: &str) -> Refusal {
    Refusal::new(RefusalKind::NotFound, "not-found", format!("there is no session and no chat {uri}"))
}

/// Removes what the erasure names, with the references of its attachments; then the files that nothing refers to any more.
fn carry_out(erasure: &Erasure, store: &dyn Store, attachments: &Attachments) -> Result<(), FoldFault> {
    with_files(store, attachments, |beside| erasure.carry_out(store, beside))
}

/// Does what a crash left.
///
/// # Errors
/// [`FoldFault`] when the store cannot be read or written.
pub fn finish(store: &dyn Store, attachments: &Attachments, at: Millis) -> Result<usize, FoldFault> {
    with_files(store, attachments, |beside| Erasure::finish_all(store, at, beside))
}

fn with_files<T>(
    store: &dyn Store,
    attachments: &Attachments,
    work: impl FnOnce(Beside<'_>) -> Result<T, FoldFault>,
) -> Result<T, FoldFault> {
    let files = RefCell::new(Vec::new());
    let done = work(&|chat, keeps| {
        let erased = references::erase_chat(store, chat, keeps)?;
        files.borrow_mut().extend(erased.files);
        Ok(erased.rows)
    })?;
    attachments.collect(files.into_inner());
    Ok(done)
}

impl Host {
    /// `log erase`: removes a session's or a chat's events for good, and ends it first where it is open.
    ///
    /// # Errors
    /// A [`Refusal`] for what is not there, for the last chat of a session that is open, and when the log takes nothing.
    pub async fn erase(&self, principal: &str, uri: &str) -> Result<Erased, Refusal> {
        erase(&self.shared, principal, uri).await
    }

    /// `log restore`: brings a disposed session or a closed chat back.
    ///
    /// # Errors
    /// A [`Refusal`] for what is not there, or is not gone.
    pub async fn restore(&self, principal: &str, uri: &str) -> Result<(), Refusal> {
        let _alone = self.shared.keeping.lock().await;
        let row = catalogue::channel(self.shared.store.as_ref(), uri).map_err(Refusal::log_unavailable)?;
        let row = row.filter(|row| matches!(row.kind, ChannelKind::Chat | ChannelKind::Session));
        let row = row.ok_or_else(|| not_there(uri))?;
        // An erasure that failed half way is finished at the next start.
        let erasures = Erasure::under_way(self.shared.store.as_ref()).map_err(Refusal::log_unavailable)?;
        if erasures.iter().any(|erasure| erasure.removes(ChannelId(row.id))) {
            return Err(not_there(uri));
        }
        let what = match row.kind {
            ChannelKind::Chat => Restoring::Chat(uri.into()),
            _ => Restoring::Session,
        };
        let principal: Arc<str> = principal.into();
        let session = ChannelId(row.session);
        let message = |reply| SessionMessage::Restore { what, principal, reply };
        ask(|reply| self.shared.registry.send(session, message(reply))).await.map(drop)
    }
}

/// See [`Host::erase`].
async fn erase(shared: &Arc<Shared>, principal: &str, uri: &str) -> Result<Erased, Refusal> {
    let _alone = shared.keeping.lock().await;
    erase_alone(shared, principal, uri).await
}

/// Erases what was closed before a moment; `None` for what came back since somebody looked.
///
/// # Errors
/// As [`Host::erase`].
pub async fn erase_closed(
    shared: &Arc<Shared>,
    principal: &str,
    uri: &str,
    before: Millis,
) -> Result<Option<Erased>, Refusal> {
    let _alone = shared.keeping.lock().await;
    if shared.writer.barrier().await.is_err() {
        return Err(Refusal::log_unavailable("the log takes no events now"));
    }
    let (store, asked) = (Arc::clone(&shared.store), uri.to_owned());
    if !blocking(move || is_closed_before(store.as_ref(), &asked, before)).await? {
        return Ok(None);
    }
    erase_alone(shared, principal, uri).await.map(Some)
}

/// Erases, for who has the lock on what is kept.
async fn erase_alone(shared: &Arc<Shared>, principal: &str, uri: &str) -> Result<Erased, Refusal> {
    let row = catalogue::channel(shared.store.as_ref(), uri)
        .map_err(Refusal::log_unavailable)?
        .ok_or_else(|| not_there(uri))?;
    let session = ChannelId(row.session);
    close(shared, principal, uri, row.kind).await?;
    if shared.writer.barrier().await.is_err() {
        return Err(Refusal::log_unavailable("the log takes no events now"));
    }
    if row.kind == ChannelKind::Session {
        ask(|reply| shared.registry.send(session, SessionMessage::Forget { reply })).await?;
    }
    let (store, asked, by) = (Arc::clone(&shared.store), uri.to_owned(), principal.to_owned());
    let planned = blocking(move || Erasure::plan(store.as_ref(), &asked, &by)).await?;
    let mut erasure = planned.ok_or_else(|| not_there(uri))?;
    let batch = erasure.begin(shared.clock.now());
    let Some(root) = shared.root.get() else { return Err(Refusal::log_unavailable("the host is stopping")) };
    ask(|reply| root.do_send(RootMessage::Record { batch, reply })).await?;
    let erased = Erased { uri: uri.to_owned(), events: erasure.events, first: erasure.first, last: erasure.last };
    if shared.writer.barrier().await.is_err() {
        return Err(Refusal::log_unavailable("the log takes no events now"));
    }
    let shared = Arc::clone(shared);
    shared.erased.store(true, std::sync::atomic::Ordering::Release);
    blocking(move || carry_out(&erasure, shared.store.as_ref(), &shared.attachments)).await?;
    Ok(erased)
}

/// Ends what is open.
async fn close(shared: &Arc<Shared>, principal: &str, uri: &str, kind: ChannelKind) -> Result<(), Refusal> {
    let found =
        shared.registry.resolve(uri).map_err(Refusal::log_unavailable)?.filter(|found| found.channel.as_str() == uri);
    let Some(found) = found else { return Ok(()) };
    let caller = Caller::nobody(principal);
    let answer = match kind {
        ChannelKind::Chat => {
            let chat = found.channel.clone();
            ask(|reply| {
                shared.registry.send(found.session, SessionMessage::DisposeChat { caller, chat, reply });
            })
            .await
        }
        ChannelKind::Session => {
            ask(|reply| shared.registry.send(found.session, SessionMessage::DisposeSession { caller, reply })).await
        }
        _ => return Err(not_there(uri)),
    };
    answer.map(drop)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FoldFault> + Send + 'static,
) -> Result<T, Refusal> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(Refusal::log_unavailable),
        Err(_) => Err(Refusal::log_unavailable("the host is stopping")),
    }
}
