//! What a decision about a session records in its chats, beside its own action: one batch for all of it.

use std::cell::RefCell;
use std::rc::Rc;

use actix::Addr;
use ahp_types::actions::StateAction;

use super::SessionActor;
use crate::actors::chat::{ChatActor, ChatMessage, Effect};
use crate::actors::core::{ChatCell, Recording, SessionCore};
use crate::events::Channel;
use crate::projections::action::Action;

/// A chat's own actions that go with a decision about its session.
#[derive(Debug)]
pub struct InChat {
    pub chat: Channel,
    /// In front of the session's action.
    pub before: Vec<StateAction>,
    /// Behind it.
    pub after: Vec<StateAction>,
    /// What its agent is told then.
    pub effects: Vec<Effect>,
}

/// An awake chat.
pub type Awake = (Rc<RefCell<ChatCell>>, Addr<ChatActor>);

impl SessionActor {
    /// Wakes the chat, and its fold with it.
    pub(super) fn awake(&mut self, core: &Rc<RefCell<SessionCore>>, chat: &Channel) -> Option<Awake> {
        let actor = self.chat(core, chat)?;
        let cell = core.borrow().chats.get(chat.as_str()).cloned()?;
        Some((cell, actor))
    }

    /// Wakes the chats that a decision is to change. One that cannot be read is left as it is.
    pub(super) fn wake_for(&mut self, core: &Rc<RefCell<SessionCore>>, changes: Vec<InChat>) -> Vec<(Awake, InChat)> {
        changes.into_iter().filter_map(|change| Some((self.awake(core, &change.chat)?, change))).collect()
    }
}

/// Records `actions` in a chat, and what the session has to say about them.
pub fn record_in(recording: &mut Recording<'_>, cell: &mut ChatCell, actions: Vec<StateAction>) {
    if actions.is_empty() {
        return;
    }
    recording.flush_text(cell);
    for action in actions {
        recording.chat_action(cell, Action::host(action), false);
    }
    recording.mirror(cell, true);
}

/// Lets what follows in a chat follow once it is durable.
pub fn act_once_durable(core: &SessionCore, (_, actor): &Awake, effects: Vec<Effect>) {
    if effects.is_empty() {
        return;
    }
    let actor = actor.clone();
    core.lane.release(
        None,
        Box::new(move |place| {
            if place.is_ok() {
                actor.do_send(ChatMessage::Act(effects));
            }
        }),
    );
}

/// Keeps a chat awake until what was recorded in it just now is on disk: who read it before would lack that.
pub fn keep_until_durable(core: &SessionCore, (cell, actor): &Awake) {
    let mut cell = cell.borrow_mut();
    cell.touch();
    cell.on_the_way += 1;
    let actor = actor.clone();
    core.lane.release_on_disk(Box::new(move |place| {
        if place.is_ok() {
            actor.do_send(ChatMessage::Durable { weight: 0, ended: 0, used: 0 });
        }
    }));
}
