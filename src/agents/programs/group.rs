//! One program and all that it started: how it ends.

use std::process::ExitStatus;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::Child;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use super::Programs;

/// How often a group is asked whether anything of it is left.
const ASK_AGAIN: Duration = Duration::from_millis(20);

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
    let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let mut patience = {
        let exited = async {
            tell.send_replace(Some(child.wait().await.ok()));
        };
        tokio::select! {
            // Its input is closed, and it may end by itself.
            _ = asked => Some(steps.terminate_after),
            // What it leaves behind is ended at once.
            () = exited => None,
        }
    };
    if patience.is_some() {
        let exits = timeout(steps.terminate_after, child.wait()).await;
        if let Ok(status) = exits {
            tell.send_replace(Some(status.ok()));
            patience = None;
        }
    }
    let Some(group) = group else { return };
    if patience.is_none() && is_empty(group) {
        return;
    }
    let _ = kill_process_group(group, Signal::TERM);
    let gone = async {
        if tell.borrow().is_none() {
            tell.send_replace(Some(child.wait().await.ok()));
        }
        empty(group).await;
    };
    if timeout(steps.kill_after, gone).await.is_ok() {
        return;
    }
    let _ = kill_process_group(group, Signal::KILL);
    if tell.borrow().is_none() {
        tell.send_replace(Some(child.wait().await.ok()));
    }
    empty(group).await;
}

fn is_empty(group: Pid) -> bool {
    test_kill_process_group(group).is_err()
}

async fn empty(group: Pid) {
    while !is_empty(group) {
        sleep(ASK_AGAIN).await;
    }
}
