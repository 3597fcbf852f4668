//! `authenticate`: a client gives a token for a resource that an agent advertises.
//!
//! Nothing that is said of its params repeats them: the token may stand in any of them by mistake. Source: AHP `authenticate`.

use std::rc::Rc;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use super::error::invalid_params;
use super::params::Params;
use super::peer::Peer;
use super::ticket::Ticket;
use crate::actors::command::{self, Refusal};
use crate::actors::connection::Caller;
use crate::actors::resource_tokens::MAX_TOKEN;
use crate::clock;

/// What a client gives.
struct Authenticate {
    resource: String,
    token: SecretString,
    /// How long it is good from now on; `None` where nobody knows.
    expires_in: Option<Duration>,
}

/// Takes a token, or takes one back; answers `{}`.
pub fn authenticate(peer: &Rc<Peer>, caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let Some((ticket, given)) = ticket.checked(read(params)) else { return };
    let host = &peer.app.host;
    let expires_at = given.expires_in.map(|span| clock::later(host.clock().now(), span));
    let taken = host.authenticate(caller, &given.resource, given.token, expires_at);
    ticket.answer(taken.map(|()| command::json(&json!({}))));
}

fn read(params: &Params<'_>) -> Result<Authenticate, Refusal> {
    params.for_root()?;
    let resource = params.name("resource")?;
    let token: SecretString = params.required::<String>("token", "a string")?.into();
    if token.expose_secret().len() > MAX_TOKEN {
        return Err(invalid_params("token", &format!("must not be longer than {MAX_TOKEN} bytes")));
    }
    if !token.expose_secret().bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(invalid_params("token", "must be made of visible ASCII characters without spaces"));
    }
    let what = "a whole number of seconds, from 1";
    let expires_in: Option<u64> = params.optional("expiresIn", what)?;
    if expires_in == Some(0) {
        return Err(invalid_params("expiresIn", &format!("must be {what}")));
    }
    // Whether they are enough is for the endpoint to say.
    let _: Option<Vec<String>> = params.optional("scopes", "an array of strings")?;
    Ok(Authenticate { resource, token, expires_in: expires_in.map(Duration::from_secs) })
}
