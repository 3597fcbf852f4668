//! What a turn waits for: decisions about tool calls, answers to questions, and a steering message.
//!
//! Each is awaited under its own id and is settled once; what arrives for any other id, or late, is ignored.

use std::collections::HashMap;

use ahp_types::state::{
    ChatInputAnswer, ChatInputAnswerValue, ChatInputOption, ChatInputQuestion, ChatInputRequest, ChatInputResponseKind,
    ChatInputSingleSelectQuestion, ChatInputTextQuestion, ConfirmationOption, ConfirmationOptionKind,
};
use tokio::sync::oneshot;
use ulid::Ulid;

use crate::actors::agent::{ToolAsk, ToolDecision};

/// The option that lets a tool run without asking from now on.
pub(super) const ALLOW_ALWAYS: &str = "allow-always";

/// The beginning of the id of a question that no turn waits for.
const ASYNC: &str = "async:";

/// The id of the one question of a request.
const QUESTION: &str = "answer";

/// What is still open in the running turn.
#[derive(Default)]
pub(super) struct Asks {
    decisions: HashMap<String, oneshot::Sender<ToolDecision>>,
    /// How calls of clients' tools end.
    completions: HashMap<String, oneshot::Sender<()>>,
    /// Without a sender, nobody waits.
    answers: HashMap<String, Option<oneshot::Sender<String>>>,
    /// Answers that nobody waited for, in words, each with its request, oldest first.
    unsaid: Vec<(String, String)>,
    visuals: HashMap<String, oneshot::Sender<Result<String, String>>>,
    steering: Option<oneshot::Sender<Steering>>,
}

/// A message into the running turn.
pub(super) struct Steering {
    pub(super) id: String,
    pub(super) text: String,
}

impl Asks {
    pub(super) fn await_decision(&mut self, tool_call_id: &str) -> oneshot::Receiver<ToolDecision> {
        let (sender, receiver) = oneshot::channel();
        self.decisions.insert(tool_call_id.to_owned(), sender);
        receiver
    }

    pub(super) fn await_completion(&mut self, tool_call_id: &str) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.completions.insert(tool_call_id.to_owned(), sender);
        receiver
    }

    pub(super) fn complete(&mut self, tool_call_id: &str) {
        if let Some(waiting) = self.completions.remove(tool_call_id) {
            let _ = waiting.send(());
        }
    }

    pub(super) fn await_answer(&mut self, request_id: &str) -> oneshot::Receiver<String> {
        let (sender, receiver) = oneshot::channel();
        self.answers.insert(request_id.to_owned(), Some(sender));
        receiver
    }

    pub(super) fn await_steering(&mut self) -> oneshot::Receiver<Steering> {
        let (sender, receiver) = oneshot::channel();
        self.steering = Some(sender);
        receiver
    }

    /// Gives the message to who waits for one. Where nobody does, the host keeps it.
    pub(super) fn steer(&mut self, message: Steering) {
        if let Some(waiting) = self.steering.take() {
            let _ = waiting.send(message);
        }
    }

    /// Lets the answer to `request_id` be found by [`Asks::take_unsaid`].
    pub(super) fn expect_answer(&mut self, request_id: &str) {
        self.answers.insert(request_id.to_owned(), None);
    }

    pub(super) fn decide(&mut self, tool_call_id: &str, decision: ToolDecision) {
        if let Some(waiting) = self.decisions.remove(tool_call_id) {
            let _ = waiting.send(decision);
        }
    }

    pub(super) fn answer(
        &mut self,
        request_id: &str,
        response: &ChatInputResponseKind,
        answers: &HashMap<String, ChatInputAnswer>,
    ) {
        let Some(waiting) = self.answers.remove(request_id) else { return };
        let words = in_words(response, answers);
        match waiting {
            Some(waiting) => drop(waiting.send(words)),
            None => self.unsaid.push((request_id.to_owned(), words)),
        }
    }

    /// The answers to these requests.
    pub(super) fn take_unsaid(&mut self, requests: &[String]) -> Vec<String> {
        let (taken, left) = std::mem::take(&mut self.unsaid).into_iter().partition(|(id, _)| requests.contains(id));
        self.unsaid = left;
        let taken: Vec<(String, String)> = taken;
        taken.into_iter().map(|(_, words)| words).collect()
    }

    pub(super) fn await_visual(&mut self, request_id: &str) -> oneshot::Receiver<Result<String, String>> {
        let (sender, receiver) = oneshot::channel();
        self.visuals.insert(request_id.to_owned(), sender);
        receiver
    }

    pub(super) fn published(&mut self, request_id: &str, outcome: Result<String, String>) {
        if let Some(waiting) = self.visuals.remove(request_id) {
            let _ = waiting.send(outcome);
        }
    }
}

/// An id that no other tool call or request has.
pub(super) fn unique_id() -> String {
    Ulid::new().to_string()
}

/// The question about a call of `name`.
pub(super) fn tool_ask(name: &str, input: &str) -> ToolAsk {
    let option = |id: &str, label: String, kind| ConfirmationOption { id: id.to_owned(), label, kind, group: None };
    ToolAsk {
        tool_name: name.to_owned(),
        display_name: name.to_owned(),
        invocation: format!("Run {name}").into(),
        input: Some(input.to_owned()),
        title: Some(format!("Run {name}?")),
        options: vec![
            option("allow", "Allow".to_owned(), ConfirmationOptionKind::Approve),
            option(ALLOW_ALWAYS, format!("Always allow {name} in this session"), ConfirmationOptionKind::Approve),
            option("deny", "Deny".to_owned(), ConfirmationOptionKind::Deny),
        ],
        editable: true,
    }
}

/// A request with the one question `text`; an option's id is the option itself.
pub(super) fn request(text: &str, options: &[String], waits: bool) -> ChatInputRequest {
    let id = unique_id();
    ChatInputRequest {
        id: if waits { id } else { format!("{ASYNC}{id}") },
        message: None,
        url: None,
        questions: Some(vec![question(text, options, waits)]),
        answers: None,
    }
}

fn question(text: &str, options: &[String], required: bool) -> ChatInputQuestion {
    let (id, message, required) = (QUESTION.to_owned(), text.to_owned(), Some(required));
    if options.is_empty() {
        return ChatInputQuestion::Text(ChatInputTextQuestion {
            id,
            title: None,
            message,
            required,
            format: None,
            min: None,
            max: None,
            default_value: None,
        });
    }
    ChatInputQuestion::SingleSelect(ChatInputSingleSelectQuestion {
        id,
        title: None,
        message,
        required,
        options: options.iter().map(|option| choice(option)).collect(),
        allow_freeform_input: None,
    })
}

fn choice(option: &str) -> ChatInputOption {
    ChatInputOption { id: option.to_owned(), label: option.to_owned(), description: None, recommended: None }
}

/// What the demo says of an answer: `answered: <value>`, or `skipped`, `declined`, `cancelled`.
fn in_words(response: &ChatInputResponseKind, answers: &HashMap<String, ChatInputAnswer>) -> String {
    match response {
        ChatInputResponseKind::Decline => "declined".to_owned(),
        ChatInputResponseKind::Cancel => "cancelled".to_owned(),
        ChatInputResponseKind::Accept => match answers.get(QUESTION) {
            Some(ChatInputAnswer::Submitted(answered)) => format!("answered: {}", value(&answered.value)),
            _ => "skipped".to_owned(),
        },
    }
}

fn value(value: &ChatInputAnswerValue) -> String {
    match value {
        ChatInputAnswerValue::Text(text) => text.value.clone(),
        ChatInputAnswerValue::Number(number) => number.value.to_string(),
        ChatInputAnswerValue::Boolean(boolean) => boolean.value.to_string(),
        ChatInputAnswerValue::Selected(one) => chosen(std::slice::from_ref(&one.value), &one.freeform_values),
        ChatInputAnswerValue::SelectedMany(many) => chosen(&many.value, &many.freeform_values),
        ChatInputAnswerValue::Unknown(other) => other.to_string(),
    }
}

fn chosen(options: &[String], freeform: &Option<Vec<String>>) -> String {
    let all = options.iter().chain(freeform.iter().flatten());
    all.filter(|text| !text.is_empty()).cloned().collect::<Vec<_>>().join(", ")
}
