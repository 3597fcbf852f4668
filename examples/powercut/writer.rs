//! The process that writes until it dies, and says after each commit what was acknowledged.

use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::script::Script;
use crate::victim::Which;

/// The longest that a writer runs, should nobody end it.
const LONGEST: Duration = Duration::from_secs(120);

/// Appends the commits of `script` to the victim in `folder`, and writes a line `first last` to `acked` after each.
///
/// Ends when `parent` does (its end of the pipe closes), so that a rig that was killed leaves no writer behind.
///
/// # Errors
/// What the victim says to an append, or the system to a line.
pub fn write(which: Which, folder: &Path, script: Script, acked: &mut impl Write) -> Result<(), String> {
    std::thread::spawn(|| {
        let _ = io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let started = Instant::now();
    let mut victim = which.open(folder)?;
    while started.elapsed() < LONGEST {
        let first = victim.next_seq();
        let batches = script.commit(first);
        let events: usize = batches.iter().map(|batch| batch.events.len()).sum();
        victim.append(&batches)?;
        let line = format!("{first} {}\n", first + events as u64 - 1);
        acked.write_all(line.as_bytes()).map_err(|e| e.to_string())?;
    }
    Ok(())
}
