//! The state of any channel as it is on disk, now or as it was: what `log state` and `/api/state` answer.
//!
//! Reads a checkpoint and the events after it, and the turns' rows; needs no running host.

use serde::Serialize;

use super::chat::ChatFold;
use super::replay::{self, At};
use super::root::RootFold;
use super::session::SessionFold;
use super::{FoldFault, turns};
use crate::events::rows::ChannelKind;
use crate::events::{ChannelId, ServerSeq, Store};

/// A state and the newest event in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateAt {
    /// The JSON of the state.
    pub json: String,
    pub seq: ServerSeq,
}

/// The state of `channel` right after event `at` (now for `None`); `None` when it had no events then. A chat comes with
/// all the turns of its branch.
///
/// # Errors
/// [`FoldFault`] naming the event or the row that cannot be read.
pub fn state_at(
    store: &dyn Store,
    channel: ChannelId,
    kind: ChannelKind,
    at: Option<ServerSeq>,
) -> Result<Option<StateAt>, FoldFault> {
    let upto = at.unwrap_or(ServerSeq::MAX);
    match kind {
        ChannelKind::Root => {
            let at = replay::fold::<RootFold>(store, channel, upto, true)?;
            Ok(at.map(|at| plain(&at.fold.state, at.seq)))
        }
        ChannelKind::Session => {
            let at = replay::fold::<SessionFold>(store, channel, upto, true)?;
            Ok(at.map(|at| plain(&at.fold.state, at.seq)))
        }
        ChannelKind::Chat => {
            let at = replay::fold::<ChatFold>(store, channel, upto, true)?;
            at.map(|at| chat(store, channel, &at)).transpose()
        }
    }
}

fn plain(state: &impl Serialize, seq: ServerSeq) -> StateAt {
    // Through `Value`, because the crate writes one tool-call state with a doubled key otherwise.
    StateAt { json: serde_json::to_value(state).unwrap_or_default().to_string(), seq }
}

fn chat(store: &dyn Store, channel: ChannelId, at: &At<ChatFold>) -> Result<StateAt, FoldFault> {
    let all = turns::PageLimit { turns: u64::MAX, bytes: usize::MAX };
    let (json, _) = replay::chat_json(&at.fold, all, |n| turns::read(store, channel, n))?;
    Ok(StateAt { json, seq: at.seq })
}
