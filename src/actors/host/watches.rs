//! Watches of files: channels that are not in the log. Each is there for as long as somebody is subscribed to it.
//!
//! What changed is told with the number of the newest event, at its place among the events. Source: AHP
//! `createResourceWatch`, `resourceWatch/changed`.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde_json::{Value, json};

use super::{Host, SnapshotJson, not_found};
use crate::actors::command::{Refusal, RefusalKind};
use crate::actors::connection::{Caller, Connection, ConnectionId, Subscription};
use crate::actors::envelope::Envelope;
use crate::actors::host::OnSnapshot;
use crate::actors::people::Reads;
use crate::actors::shared::Shared;
use crate::events::{Channel, ChannelId};
use crate::resources::{Change, ChangeKind, ResourceFault, Watch, WatchId, Watching};

/// How the names of watches begin.
const NAME: &str = "ahp-resource-watch:/";

/// Whether `uri` names a watch.
pub fn is_watch(uri: &str) -> bool {
    uri.starts_with(NAME)
}

/// The watches of a host.
#[derive(Default)]
pub struct Watches {
    held: Mutex<HashMap<Channel, Held>>,
    last: AtomicU64,
    /// Started with the first watch.
    watching: Mutex<Option<Arc<Watching>>>,
}

/// One watch.
struct Held {
    id: WatchId,
    /// The JSON of its state.
    state: String,
    creator: ConnectionId,
    subscribers: HashSet<ConnectionId>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watches {
    fn watching(&self, shared: &Arc<Shared>) -> Result<Arc<Watching>, ResourceFault> {
        let mut watching = locked(&self.watching);
        if let Some(watching) = &*watching {
            return Ok(Arc::clone(watching));
        }
        let weak: Weak<Shared> = Arc::downgrade(shared);
        let told = Box::new(move |id, changes: Vec<Change>| {
            if let Some(shared) = weak.upgrade() {
                tell(&shared, id, &changes);
            }
        });
        let settings = &shared.settings;
        let (window, max) = (settings.watch_window, settings.max_watched_directories);
        let started = Arc::new(Watching::start(Arc::clone(&shared.roots), window, max, told)?);
        *watching = Some(Arc::clone(&started));
        Ok(started)
    }

    /// Counts a subscriber in; the state of the watch, which holds nothing of the log: whatever comes is newer.
    fn join(&self, channel: &Channel, connection: ConnectionId) -> Option<String> {
        let mut held = locked(&self.held);
        let watch = held.get_mut(channel)?;
        watch.subscribers.insert(connection);
        Some(watch.state.clone())
    }

    fn end(&self, ended: Vec<WatchId>) {
        if let Some(watching) = &*locked(&self.watching) {
            ended.into_iter().for_each(|id| watching.end(id));
        }
    }

    /// Ends the watches that nobody is subscribed to after `leave`.
    fn release(&self, mut leave: impl FnMut(&Channel, &mut Held) -> bool) {
        let mut ended = Vec::new();
        locked(&self.held).retain(|channel, held| {
            let is_over = leave(channel, held) && held.subscribers.is_empty();
            if is_over {
                ended.push(held.id);
            }
            !is_over
        });
        self.end(ended);
    }
}

/// Tells the subscribers of a watch what changed.
fn tell(shared: &Shared, id: WatchId, changes: &[Change]) {
    let held = locked(&shared.watches.held);
    let channel = held.iter().find(|(_, held)| held.id == id).map(|(channel, _)| channel.clone());
    drop(held);
    let Some(channel) = channel else { return };
    let item = |change: &Change| {
        let kind = match change.kind {
            ChangeKind::Added => "added",
            ChangeKind::Updated => "updated",
            ChangeKind::Deleted => "deleted",
        };
        json!({ "uri": change.uri, "type": kind })
    };
    let items: Vec<Value> = changes.iter().map(item).collect();
    let action = json!({ "type": "resourceWatch/changed", "changes": { "items": items } }).to_string();
    shared.writer.at_newest(|seq| {
        // No channel of the log has this number.
        shared.hub.pass(Envelope::new(channel, ChannelId(0), seq, None, action.as_bytes()));
    });
}

impl Host {
    /// Takes a name for a watch of `caller`, which goes with its connection. `state` is what its snapshot will say.
    ///
    /// # Errors
    /// A [`Refusal`] when the connection has as many as it may.
    pub fn reserve_watch(&self, caller: &Caller, state: &Value) -> Result<Channel, Refusal> {
        let (watches, max) = (&self.shared.watches, self.shared.settings.max_watches);
        let mut held = locked(&watches.held);
        let creator = caller.connection.id;
        if held.values().filter(|held| held.creator == creator).count() >= max {
            metrics::counter!("scrollback_limit_met_total", "limit" => "watches").increment(1);
            let text = format!("a connection has at most {max} watches");
            return Err(Refusal::new(RefusalKind::Unavailable, "limit-exceeded", text));
        }
        let id = watches.last.fetch_add(1, Ordering::Relaxed) + 1;
        let channel = Channel::from(format!("{NAME}{}", ulid::Ulid::new()));
        let new = Held { id, state: state.to_string(), creator, subscribers: HashSet::new() };
        held.insert(channel.clone(), new);
        Ok(channel)
    }

    /// Begins the watch that has this name. May read many directories.
    ///
    /// # Errors
    /// [`ResourceFault`]: not there, out of reach, too much. The name is gone then.
    pub fn begin_watch(&self, channel: &Channel, watch: Watch) -> Result<(), ResourceFault> {
        let watches = &self.shared.watches;
        // Who asked for it may be gone by now, and the name with it.
        let Some(id) = locked(&watches.held).get(channel).map(|held| held.id) else { return Ok(()) };
        let begun = watches.watching(&self.shared).and_then(|watching| watching.begin(id, watch));
        let is_gone = !locked(&watches.held).contains_key(channel);
        if begun.is_err() {
            locked(&watches.held).remove(channel);
        } else if is_gone {
            watches.end(vec![id]);
        }
        begun
    }

    /// Subscribes to a watch; gives `then` back where `alias` names none.
    pub(super) fn subscribe_to_watch(&self, caller: &Caller, alias: &str, then: OnSnapshot) -> Option<OnSnapshot> {
        let channel = Channel::from(alias);
        let is_held = is_watch(alias) && locked(&self.shared.watches.held).contains_key(&channel);
        if !is_held || self.shared.reads(&caller.who, alias) != Reads::Yes {
            return Some(then);
        }
        let subscription = Subscription { alias: channel.clone(), channel: channel.clone(), from_seq: 0, window: None };
        let shared = Arc::clone(&self.shared);
        // Counted where the subscription stands: a connection that is gone by then is not.
        let stands = move |connection: &Connection| {
            let state = shared.watches.join(&channel, connection.id);
            let snapshot = state.map(|state| SnapshotJson {
                resource: channel.clone(),
                state: state.into(),
                from_seq: 0,
                folded: None,
            });
            if snapshot.is_none() {
                connection.drop_channel(&channel);
            }
            then(connection, snapshot.ok_or_else(|| not_found(channel.as_str())));
        };
        caller.connection.subscribe(subscription, Box::new(stands));
        None
    }

    /// A connection is no longer subscribed to `channel`: a watch that nobody is subscribed to ends.
    pub fn left_watch(&self, connection: ConnectionId, channel: &Channel) {
        self.shared.watches.release(|name, held| name == channel && held.subscribers.remove(&connection));
    }

    /// A connection ended: so do the watches that it alone was subscribed to, and its own that nobody is subscribed to.
    pub fn left_watches(&self, connection: ConnectionId) {
        self.shared.watches.release(|_, held| held.subscribers.remove(&connection) || held.creator == connection);
    }

    /// How many watches there are.
    pub fn watches(&self) -> usize {
        locked(&self.shared.watches.held).len()
    }
}
