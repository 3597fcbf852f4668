//! A host on its own thread and port, over any store.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use actix_web::web::Data;
use actix_web::{App as WebApp, HttpServer};
use metrics_exporter_prometheus::PrometheusBuilder;
use scrollback::access::Gate;
use scrollback::access::Identity;
use scrollback::access::oidc::Issuer;
use scrollback::actors::agent::Agent;
use scrollback::actors::host::{Host, HostSettings};
use scrollback::actors::people::{PeopleChange, Told};
use scrollback::admin::{self, Admin, Limits, Shown};
use scrollback::agents;
use scrollback::clock::Clock;
use scrollback::events::memory::MemoryStore;
use scrollback::events::sled_store::{SledOptions, SledStore};
use scrollback::events::{ChannelId, Kind, Record, ServerSeq, Store};
use scrollback::projections::people::Role;
use scrollback::projections::root::RootFold;
use scrollback::projections::{catalogue, replay};
use scrollback::protocol::{App, ProtocolSettings, on_connect, routes};
use scrollback::tools::{self, Tools};
use scrollback::visuals::{self, Visuals};

use serde_json::Value;

use super::Client;

/// How a host is started.
pub struct Options {
    pub settings: HostSettings,
    pub protocol: ProtocolSettings,
    pub agents: Vec<Arc<dyn Agent>>,
    pub clock: Clock,
    pub token: Option<String>,
    /// Whose tokens are taken beside the host's own.
    pub issuer: Option<Issuer>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            settings: HostSettings::default(),
            protocol: ProtocolSettings::default(),
            agents: vec![agents::built_in()],
            clock: Clock::system(),
            token: None,
            issuer: None,
        }
    }
}

/// A running host. It stops in order when it is dropped.
pub struct TestHost {
    pub address: SocketAddr,
    pub host: Arc<Host>,
    store: Arc<dyn Store>,
    /// How many others held the store when the host began.
    others: usize,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
    /// For attachments, where the host was told no data directory.
    _data: Option<tempfile::TempDir>,
}

impl TestHost {
    /// A host over a store in memory.
    pub fn in_memory() -> Self {
        Self::start(Arc::new(MemoryStore::new().unwrap()), Options::default())
    }

    /// A host over the data in `directory`, which is made where it is not there.
    pub fn on_disk(directory: &Path) -> Self {
        Self::on_disk_with(directory, Options::default())
    }

    /// A host over `store`. Interrupted turns have their endings when this returns.
    pub fn start(store: Arc<dyn Store>, mut options: Options) -> Self {
        super::metrics::count();
        let data = options.settings.data_directory.is_none().then(|| tempfile::tempdir().unwrap());
        if let Some(directory) = &data {
            options.settings.data_directory = Some(directory.path().canonicalize().unwrap());
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (kept, others) = (Arc::clone(&store), Arc::strong_count(&store) - 1);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (started, wait) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            actix_web::rt::System::new().block_on(async move {
                let url = format!("http://{address}");
                let settings = HostSettings { address_url: url.clone(), inner_url: url, ..options.settings };
                let host = Host::start(settings, store, options.agents, options.clock).unwrap();
                host.recover().await.unwrap();
                let gate = Gate {
                    token: options.token,
                    host_name: "test".into(),
                    people: Arc::clone(host.people_in_force()),
                    issuer: options.issuer,
                    clock: host.clock().clone(),
                    ..Gate::at(address)
                };
                let unsent_limit = options.protocol.max_unsent;
                let app = Arc::new(App::new(Arc::clone(&host), gate.clone(), options.protocol));
                let admin = Data::new(Admin {
                    host: Arc::clone(&host),
                    gate: gate.clone(),
                    metrics: PrometheusBuilder::new().build_recorder().handle(),
                    metrics_public: false,
                    unsent_limit,
                    max_body: 1 << 20,
                    seats: Arc::clone(&app.seats),
                    shown: Shown::new(&host, Vec::new(), Limits::default()),
                });
                let visuals = Data::new(Visuals { host: Arc::clone(&host), gate: gate.clone() });
                let tools = Data::new(Tools { host: Arc::clone(&host), gate });
                let factory = move || {
                    let (app, visuals, tools) = (Arc::clone(&app), visuals.clone(), tools.clone());
                    let admin = admin.clone();
                    let app_of_tools = WebApp::new().configure(|cfg| tools::routes(cfg, tools));
                    let app_of_tools = app_of_tools.configure(|cfg| admin::routes(cfg, admin));
                    app_of_tools.configure(|cfg| visuals::routes(cfg, visuals)).configure(|cfg| routes(cfg, app))
                };
                let server = HttpServer::new(factory).workers(2).disable_signals().on_connect(on_connect);
                let server = server.shutdown_timeout(1).listen(listener).unwrap().run();
                let handle = server.handle();
                actix_web::rt::spawn(server);
                started.send(Arc::clone(&host)).unwrap();
                let _ = stopped.await;
                host.stop().await;
                handle.stop(true).await;
            });
        });
        let host = wait.recv_timeout(super::PATIENCE).unwrap();
        Self { address, host, store: kept, others, stop: Some(stop), thread: Some(thread), _data: data }
    }

    /// Changes the people in the deployment's name.
    pub async fn change_people(&self, change: PeopleChange) -> Told {
        let root = Identity::root("test");
        let changing = self.host.change_people(&root, change);
        tokio::time::timeout(super::PATIENCE, changing)
            .await
            .expect("a change in time")
            .expect("the change was refused")
    }

    /// A new person; returns the token.
    pub async fn add_person(&self, name: &str, roles: &[Role], grants: &[&str]) -> String {
        let grants = grants.iter().map(|grant| grant.parse().unwrap()).collect();
        let change = PeopleChange::Add { name: name.into(), roles: roles.to_vec(), grants, expires: None };
        self.change_people(change).await.token.unwrap()
    }

    /// A client of somebody with this token, after its handshake.
    pub async fn client_of(&self, id: &str, token: &str) -> Client {
        let mut client = Client::connect_with(self.address, token).await.expect("the token was refused");
        client.initialize(id, &[]).await;
        client
    }

    /// The newest number, once the root has said how many sessions there are: that follows a new session in a batch of its own.
    pub async fn quiet_tail(&self) -> ServerSeq {
        let store = self.host.store();
        super::eventually("the root counts the sessions", || {
            let root = replay::fold::<RootFold>(store.as_ref(), ChannelId::ROOT, ServerSeq::MAX, true).unwrap();
            let counted = root.and_then(|at| at.fold.state.active_sessions).unwrap_or(0);
            counted == i64::try_from(catalogue::count(store.as_ref()).unwrap()).unwrap()
        })
        .await;
        store.tail()
    }

    /// A client that has shaken hands as `id`, subscribed to the root.
    pub async fn client(&self, id: &str) -> Client {
        let mut client = Client::connect(self.address).await;
        client.initialize(id, &["ahp-root://"]).await;
        client
    }

    /// Stops the host in order, and shows all actions of its log.
    pub fn stop_and_scan(mut self, look: impl FnOnce(&[Value])) {
        let store = Arc::clone(self.host.store());
        self.end();
        let mut actions = Vec::new();
        let mut visit = |record: Record| {
            if record.kind == Kind::Action {
                actions.push(serde_json::from_slice(&record.action).unwrap());
            }
            ControlFlow::Continue(())
        };
        store.scan(0, ServerSeq::MAX, &mut visit).unwrap();
        look(&actions);
    }

    /// The whole log.
    pub fn records(&self) -> Vec<Record> {
        let mut log = Vec::new();
        let mut visit = |record: Record| {
            log.push(record);
            ControlFlow::Continue(())
        };
        self.host.store().scan(0, ServerSeq::MAX, &mut visit).unwrap();
        log
    }

    /// The whole log: the number and the bytes of each event.
    pub fn log(&self) -> Vec<(ServerSeq, Vec<u8>)> {
        self.records().into_iter().map(|record| (record.seq, record.action.to_vec())).collect()
    }

    /// The bounds of the batch that the event with this number is in.
    pub fn batch_of(&self, seq: u64) -> (u64, u64) {
        let mut found = (0, 0);
        let mut visit = |record: Record| {
            found = record.batch;
            ControlFlow::Break(())
        };
        self.host.store().scan(seq - 1, seq, &mut visit).unwrap();
        found
    }

    /// Stops the host in order. When this returns nothing of it holds its store any more.
    pub fn stop(mut self) {
        self.end();
        let (store, others) = (Arc::clone(&self.store), self.others);
        drop(self);
        let started = Instant::now();
        while Arc::strong_count(&store) > 1 + others {
            assert!(started.elapsed() < super::PATIENCE, "a stopped host still holds its store");
            std::thread::yield_now();
        }
    }

    /// Lets go of the host without waiting for it: it ends on a thread of its own, whatever it still wants to write.
    pub fn abandon(self) {
        std::thread::spawn(move || drop(self));
    }

    fn end(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for TestHost {
    fn drop(&mut self) {
        self.end();
    }
}

/// The store in `directory`. A host that was stopped a moment ago may not have let go of it yet.
pub fn opened(directory: &Path) -> SledStore {
    let since = Instant::now();
    loop {
        match SledStore::open(directory, SledOptions::default()) {
            Err(fault) if fault.to_string().contains("acquire lock") && since.elapsed() < super::PATIENCE => {
                std::thread::yield_now();
            }
            opened => return opened.unwrap(),
        }
    }
}
