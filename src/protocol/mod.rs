//! AHP on the wire: the WebSocket endpoint, its JSON-RPC frames, and what each method does.
//!
//! A connection is an HTTP request that `access` admitted and that was upgraded. Its bytes are cut into messages by
//! `inbox`, split by `frame`, looked up in `methods`, and become commands to the host. What goes out comes from the
//! connection's queue, which its router fills, and is written by `outbox` as fast as the socket takes it. `error` is the
//! only place that knows JSON-RPC's numbers.
//!
//! Always: every request is answered exactly once; nothing that a peer sends makes the host keep more than the limits of
//! [`ProtocolSettings`]. Left out on purpose: what a command means, which is the host's.
//! Source: AHP 1.0.0; the outer contract, endpoints and limits.

pub mod clients;
pub mod error;
pub mod frame;

// Open for `fuzz/`, which hands them whatever a peer may send.
#[doc(hidden)]
pub mod inbox;
#[doc(hidden)]
pub mod names;
#[doc(hidden)]
pub mod pace;
#[doc(hidden)]
pub mod params;

mod authenticate;
mod chats;
mod collect;
mod completions;
mod extensions;
mod handshake;
mod methods;
mod outbox;
mod peer;
mod reconnect;
mod replay;
mod resources;
mod sessions;
mod socket;
mod subscribe;
mod ticket;
mod trigger;
mod visuals;
mod watches;

use std::any::Any;
use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::header;
use tokio::sync::Semaphore;

use actix_web::{HttpRequest, HttpResponse, web};

use crate::access::Gate;
use crate::access::seats::Seats;
use crate::actors::host::Host;
use crate::actors::router::Router;
use crate::pages;
use clients::ClientMemory;

pub use extensions::NAMES as EXTENSIONS;
pub use socket::on_connect;

/// The limits of sockets. Every field is a key of the configuration file.
#[derive(Debug, Clone)]
pub struct ProtocolSettings {
    /// Bytes of a message from a client, its continuations joined.
    pub max_message: usize,
    /// The same before the handshake.
    pub max_message_before_handshake: usize,
    /// Arrays and objects within each other in a message from a client.
    pub max_nesting: usize,
    /// Bytes of one frame that the host sends; longer messages go as continuations.
    pub max_frame_sent: usize,
    /// Bytes of one message that the host sends.
    pub max_message_sent: usize,
    /// Bytes that may wait behind the answer that is being sent.
    pub max_unsent: usize,
    pub max_subscriptions: usize,
    pub max_connections: usize,
    pub max_connections_of_one: usize,
    /// Requests of a connection that are not answered yet.
    pub max_in_flight: usize,
    /// Actions of a connection that nothing has become of yet; then it is not read.
    pub max_actions_in_flight: usize,
    /// Bytes of what a connection sent and nothing has become of yet; then it is not read.
    pub max_received: usize,
    /// Messages of a connection that are served in a second, and at once.
    pub max_messages_a_second: usize,
    /// Bytes of a connection that are read in a second; a message may come at once.
    pub max_bytes_a_second: usize,
    /// How long the handshake may take after the upgrade.
    pub handshake_timeout: Duration,
    /// After how much silence of the peer it is pinged.
    pub ping_after: Duration,
    /// How long it may go on being silent then.
    pub pong_timeout: Duration,
    /// How long a peer may take to read the close before its TCP connection is cut.
    pub close_timeout: Duration,
    /// Bytes of a replay in one answer, beyond which snapshots are sent.
    pub replay_limit: usize,
    /// Items of one answer to `completions`.
    pub max_completions: usize,
    /// How long files are searched for them.
    pub completion_time: Duration,
}

impl Default for ProtocolSettings {
    fn default() -> Self {
        Self {
            max_message: 48 << 20,
            max_message_before_handshake: 1 << 20,
            max_nesting: 64,
            max_frame_sent: 1 << 20,
            max_message_sent: 48 << 20,
            max_unsent: 8 << 20,
            max_subscriptions: 10_000,
            max_connections: 10_000,
            max_connections_of_one: 1_000,
            max_in_flight: 256,
            max_actions_in_flight: 32,
            max_received: 128 << 10,
            max_messages_a_second: 1_000,
            max_bytes_a_second: 8 << 20,
            handshake_timeout: Duration::from_secs(10),
            ping_after: Duration::from_secs(30),
            pong_timeout: Duration::from_secs(30),
            close_timeout: Duration::from_secs(10),
            replay_limit: 8 << 20,
            max_completions: 50,
            completion_time: Duration::from_millis(200),
        }
    }
}

/// How many requests work on files at a time.
const FILES_AT_ONCE: usize = 8;
/// Bytes from which on a message is read on another thread: a worker serves many sockets.
const LONG: usize = 256 << 10;
/// How many long actions are read at a time.
const LONG_ACTIONS_AT_ONCE: usize = 2;
/// How many search for paths at a time.
const SEARCHES_AT_ONCE: usize = 4;

/// What all connections share.
pub struct App {
    pub host: Arc<Host>,
    pub gate: Gate,
    pub settings: ProtocolSettings,
    pub clients: ClientMemory,
    /// The right to work on files: a few at a time, so that what is read at once stays bounded.
    files: Arc<Semaphore>,
    /// The same for searches, which do not wait behind files.
    searches: Arc<Semaphore>,
    /// The same for reading long actions, of each of which some copies are in memory meanwhile.
    long_actions: Semaphore,
    /// The seats of all connections; live streams of events take theirs here too.
    pub seats: Arc<Seats>,
}

impl App {
    /// The host behind its gate.
    pub fn new(host: Arc<Host>, gate: Gate, settings: ProtocolSettings) -> Self {
        let seats = Seats::new(settings.max_connections, settings.max_connections_of_one);
        let clients = ClientMemory::new(Arc::clone(&host));
        let files = Arc::new(Semaphore::new(FILES_AT_ONCE));
        let searches = Arc::new(Semaphore::new(SEARCHES_AT_ONCE));
        let long_actions = Semaphore::new(LONG_ACTIONS_AT_ONCE);
        Self { host, gate, settings, clients, files, searches, long_actions, seats }
    }
}

/// One web worker: its router starts with its first connection, on its own thread.
struct Worker {
    app: Arc<App>,
    router: OnceCell<Rc<Router>>,
}

impl Worker {
    fn router(&self) -> &Rc<Router> {
        self.router.get_or_init(|| Router::start(self.app.host.hub()))
    }
}

/// Serves AHP at `GET /`, and the page to a browser. To be called once for each worker, on its thread: inside the factory of the server.
pub fn routes(cfg: &mut web::ServiceConfig, app: Arc<App>) {
    let worker = Rc::new(Worker { app, router: OnceCell::new() });
    cfg.app_data(worker).service(web::resource("/").route(web::get().to(root)));
}

/// Whether a request asks for a WebSocket.
pub fn is_upgrade(req: &HttpRequest) -> bool {
    let upgrade = req.headers().get(header::UPGRADE).and_then(|value| value.to_str().ok());
    upgrade.is_some_and(|value| value.to_ascii_lowercase().contains("websocket"))
}

async fn root(req: HttpRequest, payload: web::Payload) -> HttpResponse {
    if is_upgrade(&req) { upgrade(&req, payload).await } else { pages::chat(&req) }
}

/// Answers a request for a WebSocket: for whoever serves something else under the same path.
pub async fn upgrade(req: &HttpRequest, payload: web::Payload) -> HttpResponse {
    match req.app_data::<Rc<Worker>>() {
        Some(worker) => socket::upgrade(worker, req, payload).await,
        None => HttpResponse::InternalServerError().finish(),
    }
}

/// What [`on_connect`] is called with.
type Transport = dyn Any;
