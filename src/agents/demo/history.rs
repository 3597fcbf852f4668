//! What one process of the demo holds of its conversation.
//!
//! Two halves: what was said before the process started, which the chat knows and which is read when it is first needed;
//! and what this process answered since. A turn that was stopped or failed counts with what it had said by then.

use std::cell::OnceCell;
use std::sync::Arc;

use serde::Serialize;

use crate::actors::agent::{Conversation, Exchange};

/// Stands between two markdown parts of an answer.
const BETWEEN_PARTS: &str = "\n\n";

/// The conversation, as far as one process knows it.
pub(super) struct History {
    conversation: Arc<dyn Conversation>,
    /// The turn that is the last one of what was said before.
    ends_at: Option<String>,
    before: OnceCell<Vec<Exchange>>,
    /// One entry a turn, oldest first; the last one may still be running.
    since: Vec<Exchange>,
}

/// One message or answer, as `/history` says it. Both carry the id of their turn.
#[derive(Debug, Serialize)]
pub(super) struct Entry {
    id: String,
    role: &'static str,
    text: String,
}

impl History {
    /// What was said before the process started, up to the turn `ends_at` where one is named.
    pub(super) fn new(conversation: Arc<dyn Conversation>, ends_at: Option<String>) -> Self {
        Self { conversation, ends_at, before: OnceCell::new(), since: Vec::new() }
    }

    /// Begins a turn, or takes up the one that is there under this id.
    pub(super) fn begin(&mut self, turn_id: &str, message: &str) {
        if self.since.last().is_none_or(|last| last.turn_id != turn_id) {
            let (turn_id, message) = (turn_id.to_owned(), message.to_owned());
            self.since.push(Exchange { turn_id, message, answer: String::new() });
        }
    }

    /// Adds what the latest turn said; `new_part` when something else came in between.
    pub(super) fn said(&mut self, text: &str, new_part: bool) {
        let Some(exchange) = self.since.last_mut() else { return };
        if new_part {
            add_part(&mut exchange.answer, text);
        } else {
            exchange.answer.push_str(text);
        }
    }

    /// Whether nothing was ever asked before the turn `turn_id`.
    pub(super) fn is_empty_before(&self, turn_id: &str) -> bool {
        self.exchanges_before(turn_id).is_empty()
    }

    /// The messages and answers before the turn `turn_id`, oldest first.
    pub(super) fn entries_before(&self, turn_id: &str) -> Vec<Entry> {
        self.exchanges_before(turn_id)
            .into_iter()
            .flat_map(|Exchange { turn_id: id, message, answer }| {
                [Entry { id: id.clone(), role: "user", text: message }, Entry { id, role: "assistant", text: answer }]
            })
            .collect()
    }

    /// What a compaction before the turn `turn_id` makes of the context, in tokens: the demo takes a word for one, and keeps
    /// one of ten. The conversation itself stays.
    pub(super) fn compacted(&self, turn_id: &str) -> (u64, u64) {
        let words = |text: &str| text.split_whitespace().count() as u64;
        let exchanges = self.exchanges_before(turn_id);
        let before: u64 = exchanges.iter().map(|exchange| words(&exchange.message) + words(&exchange.answer)).sum();
        (before, before.div_ceil(10))
    }

    fn read(&self) -> Vec<Exchange> {
        let mut exchanges = self.conversation.exchanges();
        let last = self.ends_at.as_ref().and_then(|id| exchanges.iter().position(|exchange| exchange.turn_id == *id));
        if let Some(last) = last {
            exchanges.truncate(last + 1);
        }
        exchanges
    }

    /// Both halves as one. A turn that this process took up is in both: what it said last goes on what it said first.
    fn exchanges_before(&self, turn_id: &str) -> Vec<Exchange> {
        let mut all = self.before.get_or_init(|| self.read()).clone();
        for exchange in &self.since {
            match all.last_mut().filter(|last| last.turn_id == exchange.turn_id) {
                Some(last) => add_part(&mut last.answer, &exchange.answer),
                None => all.push(exchange.clone()),
            }
        }
        all.retain(|exchange| exchange.turn_id != turn_id);
        all
    }
}

pub(super) fn add_part(answer: &mut String, part: &str) {
    if !answer.is_empty() && !part.is_empty() {
        answer.push_str(BETWEEN_PARTS);
    }
    answer.push_str(part);
}
