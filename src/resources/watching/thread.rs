//! The thread of the watches: hears what the system says, gathers it, and tells it.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, ReadFlags};
use rustix::io::Errno;

use super::{Change, ChangeKind, Inner, Table, is_ours};
use crate::resources::uri;

/// What the system says of one name.
struct Heard {
    number: i32,
    flags: ReadFlags,
    name: Vec<u8>,
}

/// Runs until the watches are dropped.
pub(super) fn run(inner: &Inner) {
    while !inner.is_over.load(Ordering::Acquire) {
        if !inner.wait() {
            return;
        }
        inner.forget_ended();
        for heard in inner.heard() {
            inner.take(&heard);
        }
        inner.tell();
    }
}

impl Inner {
    /// Waits until something happens or something is to be told.
    fn wait(&self) -> bool {
        let due = self.table().due(self.window);
        let due = due.map(|wait| Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(wait.subsec_nanos()),
        });
        let mut fds = [PollFd::new(&self.notes, PollFlags::IN), PollFd::new(&self.bell, PollFlags::IN)];
        let polled = poll(&mut fds, due.as_ref());
        let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
        match polled {
            Ok(_) | Err(Errno::INTR) => true,
            Err(errno) => {
                tracing::error!(%errno, "watches are over");
                false
            }
        }
    }

    fn forget_ended(&self) {
        let ended = std::mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner));
        if ended.is_empty() {
            return;
        }
        let mut table = self.table();
        for id in ended {
            table.watches.remove(&id);
        }
        let Table { watches, directories } = &mut *table;
        directories.retain(|number, directory| {
            let is_needed = watches.values().any(|one| one.needs(&directory.real));
            if !is_needed {
                let _ = inotify::remove_watch(&self.notes, *number);
            }
            is_needed
        });
    }

    /// What the system has to say now, at most one buffer of it.
    fn heard(&self) -> Vec<Heard> {
        let mut buffer = [const { MaybeUninit::uninit() }; 16 * 1024];
        let mut reader = inotify::Reader::new(&self.notes, &mut buffer);
        let mut all = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| name.to_bytes().to_vec()).unwrap_or_default();
                    all.push(Heard { number: event.wd(), flags: event.events(), name });
                }
                Err(Errno::INTR) => continue,
                Err(_) => return all,
            }
            if reader.is_buffer_empty() {
                return all;
            }
        }
    }

    fn take(&self, heard: &Heard) {
        if heard.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            return self.start_over();
        }
        let mut table = self.table();
        let Some(directory) = table.directories.get_mut(&heard.number) else { return };
        if heard.name.is_empty() {
            if let Some(gone) = table.of_itself(heard) {
                self.forget_below(&mut table, &gone);
            }
            return;
        }
        let name = OsStr::from_bytes(&heard.name);
        let path = directory.real.join(name);
        if is_ours(name) || self.roots.is_hidden(&path) {
            return;
        }
        let came = heard.flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
        let went = heard.flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM);
        let kind = match (came, went) {
            (true, _) if directory.names.insert(name.to_owned()) => ChangeKind::Added,
            // It was told when it was found, or something took its place.
            (true, _) if heard.flags.contains(ReadFlags::CREATE) => return,
            (_, true) => {
                directory.names.remove(name);
                ChangeKind::Deleted
            }
            _ => ChangeKind::Updated,
        };
        table.note(&path, kind);
        if !heard.flags.contains(ReadFlags::ISDIR) {
            return;
        }
        if went {
            return self.forget_below(&mut table, &path);
        }
        drop(table);
        if came && let Err(fault) = self.watch_from(&path, true) {
            tracing::debug!(%fault, "a new directory is not watched");
            self.table().watches.values_mut().for_each(|one| {
                if one.needs(&path) {
                    one.note_overflow();
                }
            });
        }
    }

    /// Forgets a directory that went elsewhere, and all in it: what happens there is not of this place.
    fn forget_below(&self, table: &mut Table, gone: &std::path::Path) {
        table.directories.retain(|number, directory| {
            let stays = !directory.real.starts_with(gone);
            if !stays {
                let _ = inotify::remove_watch(&self.notes, *number);
            }
            stays
        });
    }

    /// Something was not told by the system: everything may be another, and directories may be new.
    fn start_over(&self) {
        let roots: Vec<PathBuf> = {
            let mut table = self.table();
            table.watches.values_mut().for_each(super::One::note_overflow);
            table.watches.values().filter(|one| one.is_directory).map(|one| one.real.clone()).collect()
        };
        for root in roots {
            if let Err(fault) = self.watch_from(&root, false) {
                tracing::debug!(%fault, "a directory is not watched any more");
            }
        }
    }

    /// Tells what was gathered long enough.
    fn tell(&self) {
        let mut all = Vec::new();
        {
            let mut table = self.table();
            let now = Instant::now();
            for (id, one) in &mut table.watches {
                if one.since.is_none_or(|since| now < since + self.window) {
                    continue;
                }
                one.since = None;
                let named = one.named.clone();
                let change = |(path, kind): (PathBuf, ChangeKind)| {
                    let path = if path.as_os_str().is_empty() { named.clone() } else { named.join(path) };
                    Change { uri: uri::file_uri(&path), kind }
                };
                let changes: Vec<Change> = one.pending.take().into_iter().map(change).collect();
                if !changes.is_empty() {
                    all.push((*id, changes));
                }
            }
        }
        for (id, changes) in all {
            (self.told)(id, changes);
        }
    }
}

impl Table {
    /// How long it is until something has to be told.
    fn due(&self, window: Duration) -> Option<Duration> {
        let first = self.watches.values().filter_map(|one| one.since).min()?;
        Some((first + window).saturating_duration_since(Instant::now()))
    }

    /// What happened to a watched directory as a whole; its path where it is not there any more.
    fn of_itself(&mut self, heard: &Heard) -> Option<PathBuf> {
        let real = self.directories.get(&heard.number)?.real.clone();
        if heard.flags.contains(ReadFlags::IGNORED) {
            self.directories.remove(&heard.number);
        }
        if !heard.flags.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF) {
            return None;
        }
        // Others hear of it from the directory that it lay in.
        let is_root = |one: &&mut super::One| one.real == real;
        self.watches.values_mut().filter(is_root).for_each(|one| one.note(&real, ChangeKind::Deleted));
        Some(real)
    }
}
