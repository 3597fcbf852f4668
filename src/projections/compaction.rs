//! Which events a compaction folds together, and that the states stay what they were.
//!
//! Neighbouring pieces of streamed text of one part become one, in turns that have ended, where nothing else of their chat
//! is in between. The one that stands for them has the number of the last, so that each state at a number that stays is
//! the same. What a turn streamed says nothing more once the turn is a row: only who was in the middle of it notices.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use ahp_types::actions::{ChatDeltaAction, ChatReasoningAction, StateAction};
use bytes::Bytes;
use serde::Deserialize;

use super::action::{Action, type_of};
use super::chat::ChatFold;
use super::replay::{self, At};
use super::{catalogue, verify};
use crate::clock::Millis;
use crate::events::compacting::{Compacting, Span, Step};
use crate::events::rows::{ChannelKind, number_of_key};
use crate::events::{ChannelId, Kind, Record, ServerSeq, Store, Table};

/// Bytes of actions that become one, at most.
const ONE_MAX: usize = 64 << 10;
/// Records that are held against others at once, at most.
const CHUNK: usize = 1_024;

/// A compaction of what is older than a moment.
pub struct Folding<'a> {
    /// What happened from then on stays as it is.
    pub before: Millis,
    /// Ends it early.
    pub given_up: &'a AtomicBool,
    /// Is told how far it is.
    pub reached: &'a dyn Fn(Step),
}

impl Compacting for Folding<'_> {
    fn spans(&self, store: &dyn Store, channel: ChannelId, upto: ServerSeq) -> Result<Vec<Span>, String> {
        Ok(together(store, channel, upto, self.before)?.iter().map(|one| one.span).collect())
    }

    fn one(&self, events: &[Record]) -> Result<Bytes, String> {
        one(events)
    }

    fn check(&self, old: &dyn Store, new: &dyn Store, upto: ServerSeq) -> Result<(), String> {
        check(old, new, upto, self.given_up)
    }

    fn reached(&self, step: Step) {
        (self.reached)(step);
    }

    fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }
}

/// A piece of streamed text that has nothing but what it needs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Piece<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    turn_id: Cow<'a, str>,
    #[serde(borrow)]
    part_id: Cow<'a, str>,
    #[serde(borrow)]
    content: Cow<'a, str>,
}

impl<'a> Piece<'a> {
    /// The piece that this record is, if it is one that may become one with others.
    fn of(record: &'a Record) -> Option<Self> {
        if record.kind != Kind::Action || record.origin.is_some() || record.about.is_some() {
            return None;
        }
        let piece: Self = serde_json::from_slice(&record.action).ok()?;
        matches!(&*piece.kind, "chat/delta" | "chat/reasoning").then_some(piece)
    }
}

/// Pieces that stand together.
struct Together {
    turn_id: String,
    part_id: String,
    kind: String,
    principal: String,
    span: Span,
    count: usize,
    bytes: usize,
}

impl Together {
    fn new(record: &Record, piece: &Piece<'_>) -> Self {
        Self {
            turn_id: piece.turn_id.clone().into_owned(),
            part_id: piece.part_id.clone().into_owned(),
            kind: piece.kind.clone().into_owned(),
            principal: record.principal.clone(),
            span: (record.seq, record.seq),
            count: 1,
            bytes: record.action.len(),
        }
    }

    fn takes(&self, record: &Record, piece: &Piece<'_>) -> bool {
        self.part_id == *piece.part_id
            && self.turn_id == *piece.turn_id
            && self.kind == *piece.kind
            && self.principal == record.principal
            && self.bytes + record.action.len() <= ONE_MAX
    }
}

/// The pieces of a chat that become one each time; none of a channel that is no chat.
fn together(store: &dyn Store, channel: ChannelId, upto: ServerSeq, before: Millis) -> Result<Vec<Together>, String> {
    if !is_chat(store, channel).map_err(|e| e.to_string())? {
        return Ok(Vec::new());
    }
    let mut found: Vec<Together> = Vec::new();
    let mut open: Option<Together> = None;
    let mut ended: HashSet<String> = HashSet::new();
    store
        .scan_channel(channel, 0, upto, &mut |record| {
            let piece = Piece::of(&record).filter(|_| record.at < before);
            match (piece, open.as_mut()) {
                (Some(piece), Some(together)) if together.takes(&record, &piece) => {
                    together.span.1 = record.seq;
                    together.count += 1;
                    together.bytes += record.action.len();
                }
                (piece, _) => {
                    found.extend(open.take().filter(|together| together.count > 1));
                    if piece.is_none() {
                        note_end(&mut ended, &record);
                    }
                    open = piece.map(|piece| Together::new(&record, &piece));
                }
            }
            ControlFlow::Continue(())
        })
        .map_err(|e| e.to_string())?;
    found.extend(open.filter(|together| together.count > 1));
    // A turn that runs is still being watched.
    found.retain(|together| ended.contains(&together.turn_id));
    Ok(found)
}

fn is_chat(store: &dyn Store, channel: ChannelId) -> Result<bool, super::FoldFault> {
    let Some(uri) = catalogue::uri(store, channel)? else { return Ok(false) };
    Ok(catalogue::channel(store, uri.as_str())?.is_some_and(|row| row.kind == ChannelKind::Chat))
}

/// Notes that a turn is over, or goes on.
fn note_end(ended: &mut HashSet<String>, record: &Record) {
    let is_told = record.kind == Kind::Action
        && matches!(
            &*type_of(&record.action),
            "chat/turnComplete" | "chat/turnCancelled" | "chat/error" | "chat/turnResume" | "chat/turnStarted"
        );
    let Some(action) = is_told.then(|| Action::from_stored(record.action.clone()).ok()).flatten() else { return };
    match action.decoded {
        StateAction::ChatTurnComplete(end) => ended.insert(end.turn_id),
        StateAction::ChatTurnCancelled(end) => ended.insert(end.turn_id),
        StateAction::ChatError(end) => ended.insert(end.turn_id),
        StateAction::ChatTurnResume(again) => ended.remove(&again.turn_id),
        StateAction::ChatTurnStarted(begins) => ended.remove(&begins.turn_id),
        _ => false,
    };
}

/// The action that says what these pieces say.
fn one(events: &[Record]) -> Result<Bytes, String> {
    let mut all: Option<(String, String, String)> = None;
    let mut content = String::new();
    for record in events {
        let piece = Piece::of(record).ok_or_else(|| format!("event {} is no streamed text", record.seq))?;
        content.push_str(&piece.content);
        all = Some((piece.kind.into_owned(), piece.turn_id.into_owned(), piece.part_id.into_owned()));
    }
    let (kind, turn_id, part_id) = all.ok_or("there is no event")?;
    let action = match kind.as_str() {
        "chat/delta" => StateAction::ChatDelta(ChatDeltaAction { turn_id, part_id, content, meta: None }),
        _ => StateAction::ChatReasoning(ChatReasoningAction { turn_id, part_id, content, meta: None }),
    };
    Ok(Action::host(action).bytes)
}

/// Verifies the copy by itself, and then that it has every event of the old log up to `upto`, with the same state at each.
///
/// # Errors
/// What is wrong, in words.
pub fn check(old: &dyn Store, new: &dyn Store, upto: ServerSeq, given_up: &AtomicBool) -> Result<(), String> {
    verify::verify(new, &mut |_| ()).map_err(|fault| format!("the copy is at fault: {fault}"))?;
    let copied = channels(new)?;
    for channel in &copied {
        if given_up.load(Ordering::Relaxed) {
            return Err("it was given up".into());
        }
        compare(old, new, *channel, upto)?;
    }
    let copied: HashSet<ChannelId> = copied.into_iter().collect();
    for channel in channels(old)?.into_iter().filter(|channel| !copied.contains(channel)) {
        // One that is new since has nothing up to there.
        if old.last_of(channel, upto).map_err(|e| e.to_string())?.is_some() {
            return Err(format!("channel {} is missing", channel.0));
        }
    }
    Ok(())
}

fn channels(store: &dyn Store) -> Result<Vec<ChannelId>, String> {
    let mut channels = Vec::new();
    let mut visit = |key: &[u8], _: &[u8]| {
        channels.extend(number_of_key(key).map(ChannelId));
        ControlFlow::Continue(())
    };
    store.scan_rows(Table::ChannelById, &[], None, &mut visit).map_err(|e| e.to_string())?;
    Ok(channels)
}

/// A chat's state as the old log and as the copy fold to it.
#[derive(Default)]
struct Both {
    old: Option<At<ChatFold>>,
    new: Option<At<ChatFold>>,
}

/// Walks both logs of a channel side by side.
fn compare(old: &dyn Store, new: &dyn Store, channel: ChannelId, upto: ServerSeq) -> Result<(), String> {
    let is_chat = is_chat(new, channel).map_err(|e| e.to_string())?;
    let mut both = Both::default();
    let mut after = 0;
    while after < upto {
        let copied = records(new, channel, after, upto)?;
        let last = copied.last().map_or(upto, |record| record.seq);
        let mut stored = Vec::new();
        old.scan_channel(channel, after, last, &mut |record| {
            stored.push(record);
            ControlFlow::Continue(())
        })
        .map_err(|e| e.to_string())?;
        let mut stored = stored.as_slice();
        for copy in &copied {
            let count = stored.partition_point(|record| record.seq <= copy.seq);
            let (these, rest) = stored.split_at(count);
            stored = rest;
            let same = match these {
                [record] if record == copy => true,
                [first, .., last] => is_one_of(copy, first, last),
                _ => false,
            };
            if !same {
                return Err(format!("event {} is not what it was", copy.seq));
            }
            if is_chat {
                both.step(these, copy)?;
            }
        }
        if let Some(record) = stored.first() {
            return Err(format!("event {} is missing", record.seq));
        }
        after = last;
    }
    match (&both.old, &both.new) {
        (Some(old), Some(new)) if old.fold.to_checkpoint() != new.fold.to_checkpoint() => {
            Err(format!("channel {} does not fold to what it was", channel.0))
        }
        _ => Ok(()),
    }
}

/// Whether `copy` is what becomes of the events from `first` to `last`, but for what it says.
fn is_one_of(copy: &Record, first: &Record, last: &Record) -> bool {
    let covers_from = Some(first.covers_from.unwrap_or(first.seq));
    *copy == Record { covers_from, action: copy.action.clone(), ..last.clone() }
}

impl Both {
    /// Folds these events here and their copy there; where it is another event, the states are held against each other.
    fn step(&mut self, stored: &[Record], copy: &Record) -> Result<(), String> {
        for record in stored {
            replay::step(&mut self.old, record)?;
        }
        replay::step(&mut self.new, copy)?;
        let is_same = match (&self.old, &self.new) {
            (Some(old), Some(new)) => stored.len() == 1 || old.fold.state == new.fold.state,
            _ => true,
        };
        if is_same { Ok(()) } else { Err(format!("the state at event {} is not what it was", copy.seq)) }
    }
}

fn records(store: &dyn Store, channel: ChannelId, after: ServerSeq, upto: ServerSeq) -> Result<Vec<Record>, String> {
    let mut records = Vec::new();
    store
        .scan_channel(channel, after, upto, &mut |record| {
            records.push(record);
            if records.len() < CHUNK { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .map_err(|e| e.to_string())?;
    Ok(records)
}

/// How many events would go if what is older than `before` were folded now.
///
/// # Errors
/// What is wrong with the log, in words.
pub fn foldable(store: &dyn Store, before: Millis, given_up: &AtomicBool) -> Result<u64, String> {
    let mut count = 0;
    for channel in channels(store)? {
        if given_up.load(Ordering::Relaxed) {
            return Ok(0);
        }
        count += together(store, channel, store.tail(), before)?.iter().map(|one| one.count as u64 - 1).sum::<u64>();
    }
    Ok(count)
}

/// The numbers that the event after `at` in this channel stands for, where `at` is one of those that became one with others.
///
/// # Errors
/// [`crate::events::LogFault`] when the log cannot be read.
pub fn folded_at(
    store: &dyn Store,
    channel: ChannelId,
    at: ServerSeq,
) -> Result<Option<Span>, crate::events::LogFault> {
    let mut next = None;
    store.scan_channel(channel, at, ServerSeq::MAX, &mut |record| {
        next = record.covers_from.map(|from| (from, record.seq));
        ControlFlow::Break(())
    })?;
    Ok(next.filter(|(from, _)| *from <= at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::memory::MemoryStore;
    use crate::events::{Batch, Channel, EventLog, NewEvent, Origin, Rows};

    fn piece(part: &str, content: &str) -> String {
        format!(r#"{{"type":"chat/delta","turnId":"t","partId":"{part}","content":"{content}"}}"#)
    }

    fn ended() -> String {
        r#"{"type":"chat/turnComplete","turnId":"t","duration":1}"#.into()
    }

    /// A store with a chat of these events, numbered from 1, each a millisecond after the one before.
    fn store_of(events: Vec<(Kind, Option<&str>, String)>) -> (MemoryStore, ChannelId) {
        let store = MemoryStore::new().unwrap();
        let (id, uri) = (store.new_channel_id(), Channel::from("ahp-chat:/c"));
        let event = |(at, (kind, client, action)): (i64, (Kind, Option<&str>, String))| NewEvent {
            channel: uri.clone(),
            channel_id: id,
            kind,
            at,
            principal: "agent:demo".into(),
            origin: client.map(|client| Origin { client_id: client.into(), client_seq: 1 }),
            about: None,
            action: action.into(),
        };
        let events: Vec<NewEvent> = (1..).zip(events).map(event).collect();
        let rows = catalogue::register(&uri, id, ChannelKind::Chat, ChannelId(9));
        store.append(&[Batch { events, rows }]).unwrap();
        (store, id)
    }

    /// What becomes one of a chat with these events.
    fn spans_of(before: Millis, events: Vec<(Kind, Option<&str>, String)>) -> Vec<Span> {
        let (store, id) = store_of(events);
        together(&store, id, ServerSeq::MAX, before).unwrap().into_iter().map(|one| one.span).collect()
    }

    fn said(actions: &[String]) -> Vec<(Kind, Option<&'static str>, String)> {
        actions.iter().map(|action| (Kind::Action, None, action.clone())).collect()
    }

    #[test]
    fn pieces_of_one_part_become_one_and_nothing_else_does() {
        let (a, b) = (piece("a", "x"), piece("b", "x"));
        let all = |actions: &[&String]| said(&actions.iter().map(|action| (*action).clone()).collect::<Vec<_>>());
        let end = ended();
        assert_eq!(spans_of(99, all(&[&a, &a, &a, &end])), [(1, 3)]);
        assert_eq!(spans_of(99, all(&[&a, &a, &b, &a, &a, &end])), [(1, 2), (4, 5)]);
        assert_eq!(spans_of(99, all(&[&a, &end, &a, &end])), []);
        assert_eq!(spans_of(3, all(&[&a, &a, &a, &end])), [(1, 2)], "what is newer stays");
        assert_eq!(spans_of(99, all(&[&a, &a])), [], "a turn that runs");
        let resumed = r#"{"type":"chat/turnResume","turnId":"t"}"#.to_owned();
        assert_eq!(spans_of(99, all(&[&a, &a, &end, &resumed, &a])), [], "a turn that runs again");
        let reasoning = a.replace("chat/delta", "chat/reasoning");
        assert_eq!(spans_of(99, all(&[&reasoning, &reasoning, &a, &end])), [(1, 2)]);
        let more = a.replace(r#""content""#, r#""_meta":{},"content""#);
        assert_eq!(spans_of(99, all(&[&a, &more, &a, &end])), [], "what says more than text");
    }

    #[test]
    fn what_a_client_sent_and_facts_of_the_host_stand_in_between() {
        let a = || (Kind::Action, None, piece("a", "x"));
        let end = || (Kind::Action, None, ended());
        let fact = (Kind::Host, None, r#"{"type":"host/conversation","id":"c"}"#.to_owned());
        assert_eq!(spans_of(99, vec![a(), fact, a(), end()]), []);
        let sent = || (Kind::Action, Some("c"), piece("a", "x"));
        assert_eq!(spans_of(99, vec![sent(), sent(), a(), a(), end()]), [(3, 4)]);
    }

    #[test]
    fn a_copy_without_a_channel_is_no_copy() {
        let (old, chat) = store_of(said(&[piece("a", "x"), ended()]));
        let checked = |upto| check(&old, &MemoryStore::new().unwrap(), upto, &AtomicBool::new(false));
        assert_eq!(checked(old.tail()), Err(format!("channel {} is missing", chat.0)));
        assert_eq!(checked(0), Ok(()), "it came later");
    }

    #[test]
    fn what_becomes_one_is_bounded_and_says_what_its_pieces_said() {
        let long = piece("a", &"y".repeat(ONE_MAX / 3));
        let spans = spans_of(99, said(&[long.clone(), long.clone(), long.clone(), long, ended()]));
        assert_eq!(spans, [(1, 2), (3, 4)]);
        let record = |content: &str| Record {
            seq: 1,
            channel: "ahp-chat:/c".into(),
            channel_id: ChannelId(2),
            kind: Kind::Action,
            at: 0,
            principal: "agent:demo".into(),
            origin: None,
            about: None,
            covers_from: None,
            batch: (1, 1),
            action: piece("a", content).into(),
        };
        let one = one(&[record("say \\\"hi"), record("\\\" \\u00e9")]).unwrap();
        assert_eq!(one, piece("a", "say \\\"hi\\\" é"));
    }
}
