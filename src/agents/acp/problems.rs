//! What goes wrong with an agent, in words and as the ending of a turn.

use std::process::ExitStatus;
use std::time::Duration;

use agent_client_protocol::v1::schema::{AuthMethod, StopReason};
use agent_client_protocol::{Error, ErrorCode};
use serde_json::Value;

use crate::actors::agent::{Ending, LimitKind};
use crate::agents::LOGIN;
use crate::clock::{self, Millis};

/// Unix times above it are in milliseconds: no agent means a day in the year 5138.
const IN_MILLISECONDS: f64 = 1e11;

/// When a program ended that was not up yet.
pub(super) const STARTING: &str = "before it was ready";

/// That a program ended, and when, as a sentence about it.
pub(super) fn ended(when: &str, status: Option<ExitStatus>) -> String {
    let status = status.map_or_else(|| "its output is closed".to_owned(), |status| status.to_string());
    format!("ended {when} ({status})")
}

/// How a turn ended, as its agent says.
pub(super) fn of_stop(reason: StopReason) -> Ending {
    let failed = |error_type: &str, message: &str, resumable| Ending::Failed {
        error_type: error_type.to_owned(),
        message: message.to_owned(),
        resumable,
    };
    match reason {
        StopReason::Cancelled => Ending::Cancelled,
        StopReason::MaxTokens => failed("max-tokens", "the answer met the limit of the model's tokens", true),
        StopReason::MaxTurnRequests => {
            failed("max-turn-requests", "the agent met its limit of model requests in one turn", true)
        }
        StopReason::Refusal => failed("refusal", "the model refused to go on with this conversation", false),
        _ => Ending::Complete,
    }
}

/// How a turn ended whose prompt was answered with an error.
pub(super) fn of_error(error: &Error, login: &str, now: Millis) -> Ending {
    if error.code == ErrorCode::AUTH_REQUIRED {
        return Ending::Failed { error_type: LOGIN.to_owned(), message: login.to_owned(), resumable: true };
    }
    let message = words(error);
    match limit(&message) {
        Some(kind) => {
            Ending::Limited { kind, message, resets_at: error.data.as_ref().and_then(|data| lifts(data, now)) }
        }
        None => Ending::Failed { error_type: "agent-error".to_owned(), message, resumable: true },
    }
}

/// An error as a sentence: the message, and what the data says beside it.
pub(super) fn words(error: &Error) -> String {
    let data = error.data.as_ref();
    let details = data.and_then(|data| {
        let named = ["details", "message", "error"].iter().find_map(|key| data.get(key)?.as_str());
        data.as_str().or(named).map(str::to_owned).or_else(|| serde_json::to_string(data).ok())
    });
    match details.filter(|details| !details.is_empty() && *details != error.message && details != "null") {
        Some(details) => format!("{}: {details}", error.message),
        None => error.message.clone(),
    }
}

/// Whether an answer to a prompt says that the agent does not know the conversation, and not that it lacks something else.
pub(super) fn is_unknown_session(error: &Error) -> bool {
    let words = words(error).to_lowercase();
    let lacks = ["not found", "unknown session", "no such", "does not exist", "no conversation"];
    let is_of_it = ["session", "conversation"].iter().any(|word| has_word(&words, word));
    error.code == ErrorCode::RESOURCE_NOT_FOUND || is_of_it && lacks.iter().any(|lacks| words.contains(lacks))
}

/// What limit the words of an error speak of.
fn limit(words: &str) -> Option<LimitKind> {
    let words = words.to_lowercase();
    let any = |says: &[&str]| says.iter().any(|says| words.contains(says));
    if any(&["usage limit", "usage_limit", "quota", "credit balance", "billing", "spending limit"]) {
        return Some(LimitKind::Usage);
    }
    let overload = ["overloaded", "rate limit", "rate_limit", "ratelimit", "too many requests", "at capacity"];
    (any(&overload) || has_word(&words, "429") || has_word(&words, "529")).then_some(LimitKind::Overload)
}

/// Whether a word or a number stands there alone. A key such as `session_id` is another word.
fn has_word(words: &str, wanted: &str) -> bool {
    words.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').any(|word| word == wanted)
}

/// When a limit lifts, where the data of an error says so anywhere.
fn lifts(data: &Value, now: Millis) -> Option<Millis> {
    let object = data.as_object()?;
    let number = |keys: &[&str]| keys.iter().find_map(|key| object.get(*key)?.as_f64());
    if let Some(seconds) = number(&["retryAfter", "retry_after", "resets_in_seconds"]) {
        let wait = Duration::try_from_secs_f64(seconds).ok()?;
        return Some(clock::later(now, wait));
    }
    if let Some(at) = number(&["resetsAt", "resets_at"]) {
        let millis = if at > IN_MILLISECONDS { at } else { at * 1_000.0 };
        #[allow(clippy::cast_possible_truncation)]
        return Some(millis as Millis);
    }
    object.values().find_map(|value| lifts(value, now))
}

/// How somebody logs in to an agent that wants it.
pub(super) fn login(name: &str, command: &str, methods: &[AuthMethod]) -> String {
    let method = |method: &AuthMethod| {
        let (name, description) = match method {
            AuthMethod::Terminal(method) => (&method.name, &method.description),
            AuthMethod::Agent(method) => (&method.name, &method.description),
            _ => return None,
        };
        Some(match description.as_deref().filter(|description| !description.is_empty()) {
            Some(description) => format!("{name} ({})", description.trim_end_matches('.')),
            None => name.clone(),
        })
    };
    let methods: Vec<String> = methods.iter().filter_map(method).collect();
    let ways = match methods.is_empty() {
        true => String::new(),
        false => format!(" It takes: {}.", methods.join("; ")),
    };
    format!(
        "{name} wants a login.{ways} Log in with {command} itself, as the user that the host runs as, or give it its key \
         with `pass_env` or `env` in [agents.{name}]"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn error(code: i32, message: &str, data: Value) -> Error {
        Error::new(code, message).data(data)
    }

    #[test]
    fn limits_are_known_by_their_words_and_nothing_else_is_taken_for_one() {
        for (message, kind) in [
            ("You've hit your usage limit.", Some(LimitKind::Usage)),
            ("Quota exceeded for metric x", Some(LimitKind::Usage)),
            ("API Error: 529 {\"type\":\"overloaded_error\"}", Some(LimitKind::Overload)),
            ("429 Too Many Requests", Some(LimitKind::Overload)),
            ("Rate limit reached for gpt-5", Some(LimitKind::Overload)),
            ("rate_limit_error", Some(LimitKind::Overload)),
            ("error in line 4290", None),
            ("Internal error", None),
        ] {
            assert_eq!(limit(message), kind, "{message}");
        }
    }

    #[test]
    fn when_a_limit_lifts_is_found_wherever_it_stands() {
        assert_eq!(lifts(&json!({ "a": { "retry_after": 1.5 } }), 1_000), Some(2_500));
        assert_eq!(lifts(&json!({ "resets_at": 1_796_041_695 }), 0), Some(1_796_041_695_000));
        assert_eq!(lifts(&json!({ "resetsAt": 1_796_041_695_000_i64 }), 0), Some(1_796_041_695_000));
        for odd in [json!({}), json!("x"), json!({ "retry_after": -1 }), json!({ "retry_after": 1e300 })] {
            assert_eq!(lifts(&odd, 0), None, "{odd}");
        }
    }

    #[test]
    fn an_error_is_said_with_its_details_and_an_unknown_session_is_told_from_others() {
        assert_eq!(words(&error(-32603, "Internal error", json!({ "details": "no key" }))), "Internal error: no key");
        assert_eq!(words(&error(-32601, "\"Method not found\"", json!("x/y"))), "\"Method not found\": x/y");
        assert_eq!(words(&Error::new(-32603, "Internal error")), "Internal error");
        assert!(is_unknown_session(&error(-32602, "Session not found: nope", json!({ "session_id": "nope" }))));
        assert!(is_unknown_session(&Error::new(-32002, "Resource")));
        assert!(is_unknown_session(&Error::new(-32603, "No conversation found with session ID: nope")));
        for (message, data) in [
            ("Internal error", json!({ "details": "no key" })),
            ("Model not found", json!({ "session_id": "s", "sessionId": "s" })),
            ("The file /session does not parse", json!(null)),
            ("command not found: rg", json!(null)),
        ] {
            assert!(!is_unknown_session(&error(-32603, message, data)), "{message}");
        }
    }

    #[test]
    fn who_has_to_log_in_is_told_how() {
        let methods: Vec<AuthMethod> = serde_json::from_value(json!([
            { "id": "chatgpt", "name": "Login with ChatGPT", "description": "Needs a plan." },
            { "type": "env_var", "id": "key", "name": "Use OPENAI_API_KEY", "vars": [] }]))
        .unwrap();
        let told = login("codex", "codex-acp", &methods);
        assert!(told.contains("It takes: Login with ChatGPT (Needs a plan); Use OPENAI_API_KEY. "), "{told}");
        assert!(told.contains("[agents.codex]"));
        assert!(
            matches!(of_error(&Error::auth_required(), &told, 0), Ending::Failed { message, .. } if message == told)
        );
    }
}
