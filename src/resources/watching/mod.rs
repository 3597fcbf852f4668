//! Watches: what changes in the allowed directories, told in batches.
//!
//! One thread and one instance of the system's notifications serve all watches. A directory is opened like every other
//! resource and watched by itself; those in it are watched one by one where a watch is recursive, so links are never gone
//! through and the host's own directory is left out. Changes of a short time are told together: those of one path as one, and
//! too many as one of the whole.
//!
//! Left out on purpose: who hears of them.

mod changes;
mod filter;
mod thread;

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FileType, inotify};
use rustix::io::Errno;

use super::place::{Last, kind, real_path};
use super::{Access, ResourceFault, Roots, tree, uri};
use changes::Pending;
pub use changes::{Change, ChangeKind};
pub use filter::Filter;

/// What is told of a directory.
const EVENTS: inotify::WatchFlags = inotify::WatchFlags::CREATE
    .union(inotify::WatchFlags::DELETE)
    .union(inotify::WatchFlags::MODIFY)
    .union(inotify::WatchFlags::ATTRIB)
    .union(inotify::WatchFlags::MOVED_FROM)
    .union(inotify::WatchFlags::MOVED_TO)
    .union(inotify::WatchFlags::DELETE_SELF)
    .union(inotify::WatchFlags::MOVE_SELF)
    .union(inotify::WatchFlags::ONLYDIR);

/// The number of a watch.
pub type WatchId = u64;

/// What a watch is for.
#[derive(Debug)]
pub struct Watch {
    pub uri: String,
    /// Whether directories in it count too.
    pub recursive: bool,
    pub filter: Filter,
}

/// Who is told of changes. Hands over and returns.
pub type Told = Box<dyn Fn(WatchId, Vec<Change>) + Send + Sync>;

/// All watches of a host.
pub struct Watching {
    inner: Arc<Inner>,
}

pub(super) struct Inner {
    roots: Arc<Roots>,
    notes: OwnedFd,
    /// Wakes the thread.
    bell: OwnedFd,
    table: Mutex<Table>,
    /// Watches that are over, for the thread.
    ended: Mutex<Vec<WatchId>>,
    is_over: AtomicBool,
    /// How long changes are gathered.
    window: Duration,
    /// Directories of one watch, at most.
    max_directories: usize,
    told: Told,
}

#[derive(Default)]
struct Table {
    watches: HashMap<WatchId, One>,
    directories: HashMap<i32, Directory>,
}

/// One watch.
struct One {
    /// The path as it was named, which changes are told under.
    named: PathBuf,
    /// Where that leads.
    real: PathBuf,
    is_directory: bool,
    recursive: bool,
    filter: Filter,
    pending: Pending,
    /// When the first of what is pending happened.
    since: Option<Instant>,
}

/// A directory that the system tells of.
struct Directory {
    real: PathBuf,
    names: HashSet<OsString>,
}

impl One {
    /// Whether this watch needs to hear of the directory.
    fn needs(&self, directory: &Path) -> bool {
        if !self.is_directory {
            return self.real.parent() == Some(directory);
        }
        match directory.strip_prefix(&self.real) {
            Ok(inner) if inner.as_os_str().is_empty() => true,
            Ok(inner) => self.recursive && inner.ancestors().all(|part| !self.filter.prunes(part)),
            Err(_) => false,
        }
    }

    /// The path from its root on, where it hears of this one.
    fn hears<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        let inner = path.strip_prefix(&self.real).ok()?;
        let depth = inner.components().count();
        let is_near = depth == 0 || (self.is_directory && (depth == 1 || self.recursive));
        (is_near && self.filter.lets(inner)).then_some(inner)
    }

    fn note(&mut self, path: &Path, kind: ChangeKind) {
        let Some(inner) = self.hears(path) else { return };
        self.pending.note(inner, kind);
        self.since.get_or_insert_with(Instant::now);
    }

    fn note_overflow(&mut self) {
        self.pending.overflow();
        self.since.get_or_insert_with(Instant::now);
    }
}

impl Watching {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`ResourceFault`] when the system has no room for it.
    pub fn start(
        roots: Arc<Roots>,
        window: Duration,
        max_directories: usize,
        told: Told,
    ) -> Result<Self, ResourceFault> {
        let notes = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).map_err(full)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(full)?;
        let inner = Arc::new(Inner {
            roots,
            notes,
            bell,
            table: Mutex::default(),
            ended: Mutex::default(),
            is_over: AtomicBool::new(false),
            window,
            max_directories,
            told,
        });
        let own = Arc::clone(&inner);
        std::thread::Builder::new().name("watches".into()).spawn(move || thread::run(&own))?;
        Ok(Self { inner })
    }

    /// Begins a watch under a number that no other has. May read many directories.
    ///
    /// # Errors
    /// [`ResourceFault`]: not there, out of reach, more directories than are watched.
    pub fn begin(&self, id: WatchId, watch: Watch) -> Result<(), ResourceFault> {
        let named = uri::file_path(&watch.uri)?;
        let real = real_path(&named, Last::Follow)?;
        let is_directory = kind(&self.inner.roots.locate_path(&real, Access::Look)?.there()?) == FileType::Directory;
        let Watch { recursive, filter, .. } = watch;
        let first = if is_directory { Some(real.as_path()) } else { real.parent() };
        let first = first.ok_or(ResourceFault::Outside)?.to_owned();
        let (pending, since) = (Pending::default(), None);
        let one = One { named, real, is_directory, recursive, filter, pending, since };
        self.inner.table().watches.insert(id, one);
        let begun = self.inner.watch_from(&first, false);
        // One that ended meanwhile left directories behind.
        if begun.is_err() || !self.inner.table().watches.contains_key(&id) {
            self.end(id);
        }
        begun
    }

    /// Ends a watch. Never waits.
    pub fn end(&self, id: WatchId) {
        self.inner.ended.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        self.inner.ring();
    }

    /// How many directories are watched: for tests.
    pub fn directories(&self) -> usize {
        self.inner.table().directories.len()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.inner.is_over.store(true, Ordering::Release);
        self.inner.ring();
    }
}

impl Inner {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        // A bell that is full rings already.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Watches a directory, and those in it that a watch needs. With `is_new` what is found in it is told: it was made there
    /// before anybody could hear of it.
    fn watch_from(&self, first: &Path, is_new: bool) -> Result<(), ResourceFault> {
        let mut left = vec![first.to_owned()];
        let mut budget = self.max_directories;
        while let Some(directory) = left.pop() {
            if !self.table().watches.values().any(|one| one.needs(&directory)) {
                continue;
            }
            budget = budget.checked_sub(1).ok_or(ResourceFault::TooMany("more directories than one watch may have"))?;
            match self.watch_one(&directory, is_new) {
                Ok(inner) => left.extend(inner),
                // What is gone meanwhile, or hidden, is not watched; the first one has to be.
                Err(ResourceFault::NotFound | ResourceFault::Outside | ResourceFault::NotADirectory)
                    if directory != first => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Watches one directory; returns those that lie in it.
    fn watch_one(&self, directory: &Path, is_new: bool) -> Result<Vec<PathBuf>, ResourceFault> {
        let opened = self.roots.locate_path(directory, Access::Look)?.open_directory()?;
        let number = {
            let mut table = self.table();
            let number = add(&self.notes, &opened, directory)?;
            let new = || Directory { real: directory.to_owned(), names: HashSet::new() };
            table.directories.entry(number).or_insert_with(new).real = directory.to_owned();
            number
        };
        let entries = tree::entries(&opened)?;
        let mut inner = Vec::new();
        let mut table = self.table();
        for name in entries.into_iter().filter(|name| !is_ours(name)) {
            let path = directory.join(&name);
            if self.roots.is_hidden(&path) {
                continue;
            }
            let is_known = table.directories.get_mut(&number).is_some_and(|known| !known.names.insert(name));
            if is_new && !is_known {
                table.note(&path, ChangeKind::Added);
            }
            if std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir()) {
                inner.push(path);
            }
        }
        Ok(inner)
    }
}

impl Table {
    fn note(&mut self, path: &Path, kind: ChangeKind) {
        self.watches.values_mut().for_each(|one| one.note(path, kind));
    }
}

/// Whether a name is of a file that is on its way to another name.
fn is_ours(name: &std::ffi::OsStr) -> bool {
    name.as_encoded_bytes().starts_with(super::writing::BESIDE.as_bytes())
}

/// Lets the system tell of the directory that is open, whatever its name leads to by now.
fn add(notes: &OwnedFd, opened: &OwnedFd, path: &Path) -> Result<i32, ResourceFault> {
    let by_number = format!("/proc/self/fd/{}", opened.as_raw_fd());
    match inotify::add_watch(notes, by_number.as_str(), EVENTS) {
        Err(Errno::NOENT) => inotify::add_watch(notes, path, EVENTS | inotify::WatchFlags::DONT_FOLLOW).map_err(full),
        added => added.map_err(full),
    }
}

/// The fault of a system that has no room for more watches.
fn full(errno: Errno) -> ResourceFault {
    match errno {
        Errno::NOSPC | Errno::MFILE | Errno::NFILE | Errno::NOMEM => {
            ResourceFault::TooMany("the operating system has no room for more")
        }
        other => other.into(),
    }
}
