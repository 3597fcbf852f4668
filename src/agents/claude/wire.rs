//! What the CLI says and is told: one JSON object a line.
//!
//! Read leniently: keys come in any order, versions add some and leave others out, and what is not known is passed over.

use serde_json::{Value, json};

use crate::actors::agent::PromptBlock;
use crate::clock::Millis;

/// A line of the CLI.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Said {
    /// A run begins, in this conversation.
    Init {
        conversation: String,
        model: Option<String>,
        mode: Option<String>,
    },
    /// It is compacting its context, or has done that.
    Compacting(bool),
    /// It changed its permission mode.
    Mode(String),
    Compacted {
        before: Option<u64>,
        after: Option<u64>,
    },
    /// The model is asked again after an error.
    Retry {
        why: String,
    },
    TaskStarted(Task),
    TaskEnded {
        task: String,
        call: Option<String>,
        status: String,
    },
    /// What became of a message that was written to it.
    Message {
        id: String,
        state: MessageState,
    },
    Stream {
        parent: Option<String>,
        event: Value,
    },
    Assistant(Entry),
    User(Entry),
    /// A call waits for a decision.
    Ask(Ask),
    /// Nobody's decision is awaited any more.
    Withdrawn {
        request: String,
    },
    /// It asks for something else.
    Request {
        request: String,
        what: String,
    },
    /// The answer to a request.
    Answer {
        request: String,
        answer: Result<Value, String>,
    },
    /// What a plan's limit says: when it lifts, where it holds.
    Limit {
        resets_at: Option<Millis>,
    },
    /// A run is over.
    Result(Box<Outcome>),
    /// Nothing that is read.
    Other,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageState {
    /// It waits.
    Queued,
    /// It is in a run.
    Started,
    /// It never came into one.
    Dropped,
    Done,
}

/// Something that runs beside the model: a subagent, a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) id: String,
    pub(super) call: Option<String>,
    pub(super) kind: String,
    pub(super) agent: Option<String>,
    pub(super) description: String,
    pub(super) prompt: String,
    pub(super) background: bool,
}

/// An entry of the conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Entry {
    pub(super) id: String,
    /// The call of the subagent that it belongs to.
    pub(super) parent: Option<String>,
    /// Its blocks; one of text where it is text alone.
    pub(super) content: Vec<Value>,
    /// A message of ours, come back.
    pub(super) replayed: bool,
    /// The kind of error that it tells, for a message that the CLI made itself.
    pub(super) error: Option<String>,
    /// What a tool's result is, beside its text.
    pub(super) outcome: Value,
}

/// A call that waits for a decision.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Ask {
    pub(super) request: String,
    pub(super) call: String,
    pub(super) tool: String,
    pub(super) display_name: Option<String>,
    pub(super) input: Value,
    pub(super) description: Option<String>,
    pub(super) suggestions: Vec<Value>,
}

/// How a run ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Outcome {
    pub(super) is_error: bool,
    pub(super) subtype: String,
    pub(super) text: String,
    pub(super) status: Option<u64>,
    pub(super) reason: Option<String>,
    pub(super) usage: Value,
    pub(super) models: Value,
    pub(super) total_cost: Option<f64>,
    pub(super) cost: Option<f64>,
    /// How often the model was asked.
    pub(super) rounds: u64,
}

fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(Value::as_str).map(str::to_owned)
}

fn word(value: &Value, key: &str) -> String {
    text(value, key).unwrap_or_default()
}

fn is(value: &Value, key: &str) -> bool {
    value.get(key) == Some(&Value::Bool(true))
}

impl Said {
    /// Reads a line.
    pub(super) fn of(line: &Value) -> Self {
        match word(line, "type").as_str() {
            "system" => Self::system(line),
            "stream_event" => Self::Stream {
                parent: text(line, "parent_tool_use_id"),
                event: line.get("event").cloned().unwrap_or_default(),
            },
            "assistant" => Self::Assistant(Entry::of(line)),
            "user" => Self::User(Entry::of(line)),
            "control_request" => Self::request(line),
            "control_cancel_request" => Self::Withdrawn { request: word(line, "request_id") },
            "control_response" => Self::answer(line),
            "command_lifecycle" => {
                let state = match word(line, "state").as_str() {
                    "queued" => MessageState::Queued,
                    "started" => MessageState::Started,
                    "completed" => MessageState::Done,
                    _ => MessageState::Dropped,
                };
                Self::Message { id: word(line, "command_uuid"), state }
            }
            "rate_limit_event" => {
                let limit = line.get("rate_limit_info").cloned().unwrap_or_default();
                let lifts =
                    limit.get("resetsAt").and_then(Value::as_i64).filter(|_| word(&limit, "status") == "rejected");
                Self::Limit { resets_at: lifts.map(|seconds| seconds.saturating_mul(1_000)) }
            }
            "result" => Self::Result(Box::new(Outcome::of(line))),
            _ => Self::Other,
        }
    }

    fn system(line: &Value) -> Self {
        match word(line, "subtype").as_str() {
            "init" => Self::Init {
                conversation: word(line, "session_id"),
                model: text(line, "model"),
                mode: text(line, "permissionMode"),
            },
            "status" if word(line, "status") == "compacting" => Self::Compacting(true),
            "status" if line.get("compact_result").is_some() => Self::Compacting(false),
            "status" => text(line, "permissionMode").map_or(Self::Other, Self::Mode),
            "compact_boundary" => {
                let of = |key| line.get("compact_metadata").and_then(|data| data.get(key)).and_then(Value::as_u64);
                Self::Compacted { before: of("pre_tokens"), after: of("post_tokens") }
            }
            "api_retry" => {
                let status = line.get("error_status").and_then(Value::as_u64);
                let status = status.map(|status| format!(" ({status})")).unwrap_or_default();
                Self::Retry { why: format!("{}{status}", word(line, "error")) }
            }
            "task_started" => Self::TaskStarted(Task {
                id: word(line, "task_id"),
                call: text(line, "tool_use_id"),
                kind: word(line, "task_type"),
                agent: text(line, "subagent_type"),
                description: word(line, "description"),
                prompt: word(line, "prompt"),
                background: is(line, "is_backgrounded"),
            }),
            "task_notification" => Self::TaskEnded {
                task: word(line, "task_id"),
                call: text(line, "tool_use_id"),
                status: word(line, "status"),
            },
            _ => Self::Other,
        }
    }

    fn request(line: &Value) -> Self {
        let id = word(line, "request_id");
        let asked = line.get("request").cloned().unwrap_or_default();
        match word(&asked, "subtype").as_str() {
            "can_use_tool" => Self::Ask(Ask {
                call: text(&asked, "tool_use_id").unwrap_or_else(|| id.clone()),
                request: id,
                tool: word(&asked, "tool_name"),
                display_name: text(&asked, "display_name"),
                input: asked.get("input").cloned().unwrap_or_else(|| json!({})),
                description: text(&asked, "description"),
                suggestions: asked.get("permission_suggestions").and_then(Value::as_array).cloned().unwrap_or_default(),
            }),
            what => Self::Request { request: id, what: what.to_owned() },
        }
    }

    fn answer(line: &Value) -> Self {
        let answer = line.get("response").cloned().unwrap_or_default();
        let refused = word(&answer, "subtype") == "error";
        let outcome = match refused {
            true => Err(word(&answer, "error")),
            false => Ok(answer.get("response").cloned().unwrap_or_default()),
        };
        Self::Answer { request: word(&answer, "request_id"), answer: outcome }
    }
}

impl Entry {
    fn of(line: &Value) -> Self {
        let content = match line.get("message").and_then(|message| message.get("content")) {
            Some(Value::Array(blocks)) => blocks.clone(),
            Some(Value::String(text)) => vec![json!({ "type": "text", "text": text })],
            _ => Vec::new(),
        };
        Self {
            id: word(line, "uuid"),
            parent: text(line, "parent_tool_use_id"),
            content,
            replayed: is(line, "isReplay"),
            error: text(line, "error").or_else(|| is(line, "is_api_error_message").then(|| "unknown".to_owned())),
            outcome: line.get("tool_use_result").cloned().unwrap_or_default(),
        }
    }

    /// Whether it says what a command of the CLI did, in the CLI's own words.
    pub(super) fn is_of_a_command(&self) -> bool {
        self.text().trim_start().starts_with("<local-command-")
    }

    /// All its text.
    pub(super) fn text(&self) -> String {
        self.content.iter().filter_map(|block| block.get("text").and_then(Value::as_str)).collect()
    }
}

impl Outcome {
    fn of(line: &Value) -> Self {
        let errors = line.get("errors").and_then(Value::as_array).into_iter().flatten();
        let errors: Vec<&str> = errors.filter_map(Value::as_str).collect();
        let said = text(line, "result").filter(|text| !text.is_empty());
        let since = line.get("model_usage_since_last_result").and_then(Value::as_object);
        let costs = |models: &serde_json::Map<String, Value>| {
            models.values().filter_map(|model| model.get("costUSD").and_then(Value::as_f64)).sum()
        };
        Self {
            is_error: is(line, "is_error"),
            subtype: word(line, "subtype"),
            text: said.unwrap_or_else(|| errors.join("; ")),
            status: line.get("api_error_status").and_then(Value::as_u64),
            reason: text(line, "terminal_reason"),
            usage: line.get("usage").cloned().unwrap_or_default(),
            models: line.get("modelUsage").cloned().unwrap_or_default(),
            total_cost: line.get("total_cost_usd").and_then(Value::as_f64),
            cost: since.map(costs),
            rounds: line.get("num_turns").and_then(Value::as_u64).unwrap_or_default(),
        }
    }
}

/// A message for the model; `id` names its entry in the conversation.
pub(super) fn message(id: &str, blocks: &[PromptBlock]) -> Value {
    let content: Vec<Value> = blocks.iter().map(block).collect();
    json!({ "type": "user", "uuid": id, "message": { "role": "user", "content": content } })
}

fn block(block: &PromptBlock) -> Value {
    match block {
        PromptBlock::Text { text } => json!({ "type": "text", "text": text }),
        PromptBlock::Image { mime_type, data } => {
            json!({ "type": "image", "source": { "type": "base64", "media_type": mime_type, "data": data } })
        }
        PromptBlock::ResourceLink { uri, name, .. } => {
            let path = crate::resources::uri::file_path(uri).map(|path| path.display().to_string());
            let text = format!("Attached: {name} ({})", path.as_deref().unwrap_or(uri));
            json!({ "type": "text", "text": text })
        }
    }
}

/// A request to the CLI.
pub(super) fn request(id: &str, request: &Value) -> Value {
    json!({ "type": "control_request", "request_id": id, "request": request })
}

/// The answer to a request of the CLI.
pub(super) fn answer(id: &str, answer: &Value) -> Value {
    json!({ "type": "control_response", "response": { "subtype": "success", "request_id": id, "response": answer } })
}

/// The answer to one that this host does not do.
pub(super) fn refusal(id: &str, problem: &str) -> Value {
    json!({ "type": "control_response", "response": { "subtype": "error", "request_id": id, "error": problem } })
}
