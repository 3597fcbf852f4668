//! An agent that does nothing by itself: it notes what it is told, and says what a test makes it say.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ahp_types::common::JsonObject;
use ahp_types::state::{AgentCapabilities, AgentInfo, SessionConfigSchema};
use scrollback::actors::agent::{
    Agent, AgentEvent, AgentExtras, AgentInput, AgentProcess, AgentSink, BackTo, Ending, ProcessStart, Prompt,
    ToolDecision,
};
use scrollback::actors::tools::HostTools;
use scrollback::agents;

use super::eventually;

/// Stands in the place of the demo. Cheap to clone.
#[derive(Clone)]
pub struct RecordingAgent {
    demo: Arc<dyn Agent>,
    name: &'static str,
    extras: AgentExtras,
    capabilities: Option<AgentCapabilities>,
    heard: Arc<Mutex<Heard>>,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Heard {
    /// What each process was to go on from: the conversation, and the point of it.
    begun: Vec<(Option<String>, Option<BackTo>)>,
    inputs: Vec<AgentInput>,
    /// The newest process's way to its chat, and of each turn the one that was prompted with it last.
    sink: Option<AgentSink>,
    tools: Option<HostTools>,
    sinks: HashMap<String, AgentSink>,
}

/// Whether processes take what they are told, and whether one waits with it.
#[derive(Default)]
struct Gate {
    held: AtomicBool,
    waits: AtomicBool,
}

impl RecordingAgent {
    pub fn new() -> Self {
        Self::named("demo")
    }

    /// One that stands beside the demo, under a name of its own.
    pub fn named(name: &'static str) -> Self {
        let demo = agents::built_in();
        let (extras, capabilities) = (demo.extras(), demo.info().capabilities);
        Self { demo, name, extras, capabilities, heard: Arc::default(), gate: Arc::default() }
    }

    /// What its processes were told, picked.
    pub fn inputs<T>(&self, pick: impl Fn(&AgentInput) -> Option<T>) -> Vec<T> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.inputs.iter().filter_map(pick).collect()
    }

    /// Waits until its processes were told what `holds` looks for.
    pub async fn until(&self, holds: impl Fn(&[AgentInput]) -> bool) {
        let heard = || holds(&self.heard.lock().unwrap_or_else(PoisonError::into_inner).inputs);
        eventually("the agent is told", heard).await;
    }

    /// The same, able to do this.
    pub fn with_extras(self, extras: AgentExtras) -> Self {
        Self { extras, ..self }
    }

    /// The same, which tells clients that it is able to do this.
    pub fn with_capabilities(self, capabilities: AgentCapabilities) -> Self {
        Self { capabilities: Some(capabilities), ..self }
    }

    /// Lets the next thing that a process is told block its chat's thread, until [`RecordingAgent::let_go`].
    pub fn hold_up(&self) {
        self.gate.held.store(true, Ordering::SeqCst);
    }

    /// Whether a chat's thread is blocked.
    pub fn holds_up(&self) -> bool {
        self.gate.waits.load(Ordering::SeqCst)
    }

    pub fn let_go(&self) {
        self.gate.held.store(false, Ordering::SeqCst);
    }

    /// The newest prompt.
    pub fn last_prompt(&self) -> Prompt {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = heard.inputs.iter().rev().find_map(|input| match input {
            AgentInput::Prompt(prompt) => Some(prompt.clone()),
            _ => None,
        });
        newest.expect("it was never prompted")
    }

    /// How many processes were started.
    pub fn starts(&self) -> usize {
        self.begun().len()
    }

    /// What its processes were to go on from: the conversation, and the point of it.
    pub fn begun(&self) -> Vec<(Option<String>, Option<BackTo>)> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).begun.clone()
    }

    /// The turns that its processes were prompted with.
    pub fn prompts(&self) -> Vec<String> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let prompts = heard.inputs.iter().filter_map(|input| match input {
            AgentInput::Prompt(prompt) => Some(prompt.turn_id.clone()),
            _ => None,
        });
        prompts.collect()
    }

    /// All that its processes were told.
    pub fn told(&self) -> Vec<AgentInput> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).inputs.clone()
    }

    /// The steering messages that its processes were handed: id and text.
    pub fn steered(&self) -> Vec<(String, String)> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let steered = heard.inputs.iter().filter_map(|input| match input {
            AgentInput::Steer { id, message, .. } => Some((id.clone(), message.text.clone())),
            _ => None,
        });
        steered.collect()
    }

    /// What was decided about its tool calls, in order.
    pub fn decisions(&self) -> Vec<ToolDecision> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let decisions = heard.inputs.iter().filter_map(|input| match input {
            AgentInput::Decide { decision, .. } => Some(decision.clone()),
            _ => None,
        });
        decisions.collect()
    }

    /// How often its processes heard of a configuration.
    pub fn configured(&self) -> usize {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.inputs.iter().filter(|input| matches!(input, AgentInput::Configured { .. })).count()
    }

    /// The host's tools as the newest process was given them.
    pub fn tools(&self) -> HostTools {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.tools.clone().expect("no process was given tools")
    }

    /// Makes the process that was prompted with `turn` say `text` in it.
    pub async fn says(&self, turn: &str, text: &str) {
        let sink = self.heard.lock().unwrap_or_else(PoisonError::into_inner).sinks.get(turn).cloned();
        let event = AgentEvent::Text { turn_id: turn.into(), text: text.into() };
        sink.expect("no process was prompted with it").send(event).await.expect("the process is gone");
    }

    /// Makes the process that was prompted with `turn` go away.
    pub async fn dies(&self, turn: &str, problem: &str) {
        let sink = self.heard.lock().unwrap_or_else(PoisonError::into_inner).sinks.get(turn).cloned();
        let gone = AgentEvent::Gone { problem: problem.into() };
        sink.expect("no process was prompted with it").send(gone).await.expect("the process is gone");
    }

    /// Makes the newest process end `turn` in this way.
    pub async fn ended(&self, turn: &str, ending: Ending) {
        self.emits(AgentEvent::Ended { turn_id: turn.into(), ending }).await;
    }

    /// Makes the newest process complete `turn`.
    pub async fn ends(&self, turn: &str) {
        self.emits(AgentEvent::Ended { turn_id: turn.into(), ending: Ending::Complete }).await;
    }

    /// Makes the newest process say something.
    pub async fn emits(&self, event: AgentEvent) {
        let sink = self.heard.lock().unwrap_or_else(PoisonError::into_inner).sink.clone();
        sink.expect("no process").send(event).await.expect("the process is gone");
    }
}

impl Agent for RecordingAgent {
    fn provider(&self) -> &str {
        self.name
    }

    fn info(&self) -> AgentInfo {
        AgentInfo { provider: self.name.to_owned(), capabilities: self.capabilities.clone(), ..self.demo.info() }
    }

    fn extras(&self) -> AgentExtras {
        self.extras
    }

    fn configuration(&self) -> (SessionConfigSchema, JsonObject) {
        self.demo.configuration()
    }

    fn start(&self, start: ProcessStart, events: AgentSink) -> Box<dyn AgentProcess> {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.begun.push((start.resume, start.back_to));
        heard.sink = Some(events.clone());
        heard.tools = start.mcp;
        Box::new(Process { agent: self.clone(), events })
    }
}

struct Process {
    agent: RecordingAgent,
    events: AgentSink,
}

impl AgentProcess for Process {
    fn send(&mut self, input: AgentInput) {
        while self.agent.gate.held.load(Ordering::SeqCst) {
            self.agent.gate.waits.store(true, Ordering::SeqCst);
            std::thread::yield_now();
        }
        let mut heard = self.agent.heard.lock().unwrap_or_else(PoisonError::into_inner);
        if let AgentInput::Prompt(prompt) = &input {
            heard.sinks.insert(prompt.turn_id.clone(), self.events.clone());
        }
        heard.inputs.push(input);
    }
}
