//! What becomes of a message's attachments before the message is recorded.
//!
//! Bytes are written, files that only the client holds are fetched from it and written, chats are read and pinned; then the
//! message is rewritten to refer to all that. Nothing of it runs on a session's thread: the session goes on meanwhile, and
//! decides anew with what comes of it. What was written goes again where the message is refused or lost.
//!
//! Always: nothing is written before everything that may be refused was checked, and a write or a fetch that fails refuses
//! nothing: the attachment is left as it was sent. Source: AHP attachments; `resourceRead`.

mod excerpt;
mod fetch;
mod work;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::connection::Caller;
use super::rejection::{Code, Rejection};
use super::shared::Shared;
use super::writer::Lane;
use crate::attachments::Staged;
use crate::events::ChannelId;
use crate::projections::fact::ChatText;

pub use fetch::READ;
use work::Work;

/// What came of a message's attachments beside the message.
#[derive(Debug)]
pub struct Attached {
    /// What the agent is given for the chats that it names.
    pub chats: Vec<ChatText>,
    files: Staged,
}

impl Attached {
    /// Lets the files stay once what was queued in `lane` so far, which names them, is on disk.
    pub fn keep_once_durable(self: Arc<Self>, lane: &Lane) {
        lane.release_on_disk(Box::new(move |place| {
            if place.is_ok() {
                self.files.keep();
            }
        }));
    }
}

/// A message whose attachments are to be worked on.
pub struct Job {
    pub shared: Arc<Shared>,
    /// Who sent it: the one that is asked for files.
    pub caller: Caller,
    /// The session that it is for, which names the folder.
    pub session: ChannelId,
    /// The action or the message, as it was sent.
    pub sent: Bytes,
    /// Whether `sent` is an action that brings the message, or the message itself.
    pub is_action: bool,
    /// Whether the chats that it names are read: not for a draft, which nobody sends as it is.
    pub pins: bool,
    /// Whether the agent takes images.
    pub images: bool,
}

/// Works on the attachments: the JSON of the action or message as it is to be recorded, and what came of it.
///
/// # Errors
/// [`Code::BadAttachment`] for bytes that are not base64 and for a turn that cannot be pinned; [`Code::LogUnavailable`] when
/// the store cannot be read.
pub async fn prepare(job: Job) -> Result<(Value, Attached), Rejection> {
    let shared = Arc::clone(&job.shared);
    let connection = job.caller.connection.clone();
    if job.pins {
        // What was shown may be ahead of the disk, and is read from there.
        let _ = shared.writer.barrier().await;
    }
    let mut work = off_thread(move || Work::begin(&job)).await??;
    let fetched = fetch::all(&connection, work.to_fetch(), shared.settings.attachment_timeout).await;
    off_thread(move || {
        work.write(fetched);
        work.finish()
    })
    .await
}

async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Rejection> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|fault| Rejection::new(Code::LogUnavailable, format!("the attachments were lost: {fault}")))
}
