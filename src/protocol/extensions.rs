//! The commands that are ours, under the prefix that AHP leaves to implementations.
//!
//! Announced in `InitializeResult._meta`. Source: the outer contract, extension names.

use std::rc::Rc;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::error::{internal, invalid_params};
use super::params::Params;
use super::peer::Peer;
use super::sessions::answer_later;
use super::ticket::Ticket;
use crate::actors::command::{ChatCommand, Refusal};
use crate::actors::connection::Caller;
use crate::actors::session::sources::Moment;
use crate::events::ServerSeq;

/// The state of a channel as it was.
pub const STATE_AT: &str = "x-scrollback/stateAt";

/// A queued message goes out now.
pub const SEND_NOW: &str = "x-scrollback/sendNow";

/// A chat starts over.
pub const CLEAR: &str = "x-scrollback/clear";

/// An agent's context is made smaller.
pub const COMPACT: &str = "x-scrollback/compact";

/// Background work is stopped.
pub const STOP_BACKGROUND_WORK: &str = "x-scrollback/stopBackgroundWork";

/// A chat made of another as it was at any moment.
pub const FORK_AT: &str = "x-scrollback/forkAt";

/// The extensions that are served.
pub const NAMES: &[&str] = &[
    STATE_AT,
    SEND_NOW,
    CLEAR,
    COMPACT,
    STOP_BACKGROUND_WORK,
    FORK_AT,
    "x-scrollback/publishVisual",
    "x-scrollback/listVisuals",
    "x-scrollback/removeVisual",
];

/// Forks a chat at any turn that ever was; answers `null`.
pub fn fork_at(peer: &Rc<Peer>, caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let Some((ticket, (source, chat, moment))) = ticket.checked(read_fork_at(params)) else { return };
    peer.app.host.fork_at(caller, &source, chat, moment, ticket.reply());
}

fn read_fork_at(params: &Params<'_>) -> Result<(String, String, Moment), Refusal> {
    let seq: Option<ServerSeq> = params.optional("serverSeq", "a whole number")?;
    let turn: Option<String> = params.optional("turnId", "a string")?;
    let moment = match (seq, turn) {
        (Some(seq), None) => Moment::Seq(seq),
        (None, Some(turn)) => Moment::Turn(turn),
        _ => return Err(invalid_params("serverSeq", "or turnId must be there, and not both")),
    };
    Ok((params.channel()?, params.name("chat")?, moment))
}

/// Sends a queued message now; answers `null`.
pub fn send_now(peer: &Rc<Peer>, caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let read = || Ok((params.channel()?, params.name("id")?));
    let Some((ticket, (chat, id))) = ticket.checked(read()) else { return };
    peer.app.host.command(caller, &chat, ChatCommand::SendNow { id }, ticket.reply());
}

/// Starts a chat over; answers `null`.
pub fn clear(peer: &Rc<Peer>, caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let read = || Ok((params.channel()?, params.optional("force", "a boolean")?.unwrap_or(false)));
    let Some((ticket, (chat, force))) = ticket.checked(read()) else { return };
    peer.app.host.command(caller, &chat, ChatCommand::Clear { force }, ticket.reply());
}

/// Asks a chat's agent to compact its context; answers `null` once its turn has begun.
pub fn compact(peer: &Rc<Peer>, caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let Some((ticket, chat)) = ticket.checked(params.channel()) else { return };
    peer.app.host.command(caller, &chat, ChatCommand::Compact, ticket.reply());
}

/// Stops one background task of a chat; answers `null`.
pub fn stop_background_work(peer: &Rc<Peer>, caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let read = || Ok((params.channel()?, params.name("id")?));
    let Some((ticket, (chat, id))) = ticket.checked(read()) else { return };
    peer.app.host.command(caller, &chat, ChatCommand::StopBackgroundWork { id }, ticket.reply());
}

/// Answers the snapshot of a channel right after an event.
pub fn state_at(peer: &Rc<Peer>, caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let Some((ticket, (channel, at))) = ticket.checked(read(params)) else { return };
    let (host, who) = (Arc::clone(&peer.app.host), Arc::clone(&caller.who));
    answer_later(peer, ticket, move || {
        let snapshot = host.state_at(&who, &channel, Some(at))?;
        RawValue::from_string(snapshot.json()).map_err(|fault| internal(&fault))
    });
}

fn read(params: &Params<'_>) -> Result<(String, ServerSeq), Refusal> {
    Ok((params.channel()?, params.required("serverSeq", "a whole number")?))
}
