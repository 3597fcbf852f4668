//! An agent that streams as it is told: `every MS FOR MS`, `flood`, or `words COUNT BYTES`.
//!
//! Each piece of `every` begins with the moment at which it was due, so that a late timer counts as latency too.

use std::sync::OnceLock;
use std::time::Duration;

use ahp_types::common::JsonObject;
use ahp_types::state::{AgentInfo, SessionConfigSchema};
use scrollback::actors::agent::{
    Agent, AgentEvent, AgentExtras, AgentInput, AgentProcess, AgentSink, Ending, ProcessStart,
};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::support::author::text;

/// The provider id.
pub const PROVIDER: &str = "load";

/// Microseconds of this process until `at`.
pub fn micros(at: Instant) -> u64 {
    static BEGINNING: OnceLock<Instant> = OnceLock::new();
    let beginning = BEGINNING.get_or_init(Instant::now);
    u64::try_from(at.saturating_duration_since(*beginning).as_micros()).unwrap_or(u64::MAX)
}

/// The agent.
pub struct LoadAgent;

impl Agent for LoadAgent {
    fn provider(&self) -> &str {
        PROVIDER
    }

    fn info(&self) -> AgentInfo {
        AgentInfo {
            provider: PROVIDER.to_owned(),
            display_name: "Load".to_owned(),
            description: "Streams as it is told".to_owned(),
            models: Vec::new(),
            protected_resources: None,
            customizations: None,
            capabilities: None,
        }
    }

    fn extras(&self) -> AgentExtras {
        AgentExtras::default()
    }

    fn configuration(&self) -> (SessionConfigSchema, JsonObject) {
        let properties = std::collections::HashMap::new();
        (SessionConfigSchema { r#type: "object".to_owned(), properties, required: None }, JsonObject::new())
    }

    fn start(&self, _start: ProcessStart, events: AgentSink) -> Box<dyn AgentProcess> {
        Box::new(Process { events, turn: None })
    }
}

struct Process {
    events: AgentSink,
    turn: Option<JoinHandle<()>>,
}

impl AgentProcess for Process {
    fn send(&mut self, input: AgentInput) {
        match input {
            AgentInput::Prompt(prompt) => {
                let turn = Turn { id: prompt.turn_id, events: self.events.clone() };
                self.turn = Some(actix_rt::spawn(turn.run(prompt.message.text)));
            }
            AgentInput::Cancel { .. } | AgentInput::Close => {
                if let Some(turn) = self.turn.take() {
                    turn.abort();
                }
            }
            _ => {}
        }
    }
}

struct Turn {
    id: String,
    events: AgentSink,
}

impl Turn {
    async fn run(self, message: String) {
        let words: Vec<&str> = message.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        match words.first().copied() {
            Some("every") => self.every(Duration::from_millis(number(1)), Duration::from_millis(number(3))).await,
            Some("flood") => while self.say(text(60)).await {},
            _ => {
                for _ in 0..number(1) {
                    self.say(text(number(2) as usize)).await;
                }
            }
        }
        let _ = self.events.send(AgentEvent::Ended { turn_id: self.id, ending: Ending::Complete }).await;
    }

    async fn every(&self, period: Duration, length: Duration) {
        let start = Instant::now();
        let mut ticks = interval_at(start + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        loop {
            let due = ticks.tick().await;
            if due > start + length || !self.say(format!("@{} {}", micros(due), text(40))).await {
                return;
            }
        }
    }

    async fn say(&self, text: String) -> bool {
        self.events.send(AgentEvent::Text { turn_id: self.id.clone(), text }).await.is_ok()
    }
}
