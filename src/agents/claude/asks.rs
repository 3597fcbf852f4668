//! What the CLI asks of people: permissions, and questions of its tool `AskUserQuestion`.

use std::collections::HashMap;

use ahp_types::state::{
    ChatInputAnswer, ChatInputAnswerValue, ChatInputMultiSelectQuestion, ChatInputOption, ChatInputQuestion,
    ChatInputRequest, ChatInputResponseKind, ChatInputSingleSelectQuestion, ChatInputTextQuestion, ConfirmationOption,
    ConfirmationOptionKind,
};
use serde_json::{Map, Value, json};

use super::calls;
use super::wire::Ask;
use crate::actors::agent::{ToolAsk, ToolDecision};

/// The tool that asks questions.
pub(super) const QUESTIONS: &str = "AskUserQuestion";
/// The option that grants what the CLI suggests first; further suggestions are numbered behind it.
const ALLOW_ALWAYS: &str = "allow-always";
/// What the model is told of a denial without a reason.
const DENIED: &str = "The user does not want this. Ask what to do instead.";
/// What it is told when nobody answers its questions.
const UNANSWERED: &str = "The user did not answer the questions.";

/// The question about a call.
pub(super) fn tool_ask(ask: &Ask) -> ToolAsk {
    let option = |id: &str, label: &str, kind| ConfirmationOption {
        id: id.to_owned(),
        label: label.to_owned(),
        kind,
        group: None,
    };
    let mut options = vec![option("allow", "Allow", ConfirmationOptionKind::Approve)];
    let suggested = ask.suggestions.iter().enumerate();
    options.extend(suggested.map(|(at, suggestion)| {
        option(&option_id(at), &suggestion_label(suggestion), ConfirmationOptionKind::Approve)
    }));
    options.push(option("deny", "Deny", ConfirmationOptionKind::Deny));
    let display_name = ask.display_name.clone().unwrap_or_else(|| calls::display_name(&ask.tool));
    ToolAsk {
        tool_name: ask.tool.clone(),
        invocation: calls::invocation(&ask.tool, &ask.input).into(),
        input: Some(calls::input_text(&ask.input)),
        title: Some(format!("Allow {display_name}?")),
        display_name,
        options,
        editable: true,
    }
}

fn option_id(at: usize) -> String {
    if at == 0 { ALLOW_ALWAYS.to_owned() } else { format!("{ALLOW_ALWAYS}-{}", at + 1) }
}

/// What a suggestion grants, in words.
fn suggestion_label(suggestion: &Value) -> String {
    let word = |key: &str| suggestion.get(key).and_then(Value::as_str).unwrap_or_default();
    let list = |key: &str| suggestion.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let lasts = if word("destination") == "session" { " in this session" } else { "" };
    match word("type") {
        "addRules" => {
            let rule = |rule: &Value| {
                let tool = rule.get("toolName").and_then(Value::as_str).unwrap_or_default();
                match rule.get("ruleContent").and_then(Value::as_str) {
                    Some(content) => format!("{tool}({content})"),
                    None => tool.to_owned(),
                }
            };
            let rules: Vec<String> = list("rules").iter().map(rule).collect();
            format!("Always allow {}{lasts}", rules.join(", "))
        }
        "addDirectories" => {
            let directories: Vec<String> =
                list("directories").iter().filter_map(|path| path.as_str().map(str::to_owned)).collect();
            format!("Allow, and work in {}{lasts}", directories.join(", "))
        }
        "setMode" if word("mode") == "acceptEdits" => format!("Allow, and accept all edits{lasts}"),
        "setMode" => format!("Allow, and go on in the mode {}{lasts}", word("mode")),
        other => format!("Allow, and {other}{lasts}"),
    }
}

/// The answer that a decision is.
pub(super) fn decided(ask: &Ask, decision: ToolDecision) -> Value {
    match decision {
        ToolDecision::Deny { reason, .. } => {
            let reason = reason.filter(|reason| !reason.trim().is_empty());
            denial(reason.as_deref().unwrap_or(DENIED))
        }
        ToolDecision::Approve { option, edited_input } => {
            let input = match edited_input.map(|edited| serde_json::from_str(&edited)) {
                None => ask.input.clone(),
                Some(Ok(edited @ Value::Object(_))) => edited,
                // What a person changed must not run as it was.
                Some(_) => return denial("The input was edited into something that is no JSON object. Ask again."),
            };
            let mut answer = json!({ "behavior": "allow", "updatedInput": input });
            let granted = (0..ask.suggestions.len()).find(|at| option.as_deref() == Some(&option_id(*at)));
            if let (Some(suggestion), Some(answer)) =
                (granted.and_then(|at| ask.suggestions.get(at)), answer.as_object_mut())
            {
                answer.insert("updatedPermissions".into(), json!([suggestion]));
            }
            answer
        }
    }
}

/// A denial, with what the model is told.
pub(super) fn denial(reason: &str) -> Value {
    json!({ "behavior": "deny", "message": reason })
}

/// A denial that ends the run.
pub(super) fn stop() -> Value {
    json!({ "behavior": "deny", "message": "The turn was stopped.", "interrupt": true })
}

fn asked(ask: &Ask) -> impl Iterator<Item = &Value> {
    ask.input.get("questions").and_then(Value::as_array).into_iter().flatten()
}

/// The questions for a person; each has its place as its id.
pub(super) fn questions(ask: &Ask) -> ChatInputRequest {
    let question = |(at, question): (usize, &Value)| {
        let word = |key: &str| question.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let (id, title) = (at.to_string(), word("header").map(str::to_owned));
        let (message, required) = (word("question").unwrap_or_default().to_owned(), Some(true));
        let options: Vec<ChatInputOption> =
            question.get("options").and_then(Value::as_array).into_iter().flatten().filter_map(choice).collect();
        let allow_freeform_input = Some(true);
        if options.is_empty() {
            return ChatInputQuestion::Text(ChatInputTextQuestion {
                id,
                title,
                message,
                required,
                format: None,
                min: None,
                max: None,
                default_value: None,
            });
        }
        if question.get("multiSelect") == Some(&Value::Bool(true)) {
            return ChatInputQuestion::MultiSelect(ChatInputMultiSelectQuestion {
                id,
                title,
                message,
                required,
                options,
                allow_freeform_input,
                min: None,
                max: None,
            });
        }
        ChatInputQuestion::SingleSelect(ChatInputSingleSelectQuestion {
            id,
            title,
            message,
            required,
            options,
            allow_freeform_input,
        })
    };
    ChatInputRequest {
        id: ask.request.clone(),
        message: None,
        url: None,
        questions: Some(asked(ask).enumerate().map(question).collect()),
        answers: None,
    }
}

fn choice(option: &Value) -> Option<ChatInputOption> {
    let label = option.get("label")?.as_str()?.to_owned();
    let description = option.get("description").and_then(Value::as_str).map(str::to_owned);
    Some(ChatInputOption { id: label.clone(), label, description, recommended: None })
}

/// The answer that a person gave.
pub(super) fn answered(
    ask: &Ask,
    response: &ChatInputResponseKind,
    answers: &HashMap<String, ChatInputAnswer>,
) -> Value {
    if *response != ChatInputResponseKind::Accept {
        return denial(UNANSWERED);
    }
    let mut by_question = Map::new();
    for (at, question) in asked(ask).enumerate() {
        let text = question.get("question").and_then(Value::as_str).unwrap_or_default();
        if let Some(ChatInputAnswer::Submitted(answer)) = answers.get(&at.to_string()) {
            by_question.insert(text.to_owned(), value(&answer.value).into());
        }
    }
    let mut input = ask.input.clone();
    if let Some(input) = input.as_object_mut() {
        input.insert("answers".into(), Value::Object(by_question));
    }
    json!({ "behavior": "allow", "updatedInput": input })
}

fn value(value: &ChatInputAnswerValue) -> String {
    let joined = |chosen: &[String], freeform: &Option<Vec<String>>| {
        let all = chosen.iter().chain(freeform.iter().flatten()).filter(|text| !text.is_empty());
        all.cloned().collect::<Vec<_>>().join(", ")
    };
    match value {
        ChatInputAnswerValue::Text(text) => text.value.clone(),
        ChatInputAnswerValue::Number(number) => number.value.to_string(),
        ChatInputAnswerValue::Boolean(boolean) => boolean.value.to_string(),
        ChatInputAnswerValue::Selected(one) => joined(std::slice::from_ref(&one.value), &one.freeform_values),
        ChatInputAnswerValue::SelectedMany(many) => joined(&many.value, &many.freeform_values),
        ChatInputAnswerValue::Unknown(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask() -> Ask {
        Ask {
            request: "r".into(),
            call: "c".into(),
            tool: "Bash".into(),
            input: json!({ "command": "touch x" }),
            suggestions: vec![
                json!({ "type": "addRules", "rules": [{ "toolName": "Bash", "ruleContent": "touch x" }],
                    "behavior": "allow", "destination": "localSettings" }),
                json!({ "type": "setMode", "mode": "acceptEdits", "destination": "session" }),
            ],
            ..Ask::default()
        }
    }

    fn approve(option: &str, edited: Option<&str>) -> ToolDecision {
        ToolDecision::Approve { option: Some(option.into()), edited_input: edited.map(str::to_owned) }
    }

    #[test]
    fn each_suggestion_is_an_option_that_says_what_it_grants_and_grants_exactly_that() {
        let ask = ask();
        let options: Vec<(String, String)> =
            tool_ask(&ask).options.into_iter().map(|option| (option.id, option.label)).collect();
        let options: Vec<(&str, &str)> = options.iter().map(|(id, label)| (id.as_str(), label.as_str())).collect();
        assert_eq!(
            options,
            [
                ("allow", "Allow"),
                ("allow-always", "Always allow Bash(touch x)"),
                ("allow-always-2", "Allow, and accept all edits in this session"),
                ("deny", "Deny"),
            ]
        );
        assert_eq!(decided(&ask, approve("allow", None)).get("updatedPermissions"), None);
        assert_eq!(decided(&ask, approve("allow-always", None))["updatedPermissions"], json!([ask.suggestions[0]]));
        assert_eq!(decided(&ask, approve("allow-always-2", None))["updatedPermissions"], json!([ask.suggestions[1]]));
    }

    #[test]
    fn an_edited_input_runs_and_a_broken_one_runs_nothing() {
        let edited = decided(&ask(), approve("allow", Some("{\"command\":\"touch y\"}")));
        assert_eq!(edited["updatedInput"]["command"], "touch y");
        for broken in ["touch y", "[1]", ""] {
            assert_eq!(decided(&ask(), approve("allow", Some(broken)))["behavior"], "deny", "{broken}");
        }
    }

    #[test]
    fn the_reason_of_a_denial_reaches_the_model() {
        let reason = Some("not today".to_owned());
        assert_eq!(decided(&ask(), ToolDecision::Deny { option: None, reason })["message"], "not today");
        assert_eq!(decided(&ask(), ToolDecision::Deny { option: None, reason: None })["message"], DENIED);
    }
}
