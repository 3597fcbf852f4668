//! `ping` and `initialize`.
//!
//! Source: AHP `initialize`, `ping`, versioning.

use std::collections::HashSet;
use std::rc::Rc;

use ahp_types::{SUPPORTED_PROTOCOL_VERSIONS, negotiate_protocol_version};
use serde_json::{Value, json};

use super::collect::{Collection, Wanted};
use super::error::invalid_params;
use super::extensions;
use super::params::{Params, check_name};
use super::peer::{Peer, release};
use super::subscribe::Logs;
use super::ticket::Ticket;
use crate::actors::command::{Refusal, RefusalKind, null};
use crate::actors::connection::Caller;
use crate::events::{Channel, ServerSeq};
use crate::projections::people::Operation;
use crate::telemetry;

/// The close code after a handshake that can never succeed.
const CLOSE_POLICY: u16 = 1008;

/// Answers `null`, whatever else is wrong.
pub fn ping(peer: &Rc<Peer>, _params: &Params<'_>, ticket: Ticket) {
    ticket.answer_on(&peer.connection, Ok(null().get().to_owned()));
}

/// What `initialize` asks for.
struct Initialize {
    client_id: String,
    versions: Vec<String>,
    subscriptions: Vec<Wanted>,
}

/// Agrees on a version and answers with the snapshots of the channels that the client begins with.
pub fn initialize(peer: &Rc<Peer>, params: &Params<'_>, ticket: Ticket) {
    let Some((ticket, ())) = ticket.checked(peer.begin()) else { return };
    let prepared = prepare(peer, params);
    let (caller, version, wanted) = match prepared {
        Ok(prepared) => prepared,
        Err(refusal) => {
            peer.abandon();
            return refuse(peer, ticket, refusal);
        }
    };
    let before = peer.app.host.writer().handed_over();
    peer.connection.hold();
    let peer = Rc::clone(peer);
    actix_rt::spawn(async move { answer(&peer, caller, &version, wanted, before, ticket).await });
}

/// Refuses; where no version is common, the connection ends after that.
fn refuse(peer: &Peer, ticket: Ticket, refusal: Refusal) {
    let is_final = refusal.kind == RefusalKind::UnsupportedVersion;
    ticket.answer_on(&peer.connection, Err(refusal));
    if is_final {
        peer.connection.close(CLOSE_POLICY, "no common protocol version".into());
    }
}

fn prepare(peer: &Peer, params: &Params<'_>) -> Result<(Caller, String, Vec<Wanted>), Refusal> {
    let asked = read(params)?;
    let version = negotiate(&asked.versions)?;
    peer.check_subscriptions(asked.subscriptions.len())?;
    peer.claim(&asked.client_id, Some(&version))?;
    Ok((peer.as_caller(&asked.client_id, &version, None), version, asked.subscriptions))
}

fn read(params: &Params<'_>) -> Result<Initialize, Refusal> {
    params.for_root()?;
    let versions = params.required("protocolVersions", "an array of strings")?;
    let client_id = params.name("clientId")?;
    let subscriptions: Option<Vec<String>> = params.optional("initialSubscriptions", "an array of URIs")?;
    let subscriptions = distinct("initialSubscriptions", subscriptions.unwrap_or_default())?;
    let subscriptions = subscriptions.into_iter().map(|alias| Wanted { alias, turns: None }).collect();
    Ok(Initialize { client_id, versions, subscriptions })
}

/// `uris` as channels, each once, in their order.
///
/// # Errors
/// A refusal when one cannot be a URI.
pub fn distinct(field: &str, uris: Vec<String>) -> Result<Vec<Channel>, Refusal> {
    let mut seen = HashSet::new();
    let mut channels = Vec::with_capacity(uris.len());
    for uri in uris {
        check_name(field, &uri)?;
        let channel = Channel::from(uri);
        if seen.insert(channel.clone()) {
            channels.push(channel);
        }
    }
    Ok(channels)
}

/// The highest offered version that is served, in the words of the offer.
fn negotiate(offered: &[String]) -> Result<String, Refusal> {
    let chosen = negotiate_protocol_version(offered).map_err(|problem| invalid_params("protocolVersions", &problem))?;
    chosen.map(str::to_owned).ok_or_else(|| {
        let supported: Vec<String> = SUPPORTED_PROTOCOL_VERSIONS.iter().map(|version| format!("^{version}")).collect();
        let message = format!("no common protocol version: this host serves {}", supported.join(" and "));
        let mut refusal = Refusal::new(RefusalKind::UnsupportedVersion, "unsupported-version", message);
        refusal.data = Some(json!({ "supportedVersions": supported }));
        refusal
    })
}

async fn answer(
    peer: &Rc<Peer>,
    caller: Caller,
    version: &str,
    mut wanted: Vec<Wanted>,
    before: ServerSeq,
    ticket: Ticket,
) {
    let logs = Logs::out_of(&mut wanted, peer, |one| &one.alias);
    let mut collection = Collection::of(peer, &caller, &wanted).await;
    if let Err(refusal) = collection.settle().await {
        collection.give_up();
        peer.abandon();
        return release(peer, ticket, Err(refusal));
    }
    let result = result(peer, version, collection.server_seq(before), &collection.json());
    for snapshot in collection.snapshots() {
        peer.saw(&caller, &snapshot.resource, None);
    }
    drop(collection);
    peer.open(caller, None);
    logs.begin(peer);
    release(peer, ticket, Ok(result));
}

fn result(peer: &Peer, version: &str, server_seq: ServerSeq, snapshots: &str) -> String {
    let server_info = json!({ "name": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION") });
    let meta = json!({ "scrollback.extensions": extensions::NAMES });
    let directory = Value::from(peer.app.host.settings().default_directory.as_str());
    let version = Value::from(version);
    let may_read_logs = peer.app.host.may(&peer.who, Operation::HostRead, None);
    let telemetry = if may_read_logs { json!({ "logs": telemetry::TEMPLATE }) } else { json!({}) };
    format!(
        concat!(
            r#"{{"protocolVersion":{},"serverSeq":{},"serverInfo":{},"_meta":{},"snapshots":{},"#,
            r##""defaultDirectory":{},"completionTriggerCharacters":["/","@","#"],"telemetry":{}}}"##
        ),
        version, server_seq, server_info, meta, snapshots, directory, telemetry
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(versions: &[&str]) -> Result<String, Refusal> {
        negotiate(&versions.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_highest_offered_version_in_range_is_chosen_whatever_the_order() {
        assert_eq!(offer(&["0.9.3", "1.0.0", "1.1.0"]).unwrap(), "1.1.0");
        assert_eq!(offer(&["2.0.0", "0.9.1"]).unwrap(), "0.9.1");
    }

    #[test]
    fn no_common_version_says_which_are_served() {
        for offered in [&["2.0.0"][..], &["0.8.0", "0.10.0"], &[]] {
            let refusal = offer(offered).unwrap_err();
            assert_eq!(refusal.kind, RefusalKind::UnsupportedVersion);
            assert_eq!(refusal.data.unwrap()["supportedVersions"], json!(["^1.0.0", "^0.9.0"]));
        }
    }

    #[test]
    fn a_malformed_version_is_a_wrong_param_also_beside_a_good_one() {
        for offered in [&["1.0"][..], &["1.0.0", "one"], &["01.0.0"], &[""]] {
            assert_eq!(offer(offered).unwrap_err().kind, RefusalKind::InvalidParams);
        }
    }

    #[test]
    fn channels_are_taken_once_in_their_order() {
        let channels = distinct("x", vec!["b".into(), "a".into(), "b".into()]).unwrap();
        assert_eq!(channels.iter().map(Channel::as_str).collect::<Vec<_>>(), ["b", "a"]);
    }
}
