//! The real host in a process of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Map, Value};
use tempfile::TempDir;

use crate::chunks;
use crate::support::directory;

/// The agent whose words say when they were said.
pub const CLOCK: &str = "clock";

/// A running host. Ends with its case.
pub struct Served {
    pub address: SocketAddr,
    child: Child,
    _data: TempDir,
}

impl Served {
    /// Starts the binary beside this program, with its defaults.
    pub fn start() -> Self {
        let data = directory();
        let this = std::env::current_exe().expect("this program");
        let config = data.path().join("scrollback.toml");
        let text = format!(
            "listen = \"127.0.0.1:0\"\ndata = {:?}\nmetrics_public = true\nmax_connections_per_person = 10000\n\
             log_level = \"error\"\n[agents.{CLOCK}]\nkind = \"acp\"\ncommand = [{:?}, {:?}]\n",
            data.path().join("data").display().to_string(),
            this.display().to_string(),
            chunks::FLAG,
        );
        std::fs::write(&config, text).expect("a configuration");
        let folder = this.parent().and_then(|examples| examples.parent()).expect("the folder of the build");
        let mut command = Command::new(folder.join("scrollback"));
        command.arg("serve").arg("--config").arg(&config).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child =
            command.spawn().expect("the binary beside this program: cargo build --release --bin scrollback");
        let mut line = String::new();
        let out = child.stdout.take().expect("output");
        BufReader::new(out).read_line(&mut line).expect("a line");
        let port: u16 = line.trim().strip_prefix("READY:").and_then(|port| port.parse().ok()).expect("READY");
        Self { address: SocketAddr::from(([127, 0, 0, 1], port)), child, _data: data }
    }

    /// Bytes of it that are resident now.
    pub fn resident(&self) -> f64 {
        self.status("VmRSS:")
    }

    /// The most that were resident since [`Self::forget_peak`].
    pub fn peak(&self) -> f64 {
        self.status("VmHWM:")
    }

    pub fn forget_peak(&self) {
        let _ = std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5");
    }

    fn status(&self, name: &str) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kibibytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
        kibibytes.map_or(f64::NAN, |kibibytes| kibibytes * 1_024.0)
    }

    /// How often each limit was met.
    pub fn limits(&self) -> Value {
        let text = self.get("/metrics");
        let met = text
            .lines()
            .filter_map(|line| line.strip_prefix("scrollback_limit_met_total{limit=\"")?.split_once("\"} "));
        let counted = met.map(|(limit, count)| (limit.to_owned(), count.trim().parse::<u64>().unwrap_or(0).into()));
        Value::Object(counted.collect::<Map<_, _>>())
    }

    fn get(&self, path: &str) -> String {
        let mut text = String::new();
        let asked = TcpStream::connect(self.address).and_then(|mut stream| {
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address)?;
            stream.read_to_string(&mut text)
        });
        if let Err(error) = asked {
            eprintln!("  {path}: {error}");
        }
        text
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
