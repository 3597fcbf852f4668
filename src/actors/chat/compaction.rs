//! Compactions of an agent's context: what people are told of one, and how one is asked for.
//!
//! A compaction changes nothing of the conversation: the notice stands in the turn, and every turn stays.

use ahp_types::common::JsonObject;
use ahp_types::state::{Message, MessageKind, MessageOrigin};

use crate::actors::agent::PromptKind;

/// The key of a message's `_meta` that says what the host opened a turn for.
const ASKS_FOR: &str = "scrollback.asksFor";
/// Its value for a compaction.
const COMPACTION: &str = "compaction";

/// The message of the turn in which an agent is asked for a compaction. Nobody has sent it: it is the host's.
pub fn request() -> Message {
    let meta = JsonObject::from_iter([(ASKS_FOR.to_owned(), COMPACTION.into())]);
    Message {
        text: "Compact the context.".to_owned(),
        origin: MessageOrigin { kind: MessageKind::SystemNotification },
        attachments: None,
        model: None,
        agent: None,
        meta: Some(meta),
    }
}

/// What a turn with this message is for. Clients cannot write our keys.
pub fn kind(message: &Message) -> PromptKind {
    let asks_for = message.meta.as_ref().and_then(|meta| meta.get(ASKS_FOR)).and_then(serde_json::Value::as_str);
    match message.origin.kind {
        MessageKind::SystemNotification if asks_for == Some(COMPACTION) => PromptKind::Compact,
        _ => PromptKind::Message,
    }
}

/// The notice about a compaction, from so many tokens to so many.
pub fn in_words(before: Option<u64>, after: Option<u64>) -> String {
    let what = "The agent compacted its context";
    let tokens = match (before, after) {
        (Some(before), Some(after)) => format!(" from {before} to {after} tokens."),
        (Some(before), None) => format!(", which held {before} tokens; it does not say how many are left."),
        (None, Some(after)) => format!(" to {after} tokens; it does not say how many it held before."),
        (None, None) => "; it does not say how many tokens it held before and holds now.".to_owned(),
    };
    format!("{what}{tokens} The conversation is complete as before.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_request_is_known_again_and_no_other_message_is_taken_for_it() {
        assert_eq!(kind(&request()), PromptKind::Compact);
        let mut other = request();
        other.meta = None;
        assert_eq!(kind(&other), PromptKind::Message);
        let mut other = request();
        other.origin.kind = MessageKind::User;
        assert_eq!(kind(&other), PromptKind::Message);
    }

    #[test]
    fn the_notice_says_how_many_tokens_went_where_or_that_the_agent_does_not() {
        assert!(in_words(Some(900), Some(90)).contains("from 900 to 90 tokens"));
        assert!(in_words(Some(900), None).contains("900 tokens; it does not say how many are left"));
        assert!(in_words(None, Some(90)).contains("to 90 tokens; it does not say how many it held before"));
        assert!(in_words(None, None).contains("it does not say how many tokens"));
    }
}
