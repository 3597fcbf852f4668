//! A message as it is accepted: who sent it, what it may carry, and what its agent is given of it.

use ahp_types::state::{Message, MessageAttachment, MessageKind};
use serde_json::{Value, json};

use crate::actors::host::HostSettings;
use crate::actors::rejection::{Code, Rejection};
use crate::projections::chat::SENDER;

/// What keys of ours begin with.
const OURS: &str = "scrollback.";
/// The longest name that a chat gets from its first message, in Unicode characters.
const NAME_LENGTH: usize = 60;

/// The JSON of a message that a client may send.
///
/// # Errors
/// As [`check`], [`Code::LimitExceeded`] also for a message that is too long as a whole, and [`Code::Malformed`] for what is none.
pub fn parse_message(json: &str, settings: &HostSettings) -> Result<Value, Rejection> {
    check_length(json.len(), settings)?;
    let malformed = |e: serde_json::Error| Rejection::new(Code::Malformed, e.to_string());
    let value: Value = serde_json::from_str(json).map_err(malformed)?;
    check(&serde_json::from_value(value.clone()).map_err(malformed)?, settings)?;
    Ok(value)
}

/// Writes into `message` who sent it.
pub fn sign(message: &mut Value, principal: &str) {
    let Some(message) = message.as_object_mut() else { return };
    let meta = message.entry("_meta").or_insert_with(|| json!({}));
    if !meta.is_object() {
        *meta = json!({});
    }
    if let Some(meta) = meta.as_object_mut() {
        meta.insert(SENDER.into(), Value::from(principal));
    }
}

/// The key of a `chat/turnCancelled`'s `_meta` that asks for the end of the workers in the background too: the only one of
/// ours that clients write.
pub const SUBAGENTS: &str = "scrollback.subagents";

/// Removes our keys from every `_meta` in what a client sent: what stands under them is the host's alone to say.
pub fn clean(sent: &mut Value) {
    match sent {
        Value::Object(object) => {
            if let Some(meta) = object.get_mut("_meta").and_then(Value::as_object_mut) {
                meta.retain(|key, _| !key.starts_with(OURS) || key == SUBAGENTS);
            }
            object.values_mut().for_each(clean);
        }
        Value::Array(all) => all.iter_mut().for_each(clean),
        _ => {}
    }
}

/// Checks the length of an action, or of a message that is none, without the bytes of its attachments.
///
/// # Errors
/// [`Code::LimitExceeded`].
pub fn check_length(bytes: usize, settings: &HostSettings) -> Result<(), Rejection> {
    let max = settings.max_action;
    if bytes <= max {
        return Ok(());
    }
    metrics::counter!("scrollback_limit_met_total", "limit" => "action").increment(1);
    let text = format!("{bytes} bytes beside its files, at most {max} are taken");
    Err(Rejection::new(Code::LimitExceeded, text))
}

/// Checks a message that a client sends: its author, its length and its attachments.
///
/// # Errors
/// [`Code::Malformed`], [`Code::LimitExceeded`], or [`Code::BadAttachment`] for attachments that are none.
pub fn check(message: &Message, settings: &HostSettings) -> Result<(), Rejection> {
    if message.origin.kind != MessageKind::User {
        return Err(Rejection::new(Code::Malformed, "a client sends messages of origin user alone"));
    }
    let max_text = settings.max_message_text;
    if message.text.len() > max_text {
        metrics::counter!("scrollback_limit_met_total", "limit" => "message_text").increment(1);
        let text = format!("the text has {} bytes, at most {max_text} are taken", message.text.len());
        return Err(Rejection::new(Code::LimitExceeded, text));
    }
    let (attachments, max) = (message.attachments.as_ref().map_or(0, Vec::len), settings.max_attachments);
    if attachments > max {
        metrics::counter!("scrollback_limit_met_total", "limit" => "attachments").increment(1);
        let text = format!("the message has {attachments} attachments, at most {max} are taken");
        return Err(Rejection::new(Code::LimitExceeded, text));
    }
    for attachment in message.attachments.iter().flatten() {
        if matches!(attachment, MessageAttachment::Unknown(_)) {
            return Err(Rejection::new(Code::BadAttachment, "an attachment of no known kind, or without its fields"));
        }
    }
    Ok(())
}

/// The name that a chat gets from its first message; `None` when there is nothing to name it by.
pub fn name(message: &Message) -> Option<String> {
    let words: Vec<&str> = message.text.split_whitespace().collect();
    let text = if words.is_empty() { first_label(message)? } else { words.join(" ") };
    let name: String = text.chars().take(NAME_LENGTH).collect();
    let name = name.trim().to_owned();
    (!name.is_empty()).then_some(name)
}

fn first_label(message: &Message) -> Option<String> {
    let value = serde_json::to_value(message.attachments.as_ref()?.first()?).ok()?;
    let label = value.get("label")?.as_str()?;
    Some(label.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Message {
        serde_json::from_value(json!({ "text": text, "origin": { "kind": "user" } })).unwrap()
    }

    #[test]
    fn a_name_is_the_first_sixty_characters_with_white_space_folded() {
        assert_eq!(name(&message("  fix\n\tthe   bug ")).as_deref(), Some("fix the bug"));
        let long = "ä".repeat(80);
        assert_eq!(name(&message(&long)).unwrap().chars().count(), 60);
        assert_eq!(name(&message(" \n ")), None);
    }

    #[test]
    fn what_a_client_writes_under_our_keys_is_replaced() {
        let mut sent = json!({ "text": "x", "origin": { "kind": "user" }, "attachments": [
            { "type": "simple", "label": "x", "_meta": { "scrollback.sentAs": "image", "theirs": 1 } }, 5],
            "_meta": { "scrollback.sender": "root:me", "scrollback.other": 1, "theirs": 2 } });
        clean(&mut sent);
        sign(&mut sent, "user:ada");
        assert_eq!(sent["_meta"], json!({ "scrollback.sender": "user:ada", "theirs": 2 }));
        assert_eq!(sent["attachments"][0]["_meta"], json!({ "theirs": 1 }));
    }
}
