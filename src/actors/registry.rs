//! Who is awake, and which channel a URI names.
//!
//! A session's actor is started when somebody needs it and read back from the log; nothing is loaded at the start of the
//! host. Messages are sent while the table is locked, so an actor that goes to sleep has them all or is started anew. An
//! actor whose mailbox is closed (it panicked) is replaced by one that is read from the log.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use actix::dev::channel::channel;
use actix::{Actor, Addr, Arbiter, ArbiterHandle, Context};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::session::{Boot, MAILBOX, SessionActor, SessionMessage};
use super::shared::Shared;
use super::visuals;
use crate::events::rows::{ChannelKind, ChannelRow, channel_key};
use crate::events::{Channel, ChannelId, Table};
use crate::projections::FoldFault;
use crate::projections::catalogue::{self, CatalogueRow};

/// The authority of the URIs of first chats.
const DEFAULT_CHAT: &str = "ahp-chat://default/";

/// The authority of the URIs of workers' chats.
const WORKER_CHAT: &str = "ahp-chat://subagent/";
/// What is encoded of a tool call's id: all that `encodeURIComponent` encodes.
const NOT_IN_A_CALL: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'!')
    .remove(b'~')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')');

/// The URI of the first chat of the session named `session`.
pub fn first_chat_uri(session: &str) -> String {
    format!("{DEFAULT_CHAT}{}", URL_SAFE_NO_PAD.encode(session))
}

/// The URI of the chat of a worker that a tool call spawned, as clients compute it. The `attempt`th, counted from 1, of one
/// call: the second is told from the first by what no encoded id holds.
pub fn worker_uri(session: &str, tool_call_id: &str, attempt: usize) -> String {
    let call = utf8_percent_encode(tool_call_id, NOT_IN_A_CALL);
    let again = if attempt > 1 { format!(";{attempt}") } else { String::new() };
    format!("{WORKER_CHAT}{}/{call}{again}", URL_SAFE_NO_PAD.encode(session))
}

/// What a URI names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The channel's one name.
    pub channel: Channel,
    pub id: ChannelId,
    pub kind: ChannelKind,
    /// The session that it belongs to; its own number for a session, that of the root for the root.
    pub session: ChannelId,
}

struct Awake {
    addr: Addr<SessionActor>,
    /// Messages that were sent to it and that it has not handled.
    unread: Arc<AtomicUsize>,
    listing: Option<Listing>,
}

impl Awake {
    /// Sends where there is room; returns a message that could not be sent.
    fn send(&self, message: SessionMessage) -> Option<SessionMessage> {
        self.unread.fetch_add(1, Ordering::AcqRel);
        let refused = try_send(&self.addr, message);
        if refused.is_some() {
            self.unread.fetch_sub(1, Ordering::AcqRel);
        }
        refused
    }
}

/// Which chats a session has now.
#[derive(Clone)]
struct Listing {
    uri: Channel,
    default_chat: Option<String>,
    chats: Vec<String>,
    disposed: bool,
}

impl Listing {
    fn of(row: &CatalogueRow) -> Self {
        let chats = row.summary.chats.iter().flatten().map(|chat| chat.resource.clone()).collect();
        Self {
            uri: Channel::from(row.summary.resource.as_str()),
            default_chat: row.summary.default_chat.clone(),
            chats,
            disposed: row.disposed,
        }
    }
}

#[derive(Default)]
struct Known {
    awake: HashMap<ChannelId, Awake>,
    /// Channels whose batches are on their way, by URI.
    pending: HashMap<String, ChannelRow>,
    /// The sessions of the chats that moved since the host began, by URI: the rows of those on their way say otherwise.
    moved: HashMap<String, ChannelId>,
}

/// The registry. See the head of this file.
pub struct Registry {
    table: Mutex<Known>,
    arbiters: Vec<ArbiterHandle>,
    shared: std::sync::OnceLock<Weak<Shared>>,
}

impl Registry {
    /// A registry whose sessions run on `threads` threads.
    pub fn new(threads: usize) -> Self {
        let arbiters = (0..threads.max(1)).map(|_| Arbiter::new().handle()).collect();
        Self { table: Mutex::default(), arbiters, shared: std::sync::OnceLock::new() }
    }

    /// Tells the registry whose it is; done once, when the host is put together.
    pub fn belongs_to(&self, shared: &Arc<Shared>) {
        let _ = self.shared.set(Arc::downgrade(shared));
    }

    fn table(&self) -> MutexGuard<'_, Known> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shared(&self) -> Option<Arc<Shared>> {
        self.shared.get()?.upgrade()
    }

    /// The channel that `uri` names now: itself, or a synonym of a session's default chat.
    ///
    /// # Errors
    /// [`FoldFault`] when the store cannot be read.
    pub fn resolve(&self, uri: &str) -> Result<Option<Resolved>, FoldFault> {
        let Some(shared) = self.shared() else { return Ok(None) };
        if uri == crate::events::channel::ROOT {
            return Ok(Some(Resolved {
                channel: Channel::root(),
                id: ChannelId::ROOT,
                kind: ChannelKind::Root,
                session: ChannelId::ROOT,
            }));
        }
        let mut looked_at = self.row(&shared, uri)?;
        while let Some(row) = looked_at {
            if row.kind == ChannelKind::Canvas {
                return self.resolve_canvas(&shared, uri);
            }
            let Some(listing) = self.listing(&shared, ChannelId(row.session))? else { return Ok(None) };
            let open = match row.kind {
                ChannelKind::Chat => listing.chats.iter().any(|chat| chat == uri),
                _ => true,
            };
            if listing.disposed {
                return Ok(None);
            }
            if open {
                let (id, session) = (ChannelId(row.id), ChannelId(row.session));
                return Ok(Some(Resolved { channel: Channel::from(uri), id, kind: row.kind, session }));
            }
            // A chat that moved between the two looks is found where it is now.
            looked_at = self.row(&shared, uri)?.filter(|now| now.session != row.session);
        }
        self.resolve_synonym(&shared, uri)
    }

    /// A canvas is there while its chat is, wherever that was moved to.
    fn resolve_canvas(&self, shared: &Shared, uri: &str) -> Result<Option<Resolved>, FoldFault> {
        let Some((id, chat)) = visuals::chat_of_canvas(shared, &Channel::from(uri))? else { return Ok(None) };
        let found = self.resolve(chat.as_str())?.filter(|found| found.channel == chat);
        let of = |chat: Resolved| Resolved { channel: Channel::from(uri), id, kind: ChannelKind::Canvas, ..chat };
        Ok(found.map(of))
    }

    /// The session of a chat, open or closed, by its own name or a synonym; `None` where it is disposed.
    ///
    /// # Errors
    /// [`FoldFault`] when the store cannot be read.
    pub fn session_of_chat(&self, uri: &str) -> Result<Option<Channel>, FoldFault> {
        let Some(shared) = self.shared() else { return Ok(None) };
        let row = self.row(&shared, uri)?.filter(|row| row.kind == ChannelKind::Chat);
        let session = match row {
            Some(row) => Some(ChannelId(row.session)),
            None => self.resolve(uri)?.filter(|found| found.kind == ChannelKind::Chat).map(|found| found.session),
        };
        let Some(session) = session else { return Ok(None) };
        let listing = self.listing(&shared, session)?.filter(|listing| !listing.disposed);
        Ok(listing.map(|listing| listing.uri))
    }

    fn resolve_synonym(&self, shared: &Shared, uri: &str) -> Result<Option<Resolved>, FoldFault> {
        let session = if let Some(encoded) = uri.strip_prefix(DEFAULT_CHAT) {
            let decoded = URL_SAFE_NO_PAD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            let Some(session) = decoded else { return Ok(None) };
            self.row(shared, &session)?.filter(|row| row.kind == ChannelKind::Session).map(|row| ChannelId(row.id))
        } else if let Some(id) = uri.strip_prefix("ahp-chat:/").filter(|id| !id.is_empty() && !id.starts_with('/')) {
            let row = shared.store.get(Table::SessionById, id.as_bytes())?;
            let stored = row.and_then(|value| crate::events::rows::leading_number(&value)).map(ChannelId);
            stored.or_else(|| self.pending_by_id(id))
        } else {
            None
        };
        let Some(session) = session else { return Ok(None) };
        let Some(listing) = self.listing(shared, session)?.filter(|listing| !listing.disposed) else {
            return Ok(None);
        };
        let Some(chat) = listing.default_chat else { return Ok(None) };
        let row = self.row(shared, &chat)?;
        Ok(row.map(|row| Resolved {
            channel: Channel::from(chat),
            id: ChannelId(row.id),
            kind: ChannelKind::Chat,
            session,
        }))
    }

    fn row(&self, shared: &Shared, uri: &str) -> Result<Option<ChannelRow>, FoldFault> {
        let (pending, moved) = {
            let table = self.table();
            (table.pending.get(uri).cloned(), table.moved.get(uri).copied())
        };
        let row = match pending {
            Some(row) => Some(row),
            None => catalogue::channel(shared.store.as_ref(), uri)?,
        };
        Ok(row.map(|row| ChannelRow { session: moved.map_or(row.session, |session| session.0), ..row }))
    }

    /// The oldest session with this last segment among those that are not on disk yet.
    fn pending_by_id(&self, segment: &str) -> Option<ChannelId> {
        let table = self.table();
        let sessions = table.pending.iter().filter(|(_, row)| row.kind == ChannelKind::Session);
        sessions
            .filter(|(uri, _)| catalogue::last_segment(uri) == Some(segment))
            .map(|(_, row)| ChannelId(row.id))
            .min()
    }

    fn listing(&self, shared: &Shared, session: ChannelId) -> Result<Option<Listing>, FoldFault> {
        if let Some(listing) = self.table().awake.get(&session).and_then(|awake| awake.listing.clone()) {
            return Ok(Some(listing));
        }
        Ok(catalogue::entry(shared.store.as_ref(), session)?.map(|row| Listing::of(&row)))
    }

    /// The URI of the session with this number.
    ///
    /// # Errors
    /// [`FoldFault`] when the store cannot be read.
    pub fn session_uri(&self, session: ChannelId) -> Result<Option<Channel>, FoldFault> {
        let Some(shared) = self.shared() else { return Ok(None) };
        if let Some(listing) = self.listing(&shared, session)? {
            return Ok(Some(listing.uri));
        }
        catalogue::uri(shared.store.as_ref(), session)
    }

    /// Notes what a session's catalogue entry says now. Called by the session's own thread.
    pub fn list(&self, session: ChannelId, row: &CatalogueRow) {
        if let Some(awake) = self.table().awake.get_mut(&session) {
            awake.listing = Some(Listing::of(row));
        }
    }

    /// Takes `uri` for a new channel, unless it has events or is being made.
    ///
    /// # Errors
    /// [`FoldFault`] when the store cannot be read.
    pub fn reserve(
        &self,
        uri: &str,
        kind: ChannelKind,
        session: Option<ChannelId>,
    ) -> Result<Option<ChannelId>, FoldFault> {
        let Some(shared) = self.shared() else { return Ok(None) };
        let mut table = self.table();
        if table.pending.contains_key(uri) || catalogue::channel(shared.store.as_ref(), uri)?.is_some() {
            return Ok(None);
        }
        let id = shared.store.new_channel_id();
        let row = ChannelRow { id: id.0, kind, session: session.unwrap_or(id).0 };
        table.pending.insert(uri.to_owned(), row);
        Ok(Some(id))
    }

    /// A reserved channel is on disk, or will never be.
    pub fn settle(&self, uri: &str) {
        self.table().pending.remove(uri);
    }

    /// Starts the actor of a new session.
    pub fn create(&self, id: ChannelId, boot: Boot) {
        let Some(shared) = self.shared() else { return };
        let mut table = self.table();
        let awake = self.start(&shared, id, boot);
        table.awake.insert(id, awake);
    }

    /// Sends `message` to a session's actor, which is started from the log where it is not awake. Whoever waits for an answer
    /// hears `busy` when the actor's mailbox is full, or when the host stops.
    pub fn send(&self, session: ChannelId, message: SessionMessage) {
        self.send_where(|_| session, message);
    }

    /// Sends `message` to the session of a channel that was found: also when the channel has moved to another one since.
    pub fn deliver(&self, found: &Resolved, message: SessionMessage) {
        self.send_where(|table| table.moved.get(found.channel.as_str()).copied().unwrap_or(found.session), message);
    }

    /// From now on these chats are found in `session`. What was sent for them before is in the mailbox of the session that they
    /// were in.
    pub fn moved<'a>(&self, chats: impl Iterator<Item = &'a str>, session: ChannelId) {
        let mut table = self.table();
        table.moved.extend(chats.map(|chat| (chat.to_owned(), session)));
    }

    fn send_where(&self, which: impl FnOnce(&Known) -> ChannelId, message: SessionMessage) {
        let Some(shared) = self.shared() else { return };
        let refused = {
            let mut table = self.table();
            let session = which(&table);
            let awake = table.awake.get(&session).is_some_and(|awake| awake.addr.connected());
            // What stops may still have batches on their way: a fold that is read now would lack them.
            if !awake && !shared.is_stopping() {
                let awake = self.start(&shared, session, Boot::Load);
                table.awake.insert(session, awake);
            }
            match table.awake.get(&session) {
                Some(awake) => awake.send(message),
                None => Some(message),
            }
        };
        if let Some(message) = refused {
            message.refuse_busy(&shared);
        }
    }

    /// Sends to a session only where it is awake.
    pub fn send_if_awake(&self, session: ChannelId, message: SessionMessage) {
        let table = self.table();
        if let Some(awake) = table.awake.get(&session) {
            let _ = awake.send(message);
        }
    }

    /// Lets a session go to sleep: it is no longer awake, and gets `last`. One that was sent something meanwhile stays awake.
    pub fn sleep(&self, session: ChannelId, addr: &Addr<SessionActor>, last: SessionMessage) {
        let mut table = self.table();
        if let Some(awake) = table.awake.get(&session).filter(|awake| awake.addr == *addr) {
            if awake.unread.load(Ordering::Acquire) > 0 {
                return;
            }
            table.awake.remove(&session);
        }
        addr.do_send(last);
    }

    /// A session that is no longer awake, whatever it was sent.
    pub fn let_go(&self, session: ChannelId) {
        self.table().awake.remove(&session);
    }

    /// Sends to every awake session; returns how many there are.
    pub fn send_all(&self, message: impl Fn() -> SessionMessage) -> usize {
        let table = self.table();
        for awake in table.awake.values() {
            awake.addr.do_send(message());
        }
        table.awake.len()
    }

    /// The sessions that are awake, in no order.
    pub fn awake_sessions(&self) -> Vec<ChannelId> {
        self.table().awake.keys().copied().collect()
    }

    /// How many sessions are awake.
    pub fn awake(&self) -> usize {
        self.table().awake.len()
    }

    fn start(&self, shared: &Arc<Shared>, id: ChannelId, boot: Boot) -> Awake {
        let shared = Arc::clone(shared);
        let unread = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&unread);
        let at = usize::try_from(id.0).unwrap_or(0) % self.arbiters.len().max(1);
        let addr = match self.arbiters.get(at) {
            Some(arbiter) => {
                // As `start_in_arbiter` does, but with room for what arrives before the actor runs.
                let (sender, receiver) = channel(MAILBOX);
                arbiter.spawn_fn(move || {
                    let actor = SessionActor::new(id, boot, counted, shared);
                    actix_rt::spawn(Context::with_receiver(receiver).into_future(actor));
                });
                Addr::new(sender)
            }
            None => SessionActor::new(id, boot, counted, shared).start(),
        };
        Awake { addr, unread, listing: None }
    }

    /// Ends the threads of the sessions.
    pub fn stop(&self) {
        for arbiter in &self.arbiters {
            arbiter.stop();
        }
    }
}

/// Sends where there is room; returns a message that could not be sent.
fn try_send(addr: &Addr<SessionActor>, message: SessionMessage) -> Option<SessionMessage> {
    use actix::prelude::SendError;
    match addr.try_send(message) {
        Ok(()) => None,
        Err(SendError::Full(message) | SendError::Closed(message)) => Some(message),
    }
}

/// The row of the index that finds a session by the last segment of its URI's path; the oldest session keeps it.
pub fn session_by_id(shared: &Shared, uri: &str, id: ChannelId) -> Option<crate::events::RowOp> {
    let segment = catalogue::last_segment(uri)?;
    let stored = shared.store.get(Table::SessionById, segment.as_bytes()).ok()?.is_some();
    let is_oldest = shared.registry.pending_by_id(segment).is_none_or(|oldest| oldest == id);
    (!stored && is_oldest).then(|| crate::events::RowOp::Put {
        table: Table::SessionById,
        key: segment.as_bytes().to_vec(),
        value: bytes::Bytes::from(channel_key(id)),
    })
}
