//! A running turn: what its agent says of it, as events of the chat.

use agent_client_protocol::v1::schema::{
    CompactionStatus, CompactionUpdate, ContentChunk, MessageId, Notice, Plan, PlanEntryStatus, SessionUpdate,
    ToolCall, ToolCallUpdate, UsageUpdate,
};
use ahp_types::common::JsonObject;
use ahp_types::state::{ToolCallResult, UsageInfo};
use serde_json::{Value, json};

use super::calls::Calls;
use super::content;
use crate::actors::agent::{AgentEvent, Exchange, Prompt};
use crate::agents::COST_SO_FAR;

/// The key of a usage's `_meta` that says how full the context is.
const CONTEXT: &str = "scrollback.context";
/// The name of the call that shows the agent's plan.
const PLAN: &str = "plan";
/// How much of an answer is kept for a transcript, in bytes: its end.
const KEPT: usize = 1 << 20;

/// A turn that the agent was prompted with.
pub(super) struct Turn {
    pub(super) prompt: Prompt,
    pub(super) calls: Calls,
    /// Stopped: nothing of it is shown any more.
    pub(super) cancelled: bool,
    /// Whether the agent has said anything in it.
    pub(super) heard: bool,
    /// The tokens of the context, before the turn and as they were said last.
    used: (Option<u64>, Option<u64>),
    said: String,
    /// The message that the last text was of, while nothing else came.
    speaking: Option<MessageId>,
    usage: UsageInfo,
    plan: Option<ShownPlan>,
}

/// The agent's plan as it is shown now.
struct ShownPlan {
    list: String,
    summary: String,
}

impl Turn {
    pub(super) fn new(prompt: Prompt, used: Option<u64>) -> Self {
        let calls = Calls::new(prompt.turn_id.clone(), prompt.attempt);
        Self {
            prompt,
            calls,
            cancelled: false,
            heard: false,
            used: (used, used),
            said: String::new(),
            speaking: None,
            usage: UsageInfo {
                input_tokens: None,
                output_tokens: None,
                model: None,
                cache_read_tokens: None,
                meta: None,
            },
            plan: None,
        }
    }

    pub(super) fn id(&self) -> String {
        self.prompt.turn_id.clone()
    }

    /// What was asked and answered, for a transcript.
    pub(super) fn exchange(self) -> Exchange {
        Exchange { turn_id: self.prompt.turn_id, message: self.prompt.message.text, answer: self.said }
    }

    /// What an update means in the chat. Updates that say nothing of the turn are no concern of it.
    pub(super) fn update(&mut self, update: SessionUpdate) -> Vec<AgentEvent> {
        match update {
            SessionUpdate::AgentMessageChunk(chunk) => self.text(&chunk),
            SessionUpdate::AgentThoughtChunk(chunk) => {
                self.speaking = None;
                let text = content::markdown(&chunk.content);
                let turn_id = self.id();
                (!text.is_empty()).then_some(AgentEvent::Reasoning { turn_id, text }).into_iter().collect()
            }
            SessionUpdate::ToolCall(call) => self.call(call),
            SessionUpdate::ToolCallUpdate(update) => self.call_update(update),
            SessionUpdate::Plan(plan) => self.planned(&plan),
            SessionUpdate::UsageUpdate(update) => self.context(&update),
            SessionUpdate::Notice(notice) => vec![self.notice(words(&notice))],
            SessionUpdate::CompactionUpdate(update) => self.compaction(&update),
            // What people said stands in the chat already.
            _ => Vec::new(),
        }
    }

    pub(super) fn notice(&mut self, text: String) -> AgentEvent {
        self.speaking = None;
        AgentEvent::Notice { turn_id: self.id(), text }
    }

    fn text(&mut self, chunk: &ContentChunk) -> Vec<AgentEvent> {
        let mut events = Vec::new();
        let text = content::markdown(&chunk.content);
        if !text.is_empty() {
            let other = self.speaking.is_some() && chunk.message_id.is_some() && self.speaking != chunk.message_id;
            let text = if other { format!("\n\n{text}") } else { text };
            self.speaking.clone_from(&chunk.message_id);
            self.keep(&text);
            events.push(AgentEvent::Text { turn_id: self.id(), text });
        }
        let usage = chunk.meta.as_ref().and_then(|meta| meta.get("usage"));
        events.extend(usage.and_then(|usage| self.tokens(usage)));
        events
    }

    fn keep(&mut self, text: &str) {
        self.said.push_str(text);
        if self.said.len() > 2 * KEPT {
            let cut = self.said.ceil_char_boundary(self.said.len() - KEPT);
            self.said.drain(..cut);
        }
    }

    fn call(&mut self, call: ToolCall) -> Vec<AgentEvent> {
        self.interrupted();
        self.calls.announced(call)
    }

    fn call_update(&mut self, update: ToolCallUpdate) -> Vec<AgentEvent> {
        self.interrupted();
        self.calls.updated(update)
    }

    /// Something else comes between two texts.
    pub(super) fn interrupted(&mut self) {
        self.speaking = None;
        if !self.said.is_empty() && !self.said.ends_with("\n\n") {
            self.said.push_str("\n\n");
        }
    }

    /// AHP has no part for a plan: it is a call whose content is the plan as it is now.
    fn planned(&mut self, plan: &Plan) -> Vec<AgentEvent> {
        let (turn_id, tool_call_id) = (self.id(), self.plan_call());
        let mut events = Vec::new();
        if self.plan.is_none() {
            self.interrupted();
            events.push(AgentEvent::ToolStarted {
                turn_id: turn_id.clone(),
                tool_call_id: tool_call_id.clone(),
                tool_name: PLAN.to_owned(),
                display_name: "Plan".to_owned(),
                intention: None,
                contributor: None,
            });
            events.push(AgentEvent::ToolRunning {
                turn_id: turn_id.clone(),
                tool_call_id: tool_call_id.clone(),
                invocation: "Plan".into(),
                input: None,
            });
        }
        let list = content::of_plan(plan);
        let done = plan.entries.iter().filter(|entry| entry.status == PlanEntryStatus::Completed).count();
        let summary = format!("Plan: {done} of {} done", plan.entries.len());
        events.push(AgentEvent::ToolContent { turn_id, tool_call_id, content: vec![content::text(list.clone())] });
        self.plan = Some(ShownPlan { list, summary });
        events
    }

    /// A turn that is taken up has another one.
    fn plan_call(&self) -> String {
        format!("{PLAN}:{}:{}", self.prompt.turn_id, self.prompt.attempt)
    }

    fn context(&mut self, update: &UsageUpdate) -> Vec<AgentEvent> {
        self.used.1 = Some(update.used);
        let meta = self.usage.meta.get_or_insert_with(JsonObject::new);
        meta.insert(CONTEXT.to_owned(), json!({ "used": update.used, "size": update.size }));
        if let Some(cost) = &update.cost {
            meta.insert(COST_SO_FAR.to_owned(), json!({ "amount": cost.amount, "currency": cost.currency }));
        }
        vec![self.usage_event()]
    }

    /// Tokens as agents count them at the end of a model request or of the turn.
    fn tokens(&mut self, usage: &Value) -> Option<AgentEvent> {
        let number = |keys: [&str; 2]| keys.iter().find_map(|key| usage.get(*key)?.as_i64());
        let (input, output) = (number(["inputTokens", "input_tokens"]), number(["outputTokens", "output_tokens"]));
        if input.is_none() && output.is_none() {
            return None;
        }
        self.usage.input_tokens = input;
        self.usage.output_tokens = output;
        self.usage.cache_read_tokens = number(["cachedReadTokens", "cached_read_tokens"]);
        Some(self.usage_event())
    }

    fn usage_event(&self) -> AgentEvent {
        AgentEvent::Usage { turn_id: self.id(), usage: self.usage.clone() }
    }

    fn compaction(&mut self, update: &CompactionUpdate) -> Vec<AgentEvent> {
        if update.status != CompactionStatus::Completed {
            return Vec::new();
        }
        self.speaking = None;
        self.used.0 = None;
        vec![AgentEvent::Compacted { turn_id: self.id(), before: self.used.1, after: None }]
    }

    /// What a compaction that was asked for made of the context.
    pub(super) fn compacted(&self) -> AgentEvent {
        let (before, after) = self.used;
        let said = if before == after { None } else { after };
        AgentEvent::Compacted { turn_id: self.id(), before, after: said }
    }

    /// What the answer to the prompt says beside how the turn ended, and an end to its plan.
    pub(super) fn closing(&mut self, answer: &Value) -> Vec<AgentEvent> {
        let quota = || answer.get("_meta")?.get("quota")?.get("token_count");
        let usage = answer.get("usage").or_else(quota);
        let mut events: Vec<AgentEvent> = usage.and_then(|usage| self.tokens(usage)).into_iter().collect();
        if let Some(plan) = self.plan.take() {
            let result = ToolCallResult {
                success: true,
                past_tense_message: plan.summary.into(),
                content: Some(vec![content::text(plan.list)]),
                structured_content: None,
                error: None,
            };
            let (turn_id, tool_call_id) = (self.id(), self.plan_call());
            events.push(AgentEvent::ToolDone { turn_id, tool_call_id, result });
        }
        events
    }
}

fn words(notice: &Notice) -> String {
    match &notice.description {
        Some(description) => format!("{}: {description}", notice.title),
        None => notice.title.clone(),
    }
}
