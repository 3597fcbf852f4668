//! What a probe of an agent found, kept over restarts, so that a host says from its first moment what its agents can do.

use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What was found last, for one configuration of an agent. Another configuration begins with nothing.
pub struct Found<T> {
    found: RwLock<T>,
    file: Option<PathBuf>,
    configuration: String,
}

#[derive(Serialize, Deserialize)]
struct Stored<T> {
    configuration: String,
    found: T,
}

impl<T: Clone + Default + Serialize + DeserializeOwned> Found<T> {
    /// What was found for `configuration`, which is any text that changes when it does; `file` is where it is kept. A file
    /// that cannot be read counts as none: the next probe writes it anew.
    pub fn recall(file: Option<PathBuf>, configuration: String) -> Self {
        let bytes = file.as_deref().and_then(|file| std::fs::read(file).ok());
        let stored = bytes.and_then(|bytes| serde_json::from_slice::<Stored<T>>(&bytes).ok());
        let found = stored.filter(|stored| stored.configuration == configuration).map(|stored| stored.found);
        Self { found: RwLock::new(found.unwrap_or_default()), file, configuration }
    }

    /// What is known now.
    pub fn get(&self) -> T {
        self.found.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes what a probe found. Where it cannot be kept, the next start probes before it knows.
    pub fn set(&self, found: T) {
        // Held over the writing: two probes at once leave what the later one found.
        let mut known = self.found.write().unwrap_or_else(PoisonError::into_inner);
        known.clone_from(&found);
        let Some(file) = &self.file else { return };
        let stored = Stored { configuration: self.configuration.clone(), found };
        let write = || -> std::io::Result<()> {
            if let Some(folder) = file.parent() {
                std::fs::create_dir_all(folder)?;
            }
            let new = file.with_extension("new");
            std::fs::write(&new, serde_json::to_vec(&stored)?)?;
            std::fs::rename(&new, file)
        };
        if let Err(error) = write() {
            tracing::warn!(%error, file = %file.display(), "what an agent can do is not kept");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_known_at_the_next_start_and_only_for_the_same_configuration() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("agents").join("codex.json");
        let known = |configuration: &str| Found::<Vec<String>>::recall(Some(file.clone()), configuration.to_owned());
        known("a").set(vec!["fast".to_owned()]);
        assert_eq!(known("a").get(), ["fast"]);
        assert_eq!(known("b").get(), [] as [String; 0]);
        std::fs::write(&file, "no JSON").unwrap();
        assert_eq!(known("a").get(), [] as [String; 0]);
    }
}
