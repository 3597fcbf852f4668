//! `createResourceWatch`.
//!
//! Source: AHP `createResourceWatch`.

use std::rc::Rc;
use std::sync::Arc;

use ahp_types::commands::CreateResourceWatchResult;
use ahp_types::state::ResourceWatchState;
use serde::{Deserialize, Serialize};

use super::error::invalid_params;
use super::params::Params;
use super::peer::Peer;
use super::resources::{self, serve};
use super::ticket::Ticket;
use crate::actors::command::{self, Refusal};
use crate::actors::connection::Caller;
use crate::resources::{Filter, Watch};

/// Patterns, wrapped as the protocol has them.
#[derive(Debug, Deserialize, Serialize)]
struct Items {
    items: Vec<String>,
}

/// Begins a watch and answers its channel.
pub fn create(peer: &Rc<Peer>, caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let Some((ticket, (watch, state))) = ticket.checked(read(params)) else { return };
    let reserved = peer.app.host.reserve_watch(caller, &serde_json::to_value(&state).unwrap_or_default());
    let Some((ticket, channel)) = ticket.checked(reserved) else { return };
    let host = Arc::clone(&peer.app.host);
    serve(peer, ticket, resources::looked_at(watch.uri.clone()), move |_, _| {
        host.begin_watch(&channel, watch)?;
        Ok(command::json(&CreateResourceWatchResult { channel: channel.to_string() }))
    });
}

fn read(params: &Params<'_>) -> Result<(Watch, ResourceWatchState), Refusal> {
    params.for_root()?;
    let uri = resources::uri(params, "uri")?;
    let recursive = params.optional("recursive", "true or false")?.unwrap_or(false);
    let what = "an object whose items are texts";
    let includes: Option<Items> = params.optional("includes", what)?;
    let excludes: Option<Items> = params.optional("excludes", what)?;
    let none: &[String] = &[];
    let (only, without) =
        (includes.as_ref().map(|one| one.items.as_slice()), excludes.as_ref().map(|one| one.items.as_slice()));
    let filter = Filter::new(only, without.unwrap_or(none))
        .map_err(|fault| invalid_params("excludes, includes", &fault.to_string()))?;
    let json = |items: Option<Items>| items.and_then(|items| serde_json::to_value(items).ok());
    let state = ResourceWatchState { root: uri.clone(), recursive, excludes: json(excludes), includes: json(includes) };
    Ok((Watch { uri, recursive, filter }, state))
}
