//! A process of a chat: one task on the threads of the programs, with one CLI at a time.
//!
//! The task hears what the chat tells it also while the chat is behind with its events; it reads the CLI only while the chat
//! is not. A CLI that does not end a stopped turn is ended, and started again for the next prompt.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until};

use super::Setup;
use super::launch::{self, From};
use super::pipe::Pipe;
use super::settings::Chosen;
use super::talk::{self, Heard, TRANSCRIPT, Talk};
use super::wire::Said;
use crate::actors::agent::{AgentEvent, AgentInput, AgentProcess, AgentSink, Ending, ProcessStart, Prompt};
use crate::agents::transcript::Since;

/// The chat's end of a process.
pub(super) struct ClaudeProcess {
    inputs: UnboundedSender<AgentInput>,
}

impl ClaudeProcess {
    /// Starts the task. It ends by itself when this handle is dropped.
    pub(super) fn spawn(agent: Arc<Setup>, start: ProcessStart, events: AgentSink) -> Self {
        let (sender, inputs) = unbounded_channel();
        let programs = agent.surroundings.programs.clone();
        programs.spawn(Task::new(agent, start).run(inputs, events));
        Self { inputs: sender }
    }
}

impl AgentProcess for ClaudeProcess {
    fn send(&mut self, input: AgentInput) {
        // A task that is gone ignores it.
        let _ = self.inputs.send(input);
    }
}

struct Task {
    agent: Arc<Setup>,
    start: ProcessStart,
    talk: Talk,
    pipe: Option<Pipe>,
    /// Since when it is awaited that the CLI takes prompts; `None` once it does.
    starting: Option<Instant>,
    told_slow: bool,
    /// Until when a stopped turn may take.
    cancel_until: Option<Instant>,
    waiting: VecDeque<Prompt>,
    /// The last prompt that was handed over, for a conversation that turns out to be lost.
    handed: Option<Prompt>,
    /// Why the conversation was begun anew.
    anew: Option<String>,
    /// It is over, once what was said has been taken.
    gone: bool,
}

/// What comes next.
enum Next {
    Input(Option<Box<AgentInput>>),
    Line(Result<Value, String>),
    /// The chat took an event.
    Taken,
    Time,
    Closed,
}

impl Task {
    fn new(agent: Arc<Setup>, start: ProcessStart) -> Self {
        let chosen = Chosen::of(&start.config, &agent.model);
        let mut talk = Talk::new(&agent.name, chosen, &agent.model, start.resume.clone());
        talk.since = Since::new(agent.surroundings.limits.max_transcript);
        talk.goes_back = start.back_to.is_some();
        talk.knows_conversation = start.resume.is_some() && start.back_to.is_none();
        Self {
            agent,
            start,
            talk,
            pipe: None,
            starting: None,
            told_slow: false,
            cancel_until: None,
            waiting: VecDeque::new(),
            handed: None,
            anew: None,
            gone: false,
        }
    }

    async fn run(mut self, mut inputs: UnboundedReceiver<AgentInput>, events: AgentSink) {
        self.launch().await;
        loop {
            self.go_on().await;
            match self.next(&mut inputs, &events).await {
                Next::Input(None) | Next::Closed => return self.leave(),
                Next::Input(Some(input)) => match *input {
                    AgentInput::Close => return self.leave(),
                    input => self.told(input),
                },
                Next::Line(Ok(line)) => self.heard(&line).await,
                Next::Line(Err(problem)) => self.ended(&problem).await,
                Next::Taken => {}
                Next::Time => self.tick(),
            }
            if self.gone && self.talk.out.is_empty() {
                return;
            }
        }
    }

    /// Ends the CLI. At the end of its input alone it would finish its turn, which is not read any more and may be taken up
    /// again: it is stopped first. What is written goes out before the input closes, for as long as an end may take.
    fn leave(mut self) {
        self.talk.stop();
        self.write();
    }

    /// Waits for what comes next. What is told goes before all else.
    async fn next(&mut self, inputs: &mut UnboundedReceiver<AgentInput>, events: &AgentSink) -> Next {
        let deadline = self.deadline();
        let Self { talk, pipe, .. } = self;
        let has_events = !talk.out.is_empty();
        tokio::select! {
            biased;
            input = inputs.recv() => Next::Input(input.map(Box::new)),
            () = events.closed() => Next::Closed,
            permit = events.reserve(), if has_events => {
                if let (Ok(permit), Some(event)) = (permit, talk.out.pop_front()) {
                    permit.send(event);
                }
                Next::Taken
            }
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => Next::Time,
            Some(line) = read(pipe), if !has_events => Next::Line(line),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let limits = &self.agent.surroundings.limits;
        let start = self.starting.map(|since| {
            let slow = !self.told_slow && !self.waiting.is_empty();
            since + if slow { limits.slow_start.min(limits.max_start) } else { limits.max_start }
        });
        [start, self.cancel_until, self.talk.announce_at].into_iter().flatten().min()
    }

    // The program.

    /// Starts the CLI on its conversation.
    async fn launch(&mut self) {
        let from = self.from();
        if from == From::New {
            self.prepare_transcript().await;
        }
        let (agent, talk) = (&self.agent, &mut self.talk);
        let programs = &agent.surroundings.programs;
        let started = launch::paths(&self.start.directories).and_then(|directories: Vec<PathBuf>| {
            let tools = self.start.mcp.as_ref();
            let program = launch::program(&agent.program, talk.chosen(), &from, &directories, tools);
            let first = directories.first().map(PathBuf::as_path).unwrap_or(launch::anywhere());
            programs.start(&program, first).map_err(|fault| fault.to_string())
        });
        match started {
            Ok(running) => {
                self.pipe = Some(Pipe::new(running, agent.surroundings.limits.max_message));
                (self.starting, self.told_slow) = (Some(Instant::now()), false);
                talk.restarted();
            }
            Err(problem) => {
                let name = &agent.name;
                self.give_up(format!("the Claude Code CLI does not start (`command` of `agents.{name}`): {problem}"));
            }
        }
    }

    /// Where the CLI goes on.
    fn from(&self) -> From {
        let conversation = self.talk.conversation.clone();
        match (conversation, &self.start.back_to) {
            _ if self.anew.is_some() && !self.talk.knows_conversation => From::New,
            (Some(conversation), _) if self.talk.knows_conversation => From::End(conversation),
            (Some(conversation), Some(back)) if back.point != TRANSCRIPT => {
                From::Entry { conversation, entry: back.point.clone() }
            }
            _ => From::New,
        }
    }

    /// What was said before goes along with the first prompt of a new conversation.
    async fn prepare_transcript(&mut self) {
        let conversation = Arc::clone(&self.start.conversation);
        let read = tokio::task::spawn_blocking(move || conversation.exchanges()).await;
        let next = self.waiting.front().map(|prompt| prompt.turn_id.as_str());
        let transcript = self.talk.since.transcript(read.unwrap_or_default(), next);
        self.talk.preface_notice = match (&transcript, &self.anew) {
            (Some(transcript), Some(why)) => Some(transcript.notice(why)),
            (Some(transcript), None) => {
                Some(transcript.notice("The agent cannot go on with its own conversation here."))
            }
            (None, Some(why)) => Some(format!("{why} It began a new conversation.")),
            (None, None) => None,
        };
        self.talk.preface = transcript.map(|transcript| transcript.text);
        self.talk.conversation = None;
    }

    /// Begins a new conversation, since the old one is lost.
    async fn begin_anew(&mut self, why: &str) {
        self.anew = Some(match self.start.back_to.is_some() {
            true => format!("The agent cannot go back to this point of its conversation ({why})."),
            false => format!("The agent does not know its conversation any more ({why})."),
        });
        self.talk.knows_conversation = false;
        self.pipe = None;
        let unread = self.talk.turn.take_if(|turn| !turn.begun).is_some_and(|turn| !turn.cancelled);
        if let Some(prompt) = self.handed.take().filter(|_| unread) {
            self.waiting.push_front(prompt);
        }
        self.launch().await;
    }

    /// There is no more to hear of the CLI.
    async fn ended(&mut self, problem: &str) {
        let Some(pipe) = self.pipe.take() else { return };
        if self.talk.turn.as_ref().is_some_and(|turn| turn.cancelled) {
            // Nothing is lost: the next prompt starts another one.
            self.talk.turn = None;
            return;
        }
        let stderr = pipe.stderr.text();
        let told = stderr.lines().find(|line| talk::says_lost(line));
        if let Some(why) = told.filter(|_| !self.talk.is_own && self.from() != From::New) {
            return self.begin_anew(why).await;
        }
        let when = if self.starting.is_some() { " before it was ready" } else { "" };
        self.give_up(pipe.stderr.explain(&format!("the Claude Code CLI {problem}{when}")));
    }

    fn give_up(&mut self, problem: String) {
        self.pipe = None;
        self.starting = None;
        self.cancel_until = None;
        self.talk.announce_at = None;
        self.talk.out.push_back(AgentEvent::Gone { problem });
        self.gone = true;
    }

    /// Hands over the next prompt, and what there is to write.
    async fn go_on(&mut self) {
        if self.gone {
            return;
        }
        if self.pipe.is_none() && !self.waiting.is_empty() {
            self.launch().await;
        }
        if self.talk.turn.is_none() {
            self.cancel_until = None;
        }
        if self.pipe.is_some()
            && self.starting.is_none()
            && self.talk.turn.is_none()
            && let Some(prompt) = self.waiting.pop_front()
        {
            self.handed = Some(prompt.clone());
            self.talk.begin(prompt);
        }
        self.write();
    }

    fn write(&mut self) {
        if let Some(pipe) = &self.pipe {
            self.talk.lines.drain(..).for_each(|line| pipe.write(&line));
        }
    }

    async fn heard(&mut self, line: &Value) {
        match self.talk.heard(Said::of(line)) {
            Heard::Nothing => {}
            Heard::Ready => self.starting = None,
            Heard::Lost(why) => self.begin_anew(&why).await,
        }
    }

    // What the chat tells it.

    fn told(&mut self, input: AgentInput) {
        match input {
            AgentInput::Prompt(prompt) => self.waiting.push_back(prompt),
            AgentInput::Cancel { turn_id } => self.cancel(&turn_id),
            input => self.talk.told(input),
        }
    }

    fn cancel(&mut self, turn_id: &str) {
        let before = self.waiting.len();
        self.waiting.retain(|prompt| prompt.turn_id != turn_id);
        if self.waiting.len() < before {
            let turn_id = turn_id.to_owned();
            return self.talk.out.push_back(AgentEvent::Ended { turn_id, ending: Ending::Cancelled });
        }
        if self.talk.cancel(turn_id) && self.talk.turn.is_some() {
            self.cancel_until = Some(Instant::now() + self.agent.surroundings.limits.cancel_timeout);
        }
    }

    // Times.

    fn tick(&mut self) {
        let now = Instant::now();
        if self.talk.announce_at.is_some_and(|at| at <= now) {
            self.talk.run_announced();
        }
        if self.cancel_until.is_some_and(|at| at <= now) {
            // It ends, and the next prompt starts another one.
            self.pipe = None;
            self.cancel_until = None;
            self.talk.turn = None;
        }
        let Some(since) = self.starting else { return };
        let limits = &self.agent.surroundings.limits;
        if now >= since + limits.max_start {
            let waited = humantime::format_duration(limits.max_start);
            let problem = format!("the Claude Code CLI was not ready after {waited}");
            let explained = self.pipe.as_ref().map(|pipe| pipe.stderr.explain(&problem));
            return self.give_up(explained.unwrap_or(problem));
        }
        if now >= since + limits.slow_start
            && !self.told_slow
            && let Some(prompt) = self.waiting.front()
        {
            self.told_slow = true;
            let text = "The agent takes long to start.".to_owned();
            self.talk.out.push_back(AgentEvent::Notice { turn_id: prompt.turn_id.clone(), text });
        }
    }
}

/// The next line of a CLI that runs.
async fn read(pipe: &mut Option<Pipe>) -> Option<Result<Value, String>> {
    Some(pipe.as_mut()?.next().await)
}
