//! The log writer: one thread that gives numbers, makes batches durable and hands them over in order.
//!
//! Each session has a lane, a queue of entries that keep their order: batches to append, and releases, which wait until
//! every batch before them in the lane is on disk. With nothing before it a release leaves at once. Lanes share a commit
//! by deficit round robin, so a flood in one session delays the others by little. When a commit fails, everything that
//! its lanes hold in that generation is refused, so nothing decided on a lost fold is ever appended. A fold that is read
//! anew belongs to a new generation, and is read when nothing of the lane is on its way ([`LogWriter::when_settled`]).
//!
//! Used by the session and root actors. Left out on purpose: any knowledge of what an event means.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use metrics::{counter, histogram};

use super::envelope::Envelope;
use super::router::Hub;
use crate::events::{Batch, ChannelId, Kind, LogFault, ServerSeq, Store};

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
    Append(Batch),
    Release { asks: Option<ChannelId>, on_disk: bool, release: Release },
}

impl Entry {
    fn weight(&self) -> usize {
        match self {
            Entry::Append(batch) => batch.weight(),
            Entry::Release { .. } => 0,
        }
    }
}

#[derive(Default)]
struct Queue {
    entries: VecDeque<(u64, Entry)>,
    deficit: usize,
    /// Entries that the running commit took and has not handed over yet.
    in_commit: usize,
    /// Batches that were shown and are not on disk yet.
    ahead: usize,
    /// Who waits until nothing of the lane is on its way.
    waiters: Vec<Box<dyn FnOnce() + Send>>,
    /// The newest generation in which a batch was lost, and why.
    lost: Option<(u64, Lost)>,
}

impl Queue {
    /// Whether nothing of the lane is on its way to the disk.
    fn is_settled(&self) -> bool {
        self.entries.is_empty() && self.in_commit == 0 && self.ahead == 0
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
        self.shared.state().lanes.values().map(|queue| queue.entries.len() + queue.in_commit).sum()
    }

    /// Whether what was shown could not be written down, so that nothing is taken now.
    pub fn is_failing(&self) -> bool {
        self.shared.state().failing
    }

    /// The newest number that was handed over: what a client that asks now may have seen.
    pub fn handed_over(&self) -> ServerSeq {
        self.shared.state().handed_over
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

/// A session's way to the log. Entries keep their order.
#[derive(Clone)]
pub struct Lane {
    session: ChannelId,
    generation: u64,
    shared: Arc<Shared>,
}

impl Lane {
    /// Queues `batch`. Whether it became durable is told to the releases behind it.
    pub fn append(&self, batch: Batch) {
        if batch.events.is_empty() && batch.rows.is_empty() {
            return;
        }
        let mut state = self.shared.state();
        if self.is_lost(&state).is_some() {
            return;
        }
        if state.stopping {
            return self.lose_from_now_on(&mut state, "the host is stopping");
        }
        self.queue(&mut state, Entry::Append(batch));
    }

    /// Runs `release` once everything before it may be shown: once it is durable, or with [`Durability::Interval`] at
    /// once. `asks` names the channel whose newest number it wants.
    pub fn release(&self, asks: Option<ChannelId>, release: Release) {
        self.release_at(asks, false, release);
    }

    /// Runs `release` once everything before it is on disk, also with [`Durability::Interval`]: for who reads the store
    /// afterwards.
    pub fn release_on_disk(&self, release: Release) {
        self.release_at(None, true, release);
    }

    fn release_at(&self, asks: Option<ChannelId>, on_disk: bool, release: Release) {
        let mut state = self.shared.state();
        if let Some(lost) = self.is_lost(&state) {
            drop(state);
            return release(Err(lost));
        }
        let waits = state
            .lanes
            .get(&self.session)
            .is_some_and(|q| q.in_commit > 0 || !q.entries.is_empty() || (on_disk && q.ahead > 0));
        if waits {
            return self.queue(&mut state, Entry::Release { asks, on_disk, release });
        }
        let place = place(&self.shared, &mut state, asks, ServerSeq::MAX);
        // Held over the hand-over: an append of this lane by another thread must not overtake it.
        release(place);
    }

    /// The same lane after a loss: what is queued from now on rests on a fold that was read from the log again.
    pub fn reopen(&mut self) {
        let mut state = self.shared.state();
        state.generation += 1;
        self.generation = state.generation;
    }

    /// Takes nothing more in this generation: its fold cannot be trusted. What is queued already is still appended.
    pub fn close(&self, why: &str) {
        let mut state = self.shared.state();
        self.lose_from_now_on(&mut state, why);
    }

    /// Whether something was lost in this generation, or it was closed.
    pub fn is_over(&self) -> bool {
        self.is_lost(&self.shared.state()).is_some()
    }

    fn lose_from_now_on(&self, state: &mut State, why: &str) {
        let lost = Lost(Arc::from(why), state.handed_over);
        let queue = state.lanes.entry(self.session).or_default();
        if queue.lost.as_ref().is_none_or(|(generation, _)| *generation < self.generation) {
            queue.lost = Some((self.generation, lost));
        }
    }

    /// The generation that entries of this handle belong to.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    fn is_lost(&self, state: &State) -> Option<Lost> {
        let (generation, lost) = state.lanes.get(&self.session)?.lost.as_ref()?;
        (*generation >= self.generation).then(|| lost.clone())
    }

    fn queue(&self, state: &mut State, entry: Entry) {
        let queue = state.lanes.entry(self.session).or_default();
        if queue.entries.is_empty() {
            state.turns.push_back(self.session);
        }
        queue.entries.push_back((self.generation, entry));
        self.shared.wake.notify_one();
    }
}

/// What one commit takes, in order.
type Taken = Vec<(ChannelId, u64, Entry)>;

fn run(shared: &Shared) {
    let mut ahead = Ahead::default();
    loop {
        let (taken, barriers, stop) = next(shared, &ahead);
        match shared.durability {
            Durability::Commit => commit(shared, taken),
            Durability::Interval(_) => ahead.publish(shared, taken),
        }
        if ahead.is_due(shared) || !barriers.is_empty() || stop {
            ahead.commit(shared);
        }
        for barrier in barriers {
            let _ = barrier.send(ahead.failing.clone().map_or(Ok(()), Err));
        }
        let mut state = shared.state();
        if stop && state.turns.is_empty() {
            state.over = true;
            state.barriers.clear();
            return;
        }
    }
}

/// Waits for entries, a barrier, a due commit or the stop, and takes what the next commit holds.
fn next(shared: &Shared, ahead: &Ahead) -> (Taken, Vec<Barrier>, bool) {
    let mut state = shared.state();
    while state.turns.is_empty() && state.barriers.is_empty() && !state.stopping {
        match ahead.due_in(shared) {
            Some(wait) if wait.is_zero() => break,
            Some(wait) => {
                state = shared.wake.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
            }
            None => state = shared.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }
    let taken = take(&mut state);
    (taken, std::mem::take(&mut state.barriers), state.stopping)
}

/// Deficit round robin over the lanes that have entries, until the commit is full or nothing is left.
fn take(state: &mut State) -> Taken {
    let mut taken = Taken::new();
    let mut bytes = 0;
    while bytes < COMMIT_BYTES {
        let Some(session) = state.turns.pop_front() else { break };
        let Some(queue) = state.lanes.get_mut(&session) else { continue };
        queue.deficit += QUANTUM;
        while let Some((_, entry)) = queue.entries.front() {
            let weight = entry.weight();
            if weight > queue.deficit {
                break;
            }
            queue.deficit -= weight;
            bytes += weight;
            if let Some((generation, entry)) = queue.entries.pop_front() {
                queue.in_commit += 1;
                taken.push((session, generation, entry));
            }
        }
        if queue.entries.is_empty() {
            queue.deficit = 0;
        } else {
            state.turns.push_back(session);
        }
    }
    taken
}

fn commit(shared: &Shared, taken: Taken) {
    let (steps, batches) = split(release_first(shared, taken));
    if batches.is_empty() {
        return;
    }
    shared.state().forget_channels();
    let started = Instant::now();
    match shared.store.append(&batches) {
        Ok(firsts) => {
            histogram!("scrollback_commit_seconds").record(started.elapsed().as_secs_f64());
            count(&batches);
            let before = firsts.first().copied().unwrap_or(1);
            hand_over(shared, steps, &batches, &firsts, before, None);
        }
        Err(fault) => {
            counter!("scrollback_commits_failed_total").increment(1);
            tracing::error!(%fault, "an append failed: nothing of it was published");
            let lost = Lost(Arc::from(fault.to_string()), shared.state().handed_over);
            refuse(shared, steps, &lost, None);
        }
    }
}

fn count(batches: &[Batch]) {
    let events: usize = batches.iter().map(|b| b.events.len()).sum();
    counter!("scrollback_commits_total").increment(1);
    counter!("scrollback_events_total").increment(events as u64);
}

/// Runs the releases that have nothing of their own lane before them: what they waited for was handed over while they were
/// queued, and this commit is none of their business.
fn release_first(shared: &Shared, taken: Taken) -> Taken {
    let mut with_batch = HashSet::new();
    let mut rest = Taken::with_capacity(taken.len());
    for (session, generation, entry) in taken {
        match entry {
            Entry::Release { asks, release, .. } if !with_batch.contains(&session) => {
                let mut state = shared.state();
                release(place(shared, &mut state, asks, ServerSeq::MAX));
                done(&mut state, session);
            }
            entry => {
                with_batch.insert(session);
                rest.push((session, generation, entry));
            }
        }
    }
    rest
}

/// A step of a commit: the batch with this index, or a release between batches.
enum Step {
    Batch(usize),
    Release { asks: Option<ChannelId>, on_disk: bool, release: Release },
}

type Steps = Vec<(ChannelId, u64, Step)>;

fn split(taken: Taken) -> (Steps, Vec<Batch>) {
    let mut batches = Vec::new();
    let steps = taken
        .into_iter()
        .map(|(session, generation, entry)| match entry {
            Entry::Append(batch) => {
                batches.push(batch);
                (session, generation, Step::Batch(batches.len() - 1))
            }
            Entry::Release { asks, on_disk, release } => {
                (session, generation, Step::Release { asks, on_disk, release })
            }
        })
        .collect();
    (steps, batches)
}

/// Publishes batches and runs releases, each at its place. `before` is the first number of this commit. `later` takes the
/// releases that wait for the disk, where the batches are not on it yet.
fn hand_over(
    shared: &Shared,
    steps: Steps,
    batches: &[Batch],
    firsts: &[ServerSeq],
    before: ServerSeq,
    mut later: Option<&mut Vec<Release>>,
) {
    for (session, _, step) in steps {
        match step {
            Step::Batch(index) => {
                // Held over the hand-over: whoever reads a number before this sends it before the envelopes, and whoever
                // reads it afterwards behind them. The lane's count falls only when they are with the routers.
                let mut state = shared.state();
                if let (Some(batch), Some(first)) = (batches.get(index), firsts.get(index)) {
                    publish_batch(shared, &mut state, batch, *first);
                }
                if let Some(queue) = state.lanes.get_mut(&session).filter(|_| later.is_some()) {
                    queue.ahead += 1;
                }
                done(&mut state, session);
            }
            Step::Release { asks, on_disk, release } => {
                let mut state = shared.state();
                let place = place(shared, &mut state, asks, before);
                match later.as_deref_mut().filter(|_| on_disk) {
                    Some(later) => later.push(release),
                    None => release(place),
                }
                done(&mut state, session);
            }
        }
    }
}

/// Notes the numbers of `batch` and gives its envelopes to the routers.
fn publish_batch(shared: &Shared, state: &mut State, batch: &Batch, first: ServerSeq) {
    let mut envelopes = Vec::new();
    for (seq, event) in (first..).zip(&batch.events) {
        state.newest.insert(event.channel_id, seq);
        state.handed_over = seq;
        if event.kind == Kind::Action {
            let (channel, id) = (event.channel.clone(), event.channel_id);
            envelopes.push(Envelope::new(channel, id, seq, event.origin.as_ref(), &event.action));
        }
    }
    if !envelopes.is_empty() {
        shared.hub.publish(envelopes);
    }
}

fn done(state: &mut State, session: ChannelId) {
    let Some(queue) = state.lanes.get_mut(&session) else { return };
    queue.in_commit = queue.in_commit.saturating_sub(1);
    settle(state, session);
}

/// Lets those go on who wait for the lane, once nothing of it is on its way.
fn settle(state: &mut State, session: ChannelId) {
    let Some(queue) = state.lanes.get_mut(&session).filter(|queue| queue.is_settled()) else { return };
    for waiter in std::mem::take(&mut queue.waiters) {
        waiter();
    }
    if queue.lost.is_none() {
        state.lanes.remove(&session);
    }
}

/// Where a release stands. The store knows the channel's newest event where memory does not; events from `before` on
/// belong to the commit that is being handed over and are in memory if they were handed over already.
fn place(shared: &Shared, state: &mut State, asks: Option<ChannelId>, before: ServerSeq) -> Result<Place, Lost> {
    let channel_seq = match asks {
        None => 0,
        Some(channel) => match state.newest.get(&channel) {
            Some(seq) => *seq,
            None => {
                let newest = shared
                    .store
                    .last_of(channel, before.saturating_sub(1))
                    .map_err(|fault| Lost(Arc::from(fault.to_string()), state.handed_over))?
                    .unwrap_or(0);
                state.newest.insert(channel, newest);
                newest
            }
        },
    };
    Ok(Place { seq: state.handed_over, channel_seq })
}

/// After a failed append: the lanes whose batches were in it lose all that they hold in that generation. A release with
/// no batch of its own lane before it in the commit is not concerned.
fn refuse(shared: &Shared, steps: Steps, lost: &Lost, mut later: Option<&mut Vec<Release>>) {
    let mut refused: Vec<Release> = Vec::new();
    // What still waits in the lanes stands behind what the commit took of them, also when it is refused.
    let mut behind: Vec<Release> = Vec::new();
    let mut lanes: HashMap<ChannelId, u64> = HashMap::new();
    let mut over = Vec::with_capacity(steps.len());
    for (session, generation, step) in steps {
        let mut state = shared.state();
        let concerned = lanes.get(&session).is_some_and(|lost_in| *lost_in >= generation);
        match step {
            Step::Batch(_) => {
                lanes.insert(session, generation);
                lose(&mut state, session, generation, lost, &mut behind);
            }
            Step::Release { release, .. } if concerned => refused.push(release),
            Step::Release { asks, on_disk, release } => match later.as_deref_mut().filter(|_| on_disk) {
                Some(later) => later.push(release),
                None => release(place(shared, &mut state, asks, ServerSeq::MAX)),
            },
        }
        over.push(session);
    }
    for session in over {
        done(&mut shared.state(), session);
    }
    for release in refused.into_iter().chain(behind) {
        release(Err(lost.clone()));
    }
}

/// Marks the generation as lost and takes what the lane still holds of it.
fn lose(state: &mut State, session: ChannelId, generation: u64, lost: &Lost, refused: &mut Vec<Release>) {
    let Some(queue) = state.lanes.get_mut(&session) else { return };
    if queue.lost.as_ref().is_none_or(|(lost_in, _)| *lost_in < generation) {
        queue.lost = Some((generation, lost.clone()));
    }
    let (of_it, rest): (VecDeque<_>, VecDeque<_>) =
        std::mem::take(&mut queue.entries).into_iter().partition(|(g, _)| *g <= generation);
    queue.entries = rest;
    if queue.entries.is_empty() {
        state.turns.retain(|turn| *turn != session);
    }
    refused.extend(of_it.into_iter().filter_map(|(_, entry)| match entry {
        Entry::Release { release, .. } => Some(release),
        Entry::Append(_) => None,
    }));
}

/// With [`Durability::Interval`]: what was published and is not on disk yet.
#[derive(Default)]
struct Ahead {
    batches: Vec<Batch>,
    /// The lanes of the batches.
    lanes: HashSet<ChannelId>,
    /// What waits until the batches are on disk, in order.
    releases: Vec<Release>,
    events: u64,
    since: Option<Instant>,
    /// Why the last commit failed: nothing more is shown until one succeeds.
    failing: Option<Lost>,
}

impl Ahead {
    fn publish(&mut self, shared: &Shared, taken: Taken) {
        let (steps, batches) = split(taken);
        if let Some(lost) = &self.failing {
            return refuse(shared, steps, lost, Some(&mut self.releases));
        }
        let mut next = shared.store.next_seq() + self.events;
        let before = next;
        let firsts: Vec<ServerSeq> = batches
            .iter()
            .map(|batch| {
                let first = next;
                next += batch.events.len() as u64;
                first
            })
            .collect();
        self.events += next - before;
        let of_batches = steps.iter().filter(|(_, _, step)| matches!(step, Step::Batch(_)));
        self.lanes.extend(of_batches.map(|(session, _, _)| *session));
        hand_over(shared, steps, &batches, &firsts, before, Some(&mut self.releases));
        if !batches.is_empty() {
            self.since.get_or_insert_with(Instant::now);
            self.batches.extend(batches);
        }
        if self.batches.is_empty() {
            self.release(shared);
        }
    }

    fn due_in(&self, shared: &Shared) -> Option<Duration> {
        let Durability::Interval(interval) = shared.durability else { return None };
        self.since.map(|since| interval.saturating_sub(since.elapsed()))
    }

    fn is_due(&self, shared: &Shared) -> bool {
        self.due_in(shared).is_some_and(|wait| wait.is_zero())
            || (self.events >= EVENTS_AHEAD && self.failing.is_none())
    }

    /// Commits what was published. When that fails, it is tried again at the next interval, and until then every append is
    /// refused.
    fn commit(&mut self, shared: &Shared) {
        if self.batches.is_empty() {
            return;
        }
        match shared.store.append(&self.batches) {
            Ok(_) => {
                count(&self.batches);
                shared.state().forget_channels();
                self.release(shared);
                *self = Self::default();
            }
            Err(fault) => {
                counter!("scrollback_commits_failed_total").increment(1);
                tracing::error!(%fault, "what was shown could not be written down: it is tried again");
                self.since = Some(Instant::now());
                let mut state = shared.state();
                state.failing = true;
                self.failing = Some(Lost(Arc::from(fault.to_string()), state.handed_over));
            }
        }
    }

    /// What was shown is on disk: who waited for that goes on.
    fn release(&mut self, shared: &Shared) {
        let mut state = shared.state();
        state.failing = false;
        let place = Place { seq: state.handed_over, channel_seq: 0 };
        for release in self.releases.drain(..) {
            release(Ok(place));
        }
        for session in self.lanes.drain() {
            if let Some(queue) = state.lanes.get_mut(&session) {
                queue.ahead = 0;
            }
            settle(&mut state, session);
        }
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
