//! Waits for the resumes that are owed: one place for all chats of the host, so that a chat that nobody uses sleeps meanwhile.
//!
//! What is owed stands in rows beside the log, by its time; the first of them is all that is held. When its time comes, the
//! chat is woken and told, again and again until the row is gone. So what fell due while the host was down is taken up at
//! its start, and nothing is lost with a commit that fails. Left out on purpose: whether the turn is still to be taken up,
//! which the chat decides.

use std::ops::ControlFlow;
use std::sync::{Arc, Weak};

use tokio::sync::Notify;

use super::root::RootMessage;
use super::session::{RETRY, SessionMessage};
use super::shared::Shared;
use crate::clock::Millis;
use crate::events::rows::{number_of_key, owed_at};
use crate::events::{ChannelId, RowOp, Table};
use crate::projections::catalogue;

/// What wakes whoever waits.
#[derive(Default)]
pub struct OwedResumes {
    changed: Arc<Notify>,
}

impl OwedResumes {
    /// The rows changed, or the host stops.
    pub fn look(&self) {
        self.changed.notify_one();
    }
}

/// Waits for the host's owed resumes, on this thread, until the host stops.
pub fn wait(shared: &Arc<Shared>) {
    let (weak, clock, changed) = (Arc::downgrade(shared), shared.clock.clone(), Arc::clone(&shared.owed.changed));
    actix_rt::spawn(async move {
        while let Some(Looked { told, next }) = look(&weak) {
            let next = async {
                match next {
                    Some(at) => clock.wait_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = changed.notified() => {}
                () = next => {}
                () = tokio::time::sleep(RETRY), if told => {}
            }
        }
    });
}

/// What was found.
struct Looked {
    /// Somebody was told, or nothing could be read: it is looked at again soon.
    told: bool,
    /// When the next one is due.
    next: Option<Millis>,
}

/// Tells the chats whose time has come; `None` when the host stops.
fn look(shared: &Weak<Shared>) -> Option<Looked> {
    let shared = shared.upgrade().filter(|shared| !shared.is_stopping())?;
    let now = shared.clock.now();
    let (mut due, mut next) = (Vec::new(), None);
    let read = shared.store.scan_rows(Table::Owed, &[], None, &mut |key, _| {
        let (Some(at), Some(chat)) = (owed_at(key), number_of_key(key)) else { return ControlFlow::Continue(()) };
        if at > now {
            next = Some(at);
            return ControlFlow::Break(());
        }
        due.push((key.to_vec(), ChannelId(chat)));
        ControlFlow::Continue(())
    });
    if let Err(fault) = &read {
        tracing::error!(%fault, "the resumes that are owed cannot be read");
    }
    let told = read.is_err() || !due.is_empty();
    for (key, chat) in due {
        tell(&shared, key, chat);
    }
    Some(Looked { told, next })
}

fn tell(shared: &Shared, key: Vec<u8>, chat: ChannelId) {
    let uri = catalogue::uri(shared.store.as_ref(), chat).ok().flatten();
    let found = uri.map(|uri| shared.registry.resolve(uri.as_str()));
    match found {
        Some(Ok(Some(found))) if found.id == chat => {
            shared.registry.send(found.session, SessionMessage::ResumeDue { chat: found.channel });
        }
        Some(Err(fault)) => tracing::error!(%fault, chat = chat.0, "an owed resume's chat cannot be looked up"),
        // The chat is gone, and what was owed to it too.
        _ => {
            if let Some(root) = shared.root.get() {
                root.do_send(RootMessage::Row(RowOp::Delete { table: Table::Owed, key }));
            }
        }
    }
}
