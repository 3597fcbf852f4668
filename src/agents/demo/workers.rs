//! Workers of the demo: a script in a chat of its own, done by the turn that spawned it, which waits for it.

use std::cell::RefCell;
use std::collections::HashMap;

use ahp_types::state::{ToolCallResult, ToolResultContent, ToolResultTextContent};
use serde_json::json;
use tokio::sync::oneshot;

use super::asks::unique_id;
use super::history::add_part;
use super::turn::{Left, Turn};
use crate::actors::agent::{AgentEvent, Ending, Prompt, PromptBlock, PromptKind, WorkerStart};

/// The tool that spawns a worker.
const TOOL: &str = "subagent";

/// `event` as its chat hears it: of the chat itself, or of a worker.
pub(super) fn says(worker: Option<String>, event: AgentEvent) -> AgentEvent {
    match worker {
        Some(worker) => AgentEvent::OfWorker { worker, event: Box::new(event) },
        None => event,
    }
}

/// Who a worker's turn speaks for.
pub(super) struct Worker {
    pub(super) id: String,
    /// The turn of the chat, and the step in it, that it comes from, however deep it hangs.
    pub(super) spawned_at: (String, usize),
    answer: RefCell<String>,
}

impl Worker {
    pub(super) fn says(&self, event: AgentEvent) -> AgentEvent {
        says(Some(self.id.clone()), event)
    }

    /// Notes what it has said: the answer is what its call results in.
    pub(super) fn said(&self, text: &str, new_part: bool) {
        let mut answer = self.answer.borrow_mut();
        if new_part {
            add_part(&mut answer, text);
        } else {
            answer.push_str(text);
        }
    }
}

/// What the host says of the workers of the running turn.
#[derive(Default)]
pub(super) struct Seats {
    opened: HashMap<String, oneshot::Sender<Result<(), String>>>,
    stops: HashMap<String, oneshot::Sender<()>>,
}

impl Seats {
    pub(super) fn opened(&mut self, worker: &str, opened: Result<(), String>) {
        if let Some(waits) = self.opened.remove(worker) {
            let _ = waits.send(opened);
        }
    }

    pub(super) fn stop(&mut self, worker: &str) {
        if let Some(waits) = self.stops.remove(worker) {
            let _ = waits.send(());
        }
    }
}

impl Turn<'_> {
    /// Spawns a worker and waits for it. However it ends, this turn goes on.
    pub(super) async fn subagent(&self, at: usize, script: String) -> Result<(), Left> {
        let call = unique_id();
        self.part(AgentEvent::ToolStarted {
            turn_id: self.id(),
            tool_call_id: call.clone(),
            tool_name: TOOL.to_owned(),
            display_name: "Subagent".to_owned(),
            intention: None,
            contributor: None,
        })
        .await?;
        self.emit(AgentEvent::ToolRunning {
            turn_id: self.id(),
            tool_call_id: call.clone(),
            invocation: "Run a subagent".into(),
            input: Some(script.clone()),
        })
        .await?;
        let result = self.worker(&call, at, script).await?;
        self.emit(AgentEvent::ToolDone { turn_id: self.id(), tool_call_id: call, result }).await
    }

    async fn worker(&self, call: &str, at: usize, script: String) -> Result<ToolCallResult, Left> {
        let (opened, is_open) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        {
            let mut seats = self.desk().seats.borrow_mut();
            seats.opened.insert(call.to_owned(), opened);
            seats.stops.insert(call.to_owned(), stop);
        }
        let worker = WorkerStart {
            id: call.to_owned(),
            title: String::new(),
            agent_name: None,
            description: None,
            prompt: script.clone(),
            background: false,
            hidden: false,
        };
        self.emit(AgentEvent::WorkerStarted { turn_id: self.id(), tool_call_id: call.to_owned(), worker }).await?;
        if let Err(problem) = is_open.await.map_err(|_| Left::Closed)? {
            return Ok(failed(&problem));
        }
        let worker = Worker { id: call.to_owned(), spawned_at: self.home(at), answer: RefCell::default() };
        let turn = self.of_worker(self.prompt_of(call, script), worker);
        let ending = tokio::select! {
            biased;
            _ = stopped => Ending::Cancelled,
            ending = Box::pin(turn.perform()) => ending?,
        };
        turn.emit(AgentEvent::Ended { turn_id: turn.id(), ending: ending.clone() }).await?;
        Ok(match ending {
            Ending::Complete => done(turn.answer()),
            Ending::Cancelled => failed("the subagent was stopped"),
            Ending::Failed { message, .. } | Ending::Limited { message, .. } => failed(&message),
            Ending::NeedsToken(needed) => failed(&needed.message),
        })
    }

    fn prompt_of(&self, call: &str, script: String) -> Prompt {
        let blocks = vec![PromptBlock::Text { text: script.clone() }];
        let mut message = self.message();
        message.text = script;
        message.attachments = None;
        Prompt { turn_id: call.to_owned(), message, blocks, attempt: 0, kind: PromptKind::Message }
    }

    fn answer(&self) -> String {
        self.is_worker().map(|worker| worker.answer.borrow().clone()).unwrap_or_default()
    }
}

fn done(answer: String) -> ToolCallResult {
    ToolCallResult {
        success: true,
        past_tense_message: "Ran a subagent".into(),
        content: Some(vec![ToolResultContent::Text(ToolResultTextContent { text: answer })]),
        structured_content: None,
        error: None,
    }
}

fn failed(problem: &str) -> ToolCallResult {
    ToolCallResult {
        success: false,
        past_tense_message: "The subagent did not finish".into(),
        content: Some(vec![ToolResultContent::Text(ToolResultTextContent { text: problem.to_owned() })]),
        structured_content: None,
        error: Some(json!({ "message": problem })),
    }
}
