//! What a turn that is taken up had left open: nobody waits for it any more, and so nothing of it stays pending.
//!
//! The process that asked is gone, or has ended the turn; the new attempt asks again where it has to. A call that had not
//! begun to run is skipped. One that ran has failed: what it did is not known.

use ahp_types::actions::{
    ChatInputCompletedAction, ChatToolCallCompleteAction, ChatToolCallConfirmedAction, ChatToolCallReadyAction,
    ChatToolCallResultConfirmedAction, StateAction,
};
use ahp_types::state::{
    ChatInputResponseKind, ResponsePart, ToolCallCancellationReason, ToolCallConfirmationReason, ToolCallResult,
    ToolCallState, ToolResultContent,
};
use serde_json::json;

use super::decide::Entry;
use crate::projections::chat::call_id;

/// The entries that close what these parts of a turn have open.
pub fn settle(turn_id: &str, parts: &[ResponsePart]) -> Vec<Entry> {
    let actions = parts.iter().flat_map(|part| match part {
        ResponsePart::InputRequest(input) if input.response.is_none() => vec![cancelled(&input.request.id)],
        ResponsePart::ToolCall(call) => of_call(turn_id, &call.tool_call),
        _ => Vec::new(),
    });
    actions.map(Entry::Host).collect()
}

fn cancelled(request_id: &str) -> StateAction {
    StateAction::ChatInputCompleted(ChatInputCompletedAction {
        request_id: request_id.to_owned(),
        response: ChatInputResponseKind::Cancel,
        answers: None,
    })
}

fn of_call(turn_id: &str, call: &ToolCallState) -> Vec<StateAction> {
    let (turn_id, tool_call_id) = (turn_id.to_owned(), call_id(call).to_owned());
    match call {
        // Only a call that is ready can be anything else.
        ToolCallState::Streaming(call) => {
            vec![ready(&turn_id, &tool_call_id, &call.display_name), skipped(turn_id, tool_call_id)]
        }
        ToolCallState::PendingConfirmation(_) => vec![skipped(turn_id, tool_call_id)],
        ToolCallState::Running(call) => {
            vec![failed(turn_id, tool_call_id, &call.display_name, call.content.clone())]
        }
        ToolCallState::AuthRequired(call) => {
            vec![failed(turn_id, tool_call_id, &call.display_name, call.content.clone())]
        }
        ToolCallState::PendingResultConfirmation(_) => {
            let (meta, approved) = (None, false);
            let denied = ChatToolCallResultConfirmedAction { turn_id, tool_call_id, meta, approved };
            vec![StateAction::ChatToolCallResultConfirmed(denied)]
        }
        ToolCallState::Completed(_) | ToolCallState::Cancelled(_) | ToolCallState::Unknown(_) => Vec::new(),
    }
}

fn ready(turn_id: &str, tool_call_id: &str, name: &str) -> StateAction {
    StateAction::ChatToolCallReady(ChatToolCallReadyAction {
        turn_id: turn_id.to_owned(),
        tool_call_id: tool_call_id.to_owned(),
        meta: None,
        contributor: None,
        intention: None,
        invocation_message: name.into(),
        tool_input: None,
        confirmation_title: None,
        risk_assessment: None,
        edits: None,
        editable: None,
        confirmed: None,
        options: None,
    })
}

fn skipped(turn_id: String, tool_call_id: String) -> StateAction {
    StateAction::ChatToolCallConfirmed(ChatToolCallConfirmedAction {
        turn_id,
        tool_call_id,
        meta: None,
        approved: false,
        confirmed: None::<ToolCallConfirmationReason>,
        reason: Some(ToolCallCancellationReason::Skipped),
        edited_tool_input: None,
        user_suggestion: None,
        reason_message: None,
        selected_option_id: None,
    })
}

/// A failed call keeps what it showed: the links to its workers too.
fn failed(turn_id: String, tool_call_id: String, name: &str, content: Option<Vec<ToolResultContent>>) -> StateAction {
    StateAction::ChatToolCallComplete(ChatToolCallCompleteAction {
        turn_id,
        tool_call_id,
        meta: None,
        result: ToolCallResult {
            success: false,
            past_tense_message: format!("{name} was interrupted").into(),
            content,
            structured_content: None,
            error: Some(json!({ "message": "the call was interrupted: what it did is not known" })),
        },
        requires_result_confirmation: None,
    })
}
