//! `GET /api/overview`: what runs now, what it did lately, and what is about to go wrong.

mod counted;
mod samples;
mod warnings;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;

use super::Admin;
use super::answer::{Admitted, ApiFault, off_thread};
use super::query::Query;
use crate::actors::host::Host;
use crate::actors::identity::Identity;
use crate::clock::{self, Millis};
use crate::events::rows::{channel_key, number_of_key};
use crate::events::{ChannelId, Table};
use crate::projections::people::Operation;
use crate::projections::{FoldFault, catalogue};
use counted::Counted;
pub use samples::{EVERY, Sample, Samples};
pub use warnings::Limits;
use warnings::Warning;

/// Sessions, chats and people that are named, at most.
const NAMED: usize = 50;
/// Samples of one answer, at most, and how far back they go where nothing is said.
const SAMPLES: usize = 360;
const USUAL: Duration = Duration::from_secs(3_600);

/// The answer.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Overview {
    version: &'static str,
    host: String,
    at: String,
    started_at: String,
    /// Why the log takes no events; left out where it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    now: Now,
    /// Who is connected, with how many sockets and streams; the one with most first.
    connected: Vec<Connected>,
    awake: Vec<Named>,
    running: Vec<Named>,
    /// Limits that were met since the start, and how often.
    limits_met: Vec<Met>,
    warnings: Vec<Warning>,
    /// Milliseconds that samples are apart, and the samples.
    every: u64,
    samples: Vec<Sample>,
}

/// What there is now.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Now {
    connections: usize,
    subscriptions: usize,
    requests: usize,
    sessions: u64,
    sessions_awake: usize,
    /// Sessions and chats in memory.
    actors: usize,
    /// Chats with a turn or background work.
    running: usize,
    processes: u64,
    newest_seq: u64,
    disk_bytes: u64,
    /// Bytes free on the disk; left out for a host without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    free_bytes: Option<u64>,
    events: u64,
    commits: u64,
    commits_failed: u64,
    replays: u64,
    snapshots: u64,
}

#[derive(Serialize)]
struct Connected {
    principal: Arc<str>,
    connections: usize,
}

/// A session or a chat; without a name for somebody who may not see it.
#[derive(Serialize)]
struct Named {
    session: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    chat: Option<String>,
    title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    activity: Option<String>,
}

#[derive(Serialize)]
struct Met {
    limit: String,
    times: u64,
}

/// Takes samples of what is counted, for as long as the host runs.
pub async fn keep(admin: web::Data<Admin>) {
    let clock = admin.host.clock().clone();
    loop {
        admin.shown.samples.take(clock.now(), &Counted::of(&admin.metrics.render()));
        clock.wait(EVERY).await;
    }
}

/// The overview, with the samples of the last hour or of the time that `since` names.
pub async fn show(admitted: Admitted, request: HttpRequest) -> Result<HttpResponse, ApiFault> {
    let query = Query::of(&request, &["since"])?;
    let now = admitted.admin.host.clock().now();
    let usual = now.saturating_sub(Millis::try_from(USUAL.as_millis()).unwrap_or(Millis::MAX));
    let since = query.one("since")?.map(|text| super::inspect::time("since", text, now)).transpose()?.unwrap_or(usual);
    let (admin, who) = (admitted.admin.clone(), Arc::clone(&admitted.who));
    let overview = off_thread(move || overview(&admin, &who, now, since));
    Ok(HttpResponse::Ok().json(overview.await?))
}

fn overview(admin: &Admin, who: &Identity, now: Millis, since: Millis) -> Result<Overview, FoldFault> {
    let host = &*admin.host;
    let counted = Counted::of(&admin.metrics.render());
    let (awake, running) = (host.awake_sessions(), running(host)?);
    let mut connected: Vec<Connected> = admin.seats.by_principal().into_iter().map(Connected::of).collect();
    connected.sort_by(|a, b| b.connections.cmp(&a.connections).then_with(|| a.principal.cmp(&b.principal)));
    let now_is = now_of(host, &counted, &connected, awake.len(), running.len())?;
    let problem = host.store().accepts_appends().err().map(|fault| fault.to_string());
    let warnings = admin.shown.limits.warnings(&now_is, &connected, problem.as_deref(), &counted);
    connected.truncate(NAMED);
    let met = counted.by_label("scrollback_limit_met_total");
    Ok(Overview {
        version: env!("CARGO_PKG_VERSION"),
        host: admin.gate.host_name.clone(),
        at: clock::rfc3339(now),
        started_at: clock::rfc3339(admin.shown.started_at),
        problem,
        now: now_is,
        connected,
        awake: named(host, who, awake.into_iter().map(|session| (session, None)))?,
        running: named(host, who, running.into_iter().map(|(session, chat)| (session, Some(chat))))?,
        limits_met: met.map(|(limit, times)| Met { limit: limit.to_owned(), times: times as u64 }).collect(),
        warnings,
        every: u64::try_from(EVERY.as_millis()).unwrap_or(0),
        samples: admin.shown.samples.after(since, SAMPLES),
    })
}

impl Connected {
    fn of((principal, connections): (Arc<str>, usize)) -> Self {
        Self { principal, connections }
    }
}

fn now_of(
    host: &Host,
    counted: &Counted,
    connected: &[Connected],
    sessions_awake: usize,
    running: usize,
) -> Result<Now, FoldFault> {
    let (store, counts) = (host.store(), host.hub().counts());
    let total = |name: &str| counted.get(name) as u64;
    Ok(Now {
        connections: connected.iter().map(|one| one.connections).sum(),
        subscriptions: counts.subscriptions(),
        requests: counts.requests(),
        sessions: catalogue::count(&**store)?,
        sessions_awake,
        actors: host.actors(),
        running,
        processes: host.processes(),
        newest_seq: store.tail(),
        disk_bytes: store.disk_bytes(),
        free_bytes: host.free_bytes(),
        events: total("scrollback_events_total"),
        commits: total("scrollback_commits_total"),
        commits_failed: total("scrollback_commits_failed_total"),
        replays: total("scrollback_reconnects_total{answer=\"replay\"}"),
        snapshots: total("scrollback_reconnects_total{answer=\"snapshot\"}"),
    })
}

/// The chats in which something runs, with their sessions.
fn running(host: &Host) -> Result<Vec<(ChannelId, ChannelId)>, FoldFault> {
    let store = &**host.store();
    let mut chats = Vec::new();
    store.scan_rows(Table::Running, &[], None, &mut |key, _| {
        chats.extend(number_of_key(key).map(ChannelId));
        ControlFlow::Continue(())
    })?;
    let mut running = Vec::with_capacity(chats.len());
    for chat in chats {
        let Some(uri) = catalogue::uri(store, chat)? else { continue };
        let row = catalogue::channel(store, uri.as_str())?;
        running.extend(row.map(|row| (ChannelId(row.session), chat)));
    }
    Ok(running)
}

/// The first of these sessions, or of these chats in them, that `who` may see in the list.
fn named(
    host: &Host,
    who: &Identity,
    which: impl Iterator<Item = (ChannelId, Option<ChannelId>)>,
) -> Result<Vec<Named>, FoldFault> {
    let store = &**host.store();
    let mut named = Vec::new();
    for (session, chat) in which.take(NAMED) {
        let Some(row) = catalogue::entry(store, session)? else { continue };
        let summary = row.summary;
        if !host.may_in(who, Operation::SessionList, &summary.resource) {
            continue;
        }
        let chat = chat.map(|chat| store.get(Table::ChannelById, &channel_key(chat))).transpose()?.flatten();
        let chat = chat.and_then(|uri| String::from_utf8(uri).ok());
        let own = summary.chats.iter().flatten().find(|one| Some(&one.resource) == chat.as_ref());
        let title = own.map(|chat| chat.title.clone()).filter(|title| !title.is_empty());
        let title = title.unwrap_or_else(|| summary.title.clone());
        named.push(Named { session: summary.resource, chat, title, activity: summary.activity });
    }
    Ok(named)
}
