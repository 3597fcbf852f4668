//! Decisions about tool calls, and what a client says of its own.
//!
//! Exactly one answer reaches the agent: whoever comes second is refused. A client never completes a call that it does not
//! own, since the reducer would let that stand for an approval.

use ahp_types::actions::{
    ChatToolCallCompleteAction, ChatToolCallConfirmedAction, ChatToolCallContentChangedAction,
    ChatToolCallResultConfirmedAction,
};
use ahp_types::state::{
    ConfirmationOptionKind, ResponsePart, ToolCallContributor, ToolCallPendingConfirmationState,
    ToolCallPendingResultConfirmationState, ToolCallResult, ToolCallState,
};
use serde_json::json;

use super::{Effect, Entry, Verdict, View};
use crate::actors::agent::ToolDecision;
use crate::actors::rejection::{Code, Rejection};
use crate::projections::action::Action;
use crate::projections::chat::call_id;

fn find<'a>(view: &'a View<'_>, turn_id: &str, id: &str) -> Result<&'a ToolCallState, Rejection> {
    let turn = view.cell.fold.state.active_turn.as_ref().filter(|turn| turn.id == turn_id);
    let parts = turn.into_iter().flat_map(|turn| &turn.response_parts);
    let found = parts.into_iter().find_map(|part| match part {
        ResponsePart::ToolCall(call) if call_id(&call.tool_call) == id => Some(&call.tool_call),
        _ => None,
    });
    found.ok_or_else(|| Rejection::new(Code::RequestNotFound, format!("the running turn has no tool call {id}")))
}

/// `chat/toolCallConfirmed`.
pub fn confirmed(view: &View<'_>, decision: ChatToolCallConfirmedAction, action: Action) -> Result<Verdict, Rejection> {
    let ToolCallState::PendingConfirmation(call) = find(view, &decision.turn_id, &decision.tool_call_id)? else {
        let text = format!("nobody's decision about {} is awaited any more", decision.tool_call_id);
        return Err(Rejection::new(Code::RequestNotFound, text));
    };
    check_decision(call, &decision)?;
    let tool_call_id = decision.tool_call_id;
    let option = decision.selected_option_id;
    let decision = if decision.approved {
        ToolDecision::Approve { option, edited_input: decision.edited_tool_input }
    } else {
        let said = decision.reason_message.map(|text| text.as_text().to_owned());
        let reason = said.or_else(|| decision.user_suggestion.map(|message| message.text));
        ToolDecision::Deny { option, reason }
    };
    Ok(Verdict::with(vec![Entry::Client(action)], vec![Effect::Decide { tool_call_id, decision }]))
}

fn check_decision(
    call: &ToolCallPendingConfirmationState,
    decision: &ChatToolCallConfirmedAction,
) -> Result<(), Rejection> {
    let malformed = |text: &str| Err(Rejection::new(Code::Malformed, text));
    if decision.approved && decision.confirmed.is_none() {
        return malformed("an approval says how it was confirmed");
    }
    if !decision.approved && decision.reason.is_none() {
        return malformed("a denial has a reason: denied or skipped");
    }
    if decision.edited_tool_input.is_some() && call.editable != Some(true) {
        return malformed("the input of this call cannot be edited");
    }
    let Some(id) = &decision.selected_option_id else { return Ok(()) };
    let option = call.options.iter().flatten().find(|option| option.id == *id);
    match option.map(|option| &option.kind) {
        None => malformed("selectedOptionId is not one of the call's options"),
        Some(ConfirmationOptionKind::Approve) if !decision.approved => malformed("the option that was chosen approves"),
        Some(ConfirmationOptionKind::Deny) if decision.approved => malformed("the option that was chosen denies"),
        Some(_) => Ok(()),
    }
}

/// `chat/toolCallResultConfirmed`.
pub fn result_confirmed(
    view: &View<'_>,
    decision: &ChatToolCallResultConfirmedAction,
    action: Action,
) -> Result<Verdict, Rejection> {
    match find(view, &decision.turn_id, &decision.tool_call_id)? {
        ToolCallState::PendingResultConfirmation(call) => {
            let tool_call_id = decision.tool_call_id.clone();
            let result = match decision.approved {
                true => result_of(call),
                false => denied(call),
            };
            let effects = match call.contributor {
                Some(ToolCallContributor::Client(_)) => vec![Effect::ClientToolDone { tool_call_id, result }],
                _ => Vec::new(),
            };
            Ok(Verdict::with(vec![Entry::Client(action)], effects))
        }
        _ => {
            let text = format!("nobody's decision about the result of {} is awaited", decision.tool_call_id);
            Err(Rejection::new(Code::RequestNotFound, text))
        }
    }
}

/// What a client's tool answered, which waited for a person.
fn result_of(call: &ToolCallPendingResultConfirmationState) -> ToolCallResult {
    ToolCallResult {
        success: call.success,
        past_tense_message: call.past_tense_message.clone(),
        content: call.content.clone(),
        structured_content: call.structured_content.clone(),
        error: call.error.clone(),
    }
}

/// What the agent is told when a person keeps the result back.
fn denied(call: &ToolCallPendingResultConfirmationState) -> ToolCallResult {
    let problem = "its result was not let through";
    ToolCallResult {
        success: false,
        past_tense_message: format!("{}: {problem}", call.display_name).into(),
        content: None,
        structured_content: None,
        error: Some(json!({ "message": problem })),
    }
}

fn owned(view: &View<'_>, call: &ToolCallState) -> Result<(), Rejection> {
    let ToolCallState::Running(running) = call else {
        return Err(Rejection::new(Code::RequestNotFound, format!("tool call {} is not running", call_id(call))));
    };
    match &running.contributor {
        Some(ToolCallContributor::Client(client)) if client.client_id == *view.client.caller.client_id => Ok(()),
        _ => Err(Rejection::new(Code::NotPermitted, "the tool call belongs to somebody else")),
    }
}

/// `chat/toolCallComplete`, by the client whose tool it is.
pub fn complete(view: &View<'_>, done: ChatToolCallCompleteAction, action: Action) -> Result<Verdict, Rejection> {
    let call = find(view, &done.turn_id, &done.tool_call_id)?;
    if let ToolCallState::PendingConfirmation(_) = call {
        return Err(Rejection::new(
            Code::NotPermitted,
            "a call that waits for a decision is not completed by a client",
        ));
    }
    owned(view, call)?;
    // A result that a person is to look at first reaches the agent when it was.
    let waits = done.requires_result_confirmation == Some(true);
    let effect = Effect::ClientToolDone { tool_call_id: done.tool_call_id, result: done.result };
    let effects = if waits { Vec::new() } else { vec![effect] };
    Ok(Verdict::with(vec![Entry::Client(action)], effects))
}

/// `chat/toolCallContentChanged`, by the client whose tool it is.
pub fn content(
    view: &View<'_>,
    content: &ChatToolCallContentChangedAction,
    action: Action,
) -> Result<Verdict, Rejection> {
    owned(view, find(view, &content.turn_id, &content.tool_call_id)?)?;
    Ok(Verdict::accept(action))
}
