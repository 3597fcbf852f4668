//! The resumes that are owed to the chats of a session, and when they are turned off.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;

use actix::Context;
use ahp_types::actions::StateAction;

use super::configuration::{RESUME_AT_RESET, RESUME_AT_RESET_OFF};
use super::{SessionActor, tell};
use crate::actors::chat::ChatMessage;
use crate::actors::chat::limits::resumes;
use crate::actors::core::SessionCore;
use crate::events::rows::number_of_key;
use crate::events::{Channel, ChannelId, Table};
use crate::projections::catalogue;

/// The chats of the session that are owed a resume, awake or not.
pub fn of(core: &SessionCore) -> Vec<Channel> {
    let mut owed: Vec<Channel> = core
        .chats
        .iter()
        .filter(|(_, cell)| cell.borrow().fold.attempts.owed.is_some())
        .map(|(uri, _)| Channel::from(uri.as_str()))
        .collect();
    let mut chats = Vec::new();
    let read = core.shared.store.scan_rows(Table::Owed, &[], None, &mut |key, _| {
        chats.extend(number_of_key(key).map(ChannelId));
        ControlFlow::Continue(())
    });
    if let Err(fault) = read {
        tracing::error!(%fault, "the resumes that are owed cannot be read");
    }
    let uris = chats.into_iter().filter_map(|chat| catalogue::uri(core.shared.store.as_ref(), chat).ok().flatten());
    let own = |uri: &Channel| core.fold.state.chats.iter().any(|chat| chat.resource == uri.as_str());
    for uri in uris.filter(own) {
        if !owed.contains(&uri) {
            owed.push(uri);
        }
    }
    owed
}

/// The chats that are owed a resume before a change of whether they are, each with whether it is off now: what a crash left
/// when it was turned off before.
pub fn of_change(core: &SessionCore, action: &StateAction) -> Vec<(Channel, bool)> {
    let StateAction::SessionConfigChanged(change) = action else { return Vec::new() };
    let names = [RESUME_AT_RESET, RESUME_AT_RESET_OFF].iter().any(|name| change.config.contains_key(*name));
    if !names && change.replace != Some(true) {
        return Vec::new();
    }
    let off = |chat: Channel| {
        let off = !resumes(core, chat.as_str());
        (chat, off)
    };
    of(core).into_iter().map(off).collect()
}

impl SessionActor {
    /// Lets what is owed lapse where it is off now, or was.
    pub(super) fn lapse(
        &mut self,
        core: &Rc<RefCell<SessionCore>>,
        owed: Vec<(Channel, bool)>,
        ctx: &mut Context<Self>,
    ) {
        for (chat, was_off) in owed {
            if !was_off && resumes(&core.borrow(), chat.as_str()) {
                continue;
            }
            if let Some(addr) = self.chat(core, &chat) {
                tell(core, &chat, &addr, ChatMessage::Lapse, ctx);
            }
        }
    }
}
