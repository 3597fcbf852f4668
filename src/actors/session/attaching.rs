//! Messages whose attachments are worked on: the session goes on meanwhile.
//!
//! An action is decided on twice: before anything is done for it, so that what would be refused leaves nothing behind, and
//! again with what came of the work, since the session has gone on. What the same connection sends to this session meanwhile
//! waits behind it, so that a client hears of its actions in the order in which it sent them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use actix::{ActorFutureExt, AsyncContext, Context};
use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{MAILBOX, SessionActor, SessionMessage, refuse, reject};
use crate::actors::attaching::{Attached, Job, prepare};
use crate::actors::chat;
use crate::actors::command::{Refusal, RefusalKind, Reply};
use crate::actors::connection::{Caller, ConnectionId};
use crate::actors::core::{ClientAction, SessionCore};
use crate::actors::host::CreateChat;
use crate::actors::rejection::{Code, Rejection};
use crate::attachments::sent;
use crate::events::Channel;
use crate::projections::action::Action;

type Core = Rc<RefCell<SessionCore>>;

impl SessionActor {
    /// Keeps a message back that must not overtake one of the same connection; returns one that need not wait.
    pub(super) fn hold_back(&mut self, message: SessionMessage) -> Option<SessionMessage> {
        let held = message.in_order_of().and_then(|connection| self.attaching.get_mut(&connection));
        let Some(held) = held else { return Some(message) };
        if held.len() < MAILBOX {
            held.push_back(message);
        } else {
            message.refuse_busy(&self.shared);
        }
        None
    }

    /// Begins the work on an action's attachments, unless the action is refused as it is.
    pub(super) fn attach(
        &mut self,
        core: &Core,
        channel: Channel,
        client: ClientAction,
        action: &Action,
        ctx: &mut Context<Self>,
    ) {
        let foreseen = {
            let core = core.borrow();
            let cell = core.chats.get(channel.as_str()).cloned();
            let at = self.shared.clock.now();
            cell.map_or(Ok(()), |cell| chat::foresee(&core, &cell.borrow(), &client, action, at))
        };
        if let Err(rejection) = foreseen {
            return reject(&core.borrow().lane, client, rejection);
        }
        let job = Job {
            is_action: true,
            pins: chat::sends(&action.decoded),
            ..self.job(&core.borrow(), &client.caller, client.sent.clone())
        };
        let connection = client.caller.connection.id;
        self.work(connection, job, ctx, move |_, prepared| {
            let (client, action) =
                match prepared.and_then(|(value, attached)| Ok((Action::from_json(value)?, attached))) {
                    Ok((action, attached)) => {
                        (ClientAction { attached: Some(Arc::new(attached)), ..client }, Ok(Box::new(action)))
                    }
                    Err(rejection) => (client, Err(rejection)),
                };
            Some(SessionMessage::Dispatch { channel, client, action })
        });
    }

    /// Begins the work on the attachments of a new chat's first message, unless there are none or the chat is refused as it
    /// is; returns the command where nothing is to be done.
    pub(super) fn attach_first(
        &mut self,
        core: &Core,
        caller: &Caller,
        command: Box<CreateChat>,
        reply: Reply,
        ctx: &mut Context<Self>,
    ) -> Option<(Box<CreateChat>, Reply)> {
        if command.attached.is_some() || !self.is_accepted_with_attachments(core, &command) {
            return Some((command, reply));
        }
        let whole = command.with_bytes.as_ref().or(command.initial_message.as_ref());
        let sent = whole.map(|raw| Bytes::copy_from_slice(raw.get().as_bytes())).unwrap_or_default();
        let job = Job { is_action: false, pins: true, ..self.job(&core.borrow(), caller, sent) };
        let (connection, caller) = (caller.connection.id, caller.clone());
        self.work(connection, job, ctx, move |actor, prepared| {
            let ready = prepared.and_then(|(message, attached)| Ok((raw(&message)?, attached)));
            match ready {
                Ok((message, attached)) => {
                    let mut command = command;
                    (command.initial_message, command.with_bytes) = (Some(message), None);
                    command.attached = Some(Arc::new(attached));
                    Some(SessionMessage::CreateChat { caller, command, reply })
                }
                Err(rejection) => {
                    actor.refuse_first(&rejection, reply);
                    None
                }
            }
        });
        None
    }

    /// Whether a chat would be made, with a first message that has attachments to be worked on.
    fn is_accepted_with_attachments(&mut self, core: &Core, command: &CreateChat) -> bool {
        let Some(message) = &command.initial_message else { return false };
        let is_own_default = core.borrow().fold.state.default_chat.as_deref() == Some(command.chat.as_str());
        if is_own_default && command.source.is_none() || self.check_new_chat(&core.borrow(), command).is_err() {
            return false;
        }
        let source = command.source.as_ref();
        if source.is_some_and(|source| self.beginning(core, &command.chat, source).is_err()) {
            return false;
        }
        let parsed = chat::parse_message(message.get(), &self.shared.settings);
        let message = parsed.ok().and_then(|value| serde_json::from_value(value).ok());
        message.is_some_and(|message| sent::needs_work(&message))
    }

    fn refuse_first(&self, rejection: &Rejection, reply: Reply) {
        let refusal = of_first_message(rejection);
        match &self.core {
            Some(core) => refuse(&core.borrow(), refusal, reply),
            None => reply(Err(refusal)),
        }
    }

    fn job(&self, core: &SessionCore, caller: &Caller, sent: Bytes) -> Job {
        let agent = self.shared.agent(&core.fold.state.provider);
        Job {
            shared: Arc::clone(&self.shared),
            caller: caller.clone(),
            session: self.id,
            sent,
            is_action: false,
            pins: false,
            images: agent.is_some_and(|agent| agent.extras().images),
        }
    }

    /// Works, and then serves what `then` makes of it, and what waited behind it.
    fn work(
        &mut self,
        connection: ConnectionId,
        job: Job,
        ctx: &mut Context<Self>,
        then: impl FnOnce(&mut Self, Result<(Value, Attached), Rejection>) -> Option<SessionMessage> + 'static,
    ) {
        self.attaching.insert(connection, VecDeque::new());
        let working = actix::fut::wrap_future::<_, Self>(prepare(job));
        ctx.spawn(working.map(move |prepared, actor, ctx| {
            let first = then(actor, prepared);
            let behind = actor.attaching.remove(&connection).unwrap_or_default();
            let ready: VecDeque<SessionMessage> = first.into_iter().chain(behind).collect();
            actor.serve_in_order(ready, ctx);
        }));
    }

    /// Serves `ready` before what arrived after it, one by one.
    fn serve_in_order(&mut self, mut ready: VecDeque<SessionMessage>, ctx: &mut Context<Self>) {
        match &mut self.waiting {
            Some(waiting) => {
                ready.append(waiting);
                *waiting = ready;
            }
            None if ready.is_empty() => {}
            None => {
                self.waiting = Some(ready);
                self.settled(ctx);
            }
        }
    }

    /// Whether attachments are being worked on.
    pub(super) fn is_attaching(&self) -> bool {
        !self.attaching.is_empty()
    }
}

/// The refusal of a new chat whose first message is refused.
pub(super) fn of_first_message(problem: &Rejection) -> Refusal {
    let kind = match problem.code {
        Code::LimitExceeded | Code::LogUnavailable => RefusalKind::Unavailable,
        _ => RefusalKind::InvalidParams,
    };
    Refusal::new(kind, problem.code.word(), format!("initialMessage: {}", problem.detail))
}

fn raw(message: &Value) -> Result<Box<RawValue>, Rejection> {
    RawValue::from_string(message.to_string()).map_err(|e| Rejection::new(Code::Malformed, e.to_string()))
}
