//! The check of a command or a request against the table, before anything of it is looked at.

use super::table::{self, Needs};
use crate::actors::command::{Refusal, RefusalKind};
use crate::actors::host::Host;
use crate::actors::identity::Identity;
use crate::projections::people::Operation;

/// Whether `who` may send a command with this method, whose params name `channel`.
///
/// A channel that is not there, or that one may not read, passes: it is told of as one that is not there.
///
/// # Errors
/// A [`Refusal`] of kind `NotPermitted`.
pub fn command(host: &Host, who: &Identity, method: &str, channel: Option<&str>) -> Result<(), Refusal> {
    permitted(host, who, method, table::of_command(method), channel)
}

/// The same for a request of HTTP with this method and the path of its route.
///
/// # Errors
/// A [`Refusal`] of kind `NotPermitted`.
pub fn route(host: &Host, who: &Identity, method: &str, path: &str) -> Result<(), Refusal> {
    permitted(host, who, path, table::of_route(method, path), None)
}

fn permitted(
    host: &Host,
    who: &Identity,
    name: &str,
    needs: Option<Needs>,
    channel: Option<&str>,
) -> Result<(), Refusal> {
    if who.is_root() {
        return Ok(());
    }
    if !host.is_known(who) {
        return Err(refused(format!("{name}: the token of this connection is not good any more")));
    }
    let Some(needs) = needs else {
        return Err(refused(format!("{name}: is not granted to anybody")));
    };
    let (operation, may) = match needs {
        Needs::Nothing | Needs::Reading | Needs::Action => return Ok(()),
        Needs::Deployment => return Err(refused(format!("{name}: needs the token of the deployment"))),
        Needs::Somewhere(operation) => (operation, host.may_somewhere(who, operation)),
        Needs::New(operation) => (operation, host.may(who, operation, channel)),
        Needs::Operation(operation) => {
            let may =
                channel.map_or_else(|| host.may(who, operation, None), |at| may(host, who, operation, at).is_ok());
            (operation, may)
        }
    };
    if may { Ok(()) } else { Err(refused(format!("{name}: {}", operation.not_granted()))) }
}

/// The refusal of what was not granted.
pub fn refused(message: String) -> Refusal {
    Refusal::new(RefusalKind::NotPermitted, "not-permitted", message)
}

/// Whether `who` may do it in the session of the channel that is named; of one that they may not read they hear elsewhere that
/// it is not there.
///
/// # Errors
/// A [`Refusal`] of kind `NotPermitted`.
pub fn may(host: &Host, who: &Identity, operation: Operation, channel: &str) -> Result<(), Refusal> {
    let is_hidden = || host.may_somewhere(who, operation) && !host.may_read(who, channel);
    if host.may(who, operation, Some(channel)) || is_hidden() {
        return Ok(());
    }
    Err(Refusal::not_permitted(operation))
}
