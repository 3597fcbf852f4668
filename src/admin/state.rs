//! `GET /api/state` and `GET /api/diff`: what a channel was right after an event, or is now, and what changed between two; of
//! a chat with its newest `turns` turns, or with all.

use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse};

use super::answer::{Admitted, ApiFault, off_thread};
use super::inspect;
use super::query::Query;

/// Answers `{resource, state, fromSeq}`, an AHP snapshot.
pub async fn state(admitted: Admitted, request: HttpRequest) -> Result<HttpResponse, ApiFault> {
    let query = Query::of(&request, &["channel", "at", "turns"])?;
    let channel = needed("channel", query.text("channel")?)?;
    let (at, turns) = (query.number("at")?, query.number("turns")?.unwrap_or(u64::MAX));
    let (host, who) = (Arc::clone(&admitted.admin.host), Arc::clone(&admitted.who));
    let _ = admitted.admin.host.writer().barrier().await;
    let snapshot = off_thread(move || host.window_at(&who, &channel, at, turns)).await?;
    Ok(HttpResponse::Ok().content_type("application/json").body(snapshot.json()))
}

/// Answers a JSON Patch (RFC 6902) that makes the state right after event `to` of the one right after event `from`.
pub async fn diff(admitted: Admitted, request: HttpRequest) -> Result<HttpResponse, ApiFault> {
    let query = Query::of(&request, &["channel", "from", "to"])?;
    let channel = needed("channel", query.text("channel")?)?;
    let (from, to) = (needed("from", query.number("from")?)?, needed("to", query.number("to")?)?);
    let (host, who) = (Arc::clone(&admitted.admin.host), Arc::clone(&admitted.who));
    let _ = admitted.admin.host.writer().barrier().await;
    let patch = off_thread(move || inspect::diff(|at| host.state_at(&who, &channel, Some(at)), from, to)).await?;
    Ok(HttpResponse::Ok().json(patch))
}

fn needed<T>(name: &str, value: Option<T>) -> Result<T, ApiFault> {
    value.ok_or_else(|| ApiFault::bad_parameter(name, "is needed"))
}
