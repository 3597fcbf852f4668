//! An event on its way to the clients: the stored bytes spliced into the frame that goes on the wire.

use bytestring::ByteString;

use crate::events::{Channel, ChannelId, Origin, ServerSeq};

/// What stands before an envelope in the frame that carries it.
const FRAME_HEAD: &str = r#"{"jsonrpc":"2.0","method":"action","params":"#;
/// How the action of a page of older turns begins; its events hold a range and are widened for each connection.
const TURNS_LOADED: &[u8] = br#"{"type":"chat/turnsLoaded""#;

/// A published event. Its bytes are shared by all connections that it goes to.
#[derive(Debug, Clone)]
pub struct Envelope {
    pub channel: Channel,
    pub channel_id: ChannelId,
    pub seq: ServerSeq,
    /// The whole WebSocket message: an `action` notification.
    pub frame: ByteString,
    /// Whether this is a stored range of older turns, which each connection is shown by its own window.
    pub is_page: bool,
}

impl Envelope {
    /// Splices `action`, the JSON as it is stored, into the frame of an `action` notification.
    pub fn new(
        channel: Channel,
        channel_id: ChannelId,
        seq: ServerSeq,
        origin: Option<&Origin>,
        action: &[u8],
    ) -> Self {
        let frame = frame(channel.as_str(), seq, origin, action, None);
        Self { channel, channel_id, seq, frame, is_page: is_page(action) }
    }

    /// The AHP envelope alone, without the notification around it.
    pub fn json(&self) -> &str {
        envelope_of(&self.frame)
    }

    /// The same event under another name of its channel: what a subscription under a synonym hears.
    pub fn renamed(&self, alias: &str) -> ByteString {
        let own = quoted(self.channel.as_str());
        let rest = &self.frame[FRAME_HEAD.len() + r#"{"channel":"#.len() + own.len()..];
        ByteString::from(format!(r#"{FRAME_HEAD}{{"channel":{}{rest}"#, quoted(alias)))
    }
}

/// Whether a stored action is a page of older turns.
pub fn is_page(action: &[u8]) -> bool {
    action.starts_with(TURNS_LOADED)
}

/// The frame of an action that was refused: as it was sent, with the current number and the reason, for its sender alone.
pub fn rejection(channel: &str, seq: ServerSeq, origin: &Origin, action: &[u8], reason: &str) -> ByteString {
    frame(channel, seq, Some(origin), action, Some(reason))
}

/// The frame of an action that changed nothing: an echo with the current number, for its sender alone.
pub fn echo(channel: &str, seq: ServerSeq, origin: &Origin, action: &[u8]) -> ByteString {
    frame(channel, seq, Some(origin), action, None)
}

/// The frame of an event of the host with this number, its action written for one connection.
pub fn echo_like(channel: &str, seq: ServerSeq, action: &str) -> ByteString {
    frame(channel, seq, None, action.as_bytes(), None)
}

/// The AHP envelope of a stored event, spliced without serialising its action again.
pub fn envelope_json(channel: &str, seq: ServerSeq, origin: Option<&Origin>, action: &[u8]) -> String {
    envelope_of(&frame(channel, seq, origin, action, None)).to_owned()
}

/// The AHP envelope in the frame of an `action` notification; empty for another frame.
pub fn envelope_of(frame: &str) -> &str {
    if !frame.starts_with(FRAME_HEAD) {
        return "";
    }
    frame.get(FRAME_HEAD.len()..frame.len().saturating_sub(1)).unwrap_or_default()
}

fn frame(channel: &str, seq: ServerSeq, origin: Option<&Origin>, action: &[u8], reason: Option<&str>) -> ByteString {
    use std::fmt::Write as _;

    let mut text = String::with_capacity(FRAME_HEAD.len() + channel.len() + action.len() + 160);
    text.push_str(FRAME_HEAD);
    text.push_str(r#"{"channel":"#);
    text.push_str(&quoted(channel));
    text.push_str(r#","action":"#);
    text.push_str(&String::from_utf8_lossy(action));
    let _ = write!(text, r#","serverSeq":{seq}"#);
    if let Some(origin) = origin {
        let _ =
            write!(text, r#","origin":{{"clientId":{},"clientSeq":{}}}"#, quoted(&origin.client_id), origin.client_seq);
    }
    if let Some(reason) = reason {
        let _ = write!(text, r#","rejectionReason":{}"#, quoted(reason));
    }
    text.push_str("}}");
    ByteString::from(text)
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The frame of a notification that is no state: sent to a channel's subscribers, never stored, never replayed.
pub fn notification(method: &str, params: &serde_json::Value) -> ByteString {
    ByteString::from(format!(r#"{{"jsonrpc":"2.0","method":{},"params":{params}}}"#, quoted(method)))
}
