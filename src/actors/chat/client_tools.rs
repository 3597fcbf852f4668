//! Tools that clients offer: the agent calls one, the client that offers it runs it and says how it ended.
//!
//! The first client in the session's list that offers the name owns the call, and no other one ever does. A call that nobody can
//! run, that its owner leaves, or that takes too long ends as failed, with the reason; the turn goes on. Source: AHP session,
//! `activeClients`; AHP chat, client tools.

use actix::{ActorFutureExt, AsyncContext, Context};
use ahp_types::actions::{ChatToolCallCompleteAction, ChatToolCallReadyAction, ChatToolCallStartAction, StateAction};
use ahp_types::state::{
    ChatState, ResponsePart, SessionState, ToolCallConfirmationReason, ToolCallContributor, ToolCallResult,
    ToolCallRunningState, ToolCallState, ToolDefinition, ToolInput,
};
use serde_json::json;

use super::ChatActor;
use super::decide::{Effect, Entry};
use crate::clock::{Millis, later};

/// A call of a client's tool, as the agent makes it.
pub struct ClientCall {
    pub turn_id: String,
    pub tool_call_id: String,
    pub tool_name: String,
    pub input: String,
}

/// The client that offers a tool of this name, and the tool.
fn offering<'a>(session: &'a SessionState, name: &str) -> Option<(&'a str, &'a ToolDefinition)> {
    let offered = session.active_clients.iter().flat_map(|client| client.tools.iter().map(move |tool| (client, tool)));
    offered.into_iter().find(|(_, tool)| tool.name == name).map(|(client, tool)| (client.client_id.as_str(), tool))
}

/// The entries that begin the call, and where nobody offers the tool, those that end it.
fn begin(session: &SessionState, call: ClientCall) -> (Vec<Entry>, Vec<Effect>) {
    let ClientCall { turn_id, tool_call_id, tool_name, input } = call;
    let owner = offering(session, &tool_name);
    let display_name = owner.and_then(|(_, tool)| tool.title.clone()).unwrap_or_else(|| tool_name.clone());
    let contributor = owner.map(|(client_id, _)| {
        ToolCallContributor::Client(ahp_types::state::ToolCallClientContributor { client_id: client_id.to_owned() })
    });
    let nobody = contributor.is_none().then(|| format!("no active client offers {tool_name}"));
    let start = ChatToolCallStartAction {
        turn_id: turn_id.clone(),
        tool_call_id: tool_call_id.clone(),
        meta: None,
        tool_name,
        display_name: display_name.clone(),
        intention: None,
        contributor,
    };
    let ready = ChatToolCallReadyAction {
        turn_id: turn_id.clone(),
        tool_call_id: tool_call_id.clone(),
        meta: None,
        contributor: None,
        intention: None,
        invocation_message: format!("Run {display_name}").into(),
        tool_input: Some(ToolInput::Inline(input)),
        confirmation_title: None,
        risk_assessment: None,
        edits: None,
        editable: None,
        confirmed: Some(ToolCallConfirmationReason::NotNeeded),
        options: None,
    };
    let mut entries =
        vec![Entry::Host(StateAction::ChatToolCallStart(start)), Entry::Host(StateAction::ChatToolCallReady(ready))];
    let Some(problem) = nobody else { return (entries, Vec::new()) };
    let (action, effect) = failed(turn_id, tool_call_id, &display_name, &problem);
    entries.push(Entry::Host(action));
    (entries, vec![effect])
}

/// The end of a call that its client did not bring, and what the agent is told of it.
fn failed(turn_id: String, tool_call_id: String, name: &str, problem: &str) -> (StateAction, Effect) {
    let result = ToolCallResult {
        success: false,
        past_tense_message: format!("{name} did not run: {problem}").into(),
        content: None,
        structured_content: None,
        error: Some(json!({ "message": problem })),
    };
    let effect = Effect::ClientToolDone { tool_call_id: tool_call_id.clone(), result: result.clone() };
    let done =
        ChatToolCallCompleteAction { turn_id, tool_call_id, meta: None, result, requires_result_confirmation: None };
    (StateAction::ChatToolCallComplete(done), effect)
}

/// The calls of clients' tools that run in a chat, with their owners.
fn running(chat: &ChatState) -> impl Iterator<Item = (&str, &ToolCallRunningState, &str)> {
    let turn = chat.active_turn.iter();
    turn.flat_map(|turn| turn.response_parts.iter().map(move |part| (turn.id.as_str(), part))).filter_map(
        |(turn_id, part)| {
            let ResponsePart::ToolCall(part) = part else { return None };
            let ToolCallState::Running(call) = &part.tool_call else { return None };
            match &call.contributor {
                Some(ToolCallContributor::Client(owner)) => Some((turn_id, call, owner.client_id.as_str())),
                _ => None,
            }
        },
    )
}

/// The ends of all calls that a client which leaves owns in a chat, each with what the agent is told.
pub fn abandoned(chat: &ChatState, client_id: &str) -> Vec<(StateAction, Effect)> {
    let of_it = running(chat).filter(|(_, _, owner)| *owner == client_id);
    let problem = "the client that offers it left the session";
    of_it
        .map(|(turn_id, call, _)| failed(turn_id.to_owned(), call.tool_call_id.clone(), &call.display_name, problem))
        .collect()
}

impl ChatActor {
    /// The agent calls a tool of a client's.
    pub(super) fn call_client(&mut self, call: ClientCall, ctx: &mut Context<Self>) {
        if self.too_many_parts(ctx) {
            return;
        }
        self.flush_text(ctx);
        self.close_part();
        let id = call.tool_call_id.clone();
        let (entries, effects) = begin(&self.core.borrow().fold.state, call);
        let waits = effects.is_empty();
        let by = self.by_agent();
        let at = by.at;
        self.record(by, entries, effects, ctx);
        if waits {
            self.expect_completion(id, at, ctx);
        }
    }

    /// Ends the call that began then as failed when it takes longer than a client may take.
    fn expect_completion(&mut self, id: String, began: Millis, ctx: &mut Context<Self>) {
        let clock = self.shared.clock.clone();
        let at = later(began, self.shared.settings.client_tool_timeout);
        let waits = actix::fut::wrap_future::<_, Self>(async move { clock.wait_until(at).await });
        ctx.spawn(waits.map(move |(), actor, ctx| actor.give_up_on(&id, ctx)));
    }

    fn give_up_on(&mut self, id: &str, ctx: &mut Context<Self>) {
        let timeout = self.shared.settings.client_tool_timeout;
        let ended = {
            let cell = self.cell.borrow();
            if cell.is_gone || cell.is_asleep {
                return;
            }
            let call = running(&cell.fold.state).find(|(_, call, _)| call.tool_call_id == id);
            call.map(|(turn_id, call, _)| {
                let problem = format!("its client did not answer within {} s", timeout.as_secs_f64());
                failed(turn_id.to_owned(), call.tool_call_id.clone(), &call.display_name, &problem)
            })
        };
        let Some((action, effect)) = ended else { return };
        metrics::counter!("scrollback_limit_met_total", "limit" => "client_tool_time").increment(1);
        let by = self.by_host();
        self.record(by, vec![Entry::Host(action)], vec![effect], ctx);
    }
}
