//! The list of sessions, and what is checked before a new one is made.

use ahp_types::common::JsonObject;

use super::{CreateSession, Host, unavailable};
use crate::actors::agent::Agent;
use crate::actors::command::{self, Answer, Refusal, RefusalKind, Reply};
use crate::actors::connection::Caller;
use crate::actors::registry::first_chat_uri;
use crate::actors::session::{Boot, check_value, configuration};
use crate::actors::shared::Shared;
use crate::events::rows::ChannelKind;
use crate::events::{Channel, ChannelId};
use crate::projections::catalogue;

impl Host {
    /// `listSessions`: newest first. At most `limit` (1,000 where absent), then a cursor.
    pub fn list_sessions(&self, limit: Option<u64>, cursor: Option<&str>) -> Answer {
        let limit = limit.unwrap_or(catalogue::PAGE_LIMIT).min(catalogue::PAGE_LIMIT);
        match catalogue::page(self.shared.store.as_ref(), limit, cursor).map_err(unavailable)? {
            Some((items, next)) => {
                let result = ahp_types::commands::ListSessionsResult { next_cursor: next, items };
                Ok(command::json(&result))
            }
            None => Err(Refusal::new(RefusalKind::InvalidParams, "unknown-cursor", "cursor: not one of this list")),
        }
    }

    /// `createSession`; the answer is `null`.
    pub fn create_session(&self, caller: &Caller, command: CreateSession, reply: Reply) {
        match self.check_session(caller, command) {
            Ok((command, id, chat)) => {
                let uri = Channel::from(command.uri.as_str());
                let boot = Boot::Create { caller: caller.clone(), command: Box::new(command), uri, chat, reply };
                self.shared.registry.create(id, boot);
            }
            Err(refusal) => reply(Err(refusal)),
        }
    }

    fn check_session(
        &self,
        caller: &Caller,
        mut command: CreateSession,
    ) -> Result<(CreateSession, ChannelId, ChannelId), Refusal> {
        if self.shared.is_stopping() {
            return Err(Refusal::new(RefusalKind::Unavailable, "busy", "the host is stopping"));
        }
        let provider = command.provider.take().or_else(|| self.shared.default_provider().map(str::to_owned));
        let provider = provider.unwrap_or_default();
        let Some(agent) = self.shared.agent(&provider) else {
            let text = format!("provider: there is no agent {provider:?} on this host");
            return Err(Refusal::new(RefusalKind::UnknownProvider, "unknown-provider", text));
        };
        command.provider = Some(provider);
        let own = |client: &ahp_types::state::SessionActiveClient| client.client_id == *caller.client_id;
        if command.active_client.as_ref().is_some_and(|client| !own(client)) {
            let text = "activeClient.clientId: a client speaks for itself alone";
            return Err(Refusal::new(RefusalKind::InvalidParams, "not-permitted", text));
        }
        command.config = Some(checked_config(agent.as_ref(), command.config.take())?);
        let many = agent.info().capabilities.is_some_and(|can| can.multiple_working_directories.is_some());
        command.working_directories = Some(self.directories(command.working_directories.take(), many)?);
        check_count(&self.shared)?;
        let (id, chat) = self.reserve(&command.uri)?;
        Ok((command, id, chat))
    }

    fn reserve(&self, uri: &str) -> Result<(ChannelId, ChannelId), Refusal> {
        let registry = &self.shared.registry;
        let taken = || {
            let text = format!("there is a session {uri} already");
            Refusal::new(RefusalKind::SessionExists, "session-exists", text)
        };
        let id = registry.reserve(uri, ChannelKind::Session, None).map_err(unavailable)?.ok_or_else(taken)?;
        let first = first_chat_uri(uri);
        match registry.reserve(&first, ChannelKind::Chat, Some(id)).map_err(unavailable) {
            Ok(Some(chat)) => Ok((id, chat)),
            Ok(None) => {
                registry.settle(uri);
                Err(taken())
            }
            Err(refusal) => {
                registry.settle(uri);
                Err(refusal)
            }
        }
    }

    /// `resolveSessionConfig`: the schema of all properties, and the values with defaults filled in.
    pub fn resolve_session_config(&self, provider: Option<&str>, config: Option<&JsonObject>) -> Answer {
        let provider = provider.or_else(|| self.shared.default_provider()).unwrap_or_default();
        let Some(agent) = self.shared.agent(provider) else {
            let text = format!("provider: there is no agent {provider:?} on this host");
            return Err(Refusal::new(RefusalKind::UnknownProvider, "unknown-provider", text));
        };
        let (schema, mut values) = configuration::of(agent.as_ref());
        values.extend(checked_config(agent.as_ref(), config.cloned())?);
        Ok(command::json(&ahp_types::commands::ResolveSessionConfigResult { schema, values }))
    }
}

/// Refuses one session more than the host may hold.
pub fn check_count(shared: &Shared) -> Result<(), Refusal> {
    let Some(limit) = shared.settings.max_sessions else { return Ok(()) };
    let count = catalogue::count(shared.store.as_ref()).map_err(unavailable)?;
    if count < limit as u64 {
        return Ok(());
    }
    metrics::counter!("scrollback_limit_met_total", "limit" => "sessions").increment(1);
    Err(Refusal::new(RefusalKind::Unavailable, "limit-exceeded", format!("the host holds at most {limit} sessions")))
}

/// The values that a session is created with, checked against the agent's schema.
fn checked_config(agent: &dyn Agent, config: Option<JsonObject>) -> Result<JsonObject, Refusal> {
    let config = config.unwrap_or_default();
    let (schema, _) = configuration::of(agent);
    for (key, value) in &config {
        let invalid = |text: String| Refusal::new(RefusalKind::InvalidParams, "invalid-params", text);
        let property = schema.properties.get(key);
        let property = property.ok_or_else(|| invalid(format!("config: the agent has no property {key}")))?;
        check_value(key, property, value).map_err(|problem| invalid(format!("config: {problem}")))?;
    }
    Ok(config)
}
