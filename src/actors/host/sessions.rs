//! The list of sessions, and what is checked before a new one is made.

use std::sync::Arc;

use ahp_types::commands::{SessionConfigCompletionsResult, SessionConfigValueItem};
use ahp_types::common::JsonObject;
use ahp_types::state::{SessionConfigPropertySchema, SessionConfigSchema};

use super::{CreateSession, Host};
use crate::actors::agent::Agent;
use crate::actors::command::{self, Answer, Refusal, RefusalKind, Reply};
use crate::actors::connection::Caller;
use crate::actors::identity::Identity;
use crate::actors::registry::first_chat_uri;
use crate::actors::session::{Boot, configuration, resolved};
use crate::actors::shared::Shared;
use crate::events::rows::ChannelKind;
use crate::events::{Channel, ChannelId};
use crate::projections::catalogue;
use crate::projections::people::Operation;

impl Host {
    /// `listSessions`: those that `who` may see in the list, newest first. At most `limit` (1,000 where absent), then a cursor.
    pub fn list_sessions(&self, who: &Identity, limit: Option<u64>, cursor: Option<&str>) -> Answer {
        let limit = limit.unwrap_or(catalogue::PAGE_LIMIT).min(catalogue::PAGE_LIMIT);
        let sees = |session: &str| self.shared.may(who, Operation::SessionList, Some(session));
        match catalogue::page(self.shared.store.as_ref(), limit, cursor, sees).map_err(Refusal::log_unavailable)? {
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
        command.config = Some(checked_config(agent.as_ref(), command.config.take())?.1);
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
        // What is sent to the short name of its first chat may not come out in somebody else's.
        let short = catalogue::last_segment(uri).map(|segment| format!("ahp-chat:/{segment}"));
        if let Some(short) = short
            && registry
                .resolve(&short)
                .map_err(Refusal::log_unavailable)?
                .is_some_and(|it| it.channel.as_str() == short)
        {
            let text = format!("{short}, the short name of its first chat, is the name of another chat");
            return Err(Refusal::new(RefusalKind::SessionExists, "session-exists", text));
        }
        let id =
            registry.reserve(uri, ChannelKind::Session, None).map_err(Refusal::log_unavailable)?.ok_or_else(taken)?;
        let first = first_chat_uri(uri);
        match registry.reserve(&first, ChannelKind::Chat, Some(id)).map_err(Refusal::log_unavailable) {
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
    pub fn resolve_session_config(&self, provider: Option<&str>, config: Option<JsonObject>) -> Answer {
        let agent = self.configured_agent(provider)?;
        let (schema, values) = checked_config(agent.as_ref(), config)?;
        Ok(command::json(&ahp_types::commands::ResolveSessionConfigResult { schema, values }))
    }

    /// `sessionConfigCompletions`: the values of a property that fit a query. Run it where blocking is fine.
    pub fn config_completions(
        &self,
        provider: Option<&str>,
        property: &str,
        config: &JsonObject,
        query: &str,
        max: usize,
    ) -> Answer {
        let agent = self.configured_agent(provider)?;
        let (schema, _) = configuration::of(agent.as_ref());
        let Some(described) = schema.properties.get(property) else {
            let text = format!("property: the agent has no property {property}");
            return Err(Refusal::new(RefusalKind::InvalidParams, "invalid-params", text));
        };
        let mut items = match described.enum_dynamic {
            Some(true) => agent.config_values(property, config, query),
            _ => listed_values(described, query),
        };
        items.truncate(max);
        Ok(command::json(&SessionConfigCompletionsResult { items }))
    }

    fn configured_agent(&self, provider: Option<&str>) -> Result<&Arc<dyn Agent>, Refusal> {
        let provider = provider.or_else(|| self.shared.default_provider()).unwrap_or_default();
        self.shared.agent(provider).ok_or_else(|| {
            let text = format!("provider: there is no agent {provider:?} on this host");
            Refusal::new(RefusalKind::UnknownProvider, "unknown-provider", text)
        })
    }
}

/// Refuses one session more than the host may hold.
pub fn check_count(shared: &Shared) -> Result<(), Refusal> {
    let Some(limit) = shared.settings.max_sessions else { return Ok(()) };
    let count = catalogue::count(shared.store.as_ref()).map_err(Refusal::log_unavailable)?;
    if count < limit as u64 {
        return Ok(());
    }
    metrics::counter!("scrollback_limit_met_total", "limit" => "sessions").increment(1);
    Err(Refusal::new(RefusalKind::Unavailable, "limit-exceeded", format!("the host holds at most {limit} sessions")))
}

/// The values that the schema lists itself and that fit a query.
fn listed_values(property: &SessionConfigPropertySchema, query: &str) -> Vec<SessionConfigValueItem> {
    let query = query.to_lowercase();
    let at = |list: &Option<Vec<String>>, index: usize| list.as_ref().and_then(|list| list.get(index)).cloned();
    let listed = property.r#enum.iter().flatten().enumerate().map(|(index, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let label = at(&property.enum_labels, index).unwrap_or_else(|| value.clone());
        SessionConfigValueItem { value, label, description: at(&property.enum_descriptions, index) }
    });
    let fits = |item: &SessionConfigValueItem| {
        item.value.to_lowercase().contains(&query) || item.label.to_lowercase().contains(&query)
    };
    listed.filter(fits).collect()
}

/// The schema and the values that a session is created with, checked against it.
fn checked_config(agent: &dyn Agent, config: Option<JsonObject>) -> Result<(SessionConfigSchema, JsonObject), Refusal> {
    resolved(agent, config)
        .map_err(|problem| Refusal::new(RefusalKind::InvalidParams, "invalid-params", format!("config: {problem}")))
}
