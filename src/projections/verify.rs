//! Reads every record and folds every channel again, and compares what stands beside the log with it.
//!
//! One pass over the line in order, which checks checksums and numbers, and one fold of each channel without checkpoints,
//! which checks that every turn's row, every head, every checkpoint, the catalogue and the tables beside it say the same as
//! the log. What an erasure is removing is left out: it is finished at the next start.

pub(super) mod tables;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;

use bytes::Bytes;

use super::action::Action;
use super::canvas::{self, CanvasFold};
use super::catalogue::{self, CatalogueRow};
use super::chat::ChatFold;
use super::erasure::Erasure;
use super::fact::Fact;
use super::people::People;
use super::replay::{self, At, Fold};
use super::root::RootFold;
use super::session::SessionFold;
use super::{FoldFault, inputs, mirror, summary, turns};
use crate::attachments::references::{self, Reference};
use crate::events::rows::{ChannelKind, ChannelRow, leading_number, number_of_key, numbered_key, owed_key};
use crate::events::{ChannelId, Kind, Record, RowOp, ServerSeq, Store, Table};

/// How often a channel is checked again while a host appends to it.
const AGAIN: u32 = 100;

/// What was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verified {
    pub events: u64,
    pub channels: u64,
    pub checkpoints: u64,
}

/// The first fault that was found.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub struct Fault {
    /// The event that is at fault, where it is one.
    pub seq: Option<ServerSeq>,
    pub problem: String,
}

impl From<FoldFault> for Fault {
    fn from(fault: FoldFault) -> Self {
        let seq = match &fault {
            FoldFault::Event { seq, .. } => Some(*seq),
            _ => None,
        };
        Self { seq, problem: fault.to_string() }
    }
}

impl From<crate::events::LogFault> for Fault {
    fn from(fault: crate::events::LogFault) -> Self {
        Self { seq: None, problem: fault.to_string() }
    }
}

fn fault(seq: Option<ServerSeq>, problem: impl Into<String>) -> Fault {
    Fault { seq, problem: problem.into() }
}

/// Verifies the whole store. `progress` is called with the number of events that were read so far.
///
/// # Errors
/// The first [`Fault`].
pub fn verify(store: &dyn Store, progress: &mut dyn FnMut(u64)) -> Result<Verified, Fault> {
    let mut done = Verified { events: read_the_line(store, progress)?, ..Verified::default() };
    for (uri, row) in channels(store)? {
        done.channels += 1;
        done.checkpoints += while_it_goes_on(store, || channel(store, &uri, &row))?;
    }
    tables::rows_of_nobody(store)?;
    Ok(done)
}

/// Checks again when the log grew meanwhile: what is compared is read at two moments.
fn while_it_goes_on<T>(store: &dyn Store, check: impl Fn() -> Result<T, Fault>) -> Result<T, Fault> {
    for _ in 0..AGAIN {
        let before = store.tail();
        match check() {
            Err(_) if store.tail() != before => {}
            found => return found,
        }
    }
    check()
}

/// Checks one channel; returns how many checkpoints it has.
fn channel(store: &dyn Store, uri: &str, row: &ChannelRow) -> Result<u64, Fault> {
    let channel = ChannelId(row.id);
    let erasures = Erasure::under_way(store)?;
    if erasures.iter().any(|erasure| erasure.removes(channel)) || catalogue::channel(store, uri)?.is_none() {
        return Ok(0);
    }
    match row.kind {
        ChannelKind::Root => checkpoints_of::<RootFold>(store, channel, uri),
        ChannelKind::Session => {
            session(store, channel, uri)?;
            match erasures.iter().any(|erasure| erasure.rewrites(channel)) {
                true => Ok(0),
                false => checkpoints_of::<SessionFold>(store, channel, uri),
            }
        }
        ChannelKind::Chat => {
            chat(store, channel, uri, ChannelId(row.session))?;
            checkpoints_of::<ChatFold>(store, channel, uri)
        }
        ChannelKind::Canvas => canvas(store, channel, uri).map(|()| 0),
        ChannelKind::People => refold::<People>(store, channel, |_, _| Ok(())).map(|_| 0),
    }
}

fn read_the_line(store: &dyn Store, progress: &mut dyn FnMut(u64)) -> Result<u64, Fault> {
    let upto = store.tail();
    let mut events = 0u64;
    let mut last = 0;
    let mut found = None;
    store.scan(0, upto, &mut |record| {
        if record.seq <= last {
            found = Some(fault(Some(record.seq), format!("event {} stands behind event {last}", record.seq)));
            return ControlFlow::Break(());
        }
        if record.seq < record.batch.0 || record.seq > record.batch.1 {
            found = Some(fault(Some(record.seq), format!("event {} is not in its own batch", record.seq)));
            return ControlFlow::Break(());
        }
        last = record.seq;
        events += 1;
        if events.is_multiple_of(10_000) {
            progress(events);
        }
        ControlFlow::Continue(())
    })?;
    if let Some(found) = found {
        return Err(found);
    }
    if last != upto {
        return Err(fault(Some(last), format!("the line ends at {last}, but the store says {upto}")));
    }
    progress(events);
    Ok(events)
}

fn channels(store: &dyn Store) -> Result<Vec<(String, ChannelRow)>, Fault> {
    let mut all = Vec::new();
    let mut found = None;
    store.scan_rows(Table::ChannelByUri, &[], None, &mut |key, value| {
        let uri = String::from_utf8_lossy(key).into_owned();
        match serde_json::from_slice(value) {
            Ok(row) => all.push((uri, row)),
            Err(e) => found = Some(fault(None, format!("row of channel {uri}: {e}"))),
        }
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    found.map_or(Ok(all), Err)
}

/// Folds a channel from its first event on, calling `seen` after each.
pub(super) fn refold<F: Fold>(
    store: &dyn Store,
    channel: ChannelId,
    mut seen: impl FnMut(&F, &Record) -> Result<(), String>,
) -> Result<Option<At<F>>, Fault> {
    let mut at: Option<At<F>> = None;
    let mut found = None;
    store.scan_channel(channel, 0, ServerSeq::MAX, &mut |record| {
        let step =
            replay::step(&mut at, &record).and_then(|()| at.as_ref().map_or(Ok(()), |at| seen(&at.fold, &record)));
        match step {
            Ok(()) => ControlFlow::Continue(()),
            Err(problem) => {
                found = Some(fault(Some(record.seq), format!("event {} of {}: {problem}", record.seq, record.channel)));
                ControlFlow::Break(())
            }
        }
    })?;
    found.map_or(Ok(at), Err)
}

fn checkpoints_of<F: Fold + Canonical>(store: &dyn Store, channel: ChannelId, uri: &str) -> Result<u64, Fault> {
    let mut stored: HashMap<ServerSeq, Vec<u8>> = HashMap::new();
    store.scan_rows(Table::Checkpoint, &channel.0.to_be_bytes(), None, &mut |key, value| {
        if let Some(seq) = number_of_key(key) {
            stored.insert(seq, value.to_vec());
        }
        ControlFlow::Continue(())
    })?;
    if stored.is_empty() {
        return Ok(0);
    }
    let mut checked = 0;
    refold::<F>(store, channel, |fold, record| {
        let Some(bytes) = stored.remove(&record.seq) else { return Ok(()) };
        checked += 1;
        let Some(checkpoint) = F::restore(&bytes) else { return Ok(()) };
        if checkpoint.canonical() == fold.canonical() {
            Ok(())
        } else {
            Err("its checkpoint is not what the log folds to".into())
        }
    })?;
    match stored.keys().next() {
        Some(seq) => Err(fault(Some(*seq), format!("a checkpoint of {uri} names event {seq}, which it does not have"))),
        None => Ok(checked),
    }
}

/// A form in which equal folds are equal.
trait Canonical {
    fn canonical(&self) -> serde_json::Value;
}

impl Canonical for ChatFold {
    fn canonical(&self) -> serde_json::Value {
        json(self)
    }
}

impl Canonical for SessionFold {
    fn canonical(&self) -> serde_json::Value {
        json(self)
    }
}

impl Canonical for RootFold {
    fn canonical(&self) -> serde_json::Value {
        json(&self.state)
    }
}

fn session(store: &dyn Store, channel: ChannelId, uri: &str) -> Result<(), Fault> {
    let Some(at) = refold::<SessionFold>(store, channel, |_, _| Ok(()))? else {
        return Err(fault(None, format!("{uri} has a row and no events")));
    };
    let want = CatalogueRow { summary: summary::of_session(uri, &at.fold), disposed: at.fold.disposed };
    let listed = catalogue::entry(store, channel)?;
    let same =
        listed.as_ref().is_some_and(|row| row.disposed == want.disposed && json(&row.summary) == json(&want.summary));
    if !same {
        return Err(fault(Some(at.seq), format!("the catalogue's row of {uri} is not what the log says")));
    }
    tables::place(store, uri, channel, &want)
}

fn chat(store: &dyn Store, channel: ChannelId, uri: &str, session: ChannelId) -> Result<(), Fault> {
    let mut plain: Option<ChatFold> = None;
    let mut files = Files::default();
    let mut rows = tables::OfChat::default();
    let mut last_head = 0;
    let mut home = None;
    let at = refold::<ChatFold>(store, channel, |fold, record| {
        home = home_of(record).or(home.take());
        files.after(fold, record);
        if std::mem::replace(&mut last_head, fold.head()) != fold.head() {
            let stored = store.get(Table::Head, &numbered_key(channel, record.seq)).map_err(|e| e.to_string())?;
            if stored.as_deref().and_then(leading_number) != Some(fold.head()) {
                return Err("no row says where the branch ends since".into());
            }
        }
        let turn = end_of_turn(&mut plain, fold, record)?;
        rows.after(channel, fold, record, turn.as_ref());
        let Some(turn) = turn else { return Ok(()) };
        let row = turns::read(store, channel, turn.n).map_err(|e| e.to_string())?;
        if row.row != turn.row || row.json != turn.json {
            return Err(format!("the row of turn {} is not what the log says", turn.turn_id));
        }
        let point = turns::point(store, channel, turn.n).map_err(|e| e.to_string())?;
        if point != turn.point {
            return Err(format!("the row of where turn {} ended for the agent is not what the log says", turn.turn_id));
        }
        Ok(())
    })?;
    let Some(at) = at else { return Err(fault(None, format!("{uri} has a row and no events"))) };
    files.compare(store, channel)?;
    rows.compare(store, uri, channel)?;
    let mut of_others = at.fold.bases.first().copied().unwrap_or(0);
    while of_others != 0 {
        of_others = turns::read(store, channel, of_others)?.row.prev;
    }
    visuals(store, uri, channel, &at)?;
    let named = catalogue::uri(store, session)?.map(|named| named.to_string());
    if home != named {
        return Err(fault(Some(at.seq), format!("the row of {uri} names another session than the log does")));
    }
    owed(store, uri, channel, &at)?;
    mirrors(store, uri, session, &at)
}

/// The row of what is owed to a chat: one where the fold says so, and none else.
fn owed(store: &dyn Store, uri: &str, chat: ChannelId, at: &At<ChatFold>) -> Result<(), Fault> {
    let mut rows = Vec::new();
    store.scan_rows(Table::Owed, &[], None, &mut |key, _| {
        if number_of_key(key) == Some(chat.0) {
            rows.push(key.to_vec());
        }
        ControlFlow::Continue(())
    })?;
    let wanted: Vec<Vec<u8>> = at.fold.attempts.owed.iter().map(|owed| owed_key(owed.at, chat)).collect();
    if rows == wanted {
        Ok(())
    } else {
        Err(fault(Some(at.seq), format!("the rows of what is owed to {uri} are not what the log says")))
    }
}

/// The session that a chat is in from this record on, where it says so.
pub(super) fn home_of(record: &Record) -> Option<String> {
    if record.kind != Kind::Host {
        return None;
    }
    match Fact::from_stored(&record.action).ok()? {
        Fact::ChatCreated { session, .. } | Fact::ChatMoved { session } => Some(session),
        _ => None,
    }
}

/// What in a chat refers to stored attachments, followed event by event.
#[derive(Default)]
pub(super) struct Files {
    waiting: BTreeSet<Reference>,
    /// Every reference that there ever was, and whether it is still there.
    all: BTreeMap<Reference, bool>,
}

impl Files {
    pub(super) fn after(&mut self, fold: &ChatFold, record: &Record) {
        let Ok(action) = Action::from_stored(record.action.clone()) else { return };
        if !references::is_touched_by(&action.decoded) {
            return;
        }
        let changes = references::changes(&self.waiting, &fold.state, &action.decoded, record.origin.is_some());
        self.all.extend(changes.added.into_iter().map(|added| (added, true)));
        self.all.extend(changes.removed.into_iter().map(|removed| (removed, false)));
        self.waiting = references::held(&fold.state);
    }

    /// The rows of what refers to files.
    pub(super) fn rows(&self, chat: ChannelId) -> impl Iterator<Item = RowOp> {
        let there = self.all.iter().filter(|(_, is_there)| **is_there);
        there.map(move |(reference, _)| RowOp::Put {
            table: Table::Attachment,
            key: references::key(chat, reference),
            value: Bytes::new(),
        })
    }

    fn compare(&self, store: &dyn Store, chat: ChannelId) -> Result<(), Fault> {
        for (reference, is_there) in &self.all {
            if store.get(Table::Attachment, &references::key(chat, reference))?.is_some() != *is_there {
                return Err(fault(None, "what refers to a stored attachment is not what the log says"));
            }
        }
        Ok(())
    }
}

/// What a chat lists is what was published in it, and each has its row.
fn visuals(store: &dyn Store, uri: &str, chat: ChannelId, at: &At<ChatFold>) -> Result<(), Fault> {
    let listed = at.fold.state.canvases.iter().flatten().map(|canvas| canvas.resource.as_str());
    if !listed.eq(at.fold.visuals.iter().map(|visual| visual.canvas().to_string())) {
        return Err(fault(Some(at.seq), format!("{uri} lists other canvases than were published in it")));
    }
    for visual in &at.fold.visuals {
        let row = catalogue::channel(store, visual.canvas().as_str())?;
        let of = row.map(|row| canvas::chat_of(store, ChannelId(row.id))).transpose()?.flatten();
        if of != Some(chat) {
            return Err(fault(Some(at.seq), format!("visual {} of {uri} has no row", visual.id)));
        }
    }
    Ok(())
}

/// The row of a canvas against its channel: it is there while the canvas is, and names its chat.
fn canvas(store: &dyn Store, channel: ChannelId, uri: &str) -> Result<(), Fault> {
    let Some(at) = refold::<CanvasFold>(store, channel, |_, _| Ok(()))? else {
        return Err(fault(None, format!("{uri} has a row and no events")));
    };
    let row = canvas::chat_of(store, channel)?.map(|chat| catalogue::uri(store, chat)).transpose()?.flatten();
    let named = row.as_ref().map(|chat| chat.as_str());
    let wanted = at.fold.is_open.then_some(at.fold.chat.as_str());
    if named == wanted {
        Ok(())
    } else {
        Err(fault(Some(at.seq), format!("the row of {uri} is not what the log says")))
    }
}

/// Applies the record to a second fold, which says whether it ended a turn.
pub(super) fn end_of_turn(
    second: &mut Option<ChatFold>,
    first: &ChatFold,
    record: &Record,
) -> Result<Option<super::chat::EndedTurn>, String> {
    match (second.as_mut(), record.kind) {
        (None, _) => *second = Some(first.clone()),
        (Some(fold), Kind::Host) => fold.apply_fact(&Fact::from_stored(&record.action)?),
        (Some(fold), Kind::Action) => return Ok(fold.apply(&Action::from_stored(record.action.clone())?, record.at)),
    }
    Ok(None)
}

/// The session's entry of a chat, and of what it waits for, against the chat itself.
fn mirrors(store: &dyn Store, uri: &str, session: ChannelId, chat: &At<ChatFold>) -> Result<(), Fault> {
    let Some(of) = replay::fold::<SessionFold>(store, session, ServerSeq::MAX, true)? else {
        return Err(fault(Some(chat.seq), format!("the session of {uri} has no events")));
    };
    let state = &of.fold.state;
    let Some(listed) = state.chats.iter().find(|entry| entry.resource == chat.fold.state.resource) else {
        return Ok(());
    };
    if json(listed) != json(&mirror::summary_of(&chat.fold.state)) {
        return Err(fault(Some(chat.seq), format!("the session's summary of {uri} is not the chat's own")));
    }
    let wanted = inputs::of_chat(&chat.fold.state);
    let of_it = state.input_needed.iter().flatten();
    let listed: Vec<_> =
        of_it.filter(|e| inputs::id_and_chat(e).is_some_and(|(_, of)| of == chat.fold.state.resource)).collect();
    let same = listed.len() == wanted.len() && wanted.iter().all(|w| listed.iter().any(|l| json(*l) == json(w)));
    if same {
        Ok(())
    } else {
        Err(fault(Some(chat.seq), format!("what {uri} waits for is not what its session lists")))
    }
}

/// A form in which equal values are equal.
fn json(value: &impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or_default()
}
