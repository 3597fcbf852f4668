//! One client behind its socket: how far its handshake is, and what its messages lead to.
//!
//! Lives on its worker's thread. What is answered goes into the connection's queue, never to the socket itself.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;
use serde_json::value::RawValue;
use tracing::span::EnteredSpan;

use super::App;
use super::clients::{RememberedClient, RememberedWindow};
use super::error::{invalid_request, refusal_frame};
use super::frame::{self, Incoming};
use super::methods;
use super::ticket::{InFlight, Ticket};
use crate::access::Identity;
use crate::actors::asked::NoAnswer;
use crate::actors::command::{Refusal, RefusalKind};
use crate::actors::connection::{Caller, Connection, ConnectionRef};
use crate::actors::host::is_watch;
use crate::actors::router::Router;
use crate::events::{Channel, ServerSeq};
use crate::telemetry::{TRAIL, is_telemetry};

/// Why a socket is closed that says what is no text.
pub const NOT_UTF_8: &str = "a text message is not UTF-8";
/// What a binary frame is answered with: its id cannot be known.
const BINARY: &str = "binary frames are not served: send JSON as text";

/// The longest id of a request that is logged, in bytes of its JSON.
const LONGEST_ID: usize = 64;

/// A client and its connection.
pub struct Peer {
    pub app: Arc<App>,
    pub router: Rc<Router>,
    pub connection: Rc<Connection>,
    /// The way to the connection for other threads.
    pub to: ConnectionRef,
    /// Who it is since the upgrade.
    pub who: Arc<Identity>,
    phase: RefCell<Phase>,
    /// The connection was let go of.
    has_left: Cell<bool>,
    in_flight: InFlight,
    /// What of its messages is being read elsewhere: nothing that it sent later is served before.
    working: Cell<usize>,
    /// `view.turns` of the names that are subscribed, where it was given.
    views: RefCell<HashMap<Channel, u64>>,
    /// Subscriptions that are not answered yet: how many of each name.
    pub subscribing: RefCell<HashMap<Channel, Subscribing>>,
    /// How many subscriptions are not answered yet.
    pub subscribing_in_all: Cell<usize>,
}

/// Subscriptions under one name that are not answered yet.
#[derive(Debug, Default)]
pub struct Subscribing {
    pub waiting: usize,
    /// The client unsubscribed meanwhile.
    pub unsubscribed: bool,
}

/// A long message that was looked through.
enum Looked {
    Fine(ByteString),
    /// An answer to the host that nests too deep.
    AnswerTooDeep(ByteString),
    /// Anything else that does, and what is answered.
    Refused(ByteString),
}

/// What is being read elsewhere, until it is dropped.
pub struct Working(Rc<Peer>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.working.set(self.0.working.get().saturating_sub(1));
        self.0.to.received.look_again();
    }
}

enum Phase {
    Fresh,
    /// A handshake is being answered.
    Shaking,
    Open(Caller),
}

impl Peer {
    pub fn new(app: Arc<App>, router: Rc<Router>, who: Identity) -> Rc<Self> {
        let who = Arc::new(who);
        let (connection, to) = router.connect(Arc::clone(&who), app.settings.max_unsent);
        Rc::new(Self {
            app,
            router,
            connection,
            to,
            who,
            phase: RefCell::new(Phase::Fresh),
            has_left: Cell::new(false),
            in_flight: InFlight::default(),
            working: Cell::new(0),
            views: RefCell::default(),
            subscribing: RefCell::default(),
            subscribing_in_all: Cell::new(0),
        })
    }

    /// Takes a text message.
    pub fn receive(self: &Rc<Self>, text: &str) {
        self.receive_read(text, frame::is_too_deep(text, self.app.settings.max_nesting));
    }

    /// Takes a long message: it is looked through on another thread first. What comes behind it is served behind it.
    pub fn receive_long(self: &Rc<Self>, bytes: Bytes) {
        let (peer, working) = (Rc::clone(self), self.work());
        actix_rt::spawn(async move {
            let max_nesting = peer.app.settings.max_nesting;
            let read = move || {
                let text = ByteString::try_from(bytes).ok()?;
                if !frame::is_too_deep(&text, max_nesting) {
                    return Some(Looked::Fine(text));
                }
                // Its refusal looks through it once more.
                let refused = frame::split_read(&text, max_nesting, true).err().map(|malformed| malformed.frame());
                Some(refused.map_or(Looked::AnswerTooDeep(text), Looked::Refused))
            };
            match actix_web::web::block(read).await {
                Ok(Some(Looked::Fine(text))) => peer.receive_read(&text, false),
                Ok(Some(Looked::AnswerTooDeep(text))) => peer.receive_read(&text, true),
                Ok(Some(Looked::Refused(refusal))) => {
                    metrics::counter!("scrollback_frames_received_total").increment(1);
                    peer.push(refusal);
                }
                Ok(None) => peer.connection.close(1007, NOT_UTF_8.into()),
                Err(_) => tracing::debug!("a long message came when the host stopped"),
            }
            drop(working);
        });
    }

    fn receive_read(self: &Rc<Self>, text: &str, too_deep: bool) {
        metrics::counter!("scrollback_frames_received_total").increment(1);
        let settings = &self.app.settings;
        match frame::split_read(text, settings.max_nesting, too_deep) {
            Ok(Incoming::Request { id, method, params }) => {
                let _trail = self.trail("request", &method, Some(id));
                let max_answer = settings.max_message_sent;
                match self.in_flight.ticket(id, text.len(), &self.to, settings.max_in_flight, max_answer) {
                    Ok(ticket) => methods::request(self, &method, params, ticket),
                    Err(refusal) => self.push(refusal_frame(id, &refusal)),
                }
            }
            Ok(Incoming::Notification { method, params }) => {
                let _trail = self.trail("notification", &method, None);
                methods::notification(self, &method, params);
            }
            Ok(Incoming::Response { id, outcome }) => self.take_answer(id, outcome),
            Err(malformed) => self.push(malformed.frame()),
        }
    }

    /// What is logged while a message is served, and when it is answered, says of which it is.
    fn trail(&self, kind: &'static str, method: &str, id: Option<&str>) -> EnteredSpan {
        let method = methods::known(method);
        let id = id.filter(|id| id.len() <= LONGEST_ID);
        let (connection, principal) = (self.connection.id, &*self.who.principal);
        tracing::debug_span!(target: TRAIL, "message", kind, method, id, connection, principal).entered()
    }

    /// Begins to read something elsewhere.
    pub fn work(self: &Rc<Self>) -> Working {
        self.working.set(self.working.get() + 1);
        Working(Rc::clone(self))
    }

    /// Whether something is being read.
    pub fn is_working(&self) -> bool {
        self.working.get() > 0
    }

    /// Takes an answer to what the host asked. One to something that nobody asked is ignored.
    fn take_answer(&self, id: Option<&str>, outcome: Result<&RawValue, &RawValue>) {
        let Some(number) = id.and_then(|id| id.parse().ok()) else { return };
        let refused = |error: &RawValue| NoAnswer::Refused(frame::problem_of(error));
        self.connection.answered(number, outcome.map(ToOwned::to_owned).map_err(refused));
    }

    /// Answers a binary message.
    pub fn refuse_binary(&self) {
        metrics::counter!("scrollback_frames_received_total").increment(1);
        self.push(refusal_frame("null", &invalid_request("binary-frame", BINARY)));
    }

    /// Who calls, once the handshake is done.
    pub fn caller(&self) -> Option<Caller> {
        match &*self.phase.borrow() {
            Phase::Open(caller) => Some(caller.clone()),
            Phase::Fresh | Phase::Shaking => None,
        }
    }

    /// Whether no handshake has come yet.
    pub fn is_fresh(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Fresh)
    }

    /// Begins a handshake.
    ///
    /// # Errors
    /// A refusal when there is one already.
    pub fn begin(&self) -> Result<(), Refusal> {
        if !self.is_fresh() {
            return Err(invalid_request("already-initialized", "this connection had its handshake"));
        }
        self.phase.replace(Phase::Shaking);
        Ok(())
    }

    /// Ends a handshake that was refused: another one may come.
    pub fn abandon(&self) {
        self.phase.replace(Phase::Fresh);
    }

    /// Ends a handshake that succeeded. Nothing happens where the client is gone already: nobody would say so again.
    /// `returns_to` are the channels that a client comes back to.
    pub fn open(&self, caller: Caller, returns_to: Option<HashSet<Channel>>) {
        if self.has_left.get() {
            return;
        }
        self.app.host.client_arrived(&caller, returns_to);
        self.phase.replace(Phase::Open(caller));
    }

    /// The caller that this connection becomes with `client_id`, and with the newest number that it had seen where it comes
    /// back.
    pub fn as_caller(&self, client_id: &str, version: &str, resumed_from: Option<ServerSeq>) -> Caller {
        let (connection, principal) = (self.to.clone(), Arc::clone(&self.who.principal));
        let knows_canvases = knows_canvases(version);
        self.connection.knows_canvases(knows_canvases);
        let who = Arc::clone(&self.who);
        Caller { connection, client_id: Arc::from(client_id), principal, who, knows_canvases, resumed_from }
    }

    /// Takes `client_id` for this connection's principal, and says what is remembered of it.
    ///
    /// # Errors
    /// A refusal when it belongs to another one.
    pub fn claim(&self, client_id: &str, version: Option<&str>) -> Result<RememberedClient, Refusal> {
        let known = self.app.clients.recall(client_id).map_err(Refusal::log_unavailable)?;
        let mut client = known.unwrap_or_else(|| RememberedClient {
            principal: Arc::clone(&self.who.principal),
            protocol_version: ahp_types::PROTOCOL_VERSION.to_owned(),
            windows: HashMap::new(),
            used_at: 0,
        });
        let is_own = client.principal == self.who.principal;
        client.used_at = self.app.host.clock().now();
        if let Some(version) = version {
            client.protocol_version = version.to_owned();
        }
        if !is_own || self.app.clients.remember(client_id, client.clone()).is_err() {
            let message = "clientId: belongs to somebody else";
            return Err(Refusal::new(RefusalKind::NotPermitted, "not-permitted", message));
        }
        Ok(client)
    }

    /// Notes which view of `alias` was subscribed to.
    pub fn saw(&self, caller: &Caller, alias: &Channel, turns: Option<u64>) {
        if is_watch(alias.as_str()) {
            return;
        }
        let mut views = self.views.borrow_mut();
        match turns {
            Some(turns) => views.insert(alias.clone(), turns),
            None => views.remove(alias),
        };
        if views.len() > self.app.settings.max_subscriptions {
            // Channels that are gone left theirs behind.
            views.retain(|alias, _| self.connection.channel_of(alias).is_some());
        }
        drop(views);
        let (oldest, widened_at) = (self.connection.window(alias), self.connection.widened_at(alias));
        let window = RememberedWindow { turns, oldest, widened_at };
        self.app.clients.remember_windows(&caller.client_id, [(alias.to_string(), window)]);
    }

    /// Forgets the view of `alias`.
    pub fn no_longer_sees(&self, alias: &Channel) {
        self.views.borrow_mut().remove(alias);
    }

    /// Lets the connection go: its subscriptions end, its windows are remembered, its sessions hear that it left.
    pub fn leave(&self) {
        self.has_left.set(true);
        self.connection.give_up_asking();
        let caller = self.caller();
        let windows = self.connection.windows();
        self.router.disconnect(self.connection.id);
        self.app.host.left_watches(self.connection.id);
        self.forget_tokens();
        let Some(caller) = caller else { return };
        let has_turns = |alias: &Channel| !is_watch(alias.as_str()) && !is_telemetry(alias.as_str());
        let kept = windows.into_iter().filter(|(alias, _)| has_turns(alias));
        let seen = kept.map(|(alias, oldest)| {
            let turns = self.views.borrow().get(&alias).copied();
            let window = RememberedWindow { turns, oldest, widened_at: self.connection.widened_at(&alias) };
            (alias.to_string(), window)
        });
        self.app.clients.remember_windows(&caller.client_id, seen);
        self.app.host.client_gone(&caller);
    }

    /// Forgets the tokens that came over this connection.
    pub fn forget_tokens(&self) {
        self.app.host.forget_tokens(self.connection.id);
    }

    /// Queues a frame from this thread.
    pub fn push(&self, frame: ByteString) {
        self.connection.push(frame);
        self.connection.wake.notify_one();
    }

    /// Whether `more` subscriptions can be added.
    ///
    /// # Errors
    /// A refusal when the limit is met.
    pub fn check_subscriptions(&self, more: usize) -> Result<(), Refusal> {
        let max = self.app.settings.max_subscriptions;
        let taken = self.connection.subscription_count() + self.subscribing_in_all.get();
        if taken + more <= max {
            return Ok(());
        }
        Err(super::error::limit("subscriptions", format!("a connection has at most {max} subscriptions")))
    }
}

/// Whether a served version of the protocol has canvases, which came with 0.10.
fn knows_canvases(version: &str) -> bool {
    !version.starts_with("0.9.")
}

/// Queues the answer to a handshake with what was held back for it.
pub fn release(peer: &Peer, ticket: Ticket, json: Result<String, Refusal>) {
    peer.connection.release_held(ticket.into_frame(json), 0);
}
