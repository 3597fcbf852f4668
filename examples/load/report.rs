//! What was measured, beside its goal.

use std::time::Duration;

use serde_json::{Value, json};

use crate::Scale;

/// Which side of the goal is good.
#[derive(Debug, Clone, Copy)]
pub enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// Nothing is promised: the number is for the reader.
    None,
}

impl Goal {
    fn met(self, value: f64) -> Option<bool> {
        match self {
            Goal::AtLeast(least) => Some(value >= least),
            Goal::AtMost(most) => Some(value <= most),
            Goal::None => None,
        }
    }

    fn words(self) -> Option<String> {
        match self {
            Goal::AtLeast(least) => Some(format!("at least {least}")),
            Goal::AtMost(most) => Some(format!("at most {most}")),
            Goal::None => None,
        }
    }
}

/// All rows of a run.
pub struct Report {
    scale: Scale,
    rows: Vec<Value>,
}

impl Report {
    pub fn new(scale: Scale) -> Self {
        Self { scale, rows: Vec::new() }
    }

    /// A measure whose goal is a ratio of `ours` to `bare`, both in `unit`.
    pub fn ratio(&mut self, what: &str, unit: &str, goal: Goal, bare: f64, ours: f64) {
        self.row(what, unit, goal, Some(bare), ours, ours / bare);
    }

    /// A measure whose goal is a number of its own.
    pub fn number(&mut self, what: &str, unit: &str, goal: Goal, ours: f64) {
        self.row(what, unit, goal, None, ours, ours);
    }

    fn row(&mut self, what: &str, unit: &str, goal: Goal, bare: Option<f64>, ours: f64, judged: f64) {
        let ratio = bare.map(|_| rounded(judged));
        let row = json!({ "what": what, "unit": unit, "goal": goal.words(), "bare": bare.map(rounded),
            "ours": rounded(ours), "ratio": ratio, "met": goal.met(judged) });
        eprintln!("  {row}");
        self.rows.push(row);
    }

    /// The whole run.
    pub fn json(&self) -> Value {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        json!({ "quick": self.scale.quick, "cores": cores, "measures": self.rows })
    }
}

/// Four digits are more than a shared machine tells.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// The value below which `share` (0 to 1) of `times` lie, in milliseconds.
pub fn percentile(times: &mut [Duration], share: f64) -> f64 {
    times.sort_unstable();
    let at = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
    times.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1_000.0)
}

/// The middle one of `values`.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
