//! `scrollback log compact`.

use std::io::{IsTerminal, Write};

use serde_json::json;

use super::args::Place;
use super::fault::CliFault;
use super::keeping::with_host;
use super::out::Out;
use super::reach::Reach;
use crate::admin::inspect;
use crate::clock::Clock;
use crate::config::Environment;
use crate::events::Compacted;
use crate::events::compacting::Step;
use crate::events::sled_store::Access;

/// Folds what is older than `before`.
pub fn compact(before: Option<&str>, place: &Place, environment: &Environment) -> Result<(), CliFault> {
    let now = Clock::system().now();
    // Read here too, so that a mistake is told before anything is opened.
    let moment = before.map(|text| inspect::time("before", text, now)).transpose()?;
    let compacted: Compacted = match Reach::of(place, Access::Write, environment)? {
        Reach::Host(host) => {
            say("the host copies its log and checks the copy");
            host.post("/api/log/compact", &before.map_or(json!({}), |at| json!({ "before": at })))?
        }
        Reach::Directory(directory) => with_host(*directory, environment, async move |host| {
            host.compact(moment.unwrap_or(now), Box::new(tell)).await
        })?,
    };
    let mut out = Out::new(place.json, environment);
    if out.json {
        out.object(&compacted)?
    } else {
        let Compacted { folded, into, disk_bytes_before, disk_bytes } = compacted;
        out.line(&format!(
            "{folded} events folded into {into}; {disk_bytes_before} bytes on disk before, {disk_bytes} now"
        ))?
    }
    out.flush()
}

/// Says how far it is.
fn tell(step: Step) {
    let words = match step {
        Step::Planned => "copying",
        Step::Copied => "checking the copy",
        Step::Checked => "catching up",
        _ => return,
    };
    say(words);
}

/// Says it on a terminal.
fn say(words: &str) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        // A terminal that is gone wants no progress.
        let _ = writeln!(terminal, "{words} …");
    }
}
