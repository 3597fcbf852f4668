//! `GET /visuals/…`: the page of a visual, for a frame that is not trusted.
//!
//! No token: the path is the secret, and it is new at every start. The page is never one of the host's own origin: the policy
//! puts it into a sandbox of its own, in which it may run its scripts and reach nothing, neither the host nor the network.
//! Source: the outer contract, endpoints.

use std::sync::Arc;

use actix_web::http::header::{self, HeaderName};
use actix_web::{HttpRequest, HttpResponse, web};

use crate::access::Gate;
use crate::actors::host::Host;
use crate::actors::visuals::links::PATH;

/// What a page may do: run what is in it, show what is in it.
const POLICY: &str = "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      img-src data: blob:; media-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'";

/// What every answer under the path says, also one without a page.
const HEADERS: [(HeaderName, &str); 4] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
];

/// What the endpoint needs.
pub struct Visuals {
    pub host: Arc<Host>,
    pub gate: Gate,
}

/// Adds the endpoint to a worker's application.
pub fn routes(config: &mut web::ServiceConfig, visuals: web::Data<Visuals>) {
    config.app_data(visuals).service(web::resource(format!("{PATH}/{{code}}/{{id}}")).route(web::get().to(page)));
}

async fn page(visuals: web::Data<Visuals>, request: HttpRequest, path: web::Path<(String, String)>) -> HttpResponse {
    if let Err(refused) = visuals.gate.check_place(&request) {
        return with_headers(refused.response());
    }
    let _ = visuals.host.writer().barrier().await;
    let (code, id) = path.into_inner();
    let host = Arc::clone(&visuals.host);
    let found = web::block(move || host.visual_page(&code, &id)).await;
    with_headers(match found {
        Ok(Ok(Some(page))) => HttpResponse::Ok().content_type("text/html; charset=utf-8").body(page),
        Ok(Ok(None)) => {
            HttpResponse::NotFound().content_type("text/plain; charset=utf-8").body("there is no such page")
        }
        Ok(Err(fault)) => {
            tracing::error!(%fault, "a page cannot be read");
            HttpResponse::InternalServerError().finish()
        }
        Err(_) => HttpResponse::ServiceUnavailable().finish(),
    })
}

fn with_headers(mut response: HttpResponse) -> HttpResponse {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, header::HeaderValue::from_static(value));
    }
    response
}
