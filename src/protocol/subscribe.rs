//! `subscribe` and `unsubscribe`.
//!
//! The answer to `subscribe` is queued at the place where the subscription stands, so that it comes before every later
//! envelope of the channel.
//! Source: AHP `subscribe`, `unsubscribe`.

use std::rc::Rc;

use serde::Deserialize;
use tokio::sync::oneshot;

use super::names;
use super::params::Params;
use super::peer::Peer;
use super::ticket::Ticket;
use crate::actors::command::Refusal;
use crate::actors::connection::{Caller, Connection, Subscription};
use crate::actors::host::SnapshotJson;
use crate::events::Channel;
use crate::projections::people::Operation;
use crate::telemetry;

/// What a client wants to see of a chat.
#[derive(Debug, Default, Deserialize)]
struct View {
    turns: Option<u64>,
}

/// Subscribes and answers `{"snapshot"}`.
pub fn subscribe(peer: &Rc<Peer>, caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let Some((ticket, (alias, turns))) = ticket.checked(read(peer, params)) else { return };
    if let Some(channel) = logs_of(peer, &alias) {
        Logs(vec![(channel, alias)]).begin(peer);
        return ticket.answer_on(&peer.connection, Ok("{}".into()));
    }
    note(peer, &alias, 1);
    let (done, waits) = oneshot::channel();
    let then = Box::new(move |connection: &Connection, answer: Result<SnapshotJson, Refusal>| {
        let stands = answer.is_ok();
        ticket.answer_on(connection, answer.map(|snapshot| format!(r#"{{"snapshot":{}}}"#, snapshot.json())));
        let _ = done.send(stands);
    });
    peer.app.host.subscribe(caller, alias.as_str(), turns, then);
    let (peer, caller) = (Rc::clone(peer), caller.clone());
    actix_rt::spawn(async move {
        let stands = waits.await.unwrap_or(false);
        answered(&peer, &caller, &alias, turns, stands);
    });
}

fn read(peer: &Peer, params: &Params<'_>) -> Result<(Channel, Option<u64>), Refusal> {
    let alias = Channel::from(params.channel()?);
    let view: Option<View> = params.optional("view", "an object whose turns are a number")?;
    if peer.connection.channel_of(&alias).is_none() {
        peer.check_subscriptions(1)?;
    }
    Ok((alias, view.unwrap_or_default().turns))
}

/// The channel of logs that `alias` names, where the client may read them: it has no state, and no place in the log.
fn logs_of(peer: &Peer, alias: &Channel) -> Option<Channel> {
    let may_read = || peer.app.host.may(&peer.who, Operation::HostRead, None);
    telemetry::channel_of(alias.as_str()).filter(|_| may_read()).map(Channel::from)
}

/// Channels of logs among those of a handshake, each with the name that the client uses.
pub struct Logs(Vec<(Channel, Channel)>);

impl Logs {
    /// Takes them out of `all`.
    pub fn out_of<T>(all: &mut Vec<T>, peer: &Peer, alias: impl Fn(&T) -> &Channel) -> Self {
        let mut logs = Vec::new();
        all.retain(|one| {
            let alias = alias(one);
            let channel = logs_of(peer, alias);
            let is_other = channel.is_none();
            logs.extend(channel.map(|channel| (channel, alias.clone())));
            is_other
        });
        Self(logs)
    }

    /// Subscribes to them, at once.
    pub fn begin(self, peer: &Peer) {
        for (channel, alias) in self.0 {
            peer.router.subscribe(&peer.connection, Subscription { channel, alias, from_seq: 0, window: None });
        }
    }
}

/// Counts subscriptions under `alias` that wait for their answer.
fn note(peer: &Peer, alias: &Channel, more: usize) {
    peer.subscribing.borrow_mut().entry(alias.clone()).or_default().waiting += more;
    peer.subscribing_in_all.set(peer.subscribing_in_all.get() + more);
}

/// After the answer: an `unsubscribe` that came before it takes effect.
fn answered(peer: &Peer, caller: &Caller, alias: &Channel, turns: Option<u64>, stands: bool) {
    peer.subscribing_in_all.set(peer.subscribing_in_all.get().saturating_sub(1));
    let mut all = peer.subscribing.borrow_mut();
    let unsubscribed = all.get_mut(alias).is_some_and(|subscribing| {
        subscribing.waiting = subscribing.waiting.saturating_sub(1);
        subscribing.unsubscribed
    });
    if all.get(alias).is_some_and(|subscribing| subscribing.waiting == 0) {
        all.remove(alias);
    }
    drop(all);
    if stands && unsubscribed {
        leave(peer, caller, alias);
    } else if stands {
        peer.saw(caller, alias, turns);
    }
}

/// Ends a subscription. Never answered.
///
/// # Errors
/// A refusal when the channel is missing.
pub fn unsubscribe(peer: &Rc<Peer>, caller: &Caller, params: &Params<'_>) -> Result<(), Refusal> {
    let alias = Channel::from(params.channel()?);
    if let Some(subscribing) = peer.subscribing.borrow_mut().get_mut(&alias) {
        subscribing.unsubscribed = true;
    }
    leave(peer, caller, &alias);
    Ok(())
}

fn leave(peer: &Peer, caller: &Caller, alias: &Channel) {
    let Some(channel) = peer.connection.channel_of(alias) else { return };
    peer.router.unsubscribe(&peer.connection, alias);
    peer.no_longer_sees(alias);
    let is_left = !peer.connection.channels().contains(&channel);
    if is_left {
        peer.app.host.left_watch(peer.connection.id, &channel);
    }
    if is_left && names::reads_as_session(channel.as_str()) {
        peer.app.host.client_left(caller, &channel);
    }
}
