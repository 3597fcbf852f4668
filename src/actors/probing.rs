//! Which of a host's agents start here, and what they can do: asked of each once a start.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;
use serde::Serialize;
use tokio::sync::watch;

use super::agent::{Agent, AgentExtras, Probe};

/// What is said of one agent.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentReport {
    pub provider: String,
    pub display_name: String,
    /// Whether it starts here.
    pub starts: bool,
    #[serde(flatten)]
    pub probe: Probe,
    pub capabilities: Capabilities,
}

/// What an agent can do, in AHP's words and beside them.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Capabilities {
    pub fork: bool,
    pub side_chat: bool,
    #[serde(flatten)]
    pub extras: AgentExtras,
}

impl AgentReport {
    /// What is said of `agent` once it was probed.
    pub fn of(agent: &dyn Agent, probe: Probe) -> Self {
        let info = agent.info();
        let chats = info.capabilities.and_then(|capabilities| capabilities.multiple_chats);
        let can = |of: fn(&ahp_types::state::MultipleChatsCapability) -> Option<bool>| {
            chats.as_ref().and_then(of).unwrap_or(false)
        };
        Self {
            provider: info.provider,
            display_name: info.display_name,
            starts: probe.problem.is_none(),
            probe,
            capabilities: Capabilities {
                fork: can(|chats| chats.fork),
                side_chat: can(|chats| chats.side_chat),
                extras: agent.extras(),
            },
        }
    }
}

/// Probes all of them side by side.
pub async fn reports(agents: &[Arc<dyn Agent>]) -> Vec<AgentReport> {
    let report = async |agent: &Arc<dyn Agent>| {
        let probe = agent.probe().await;
        AgentReport::of(agent.as_ref(), probe)
    };
    join_all(agents.iter().map(report)).await
}

/// What the probes of a host's agents found, by provider.
pub struct Probes(watch::Sender<HashMap<String, Probe>>);

impl Default for Probes {
    fn default() -> Self {
        Self(watch::Sender::new(HashMap::new()))
    }
}

impl Probes {
    /// A probe is over.
    pub fn note(&self, provider: &str, probe: Probe) {
        self.0.send_modify(|found| drop(found.insert(provider.to_owned(), probe)));
    }

    /// What was found of all of `agents`, once all of them were probed.
    pub async fn of(&self, agents: &[Arc<dyn Agent>]) -> Vec<AgentReport> {
        let mut found = self.0.subscribe();
        let all = |found: &HashMap<String, Probe>| agents.iter().all(|agent| found.contains_key(agent.provider()));
        // The sender is this: it does not go meanwhile.
        let found = found.wait_for(all).await.map(|found| found.clone()).unwrap_or_default();
        let report = |agent: &Arc<dyn Agent>| {
            AgentReport::of(agent.as_ref(), found.get(agent.provider()).cloned().unwrap_or_default())
        };
        agents.iter().map(report).collect()
    }
}
