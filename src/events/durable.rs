//! Files that are there whole or not at all, also after a power cut.
//!
//! Used for the small files of the data directory; attachments make their folders with it. Always: a temporary file beside the target is written and synced,
//! then renamed over it, then the directory is synced. Nothing else in this folder writes a file by hand.

use std::fs::{DirBuilder, File, OpenOptions, rename};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::LogFault;

/// What the temporary file's name ends in.
pub(super) const TEMPORARY: &str = ".new";

/// Puts `bytes` under `path`, readable for the owner alone, in place of what was there.
///
/// # Errors
/// The first step that failed. What was under `path` is then still there, or already replaced and not yet durable.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary_of(path);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.set_permissions(PermissionsExt::from_mode(0o600))?;
    file.write_all(bytes)?;
    file.sync_all()?;
    rename(&temporary, path)?;
    sync_directory(path.parent().unwrap_or(Path::new(".")))
}

/// Makes the entries of `directory` durable.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    File::open(directory)?.sync_all()
}

/// Makes `directory` for the owner alone where it is missing, durably. Says whether it was made.
pub(crate) fn make_directory(directory: &Path) -> io::Result<bool> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => {
            sync_directory(directory)?;
            sync_directory(directory.parent().unwrap_or(Path::new(".")))?;
            Ok(true)
        }
        Err(e) if e.kind() == ErrorKind::AlreadyExists && directory.is_dir() => Ok(false),
        Err(e) => Err(e),
    }
}

/// A fault that names the file.
pub(super) fn io_fault(path: &Path) -> impl FnOnce(io::Error) -> LogFault + '_ {
    move |source| LogFault::Io { path: path.to_owned(), source }
}

fn temporary_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY);
    PathBuf::from(name)
}
