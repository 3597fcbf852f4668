//! The logs of the process, on stderr.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

use crate::config::{Config, Environment, LogFormat};

/// Writes what is logged from now on, at the configured level and in the configured format.
pub fn start(config: &Config, environment: &Environment) {
    let colours = stderr().is_terminal() && !environment.no_color();
    let filter = EnvFilter::builder().parse_lossy(directives(&config.log_level));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).with_ansi(colours);
    // A second subscriber in one process is a test's: the first one goes on.
    let _ = match config.log_format {
        LogFormat::Text => logs.try_init(),
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
    };
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
