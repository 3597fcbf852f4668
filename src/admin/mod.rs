//! The HTTP endpoints for those who run a host: health, metrics, the log and the states in it.
//!
//! Reads, but for what removes and brings back. Whatever blocks on the store runs off the web threads, and whatever may be long is streamed in pages.
//! Every endpoint but the two of health is behind the gate. Left out on purpose: the socket and the pages, which are
//! `protocol`'s.
//! Source: the outer contract, endpoints.

mod agents;
mod answer;
mod attachments;
mod backup;
mod configuration;
mod events;
mod health;
pub mod inspect;
mod lineage;
mod live;
mod log;
mod me;
mod overview;
mod query;
mod search;
mod sessions;
mod state;
pub mod users;
mod windows;

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use actix_web::web;
use metrics_exporter_prometheus::PrometheusHandle;

use crate::access::Gate;
use crate::access::seats::Seats;
use crate::actors::host::Host;
use crate::actors::router::Router;
use crate::clock::Millis;
use crate::config::Setting;
use overview::Samples;
pub use overview::{Limits, keep as keep_samples};
use search::Search;

/// What the endpoints share.
pub struct Admin {
    pub host: Arc<Host>,
    pub gate: Gate,
    /// What was counted since the start.
    pub metrics: PrometheusHandle,
    /// Whether `/metrics` needs no token.
    pub metrics_public: bool,
    /// Bytes that may wait for a reader of live events before its stream ends.
    pub unsent_limit: usize,
    /// Bytes of the body of a request.
    pub max_body: usize,
    /// A live stream takes a seat, as a socket does.
    pub seats: Arc<Seats>,
    pub shown: Shown,
}

/// What is kept for the pages alone.
pub struct Shown {
    /// Every key of the configuration, as `serve --print-config` has it.
    pub settings: Vec<Setting>,
    pub limits: Limits,
    pub started_at: Millis,
    samples: Samples,
    search: Search,
}

impl Shown {
    /// Nothing is kept yet: see [`keep_samples`].
    pub fn new(host: &Host, settings: Vec<Setting>, limits: Limits) -> Self {
        let (started_at, search) = (host.clock().now(), Search::new(Arc::clone(host.store())));
        Self { settings, limits, started_at, samples: Samples::default(), search }
    }
}

/// The router of one web worker for live streams. It starts with the first of them, on the worker's own thread.
#[derive(Default)]
struct Worker(OnceCell<Rc<Router>>);

/// Adds the endpoints to a worker's application. To be called once for each worker, on its thread.
pub fn routes(config: &mut web::ServiceConfig, admin: web::Data<Admin>) {
    config
        .app_data(answer::bodies(admin.max_body))
        .app_data(admin)
        .app_data(Rc::new(Worker::default()))
        .route("/healthz", web::get().to(health::alive))
        .route("/readyz", web::get().to(health::ready))
        .route("/metrics", web::get().to(health::metrics))
        .route("/api/host", web::get().to(health::host))
        .route("/api/me", web::get().to(me::me))
        .route("/api/agents", web::get().to(agents::list))
        .route("/api/events", web::get().to(events::events))
        .route("/api/attachments", web::get().to(attachments::download))
        .route("/api/state", web::get().to(state::state))
        .route("/api/diff", web::get().to(state::diff))
        .route("/api/log", web::get().to(log::list))
        .route("/api/log/stats", web::get().to(log::stats))
        .route("/api/log/verify", web::get().to(log::verify))
        .route("/api/log/compact", web::post().to(log::compact))
        .route("/api/log/export", web::get().to(backup::export))
        .route("/api/backup", web::post().to(backup::backup))
        .route("/api/log/erase", web::post().to(log::erase))
        .route("/api/log/restore", web::post().to(log::restore))
        .route("/api/log/window", web::get().to(windows::window))
        .route("/api/log/{seq}", web::get().to(log::show))
        .route("/api/extent", web::get().to(windows::extent))
        .route("/api/around", web::get().to(windows::around))
        .route("/api/overview", web::get().to(overview::show))
        .route("/api/sessions", web::get().to(sessions::list))
        .route("/api/lineage", web::get().to(lineage::show))
        .route("/api/config", web::get().to(configuration::list))
        .route("/api/users", web::get().to(users::list))
        .route("/api/users", web::post().to(users::add))
        .route("/api/users/{name}/grant", web::post().to(users::grant))
        .route("/api/users/{name}/revoke", web::post().to(users::revoke))
        .route("/api/users/{name}/token", web::post().to(users::token))
        .route("/api/users/{name}", web::delete().to(users::remove));
}
