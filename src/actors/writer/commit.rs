//! The thread: what a commit takes, how it is handed over, and what is refused with one that fails.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use metrics::{counter, histogram};

use super::ahead::Ahead;
use super::{Barrier, COMMIT_BYTES, Durability, Entry, Lost, Place, QUANTUM, Release, Shared, State};
use crate::actors::envelope::Envelope;
use crate::events::{Batch, ChannelId, Kind, ServerSeq};

/// What one commit takes, in order.
pub(super) type Taken = Vec<(ChannelId, u64, Entry)>;

pub(super) fn run(shared: &Shared) {
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
            queue.bytes = queue.bytes.saturating_sub(weight);
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
            count(shared, &batches);
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

pub(super) fn count(shared: &Shared, batches: &[Batch]) {
    let events: usize = batches.iter().map(|b| b.events.len()).sum();
    let bytes: usize = batches.iter().flat_map(|b| &b.events).map(|event| event.action.len()).sum();
    counter!("scrollback_commits_total").increment(1);
    counter!("scrollback_events_total").increment(events as u64);
    counter!("scrollback_event_bytes_total").increment(bytes as u64);
    if let Some(sync) = shared.store.last_sync() {
        histogram!("scrollback_sync_seconds").record(sync.as_secs_f64());
    }
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

/// A step of a commit: the batch with this index, with the held lane that goes on behind it, or a release between batches.
pub(super) enum Step {
    Batch(usize, Option<ChannelId>),
    Release { asks: Option<ChannelId>, on_disk: bool, release: Release },
}

pub(super) type Steps = Vec<(ChannelId, u64, Step)>;

pub(super) fn split(taken: Taken) -> (Steps, Vec<Batch>) {
    let mut batches = Vec::new();
    let steps = taken
        .into_iter()
        .map(|(session, generation, entry)| match entry {
            Entry::Append { batch, opens } => {
                batches.push(batch);
                (session, generation, Step::Batch(batches.len() - 1, opens))
            }
            Entry::Release { asks, on_disk, release } => {
                (session, generation, Step::Release { asks, on_disk, release })
            }
        })
        .collect();
    (steps, batches)
}

/// Publishes batches and runs releases, each at its place. `before` is the first number of this commit. `later` takes the
/// releases that wait for the disk, where the batches are not on it yet. Where they are, these run at the end: they stand
/// for no place among the envelopes, so that batches with nothing else between them are handed over together.
pub(super) fn hand_over(
    shared: &Shared,
    steps: Steps,
    batches: &[Batch],
    firsts: &[ServerSeq],
    before: ServerSeq,
    mut later: Option<&mut Vec<Release>>,
) {
    let mut run = Run { is_ahead: later.is_some(), ..Run::default() };
    let mut on_the_disk: Vec<(ChannelId, Release)> = Vec::new();
    for (session, _, step) in steps {
        match step {
            Step::Batch(index, opens) => {
                if let (Some(batch), Some(first)) = (batches.get(index), firsts.get(index)) {
                    run.add(batch, *first);
                }
                run.sessions.push(session);
                run.opens.extend(opens);
            }
            Step::Release { on_disk: true, release, .. } => match later.as_deref_mut() {
                Some(later) => {
                    later.push(release);
                    done(&mut shared.state(), session);
                }
                None => on_the_disk.push((session, release)),
            },
            Step::Release { asks, release, .. } => {
                run.publish(shared);
                run_release(shared, session, asks, before, release);
            }
        }
    }
    run.publish(shared);
    for (session, release) in on_the_disk {
        run_release(shared, session, None, before, release);
    }
}

fn run_release(shared: &Shared, session: ChannelId, asks: Option<ChannelId>, before: ServerSeq, release: Release) {
    let mut state = shared.state();
    let place = place(shared, &mut state, asks, before);
    release(place);
    done(&mut state, session);
}

/// Batches that stand together in a commit.
#[derive(Default)]
struct Run {
    envelopes: Vec<Envelope>,
    newest: Vec<(ChannelId, ServerSeq)>,
    last: Option<ServerSeq>,
    /// Their lanes, one entry a batch.
    sessions: Vec<ChannelId>,
    /// The held lanes that go on behind them.
    opens: Vec<ChannelId>,
    /// Whether they are shown before they are on disk.
    is_ahead: bool,
}

impl Run {
    fn add(&mut self, batch: &Batch, first: ServerSeq) {
        for (seq, event) in (first..).zip(&batch.events) {
            self.newest.push((event.channel_id, seq));
            self.last = Some(seq);
            if event.kind == Kind::Action {
                let (channel, id) = (event.channel.clone(), event.channel_id);
                self.envelopes.push(Envelope::new(channel, id, seq, event.origin.as_ref(), &event.action));
            }
        }
    }

    /// Notes the numbers and gives the envelopes to the routers, in one step: whoever reads a number before this sends it
    /// before the envelopes, and whoever reads it afterwards behind them. The lanes' counts fall only when they are there.
    fn publish(&mut self, shared: &Shared) {
        if self.sessions.is_empty() {
            return;
        }
        let mut state = shared.state();
        state.newest.extend(self.newest.drain(..));
        state.handed_over = self.last.take().unwrap_or(state.handed_over);
        if !self.envelopes.is_empty() {
            shared.hub.publish(std::mem::take(&mut self.envelopes));
        }
        for session in self.sessions.drain(..) {
            if let Some(queue) = state.lanes.get_mut(&session).filter(|_| self.is_ahead) {
                queue.ahead += 1;
            }
            done(&mut state, session);
        }
        for session in self.opens.drain(..) {
            open(&mut state, session, self.is_ahead);
        }
    }
}

/// Lets a held lane go on: what it waited for was handed over, and is one of its batches too.
fn open(state: &mut State, session: ChannelId, is_ahead: bool) {
    let Some(queue) = state.lanes.get_mut(&session) else { return };
    let Some(hold) = queue.hold.take() else { return };
    if queue.entries.is_empty() && !hold.behind.is_empty() {
        state.turns.push_back(session);
    }
    queue.entries.extend(hold.behind);
    queue.ahead += usize::from(is_ahead);
    settle(state, session);
}

fn done(state: &mut State, session: ChannelId) {
    let Some(queue) = state.lanes.get_mut(&session) else { return };
    queue.in_commit = queue.in_commit.saturating_sub(1);
    settle(state, session);
}

/// Lets those go on who wait for the lane, once nothing of it is on its way.
pub(super) fn settle(state: &mut State, session: ChannelId) {
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
pub(super) fn place(
    shared: &Shared,
    state: &mut State,
    asks: Option<ChannelId>,
    before: ServerSeq,
) -> Result<Place, Lost> {
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
pub(super) fn refuse(shared: &Shared, steps: Steps, lost: &Lost, mut later: Option<&mut Vec<Release>>) {
    let mut refused: Vec<Release> = Vec::new();
    // What still waits in the lanes stands behind what the commit took of them, also when it is refused.
    let mut behind: Vec<Release> = Vec::new();
    let mut lanes: HashMap<ChannelId, u64> = HashMap::new();
    let mut over = Vec::with_capacity(steps.len());
    for (session, generation, step) in steps {
        let mut state = shared.state();
        let concerned = lanes.get(&session).is_some_and(|lost_in| *lost_in >= generation);
        match step {
            Step::Batch(_, opens) => {
                lanes.insert(session, generation);
                lose(&mut state, session, generation, lost, &mut behind);
                if let Some(held) = opens {
                    lose(&mut state, held, u64::MAX, lost, &mut behind);
                }
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

/// Marks the generation as lost and takes what the lane still holds of it, and what other lanes hold for a batch of it. A held
/// lane is lost in the generation that it is held in, whatever `generation` says.
pub(super) fn lose(state: &mut State, session: ChannelId, generation: u64, lost: &Lost, refused: &mut Vec<Release>) {
    let Some(queue) = state.lanes.get_mut(&session) else { return };
    let hold = queue.hold.take_if(|hold| hold.generation <= generation);
    let generation = match &hold {
        Some(hold) => hold.generation,
        // It waits for nothing of what is lost.
        None if generation == u64::MAX => return,
        None => generation,
    };
    if queue.lost.as_ref().is_none_or(|(lost_in, _)| *lost_in < generation) {
        queue.lost = Some((generation, lost.clone()));
    }
    let (of_it, rest): (VecDeque<_>, VecDeque<_>) =
        std::mem::take(&mut queue.entries).into_iter().partition(|(g, _)| *g <= generation);
    queue.entries = rest;
    queue.bytes = queue.entries.iter().map(|(_, entry)| entry.weight()).sum();
    if queue.entries.is_empty() {
        state.turns.retain(|turn| *turn != session);
    }
    let behind = hold.into_iter().flat_map(|hold| hold.behind);
    for (_, entry) in of_it.into_iter().chain(behind) {
        match entry {
            Entry::Release { release, .. } => refused.push(release),
            Entry::Append { opens: Some(held), .. } => {
                lose(state, held, u64::MAX, lost, refused);
                settle(state, held);
            }
            Entry::Append { .. } => {}
        }
    }
    settle(state, session);
}
