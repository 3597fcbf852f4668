//! The directories that sessions may work in: inside the allowed ones, by real path.
//!
//! What the disk says comes in with the command: a decision of a session never asks it.

use std::path::{Path, PathBuf};

use ahp_types::actions::StateAction;

use super::Host;
use crate::actors::command::{Refusal, RefusalKind};
use crate::actors::rejection::{Code, Rejection};
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
        let bad = |problem| Refusal::new(RefusalKind::NotPermitted, "bad-directory", problem);
        self.is_allowed(uri).map_err(bad)
    }

    fn is_allowed(&self, uri: &str) -> Result<(), String> {
        let settings = &self.shared.settings;
        is_allowed(&settings.allowed_directories, settings.data_directory.as_deref(), uri)
    }

    /// Refuses an action that gives a session a directory which it may not have.
    pub(super) fn check_granted(&self, action: &StateAction) -> Result<(), Rejection> {
        let granted = match action {
            StateAction::SessionWorkingDirectorySet(set) => &set.directory,
            StateAction::SessionWorkingDirectoryReplaced(replaced) => &replaced.replacement,
            _ => return Ok(()),
        };
        let bad = |problem| Rejection::new(Code::BadDirectory, problem);
        self.is_allowed(granted).map_err(bad)
    }
}

/// Whether `uri` names a directory inside an allowed one and not inside the host's own, by real path.
fn is_allowed(allowed: &[PathBuf], data: Option<&Path>, uri: &str) -> Result<(), String> {
    let path = file_path(uri).map_err(|_| format!("{uri} is not a file: URI of this host"))?;
    let real = path.canonicalize().map_err(|e| format!("{uri}: {e}"))?;
    if !real.is_dir() {
        return Err(format!("{uri} is not a directory"));
    }
    if data.is_some_and(|data| real.starts_with(data)) {
        return Err(format!("{uri} is the host's own"));
    }
    let inside = allowed.iter().any(|root| root.canonicalize().is_ok_and(|root| real.starts_with(root)));
    if inside { Ok(()) } else { Err(format!("{uri} is outside of the allowed directories")) }
}
