//! `moveChat`: to another place of the catalogue, to another session, or to a session of its own.
//!
//! While a chat goes from one session to another, both take nothing more from outside; what their agents say goes on. The source
//! ([`leave`]) says what goes; the destination ([`arrive`]) takes it into its fold, holds its lane there, and hands its part of the
//! batch over; the source checks that nothing changed meanwhile, adds its own part, and queues both as one batch. When that
//! is on disk, what came for the chats before is handed on, in order, and both go on. Whatever fails on the way changes
//! nothing: a source or destination that has decided on it already is read from the log again.
//! Source: AHP `moveChat`.

mod arrive;
mod leave;
mod order;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use actix::{AsyncContext, Context};

pub use arrive::Receiving;
pub use leave::Leaving;

use super::messages::SessionMessage;
use super::{MAILBOX, SessionActor};
use crate::actors::command::{Refusal, RefusalKind};
use crate::actors::core::SessionCore;

type Core = Rc<RefCell<SessionCore>>;

fn invalid(code: &'static str, message: impl Into<String>) -> Refusal {
    Refusal::new(RefusalKind::InvalidParams, code, message)
}

impl SessionActor {
    /// Whether a chat is on its way from or to this session.
    pub(super) fn is_moving(&self) -> bool {
        self.moving.is_some() || self.receiving.is_some()
    }

    /// Keeps a message until the move is over.
    pub(super) fn park(&mut self, message: SessionMessage) {
        if self.shared.writer.is_failing() {
            message.refuse_unreadable(&self.shared);
        } else if self.parked.len() < MAILBOX {
            self.parked.push_back(message);
        } else {
            message.refuse_busy(&self.shared);
        }
    }

    /// Keeps what waited already in front of all that came since.
    pub(super) fn park_again(&mut self, mut kept: VecDeque<SessionMessage>) {
        kept.append(&mut self.parked);
        self.parked = kept;
    }

    /// The move is over: what was kept is served.
    fn unpark(&mut self, ctx: &mut Context<Self>) {
        if self.is_moving() || self.parked.is_empty() {
            return;
        }
        let mut parked = std::mem::take(&mut self.parked);
        match &mut self.waiting {
            Some(waiting) => waiting.append(&mut parked),
            None => {
                self.waiting = Some(parked);
                ctx.address().do_send(SessionMessage::Settled);
            }
        }
    }

    /// Hands on what is for a chat that has moved away; returns what is for this session.
    pub(super) fn forward(&self, core: &SessionCore, message: SessionMessage) -> Option<SessionMessage> {
        let Some(chat) = message.channel().filter(|channel| **channel != core.channel) else { return Some(message) };
        if core.fold.state.chats.iter().any(|listed| listed.resource == chat.as_str()) {
            return Some(message);
        }
        match self.shared.registry.resolve(chat.as_str()) {
            Ok(Some(found)) if found.session != self.id && found.channel == *chat => {
                self.shared.registry.deliver(&found, message);
                None
            }
            _ => Some(message),
        }
    }
}
