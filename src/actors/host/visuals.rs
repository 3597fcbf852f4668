//! Visuals as the protocol and the pages see them.

use std::sync::Arc;

use ahp_types::state::CanvasState;

use super::{Host, SnapshotJson, ToolUser};
use crate::actors::command::{Refusal, Reply};
use crate::actors::identity::Identity;
use crate::actors::registry::Resolved;
use crate::actors::session::SessionMessage;
use crate::actors::visuals::VisualCommand;
use crate::events::rows::ChannelKind;
use crate::events::{Channel, ServerSeq};
use crate::projections::visual::{canvas_of, of_canvas};
use crate::projections::{FoldFault, canvas};

impl Host {
    /// `x-scrollback/publishVisual`, `listVisuals` and `removeVisual`.
    pub fn visual(&self, who: &Identity, chat: &str, command: VisualCommand, reply: Reply) {
        let found = self.shared.find(who, chat);
        self.visual_in(found, &who.principal, chat, command, reply);
    }

    /// The same for an agent of the host, in its own chat.
    pub fn visual_of_agent(&self, user: &ToolUser, command: VisualCommand, reply: Reply) {
        let found = self.shared.registry.resolve(user.chat.as_str());
        self.visual_in(found, &user.principal, user.chat.as_str(), command, reply);
    }

    fn visual_in(
        &self,
        found: Result<Option<Resolved>, FoldFault>,
        principal: &Arc<str>,
        chat: &str,
        command: VisualCommand,
        reply: Reply,
    ) {
        self.to_chat(found, chat, reply, |found, reply| SessionMessage::Visual {
            principal: Arc::clone(principal),
            chat: found.channel.clone(),
            command,
            reply,
        });
    }

    /// The page of a visual that is there, for who knows the code in its link. Reads the store: call it where blocking is fine.
    ///
    /// # Errors
    /// [`FoldFault`] when the page cannot be read.
    pub fn visual_page(&self, code: &str, id: &str) -> Result<Option<String>, FoldFault> {
        if !self.shared.links.opens(code, id) {
            return Ok(None);
        }
        let found = self.shared.registry.resolve(canvas_of(id).as_str())?;
        let Some(found) = found.filter(|found| found.kind == ChannelKind::Canvas) else { return Ok(None) };
        canvas::page(self.shared.store.as_ref(), found.id).map(Some)
    }

    /// Whether what a client saw of a channel at `seen` still holds but for the events after it. A canvas's state names a
    /// page that was to be had in one run of the host alone.
    pub fn is_baseline(&self, channel: &Channel, seen: ServerSeq) -> bool {
        of_canvas(channel.as_str()).is_none() || seen > self.shared.began_after
    }

    /// Puts where the page is to be had now into the state of a canvas, while it is there.
    pub(super) fn show_page(&self, canvas: &str, snapshot: &mut SnapshotJson) -> Result<(), Refusal> {
        let is_open = self.shared.registry.resolve(canvas).map_err(Refusal::log_unavailable)?.is_some();
        let Some(id) = of_canvas(canvas).filter(|_| is_open) else { return Ok(()) };
        if let Ok(mut state) = serde_json::from_slice::<CanvasState>(&snapshot.state) {
            state.url = Some(self.shared.links.url(id));
            snapshot.state = serde_json::to_vec(&state).unwrap_or_default().into();
        }
        Ok(())
    }
}
