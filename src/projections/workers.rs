//! Worker chats as the folds show them: which chat spawned which, how deep they hang, and which run.
//!
//! A worker's chat names the call that spawned it in its origin; the call's content names the chat. Nothing else links them.
//! Source: AHP chat, tool-spawned chats.

use std::collections::HashSet;

use ahp_types::state::{
    ActiveTurn, BackgroundWork, ChatOrigin, ChatState, ChatSummary, ResponsePart, SessionState, SessionStatus,
    ToolCallState, ToolResultContent, ToolResultSubagentContent,
};

use super::chat::call_id;

/// The chat and the call that spawned a worker; `None` for a chat that nobody spawned.
pub fn spawner(origin: Option<&ChatOrigin>) -> Option<(&str, &str)> {
    match origin {
        Some(ChatOrigin::Tool { chat, tool_call_id }) => Some((chat, tool_call_id)),
        _ => None,
    }
}

/// A tool call under which workers run, or ran.
#[derive(Debug, Clone, Copy)]
pub struct Spawning<'a> {
    pub tool_call_id: &'a str,
    /// The call has no result yet.
    pub is_open: bool,
    /// All that the call shows.
    pub content: &'a [ToolResultContent],
}

impl<'a> Spawning<'a> {
    /// The links to its workers.
    pub fn links(self) -> impl Iterator<Item = &'a ToolResultSubagentContent> {
        self.content.iter().filter_map(|content| match content {
            ToolResultContent::Subagent(link) => Some(link),
            _ => None,
        })
    }
}

/// The calls of a running turn that spawned workers.
pub fn spawning(turn: &ActiveTurn) -> impl Iterator<Item = Spawning<'_>> {
    turn.response_parts.iter().filter_map(|part| match part {
        ResponsePart::ToolCall(call) => Some(of_call(&call.tool_call)).filter(|call| call.links().next().is_some()),
        _ => None,
    })
}

/// The call with this id in a running turn, when it spawned workers.
pub fn spawning_call<'a>(turn: &'a ActiveTurn, id: &str) -> Option<Spawning<'a>> {
    spawning(turn).find(|call| call.tool_call_id == id)
}

fn of_call(call: &ToolCallState) -> Spawning<'_> {
    let content = match call {
        ToolCallState::Running(call) => call.content.as_deref(),
        ToolCallState::AuthRequired(call) => call.content.as_deref(),
        ToolCallState::PendingResultConfirmation(call) => call.content.as_deref(),
        ToolCallState::Completed(call) => call.content.as_deref(),
        _ => None,
    };
    let is_open = matches!(call, ToolCallState::Running(_));
    Spawning { tool_call_id: call_id(call), is_open, content: content.unwrap_or_default() }
}

/// `content` with the links that the call has and `content` lacks, in front.
pub fn with_links(call: Spawning<'_>, content: Vec<ToolResultContent>) -> Vec<ToolResultContent> {
    let has = |link: &ToolResultSubagentContent| {
        content.iter().any(|item| matches!(item, ToolResultContent::Subagent(own) if own.resource == link.resource))
    };
    let mut whole: Vec<ToolResultContent> =
        call.links().filter(|link| !has(link)).cloned().map(ToolResultContent::Subagent).collect();
    whole.extend(content);
    whole
}

/// The id of some background work.
pub fn work_id(work: &BackgroundWork) -> Option<&str> {
    match work {
        BackgroundWork::Shell(work) => Some(&work.id),
        BackgroundWork::Subagent(work) => Some(&work.id),
        BackgroundWork::Unknown(work) => work.get("id")?.as_str(),
    }
}

/// The id of the background work that is this worker, where the chat lists it.
pub fn background_id<'a>(chat: &'a ChatState, worker: &str) -> Option<&'a str> {
    chat.background_work.iter().flatten().find_map(|work| match work {
        BackgroundWork::Subagent(work) if work.chat == worker => Some(work.id.as_str()),
        _ => None,
    })
}

fn find<'a>(session: &'a SessionState, chat: &str) -> Option<&'a ChatSummary> {
    session.chats.iter().find(|entry| entry.resource == chat)
}

/// How many spawning chats stand above this one: 0 for a person's chat.
pub fn depth(session: &SessionState, chat: &str) -> usize {
    let mut depth = 0;
    let mut above = find(session, chat).and_then(|entry| spawner(entry.origin.as_ref()));
    while let Some((spawner_of, _)) = above {
        depth += 1;
        // A chain is never longer than the catalogue.
        if depth > session.chats.len() {
            break;
        }
        above = find(session, spawner_of).and_then(|entry| spawner(entry.origin.as_ref()));
    }
    depth
}

/// Whether a turn runs in a chat.
fn runs(chat: &ChatSummary) -> bool {
    chat.status & SessionStatus::InProgress.bits() != 0
}

/// The workers that run and that this chat spawned, not those of its workers.
pub fn running(session: &SessionState, chat: &str) -> Vec<String> {
    let of_chat = |entry: &&ChatSummary| spawner(entry.origin.as_ref()).is_some_and(|(spawner, _)| spawner == chat);
    session.chats.iter().filter(|entry| runs(entry)).filter(of_chat).map(|entry| entry.resource.clone()).collect()
}

/// The chats that have running workers somewhere under them: the process behind one of these speaks for them.
pub fn above_running(session: &SessionState) -> HashSet<String> {
    let mut above = HashSet::new();
    for worker in session.chats.iter().filter(|entry| runs(entry)) {
        let mut at = spawner(worker.origin.as_ref());
        while let Some((chat, _)) = at {
            if !above.insert(chat.to_owned()) {
                break;
            }
            at = find(session, chat).and_then(|entry| spawner(entry.origin.as_ref()));
        }
    }
    above
}
