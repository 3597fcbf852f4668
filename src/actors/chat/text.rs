//! The text that an agent streams, joined before it is appended.
//!
//! One pending run of one part: flushed after `delta_window`, at 16 KiB, and before anything else of the chat is appended.
//! The text is never different, only in fewer pieces.

use actix::{AsyncContext, Context};
use ahp_types::actions::{ChatDeltaAction, ChatReasoningAction, ChatResponsePartAction, StateAction};
use ahp_types::state::{MarkdownResponsePart, ReasoningResponsePart, ResponsePart};

use super::ChatActor;
use crate::actors::core::{ChatCell, Recording};
use crate::projections::action::Action;

/// When a pending run is appended at once, in bytes.
const FLUSH_BYTES: usize = 16 * 1024;

/// What kind of part text goes into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextKind {
    Markdown,
    Reasoning,
}

/// Text that waits to be appended to its part.
pub struct PendingText {
    turn_id: String,
    part_id: String,
    kind: TextKind,
    text: String,
    /// The part does not exist yet.
    opens: bool,
}

impl PendingText {
    /// Appends the run, behind the part that it opens.
    pub fn record(self, recording: &mut Recording<'_>, cell: &mut ChatCell) {
        let (turn_id, part_id) = (self.turn_id, self.part_id);
        if self.opens {
            let (id, content) = (part_id.clone(), String::new());
            let part = match self.kind {
                TextKind::Markdown => ResponsePart::Markdown(MarkdownResponsePart { id, content }),
                TextKind::Reasoning => ResponsePart::Reasoning(ReasoningResponsePart { id, content }),
            };
            let action = ChatResponsePartAction { turn_id: turn_id.clone(), part, meta: None };
            recording.chat_action(cell, Action::host(StateAction::ChatResponsePart(action)), false);
        }
        if self.text.is_empty() {
            return;
        }
        let content = self.text;
        let action = match self.kind {
            TextKind::Markdown => StateAction::ChatDelta(ChatDeltaAction { turn_id, part_id, content, meta: None }),
            TextKind::Reasoning => {
                StateAction::ChatReasoning(ChatReasoningAction { turn_id, part_id, content, meta: None })
            }
        };
        recording.chat_action(cell, Action::host(action), false);
    }
}

impl ChatActor {
    /// Takes text of the running turn.
    pub(super) fn stream(&mut self, turn_id: String, kind: TextKind, text: &str, ctx: &mut Context<Self>) {
        if text.is_empty() {
            return;
        }
        let continues = self.open_part.as_ref().is_some_and(|(open, _)| *open == kind);
        if !continues {
            if self.too_many_parts(ctx) {
                return;
            }
            self.flush_text(ctx);
            self.open_part = Some((kind, ulid::Ulid::new().to_string()));
        }
        let Some((_, part_id)) = self.open_part.clone() else { return };
        let waiting = {
            let mut cell = self.cell.borrow_mut();
            let opens = !continues;
            let new = || PendingText { turn_id, part_id, kind, text: String::new(), opens };
            let pending = cell.pending.get_or_insert_with(new);
            pending.text.push_str(text);
            pending.text.len()
        };
        let window = self.shared.settings.delta_window;
        if waiting >= FLUSH_BYTES || window.is_zero() {
            self.flush_text(ctx);
        } else if self.flush.is_none() {
            self.flush = Some(ctx.run_later(window, |actor, ctx| {
                actor.flush = None;
                actor.flush_text(ctx);
            }));
        }
    }

    /// Appends the text that waits.
    pub(super) fn flush_text(&mut self, ctx: &mut Context<Self>) {
        let waits = self.cell.borrow().pending.is_some();
        if waits {
            let by = self.by_agent();
            self.record(by, Vec::new(), Vec::new(), ctx);
        }
    }

    /// More text begins a new part.
    pub(super) fn close_part(&mut self) {
        self.open_part = None;
    }
}
