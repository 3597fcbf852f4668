//! How a run that is over ended its turn, and what it used.

use ahp_types::common::JsonObject;
use ahp_types::state::UsageInfo;
use serde_json::{Value, json};

use super::wire::Outcome;
use crate::actors::agent::{Ending, LimitKind};
use crate::agents::{COST, LOGIN};
use crate::clock::Millis;

/// The `errorType` of a turn that the CLI or its model failed.
const FAILED: &str = "agent-error";

/// The ending of a turn. `error` is the kind of error that the CLI told in the run, `resets_at` when a plan's limit lifts.
pub(super) fn of(outcome: &Outcome, error: Option<&str>, resets_at: Option<Millis>, name: &str) -> Ending {
    if !outcome.is_error {
        return Ending::Complete;
    }
    if outcome.reason.as_deref().is_some_and(|reason| reason.starts_with("aborted")) {
        return Ending::Cancelled;
    }
    let message = if outcome.text.is_empty() { outcome.subtype.clone() } else { outcome.text.clone() };
    let (message, told) = told_reset(message);
    if outcome.status == Some(529) || error == Some("overloaded") {
        return Ending::Limited { kind: LimitKind::Overload, message, resets_at: None };
    }
    if outcome.status == Some(429) || error == Some("rate_limit") || told.is_some() {
        return Ending::Limited { kind: LimitKind::Usage, message, resets_at: resets_at.or(told) };
    }
    if error == Some("authentication_failed") || outcome.status == Some(401) || message.contains("/login") {
        let message = format!(
            "{message}. Log in as the host's user (run the program of `agents.{name}` once in a terminal), or give it \
             ANTHROPIC_API_KEY in `env` or `pass_env` of `agents.{name}`"
        );
        return Ending::Failed { error_type: LOGIN.to_owned(), message, resumable: true };
    }
    Ending::Failed { error_type: FAILED.to_owned(), message, resumable: true }
}

/// Some versions tell the end of a limit in the text, as `…|1796090000`.
fn told_reset(message: String) -> (String, Option<Millis>) {
    let told = message.rsplit_once('|').and_then(|(text, at)| Some((text.trim().to_owned(), at.trim().parse().ok()?)));
    match told {
        Some((text, at)) if text.contains("limit") => (text, Some(Millis::saturating_mul(at, 1_000))),
        _ => (message, None),
    }
}

/// What a run used; `cost` is what it cost, where that is known.
pub(super) fn usage(outcome: &Outcome, model: Option<&str>, cost: Option<f64>) -> Option<UsageInfo> {
    let count = |key: &str| outcome.usage.get(key).and_then(Value::as_i64);
    let input = count("input_tokens")?;
    let written = count("cache_creation_input_tokens").unwrap_or_default();
    let models = outcome.models.as_object();
    let model = model.or_else(|| models.and_then(|models| models.keys().next()).map(String::as_str));
    let meta =
        cost.map(|cost| JsonObject::from_iter([(COST.to_owned(), json!({ "amount": cost, "currency": "USD" }))]));
    Some(UsageInfo {
        input_tokens: Some(input.saturating_add(written)),
        output_tokens: count("output_tokens"),
        model: model.map(str::to_owned),
        cache_read_tokens: count("cache_read_input_tokens"),
        meta,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(status: Option<u64>, text: &str) -> Outcome {
        Outcome { is_error: true, subtype: "success".into(), status, text: text.into(), ..Outcome::default() }
    }

    #[test]
    fn limits_say_when_they_lift_where_that_is_told() {
        let usage = of(&failed(Some(429), "no more"), Some("rate_limit"), Some(5_000), "claude");
        assert_eq!(
            usage,
            Ending::Limited { kind: LimitKind::Usage, message: "no more".into(), resets_at: Some(5_000) }
        );
        let old = of(&failed(None, "Claude AI usage limit reached|1796090000"), None, None, "claude");
        let message = "Claude AI usage limit reached".to_owned();
        assert_eq!(old, Ending::Limited { kind: LimitKind::Usage, message, resets_at: Some(1_796_090_000_000) });
        let overload = of(&failed(Some(529), "busy"), Some("server_error"), None, "claude");
        assert_eq!(overload, Ending::Limited { kind: LimitKind::Overload, message: "busy".into(), resets_at: None });
    }

    #[test]
    fn what_was_interrupted_is_no_failure_and_a_missing_login_says_what_to_do() {
        let aborted = Outcome { reason: Some("aborted_streaming".into()), ..failed(None, "x") };
        assert_eq!(of(&aborted, None, None, "claude"), Ending::Cancelled);
        for (status, text) in [(Some(401), "Failed to authenticate"), (None, "Not logged in · Please run /login")] {
            let Ending::Failed { error_type, message, .. } = of(&failed(status, text), None, None, "mine") else {
                panic!()
            };
            assert_eq!(error_type, LOGIN);
            assert!(message.contains("`agents.mine`"), "{message}");
        }
    }
}
