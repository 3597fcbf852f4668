//! The one table of methods: what each needs, and who serves it.
//!
//! A request for a notification's method is served once and answered `null`. A notification with a request's method is
//! ignored: nobody would hear its outcome. Unknown notifications are ignored, unknown requests are refused.
//! Source: AHP commands.

use std::rc::Rc;

use serde_json::value::RawValue;

use super::error::invalid_request;
use super::params::Params;
use super::peer::Peer;
use super::ticket::Ticket;
use super::{
    authenticate, chats, completions, extensions, handshake, reconnect, resources, sessions, subscribe, visuals,
    watches,
};
use crate::access::check;
use crate::actors::command::{Refusal, RefusalKind, null};
use crate::actors::connection::Caller;

/// How a method is served.
enum Handler {
    /// Before the handshake too.
    Always(fn(&Rc<Peer>, &Params<'_>, Ticket)),
    /// Only after the handshake.
    Request(fn(&Rc<Peer>, &Caller, &Params<'_>, Ticket)),
    /// Never answered, and only after the handshake.
    Notification(fn(&Rc<Peer>, &Caller, &Params<'_>) -> Result<(), Refusal>),
}

/// Every method that is served.
const METHODS: &[(&str, Handler)] = &[
    ("dispatchAction", Handler::Notification(chats::dispatch_action)),
    ("ping", Handler::Always(handshake::ping)),
    ("initialize", Handler::Always(handshake::initialize)),
    ("reconnect", Handler::Always(reconnect::reconnect)),
    ("authenticate", Handler::Request(authenticate::authenticate)),
    ("subscribe", Handler::Request(subscribe::subscribe)),
    ("unsubscribe", Handler::Notification(subscribe::unsubscribe)),
    ("listSessions", Handler::Request(sessions::list)),
    ("createSession", Handler::Request(sessions::create)),
    ("disposeSession", Handler::Request(sessions::dispose)),
    ("resolveSessionConfig", Handler::Request(sessions::resolve_config)),
    ("sessionConfigCompletions", Handler::Request(sessions::config_completions)),
    ("createChat", Handler::Request(chats::create)),
    ("disposeChat", Handler::Request(chats::dispose)),
    ("moveChat", Handler::Request(chats::move_to)),
    ("fetchTurns", Handler::Request(chats::fetch_turns)),
    ("completions", Handler::Request(completions::completions)),
    ("resourceRead", Handler::Request(resources::read)),
    ("resourceWrite", Handler::Request(resources::write)),
    ("resourceList", Handler::Request(resources::list)),
    ("resourceCopy", Handler::Request(resources::copy)),
    ("resourceMove", Handler::Request(resources::rename)),
    ("resourceDelete", Handler::Request(resources::delete)),
    ("resourceResolve", Handler::Request(resources::resolve)),
    ("resourceMkdir", Handler::Request(resources::make_directory)),
    ("resourceRequest", Handler::Request(resources::request)),
    ("createResourceWatch", Handler::Request(watches::create)),
    (extensions::STATE_AT, Handler::Request(extensions::state_at)),
    (extensions::SEND_NOW, Handler::Request(extensions::send_now)),
    ("x-scrollback/publishVisual", Handler::Request(visuals::publish)),
    ("x-scrollback/listVisuals", Handler::Request(visuals::list)),
    ("x-scrollback/removeVisual", Handler::Request(visuals::remove)),
    (extensions::CLEAR, Handler::Request(extensions::clear)),
    (extensions::COMPACT, Handler::Request(extensions::compact)),
    (extensions::STOP_BACKGROUND_WORK, Handler::Request(extensions::stop_background_work)),
    (extensions::FORK_AT, Handler::Request(extensions::fork_at)),
    // Sent by released clients; there is nothing to do, and nothing to answer.
    ("setClientManagedSettingsPermissions", Handler::Notification(|_, _, _| Ok(()))),
];

fn find(method: &str) -> Option<&'static Handler> {
    METHODS.iter().find(|(name, _)| *name == method).map(|(_, handler)| handler)
}

/// The method, as the process's own log has it: what is not served is a client's text.
pub fn known(method: &str) -> &'static str {
    METHODS.iter().find(|(name, _)| *name == method).map_or("unknown", |(name, _)| name)
}

/// Serves a request.
pub fn request(peer: &Rc<Peer>, method: &str, params: Option<&RawValue>, ticket: Ticket) {
    let handler = find(method);
    let caller = peer.caller();
    let (handler, caller) = match (handler, caller) {
        (Some(Handler::Always(serve)), _) => {
            let Some((ticket, params)) = ticket.checked(Params::read(params)) else { return };
            return serve(peer, &params, ticket);
        }
        (_, None) => {
            let message = format!("{method}: the handshake comes first: initialize or reconnect");
            return ticket.refuse(invalid_request("not-initialized", message));
        }
        (None, _) => {
            let message = format!("{method}: is not served");
            return ticket.refuse(Refusal::new(RefusalKind::UnknownMethod, "unknown-method", message));
        }
        (Some(handler), Some(caller)) => (handler, caller),
    };
    let Some((ticket, params)) = ticket.checked(Params::read(params)) else { return };
    let channel = params.channel().ok();
    let permitted = check::command(&peer.app.host, &caller.who, method, channel.as_deref());
    let Some((ticket, ())) = ticket.checked(permitted) else { return };
    match handler {
        Handler::Request(serve) => serve(peer, &caller, &params, ticket),
        Handler::Notification(serve) => ticket.answer(serve(peer, &caller, &params).map(|()| null())),
        Handler::Always(serve) => serve(peer, &params, ticket),
    }
}

/// Serves a notification; what is wrong with it is only for the log.
pub fn notification(peer: &Rc<Peer>, method: &str, params: Option<&RawValue>) {
    let (Some(Handler::Notification(serve)), Some(caller)) = (find(method), peer.caller()) else {
        return tracing::debug!("a notification that is not served");
    };
    let served = Params::read(params).and_then(|params| {
        check::command(&peer.app.host, &caller.who, method, params.channel().ok().as_deref())?;
        serve(peer, &caller, &params)
    });
    if let Err(refusal) = served {
        tracing::debug!(method, code = refusal.code, "a malformed notification");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::table;

    #[test]
    fn every_method_has_written_down_what_it_needs_and_nothing_else_has() {
        let mut served: Vec<&str> = METHODS.iter().map(|(name, _)| *name).collect();
        let mut written: Vec<&str> = table::COMMANDS.iter().map(|(name, _)| *name).collect();
        served.sort_unstable();
        written.sort_unstable();
        assert_eq!(served, written);
    }

    #[test]
    fn only_the_ping_and_the_handshakes_are_served_before_the_handshake() {
        let always = METHODS.iter().filter(|(_, handler)| matches!(handler, Handler::Always(_)));
        assert_eq!(always.map(|(name, _)| *name).collect::<Vec<_>>(), ["ping", "initialize", "reconnect"]);
    }
}
