//! A backup on disk: parts of lines, attachments, and a manifest that names them.
//!
//! A backup into a directory that has one adds parts with what came since; one that cannot be told so is made anew beside it. The
//! manifest is written when all is on disk and was read again; what it does not name is removed then. So a crash leaves the former
//! backup whole, and what it left is removed by the next.
//!
//! For the owner alone: it holds all that the data directory does.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::BackupFault;
use super::incoming::{By, Incoming, Lines, Loaded};
use super::line::{FORMAT, Header, Line, PIECE, Piece};
use super::manifest::{FILE, Kept, Manifest, PARTS, Part, as_written, hex};
use crate::attachments::FOLDER;
use crate::events::durable::{make_directory, sync_directory};
use crate::events::{LogFault, ServerSeq};

/// Bytes of a part before the next one begins.
const PART: u64 = 64 << 20;
const LOCK: &str = "lock";

/// A directory with a backup, or for one. Nobody else writes into it as long as this lives.
#[derive(Debug)]
pub struct Backup {
    path: PathBuf,
    /// `None` before the first.
    pub manifest: Option<Manifest>,
    /// What is not as it was written in the backup that is there: it is made anew.
    pub damage: Option<String>,
    _lock: File,
}

/// What was backed up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackedUp {
    pub upto: ServerSeq,
    /// Records and bytes that were written now.
    pub events: u64,
    pub written: u64,
    /// Bytes of the whole backup.
    pub bytes: u64,
    pub attachments: u64,
    /// Whether all of it was written, and not what came since the one before alone.
    pub anew: bool,
}

impl Backup {
    /// The backup in `path`, each file of it checked; the directory is made where it is missing.
    ///
    /// # Errors
    /// [`BackupFault::Refused`] for a directory that holds something else, or that another backup is being made into.
    pub fn open(path: &Path) -> Result<Self, BackupFault> {
        if path.exists() && !path.is_dir() {
            return Err(BackupFault::Refused(format!("{}: is not a directory", path.display())));
        }
        if !path.exists() {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            parent.map_or(Ok(()), fs::create_dir_all).map_err(BackupFault::io(path))?;
            make_directory(path).map_err(BackupFault::io(path))?;
        }
        let manifest = Manifest::read(path)?;
        if manifest.is_none() {
            refuse_foreign(path)?;
        }
        let file = path.join(LOCK);
        let lock = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&file);
        let lock = lock.map_err(BackupFault::io(&file))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(BackupFault::Refused(format!("{}: another backup is being made into it", path.display())));
            }
            Err(TryLockError::Error(fault)) => return Err(BackupFault::io(&file)(fault)),
        }
        // Read again: it may have been replaced before the lock was ours.
        let manifest = Manifest::read(path)?;
        let damage = match manifest.as_ref().map(|manifest| manifest.check(path)) {
            Some(Err(BackupFault::Refused(damage))) => Some(damage),
            Some(checked) => checked.map(|()| None)?,
            None => None,
        };
        Ok(Self { path: path.to_owned(), manifest, damage, _lock: lock })
    }

    /// What the backup has, for who sends the rest: the newest number and what that record is known by.
    pub fn has(&self) -> Option<(ServerSeq, String)> {
        let whole = self.manifest.as_ref().filter(|_| self.damage.is_none());
        whole.map(|manifest| (manifest.upto, manifest.print.clone()))
    }

    /// Begins to write what `header` announces.
    ///
    /// # Errors
    /// [`BackupFault::Refused`] for what is no continuation of what is there; faults of the disk.
    pub fn write(&self, header: Header) -> Result<Writing<'_>, BackupFault> {
        let before = match (&self.manifest, header.after) {
            (_, 0) => None,
            (Some(manifest), after) if after == manifest.upto => Some(manifest),
            _ => return Err(BackupFault::Refused("what was sent does not continue the backup".into())),
        };
        if header.channel.is_some() || !header.secrets {
            return Err(BackupFault::Refused("what was sent is an export, and no whole log".into()));
        }
        let parts = self.path.join(PARTS);
        for folder in [&parts, &self.path.join(FOLDER)] {
            make_directory(folder).map_err(BackupFault::io(folder))?;
        }
        let attachments = before.map(|before| before.attachments.as_slice()).unwrap_or_default();
        let known = attachments.iter().map(|kept| ((kept.folder, kept.name.clone()), kept.clone())).collect();
        Ok(Writing {
            backup: self,
            parts: before.map(|before| before.parts.clone()).unwrap_or_default(),
            run: self.manifest.as_ref().map_or(0, |manifest| manifest.run) + 1,
            header,
            new: Vec::new(),
            open: None,
            known,
            file: None,
            events: 0,
            written: 0,
        })
    }
}

/// Refuses a directory that holds more than an interrupted first backup would have left, which begins with the lock.
fn refuse_foreign(path: &Path) -> Result<(), BackupFault> {
    let is_begun = path.join(LOCK).exists();
    for entry in fs::read_dir(path).map_err(BackupFault::io(path))? {
        let name = entry.map_err(BackupFault::io(path))?.file_name();
        if !is_begun || ![LOCK, PARTS, FOLDER, &format!("{FILE}.new")].iter().any(|ours| name == **ours) {
            return Err(BackupFault::Refused(format!("{}: it is not empty, and no backup is in it", path.display())));
        }
    }
    Ok(())
}

/// A part that is being written.
struct Open {
    part: Part,
    file: BufWriter<File>,
    hash: Sha256,
}

/// A backup that is being written.
pub struct Writing<'a> {
    backup: &'a Backup,
    header: Header,
    run: u64,
    /// Those that stay.
    parts: Vec<Part>,
    new: Vec<Part>,
    open: Option<Open>,
    known: BTreeMap<(u64, String), Kept>,
    /// The attachment that comes.
    file: Option<(Kept, File, Sha256)>,
    events: u64,
    written: u64,
}

impl Writing<'_> {
    /// How many records were written.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Takes a line, of which `raw` are the bytes.
    ///
    /// # Errors
    /// Faults of the disk.
    pub fn take(&mut self, raw: &[u8], line: &Line) -> Result<(), BackupFault> {
        match line {
            Line::Record(_) => {
                self.events += 1;
                self.line(raw, true)
            }
            Line::Row(_) => self.line(raw, false),
            Line::Piece(piece) => self.piece(piece),
            Line::Header(_) | Line::End(_) | Line::Failed(_) => Ok(()),
        }
    }

    fn line(&mut self, raw: &[u8], is_record: bool) -> Result<(), BackupFault> {
        if self.open.as_ref().is_some_and(|open| open.part.bytes >= PART) {
            self.close()?;
        }
        let open = match &mut self.open {
            Some(open) => open,
            none => {
                let file = format!("{:06}-{:04}.jsonl", self.run, self.new.len() + 1);
                let path = self.backup.path.join(PARTS).join(&file);
                let written = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
                let written = BufWriter::with_capacity(256 << 10, written.map_err(BackupFault::io(&path))?);
                let part = Part { file, lines: 0, records: 0, bytes: 0, sha256: String::new() };
                none.insert(Open { part, file: written, hash: Sha256::new() })
            }
        };
        let path = self.backup.path.join(PARTS).join(&open.part.file);
        open.file.write_all(raw).map_err(BackupFault::io(&path))?;
        open.hash.update(raw);
        open.part.lines += 1;
        open.part.records += u64::from(is_record);
        open.part.bytes += raw.len() as u64;
        self.written += raw.len() as u64;
        Ok(())
    }

    fn close(&mut self) -> Result<(), BackupFault> {
        let Some(Open { mut part, file, hash }) = self.open.take() else { return Ok(()) };
        let path = self.backup.path.join(PARTS).join(&part.file);
        let file = file.into_inner().map_err(|fault| BackupFault::io(&path)(fault.into_error()))?;
        file.sync_all().map_err(BackupFault::io(&path))?;
        part.sha256 = hex(&hash.finalize());
        self.new.push(part);
        Ok(())
    }

    fn piece(&mut self, piece: &Piece) -> Result<(), BackupFault> {
        let name = (piece.file.folder, piece.file.text());
        if self.known.contains_key(&name) {
            return Ok(());
        }
        let path = self.backup.path.join(FOLDER).join(piece.file.place());
        // The former backup may have a file of this name: it stays until this one is whole.
        let new = path.with_extension("new");
        if piece.offset == 0 {
            let folder = path.parent().unwrap_or(&self.backup.path);
            make_directory(folder).map_err(BackupFault::io(folder))?;
            let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new);
            let kept = Kept { folder: name.0, name: name.1.clone(), bytes: 0, sha256: String::new() };
            self.file = Some((kept, file.map_err(BackupFault::io(&path))?, Sha256::new()));
        }
        match &mut self.file {
            Some((kept, file, hash))
                if kept.bytes == piece.offset && (kept.folder, &kept.name) == (name.0, &name.1) =>
            {
                file.write_all(&piece.data).map_err(BackupFault::io(&path))?;
                hash.update(&piece.data);
                kept.bytes += piece.data.len() as u64;
                self.written += piece.data.len() as u64;
            }
            _ => return Err(BackupFault::Refused("a piece of an attachment before it is missing".into())),
        }
        if piece.is_last
            && let Some((mut kept, file, hash)) = self.file.take()
        {
            let folder = path.parent().unwrap_or(&self.backup.path);
            let placed = file.sync_all().and_then(|()| fs::rename(&new, &path)).and_then(|()| sync_directory(folder));
            placed.map_err(BackupFault::io(&path))?;
            kept.sha256 = hex(&hash.finalize());
            self.known.insert(name, kept);
        }
        Ok(())
    }

    /// Reads again what was written, and makes it the backup; `progress` is told how many records were read.
    ///
    /// # Errors
    /// [`BackupFault::Refused`] for what is not as it was written, and [`BackupFault::Line`] for what cannot be read; the former backup
    /// is then as it was.
    pub fn finish(mut self, progress: &mut dyn FnMut(u64)) -> Result<BackedUp, BackupFault> {
        if self.file.is_some() {
            return Err(BackupFault::Refused("the last piece of an attachment is missing".into()));
        }
        self.close()?;
        let path = self.backup.path.clone();
        sync_directory(&path.join(PARTS)).and_then(|()| sync_directory(&path)).map_err(BackupFault::io(&path))?;
        let mut read = 0;
        for part in &self.new {
            each_line(&path, part, &mut |line| {
                read += u64::from(matches!(line, Line::Record(_)));
                if read % 10_000 == 1 {
                    progress(read);
                }
                Ok(())
            })?;
        }
        let anew = self.header.after == 0;
        let (upto, events, written) = (self.header.upto, self.events, self.written);
        let manifest = Manifest {
            scrollback: env!("CARGO_PKG_VERSION").to_owned(),
            format: FORMAT,
            at: self.header.at,
            run: self.run,
            upto,
            next: self.header.next,
            channels: self.header.channels,
            print: self.header.print,
            parts: self.parts.into_iter().chain(self.new).collect(),
            attachments: self.known.into_values().collect(),
        };
        manifest.check(&path)?;
        manifest.write(&path)?;
        remove_others(&path, &manifest)?;
        let (bytes, attachments) = (manifest.bytes(), manifest.attachments.len() as u64);
        Ok(BackedUp { upto, events, written, bytes, attachments, anew })
    }
}

/// Removes what the manifest does not name: of a backup that was made anew, and of one that was not finished.
fn remove_others(path: &Path, manifest: &Manifest) -> Result<(), BackupFault> {
    let parts = path.join(PARTS);
    // A folder is none of ours, and stays.
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    for entry in fs::read_dir(&parts).map_err(BackupFault::io(&parts))?.flatten() {
        if !is_folder(&entry) && !manifest.parts.iter().any(|part| entry.file_name() == *part.file) {
            fs::remove_file(entry.path()).map_err(BackupFault::io(&entry.path()))?;
        }
    }
    let named: std::collections::BTreeSet<PathBuf> =
        manifest.attachments.iter().filter_map(|kept| Some(path.join(FOLDER).join(kept.file()?.place()))).collect();
    let folders = fs::read_dir(path.join(FOLDER)).map_err(BackupFault::io(path))?.flatten();
    for entry in folders.filter_map(|folder| fs::read_dir(folder.path()).ok()).flatten().flatten() {
        if !is_folder(&entry) && !named.contains(&entry.path()) {
            fs::remove_file(entry.path()).map_err(BackupFault::io(&entry.path()))?;
        }
    }
    Ok(())
}

/// Gives each line of a part to `take`.
fn each_line(
    path: &Path,
    part: &Part,
    take: &mut dyn FnMut(Line) -> Result<(), BackupFault>,
) -> Result<(), BackupFault> {
    let path = path.join(PARTS).join(&part.file);
    let file = File::open(&path).map_err(BackupFault::io(&path))?;
    let mut lines = Lines::of(path.display().to_string(), BufReader::with_capacity(256 << 10, file));
    for _ in 0..part.lines {
        let line = lines.read()?.ok_or_else(|| lines.fault("it is cut off".into()))?;
        take(line).map_err(|fault| match fault {
            BackupFault::Refused(problem) => lines.fault(problem),
            BackupFault::Log(LogFault::Damaged { place, problem }) => lines.fault(format!("{place}: {problem}")),
            fault => fault,
        })?;
    }
    Ok(())
}

/// Brings the backup in `from` back into the directory `to`, up to event `upto` at the latest.
///
/// # Errors
/// [`BackupFault::Refused`] where there is no backup, for a file of it that is not as it was written, and for an event that it does
/// not have; those of [`Incoming`]. `to` is then no data directory, or what it was.
pub fn restore(
    from: &Path,
    to: &Path,
    upto: Option<ServerSeq>,
    by: &By,
    progress: &mut dyn FnMut(u64),
) -> Result<Loaded, BackupFault> {
    let none = || BackupFault::Refused(format!("{}: there is no backup in it", from.display()));
    let manifest = Manifest::read(from)?.ok_or_else(none)?;
    if let Some(beyond) = upto.filter(|upto| *upto > manifest.upto) {
        let text = format!("there is no event {beyond} in the backup: its newest is {}", manifest.upto);
        return Err(BackupFault::Refused(text));
    }
    manifest.check(from)?;
    let mut incoming = Incoming::begin(to, upto)?;
    match read_all(from, &manifest, &mut incoming, progress) {
        Ok(()) => incoming.finish(manifest.next, manifest.channels, Some(by), progress),
        Err(fault) => {
            incoming.abandon();
            Err(fault)
        }
    }
}

fn read_all(
    from: &Path,
    manifest: &Manifest,
    incoming: &mut Incoming,
    progress: &mut dyn FnMut(u64),
) -> Result<(), BackupFault> {
    for part in &manifest.parts {
        each_line(from, part, &mut |line| incoming.take(line))?;
        progress(incoming.events());
    }
    for kept in &manifest.attachments {
        let Some(file) = kept.file() else { continue };
        let path = from.join(FOLDER).join(file.place());
        as_written(&path, kept.bytes, &kept.sha256)?;
        let mut open = File::open(&path).map_err(BackupFault::io(&path))?;
        let mut offset = 0;
        loop {
            let mut data = Vec::new();
            let left = kept.bytes - offset;
            (&mut open).take(left.min(PIECE as u64)).read_to_end(&mut data).map_err(BackupFault::io(&path))?;
            let read = data.len() as u64;
            if read == 0 && left > 0 {
                return Err(BackupFault::Refused(format!("{}: it became shorter while it was read", path.display())));
            }
            incoming.take(Line::Piece(Piece { file, offset, is_last: read == left, data }))?;
            offset += read;
            if read == left {
                break;
            }
        }
    }
    Ok(())
}
