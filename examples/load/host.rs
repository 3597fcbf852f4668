//! The whole host in this process: store, actors, sockets and pages on their own threads, on a port of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use actix_web::{App as WebApp, HttpServer, web};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use scrollback::access::Gate;
use scrollback::actors::agent::Agent;
use scrollback::actors::host::{Host, HostSettings};
use scrollback::admin::{self, Admin, Limits, Shown};
use scrollback::agents;
use scrollback::clock::Clock;
use scrollback::events::Store;
use scrollback::protocol::{App, ProtocolSettings, on_connect, routes};

use crate::agent::LoadAgent;
use crate::support;

/// Web workers, as many as the binary takes on two cores.
pub const WORKERS: usize = 2;

/// A running host. It stops in order when it is dropped.
pub struct Running {
    pub address: SocketAddr,
    pub host: Arc<Host>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Settings for a load: no joining of text, no pings, no pace, room for one person's thousand sockets.
pub fn settings() -> (HostSettings, ProtocolSettings) {
    let host = HostSettings { delta_window: Duration::ZERO, ..HostSettings::default() };
    let long = Duration::from_secs(3_600);
    let protocol = ProtocolSettings {
        ping_after: long,
        max_connections_of_one: 10_000,
        max_messages_a_second: 1_000_000,
        max_bytes_a_second: 1 << 40,
        ..ProtocolSettings::default()
    };
    (host, protocol)
}

impl Running {
    /// A host over the data in `directory`.
    pub fn on(directory: &Path) -> Self {
        Self::over(Arc::new(support::store(directory)), settings())
    }

    /// A host over `store`. It listens when this returns.
    pub fn over(store: Arc<dyn Store>, settings: (HostSettings, ProtocolSettings)) -> Self {
        Self::with(store, settings, Vec::new())
    }

    /// The same, with agents beside the demo and the one of loads.
    pub fn with(
        store: Arc<dyn Store>,
        (settings, protocol): (HostSettings, ProtocolSettings),
        more: Vec<Arc<dyn Agent>>,
    ) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (started, wait) = mpsc::channel();
        let serve = async move {
            let mut agents: Vec<Arc<dyn Agent>> = vec![agents::built_in(), Arc::new(LoadAgent)];
            agents.extend(more);
            let host = Host::start(settings, store, agents, Clock::system()).expect("the host starts");
            host.recover().await.expect("recovered");
            let gate = gate(address);
            let app = Arc::new(App::new(Arc::clone(&host), gate.clone(), protocol));
            let metrics = metrics();
            let shared = Arc::clone(&host);
            let seats = Arc::clone(&app.seats);
            let (unsent_limit, max_body) = (8 << 20, 1 << 20);
            let shown = Shown::new(&host, Vec::new(), Limits::default());
            let admin =
                Admin { host: shared, gate, metrics, metrics_public: true, unsent_limit, max_body, seats, shown };
            let admin = web::Data::new(admin);
            let factory = move || {
                let (app, admin) = (Arc::clone(&app), admin.clone());
                WebApp::new().configure(|cfg| admin::routes(cfg, admin)).configure(|cfg| routes(cfg, app))
            };
            let server = HttpServer::new(factory).workers(WORKERS).disable_signals().on_connect(on_connect);
            let server = server.shutdown_timeout(1).listen(listener).expect("listening").run();
            let handle = server.handle();
            actix_rt::spawn(server);
            started.send(Arc::clone(&host)).expect("somebody waits");
            let _ = stopped.await;
            host.stop().await;
            handle.stop(true).await;
        };
        let thread = std::thread::spawn(move || actix_rt::System::new().block_on(serve));
        let host = wait.recv().expect("the host starts");
        Self { address, host, stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn gate(bind: SocketAddr) -> Gate {
    Gate { host_name: "load".into(), ..Gate::at(bind) }
}

/// What the binary counts is counted here too.
fn metrics() -> PrometheusHandle {
    static METRICS: OnceLock<PrometheusHandle> = OnceLock::new();
    METRICS.get_or_init(|| PrometheusBuilder::new().install_recorder().expect("a recorder")).clone()
}
