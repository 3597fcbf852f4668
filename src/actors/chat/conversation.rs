//! A chat's finished turns, as its agent may read them.

use std::sync::Arc;

use ahp_types::state::{ResponsePart, Turn};

use crate::actors::agent::{Conversation, Exchange};
use crate::events::{ChannelId, Store};
use crate::projections::turns::{self, PageLimit};

/// What separates the markdown parts of one answer in plain text.
const BETWEEN_PARTS: &str = "\n\n";

/// The turns of a chat up to a head, read from their rows when they are asked for.
pub struct StoredConversation {
    pub store: Arc<dyn Store>,
    pub chat: ChannelId,
    /// n of the last turn, 0 for none.
    pub head: u64,
}

impl Conversation for StoredConversation {
    fn exchanges(&self) -> Vec<Exchange> {
        let all = PageLimit { turns: u64::MAX, bytes: usize::MAX };
        let read = |n| turns::read(self.store.as_ref(), self.chat, n);
        match turns::branch(self.head, all, read) {
            Ok((turns, _)) => turns.iter().filter_map(|turn| exchange(&turn.json)).collect(),
            Err(fault) => {
                tracing::error!(%fault, "a conversation cannot be read");
                Vec::new()
            }
        }
    }
}

fn exchange(turn: &[u8]) -> Option<Exchange> {
    let turn: Turn = serde_json::from_slice(turn).ok()?;
    Some(Exchange { answer: answer_text(&turn), message: turn.message.text, turn_id: turn.id })
}

/// What the agent answered, as plain markdown.
pub fn answer_text(turn: &Turn) -> String {
    let parts: Vec<&str> = turn
        .response_parts
        .iter()
        .filter_map(|part| match part {
            ResponsePart::Markdown(part) => Some(part.content.as_str()),
            _ => None,
        })
        .collect();
    parts.join(BETWEEN_PARTS)
}
