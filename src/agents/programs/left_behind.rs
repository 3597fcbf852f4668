//! What a host that was killed leaves running, found again by the marks in its environment.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

use super::MARK;

/// The folder of the data directory with one file a program that runs, named by its mark.
const FOLDER: &str = "programs";
/// How often what is left behind is looked for again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How often SIGKILL is sent.
const KILLS: usize = 40;

/// The marks of the programs that run.
pub(super) struct Marks {
    folder: Option<PathBuf>,
}

impl Marks {
    pub(super) fn of(data_directory: Option<&Path>) -> Self {
        Self { folder: data_directory.map(|directory| directory.join(FOLDER)) }
    }

    #[allow(clippy::unused_self)]
    pub(super) fn new_mark(&self) -> String {
        ulid::Ulid::new().to_string()
    }

    /// Notes a program that is about to start. Nobody's data: it need not outlive the machine's own end.
    pub(super) fn write(&self, mark: &str, program: &Path) -> std::io::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join(mark), program.to_string_lossy().as_bytes())
    }

    pub(super) fn remove(&self, mark: &str) {
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_file(folder.join(mark));
        }
    }

    /// Ends every program with a mark of an earlier run: SIGTERM, and after `patience` SIGKILL. Call it before any program is
    /// started.
    pub(super) async fn end_left_behind(&self, patience: Duration) -> usize {
        let Some(folder) = &self.folder else { return 0 };
        let marks: HashSet<String> = std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        if marks.is_empty() {
            return 0;
        }
        let found = marked(&marks);
        signal(&found, Signal::TERM);
        let latest = Instant::now() + patience;
        let mut left = marked(&marks);
        while !left.is_empty() && Instant::now() < latest {
            sleep(LOOK_AGAIN).await;
            left = marked(&marks);
        }
        // What starts others while it is looked for is found the next time.
        for _ in 0..KILLS {
            if left.is_empty() {
                break;
            }
            signal(&left, Signal::KILL);
            sleep(LOOK_AGAIN).await;
            left = marked(&marks);
        }
        if !left.is_empty() {
            tracing::warn!(programs = ?left, "programs of an earlier run cannot be ended");
        }
        // What cannot be ended is looked for again at the next start.
        if left.is_empty() {
            marks.iter().for_each(|mark| self.remove(mark));
        }
        found.len()
    }
}

fn signal(programs: &[Pid], signal: Signal) {
    for program in programs {
        let _ = kill_process(*program, signal);
    }
}

/// The processes of this user whose environment has one of these marks.
fn marked(marks: &HashSet<String>) -> Vec<Pid> {
    let this = std::process::id();
    let ids = std::fs::read_dir("/proc").into_iter().flatten();
    let ids = ids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| *id != this && has_mark(*id, marks))
        .filter_map(|id| Pid::from_raw(i32::try_from(id).ok()?))
        .collect()
}

fn has_mark(process: u32, marks: &HashSet<String>) -> bool {
    // Of other users' processes it cannot be read; of those that have exited it is empty.
    let Ok(environment) = std::fs::read(format!("/proc/{process}/environ")) else { return false };
    environment.split(|byte| *byte == 0).any(|variable| {
        let mark =
            std::str::from_utf8(variable).ok().and_then(|variable| variable.strip_prefix(MARK)?.strip_prefix('='));
        mark.is_some_and(|mark| marks.contains(mark))
    })
}
