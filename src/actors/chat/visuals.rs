//! The visuals of a chat: published, listed, removed. None of it wakes an agent.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use actix::{AsyncContext, Context};
use ahp_types::state::ChatInteractivity;

use super::decide::Entry;
use super::{ChatActor, ChatMessage};
use crate::actors::agent::AgentInput;
use crate::actors::command::{self, Refusal, RefusalKind, Reply};
use crate::actors::core::By;
use crate::actors::session::{Subscriber, answer, hand_snapshot, not_there, refuse};
use crate::actors::visuals::{self, NewVisual, Published, VisualCommand};
use crate::clock::rfc3339;
use crate::events::{Channel, ChannelId};
use crate::projections::visual::{Visual, of_canvas};

/// How many bytes of pages of one chat may wait for the disk, as multiples of the largest page.
const PAGES_AHEAD: usize = 2;

impl ChatActor {
    /// Does what is asked of the chat's visuals.
    pub(super) fn visual(
        &mut self,
        principal: Arc<str>,
        command: VisualCommand,
        reply: Reply,
        ctx: &mut Context<Self>,
    ) {
        self.cell.borrow_mut().touch();
        let by = By { principal, at: self.shared.clock.now(), client: None };
        match command {
            VisualCommand::List => self.list_visuals(reply),
            VisualCommand::Publish(visual) => match self.publish(by, *visual, ctx) {
                Ok(visual) => {
                    let described = visuals::described(&visual, &self.shared.links);
                    answer(&self.core.borrow(), Ok(command::json(&described)), reply);
                }
                Err(refusal) => refuse(&self.core.borrow(), refusal, reply),
            },
            VisualCommand::Remove { id } => match self.remove_visual(by, &id, ctx) {
                Ok(()) => self.list_visuals(reply),
                Err(refusal) => refuse(&self.core.borrow(), refusal, reply),
            },
        }
    }

    /// The agent publishes a visual in its running turn, and hears of it once it is durable.
    pub(super) fn agent_publishes(&mut self, request_id: String, visual: NewVisual, ctx: &mut Context<Self>) {
        let Some(process) = self.speaking() else { return };
        let published = self.publish(self.by_agent(), visual, ctx).map(|visual| visual.id);
        let address = ctx.address();
        let outcome = published.map_err(|refusal| format!("{}: {}", refusal.code, refusal.message));
        let tell = move |place: Result<_, crate::actors::writer::Lost>| {
            // What was lost: the session is read again, and this process ends.
            if place.is_ok() {
                address.do_send(ChatMessage::VisualPublished { process, request_id, outcome });
            }
        };
        self.core.borrow().lane.release(None, Box::new(tell));
    }

    /// Tells the process with this number what became of what it published.
    pub(super) fn tell_published(&mut self, process: u64, request_id: String, outcome: Result<String, String>) {
        if self.speaking() == Some(process) {
            self.tell(AgentInput::VisualPublished { request_id, outcome });
        }
    }

    fn list_visuals(&self, reply: Reply) {
        let listed = visuals::listed(&self.cell.borrow().fold, &self.shared.links);
        answer(&self.core.borrow(), Ok(command::json(&listed)), reply);
    }

    /// Publishes: what is wrong is said before anything is recorded.
    fn publish(&mut self, by: By, wanted: NewVisual, ctx: &mut Context<Self>) -> Result<Visual, Refusal> {
        self.may_change(&by)?;
        let settings = &self.shared.settings;
        let checked = wanted.checked(settings.max_visual)?;
        let turn_id = self.turn_of_visual(checked.turn_id)?;
        let published = self.cell.borrow().fold.visuals.len();
        if published >= settings.max_visuals_in_chat {
            metrics::counter!("scrollback_limit_met_total", "limit" => "visuals").increment(1);
            let text = format!("a chat holds at most {} visuals: remove some", settings.max_visuals_in_chat);
            return Err(Refusal::new(RefusalKind::Unavailable, "limit-exceeded", text));
        }
        let size = checked.page.len();
        let on_the_way = self.pages_in_flight.load(Ordering::Acquire);
        if on_the_way > 0 && on_the_way + size > PAGES_AHEAD.saturating_mul(settings.max_visual) {
            let text = "pages of this chat are waiting for the disk: try again";
            return Err(Refusal::new(RefusalKind::Unavailable, "busy", text));
        }
        let visual = Visual {
            id: visuals::new_id(),
            title: checked.title,
            at: rfc3339(by.at),
            size: size as u64,
            max_height: checked.max_height,
            heights: checked.heights,
            after_turn: if turn_id.is_some() { None } else { self.last_turn() },
            turn_id,
        };
        let entry = Entry::Published(vec![Published { visual: visual.clone(), page: checked.page }]);
        self.pages_in_flight.fetch_add(size, Ordering::AcqRel);
        self.record(by, vec![entry], Vec::new(), ctx);
        let in_flight = Arc::clone(&self.pages_in_flight);
        let settle = move |_| {
            in_flight.fetch_sub(size, Ordering::AcqRel);
        };
        self.core.borrow().lane.release_on_disk(Box::new(settle));
        Ok(visual)
    }

    /// The last turn that ended.
    fn last_turn(&self) -> Option<String> {
        self.cell.borrow().fold.state.turns.last().map(|turn| turn.id.clone())
    }

    fn remove_visual(&mut self, by: By, id: &str, ctx: &mut Context<Self>) -> Result<(), Refusal> {
        self.may_change(&by)?;
        let open = visuals::open(&self.shared, &self.cell.borrow(), |visual| visual.id == id)
            .map_err(Refusal::log_unavailable)?;
        if !open.is_empty() {
            self.record(by, vec![Entry::CanvasesClosed(open)], Vec::new(), ctx);
        }
        Ok(())
    }

    /// Whether anything may be published or removed now, by this principal.
    fn may_change(&self, by: &By) -> Result<(), Refusal> {
        let is_agent = by.principal.starts_with("agent:");
        let interactivity = self.cell.borrow().fold.state.interactivity;
        if !is_agent && interactivity.is_some_and(|how| how != ChatInteractivity::Full) {
            let text = "people change nothing in this chat: it belongs to an agent";
            return Err(Refusal::new(RefusalKind::NotPermitted, "read-only", text));
        }
        if self.shared.is_stopping() {
            return Err(Refusal::new(RefusalKind::Unavailable, "busy", "the host is stopping"));
        }
        Ok(())
    }

    /// The turn that a visual belongs to: the one that is named, which has to be one of the chat's, or the one that runs.
    fn turn_of_visual(&self, named: Option<String>) -> Result<Option<String>, Refusal> {
        let cell = self.cell.borrow();
        let running = cell.fold.state.active_turn.as_ref().map(|turn| turn.id.as_str());
        let Some(named) = named else { return Ok(running.map(str::to_owned)) };
        if running == Some(named.as_str()) {
            return Ok(Some(named));
        }
        if cell.turn_on_branch(&self.shared, cell.fold.head(), &named).map_err(Refusal::log_unavailable)?.is_some() {
            return Ok(Some(named));
        }
        let text = format!("turnId: there is no turn {named} in this chat");
        Err(Refusal::new(RefusalKind::NotFound, "not-found", text))
    }

    /// Hands a canvas's snapshot over, with the subscription.
    pub(super) fn subscribe_canvas(&mut self, canvas: Channel, id: ChannelId, subscriber: Subscriber) {
        let core = self.core.borrow();
        let mut cell = self.cell.borrow_mut();
        cell.touch();
        let visual = cell.fold.visuals.iter().find(|visual| of_canvas(canvas.as_str()) == Some(&visual.id));
        match visual.map(|visual| visuals::shown(visual, &self.shared.links)) {
            Some(state) => hand_snapshot(&core, canvas, id, state, None, subscriber),
            None => not_there(&core, &subscriber.caller, subscriber.then),
        }
    }
}
