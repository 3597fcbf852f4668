//! How a refusal becomes a JSON-RPC error: the one place that knows the numbers.
//!
//! Always: every error but a parse error carries `data.code`, a stable word.
//! Source: AHP error codes; JSON-RPC 2.0, 5.1.

use bytestring::ByteString;
use serde_json::{Map, Value, json};

use crate::actors::command::{Refusal, RefusalKind};

/// The JSON-RPC error code of text that is not JSON.
pub const PARSE_ERROR: i32 = -32700;

/// The JSON-RPC error code of a refusal.
pub fn code(kind: RefusalKind) -> i32 {
    match kind {
        RefusalKind::InvalidRequest => -32600,
        RefusalKind::UnknownMethod => -32601,
        RefusalKind::InvalidParams => -32602,
        RefusalKind::Internal => -32603,
        RefusalKind::Unavailable => -32000,
        RefusalKind::UnknownSession => -32001,
        RefusalKind::UnknownProvider => -32002,
        RefusalKind::SessionExists => -32003,
        RefusalKind::TurnInProgress => -32004,
        RefusalKind::UnsupportedVersion => -32005,
        RefusalKind::NotFound => -32008,
        RefusalKind::NotPermitted => -32009,
        RefusalKind::AlreadyExists => -32010,
        RefusalKind::Conflict => -32011,
    }
}

/// The frame that answers the request `id` with `result`: both JSON, taken verbatim. A result that has room is not copied
/// into another text.
pub fn result_frame(id: &str, mut result: String) -> ByteString {
    result.insert_str(0, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#));
    result.push('}');
    ByteString::from(result)
}

/// The frame that refuses the request `id`.
pub fn refusal_frame(id: &str, refusal: &Refusal) -> ByteString {
    let mut data = match &refusal.data {
        Some(Value::Object(members)) => members.clone(),
        Some(other) => Map::from_iter([("value".to_owned(), other.clone())]),
        None => Map::new(),
    };
    data.insert("code".to_owned(), Value::from(refusal.code));
    error_frame(id, &json!({ "code": code(refusal.kind), "message": refusal.message, "data": data }))
}

/// The frame that answers text that is not JSON.
pub fn parse_error_frame(problem: &str) -> ByteString {
    error_frame("null", &json!({ "code": PARSE_ERROR, "message": format!("not JSON: {problem}") }))
}

fn error_frame(id: &str, error: &Value) -> ByteString {
    ByteString::from(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#))
}

/// A refusal of params: `field` is wrong, and why.
pub fn invalid_params(field: &str, problem: &str) -> Refusal {
    Refusal::new(RefusalKind::InvalidParams, "invalid-params", format!("{field}: {problem}"))
}

/// A refusal of a request that is no request, or not one for now.
pub fn invalid_request(code: &'static str, message: impl Into<String>) -> Refusal {
    Refusal::new(RefusalKind::InvalidRequest, code, message)
}

/// A refusal of a fault on our side. What it was is for the log, not for the peer.
pub fn internal(fault: &dyn std::fmt::Display) -> Refusal {
    tracing::error!(%fault, "a command failed");
    Refusal::new(RefusalKind::Internal, "internal", "the host could not do this: its log says why")
}

/// Counts a limit that was met and refuses with it.
pub fn limit(limit: &'static str, message: impl Into<String>) -> Refusal {
    count_limit(limit);
    Refusal::new(RefusalKind::Unavailable, "limit-exceeded", message)
}

/// Counts a limit that was met.
pub fn count_limit(limit: &'static str) {
    metrics::counter!("scrollback_limit_met_total", "limit" => limit).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(frame: &str) -> Value {
        serde_json::from_str::<Value>(frame).unwrap()["error"].clone()
    }

    #[test]
    fn every_refusal_carries_its_word_and_keeps_its_data() {
        let mut refusal = Refusal::new(RefusalKind::UnsupportedVersion, "unsupported-version", "no");
        refusal.data = Some(json!({ "supportedVersions": ["^1.0.0"] }));
        let error = error_of(&refusal_frame("7", &refusal));
        assert_eq!(error["code"], -32005);
        assert_eq!(error["data"], json!({ "code": "unsupported-version", "supportedVersions": ["^1.0.0"] }));
    }

    #[test]
    fn a_parse_error_has_no_data_and_no_id() {
        let frame: Value = serde_json::from_str(&parse_error_frame("expected value")).unwrap();
        assert_eq!(frame["id"], Value::Null);
        assert_eq!(frame["error"]["code"], PARSE_ERROR);
        assert!(frame["error"].get("data").is_none());
    }

    #[test]
    fn ids_are_answered_as_they_were_written() {
        let frame = result_frame(r#""a\u0062""#, "null".into());
        assert_eq!(&*frame, r#"{"jsonrpc":"2.0","id":"a\u0062","result":null}"#);
    }

    #[test]
    fn invalid_params_name_the_field() {
        let error = error_of(&refusal_frame("1", &invalid_params("clientId", "is missing")));
        assert_eq!(error["code"], -32602);
        assert_eq!(error["message"], "clientId: is missing");
        assert_eq!(error["data"]["code"], "invalid-params");
    }
}
