//! `GET /api/state`: what a channel was right after an event, or is now; of a chat with its newest `turns` turns, or with all.

use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse};

use super::answer::{Admitted, ApiFault, off_thread};
use super::query::Query;

/// Answers `{resource, state, fromSeq}`, an AHP snapshot.
pub async fn state(admitted: Admitted, request: HttpRequest) -> Result<HttpResponse, ApiFault> {
    let query = Query::of(&request, &["channel", "at", "turns"])?;
    let channel = query.text("channel")?.ok_or_else(|| ApiFault::bad_parameter("channel", "is needed"))?;
    let (at, turns) = (query.number("at")?, query.number("turns")?.unwrap_or(u64::MAX));
    let (host, who) = (Arc::clone(&admitted.admin.host), Arc::clone(&admitted.who));
    let _ = admitted.admin.host.writer().barrier().await;
    let snapshot = off_thread(move || host.window_at(&who, &channel, at, turns)).await?;
    Ok(HttpResponse::Ok().content_type("application/json").body(snapshot.json()))
}
