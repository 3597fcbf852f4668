//! What a client missed of one channel, read from the log and spliced into envelopes.
//!
//! Blocking: runs on the pool for that. The stored bytes of an action go into its envelope as they are.
//! Source: AHP `reconnect`, replay; the outer contract, limits.

use std::ops::ControlFlow;

use crate::actors::connection::{Subscription, Window};
use crate::actors::envelope::{CLEARED, Envelope, Envelopes, is_of_canvases, is_page};
use crate::actors::router::Hub;
use crate::events::{Channel, ChannelId, Kind, LogFault, Record, ServerSeq, Store};
use crate::projections::action::type_of;

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
    /// Whether what the client has is known: its name has always stood for this channel, and it has seen the page that
    /// widened its window.
    pub has_baseline: bool,
}

/// What was missed, ascending, as the JSON of envelopes.
#[derive(Debug, Default)]
pub struct Replay {
    pub actions: Envelopes,
    /// How far back the client's turns reach after it.
    pub window: Option<Window>,
}

/// Reads replays of one answer, up to one number.
pub struct Reader<'a> {
    store: &'a dyn Store,
    hub: &'a Hub,
    /// The newest event that the answer holds.
    upto: ServerSeq,
    /// Bytes that the answer still has room for.
    room: usize,
    /// Whether the client's version of the protocol has canvases.
    knows_canvases: bool,
    /// The number that was looked up last, and whether the log has an event with it.
    known: (ServerSeq, bool),
}

impl<'a> Reader<'a> {
    pub fn new(store: &'a dyn Store, hub: &'a Hub, upto: ServerSeq, room: usize, knows_canvases: bool) -> Self {
        Self { store, hub, upto, room, knows_canvases, known: (0, true) }
    }

    /// What was missed of a channel. `None` where a snapshot has to do: there is no room, events were folded into one that
    /// the client has half of, or the client has seen a number that this log has no event for. It is then ahead of the
    /// host, or in a range that was lost, and what it holds is not what happened. The same where the root began anew, and
    /// where the client's name for the channel stood for another one once.
    ///
    /// # Errors
    /// [`LogFault`] when the log cannot be read.
    pub fn read(&mut self, missed: &Missed) -> Result<Option<Replay>, LogFault> {
        if !missed.has_baseline || !self.is_known(missed.last_seen)? {
            return Ok(None);
        }
        let mut replay = Replay { actions: Envelopes::default(), window: missed.window };
        let (mut left, mut is_whole) = (self.room, true);
        let is_known = |record: &Record| self.knows_canvases || !is_of_canvases(&record.action);
        self.store.scan_channel(missed.id, missed.last_seen, self.upto, &mut |record| {
            is_whole = !is_folded_over(&record, missed.last_seen) && !begins_anew(&record, missed.last_seen);
            if !is_whole {
                return ControlFlow::Break(());
            }
            let added = is_known(&record).then(|| add(self.hub, missed, &mut replay, &record)).flatten();
            let Some(bytes) = added else {
                return ControlFlow::Continue(());
            };
            let Some(rest) = left.checked_sub(bytes + 1) else {
                is_whole = false;
                super::error::count_limit("replay");
                return ControlFlow::Break(());
            };
            left = rest;
            ControlFlow::Continue(())
        })?;
        if !is_whole {
            return Ok(None);
        }
        self.room = left;
        Ok(Some(replay))
    }

    /// Whether the log has an event with this number, or it is the number before all.
    fn is_known(&mut self, seq: ServerSeq) -> Result<bool, LogFault> {
        if seq > self.upto {
            return Ok(false);
        }
        if self.known.0 != seq {
            let mut found = false;
            self.store.scan(seq.saturating_sub(1), seq, &mut |_| {
                found = true;
                ControlFlow::Break(())
            })?;
            self.known = (seq, found);
        }
        Ok(self.known.1)
    }
}

/// Whether a compaction folded events into `record`, of which the client has some and lacks some.
fn is_folded_over(record: &Record, last_seen: ServerSeq) -> bool {
    record.covers_from.is_some_and(|from| from <= last_seen && last_seen < record.seq)
}

/// Whether `record` changes what no action can, so that only a snapshot brings it.
fn begins_anew(record: &Record, last_seen: ServerSeq) -> bool {
    last_seen > 0 && record.kind == Kind::Host && type_of(&record.action) == "host/rootCreated"
}

/// Adds the envelope of a record under the client's name for the channel; nothing for what no client may see. Returns its
/// bytes.
fn add(hub: &Hub, missed: &Missed, replay: &mut Replay, record: &Record) -> Option<usize> {
    if record.kind != Kind::Action {
        return None;
    }
    if is_page(&record.action) {
        let page = page_in_replay(hub, missed, &mut replay.window, record)?;
        return Some(replay.actions.push_json(record.seq, &page));
    }
    if record.action == CLEARED {
        replay.window = None;
    }
    Some(replay.actions.push(missed.alias.as_str(), record.seq, record.origin.as_ref(), &record.action))
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use bytestring::ByteString;
    use serde_json::Value;

    use super::*;
    use crate::events::memory::MemoryStore;
    use crate::events::sled_store::{SledOptions, SledStore};
    use crate::events::{Batch, EventLog, NewEvent, Origin, Rows};

    const TITLE: &str = r#"{"type":"chat/titleChanged","title":"T"}"#;
    const PAGE: &str = r#"{"type":"chat/turnsLoaded","turns":[]}"#;

    fn event(channel: (&str, ChannelId), kind: Kind, action: &'static str) -> NewEvent {
        NewEvent {
            channel: channel.0.into(),
            channel_id: channel.1,
            kind,
            at: 0,
            principal: "root:test".into(),
            origin: Some(Origin { client_id: "c".into(), client_seq: 7 }),
            about: None,
            action: Bytes::from_static(action.as_bytes()),
        }
    }

    /// A store whose chat has these events, numbered from 1.
    fn store(events: &[(Kind, &'static str)]) -> (MemoryStore, ChannelId) {
        let store = MemoryStore::new().unwrap();
        let id = store.new_channel_id();
        let events = events.iter().map(|(kind, action)| event(("ahp-chat:/c", id), *kind, action)).collect();
        store.append(&[Batch { events, rows: Vec::new() }]).unwrap();
        (store, id)
    }

    /// A hub that widens every page to all turns.
    fn hub() -> Arc<Hub> {
        Hub::new(1, Arc::new(|page, _| Some((ByteString::from(&*page.frame), None))))
    }

    fn missed(id: ChannelId, last_seen: ServerSeq, oldest: Option<u64>) -> Missed {
        let window = oldest.map(|oldest| Window { oldest });
        Missed { alias: "alias".into(), channel: "ahp-chat:/c".into(), id, last_seen, window, has_baseline: true }
    }

    fn seqs(replay: &Replay) -> Vec<ServerSeq> {
        replay.actions.iter().map(|(seq, _)| seq).collect()
    }

    #[test]
    fn what_was_missed_comes_under_the_name_of_the_client_and_ends_at_the_tail() {
        let (store, id) = store(&[(Kind::Action, TITLE); 4]);
        let replay = Reader::new(&store, &hub(), 3, 10_000, true).read(&missed(id, 1, None)).unwrap().unwrap();
        assert_eq!(seqs(&replay), [2, 3]);
        let envelope: Value = serde_json::from_str(replay.actions.iter().next().unwrap().1).unwrap();
        assert_eq!((envelope["channel"].as_str(), envelope["origin"]["clientSeq"].as_i64()), (Some("alias"), Some(7)));
    }

    #[test]
    fn facts_of_the_host_are_no_part_of_a_replay() {
        let (store, id) = store(&[(Kind::Host, r#"{"type":"host/x"}"#), (Kind::Action, TITLE)]);
        let replay = Reader::new(&store, &hub(), 2, 10_000, true).read(&missed(id, 0, None)).unwrap().unwrap();
        assert_eq!(seqs(&replay), [2]);
    }

    #[test]
    fn a_replay_without_room_takes_none() {
        let (store, id) = store(&[(Kind::Action, TITLE); 3]);
        let hub = hub();
        let mut reader = Reader::new(&store, &hub, 3, 200, true);
        assert!(reader.read(&missed(id, 0, None)).unwrap().is_none());
        assert_eq!(reader.room, 200);
        assert!(reader.read(&missed(id, 2, None)).unwrap().is_some());
        assert!(reader.room < 200);
    }

    #[test]
    fn a_client_in_a_range_that_the_log_does_not_have_gets_no_replay() {
        let dir = tempfile::tempdir().unwrap();
        let open = || SledStore::open(dir.path(), SledOptions::default()).unwrap();
        let one = |id| Batch { events: vec![event(("ahp-chat:/c", id), Kind::Action, TITLE)], rows: Vec::new() };
        let store = open();
        let id = store.new_channel_id();
        store.append(&[one(id)]).unwrap();
        store.publish_ahead().unwrap();
        drop(store);
        // What was shown and not written down is lost: numbers go on above it.
        let store = open();
        let next = store.append(&[one(id)]).unwrap()[0];
        assert!(next > 3);
        let hub = hub();
        let mut reader = Reader::new(&store, &hub, next, 10_000, true);
        assert!(reader.read(&missed(id, 2, None)).unwrap().is_none());
        assert_eq!(seqs(&reader.read(&missed(id, 1, None)).unwrap().unwrap()), [next]);
        assert!(seqs(&reader.read(&missed(id, next, None)).unwrap().unwrap()).is_empty());
    }

    #[test]
    fn a_client_that_is_ahead_gets_no_replay() {
        let (store, id) = store(&[(Kind::Action, TITLE)]);
        assert!(Reader::new(&store, &hub(), 1, 10_000, true).read(&missed(id, 9, None)).unwrap().is_none());
    }

    #[test]
    fn a_client_inside_a_folded_run_gets_no_replay_and_one_before_it_does() {
        let (store, id) = store(&[(Kind::Action, TITLE)]);
        let mut record = None;
        let mut visit = |found| {
            record = Some(found);
            ControlFlow::Break(())
        };
        store.scan_channel(id, 0, 1, &mut visit).unwrap();
        let folded = Record { seq: 9, covers_from: Some(5), ..record.unwrap() };
        for (last_seen, is_inside) in [(4, false), (5, true), (8, true), (9, false)] {
            assert_eq!(is_folded_over(&folded, last_seen), is_inside, "{last_seen}");
        }
    }

    #[test]
    fn pages_are_for_clients_with_a_window_alone() {
        let (store, id) = store(&[(Kind::Action, PAGE)]);
        let whole = Reader::new(&store, &hub(), 1, 10_000, true).read(&missed(id, 0, None)).unwrap().unwrap();
        assert!(whole.actions.is_empty());
        let windowed = Reader::new(&store, &hub(), 1, 10_000, true).read(&missed(id, 0, Some(40))).unwrap().unwrap();
        assert_eq!((seqs(&windowed), windowed.window), (vec![1], None));
    }
}
