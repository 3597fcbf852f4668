//! Endpoints that speak OpenAI's chat completions: llama.cpp, Ollama, vLLM, and those of vendors.
//!
//! The host holds the conversation and tells all of it with every request ([`history`]), so a chat can be forked, gone back in
//! and taken up at every turn. The model calls no tools but the host's own ([`tools`]), which run without asking.
//!
//! Source: OpenAI's API reference, chat completions, and what other endpoints do with it.

mod calls;
mod endpoint;
mod fault;
mod hidden;
mod history;
mod process;
mod settings;
mod tools;
mod turn;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use ahp_types::commands::SessionConfigValueItem;
use ahp_types::common::JsonObject;
use ahp_types::state::{AgentCapabilities, AgentInfo, MultipleChatsCapability, SessionConfigSchema, SessionModelInfo};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Surroundings;
use super::found::Found;
use super::programs::Programs;
use crate::actors::agent::{Agent, AgentExtras, AgentProcess, AgentSink, Probe, ProcessStart};
use crate::config::agents::{AgentConfig, EndpointConfig};
use endpoint::Endpoint;
use process::EndpointProcess;
use turn::Desk;

const CHATS: MultipleChatsCapability = MultipleChatsCapability { fork: Some(true), side_chat: Some(true) };

/// A configured endpoint.
struct EndpointAgent {
    name: String,
    display_name: String,
    config: EndpointConfig,
    endpoint: Arc<Endpoint>,
    programs: Programs,
    found: Arc<Found<Listed>>,
}

/// The models that an endpoint listed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Listed {
    models: Vec<ListedModel>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct ListedModel {
    id: String,
    /// The tokens of its context, where the endpoint says it.
    context: Option<i64>,
}

/// The agent of `config`; `key` is what the endpoint wants of who asks.
pub fn agent(
    config: &AgentConfig,
    of: &EndpointConfig,
    key: Option<&str>,
    surroundings: Surroundings,
) -> Arc<dyn Agent> {
    Arc::new(EndpointAgent {
        name: config.name.clone(),
        display_name: config.display_name.clone(),
        config: of.clone(),
        found: Arc::new(surroundings.found(config)),
        endpoint: Arc::new(Endpoint::new(&config.name, of, key, surroundings.limits)),
        programs: surroundings.programs,
    })
}

impl EndpointAgent {
    /// The models that sessions may choose from, the configured one first: those of the configuration, or else all that the
    /// endpoint lists.
    fn models(&self) -> Vec<String> {
        let mut models = vec![self.config.model.clone()];
        let listed = self.found.get().models.into_iter().map(|model| model.id);
        let others: Vec<String> =
            if self.config.models.is_empty() { listed.collect() } else { self.config.models.clone() };
        models.extend(others.into_iter().filter(|id| *id != self.config.model));
        models
    }

    fn model_info(&self, id: String, listed: &[ListedModel]) -> SessionModelInfo {
        SessionModelInfo {
            name: id.clone(),
            provider: self.name.clone(),
            max_context_window: listed.iter().find(|model| model.id == id).and_then(|model| model.context),
            id,
            max_output_tokens: None,
            max_prompt_tokens: None,
            supports_vision: Some(self.config.images),
            policy_state: None,
            config_schema: None,
            meta: None,
        }
    }
}

impl Agent for EndpointAgent {
    fn provider(&self) -> &str {
        &self.name
    }

    fn info(&self) -> AgentInfo {
        let listed = self.found.get().models;
        AgentInfo {
            provider: self.name.clone(),
            display_name: self.display_name.clone(),
            description: format!("{} at {}", self.config.model, self.config.base_url),
            models: self.models().into_iter().map(|id| self.model_info(id, &listed)).collect(),
            protected_resources: self.endpoint.resource.clone().map(|resource| vec![resource]),
            customizations: None,
            capabilities: Some(AgentCapabilities { multiple_chats: Some(CHATS), multiple_working_directories: None }),
        }
    }

    fn extras(&self) -> AgentExtras {
        AgentExtras { rewind: true, resume: true, images: self.config.images, ..AgentExtras::default() }
    }

    fn configuration(&self) -> (SessionConfigSchema, JsonObject) {
        settings::configuration(&self.models(), &self.config.model)
    }

    fn config_values(&self, property: &str, _config: &JsonObject, query: &str) -> Vec<SessionConfigValueItem> {
        if property != settings::MODEL {
            return Vec::new();
        }
        let query = query.to_lowercase();
        let fitting = self.models().into_iter().filter(|id| id.to_lowercase().contains(&query));
        fitting.map(|id| SessionConfigValueItem { value: id.clone(), label: id, description: None }).collect()
    }

    fn takes_config_value(&self, property: &str, value: &Value) -> bool {
        property != settings::MODEL || value.as_str().is_some_and(|id| self.models().iter().any(|known| known == id))
    }

    fn probe(&self) -> BoxFuture<'static, Probe> {
        let (endpoint, found, programs) = (Arc::clone(&self.endpoint), Arc::clone(&self.found), self.programs.clone());
        let (tell, told) = tokio::sync::oneshot::channel();
        programs.spawn(async move {
            let problem = match endpoint.models().await {
                Ok(models) => {
                    let context = |model: &wire::Model| model.max_model_len.or(model.context_length);
                    let models = models.into_iter().map(|model| ListedModel { context: context(&model), id: model.id });
                    found.set(Listed { models: models.collect() });
                    None
                }
                // Nobody's token is at hand: whoever sends a message brings one.
                Err(fault) if endpoint.resource.is_some() && fault.is_of_who_asks() => None,
                Err(fault) => Some(fault.words().to_owned()),
            };
            let _ = tell.send(problem);
        });
        Box::pin(async move { Probe { version: None, problem: told.await.unwrap_or_default() } })
    }

    /// The log has what was said, and nothing of images and calls.
    fn idle_timeout(&self) -> Duration {
        self.endpoint.limits.idle_timeout
    }

    fn start(&self, start: ProcessStart, events: AgentSink) -> Box<dyn AgentProcess> {
        let (system, model) = (self.config.system.clone(), self.config.model.clone());
        let desk = Desk::new(start, Arc::clone(&self.endpoint), system, model, events);
        Box::new(EndpointProcess::start(&self.programs, desk))
    }
}
