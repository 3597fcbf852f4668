//! The keys of an issuer as they were last seen, and when it is asked again.
//!
//! Always: whatever tokens come, the issuer is asked by one at a time and at most once each [`BETWEEN`]. Who needs the
//! answer waits for the one that is under way.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, Shared};

use super::OidcFault;
use super::keys::KeySet;
use super::source::Source;
use crate::clock::{Clock, Millis, later};

/// How long an issuer is left alone after it was asked.
const BETWEEN: Duration = Duration::from_secs(30);
/// How old keys may become while their issuer cannot be asked.
const STALE: Duration = Duration::from_secs(24 * 60 * 60);

/// An asking that is under way; `None` comes of one that failed.
type Fetching = Shared<BoxFuture<'static, Option<Arc<KeySet>>>>;

/// The keys, shared by all clones.
#[derive(Clone)]
pub(super) struct Keys {
    source: Arc<Source>,
    clock: Clock,
    ttl: Duration,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    held: Option<Held>,
    asked_at: Option<Millis>,
    /// The last asking failed.
    failed: bool,
    fetching: Option<Fetching>,
}

struct Held {
    keys: Arc<KeySet>,
    since: Millis,
}

impl Keys {
    pub fn new(source: Source, clock: Clock, ttl: Duration) -> Self {
        Self { source: Arc::new(source), clock, ttl, state: Arc::default() }
    }

    /// The keys of now, and those of before where the issuer cannot be asked.
    pub async fn current(&self) -> Result<Arc<KeySet>, OidcFault> {
        let fetching = {
            let mut state = lock(&self.state);
            if let Some(keys) = state.younger_than(self.ttl, self.clock.now()) {
                return Ok(keys);
            }
            self.fetch(&mut state)
        };
        if let Some(fetching) = fetching
            && let Some(keys) = fetching.await
        {
            return Ok(keys);
        }
        lock(&self.state).younger_than(STALE, self.clock.now()).ok_or(OidcFault::Unreachable)
    }

    /// Keys that are not `known`, which lack one that a token names; `None` where the issuer was asked lately and has no
    /// others.
    pub async fn other_than(&self, known: &Arc<KeySet>) -> Result<Option<Arc<KeySet>>, OidcFault> {
        let fetching = {
            let mut state = lock(&self.state);
            if let Some(held) = state.held.as_ref().filter(|held| !Arc::ptr_eq(&held.keys, known)) {
                return Ok(Some(Arc::clone(&held.keys)));
            }
            match self.fetch(&mut state) {
                Some(fetching) => fetching,
                None if state.failed => return Err(OidcFault::Unreachable),
                None => return Ok(None),
            }
        };
        fetching.await.map(Some).ok_or(OidcFault::Unreachable)
    }

    /// The asking that is under way, else a new one; `None` where there was one lately.
    fn fetch(&self, state: &mut State) -> Option<Fetching> {
        // One that has ended is still here only if it was broken off.
        if let Some(fetching) = state.fetching.as_ref().filter(|fetching| fetching.peek().is_none()) {
            return Some(fetching.clone());
        }
        let now = self.clock.now();
        if state.asked_at.is_some_and(|at| is_within(at, BETWEEN, now)) {
            return None;
        }
        state.asked_at = Some(now);
        let keys = self.clone();
        // A task of its own: whoever began it may go away while others wait for it.
        let task = tokio::spawn(async move { keys.ask().await });
        let fetching = task.map(|ended| ended.ok().flatten()).boxed().shared();
        state.fetching = Some(fetching.clone());
        Some(fetching)
    }

    /// Asks, and keeps the answer.
    async fn ask(&self) -> Option<Arc<KeySet>> {
        let fetched = self.source.fetch().await;
        let mut state = lock(&self.state);
        state.fetching = None;
        state.failed = fetched.is_err();
        match fetched {
            Ok(keys) => {
                let keys = Arc::new(keys);
                state.held = Some(Held { keys: Arc::clone(&keys), since: self.clock.now() });
                Some(keys)
            }
            Err(problem) => {
                let issuer = self.source.issuer();
                tracing::warn!(issuer, problem, "the issuer of tokens cannot be asked for its keys");
                None
            }
        }
    }
}

impl State {
    fn younger_than(&self, age: Duration, now: Millis) -> Option<Arc<KeySet>> {
        let held = self.held.as_ref().filter(|held| is_within(held.since, age, now))?;
        Some(Arc::clone(&held.keys))
    }
}

/// Whether `now` is in the `span` from `at` on; a clock that was set back is outside of it.
fn is_within(at: Millis, span: Duration, now: Millis) -> bool {
    (at..later(at, span)).contains(&now)
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
