//! How much room the disk has left.
//!
//! Asked before each append, so that the log stops while there is still room to close in order, and reads go on.
//! Tests set the room themselves.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where the free room is learnt from. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct FreeSpace {
    /// In tests, the room that is said to be there, in bytes.
    fixed: Option<Arc<AtomicU64>>,
}

impl FreeSpace {
    /// The room on the file system.
    pub fn disk() -> Self {
        Self::default()
    }

    /// A disk that says it has `bytes` free until [`FreeSpace::set`].
    pub fn fixed(bytes: u64) -> Self {
        Self { fixed: Some(Arc::new(AtomicU64::new(bytes))) }
    }

    /// Changes what a fixed one says; does nothing to the disk's.
    pub fn set(&self, bytes: u64) {
        if let Some(fixed) = &self.fixed {
            fixed.store(bytes, Ordering::Release);
        }
    }

    /// Bytes that this process may still write on the file system of `path`.
    ///
    /// # Errors
    /// What statvfs says.
    pub fn at(&self, path: &Path) -> io::Result<u64> {
        match &self.fixed {
            Some(fixed) => Ok(fixed.load(Ordering::Acquire)),
            None => {
                let disk = rustix::fs::statvfs(path)?;
                Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_has_some_room_and_a_missing_path_is_an_error() {
        assert!(FreeSpace::disk().at(Path::new("/")).is_ok());
        assert!(FreeSpace::disk().at(Path::new("/no/such/path")).is_err());
    }
}
