//! The programs behind chats: started in a process group of their own, ended in steps, and none left behind.
//!
//! [`Programs`] is the host's: it has the threads that all talk with programs happens on, so that a program which floods or
//! hangs holds up no chat's thread, and it knows every group that is not empty yet. A program's environment is built from
//! its configuration; of the host's own it sees a few variables only ([`INHERITED`]).
//!
//! Every program carries a mark in its environment, which is written to the data directory before it starts. A host that
//! was killed leaves programs behind; the next start finds them by their marks, wherever they went, and ends them.

mod group;
mod left_behind;
mod stderr;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, watch};

use crate::config::{self, Environment};
pub use group::Group;
use left_behind::Marks;
pub use stderr::Tail;

/// What a program sees of the host's own environment: where programs, its home and its words are.
pub const INHERITED: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
];

/// The variable that marks a program as this host's.
const MARK: &str = config::agents::MARK;
/// Shorter values of variables are found in too many words to be taken out of them.
const SHORTEST_SECRET: usize = 8;
/// How long what is ended at once may take.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// Threads for the talk with programs.
const THREADS: usize = 2;

/// How long a program has between the steps of its end.
#[derive(Debug, Clone, Copy)]
pub struct EndingSteps {
    /// From the end of its input to SIGTERM.
    pub terminate_after: Duration,
    /// From SIGTERM to SIGKILL.
    pub kill_after: Duration,
}

impl Default for EndingSteps {
    fn default() -> Self {
        Self { terminate_after: Duration::from_secs(3), kill_after: Duration::from_secs(2) }
    }
}

/// A program as it is configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Program {
    /// The program, looked for in `PATH` where it is a bare name.
    pub command: String,
    pub arguments: Vec<String>,
    /// Beside what is [`INHERITED`].
    pub env: BTreeMap<String, String>,
}

impl Program {
    /// The values of its variables that are nobody else's business.
    fn secrets(&self) -> Vec<String> {
        let is_secret = |name: &str| ["KEY", "TOKEN", "SECRET", "PASSWORD"].iter().any(|word| name.contains(word));
        let secrets = self.env.iter().filter(|(name, value)| is_secret(name) && value.len() >= SHORTEST_SECRET);
        secrets.map(|(_, value)| value.clone()).collect()
    }
}

/// Why a program did not start, in words that say what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StartFault(pub String);

/// A program that runs.
pub struct Running {
    pub stdin: ChildStdin,
    pub stdout: ChildStdout,
    /// The end of what it writes to stderr, which is read all the time.
    pub stderr: Tail,
    /// Its end. Dropped, it begins by itself.
    pub group: Group,
}

/// Everything that runs for the host's agents. Cheap to clone.
#[derive(Clone)]
pub struct Programs(Arc<Inner>);

struct Inner {
    /// `None` once it is shut down.
    runtime: Mutex<Option<Runtime>>,
    handle: tokio::runtime::Handle,
    /// What is [`INHERITED`].
    inherited: Vec<(&'static str, String)>,
    marks: Marks,
    steps: EndingSteps,
    groups: Groups,
    stop: watch::Sender<Stop>,
}

/// How everything that runs is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    Not,
    /// In steps.
    Orderly,
    AtOnce,
}

/// How many groups are not empty yet.
#[derive(Default)]
struct Groups {
    alive: std::sync::atomic::AtomicUsize,
    emptied: Notify,
}

impl Programs {
    /// For the host of `data_directory`; without one, no marks are kept.
    ///
    /// # Errors
    /// When no threads are to be had.
    pub fn new(environment: &Environment, data_directory: Option<&Path>, steps: EndingSteps) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("scrollback-agents")
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let inherited = INHERITED.iter().filter_map(|name| Some((*name, environment.get(name)?.to_owned()))).collect();
        let inner = Inner {
            runtime: Mutex::new(Some(runtime)),
            handle,
            inherited,
            marks: Marks::of(data_directory),
            steps,
            groups: Groups::default(),
            stop: watch::Sender::new(Stop::Not),
        };
        Ok(Self(Arc::new(inner)))
    }

    /// Ends what an earlier run of the host left behind, in steps, and returns how many programs there were.
    pub async fn end_left_behind(&self) -> usize {
        let this = self.clone();
        let ended = self.0.handle.spawn(async move { this.0.marks.end_left_behind(this.0.steps.kill_after).await });
        ended.await.unwrap_or(0)
    }

    /// Runs a future on the threads of the programs.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.0.handle.spawn(future);
    }

    /// Starts a program in `directory`. Call it inside [`Programs::spawn`].
    ///
    /// # Errors
    /// [`StartFault`] when it cannot be started here.
    pub fn start(&self, program: &Program, directory: &Path) -> Result<Running, StartFault> {
        let path = self.find(program)?;
        if !directory.is_dir() {
            return Err(StartFault(format!("{} is no directory that the agent can work in", directory.display())));
        }
        let mark = self.0.marks.new_mark();
        let mut command = Command::new(&path);
        command.args(&program.arguments).current_dir(directory).env_clear();
        command.envs(self.0.inherited.iter().map(|(name, value)| (name, value))).envs(&program.env).env(MARK, &mark);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        self.0.marks.write(&mark, &path).map_err(|error| {
            StartFault(format!(
                "the data directory takes no note of the program, which is therefore not started: {error}"
            ))
        })?;
        let spawned = command.spawn();
        let mut child = spawned.map_err(|error| {
            self.0.marks.remove(&mark);
            StartFault(format!("{} cannot be started: {error}", path.display()))
        })?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let group = Group::new(child, mark, self.clone());
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(StartFault(format!("{} has no pipes", path.display())));
        };
        Ok(Running { stdin, stdout, stderr: Tail::drain(stderr, program.secrets()), group })
    }

    /// Where a program is, as the system would look for it.
    ///
    /// # Errors
    /// [`StartFault`] when it is not there or not executable.
    pub fn find(&self, program: &Program) -> Result<PathBuf, StartFault> {
        use rustix::fs::{Access, access};

        let command = &program.command;
        let runs = |file: &Path| file.is_file() && access(file, Access::EXEC_OK).is_ok();
        if command.contains('/') {
            let file = PathBuf::from(command);
            return match (runs(&file), file.exists()) {
                (true, _) => Ok(file),
                (false, true) => Err(StartFault(format!("{command} is no program that the host's user may run"))),
                (false, false) => {
                    Err(StartFault(format!("{command} is not there: install it, or mend the agent's `command`")))
                }
            };
        }
        let inherited = self.0.inherited.iter().find(|(name, _)| *name == "PATH").map(|(_, path)| path);
        let path = program.env.get("PATH").or(inherited).map(String::as_str).unwrap_or_default();
        let found = std::env::split_paths(path).map(|folder| folder.join(command)).find(|file| runs(file));
        found.ok_or_else(|| {
            StartFault(format!("{command} is not installed: the host finds no such program in its PATH ({path})"))
        })
    }

    /// Groups that are not empty yet.
    pub fn alive(&self) -> usize {
        self.0.groups.alive.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Begins the end of everything that runs, also of what nobody else ends, such as the programs of probes.
    pub fn end(&self) {
        self.0.stop.send_modify(|stop| *stop = Stop::Orderly.max(*stop));
    }

    /// Waits until every group is empty. Their ends must have begun.
    pub async fn ended(&self) {
        loop {
            let emptied = self.0.groups.emptied.notified();
            if self.alive() == 0 {
                return;
            }
            emptied.await;
        }
    }

    /// Ends what still runs at once, and the threads. Blocks for a moment: not for the threads of a runtime.
    pub fn shut_down(&self) {
        self.0.stop.send_replace(Stop::AtOnce);
        let ended = async { tokio::time::timeout(LAST_WAIT, self.ended()).await };
        if self.0.handle.block_on(ended).is_err() {
            tracing::warn!(programs = self.alive(), "programs of agents did not end in time");
        }
        if let Some(runtime) = self.0.runtime.lock().unwrap_or_else(PoisonError::into_inner).take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A runtime must not be dropped where blocking is forbidden.
        if let Some(runtime) = self.runtime.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            runtime.shutdown_background();
        }
    }
}
