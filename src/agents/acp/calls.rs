//! The tool calls of a turn: what an agent says of them in pieces, in the order that AHP has them in.
//!
//! Agents announce a call before or after they ask about it, or never; they change its title and its input as they go; they
//! say that it ended without saying that it began. A call here is begun by whatever names it first, is running or asked
//! about before it ends, and ends once.

use std::collections::HashMap;

use agent_client_protocol::RawJsonRpcId;
use agent_client_protocol::v1::schema::{
    PermissionOption, PermissionOptionKind, RequestPermissionRequest, ToolCall, ToolCallContent, ToolCallLocation,
    ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use ahp_types::common::StringOrMarkdown;
use ahp_types::state::{ConfirmationOption, ConfirmationOptionKind, ToolCallResult, ToolResultContent};
use serde_json::Value;

use super::content;
use crate::actors::agent::{AgentEvent, ToolAsk, ToolDecision};

/// The name of a call that says neither its title nor its kind.
const UNNAMED: &str = "tool";

/// The calls of one turn.
///
/// Agents use ids again when they take a turn up, and a turn has an id once: from the second attempt on, the chat's id of a call
/// is the agent's with the attempt behind it.
pub(super) struct Calls {
    turn_id: String,
    /// What stands behind the agent's ids.
    suffix: String,
    /// By the chat's ids.
    calls: HashMap<String, Call>,
}

/// What is known of a call.
struct Call {
    title: String,
    name: String,
    input: Option<Value>,
    content: Vec<ToolCallContent>,
    locations: Vec<ToolCallLocation>,
    output: Option<Value>,
    stage: Stage,
}

/// How far a call is, as the chat knows it.
enum Stage {
    Begun,
    Asked(Ask),
    Running,
    /// It ended, or was refused: what still comes of it is not shown.
    Over,
}

/// A question about a call that the agent waits for.
pub(super) struct Ask {
    pub(super) id: RawJsonRpcId,
    options: Vec<PermissionOption>,
}

impl Ask {
    /// The option that stands for what somebody decided: the one that was chosen, or the first of the right kind, one that
    /// holds once before one that holds always. `None` where the agent offers none such.
    fn option(&self, decision: &ToolDecision) -> Option<String> {
        use PermissionOptionKind::{AllowAlways, AllowOnce, RejectAlways, RejectOnce};
        let (chosen, kinds) = match decision {
            ToolDecision::Approve { option, .. } => (option, [AllowOnce, AllowAlways]),
            ToolDecision::Deny { option, .. } => (option, [RejectOnce, RejectAlways]),
        };
        let fits = |option: &&PermissionOption| kinds.contains(&option.kind);
        let named = self.options.iter().filter(fits).find(|option| chosen.as_deref() == Some(&*option.option_id.0));
        let of_kind = |kind| self.options.iter().find(|option| option.kind == kind);
        let option = named.or_else(|| kinds.into_iter().find_map(of_kind))?;
        Some(option.option_id.to_string())
    }
}

impl Calls {
    pub(super) fn new(turn_id: String, attempt: u32) -> Self {
        let suffix = if attempt > 0 { format!(":{attempt}") } else { String::new() };
        Self { turn_id, suffix, calls: HashMap::new() }
    }

    /// The agent's ids.
    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.calls.keys().map(|id| id.strip_suffix(&self.suffix).unwrap_or(id))
    }

    /// Whether a call of this turn has this id of the agent's.
    pub(super) fn has(&self, id: &str) -> bool {
        self.calls.contains_key(&self.id(id))
    }

    /// The chat's id of a call.
    fn id(&self, id: &str) -> String {
        format!("{id}{}", self.suffix)
    }

    /// `tool_call`: also of a call that is known, from a question or because it is said again.
    pub(super) fn announced(&mut self, call: ToolCall) -> Vec<AgentEvent> {
        let id = self.id(&call.tool_call_id.0);
        let fields = ToolCallUpdateFields::new()
            .kind(call.kind)
            .status(call.status)
            .title(call.title)
            .name(call.name)
            .content((!call.content.is_empty()).then_some(call.content))
            .locations((!call.locations.is_empty()).then_some(call.locations))
            .raw_input(call.raw_input)
            .raw_output(call.raw_output);
        self.changed(id, fields)
    }

    /// `tool_call_update`: also of a call that nothing announced.
    pub(super) fn updated(&mut self, update: ToolCallUpdate) -> Vec<AgentEvent> {
        self.changed(self.id(&update.tool_call_id.0), update.fields)
    }

    fn changed(&mut self, id: String, fields: ToolCallUpdateFields) -> Vec<AgentEvent> {
        let mut events = self.begun(&id, &fields);
        let turn_id = self.turn_id.clone();
        let Some(call) = self.calls.get_mut(&id) else { return events };
        if matches!(call.stage, Stage::Over) {
            return events;
        }
        let status = fields.status;
        let shows = call.take(fields);
        let ends = matches!(status, Some(ToolCallStatus::Completed | ToolCallStatus::Failed));
        if ends || status == Some(ToolCallStatus::InProgress) {
            events.extend(call.run(&turn_id, &id));
        }
        if ends {
            let result = call.result(status == Some(ToolCallStatus::Completed));
            call.end();
            events.push(AgentEvent::ToolDone { turn_id, tool_call_id: id, result });
        } else if shows && matches!(call.stage, Stage::Running) {
            events.push(AgentEvent::ToolContent { turn_id, tool_call_id: id, content: call.shown() });
        }
        events
    }

    /// Begins a call that nothing has named before.
    fn begun(&mut self, id: &str, fields: &ToolCallUpdateFields) -> Vec<AgentEvent> {
        if self.calls.contains_key(id) {
            return Vec::new();
        }
        let call = Call::new(fields);
        let started = AgentEvent::ToolStarted {
            turn_id: self.turn_id.clone(),
            tool_call_id: id.to_owned(),
            tool_name: call.name.clone(),
            display_name: call.title.clone(),
            intention: None,
            contributor: None,
        };
        self.calls.insert(id.to_owned(), call);
        vec![started]
    }

    /// `session/request_permission`. A question about a call that is over is settled as refused: its id comes back.
    pub(super) fn asked(
        &mut self,
        id: RawJsonRpcId,
        request: RequestPermissionRequest,
    ) -> Result<Vec<AgentEvent>, Ask> {
        let call_id = self.id(&request.tool_call.tool_call_id.0);
        let ask = Ask { id, options: request.options };
        let mut events = self.begun(&call_id, &request.tool_call.fields);
        let turn_id = self.turn_id.clone();
        let Some(call) = self.calls.get_mut(&call_id) else { return Err(ask) };
        if matches!(call.stage, Stage::Over | Stage::Asked(_)) {
            return Err(ask);
        }
        call.take(request.tool_call.fields);
        let asked = ToolAsk {
            tool_name: call.name.clone(),
            display_name: call.title.clone(),
            invocation: call.invocation(),
            input: call.input_to_judge(),
            title: None,
            options: ask.options.iter().map(confirmation).collect(),
            editable: false,
        };
        call.stage = Stage::Asked(ask);
        events.push(AgentEvent::ToolAsked { turn_id, tool_call_id: call_id, ask: asked });
        Ok(events)
    }

    /// Somebody decided: the question, and the option to answer it with.
    pub(super) fn decided(
        &mut self,
        call_id: &str,
        decision: &ToolDecision,
    ) -> Option<(RawJsonRpcId, Option<String>, Vec<AgentEvent>)> {
        let call = self.calls.get_mut(call_id)?;
        let ask = match std::mem::replace(&mut call.stage, Stage::Running) {
            Stage::Asked(ask) => ask,
            stage => {
                call.stage = stage;
                return None;
            }
        };
        let option = ask.option(decision);
        if matches!(decision, ToolDecision::Deny { .. }) {
            call.end();
        }
        let content = call.shown();
        let shown = (!content.is_empty()).then(|| AgentEvent::ToolContent {
            turn_id: self.turn_id.clone(),
            tool_call_id: call_id.to_owned(),
            content,
        });
        Some((ask.id, option, shown.into_iter().collect()))
    }

    /// The agent takes its question back.
    pub(super) fn withdrawn(&mut self, id: &RawJsonRpcId) -> Option<AgentEvent> {
        let asks = |call: &Call| matches!(&call.stage, Stage::Asked(ask) if ask.id == *id);
        let (call_id, call) = self.calls.iter_mut().find(|(_, call)| asks(call))?;
        call.end();
        let (turn_id, tool_call_id) = (self.turn_id.clone(), call_id.clone());
        Some(AgentEvent::ToolAskSettled { turn_id, tool_call_id, approved: false })
    }

    /// The questions that nobody will answer any more.
    pub(super) fn unanswered(&mut self) -> Vec<RawJsonRpcId> {
        let open = self.calls.values_mut().filter(|call| matches!(call.stage, Stage::Asked(_)));
        let closed = open.filter_map(|call| match call.end() {
            Stage::Asked(ask) => Some(ask.id),
            _ => None,
        });
        closed.collect()
    }
}

impl Call {
    fn new(fields: &ToolCallUpdateFields) -> Self {
        let kind = fields.kind.map(kind).filter(|kind| *kind != UNNAMED);
        let title = fields.title.clone().filter(|title| !title.is_empty());
        let title = title.unwrap_or_else(|| kind.unwrap_or(UNNAMED).to_owned());
        let name = fields.name.clone().unwrap_or_else(|| kind.map_or_else(|| title.clone(), str::to_owned));
        Self { title, name, input: None, content: Vec::new(), locations: Vec::new(), output: None, stage: Stage::Begun }
    }

    /// Takes what is new; whether it changes what is shown of a running call.
    fn take(&mut self, fields: ToolCallUpdateFields) -> bool {
        if let Some(title) = fields.title.filter(|title| !title.is_empty()) {
            self.title = title;
        }
        if let Some(input) = fields.raw_input.filter(says_something) {
            self.input = Some(input);
        }
        if fields.raw_output.is_some() {
            self.output = fields.raw_output;
        }
        let shows = fields.content.is_some() || fields.locations.is_some();
        self.content = fields.content.unwrap_or_else(|| std::mem::take(&mut self.content));
        self.locations = fields.locations.unwrap_or_else(|| std::mem::take(&mut self.locations));
        shows
    }

    /// It runs now, if it did not.
    fn run(&mut self, turn_id: &str, id: &str) -> Option<AgentEvent> {
        let (turn_id, tool_call_id) = (turn_id.to_owned(), id.to_owned());
        match std::mem::replace(&mut self.stage, Stage::Running) {
            Stage::Asked(_) => Some(AgentEvent::ToolAskSettled { turn_id, tool_call_id, approved: true }),
            Stage::Begun => {
                let (invocation, input) = (self.invocation(), self.input_text());
                Some(AgentEvent::ToolRunning { turn_id, tool_call_id, invocation, input })
            }
            Stage::Running | Stage::Over => None,
        }
    }

    /// It is over: nothing that was said of it is needed any more. How far it was.
    fn end(&mut self) -> Stage {
        self.input = None;
        self.content = Vec::new();
        self.locations = Vec::new();
        self.output = None;
        std::mem::replace(&mut self.stage, Stage::Over)
    }

    /// What it does, and where.
    fn invocation(&self) -> StringOrMarkdown {
        let places: Vec<String> =
            self.locations.iter().map(place).filter(|place| !self.title.contains(place)).collect();
        match places.is_empty() {
            true => self.title.clone().into(),
            false => format!("{} ({})", self.title, places.join(", ")).into(),
        }
    }

    fn input_text(&self) -> Option<String> {
        self.input.as_ref().map(|input| match input {
            Value::String(text) => text.clone(),
            input => serde_json::to_string_pretty(input).unwrap_or_default(),
        })
    }

    /// What somebody who is asked about it has to see: the input, or else what it shows.
    fn input_to_judge(&self) -> Option<String> {
        let shown = || {
            let texts = content::of_call(&self.content).into_iter().filter_map(|content| match content {
                ToolResultContent::Text(text) => Some(text.text),
                _ => None,
            });
            Some(texts.collect::<Vec<_>>().join("\n")).filter(|text| !text.is_empty())
        };
        self.input_text().or_else(shown)
    }

    fn shown(&self) -> Vec<ToolResultContent> {
        content::of_call(&self.content)
    }

    fn result(&self, success: bool) -> ToolCallResult {
        let mut shown = self.shown();
        if shown.is_empty() {
            shown.extend(self.output.as_ref().and_then(content::of_output));
        }
        let words = shown.iter().find_map(|content| match content {
            ToolResultContent::Text(text) => Some(text.text.clone()),
            _ => None,
        });
        let message = words.unwrap_or_else(|| format!("{} failed", self.title));
        ToolCallResult {
            success,
            past_tense_message: self.title.clone().into(),
            content: (!shown.is_empty()).then_some(shown),
            structured_content: None,
            error: (!success).then(|| serde_json::json!({ "message": message })),
        }
    }
}

/// An input that is an empty object is one that is not known yet.
fn says_something(input: &Value) -> bool {
    !input.is_null() && input.as_object().is_none_or(|input| !input.is_empty())
}

fn place(location: &ToolCallLocation) -> String {
    let path = location.path.display();
    location.line.map_or_else(|| path.to_string(), |line| format!("{path}:{line}"))
}

fn confirmation(option: &PermissionOption) -> ConfirmationOption {
    let (kind, group) = match option.kind {
        PermissionOptionKind::AllowOnce | PermissionOptionKind::AllowAlways => (ConfirmationOptionKind::Approve, 0),
        _ => (ConfirmationOptionKind::Deny, 1),
    };
    ConfirmationOption { id: option.option_id.to_string(), label: option.name.clone(), kind, group: Some(group) }
}

fn kind(kind: ToolKind) -> &'static str {
    match kind {
        ToolKind::Read => "read",
        ToolKind::Edit => "edit",
        ToolKind::Delete => "delete",
        ToolKind::Move => "move",
        ToolKind::Search => "search",
        ToolKind::Execute => "execute",
        ToolKind::Think => "think",
        ToolKind::Fetch => "fetch",
        ToolKind::SwitchMode => "switch_mode",
        _ => UNNAMED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What is said of the calls, one word an event.
    fn words(events: &[AgentEvent]) -> Vec<&'static str> {
        let word = |event: &AgentEvent| match event {
            AgentEvent::ToolStarted { .. } => "started",
            AgentEvent::ToolRunning { .. } => "running",
            AgentEvent::ToolAsked { .. } => "asked",
            AgentEvent::ToolAskSettled { approved: true, .. } => "allowed",
            AgentEvent::ToolAskSettled { approved: false, .. } => "refused",
            AgentEvent::ToolContent { .. } => "content",
            AgentEvent::ToolDone { result, .. } if result.success => "done",
            AgentEvent::ToolDone { .. } => "failed",
            _ => "other",
        };
        events.iter().map(word).collect()
    }

    fn update(calls: &mut Calls, update: Value) -> Vec<&'static str> {
        words(&calls.updated(serde_json::from_value(update).unwrap()))
    }

    fn ask(calls: &mut Calls) -> Vec<AgentEvent> {
        let request = json!({ "sessionId": "s", "toolCall": { "toolCallId": "c", "title": "Writing", "kind": "edit",
            "content": [{ "type": "diff", "path": "/f", "oldText": "", "newText": "hi" }] }, "options": [
            { "optionId": "proceed_always", "name": "Allow all", "kind": "allow_always" },
            { "optionId": "cancel", "name": "Reject", "kind": "reject_once" }] });
        let asked = calls.asked(RawJsonRpcId::Number(0), serde_json::from_value(request).unwrap());
        asked.unwrap_or_else(|_| panic!("it may not be asked about"))
    }

    const APPROVE: ToolDecision = ToolDecision::Approve { option: None, edited_input: None };
    const DENY: ToolDecision = ToolDecision::Deny { option: None, reason: None };

    #[test]
    fn a_call_that_is_asked_about_first_is_begun_by_that_and_shows_what_is_to_be_judged() {
        let mut calls = Calls::new("t".into(), 0);
        let asked = ask(&mut calls);
        assert_eq!(words(&asked), ["started", "asked"]);
        let AgentEvent::ToolAsked { ask, .. } = &asked[1] else { panic!() };
        assert_eq!(ask.input.as_deref(), Some("/f\n@@ -1,0 +1,1 @@\n+hi\n"));
        let (_, option, shown) = calls.decided("c", &APPROVE).unwrap();
        assert_eq!((option.as_deref(), words(&shown)), (Some("proceed_always"), vec!["content"]));
        // It is decided once, and may be announced after that.
        assert!(calls.decided("c", &APPROVE).is_none());
        let call = json!({ "toolCallId": "c", "title": "Writing", "status": "in_progress" });
        assert_eq!(words(&calls.announced(serde_json::from_value(call).unwrap())), [] as [&str; 0]);
        assert_eq!(update(&mut calls, json!({ "toolCallId": "c", "status": "completed" })), ["done"]);
        assert_eq!(update(&mut calls, json!({ "toolCallId": "c", "status": "failed" })), [] as [&str; 0]);
    }

    #[test]
    fn nothing_more_is_shown_of_a_call_that_was_refused() {
        let mut calls = Calls::new("t".into(), 0);
        ask(&mut calls);
        let (_, option, shown) = calls.decided("c", &DENY).unwrap();
        assert_eq!((option.as_deref(), shown.len()), (Some("cancel"), 0));
        assert_eq!(update(&mut calls, json!({ "toolCallId": "c", "status": "failed" })), [] as [&str; 0]);
    }

    #[test]
    fn a_question_that_the_agent_settles_by_itself_is_settled_for_people_too() {
        let mut calls = Calls::new("t".into(), 0);
        ask(&mut calls);
        assert_eq!(update(&mut calls, json!({ "toolCallId": "c", "status": "completed" })), ["allowed", "done"]);
        assert!(calls.decided("c", &DENY).is_none());
        assert!(calls.unanswered().is_empty());
    }

    #[test]
    fn a_call_that_nothing_announced_and_that_is_over_at_once_runs_before_it_ends() {
        let mut calls = Calls::new("t".into(), 0);
        let whole = json!({ "toolCallId": "c", "status": "completed", "rawOutput": "fine" });
        assert_eq!(update(&mut calls, whole), ["started", "running", "done"]);
    }

    #[test]
    fn an_attempt_at_a_turn_has_ids_of_its_own_and_takes_the_agents() {
        let mut calls = Calls::new("t".into(), 2);
        let asked = ask(&mut calls);
        assert!(matches!(&asked[0], AgentEvent::ToolStarted { tool_call_id, .. } if tool_call_id == "c:2"));
        assert!(calls.decided("c", &APPROVE).is_none());
        assert!(calls.decided("c:2", &APPROVE).is_some());
        assert_eq!(update(&mut calls, json!({ "toolCallId": "c", "status": "completed" })), ["done"]);
        assert!(calls.has("c"));
        assert_eq!(calls.ids().collect::<Vec<_>>(), ["c"]);
    }

    #[test]
    fn what_was_said_of_a_call_is_let_go_when_it_is_over() {
        let mut calls = Calls::new("t".into(), 0);
        ask(&mut calls);
        calls.decided("c", &DENY);
        let whole = json!({ "toolCallId": "d", "status": "completed", "rawInput": { "a": 1 }, "rawOutput": "fine",
            "content": [{ "type": "content", "content": { "type": "text", "text": "fine" } }] });
        update(&mut calls, whole);
        for call in calls.calls.values() {
            assert!(call.content.is_empty() && call.input.is_none() && call.output.is_none());
        }
    }
}
