//! What the process says of itself: its logs on stderr and to clients, its trails to a collector.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};

use super::fault::CliFault;
use crate::clock::Clock;
use crate::config::{Config, Environment, LogFormat};
use crate::telemetry::{ToClients, Traces};

/// Writes what is logged from now on, at the configured level and in the configured format, and tells it to clients that ask.
/// Where there is a collector, returns what sends it the trails of messages and turns.
///
/// # Errors
/// The collector's key, and why nothing can be sent there.
pub fn start(config: &Config, environment: &Environment) -> Result<Option<Traces>, CliFault> {
    let traces = config.otlp_endpoint.as_deref().map(Traces::start).transpose();
    let traces = traces.map_err(|problem| CliFault::Usage(format!("otlp_endpoint: {problem}")))?;
    let colours = stderr().is_terminal() && !environment.no_color();
    let filter = || EnvFilter::builder().parse_lossy(directives(&config.log_level));
    let lines = fmt::layer().with_writer(stderr).with_ansi(colours);
    let lines = match config.log_format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let to_clients = ToClients::start(Clock::system());
    let problem = to_clients.as_ref().err().map(ToString::to_string);
    // Each has a filter of its own: a collector hears of trails that are not logged.
    let logs = tracing_subscriber::registry()
        .with(lines.with_filter(filter()))
        .with(to_clients.ok().map(|layer| layer.with_filter(filter())))
        .with(traces.as_ref().map(Traces::layer));
    // A second subscriber in one process is a test's: the first one goes on.
    let _ = logs.try_init();
    if let Some(problem) = problem {
        tracing::warn!(problem, "clients are not told what is logged");
    }
    Ok(traces)
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
