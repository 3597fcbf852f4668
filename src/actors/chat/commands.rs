//! The commands of the extensions that change a chat: decided on its folds like an action, recorded as one batch, and answered
//! once that is durable.

use actix::Context;
use ahp_types::state::ChatInteractivity;
use serde_json::value::RawValue;

use super::ChatActor;
use super::decide::{Effect, Entry};
use crate::actors::command::{self, ChatCommand, Refusal, RefusalKind, Reply};
use crate::actors::connection::Caller;
use crate::actors::core::By;
use crate::actors::rejection::Rejection;
use crate::actors::session::{answer, refuse};

mod clear;
mod compact;
mod send_now;
mod stop_background_work;

/// What becomes of a command that is not refused.
pub(super) struct Accepted {
    pub entries: Vec<Entry>,
    pub effects: Vec<Effect>,
    /// Whether the running turn ends with it.
    pub ends_turn: bool,
    pub result: Box<RawValue>,
}

impl Accepted {
    /// Answered `null`.
    pub fn new(entries: Vec<Entry>, effects: Vec<Effect>) -> Self {
        Self { entries, effects, ends_turn: false, result: command::null() }
    }
}

/// Whether people may ask for this in a chat of that kind: in one that they only read a stop alone, in a hidden one nothing.
fn may_ask(command: &ChatCommand, interactivity: Option<ChatInteractivity>) -> Result<(), Refusal> {
    let stops = matches!(command, ChatCommand::StopBackgroundWork { .. });
    match interactivity {
        None | Some(ChatInteractivity::Full) => Ok(()),
        Some(ChatInteractivity::ReadOnly) if stops => Ok(()),
        _ => {
            let text = "the chat belongs to an agent: people do not ask for this in it";
            Err(Refusal::new(RefusalKind::InvalidParams, "read-only", text))
        }
    }
}

impl ChatActor {
    pub(super) fn command(&mut self, caller: &Caller, command: ChatCommand, reply: Reply, ctx: &mut Context<Self>) {
        let at = self.shared.clock.now();
        let decided = {
            let (core, cell) = (self.core.borrow(), self.cell.borrow());
            let busy = |text: &str| Err(Refusal::new(RefusalKind::Unavailable, "busy", text));
            if self.in_flight.is_full() {
                busy(&Rejection::too_much("the chat is waiting for the disk: try again").detail)
            } else if self.shared.is_stopping() {
                busy("the host is stopping: try again")
            } else {
                may_ask(&command, cell.fold.state.interactivity).and_then(|()| match command {
                    ChatCommand::SendNow { id } => send_now::decide(&core, &cell, &id, at),
                    ChatCommand::Compact => compact::decide(&core, &cell, at),
                    ChatCommand::StopBackgroundWork { id } => stop_background_work::decide(&cell, &id),
                    ChatCommand::Clear { force } => clear::decide(&core, &cell, force, at),
                })
            }
        };
        match decided {
            Err(refusal) => refuse(&self.core.borrow(), refusal, reply),
            Ok(Accepted { entries, effects, ends_turn, result }) => {
                if ends_turn {
                    self.flush_text(ctx);
                    self.close_part();
                }
                let by = By { principal: std::sync::Arc::clone(&caller.principal), at, client: None };
                if entries.is_empty() {
                    self.act_once_durable(effects, ctx);
                } else {
                    self.record(by, entries, effects, ctx);
                }
                answer(&self.core.borrow(), Ok(result), reply);
            }
        }
    }
}
