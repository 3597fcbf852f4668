//! Finding sessions by title, URI and people: an index in memory, made when somebody first looks for one.
//!
//! Titles and URIs come from the catalogue, at once. Who did something in a session is in no row: a thread of its own reads
//! the log for that, and follows it from then on. Until it got there, [`Search::reached`] says how far it is.
//!
//! Always: an answer names no session that whoever asks may not see, and shows what the catalogue says now.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::events::rows::{number_of_key, recent_key};
use crate::events::{ChannelId, Kind, Record, ServerSeq, Store, Table};
use crate::projections::FoldFault;
use crate::projections::action::type_of;
use crate::projections::catalogue::{self, CatalogueRow};

/// Events that are read in one go.
const SLICE: usize = 20_000;
/// Events that a search itself reads first, so that what has just happened is found.
const FRESH: usize = 2_000;
/// How often the thread looks for new events.
const LOOK: Duration = Duration::from_millis(250);

/// A session's place in the list: the key of its row there.
pub type Place = Vec<u8>;

/// Words that all must be found, in lower case.
pub struct Terms(Vec<String>);

impl Terms {
    /// The words of what somebody typed.
    pub fn of(text: &str) -> Self {
        Self(text.split_whitespace().map(str::to_lowercase).collect())
    }
}

/// A session in the index.
struct Entry {
    place: Place,
    uri: Box<str>,
    /// Titles and URIs, its own and its chats', in lower case.
    text: Box<str>,
    people: Vec<u32>,
    is_disposed: bool,
}

#[derive(Default)]
struct Index {
    by_place: BTreeMap<Place, ChannelId>,
    sessions: HashMap<ChannelId, Entry>,
    people: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

/// How far the log was read.
#[derive(Default)]
struct Follower {
    /// The catalogue was read when this was the newest event. What is newer is read first.
    built_at: ServerSeq,
    /// The newest event that was read of those after it, and of those before.
    reached: ServerSeq,
    history: ServerSeq,
    /// The session of each channel that was met.
    sessions: HashMap<ChannelId, ChannelId>,
}

struct Inner {
    store: Arc<dyn Store>,
    index: RwLock<Index>,
    follower: Mutex<Follower>,
    reached: AtomicU64,
    /// Set once the catalogue was read.
    is_built: OnceLock<()>,
    building: Mutex<()>,
    stopping: AtomicBool,
    wake: Condvar,
    waiting: Mutex<()>,
}

/// See the head of this file. Its thread ends with it.
pub struct Search {
    inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What was found: sessions with the people in them, and where the next ones are.
pub struct Found {
    pub sessions: Vec<(ChannelId, Vec<Arc<str>>)>,
    pub next: Option<Place>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Search {
    /// A search over `store`; nothing is read before it is asked.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let inner = Inner {
            store,
            index: RwLock::default(),
            follower: Mutex::default(),
            reached: AtomicU64::new(0),
            is_built: OnceLock::new(),
            building: Mutex::default(),
            stopping: AtomicBool::new(false),
            wake: Condvar::new(),
            waiting: Mutex::default(),
        };
        Self { inner: Arc::new(inner), thread: Mutex::default() }
    }

    /// The event up to which the log was read for people, from its beginning.
    pub fn reached(&self) -> ServerSeq {
        self.inner.reached.load(Ordering::Acquire)
    }

    /// Makes the index where there is none, and begins to follow the log. Blocks for as long as reading the catalogue takes.
    ///
    /// # Errors
    /// [`FoldFault`] when it cannot be read; the next one tries again.
    pub fn open(&self) -> Result<(), FoldFault> {
        if self.inner.is_built.get().is_some() {
            return Ok(());
        }
        let _one = lock(&self.inner.building);
        if self.inner.is_built.get().is_some() {
            return Ok(());
        }
        self.inner.build()?;
        let _ = self.inner.is_built.set(());
        let inner = Arc::clone(&self.inner);
        match std::thread::Builder::new().name("search".into()).spawn(move || inner.follow()) {
            Ok(thread) => *lock(&self.thread) = Some(thread),
            Err(problem) => {
                tracing::error!(%problem, "no thread for the search: it reads the log only when it is asked")
            }
        }
        Ok(())
    }

    /// The sessions that have all `terms`, newest first, from `from` on, at most `limit`; those that were disposed only
    /// where `disposed`. `sees` says by URI, and whether it was disposed, whether one may be shown.
    ///
    /// # Errors
    /// [`FoldFault`] when the store cannot be read.
    pub fn find(
        &self,
        terms: &Terms,
        from: Option<&[u8]>,
        limit: usize,
        disposed: bool,
        sees: impl Fn(&str, bool) -> bool,
    ) -> Result<Found, FoldFault> {
        self.open()?;
        self.inner.catch_up(FRESH, false)?;
        let index = self.inner.index.read().unwrap_or_else(PoisonError::into_inner);
        let of_people: Vec<HashSet<u32>> = terms.0.iter().map(|term| index.people_with(term)).collect();
        let fits = |entry: &Entry| {
            (disposed || !entry.is_disposed)
                && terms.0.iter().zip(&of_people).all(|(term, people)| {
                    entry.text.contains(term.as_str()) || entry.people.iter().any(|person| people.contains(person))
                })
                && sees(&entry.uri, entry.is_disposed)
        };
        let mut found = Found { sessions: Vec::new(), next: None };
        let start = from.map_or(Bound::Unbounded, |from| Bound::Included(from.to_vec()));
        for (place, session) in index.by_place.range((start, Bound::Unbounded)) {
            let Some(entry) = index.sessions.get(session).filter(|entry| fits(entry)) else { continue };
            if found.sessions.len() >= limit {
                found.next = Some(place.clone());
                break;
            }
            found.sessions.push((*session, index.names(entry)));
        }
        Ok(found)
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        self.inner.stopping.store(true, Ordering::Release);
        self.inner.wake.notify_all();
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

impl Inner {
    /// Reads the catalogue.
    fn build(&self) -> Result<(), FoldFault> {
        let mut follower = lock(&self.follower);
        follower.built_at = self.store.tail();
        follower.reached = follower.built_at;
        let mut index = Index::default();
        self.store.scan_rows(Table::Session, &[], None, &mut |key, value| {
            let row = serde_json::from_slice::<CatalogueRow>(value).ok();
            if let Some((session, row)) = number_of_key(key).map(ChannelId).zip(row) {
                index.put(session, &row);
            }
            ControlFlow::Continue(())
        })?;
        *self.index.write().unwrap_or_else(PoisonError::into_inner) = index;
        Ok(())
    }

    fn follow(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            match self.catch_up(SLICE, true) {
                Ok(true) => {}
                Ok(false) => self.wait(),
                Err(fault) => {
                    tracing::error!(%fault, "the log could not be read for the search");
                    self.wait();
                }
            }
        }
    }

    fn wait(&self) {
        let waiting = lock(&self.waiting);
        if !self.stopping.load(Ordering::Acquire) {
            drop(self.wake.wait_timeout(waiting, LOOK));
        }
    }

    /// Reads the next events, at most so many, and where nothing is new and `history` is wanted, older ones; whether there
    /// are more. Nothing where another thread is at it.
    fn catch_up(&self, most: usize, history: bool) -> Result<bool, FoldFault> {
        let Ok(mut follower) = self.follower.try_lock() else { return Ok(false) };
        let tail = self.store.tail();
        let is_new = follower.reached < tail;
        if is_new {
            let after = follower.reached;
            follower.reached = self.slice(&mut follower, after, tail, most)?;
        } else if history && follower.history < follower.built_at {
            let (after, upto) = (follower.history, follower.built_at);
            follower.history = self.slice(&mut follower, after, upto, most)?;
        }
        let is_whole = follower.history >= follower.built_at;
        let reached = if is_whole { follower.reached } else { follower.history };
        self.reached.store(reached, Ordering::Release);
        Ok(follower.reached < tail || !is_whole)
    }

    /// Reads events after `after` up to `upto`, at most so many; returns up to which.
    fn slice(
        &self,
        follower: &mut Follower,
        after: ServerSeq,
        upto: ServerSeq,
        most: usize,
    ) -> Result<ServerSeq, FoldFault> {
        let mut news = News::default();
        let (mut read, mut last, mut fault) = (0, upto, None);
        self.store.scan(after, upto, &mut |record| {
            read += 1;
            fault = news.take(&*self.store, follower, &record).err();
            if fault.is_none() && read < most && !self.stopping.load(Ordering::Acquire) {
                return ControlFlow::Continue(());
            }
            last = record.seq;
            ControlFlow::Break(())
        })?;
        match fault {
            Some(fault) => Err(fault),
            None => {
                self.apply(news)?;
                Ok(last)
            }
        }
    }

    fn apply(&self, news: News) -> Result<(), FoldFault> {
        let News { mut changed, people, is_erased } = news;
        if is_erased {
            let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
            changed.extend(index.sessions.keys());
        }
        let mut rows = Vec::with_capacity(changed.len());
        for session in changed {
            rows.push((session, catalogue::entry(&*self.store, session)?));
        }
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        for (session, row) in rows {
            match row {
                Some(row) => index.put(session, &row),
                None => index.remove(session),
            }
        }
        for (session, person) in people {
            index.add_person(session, &person);
        }
        Ok(())
    }
}

/// What events say that the index has to know.
#[derive(Default)]
struct News {
    /// Sessions whose entry in the catalogue may be another one.
    changed: HashSet<ChannelId>,
    people: HashSet<(ChannelId, String)>,
    is_erased: bool,
}

impl News {
    fn take(&mut self, store: &dyn Store, follower: &mut Follower, record: &Record) -> Result<(), FoldFault> {
        if record.kind == Kind::Host {
            match &*type_of(&record.action) {
                "host/chatMoved" => drop(follower.sessions.remove(&record.channel_id)),
                "host/erased" => self.is_erased |= record.seq > follower.built_at,
                _ => {}
            }
        }
        let session = match follower.sessions.get(&record.channel_id) {
            Some(session) => *session,
            None => {
                let row = catalogue::channel(store, record.channel.as_str())?;
                let session = ChannelId(row.map_or(0, |row| row.session));
                follower.sessions.insert(record.channel_id, session);
                session
            }
        };
        if session.0 == 0 {
            return Ok(());
        }
        if record.channel_id == session && record.seq > follower.built_at {
            self.changed.insert(session);
        }
        if record.principal.starts_with("user:") || record.principal.starts_with("root:") {
            let known = (session, record.principal.clone());
            self.people.insert(known);
        }
        Ok(())
    }
}

impl Index {
    fn put(&mut self, session: ChannelId, row: &CatalogueRow) {
        let summary = &row.summary;
        let modified = crate::clock::parse_rfc3339(&summary.modified_at).unwrap_or(0);
        let place = recent_key(modified, session);
        let mut text = format!("{}\n{}", summary.title, summary.resource);
        for chat in summary.chats.iter().flatten() {
            text.push('\n');
            text.push_str(&chat.title);
            text.push('\n');
            text.push_str(&chat.resource);
        }
        let old = self.sessions.remove(&session);
        if let Some(old) = &old {
            self.by_place.remove(&old.place);
        }
        self.by_place.insert(place.clone(), session);
        let people = old.map(|old| old.people).unwrap_or_default();
        let (uri, text) = (summary.resource.clone().into(), text.to_lowercase().into());
        self.sessions.insert(session, Entry { place, uri, text, people, is_disposed: row.disposed });
    }

    fn remove(&mut self, session: ChannelId) {
        if let Some(old) = self.sessions.remove(&session) {
            self.by_place.remove(&old.place);
        }
    }

    fn add_person(&mut self, session: ChannelId, person: &str) {
        let number = match self.numbers.get(person) {
            Some(number) => *number,
            None => {
                let (name, number) = (Arc::<str>::from(person), u32::try_from(self.people.len()).unwrap_or(u32::MAX));
                self.people.push(Arc::clone(&name));
                self.numbers.insert(name, number);
                number
            }
        };
        let entry = self.sessions.get_mut(&session);
        if let Some(entry) = entry.filter(|entry| !entry.people.contains(&number)) {
            entry.people.push(number);
        }
    }

    fn people_with(&self, term: &str) -> HashSet<u32> {
        let people = (0..).zip(&self.people);
        people.filter(|(_, name)| name.to_lowercase().contains(term)).map(|(number, _)| number).collect()
    }

    fn names(&self, entry: &Entry) -> Vec<Arc<str>> {
        entry.people.iter().filter_map(|number| self.people.get(*number as usize).cloned()).collect()
    }
}
