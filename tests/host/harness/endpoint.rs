//! An endpoint of chat completions that answers as a test tells it, and notes what it is asked.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::web::{Bytes, Data};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::served::Served;

/// The end of a stream.
pub const DONE: &str = "data: [DONE]\n\n";
/// How often a stream that hangs says that it is there, so that whoever writes it learns that nobody reads.
const ALIVE: Duration = Duration::from_millis(5);

/// What is answered.
#[derive(Clone)]
pub enum Reply {
    /// A stream of these pieces, byte for byte.
    Stream(Vec<Bytes>, End),
    Status(u16, Vec<(&'static str, String)>, String),
    /// Nothing, until this is told.
    After(Arc<Notify>, Box<Reply>),
}

/// What comes behind the pieces of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    Orderly,
    /// The connection breaks off.
    Cut,
    /// Nothing more, without an end.
    Hang,
    /// The same, with comments.
    Alive,
}

/// One request.
#[derive(Clone)]
pub struct Asked {
    pub authorization: Option<String>,
    pub body: Value,
}

impl Asked {
    /// The messages, as (role, text).
    pub fn told(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let messages = self.body["messages"].as_array().unwrap();
        messages.iter().map(|message| (text(&message["role"]), text(&message["content"]))).collect()
    }
}

#[derive(Default)]
struct Shared {
    replies: Mutex<VecDeque<Reply>>,
    models: Mutex<Option<Reply>>,
    asked: Mutex<Vec<Asked>>,
    /// The tokens that let somebody in; `None` lets everybody in.
    good: Mutex<Option<Vec<String>>>,
    open: AtomicUsize,
}

/// A running endpoint. It stops when it is dropped.
pub struct FakeEndpoint {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    _served: Served,
}

impl FakeEndpoint {
    pub fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::<Shared>::default();
        let data = Data::from(Arc::clone(&shared));
        let served = Served::on(listener, move |listener| {
            let factory = move || {
                App::new()
                    .app_data(data.clone())
                    .app_data(web::PayloadConfig::new(64 << 20))
                    .route("/v1/models", web::get().to(models))
                    .route("/v1/chat/completions", web::post().to(complete))
            };
            HttpServer::new(factory).workers(1).disable_signals().listen(listener).unwrap().run()
        });
        Self { address, shared, _served: served }
    }

    /// The next request that has no answer yet gets this one. What has none is answered with what was said last.
    pub fn answers(&self, reply: Reply) {
        self.shared.replies.lock().unwrap().push_back(reply);
    }

    /// What is answered where its models are asked for.
    pub fn lists(&self, reply: Reply) {
        *self.shared.models.lock().unwrap() = Some(reply);
    }

    /// From now on nobody is let in but with one of these tokens; the refusal repeats what came instead.
    pub fn lets_in(&self, tokens: &[&str]) {
        *self.shared.good.lock().unwrap() = Some(tokens.iter().map(|token| format!("Bearer {token}")).collect());
    }

    /// All requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }

    pub fn last(&self) -> Asked {
        self.asked().pop().expect("it was never asked")
    }

    /// How many of its answers are being read.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }
}

impl Shared {
    /// The refusal of who is not let in.
    fn refusal(&self, authorization: Option<&str>) -> Option<Reply> {
        let good = self.good.lock().unwrap();
        let is_good = good.as_ref()?.iter().any(|good| Some(good.as_str()) == authorization);
        let words = format!("no entry with {}", authorization.unwrap_or("nothing"));
        (!is_good).then(|| refuses(401, &words, "invalid_api_key"))
    }
}

fn authorization(request: &HttpRequest) -> Option<String> {
    request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned())
}

async fn models(shared: Data<Shared>, request: HttpRequest) -> HttpResponse {
    if let Some(refusal) = shared.refusal(authorization(&request).as_deref()) {
        return answer(refusal, &shared).await;
    }
    let reply = shared.models.lock().unwrap().clone();
    let listed = json!({ "object": "list", "data": [{ "id": "stub", "max_model_len": 4096 }, { "id": "other" }] });
    let reply = reply.unwrap_or_else(|| Reply::Status(200, Vec::new(), listed.to_string()));
    answer(reply, &shared).await
}

async fn complete(shared: Data<Shared>, request: HttpRequest, body: Bytes) -> HttpResponse {
    let authorization = authorization(&request);
    let refusal = shared.refusal(authorization.as_deref());
    let asked = Asked { authorization, body: serde_json::from_slice(&body).unwrap() };
    let said = asked.told().pop().unwrap().1;
    shared.asked.lock().unwrap().push(asked);
    if let Some(refusal) = refusal {
        return answer(refusal, &shared).await;
    }
    let reply = shared.replies.lock().unwrap().pop_front();
    answer(reply.unwrap_or_else(|| says(&["You said: ", &said])), &shared).await
}

async fn answer(reply: Reply, shared: &Data<Shared>) -> HttpResponse {
    match reply {
        Reply::Status(status, headers, body) => {
            let mut response = HttpResponse::build(StatusCode::from_u16(status).unwrap());
            for (name, value) in headers {
                response.insert_header((name, value));
            }
            response.body(body)
        }
        Reply::After(told, reply) => {
            told.notified().await;
            Box::pin(answer(*reply, shared)).await
        }
        Reply::Stream(pieces, end) => {
            let open = Open::new(shared.clone().into_inner());
            let pieces = stream::iter(pieces).then(|piece| async {
                // Each piece is written before the next one is made.
                tokio::task::yield_now().await;
                Ok::<_, std::io::Error>(piece)
            });
            let rest = match end {
                End::Orderly => stream::empty().boxed_local(),
                End::Cut => stream::once(async {
                    // What was written is sent first.
                    tokio::task::yield_now().await;
                    Err(std::io::Error::other("cut"))
                })
                .boxed_local(),
                End::Hang => stream::pending().boxed_local(),
                End::Alive => stream::repeat(Bytes::from_static(b": alive\n\n"))
                    .then(|piece| async move {
                        tokio::time::sleep(ALIVE).await;
                        Ok(piece)
                    })
                    .boxed_local(),
            };
            let body = pieces.chain(rest).map(move |piece| {
                let _ = &open;
                piece
            });
            HttpResponse::Ok().content_type("text/event-stream").streaming(body)
        }
    }
}

/// Counts an answer while it is written.
struct Open(Arc<Shared>);

impl Open {
    fn new(shared: Arc<Shared>) -> Self {
        shared.open.fetch_add(1, Ordering::SeqCst);
        Self(shared)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A piece of an answer with this delta.
pub fn delta(delta: Value) -> Bytes {
    chunk(json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] }))
}

/// A piece of an answer.
pub fn chunk(chunk: Value) -> Bytes {
    Bytes::from(format!("data: {chunk}\n\n"))
}

/// The pieces that end an answer.
pub fn finish(reason: &str) -> [Bytes; 3] {
    let usage = json!({ "prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": { "cached_tokens": 4 } });
    [
        chunk(json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })),
        chunk(json!({ "choices": [], "usage": usage })),
        Bytes::from_static(DONE.as_bytes()),
    ]
}

/// An answer of these words.
pub fn says(words: &[&str]) -> Reply {
    let words = words.iter().map(|word| delta(json!({ "content": word })));
    Reply::Stream(words.chain(finish("stop")).collect(), End::Orderly)
}

/// Words, and then this end.
pub fn breaks(words: &[&str], end: End) -> Reply {
    Reply::Stream(words.iter().map(|word| delta(json!({ "content": word }))).collect(), end)
}

/// An answer that calls one tool, its arguments in two pieces.
pub fn calls(tool: &str, arguments: &str) -> Reply {
    let (first, second) = arguments.split_at(arguments.len() / 2);
    let call = |call: Value| delta(json!({ "tool_calls": [call] }));
    let pieces = [
        call(json!({ "index": 0, "id": "c1", "type": "function", "function": { "name": tool, "arguments": "" } })),
        call(json!({ "index": 0, "function": { "arguments": first } })),
        call(json!({ "index": 0, "function": { "arguments": second } })),
    ];
    Reply::Stream(pieces.into_iter().chain(finish("tool_calls")).collect(), End::Orderly)
}

/// A refusal with an object of OpenAI's form.
pub fn refuses(status: u16, message: &str, code: &str) -> Reply {
    let error = json!({ "error": { "message": message, "type": "x", "code": code } });
    Reply::Status(status, vec![("content-type", "application/json".into())], error.to_string())
}
