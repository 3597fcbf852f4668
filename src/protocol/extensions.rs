//! The commands that are ours, under the prefix that AHP leaves to implementations.
//!
//! Announced in `InitializeResult._meta`. Source: the outer contract, extension names.

use std::rc::Rc;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::error::internal;
use super::params::Params;
use super::peer::Peer;
use super::sessions::answer_later;
use super::ticket::Ticket;
use crate::actors::command::Refusal;
use crate::actors::connection::Caller;
use crate::events::ServerSeq;

/// The state of a channel as it was.
pub const STATE_AT: &str = "x-scrollback/stateAt";

/// The extensions that are served.
pub const NAMES: &[&str] =
    &[STATE_AT, "x-scrollback/publishVisual", "x-scrollback/listVisuals", "x-scrollback/removeVisual"];

/// Answers the snapshot of a channel right after an event.
pub fn state_at(peer: &Rc<Peer>, _caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let Some((ticket, (channel, at))) = ticket.checked(read(params)) else { return };
    let host = Arc::clone(&peer.app.host);
    answer_later(peer, ticket, move || {
        let snapshot = host.state_at(&channel, Some(at))?;
        RawValue::from_string(snapshot.json()).map_err(|fault| internal(&fault))
    });
}

fn read(params: &Params<'_>) -> Result<(String, ServerSeq), Refusal> {
    Ok((params.channel()?, params.required("serverSeq", "a whole number")?))
}
