//! The Claude Code CLI over stream-json: a program of its own behind each chat, its input kept open between turns.
//!
//! `wire` reads and writes its lines, `talk` and `entries` make events of them, `run` is the task that holds it all together.

mod asks;
mod calls;
mod ending;
mod entries;
mod launch;
mod pipe;
mod probing;
mod run;
mod settings;
mod talk;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use ahp_types::commands::SessionConfigValueItem;
use ahp_types::common::JsonObject;
use ahp_types::state::{
    AgentCapabilities, AgentInfo, MultipleChatsCapability, MultipleWorkingDirectoriesCapability, SessionConfigSchema,
};
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::Surroundings;
use super::found::Found;
use super::programs::Program;
use crate::actors::agent::{Agent, AgentCommand, AgentExtras, AgentProcess, AgentSink, Probe, ProcessStart};
use crate::config::agents::{AgentConfig, ProgramConfig};
use probing::Knowledge;

const EXTRAS: AgentExtras =
    AgentExtras { steering: true, rewind: true, compact: true, resume: true, images: true, stops_workers: true };

const CHATS: MultipleChatsCapability = MultipleChatsCapability { fork: Some(true), side_chat: Some(true) };

/// Another process goes on with the conversation, so also the first directory may change.
const DIRECTORIES: MultipleWorkingDirectoriesCapability =
    MultipleWorkingDirectoriesCapability { immutable_primary: None, primary_replacement: Some(true) };

/// The agent of `config`.
pub fn agent(config: &AgentConfig, of: &ProgramConfig, program: Program, surroundings: Surroundings) -> Arc<dyn Agent> {
    let setup = Setup {
        name: config.name.clone(),
        display_name: config.display_name.clone(),
        model: of.model.clone().unwrap_or_else(|| settings::DEFAULT.to_owned()),
        program,
        known: surroundings.found(config),
        surroundings,
    };
    Arc::new(ClaudeAgent(Arc::new(setup)))
}

/// The CLI as it is configured.
struct ClaudeAgent(Arc<Setup>);

struct Setup {
    name: String,
    display_name: String,
    /// The model that sessions begin with.
    model: String,
    program: Program,
    surroundings: Surroundings,
    known: Found<Knowledge>,
}

impl Agent for ClaudeAgent {
    fn provider(&self) -> &str {
        &self.0.name
    }

    fn info(&self) -> AgentInfo {
        let Setup { name, display_name, model, known, .. } = &*self.0;
        AgentInfo {
            provider: name.clone(),
            display_name: display_name.clone(),
            description: "Claude Code, which works in files and runs commands".to_owned(),
            models: settings::listed(name, model, &known.get().models),
            protected_resources: None,
            customizations: None,
            capabilities: Some(AgentCapabilities {
                multiple_chats: Some(CHATS),
                multiple_working_directories: Some(DIRECTORIES),
            }),
        }
    }

    fn extras(&self) -> AgentExtras {
        EXTRAS
    }

    fn configuration(&self) -> (SessionConfigSchema, JsonObject) {
        let Setup { model, program, known, .. } = &*self.0;
        settings::schema(model, &known.get().models, settings::may_bypass(&program.arguments))
    }

    fn commands(&self) -> Vec<AgentCommand> {
        self.0.known.get().commands()
    }

    fn config_values(&self, property: &str, _config: &JsonObject, query: &str) -> Vec<SessionConfigValueItem> {
        match property {
            settings::MODEL => settings::fitting(&self.0.model, &self.0.known.get().models, query),
            _ => Vec::new(),
        }
    }

    fn takes_config_value(&self, property: &str, value: &Value) -> bool {
        // The CLI knows more models than it lists.
        property != settings::MODEL || value.as_str().is_some_and(|model| !model.trim().is_empty())
    }

    fn probe(&self) -> BoxFuture<'static, Probe> {
        probing::probe(Arc::clone(&self.0))
    }

    fn idle_timeout(&self) -> Duration {
        self.0.surroundings.limits.idle_timeout
    }

    fn start(&self, start: ProcessStart, events: AgentSink) -> Box<dyn AgentProcess> {
        Box::new(run::ClaudeProcess::spawn(Arc::clone(&self.0), start, events))
    }
}
