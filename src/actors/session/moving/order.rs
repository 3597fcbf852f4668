//! Where a chat stands in its session's catalogue.

use actix::Context;
use ahp_types::actions::{SessionChatsReorderedAction, StateAction};
use ahp_types::state::SessionState;
use serde_json::json;

use super::{Core, SessionActor, invalid};
use crate::actors::command::{self, Refusal, Reply};
use crate::actors::connection::Caller;
use crate::actors::session::{answer, refuse};
use crate::events::Channel;
use crate::projections::action::Action;

/// The catalogue's order with `moved`, which need not be in it, behind `after`; in front without one.
///
/// # Errors
/// A refusal when `after` is not in the catalogue.
pub fn placed(state: &SessionState, moved: &[&str], after: Option<&str>) -> Result<Vec<String>, Refusal> {
    let others = state.chats.iter().map(|chat| chat.resource.as_str()).filter(|chat| !moved.contains(chat));
    let mut order: Vec<String> = others.map(str::to_owned).collect();
    let at = match after {
        None => 0,
        Some(after) => match order.iter().position(|chat| chat == after) {
            Some(at) => at + 1,
            None => return Err(invalid("bad-anchor", format!("after: {after} is not a chat of the destination"))),
        },
    };
    order.splice(at..at, moved.iter().map(|chat| (*chat).to_owned()));
    Ok(order)
}

/// The action that brings the catalogue into this order; `None` where it is in it.
pub fn reordered(state: &SessionState, order: Vec<String>) -> Option<StateAction> {
    let is_so = state.chats.iter().map(|chat| &chat.resource).eq(&order);
    (!is_so).then_some(StateAction::SessionChatsReordered(SessionChatsReorderedAction { chats: order }))
}

impl SessionActor {
    /// `moveChat` within the session: that chat's entry goes to another place, and nothing else.
    pub(super) fn reorder(
        &mut self,
        core: &Core,
        caller: &Caller,
        chat: &Channel,
        after: Option<&str>,
        reply: Reply,
        _: &mut Context<Self>,
    ) {
        let order = placed(&core.borrow().fold.state, &[chat.as_str()], after);
        let order = match order {
            Ok(order) => order,
            Err(refusal) => return refuse(&core.borrow(), refusal, reply),
        };
        let by = self.by(caller);
        let mut core = core.borrow_mut();
        if let Some(action) = reordered(&core.fold.state, order) {
            let mut recording = core.record(by);
            recording.session_action(Action::host(action), None, false);
            recording.finish(None);
        }
        let session = json!({ "session": core.channel.as_str() });
        answer(&core, Ok(command::json(&session)), reply);
    }
}
