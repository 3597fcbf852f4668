//! The demo: the agent a newcomer meets, the fake that client authors test against, and what our own tests drive.
//!
//! It needs nothing: no program, no network, no key. A message is a script ([`script`]); a process of it is one task on
//! the chat's thread (`run`), which does the steps (`turn`).
//!
//! Always: what a turn says depends on its message, the configuration, the conversation and the answers it is given, and on
//! nothing else, so that a test can foretell it.

mod asks;
mod background;
mod commands;
mod history;
mod languages;
mod rules;
mod run;
pub mod script;
mod settings;
mod turn;
mod workers;

use ahp_types::commands::SessionConfigValueItem;
use ahp_types::common::JsonObject;
use ahp_types::state::{
    AgentCapabilities, AgentInfo, MultipleChatsCapability, MultipleWorkingDirectoriesCapability, SessionConfigSchema,
};

use serde_json::Value;

use crate::actors::agent::{Agent, AgentCommand, AgentExtras, AgentProcess, AgentSink, ProcessStart};
use rules::RuleBook;

/// The provider id of the demo.
pub const PROVIDER: &str = "demo";

const CHATS: MultipleChatsCapability = MultipleChatsCapability { fork: Some(true), side_chat: Some(true) };

/// A process is started anew for a change of directories, so also the first one may change.
const DIRECTORIES: MultipleWorkingDirectoriesCapability =
    MultipleWorkingDirectoriesCapability { immutable_primary: None, primary_replacement: Some(true) };

const EXTRAS: AgentExtras =
    AgentExtras { steering: true, rewind: true, compact: true, resume: true, images: true, stops_workers: true };

/// The demo, configured as it always is.
#[derive(Default)]
pub struct DemoAgent {
    rules: RuleBook,
}

impl Agent for DemoAgent {
    fn provider(&self) -> &str {
        PROVIDER
    }

    fn info(&self) -> AgentInfo {
        AgentInfo {
            provider: PROVIDER.to_owned(),
            display_name: "Demo".to_owned(),
            description: "Repeats what it is told, and does what a line beginning with / asks for".to_owned(),
            models: settings::models(),
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
        (settings::schema(), settings::defaults())
    }

    fn config_values(&self, property: &str, _config: &JsonObject, query: &str) -> Vec<SessionConfigValueItem> {
        if property == settings::LANGUAGE { languages::fitting(query) } else { Vec::new() }
    }

    fn takes_config_value(&self, property: &str, value: &Value) -> bool {
        property != settings::LANGUAGE || value.as_str().is_some_and(|tag| languages::hello(tag).is_some())
    }

    fn commands(&self) -> Vec<AgentCommand> {
        commands::all()
    }

    fn start(&self, start: ProcessStart, events: AgentSink) -> Box<dyn AgentProcess> {
        let rules = self.rules.of_session(&start.session, &start.memory);
        Box::new(run::DemoProcess::spawn(start, rules, events))
    }
}

#[cfg(test)]
mod tests;
