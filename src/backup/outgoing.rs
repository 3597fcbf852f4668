//! A store as lines, whole, of one channel, or what came since an earlier time.
//!
//! The records come of one scan, which sees one log also when that is compacted meanwhile. What is erased meanwhile is noticed at
//! the end, and what was sent is good for nothing then. Memory: a record, the names of attachments, and what is kept for forks of chats
//! that are not sent.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ahp_types::actions::StateAction;

use super::BackupFault;
use super::line::{self, End, FORMAT, Header, Line, PIECE, Piece, Row};
use crate::attachments::references::{self, Referrer};
use crate::attachments::{FOLDER, FileRef};
use crate::events::rows::{ChannelKind, ChannelRow, leading_number, number_of_key, numbered_key, used_key};
use crate::events::{ChannelId, Kind, Record, ServerSeq, Store, Table};
use crate::projections::action::{Action, type_of};
use crate::projections::fact::Fact;
use crate::projections::{catalogue, turns};

/// What is asked for.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// One channel, with what it needs to stand by itself.
    pub channel: Option<String>,
    /// What came behind this number, and what the record with it is known by: for who has the rest.
    pub since: Option<(ServerSeq, String)>,
    /// The hashes of tokens too.
    pub secrets: bool,
}

/// What is going to be sent.
pub struct Outgoing<'a> {
    store: &'a dyn Store,
    /// Where attachments are.
    files: PathBuf,
    pub header: Header,
    /// The channels that are sent; `None` for all.
    only: Option<BTreeSet<ChannelId>>,
}

/// Takes the lines, each with its end, as they come.
pub type Emit<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), BackupFault>;

impl<'a> Outgoing<'a> {
    /// What `wanted` asks of a store, whose data directory is `data`, at the time `at`. Where what came since cannot be told alone, it
    /// is everything: the header says so.
    ///
    /// # Errors
    /// [`BackupFault::NoChannel`]; [`BackupFault::Refused`] where who asks has another log than this.
    pub fn of(store: &'a dyn Store, data: &Path, wanted: &Wanted, at: String) -> Result<Self, BackupFault> {
        let upto = store.tail();
        let only = wanted.channel.as_deref().map(|uri| channels_with(store, uri)).transpose()?;
        let after = match &wanted.since {
            Some((seq, print)) if *seq > 0 && continues(store, *seq, print, upto)? => *seq,
            _ => 0,
        };
        let print = record_at(store, upto)?.map(|record| line::print(&record)).unwrap_or_default();
        let header = Header {
            scrollback: env!("CARGO_PKG_VERSION").to_owned(),
            format: FORMAT,
            at,
            after,
            upto,
            next: store.next_seq().max(upto.saturating_add(1)),
            channels: store.last_channel_id().0,
            channel: wanted.channel.clone(),
            secrets: wanted.secrets,
            print,
        };
        Ok(Self { store, files: data.join(FOLDER), header, only })
    }

    /// Sends it; `progress` is told how many records have gone.
    ///
    /// # Errors
    /// [`BackupFault::Changed`] where the log was changed meanwhile: what was sent is not to be used. Those of `emit`.
    pub fn send(&self, emit: Emit<'_>, progress: &mut dyn FnMut(u64)) -> Result<(), BackupFault> {
        let erasing = being_erased(self.store)?;
        let mut lines = 0u64;
        let mut counted = |bytes: &[u8]| {
            lines += 1;
            emit(bytes)
        };
        counted(&whole(&Line::Header(self.header.clone()))?)?;
        let mut files = self.records(&mut counted, progress)?;
        self.rows(&mut counted, &mut files)?;
        for file in files {
            self.file(file, &mut counted)?;
        }
        // An erasure that was written down before and done meanwhile is neither in the records nor in the rows.
        if erased_since(self.store, self.header.upto)? || being_erased(self.store)? != erasing {
            return Err(BackupFault::Changed);
        }
        let end = whole(&Line::End(End { lines }))?;
        emit(&end)
    }

    /// Sends the records; returns the attachments that they name.
    fn records(&self, emit: Emit<'_>, progress: &mut dyn FnMut(u64)) -> Result<BTreeSet<FileRef>, BackupFault> {
        let (mut sent, mut files, mut found) = (0u64, BTreeSet::new(), Ok(()));
        let after = self.header.after;
        self.store.scan(after, self.header.upto, &mut |record| {
            if self.only.as_ref().is_some_and(|only| !only.contains(&record.channel_id)) {
                return ControlFlow::Continue(());
            }
            found = self.record(&record, emit, &mut files);
            sent += 1;
            if sent.is_multiple_of(10_000) {
                progress(sent);
            }
            if found.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        found?;
        progress(sent);
        Ok(files)
    }

    fn record(&self, record: &Record, emit: Emit<'_>, files: &mut BTreeSet<FileRef>) -> Result<(), BackupFault> {
        if self.header.after > 0 && record.covers_from.is_some_and(|from| from <= self.header.after) {
            // Who asks has a part of what it says.
            return Err(BackupFault::Changed);
        }
        files.extend(files_in(record));
        emit(&line::of_record(record, self.header.secrets).map_err(BackupFault::Refused)?)
    }

    /// Sends the rows that no record says.
    fn rows(&self, emit: Emit<'_>, files: &mut BTreeSet<FileRef>) -> Result<(), BackupFault> {
        let mut row = |row: Row| emit(&whole(&Line::Row(row))?);
        if self.only.is_none() {
            for table in [Table::Dispatched, Table::Erasing] {
                let mut sent = Ok(());
                self.store.scan_rows(table, &[], None, &mut |key, value| {
                    let seq = leading_number(value).unwrap_or(0);
                    let is_asked_for =
                        table != Table::Dispatched || (self.header.after < seq && seq <= self.header.upto);
                    if is_asked_for {
                        sent = row(Row { table, key: key.to_vec(), value: value.to_vec() });
                    }
                    if sent.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                })?;
                sent?;
            }
        }
        if self.header.after > 0 {
            // What is kept of erased chats came when they were erased: with everything.
            return Ok(());
        }
        let kept = Kept::of(self.store, self.only.as_ref())?;
        kept.rows(self.store, files)?.into_iter().try_for_each(row)
    }

    /// Sends an attachment in pieces; one that is not there any more is left out.
    fn file(&self, file: FileRef, emit: Emit<'_>) -> Result<(), BackupFault> {
        let path = self.files.join(file.place());
        let mut open = match File::open(&path) {
            Ok(open) => open,
            Err(fault) if fault.kind() == ErrorKind::NotFound => return Ok(()),
            Err(fault) => return Err(BackupFault::io(&path)(fault)),
        };
        let mut left = open.metadata().map_err(BackupFault::io(&path))?.len();
        let mut offset = 0;
        loop {
            let mut data = Vec::new();
            let piece = left.min(PIECE as u64);
            (&mut open).take(piece).read_to_end(&mut data).map_err(BackupFault::io(&path))?;
            if (data.len() as u64) < piece {
                return Err(BackupFault::Refused(format!("{}: it became shorter while it was read", path.display())));
            }
            left -= piece;
            emit(&whole(&Line::Piece(Piece { file, offset, is_last: left == 0, data }))?)?;
            offset += piece;
            if left == 0 {
                return Ok(());
            }
        }
    }
}

fn whole(line: &Line) -> Result<Vec<u8>, BackupFault> {
    line.to_bytes().map_err(BackupFault::Refused)
}

/// Whether what came behind `seq` can be told alone to who has the rest, whose newest record is known by `print`.
fn continues(store: &dyn Store, seq: ServerSeq, print: &str, upto: ServerSeq) -> Result<bool, BackupFault> {
    let other = |why: String| Err(BackupFault::Refused(format!("the backup is of another log: {why}")));
    if seq > upto {
        return other(format!("it has event {seq}, and this log ends at {upto}; name another directory"));
    }
    let found = record_at(store, seq)?;
    let erased = erased_since(store, seq)?;
    match found {
        Some(found) if line::print(&found) == print => Ok(!erased),
        // A compaction folded others into it since: what the backup has of them says the same.
        Some(found) if found.covers_from.is_some() => Ok(!erased),
        _ if erased => Ok(false),
        // A compaction may have folded it into a later one.
        _ if covering(store, seq, upto)? => Ok(false),
        _ => other(format!("event {seq} is another one in it; name another directory")),
    }
}

fn record_at(store: &dyn Store, seq: ServerSeq) -> Result<Option<Record>, BackupFault> {
    let mut found = None;
    store.scan(seq.saturating_sub(1), seq, &mut |record| {
        found = Some(record);
        ControlFlow::Break(())
    })?;
    Ok(found)
}

/// Whether a later record says what was once said with `seq`.
fn covering(store: &dyn Store, seq: ServerSeq, upto: ServerSeq) -> Result<bool, BackupFault> {
    let mut found = false;
    store.scan(seq, upto, &mut |record| {
        found = record.covers_from.is_some_and(|from| from <= seq);
        if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found)
}

/// The keys of the erasures that are not done.
fn being_erased(store: &dyn Store) -> Result<Vec<Vec<u8>>, BackupFault> {
    let mut keys = Vec::new();
    store.scan_rows(Table::Erasing, &[], None, &mut |key, _| {
        keys.push(key.to_vec());
        ControlFlow::Continue(())
    })?;
    Ok(keys)
}

/// Whether anything was erased behind this number.
fn erased_since(store: &dyn Store, seq: ServerSeq) -> Result<bool, BackupFault> {
    let mut found = false;
    store.scan_channel(ChannelId::ROOT, seq, ServerSeq::MAX, &mut |record| {
        found = record.kind == Kind::Host && type_of(&record.action) == "host/erased";
        if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found)
}

/// A channel with those that it does not stand without: a chat's session, a session's chats, and the canvases of chats.
fn channels_with(store: &dyn Store, uri: &str) -> Result<BTreeSet<ChannelId>, BackupFault> {
    let row = catalogue::channel(store, uri)?.ok_or_else(|| BackupFault::NoChannel(uri.to_owned()))?;
    let mut all = BTreeSet::from([ChannelId(row.id)]);
    if !matches!(row.kind, ChannelKind::Session | ChannelKind::Chat | ChannelKind::Canvas) {
        return Ok(all);
    }
    all.insert(ChannelId(row.session));
    let mut rows: Vec<ChannelRow> = Vec::new();
    store.scan_rows(Table::ChannelByUri, &[], None, &mut |_, value| {
        rows.extend(serde_json::from_slice(value).ok());
        ControlFlow::Continue(())
    })?;
    if row.kind == ChannelKind::Session {
        let of_it = rows.iter().filter(|other| other.kind == ChannelKind::Chat && other.session == row.id);
        all.extend(of_it.map(|chat| ChannelId(chat.id)));
    }
    for canvas in rows.iter().filter(|other| other.kind == ChannelKind::Canvas).map(|canvas| ChannelId(canvas.id)) {
        let Some(chat) = chat_of_canvas(store, canvas)? else { continue };
        if all.contains(&chat) {
            all.insert(canvas);
        } else if canvas.0 == row.id {
            all.insert(chat);
        }
    }
    Ok(all)
}

/// The chat of a canvas, open or not.
fn chat_of_canvas(store: &dyn Store, canvas: ChannelId) -> Result<Option<ChannelId>, BackupFault> {
    let mut chat = None;
    store.scan_channel(canvas, 0, ServerSeq::MAX, &mut |record| {
        if let Ok(Fact::CanvasCreated { chat: of, .. }) = Fact::from_stored(&record.action) {
            chat = Some(of);
        }
        ControlFlow::Break(())
    })?;
    let row = chat.map(|chat| catalogue::channel(store, &chat)).transpose()?.flatten();
    Ok(row.map(|row| ChannelId(row.id)))
}

/// The attachments that a record names.
fn files_in(record: &Record) -> Vec<FileRef> {
    if record.kind != Kind::Action {
        return Vec::new();
    }
    let kind = type_of(&record.action);
    if !matches!(&*kind, "chat/turnStarted" | "chat/pendingMessageSet" | "chat/draftChanged") {
        return Vec::new();
    }
    let Ok(action) = Action::from_stored(record.action.clone()) else { return Vec::new() };
    match &action.decoded {
        StateAction::ChatTurnStarted(started) => references::files_of(&started.message).collect(),
        StateAction::ChatPendingMessageSet(set) => references::files_of(&set.message).collect(),
        StateAction::ChatDraftChanged(change) => change.draft.iter().flat_map(references::files_of).collect(),
        _ => Vec::new(),
    }
}

/// The turns of chats that are not sent which the branches of forks begin with.
#[derive(Default)]
struct Kept {
    /// Chat, n.
    turns: BTreeSet<(ChannelId, u64)>,
    /// The newest n of each turn's id.
    ids: BTreeMap<(ChannelId, String), u64>,
    /// The keys of the rows that say so.
    forks: BTreeSet<Vec<u8>>,
}

impl Kept {
    fn of(store: &dyn Store, only: Option<&BTreeSet<ChannelId>>) -> Result<Self, BackupFault> {
        let mut forks: BTreeMap<ChannelId, Vec<(ChannelId, u64)>> = BTreeMap::new();
        store.scan_rows(Table::Fork, &[], None, &mut |key, _| {
            let n = key.get(8..16).and_then(leading_number);
            if let (Some(of), Some(n), Some(fork)) = (leading_number(key), n, number_of_key(key)) {
                forks.entry(ChannelId(fork)).or_default().push((ChannelId(of), n));
            }
            ControlFlow::Continue(())
        })?;
        let is_sent = |chat: ChannelId| -> Result<bool, BackupFault> {
            Ok(match only {
                Some(only) => only.contains(&chat),
                None => catalogue::uri(store, chat)?.is_some(),
            })
        };
        let mut kept = Self::default();
        for (fork, of) in &forks {
            if !is_sent(*fork)? {
                continue;
            }
            // Each with the fork that it is of.
            let of_fork = |fork: ChannelId| move |(chat, n): &(ChannelId, u64)| (fork, *chat, *n);
            let mut next: Vec<(ChannelId, ChannelId, u64)> = of.iter().map(of_fork(*fork)).collect();
            while let Some((fork, chat, n)) = next.pop() {
                let is_there = is_sent(chat)?;
                let is_new = (is_there && is_sent(fork)?) || kept.forks.insert(key_of(chat, n, fork));
                if is_there || !is_new {
                    continue;
                }
                kept.branch(store, chat, n)?;
                next.extend(forks.get(&chat).into_iter().flatten().map(of_fork(chat)));
            }
        }
        Ok(kept)
    }

    /// Takes the turns of `chat` that the branch ending at its turn `n` has.
    fn branch(&mut self, store: &dyn Store, chat: ChannelId, n: u64) -> Result<(), BackupFault> {
        let mut next = n;
        while next != 0 && turns::place(chat, next).0 == chat {
            if !self.turns.insert((chat, next)) {
                return Ok(());
            }
            let turn = turns::read(store, chat, next)?;
            if let Some(id) = turn.id() {
                let newest = self.ids.entry((chat, id)).or_default();
                *newest = next.max(*newest);
            }
            next = turn.row.prev;
        }
        Ok(())
    }

    /// Their rows; the attachments that they name come to `files`.
    fn rows(self, store: &dyn Store, files: &mut BTreeSet<FileRef>) -> Result<Vec<Row>, BackupFault> {
        let mut rows: Vec<Row> =
            self.forks.into_iter().map(|key| Row { table: Table::Fork, key, value: Vec::new() }).collect();
        for (chat, n) in &self.turns {
            for table in [Table::Turn, Table::Point] {
                let key = numbered_key(*chat, *n);
                rows.extend(store.get(table, &key)?.map(|value| Row { table, key, value }));
            }
        }
        for ((chat, id), n) in &self.ids {
            let key = used_key(*chat, b't', id);
            rows.push(Row { table: Table::Used, key, value: n.to_be_bytes().to_vec() });
        }
        if self.ids.is_empty() {
            return Ok(rows);
        }
        store.scan_rows(Table::Attachment, &[], None, &mut |key, _| {
            if let Some((chat, (file, Referrer::Turn(id)))) = references::parse_key(key)
                && self.ids.contains_key(&(chat, id))
            {
                files.insert(file);
                rows.push(Row { table: Table::Attachment, key: key.to_vec(), value: Vec::new() });
            }
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }
}

fn key_of(chat: ChannelId, n: u64, fork: ChannelId) -> Vec<u8> {
    let mut key = numbered_key(chat, n);
    key.extend_from_slice(&fork.0.to_be_bytes());
    key
}
