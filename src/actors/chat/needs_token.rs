//! Turns that end since their agent needs a token: who sent the message is asked for one.
//!
//! The turn can be taken up, and the notification goes out when its end is durable: who answers it at once finds the turn ended.
//! Source: AHP `auth/required`.

use std::sync::Arc;

use actix::Context;
use ahp_types::notifications::AuthRequiredParams;

use super::decide::Effect;
use super::{ChatActor, ending};
use crate::actors::agent::NeedsToken;
use crate::actors::envelope;
use crate::events::channel::ROOT;
use crate::projections::chat::sender;

impl ChatActor {
    /// Ends the running turn, and asks its sender for a token. A message that nobody sent leaves nobody to ask.
    pub(super) fn end_needing_token(&mut self, needed: NeedsToken, ctx: &mut Context<Self>) {
        let sender = {
            let cell = self.cell.borrow();
            let turn = cell.fold.state.active_turn.as_ref();
            turn.and_then(|turn| sender(&turn.message)).map(Arc::from)
        };
        let NeedsToken { resource, reason, message } = needed;
        self.end_turn(
            |chat, at| ending::failed(chat, at, NeedsToken::ERROR_TYPE, &message, true),
            false,
            Vec::new(),
            ctx,
        );
        let Some(principal) = sender else { return };
        let params = AuthRequiredParams { channel: ROOT.to_owned(), resource, reason: Some(reason) };
        let params = serde_json::to_value(&params).unwrap_or_default();
        let frame = envelope::notification("auth/required", &params);
        self.act_once_durable(vec![Effect::AskForToken { principal, frame }], ctx);
    }
}
