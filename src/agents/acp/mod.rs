//! Agents that speak the Agent Client Protocol: any program that does, one process of it behind each chat.
//!
//! The schema and the frames of the protocol are the official crate's. Its connection is not used: it takes what a program
//! writes as fast as that comes, in lines of any length, where a program here is read only as fast as its chat takes it
//! ([`live`]). What lasts longer than one run of the program is in [`process`].
//! Source: <https://agentclientprotocol.com>, version 1.

mod calls;
mod content;
mod files;
mod known;
mod live;
mod pipe;
mod probe;
mod problems;
mod process;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use ahp_types::common::JsonObject;
use ahp_types::state::{
    AgentCapabilities, AgentInfo, MultipleChatsCapability, MultipleWorkingDirectoriesCapability, SessionConfigSchema,
};
use futures_util::future::BoxFuture;

use super::Surroundings;
use super::found::Found;
use super::programs::Program;
use crate::actors::agent::{Agent, AgentCommand, AgentExtras, AgentProcess, AgentSink, Probe, ProcessStart};
use crate::config::agents::AgentConfig;
use known::Known;

/// Both work with every agent: a fork and a side chat begin with the transcript.
const CHATS: MultipleChatsCapability = MultipleChatsCapability { fork: Some(true), side_chat: Some(true) };
const DIRECTORIES: MultipleWorkingDirectoriesCapability =
    MultipleWorkingDirectoriesCapability { immutable_primary: None, primary_replacement: Some(true) };

/// The agent of `config`.
pub fn agent(config: &AgentConfig, program: Program, surroundings: Surroundings) -> Arc<dyn Agent> {
    let found = surroundings.found(config);
    let (name, display_name) = (config.name.clone(), config.display_name.clone());
    Arc::new(AcpAgent(Arc::new(Setup { name, display_name, program, surroundings, found })))
}

/// One configured agent, as its processes and its probe know it.
struct Setup {
    /// The NAME of its table.
    name: String,
    display_name: String,
    program: Program,
    surroundings: Surroundings,
    found: Found<Known>,
}

impl Setup {
    /// Notes what is found out about the agent, where it is anything new.
    fn learn(&self, change: impl FnOnce(&mut Known)) {
        let before = self.found.get();
        let mut known = before.clone();
        change(&mut known);
        if known != before {
            // It goes to a small file.
            tokio::task::block_in_place(|| self.found.set(known));
        }
    }
}

struct AcpAgent(Arc<Setup>);

impl Agent for AcpAgent {
    fn provider(&self) -> &str {
        &self.0.name
    }

    fn info(&self) -> AgentInfo {
        let known = self.0.found.get();
        AgentInfo {
            provider: self.0.name.clone(),
            display_name: self.0.display_name.clone(),
            description: known.version.unwrap_or_else(|| format!("{} over ACP", self.0.program.command)),
            models: known.settings.models(&self.0.name, known.images),
            protected_resources: None,
            customizations: None,
            capabilities: Some(AgentCapabilities {
                multiple_chats: Some(CHATS),
                multiple_working_directories: known.directories.then_some(DIRECTORIES),
            }),
        }
    }

    fn extras(&self) -> AgentExtras {
        let known = self.0.found.get();
        AgentExtras {
            steering: false,
            // From the transcript.
            rewind: true,
            compact: known.compacts(),
            resume: true,
            images: known.images,
            stops_workers: false,
        }
    }

    fn configuration(&self) -> (SessionConfigSchema, JsonObject) {
        self.0.found.get().settings.schema()
    }

    fn commands(&self) -> Vec<AgentCommand> {
        self.0.found.get().commands()
    }

    fn probe(&self) -> BoxFuture<'static, Probe> {
        Box::pin(probe::run(Arc::clone(&self.0)))
    }

    fn idle_timeout(&self) -> Duration {
        self.0.surroundings.limits.idle_timeout
    }

    fn start(&self, start: ProcessStart, events: AgentSink) -> Box<dyn AgentProcess> {
        Box::new(process::AcpProcess::spawn(Arc::clone(&self.0), start, events))
    }
}
