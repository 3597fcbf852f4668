//! A process of an endpoint's chat: one task, one turn at a time.
//!
//! There is no program behind it. The task reads what it is told also while a turn runs and while the chat is behind: a turn is
//! a future, and stopping it is dropping it, which closes its connection. The task ends when it is closed, or its chat is gone.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::turn::{Desk, Left, Turn};
use crate::actors::agent::{AgentEvent, AgentInput, AgentProcess, Ending, Prompt};
use crate::agents::programs::Programs;

/// The chat's end of a process.
pub(super) struct EndpointProcess {
    inputs: UnboundedSender<AgentInput>,
}

impl EndpointProcess {
    /// Starts the task, away from the chat's thread. It ends by itself when this handle is dropped.
    pub fn start(programs: &Programs, desk: Desk) -> Self {
        let (sender, inputs) = unbounded_channel();
        let task = Task { desk, inputs, waiting: VecDeque::new() };
        programs.spawn(task.run());
        Self { inputs: sender }
    }
}

impl AgentProcess for EndpointProcess {
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
    waiting: VecDeque<Waiting>,
}

/// A turn, or what is left of it. Its error says that the process is over.
type Running<'a> = Pin<Box<dyn Future<Output = Result<(), Left>> + Send + 'a>>;

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
                input => self.desk.hear(&input),
            }
        }
    }

    /// Does a turn up to its ending, while it listens.
    async fn work(&mut self, mut prompt: Prompt, cancelled: bool) -> Result<(), Left> {
        let Self { desk, inputs, waiting } = self;
        let desk: &Desk = desk;
        let turn_id = prompt.turn_id.clone();
        desk.begin(&mut prompt);
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
                input => desk.hear(&input),
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
