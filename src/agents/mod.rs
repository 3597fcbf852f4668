//! The agents behind the port of `actors::agent`, one folder each.
//!
//! Nothing here writes to the log or knows a client: an agent is handed prompts and says what it does, and the chat that
//! it works for makes events of that.

pub mod demo;

use std::sync::Arc;

use crate::actors::agent::Agent;

/// The agent that every host has, whatever its configuration says: the demo.
pub fn built_in() -> Arc<dyn Agent> {
    Arc::new(demo::DemoAgent::default())
}
