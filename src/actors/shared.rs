//! What all actors of a host share.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use actix::Addr;

use super::agent::Agent;
use super::clients::Clients;
use super::command::{Refusal, ask};
use super::host::{HostSettings, Watches};
use super::moves::Moves;
use super::owed::OwedResumes;
use super::people::PeopleInForce;
use super::probing::Probes;
use super::registry::Registry;
use super::resource_tokens::ResourceTokens;
use super::root::{RootActor, RootMessage};
use super::router::Hub;
use super::tools::ToolTokens;
use super::visuals::Links;
use super::writer::LogWriter;
use crate::attachments::Attachments;
use crate::clock::Clock;
use crate::events::{Batch, ServerSeq, Store};
use crate::resources::Roots;

/// The host's parts, as its actors see them.
pub struct Shared {
    pub settings: HostSettings,
    /// Where resources may be.
    pub roots: Arc<Roots>,
    pub store: Arc<dyn Store>,
    pub attachments: Attachments,
    pub hub: Arc<Hub>,
    pub writer: LogWriter,
    pub agents: Vec<Arc<dyn Agent>>,
    /// What was found of them.
    pub probes: Probes,
    pub clock: Clock,
    pub registry: Registry,
    pub moves: Arc<Moves>,
    pub clients: Clients,
    /// Who may do what.
    pub people: Arc<PeopleInForce>,
    /// What the host's tools are opened with.
    pub tokens: ToolTokens,
    /// What clients gave for the resources of agents.
    pub resource_tokens: Arc<ResourceTokens>,
    /// Watches of files.
    pub watches: Watches,
    pub owed: OwedResumes,
    /// Where pages of visuals are to be had in this run.
    pub links: Links,
    /// The newest number of the log when this run began.
    pub began_after: ServerSeq,
    pub root: OnceLock<Addr<RootActor>>,
    /// Held by an erasure and by a restoring: nothing comes back while it is being erased.
    pub keeping: tokio::sync::Mutex<()>,
    /// Root configuration `deferredTitleGeneration`: nobody but a person names a chat.
    pub deferred_titles: AtomicBool,
    /// Set when the host stops: nothing new is begun.
    pub stopping: AtomicBool,
    /// Agent processes that are up.
    pub processes: AtomicU64,
    /// Actors of sessions and chats that hold memory now.
    pub actors: AtomicUsize,
}

impl Shared {
    /// The agent with this provider id.
    pub fn agent(&self, provider: &str) -> Option<&Arc<dyn Agent>> {
        self.agents.iter().find(|agent| agent.provider() == provider)
    }

    /// The provider of sessions that name none: the configured one, else the first.
    pub fn default_provider(&self) -> Option<&str> {
        let configured = self.settings.default_agent.as_deref();
        configured.or_else(|| self.agents.first().map(|agent| agent.provider()))
    }

    /// Records facts through the root, where it has room; returns when they are on disk.
    ///
    /// # Errors
    /// A [`Refusal`] when the root has none, or the log takes nothing.
    pub async fn record(&self, batch: Batch) -> Result<(), Refusal> {
        let send = |reply| {
            // What finds no room is dropped with its reply, which says so.
            let _ = self.root.get().map(|root| root.try_send(RootMessage::Record { batch, reply }).is_ok());
        };
        ask(send).await.map(drop)
    }

    /// Whether the host is stopping.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}
