//! `GET /api/agents`: the agents, and whether each starts here.

use actix_web::HttpResponse;

use super::answer::{Admitted, ApiFault};

/// A list of reports, once every agent was probed.
pub async fn list(admitted: Admitted) -> Result<HttpResponse, ApiFault> {
    Ok(HttpResponse::Ok().json(admitted.admin.host.agent_reports().await))
}
