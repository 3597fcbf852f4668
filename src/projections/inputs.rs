//! What a chat waits for from people and clients, as its session lists it.
//!
//! Derived from the running turn alone, so nothing can be left pending under a turn that ended. Source: AHP session,
//! `inputNeeded`.

use ahp_types::state::{
    ChatState, ResponsePart, SessionChatInputRequest, SessionInputRequest, SessionToolClientExecutionRequest,
    SessionToolConfirmationRequest, ToolCallConfirmationState, ToolCallContributor, ToolCallState,
};

/// The entries that the session's `inputNeeded` has for this chat, in the order of the turn's parts.
pub fn of_chat(chat: &ChatState) -> Vec<SessionInputRequest> {
    let Some(turn) = &chat.active_turn else { return Vec::new() };
    turn.response_parts.iter().filter_map(|part| of_part(chat, &turn.id, part)).collect()
}

fn of_part(chat: &ChatState, turn_id: &str, part: &ResponsePart) -> Option<SessionInputRequest> {
    match part {
        ResponsePart::InputRequest(input) if input.response.is_none() => {
            Some(SessionInputRequest::ChatInput(SessionChatInputRequest {
                id: entry_id(&chat.resource, &input.request.id),
                chat: chat.resource.clone(),
                request: input.request.clone(),
            }))
        }
        ResponsePart::ToolCall(call) => of_call(chat, turn_id, &call.tool_call),
        _ => None,
    }
}

fn of_call(chat: &ChatState, turn_id: &str, call: &ToolCallState) -> Option<SessionInputRequest> {
    let confirmation = |id: &str, tool_call| {
        SessionInputRequest::ToolConfirmation(SessionToolConfirmationRequest {
            id: entry_id(&chat.resource, id),
            chat: chat.resource.clone(),
            turn_id: turn_id.to_owned(),
            tool_call,
        })
    };
    match call {
        ToolCallState::PendingConfirmation(call) => {
            Some(confirmation(&call.tool_call_id, ToolCallConfirmationState::PendingConfirmation(call.clone())))
        }
        ToolCallState::PendingResultConfirmation(call) => {
            Some(confirmation(&call.tool_call_id, ToolCallConfirmationState::PendingResultConfirmation(call.clone())))
        }
        ToolCallState::Running(running) => {
            let Some(ToolCallContributor::Client(client)) = &running.contributor else { return None };
            Some(SessionInputRequest::ToolClientExecution(SessionToolClientExecutionRequest {
                id: entry_id(&chat.resource, &running.tool_call_id),
                chat: chat.resource.clone(),
                turn_id: turn_id.to_owned(),
                client_id: client.client_id.clone(),
                tool_call: running.clone(),
            }))
        }
        _ => None,
    }
}

fn entry_id(chat: &str, request: &str) -> String {
    format!("{chat}#{request}")
}

/// The id of an entry, and the chat that it belongs to.
pub fn id_and_chat(entry: &SessionInputRequest) -> Option<(&str, &str)> {
    match entry {
        SessionInputRequest::ChatInput(e) => Some((&e.id, &e.chat)),
        SessionInputRequest::ToolConfirmation(e) => Some((&e.id, &e.chat)),
        SessionInputRequest::ToolClientExecution(e) => Some((&e.id, &e.chat)),
        SessionInputRequest::ToolAuthentication(e) => Some((&e.id, &e.chat)),
        SessionInputRequest::Unknown(_) => None,
    }
}

/// Whether an entry waits for a person, rather than for a client that runs a tool.
pub fn waits_for_a_person(entry: &SessionInputRequest) -> bool {
    !matches!(entry, SessionInputRequest::ToolClientExecution(_))
}
