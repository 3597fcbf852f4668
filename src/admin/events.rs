//! `GET /api/events`: the log as AHP envelopes, in JSON lines or as server-sent events.
//!
//! Records of the host are never shown here. Who goes on in the middle of events that a compaction made one gets a snapshot in
//! their place. The lines are spliced from the stored bytes; nothing is serialised again.

use std::sync::Arc;

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures_util::stream;

use super::Admin;
use super::answer::{Admitted, ApiFault, off_thread};
use super::inspect::{self, EventFilter, Reader, Reading, Scope};
use super::live;
use super::query::Query;
use crate::access::Identity;
use crate::actors::chat::pages;
use crate::actors::envelope::is_page;
use crate::actors::host::{Host, state_of};
use crate::actors::router::Watch;
use crate::events::{Channel, ChannelId, ChannelKind, Record, ServerSeq, Store};

/// Makes the text of a page, which begins after a number.
pub type Render = fn(&dyn Store, &[Record], ServerSeq) -> Result<Bytes, ApiFault>;

/// Answers with what is in the log, and with `Accept: text/event-stream` with what comes as well.
pub async fn events(admitted: Admitted, request: HttpRequest) -> Result<HttpResponse, ApiFault> {
    let query = Query::of(&request, &["channel", "after", "limit"])?;
    let is_live = accepts_event_stream(&request);
    let after = if is_live { last_event_id(&request)? } else { None };
    let after = after.or(query.number("after")?).unwrap_or(0);
    let filter = EventFilter::actions(after, query.number("limit")?);
    let uris: Vec<String> = query.all("channel").into_iter().map(str::to_owned).collect();
    let channels = channels(&admitted, uris).await?;
    let scope = channels.as_ref().map_or(Scope::All, |all| Scope::Channels(all.iter().map(|(_, id)| *id).collect()));
    let (host, who) = (Arc::clone(&admitted.admin.host), Arc::clone(&admitted.who));
    let reads = move |channel: &Channel| host.may_read_stored(&who, channel.as_str());
    let reader = (!admitted.who.is_root()).then(|| Arc::new(reads) as Reader);
    let reading = Reading::new(scope, filter, reader);
    if !is_live {
        let _ = admitted.admin.host.writer().barrier().await;
        return Ok(streamed(&admitted.admin, reading, envelopes));
    }
    let watch = channels.map_or(Watch::All, |all| Watch::Channels(all.into_iter().map(|(name, _)| name).collect()));
    live::server_sent(admitted, reading, watch)
}

/// A response of pages, one read ahead of the one that is being taken. No thread waits for a slow reader.
pub fn streamed(admin: &web::Data<Admin>, reading: Reading, render: Render) -> HttpResponse {
    let store = Arc::clone(admin.host.store());
    let read = move |mut reading: Reading| {
        let store = Arc::clone(&store);
        off_thread(move || {
            loop {
                let after = reading.reached();
                match reading.next_page(&*store)? {
                    None => return Ok::<_, ApiFault>(None),
                    Some(records) if records.is_empty() => {}
                    Some(records) => return Ok(Some((render(&*store, &records, after)?, reading))),
                }
            }
        })
    };
    let first = read(reading);
    let pages = stream::try_unfold((first, read), |(page, read)| async move {
        let Some((text, reading)) = page.await? else { return Ok::<_, ApiFault>(None) };
        let next = read(reading);
        Ok(Some((text, (next, read))))
    });
    HttpResponse::Ok().content_type("application/x-ndjson").streaming(pages)
}

/// The channels of `uris`, `None` for all.
async fn channels(admitted: &Admitted, uris: Vec<String>) -> Result<Option<Vec<(Channel, ChannelId)>>, ApiFault> {
    if uris.is_empty() {
        return Ok(None);
    }
    let mut found: Vec<(Channel, ChannelId)> = Vec::with_capacity(uris.len());
    for uri in uris {
        let one = channel(admitted, uri).await?;
        if !found.contains(&one) {
            found.push(one);
        }
    }
    Ok(Some(found))
}

/// The channel that `uri` names, itself or as a synonym.
///
/// # Errors
/// 404 where there is none.
pub async fn channel(admitted: &Admitted, uri: String) -> Result<(Channel, ChannelId), ApiFault> {
    find(admitted, uri, Host::may_read_stored).await
}

/// The same for who reads the log.
///
/// # Errors
/// 404 where there is none.
pub async fn channel_of_log(admitted: &Admitted, uri: String) -> Result<(Channel, ChannelId), ApiFault> {
    find(admitted, uri, Host::may_read_log_of).await
}

async fn find(
    admitted: &Admitted,
    uri: String,
    may: fn(&Host, &Identity, &str) -> bool,
) -> Result<(Channel, ChannelId), ApiFault> {
    let (host, who) = (Arc::clone(&admitted.admin.host), Arc::clone(&admitted.who));
    off_thread(move || {
        let found = match inspect::find_channel(&**host.store(), &uri)? {
            Some(found) => Some(found),
            None => host.resolve(&who, &uri)?,
        };
        let found = found.filter(|(channel, _)| may(&host, &who, channel.as_str()));
        found.ok_or_else(|| ApiFault::not_found("unknown-channel", format!("there is no channel {uri}")))
    })
    .await
}

/// The envelopes of a page as JSON lines; a snapshot in place of one that says what the reader has in part.
fn envelopes(store: &dyn Store, records: &[Record], after: ServerSeq) -> Result<Bytes, ApiFault> {
    let mut text = room_for(records);
    for record in records {
        match is_had_in_part(record, after) {
            true => text.push_str(&snapshot(store, record)?),
            false => push_envelope(&mut text, store, record),
        }
        text.push('\n');
    }
    Ok(Bytes::from(text))
}

/// Whether a compaction made this event of several, of which who goes on after `after` has some.
pub fn is_had_in_part(record: &Record, after: ServerSeq) -> bool {
    record.covers_from.is_some_and(|from| from <= after)
}

/// The state of a chat right after an event, on one line, as an AHP snapshot.
///
/// # Errors
/// [`ApiFault`] when the log cannot be folded.
pub fn snapshot(store: &dyn Store, record: &Record) -> Result<String, ApiFault> {
    let (channel, id) = (record.channel.as_str(), record.channel_id);
    let snapshot = state_of(store, channel, ChannelKind::Chat, id, Some(record.seq), usize::MAX)?;
    Ok(inspect::on_one_line(snapshot.json()))
}

/// An empty text with room for a page of envelopes.
pub fn room_for(records: &[Record]) -> String {
    String::with_capacity(records.iter().map(|record| record.action.len() + record.channel.as_str().len() + 200).sum())
}

/// Writes what [`envelope`] returns behind `text`.
pub fn push_envelope(text: &mut String, store: &dyn Store, record: &Record) {
    if is_page(&record.action) || inspect::has_line_end(&record.action) {
        return text.push_str(&envelope(store, record));
    }
    let (channel, origin) = (record.channel.as_str(), record.origin.as_ref());
    crate::actors::envelope::push_envelope(text, channel, record.seq, origin, &record.action);
}

/// The AHP envelope of a stored event, on one line; of a page of older turns, which the log keeps as a range, the page.
pub fn envelope(store: &dyn Store, record: &Record) -> String {
    inspect::on_one_line(pages::envelope(store, record, record.channel.as_str()))
}

fn accepts_event_stream(request: &HttpRequest) -> bool {
    let accepts = request.headers().get_all(header::ACCEPT).filter_map(|value| value.to_str().ok());
    accepts.flat_map(|value| value.split(',')).any(|media| media.trim().starts_with("text/event-stream"))
}

fn last_event_id(request: &HttpRequest) -> Result<Option<u64>, ApiFault> {
    let Some(value) = request.headers().get("Last-Event-ID") else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| ApiFault::bad_parameter("Last-Event-ID", "is not a number"))
}
