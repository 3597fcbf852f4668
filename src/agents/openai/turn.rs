//! One turn: the model is asked, and asked again with the results of the tools that it called, until it has answered.
//!
//! Always: a turn may be dropped wherever it waits, which closes its connection, and what it had said by then is in the history.
//! Text is counted as said when the chat has taken it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahp_types::common::JsonObject;
use ahp_types::state::{ToolCallResult, ToolResultContent, ToolResultTextContent, UsageInfo};
use serde_json::json;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::calls::{self, Calls};
use super::endpoint::{Answer, Endpoint};
use super::fault::{Cause, Fault};
use super::history::History;
use super::settings::Settings;
use super::tools::{Outcome, Tools};
use super::wire::{Chunk, Content, ImageUrl, Part, Request, StreamOptions, Tool, Usage};
use crate::actors::agent::{
    AgentEvent, AgentInput, AgentSink, Conversation, Ending, ProcessStart, Prompt, PromptBlock,
};
use crate::actors::resource_tokens::{ResourceToken, ResourceTokens};
use crate::actors::tools::HostTools;
use crate::clock::Clock;
use crate::projections::chat;

/// The word for the end of a turn. The host holds the conversation, so any turn can be gone back to.
const REWIND_POINT: &str = "host";

/// Why a turn is not gone on with.
pub(super) enum Left {
    /// The chat is gone.
    Closed,
    Fault(Box<Fault>),
}

impl From<Fault> for Left {
    fn from(fault: Fault) -> Self {
        Left::Fault(Box::new(fault))
    }
}

/// What a process has between and during turns.
pub(super) struct Desk {
    pub events: AgentSink,
    endpoint: Arc<Endpoint>,
    system: Option<String>,
    /// The model where a session names none.
    model: String,
    clock: Clock,
    resource_tokens: Arc<ResourceTokens>,
    settings: Mutex<Settings>,
    history: Mutex<History>,
    conversation: Arc<dyn Conversation>,
    /// Set once what was said before the process started is in the history.
    read: OnceCell<()>,
    host_tools: Option<HostTools>,
    tools: OnceCell<Tools>,
    /// The endpoint said that it takes no tools.
    takes_no_tools: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Desk {
    pub fn new(
        start: ProcessStart,
        endpoint: Arc<Endpoint>,
        system: Option<String>,
        model: String,
        events: AgentSink,
    ) -> Self {
        Self {
            events,
            endpoint,
            system,
            clock: start.clock,
            resource_tokens: start.resource_tokens,
            settings: Mutex::new(Settings::of(&start.config, &model)),
            model,
            history: Mutex::default(),
            conversation: start.conversation,
            read: OnceCell::new(),
            host_tools: start.mcp,
            tools: OnceCell::new(),
            takes_no_tools: AtomicBool::new(false),
        }
    }

    /// Hands an event to the chat; waits while the chat is behind.
    pub async fn emit(&self, event: AgentEvent) -> Result<(), Left> {
        self.events.send(event).await.map_err(|_| Left::Closed)
    }

    /// Takes what is told between and during turns. A turn that runs goes on as it began.
    pub fn hear(&self, input: &AgentInput) {
        if let AgentInput::Configured { config } = input {
            self.configure(config);
        }
    }

    fn configure(&self, config: &JsonObject) {
        *locked(&self.settings) = Settings::of(config, &self.model);
        // Another model may take tools.
        self.takes_no_tools.store(false, Ordering::Relaxed);
    }

    /// Begins a turn, also one that is stopped already: it is a part of the conversation.
    pub fn begin(&self, prompt: &mut Prompt) {
        let message = content(std::mem::take(&mut prompt.blocks));
        locked(&self.history).begin(&prompt.turn_id, message);
    }

    /// Reads what was said before the process started, once.
    async fn read(&self) {
        let read = || async {
            let conversation = Arc::clone(&self.conversation);
            let exchanges = tokio::task::spawn_blocking(move || conversation.exchanges()).await.unwrap_or_default();
            locked(&self.history).told_before(exchanges);
        };
        self.read.get_or_init(read).await;
    }

    async fn list(&self, of: &HostTools) -> Result<Tools, String> {
        let client = self.endpoint.client().map_err(|fault| fault.words().to_owned())?;
        Tools::list(of, client.clone()).await
    }

    /// The host's tools; none where there are none, or where they are not to be had now.
    async fn tools(&self) -> Option<&Tools> {
        let of = self.host_tools.as_ref().filter(|_| !self.takes_no_tools.load(Ordering::Relaxed))?;
        match self.tools.get_or_try_init(|| self.list(of)).await {
            Ok(tools) => Some(tools),
            Err(problem) => {
                tracing::warn!(problem, "an endpoint's chat goes on without the host's tools");
                None
            }
        }
    }
}

/// A running turn.
pub(super) struct Turn<'a> {
    desk: &'a Desk,
    prompt: Prompt,
    settings: Settings,
    /// What all its requests used so far.
    used: Usage,
    /// Whether it was said that the endpoint is slow.
    said_slow: bool,
    /// The token of the last request, where it has one.
    token: Option<ResourceToken>,
}

impl<'a> Turn<'a> {
    pub fn new(desk: &'a Desk, prompt: Prompt) -> Self {
        let mut settings = locked(&desk.settings).clone();
        if let Some(chosen) = &prompt.message.model {
            settings.model.clone_from(&chosen.id);
        }
        Self { desk, prompt, settings, used: Usage::default(), said_slow: false, token: None }
    }

    /// Does the turn, its ending included. Its error says that the chat is gone.
    pub async fn run(mut self) -> Result<(), Left> {
        // At the beginning: also a turn that is stopped or fails can be gone back to.
        self.desk.emit(AgentEvent::RewindPoint { turn_id: self.id(), point: REWIND_POINT.to_owned() }).await?;
        let ending = match self.perform().await {
            Ok(ending) => ending,
            Err(Left::Fault(fault)) => {
                if let Some(token) = self.token.as_ref().filter(|_| fault.cause == Cause::Token) {
                    self.desk.resource_tokens.refused(token);
                }
                fault.ending
            }
            Err(Left::Closed) => return Err(Left::Closed),
        };
        self.desk.emit(AgentEvent::Ended { turn_id: self.id(), ending }).await
    }

    fn id(&self) -> String {
        self.prompt.turn_id.clone()
    }

    fn history(&self) -> MutexGuard<'a, History> {
        locked(&self.desk.history)
    }

    async fn perform(&mut self) -> Result<Ending, Left> {
        self.desk.read().await;
        let rounds = self.desk.endpoint.limits.endpoint.max_tool_rounds;
        for _ in 0..rounds {
            let calls = self.round().await?;
            if calls.is_empty() {
                return Ok(Ending::Complete);
            }
            for (at, call) in calls.into_iter().enumerate() {
                self.call(at, call).await?;
            }
            self.history().next_round();
        }
        let words = format!("the model called tools {rounds} times in one turn without an end");
        Err(Fault::failed("tool-rounds", words, true).into())
    }

    /// Asks once, and says what is answered: the calls that the model makes then, each with the id that the chat knows it by.
    async fn round(&mut self) -> Result<Vec<Shown>, Left> {
        let desk = self.desk;
        let mut answer = self.ask().await?;
        let mut heard = Heard::default();
        while let Some(chunk) = self.unless_slow(answer.next()).await?? {
            self.hear(chunk, &mut heard).await?;
            if heard.bytes > desk.endpoint.limits.max_message {
                crate::agents::count_too_long();
                let words = format!("the model said more than {} bytes at once", desk.endpoint.limits.max_message);
                return Err(Fault::garbage(words).into());
            }
        }
        self.use_up(heard.usage).await?;
        match heard.finish.as_deref() {
            Some("length") => {
                self.notice("The answer is cut off: the model may not say more at once than it has said here.").await?;
            }
            Some("content_filter") => self.notice("The endpoint held back a part of the answer.").await?,
            _ => {}
        }
        let mut calls = heard.calls.finish();
        let mut shown = Vec::new();
        for (call, id) in calls.iter_mut().zip(heard.shown.into_values()) {
            let arguments = calls::arguments(&call.arguments);
            let input = std::mem::take(&mut call.arguments);
            // What is no object would be refused when it is told again.
            call.arguments = if arguments.is_ok() && !input.is_empty() { input.clone() } else { "{}".to_owned() };
            shown.push(Shown { id, name: call.name.clone(), input, arguments });
        }
        self.history().called(calls);
        Ok(shown)
    }

    /// Asks, and asks otherwise where the endpoint says that it cannot answer so.
    async fn ask(&mut self) -> Result<Answer<'a>, Left> {
        let desk = self.desk;
        let endpoint: &'a Endpoint = &desk.endpoint;
        loop {
            let tools: &[Tool] = desk.tools().await.map_or(&[], |tools| &tools.listed);
            let has_tools = !tools.is_empty();
            let body = self.body(tools)?;
            let model = self.settings.model.clone();
            // Anew for each request: the one before may be over by now.
            self.token = self.token_of_sender()?;
            let secret = self.token.as_ref().map(|token| token.secret.clone());
            let fault = match self.unless_slow(endpoint.ask(body, secret.as_ref(), &model, &desk.clock)).await? {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            match fault.cause {
                Cause::Context => {
                    let Some(turns) = self.history().leave_out_older() else { return Err(fault.into()) };
                    let words = format!(
                        "The conversation is longer than the context of the model {model}: from now on it is not told \
                         the oldest {turns} turns."
                    );
                    self.notice(&words).await?;
                }
                Cause::Tools if has_tools => {
                    desk.takes_no_tools.store(true, Ordering::Relaxed);
                    self.notice(&format!("The model answers without the tools of the host: {}", fault.words())).await?;
                }
                Cause::Tools | Cause::Token | Cause::Other => return Err(fault.into()),
            }
        }
    }

    /// The token of who sent the message; `None` for an endpoint that wants none of people.
    fn token_of_sender(&self) -> Result<Option<ResourceToken>, Fault> {
        let Some(resource) = &self.desk.endpoint.resource else { return Ok(None) };
        // What nobody sent is asked in nobody's name.
        let sender = chat::sender(&self.prompt.message).unwrap_or_default();
        let found = self.desk.resource_tokens.find(sender, &resource.resource, self.desk.clock.now());
        found.map(Some).map_err(|reason| Fault::no_token(resource, reason))
    }

    fn body(&self, tools: &[Tool]) -> Result<String, Fault> {
        let history = self.history();
        let request = Request {
            model: &self.settings.model,
            messages: history.messages(self.desk.system.as_deref()),
            stream: true,
            stream_options: StreamOptions { include_usage: true },
            tools,
            temperature: self.settings.temperature,
            reasoning_effort: self.settings.effort.as_deref(),
        };
        Endpoint::body(&request)
    }

    /// Waits, and says so once when that takes long: a model may have to be loaded first.
    async fn unless_slow<T>(&mut self, waits: impl Future<Output = T>) -> Result<T, Left> {
        let mut waits = pin!(waits);
        if !self.said_slow {
            match timeout(self.desk.endpoint.limits.slow_start, &mut waits).await {
                Ok(came) => return Ok(came),
                Err(_) => {
                    self.said_slow = true;
                    self.notice(
                        "The endpoint is slow to answer. A model that has to be loaded first can take minutes.",
                    )
                    .await?;
                }
            }
        }
        Ok(waits.await)
    }

    async fn hear(&mut self, chunk: Chunk, heard: &mut Heard) -> Result<(), Left> {
        if chunk.usage.is_some() {
            heard.usage = chunk.usage;
        }
        let Some(choice) = chunk.choices.into_iter().flatten().next() else { return Ok(()) };
        if choice.finish_reason.is_some() {
            heard.finish = choice.finish_reason;
        }
        let delta = choice.delta.unwrap_or_default();
        if let Some(text) = delta.reasoning_content.or(delta.reasoning).filter(|text| !text.is_empty()) {
            heard.bytes += text.len();
            self.desk.emit(AgentEvent::Reasoning { turn_id: self.id(), text }).await?;
        }
        for text in [delta.content, delta.refusal].into_iter().flatten().filter(|text| !text.is_empty()) {
            heard.bytes += text.len();
            self.desk.emit(AgentEvent::Text { turn_id: self.id(), text: text.clone() }).await?;
            self.history().said(&text);
        }
        for call in delta.tool_calls.into_iter().flatten() {
            heard.bytes +=
                call.function.as_ref().and_then(|function| function.arguments.as_ref()).map_or(0, String::len);
            if let Some((at, name)) = heard.calls.add(call) {
                // Shown as soon as it is known: its arguments may be a whole page.
                let id = ulid::Ulid::new().to_string();
                heard.shown.insert(at, id.clone());
                let started = AgentEvent::ToolStarted {
                    turn_id: self.id(),
                    tool_call_id: id,
                    tool_name: name.clone(),
                    display_name: name,
                    intention: None,
                    contributor: None,
                };
                self.desk.emit(started).await?;
            }
        }
        Ok(())
    }

    async fn use_up(&mut self, usage: Option<Usage>) -> Result<(), Left> {
        let Some(usage) = usage else { return Ok(()) };
        self.used = sum(self.used, usage);
        let usage = UsageInfo {
            input_tokens: self.used.prompt_tokens,
            output_tokens: self.used.completion_tokens,
            model: Some(self.settings.model.clone()),
            cache_read_tokens: self.used.prompt_tokens_details.and_then(|details| details.cached_tokens),
            ..UsageInfo::default()
        };
        self.desk.emit(AgentEvent::Usage { turn_id: self.id(), usage }).await
    }

    async fn notice(&self, text: &str) -> Result<(), Left> {
        self.desk.emit(AgentEvent::Notice { turn_id: self.id(), text: text.to_owned() }).await
    }

    /// Runs the call at this place of the round.
    async fn call(&mut self, at: usize, call: Shown) -> Result<(), Left> {
        let Shown { id, name, input, arguments } = call;
        self.desk
            .emit(AgentEvent::ToolRunning {
                turn_id: self.id(),
                tool_call_id: id.clone(),
                invocation: format!("Run {name}").into(),
                input: Some(input),
            })
            .await?;
        let outcome = match (arguments, self.desk.tools().await) {
            (Ok(arguments), Some(tools)) => tools.call(&name, arguments).await,
            (Ok(_), None) => Outcome { text: format!("there is no tool {name}"), success: false },
            (Err(problem), _) => Outcome { text: problem, success: false },
        };
        self.history().resulted(at, &outcome.text);
        let result = result(&name, outcome);
        self.desk.emit(AgentEvent::ToolDone { turn_id: self.id(), tool_call_id: id, result }).await
    }
}

/// What was heard of one answer.
#[derive(Default)]
struct Heard {
    calls: Calls,
    /// The ids that the chat knows the calls by, by their place.
    shown: BTreeMap<usize, String>,
    usage: Option<Usage>,
    finish: Option<String>,
    bytes: usize,
}

/// A call as the chat shows it.
struct Shown {
    id: String,
    name: String,
    input: String,
    arguments: Result<serde_json::Map<String, serde_json::Value>, String>,
}

fn sum(a: Usage, b: Usage) -> Usage {
    let add = |a: Option<i64>, b: Option<i64>| match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (a, b) => a.or(b),
    };
    let cached = |usage: Usage| usage.prompt_tokens_details.and_then(|details| details.cached_tokens);
    Usage {
        prompt_tokens: add(a.prompt_tokens, b.prompt_tokens),
        completion_tokens: add(a.completion_tokens, b.completion_tokens),
        prompt_tokens_details: Some(super::wire::PromptDetails { cached_tokens: add(cached(a), cached(b)) }),
    }
}

fn result(name: &str, Outcome { text, success }: Outcome) -> ToolCallResult {
    ToolCallResult {
        success,
        past_tense_message: format!("Ran {name}").into(),
        content: Some(vec![ToolResultContent::Text(ToolResultTextContent { text: text.clone() })]),
        structured_content: None,
        error: (!success).then(|| json!({ "message": text })),
    }
}

/// A prompt as the endpoint is told it. It reads no files: a link is told as what it is.
fn content(blocks: Vec<PromptBlock>) -> Content {
    let has_images = blocks.iter().any(|block| matches!(block, PromptBlock::Image { .. }));
    let parts = blocks.into_iter().map(|block| match block {
        PromptBlock::Text { text } => Part::Text { text },
        PromptBlock::Image { mime_type, data } => {
            Part::ImageUrl { image_url: ImageUrl { url: format!("data:{mime_type};base64,{data}") } }
        }
        PromptBlock::ResourceLink { uri, name, .. } => Part::Text { text: format!("[{name}]({uri})") },
    });
    if has_images {
        return Content::Parts(parts.collect());
    }
    let texts = parts.filter_map(|part| match part {
        Part::Text { text } => Some(text),
        Part::ImageUrl { .. } => None,
    });
    Content::Text(texts.collect::<Vec<_>>().join("\n\n"))
}
