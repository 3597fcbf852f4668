//! Work that goes on past the turn that began it, until its time is over, somebody stops it, or the process ends.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use ahp_types::state::{BackgroundShellWork, BackgroundWork};
use tokio::sync::oneshot;

use super::asks::unique_id;
use super::workers::says;
use crate::actors::agent::{AgentEvent, AgentSink};

/// What runs, by id. When a sender is dropped, its work is over and nobody is told.
type Running = Rc<RefCell<HashMap<String, oneshot::Sender<()>>>>;

/// The background work of a process.
pub(super) struct Backgrounds {
    events: AgentSink,
    running: Running,
}

impl Backgrounds {
    pub(super) fn new(events: AgentSink) -> Self {
        Self { events, running: Running::default() }
    }

    /// Work for so long, of the chat or of a worker of it. It is listed first, and runs then.
    pub(super) fn begin(&self, label: String, pause: Duration, worker: Option<String>) -> Work {
        let (events, running) = (self.events.clone(), Rc::clone(&self.running));
        Work { id: unique_id(), label, pause, worker, events, running }
    }

    pub(super) fn stop(&self, id: &str) {
        if let Some(stop) = self.running.borrow_mut().remove(id) {
            let _ = stop.send(());
        }
    }
}

impl Drop for Backgrounds {
    fn drop(&mut self) {
        self.running.borrow_mut().clear();
    }
}

/// Work that has not begun.
pub(super) struct Work {
    id: String,
    label: String,
    pause: Duration,
    worker: Option<String>,
    events: AgentSink,
    running: Running,
}

impl Work {
    /// As the chat lists it. The demo has no clock: the host says when it began.
    pub(super) fn listed(&self) -> BackgroundWork {
        BackgroundWork::Shell(BackgroundShellWork {
            id: self.id.clone(),
            label: self.label.clone(),
            started_at: String::new(),
            meta: None,
            command: format!("sleep {}", self.pause.as_secs_f64()),
            terminal: None,
        })
    }

    /// Lets it run.
    pub(super) fn run(self) {
        let (stop, stopped) = oneshot::channel();
        self.running.borrow_mut().insert(self.id.clone(), stop);
        actix_rt::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(self.pause) => {}
                stopped = stopped => if stopped.is_err() { return },
            }
            self.running.borrow_mut().remove(&self.id);
            let done = AgentEvent::BackgroundWorkDone { id: self.id };
            let _ = self.events.send(says(self.worker, done)).await;
        });
    }
}
