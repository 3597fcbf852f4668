//! One endpoint over HTTP: what is asked of it, and how its answer is read.
//!
//! Dropping what is asked, or what is read, closes the connection, so that nobody works for who has gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ahp_types::state::ProtectedResourceMetadata;
use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt as _, try_unfold};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response};
use secrecy::{ExposeSecret as _, SecretString};
use sse_stream::{Error as SseError, Sse, SseStream};
use tokio::time::timeout;

use super::fault::{About, Fault, UNAUTHORIZED, beginning, refused, refused_in_stream};
use super::hidden::Hidden;
use super::wire::{Chunk, Model, Models, Request};
use crate::agents::AgentLimits;
use crate::clock::Clock;
use crate::config::agents::EndpointConfig;
use crate::config::resource::ResourceConfig;

/// How much of a refusal is read.
const MAX_REFUSAL: usize = 64 << 10;
/// The end of a stream, as OpenAI has it.
const DONE: &str = "[DONE]";

/// An endpoint as it is configured.
pub(super) struct Endpoint {
    /// The NAME of the agent's table.
    agent: String,
    base_url: String,
    client: Result<Client, String>,
    /// The variable of the key.
    key_variable: Option<String>,
    key: Option<SecretString>,
    /// What each request needs a token of a person for, in the place of a key.
    pub resource: Option<ProtectedResourceMetadata>,
    pub limits: AgentLimits,
}

impl Endpoint {
    pub fn new(agent: &str, of: &EndpointConfig, key: Option<&str>, limits: AgentLimits) -> Self {
        // The one provider of cryptography that the host is built with; it is there where another agent came first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .connect_timeout(limits.endpoint.connect_timeout)
            .redirect(Policy::none())
            .no_proxy()
            .user_agent(concat!("scrollback/", env!("CARGO_PKG_VERSION")))
            .build();
        Self {
            agent: agent.to_owned(),
            base_url: of.base_url.clone(),
            client: client.map_err(|error| in_words(&error)),
            key_variable: of.api_key_env.clone(),
            key: key.filter(|key| !key.is_empty()).map(|key| key.to_owned().into()),
            resource: of.resource.as_ref().map(metadata),
            limits,
        }
    }

    /// The models that it lists. Nobody's token is used for that.
    pub async fn models(&self) -> Result<Vec<Model>, Fault> {
        let within = self.limits.endpoint.probe_timeout;
        let asked = async {
            let request = self.client()?.get(format!("{}/models", self.base_url));
            let response = self.send(request, self.key.as_ref(), "", &Clock::system()).await?;
            let body = read(response, self.limits.max_message).await.map_err(|broken| self.broken(&broken))?;
            serde_json::from_slice::<Models>(&body).map_err(|error| {
                let problem = Hidden::new(self.key.as_ref()).from(&error.to_string());
                Fault::garbage(format!(
                    "the endpoint {} lists its models in a form that is not OpenAI's: {problem}",
                    self.base_url
                ))
            })
        };
        let listed =
            timeout(within, asked).await.unwrap_or_else(|_| Err(self.timed_out("did not list its models", within)));
        Ok(listed?.data.unwrap_or_default())
    }

    /// Asks for an answer, with `token` where a person's is wanted. It is there when this returns, and its first word may
    /// not be.
    pub async fn ask(
        &self,
        body: String,
        token: Option<&SecretString>,
        model: &str,
        clock: &Clock,
    ) -> Result<Answer<'_>, Fault> {
        let secret = token.or(self.key.as_ref());
        let hidden = Hidden::new(secret);
        let request = self.client()?.post(format!("{}/chat/completions", self.base_url));
        let request = request.header(CONTENT_TYPE, "application/json").body(body);
        let idle = self.limits.endpoint.idle_timeout;
        let asked = timeout(idle, self.send(request, secret, model, clock)).await;
        let response = asked.unwrap_or_else(|_| Err(self.timed_out("did not begin to answer", idle)))?;
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
        if !kind.starts_with("text/event-stream") {
            let body = read(response, MAX_REFUSAL).await.unwrap_or_default();
            let said = beginning(hidden.from(&String::from_utf8_lossy(&body)).trim());
            let kind = hidden.from(&kind);
            return Err(Fault::garbage(format!(
                "the endpoint {} answered no stream but {kind:?}: {said}",
                self.base_url
            )));
        }
        Ok(Answer::new(self, response, hidden, model.to_owned(), clock.clone()))
    }

    /// The body of a request.
    pub fn body(request: &Request<'_>) -> Result<String, Fault> {
        let body = serde_json::to_string(request);
        body.map_err(|error| {
            Fault::failed("endpoint-refused", format!("the request cannot be written: {error}"), false)
        })
    }

    /// What all requests are made with.
    pub fn client(&self) -> Result<&Client, Fault> {
        self.client.as_ref().map_err(|problem| {
            let words = format!("the host cannot talk to endpoints: {problem}");
            Fault::failed("endpoint-unreachable", words, true)
        })
    }

    fn about<'a>(&'a self, hidden: &'a Hidden, model: &'a str, clock: &Clock) -> About<'a> {
        let key = self.key_variable.as_deref().map(|name| (name, self.key.is_some()));
        let resource = self.resource.as_ref();
        About { agent: &self.agent, base_url: &self.base_url, key, resource, hidden, model, now: clock.now() }
    }

    async fn send(
        &self,
        request: RequestBuilder,
        secret: Option<&SecretString>,
        model: &str,
        clock: &Clock,
    ) -> Result<Response, Fault> {
        let request = match secret.map(authorization) {
            Some(Ok(value)) => request.header(AUTHORIZATION, value),
            Some(Err(problem)) => return Err(Fault::failed(UNAUTHORIZED, problem, true)),
            None => request,
        };
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let headers = response.headers().clone();
        // A refusal without its words is one all the same.
        let body = timeout(self.limits.endpoint.connect_timeout, read(response, MAX_REFUSAL)).await;
        let body = body.ok().and_then(Result::ok).unwrap_or_default();
        let hidden = Hidden::new(secret);
        Err(refused(status, &headers, &body, self.about(&hidden, model, clock)))
    }

    fn unreachable(&self, error: &reqwest::Error) -> Fault {
        let (base_url, agent) = (&self.base_url, &self.agent);
        let words = in_words(error);
        if error.is_connect() || error.is_timeout() || error.is_builder() {
            let message = format!(
                "nothing answers at {base_url}: see whether the server is up, and whether `base_url` of [agents.{agent}] \
                 is right ({words})"
            );
            return Fault::failed("endpoint-unreachable", message, true);
        }
        Fault::failed("endpoint-cut", format!("the endpoint {base_url} broke off before it answered ({words})"), true)
    }

    fn timed_out(&self, what: &str, after: Duration) -> Fault {
        let after = humantime::format_duration(after);
        Fault::failed("endpoint-timeout", format!("the endpoint {} {what} within {after}", self.base_url), true)
    }

    fn broken(&self, broken: &Broken) -> Fault {
        let base_url = &self.base_url;
        match broken {
            Broken::Idle => self.timed_out("said nothing more", self.limits.endpoint.idle_timeout),
            Broken::TooLong => {
                crate::agents::count_too_long();
                let max = self.limits.max_message;
                Fault::garbage(format!("the endpoint {base_url} sent more than {max} bytes at once"))
            }
            Broken::Cut(error) => Fault::failed(
                "endpoint-cut",
                format!("the endpoint {base_url} broke off in the middle ({})", in_words(error)),
                true,
            ),
        }
    }
}

/// The resource as clients are told of it.
fn metadata(of: &ResourceConfig) -> ProtectedResourceMetadata {
    let some = |list: &[String]| (!list.is_empty()).then(|| list.to_vec());
    ProtectedResourceMetadata {
        resource: of.protected_resource.clone(),
        resource_name: of.resource_name.clone(),
        authorization_servers: some(&of.authorization_servers),
        scopes_supported: some(&of.scopes),
        jwks_uri: None,
        bearer_methods_supported: None,
        resource_signing_alg_values_supported: None,
        resource_documentation: None,
        resource_policy_uri: None,
        resource_tos_uri: None,
        required: None,
    }
}

fn authorization(key: &SecretString) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose_secret().trim()))
        .map_err(|_| "the key of the endpoint has letters that no header can carry".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

/// An error with all that it comes from, without the URL that whoever tells it names.
fn in_words(error: &reqwest::Error) -> String {
    let (mut words, mut next) = (String::new(), std::error::Error::source(error));
    while let Some(error) = next {
        words = error.to_string();
        next = error.source();
    }
    if words.is_empty() { error.to_string() } else { words }
}

/// Why no more of an answer came.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("idle")]
    Idle,
    #[error("too long")]
    TooLong,
    #[error(transparent)]
    Cut(reqwest::Error),
}

/// The whole body of a response; an error where it is longer than `max`.
async fn read(mut response: Response, max: usize) -> Result<Vec<u8>, Broken> {
    let mut body = Vec::new();
    while let Some(bytes) = response.chunk().await.map_err(Broken::Cut)? {
        if body.len() + bytes.len() > max {
            return Err(Broken::TooLong);
        }
        body.extend_from_slice(&bytes);
    }
    Ok(body)
}

/// An answer that comes in pieces.
pub(super) struct Answer<'a> {
    endpoint: &'a Endpoint,
    events: BoxStream<'static, Result<Sse, SseError>>,
    hidden: Hidden,
    /// The bytes since the last event.
    unread: Arc<AtomicUsize>,
    model: String,
    clock: Clock,
    /// The model has said all: what is still missing is its usage.
    finished: bool,
}

impl<'a> Answer<'a> {
    fn new(endpoint: &'a Endpoint, response: Response, hidden: Hidden, model: String, clock: Clock) -> Self {
        let unread = Arc::<AtomicUsize>::default();
        let (counted, idle, max) =
            (Arc::clone(&unread), endpoint.limits.endpoint.idle_timeout, endpoint.limits.max_message);
        let bytes = try_unfold(response, move |mut response| {
            let counted = Arc::clone(&counted);
            async move {
                let chunk = timeout(idle, response.chunk()).await.map_err(|_| Broken::Idle)?;
                let Some(bytes) = chunk.map_err(Broken::Cut)? else { return Ok(None) };
                if counted.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len() > max {
                    return Err(Broken::TooLong);
                }
                Ok::<_, Broken>(Some((bytes, response)))
            }
        });
        let events = SseStream::from_bytes_stream(bytes.boxed() as BoxStream<'static, Result<Bytes, Broken>>).boxed();
        Self { endpoint, events, hidden, unread, model, clock, finished: false }
    }

    /// The next piece; `None` when all of the answer has come.
    pub async fn next(&mut self) -> Result<Option<Chunk>, Fault> {
        loop {
            let event = self.events.next().await;
            self.unread.store(0, Ordering::Relaxed);
            let event = match event {
                Some(Ok(event)) => event,
                _ if self.finished => return Ok(None),
                Some(Err(error)) => return Err(self.fault(&error)),
                None => return Err(self.cut()),
            };
            let Some(data) = event.data.filter(|data| !data.is_empty()) else { continue };
            if data.trim() == DONE {
                return Ok(None);
            }
            let chunk: Chunk =
                serde_json::from_str(&data).map_err(|error| self.garbage(&format!("{error}: {data}")))?;
            if let Some(error) = chunk.error.as_ref().filter(|error| !error.is_null()) {
                return Err(refused_in_stream(error, self.endpoint.about(&self.hidden, &self.model, &self.clock)));
            }
            let mut choices = chunk.choices.iter().flatten();
            self.finished |=
                choices.any(|choice| choice.finish_reason.as_ref().is_some_and(|reason| !reason.is_empty()));
            return Ok(Some(chunk));
        }
    }

    fn fault(&self, error: &SseError) -> Fault {
        match error {
            SseError::Body(error) => match error.downcast_ref::<Broken>() {
                Some(broken) => self.endpoint.broken(broken),
                None => self.cut(),
            },
            error => self.garbage(&error.to_string()),
        }
    }

    fn cut(&self) -> Fault {
        let words = format!("the endpoint {} broke off in the middle of the answer", self.endpoint.base_url);
        Fault::failed("endpoint-cut", words, true)
    }

    fn garbage(&self, what: &str) -> Fault {
        Fault::garbage(format!(
            "the endpoint {} sent what is no piece of an answer ({})",
            self.endpoint.base_url,
            beginning(&self.hidden.from(what))
        ))
    }
}
