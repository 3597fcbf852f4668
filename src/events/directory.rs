//! The data directory: that it is ours, that this build reads it, and that nobody else has it open.
//!
//! A directory that is made of a log from elsewhere is a [`NewDirectory`] until it is whole.
//!
//! In it: `FORMAT` (written last, so that a directory whose making was interrupted is made again), `lock`, `log/` and
//! `floor` (see `sled_store`), `host.json` while a host runs; others put theirs beside these. The directory is made
//! for the owner alone. Always: nothing in it is deleted here, and what is not understood is left as it is.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::durable::{self, io_fault};
use super::{HostFile, LogFault};

/// The format that this build reads and writes.
pub const FORMAT: u32 = 1;

/// The file that makes a directory ours, and what stands before the number in it.
const FORMAT_FILE: &str = "FORMAT";
const FORMAT_WORD: &str = "scrollback ";
const LOCK_FILE: &str = "lock";

/// An open data directory. Nobody else has it as long as this lives.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    /// Held, never read: the lock goes with it.
    _lock: File,
}

impl DataDirectory {
    /// The data directory at `path`, made there when nothing or an empty directory is.
    ///
    /// # Errors
    /// [`LogFault::Directory`] for what is not a directory, cannot be written, holds something else, or was written by
    /// a newer build; [`LogFault::Held`] when another process has it open.
    pub fn open_or_create(path: &Path) -> Result<Self, LogFault> {
        create(path)?;
        if format_of(path)?.is_some() {
            return Self::locked(path);
        }
        refuse_foreign(path)?;
        let directory = Self::locked(path)?;
        write_format(path).map_err(|e| problem(path, format!("cannot be written: {e}")))?;
        Ok(directory)
    }

    /// The data directory at `path`, which must be there.
    ///
    /// # Errors
    /// As [`DataDirectory::open_or_create`], and [`LogFault::Directory`] when there is none.
    pub fn open_existing(path: &Path) -> Result<Self, LogFault> {
        match fs::metadata(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Err(problem(path, "there is no such directory")),
            Err(e) => return Err(io_fault(path)(e)),
            Ok(found) if !found.is_dir() => return Err(problem(path, "is not a directory")),
            Ok(_) => {}
        }
        match format_of(path)? {
            Some(_) => Self::locked(path),
            None => Err(not_ours(path)),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The lock alone, of a directory that is none of ours yet.
    fn locked(path: &Path) -> Result<Self, LogFault> {
        let file = path.join(LOCK_FILE);
        let lock = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&file);
        let lock = lock.map_err(|e| problem(path, format!("cannot be written: {e}")))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(LogFault::Held { path: path.to_owned(), holder: holder(path) }),
            Err(TryLockError::Error(e)) => Err(io_fault(&file)(e)),
        }
    }
}

/// Where a log from elsewhere is written, in the directory that it will be.
const INCOMING: &str = "incoming";
/// In it from before anything is taken away until it is whole: without it, a directory of that name is somebody else's.
const BEGUN: &str = "begun";
/// What is moved out of it, and what a directory may have that holds no events.
const OF_A_LOG: [&str; 3] = ["log", "floor", "attachments"];

/// A directory that a log from elsewhere is being written into. It is no data directory before it is whole: what a crash leaves is
/// written again by the next attempt, and opened by nobody.
#[derive(Debug)]
pub struct NewDirectory {
    directory: DataDirectory,
    /// Whether it was a data directory, without events.
    was_ours: bool,
}

impl NewDirectory {
    /// Begins at `path`, where nothing is, or an empty directory, or what an earlier attempt left, or a data directory that
    /// `has_events` denies to hold any.
    ///
    /// # Errors
    /// As [`DataDirectory::open_or_create`], and [`LogFault::Directory`] for one that holds events.
    pub fn begin(path: &Path, has_events: impl FnOnce(&Path) -> Result<bool, LogFault>) -> Result<Self, LogFault> {
        create(path)?;
        let incoming = path.join(INCOMING);
        let was_ours = format_of(path)?.is_some();
        if !was_ours && !is_begun(path) {
            refuse_foreign(path)?;
        }
        let directory = DataDirectory::locked(path)?;
        // Again: another one may have come and gone before the lock was ours.
        let was_ours = format_of(path)?.is_some();
        if !was_ours && !is_begun(path) {
            refuse_foreign(path)?;
        }
        if was_ours && has_events(path)? {
            return Err(problem(path, "holds events already: name a directory that is new or empty"));
        }
        let cannot = |e| problem(path, format!("cannot be written: {e}"));
        durable::make_directory(&incoming).map_err(cannot)?;
        durable::write_whole(&incoming.join(BEGUN), b"").map_err(cannot)?;
        if was_ours {
            fs::remove_file(path.join(FORMAT_FILE)).map_err(cannot)?;
            durable::sync_directory(path).map_err(cannot)?;
        }
        let left = OF_A_LOG.iter().flat_map(|name| [path.join(name), incoming.join(name)]);
        left.chain([path.join("host.json")]).try_for_each(|path| remove(&path)).map_err(cannot)?;
        Ok(Self { directory, was_ours })
    }

    /// Where the log is to be written.
    pub fn incoming(&self) -> PathBuf {
        self.directory.path.join(INCOMING)
    }

    /// Makes it a data directory: what was written is whole.
    ///
    /// # Errors
    /// [`LogFault::Directory`] when it cannot be written.
    pub fn complete(self) -> Result<DataDirectory, LogFault> {
        let path = self.directory.path.clone();
        let incoming = self.incoming();
        let done = || -> std::io::Result<()> {
            durable::sync_directory(&incoming)?;
            for name in OF_A_LOG {
                if incoming.join(name).exists() {
                    fs::rename(incoming.join(name), path.join(name))?;
                }
            }
            durable::sync_directory(&path)?;
            write_format(&path)?;
            fs::remove_file(incoming.join(BEGUN))?;
            fs::remove_dir(&incoming)?;
            durable::sync_directory(&path)
        };
        done().map_err(|e| problem(&path, format!("cannot be written: {e}")))?;
        Ok(self.directory)
    }

    /// Takes away what was written: nothing came of it. What was a data directory without events is one again.
    pub fn abandon(self) {
        let was_ours = if self.was_ours { write_format(&self.directory.path) } else { Ok(()) };
        // What stays is written over by the next attempt.
        let _ = was_ours.and_then(|()| remove(&self.incoming()));
    }
}

/// Whether a log from elsewhere was being written into the directory.
fn is_begun(path: &Path) -> bool {
    path.join(INCOMING).join(BEGUN).exists()
}

/// Makes `path` a data directory of this format.
fn write_format(path: &Path) -> std::io::Result<()> {
    durable::write_whole(&path.join(FORMAT_FILE), format!("{FORMAT_WORD}{FORMAT}\n").as_bytes())
}

fn remove(path: &Path) -> std::io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(e) => Err(e),
    };
    match removed {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Makes the directory where nothing is, and the ones above it.
fn create(path: &Path) -> Result<(), LogFault> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => return Err(problem(path, "is not a directory")),
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(problem(path, format!("cannot be opened: {e}"))),
    }
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    let made = parent.map_or(Ok(()), fs::create_dir_all).and_then(|()| durable::make_directory(path));
    made.map(drop).map_err(|e| problem(path, format!("cannot be created: {e}")))
}

/// The format that the directory names, `None` for a directory without the file.
fn format_of(path: &Path) -> Result<Option<u32>, LogFault> {
    let bytes = match fs::read(path.join(FORMAT_FILE)) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(problem(path, format!("its file {FORMAT_FILE} cannot be read: {e}"))),
    };
    let text = String::from_utf8_lossy(&bytes);
    let number = text.strip_prefix(FORMAT_WORD).and_then(|n| n.strip_suffix('\n')).and_then(|n| n.parse::<u32>().ok());
    match number {
        Some(FORMAT) => Ok(number),
        Some(newer) if newer > FORMAT => Err(problem(
            path,
            format!("written by a newer Scrollback (format {newer}), this one reads format {FORMAT}"),
        )),
        _ => Err(problem(
            path,
            format!("is not a Scrollback data directory: its file {FORMAT_FILE} says something else"),
        )),
    }
}

/// Refuses a directory that holds more than an interrupted making of ours would have left.
fn refuse_foreign(path: &Path) -> Result<(), LogFault> {
    for entry in fs::read_dir(path).map_err(io_fault(path))? {
        let name = entry.map_err(io_fault(path))?.file_name();
        let name = name.to_string_lossy();
        let is_empty = || fs::read_dir(path.join(INCOMING)).is_ok_and(|mut entries| entries.next().is_none());
        let is_left = name == LOCK_FILE
            || name.strip_suffix(durable::TEMPORARY) == Some(FORMAT_FILE)
            || (name == INCOMING && is_empty());
        if !is_left {
            return Err(not_ours(path));
        }
    }
    Ok(())
}

fn holder(path: &Path) -> String {
    match HostFile::read(path) {
        Ok(Some(host)) => format!("the Scrollback host with process id {} at {}", host.pid, host.address),
        _ => "another process".to_owned(),
    }
}

fn not_ours(path: &Path) -> LogFault {
    if is_begun(path) {
        return problem(path, "an import or a restore into it was not finished: do it again");
    }
    if path.join("log").is_dir() && path.join("floor").is_file() {
        let text = "is not a Scrollback data directory: it has a log, but its file FORMAT is missing; \
                    nothing was changed: restore the directory from a backup";
        return problem(path, text);
    }
    problem(path, "is not a Scrollback data directory")
}

fn problem(path: &Path, problem: impl Into<String>) -> LogFault {
    LogFault::Directory { path: path.to_owned(), problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn fault(result: Result<DataDirectory, LogFault>) -> String {
        result.expect_err("must be refused").to_string()
    }

    fn entries(path: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(path).expect("read").map(|e| e.expect("entry").file_name().to_string_lossy().into()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_new_one_is_for_the_owner_alone_and_names_its_format() {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().join("a/b");
        let made = DataDirectory::open_or_create(&path).expect("made");
        assert_eq!(made.path(), path);
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_to_string(path.join("FORMAT")).expect("read"), "scrollback 1\n");
        drop(made);
        DataDirectory::open_existing(&path).expect("opens again");
        assert_eq!(entries(&path), ["FORMAT", "lock"]);
    }

    #[test]
    fn a_making_that_was_interrupted_is_finished() {
        let root = tempfile::tempdir().expect("a directory");
        fs::write(root.path().join("lock"), "").expect("written");
        fs::write(root.path().join("FORMAT.new"), "scro").expect("written");
        DataDirectory::open_or_create(root.path()).expect("made");
        DataDirectory::open_existing(root.path()).expect("opens");
    }

    #[test]
    fn what_is_not_a_directory_of_ours_is_refused_and_left_alone() {
        let root = tempfile::tempdir().expect("a directory");
        let file = root.path().join("file");
        fs::write(&file, "x").expect("written");
        assert!(fault(DataDirectory::open_or_create(&file)).ends_with("file: is not a directory"));
        assert!(fault(DataDirectory::open_existing(&file)).ends_with("file: is not a directory"));
        assert!(fault(DataDirectory::open_or_create(root.path())).ends_with("is not a Scrollback data directory"));
        assert!(fault(DataDirectory::open_existing(root.path())).ends_with("is not a Scrollback data directory"));
        assert_eq!(entries(root.path()), ["file"]);
        let missing = root.path().join("missing");
        assert!(fault(DataDirectory::open_existing(&missing)).ends_with("missing: there is no such directory"));
    }

    #[test]
    fn where_nothing_can_be_made_the_reason_is_given() {
        let text = fault(DataDirectory::open_or_create(Path::new("/proc/scrollback")));
        assert!(text.starts_with("/proc/scrollback: cannot be created: "), "{text}");
    }

    #[test]
    fn a_newer_format_and_an_unknown_one_are_refused() {
        let root = tempfile::tempdir().expect("a directory");
        fs::write(root.path().join("FORMAT"), "scrollback 7\n").expect("written");
        let text = fault(DataDirectory::open_or_create(root.path()));
        assert!(text.ends_with("written by a newer Scrollback (format 7), this one reads format 1"), "{text}");
        fs::write(root.path().join("FORMAT"), "else").expect("written");
        let text = fault(DataDirectory::open_existing(root.path()));
        assert!(text.ends_with("is not a Scrollback data directory: its file FORMAT says something else"), "{text}");
        assert_eq!(entries(root.path()), ["FORMAT"]);
    }

    #[test]
    fn a_missing_format_beside_a_log_is_refused() {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir(root.path().join("log")).expect("made");
        fs::write(root.path().join("floor"), "x").expect("written");
        let text = fault(DataDirectory::open_or_create(root.path()));
        assert!(text.contains("its file FORMAT is missing"), "{text}");
    }

    #[test]
    fn a_held_one_names_its_holder_and_is_free_when_that_is_gone() {
        let root = tempfile::tempdir().expect("a directory");
        let held = DataDirectory::open_or_create(root.path()).expect("made");
        assert!(fault(DataDirectory::open_existing(root.path())).ends_with("is in use by another process"));
        let host = HostFile { pid: 41, address: "127.0.0.1:7447".to_owned(), secret: String::new() };
        host.write(root.path()).expect("written");
        let text = fault(DataDirectory::open_or_create(root.path()));
        assert!(text.ends_with("is in use by the Scrollback host with process id 41 at 127.0.0.1:7447"), "{text}");
        drop(held);
        DataDirectory::open_existing(root.path()).expect("free");
    }
}
