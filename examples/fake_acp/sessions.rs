//! What the agent remembers of its conversations, in a directory where it is told one.

use std::collections::HashMap;
use std::path::PathBuf;

use serde_json::{Value, json};

/// Its conversations.
pub struct Sessions {
    open: HashMap<String, Session>,
    directory: Option<PathBuf>,
}

struct Session {
    /// What it was opened with.
    params: Value,
    /// Who said it, and what.
    said: Vec<(String, String)>,
}

impl Sessions {
    pub fn at(directory: Option<PathBuf>) -> Self {
        Self { open: HashMap::new(), directory }
    }

    pub fn open(&mut self, params: &Value) -> String {
        let time = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
        let id = format!("fake-{}-{time}", std::process::id());
        self.open.insert(id.clone(), Session { params: params.clone(), said: Vec::new() });
        id
    }

    /// Opens an old one; whether it is known. One that is not is open all the same for who lies.
    pub fn reopen(&mut self, id: &str, params: &Value) -> bool {
        let kept = self.file(id).and_then(|file| std::fs::read_to_string(file).ok());
        let Some(kept) = kept else { return false };
        self.open.insert(id.to_owned(), Session { params: params.clone(), said: serde_json::from_str(&kept).unwrap() });
        true
    }

    pub fn knows(&self, id: &str) -> bool {
        self.open.contains_key(id)
    }

    pub fn params(&self, id: &str) -> &Value {
        &self.open[id].params
    }

    pub fn history(&self, id: &str) -> Vec<(String, String)> {
        self.open.get(id).map(|session| session.said.clone()).unwrap_or_default()
    }

    /// Adds what somebody said: to the last text where the same one goes on.
    pub fn add(&mut self, id: &str, who: &str, text: &str) {
        let Some(session) = self.open.get_mut(id) else { return };
        match session.said.last_mut() {
            Some((last, said)) if last == who && who == "agent" => said.push_str(text),
            _ => session.said.push((who.to_owned(), text.to_owned())),
        }
        let said = json!(session.said).to_string();
        if let Some(file) = self.file(id) {
            std::fs::write(file, said).unwrap();
        }
    }

    fn file(&self, id: &str) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(format!("{id}.json")))
    }
}
