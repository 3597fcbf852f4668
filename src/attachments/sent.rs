//! A message's attachments as JSON: as a client sent them, and as they are recorded.

use ahp_types::state::{Message, MessageAttachment};
use serde_json::{Map, Value, json};

use super::kind::SentAs;

/// The key of an attachment's `_meta` that says that it is a copy of something pasted or unsaved.
pub const SNAPSHOT: &str = "vscode.agentHost.snapshotAttachment";
/// The key that says how the model is given it.
pub const SENT_AS: &str = "scrollback.sentAs";
/// What a `file:` URI begins with.
const FILE: &str = "file:";

/// The message that an action brings, if it is one that does.
pub fn message_of(action: &mut Value) -> Option<&mut Value> {
    let key = match action.get("type").and_then(Value::as_str)? {
        "chat/turnStarted" | "chat/pendingMessageSet" => "message",
        "chat/draftChanged" => "draft",
        _ => return None,
    };
    action.get_mut(key).filter(|message| message.is_object())
}

/// Takes the bytes out of a message, which may be many: what they become is decided elsewhere.
pub fn lighten(message: &mut Value) {
    for attachment in each(message).filter(|attachment| is_embedded(attachment)) {
        if let Some(data) = attachment.get_mut("data").filter(|data| data.is_string()) {
            *data = json!("");
        }
    }
}

/// The attachments of a message.
pub fn each(message: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    let attachments = message.get_mut("attachments").and_then(Value::as_array_mut);
    attachments.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Whether an attachment brings its bytes.
pub fn is_embedded(attachment: &Map<String, Value>) -> bool {
    text(attachment, "type") == Some("embeddedResource")
}

/// The text under `key`.
pub fn text<'a>(attachment: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    attachment.get(key)?.as_str()
}

/// Whether anything of a message's attachments has to be looked up, written, fetched or read before it is recorded.
pub fn needs_work(message: &Message) -> bool {
    message.attachments.iter().flatten().any(|attachment| match attachment {
        MessageAttachment::EmbeddedResource(_) | MessageAttachment::Chat(_) => true,
        MessageAttachment::Resource(resource) => {
            let is_tagged = resource.meta.as_ref().is_some_and(|meta| meta.contains_key(SNAPSHOT));
            is_tagged || is_file(&resource.uri)
        }
        _ => false,
    })
}

/// Whether a URI names a file, on whatever machine.
pub fn is_file(uri: &str) -> bool {
    uri.get(..FILE.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(FILE))
}

/// Whether it names a folder of the client's, which cannot be fetched.
pub fn is_directory(attachment: &Map<String, Value>) -> bool {
    let uri = text(attachment, "uri").unwrap_or_default();
    text(attachment, "displayKind") == Some("directory") || uri.ends_with('/')
}

/// Makes of an attachment the reference to its stored copy. What else it says of itself stays.
pub fn refer(attachment: &mut Map<String, Value>, uri: &str, size: u64, content_type: &str, sent_as: SentAs) {
    attachment.remove("data");
    attachment.insert("type".into(), json!("resource"));
    attachment.insert("uri".into(), json!(uri));
    attachment.insert("sizeHint".into(), json!(size));
    attachment.insert("contentType".into(), json!(content_type));
    change_meta(attachment, |meta| {
        meta.insert(SNAPSHOT.into(), json!({ "isSnapshot": true, "contentType": content_type }));
        meta.insert(SENT_AS.into(), json!(sent_as.word()));
    });
}

/// Says of an attachment that a client calls a copy, and that is none of ours, that it goes by its path.
pub fn by_path_where_tagged(attachment: &mut Map<String, Value>) {
    let is_resource = text(attachment, "type") == Some("resource");
    let is_tagged = attachment.get("_meta").is_some_and(|meta| meta.get(SNAPSHOT).is_some());
    if is_resource && is_tagged {
        change_meta(attachment, |meta| {
            meta.entry(SENT_AS).or_insert_with(|| json!(SentAs::Path.word()));
        });
    }
}

/// Changes the attachment's `_meta`, which is made where there is none.
fn change_meta(attachment: &mut Map<String, Value>, change: impl FnOnce(&mut Map<String, Value>)) {
    let meta = attachment.entry("_meta").or_insert_with(|| json!({}));
    if !meta.is_object() {
        *meta = json!({});
    }
    if let Some(meta) = meta.as_object_mut() {
        change(meta);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_message_alone_are_taken_out() {
        let mut action = json!({ "type": "chat/draftChanged", "draft": { "attachments": [
            { "type": "embeddedResource", "data": "aGk=" }, { "type": "embeddedResource", "data": 5 },
            { "type": "simple", "data": "x" } ] } });
        lighten(message_of(&mut action).unwrap());
        let data: Vec<&Value> =
            action["draft"]["attachments"].as_array().unwrap().iter().map(|attachment| &attachment["data"]).collect();
        assert_eq!(data, [&json!(""), &json!(5), &json!("x")]);
        assert_eq!(message_of(&mut json!({ "type": "chat/isReadChanged", "message": {} })), None);
    }

    #[test]
    fn a_reference_keeps_what_else_the_attachment_said() {
        let mut attachment = json!({ "type": "embeddedResource", "label": "l", "data": "aGk=", "contentType": "text/plain",
            "range": { "start": 1, "end": 2 }, "displayKind": "document", "selection": { "a": 1 }, "_meta": { "theirs": 1 } });
        refer(attachment.as_object_mut().unwrap(), "file:///x", 2, "text/plain", SentAs::Text);
        assert_eq!(
            attachment,
            json!({ "type": "resource", "label": "l", "uri": "file:///x", "sizeHint": 2, "contentType": "text/plain",
                "range": { "start": 1, "end": 2 }, "displayKind": "document", "selection": { "a": 1 },
                "_meta": { "theirs": 1, SENT_AS: "text", SNAPSHOT: { "isSnapshot": true, "contentType": "text/plain" } } })
        );
    }

    #[test]
    fn a_copy_that_is_none_of_ours_goes_by_its_path() {
        let mut attachment = json!({ "type": "resource", "label": "l", "uri": "x:y", "_meta": { SNAPSHOT: {} } });
        by_path_where_tagged(attachment.as_object_mut().unwrap());
        assert_eq!(attachment["_meta"][SENT_AS], "path");
        let mut plain = json!({ "type": "resource", "label": "l", "uri": "x:y" });
        by_path_where_tagged(plain.as_object_mut().unwrap());
        assert_eq!(plain.get("_meta"), None);
    }
}
