//! A session that was disposed and a chat that was closed come back; and a session that is erased is let go of.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use actix::{AsyncContext, Context};
use ahp_types::actions::{
    ChatMovableChangedAction, ChatWorkingDirectoryRemovedAction, SessionChatAddedAction, StateAction,
};
use ahp_types::state::{ChatState, SessionState};
use serde_json::json;

use super::beside::keep_until_durable;
use super::chats::invalid;
use super::role;
use super::{Restoring, SessionActor, SessionMessage, no_such_chat, refusal_of_lost, refuse};
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
    pub(super) fn restore(&mut self, core: &Core, what: &Restoring, principal: Arc<str>, reply: Reply) {
        let by = By { principal, at: self.shared.clock.now(), client: None };
        match what {
            Restoring::Session => self.restore_session(core, by, reply),
            Restoring::Chat(chat) => self.restore_chat(core, chat, by, reply),
        }
    }

    fn restore_session(&mut self, core: &Core, by: By, reply: Reply) {
        if !core.borrow().fold.disposed {
            let text = format!("{} is not disposed", core.borrow().channel);
            return refuse(&core.borrow(), invalid("not-gone", text), reply);
        }
        {
            let mut core = core.borrow_mut();
            let mut recording = core.record(by);
            recording.session_fact(&Fact::SessionRestored);
            recording.finish(None);
        }
        let core = core.borrow();
        let (shared, summary) = (Arc::clone(&self.shared), core.summary().cloned());
        core.lane.release(
            None,
            Box::new(move |place| {
                if let Err(lost) = place {
                    return reply(Err(refusal_of_lost(&lost)));
                }
                let root = Channel::root();
                let params = json!({ "channel": root.as_str(), "summary": summary });
                shared.hub.notify(&root, &envelope::notification("root/sessionAdded", &params));
                if let Some(root) = shared.root.get() {
                    root.do_send(RootMessage::SessionsChanged { by: 1 });
                }
                reply(Ok(command::null()));
            }),
        );
    }

    fn restore_chat(&mut self, core: &Core, chat: &Channel, by: By, reply: Reply) {
        if core.borrow().fold.disposed {
            let text = format!("the session {} is disposed: restore it first", core.borrow().channel);
            return refuse(&core.borrow(), invalid("disposed", text), reply);
        }
        if core.borrow().fold.state.chats.iter().any(|listed| listed.resource == chat.as_str()) {
            return refuse(&core.borrow(), invalid("not-gone", format!("{chat} is not closed")), reply);
        }
        let limit = self.shared.settings.max_chats_in_session;
        if core.borrow().fold.state.chats.len() >= limit {
            metrics::counter!("scrollback_limit_met_total", "limit" => "chats").increment(1);
            let text = format!("a session holds at most {limit} chats");
            return refuse(&core.borrow(), Refusal::new(RefusalKind::Unavailable, "limit-exceeded", text), reply);
        }
        let mut cell = match self.read_chat(chat) {
            Ok(Some(cell)) => cell,
            Ok(None) => return refuse(&core.borrow(), no_such_chat(chat), reply),
            Err(fault) => return refuse(&core.borrow(), Refusal::log_unavailable(fault), reply),
        };
        {
            let mut core = core.borrow_mut();
            let waits = cell.fold.state.queued_messages.iter().flatten().next().is_some();
            let changes = since_it_was_closed(&core.fold.state, &cell.fold.state);
            let mut recording = core.record(by);
            for change in changes {
                recording.chat_action(&mut cell, Action::host(change), false);
            }
            let summary = mirror::summary_of(&cell.fold.state);
            let added = StateAction::SessionChatAdded(SessionChatAddedAction { summary });
            recording.session_action(Action::host(added), Some(cell.id), false);
            list_paused(&mut recording, chat, Some(cell.id), waits);
            recording.finish(None);
            core.chats.insert(chat.to_string(), Rc::new(RefCell::new(cell)));
        }
        if let Some(awake) = self.awake(core, chat) {
            keep_until_durable(&core.borrow(), &awake);
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

/// What a chat has to learn of its session before it is listed again. It may have been the default chat, and comes back as one among
/// the others; directories may have left the session meanwhile.
fn since_it_was_closed(session: &SessionState, chat: &ChatState) -> Vec<StateAction> {
    let is_there =
        |directory: &&String| session.working_directories.iter().flatten().any(|listed| listed == *directory);
    let gone = chat.working_directories.iter().flatten().filter(|directory| !is_there(directory));
    let removed = |directory: &String| {
        StateAction::ChatWorkingDirectoryRemoved(ChatWorkingDirectoryRemovedAction { directory: directory.clone() })
    };
    let mut changes: Vec<StateAction> = gone.map(removed).collect();
    if role::is_peoples(&mirror::summary_of(chat)) && chat.movable != Some(true) {
        changes.push(StateAction::ChatMovableChanged(ChatMovableChangedAction { movable: true }));
    }
    changes
}
