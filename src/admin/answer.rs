//! What is not answered: the status, a stable word and a sentence.

use std::rc::Rc;
use std::sync::Arc;

use actix_web::dev::Payload;
use actix_web::error::{BlockingError, JsonPayloadError};
use actix_web::http::{StatusCode, header};
use actix_web::{FromRequest, HttpRequest, HttpResponse, ResponseError, web};
use futures_util::future::LocalBoxFuture;
use serde_json::json;

use super::inspect::BadFilter;
use super::{Admin, Worker};
use crate::access::arriving::is_late;
use crate::access::seats::Full;
use crate::access::{Identity, Refused, check};
use crate::actors::command::{Refusal, RefusalKind};
use crate::actors::router::Router;
use crate::events::LogFault;
use crate::projections::FoldFault;

/// An error of an endpoint. Goes out as `{"error": {"code", "message"}}`.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct ApiFault {
    pub status: StatusCode,
    pub code: &'static str,
    pub message: String,
}

impl ApiFault {
    /// A parameter that cannot be read, by name.
    pub fn bad_parameter(name: &str, problem: impl std::fmt::Display) -> Self {
        Self { status: StatusCode::BAD_REQUEST, code: "bad-parameter", message: format!("{name}: {problem}") }
    }

    /// A channel or an event that is not there.
    pub fn not_found(code: &'static str, message: String) -> Self {
        Self { status: StatusCode::NOT_FOUND, code, message }
    }

    fn internal(message: String) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, code: "internal", message }
    }
}

impl ResponseError for ApiFault {
    fn status_code(&self) -> StatusCode {
        self.status
    }

    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status);
        if self.status == StatusCode::UNAUTHORIZED {
            response.insert_header((header::WWW_AUTHENTICATE, "Bearer"));
        }
        response.json(json!({ "error": { "code": self.code, "message": self.message } }))
    }
}

impl From<Refused> for ApiFault {
    fn from(refused: Refused) -> Self {
        let (status, code) = refused.kind();
        Self { status, code, message: refused.to_string() }
    }
}

impl From<Full> for ApiFault {
    fn from(full: Full) -> Self {
        Self { status: full.status(), code: "limit-exceeded", message: full.to_string() }
    }
}

/// How bodies are read: JSON of at most `max` bytes, that arrives in time.
pub fn bodies(max: usize) -> web::JsonConfig {
    web::JsonConfig::default().limit(max).error_handler(move |error, _| of_body(&error, max).into())
}

fn of_body(error: &JsonPayloadError, max: usize) -> ApiFault {
    let fault = |status, code, message: String| ApiFault { status, code, message };
    match error {
        JsonPayloadError::OverflowKnownLength { .. } | JsonPayloadError::Overflow { .. } => {
            metrics::counter!("scrollback_limit_met_total", "limit" => "request_body").increment(1);
            fault(StatusCode::PAYLOAD_TOO_LARGE, "limit-exceeded", format!("the body has more than {max} bytes"))
        }
        JsonPayloadError::Payload(problem) if is_late(problem) => {
            fault(StatusCode::REQUEST_TIMEOUT, "limit-exceeded", "the body did not arrive in time".into())
        }
        JsonPayloadError::ContentType => fault(
            StatusCode::BAD_REQUEST,
            "bad-body",
            "the body has to be JSON, with Content-Type: application/json".into(),
        ),
        JsonPayloadError::Deserialize(problem) => {
            fault(StatusCode::BAD_REQUEST, "bad-body", format!("the body: {problem}"))
        }
        other => fault(StatusCode::BAD_REQUEST, "bad-body", other.to_string()),
    }
}

impl From<Refusal> for ApiFault {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal.kind {
            RefusalKind::NotFound | RefusalKind::UnknownSession => StatusCode::NOT_FOUND,
            RefusalKind::InvalidParams | RefusalKind::InvalidRequest => StatusCode::BAD_REQUEST,
            RefusalKind::NotPermitted => StatusCode::FORBIDDEN,
            RefusalKind::AlreadyExists | RefusalKind::Conflict => StatusCode::CONFLICT,
            RefusalKind::UnknownMethod => StatusCode::NOT_IMPLEMENTED,
            RefusalKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { status, code: refusal.code, message: refusal.message }
    }
}

impl From<LogFault> for ApiFault {
    fn from(fault: LogFault) -> Self {
        tracing::error!(%fault, "the log could not be read for an endpoint");
        Self::internal(fault.to_string())
    }
}

impl From<FoldFault> for ApiFault {
    fn from(fault: FoldFault) -> Self {
        tracing::error!(%fault, "the log could not be folded for an endpoint");
        Self::internal(fault.to_string())
    }
}

impl From<BadFilter> for ApiFault {
    fn from(bad: BadFilter) -> Self {
        Self::bad_parameter(bad.name, bad.problem)
    }
}

/// A request that the gate let in. An argument of every handler that is not open to all, before the others.
pub struct Admitted {
    pub admin: web::Data<Admin>,
    /// The router of this worker.
    pub router: Rc<Router>,
    /// Who asks.
    pub who: Arc<Identity>,
}

impl FromRequest for Admitted {
    type Error = ApiFault;
    type Future = LocalBoxFuture<'static, Result<Self, ApiFault>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move { admit(&request).await })
    }
}

async fn admit(request: &HttpRequest) -> Result<Admitted, ApiFault> {
    let missing = || ApiFault::internal("the endpoints were not set up".into());
    let admin = request.app_data::<web::Data<Admin>>().ok_or_else(missing)?;
    let worker = request.app_data::<Rc<Worker>>().ok_or_else(missing)?;
    let who = admitted(admin, request).await?;
    let router = worker.0.get_or_init(|| Router::start(admin.host.hub()));
    Ok(Admitted { admin: admin.clone(), router: Rc::clone(router), who: Arc::new(who) })
}

/// Who asks, where the gate lets them in and the table lets them ask this.
pub async fn admitted(admin: &Admin, request: &HttpRequest) -> Result<Identity, ApiFault> {
    let who = admin.gate.admit(request).await?;
    let path = request.match_pattern().unwrap_or_default();
    check::route(&admin.host, &who, request.method().as_str(), &path)?;
    Ok(who)
}

/// Runs what blocks on the store where blocking is fine. It begins at once, awaited or not.
pub fn off_thread<T, E>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> impl Future<Output = Result<T, ApiFault>>
where
    T: Send + 'static,
    E: Send + 'static,
    ApiFault: From<E>,
{
    let gone = |_: BlockingError| ApiFault::internal("the host is stopping".into());
    let running = web::block(work);
    async move { Ok(running.await.map_err(gone)??) }
}
