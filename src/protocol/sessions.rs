//! The commands of sessions: `listSessions`, `createSession`, `disposeSession`, `resolveSessionConfig`, `sessionConfigCompletions`.
//!
//! Source: AHP commands; `createSession`.

use std::rc::Rc;
use std::sync::Arc;

use super::error::{internal, invalid_params};
use super::names;
use super::params::Params;
use super::peer::Peer;
use super::ticket::Ticket;
use crate::access::check;
use crate::actors::command::{Answer, Refusal};
use crate::actors::connection::Caller;
use crate::actors::host::CreateSession;
use crate::projections::people::Operation;

/// The most sessions of one page.
const MAX_PAGE: u64 = 1_000;

/// Answers a page of the sessions, newest first.
pub fn list(peer: &Rc<Peer>, caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let Some((ticket, (limit, cursor))) = ticket.checked(read_page(params)) else { return };
    let (host, who) = (Arc::clone(&peer.app.host), Arc::clone(&caller.who));
    answer_later(peer, ticket, move || host.list_sessions(&who, limit, cursor.as_deref()));
}

/// Answers with what `read` finds in the store, which may take its time: all that was shown so far, where the disk takes it.
pub fn answer_later(peer: &Peer, ticket: Ticket, read: impl FnOnce() -> Answer + Send + 'static) {
    let host = Arc::clone(&peer.app.host);
    actix_rt::spawn(async move {
        let _ = host.writer().barrier().await;
        let answer = actix_web::web::block(read).await;
        ticket.answer(answer.unwrap_or_else(|fault| Err(internal(&fault))));
    });
}

fn read_page(params: &Params<'_>) -> Result<(Option<u64>, Option<String>), Refusal> {
    params.for_root()?;
    let what = "a whole number from 1 to 1000";
    let limit: Option<u64> = params.optional("limit", what)?;
    if limit.is_some_and(|limit| !(1..=MAX_PAGE).contains(&limit)) {
        return Err(invalid_params("limit", &format!("must be {what}")));
    }
    Ok((limit, params.optional("cursor", "a string")?))
}

/// Creates a session; answers `null`.
pub fn create(peer: &Rc<Peer>, caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let Some((ticket, command)) = ticket.checked(read_create(peer, caller, params)) else { return };
    peer.app.host.create_session(caller, command, ticket.reply());
}

fn read_create(peer: &Peer, caller: &Caller, params: &Params<'_>) -> Result<CreateSession, Refusal> {
    let command = CreateSession {
        uri: params.channel()?,
        provider: params.optional("provider", "a string")?,
        working_directories: params.optional("workingDirectories", "an array of URIs")?,
        config: params.optional("config", "an object")?,
        active_client: params.optional("activeClient", "an object with clientId and tools")?,
        progress_token: params.optional("progressToken", "a string")?,
    };
    let agents = peer.app.host.agents().iter().map(|agent| agent.provider());
    if !names::is_session(&command.uri, agents.chain(command.provider.as_deref())) {
        return Err(invalid_params("channel", "must be ahp-session:/<id> or <provider>:/<id>"));
    }
    if command.active_client.as_ref().is_some_and(|client| *client.client_id != *caller.client_id) {
        return Err(invalid_params("activeClient.clientId", "must be the caller's"));
    }
    if command.active_client.is_some() && !peer.app.host.may(&caller.who, Operation::ChatTool, Some(&command.uri)) {
        return Err(check::refused(format!("activeClient: {}", Operation::ChatTool.not_granted())));
    }
    Ok(command)
}

/// Disposes a session; answers `null`.
pub fn dispose(peer: &Rc<Peer>, caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let Some((ticket, session)) = ticket.checked(params.channel()) else { return };
    peer.app.host.dispose_session(caller, &session, ticket.reply());
}

/// Answers the schema and the values of a session's configuration.
pub fn resolve_config(peer: &Rc<Peer>, _caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let Some((ticket, (provider, config))) = ticket.checked(read_config(params)) else { return };
    ticket.answer(peer.app.host.resolve_session_config(provider.as_deref(), config));
}

/// Answers the values that a property of the configuration can have.
pub fn config_completions(peer: &Rc<Peer>, _caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let read = || -> Result<_, Refusal> {
        let (provider, config) = read_config(params)?;
        let query: Option<String> = params.optional("query", "a string")?;
        Ok((provider, config.unwrap_or_default(), params.name("property")?, query.unwrap_or_default()))
    };
    let Some((ticket, (provider, config, property, query))) = ticket.checked(read()) else { return };
    let (host, max) = (Arc::clone(&peer.app.host), peer.app.settings.max_completions);
    answer_later(peer, ticket, move || host.config_completions(provider.as_deref(), &property, &config, &query, max));
}

type Config = serde_json::Map<String, serde_json::Value>;

fn read_config(params: &Params<'_>) -> Result<(Option<String>, Option<Config>), Refusal> {
    params.for_root()?;
    let _: Option<String> = params.optional("workingDirectory", "a URI")?;
    Ok((params.optional("provider", "a string")?, params.optional("config", "an object")?))
}
