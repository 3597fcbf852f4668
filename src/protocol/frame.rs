//! One JSON-RPC message from a client, split without decoding what is in it.
//!
//! The crate's own message type loses string ids, so the envelope is read here: ids stay the text that they were. What
//! the params mean is for the method.
//!
//! Always: nesting is counted before anything is parsed, since the parser only counts what it decodes.
//! Source: JSON-RPC 2.0; AHP transport.

use bytestring::ByteString;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::error::{count_limit, invalid_request, parse_error_frame, refusal_frame};
use crate::actors::command::Refusal;

/// A message that came in.
#[derive(Debug)]
pub enum Incoming<'a> {
    /// To be answered once; `id` is its JSON text.
    Request { id: &'a str, method: String, params: Option<&'a RawValue> },
    /// Never answered.
    Notification { method: String, params: Option<&'a RawValue> },
    /// An answer to something that we asked: its result, or its error.
    Response { id: Option<&'a str>, outcome: Result<&'a RawValue, &'a RawValue> },
}

/// A message that is none. [`Malformed::frame`] is the answer.
#[derive(Debug)]
pub enum Malformed {
    /// Not JSON.
    Text(String),
    /// JSON, but no JSON-RPC request; with the JSON of its id, or `null`.
    Request { id: String, refusal: Box<Refusal> },
}

impl Malformed {
    fn new(id: &str, code: &'static str, message: &str) -> Self {
        Self::Request { id: id.to_owned(), refusal: Box::new(invalid_request(code, message)) }
    }

    /// The answer.
    pub fn frame(&self) -> ByteString {
        match self {
            Malformed::Text(problem) => parse_error_frame(problem),
            Malformed::Request { id, refusal } => refusal_frame(id, refusal),
        }
    }
}

#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(default, borrow, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// A member that is `null` is there all the same.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Splits a message, in which arrays and objects nest at most `max_nesting` deep, the envelope included.
///
/// # Errors
/// [`Malformed`], which is answered.
pub fn split(text: &str, max_nesting: usize) -> Result<Incoming<'_>, Malformed> {
    split_read(text, max_nesting, is_too_deep(text, max_nesting))
}

/// Whether arrays and objects nest deeper than that, whatever else is wrong.
pub fn is_too_deep(text: &str, max_nesting: usize) -> bool {
    nesting(text.as_bytes()) > max_nesting
}

/// The same for a message of which it is known whether it nests too deep.
///
/// # Errors
/// As [`split`].
pub fn split_read(text: &str, max_nesting: usize, too_deep: bool) -> Result<Incoming<'_>, Malformed> {
    if !text.trim_start().starts_with('{') {
        // An array would be taken for the envelope's members in order.
        return Err(unreadable(text, "a message is an object"));
    }
    let raw: Raw<'_> = serde_json::from_str(text).map_err(|error| unreadable(text, &error.to_string()))?;
    let id = raw.id.map(RawValue::get);
    let known_id = id.filter(|id| is_id(id)).unwrap_or("null");
    if too_deep {
        count_limit("nesting");
        if let Some(outcome) = outcome(&raw) {
            // An answer is not answered, whatever is wrong with it.
            return Ok(Incoming::Response { id, outcome: outcome.and_then(Err) });
        }
        let text = format!("nested deeper than {max_nesting} arrays and objects");
        return Err(Malformed::new(known_id, "limit-exceeded", &text));
    }
    if id.is_some_and(|id| !is_id(id)) {
        return Err(Malformed::new("null", "invalid-request", "id: must be a number, a string or null"));
    }
    let Some(method) = raw.method else {
        if let Some(outcome) = outcome(&raw) {
            return Ok(Incoming::Response { id, outcome });
        }
        return Err(Malformed::new(known_id, "invalid-request", "method: is missing"));
    };
    let Ok(method) = serde_json::from_str::<String>(method.get()) else {
        return Err(Malformed::new(known_id, "invalid-request", "method: must be a string"));
    };
    let version = raw.jsonrpc.and_then(|version| serde_json::from_str::<String>(version.get()).ok());
    if version.as_deref() != Some("2.0") {
        return Err(Malformed::new(known_id, "invalid-request", "jsonrpc: must be \"2.0\""));
    }
    Ok(match id {
        Some(id) => Incoming::Request { id, method, params: raw.params },
        None => Incoming::Notification { method, params: raw.params },
    })
}

/// What a response says; `None` for what is none.
fn outcome<'a>(raw: &Raw<'a>) -> Option<Result<&'a RawValue, &'a RawValue>> {
    if raw.method.is_some() {
        return None;
    }
    raw.error.map(Err).or_else(|| raw.result.map(Ok))
}

/// What a peer's error says, for a line of the log: nothing long, and nothing that breaks the line.
pub fn problem_of(error: &RawValue) -> String {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Problem {
        code: i64,
        message: String,
    }
    let problem: Problem = serde_json::from_str(error.get()).unwrap_or_default();
    let message = problem.message.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200);
    format!("{} {}", problem.code, message.collect::<String>())
}

/// JSON that is no envelope, or no JSON.
fn unreadable(text: &str, problem: &str) -> Malformed {
    match serde_json::from_str::<&RawValue>(text) {
        Err(error) => Malformed::Text(error.to_string()),
        Ok(_) if text.trim_start().starts_with('[') => {
            Malformed::new("null", "invalid-request", "batches are not served: send one message a frame")
        }
        Ok(_) => Malformed::new("null", "invalid-request", problem),
    }
}

fn is_id(json: &str) -> bool {
    json == "null" || json.starts_with(|first: char| first == '"' || first == '-' || first.is_ascii_digit())
}

/// How deep arrays and objects nest in `json`, whatever else is wrong with it.
fn nesting(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
    }
    deepest
}

fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => {
                bytes.next();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn split(text: &str) -> Result<Incoming<'_>, Malformed> {
        super::split(text, 64)
    }

    fn refused(text: &str) -> Value {
        serde_json::from_str(&split(text).unwrap_err().frame()).unwrap()
    }

    #[test]
    fn ids_stay_the_text_that_they_were() {
        for id in ["7", "\"a\"", "null", "-1", "1.5", "18446744073709551616"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            let Incoming::Request { id: read, method, .. } = split(&text).unwrap() else { panic!("{text}") };
            assert_eq!((read, method.as_str()), (id, "ping"));
        }
    }

    #[test]
    fn a_message_without_an_id_is_a_notification() {
        let incoming = split(r#"{"jsonrpc":"2.0","method":"x","params":{"a":1},"more":0}"#).unwrap();
        let Incoming::Notification { params, .. } = incoming else { panic!() };
        assert_eq!(params.unwrap().get(), r#"{"a":1}"#);
    }

    #[test]
    fn responses_are_told_apart_also_with_a_null_result() {
        for text in [r#"{"jsonrpc":"2.0","id":1,"result":null}"#, r#"{"id":1,"error":{"code":1}}"#] {
            assert!(matches!(split(text), Ok(Incoming::Response { id: Some("1"), .. })), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_json_is_a_parse_error_without_an_id() {
        for text in ["", "{", r#"{"id":1"#, "nonsense", "[1,", r#"{"jsonrpc":"2.0","id":1,"method":"ping"}}"#] {
            assert_eq!(refused(text)["error"]["code"], -32700, "{text}");
        }
    }

    #[test]
    fn json_that_is_no_request_is_refused_with_its_id_where_it_has_one() {
        let cases = [
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, Value::Null),
            ("5", Value::Null),
            ("{}", Value::Null),
            (r#"{"jsonrpc":"2.0","id":4}"#, Value::from(4)),
            (r#"{"jsonrpc":"2.0","id":"q","method":5}"#, Value::from("q")),
            (r#"{"jsonrpc":"1.0","id":4,"method":"ping"}"#, Value::from(4)),
            (r#"{"id":4,"method":"ping"}"#, Value::from(4)),
            (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, Value::Null),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, Value::Null),
        ];
        for (text, id) in cases {
            let frame = refused(text);
            assert_eq!(frame["error"]["code"], -32600, "{text}");
            assert_eq!(frame["id"], id, "{text}");
            assert!(frame["error"]["data"]["code"].is_string(), "{text}");
        }
    }

    #[test]
    fn nesting_is_bounded_before_it_is_parsed() {
        let message = |depth: usize| {
            let (open, close) = ("[".repeat(depth - 1), "]".repeat(depth - 1));
            format!(r#"{{"jsonrpc":"2.0","id":9,"method":"x","params":{open}{close}}}"#)
        };
        assert!(split(&message(64)).is_ok());
        for depth in [65, 100_000] {
            let frame = refused(&message(depth));
            assert_eq!((frame["error"]["code"].as_i64(), frame["id"].as_i64()), (Some(-32600), Some(9)));
        }
    }

    #[test]
    fn brackets_in_strings_do_not_nest() {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":"\"{}"}}"#, "[{".repeat(100));
        assert!(split(&text).is_ok());
    }
}
