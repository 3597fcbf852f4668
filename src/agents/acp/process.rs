//! The process behind a chat: what lasts while its program comes and goes.
//!
//! The end of the program is the end of the process, and the chat's next message starts another. But where the next message
//! is here already, as when the program had to be ended because it did not stop the turn before, the program is started
//! again here, on its own conversation.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use ahp_types::common::JsonObject;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Setup;
use super::live::{self, Over};
use crate::actors::agent::{
    AgentEvent, AgentInput, AgentProcess, AgentSink, Conversation, Ending, Exchange, ProcessStart, Prompt,
};
use crate::actors::tools::HostTools;
use crate::agents::transcript::Transcript;
use crate::clock::Clock;
use crate::resources::uri::file_path;

/// Stands for the agent's own id of a conversation that it does not have: it begins with the transcript.
const TRANSCRIPT: &str = "transcript";
/// What separates the parts of one answer.
const BETWEEN: &str = "\n\n";

/// The chat's end of a process.
pub(super) struct AcpProcess {
    inputs: UnboundedSender<AgentInput>,
}

impl AcpProcess {
    /// Starts the program. It ends by itself when this handle is dropped.
    pub(super) fn spawn(setup: Arc<Setup>, start: ProcessStart, events: AgentSink) -> Self {
        let (sender, inputs) = unbounded_channel();
        let programs = setup.surroundings.programs.clone();
        programs.spawn(run(Chat::new(setup, start), inputs, events));
        Self { inputs: sender }
    }
}

impl AgentProcess for AcpProcess {
    fn send(&mut self, input: AgentInput) {
        // A task that is gone ignores it.
        let _ = self.inputs.send(input);
    }
}

async fn run(mut chat: Chat, mut inputs: UnboundedReceiver<AgentInput>, events: AgentSink) {
    let over = loop {
        match live::run(&mut chat, &mut inputs, &events).await {
            Over::Closed => return,
            Over::Gone(problem) => break AgentEvent::Gone { problem },
            Over::Down(problem) => {
                if !chat.is_asked(&mut inputs) {
                    break AgentEvent::Left { problem };
                }
            }
        }
    };
    chat.out.push_back(over);
    for event in chat.out.drain(..) {
        if events.send(event).await.is_err() {
            return;
        }
    }
}

/// How to go on with a conversation.
pub(super) enum Continue {
    /// It is new.
    Begin,
    /// As the agent knows it.
    Resume(String),
    /// With the transcript; why, in words.
    Transcript(&'static str),
}

/// What a chat's process knows of it, whichever run of the program it is.
pub(super) struct Chat {
    pub(super) setup: Arc<Setup>,
    /// The primary one first.
    pub(super) directories: Vec<PathBuf>,
    pub(super) mcp: Option<HostTools>,
    pub(super) clock: Clock,
    /// The session's configuration as it is now.
    pub(super) config: JsonObject,
    /// Messages that the agent has not been prompted with.
    pub(super) waiting: VecDeque<Prompt>,
    /// What the chat has not taken yet.
    pub(super) out: VecDeque<AgentEvent>,
    conversation: Arc<dyn Conversation>,
    /// Why the conversation begins anew, and that nobody has been told yet.
    goes_back: Option<&'static str>,
    known_as: Option<String>,
    /// What was said since the process started: as much of its end as a transcript may hold, and how many turns were before.
    since: VecDeque<Exchange>,
    forgotten: usize,
}

impl Chat {
    fn new(setup: Arc<Setup>, start: ProcessStart) -> Self {
        let directories = start.directories.iter().filter_map(|uri| file_path(uri).ok()).collect();
        let goes_back = start.back_to.as_ref().map(|back| match back.is_fork {
            true => "This agent cannot fork a conversation by itself.",
            false => "This agent cannot go back in a conversation by itself.",
        });
        Self {
            setup,
            directories,
            mcp: start.mcp,
            clock: start.clock,
            config: start.config,
            waiting: VecDeque::new(),
            out: VecDeque::new(),
            conversation: start.conversation,
            goes_back,
            known_as: start.resume,
            since: VecDeque::new(),
            forgotten: 0,
        }
    }

    /// A turn begins. Also one that is stopped or fails can be gone back to.
    pub(super) fn take(&mut self, prompt: Prompt) {
        if self.goes_back.is_some() {
            // From here on the log does not lead to the conversation that was gone back in.
            self.known(TRANSCRIPT);
        }
        let turn_id = prompt.turn_id.clone();
        self.out.push_back(AgentEvent::RewindPoint { turn_id, point: TRANSCRIPT.to_owned() });
        self.waiting.push_back(prompt);
    }

    /// Takes back a message that the agent was not prompted with; whether it was one.
    pub(super) fn cancel_waiting(&mut self, turn_id: &str) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|prompt| prompt.turn_id != turn_id);
        let was_waiting = self.waiting.len() < before;
        if was_waiting {
            self.ended(turn_id, Ending::Cancelled);
        }
        was_waiting
    }

    pub(super) fn ended(&mut self, turn_id: &str, ending: Ending) {
        self.out.push_back(AgentEvent::Ended { turn_id: turn_id.to_owned(), ending });
    }

    /// A turn ended. One that was taken up goes on with what was answered before.
    pub(super) fn remember(&mut self, mut exchange: Exchange) {
        let before = self.since.iter().position(|known| known.turn_id == exchange.turn_id);
        if let Some(before) = before.and_then(|before| self.since.remove(before)) {
            let answers = [before.answer, exchange.answer];
            let answers: Vec<&str> =
                answers.iter().map(|answer| answer.trim_end()).filter(|answer| !answer.is_empty()).collect();
            exchange.answer = answers.join(BETWEEN);
        }
        self.since.push_back(exchange);
        let size = |exchange: &Exchange| exchange.message.len() + exchange.answer.len();
        let mut held: usize = self.since.iter().map(size).sum();
        while let Some(oldest) = self.since.front().map(size)
            && held - oldest > self.setup.surroundings.limits.max_transcript
        {
            held -= oldest;
            self.since.pop_front();
            self.forgotten += 1;
        }
    }

    /// The agent has the conversation under this id: it is what the chat goes on with from now on.
    pub(super) fn known(&mut self, id: &str) {
        if self.known_as.as_deref() != Some(id) {
            self.known_as = Some(id.to_owned());
            self.out.push_back(AgentEvent::Conversation { id: id.to_owned() });
        }
        if id != TRANSCRIPT {
            self.goes_back = None;
        }
    }

    /// How the conversation goes on.
    pub(super) fn continues(&self) -> Continue {
        match (&self.known_as, self.goes_back) {
            (_, Some(why)) => Continue::Transcript(why),
            (None, None) => Continue::Begin,
            (Some(id), None) if id == TRANSCRIPT => {
                Continue::Transcript("The agent has not seen this conversation yet.")
            }
            (Some(id), None) => Continue::Resume(id.clone()),
        }
    }

    /// Whether anything was said in the conversation.
    pub(super) fn has_history(&self) -> bool {
        !self.exchanges("").is_empty()
    }

    /// The conversation before a turn as text; `None` for an empty one.
    pub(super) fn transcript(&self, turn_id: &str) -> Option<Transcript> {
        let mut transcript = Transcript::of(&self.exchanges(turn_id), self.setup.surroundings.limits.max_transcript)?;
        // What is no longer held would not have fitted.
        transcript.left_out += self.forgotten;
        Some(transcript)
    }

    fn exchanges(&self, before: &str) -> Vec<Exchange> {
        // It is read from the disk.
        let mut all = tokio::task::block_in_place(|| self.conversation.exchanges());
        all.extend(self.since.iter().cloned());
        all.retain(|exchange| exchange.turn_id != before);
        all
    }

    /// Whether a message waits, or has come meanwhile.
    fn is_asked(&mut self, inputs: &mut UnboundedReceiver<AgentInput>) -> bool {
        while let Ok(input) = inputs.try_recv() {
            match input {
                AgentInput::Prompt(prompt) => self.take(prompt),
                AgentInput::Cancel { turn_id } => drop(self.cancel_waiting(&turn_id)),
                AgentInput::Configured { config } => self.config = config,
                _ => {}
            }
        }
        !self.waiting.is_empty()
    }
}
