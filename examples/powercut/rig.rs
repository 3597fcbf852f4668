//! The machine around the disk: loop devices, file systems, mounts, and the commands that make and undo them.
//!
//! Always: whatever was made is undone when its guard is dropped, also half-way, in the reverse order of making. A
//! guard stands before the command that it guards, so that a command that was ended in the middle leaves nothing.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

/// The longest that any one command may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Why the rig itself failed. It says nothing about the victim.
#[derive(Debug, thiserror::Error)]
pub enum RigFault {
    /// A command could not be run, or took too long.
    #[error("{what}: {problem}")]
    Command { what: String, problem: String },
    /// A file or folder of the rig's own.
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    /// The writer ended by itself.
    #[error("the writer ended by itself: {0}")]
    Writer(String),
}

/// Gives an error of the file system the path that it is about.
pub fn at(path: &Path) -> impl FnOnce(std::io::Error) -> RigFault {
    let path = path.to_owned();
    move |source| RigFault::Io { path, source }
}

/// The commands that are needed, where they were found.
#[derive(Debug, Clone)]
pub struct Tools {
    losetup: PathBuf,
    mkfs: PathBuf,
    mount: PathBuf,
    umount: PathBuf,
}

impl Tools {
    /// The tools, or in a few words why this machine cannot cut its power.
    ///
    /// # Errors
    /// What is missing.
    pub fn find() -> Result<Self, String> {
        let root = fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0);
        if !root {
            return Err("not root".into());
        }
        for device in ["/dev/fuse", "/dev/loop-control"] {
            File::options().read(true).write(true).open(device).map_err(|e| format!("{device}: {e}"))?;
        }
        let tools = Self {
            losetup: tool("losetup")?,
            mkfs: tool("mkfs.ext4")?,
            mount: tool("mount")?,
            umount: tool("umount")?,
        };
        let free = std::process::Command::new(&tools.losetup).arg("--find").stderr(Stdio::null()).output();
        match free {
            Ok(output) if output.status.success() => Ok(tools),
            _ => Err("no free loop device".into()),
        }
    }
}

/// Where the command `name` is.
fn tool(name: &str) -> Result<PathBuf, String> {
    let folders = ["/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/local/bin"];
    let found = folders.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file());
    found.ok_or_else(|| format!("{name} is not installed"))
}

/// Runs `command` to its end.
///
/// # Errors
/// [`RigFault::Command`] when it does not start or is not done in time; how it ended is in the output.
pub async fn output(command: &mut Command) -> Result<Output, RigFault> {
    let what = format!("{:?}", command.as_std());
    let fault = |problem: String| RigFault::Command { what: what.clone(), problem };
    let running = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let done = timeout(LIMIT, running).await.map_err(|_| fault(format!("not done in {LIMIT:?}")))?;
    done.map_err(|e| fault(e.to_string()))
}

/// Runs `command`, which has to succeed, and returns what it printed.
async fn succeed(command: &mut Command) -> Result<String, RigFault> {
    let done = output(command).await?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned());
    }
    let problem = format!("{}, {}", done.status, String::from_utf8_lossy(&done.stderr).trim());
    Err(RigFault::Command { what: format!("{:?}", command.as_std()), problem })
}

/// Runs a command for a guard, where nobody waits for what it says.
fn quietly(command: &Path, arguments: &[&Path]) -> Option<Output> {
    std::process::Command::new(command).args(arguments).stdin(Stdio::null()).output().ok()
}

/// A folder that may be mounted on; not any more after the drop.
pub struct Mounted {
    folder: PathBuf,
    umount: PathBuf,
}

impl Mounted {
    /// Guards `folder`, on which the caller is about to mount something.
    pub fn guard(tools: &Tools, folder: &Path) -> Self {
        Self { folder: folder.to_owned(), umount: tools.umount.clone() }
    }

    /// Mounts the ext4 on `device`.
    ///
    /// # Errors
    /// What `mount` says.
    pub async fn ext4(tools: &Tools, device: &LoopDevice, folder: &Path) -> Result<Self, RigFault> {
        let mounted = Self::guard(tools, folder);
        let mut command = Command::new(&tools.mount);
        succeed(command.args(["-t", "ext4", "-o", "noatime"]).arg(&device.name).arg(folder)).await?;
        Ok(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let done = quietly(&self.umount, &[&self.folder]);
        if done.is_some_and(|done| String::from_utf8_lossy(&done.stderr).contains("busy")) {
            quietly(&self.umount, &[Path::new("--lazy"), &self.folder]);
        }
    }
}

/// A loop device over a file; none after the drop.
pub struct LoopDevice {
    name: PathBuf,
    file: PathBuf,
    losetup: PathBuf,
}

impl LoopDevice {
    /// Puts a free loop device over `file`.
    ///
    /// # Errors
    /// What `losetup` says.
    pub async fn over(tools: &Tools, file: &Path) -> Result<Self, RigFault> {
        let mut device = Self { name: PathBuf::new(), file: file.to_owned(), losetup: tools.losetup.clone() };
        let name = succeed(Command::new(&tools.losetup).args(["--show", "--find"]).arg(file)).await?;
        device.name = name.into();
        Ok(device)
    }

    /// Makes an ext4 on it, all of it written now and nothing left for later.
    ///
    /// # Errors
    /// What `mkfs.ext4` says.
    pub async fn format(&self, tools: &Tools) -> Result<(), RigFault> {
        let options = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
        let mut command = Command::new(&tools.mkfs);
        succeed(command.args(["-q", "-F", "-b", "4096", "-E", options]).arg(&self.name)).await?;
        Ok(())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let list = ["--noheadings", "--output", "NAME", "--associated"].map(Path::new);
        let listed = quietly(&self.losetup, &[&list[..], &[&self.file]].concat());
        let names = listed.map(|listed| String::from_utf8_lossy(&listed.stdout).into_owned()).unwrap_or_default();
        for name in names.split_whitespace() {
            quietly(&self.losetup, &[Path::new("--detach"), Path::new(name)]);
        }
    }
}

/// A process that is killed, not asked, and waited for.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
