//! `GET /api/config`: every key of the configuration with its value and where it came from.
//!
//! As `serve --print-config` prints it: no token is among them, and the values of agents' variables are left out.

use actix_web::HttpResponse;

use super::answer::Admitted;

/// A list of `{key, value, from}`.
pub async fn list(admitted: Admitted) -> HttpResponse {
    HttpResponse::Ok().json(&admitted.admin.shown.settings)
}
