//! The commands for visuals: `x-scrollback/publishVisual`, `listVisuals`, `removeVisual`.
//!
//! Source: the outer contract, extension names.

use std::rc::Rc;

use super::params::Params;
use super::peer::Peer;
use super::ticket::Ticket;
use crate::actors::command::Refusal;
use crate::actors::connection::Caller;
use crate::actors::visuals::{NewVisual, VisualCommand};

/// Publishes a page in a chat; answers what is known of it.
pub fn publish(peer: &Rc<Peer>, caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    serve(peer, caller, params, ticket, |params| {
        let visual = NewVisual {
            title: params.required("title", "a string")?,
            html: params.required("html", "a string")?,
            max_height: params.optional("maxHeight", "a whole number")?,
            heights: params.optional("heights", "an array of [width, height] in whole numbers")?,
            turn_id: params.optional("turnId", "a string")?,
        };
        Ok(VisualCommand::Publish(Box::new(visual)))
    });
}

/// Answers the visuals of a chat.
pub fn list(peer: &Rc<Peer>, caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    serve(peer, caller, params, ticket, |_| Ok(VisualCommand::List));
}

/// Removes a visual of a chat; answers those that are left.
pub fn remove(peer: &Rc<Peer>, caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    serve(peer, caller, params, ticket, |params| Ok(VisualCommand::Remove { id: params.required("id", "a string")? }));
}

fn serve(
    peer: &Rc<Peer>,
    caller: &Caller,
    params: &Params<'_>,
    ticket: Ticket,
    read: impl FnOnce(&Params<'_>) -> Result<VisualCommand, Refusal>,
) {
    let read = params.channel().and_then(|chat| Ok((chat, read(params)?)));
    let Some((ticket, (chat, command))) = ticket.checked(read) else { return };
    peer.app.host.visual(&caller.who, &chat, command, ticket.reply());
}
