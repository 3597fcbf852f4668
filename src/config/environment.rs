//! The environment of the process, read once; tests bring their own.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// The variables that a process was started with.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
}

impl Environment {
    /// The variables of this process. One that is not UTF-8 is as if it were not there.
    pub fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self { variables: std::env::vars_os().filter_map(text).collect() }
    }

    /// Variables of a test.
    pub fn of(variables: &[(&str, &str)]) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self { variables: variables.iter().map(owned).collect() }
    }

    /// The value of `name`; an empty one is as if it were not there.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The deployment token, or the token of the one who asks.
    pub fn token(&self) -> Option<&str> {
        self.get("SCROLLBACK_TOKEN")
    }

    /// Whether colours are unwanted: <https://no-color.org>.
    pub fn no_color(&self) -> bool {
        self.get("NO_COLOR").is_some()
    }

    /// The home of the user that runs this; the root of the file system for one without.
    pub(super) fn home(&self) -> PathBuf {
        let absolute = |path: &PathBuf| path.is_absolute();
        self.get("HOME").map(PathBuf::from).filter(absolute).unwrap_or_else(|| PathBuf::from("/"))
    }

    /// The name of the machine.
    pub fn host_name(&self) -> String {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        if name.is_empty() { "localhost".into() } else { name }
    }
}
