//! `scrollback serve`: opens the log, listens, and stops in order.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::{Server, ServerHandle, Service as _};
use actix_web::http::KeepAlive;
use actix_web::{App, HttpServer, web};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, timeout, timeout_at};

use super::args::ServeArgs;
use super::fault::CliFault;
use super::listening::Listening;
use super::out::Out;
use super::tls::{self, Certificate};
use super::{agents, client, logs, open_files, settings};
use crate::access::oidc::{Issuer, OidcSettings};
use crate::access::{Gate, arriving};
use crate::actors::agent::Agent;
use crate::actors::host::{Host, HostSettings};
use crate::admin::{self, Admin, Shown};
use crate::agents::built_in;
use crate::agents::programs::Programs;
use crate::clock::Clock;
use crate::config::{self, Config, Environment, Loaded};
use crate::events::sled_store::SledStore;
use crate::events::{DataDirectory, HostFile, Store};
use crate::pages;
use crate::protocol;
use crate::telemetry::Traces;
use crate::tools::{self, Tools};
use crate::visuals::{self, Visuals};

/// How long the host may take to end its agents and flush its log.
const STOP: Duration = Duration::from_secs(8);
/// How long sockets may take to be told, in seconds; what is left is cut.
const CLOSE_SECONDS: u64 = 1;
/// How long all of that may take. Workers that clients keep busy hear late that they are to stop.
const STOPPED: Duration = Duration::from_secs(9);
/// How often old samples of the metrics are dropped.
const UPKEEP: Duration = Duration::from_secs(5);
/// Web workers; a socket costs little, and each worker is handed every event.
const MAX_WORKERS: usize = 4;

/// Runs the host until it is told to stop.
pub fn run(args: &ServeArgs, environment: &Environment) -> Result<(), CliFault> {
    let file = args.config.as_deref().or_else(|| environment.get("SCROLLBACK_CONFIG").map(Path::new));
    let loaded = config::load(file, environment, &args.flags())?;
    if args.print_config {
        return print_config(&loaded, args.json, environment);
    }
    let token = config::token(&loaded, environment)?;
    refuse_open_address(&loaded, token.is_some())?;
    refuse_unknown_agent(&loaded)?;
    let certificate = Certificate::configured(&loaded.config)?;
    let traces = logs::start(&loaded.config, environment)?;
    let directory = DataDirectory::open_or_create(&loaded.config.data)?;
    let programs = agents::programs(&loaded, environment, Some(directory.path()))?;
    let agents = agents::all(&loaded, environment, &programs, Some(directory.path()));
    let store = Arc::new(SledStore::open(directory.path(), settings::store(&loaded.config))?);
    let served = serve(&loaded, file, token, certificate, &store, directory.path(), agents, &programs);
    let served = actix_web::rt::System::new().block_on(served);
    programs.shut_down();
    // Also where serving failed: what is in the log is closed in order.
    let closed = store.close_clean();
    traces.iter().for_each(Traces::end);
    served?;
    Ok(closed?)
}

fn print_config(loaded: &Loaded, json: bool, environment: &Environment) -> Result<(), CliFault> {
    let mut out = Out::new(json, environment);
    for setting in &loaded.settings {
        if json {
            out.object(setting)?;
        } else {
            out.line(&format!("{:<50} # {}", setting.line(), setting.from))?;
        }
    }
    out.flush()
}

/// An address that others reach needs a token.
fn refuse_open_address(loaded: &Loaded, has_token: bool) -> Result<(), CliFault> {
    let listen = loaded.config.listen;
    if has_token || listen.ip().is_loopback() {
        return Ok(());
    }
    let from = loaded.source_of("listen");
    Err(CliFault::Usage(format!(
        "listen: {listen} ({from}) is reached from elsewhere and there is no token: set --token-file or SCROLLBACK_TOKEN"
    )))
}

/// The agent of sessions that name none has to be there.
fn refuse_unknown_agent(loaded: &Loaded) -> Result<(), CliFault> {
    let Some(name) = loaded.config.default_agent.as_deref() else { return Ok(()) };
    let configured = loaded.agents.iter().map(|agent| agent.name.clone());
    let there: Vec<String> = std::iter::once(built_in().provider().to_owned()).chain(configured).collect();
    if there.iter().any(|there| there == name) {
        return Ok(());
    }
    let from = loaded.source_of("default_agent");
    let there = there.join(", ");
    Err(CliFault::Usage(format!("default_agent: {name} ({from}) is no agent of this host: it has {there}")))
}

#[allow(clippy::too_many_arguments)]
async fn serve(
    loaded: &Loaded,
    file: Option<&Path>,
    token: Option<String>,
    certificate: Option<Arc<Certificate>>,
    store: &Arc<SledStore>,
    directory: &Path,
    agents: Vec<Arc<dyn Agent>>,
    programs: &Programs,
) -> Result<(), CliFault> {
    let config = &loaded.config;
    let listening = Listening::at(config.listen, certificate)?;
    let metrics = install_metrics()?;
    let store: Arc<dyn Store> = Arc::<SledStore>::clone(store);
    let (address_url, inner_url) = (listening.url(), listening.inner_url());
    let mut settings = HostSettings { address_url, inner_url, ..settings::host(config) };
    settings.secret_files.extend(file.map(Path::to_owned));
    let left_behind = programs.end_left_behind().await;
    if left_behind > 0 {
        tracing::warn!(programs = left_behind, "ended programs that an earlier run of this host left behind");
    }
    let host = Host::start(settings, store, agents, Clock::system())?;
    host.probe_agents();
    let interrupted = host.recover().await?;
    if interrupted > 0 {
        tracing::info!(turns = interrupted, "took up or ended turns that were interrupted");
    }
    let served = serve_host(loaded, token, &host, listening, metrics, directory).await;
    let latest = Instant::now() + STOPPED;
    programs.end();
    if timeout(STOP, host.stop()).await.is_err() {
        tracing::warn!("the chats did not end in time");
    }
    if timeout_at(latest, programs.ended()).await.is_err() {
        tracing::warn!(programs = programs.alive(), "programs of agents did not end in time");
    }
    let server = served?;
    if timeout_at(latest, server.stop(true)).await.is_err() {
        tracing::warn!("sockets were cut");
    }
    tracing::info!("stopped");
    Ok(())
}

/// Serves `host` until a signal comes; returns the server, which accepts nothing more and still has its connections.
async fn serve_host(
    loaded: &Loaded,
    token: Option<String>,
    host: &Arc<Host>,
    listening: Listening,
    metrics: PrometheusHandle,
    directory: &Path,
) -> Result<ServerHandle, CliFault> {
    let config = &loaded.config;
    let mut signals = Signals::listen()?;
    open_files::raise_limit(config.max_connections);
    let issuer = issuer(config, host.clock())?;
    let (bind, inner) = (listening.bind, listening.inner_bind());
    let file = HostFile { pid: std::process::id(), address: inner.to_string(), secret: secret() };
    let gate = Gate {
        token,
        host_secret: Some(file.secret.clone()),
        host_name: config.host_name.clone(),
        allowed_origins: config.allowed_origins.clone(),
        inner: Some(inner).filter(|inner| *inner != bind),
        public_origin: settings::public_origin(config),
        people: Arc::clone(host.people_in_force()),
        issuer,
        clock: host.clock().clone(),
        ..Gate::at(bind)
    };
    let app = protocol::App::new(Arc::clone(host), gate.clone(), settings::protocol(config));
    let visuals = Visuals { host: Arc::clone(host), gate: gate.clone() };
    let tools = Tools { host: Arc::clone(host), gate: gate.clone() };
    let admin = Admin {
        host: Arc::clone(host),
        gate,
        metrics,
        metrics_public: config.metrics_public,
        unsent_limit: config.max_unsent,
        max_body: config.max_request_body,
        seats: Arc::clone(&app.seats),
        shown: Shown::new(host, loaded.settings.clone(), settings::limits(config)),
    };
    let admin = web::Data::new(admin);
    actix_web::rt::spawn(admin::keep_samples(admin.clone()));
    if let Some(tls) = &listening.tls {
        let certificate = Arc::clone(&tls.certificate);
        tracing::info!(%inner, "connections are secured");
        actix_web::rt::spawn(tls::keep_fresh(
            certificate,
            config.tls_reload_interval,
            signal_of(SignalKind::hangup())?,
        ));
    }
    let is_secured = listening.tls.is_some();
    let server = server(config, app, admin, visuals, tools, listening)
        .map_err(|error| CliFault::Failed(format!("{bind}: {error}")))?;
    let handle = server.handle();
    actix_web::rt::spawn(server);
    file.write(directory)?;
    let pages = config.public_url.clone().unwrap_or_else(|| {
        let scheme = if is_secured { "https" } else { "http" };
        format!("{scheme}://{}/", client::reachable(&bind.to_string()))
    });
    tracing::info!(address = %bind, data = %directory.display(), pages, "serving");
    say_ready(bind.port());
    signals.wait().await;
    tracing::info!("stopping");
    handle.pause().await;
    HostFile::remove(directory)?;
    Ok(handle)
}

/// Whose tokens are taken beside the host's own.
fn issuer(config: &Config, clock: &Clock) -> Result<Option<Issuer>, CliFault> {
    let Some(settings) = OidcSettings::of(config) else { return Ok(None) };
    let issuer = Issuer::new(settings, clock.clone());
    issuer.map(Some).map_err(|fault| CliFault::Usage(fault.to_string()))
}

fn server(
    config: &Config,
    app: protocol::App,
    admin: web::Data<Admin>,
    visuals: Visuals,
    tools: Tools,
    listening: Listening,
) -> std::io::Result<Server> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let app = Arc::new(app);
    let (visuals, tools) = (web::Data::new(visuals), web::Data::new(tools));
    let (head_time, body_time) = (config.handshake_timeout, config.request_body_timeout);
    let max_connections = config.max_connections.saturating_add(1_000);
    let server = HttpServer::new(move || {
        let (app, admin) = (Arc::clone(&app), admin.clone());
        let (visuals, tools) = (visuals.clone(), tools.clone());
        App::new()
            .configure(move |cfg| admin::routes(cfg, admin))
            .configure(move |cfg| visuals::routes(cfg, visuals))
            .configure(move |cfg| tools::routes(cfg, tools))
            .configure(pages::routes)
            .configure(move |cfg| protocol::routes(cfg, app))
            .wrap_fn(move |mut request, next| {
                arriving::expect_body(&mut request, body_time);
                next.call(request)
            })
    })
    .on_connect(move |transport, extensions| {
        protocol::on_connect(transport, extensions);
        arriving::expect_head(extensions, head_time);
    })
    .workers(cores.min(MAX_WORKERS))
    .client_request_timeout(head_time)
    // The server times the first head of a connection alone, so that is its only one.
    .keep_alive(KeepAlive::Disabled)
    .tls_handshake_timeout(head_time)
    .max_connections(max_connections)
    // Handshakes that are not done yet are counted by themselves; a few that dawdle must not keep others out.
    .max_connection_rate(max_connections)
    .disable_signals()
    .shutdown_timeout(CLOSE_SECONDS);
    let server = match listening.tls {
        None => server.listen(listening.listener)?,
        Some(tls) => {
            let secured = tls.certificate.server_config().map_err(std::io::Error::other)?;
            server.listen_rustls_0_23(listening.listener, secured)?.listen(tls.inner)?
        }
    };
    Ok(server.run())
}

fn install_metrics() -> Result<PrometheusHandle, CliFault> {
    let metrics = PrometheusBuilder::new().install_recorder();
    let metrics = metrics.map_err(|error| CliFault::Failed(format!("metrics: {error}")))?;
    let upkeep = metrics.clone();
    actix_web::rt::spawn(async move {
        let mut often = tokio::time::interval(UPKEEP);
        loop {
            often.tick().await;
            upkeep.run_upkeep();
        }
    });
    Ok(metrics)
}

/// 160 random bits: the parts of two ULIDs that are random.
fn secret() -> String {
    format!("{:020x}{:020x}", ulid::Ulid::new().random(), ulid::Ulid::new().random())
}

fn say_ready(port: u16) {
    use std::io::Write as _;

    let mut stdout = std::io::stdout().lock();
    // Nobody waits for the line where stdout is closed.
    let _ = writeln!(stdout, "READY:{port}").and_then(|()| stdout.flush());
}

fn signal_of(kind: SignalKind) -> Result<Signal, CliFault> {
    signal(kind).map_err(|error| CliFault::Failed(format!("signals: {error}")))
}

/// The signals that end a host.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> Result<Self, CliFault> {
        let (terminate, interrupt) = (signal_of(SignalKind::terminate())?, signal_of(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
