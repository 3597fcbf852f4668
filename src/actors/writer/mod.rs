//! The log writer: one thread that gives numbers, makes batches durable and hands them over in order.
//!
//! Each session has a lane, a queue of entries that keep their order: batches to append, and releases, which wait until
//! every batch before them in the lane is on disk. With nothing before it a release leaves at once. Lanes share a commit
//! by deficit round robin, so a flood in one session delays the others by little. When a commit fails, everything that
//! its lanes hold in that generation is refused, so nothing decided on a lost fold is ever appended. A fold that is read
//! anew belongs to a new generation, and is read when nothing of the lane is on its way ([`LogWriter::when_settled`]).
//!
//! A batch may belong to two lanes: it stands in one of them, and the other is *held* at its place until it is handed over
//! ([`Held`]).
//!
//! Used by the session and root actors. Left out on purpose: any knowledge of what an event means.

mod ahead;
mod commit;
mod held;
mod lane;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

pub use held::Held;
pub use lane::Lane;

use crate::actors::router::Hub;
use crate::events::{Batch, ChannelId, LogFault, ServerSeq, Store};
use commit::run;

/// What a lane may add to a commit each time it is its turn, in bytes.
const QUANTUM: usize = 4 * 1024;
/// When a commit stops taking more, in bytes.
const COMMIT_BYTES: usize = 64 * 1024;
/// With [`Durability::Interval`]: how many events are shown before a commit, at most. The store keeps more numbers reserved.
const EVENTS_AHEAD: u64 = 2_000;
/// How many channels' newest numbers are kept in memory before the store is asked again. Few in tests, so that they get there.
const KNOWN_CHANNELS: usize = if cfg!(test) { 4 } else { 100_000 };

/// Whether the host shows events before or after they are on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Nobody sees an event before it is on disk.
    Commit,
    /// Events are shown at once and committed at least this often; a crash can lose what was shown meanwhile.
    Interval(Duration),
}

/// The place of a release on the line: what is durable before it.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The newest number that was handed over before this release.
    pub seq: ServerSeq,
    /// The newest event of the channel that the release asked about, 0 for none.
    pub channel_seq: ServerSeq,
}

/// Why what a release waited for was not appended, and the newest number that was handed over then. One text for all who
/// waited.
#[derive(Debug, Clone)]
pub struct Lost(pub Arc<str>, pub ServerSeq);

/// What leaves once every batch before it in its lane is durable, or is told that they were lost.
///
/// Runs on the writer's thread or on the caller's: it must only hand something over, never wait.
pub type Release = Box<dyn FnOnce(Result<Place, Lost>) + Send>;

enum Entry {
    Append {
        batch: Batch,
        /// The held lane that goes on behind the batch.
        opens: Option<ChannelId>,
    },
    Release {
        asks: Option<ChannelId>,
        on_disk: bool,
        release: Release,
    },
}

impl Entry {
    fn weight(&self) -> usize {
        match self {
            Entry::Append { batch, .. } => batch.weight(),
            Entry::Release { .. } => 0,
        }
    }
}

#[derive(Default)]
struct Queue {
    entries: VecDeque<(u64, Entry)>,
    /// The weight of the entries.
    bytes: usize,
    deficit: usize,
    /// Entries that the running commit took and has not handed over yet.
    in_commit: usize,
    /// Batches that were shown and are not on disk yet.
    ahead: usize,
    /// Where the lane waits for a batch of another one.
    hold: Option<Hold>,
    /// Who waits until nothing of the lane is on its way.
    waiters: Vec<Box<dyn FnOnce() + Send>>,
    /// The newest generation in which a batch was lost, and why.
    lost: Option<(u64, Lost)>,
}

/// What a held lane has behind its place.
struct Hold {
    generation: u64,
    behind: VecDeque<(u64, Entry)>,
}

impl Queue {
    /// Whether nothing of the lane is on its way to the disk.
    fn is_settled(&self) -> bool {
        self.entries.is_empty() && self.in_commit == 0 && self.ahead == 0 && self.hold.is_none()
    }

    /// How many entries it has, taken ones too.
    fn len(&self) -> usize {
        self.entries.len() + self.in_commit + self.hold.as_ref().map_or(0, |hold| hold.behind.len())
    }
}

/// Callers that want everything which was shown to be on disk.
type Barrier = tokio::sync::oneshot::Sender<Result<(), Lost>>;

#[derive(Default)]
struct State {
    lanes: HashMap<ChannelId, Queue>,
    /// Lanes with entries, in the order of their turns.
    turns: VecDeque<ChannelId>,
    newest: HashMap<ChannelId, ServerSeq>,
    handed_over: ServerSeq,
    /// The generation of the newest lane: generations are the host's, so that a lane which is taken anew has one of its own.
    generation: u64,
    barriers: Vec<Barrier>,
    /// With [`Durability::Interval`]: what was shown could not be written down, and nothing is taken until it is.
    failing: bool,
    stopping: bool,
    /// The thread has ended.
    over: bool,
}

impl State {
    /// Keeps the newest numbers from growing without end. Called where all that was handed over is on disk, so that the store
    /// knows what is forgotten here.
    fn forget_channels(&mut self) {
        if self.newest.len() > KNOWN_CHANNELS {
            self.newest.clear();
        }
    }
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    store: Arc<dyn Store>,
    hub: Arc<Hub>,
    durability: Durability,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The handle of the writer's thread.
pub struct LogWriter {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl LogWriter {
    /// Starts the thread. With [`Durability::Interval`] the store is told first that numbers run ahead of the disk.
    ///
    /// # Errors
    /// [`LogFault`] when that could not be written down, or no thread could be started.
    pub fn start(store: Arc<dyn Store>, hub: Arc<Hub>, durability: Durability) -> Result<Self, LogFault> {
        if matches!(durability, Durability::Interval(_)) {
            store.publish_ahead()?;
        }
        let state = State { handed_over: store.next_seq().saturating_sub(1), ..State::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), wake: Condvar::new(), store, hub, durability });
        let worker = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("log-writer".into())
            .spawn(move || run(&worker))
            .map_err(|source| LogFault::Io { path: "log-writer".into(), source })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// The lane of `session`, in a generation that nothing was lost in.
    pub fn lane(&self, session: ChannelId) -> Lane {
        let mut lane = Lane { session, generation: 0, shared: Arc::clone(&self.shared) };
        lane.reopen();
        lane
    }

    /// Runs `then` once nothing of the session's lane is on its way to the disk: at once, or on the writer's thread. What
    /// the log says of the session is then all that was decided, and `then` must only hand something over.
    pub fn when_settled(&self, session: ChannelId, then: Box<dyn FnOnce() + Send>) {
        let mut state = self.shared.state();
        match state.lanes.get_mut(&session).filter(|queue| !queue.is_settled()) {
            Some(queue) => queue.waiters.push(then),
            None => {
                drop(state);
                then();
            }
        }
    }

    /// Whether nothing of the session's lane is on its way to the disk.
    pub fn is_settled(&self, session: ChannelId) -> bool {
        self.shared.state().lanes.get(&session).is_none_or(Queue::is_settled)
    }

    /// How many batches and releases are on their way: in the commit that runs, or waiting for the next one.
    pub fn queued(&self) -> usize {
        self.shared.state().lanes.values().map(Queue::len).sum()
    }

    /// Whether what was shown could not be written down, so that nothing is taken now.
    pub fn is_failing(&self) -> bool {
        self.shared.state().failing
    }

    /// The newest number that was handed over: what a client that asks now may have seen.
    pub fn handed_over(&self) -> ServerSeq {
        self.shared.state().handed_over
    }

    /// Runs `say` with the newest number that was handed over, before any later event is: for what is no event and must not
    /// overtake one. It must only hand something over.
    pub fn at_newest(&self, say: impl FnOnce(ServerSeq)) {
        let state = self.shared.state();
        say(state.handed_over);
    }

    /// Waits until everything that was handed over is on disk, so that a reader of the store finds it.
    ///
    /// # Errors
    /// [`Lost`] when it could not be written down now: it is tried again later.
    pub async fn barrier(&self) -> Result<(), Lost> {
        if self.shared.durability == Durability::Commit {
            return Ok(());
        }
        let (done, wait) = tokio::sync::oneshot::channel();
        {
            let mut state = self.shared.state();
            if state.over {
                return Ok(());
            }
            state.barriers.push(done);
        }
        self.shared.wake.notify_one();
        // A writer that is gone has written all that it could.
        wait.await.unwrap_or(Ok(()))
    }

    /// Commits what is queued and ends the thread. Nothing can be appended afterwards.
    pub fn stop(&self) {
        self.shared.state().stopping = true;
        self.shared.wake.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.stop();
    }
}
