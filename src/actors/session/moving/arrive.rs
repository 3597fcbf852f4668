//! Chats arrive in a session, or in a new one that is made of them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use actix::{AsyncContext, Context};
use ahp_types::actions::{SessionChatAddedAction, SessionDefaultChatChangedAction, SessionReadyAction, StateAction};
use ahp_types::state::{SessionLifecycle, SessionState, SessionStatus};
use serde_json::json;

use super::order::{placed, reordered};
use super::{Core, SessionActor, invalid};
use crate::actors::chat;
use crate::actors::command::{Refusal, RefusalKind};
use crate::actors::core::{Part, Recording, SessionCore, Unsaved};
use crate::actors::envelope;
use crate::actors::moves::{Accepted, Arrival, Back, Gate};
use crate::actors::registry::session_by_id;
use crate::actors::session::{SessionMessage, refusal_of_lost};
use crate::actors::writer::Held;
use crate::clock;
use crate::events::Channel;
use crate::events::rows::ChannelKind;
use crate::projections::action::Action;
use crate::projections::fact::Fact;
use crate::projections::session::SessionFold;

/// A move to this session.
pub enum Receiving {
    /// It is in the fold, and what was decided before is on its way to the disk.
    Decided { part: Part, held: Held, back: Back },
    /// Its part is with the session that the chats leave.
    HandedOver { number: u64 },
}

impl SessionActor {
    /// Takes chats into the fold, and holds the lane at that place.
    pub(in crate::actors::session) fn receive(&mut self, core: &Core, arrival: Arrival) {
        let order = match takes(&core.borrow(), &arrival) {
            Ok(order) => order,
            Err(refusal) => return decline(&core.borrow(), arrival.back, refusal),
        };
        let mut core = core.borrow_mut();
        let mut recording = core.record(arrival.by.clone());
        take_in(&mut recording, &arrival);
        if let Some(action) = reordered(&recording.core.fold.state, order) {
            recording.session_action(Action::host(action), None, false);
        }
        let part = recording.into_part();
        self.hold(&core, part, arrival.back);
    }

    /// Makes a session of the chats: the first one is its default chat.
    pub(in crate::actors::session) fn create_for(&mut self, arrival: Arrival, uri: Channel, ctx: &mut Context<Self>) {
        let created_at = clock::rfc3339(arrival.by.at);
        let state = new_state(&arrival);
        let fold = SessionFold::new(state.clone(), created_at.clone());
        let shared = Arc::clone(&self.shared);
        let mut core = SessionCore::new(self.id, uri.clone(), fold, Unsaved::default(), None, shared, ctx.address());
        let by_id = session_by_id(&self.shared, uri.as_str(), self.id);
        let id = self.id;
        let mut recording = core.record(arrival.by.clone());
        recording.create_channel(&uri, id, ChannelKind::Session);
        by_id.into_iter().for_each(|row| recording.row(row));
        recording.session_fact(&Fact::SessionCreated { created_at, state: Box::new(state) });
        take_in(&mut recording, &arrival);
        let default_chat = arrival.chats.first().map(|chat| chat.uri.to_string());
        for action in [
            StateAction::SessionDefaultChatChanged(SessionDefaultChatChangedAction { default_chat }),
            StateAction::SessionReady(SessionReadyAction {}),
        ] {
            recording.session_action(Action::host(action), None, false);
        }
        let mut part = recording.into_part();
        let params = json!({ "channel": Channel::root().as_str(), "summary": core.summary() });
        part.note(envelope::notification("root/sessionAdded", &params));
        self.hold(&core, part, arrival.back);
        self.core = Some(Rc::new(RefCell::new(core)));
    }

    /// Nothing that is decided from now on leaves before the batch that `part` goes into.
    fn hold(&mut self, core: &SessionCore, part: Part, back: Back) {
        let (number, generation) = (back.number, core.lane.generation());
        let address = core.address.clone();
        let reached = move |kept| SessionMessage::Reached { number, kept };
        core.lane.release(None, Box::new(move |place| address.do_send(reached(place.is_ok()))));
        let held = core.lane.hold();
        let address = core.address.clone();
        core.lane.release(
            None,
            Box::new(move |place| {
                if place.is_err() {
                    address.do_send(SessionMessage::Lost { generation });
                }
            }),
        );
        self.receiving = Some(Receiving::Decided { part, held, back });
    }

    /// What was decided before the chats were taken in is durable, or lost: the other session goes on.
    pub(in crate::actors::session) fn reached(&mut self, number: u64, kept: bool, ctx: &mut Context<Self>) {
        let is_it =
            |receiving: &mut Receiving| matches!(receiving, Receiving::Decided { back, .. } if back.number == number);
        let Some(Receiving::Decided { part, held, back }) = self.receiving.take_if(is_it) else { return };
        if !kept {
            let refusal = Refusal::log_unavailable("the log takes no events now");
            back.answer(Err(refusal));
            return self.unpark(ctx);
        }
        self.receiving = Some(Receiving::HandedOver { number });
        let gate = Gate::new(ctx.address(), number);
        back.answer(Ok(Accepted { part, held, gate }));
    }

    /// The batch is on disk: what came for the chats before goes first.
    pub(in crate::actors::session) fn arrived(
        &mut self,
        number: u64,
        messages: Vec<SessionMessage>,
        ctx: &mut Context<Self>,
    ) {
        if self.is_handed_over(number) {
            self.receiving = None;
        }
        self.park_again(messages.into());
        self.unpark(ctx);
    }

    /// The other session refused after all, or is gone, or the batch was lost: the log says which.
    pub(in crate::actors::session) fn not_arrived(&mut self, number: u64, ctx: &mut Context<Self>) {
        if !self.is_handed_over(number) {
            return;
        }
        self.receiving = None;
        if self.core.is_some() {
            self.reread(ctx);
        }
        self.unpark(ctx);
    }

    fn is_handed_over(&self, number: u64) -> bool {
        matches!(&self.receiving, Some(Receiving::HandedOver { number: expected }) if *expected == number)
    }

    /// The fold that chats were taken into is not what the log says: unless their batch is queued, they are refused.
    pub(in crate::actors::session) fn forget_receiving(&mut self) {
        self.receiving.take_if(|receiving| matches!(receiving, Receiving::Decided { .. }));
    }
}

/// The catalogue's order with the chats in it.
fn takes(core: &SessionCore, arrival: &Arrival) -> Result<Vec<String>, Refusal> {
    let state = &core.fold.state;
    if state.lifecycle != SessionLifecycle::Ready {
        return Err(Refusal::new(RefusalKind::InvalidRequest, "not-ready", "the destination is not ready"));
    }
    if state.provider != arrival.provider {
        let text = format!("the destination's agent is {}, the chat's is {}", state.provider, arrival.provider);
        return Err(invalid("other-agent", text));
    }
    let allowed: &[String] = state.working_directories.as_deref().unwrap_or_default();
    if let Some(outside) = arrival.directories.iter().find(|directory| !allowed.contains(directory)) {
        return Err(invalid("bad-directory", format!("{outside} is not a directory of the destination")));
    }
    let limit = core.shared.settings.max_chats_in_session;
    if state.chats.len() + arrival.chats.len() > limit {
        metrics::counter!("scrollback_limit_met_total", "limit" => "chats").increment(1);
        let text = format!("a session holds at most {limit} chats");
        return Err(Refusal::new(RefusalKind::Unavailable, "limit-exceeded", text));
    }
    let moved: Vec<&str> = arrival.chats.iter().map(|chat| chat.uri.as_str()).collect();
    placed(state, &moved, arrival.after.as_deref())
}

/// A refusal rests on what was decided before it.
fn decline(core: &SessionCore, back: Back, refusal: Refusal) {
    let answer = move |place: Result<_, _>| {
        let refusal = place.map_or_else(|lost| refusal_of_lost(&lost), |_| refusal);
        back.answer(Err(refusal));
    };
    core.lane.release(None, Box::new(answer));
}

/// Lists the chats, with their paused queues, and keeps what their agent kept for them.
fn take_in(recording: &mut Recording<'_>, arrival: &Arrival) {
    for chat in &arrival.chats {
        let added = SessionChatAddedAction { summary: chat.summary.clone() };
        recording.session_action(Action::host(StateAction::SessionChatAdded(added)), Some(chat.id), false);
    }
    for chat in arrival.chats.iter().filter(|chat| chat.is_paused) {
        chat::list_paused(recording, &chat.uri, Some(chat.id), true);
    }
    for (key, value) in &arrival.memory {
        recording.session_fact(&Fact::Remembered { key: key.clone(), value: value.clone() });
    }
}

fn new_state(arrival: &Arrival) -> SessionState {
    SessionState {
        provider: arrival.provider.clone(),
        title: arrival.chats.first().map(|chat| chat.summary.title.clone()).unwrap_or_default(),
        status: SessionStatus::Idle.bits(),
        activity: None,
        origin: None,
        project: None,
        working_directories: Some(arrival.directories.clone()),
        annotations: None,
        lifecycle: SessionLifecycle::Creating,
        creation_error: None,
        server_tools: None,
        active_clients: Vec::new(),
        chats: Vec::new(),
        default_chat: None,
        config: arrival.config.clone(),
        customizations: None,
        changesets: None,
        input_needed: None,
        meta: None,
    }
}
