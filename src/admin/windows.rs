//! The log in windows, for somebody who looks at it: `/api/log/window`, `/api/extent` and `/api/around`.

use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;

use super::answer::{Admitted, ApiFault, off_thread};
use super::inspect::{Around, Asked, EventFilter, EventHead, Extent, From, RawFilter, first_since, time};
use super::query::Query;
use super::{events, log};
use crate::events::ServerSeq;
use crate::events::rows::ChannelKind;

/// Events in one window.
const LIMIT: u64 = 500;
const USUAL: u64 = 100;

/// The parameters of a window.
const PARAMETERS: [&str; 9] = ["channel", "type", "by", "since", "until", "privileged", "before", "after", "limit"];

/// The answer of `/api/log/window`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    /// Ascending.
    events: Vec<EventHead>,
    /// To be given as `before` for the window before this one; left out where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    older: Option<ServerSeq>,
    /// To be given as `after` for what comes behind this one.
    newer: ServerSeq,
    /// Whether it was read for long enough before it was full: what is asked for may be further on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
    /// The newest event of the log.
    newest: ServerSeq,
}

/// The newest events that fit, before `before` where it is given, or the oldest after `after`.
pub async fn window(admitted: Admitted, request: HttpRequest) -> Result<HttpResponse, ApiFault> {
    let query = Query::of(&request, &PARAMETERS)?;
    let now = admitted.admin.host.clock().now();
    let raw = RawFilter {
        kind: query.text("type")?,
        since: query.text("since")?,
        by: query.text("by")?,
        privileged: query.flag("privileged")?,
        ..RawFilter::default()
    };
    let since = raw.since.as_deref().map(|text| time("since", text, now)).transpose()?;
    let until = query.one("until")?.map(|text| time("until", text, now)).transpose()?;
    let filter = EventFilter::parse(raw, now)?;
    let from = match (query.number("before")?, query.number("after")?) {
        (Some(_), Some(_)) => return Err(ApiFault::bad_parameter("after", "not with before")),
        (None, Some(after)) => From::After(after),
        (before, None) => From::Before(before.unwrap_or(ServerSeq::MAX)),
    };
    let limit = query.number("limit")?.unwrap_or(USUAL).clamp(1, LIMIT);
    let limit = usize::try_from(limit).unwrap_or(1);
    let scope = log::scope(&admitted, query.text("channel")?).await?;
    let reader = log::log_reader(&admitted);
    let store = Arc::clone(admitted.admin.host.store());
    let _ = admitted.admin.host.writer().barrier().await;
    let shown = off_thread(move || {
        let low = since.map(|at| first_since(&*store, at)).transpose()?.map_or(0, |first| first.saturating_sub(1));
        let high = until.map(|at| first_since(&*store, at.saturating_add(1))).transpose()?.unwrap_or(ServerSeq::MAX);
        let window = Asked { scope, filter, reader, from, bounds: (low, high), limit }.read(&*store)?;
        let events = window.records.iter().map(EventHead::from).collect();
        let (older, newer, cut) = (window.older, window.newer, window.is_cut);
        Ok::<_, ApiFault>(Shown { events, older, newer, cut, newest: store.tail() })
    });
    Ok(HttpResponse::Ok().json(shown.await?))
}

/// `GET /api/extent`: where the events of `channel` are, for a slider over them.
pub async fn extent(admitted: Admitted, request: HttpRequest) -> Result<HttpResponse, ApiFault> {
    let query = Query::of(&request, &["channel"])?;
    let (is_chat, channel) = named(&admitted, &query).await?;
    let store = Arc::clone(admitted.admin.host.store());
    Ok(HttpResponse::Ok().json(off_thread(move || Extent::of(&*store, channel, is_chat)).await?))
}

/// `GET /api/around`: the events of `channel` at and beside the number `at`.
pub async fn around(admitted: Admitted, request: HttpRequest) -> Result<HttpResponse, ApiFault> {
    let query = Query::of(&request, &["channel", "at"])?;
    let at = query.number("at")?.ok_or_else(|| ApiFault::bad_parameter("at", "is needed"))?;
    let (_, channel) = named(&admitted, &query).await?;
    let store = Arc::clone(admitted.admin.host.store());
    Ok(HttpResponse::Ok().json(off_thread(move || Around::of(&*store, channel, at)).await?))
}

/// The channel that is named, where whoever asks may read it, and whether it is a chat.
async fn named(admitted: &Admitted, query: &Query) -> Result<(bool, crate::events::ChannelId), ApiFault> {
    let uri = query.text("channel")?.ok_or_else(|| ApiFault::bad_parameter("channel", "is needed"))?;
    let (name, id) = events::channel(admitted, uri).await?;
    let _ = admitted.admin.host.writer().barrier().await;
    let store = Arc::clone(admitted.admin.host.store());
    let row = off_thread(move || crate::projections::catalogue::channel(&*store, name.as_str())).await?;
    Ok((row.is_some_and(|row| row.kind == ChannelKind::Chat), id))
}
