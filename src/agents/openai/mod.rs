//! Endpoints that speak OpenAI's chat completions.

use std::sync::Arc;

use super::Surroundings;
use crate::actors::agent::Agent;
use crate::config::agents::{AgentConfig, EndpointConfig};

/// The agent of `config`; `key` is what the endpoint wants of who asks.
pub fn agent(
    _config: &AgentConfig,
    _of: &EndpointConfig,
    _key: Option<&str>,
    _surroundings: Surroundings,
) -> Arc<dyn Agent> {
    super::built_in()
}
