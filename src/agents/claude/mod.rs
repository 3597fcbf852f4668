//! The Claude Code CLI over stream-json.

use std::sync::Arc;

use super::Surroundings;
use super::programs::Program;
use crate::actors::agent::Agent;
use crate::config::agents::{AgentConfig, ProgramConfig};

/// The agent of `config`.
pub fn agent(
    _config: &AgentConfig,
    _of: &ProgramConfig,
    _program: Program,
    _surroundings: Surroundings,
) -> Arc<dyn Agent> {
    super::built_in()
}
