//! `reconnect`: the subscriptions stand again, and what was missed comes in the answer.
//!
//! Two forms. The one of 1.0.0 has a watermark for all channels and is answered as a whole: a replay, or snapshots. The
//! other has a cursor for each channel and an outcome for each.
//!
//! Order: the subscriptions stand and their envelopes are held back; then what was shown is on disk; then the log's
//! newest number is read, and everything up to it comes from the log, everything after it from the subscriptions. Late
//! envelopes up to it are not sent again, since each subscription begins behind it.
//! Source: AHP `reconnect`; changes after 1.0.0, replay cursors.

use std::rc::Rc;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::clients::RememberedClient;
use super::collect::{Collection, Wanted};
use super::error::{internal, invalid_params};
use super::handshake::distinct;
use super::params::{Params, check_name};
use super::peer::{Peer, release};
use super::replay::{Missed, Reader, Replay};
use super::subscribe::Logs;
use super::ticket::Ticket;
use crate::actors::command::Refusal;
use crate::actors::connection::{Caller, Subscription};
use crate::actors::envelope::Envelopes;
use crate::actors::session::refusal_of_lost;
use crate::events::{Channel, ServerSeq};

/// What `reconnect` asks for.
struct Asked {
    client_id: String,
    form: Form,
    /// Each name with the newest event that the client has.
    cursors: Vec<(Channel, ServerSeq)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `subscriptions: URI[]` and one `lastSeenServerSeq`.
    Watermark,
    /// `subscriptions: {channel, lastSeenServerSeq}[]`.
    Cursors,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Entry {
    Name(String),
    #[serde(rename_all = "camelCase")]
    Cursor {
        channel: String,
        last_seen_server_seq: ServerSeq,
    },
}

/// Takes a client up where it was.
pub fn reconnect(peer: &Rc<Peer>, params: &Params<'_>, ticket: Ticket) {
    let Some((ticket, ())) = ticket.checked(peer.begin()) else { return };
    let prepared = prepare(peer, params);
    if prepared.is_err() {
        peer.abandon();
    }
    let Some((ticket, (mut asked, client))) = ticket.checked(prepared) else { return };
    let logs = Logs::out_of(&mut asked.cursors, peer, |(alias, _)| alias);
    peer.connection.hold();
    let peer = Rc::clone(peer);
    actix_rt::spawn(async move {
        let seen = asked.cursors.iter().map(|(_, seen)| *seen).min();
        let caller = peer.as_caller(&asked.client_id, &client.protocol_version, seen);
        let result = Reconnect { peer: &peer, caller: &caller, asked: &asked, client: &client }.answer().await;
        match result {
            Ok(json) => {
                let returns_to = asked.cursors.iter().map(|(channel, _)| channel.clone()).collect();
                peer.open(caller, Some(returns_to));
                logs.begin(&peer);
                release(&peer, ticket, Ok(json));
            }
            Err(refusal) => {
                asked.cursors.iter().for_each(|(alias, _)| peer.router.unsubscribe(&peer.connection, alias));
                peer.abandon();
                release_nothing(&peer, &asked);
                release(&peer, ticket, Err(refusal));
            }
        }
    });
}

/// Nothing that was held is for a client whose handshake was refused.
fn release_nothing(peer: &Peer, asked: &Asked) {
    asked.cursors.iter().for_each(|(alias, _)| peer.connection.forget_held(alias, ServerSeq::MAX));
}

fn prepare(peer: &Peer, params: &Params<'_>) -> Result<(Asked, RememberedClient), Refusal> {
    let asked = read(params)?;
    peer.check_subscriptions(asked.cursors.len())?;
    let client = peer.claim(&asked.client_id, None)?;
    Ok((asked, client))
}

fn read(params: &Params<'_>) -> Result<Asked, Refusal> {
    params.for_root()?;
    let client_id = params.name("clientId")?;
    let what = "an array of URIs, or of {channel, lastSeenServerSeq}";
    let entries: Vec<Entry> = params.required("subscriptions", what)?;
    let watermark: Option<ServerSeq> = params.optional("lastSeenServerSeq", "a whole number")?;
    let (mut names, mut cursors) = (Vec::new(), Vec::new());
    for entry in entries {
        match entry {
            Entry::Name(name) => names.push(name),
            Entry::Cursor { channel, last_seen_server_seq } => {
                check_name("subscriptions", &channel)?;
                cursors.push((Channel::from(channel), last_seen_server_seq));
            }
        }
    }
    match (names.is_empty(), cursors.is_empty(), watermark) {
        (false, false, _) => Err(invalid_params("subscriptions", &format!("must be {what}"))),
        (_, true, Some(seen)) => {
            let names = distinct("subscriptions", names)?;
            let cursors = names.into_iter().map(|name| (name, seen)).collect();
            Ok(Asked { client_id, form: Form::Watermark, cursors })
        }
        (false, true, None) => Err(invalid_params("lastSeenServerSeq", "is missing")),
        (true, _, _) => Ok(Asked { client_id, form: Form::Cursors, cursors: first_of_each(cursors) }),
    }
}

fn first_of_each(cursors: Vec<(Channel, ServerSeq)>) -> Vec<(Channel, ServerSeq)> {
    let mut seen = std::collections::HashSet::new();
    cursors.into_iter().filter(|(channel, _)| seen.insert(channel.clone())).collect()
}

/// What becomes of one name.
enum Outcome {
    Replay(Missed, Replay),
    Snapshot,
    Missing,
}

/// Counts the channels that are answered with a replay and with a snapshot.
fn count(outcomes: &[Outcome], are_snapshots: bool) {
    for outcome in outcomes {
        let answer = match outcome {
            Outcome::Missing => continue,
            Outcome::Replay(..) if !are_snapshots => "replay",
            Outcome::Replay(..) | Outcome::Snapshot => "snapshot",
        };
        metrics::counter!("scrollback_reconnects_total", "answer" => answer).increment(1);
    }
}

struct Reconnect<'a> {
    peer: &'a Rc<Peer>,
    caller: &'a Caller,
    asked: &'a Asked,
    client: &'a RememberedClient,
}

impl Reconnect<'_> {
    async fn answer(&self) -> Result<String, Refusal> {
        let outcomes = self.outcomes().await?;
        let is_any_snapshot = outcomes.iter().any(|outcome| matches!(outcome, Outcome::Snapshot));
        let are_snapshots = self.asked.form == Form::Watermark && is_any_snapshot;
        count(&outcomes, are_snapshots);
        match self.asked.form {
            Form::Watermark if are_snapshots => self.all_snapshots(&outcomes).await,
            Form::Watermark => Ok(self.whole_replay(outcomes)),
            Form::Cursors => Ok(self.each(outcomes).await),
        }
    }

    /// The outcome of each name, in the order of the request; the replays stand as subscriptions.
    async fn outcomes(&self) -> Result<Vec<Outcome>, Refusal> {
        let found = self.resolve().await?;
        for missed in found.iter().flatten().filter(|missed| self.is_replayed(missed)) {
            let Missed { channel, alias, last_seen, window, .. } = missed.clone();
            let subscription = Subscription { channel, alias, from_seq: last_seen, window };
            self.peer.router.subscribe(&self.peer.connection, subscription);
        }
        let host = &self.peer.app.host;
        host.writer().barrier().await.map_err(|lost| refusal_of_lost(&lost))?;
        let upto = host.store().tail();
        let replays = self.read(found.clone(), upto).await?;
        let outcomes = found.into_iter().zip(replays).map(|(missed, replay)| match (missed, replay) {
            (None, _) => Outcome::Missing,
            (Some(_), None) => Outcome::Snapshot,
            (Some(missed), Some(replay)) => {
                self.peer.connection.replayed(&missed.alias, upto, replay.window);
                Outcome::Replay(missed, replay)
            }
        });
        Ok(outcomes.collect())
    }

    /// Whether a replay can be the answer: a cursor 0 has no baseline to replay onto.
    fn is_replayed(&self, missed: &Missed) -> bool {
        missed.has_baseline && (self.asked.form == Form::Watermark || missed.last_seen > 0)
    }

    async fn resolve(&self) -> Result<Vec<Option<Missed>>, Refusal> {
        let host = Arc::clone(&self.peer.app.host);
        let cursors = self.asked.cursors.clone();
        let (windows, who) = (self.client.windows.clone(), Arc::clone(&self.caller.who));
        let resolve = move || {
            let one = |(alias, last_seen): (Channel, ServerSeq)| {
                let remembered = windows.get(alias.as_str()).copied().unwrap_or_default();
                let window = remembered.oldest;
                let Some((channel, id)) = host.resolve(&who, alias.as_str())? else { return Ok(None) };
                let has_window = remembered.widened_at.is_none_or(|seq| seq <= last_seen);
                let holds = has_window && host.is_baseline(&channel, last_seen);
                let has_baseline = holds && host.has_always_named(alias.as_str(), &channel)?;
                Ok(Some(Missed { alias, channel, id, last_seen, window, has_baseline }))
            };
            cursors.into_iter().map(one).collect::<Result<Vec<_>, crate::events::LogFault>>()
        };
        blocking(resolve).await
    }

    /// What each name missed up to `upto`; `None` for those that get a snapshot or are missing.
    async fn read(&self, found: Vec<Option<Missed>>, upto: ServerSeq) -> Result<Vec<Option<Replay>>, Refusal> {
        let host = Arc::clone(&self.peer.app.host);
        let form = self.asked.form;
        let room = self.peer.app.settings.replay_limit;
        let knows_canvases = self.caller.knows_canvases;
        let found: Vec<_> = found.into_iter().map(|missed| missed.filter(|missed| self.is_replayed(missed))).collect();
        let read = move || {
            let mut reader = Reader::new(host.store().as_ref(), host.hub(), upto, room, knows_canvases);
            let mut replays = Vec::with_capacity(found.len());
            for missed in &found {
                let Some(missed) = missed else {
                    replays.push(None);
                    continue;
                };
                let replay = reader.read(missed)?;
                let is_over = replay.is_none() && form == Form::Watermark;
                replays.push(replay);
                if is_over {
                    // All or nothing: the rest would be read for nothing.
                    break;
                }
            }
            replays.resize_with(found.len(), || None);
            Ok(replays)
        };
        blocking(read).await
    }

    fn whole_replay(&self, outcomes: Vec<Outcome>) -> String {
        let mut missing: Vec<&str> = Vec::new();
        let mut actions = Vec::new();
        for (outcome, (alias, _)) in outcomes.into_iter().zip(&self.asked.cursors) {
            match outcome {
                Outcome::Replay(missed, replay) => {
                    self.saw(&missed.alias);
                    actions.push(replay.actions);
                }
                Outcome::Snapshot | Outcome::Missing => missing.push(alias.as_str()),
            }
        }
        // The head goes in front of what is there: a long replay is moved within its own memory, not copied into another.
        let mut json = Envelopes::merged(actions).into_array();
        json.insert_str(0, r#"{"type":"replay","actions":"#);
        json.push_str(&format!(r#","missing":{}}}"#, Value::from(missing)));
        json
    }

    async fn all_snapshots(&self, outcomes: &[Outcome]) -> Result<String, Refusal> {
        let there =
            outcomes.iter().zip(&self.asked.cursors).filter(|(outcome, _)| !matches!(outcome, Outcome::Missing));
        let wanted: Vec<Wanted> = there.map(|(_, (alias, _))| self.wanted(alias)).collect();
        let mut collection = Collection::of(self.peer, self.caller, &wanted).await;
        collection.settle().await?;
        collection.snapshots().for_each(|snapshot| self.saw(&snapshot.resource));
        Ok(format!(r#"{{"type":"snapshot","snapshots":{}}}"#, collection.json()))
    }

    /// One outcome for each name. Each stands for itself, so snapshots need not agree with each other.
    async fn each(&self, outcomes: Vec<Outcome>) -> String {
        let names = self.asked.cursors.iter().map(|(alias, _)| alias);
        let snapshots = outcomes.iter().zip(names.clone()).filter(|(outcome, _)| matches!(outcome, Outcome::Snapshot));
        let wanted: Vec<Wanted> = snapshots.map(|(_, alias)| self.wanted(alias)).collect();
        let collection = Collection::of(self.peer, self.caller, &wanted).await;
        let of = |alias: &Channel| collection.snapshots().find(|snapshot| snapshot.resource == *alias);
        let all = outcomes.into_iter().zip(names);
        let channels = all.map(|(outcome, alias)| {
            let name = Value::from(alias.as_str());
            match (outcome, of(alias)) {
                (Outcome::Replay(_, replay), _) => {
                    let actions = replay.actions.into_array();
                    format!(r#"{{"kind":"replay","channel":{name},"actions":{actions}}}"#)
                }
                (Outcome::Snapshot, Some(snapshot)) => {
                    format!(r#"{{"kind":"snapshot","channel":{name},"snapshot":{}}}"#, snapshot.json())
                }
                (Outcome::Snapshot, None) | (Outcome::Missing, _) => {
                    format!(r#"{{"kind":"missing","channel":{name}}}"#)
                }
            }
        });
        let channels: Vec<String> = channels.collect();
        self.asked.cursors.iter().for_each(|(alias, _)| self.saw(alias));
        format!(r#"{{"channels":[{}]}}"#, channels.join(","))
    }

    fn wanted(&self, alias: &Channel) -> Wanted {
        Wanted { alias: alias.clone(), turns: self.turns(alias) }
    }

    fn turns(&self, alias: &Channel) -> Option<u64> {
        self.client.windows.get(alias.as_str())?.turns
    }

    fn saw(&self, alias: &Channel) {
        if self.peer.connection.channel_of(alias).is_some() {
            self.peer.saw(self.caller, alias, self.turns(alias));
        }
    }
}

async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, crate::events::LogFault> + Send + 'static,
) -> Result<T, Refusal> {
    match actix_web::web::block(read).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(fault)) => Err(internal(&fault)),
        Err(fault) => Err(internal(&fault)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn asked(json: &str) -> Result<Asked, Refusal> {
        let raw: Box<RawValue> = serde_json::from_str(json).unwrap();
        read(&Params::read(Some(&raw)).unwrap())
    }

    #[test]
    fn both_forms_are_read() {
        let one = r#"{"channel":"ahp-root://","clientId":"c","lastSeenServerSeq":4,"subscriptions":["a","b","a"]}"#;
        let one = asked(one).ok().unwrap();
        assert!(one.form == Form::Watermark);
        assert_eq!(one.cursors, [(Channel::from("a"), 4), (Channel::from("b"), 4)]);
        let other =
            r#"{"channel":"ahp-root://","clientId":"c","subscriptions":[{"channel":"a","lastSeenServerSeq":7}]}"#;
        let other = asked(other).ok().unwrap();
        assert!(other.form == Form::Cursors);
        assert_eq!(other.cursors, [(Channel::from("a"), 7)]);
    }

    #[test]
    fn without_subscriptions_the_watermark_tells_the_form() {
        let with = asked(r#"{"channel":"ahp-root://","clientId":"c","lastSeenServerSeq":4,"subscriptions":[]}"#);
        assert!(with.ok().unwrap().form == Form::Watermark);
        let without = asked(r#"{"channel":"ahp-root://","clientId":"c","subscriptions":[]}"#);
        assert!(without.ok().unwrap().form == Form::Cursors);
    }

    #[test]
    fn what_is_neither_form_names_the_field() {
        let head = r#""channel":"ahp-root://","clientId":"c""#;
        let cases = [
            (r#""lastSeenServerSeq":4"#, "subscriptions"),
            (r#""subscriptions":["a"]"#, "lastSeenServerSeq"),
            (r#""lastSeenServerSeq":-1,"subscriptions":["a"]"#, "lastSeenServerSeq"),
            (r#""lastSeenServerSeq":1.5,"subscriptions":["a"]"#, "lastSeenServerSeq"),
            (r#""lastSeenServerSeq":1,"subscriptions":["a",{"channel":"b","lastSeenServerSeq":1}]"#, "subscriptions"),
            (r#""subscriptions":[{"channel":"b"}]"#, "subscriptions"),
        ];
        for (rest, field) in cases {
            let refusal = asked(&format!("{{{head},{rest}}}")).err().unwrap();
            assert!(refusal.message.starts_with(field), "{rest}: {refusal}");
        }
    }
}
