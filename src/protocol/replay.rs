//! What a client missed of one channel, read from the log and spliced into envelopes.
//!
//! Blocking: runs on the pool for that. The stored bytes of an action go into its envelope as they are.
//! Source: AHP `reconnect`, replay; the outer contract, limits.

use std::ops::ControlFlow;

use crate::actors::connection::{Subscription, Window};
use crate::actors::envelope::{Envelope, envelope_json};
use crate::actors::router::Hub;
use crate::events::{Channel, ChannelId, Kind, LogFault, Record, ServerSeq, Store};

/// A channel to catch up on.
#[derive(Debug, Clone)]
pub struct Missed {
    /// The name that the client uses, which its envelopes carry.
    pub alias: Channel,
    pub channel: Channel,
    pub id: ChannelId,
    /// The newest event that the client has.
    pub last_seen: ServerSeq,
    /// How far back the client's turns reach.
    pub window: Option<Window>,
}

/// What was missed, ascending, as the JSON of envelopes.
#[derive(Debug, Default)]
pub struct Replay {
    pub actions: Vec<(ServerSeq, String)>,
    /// How far back the client's turns reach after it.
    pub window: Option<Window>,
}

/// Reads what was missed up to and including `upto`, and takes its bytes off `room`. `None` where a snapshot has to do:
/// there is no room, events were folded into one that the client has half of, or the client is ahead.
///
/// # Errors
/// [`LogFault`] when the log cannot be read.
pub fn read(
    store: &dyn Store,
    hub: &Hub,
    missed: &Missed,
    upto: ServerSeq,
    room: &mut usize,
) -> Result<Option<Replay>, LogFault> {
    if missed.last_seen > upto {
        return Ok(None);
    }
    let mut replay = Replay { actions: Vec::new(), window: missed.window };
    let (mut left, mut is_whole) = (*room, true);
    store.scan_channel(missed.id, missed.last_seen, upto, &mut |record| {
        if is_folded_over(&record, missed.last_seen) {
            is_whole = false;
            return ControlFlow::Break(());
        }
        let Some(json) = envelope_of(hub, missed, &mut replay.window, &record) else {
            return ControlFlow::Continue(());
        };
        let Some(rest) = left.checked_sub(json.len() + 1) else {
            is_whole = false;
            super::error::count_limit("replay");
            return ControlFlow::Break(());
        };
        left = rest;
        replay.actions.push((record.seq, json));
        ControlFlow::Continue(())
    })?;
    if !is_whole {
        return Ok(None);
    }
    *room = left;
    Ok(Some(replay))
}

/// Whether a compaction folded events into `record`, of which the client has some and lacks some.
fn is_folded_over(record: &Record, last_seen: ServerSeq) -> bool {
    record.covers_from.is_some_and(|from| from <= last_seen && last_seen < record.seq)
}

/// The envelope of a record under the client's name for the channel; nothing for what no client may see.
fn envelope_of(hub: &Hub, missed: &Missed, window: &mut Option<Window>, record: &Record) -> Option<String> {
    if record.kind != Kind::Action {
        return None;
    }
    if is_page(&record.action) {
        return page_in_replay(hub, missed, window, record);
    }
    Some(envelope_json(missed.alias.as_str(), record.seq, record.origin.as_ref(), &record.action))
}

fn is_page(action: &[u8]) -> bool {
    action.starts_with(br#"{"type":"chat/turnsLoaded""#)
}

/// A stored page of older turns as this client is shown it; nothing for a client that has all turns.
fn page_in_replay(hub: &Hub, missed: &Missed, window: &mut Option<Window>, record: &Record) -> Option<String> {
    let subscription = Subscription {
        channel: missed.channel.clone(),
        alias: missed.alias.clone(),
        from_seq: missed.last_seen,
        window: Some((*window)?),
    };
    let channel = record.channel.clone();
    let page = Envelope::new(channel, record.channel_id, record.seq, record.origin.as_ref(), &record.action);
    let (frame, after) = hub.page(&page, &subscription)?;
    *window = after;
    Some(Envelope { frame, ..page }.json().to_owned())
}
