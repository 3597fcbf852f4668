//! A process of the demo: one task on the chat's thread, one turn at a time.
//!
//! The task reads what it is told also while a turn runs and while the chat is behind: a turn is a future, and stopping it is
//! dropping it, at whatever it waits for. The task ends when it is closed, when its chat is gone, or when it crashes.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::rules::SessionRules;
use super::turn::{Desk, Left, Turn};
use crate::actors::agent::{AgentEvent, AgentInput, AgentProcess, AgentSink, Ending, ProcessStart, Prompt};

/// The chat's end of a running process.
pub(super) struct DemoProcess {
    inputs: UnboundedSender<AgentInput>,
}

impl DemoProcess {
    /// Starts the task. It ends by itself when this handle is dropped.
    pub(super) fn spawn(start: ProcessStart, rules: Arc<SessionRules>, events: AgentSink) -> Self {
        let (sender, inputs) = unbounded_channel();
        let task = Task { desk: Desk::new(start, rules, events), inputs, waiting: VecDeque::new() };
        actix_rt::spawn(task.run());
        Self { inputs: sender }
    }
}

impl AgentProcess for DemoProcess {
    fn send(&mut self, input: AgentInput) {
        // A task that is gone ignores it.
        let _ = self.inputs.send(input);
    }
}

/// A turn that waits for the one before it to be over.
struct Waiting {
    prompt: Prompt,
    cancelled: bool,
}

struct Task {
    desk: Desk,
    inputs: UnboundedReceiver<AgentInput>,
    /// Turns that were begun while the chat was still behind with the ending of the last one.
    waiting: VecDeque<Waiting>,
}

/// A turn, or what is left of it. Its error says that the process is over.
type Running<'a> = Pin<Box<dyn Future<Output = Result<(), Left>> + 'a>>;

impl Task {
    async fn run(mut self) {
        while let Some(Waiting { prompt, cancelled }) = self.next_turn().await {
            if self.work(prompt, cancelled).await.is_err() {
                return;
            }
        }
    }

    /// The next turn to do; `None` when the process is to end.
    async fn next_turn(&mut self) -> Option<Waiting> {
        if let Some(waiting) = self.waiting.pop_front() {
            return Some(waiting);
        }
        loop {
            let input = tokio::select! {
                input = self.inputs.recv() => input?,
                () = self.desk.events.closed() => return None,
            };
            match input {
                AgentInput::Prompt(prompt) => return Some(Waiting { prompt, cancelled: false }),
                AgentInput::Close => return None,
                input => self.desk.hear(input),
            }
        }
    }

    /// Does a turn up to its ending, while it listens.
    async fn work(&mut self, prompt: Prompt, cancelled: bool) -> Result<(), Left> {
        let Self { desk, inputs, waiting } = self;
        let turn_id = prompt.turn_id.clone();
        desk.begin(&prompt);
        let mut running: Running<'_> =
            if cancelled { Box::pin(stop(desk, &turn_id)) } else { Box::pin(Turn::new(desk, prompt).run()) };
        loop {
            let input = tokio::select! {
                biased;
                input = inputs.recv() => input.ok_or(Left::Closed)?,
                () = desk.events.closed() => return Err(Left::Closed),
                ended = &mut running => return ended,
            };
            match input {
                AgentInput::Cancel { turn_id: id } if id == turn_id => running = Box::pin(stop(desk, &turn_id)),
                AgentInput::Cancel { turn_id: id } => cancel_waiting(waiting, &id),
                AgentInput::Prompt(prompt) => waiting.push_back(Waiting { prompt, cancelled: false }),
                AgentInput::Close => return Err(Left::Closed),
                AgentInput::Steer { turn_id: id, .. } if id != turn_id => {}
                input => desk.hear(input),
            }
        }
    }
}

/// All that is left of a turn that was stopped.
async fn stop(desk: &Desk, turn_id: &str) -> Result<(), Left> {
    desk.emit(AgentEvent::Ended { turn_id: turn_id.to_owned(), ending: Ending::Cancelled }).await
}

fn cancel_waiting(waiting: &mut VecDeque<Waiting>, turn_id: &str) {
    for turn in waiting.iter_mut().filter(|turn| turn.prompt.turn_id == turn_id) {
        turn.cancelled = true;
    }
}
