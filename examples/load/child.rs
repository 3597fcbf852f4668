//! A process of its own for what needs a cold start, or a memory that nobody else used.
//!
//! The same program with [`FLAG`] as its first argument; it prints one JSON object.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{awake, list, looking, start, wake};

/// What tells a child from the run.
pub const FLAG: &str = "--child";

/// Runs `measure` in a child over the data in `directory`.
pub fn of(measure: &str, directory: &Path, argument: &str) -> Value {
    let program = std::env::current_exe().expect("the program's own path");
    let mut command = Command::new(program);
    command.arg(FLAG).arg(measure).arg(directory).arg(argument).stderr(Stdio::inherit());
    let output = command.output().expect("a child");
    assert!(output.status.success(), "{measure}: {}", output.status);
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// What a child does.
pub fn run(arguments: &[String]) {
    let [measure, directory, argument] = arguments else { return };
    let directory = Path::new(directory);
    let found = match measure.as_str() {
        "start" => start::cold(directory),
        "wake" => wake::cold(directory, argument),
        "list" => list::cold(directory),
        "looking" => looking::cold(directory, argument),
        "awake" => awake::cold(directory, argument),
        other => Value::from(format!("no measure is named {other}")),
    };
    println!("{found}");
}

/// The memory of this process that is resident, in bytes.
pub fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.map_or(f64::NAN, |pages| pages * 4_096.0)
}

/// A number of a child's answer.
pub fn number(found: &Value, name: &str) -> f64 {
    found.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN)
}
