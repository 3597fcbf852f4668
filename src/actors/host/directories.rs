//! The directories that sessions may work in: inside the allowed ones, by real path.

use super::Host;
use crate::actors::command::{Refusal, RefusalKind};
use crate::resources::uri::file_path;

impl Host {
    /// The directories of a session: those that it names, in the allowed ones by real path, else the default one.
    pub(super) fn directories(&self, wanted: Option<Vec<String>>, many: bool) -> Result<Vec<String>, Refusal> {
        let mut wanted = wanted.unwrap_or_default();
        if wanted.is_empty() {
            return Ok(vec![self.shared.settings.default_directory.clone()]);
        }
        if !many {
            wanted.truncate(1);
        }
        for directory in &wanted {
            self.check_directory(directory)?;
        }
        Ok(wanted)
    }

    fn check_directory(&self, uri: &str) -> Result<(), Refusal> {
        let bad = |text: String| Refusal::new(RefusalKind::NotPermitted, "bad-directory", text);
        let path = file_path(uri).map_err(|_| bad(format!("{uri} is not a file: URI of this host")))?;
        let real = path.canonicalize().map_err(|e| bad(format!("{uri}: {e}")))?;
        if !real.is_dir() {
            return Err(bad(format!("{uri} is not a directory")));
        }
        let allowed = &self.shared.settings.allowed_directories;
        let inside = allowed.iter().any(|root| root.canonicalize().is_ok_and(|root| real.starts_with(root)));
        if inside { Ok(()) } else { Err(bad(format!("{uri} is outside of the allowed directories"))) }
    }
}
