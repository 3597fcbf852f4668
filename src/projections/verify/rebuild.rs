//! The rows, made anew from the log.
//!
//! They are written into a copy of the log, which is verified and takes its place: so what cannot be made leaves everything as
//! it was. What no event tells is copied where it can be read: the names of channels, which actions of clients were applied,
//! what is being erased, and what forks keep of chats that are gone.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;

use super::{Files, end_of_turn, home_of, json, refold, tables};
use crate::attachments::references;
use crate::events::compacting::{Compacting, Rebuilding, Span};
use crate::events::rows::{self, ChannelKind, channel_key, leading_number, number_of_key, numbered_key};
use crate::events::{
    Batch, Channel, ChannelId, Kind, LogFault, Record, RowOp, ServerSeq, Store, Table,
};
use crate::projections::canvas::{self, CanvasFold};
use crate::projections::catalogue::{self, CatalogueRow};
use crate::projections::chat::ChatFold;
use crate::projections::compaction;
use crate::projections::fact::Fact;
use crate::projections::session::SessionFold;
use crate::projections::{summary, turns};

/// Rows that are written in one step.
const STEP: usize = 1_000;

/// A copy of the log with its rows made anew.
pub struct Rebuild {
    /// The channels that have events, by number.
    logged: BTreeSet<u64>,
}

impl Rebuild {
    /// What there is to do for `store`.
    ///
    /// # Errors
    /// [`LogFault`] when the log cannot be read.
    pub fn of(store: &dyn Store) -> Result<Self, LogFault> {
        let mut logged = BTreeSet::new();
        store.scan(0, ServerSeq::MAX, &mut |record| {
            logged.insert(record.channel_id.0);
            ControlFlow::Continue(())
        })?;
        Ok(Self { logged })
    }

    fn is_gone(&self, channel: Option<u64>) -> bool {
        channel.is_some_and(|channel| !self.logged.contains(&channel))
    }
}

impl Compacting for Rebuild {
    fn spans(&self, _: &dyn Store, _: ChannelId, _: ServerSeq) -> Result<Vec<Span>, String> {
        Ok(Vec::new())
    }

    fn one(&self, _: &[Record]) -> Result<Bytes, String> {
        Err("nothing becomes one".into())
    }

    fn check(&self, old: &dyn Store, new: &dyn Store, upto: ServerSeq) -> Result<(), String> {
        compaction::check(old, new, upto, &AtomicBool::new(false))
    }

    fn rebuilding(&self) -> Option<&dyn Rebuilding> {
        Some(self)
    }
}

impl Rebuilding for Rebuild {
    fn keeps(&self, table: Table, key: &[u8]) -> bool {
        match table {
            Table::ChannelById | Table::Dispatched | Table::Erasing => true,
            Table::Turn | Table::Point | Table::Used => self.is_gone(leading_number(key)),
            Table::Fork => self.is_gone(number_of_key(key)),
            Table::Attachment => self.is_gone(references::parse_key(key).map(|(chat, _)| chat.0)),
            _ => false,
        }
    }

    fn rows(&self, log: &dyn Store) -> Result<(), String> {
        let made = Made { log, ops: Vec::new(), named: HashMap::new() };
        made.all(&self.logged)
    }
}

/// Rows on their way into the copy.
struct Made<'a> {
    log: &'a dyn Store,
    ops: Vec<RowOp>,
    /// The channels by URI.
    named: HashMap<String, ChannelId>,
}

impl Made<'_> {
    fn all(mut self, logged: &BTreeSet<u64>) -> Result<(), String> {
        let mut channels = Vec::new();
        for id in logged.iter().copied().map(ChannelId) {
            let name = catalogue::uri(self.log, id).map_err(words)?;
            let name = name.ok_or_else(|| format!("channel {} has no name", id.0))?;
            self.named.insert(name.as_str().to_owned(), id);
            channels.push((id, name));
        }
        let mut by_name: HashMap<String, ChannelId> = HashMap::new();
        for (id, name) in &channels {
            if self.channel(*id, name)? == ChannelKind::Session
                && let Some(short) = catalogue::last_segment(name.as_str())
            {
                // In the order of their numbers: the oldest has the name.
                by_name.entry(short.to_owned()).or_insert(*id);
            }
            self.write(STEP)?;
        }
        for (short, id) in by_name {
            self.put(Table::SessionById, short.into_bytes(), channel_key(id));
        }
        self.clients()?;
        self.write(0)
    }

    fn put(&mut self, table: Table, key: Vec<u8>, value: impl Into<Bytes>) {
        self.ops.push(RowOp::Put { table, key, value: value.into() });
    }

    /// Writes what is there, when it is more than `at_most`.
    fn write(&mut self, at_most: usize) -> Result<(), String> {
        if self.ops.len() > at_most {
            let rows = std::mem::take(&mut self.ops);
            self.log.append(&[Batch { events: Vec::new(), rows }]).map_err(words)?;
        }
        Ok(())
    }

    /// The rows of one channel. Returns its kind.
    fn channel(&mut self, id: ChannelId, name: &Channel) -> Result<ChannelKind, String> {
        let (kind, session) = match self.first_fact(id)? {
            Some(Fact::SessionCreated { .. }) => {
                self.session(id, name)?;
                (ChannelKind::Session, id)
            }
            Some(Fact::ChatCreated { .. }) => (ChannelKind::Chat, self.chat(id, name)?),
            Some(Fact::CanvasCreated { .. }) => (ChannelKind::Canvas, self.canvas(id)?),
            _ if id == ChannelId::ROOT => (ChannelKind::Root, ChannelId(0)),
            _ => (ChannelKind::People, ChannelId(0)),
        };
        self.ops.extend(catalogue::register(name, id, kind, session));
        Ok(kind)
    }

    fn first_fact(&self, channel: ChannelId) -> Result<Option<Fact>, String> {
        let mut first = Ok(None);
        let mut visit = |record: Record| {
            first = match record.kind {
                Kind::Host => Fact::from_stored(&record.action).map(Some),
                Kind::Action => Ok(None),
            };
            ControlFlow::Break(())
        };
        self.log.scan_channel(channel, 0, ServerSeq::MAX, &mut visit).map_err(words)?;
        first
    }

    fn session(&mut self, id: ChannelId, name: &Channel) -> Result<(), String> {
        let at = refold::<SessionFold>(self.log, id, |_, _| Ok(())).map_err(words)?;
        let Some(at) = at else { return Ok(()) };
        let row = CatalogueRow { summary: summary::of_session(name.as_str(), &at.fold), disposed: at.fold.disposed };
        self.ops.extend(catalogue::replace(id, None, &row));
        Ok(())
    }

    /// Returns the session that the chat is in.
    fn chat(&mut self, id: ChannelId, name: &Channel) -> Result<ChannelId, String> {
        let (mut plain, mut files, mut seen) = (None, Files::default(), tables::OfChat::default());
        let (mut head, mut home) = (0, None);
        let mut ops = Vec::new();
        let mut put = |table, key, value: Vec<u8>| ops.push(RowOp::Put { table, key, value: value.into() });
        let at = refold::<ChatFold>(self.log, id, |fold, record| {
            home = home_of(record).or(home.take());
            files.after(fold, record);
            if std::mem::replace(&mut head, fold.head()) != fold.head() {
                put(Table::Head, numbered_key(id, record.seq), fold.head().to_be_bytes().to_vec());
            }
            let turn = end_of_turn(&mut plain, fold, record)?;
            seen.after(id, fold, record, turn.as_ref());
            let Some(turn) = turn else { return Ok(()) };
            put(Table::Turn, numbered_key(id, turn.n), turn.row.encode(&turn.json));
            if let Some(point) = &turn.point {
                let value = serde_json::to_vec(point).unwrap_or_default();
                put(Table::Point, numbered_key(id, turn.n), value);
            }
            Ok(())
        })
        .map_err(words)?;
        let Some(at) = at else { return Err(format!("{name} has no events")) };
        seen.rows(id).for_each(|(table, key, value)| put(table, key, value));
        files.keys(id).for_each(|key| put(Table::Attachment, key, Vec::new()));
        if let Some(owed) = &at.fold.attempts.owed {
            put(Table::Owed, rows::owed_key(owed.at, id), Vec::new());
        }
        if let Some(base) = at.fold.bases.first() {
            let (chat, n) = turns::place(id, *base);
            let mut key = numbered_key(chat, n);
            key.extend_from_slice(&id.0.to_be_bytes());
            put(Table::Fork, key, Vec::new());
        }
        self.ops.extend(ops);
        let home = home.ok_or_else(|| format!("{name} is in no session"))?;
        self.named.get(&home).copied().ok_or_else(|| format!("{name} is in {home}, which has no events"))
    }

    /// Returns the session of the chat that the canvas was published in.
    fn canvas(&mut self, id: ChannelId) -> Result<ChannelId, String> {
        let at = refold::<CanvasFold>(self.log, id, |_, _| Ok(())).map_err(words)?;
        let Some(at) = at else { return Ok(ChannelId(0)) };
        let Some(chat) = self.named.get(&at.fold.chat).copied() else { return Ok(ChannelId(0)) };
        if at.fold.is_open {
            self.ops.push(canvas::open_row(id, chat));
        }
        let mut home = None;
        let mut visit = |record: Record| {
            // The session that the chat was in then; where it went later, its canvases are told apart by the chat.
            home = home_of(&record);
            ControlFlow::Break(())
        };
        self.log.scan_channel(chat, 0, ServerSeq::MAX, &mut visit).map_err(words)?;
        Ok(home.and_then(|home| self.named.get(&home).copied()).unwrap_or(ChannelId(0)))
    }

    fn clients(&mut self) -> Result<(), String> {
        let mut clients = HashMap::new();
        let mut visit = |record: Record| {
            if record.kind == Kind::Host
                && let Ok(Fact::Client { client_id, client }) = Fact::from_stored(&record.action)
            {
                clients.insert(client_id, client);
            }
            ControlFlow::Continue(())
        };
        self.log.scan_channel(ChannelId::ROOT, 0, ServerSeq::MAX, &mut visit).map_err(words)?;
        for (id, client) in clients {
            self.put(Table::Client, id.into_bytes(), json(&client).to_string());
        }
        Ok(())
    }
}

fn words(fault: impl std::fmt::Display) -> String {
    fault.to_string()
}
