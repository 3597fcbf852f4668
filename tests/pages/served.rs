//! A host for a browser: the binary, which can be killed and started again at its port.

use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;

use super::command::{Host, run};

/// A host with its data directory.
pub struct Served {
    pub home: TempDir,
    pub data: PathBuf,
    host: Option<Host>,
    port: u16,
    token: Option<String>,
}

impl Served {
    /// A host that is open to this machine.
    pub fn open() -> Self {
        Self::with(None, "")
    }

    /// The same with a configuration file.
    pub fn with_settings(settings: &str) -> Self {
        Self::with(None, settings)
    }

    /// A host that asks for `token`.
    pub fn with_token(token: &str) -> Self {
        Self::with(Some(token), "")
    }

    fn with(token: Option<&str>, settings: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let data = home.path().join("data");
        if let Some(token) = token {
            std::fs::write(home.path().join("token"), token).unwrap();
        }
        std::fs::write(home.path().join("host.toml"), settings).unwrap();
        let mut served = Self { home, data, host: None, port: 0, token: token.map(str::to_owned) };
        served.start();
        served
    }

    /// Starts it, again at the same port.
    pub fn start(&mut self) {
        let listen = format!("127.0.0.1:{}", self.port);
        let mut command = super::command::scrollback(
            self.home.path(),
            &["serve", "--listen", &listen, "--data", self.data.to_str().unwrap()],
        );
        command.arg("--config").arg(self.home.path().join("host.toml"));
        if self.token.is_some() {
            command.arg("--token-file").arg(self.home.path().join("token"));
        }
        let host = Host::spawn_logging(&mut command, std::process::Stdio::null());
        self.port = host.port;
        self.host = Some(host);
    }

    /// Ends it without a word to anybody.
    pub fn kill(&mut self) {
        let host = self.host.take().unwrap();
        host.stop("KILL");
    }

    /// The address of a page.
    pub fn page(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    /// Adds somebody; returns their token.
    pub fn person(&self, name: &str, more: &[&str]) -> String {
        let data = self.data.to_str().unwrap();
        let args = [&["user", "add", name, "--json", "--data", data], more].concat();
        let said: Value = serde_json::from_str(&run(self.home.path(), &args).printed()).unwrap();
        said["token"].as_str().unwrap().to_owned()
    }
}
