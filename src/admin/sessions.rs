//! `GET /api/sessions`: the sessions, newest first, searched by title, URI and people.

use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse};
use ahp_types::state::SessionSummary;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;

use super::answer::{Admitted, ApiFault, off_thread};
use super::query::Query;
use super::search::Terms;
use crate::projections::catalogue;
use crate::projections::people::Operation;

/// Sessions in one answer.
const LIMIT: u64 = 200;
const USUAL: u64 = 50;

/// The answer.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    sessions: Vec<Listed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
    /// The event up to which it is known who did something in a session, and the newest one.
    people_up_to: u64,
    newest: u64,
}

/// A session: its summary, and what the summary does not say.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    #[serde(flatten)]
    summary: SessionSummary,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    disposed: bool,
    people: Vec<Arc<str>>,
}

/// Those of `search` (all words are to be found), at most `limit`, from `cursor` on; with `disposed=true` those that were
/// disposed too, for who reads their log.
pub async fn list(admitted: Admitted, request: HttpRequest) -> Result<HttpResponse, ApiFault> {
    let query = Query::of(&request, &["search", "limit", "cursor", "disposed"])?;
    let terms = Terms::of(query.one("search")?.unwrap_or_default());
    let limit = query.number("limit")?.unwrap_or(USUAL).clamp(1, LIMIT);
    let limit = usize::try_from(limit).unwrap_or(1);
    let bad = || ApiFault::bad_parameter("cursor", "not one of this list");
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).ok().filter(|key| key.len() == 16).ok_or_else(bad);
    let cursor = query.one("cursor")?.map(decode).transpose()?;
    let disposed = query.flag("disposed")?;
    let (admin, who) = (admitted.admin.clone(), Arc::clone(&admitted.who));
    let _ = admitted.admin.host.writer().barrier().await;
    let page = off_thread(move || {
        let (host, search) = (&admin.host, &admin.shown.search);
        let sees = |uri: &str, is_disposed: bool| {
            let needs = if is_disposed { Operation::LogRead } else { Operation::SessionList };
            host.may_in(&who, needs, uri)
        };
        let found = search.find(&terms, cursor.as_deref(), limit, disposed, sees)?;
        let mut sessions = Vec::with_capacity(found.sessions.len());
        for (id, people) in found.sessions {
            let Some(row) = catalogue::entry(&**host.store(), id)? else { continue };
            sessions.push(Listed { summary: row.summary, disposed: row.disposed, people });
        }
        let (people_up_to, newest) = (search.reached(), host.store().tail());
        let next_cursor = found.next.map(|place| URL_SAFE_NO_PAD.encode(place));
        Ok::<_, ApiFault>(Page { sessions, next_cursor, people_up_to, newest })
    });
    Ok(HttpResponse::Ok().json(page.await?))
}
