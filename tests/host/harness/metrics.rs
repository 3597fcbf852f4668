//! What the hosts of this process counted.

use std::sync::OnceLock;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

static COUNTED: OnceLock<PrometheusHandle> = OnceLock::new();

/// Begins to count, as the binary does.
pub fn count() {
    COUNTED.get_or_init(|| PrometheusBuilder::new().install_recorder().unwrap());
}

/// How often this limit was met.
pub fn met(limit: &str) -> u64 {
    met_in(&COUNTED.get().unwrap().render(), limit)
}

/// The same, as the text of `/metrics` has it.
pub fn met_in(metrics: &str, limit: &str) -> u64 {
    let name = format!("scrollback_limit_met_total{{limit=\"{limit}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)).map_or(0, |count| count.trim().parse().unwrap())
}
