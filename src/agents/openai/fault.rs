//! What goes wrong with an endpoint, in words that a person can act on, and how a turn ends by it.

use ahp_types::notifications::AuthRequiredReason;
use ahp_types::state::ProtectedResourceMetadata;
use chrono::DateTime;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde_json::Value;

use super::hidden::Hidden;
use crate::actors::agent::{Ending, LimitKind, NeedsToken};
use crate::clock::Millis;

/// The `errorType` of a turn whose endpoint lets nobody in with what it got.
pub(super) const UNAUTHORIZED: &str = "unauthorized";
/// How much of an answer that is no error object is told.
const TOLD: usize = 300;
/// The status of an overloaded endpoint that HTTP has no name for.
const OVERLOADED: u16 = 529;

/// Why a request was not answered.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fault {
    pub cause: Cause,
    pub ending: Ending,
}

/// What can be done about it by asking otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The conversation is longer than the model's context.
    Context,
    /// The endpoint takes no tools, or the model does not.
    Tools,
    /// It lets nobody in without a token, or with the one that it got.
    Token,
    Other,
}

impl Fault {
    /// One that ends its turn in an error of this type.
    pub fn failed(error_type: &str, message: String, resumable: bool) -> Self {
        let ending = Ending::Failed { error_type: error_type.to_owned(), message, resumable };
        Self { cause: Cause::Other, ending }
    }

    /// The endpoint sent what is no answer.
    pub fn garbage(message: String) -> Self {
        Self::failed("endpoint-garbage", message, true)
    }

    /// The resource wants a token of who sent the message, and there is none that is good.
    pub fn needs_token(resource: &ProtectedResourceMetadata, reason: AuthRequiredReason, message: String) -> Self {
        let needed = NeedsToken { resource: resource.clone(), reason, message };
        Self { cause: Cause::Token, ending: Ending::NeedsToken(Box::new(needed)) }
    }

    /// There is no token to ask with.
    pub fn no_token(resource: &ProtectedResourceMetadata, reason: AuthRequiredReason) -> Self {
        let of = called(resource);
        let message = match reason {
            AuthRequiredReason::Expired => {
                format!("the token for {of} is not good any more: sign in again, and resume")
            }
            _ => format!("this agent needs a token of yours for {of}: sign in, and resume"),
        };
        Self::needs_token(resource, reason, message)
    }

    /// Whether it is about who asked, and not about what.
    pub fn is_of_who_asks(&self) -> bool {
        self.cause == Cause::Token
            || matches!(&self.ending, Ending::Failed { error_type, .. } if error_type == UNAUTHORIZED)
    }

    /// What it says.
    pub fn words(&self) -> &str {
        match &self.ending {
            Ending::Failed { message, .. } | Ending::Limited { message, .. } => message,
            Ending::NeedsToken(needed) => &needed.message,
            Ending::Complete | Ending::Cancelled => "",
        }
    }
}

/// Who was asked, for the words.
#[derive(Debug, Clone, Copy)]
pub(super) struct About<'a> {
    /// The NAME of the agent's table.
    pub agent: &'a str,
    pub base_url: &'a str,
    /// The variable that holds the key, where one is configured, and whether it is set.
    pub key: Option<(&'a str, bool)>,
    /// What a person's token is wanted for, in the place of a key.
    pub resource: Option<&'a ProtectedResourceMetadata>,
    /// What it was let in with, which it may repeat.
    pub hidden: &'a Hidden,
    /// Empty where none was asked for.
    pub model: &'a str,
    pub now: Millis,
}

/// What an endpoint says in a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Said {
    message: String,
    /// Its type and its code, in lower case.
    code: String,
    /// The HTTP status that its code is, where it is one.
    status: Option<u16>,
}

/// A refusal with an HTTP status.
pub(super) fn refused(status: StatusCode, headers: &HeaderMap, body: &[u8], about: About<'_>) -> Fault {
    let said = said(body, about.hidden);
    fault(status, headers, &said, about)
}

/// A refusal in the middle of a stream.
pub(super) fn refused_in_stream(error: &Value, about: About<'_>) -> Fault {
    let said = said_by(error, about.hidden);
    let status = said.status.and_then(|status| StatusCode::from_u16(status).ok());
    fault(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), &HeaderMap::new(), &said, about)
}

fn fault(status: StatusCode, headers: &HeaderMap, said: &Said, about: About<'_>) -> Fault {
    let About { base_url, model, agent, .. } = about;
    let says = |message: &str| match said.message.as_str() {
        "" => message.to_owned(),
        said => format!("{message}; it says: {said}"),
    };
    if is_overload(status, said) {
        let message = says(&format!("the endpoint {base_url} is overloaded ({})", status.as_u16()));
        return limited(LimitKind::Overload, message, lifts_at(headers, about.now));
    }
    if is_context(said) {
        let message = says(&format!(
            "the conversation is longer than the context of the model {model}: go back to an earlier turn, begin a new \
             chat, or choose a model with a longer context"
        ));
        return Fault { cause: Cause::Context, ..Fault::failed("context-too-long", message, false) };
    }
    if let (StatusCode::UNAUTHORIZED, Some(resource)) = (status, about.resource) {
        let of = called(resource);
        let message =
            says(&format!("the endpoint {base_url} refused the token for {of} (401): sign in again, and resume"));
        return Fault::needs_token(resource, AuthRequiredReason::Expired, message);
    }
    match status {
        StatusCode::TOO_MANY_REQUESTS => {
            // A plan that is used up lifts when it is paid for, whatever the headers count.
            let lifts = if said.code.contains("quota") { None } else { lifts_at(headers, about.now) };
            limited(LimitKind::Usage, says(&format!("the endpoint {base_url} takes no more requests for now")), lifts)
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Fault::failed(UNAUTHORIZED, says(&wrong_key(status, about)), true)
        }
        StatusCode::NOT_FOUND => Fault::failed("unknown-model", says(&not_there(about)), true),
        status if status.is_redirection() => {
            let to = headers.get("location").and_then(|to| to.to_str().ok()).unwrap_or("somewhere else");
            let to = about.hidden.from(to);
            let message = format!("the endpoint {base_url} has moved to {to}: mend `base_url` of [agents.{agent}]");
            Fault::failed("endpoint-refused", message, true)
        }
        status => {
            let fails = status.is_server_error();
            let how = if fails { "failed" } else { "refused the request" };
            let message = says(&format!("the endpoint {base_url} {how} ({})", status.as_u16()));
            let error_type = if fails { "endpoint-failed" } else { "endpoint-refused" };
            let cause = if said.message.to_lowercase().contains("tool") { Cause::Tools } else { Cause::Other };
            Fault { cause, ..Fault::failed(error_type, message, fails) }
        }
    }
}

/// A resource in words.
fn called(resource: &ProtectedResourceMetadata) -> String {
    match &resource.resource_name {
        Some(name) => format!("{name} ({})", resource.resource),
        None => resource.resource.clone(),
    }
}

fn wrong_key(status: StatusCode, About { base_url, agent, key, resource, .. }: About<'_>) -> String {
    if let Some(resource) = resource {
        let (of, status) = (called(resource), status.as_u16());
        return format!(
            "the endpoint {base_url} does not allow this with the token for {of} ({status}): sign in as \
                        somebody who may, or with more scopes, and resume"
        );
    }
    match key {
        Some((name, true)) => {
            let status = status.as_u16();
            format!("the endpoint {base_url} refused the key that the host's variable {name} holds ({status})")
        }
        Some((name, false)) => format!(
            "the endpoint {base_url} wants a key, and the variable {name} is not set in the host's environment: set \
             it and start the host again"
        ),
        None => format!(
            "the endpoint {base_url} wants a key: set `api_key_env` of [agents.{agent}] to the name of the variable \
             that holds it"
        ),
    }
}

fn not_there(About { base_url, agent, model, .. }: About<'_>) -> String {
    if model.is_empty() {
        return format!("the endpoint {base_url} lists no models: see whether `base_url` of [agents.{agent}] is right");
    }
    format!(
        "the endpoint {base_url} has no model {model}, or is no endpoint of chat completions: mend `model` or \
         `base_url` of [agents.{agent}], or choose another model"
    )
}

fn limited(kind: LimitKind, message: String, resets_at: Option<Millis>) -> Fault {
    Fault { cause: Cause::Other, ending: Ending::Limited { kind, message, resets_at } }
}

fn is_overload(status: StatusCode, said: &Said) -> bool {
    status == StatusCode::SERVICE_UNAVAILABLE || status.as_u16() == OVERLOADED || said.code.contains("overloaded")
}

/// OpenAI and many others have a code for it, llama.cpp a type of its own, vLLM words alone.
fn is_context(said: &Said) -> bool {
    let message = said.message.to_lowercase();
    ["context_length", "context_size"].iter().any(|code| said.code.contains(code))
        || ["maximum context length", "context length exceeded", "context window", "exceeds the available context size"]
            .iter()
            .any(|words| message.contains(words))
}

/// What the body of a refusal says. Most have an object of OpenAI's form, and no two agree on the rest.
fn said(body: &[u8], hidden: &Hidden) -> Said {
    match serde_json::from_slice::<Value>(body) {
        Ok(value) => said_by(value.get("error").unwrap_or(&value), hidden),
        Err(_) => {
            let text = String::from_utf8_lossy(body);
            Said { message: beginning(&hidden.from(text.trim())), code: String::new(), status: None }
        }
    }
}

fn said_by(error: &Value, hidden: &Hidden) -> Said {
    let field = |key: &str| match error.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    };
    let message = match error {
        Value::String(text) => text.clone(),
        error => [field("message"), field("detail")]
            .into_iter()
            .find(|text| !text.is_empty())
            .unwrap_or_else(|| if error.is_object() || error.is_array() { error.to_string() } else { String::new() }),
    };
    let code = field("code");
    Said {
        message: beginning(&hidden.from(message.trim())),
        status: code.parse().ok(),
        code: format!("{} {code}", field("type")).to_lowercase(),
    }
}

/// Milliseconds until a limit lifts that are believed: a year.
const FURTHEST: f64 = 366.0 * 86_400_000.0;

/// The beginning of what may be a whole page.
pub(super) fn beginning(text: &str) -> String {
    match text.char_indices().nth(TOLD) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// When a limit lifts, as the headers say it: to be asked again after so long, or else when the last of the limits that are
/// counted is full again.
fn lifts_at(headers: &HeaderMap, now: Millis) -> Option<Millis> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(millis) = text("retry-after-ms").and_then(|text| text.parse::<f64>().ok()) {
        return after(now, millis);
    }
    if let Some(text) = text("retry-after") {
        let date = || DateTime::parse_from_rfc2822(text).ok().map(|date| date.timestamp_millis());
        return text.parse::<f64>().ok().map_or_else(date, |seconds| after(now, seconds * 1_000.0));
    }
    let counted = ["x-ratelimit-reset-requests", "x-ratelimit-reset-tokens"];
    let counted = counted.iter().filter_map(|name| after(now, span(text(name)?)?));
    counted.max()
}

/// `None` for what is no number, or further away than any limit is.
fn after(now: Millis, millis: f64) -> Option<Millis> {
    (millis.max(0.0) <= FURTHEST).then(|| now.saturating_add(millis.max(0.0) as Millis))
}

/// The milliseconds of a span such as `6m0s`, `7.66s` or `20ms`; a bare number is seconds.
fn span(text: &str) -> Option<f64> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Some(seconds * 1_000.0);
    }
    let (mut rest, mut millis) = (text, 0.0);
    while !rest.is_empty() {
        let number = rest.find(|letter: char| letter.is_ascii_alphabetic())?;
        let (count, behind) = rest.split_at_checked(number)?;
        let end = behind.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at_checked(end)?;
        let unit = match unit {
            "ms" => 1.0,
            "s" => 1_000.0,
            "m" => 60_000.0,
            "h" => 3_600_000.0,
            "d" => 86_400_000.0,
            _ => return None,
        };
        millis += count.parse::<f64>().ok()? * unit;
        rest = behind;
    }
    (!text.is_empty()).then_some(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = 1_000_000;
    static NOTHING: Hidden = Hidden::NOTHING;

    fn about(key: Option<(&str, bool)>) -> About<'_> {
        About { agent: "local", base_url: "http://h/v1", key, resource: None, hidden: &NOTHING, model: "m", now: NOW }
    }

    fn of(status: u16, headers: &[(&'static str, &str)], body: &str) -> Fault {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        refused(StatusCode::from_u16(status).unwrap(), &map, body.as_bytes(), about(None))
    }

    fn limit(fault: &Fault) -> (LimitKind, Option<Millis>) {
        match fault.ending {
            Ending::Limited { kind, resets_at, .. } => (kind, resets_at),
            ref other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_limit_lifts_when_the_headers_say_it() {
        let at = |headers: &[(&'static str, &str)]| limit(&of(429, headers, ""));
        assert_eq!(at(&[]), (LimitKind::Usage, None));
        assert_eq!(at(&[("retry-after", "3")]), (LimitKind::Usage, Some(NOW + 3_000)));
        assert_eq!(at(&[("retry-after", "0.5")]).1, Some(NOW + 500));
        assert_eq!(at(&[("retry-after-ms", "250"), ("retry-after", "1")]).1, Some(NOW + 250));
        assert_eq!(at(&[("retry-after", "Thu, 01 Jan 1970 01:00:00 GMT")]).1, Some(3_600_000));
        assert_eq!(at(&[("retry-after", "soon")]).1, None);
        let both = [("x-ratelimit-reset-requests", "1m30.5s"), ("x-ratelimit-reset-tokens", "20ms")];
        assert_eq!(at(&both).1, Some(NOW + 90_500));
        assert_eq!(at(&[("x-ratelimit-reset-tokens", "a while")]).1, None);
        assert_eq!(at(&[("x-ratelimit-reset-tokens", "7.66s")]).1, Some(NOW + 7_660));
        assert_eq!(at(&[("retry-after", "1e300")]).1, None);
        // Money does not come by itself.
        let quota = r#"{"error":{"message":"pay","type":"insufficient_quota","code":"insufficient_quota"}}"#;
        assert_eq!(limit(&of(429, &[("x-ratelimit-reset-requests", "1s")], quota)), (LimitKind::Usage, None));
    }

    #[test]
    fn an_overload_is_told_by_its_status_or_its_word() {
        assert_eq!(limit(&of(503, &[], "")), (LimitKind::Overload, None));
        assert_eq!(limit(&of(529, &[("retry-after", "1")], "")), (LimitKind::Overload, Some(NOW + 1_000)));
        let word = r#"{"error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        assert_eq!(limit(&of(500, &[], word)).0, LimitKind::Overload);
        let error = serde_json::from_str(r#"{"code":429,"message":"slow down"}"#).unwrap();
        assert_eq!(limit(&refused_in_stream(&error, about(None))).0, LimitKind::Usage);
    }

    #[test]
    fn a_context_that_is_too_long_is_known_in_every_dialect() {
        for (status, body) in [
            (400, r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#),
            (400, r#"{"error":{"message":"too long","type":"exceed_context_size_error","code":400}}"#),
            (400, r#"{"object":"error","message":"This model's maximum context length is 8 tokens."}"#),
        ] {
            let fault = of(status, &[], body);
            assert_eq!(fault.cause, Cause::Context, "{body}");
            assert!(matches!(fault.ending, Ending::Failed { resumable: false, .. }), "{body}");
        }
        assert_eq!(of(400, &[], r#"{"error":"x does not support tools"}"#).cause, Cause::Tools);
        assert_eq!(of(500, &[], "tools param requires --jinja flag").cause, Cause::Tools);
        assert_eq!(of(400, &[], "<html>no").cause, Cause::Other);
    }

    #[test]
    fn the_words_say_what_to_do() {
        let words = |key, status| {
            let headers = HeaderMap::new();
            refused(StatusCode::from_u16(status).unwrap(), &headers, b"{\"detail\":\"no\"}", about(key))
                .words()
                .to_owned()
        };
        assert!(words(None, 401).contains("set `api_key_env` of [agents.local]"));
        assert!(words(Some(("KEY", false)), 401).contains("the variable KEY is not set"));
        let wrong = words(Some(("KEY", true)), 403);
        assert!(wrong.contains("refused the key that the host's variable KEY holds") && wrong.ends_with("it says: no"));
        assert!(words(None, 404).contains("no model m"));
        assert!(of(308, &[("location", "http://x/")], "").words().contains("has moved to http://x/"));
        assert!(of(500, &[], &"ä".repeat(10_000)).words().len() < 1_000);
    }
}
