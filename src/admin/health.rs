//! Liveness, readiness, metrics, and which host this is.

use std::sync::Arc;

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::json;

use super::Admin;
use super::answer::{Admitted, ApiFault, admitted, off_thread};

/// `GET /healthz`: the process answers.
pub async fn alive() -> HttpResponse {
    HttpResponse::Ok().json(json!({ "ok": true }))
}

/// `GET /readyz`: the log takes appends, or 503 and why not.
pub async fn ready(admin: web::Data<Admin>) -> HttpResponse {
    let store = Arc::clone(admin.host.store());
    // The fault is for the operator's log: it names files, and this endpoint is open to all.
    let accepts = web::block(move || store.accepts_appends()).await;
    match accepts {
        Ok(Ok(())) => HttpResponse::Ok().json(json!({ "ok": true })),
        Ok(Err(fault)) => {
            tracing::warn!(%fault, "the log takes no appends");
            HttpResponse::ServiceUnavailable().json(json!({ "ok": false, "problem": "the log takes no appends" }))
        }
        Err(_) => HttpResponse::ServiceUnavailable().json(json!({ "ok": false, "problem": "the host is stopping" })),
    }
}

/// `GET /metrics`: Prometheus text.
pub async fn metrics(request: HttpRequest, admin: web::Data<Admin>) -> Result<HttpResponse, ApiFault> {
    if !admin.metrics_public {
        admitted(&admin, &request).await?;
    }
    let store = Arc::clone(admin.host.store());
    let (newest, bytes) = off_thread(move || Ok::<_, ApiFault>((store.tail(), store.disk_bytes()))).await?;
    metrics::gauge!("scrollback_log_newest_seq").set(newest as f64);
    metrics::gauge!("scrollback_log_disk_bytes").set(bytes as f64);
    let counts = admin.host.hub().counts();
    metrics::gauge!("scrollback_subscriptions").set(counts.subscriptions() as f64);
    metrics::gauge!("scrollback_requests_in_flight").set(counts.requests() as f64);
    metrics::gauge!("scrollback_actors").set(admin.host.actors() as f64);
    Ok(HttpResponse::Ok().content_type("text/plain; version=0.0.4; charset=utf-8").body(admin.metrics.render()))
}

/// `GET /api/host`: `{pid, thisRun}`, where `thisRun` says whether the request carries the secret of this very run. So
/// the command line tells the host of its data directory from another one that took the port since.
pub async fn host(admitted: Admitted, request: HttpRequest) -> HttpResponse {
    let sent = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let sent = sent.and_then(|value| value.strip_prefix("Bearer "));
    let this_run = sent.is_some() && sent == admitted.admin.gate.host_secret.as_deref();
    HttpResponse::Ok().json(json!({ "pid": std::process::id(), "thisRun": this_run }))
}
