//! Writing files: a new content takes the place of the old one in one step, or not at all.
//!
//! The new content is written beside the file, synced, and renamed over it. What is added at the end is written there, so that
//! others who append to the same file lose nothing. Writes of this host to one file come one after the other.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{
    Access as Mask, AtFlags, FileType, Mode as FileMode, OFlags, RenameFlags, Stat, accessat, fchmod, fsync, openat,
    renameat, renameat_with, unlinkat,
};
use rustix::io::Errno;

use super::place::{Last, Place, kind};
use super::reading::etag;
use super::{Access, ResourceFault, Roots};

/// How the data is placed in the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// The file is cut at the position, and goes on with the data.
    #[default]
    Truncate,
    /// The position counts back from the end, and the data goes in there.
    Append,
    /// The position counts from the start, and the data goes in there.
    Insert,
}

/// What is to be written.
#[derive(Debug, Default)]
pub struct Write<'a> {
    pub data: &'a [u8],
    /// Only where nothing is yet.
    pub create_only: bool,
    pub mode: Mode,
    pub position: u64,
    /// The version that must still be there.
    pub if_match: Option<&'a str>,
}

/// How a file that is made may be used, before the process's mask.
const NEW: FileMode = FileMode::from_raw_mode(0o666);

/// One of these is held while a file is changed: by its path, so that changes of one file come one after the other.
static TURNS: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];

/// Waits for the turn to change what stands at `real`.
pub(super) fn turn(real: &Path) -> MutexGuard<'static, ()> {
    let mut hash = DefaultHasher::new();
    real.hash(&mut hash);
    let index = usize::try_from(hash.finish() % TURNS.len() as u64).unwrap_or_default();
    TURNS.get(index).unwrap_or(&TURNS[0]).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a file.
///
/// # Errors
/// [`ResourceFault`]: no such parent, out of reach, something there that must not be, another version.
pub fn write(roots: &Roots, uri: &str, write: &Write<'_>) -> Result<(), ResourceFault> {
    let place = roots.locate(uri, Access::Write, Last::Follow)?;
    let name = place.named()?;
    let _turn = turn(&place.real);
    let there = place.stat()?;
    check(there.as_ref(), write)?;
    let Some(there) = there else { return create(&place, name, write) };
    accessat(&place.dir, name, Mask::WRITE_OK, AtFlags::empty())?;
    if write.mode == Mode::Append && write.position == 0 {
        return append(&place, write.data);
    }
    replace(&place, name, &there, write)
}

fn check(there: Option<&Stat>, write: &Write<'_>) -> Result<(), ResourceFault> {
    if let Some(stat) = there {
        if write.create_only {
            return Err(ResourceFault::Exists("there is something already"));
        }
        if kind(stat) != FileType::RegularFile {
            return Err(ResourceFault::NotAFile);
        }
    }
    let is_other = |wanted: &str| there.is_none_or(|stat| etag(stat) != wanted);
    if write.if_match.is_some_and(is_other) {
        return Err(ResourceFault::Conflict);
    }
    let size = there.map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or_default());
    if write.position > size {
        return Err(ResourceFault::Malformed(format!("position: beyond the end of the file ({size} bytes)")));
    }
    Ok(())
}

fn create(place: &Place, name: &OsStr, write: &Write<'_>) -> Result<(), ResourceFault> {
    let mut beside = Beside::file(place)?;
    beside.file.write_all(write.data)?;
    beside.file.sync_all()?;
    // What was made there meanwhile is overwritten, unless that is not wanted.
    beside.take_place(name, write.create_only)
}

/// Adds to the end of the file, in one write, whoever else does so.
fn append(place: &Place, data: &[u8]) -> Result<(), ResourceFault> {
    let mut file = place.open_file(OFlags::WRONLY | OFlags::APPEND)?;
    file.write_all(data)?;
    Ok(file.sync_all()?)
}

fn replace(place: &Place, name: &OsStr, there: &Stat, write: &Write<'_>) -> Result<(), ResourceFault> {
    let mut old = place.open_file(OFlags::RDONLY)?;
    let size = old.metadata()?.len();
    let head = match write.mode {
        Mode::Truncate | Mode::Insert => write.position,
        Mode::Append => size.saturating_sub(write.position),
    };
    let mut beside = Beside::file(place)?;
    std::io::copy(&mut (&mut old).take(head), &mut beside.file)?;
    beside.file.write_all(write.data)?;
    if write.mode != Mode::Truncate {
        old.seek(SeekFrom::Start(head))?;
        std::io::copy(&mut old, &mut beside.file)?;
    }
    fchmod(&beside.file, FileMode::from_raw_mode(there.st_mode))?;
    beside.file.sync_all()?;
    let is_same = write.if_match.is_none_or(|wanted| place.stat().ok().flatten().is_some_and(|s| etag(&s) == wanted));
    if !is_same {
        return Err(ResourceFault::Conflict);
    }
    beside.take_place(name, false)
}

/// A name that nothing has, beside the one that is to be taken.
pub(super) fn name_beside() -> OsString {
    format!("{BESIDE}{}", ulid::Ulid::new()).into()
}

/// How the names of files begin that are on their way to another name.
pub(super) const BESIDE: &str = ".scrollback-";

/// A file that is not in its place yet; gone again where it does not get there.
pub(super) struct Beside<'a> {
    place: &'a Place,
    name: OsString,
    pub(super) file: File,
    is_placed: bool,
}

impl<'a> Beside<'a> {
    pub(super) fn file(place: &'a Place) -> Result<Self, ResourceFault> {
        let name = name_beside();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&place.dir, &name, flags, NEW)?.into();
        Ok(Self { place, name, file, is_placed: false })
    }

    /// Takes the place of `name`, in one step that is on disk afterwards.
    pub(super) fn take_place(mut self, name: &OsStr, only_new: bool) -> Result<(), ResourceFault> {
        put(&self.place.dir, &self.name, name, only_new)?;
        self.is_placed = true;
        sync(&self.place.dir)
    }
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        if !self.is_placed {
            let _ = unlinkat(&self.place.dir, &self.name, AtFlags::empty());
        }
    }
}

/// Renames within a directory; with `only_new` not over something.
pub(super) fn put(dir: impl AsFd, from: &OsStr, to: &OsStr, only_new: bool) -> Result<(), ResourceFault> {
    let dir = dir.as_fd();
    if !only_new {
        return Ok(renameat(dir, from, dir, to)?);
    }
    match renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE) {
        // A file system without that: a link of its own is never made over something.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            rustix::fs::linkat(dir, from, dir, to, AtFlags::empty())?;
            Ok(unlinkat(dir, from, AtFlags::empty())?)
        }
        renamed => Ok(renamed?),
    }
}

/// Makes the names of a directory durable. One that was opened to go through is opened anew for that.
pub(super) fn sync(dir: impl AsFd) -> Result<(), ResourceFault> {
    let opened = openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, FileMode::empty());
    match opened {
        Ok(opened) => Ok(fsync(opened)?),
        // A directory that may not be listed: its names are the system's to keep.
        Err(Errno::ACCESS) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
