//! What the agent says becomes events of the running turn.
//!
//! What still arrives for a turn that has ended goes nowhere: cancelled is final.

use actix::Context;
use ahp_types::actions::{
    ChatActivityChangedAction, ChatBackgroundWorkRemovedAction, ChatInputRequestedAction, ChatToolCallConfirmedAction,
    ChatToolCallReadyAction, ChatToolCallStartAction, ChatUsageAction, StateAction,
};
use ahp_types::state::{ResponsePart, ToolCallCancellationReason, ToolCallConfirmationReason, ToolInput};

use super::client_tools::ClientCall;
use super::decide::Entry;
use super::limits::Limit;
use super::queue::Input;
use super::text::TextKind;
use super::{ChatActor, ending, waiting};
use crate::actors::agent::{AgentEvent, Ending, ToolAsk};
use crate::projections::chat::call_id;
use crate::projections::fact::Fact;

impl ChatActor {
    /// Takes an event of the process with this number.
    pub(super) fn said(&mut self, process: u64, event: AgentEvent, ctx: &mut Context<Self>) {
        let Some(mut event) = self.heard(process, event) else { return };
        self.cell.borrow_mut().touch();
        if let Some(process) = &mut self.process {
            process.has_spoken = true;
        }
        if let Some(turn_id) = event.turn_mut() {
            let turn_id = turn_id.as_str();
            let runs = self.cell.borrow().fold.state.active_turn.as_ref().is_some_and(|turn| turn.id == turn_id);
            if !runs || self.handed.as_deref() != Some(turn_id) {
                return;
            }
        }
        match event {
            AgentEvent::Text { turn_id, text } => self.stream(turn_id, TextKind::Markdown, &text, ctx),
            AgentEvent::Reasoning { turn_id, text } => self.stream(turn_id, TextKind::Reasoning, &text, ctx),
            AgentEvent::Ended { ending, .. } => self.ended(ending, ctx),
            AgentEvent::ClientTool { turn_id, tool_call_id, tool_name, input } => {
                self.call_client(ClientCall { turn_id, tool_call_id, tool_name, input }, ctx);
            }
            AgentEvent::Gone { problem } => self.gone(&problem, ctx),
            AgentEvent::Left { problem } => self.gone_between_turns(&problem, ctx),
            AgentEvent::WorkerStarted { turn_id, tool_call_id, worker } => {
                self.spawn_worker(turn_id, tool_call_id, worker, ctx);
            }
            AgentEvent::Visual { request_id, visual, .. } => self.agent_publishes(request_id, *visual, ctx),
            AgentEvent::TakesSteering { turn_id } => {
                self.cell.borrow_mut().takes_steering = Some(turn_id);
                self.follow(Input::AgentTakes, ctx);
            }
            AgentEvent::SteeringTaken { id, .. } => self.follow(Input::Taken { id: &id }, ctx),
            other => self.append(other, ctx),
        }
    }

    /// Records what the law of the queue makes of what the agent said.
    fn follow(&mut self, input: Input<'_>, ctx: &mut Context<Self>) {
        let by = self.by_agent();
        let following = {
            let (core, cell) = (self.core.borrow(), self.cell.borrow());
            waiting::follow(&core, &cell, input, None, by.at)
        };
        if let Ok((entries, effects)) = following
            && !entries.is_empty()
        {
            self.record(by, entries, effects, ctx);
        }
    }

    fn append(&mut self, event: AgentEvent, ctx: &mut Context<Self>) {
        let adds_part = matches!(
            event,
            AgentEvent::ToolStarted { .. }
                | AgentEvent::ToolAsked { .. }
                | AgentEvent::Asked { .. }
                | AgentEvent::Notice { .. }
                | AgentEvent::Compacted { .. }
        );
        if adds_part {
            if self.too_many_parts(ctx) {
                return;
            }
            self.flush_text(ctx);
            self.close_part();
        }
        let entries = self.entries(event);
        if !entries.is_empty() {
            let by = self.by_agent();
            self.record(by, entries, Vec::new(), ctx);
        }
    }

    fn entries(&self, event: AgentEvent) -> Vec<Entry> {
        match event {
            AgentEvent::ToolAsked { turn_id, tool_call_id, ask } => self.tool_asked(turn_id, tool_call_id, ask),
            AgentEvent::Conversation { id } => vec![Entry::Fact(Fact::Conversation { id })],
            AgentEvent::RewindPoint { turn_id, point } => vec![Entry::Fact(Fact::RewindPoint { turn_id, point })],
            AgentEvent::Remember { key, value } => vec![Entry::SessionFact(Fact::Remembered { key, value })],
            AgentEvent::ToolContent { turn_id, tool_call_id, content } => {
                self.tool_content(turn_id, tool_call_id, content)
            }
            AgentEvent::ToolDone { turn_id, tool_call_id, result } => self.tool_done(turn_id, tool_call_id, result),
            AgentEvent::BackgroundWork { work } => vec![self.background_work(work)],
            // It was said before the agent heard that the turn is over, and nothing would clear it.
            AgentEvent::Activity { text: Some(_) } if self.cell.borrow().fold.state.active_turn.is_none() => Vec::new(),
            other => action_of(other).map(Entry::Host).into_iter().collect(),
        }
    }

    /// A call that nothing announced is begun first.
    fn tool_asked(&self, turn_id: String, tool_call_id: String, ask: ToolAsk) -> Vec<Entry> {
        let mut entries = Vec::new();
        if !self.has_call(&tool_call_id) {
            let start = ChatToolCallStartAction {
                turn_id: turn_id.clone(),
                tool_call_id: tool_call_id.clone(),
                meta: None,
                tool_name: ask.tool_name,
                display_name: ask.display_name,
                intention: None,
                contributor: None,
            };
            entries.push(Entry::Host(StateAction::ChatToolCallStart(start)));
        }
        let ready = ChatToolCallReadyAction {
            turn_id,
            tool_call_id,
            meta: None,
            contributor: None,
            intention: None,
            invocation_message: ask.invocation,
            tool_input: ask.input.map(ToolInput::Inline),
            confirmation_title: ask.title.map(Into::into),
            risk_assessment: None,
            edits: None,
            editable: Some(ask.editable),
            confirmed: None,
            options: (!ask.options.is_empty()).then_some(ask.options),
        };
        entries.push(Entry::Host(StateAction::ChatToolCallReady(ready)));
        entries
    }

    pub(super) fn has_call(&self, id: &str) -> bool {
        let cell = self.cell.borrow();
        let parts = cell.fold.state.active_turn.iter().flat_map(|turn| &turn.response_parts);
        parts.into_iter().any(|part| match part {
            ResponsePart::ToolCall(call) => call_id(&call.tool_call) == id,
            _ => false,
        })
    }

    fn ended(&mut self, how: Ending, ctx: &mut Context<Self>) {
        match how {
            Ending::Complete => self.end_turn(ending::completed, true, Vec::new(), ctx),
            Ending::Cancelled => self.end_turn(ending::cancelled, false, Vec::new(), ctx),
            Ending::Limited { kind, message, resets_at } => {
                self.end_limited(&Limit { kind, message, resets_at }, ctx);
            }
            Ending::NeedsToken(needed) => self.end_needing_token(*needed, ctx),
            Ending::Failed { error_type, message, resumable } => self.end_turn(
                |chat, at| ending::failed(chat, at, &error_type, &message, resumable),
                false,
                Vec::new(),
                ctx,
            ),
        }
    }

    fn gone_between_turns(&mut self, problem: &str, ctx: &mut Context<Self>) {
        let Some(turn_id) = self.handed.clone().filter(|_| self.employer.is_none()) else {
            return self.gone(problem, ctx);
        };
        self.end_process_since(problem);
        self.end_background_work(ctx);
        self.prompt(&turn_id, ctx);
    }

    fn gone(&mut self, problem: &str, ctx: &mut Context<Self>) {
        if self.employer.is_some() {
            return self.dismissed(problem, ctx);
        }
        let was_handed = self.handed.is_some();
        self.end_process_since(problem);
        self.end_background_work(ctx);
        if !was_handed {
            self.list_process(ctx);
        } else {
            self.end_turn(|chat, at| ending::failed(chat, at, "agent-gone", problem, true), false, Vec::new(), ctx);
        }
    }

    /// Ends the turn when it holds all the parts that one may have.
    pub(super) fn too_many_parts(&mut self, ctx: &mut Context<Self>) -> bool {
        let limit = self.shared.settings.max_parts_in_turn;
        let (parts, turn_id) = {
            let cell = self.cell.borrow();
            let Some(turn) = cell.fold.state.active_turn.as_ref() else { return false };
            (turn.response_parts.len(), turn.id.clone())
        };
        if parts < limit {
            return false;
        }
        metrics::counter!("scrollback_limit_met_total", "limit" => "parts").increment(1);
        let text = format!("a turn holds at most {limit} parts");
        self.end_turn(|chat, at| ending::failed(chat, at, "limit-exceeded", &text, false), false, Vec::new(), ctx);
        self.act_once_durable(vec![super::decide::Effect::Cancel { turn_id }], ctx);
        true
    }
}

/// The AHP action that an event is, for those that are one.
fn action_of(event: AgentEvent) -> Option<StateAction> {
    Some(match event {
        AgentEvent::ToolStarted { turn_id, tool_call_id, tool_name, display_name, intention, contributor } => {
            let meta = None;
            StateAction::ChatToolCallStart(ChatToolCallStartAction {
                turn_id,
                tool_call_id,
                meta,
                tool_name,
                display_name,
                intention,
                contributor,
            })
        }
        AgentEvent::ToolRunning { turn_id, tool_call_id, invocation, input } => {
            StateAction::ChatToolCallReady(ChatToolCallReadyAction {
                turn_id,
                tool_call_id,
                meta: None,
                contributor: None,
                intention: None,
                invocation_message: invocation,
                tool_input: input.map(ToolInput::Inline),
                confirmation_title: None,
                risk_assessment: None,
                edits: None,
                editable: None,
                confirmed: Some(ToolCallConfirmationReason::NotNeeded),
                options: None,
            })
        }
        AgentEvent::ToolAskSettled { turn_id, tool_call_id, approved } => {
            StateAction::ChatToolCallConfirmed(ChatToolCallConfirmedAction {
                turn_id,
                tool_call_id,
                meta: None,
                approved,
                confirmed: approved.then_some(ToolCallConfirmationReason::Setting),
                reason: (!approved).then_some(ToolCallCancellationReason::Skipped),
                edited_tool_input: None,
                user_suggestion: None,
                reason_message: None,
                selected_option_id: None,
            })
        }
        AgentEvent::Asked { request, .. } => StateAction::ChatInputRequested(ChatInputRequestedAction { request }),
        AgentEvent::Notice { turn_id, text } => ending::notice(&turn_id, &text),
        AgentEvent::Compacted { turn_id, before, after } => {
            ending::notice(&turn_id, &super::compaction::in_words(before, after))
        }
        AgentEvent::Usage { turn_id, usage } => StateAction::ChatUsage(ChatUsageAction { turn_id, usage, meta: None }),
        AgentEvent::Activity { text } => StateAction::ChatActivityChanged(ChatActivityChangedAction { activity: text }),
        AgentEvent::BackgroundWorkDone { id } => {
            StateAction::ChatBackgroundWorkRemoved(ChatBackgroundWorkRemovedAction { id })
        }
        _ => return None,
    })
}
