//! Lines that become a data directory.
//!
//! Everything is written beside its place, the rows are made of the records, and all of it is verified; then it is a data directory.
//! Before that it is none, whatever happens. Memory: a line, what goes into the log at once, and a fold at a time.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::BackupFault;
use super::line::{End, Header, Line, Piece, Row};
use crate::attachments::FOLDER;
use crate::clock::Millis;
use crate::events::durable::{make_directory, sync_directory};
use crate::events::floor::JUMP;
use crate::events::rows::leading_number;
use crate::events::{
    Batch, Channel, ChannelId, EventLog, Kind, LogFault, NewDirectory, NewEvent, Record, RowOp, SERVER_SEQ_MAX,
    ServerSeq, SledOptions, SledStore, Table,
};
use crate::projections::fact::Fact;
use crate::projections::{FoldFault, rebuild, verify};

/// The most bytes of a line. The largest that is written has an action of 48 MiB as base64.
const MAX_LINE: u64 = 96 << 20;
/// Records and bytes that go into the log at once.
const STEP: (usize, usize) = (4_000, 1 << 20);
/// The tables that may travel.
const TRAVEL: [Table; 7] =
    [Table::Dispatched, Table::Erasing, Table::Fork, Table::Turn, Table::Point, Table::Used, Table::Attachment];

/// Who brought a log back, and when.
#[derive(Debug, Clone)]
pub struct By {
    pub principal: String,
    pub at: Millis,
}

/// Lines off a file or a host, with their numbers.
pub struct Lines<R> {
    /// What faults name.
    of: String,
    reader: R,
    number: u64,
    raw: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub fn of(name: String, reader: R) -> Self {
        Self { of: name, reader, number: 0, raw: Vec::new() }
    }

    /// The next line; `None` behind the last.
    ///
    /// # Errors
    /// [`BackupFault::Line`] that names the line.
    pub fn read(&mut self) -> Result<Option<Line>, BackupFault> {
        self.raw.clear();
        self.number += 1;
        let read = (&mut self.reader).take(MAX_LINE).read_until(b'\n', &mut self.raw);
        let read = read.map_err(|error| self.fault(error.to_string()))?;
        match self.raw.strip_suffix(b"\n") {
            Some(line) => Line::parse(line).map(Some).map_err(|problem| self.fault(problem)),
            None if read == 0 => Ok(None),
            None if read as u64 == MAX_LINE => Err(self.fault("it is too long".into())),
            None => Err(self.fault("it is cut off".into())),
        }
    }

    /// The bytes of the line that was read last, with its end.
    pub fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// The fault of the line that was read last.
    pub fn fault(&self, problem: String) -> BackupFault {
        BackupFault::Line { of: self.of.clone(), line: self.number, problem }
    }

    /// Reads the first line, which says what the others are.
    ///
    /// # Errors
    /// As [`Lines::read`].
    pub fn header(&mut self) -> Result<Header, BackupFault> {
        match self.read()? {
            Some(Line::Header(header)) => Ok(header),
            Some(Line::Failed(problem)) => Err(BackupFault::Refused(problem)),
            Some(_) => Err(self.fault("it is no header of a Scrollback log".into())),
            None => Err(self.fault("there is nothing in it".into())),
        }
    }

    /// Gives every line behind the header to `take`, and checks that the end is there and says how many there are.
    ///
    /// # Errors
    /// [`BackupFault::Line`] that names the line; the problem of `take` as one of its line.
    pub fn rest(&mut self, mut take: impl FnMut(&[u8], Line) -> Result<(), BackupFault>) -> Result<(), BackupFault> {
        loop {
            match self.read()? {
                Some(line @ Line::End(End { lines })) if lines == self.number - 1 => {
                    take(&self.raw, line)?;
                    break;
                }
                Some(Line::End(end)) => {
                    let problem =
                        format!("{} lines were written before it, and {} are here", end.lines, self.number - 1);
                    return Err(self.fault(problem));
                }
                Some(Line::Failed(problem)) if problem == BackupFault::Changed.to_string() => {
                    return Err(BackupFault::Changed);
                }
                Some(Line::Failed(problem)) => return Err(BackupFault::Refused(problem)),
                Some(Line::Header(_)) => return Err(self.fault("a second header".into())),
                Some(line) => {
                    let Self { of, raw, number, .. } = self;
                    take(raw, line).map_err(|fault| match fault {
                        BackupFault::Refused(problem) => BackupFault::Line { of: of.clone(), line: *number, problem },
                        BackupFault::Log(LogFault::Damaged { place, problem }) => {
                            BackupFault::Line { of: of.clone(), line: *number, problem: format!("{place}: {problem}") }
                        }
                        fault => fault,
                    })?;
                }
                None => return Err(self.fault("the end is missing: the rest was cut off".into())),
            }
        }
        match self.read() {
            Ok(None) => Ok(()),
            _ => Err(self.fault("there is something behind the end".into())),
        }
    }
}

/// What came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Loaded {
    pub events: u64,
    /// The newest event that came.
    pub upto: ServerSeq,
    /// The number that the next event gets.
    pub next: ServerSeq,
    pub channels: u64,
    pub attachments: u64,
    /// The last event of the decision that reached over the number which was asked for, and was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out_to: Option<ServerSeq>,
}

/// A log on its way into a directory.
pub struct Incoming {
    directory: NewDirectory,
    store: SledStore,
    /// Nothing behind this number comes in, nor what is of one decision with something behind it.
    upto: ServerSeq,
    /// The newest that came in.
    newest: ServerSeq,
    /// The end of the decision that was left out since it reaches over `upto`.
    left_out_to: Option<ServerSeq>,
    records: Vec<Record>,
    bytes: usize,
    rows: Vec<RowOp>,
    /// The attachment that comes, and how much of it has.
    open: Option<(PathBuf, PathBuf, fs::File, u64)>,
    events: u64,
    attachments: u64,
}

impl Incoming {
    /// Begins to write into `path`, with everything up to `upto`.
    ///
    /// # Errors
    /// Those of [`NewDirectory::begin`].
    pub fn begin(path: &Path, upto: Option<ServerSeq>) -> Result<Self, BackupFault> {
        let directory = NewDirectory::begin(path, has_events)?;
        let store = match SledStore::open(&directory.incoming(), SledOptions::default()) {
            Ok(store) => store,
            Err(fault) => {
                directory.abandon();
                return Err(fault.into());
            }
        };
        Ok(Self {
            directory,
            store,
            upto: upto.unwrap_or(ServerSeq::MAX),
            newest: 0,
            left_out_to: None,
            records: Vec::new(),
            bytes: 0,
            rows: Vec::new(),
            open: None,
            events: 0,
            attachments: 0,
        })
    }

    /// How many records came in.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Takes a line.
    ///
    /// # Errors
    /// [`BackupFault::Refused`] for what may not stand there; faults of the store and the disk.
    pub fn take(&mut self, line: Line) -> Result<(), BackupFault> {
        match line {
            Line::Record(record) => self.record(*record),
            Line::Row(row) => self.row(row),
            Line::Piece(piece) => self.piece(&piece),
            Line::Header(_) | Line::End(_) | Line::Failed(_) => Ok(()),
        }
    }

    fn record(&mut self, record: Record) -> Result<(), BackupFault> {
        let (first, last) = record.batch;
        if record.seq < first || record.seq > last || last > SERVER_SEQ_MAX {
            return Err(BackupFault::Refused(format!("event {} is not in its own batch", record.seq)));
        }
        if last > self.upto {
            if first <= self.upto {
                self.left_out_to = Some(last);
            }
            return Ok(());
        }
        if record.seq <= self.newest {
            return Err(BackupFault::Refused(format!("event {} stands behind event {}", record.seq, self.newest)));
        }
        self.newest = record.seq;
        self.bytes += record.action.len();
        self.records.push(record);
        if self.records.len() >= STEP.0 || self.bytes >= STEP.1 { self.flush() } else { Ok(()) }
    }

    fn row(&mut self, row: Row) -> Result<(), BackupFault> {
        let Row { table, key, value } = row;
        if !TRAVEL.contains(&table) {
            return Err(BackupFault::Refused(format!("rows of the table {} do not travel", char::from(table as u8))));
        }
        let is_later = match table {
            Table::Dispatched => leading_number(&value).unwrap_or(0) > self.upto,
            // What was being erased is done by the next start, where all of it was there already.
            Table::Erasing => self.upto != ServerSeq::MAX,
            _ => false,
        };
        if !is_later {
            self.rows.push(RowOp::Put { table, key, value: value.into() });
        }
        if self.rows.len() >= STEP.0 { self.put_rows() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), BackupFault> {
        self.store.load(&self.records)?;
        self.events += self.records.len() as u64;
        self.records.clear();
        self.bytes = 0;
        Ok(())
    }

    fn put_rows(&mut self) -> Result<(), BackupFault> {
        let rows = std::mem::take(&mut self.rows);
        self.store.append(&[Batch { events: Vec::new(), rows }])?;
        Ok(())
    }

    fn piece(&mut self, piece: &Piece) -> Result<(), BackupFault> {
        let (folder, path) = self.place(piece.file.folder, &piece.file.text())?;
        if piece.offset == 0 && self.open.is_none() {
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            self.open = Some((path.clone(), folder, file.map_err(BackupFault::io(&path))?, 0));
        }
        match &mut self.open {
            Some((at, _, file, written)) if *at == path && *written == piece.offset => {
                file.write_all(&piece.data).map_err(BackupFault::io(&path))?;
                *written += piece.data.len() as u64;
            }
            _ => return Err(BackupFault::Refused("a piece of an attachment before it is missing".into())),
        }
        if piece.is_last { self.close_file() } else { Ok(()) }
    }

    fn close_file(&mut self) -> Result<(), BackupFault> {
        let Some((path, folder, file, _)) = self.open.take() else { return Ok(()) };
        let done = file.set_permissions(PermissionsExt::from_mode(0o400)).and_then(|()| file.sync_all());
        done.and_then(|()| sync_directory(&folder)).map_err(BackupFault::io(&path))?;
        self.attachments += 1;
        Ok(())
    }

    /// The folder of an attachment, which is made where it is missing, and the place of the attachment.
    fn place(&self, folder: u64, name: &str) -> Result<(PathBuf, PathBuf), BackupFault> {
        let all = self.directory.incoming().join(FOLDER);
        let folder = all.join(folder.to_string());
        make_directory(&all).map_err(BackupFault::io(&all))?;
        make_directory(&folder).map_err(BackupFault::io(&folder))?;
        let path = folder.join(name);
        Ok((folder, path))
    }

    /// Makes a data directory of what came: rows, a verification, and its place. The log goes on at `next`, with channels above
    /// `channels`; `restored` says who brought it back from a backup, which is written down behind a jump of the numbers.
    ///
    /// # Errors
    /// [`BackupFault::Verification`] for what does not hold together. The directory is then none, and what came is gone.
    pub fn finish(
        mut self,
        next: ServerSeq,
        channels: u64,
        restored: Option<&By>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Loaded, BackupFault> {
        match self.make(next, channels, restored, progress) {
            Ok(loaded) => {
                drop(self.store);
                self.directory.complete()?;
                Ok(loaded)
            }
            Err(fault) => {
                self.abandon();
                Err(fault)
            }
        }
    }

    /// Takes away what came.
    pub fn abandon(self) {
        drop(self.store);
        self.directory.abandon();
    }

    fn make(
        &mut self,
        next: ServerSeq,
        channels: u64,
        restored: Option<&By>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Loaded, BackupFault> {
        if self.open.is_some() {
            return Err(BackupFault::Refused("the last piece of an attachment is missing".into()));
        }
        self.flush()?;
        self.put_rows()?;
        let upto = self.store.tail();
        if restored.is_some() && upto == 0 {
            return Err(BackupFault::Refused("nothing was decided by then: there is no log to bring back".into()));
        }
        let next = next.max(upto.saturating_add(1)).saturating_add(if restored.is_some() { JUMP } else { 0 });
        if next > SERVER_SEQ_MAX {
            return Err(BackupFault::Refused("the numbers of the line are used up".into()));
        }
        self.store.go_on_at(next, ChannelId(channels))?;
        self.make_rows()?;
        if let Some(by) = restored {
            self.store.append(&[restored_batch(upto, by)])?;
        }
        let verified = verify::verify(&self.store, progress)?;
        let (next, attachments) = (self.store.next_seq(), self.attachments);
        self.store.close_clean()?;
        Ok(Loaded {
            events: self.events,
            upto,
            next,
            channels: verified.channels,
            attachments,
            left_out_to: self.left_out_to,
        })
    }

    fn make_rows(&self) -> Result<(), BackupFault> {
        let (mut waiting, mut bytes) = (Vec::new(), 0);
        let put = |rows: Vec<RowOp>| -> Result<(), FoldFault> {
            self.store.append(&[Batch { events: Vec::new(), rows }]).map(drop).map_err(FoldFault::from)
        };
        rebuild::rows(&self.store, &mut |rows| {
            bytes += rows.iter().map(weight).sum::<usize>();
            waiting.extend(rows);
            if waiting.len() < STEP.0 && bytes < STEP.1 {
                return Ok(());
            }
            bytes = 0;
            put(std::mem::take(&mut waiting))
        })?;
        Ok(put(waiting)?)
    }
}

fn weight(row: &RowOp) -> usize {
    match row {
        RowOp::Put { key, value, .. } => key.len() + value.len(),
        _ => 0,
    }
}

fn restored_batch(upto: ServerSeq, by: &By) -> Batch {
    let event = NewEvent {
        channel: Channel::root(),
        channel_id: ChannelId::ROOT,
        kind: Kind::Host,
        at: by.at,
        principal: by.principal.as_str().into(),
        origin: None,
        about: None,
        action: Fact::Restored { upto }.bytes(),
    };
    Batch { events: vec![event], rows: Vec::new() }
}

/// Whether a data directory holds events, or anything that cannot be read.
fn has_events(path: &Path) -> Result<bool, LogFault> {
    if !path.join("log").exists() && !path.join("floor").exists() {
        return Ok(false);
    }
    let options = SledOptions { access: crate::events::Access::Read, ..SledOptions::default() };
    Ok(SledStore::open(path, options)?.tail() > 0)
}
