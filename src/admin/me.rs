//! `GET /api/me`: who asks, and what they may do. For pages, which leave out what would be refused.

use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;

use super::answer::{Admitted, ApiFault};
use super::query::Query;
use crate::projections::people::Operation;

/// Answers `{principal, may, maySomewhere}`: the operations that are granted everywhere, or in the session of `channel`, and
/// those that are granted anywhere.
pub async fn me(admitted: Admitted, request: HttpRequest) -> Result<HttpResponse, ApiFault> {
    let query = Query::of(&request, &["channel"])?;
    let channel = query.one("channel")?;
    let (host, who) = (&admitted.admin.host, &admitted.who);
    let those = |may: &dyn Fn(Operation) -> bool| -> Vec<String> {
        Operation::ALL.iter().filter(|operation| may(**operation)).map(ToString::to_string).collect()
    };
    let may = those(&|operation| host.may(who, operation, channel));
    let somewhere = those(&|operation| host.may_somewhere(who, operation));
    Ok(HttpResponse::Ok().json(json!({ "principal": &*who.principal, "may": may, "maySomewhere": somewhere })))
}
