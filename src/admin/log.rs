//! `GET /api/log…`: the log as admins read it, with the records that clients never see.

use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;

use super::answer::{Admitted, ApiFault, off_thread};
use super::inspect::{self, EventFilter, EventLine, LogStats, RawFilter, Reader, Reading, Scope};
use super::query::Query;
use super::{events, live};
use crate::access::check;
use crate::actors::command::Refusal;
use crate::events::{Channel, Record, Store};
use crate::projections::people::Operation;

const FILTERS: [&str; 9] = ["channel", "type", "after", "before", "since", "by", "privileged", "limit", "follow"];

/// `GET /api/log`: events as JSON lines; with `follow=true` the later ones too, as they come.
pub async fn list(admitted: Admitted, request: HttpRequest) -> Result<HttpResponse, ApiFault> {
    let query = Query::of(&request, &FILTERS)?;
    let filter = EventFilter::parse(raw_filter(&query)?, admitted.admin.host.clock().now())?;
    let scope = scope(&admitted, query.text("channel")?).await?;
    let reading = Reading::new(scope, filter, log_reader(&admitted));
    if query.flag("follow")? {
        return live::follow(admitted, reading, lines);
    }
    Ok(events::streamed(&admitted.admin, reading, lines))
}

/// The channel that `uri` names, or the whole log, where whoever asks may read that.
///
/// # Errors
/// 404 for a channel that is not there for them, 403 for the whole log.
pub async fn scope(admitted: &Admitted, uri: Option<String>) -> Result<Scope, ApiFault> {
    match uri {
        Some(uri) => Ok(Scope::Channels(vec![events::channel_of_log(admitted, uri).await?.1])),
        None if admitted.admin.host.may(&admitted.who, Operation::LogRead, None) => Ok(Scope::All),
        None => Err(check::refused("/api/log: needs log:read of all sessions, or a channel".into()).into()),
    }
}

/// What somebody who may not read all of the log is shown of it, asked again for each page.
pub fn log_reader(admitted: &Admitted) -> Option<Reader> {
    let (host, who) = (Arc::clone(&admitted.admin.host), Arc::clone(&admitted.who));
    let reads = move |channel: &Channel| host.may_read_log_of(&who, channel.as_str());
    (!admitted.who.is_root()).then(|| Arc::new(reads) as Reader)
}

/// `GET /api/log/{seq}`: one event, whole.
pub async fn show(admitted: Admitted, seq: web::Path<String>) -> Result<HttpResponse, ApiFault> {
    let number = seq.parse().map_err(|_| ApiFault::bad_parameter("seq", format!("\"{seq}\" is not a number")))?;
    let store = Arc::clone(admitted.admin.host.store());
    let found = off_thread(move || inspect::event_at(&*store, number)).await?;
    let record = found.filter(|record| log_reader(&admitted).is_none_or(|reads| reads(&record.channel)));
    let record = record.ok_or_else(|| ApiFault::not_found("unknown-event", format!("there is no event {number}")))?;
    Ok(HttpResponse::Ok().json(EventLine::from(&record)))
}

/// `GET /api/log/stats`.
pub async fn stats(admitted: Admitted) -> Result<HttpResponse, ApiFault> {
    let store = Arc::clone(admitted.admin.host.store());
    Ok(HttpResponse::Ok().json(off_thread(move || LogStats::of(&*store)).await?))
}

/// `GET /api/log/verify`: 200 whatever it finds; `ok` says it.
pub async fn verify(admitted: Admitted) -> Result<HttpResponse, ApiFault> {
    let store = Arc::clone(admitted.admin.host.store());
    let verdict = off_thread(move || Ok::<_, ApiFault>(inspect::verify(&*store, &mut |_| ()))).await?;
    Ok(HttpResponse::Ok().json(verdict))
}

fn raw_filter(query: &Query) -> Result<RawFilter, ApiFault> {
    Ok(RawFilter {
        kind: query.text("type")?,
        after: query.number("after")?,
        before: query.number("before")?,
        since: query.text("since")?,
        by: query.text("by")?,
        privileged: query.flag("privileged")?,
        limit: query.number("limit")?,
    })
}

/// Events as JSON lines.
pub fn lines(_store: &dyn Store, records: &[Record]) -> Bytes {
    let mut text = String::new();
    for record in records {
        text.push_str(&EventLine::from(record).json());
        text.push('\n');
    }
    Bytes::from(text)
}

/// What is to be erased or restored.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    uri: String,
}

/// `POST /api/log/erase` with `{"uri"}`: removes a session's or a chat's events for good.
pub async fn erase(admitted: Admitted, named: web::Json<Named>) -> Result<HttpResponse, ApiFault> {
    let erased = admitted.admin.host.erase(&admitted.who.principal, &named.uri).await.map_err(as_it_is)?;
    Ok(HttpResponse::Ok().json(erased))
}

/// `POST /api/log/restore` with `{"uri"}`: brings a disposed session or a closed chat back.
pub async fn restore(admitted: Admitted, named: web::Json<Named>) -> Result<HttpResponse, ApiFault> {
    admitted.admin.host.restore(&admitted.who.principal, &named.uri).await.map_err(as_it_is)?;
    Ok(HttpResponse::Ok().json(json!({ "uri": named.uri })))
}

/// What is asked is well said, and cannot be done as things are.
fn as_it_is(refusal: Refusal) -> ApiFault {
    let fault = ApiFault::from(refusal);
    match fault.status {
        StatusCode::BAD_REQUEST => ApiFault { status: StatusCode::CONFLICT, ..fault },
        _ => fault,
    }
}
