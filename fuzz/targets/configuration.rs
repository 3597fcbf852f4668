//! A configuration: lines `SCROLLBACK_…=value` are the environment, the others are the file.

use std::time::{Duration, Instant};

use scrollback::cli::settings;
use scrollback::config::{Config, Environment, load};
use tempfile::NamedTempFile;

/// Longer than any host runs.
const LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

pub fn run(text: &str) {
    let is_variable = |line: &&str| line.starts_with("SCROLLBACK_");
    let variables: Vec<_> = text.lines().filter(is_variable).filter_map(|line| line.split_once('=')).collect();
    let lines: Vec<&str> = text.lines().filter(|line| !is_variable(line)).collect();
    let file = file(&lines.join("\n"));
    let loaded = match load(Some(file.path()), &Environment::of(&variables), &[]) {
        Ok(loaded) => loaded,
        Err(fault) => return assert!(!fault.to_string().contains('\n'), "{fault}"),
    };
    served(&loaded.config);
    let keys = loaded.settings.iter().filter(|setting| !setting.key.starts_with("agents."));
    let printed: String = keys.map(|setting| setting.line() + "\n").collect();
    let again = load(Some(self::file(&printed).path()), &Environment::default(), &[]);
    assert_eq!(again.expect("what is printed is read").config, loaded.config);
}

fn file(text: &str) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

/// What is taken can be served: settings are made of it, and its times can be added to now.
fn served(config: &Config) {
    let (host, protocol) = (settings::host(config), settings::protocol(config));
    let _ = (settings::agents(config), settings::ending_steps(config), settings::store(config));
    let _ = settings::public_origin(config);
    let spans = [protocol.handshake_timeout, protocol.ping_after, protocol.pong_timeout, protocol.close_timeout];
    let spans =
        spans.into_iter().chain([host.idle_timeout, host.delta_window, host.client_grace, config.commit_interval]);
    for span in spans.chain(config.overload_retries.iter().copied()) {
        assert!((Instant::now() + LIFETIME).checked_add(span).is_some(), "{span:?} never ends");
    }
}
