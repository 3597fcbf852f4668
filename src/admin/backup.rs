//! `GET /api/log/export` and `POST /api/backup`: the log as lines, for who writes them down.
//!
//! The host writes no file for anybody. An export has no hashes of tokens; a backup has them, and is for the deployment alone.
//! A thread of its own reads the log, as fast as the lines are taken.

use std::path::Path;
use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures_util::stream;
use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};

use super::answer::{Admitted, ApiFault};
use super::query::Query;
use crate::backup::BackupFault;
use crate::backup::line::Line;
use crate::backup::outgoing::{Outgoing, Wanted};
use crate::clock;
use crate::events::ServerSeq;

/// Bytes that are sent at once, and how many of them wait.
const CHUNK: usize = 128 << 10;
const WAITING: usize = 4;

/// What whoever asks for a backup has already.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Has {
    /// The newest event; 0 for nothing.
    after: ServerSeq,
    /// What that is known by: the `print` of the header that came before.
    print: String,
}

/// `GET /api/log/export`: everything, or one channel with what it needs.
pub async fn export(admitted: Admitted, request: HttpRequest) -> Result<HttpResponse, ApiFault> {
    let query = Query::of(&request, &["channel"])?;
    lines(&admitted, Wanted { channel: query.text("channel")?, ..Wanted::default() }).await
}

/// `POST /api/backup` with `{"after", "print"}`, or `{}`: what came since, or everything.
pub async fn backup(admitted: Admitted, has: web::Json<Has>) -> Result<HttpResponse, ApiFault> {
    let Has { after, print } = has.into_inner();
    let since = (after > 0).then_some((after, print));
    lines(&admitted, Wanted { since, secrets: true, channel: None }).await
}

async fn lines(admitted: &Admitted, wanted: Wanted) -> Result<HttpResponse, ApiFault> {
    let host = Arc::clone(&admitted.admin.host);
    let _ = host.writer().barrier().await;
    let (send, mut taken) = mpsc::channel(WAITING);
    let (begun, begins) = oneshot::channel();
    let work = move || {
        let (store, at) = (host.store().as_ref(), clock::rfc3339(host.clock().now()));
        match Outgoing::of(store, host.data_directory().unwrap_or(Path::new("/dev/null")), &wanted, at) {
            Err(fault) => drop(begun.send(Err(fault))),
            Ok(outgoing) => {
                let _ = begun.send(Ok(()));
                send_all(&outgoing, &send);
            }
        }
    };
    let gone = || ApiFault {
        status: StatusCode::SERVICE_UNAVAILABLE,
        code: "busy",
        message: "the log cannot be read now: try again".into(),
    };
    std::thread::Builder::new().name("lines".into()).spawn(work).map_err(|_| gone())?;
    begins.await.map_err(|_| gone())??;
    let chunks = stream::poll_fn(move |context| taken.poll_recv(context));
    Ok(HttpResponse::Ok().content_type("application/x-ndjson").streaming(chunks))
}

/// Sends all lines; what cannot be sent to its end ends with the reason.
fn send_all(outgoing: &Outgoing<'_>, send: &mpsc::Sender<Result<Bytes, std::io::Error>>) {
    let mut chunk = Vec::with_capacity(CHUNK);
    let flush = |chunk: &mut Vec<u8>| {
        let full = std::mem::replace(chunk, Vec::with_capacity(CHUNK));
        send.blocking_send(Ok(Bytes::from(full))).map_err(|_| BackupFault::Gone)
    };
    let sent = outgoing.send(
        &mut |line| {
            chunk.extend_from_slice(line);
            if chunk.len() >= CHUNK { flush(&mut chunk) } else { Ok(()) }
        },
        &mut |_| (),
    );
    match sent {
        Ok(()) => {}
        Err(BackupFault::Gone) => return,
        Err(fault) => {
            tracing::warn!(%fault, "the log was not sent to its end");
            chunk.extend(Line::Failed(fault.to_string()).to_bytes().unwrap_or_default());
        }
    }
    // Who takes no more does not take the rest either.
    let _ = flush(&mut chunk);
}

impl From<BackupFault> for ApiFault {
    fn from(fault: BackupFault) -> Self {
        let message = fault.to_string();
        match fault {
            BackupFault::NoChannel(_) => ApiFault::not_found("unknown-channel", message),
            BackupFault::Refused(_) => ApiFault { status: StatusCode::CONFLICT, code: "conflict", message },
            BackupFault::Changed => ApiFault { status: StatusCode::CONFLICT, code: "changed", message },
            BackupFault::Log(fault) => fault.into(),
            BackupFault::Fold(fault) => fault.into(),
            _ => ApiFault { status: StatusCode::INTERNAL_SERVER_ERROR, code: "internal", message },
        }
    }
}
