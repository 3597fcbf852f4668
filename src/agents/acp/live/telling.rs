//! What the program is told by the chat: messages, stops, decisions, settings.

use agent_client_protocol::Error;
use agent_client_protocol::v1::schema::{
    CancelNotification, ContentBlock, ImageContent, PromptRequest, PromptResponse, RequestPermissionOutcome,
    RequestPermissionResponse, ResourceLink, SelectedPermissionOutcome, TextContent,
};
use ahp_types::common::JsonObject;
use serde_json::Value;
use tokio::time::Instant;

use super::opening::lost;
use super::{Asked, Live, Stage};
use crate::actors::agent::{AgentInput, Ending, Prompt, PromptBlock, PromptKind, ToolDecision};
use crate::agents::acp::turn::Turn;
use crate::agents::acp::{known, problems};

/// The ids of calls of earlier turns that are known as such.
const MAX_OLD_CALLS: usize = 4_096;

impl Live<'_> {
    pub(super) fn told(&mut self, input: AgentInput) {
        match input {
            AgentInput::Prompt(prompt) => {
                self.chat.take(prompt);
                self.prompt();
            }
            AgentInput::Cancel { turn_id } => self.cancel(&turn_id),
            AgentInput::Decide { tool_call_id, decision } => self.decide(&tool_call_id, &decision),
            AgentInput::Configured { config } => self.configure(config),
            // Nothing that asks for any of it is ever said.
            _ => {}
        }
    }

    pub(super) fn configure(&mut self, config: JsonObject) {
        let before = std::mem::replace(&mut self.chat.config, config);
        if self.stage != Stage::Ready {
            return;
        }
        for (id, value) in self.chat.config.clone() {
            if before.get(&id) != Some(&value) {
                self.set(&id, &value);
            }
        }
    }

    /// Hands the message that waits to the agent, if it can take one.
    pub(super) fn prompt(&mut self) {
        let is_leaving = self.drain_by.is_some();
        if self.stage != Stage::Ready || self.turn.is_some() || self.is_setting() || is_leaving {
            return;
        }
        let Some(prompt) = self.chat.waiting.front() else { return };
        let chosen = prompt.message.model.as_ref().map(|model| Value::from(model.id.clone()));
        if let Some(model) = self.settings.model().map(str::to_owned) {
            let back = self.chat.config.get(&model).cloned().filter(|_| self.chosen_model);
            self.chosen_model = chosen.is_some();
            if let Some(wanted) = chosen.or(back) {
                self.set(&model, &wanted);
                if self.is_setting() {
                    return;
                }
            }
        }
        let (Some(prompt), Some(session)) = (self.chat.waiting.pop_front(), self.session.clone()) else { return };
        let mut turn = Turn::new(prompt, self.used);
        if turn.prompt.kind == PromptKind::Compact && self.transcript.is_some() {
            let text =
                "The agent begins this conversation anew with the next message: there is nothing to compact yet.";
            self.chat.out.push_back(turn.notice(text.to_owned()));
            return self.over(turn, Ending::Complete);
        }
        let mut blocks = Vec::new();
        if let Some(why) = self.transcript.take()
            && let Some(transcript) = self.chat.transcript(&turn.prompt.turn_id)
        {
            self.notices.push(transcript.notice(&why));
            blocks.push(text(transcript.text));
            // It is not the agent's until it is known to have it.
            self.transcript = Some(why);
        }
        for notice in self.notices.drain(..) {
            self.chat.out.push_back(turn.notice(notice));
        }
        blocks.extend(self.blocks(&turn.prompt));
        self.turn = Some(turn);
        self.ask("session/prompt", &PromptRequest::new(session, blocks), Asked::Prompt);
    }

    pub(super) fn blocks(&self, prompt: &Prompt) -> Vec<ContentBlock> {
        if prompt.kind == PromptKind::Compact {
            return vec![text(format!("/{}", known::COMPACT))];
        }
        let images = self.agent.prompt_capabilities.image;
        let block = |block: &PromptBlock| match block {
            PromptBlock::Text { text: words } => text(words.clone()),
            PromptBlock::Image { mime_type, data } if images => {
                ContentBlock::Image(ImageContent::new(data.clone(), mime_type.clone()))
            }
            PromptBlock::Image { .. } => text("(an image, which this agent does not take)".to_owned()),
            PromptBlock::ResourceLink { uri, name, mime_type } => {
                ContentBlock::ResourceLink(ResourceLink::new(name.clone(), uri.clone()).mime_type(mime_type.clone()))
            }
        };
        prompt.blocks.iter().map(block).collect()
    }

    pub(super) fn cancel(&mut self, turn_id: &str) {
        if self.chat.cancel_waiting(turn_id) {
            return;
        }
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.prompt.turn_id == turn_id && !turn.cancelled) else {
            return;
        };
        turn.cancelled = true;
        self.chat.out.retain_mut(|event| event.turn_mut().is_none_or(|turn| turn != turn_id));
        self.cancel_by = Some(Instant::now() + self.chat.setup.surroundings.limits.cancel_timeout);
        if let Some(session) = self.session.clone() {
            self.writer.notify("session/cancel", &CancelNotification::new(session));
        }
        self.give_up_questions();
    }

    /// What the agent asked people and nobody answers any more.
    pub(super) fn give_up_questions(&mut self) {
        let open = self.turn.as_mut().map(|turn| turn.calls.unanswered()).unwrap_or_default();
        for id in open {
            self.writer.answer(id, outcome(None));
        }
    }

    pub(super) fn decide(&mut self, tool_call_id: &str, decision: &ToolDecision) {
        let decided = self.turn.as_mut().and_then(|turn| turn.calls.decided(tool_call_id, decision));
        if let Some((id, option, events)) = decided {
            self.writer.answer(id, outcome(option));
            self.chat.out.extend(events);
        }
    }

    pub(super) fn prompted(&mut self, result: Result<Value, Error>) {
        self.give_up_questions();
        let Some(mut turn) = self.turn.take() else { return };
        self.cancel_by = None;
        let ending = match result {
            _ if turn.cancelled => Ending::Cancelled,
            Ok(answer) => {
                self.alive();
                self.chat.out.extend(turn.closing(&answer));
                let reason = serde_json::from_value::<PromptResponse>(answer).map(|answer| answer.stop_reason);
                let ending = reason.map_or(Ending::Complete, problems::of_stop);
                if turn.prompt.kind == PromptKind::Compact && ending == Ending::Complete {
                    self.chat.out.push_back(turn.compacted());
                }
                ending
            }
            Err(error) if !self.is_trusted && !turn.heard && problems::is_unknown_session(&error) => {
                self.chat.waiting.push_front(turn.prompt);
                self.session = None;
                self.busy_since = Some(Instant::now());
                return self.begin(Some(lost(&error)));
            }
            Err(error) => problems::of_error(&error, &self.login(), self.chat.clock.now()),
        };
        self.over(turn, ending);
    }

    /// A turn is over.
    pub(super) fn over(&mut self, turn: Turn, ending: Ending) {
        if self.old_calls.len() > MAX_OLD_CALLS {
            self.old_calls.clear();
        }
        self.old_calls.extend(turn.calls.ids().map(str::to_owned));
        self.has_served = true;
        self.busy_since = self.is_setting().then(Instant::now);
        self.chat.ended(&turn.id(), ending);
        self.chat.remember(turn.exchange());
    }
}

pub(super) fn outcome(option: Option<String>) -> Result<Value, Error> {
    let outcome = match option {
        Some(option) => RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option)),
        None => RequestPermissionOutcome::Cancelled,
    };
    serde_json::to_value(RequestPermissionResponse::new(outcome)).map_err(Error::into_internal_error)
}

fn text(text: String) -> ContentBlock {
    ContentBlock::Text(TextContent::new(text))
}
