//! Answers to an agent's questions.
//!
//! Drafts of answers are shared: any client may change any. `accept` needs the required ones; `decline` and `cancel`
//! always end a question. Source: AHP elicitation.

use std::collections::HashMap;

use ahp_types::actions::{ChatInputAnswerChangedAction, ChatInputCompletedAction};
use ahp_types::state::{
    ChatInputAnswer, ChatInputAnswerValue, ChatInputQuestion, ChatInputRequest, ChatInputResponseKind, ResponsePart,
};

use super::{Effect, Entry, Verdict, View};
use crate::actors::rejection::{Code, Rejection};
use crate::projections::action::Action;

fn open<'a>(view: &'a View<'_>, id: &str) -> Result<&'a ChatInputRequest, Rejection> {
    let parts = view.cell.fold.state.active_turn.iter().flat_map(|turn| &turn.response_parts);
    let found = parts.into_iter().find_map(|part| match part {
        ResponsePart::InputRequest(input) if input.response.is_none() && input.request.id == id => Some(&input.request),
        _ => None,
    });
    found.ok_or_else(|| Rejection::new(Code::RequestNotFound, format!("no question {id} is open")))
}

/// `chat/inputAnswerChanged`.
pub fn answer_changed(
    view: &View<'_>,
    change: &ChatInputAnswerChangedAction,
    action: Action,
) -> Result<Verdict, Rejection> {
    let request = open(view, &change.request_id)?;
    if let Some(answer) = &change.answer {
        check_answer(request, &change.question_id, answer)?;
    } else {
        question(request, &change.question_id)?;
    }
    let now = request.answers.as_ref().and_then(|answers| answers.get(&change.question_id));
    Ok(Verdict::unless(now == change.answer.as_ref(), action))
}

/// `chat/inputCompleted`.
pub fn completed(view: &View<'_>, completed: ChatInputCompletedAction, action: Action) -> Result<Verdict, Rejection> {
    let request = open(view, &completed.request_id)?;
    let mut answers: HashMap<String, ChatInputAnswer> = request.answers.clone().unwrap_or_default();
    for (id, answer) in completed.answers.into_iter().flatten() {
        check_answer(request, &id, &answer)?;
        answers.insert(id, answer);
    }
    if completed.response == ChatInputResponseKind::Accept {
        check_required(request, &answers)?;
    }
    let effect = Effect::Answer { request_id: completed.request_id, response: completed.response, answers };
    Ok(Verdict::with(vec![Entry::Client(action)], vec![effect]))
}

fn check_required(request: &ChatInputRequest, answers: &HashMap<String, ChatInputAnswer>) -> Result<(), Rejection> {
    let missing = request.questions.iter().flatten().find(|question| {
        let answered = id_of(question).and_then(|id| answers.get(id));
        is_required(question) && !matches!(answered, Some(ChatInputAnswer::Submitted(_)))
    });
    match missing.and_then(id_of) {
        Some(id) => Err(Rejection::new(Code::Malformed, format!("question {id} is required and not answered"))),
        None => Ok(()),
    }
}

fn question<'a>(request: &'a ChatInputRequest, id: &str) -> Result<&'a ChatInputQuestion, Rejection> {
    let found = request.questions.iter().flatten().find(|question| id_of(question) == Some(id));
    found.ok_or_else(|| Rejection::new(Code::RequestNotFound, format!("the request has no question {id}")))
}

fn check_answer(request: &ChatInputRequest, id: &str, answer: &ChatInputAnswer) -> Result<(), Rejection> {
    let question = question(request, id)?;
    let value = match answer {
        ChatInputAnswer::Draft(answered) | ChatInputAnswer::Submitted(answered) => &answered.value,
        ChatInputAnswer::Skipped(_) => return Ok(()),
    };
    let fits = match (question, value) {
        (ChatInputQuestion::Text(_), ChatInputAnswerValue::Text(_))
        | (ChatInputQuestion::Number(_), ChatInputAnswerValue::Number(_))
        | (ChatInputQuestion::Boolean(_), ChatInputAnswerValue::Boolean(_)) => true,
        (ChatInputQuestion::Integer(_), ChatInputAnswerValue::Number(number)) => number.value.fract() == 0.0,
        (ChatInputQuestion::SingleSelect(select), ChatInputAnswerValue::Selected(chosen)) => {
            let known = select.options.iter().any(|option| option.id == chosen.value);
            known || select.allow_freeform_input == Some(true)
        }
        (ChatInputQuestion::MultiSelect(select), ChatInputAnswerValue::SelectedMany(chosen)) => {
            let known = |value: &String| select.options.iter().any(|option| option.id == *value);
            chosen.value.iter().all(known) || select.allow_freeform_input == Some(true)
        }
        (ChatInputQuestion::Unknown(_), _) => true,
        _ => false,
    };
    if fits { Ok(()) } else { Err(Rejection::new(Code::Malformed, format!("the answer does not fit question {id}"))) }
}

fn id_of(question: &ChatInputQuestion) -> Option<&str> {
    Some(match question {
        ChatInputQuestion::Text(q) => &q.id,
        ChatInputQuestion::Number(q) | ChatInputQuestion::Integer(q) => &q.id,
        ChatInputQuestion::Boolean(q) => &q.id,
        ChatInputQuestion::SingleSelect(q) => &q.id,
        ChatInputQuestion::MultiSelect(q) => &q.id,
        ChatInputQuestion::Unknown(value) => value.get("id")?.as_str()?,
    })
}

fn is_required(question: &ChatInputQuestion) -> bool {
    let required = match question {
        ChatInputQuestion::Text(q) => q.required,
        ChatInputQuestion::Number(q) | ChatInputQuestion::Integer(q) => q.required,
        ChatInputQuestion::Boolean(q) => q.required,
        ChatInputQuestion::SingleSelect(q) => q.required,
        ChatInputQuestion::MultiSelect(q) => q.required,
        ChatInputQuestion::Unknown(value) => value.get("required").and_then(serde_json::Value::as_bool),
    };
    required == Some(true)
}
