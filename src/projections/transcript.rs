//! What was said in a chat, as plain text: what people said and the agent answered, and nothing else.

use ahp_types::state::{ActiveTurn, Message, MessageAttachment, ResponsePart, Turn};

/// What separates the markdown parts of one answer, and what one says from what the other says.
const BETWEEN: &str = "\n\n";

/// What was said in one turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spoken {
    pub turn_id: String,
    /// The message; a chat that it attached stands as its label.
    pub message: String,
    /// The answer's markdown.
    pub answer: String,
}

impl Spoken {
    /// What was said in a finished turn, as its row holds it.
    pub fn of(turn: &[u8]) -> Option<Self> {
        let turn: Turn = serde_json::from_slice(turn).ok()?;
        Some(Self::new(turn.id, &turn.message, &turn.response_parts))
    }

    /// What was said so far in the turn that runs.
    pub fn so_far(turn: &ActiveTurn) -> Self {
        Self::new(turn.id.clone(), &turn.message, &turn.response_parts)
    }

    fn new(turn_id: String, message: &Message, parts: &[ResponsePart]) -> Self {
        let parts = parts.iter().filter_map(|part| match part {
            ResponsePart::Markdown(part) => Some(part.content.trim_end()),
            _ => None,
        });
        let answer = parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(BETWEEN);
        Self { message: with_labels(message), answer, turn_id }
    }

    /// As text, each speaker named.
    pub fn text(&self) -> String {
        let said = [("User", &self.message), ("Agent", &self.answer)];
        let said = said.into_iter().filter(|(_, words)| !words.is_empty());
        said.map(|(who, words)| format!("{who}: {words}{BETWEEN}")).collect()
    }
}

fn with_labels(message: &Message) -> String {
    let labels = message.attachments.iter().flatten().filter_map(|attachment| match attachment {
        MessageAttachment::Chat(chat) => Some(format!("[{}]", chat.label)),
        _ => None,
    });
    let text = message.text.trim_end().to_owned();
    std::iter::once(text).filter(|text| !text.is_empty()).chain(labels).collect::<Vec<_>>().join(" ")
}

/// The last `limit` characters of a transcript.
pub fn end_of(text: &str, limit: usize) -> String {
    let text = text.trim_end();
    let skip = text.chars().count().saturating_sub(limit);
    text.chars().skip(skip).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_was_said_is_in_it_and_a_chat_stands_as_its_label() {
        let turn = json!({ "id": "t", "state": "complete",
            "message": { "text": "look", "origin": { "kind": "user" }, "attachments": [
                { "type": "chat", "label": "the plan", "resource": "ahp-chat:/p" },
                { "type": "simple", "label": "s", "modelRepresentation": "hidden" } ] },
            "responseParts": [
                { "kind": "reasoning", "id": "r", "content": "hidden" },
                { "kind": "markdown", "id": "a", "content": "one " },
                { "kind": "systemNotification", "content": "hidden" },
                { "kind": "markdown", "id": "b", "content": "two" } ] });
        let spoken = Spoken::of(turn.to_string().as_bytes()).unwrap();
        assert_eq!(spoken.text(), "User: look [the plan]\n\nAgent: one\n\ntwo\n\n");
    }

    #[test]
    fn the_end_is_counted_in_characters() {
        assert_eq!(end_of("aöü🗼\n\n", 3), "öü🗼");
        assert_eq!(end_of("ab", 3), "ab");
    }
}
