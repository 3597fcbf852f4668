//! The commands of chats: `dispatchAction`, `createChat`, `disposeChat`, `moveChat`, `fetchTurns`.
//!
//! Source: AHP `dispatchAction`, `createChat`, windows and `fetchTurns`.

use std::rc::Rc;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::LONG;
use super::error::invalid_params;
use super::names;
use super::params::{Params, check_name};
use super::peer::Peer;
use super::ticket::Ticket;
use crate::access::{check, table};
use crate::actors::command::Refusal;
use crate::actors::connection::Caller;
use crate::actors::host::{CreateChat, Destination};
use crate::actors::session::sources::Source;
use crate::events::Channel;
use crate::events::channel::ROOT;
use crate::projections::people::Operation;

/// Hands an action to its channel. Its fate is told by an envelope, never by an answer.
///
/// # Errors
/// A refusal when there is no channel, no whole `clientSeq` or no action: nothing that could be echoed.
pub fn dispatch_action(peer: &Rc<Peer>, caller: &Caller, params: &Params<'_>) -> Result<(), Refusal> {
    let channel = params.channel()?;
    let client_seq: i64 = params.required("clientSeq", "a whole number")?;
    let action = params.raw("action").ok_or_else(|| invalid_params("action", "is missing"))?;
    if action.get().len() < LONG {
        peer.app.host.dispatch(caller, &channel, client_seq, action, &table::of_action);
    } else {
        dispatch_long(peer, caller.clone(), channel, client_seq, action.to_owned());
    }
    Ok(())
}

/// Hands over an action that takes its time to read, from a thread where that holds up nobody. Its sender is not read meanwhile.
fn dispatch_long(peer: &Rc<Peer>, caller: Caller, channel: String, client_seq: i64, action: Box<RawValue>) {
    let (app, working) = (Arc::clone(&peer.app), peer.work());
    actix_rt::spawn(async move {
        // Never closed.
        let _turn = app.long_actions.acquire().await;
        let host = Arc::clone(&app.host);
        let dispatch = move || host.dispatch(&caller, &channel, client_seq, &action, &table::of_action);
        if actix_web::web::block(dispatch).await.is_err() {
            tracing::debug!("a long action came when the host stopped");
        }
        drop(working);
    });
}

/// Creates a chat in a session; answers `null`.
pub fn create(peer: &Rc<Peer>, caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let read = read_create(params).and_then(|command| may_create(peer, caller, &command).map(|()| command));
    let Some((ticket, command)) = ticket.checked(read) else { return };
    peer.app.host.create_chat(caller, command, ticket.reply());
}

/// What a new chat needs beside its making: its source is forked, its first message is sent.
fn may_create(peer: &Peer, caller: &Caller, command: &CreateChat) -> Result<(), Refusal> {
    let needs = [
        (matches!(command.source, Some(Source::Fork { .. })), Operation::ChatFork),
        (command.initial_message.is_some(), Operation::ChatSend),
    ];
    for (_, operation) in needs.into_iter().filter(|(is_asked, _)| *is_asked) {
        check::may(&peer.app.host, &caller.who, operation, &command.session)?;
    }
    Ok(())
}

fn read_create(params: &Params<'_>) -> Result<CreateChat, Refusal> {
    let (session, chat) = (params.channel()?, params.name("chat")?);
    if !names::is_chat(&chat) {
        return Err(invalid_params("chat", "must be the URI of a chat, such as ahp-chat:/<id>"));
    }
    let initial_message = params.raw("initialMessage").map(ToOwned::to_owned);
    if initial_message.as_ref().is_some_and(|message| !message.get().starts_with('{')) {
        return Err(invalid_params("initialMessage", "must be an object"));
    }
    let source: Option<serde_json::Value> = params.optional("source", "an object")?;
    let source = source.map(|source| Source::parse(&source)).transpose()?;
    let working_directories = params.optional("workingDirectories", "an array of URIs")?;
    let (with_bytes, attached) = (None, None);
    Ok(CreateChat { session, chat, initial_message, source, working_directories, with_bytes, attached })
}

/// Disposes a chat; answers `null`.
pub fn dispose(peer: &Rc<Peer>, caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let Some((ticket, chat)) = ticket.checked(params.channel()) else { return };
    peer.app.host.dispose_chat(caller, &chat, ticket.reply());
}

/// Moves a chat in its session, to another one, or to one of its own; answers the session's URI.
pub fn move_to(peer: &Rc<Peer>, caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let read = read_move(params).and_then(|(chat, destination)| {
        match &destination {
            Destination::NewSession => check::may(&peer.app.host, &caller.who, Operation::SessionCreate, ROOT)?,
            Destination::Session { session, .. } => {
                check::may(&peer.app.host, &caller.who, Operation::ChatCreate, session)?;
            }
        }
        Ok((chat, destination))
    });
    let Some((ticket, (chat, destination))) = ticket.checked(read) else { return };
    peer.app.host.move_chat(caller, &chat, destination, ticket.reply());
}

fn read_move(params: &Params<'_>) -> Result<(String, Destination), Refusal> {
    let chat = params.channel()?;
    let destination = params.raw("destination").ok_or_else(|| invalid_params("destination", "is missing"))?;
    let destination = match destination.get().starts_with('{') {
        true => Params::read(Some(destination))?,
        false => return Err(invalid_params("destination", "must be an object")),
    };
    let kind: String = destination.required("kind", "a string")?;
    match kind.as_str() {
        "newSession" => Ok((chat, Destination::NewSession)),
        "session" => {
            let after: Option<String> = destination.optional("after", "the URI of a chat")?;
            let session = destination.name("session")?;
            Ok((chat, Destination::Session { session, after }))
        }
        _ => Err(invalid_params("kind", "must be session or newSession")),
    }
}

/// Publishes a page of older turns and answers `{}`.
pub fn fetch_turns(peer: &Rc<Peer>, caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let Some((ticket, (chat, cursor))) = ticket.checked(read_fetch(params)) else { return };
    let window = peer.connection.window(&Channel::from(chat.as_str()));
    peer.app.host.fetch_turns(caller, &chat, cursor.as_deref(), window, ticket.reply());
}

fn read_fetch(params: &Params<'_>) -> Result<(String, Option<String>), Refusal> {
    let cursor: Option<String> = params.optional("cursor", "a string")?;
    if let Some(cursor) = &cursor {
        check_name("cursor", cursor)?;
    }
    Ok((params.channel()?, cursor))
}
