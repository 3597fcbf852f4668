//! The host as a process.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Broken, Settings};

/// A running host, killed when it is dropped.
pub struct Child {
    process: std::process::Child,
    pub port: u16,
}

impl Child {
    /// Starts a host on `directory` and waits until it says that it is ready.
    pub fn start(settings: &Settings, directory: &Path) -> Result<Self, Broken> {
        let mut process = command(settings, directory)
            .args(["serve", "--listen", "127.0.0.1:0", "--durability", &settings.durability])
            .args(["--data".as_ref(), directory.join("data").as_os_str()])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Broken::new(format!("{}: {error}", settings.binary.display())))?;
        let mut line = String::new();
        if let Some(stdout) = process.stdout.take() {
            let _ = BufReader::new(stdout).read_line(&mut line);
        }
        match line.trim_end().strip_prefix("READY:").and_then(|port| port.parse().ok()) {
            Some(port) => Ok(Self { process, port }),
            None => {
                let output = process.wait_with_output().map_err(Broken::new)?;
                Err(Broken::new(format!("the host did not start: {}", String::from_utf8_lossy(&output.stderr))))
            }
        }
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `scrollback log verify` on the directory as the kill left it.
pub fn verify(settings: &Settings, directory: &Path) -> Result<(), Broken> {
    let output = command(settings, directory)
        .args(["log", "verify"])
        .args(["--data".as_ref(), directory.join("data").as_os_str()])
        .stdout(Stdio::piped())
        .output()
        .map_err(Broken::new)?;
    if output.status.success() {
        return Ok(());
    }
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(Broken::new(format!("log verify failed: {out}{err}")))
}

fn command(settings: &Settings, directory: &Path) -> Command {
    let mut command = Command::new(&settings.binary);
    command.env_clear().env("HOME", directory).env("SCROLLBACK_LOG_LEVEL", "error");
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    command
}
