//! The logs of the process, on stderr.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};

use crate::clock::Clock;
use crate::config::{Config, Environment, LogFormat};
use crate::telemetry::ToClients;

/// Writes what is logged from now on, at the configured level and in the configured format, and tells it to clients that ask.
pub fn start(config: &Config, environment: &Environment) {
    let colours = stderr().is_terminal() && !environment.no_color();
    let filter = EnvFilter::builder().parse_lossy(directives(&config.log_level));
    let lines = fmt::layer().with_writer(stderr).with_ansi(colours);
    let lines = match config.log_format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let to_clients = ToClients::start(Clock::system());
    let problem = to_clients.as_ref().err().map(ToString::to_string);
    // A second subscriber in one process is a test's: the first one goes on.
    let _ = tracing_subscriber::registry().with(filter).with(lines).with(to_clients.ok()).try_init();
    if let Some(problem) = problem {
        tracing::warn!(problem, "clients are not told what is logged");
    }
}

/// What is shown at a level. At `info` the web server would tell of each of its threads; what goes wrong in the engine is
/// said once, by whoever called it.
fn directives(level: &str) -> String {
    match level {
        "info" => "info,actix_server=warn,rmcp=warn,sled=off".into(),
        "warn" | "error" => format!("{level},sled=off"),
        _ => level.to_owned(),
    }
}
