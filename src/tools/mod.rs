//! `/mcp/…`: the host's own tools for its agents, as an MCP server over streamable HTTP.
//!
//! A process is given the address of its chat's tools and its session's token when it starts. Every request stands alone: there
//! is nothing to resume, so an agent goes on over a restart of its connection. The protocol is the official crate's; here is what
//! the tools do ([`server`]) and how they are reached.
//! Source: the outer contract, endpoints; MCP, streamable HTTP.

mod server;

use std::sync::Arc;

use actix_web::http::{StatusCode, header};
use actix_web::{HttpRequest, HttpResponse, web};
use http_body_util::{BodyExt, Full};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};

use crate::access::{Gate, bearer};
use crate::actors::host::{Host, ToolUser};
use crate::actors::tools::{PATH, chat_in_path};
use server::HostToolServer;

/// Bytes of a request beside the page that it may carry; JSON may write a byte of it as six.
const AROUND_PAGE: usize = 64 << 10;
const ESCAPED: usize = 6;

/// What the endpoint needs.
pub struct Tools {
    pub host: Arc<Host>,
    pub gate: Gate,
}

/// Adds the endpoint to a worker's application.
pub fn routes(config: &mut web::ServiceConfig, tools: web::Data<Tools>) {
    let resource = web::resource(format!("{PATH}/{{chat}}"));
    config.app_data(tools).service(resource.route(web::route().to(serve)));
}

async fn serve(
    tools: web::Data<Tools>,
    request: HttpRequest,
    chat: web::Path<String>,
    body: web::Payload,
) -> HttpResponse {
    if let Err(refused) = tools.gate.check_place(&request) {
        return refused.response();
    }
    let user = match user(&tools, &request, chat.into_inner()).await {
        Ok(user) => user,
        Err(response) => return response,
    };
    let max = AROUND_PAGE + ESCAPED * tools.host.settings().max_visual;
    let body = match body.to_bytes_limited(max).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return HttpResponse::RequestTimeout().finish(),
        Err(_) => {
            metrics::counter!("scrollback_limit_met_total", "limit" => "request_body").increment(1);
            return HttpResponse::PayloadTooLarge().finish();
        }
    };
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(max)
        // Looked at above, with the port.
        .disable_allowed_hosts();
    let host = Arc::clone(&tools.host);
    let server = move || Ok(HostToolServer::new(Arc::clone(&host), user.clone()));
    let service = StreamableHttpService::new(server, Arc::new(NeverSessionManager::default()), config);
    let Some(request) = as_http(&request, body) else { return HttpResponse::BadRequest().finish() };
    as_actix(service.handle(request).await).await
}

/// Who asks: the token has to be that of the chat's session.
async fn user(tools: &Tools, request: &HttpRequest, chat: String) -> Result<ToolUser, HttpResponse> {
    let no_token = || {
        HttpResponse::Unauthorized()
            .insert_header((header::WWW_AUTHENTICATE, "Bearer"))
            .json(serde_json::json!({ "code": "no-token", "message": "this is not the token of the chat's session" }))
    };
    let (Some(token), Some(chat)) = (bearer(request).map(str::to_owned), chat_in_path(&chat)) else {
        return Err(no_token());
    };
    let host = Arc::clone(&tools.host);
    match web::block(move || host.tool_user(&chat, &token)).await {
        Ok(Ok(Some(user))) => Ok(user),
        Ok(Ok(None)) => Err(no_token()),
        Ok(Err(fault)) => {
            tracing::error!(%fault, "a chat cannot be looked up for its agent");
            Err(HttpResponse::InternalServerError().finish())
        }
        Err(_) => Err(HttpResponse::ServiceUnavailable().finish()),
    }
}

/// The request in the types of the crate that serves it.
fn as_http(request: &HttpRequest, body: web::Bytes) -> Option<http::Request<Full<bytes::Bytes>>> {
    let mut other = http::Request::builder().method(request.method().as_str()).uri(request.uri().to_string());
    for (name, value) in request.headers() {
        other = other.header(name.as_str(), value.as_bytes());
    }
    other.body(Full::new(body)).ok()
}

/// Its answer in the types of ours.
async fn as_actix<B>(response: http::Response<B>) -> HttpResponse
where
    B: BodyExt<Data = bytes::Bytes, Error = std::convert::Infallible>,
{
    let (head, body) = response.into_parts();
    let status = StatusCode::from_u16(head.status.as_u16()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut other = HttpResponse::build(status);
    for (name, value) in &head.headers {
        other.append_header((name.as_str(), value.as_bytes()));
    }
    // An answer ends with its request: nothing is streamed on.
    match body.collect().await {
        Ok(body) => other.body(body.to_bytes()),
        Err(never) => match never {},
    }
}
