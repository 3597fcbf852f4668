//! An agent that does nothing by itself: it notes what it is told, and says what a test makes it say.

use std::sync::{Arc, Mutex, PoisonError};

use ahp_types::common::JsonObject;
use ahp_types::state::{AgentInfo, SessionConfigSchema};
use scrollback::actors::agent::{
    Agent, AgentEvent, AgentExtras, AgentInput, AgentProcess, AgentSink, Ending, ProcessStart, ToolDecision,
};
use scrollback::actors::tools::HostTools;
use scrollback::agents;

/// Stands in the place of the demo. Cheap to clone.
#[derive(Clone)]
pub struct RecordingAgent {
    demo: Arc<dyn Agent>,
    extras: AgentExtras,
    heard: Arc<Mutex<Heard>>,
}

#[derive(Default)]
struct Heard {
    starts: usize,
    inputs: Vec<AgentInput>,
    sink: Option<AgentSink>,
    tools: Option<HostTools>,
}

impl RecordingAgent {
    pub fn new() -> Self {
        let demo = agents::built_in();
        Self { extras: demo.extras(), demo, heard: Arc::default() }
    }

    /// The same, able to do this.
    pub fn with_extras(self, extras: AgentExtras) -> Self {
        Self { extras, ..self }
    }

    /// How many processes were started.
    pub fn starts(&self) -> usize {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).starts
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

    /// Makes the newest process say `text` in `turn`.
    pub async fn says(&self, turn: &str, text: &str) {
        self.emits(AgentEvent::Text { turn_id: turn.into(), text: text.into() }).await;
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
        self.demo.provider()
    }

    fn info(&self) -> AgentInfo {
        self.demo.info()
    }

    fn extras(&self) -> AgentExtras {
        self.extras
    }

    fn configuration(&self) -> (SessionConfigSchema, JsonObject) {
        self.demo.configuration()
    }

    fn start(&self, start: ProcessStart, events: AgentSink) -> Box<dyn AgentProcess> {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.starts += 1;
        heard.sink = Some(events);
        heard.tools = start.mcp;
        Box::new(Process(self.clone()))
    }
}

struct Process(RecordingAgent);

impl AgentProcess for Process {
    fn send(&mut self, input: AgentInput) {
        self.0.heard.lock().unwrap_or_else(PoisonError::into_inner).inputs.push(input);
    }
}
