//! The entries of a conversation, and what streams before them, as events; subagents as workers.
//!
//! An entry holds a whole block after its deltas, so of a block that streamed only the rest is said.

use ahp_types::state::{BackgroundShellWork, BackgroundWork};
use serde_json::Value;

use super::calls;
use super::talk::{Call, Part, Talk, Worker};
use super::wire::{Entry, Task};
use crate::actors::agent::{AgentEvent, Ending, WorkerStart};

/// The kind of task that is a command.
const COMMAND: &str = "local_bash";
/// The kind of task that is a subagent.
const SUBAGENT: &str = "local_agent";

fn word<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

impl Talk {
    /// A piece of an answer that streams.
    pub(super) fn streamed(&mut self, event: &Value) {
        if self.live().is_none() {
            return;
        }
        match word(event, "type") {
            "message_start" => self.activity(None),
            "content_block_start" => {
                self.said = 0;
                let block = event.get("content_block").cloned().unwrap_or_default();
                if word(&block, "type") == "tool_use" {
                    self.tool_started(None, &block);
                }
            }
            "content_block_delta" => {
                let delta = event.get("delta").cloned().unwrap_or_default();
                match word(&delta, "type") {
                    "text_delta" => self.speak(Part::Text, word(&delta, "text")),
                    "thinking_delta" => self.speak(Part::Reasoning, word(&delta, "thinking")),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// More of the block that streams. Blocks that nothing stands between are paragraphs.
    fn speak(&mut self, part: Part, text: &str) {
        if text.is_empty() {
            return;
        }
        let begins = self.said == 0;
        self.said += text.len();
        if part == Part::Text
            && let Some(turn) = &self.turn
        {
            self.since.answered(&turn.id, text, begins);
        }
        let text = if begins && self.open == Some(part) { format!("\n\n{text}") } else { text.to_owned() };
        self.open = Some(part);
        self.say(None, |turn_id| part_of(part, turn_id, text));
    }

    fn tool_started(&mut self, worker: Option<&str>, block: &Value) {
        let (id, tool) = (word(block, "id").to_owned(), word(block, "name").to_owned());
        if id.is_empty() || self.calls.contains_key(&id) {
            return;
        }
        let call = Call { tool: tool.clone(), worker: worker.map(str::to_owned), ..Call::default() };
        self.calls.insert(id.clone(), call);
        self.say_part(worker, |turn_id| AgentEvent::ToolStarted {
            turn_id,
            tool_call_id: id,
            display_name: calls::display_name(&tool),
            tool_name: tool,
            intention: None,
            contributor: None,
        });
    }

    /// An entry of the model.
    pub(super) fn assistant(&mut self, entry: Entry) {
        if self.live().is_none() && !self.speaks_after(&entry) {
            if self.is_unasked() && entry.parent.is_none() && entry.error.is_none() {
                self.keep_between(&entry.text());
            }
            return;
        }
        if entry.error.is_some() && entry.parent.is_none() {
            self.error = entry.error;
            return self.point(&entry.id);
        }
        let worker = self.worker_of(&entry);
        for block in &entry.content {
            match word(block, "type") {
                "text" => self.whole(worker.as_deref(), Part::Text, word(block, "text")),
                "thinking" => self.whole(worker.as_deref(), Part::Reasoning, word(block, "thinking")),
                "tool_use" => {
                    self.tool_started(worker.as_deref(), block);
                    let id = word(block, "id").to_owned();
                    if let Some(call) = self.calls.get_mut(&id).filter(|call| !call.runs) {
                        call.input = block.get("input").cloned().unwrap_or_default();
                        self.announce(id);
                    }
                }
                _ => {}
            }
        }
        if worker.is_none() {
            self.point(&entry.id);
        }
    }

    /// A whole block, of which a part may have streamed.
    fn whole(&mut self, worker: Option<&str>, part: Part, text: &str) {
        if worker.is_some() {
            if !text.is_empty() {
                let text = text.to_owned();
                self.say(worker, |turn_id| part_of(part, turn_id, text));
            }
            return;
        }
        if self.said == 0 {
            self.speak(part, text);
        }
        self.said = 0;
    }

    /// An entry that the model is given: results of tools.
    pub(super) fn user(&mut self, entry: &Entry) {
        if self.live().is_none() && !self.speaks_after(entry) {
            return;
        }
        let worker = self.worker_of(entry);
        for block in entry.content.iter().filter(|block| word(block, "type") == "tool_result") {
            self.tool_done(block, &entry.outcome);
        }
        if worker.is_none() {
            self.point(&entry.id);
        }
    }

    fn tool_done(&mut self, block: &Value, outcome: &Value) {
        let id = word(block, "tool_use_id").to_owned();
        self.run(&id);
        let Some(call) = self.calls.remove(&id) else { return };
        let mut result = calls::result(&call.tool, &call.input, block, outcome);
        if let Some(worker) = self.workers.get(&id) {
            if worker.background {
                // What it says to the model is not for people; the worker's chat is linked.
                result.content = None;
            } else {
                let failed = Ending::Failed {
                    error_type: "agent-error".to_owned(),
                    message: "the subagent did not finish".to_owned(),
                    resumable: false,
                };
                self.end_worker(&id, if result.success { Ending::Complete } else { failed });
            }
        }
        let worker = call.worker;
        self.say_part(worker.as_deref(), |turn_id| AgentEvent::ToolDone { turn_id, tool_call_id: id, result });
    }

    // Workers.

    /// Whether a worker says it that goes on past its turn.
    fn speaks_after(&self, entry: &Entry) -> bool {
        entry.parent.as_ref().is_some_and(|parent| self.workers.contains_key(parent))
    }

    /// The worker that an entry is of, begun where nothing announced it.
    fn worker_of(&mut self, entry: &Entry) -> Option<String> {
        let id = entry.parent.clone()?;
        if !self.workers.contains_key(&id) {
            let input = self.calls.get(&id).map(|call| call.input.clone()).unwrap_or_default();
            let agent = Some(word(&input, "subagent_type").to_owned()).filter(|agent| !agent.is_empty());
            self.spawn(
                &id,
                Task {
                    agent,
                    description: word(&input, "description").to_owned(),
                    prompt: word(&input, "prompt").to_owned(),
                    ..Task::default()
                },
            );
        }
        Some(id)
    }

    fn spawn(&mut self, id: &str, task: Task) {
        self.run(id);
        let parent = self.calls.get(id).and_then(|call| call.worker.clone());
        let worker = WorkerStart {
            id: id.to_owned(),
            title: task.description.clone(),
            agent_name: task.agent,
            description: Some(task.description).filter(|text| !text.is_empty()),
            prompt: task.prompt,
            background: task.background,
            hidden: false,
        };
        let tool_call_id = id.to_owned();
        let task_id = Some(task.id).filter(|id| !id.is_empty());
        self.workers.insert(
            id.to_owned(),
            Worker { task: task_id, parent: parent.clone(), background: task.background, ..Worker::default() },
        );
        self.say_part(parent.as_deref(), |turn_id| AgentEvent::WorkerStarted { turn_id, tool_call_id, worker });
    }

    /// Something runs beside the model.
    pub(super) fn task_started(&mut self, task: Task) {
        match (task.kind.as_str(), task.call.clone()) {
            (SUBAGENT, Some(call)) if self.live().is_some() => match self.workers.get_mut(&call) {
                Some(worker) => worker.task = Some(task.id),
                None => self.spawn(&call, task),
            },
            (COMMAND, _) if task.background => {
                self.background.insert(task.id.clone());
                let work = BackgroundShellWork {
                    id: task.id,
                    label: task.description.clone(),
                    started_at: String::new(),
                    meta: None,
                    command: task.description,
                    terminal: None,
                };
                self.out.push_back(AgentEvent::BackgroundWork { work: BackgroundWork::Shell(work) });
            }
            _ => {}
        }
    }

    /// It is over.
    pub(super) fn task_ended(&mut self, task: String, call: Option<String>, status: &str) {
        let worker =
            self.workers.iter().find(|(id, worker)| worker.task.as_ref() == Some(&task) || call.as_ref() == Some(*id));
        match worker.map(|(id, _)| id.clone()) {
            Some(worker) => {
                let ending = match status {
                    "completed" => Ending::Complete,
                    "stopped" | "killed" => Ending::Cancelled,
                    other => Ending::Failed {
                        error_type: "agent-error".to_owned(),
                        message: format!("the subagent ended: {other}"),
                        resumable: false,
                    },
                };
                self.end_worker(&worker, ending);
            }
            None if self.background.remove(&task) => self.out.push_back(AgentEvent::BackgroundWorkDone { id: task }),
            None => {}
        }
    }

    fn end_worker(&mut self, id: &str, ending: Ending) {
        let Some(worker) = self.workers.get_mut(id).filter(|worker| !worker.over) else { return };
        worker.over = true;
        let ended = AgentEvent::Ended { turn_id: String::new(), ending };
        self.out.push_back(AgentEvent::OfWorker { worker: id.to_owned(), event: Box::new(ended) });
    }

    /// The turn ends: so do the workers that it waited for, those of workers first.
    pub(super) fn end_workers(&mut self, ending: &Ending) {
        let mut open: Vec<(String, bool)> = self
            .workers
            .iter()
            .filter(|(_, worker)| !worker.background && !worker.over)
            .map(|(id, worker)| (id.clone(), worker.parent.is_none()))
            .collect();
        open.sort_by_key(|(_, is_first)| *is_first);
        let ending = if *ending == Ending::Complete { Ending::Complete } else { Ending::Cancelled };
        for (id, _) in open {
            self.end_worker(&id, ending.clone());
        }
    }
}

fn part_of(part: Part, turn_id: String, text: String) -> AgentEvent {
    match part {
        Part::Text => AgentEvent::Text { turn_id, text },
        Part::Reasoning => AgentEvent::Reasoning { turn_id, text },
    }
}
