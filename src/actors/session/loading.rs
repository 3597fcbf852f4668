//! A session read from the log: when it wakes, and again after a loss or a panic.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use actix::{Actor, Addr, AsyncContext, Context};
use ahp_types::state::SessionStatus;

use super::{MAILBOX, RETRY, SessionActor, SessionMessage};
use crate::actors::chat::{ChatActor, ChatMessage, listed_as_running};
use crate::actors::core::{ChatCell, SessionCore, Unsaved};
use crate::events::rows::ChannelKind;
use crate::events::{Channel, ChannelId, ServerSeq};
use crate::projections::catalogue::{self, CatalogueRow};
use crate::projections::chat::ChatFold;
use crate::projections::replay::{self, At};
use crate::projections::session::SessionFold;
use crate::projections::{FoldFault, catalogue as channels};

type Read = (Channel, At<SessionFold>, Option<CatalogueRow>);

impl SessionActor {
    /// Reads the session and takes its folds up, once nothing of it is on its way to the disk. A session that cannot be read
    /// stays as it is in the log; its clients are told, and the next message tries again.
    pub(super) fn load(&mut self, ctx: &mut Context<Self>) {
        if self.waiting.is_some() {
            return;
        }
        if self.shared.writer.is_settled(self.id) {
            return self.take_up(ctx);
        }
        self.waiting = Some(VecDeque::new());
        let address = ctx.address();
        self.shared.writer.when_settled(self.id, Box::new(move || address.do_send(SessionMessage::Settled)));
        ctx.run_later(RETRY, Self::refuse_waiting);
    }

    /// What the log says of the session is all that was decided: it goes on. What was kept is served one by one, since each may
    /// make the session wait for a chat, and the next is decided after that.
    pub(super) fn settled(&mut self, ctx: &mut Context<Self>) {
        let Some(mut kept) = self.waiting.take() else { return };
        if self.is_moving() && self.core.is_some() {
            return self.park_again(kept);
        }
        if self.core.is_none() {
            self.load(ctx);
        }
        if let Some(waiting) = &mut self.waiting {
            *waiting = kept;
            return;
        }
        let Some(first) = kept.pop_front() else { return };
        self.serve(first, ctx);
        match &mut self.waiting {
            // It is being read again: what comes of that goes on with these too.
            Some(waiting) => waiting.append(&mut kept),
            None if kept.is_empty() => {}
            None => {
                self.waiting = Some(kept);
                ctx.address().do_send(SessionMessage::Settled);
            }
        }
    }

    /// Says something, behind the reading that is under way.
    pub(super) fn say(&mut self, tell: Box<dyn FnOnce() + Send>) {
        match &mut self.waiting {
            Some(waiting) => waiting.push_back(SessionMessage::Tell(tell)),
            None => tell(),
        }
    }

    /// Keeps a message until the session is read.
    pub(super) fn keep(&mut self, message: SessionMessage) {
        if self.shared.writer.is_failing() {
            return message.refuse_unreadable(&self.shared);
        }
        match &mut self.waiting {
            Some(waiting) if waiting.len() < MAILBOX => waiting.push_back(message),
            _ => message.refuse_busy(&self.shared),
        }
    }

    /// Nobody waits for a disk that takes nothing.
    fn refuse_waiting(&mut self, ctx: &mut Context<Self>) {
        let Some(waiting) = &mut self.waiting else { return };
        if self.shared.writer.is_failing() {
            for message in std::mem::take(waiting) {
                message.refuse_unreadable(&self.shared);
            }
        }
        ctx.run_later(RETRY, Self::refuse_waiting);
    }

    fn take_up(&mut self, ctx: &mut Context<Self>) {
        match self.read() {
            Ok(Some((channel, at, listed))) => {
                let unsaved = Unsaved::after_replay(at.since_checkpoint);
                let shared = Arc::clone(&self.shared);
                if let Some(row) = &listed {
                    shared.registry.list(self.id, row);
                }
                let core = SessionCore::new(self.id, channel, at.fold, unsaved, listed, shared, ctx.address());
                let core = Rc::new(RefCell::new(core));
                self.expect_clients(&core, ctx);
                // Nothing runs for a session that was just read: what is listed ended with a host that was killed.
                if !self.was_lost && !self.shared.settings.maintenance && !core.borrow().fold.disposed {
                    let running = listed_as_running(&core.borrow());
                    self.list_ended(&core, &running);
                }
                self.core = Some(core);
                self.shared.attachments.sweep(self.id);
                // A disk that took nothing a moment ago is not asked again at once.
                match std::mem::take(&mut self.was_lost) {
                    true => drop(ctx.run_later(RETRY, |actor, _| actor.wake_running())),
                    false => self.wake_running(),
                }
            }
            // A session whose creation was lost: it never was.
            Ok(None) => {
                tracing::debug!(session = self.id.0, "a session without events was asked for");
                self.shared.registry.sleep(self.id, &ctx.address(), SessionMessage::Stop);
            }
            Err(fault) => tracing::error!(%fault, session = self.id.0, "a session cannot be read from the log"),
        }
    }

    fn read(&self) -> Result<Option<Read>, FoldFault> {
        let store = self.shared.store.as_ref();
        let Some(channel) = channels::uri(store, self.id)? else { return Ok(None) };
        let Some(at) = replay::fold::<SessionFold>(store, self.id, ServerSeq::MAX, true)? else { return Ok(None) };
        let listed = catalogue::entry(store, self.id)?;
        Ok(Some((channel, at, listed)))
    }

    /// A batch was lost: what was decided since rests on nothing. Everything is read from the log again.
    pub(super) fn lost(&mut self, generation: u64, ctx: &mut Context<Self>) {
        let current = self.core.as_ref().map(|core| core.borrow().lane.generation());
        if current == Some(generation) {
            self.was_lost = true;
            self.reread(ctx);
        }
    }

    /// Reads the folds from the log again, for a new generation of the lane, and lets the chats begin anew.
    pub(super) fn reread(&mut self, ctx: &mut Context<Self>) {
        for (_, chat) in self.chats.drain() {
            chat.do_send(ChatMessage::Abandon);
        }
        self.core = None;
        self.forget_receiving();
        self.load(ctx);
    }

    /// Wakes the chats whose turns nobody works on, so that these get their endings.
    fn wake_running(&mut self) {
        if self.shared.settings.maintenance {
            return;
        }
        let Some(core) = self.core.clone() else { return };
        let running = running(&core.borrow());
        for chat in running {
            self.chat(&core, &chat);
        }
    }

    /// Starts the actor of a chat that is in the catalogue.
    pub(super) fn wake_chat(&mut self, core: &Rc<RefCell<SessionCore>>, chat: &Channel) -> Option<Addr<ChatActor>> {
        let known = core.borrow().chats.get(chat.as_str()).cloned();
        let cell = match known {
            Some(cell) => cell,
            None => match self.read_chat(chat) {
                Ok(Some(cell)) => {
                    let cell = Rc::new(RefCell::new(cell));
                    core.borrow_mut().chats.insert(chat.to_string(), Rc::clone(&cell));
                    cell
                }
                Ok(None) => return None,
                Err(fault) => {
                    tracing::error!(%fault, %chat, "a chat cannot be read from the log");
                    return None;
                }
            },
        };
        Some(ChatActor::new(Rc::clone(core), cell).start())
    }

    pub(super) fn read_chat(&self, chat: &Channel) -> Result<Option<ChatCell>, FoldFault> {
        let store = self.shared.store.as_ref();
        let Some(row) = channels::channel(store, chat.as_str())?.filter(|row| row.kind == ChannelKind::Chat) else {
            return Ok(None);
        };
        let id = ChannelId(row.id);
        let Some(at) = replay::fold::<ChatFold>(store, id, ServerSeq::MAX, true)? else { return Ok(None) };
        Ok(Some(ChatCell::new(id, chat.clone(), at.fold, Unsaved::after_replay(at.since_checkpoint))))
    }
}

/// The chats in which a turn runs.
pub(super) fn running(core: &SessionCore) -> Vec<Channel> {
    let in_progress = SessionStatus::InProgress.bits();
    let chats = core.fold.state.chats.iter().filter(|chat| chat.status & in_progress != 0);
    chats.map(|chat| Channel::from(chat.resource.as_str())).collect()
}
