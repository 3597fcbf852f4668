//! How long a request may take to arrive: its head on a new connection, and then its body.
//!
//! The server itself answers a head that does not come with 408 and closes; here that is counted. A body that does not come
//! ends in an error for whoever reads it.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use actix_web::HttpMessage as _;
use actix_web::dev::{Extensions, Payload, ServiceRequest};
use actix_web::error::PayloadError;
use actix_web::http::header;
use futures_util::{StreamExt, stream};
use tokio::time::{Instant, timeout_at};

/// How far the server's clock may be behind, which cuts the connection off by it.
const TICK: Duration = Duration::from_millis(600);

/// A connection whose first request is still to come.
struct Head {
    since: Instant,
    within: Duration,
    has_arrived: Cell<bool>,
}

impl Drop for Head {
    fn drop(&mut self) {
        if !self.has_arrived.get() && self.since.elapsed() + TICK >= self.within {
            metrics::counter!("scrollback_limit_met_total", "limit" => "request_head_time").increment(1);
        }
    }
}

/// A connection was made, and its first request has to be here `within` that time.
pub fn expect_head(extensions: &mut Extensions, within: Duration) {
    extensions.insert(Head { since: Instant::now(), within, has_arrived: Cell::new(false) });
}

/// The head of `request` is here; its body has to be here `within` that time, where it is not the stream of an upgrade.
pub fn expect_body(request: &mut ServiceRequest, within: Duration) {
    if let Some(head) = request.conn_data::<Head>() {
        head.has_arrived.set(true);
    }
    let payload = request.take_payload();
    if request.headers().contains_key(header::UPGRADE) || matches!(payload, Payload::None) {
        return request.set_payload(payload);
    }
    let until = Instant::now() + within;
    let timed = stream::unfold(payload, move |mut payload| async move {
        match timeout_at(until, payload.next()).await {
            Ok(bytes) => Some((bytes?, payload)),
            Err(_) => {
                metrics::counter!("scrollback_limit_met_total", "limit" => "request_body_time").increment(1);
                Some((Err(PayloadError::Io(io::ErrorKind::TimedOut.into())), payload))
            }
        }
    });
    request.set_payload(Payload::Stream { payload: Box::pin(timed) });
}

/// Whether this is why a body could not be read.
pub fn is_late(error: &PayloadError) -> bool {
    matches!(error, PayloadError::Io(error) if error.kind() == io::ErrorKind::TimedOut)
}
