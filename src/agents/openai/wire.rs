//! Chat completions on the wire: what is sent, and of what comes back the fields that are read.
//!
//! Endpoints differ in what they add and leave out, so everything that is read may be missing.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A request for an answer, streamed.
#[derive(Debug, Serialize)]
pub(super) struct Request<'a> {
    pub model: &'a str,
    pub messages: Vec<Message<'a>>,
    pub stream: bool,
    pub stream_options: StreamOptions,
    #[serde(skip_serializing_if = "<[Tool]>::is_empty")]
    pub tools: &'a [Tool],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<&'a str>,
}

#[derive(Debug, Serialize)]
pub(super) struct StreamOptions {
    pub include_usage: bool,
}

/// A message of the conversation.
#[derive(Debug, Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub(super) enum Message<'a> {
    System {
        content: &'a str,
    },
    User {
        content: &'a Content,
    },
    Assistant {
        content: &'a str,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Called<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: &'a str,
    },
}

/// What somebody says: text alone as it is, which every endpoint takes, or text and images.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Part {
    Text { text: String },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ImageUrl {
    pub url: String,
}

/// A call that the model made, told to it again.
#[derive(Debug, Serialize)]
pub(super) struct Called<'a> {
    pub id: &'a str,
    pub r#type: &'static str,
    pub function: CalledFunction<'a>,
}

#[derive(Debug, Serialize)]
pub(super) struct CalledFunction<'a> {
    pub name: &'a str,
    pub arguments: &'a str,
}

/// A tool that the model may call.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Tool {
    pub r#type: &'static str,
    pub function: Function,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Function {
    pub name: String,
    pub description: String,
    pub parameters: Value,
}

/// One piece of an answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Chunk {
    pub choices: Option<Vec<Choice>>,
    pub usage: Option<Usage>,
    /// Some endpoints say in the stream that it failed.
    pub error: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice {
    pub delta: Option<Delta>,
    pub finish_reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta {
    pub content: Option<String>,
    pub refusal: Option<String>,
    /// Reasoning, as llama.cpp, DeepSeek and others name it.
    pub reasoning_content: Option<String>,
    /// The same, as Ollama, vLLM and OpenRouter name it. Some endpoints send both.
    pub reasoning: Option<String>,
    pub tool_calls: Option<Vec<CallDelta>>,
}

/// A piece of a call. The first one names it, the others add to its arguments.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CallDelta {
    pub index: Option<usize>,
    pub id: Option<String>,
    pub function: Option<FunctionDelta>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FunctionDelta {
    pub name: Option<String>,
    pub arguments: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Usage {
    pub prompt_tokens: Option<i64>,
    pub completion_tokens: Option<i64>,
    pub prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct PromptDetails {
    pub cached_tokens: Option<i64>,
}

/// The answer to `GET /models`.
#[derive(Debug, Deserialize)]
pub(super) struct Models {
    #[serde(default)]
    pub data: Option<Vec<Model>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Model {
    pub id: String,
    /// The tokens of its context, as vLLM says it.
    #[serde(default)]
    pub max_model_len: Option<i64>,
    /// The same, as OpenRouter and others say it.
    #[serde(default)]
    pub context_length: Option<i64>,
}
