//! An event as admins read it.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::brief::brief;
use super::privileged::is_privileged;
use crate::clock;
use crate::events::{Kind, Origin, Record};
use crate::projections::action::type_of;
use crate::projections::fact::Fact;

/// One line of `log list --json` and of `/api/log`, and the whole of `log show --json`.
///
/// Source: the outer contract, the command: `{serverSeq, channel, type, at, principal, origin?, bytes, action}`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventLine {
    pub server_seq: u64,
    pub channel: String,
    /// The type of the action; `host/<kind>` for a record that no client sees.
    #[serde(rename = "type")]
    pub kind: String,
    /// RFC 3339, UTC, milliseconds.
    pub at: String,
    pub principal: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<OriginLine>,
    /// Whether it is one of those that an audit looks for; left out where it is not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub privileged: bool,
    /// The first and the last of the events that it stands for, where it is one of several that a compaction made one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folded: Option<(u64, u64)>,
    /// Bytes of the action as it is stored.
    pub bytes: usize,
    /// The action as it is stored; `null` where that is no JSON.
    pub action: Box<RawValue>,
}

/// The client action that an event came from.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OriginLine {
    pub client_id: String,
    pub client_seq: i64,
}

impl From<&Record> for EventLine {
    fn from(record: &Record) -> Self {
        Self {
            server_seq: record.seq,
            channel: record.channel.to_string(),
            kind: type_of(&record.action).into_owned(),
            at: clock::rfc3339(record.at),
            principal: record.principal.clone(),
            origin: record.origin.as_ref().map(OriginLine::from),
            privileged: is_privileged(record),
            folded: folded(record),
            bytes: record.action.len(),
            action: action_of(record),
        }
    }
}

fn folded(record: &Record) -> Option<(u64, u64)> {
    record.covers_from.map(|from| (from, record.seq))
}

/// An event without what it holds, for a list: a line of `/api/log/window`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventHead {
    pub server_seq: u64,
    pub channel: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub at: String,
    pub principal: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<OriginLine>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub privileged: bool,
    /// As [`EventLine::folded`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folded: Option<(u64, u64)>,
    pub bytes: usize,
    /// What it says, in one short line.
    pub brief: String,
}

impl From<&Record> for EventHead {
    fn from(record: &Record) -> Self {
        Self {
            server_seq: record.seq,
            channel: record.channel.to_string(),
            kind: type_of(&record.action).into_owned(),
            at: clock::rfc3339(record.at),
            principal: record.principal.clone(),
            origin: record.origin.as_ref().map(OriginLine::from),
            privileged: is_privileged(record),
            folded: folded(record),
            bytes: record.action.len(),
            brief: brief(&record.action),
        }
    }
}

impl From<&Origin> for OriginLine {
    fn from(origin: &Origin) -> Self {
        Self { client_id: origin.client_id.clone(), client_seq: origin.client_seq }
    }
}

impl EventLine {
    /// The line as JSON, without its end.
    pub fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The action as it is stored, but for the hash of a token, which is shown to nobody.
fn action_of(record: &Record) -> Box<RawValue> {
    let mut text = on_one_line(String::from_utf8_lossy(&record.action).into_owned());
    if record.kind == Kind::Host
        && type_of(&record.action) == "host/userTokenMade"
        && let Ok(Fact::UserTokenMade { hash, .. }) = Fact::from_stored(&record.action)
    {
        text = text.replace(&hash, "");
    }
    RawValue::from_string(text).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// JSON without line ends. They can only stand between its tokens: within a string JSON escapes them.
pub fn on_one_line(json: String) -> String {
    if has_line_end(json.as_bytes()) { json.replace(['\n', '\r'], " ") } else { json }
}

/// Whether there are line ends in `json`.
pub fn has_line_end(json: &[u8]) -> bool {
    json.contains(&b'\n') || json.contains(&b'\r')
}
