//! One program and all that it started: how it ends.

use std::process::ExitStatus;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::Child;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use super::{Programs, Stop};

/// How often a group is asked whether anything of it is left.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// How long a group may take to be empty after SIGKILL.
const AFTER_KILL: Duration = Duration::from_secs(10);

/// The process group of a program. Dropping it ends the program as [`Group::end`] does.
pub struct Group {
    exited: watch::Receiver<Option<Option<ExitStatus>>>,
    end: Option<oneshot::Sender<()>>,
}

impl Group {
    /// Takes over a child that leads a group of its own.
    pub(super) fn new(child: Child, mark: String, programs: Programs) -> Self {
        let (tell, exited) = watch::channel(None);
        let (end, asked) = oneshot::channel();
        programs.0.groups.alive.fetch_add(1, Ordering::AcqRel);
        let watched = programs.clone();
        programs.spawn(async move {
            watch(child, tell, asked, &watched).await;
            watched.0.marks.remove(&mark);
            watched.0.groups.alive.fetch_sub(1, Ordering::AcqRel);
            watched.0.groups.emptied.notify_waiters();
        });
        Self { exited, end: Some(end) }
    }

    /// Waits until the program itself has exited; `None` where its status is not to be had. What it started may go on.
    pub async fn exited(&mut self) -> Option<ExitStatus> {
        self.exited.wait_for(Option::is_some).await.ok().and_then(|status| status.flatten())
    }

    /// The status of a program that has exited.
    pub fn status(&self) -> Option<ExitStatus> {
        self.exited.borrow().flatten()
    }

    /// Begins its end and returns: whoever holds its input closes that now. SIGTERM follows, then SIGKILL, to all of the
    /// group that is left.
    pub fn end(mut self) {
        self.begin_end();
    }

    fn begin_end(&mut self) {
        if let Some(end) = self.end.take() {
            let _ = end.send(());
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.begin_end();
    }
}

/// Sees a program to its end, whether it ends by itself or is asked to, until its group is empty.
async fn watch(
    mut child: Child,
    tell: watch::Sender<Option<Option<ExitStatus>>>,
    asked: oneshot::Receiver<()>,
    programs: &Programs,
) {
    let steps = programs.0.steps;
    let mut stop = programs.0.stop.subscribe();
    let Some(group) = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) else { return };
    let is_asked = tokio::select! {
        // Its input is closed, and it may end by itself.
        _ = asked => true,
        _ = stop.wait_for(|stop| *stop >= Stop::Orderly) => true,
        // What it leaves behind is ended at once.
        status = child.wait() => {
            tell.send_replace(Some(status.ok()));
            false
        }
    };
    if is_asked {
        tokio::select! {
            status = child.wait() => drop(tell.send_replace(Some(status.ok()))),
            () = sleep(steps.terminate_after) => {}
            _ = stop.wait_for(|stop| *stop == Stop::AtOnce) => {}
        }
    }
    if tell.borrow().is_some() && is_empty(group) {
        return;
    }
    let _ = kill_process_group(group, Signal::TERM);
    let gone = tokio::select! {
        () = gone(&mut child, &tell, group) => true,
        () = sleep(steps.kill_after) => false,
        _ = stop.wait_for(|stop| *stop == Stop::AtOnce) => false,
    };
    if gone {
        return;
    }
    let _ = kill_process_group(group, Signal::KILL);
    if timeout(AFTER_KILL, self::gone(&mut child, &tell, group)).await.is_err() {
        tracing::warn!(group = group.as_raw_pid(), "programs of a group cannot be ended");
    }
}

/// Waits until the program has exited and its group is empty.
async fn gone(child: &mut Child, tell: &watch::Sender<Option<Option<ExitStatus>>>, group: Pid) {
    if tell.borrow().is_none() {
        tell.send_replace(Some(child.wait().await.ok()));
    }
    while !is_empty(group) {
        sleep(ASK_AGAIN).await;
    }
}

/// Whether nothing of the group runs. What has exited and waits for somebody to ask how is gone, too: where nobody adopts
/// orphans, nobody ever asks.
fn is_empty(group: Pid) -> bool {
    test_kill_process_group(group).is_err() || !runs(group)
}

fn runs(group: Pid) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return true };
    let stats = processes.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("stat")).ok());
    let mut stats = stats.filter_map(|stat| {
        // The name, in brackets, may hold anything; behind it stand the state, the parent and the group.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = fields.next()?.to_owned();
        Some((state, fields.nth(1)?.parse::<i32>().ok()?))
    });
    stats.any(|(state, of)| of == group.as_raw_pid() && state != "Z" && state != "X")
}
