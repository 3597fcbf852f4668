//! A session that was disposed and a chat that was closed come back; and a session that is erased is let go of.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use actix::{AsyncContext, Context};
use ahp_types::actions::{ChatMovableChangedAction, SessionChatAddedAction, StateAction};
use ahp_types::state::{ChatState, SessionState};
use serde_json::json;

use super::beside::keep_until_durable;
use super::chats::invalid;
use super::{Restoring, SessionActor, SessionMessage, no_such_chat, refusal_of_lost, refuse};
use super::{directories, role};
use crate::actors::chat::{ChatMessage, list_paused};
use crate::actors::command::{self, Refusal, RefusalKind, Reply};
use crate::actors::core::{By, SessionCore};
use crate::actors::envelope;
use crate::actors::root::RootMessage;
use crate::events::Channel;
use crate::projections::action::Action;
use crate::projections::fact::Fact;
use crate::projections::mirror;

type Core = Rc<RefCell<SessionCore>>;

impl SessionActor {
    /// What comes back is read from the store: the batch that ended it has to be there.
    pub(super) fn restore(
        &mut self,
        core: &Core,
        what: Restoring,
        principal: Arc<str>,
        reply: Reply,
        ctx: &mut Context<Self>,
    ) {
        let core = core.borrow();
        if let Err(refusal) = is_gone(&core, &what) {
            return refuse(&core, refusal, reply);
        }
        // By way of the registry: this actor may have fallen asleep by then.
        let (shared, session, address) = (Arc::clone(&self.shared), self.id, ctx.address());
        core.lane.release_on_disk(Box::new(move |place| match place {
            Ok(_) => shared.registry.send(session, SessionMessage::BringBack { what, principal, reply }),
            Err(lost) => {
                let refuse = move || reply(Err(refusal_of_lost(&lost)));
                address.do_send(SessionMessage::Tell(Box::new(refuse)));
            }
        }));
    }

    pub(super) fn bring_back(&mut self, core: &Core, what: &Restoring, principal: Arc<str>, reply: Reply) {
        if let Err(refusal) = is_gone(&core.borrow(), what) {
            return refuse(&core.borrow(), refusal, reply);
        }
        let by = By { principal, at: self.shared.clock.now(), client: None };
        match what {
            Restoring::Session => self.restore_session(core, by, reply),
            Restoring::Chat(chat) => self.restore_chat(core, chat, by, reply),
        }
    }

    fn restore_session(&mut self, core: &Core, by: By, reply: Reply) {
        {
            let mut core = core.borrow_mut();
            let mut recording = core.record(by);
            recording.session_fact(&Fact::SessionRestored);
            recording.finish(None);
        }
        let core = core.borrow();
        let (shared, summary) = (Arc::clone(&self.shared), core.summary().cloned());
        let session = core.channel.clone();
        core.lane.release(
            None,
            Box::new(move |place| {
                if let Err(lost) = place {
                    return reply(Err(refusal_of_lost(&lost)));
                }
                let root = Channel::root();
                let params = json!({ "channel": root.as_str(), "summary": summary });
                shared.hub.notify(&session, &envelope::notification("root/sessionAdded", &params));
                if let Some(root) = shared.root.get() {
                    root.do_send(RootMessage::SessionsChanged { by: 1 });
                }
                reply(Ok(command::null()));
            }),
        );
    }

    fn restore_chat(&mut self, core: &Core, chat: &Channel, by: By, reply: Reply) {
        let limit = self.shared.settings.max_chats_in_session;
        if core.borrow().fold.state.chats.len() >= limit {
            metrics::counter!("scrollback_limit_met_total", "limit" => "chats").increment(1);
            let text = format!("a session holds at most {limit} chats");
            return refuse(&core.borrow(), Refusal::new(RefusalKind::Unavailable, "limit-exceeded", text), reply);
        }
        let cell = match self.read_chat(chat) {
            Ok(Some(cell)) => cell,
            Ok(None) => return refuse(&core.borrow(), no_such_chat(chat), reply),
            Err(fault) => return refuse(&core.borrow(), Refusal::log_unavailable(fault), reply),
        };
        let cell = Rc::new(RefCell::new(cell));
        {
            let mut core = core.borrow_mut();
            core.chats.insert(chat.to_string(), Rc::clone(&cell));
            let mut cell = cell.borrow_mut();
            let changes = as_in(&core.fold.state, &cell.fold.state);
            let mut recording = core.record(by);
            for action in changes {
                recording.chat_action(&mut cell, Action::host(action), false);
            }
            let waits = cell.fold.state.queued_messages.iter().flatten().next().is_some();
            let summary = mirror::summary_of(&cell.fold.state);
            let added = StateAction::SessionChatAdded(SessionChatAddedAction { summary });
            recording.session_action(Action::host(added), Some(cell.id), false);
            list_paused(&mut recording, chat, Some(cell.id), waits);
            recording.finish(None);
        }
        if let Some(actor) = self.chat(core, chat) {
            keep_until_durable(&core.borrow(), &(cell, actor));
        }
        super::answer(&core.borrow(), Ok(command::null()), reply);
    }

    /// Lets go of a disposed session: what follows is read from the log again, where there is anything.
    pub(super) fn forget(&mut self, core: &Core, reply: Reply, ctx: &mut Context<Self>) {
        if !core.borrow().fold.disposed {
            return refuse(&core.borrow(), invalid("not-gone", "the session is open"), reply);
        }
        for (_, chat) in self.chats.drain() {
            chat.do_send(ChatMessage::Abandon);
        }
        self.core = None;
        self.shared.registry.let_go(self.id);
        reply(Ok(command::null()));
        ctx.address().do_send(SessionMessage::Stop);
    }
}

/// What changes in a chat that comes back into a session which may have other directories and another default chat by now.
fn as_in(session: &SessionState, chat: &ChatState) -> Vec<StateAction> {
    let mut changes = directories::on_return(session, chat);
    let movable = role::is_movable(session, &mirror::summary_of(chat));
    if chat.movable.unwrap_or(false) != movable {
        changes.push(StateAction::ChatMovableChanged(ChatMovableChangedAction { movable }));
    }
    changes
}

/// Whether it can come back: it is gone, and what it is in is not.
fn is_gone(core: &SessionCore, what: &Restoring) -> Result<(), Refusal> {
    let channel = &core.channel;
    match what {
        Restoring::Session if core.fold.disposed => Ok(()),
        Restoring::Session => Err(invalid("not-gone", format!("{channel} is not disposed"))),
        Restoring::Chat(_) if core.fold.disposed => {
            Err(invalid("disposed", format!("the session {channel} is disposed: restore it first")))
        }
        Restoring::Chat(chat) => match core.fold.state.chats.iter().any(|listed| listed.resource == chat.as_str()) {
            true => Err(invalid("not-gone", format!("{chat} is not closed"))),
            false => Ok(()),
        },
    }
}
