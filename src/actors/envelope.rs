//! An event on its way to the clients: the stored bytes spliced into the frame that goes on the wire.

use bytestring::ByteString;

use crate::events::{Channel, ChannelId, Origin, ServerSeq};

/// What stands before an envelope in the frame that carries it.
const FRAME_HEAD: &str = r#"{"jsonrpc":"2.0","method":"action","params":"#;
/// How the action of a page of older turns begins; its events hold a range and are widened for each connection.
const TURNS_LOADED: &[u8] = br#"{"type":"chat/turnsLoaded""#;

/// How the actions end that clients of 0.9 do not know.
const OF_CANVASES: [(&[u8], &[u8]); 2] = [
    (br#"{"type":"chat/canvasesChanged""#, br#""type":"chat/canvasesChanged"}"#),
    (br#"{"type":"canvas/stateChanged""#, br#""type":"canvas/stateChanged"}"#),
];

/// `chat/truncated` without a turn, as the host writes it: all turns went.
pub const CLEARED: &[u8] = br#"{"type":"chat/truncated"}"#;

/// Bytes of an envelope beside its channel and its action, for most.
const AROUND: usize = 160;

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
    /// Whether it tells of a canvas, which is for clients that know of them.
    pub is_of_canvases: bool,
    /// Whether all turns went with it: who had a part of them has all now.
    pub clears: bool,
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
        let clears = action == CLEARED;
        let (is_page, is_of_canvases) = (is_page(action), is_of_canvases(action));
        Self { channel, channel_id, seq, frame, is_page, is_of_canvases, clears }
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

/// Whether a stored action tells of a canvas. The host alone makes them, with their type as the first member; earlier ones
/// have it as the last.
pub fn is_of_canvases(action: &[u8]) -> bool {
    OF_CANVASES.iter().any(|(begin, end)| action.starts_with(begin) || action.ends_with(end))
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
    let mut text = String::with_capacity(channel.len() + action.len() + AROUND);
    push(&mut text, channel, seq, origin, action, None);
    text
}

/// Writes the AHP envelope of a stored event behind `text`.
pub fn push_envelope(text: &mut String, channel: &str, seq: ServerSeq, origin: Option<&Origin>, action: &[u8]) {
    push(text, channel, seq, origin, action, None);
}

/// AHP envelopes of stored events in one text, ascending, as a JSON array that is not closed yet: a replay is many of them.
#[derive(Debug)]
pub struct Envelopes {
    text: String,
    /// The number of each, and where it ends.
    ends: Vec<(ServerSeq, usize)>,
}

impl Default for Envelopes {
    fn default() -> Self {
        Self { text: "[".to_owned(), ends: Vec::new() }
    }
}

impl Envelopes {
    /// Adds the envelope of a stored event; returns its bytes.
    pub fn push(&mut self, channel: &str, seq: ServerSeq, origin: Option<&Origin>, action: &[u8]) -> usize {
        self.add(seq, |text| push_envelope(text, channel, seq, origin, action))
    }

    /// Adds an envelope as it is; returns its bytes.
    pub fn push_json(&mut self, seq: ServerSeq, json: &str) -> usize {
        self.add(seq, |text| text.push_str(json))
    }

    fn add(&mut self, seq: ServerSeq, write: impl FnOnce(&mut String)) -> usize {
        if !self.ends.is_empty() {
            self.text.push(',');
        }
        let start = self.text.len();
        write(&mut self.text);
        self.ends.push((seq, self.text.len()));
        self.text.len() - start
    }

    /// Each with its number.
    pub fn iter(&self) -> impl Iterator<Item = (ServerSeq, &str)> {
        let starts = std::iter::once(1).chain(self.ends.iter().map(|(_, end)| end + 1));
        starts.zip(&self.ends).map(|(start, (seq, end))| (*seq, self.text.get(start..*end).unwrap_or_default()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// As a JSON array.
    pub fn into_array(mut self) -> String {
        self.text.push(']');
        self.text
    }

    /// All of `many` as one, ascending over all of them.
    pub fn merged(mut many: Vec<Self>) -> Self {
        if many.len() == 1 {
            return many.pop().unwrap_or_default();
        }
        let mut envelopes: Vec<(ServerSeq, &str)> = many.iter().flat_map(Self::iter).collect();
        envelopes.sort_by_key(|(seq, _)| *seq);
        let mut merged = Self::default();
        merged.text.reserve(many.iter().map(|one| one.text.len()).sum());
        for (seq, envelope) in envelopes {
            merged.push_json(seq, envelope);
        }
        merged
    }
}

/// The AHP envelope in the frame of an `action` notification; empty for another frame.
pub fn envelope_of(frame: &str) -> &str {
    if !frame.starts_with(FRAME_HEAD) {
        return "";
    }
    frame.get(FRAME_HEAD.len()..frame.len().saturating_sub(1)).unwrap_or_default()
}

fn frame(channel: &str, seq: ServerSeq, origin: Option<&Origin>, action: &[u8], reason: Option<&str>) -> ByteString {
    let mut text = String::with_capacity(FRAME_HEAD.len() + channel.len() + action.len() + AROUND);
    text.push_str(FRAME_HEAD);
    push(&mut text, channel, seq, origin, action, reason);
    text.push('}');
    ByteString::from(text)
}

/// Writes an envelope behind `text`.
fn push(
    text: &mut String,
    channel: &str,
    seq: ServerSeq,
    origin: Option<&Origin>,
    action: &[u8],
    reason: Option<&str>,
) {
    use std::fmt::Write as _;

    text.push_str(r#"{"channel":"#);
    push_quoted(text, channel);
    text.push_str(r#","action":"#);
    match std::str::from_utf8(action) {
        Ok(action) => text.push_str(action),
        Err(_) => text.push_str(&String::from_utf8_lossy(action)),
    }
    let _ = write!(text, r#","serverSeq":{seq}"#);
    if let Some(origin) = origin {
        text.push_str(r#","origin":{"clientId":"#);
        push_quoted(text, &origin.client_id);
        let _ = write!(text, r#","clientSeq":{}}}"#, origin.client_seq);
    }
    if let Some(reason) = reason {
        text.push_str(r#","rejectionReason":"#);
        push_quoted(text, reason);
    }
    text.push('}');
}

fn quoted(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    push_quoted(&mut json, text);
    json
}

/// Writes a JSON string. Nearly all have nothing to escape.
fn push_quoted(json: &mut String, text: &str) {
    if text.bytes().any(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
        json.push_str(&serde_json::Value::from(text).to_string());
        return;
    }
    json.push('"');
    json.push_str(text);
    json.push('"');
}

/// The frame of a notification that is no state: sent to a channel's subscribers, never stored, never replayed.
pub fn notification(method: &str, params: &serde_json::Value) -> ByteString {
    ByteString::from(format!(r#"{{"jsonrpc":"2.0","method":{},"params":{params}}}"#, quoted(method)))
}

/// The notification of log records, which are JSON already, under the name that a client subscribed with.
pub fn logs(channel: &Channel, payload: &str) -> ByteString {
    let channel = quoted(channel.as_str());
    let head = r#"{"jsonrpc":"2.0","method":"otlp/exportLogs","params":{"channel":"#;
    ByteString::from(format!(r#"{head}{channel},"payload":{payload}}}}}"#))
}

/// The frame of a request of the host's own to a client; `number` is its id.
pub fn request(number: u64, method: &str, params: &serde_json::Value) -> ByteString {
    let method = quoted(method);
    ByteString::from(format!(r#"{{"jsonrpc":"2.0","id":{number},"method":{method},"params":{params}}}"#))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(seqs: &[ServerSeq]) -> Envelopes {
        let mut all = Envelopes::default();
        for seq in seqs {
            all.push("a\"b", *seq, None, br#"{"type":"x"}"#);
        }
        all
    }

    #[test]
    fn actions_of_canvases_are_known_by_their_type() {
        use ahp_types::actions::{CanvasStateChangedAction, ChatCanvasesChangedAction, StateAction};
        use ahp_types::state::{CanvasReference, CanvasState};

        use crate::projections::action::Action;

        let canvas = CanvasState {
            instance_id: "i".into(),
            extension_id: "e".into(),
            extension_name: None,
            canvas_id: "c".into(),
            title: Some("\"type\":\"x\"}".into()),
            status: None,
            url: None,
        };
        let some = Some(vec![CanvasReference { resource: "ahp-canvas:/i".into() }]);
        for canvases in [None, some] {
            let action = Action::host(StateAction::ChatCanvasesChanged(ChatCanvasesChangedAction { canvases }));
            assert!(is_of_canvases(&action.bytes));
        }
        let action = Action::host(StateAction::CanvasStateChanged(CanvasStateChangedAction { canvas }));
        assert!(is_of_canvases(&action.bytes));
        assert!(!is_of_canvases(br#"{"type":"chat/delta","content":"\"type\":\"canvas/stateChanged\"}"}"#));
    }

    #[test]
    fn envelopes_merge_into_one_array_in_the_order_of_the_line() {
        let json = Envelopes::merged(vec![of(&[1, 4]), of(&[]), of(&[2, 3])]).into_array();
        let all: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
        assert_eq!(all.iter().map(|one| one["serverSeq"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(all[0]["channel"], "a\"b");
        assert_eq!(Envelopes::merged(Vec::new()).into_array(), "[]");
        assert_eq!(of(&[7]).iter().next(), Some((7, envelope_json("a\"b", 7, None, br#"{"type":"x"}"#).as_str())));
    }
}
