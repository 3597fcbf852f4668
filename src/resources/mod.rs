//! Files that clients may read and write: those in the allowed directories, by real path.
//!
//! A URI becomes a path, its symbolic links are followed by hand, and the real path must lie in an allowed directory. What is
//! then touched is reached from that directory one step at a time, without following anything: a link that takes a
//! directory's place meanwhile leads nowhere. The host's own data directory is never reached, wherever it lies and under
//! whatever name; only what is stored of attachments can be read.
//!
//! Used by `protocol`, on the blocking pool. Left out on purpose: who may ask, and how a refusal is numbered.
//! Source: AHP `resource*`; threat model, 6.

mod changing;
mod fault;
mod finding;
mod place;
mod reading;
mod tree;
pub mod uri;
mod watching;
mod writing;

use std::path::{Path, PathBuf};

pub use changing::{copy, delete, make_directory, rename};
pub use fault::ResourceFault;
pub use finding::{FoundPath, Reach, Search, find};
pub use reading::{Content, Encoding, Entry, Found, FoundKind, display_kind, list, read, resolve};
pub use watching::{Change, ChangeKind, Filter, Watch, WatchId, Watching};
pub use writing::{Mode, Write, write};

/// The folder of the data directory that attachments are stored in.
const ATTACHMENTS: &str = "attachments";

/// Where resources may be.
#[derive(Debug, Clone)]
pub struct Roots {
    /// The allowed directories.
    allowed: Vec<PathBuf>,
    /// The host's own data directory, which is out of reach.
    data: Option<PathBuf>,
    /// The same, whatever its name.
    hidden: Option<place::Identity>,
    /// Files that hold the host's own secrets: out of reach too.
    secrets: Vec<PathBuf>,
}

/// What somebody wants with a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To read it: stored attachments too.
    Read,
    /// To look into a directory, to copy, or to watch.
    Look,
    /// To change it.
    Write,
}

impl Roots {
    /// The allowed directories without the host's own.
    pub fn new(allowed: &[PathBuf], data: Option<&Path>) -> Self {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let hidden = data.and_then(place::identity_of);
        Self {
            allowed: allowed.iter().map(|path| real(path)).collect(),
            data: data.map(real),
            hidden,
            secrets: Vec::new(),
        }
    }

    /// The same without these files, which hold the host's own secrets.
    #[must_use]
    pub fn without(mut self, secrets: &[PathBuf]) -> Self {
        self.secrets = secrets.iter().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone())).collect();
        self
    }

    /// Whether a file with a secret of the host's lies in `real`, or is it.
    fn holds_secret(&self, real: &Path) -> bool {
        self.secrets.iter().any(|secret| secret.starts_with(real))
    }

    /// Whether `uri` names something in the data directory.
    ///
    /// # Errors
    /// [`ResourceFault::Malformed`] where it is no URI.
    pub fn is_own(&self, uri: &str) -> Result<bool, ResourceFault> {
        let path = uri::file_path(uri)?;
        Ok(self.is_hidden(&place::real_path(&path, place::Last::Follow)?))
    }

    /// Whether somebody may do this with what `uri` names, be it there or not.
    ///
    /// # Errors
    /// [`ResourceFault::Outside`] when not, [`ResourceFault::Malformed`] where it is no URI.
    pub fn permit(&self, uri: &str, access: Access) -> Result<(), ResourceFault> {
        let path = uri::file_path(uri)?;
        let real = place::real_path(&path, place::Last::Follow)?;
        self.root_of(&real, access).map(|_| ())
    }

    /// The directory from which `real` is reached.
    fn root_of(&self, real: &Path, access: Access) -> Result<&Path, ResourceFault> {
        let data = self.data.as_deref().filter(|data| real.starts_with(data));
        if let Some(data) = data {
            let is_attachment = real.strip_prefix(data).is_ok_and(|rest| rest.starts_with(ATTACHMENTS));
            return if is_attachment && access == Access::Read { Ok(data) } else { Err(ResourceFault::Outside) };
        }
        if self.secrets.iter().any(|secret| secret == real) {
            return Err(ResourceFault::Outside);
        }
        let roots = self.allowed.iter().filter(|root| real.starts_with(root));
        let longest = roots.max_by_key(|root| root.as_os_str().len());
        longest.map(PathBuf::as_path).ok_or(ResourceFault::Outside)
    }

    /// Whether `real` is in the data directory, or is it.
    fn is_hidden(&self, real: &Path) -> bool {
        self.data.as_deref().is_some_and(|data| real.starts_with(data))
    }

    /// Whether the data directory, or a file with a secret, lies in `real`, or is it.
    fn holds_data(&self, real: &Path) -> bool {
        self.data.as_deref().is_some_and(|data| data.starts_with(real)) || self.holds_secret(real)
    }
}

#[cfg(test)]
mod tests;
