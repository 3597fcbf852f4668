//! One turn of the demo: its steps, done in order.
//!
//! Always: a turn may be dropped wherever it waits, and what it had said by then is in the history. Text is counted as
//! said when the chat has taken it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ahp_types::common::JsonObject;
use ahp_types::state::{
    ChatInputAnswer, ChatInputResponseKind, ToolCallResult, ToolResultContent, ToolResultTextContent, UsageInfo,
};
use serde_json::{Value, json};

use super::asks::{self, ALLOW_ALWAYS, Asks, Steering, unique_id};
use super::history::History;
use super::rules::SessionRules;
use super::script::{self, Step};
use super::settings::Settings;
use crate::actors::agent::{AgentEvent, AgentSink, Ending, ProcessStart, Prompt, PromptBlock, ToolDecision};

/// The `errorType` of a turn that was told to fail.
const ERROR_TYPE: &str = "demo";

/// Why a process is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// The chat closed it, or is gone itself.
    Closed,
    Crashed,
}

/// What a process has on its desk between and during turns.
pub(super) struct Desk {
    pub(super) events: AgentSink,
    directories: Vec<String>,
    rules: Arc<SessionRules>,
    settings: RefCell<Settings>,
    history: RefCell<History>,
    asks: RefCell<Asks>,
    /// Where the last turn that can be taken up goes on.
    position: RefCell<Option<Position>>,
    /// The key that the session's memory holds the position under.
    position_key: String,
}

/// The step that a turn goes on with when it is taken up.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Position {
    turn_id: String,
    step: usize,
}

impl Position {
    fn to_value(&self) -> Value {
        json!({"turn": self.turn_id, "step": self.step})
    }

    fn from_value(value: &Value) -> Option<Self> {
        let turn_id = value.get("turn")?.as_str()?.to_owned();
        let step = usize::try_from(value.get("step")?.as_u64()?).ok()?;
        Some(Self { turn_id, step })
    }
}

impl Desk {
    pub(super) fn new(start: ProcessStart, rules: Arc<SessionRules>, events: AgentSink) -> Self {
        let position_key = format!("position:{}", start.chat);
        Self {
            events,
            directories: start.directories,
            rules,
            settings: RefCell::new(Settings::of(&start.config)),
            history: RefCell::new(History::new(start.conversation, start.back_to.map(|back| back.point))),
            asks: RefCell::default(),
            position: RefCell::new(start.memory.get(&position_key).and_then(Position::from_value)),
            position_key,
        }
    }

    /// Hands an event to the chat; waits while the chat is behind.
    pub(super) async fn emit(&self, event: AgentEvent) -> Result<(), Left> {
        self.events.send(event).await.map_err(|_| Left::Closed)
    }

    /// Begins a turn: nothing of the one before it is awaited any more.
    pub(super) fn begin(&self, prompt: &Prompt) {
        self.asks.take();
        self.history.borrow_mut().begin(&prompt.turn_id, &prompt.message.text);
    }

    pub(super) fn configure(&self, config: &JsonObject) {
        *self.settings.borrow_mut() = Settings::of(config);
    }

    pub(super) fn decide(&self, tool_call_id: &str, decision: ToolDecision) {
        self.asks.borrow_mut().decide(tool_call_id, decision);
    }

    pub(super) fn steer(&self, id: String, text: String) {
        self.asks.borrow_mut().steer(Steering { id, text });
    }

    pub(super) fn answer(
        &self,
        request_id: &str,
        response: &ChatInputResponseKind,
        answers: &HashMap<String, ChatInputAnswer>,
    ) {
        self.asks.borrow_mut().answer(request_id, response, answers);
    }
}

/// The part that the next text or reasoning would go into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenPart {
    Text,
    Reasoning,
}

/// A running turn.
pub(super) struct Turn<'a> {
    desk: &'a Desk,
    prompt: Prompt,
    settings: Settings,
    open: Cell<Option<OpenPart>>,
}

impl<'a> Turn<'a> {
    pub(super) fn new(desk: &'a Desk, prompt: Prompt) -> Self {
        let settings = desk.settings.borrow().clone();
        Self { desk, prompt, settings, open: Cell::new(None) }
    }

    /// Does the turn, its ending included.
    pub(super) async fn run(self) -> Result<(), Left> {
        // At the beginning: also a turn that is stopped can be gone back to. The demo's word for its end is the turn's id.
        self.desk.emit(AgentEvent::RewindPoint { turn_id: self.id(), point: self.id() }).await?;
        let ending = self.perform().await?;
        self.desk.emit(AgentEvent::Ended { turn_id: self.id(), ending }).await
    }

    async fn perform(&self) -> Result<Ending, Left> {
        let steps = script::parse(&self.prompt.message.text);
        let first = self.first_step(steps.len());
        if first == 0 {
            self.greet().await?;
        }
        for (at, step) in steps.into_iter().enumerate().skip(first) {
            if let Some(ending) = self.step(at, step).await? {
                return Ok(ending);
            }
            self.say_unsaid().await?;
        }
        Ok(Ending::Complete)
    }

    /// The step to begin with. A turn that is taken up and that nothing is known of has none left.
    fn first_step(&self, steps: usize) -> usize {
        if self.prompt.attempt == 0 {
            return 0;
        }
        match &*self.desk.position.borrow() {
            Some(position) if position.turn_id == self.prompt.turn_id => position.step,
            _ => steps,
        }
    }

    async fn greet(&self) -> Result<(), Left> {
        let greeting = &self.settings.greeting;
        if greeting.is_empty() || !self.desk.history.borrow().is_empty_before(&self.prompt.turn_id) {
            return Ok(());
        }
        self.say(greeting).await
    }

    /// Does one step; `Some` when it ends the turn.
    async fn step(&self, at: usize, step: Step) -> Result<Option<Ending>, Left> {
        match step {
            Step::Say(text) => self.say(&text).await?,
            Step::Words { count, pause } => self.words(count, pause).await?,
            Step::Think(text) => self.think(text).await?,
            Step::Tool { name, input, asks } => self.tool(&name, input, asks).await?,
            Step::Question { text, options, waits } => self.question(&text, &options, waits).await?,
            Step::Sleep(pause) => tokio::time::sleep(pause).await,
            Step::AwaitSteering => self.await_steering().await?,
            Step::Usage { input, output } => self.usage(input, output).await?,
            Step::Notice(text) => self.part(AgentEvent::Notice { turn_id: self.id(), text }).await?,
            Step::Activity(text) => self.desk.emit(AgentEvent::Activity { text }).await?,
            Step::Fail { text, resumable } => return self.fail(at, text, resumable).await.map(Some),
            Step::Crash => return Err(self.crash(at).await?),
            Step::Context => self.say_whole(&self.context()).await?,
            Step::History => self.say_whole(&self.history()).await?,
            Step::Cwd => self.say_whole(&as_json(&self.desk.directories)).await?,
        }
        Ok(None)
    }

    fn id(&self) -> String {
        self.prompt.turn_id.clone()
    }

    // What is said.

    async fn say(&self, text: &str) -> Result<(), Left> {
        let mut separator = self.open_text();
        for word in script::words(text) {
            self.text(std::mem::take(&mut separator), &word).await?;
        }
        Ok(())
    }

    async fn say_whole(&self, text: &str) -> Result<(), Left> {
        self.text(self.open_text(), text).await
    }

    /// Says the answers to questions that the turn did not wait for and that came meanwhile.
    async fn say_unsaid(&self) -> Result<(), Left> {
        let unsaid = self.desk.asks.borrow_mut().take_unsaid();
        for words in unsaid {
            self.say(&words).await?;
        }
        Ok(())
    }

    async fn words(&self, count: u32, pause: Duration) -> Result<(), Left> {
        for number in 1..=count {
            let separator = if number == 1 { self.open_text() } else { Separator::None };
            if number > 1 && !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            self.text(separator, &format!("w{number} ")).await?;
        }
        Ok(())
    }

    async fn think(&self, text: String) -> Result<(), Left> {
        if !self.settings.thinks {
            return Ok(());
        }
        let joins = self.open.replace(Some(OpenPart::Reasoning)) == Some(OpenPart::Reasoning);
        let text = if joins { format!("\n{text}") } else { text };
        self.desk.emit(AgentEvent::Reasoning { turn_id: self.id(), text }).await
    }

    /// Opens a line of text: what has to stand before its first word.
    fn open_text(&self) -> Separator {
        match self.open.replace(Some(OpenPart::Text)) {
            Some(OpenPart::Text) => Separator::Line,
            _ => Separator::Part,
        }
    }

    async fn text(&self, separator: Separator, words: &str) -> Result<(), Left> {
        let text = if separator == Separator::Line { format!("\n{words}") } else { words.to_owned() };
        self.desk.emit(AgentEvent::Text { turn_id: self.id(), text: text.clone() }).await?;
        self.desk.history.borrow_mut().said(&text, separator == Separator::Part);
        Ok(())
    }

    /// Emits what is a part of its own, so that text after it begins another.
    async fn part(&self, event: AgentEvent) -> Result<(), Left> {
        self.open.set(None);
        self.desk.emit(event).await
    }

    // What is asked.

    async fn tool(&self, name: &str, input: String, asks: bool) -> Result<(), Left> {
        let call = unique_id();
        self.part(AgentEvent::ToolStarted {
            turn_id: self.id(),
            tool_call_id: call.clone(),
            tool_name: name.to_owned(),
            display_name: name.to_owned(),
            intention: None,
            contributor: None,
        })
        .await?;
        let input = if asks && self.settings.asks && !self.desk.rules.allows(name) {
            let Some(approved) = self.ask(&call, name, input).await? else { return Ok(()) };
            approved
        } else {
            self.run_unasked(&call, name, &input).await?;
            input
        };
        self.desk
            .emit(AgentEvent::ToolDone { turn_id: self.id(), tool_call_id: call, result: result(name, input) })
            .await
    }

    /// Waits for somebody's decision: the input to run with, or nothing when it was denied.
    async fn ask(&self, call: &str, name: &str, input: String) -> Result<Option<String>, Left> {
        let decision = self.desk.asks.borrow_mut().await_decision(call);
        let ask = asks::tool_ask(name, &input);
        self.desk.emit(AgentEvent::ToolAsked { turn_id: self.id(), tool_call_id: call.to_owned(), ask }).await?;
        match decision.await.map_err(|_| Left::Closed)? {
            ToolDecision::Deny { .. } => Ok(None),
            ToolDecision::Approve { option, edited_input } => {
                if option.as_deref() == Some(ALLOW_ALWAYS) {
                    self.remember(SessionRules::key(name), Value::Bool(true)).await?;
                    self.desk.rules.allow(name);
                }
                Ok(Some(edited_input.unwrap_or(input)))
            }
        }
    }

    async fn run_unasked(&self, call: &str, name: &str, input: &str) -> Result<(), Left> {
        self.desk
            .emit(AgentEvent::ToolRunning {
                turn_id: self.id(),
                tool_call_id: call.to_owned(),
                invocation: format!("Run {name}").into(),
                input: Some(input.to_owned()),
            })
            .await
    }

    async fn question(&self, text: &str, options: &[String], waits: bool) -> Result<(), Left> {
        let request = asks::request(text, options, waits);
        if !waits {
            self.desk.asks.borrow_mut().expect_answer(&request.id);
            return self.part(AgentEvent::Asked { turn_id: self.id(), request }).await;
        }
        let answer = self.desk.asks.borrow_mut().await_answer(&request.id);
        self.part(AgentEvent::Asked { turn_id: self.id(), request }).await?;
        let words = answer.await.map_err(|_| Left::Closed)?;
        self.say(&words).await
    }

    /// Waits for a message into this turn. Until it says that it has it, the host keeps the message.
    async fn await_steering(&self) -> Result<(), Left> {
        let message = self.desk.asks.borrow_mut().await_steering();
        self.desk.emit(AgentEvent::TakesSteering { turn_id: self.id() }).await?;
        let Steering { id, text } = message.await.map_err(|_| Left::Closed)?;
        self.desk.emit(AgentEvent::SteeringTaken { turn_id: self.id(), id }).await?;
        self.say(&format!("steered: {text}")).await
    }

    // What is reported, and how it ends.

    async fn usage(&self, input: i64, output: i64) -> Result<(), Left> {
        let chosen = self.prompt.message.model.as_ref().map(|model| model.id.clone());
        let usage = UsageInfo {
            input_tokens: Some(input),
            output_tokens: Some(output),
            model: Some(chosen.unwrap_or_else(|| self.settings.model.clone())),
            ..UsageInfo::default()
        };
        self.desk.emit(AgentEvent::Usage { turn_id: self.id(), usage }).await
    }

    async fn remember(&self, key: String, value: Value) -> Result<(), Left> {
        self.desk.emit(AgentEvent::Remember { key, value }).await
    }

    /// Keeps that the turn goes on after the step `at`, for this process and for the next.
    async fn keep_position(&self, at: usize) -> Result<(), Left> {
        let position = Position { turn_id: self.id(), step: at + 1 };
        let value = position.to_value();
        *self.desk.position.borrow_mut() = Some(position);
        self.remember(self.desk.position_key.clone(), value).await
    }

    async fn fail(&self, at: usize, message: String, resumable: bool) -> Result<Ending, Left> {
        if resumable {
            self.keep_position(at).await?;
        }
        Ok(Ending::Failed { error_type: ERROR_TYPE.to_owned(), message, resumable })
    }

    async fn crash(&self, at: usize) -> Result<Left, Left> {
        self.keep_position(at).await?;
        self.desk.emit(AgentEvent::Gone { problem: "the demo crashed, as it was told to".to_owned() }).await?;
        Ok(Left::Crashed)
    }

    fn context(&self) -> String {
        as_json(&self.prompt.blocks.iter().map(described).collect::<Vec<_>>())
    }

    fn history(&self) -> String {
        as_json(&self.desk.history.borrow().entries_before(&self.prompt.turn_id))
    }
}

/// What stands between a piece of text and what was said before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Separator {
    /// It goes on.
    #[default]
    None,
    /// It begins a line of the open part.
    Line,
    /// It begins a part.
    Part,
}

fn result(name: &str, output: String) -> ToolCallResult {
    ToolCallResult {
        success: true,
        past_tense_message: format!("Ran {name}").into(),
        content: Some(vec![ToolResultContent::Text(ToolResultTextContent { text: output })]),
        structured_content: None,
        error: None,
    }
}

/// A block as `/context` says it: itself, but an image with its size in place of its data.
#[derive(serde::Serialize)]
#[serde(untagged)]
enum Described<'a> {
    Image {
        r#type: &'static str,
        #[serde(rename = "mimeType")]
        mime_type: &'a str,
        size: usize,
    },
    Block(&'a PromptBlock),
}

fn described(block: &PromptBlock) -> Described<'_> {
    match block {
        PromptBlock::Image { mime_type, data } => {
            Described::Image { r#type: "image", mime_type, size: decoded_length(data) }
        }
        block => Described::Block(block),
    }
}

/// The number of bytes that `base64` stands for.
fn decoded_length(base64: &str) -> usize {
    base64.trim_end_matches('=').len() * 3 / 4
}

/// `value` as JSON; plain data never fails to be written.
fn as_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
