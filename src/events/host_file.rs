//! `host.json` in the data directory: who serves it now, where, and the secret of its own command line.
//!
//! Written by the host once it listens, read by `scrollback` verbs that talk to a running host, removed at a clean
//! stop. It may be stale after a crash: only the lock says whether a host runs.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::LogFault;
use super::durable::{io_fault, write_whole};

/// The file's name in the data directory.
const NAME: &str = "host.json";

/// What a running host says of itself.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFile {
    /// Its process id.
    pub pid: u32,
    /// Where it listens, as `address:port`.
    pub address: String,
    /// What its own command line shows to be let in. Never logged.
    pub secret: String,
}

impl HostFile {
    /// Puts it into `directory`, for the owner alone, whole or not at all.
    ///
    /// # Errors
    /// [`LogFault::Io`].
    pub fn write(&self, directory: &Path) -> Result<(), LogFault> {
        let path = path_in(directory);
        let text = serde_json::to_vec(self)
            .map_err(|e| LogFault::Directory { path: path.clone(), problem: format!("cannot be written: {e}") })?;
        write_whole(&path, &text).map_err(io_fault(&path))
    }

    /// The one in `directory`, `None` where there is none.
    ///
    /// # Errors
    /// [`LogFault::Io`] for a file that cannot be read, [`LogFault::Directory`] for one that is something else.
    pub fn read(directory: &Path) -> Result<Option<HostFile>, LogFault> {
        let path = path_in(directory);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(io_fault(&path)(e)),
        };
        let host = serde_json::from_slice(&text);
        host.map(Some).map_err(|e| LogFault::Directory { path, problem: format!("cannot be understood: {e}") })
    }

    /// Removes the one in `directory`; nothing happens where there is none.
    ///
    /// # Errors
    /// [`LogFault::Io`].
    pub fn remove(directory: &Path) -> Result<(), LogFault> {
        let path = path_in(directory);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(io_fault(&path)(e)),
            _ => Ok(()),
        }
    }
}

impl std::fmt::Debug for HostFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostFile").field("pid", &self.pid).field("address", &self.address).finish_non_exhaustive()
    }
}

fn path_in(directory: &Path) -> PathBuf {
    directory.join(NAME)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn it_is_read_back_for_the_owner_alone_until_it_is_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let host = HostFile { pid: 7, address: "127.0.0.1:7447".to_owned(), secret: "s3cret".to_owned() };
        assert_eq!(HostFile::read(dir.path()).expect("read"), None);
        host.write(dir.path()).expect("written");
        assert_eq!(HostFile::read(dir.path()).expect("read"), Some(host.clone()));
        let mode = fs::metadata(dir.path().join(NAME)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(!format!("{host:?}").contains("s3cret"));
        HostFile::remove(dir.path()).expect("removed");
        HostFile::remove(dir.path()).expect("removed twice");
        assert_eq!(HostFile::read(dir.path()).expect("read"), None);
    }

    #[test]
    fn garbage_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join(NAME), "{").expect("written");
        let fault = HostFile::read(dir.path()).expect_err("garbage").to_string();
        assert!(fault.contains("host.json: cannot be understood"), "{fault}");
    }
}
