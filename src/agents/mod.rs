//! The agents behind the port of `actors::agent`, one folder each.
//!
//! Nothing here writes to the log or knows a client: an agent is handed prompts and says what it does, and the chat that
//! it works for makes events of that.

pub mod acp;
pub mod claude;
pub mod demo;
mod found;
pub mod openai;
pub mod programs;
mod transcript;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::actors::agent::Agent;
use crate::config::Environment;
use crate::config::agents::{AgentConfig, AgentKind, ProgramConfig};
use crate::resources::Roots;
use found::Found;
use programs::{Program, Programs};

/// The `errorType` of a turn that failed since nobody is logged in at the agent's program.
const LOGIN: &str = "agent-login";
/// Where the `_meta` of a usage says what the turn cost: `{amount, currency}`.
const COST: &str = "scrollback.cost";
/// The same of the whole conversation, where an agent tells no more.
const COST_SO_FAR: &str = "scrollback.costSoFar";

/// The agent that every host has, whatever its configuration says: the demo.
pub fn built_in() -> Arc<dyn Agent> {
    Arc::new(demo::DemoAgent::default())
}

/// What configured agents live among.
#[derive(Clone)]
pub struct Surroundings {
    pub programs: Programs,
    /// Where agents may read and write through the host.
    pub roots: Arc<Roots>,
    /// Where what probes found is kept; nowhere for `None`.
    pub data_directory: Option<PathBuf>,
    pub limits: AgentLimits,
}

/// The times and sizes of what is said with agents.
#[derive(Debug, Clone)]
pub struct AgentLimits {
    /// A start that takes longer is told in the chat.
    pub slow_start: Duration,
    /// How long a start may take.
    pub max_start: Duration,
    /// How long a turn that was stopped may take to end before its program is ended.
    pub cancel_timeout: Duration,
    /// How long a program that nobody uses is kept up.
    pub idle_timeout: Duration,
    /// How long one message of a program may be, in bytes.
    pub max_message: usize,
    /// How much of a conversation an agent is given as text when it cannot go on with its own, in bytes.
    pub max_transcript: usize,
    pub endpoint: EndpointLimits,
}

/// The limits of what is said with endpoints.
#[derive(Debug, Clone, Copy)]
pub struct EndpointLimits {
    /// How long a connection may take to stand.
    pub connect_timeout: Duration,
    /// How long an endpoint may say nothing, before its first word and between two.
    pub idle_timeout: Duration,
    /// How long the list of its models may take.
    pub probe_timeout: Duration,
    /// How often a model may call tools in one turn before it has to answer.
    pub max_tool_rounds: usize,
}

/// Counts a message of an agent's program, or of an endpoint, that is longer than they may be.
fn count_too_long() {
    metrics::counter!("scrollback_limit_met_total", "limit" => "agent_message").increment(1);
}

impl Default for EndpointLimits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(300),
            probe_timeout: Duration::from_secs(5),
            max_tool_rounds: 25,
        }
    }
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self {
            slow_start: Duration::from_secs(30),
            max_start: Duration::from_secs(120),
            cancel_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(30 * 60),
            max_message: 32 << 20,
            max_transcript: 256 << 10,
            endpoint: EndpointLimits::default(),
        }
    }
}

impl Surroundings {
    /// What was found of an agent, for its configuration as it is now.
    fn found<T>(&self, config: &AgentConfig) -> Found<T>
    where
        T: Clone + Default + serde::Serialize + serde::de::DeserializeOwned,
    {
        let file = self.data_directory.as_ref().map(|data| data.join("agents").join(format!("{}.json", config.name)));
        Found::recall(file, serde_json::to_string(&config.shown()).unwrap_or_default())
    }
}

/// The agents of a configuration.
pub fn configured(
    agents: &[AgentConfig],
    environment: &Environment,
    surroundings: &Surroundings,
) -> Vec<Arc<dyn Agent>> {
    let agent = |config: &AgentConfig| match &config.kind {
        AgentKind::Acp(of) => acp::agent(config, program(of, environment), surroundings.clone()),
        AgentKind::Claude(of) => claude::agent(config, of, program(of, environment), surroundings.clone()),
        AgentKind::OpenAi(of) => {
            let key = of.api_key_env.as_deref().and_then(|name| environment.get(name));
            openai::agent(config, of, key, surroundings.clone())
        }
    };
    agents.iter().map(agent).collect()
}

/// A program with the variables that it is passed, and then those that it is given.
fn program(config: &ProgramConfig, environment: &Environment) -> Program {
    let mut words = config.command.iter().cloned();
    let passed = config.pass_env.iter().filter_map(|name| Some((name.clone(), environment.get(name)?.to_owned())));
    Program {
        command: words.next().unwrap_or_default(),
        arguments: words.collect(),
        env: passed.chain(config.env.clone()).collect(),
    }
}
