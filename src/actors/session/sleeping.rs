//! How a session and its chats fall asleep and stop: everything that is to be kept is written down first.

use std::cell::RefCell;
use std::rc::Rc;

use actix::{ActorContext, AsyncContext, Context};

use super::{SessionActor, SessionMessage};
use crate::actors::chat::{ChatMessage, Listed, list_process, listed_as_running};
use crate::actors::core::SessionCore;
use crate::events::Channel;
use crate::projections::workers;

impl SessionActor {
    /// Lets go of what has been idle for long: chats, and the session itself.
    pub(super) fn doze(&mut self, ctx: &mut Context<Self>) {
        let idle = self.shared.settings.idle_timeout;
        let Some(core) = self.core.clone() else {
            if self.waiting.is_none() && !self.is_moving() && self.last_used.elapsed() >= idle {
                self.shared.registry.sleep(self.id, &ctx.address(), SessionMessage::Stop);
            }
            return;
        };
        if self.waiting.is_some() || self.is_moving() || self.is_attaching() {
            return;
        }
        self.take_up_started();
        self.forget_sleeping(&core);
        let asleep = self.chats.is_empty() && self.last_used.elapsed() >= idle && core.borrow().is_settled();
        // Nobody leaves a session that is disposed.
        let clients = !core.borrow().fold.disposed && !core.borrow().fold.state.active_clients.is_empty();
        if asleep && !clients {
            // Now and not at the end: by then an actor that follows may have recorded more, and the checkpoint, which is
            // keyed by the newest event of its place, would claim to hold that too.
            let mut core = core.borrow_mut();
            if core.is_unsaved() {
                core.save();
            }
            drop(core);
            self.shared.registry.sleep(self.id, &ctx.address(), SessionMessage::Stop);
        }
    }

    /// Lets go of chats that have been idle for long: they hold nothing that is not on disk.
    fn forget_sleeping(&mut self, core: &Rc<RefCell<SessionCore>>) {
        let idle = self.shared.settings.idle_timeout;
        let core_ref = core.borrow();
        let with_process = listed_as_running(&core_ref);
        let agent = self.shared.agent(&core_ref.fold.state.provider);
        let kept = agent.map_or(idle, |agent| agent.idle_timeout().max(idle));
        // Their processes speak for workers, whatever they do themselves.
        let speaking = workers::above_running(&core_ref.fold.state);
        let sleepy: Vec<Channel> = self
            .chats
            .keys()
            .filter(|uri| !speaking.contains(uri.as_str()))
            .filter(|uri| {
                let cell = core_ref.chats.get(uri.as_str());
                let idle = if with_process.contains(uri) { kept } else { idle };
                cell.is_none_or(|cell| cell.borrow().can_sleep(idle))
            })
            .cloned()
            .collect();
        drop(core_ref);
        self.list_ended(core, &sleepy);
        for uri in sleepy {
            // Saved here for the same reason: the chat may be awake again before this actor of it has ended.
            let cell = core.borrow_mut().chats.remove(uri.as_str());
            if let Some(cell) = cell {
                let mut cell = cell.borrow_mut();
                cell.is_asleep = true;
                if SessionCore::is_chat_unsaved(&cell) {
                    core.borrow().save_chat(&mut cell);
                }
            }
            if let Some(chat) = self.chats.remove(&uri) {
                chat.do_send(ChatMessage::Stop);
            }
        }
    }

    /// Lists the processes of these chats as ended: they end with their actors.
    pub(super) fn list_ended(&self, core: &Rc<RefCell<SessionCore>>, chats: &[Channel]) {
        if chats.is_empty() {
            return;
        }
        let mut core = core.borrow_mut();
        let mut recording = core.record(self.by_host());
        for chat in chats {
            list_process(&mut recording, chat, None, Listed::Ended);
        }
        recording.finish(None);
    }

    /// Writes down what is to be kept, and ends.
    pub(super) fn stop(&mut self, ctx: &mut Context<Self>) {
        if let Some(core) = self.core.clone().filter(|core| !core.borrow().fold.disposed) {
            let running = listed_as_running(&core.borrow());
            self.list_ended(&core, &running);
        }
        for chat in self.chats.values() {
            chat.do_send(ChatMessage::Stop);
        }
        self.chats.clear();
        let attaching = std::mem::take(&mut self.attaching);
        for message in self.waiting.take().into_iter().flatten().chain(attaching.into_values().flatten()) {
            message.refuse_busy(&self.shared);
        }
        self.give_up_moving();
        if let Some(core) = self.core.take() {
            let mut core = core.borrow_mut();
            if core.is_unsaved() {
                core.save();
            }
        }
        ctx.stop();
    }
}
