//! The rows beside the log, made anew of the records.
//!
//! Used where a log comes without them: after an import, and to rebuild them. Reads the records, and the URIs of the channels'
//! numbers, without which no record can be read. What `verify` compares is what is made here, with the same folds.
//!
//! Left out on purpose: checkpoints, which come by themselves; and what no record says ([`BESIDE`]).

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use bytes::Bytes;

use super::canvas::{self, CanvasFold};
use super::catalogue::{self, CatalogueRow};
use super::chat::{ChatFold, Forked};
use super::fact::Fact;
use super::session::SessionFold;
use super::verify::{Fault, Files, end_of_turn, home_of, refold, tables};
use super::{FoldFault, summary, turns};
use crate::events::rows::{ChannelKind, channel_key, number_of_key, numbered_key, owed_key};
use crate::events::{Channel, ChannelId, Kind, Record, RowOp, ServerSeq, Store, Table};

/// The tables that are not made of records, or not all of whose rows are: which action a client sent; what is being erased; and of
/// chats that were erased, the turns that forks began with.
pub const BESIDE: &[Table] = &[Table::Dispatched, Table::Erasing, Table::Fork];

/// Rows that are given at once.
const STEP: usize = 500;

/// What is called with rows, some at a time and in an order in which the later ones are right.
pub type Put<'a> = &'a mut dyn FnMut(Vec<RowOp>) -> Result<(), FoldFault>;

/// A channel as its first record tells it.
struct Known {
    id: ChannelId,
    uri: Channel,
    kind: ChannelKind,
}

/// Makes all rows, and gives them to `put`.
///
/// # Errors
/// The first [`Fault`] of the log, or of `put`.
pub fn rows(store: &dyn Store, put: Put<'_>) -> Result<(), Fault> {
    let all = channels(store)?;
    let sessions: HashMap<&str, ChannelId> = all
        .iter()
        .filter(|known| known.kind == ChannelKind::Session)
        .map(|known| (known.uri.as_str(), known.id))
        .collect();
    let mut names: BTreeMap<&str, ChannelId> = BTreeMap::new();
    let mut homes: HashMap<&str, (ChannelId, ChannelId)> = HashMap::new();
    for known in &all {
        let (id, uri) = (known.id, &known.uri);
        match known.kind {
            ChannelKind::Root => {
                put(catalogue::register(uri, id, ChannelKind::Root, ChannelId(0)))?;
                clients(store, put)?;
            }
            ChannelKind::People => put(catalogue::register(uri, id, ChannelKind::People, ChannelId(0)))?,
            ChannelKind::Session => {
                put(session(store, id, uri)?)?;
                if let Some(name) = catalogue::last_segment(uri.as_str()) {
                    let oldest = names.entry(name).or_insert(id);
                    *oldest = id.min(*oldest);
                }
            }
            ChannelKind::Chat => {
                let home = chat(store, id, put)?;
                let home = home.as_deref().and_then(|home| sessions.get(home)).copied().unwrap_or(ChannelId(0));
                homes.insert(uri.as_str(), (id, home));
                put(catalogue::register(uri, id, ChannelKind::Chat, home))?;
            }
            ChannelKind::Canvas => {}
        }
    }
    for known in all.iter().filter(|known| known.kind == ChannelKind::Canvas) {
        let Some(at) = refold::<CanvasFold>(store, known.id, |_, _| Ok(()))? else { continue };
        let (chat, home) = homes.get(at.fold.chat.as_str()).copied().unwrap_or((ChannelId(0), ChannelId(0)));
        let mut ops = catalogue::register(&known.uri, known.id, ChannelKind::Canvas, home);
        ops.extend(at.fold.is_open.then(|| canvas::open_row(known.id, chat)));
        put(ops)?;
    }
    for (name, id) in names {
        let value = Bytes::from(channel_key(id));
        put(vec![RowOp::Put { table: Table::SessionById, key: name.as_bytes().to_vec(), value }])?;
    }
    Ok(())
}

/// The channels that have records, by number.
fn channels(store: &dyn Store) -> Result<Vec<Known>, Fault> {
    let mut names = Vec::new();
    store.scan_rows(Table::ChannelById, &[], None, &mut |key, value| {
        let uri = Channel::from(String::from_utf8_lossy(value).into_owned());
        names.extend(number_of_key(key).map(|id| (ChannelId(id), uri)));
        ControlFlow::Continue(())
    })?;
    let mut all = Vec::with_capacity(names.len());
    for (id, uri) in names {
        let mut first = None;
        store.scan_channel(id, 0, ServerSeq::MAX, &mut |record| {
            first = Some(record);
            ControlFlow::Break(())
        })?;
        let Some(first) = first else { continue };
        let kind = kind_of(&first).ok_or_else(|| Fault {
            seq: Some(first.seq),
            problem: format!("event {} of {uri}: the channel begins with an event that creates nothing", first.seq),
        })?;
        all.push(Known { id, uri, kind });
    }
    Ok(all)
}

/// What kind of channel begins with this record.
fn kind_of(first: &Record) -> Option<ChannelKind> {
    if first.kind != Kind::Host {
        return None;
    }
    match Fact::from_stored(&first.action).ok()? {
        Fact::SessionCreated { .. } => Some(ChannelKind::Session),
        Fact::ChatCreated { .. } => Some(ChannelKind::Chat),
        Fact::CanvasCreated { .. } => Some(ChannelKind::Canvas),
        _ if first.channel_id == ChannelId::ROOT => Some(ChannelKind::Root),
        _ if first.channel.as_str() == super::people::PEOPLE => Some(ChannelKind::People),
        _ => None,
    }
}

/// What is remembered of clients: the newest of each counts.
fn clients(store: &dyn Store, put: Put<'_>) -> Result<(), Fault> {
    let mut ops = Vec::new();
    let mut found = Ok(());
    store.scan_channel(ChannelId::ROOT, 0, ServerSeq::MAX, &mut |record| {
        let fact = (record.kind == Kind::Host).then(|| Fact::from_stored(&record.action));
        if let Some(Ok(Fact::Client { client_id, client })) = fact {
            let value = Bytes::from(client.to_string());
            ops.push(RowOp::Put { table: Table::Client, key: client_id.into_bytes(), value });
        }
        if ops.len() >= STEP {
            found = put(std::mem::take(&mut ops));
        }
        if found.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    found?;
    Ok(put(ops)?)
}

fn session(store: &dyn Store, id: ChannelId, uri: &Channel) -> Result<Vec<RowOp>, Fault> {
    let mut ops = catalogue::register(uri, id, ChannelKind::Session, id);
    if let Some(at) = refold::<SessionFold>(store, id, |_, _| Ok(()))? {
        let row = CatalogueRow { summary: summary::of_session(uri.as_str(), &at.fold), disposed: at.fold.disposed };
        ops.extend(catalogue::replace(id, None, &row));
    }
    Ok(ops)
}

/// The rows of a chat; returns the URI of the session that it is in.
fn chat(store: &dyn Store, id: ChannelId, put: Put<'_>) -> Result<Option<String>, Fault> {
    let mut second: Option<ChatFold> = None;
    let mut files = Files::default();
    let mut rows = tables::OfChat::default();
    let mut last_head = 0;
    let mut home = None;
    let mut ops = Vec::new();
    let at = refold::<ChatFold>(store, id, |fold, record| {
        home = home_of(record).or(home.take());
        files.after(fold, record);
        let head = fold.head();
        if std::mem::replace(&mut last_head, head) != head {
            let value = Bytes::copy_from_slice(&head.to_be_bytes());
            ops.push(RowOp::Put { table: Table::Head, key: numbered_key(id, record.seq), value });
        }
        let turn = end_of_turn(&mut second, fold, record)?;
        rows.after(id, fold, record, turn.as_ref());
        if let Some(turn) = turn {
            let key = numbered_key(id, turn.n);
            if let Some(point) = &turn.point {
                let value = Bytes::from(serde_json::to_vec(point).unwrap_or_default());
                ops.push(RowOp::Put { table: Table::Point, key: key.clone(), value });
            }
            ops.push(RowOp::Put { table: Table::Turn, key, value: Bytes::from(turn.row.encode(&turn.json)) });
        }
        ops.extend(source(id, record));
        if ops.len() >= STEP {
            put(std::mem::take(&mut ops)).map_err(|fault| fault.to_string())?;
        }
        Ok(())
    })?;
    ops.extend(files.rows(id));
    ops.extend(rows.rows(id));
    if let Some(owed) = at.as_ref().and_then(|at| at.fold.attempts.owed.as_ref()) {
        ops.push(RowOp::Put { table: Table::Owed, key: owed_key(owed.at, id), value: Bytes::new() });
    }
    put(ops)?;
    Ok(home)
}

/// The row that says which turn of another chat a fork begins with, where `record` creates one.
fn source(id: ChannelId, record: &Record) -> Option<RowOp> {
    if record.kind != Kind::Host {
        return None;
    }
    match Fact::from_stored(&record.action).ok()? {
        Fact::ChatCreated { fork: Some(fork), .. } => begins_with(&fork, id),
        _ => None,
    }
}

/// The row that says that a fork, which has this number, begins with a turn of another chat.
pub fn begins_with(fork: &Forked, id: ChannelId) -> Option<RowOp> {
    let (of, n) = turns::place(id, *fork.bases.first()?);
    let mut key = numbered_key(of, n);
    key.extend_from_slice(&id.0.to_be_bytes());
    Some(RowOp::Put { table: Table::Fork, key, value: Bytes::new() })
}
