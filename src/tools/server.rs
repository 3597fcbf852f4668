//! The two tools.
//!
//! What an agent can mend is a tool's error in words, which it reads; only what is no call of a tool is an error of the protocol.

use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, JsonObject, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::actors::command::Refusal;
use crate::actors::host::{Host, ToolUser};
use crate::actors::visuals::{NewVisual, VisualCommand};

const GET_SESSION_CONTEXT: &str = "get_session_context";
const PUBLISH_VISUAL: &str = "publish_visual";

/// The tools of one chat.
pub struct HostToolServer {
    host: Arc<Host>,
    user: ToolUser,
}

/// What `get_session_context` is asked with.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ContextArguments {
    chat: String,
    up_to_turn: Option<String>,
    before: Option<String>,
}

/// What `publish_visual` is asked with.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct VisualArguments {
    title: String,
    html: String,
    max_height: Option<i64>,
    heights: Option<Vec<(i64, i64)>>,
}

impl HostToolServer {
    pub fn new(host: Arc<Host>, user: ToolUser) -> Self {
        Self { host, user }
    }

    async fn context(&self, arguments: JsonObject) -> CallToolResult {
        let asked: ContextArguments = match read(arguments) {
            Ok(asked) => asked,
            Err(problem) => return failed(problem),
        };
        let (host, user) = (Arc::clone(&self.host), self.user.clone());
        let read = move || host.transcript(&user, &asked.chat, asked.up_to_turn.as_deref(), asked.before.as_deref());
        match tokio::task::spawn_blocking(read).await {
            Ok(Ok(page)) => {
                let mut text = page.text;
                if let Some(before) = page.before {
                    text.insert_str(
                        0,
                        &format!("(There is more before this: ask again with before = {before:?}.)\n\n"),
                    );
                }
                if text.is_empty() {
                    text.push_str("(Nothing was said in this chat yet.)");
                }
                text.insert_str(0, &format!("Chat: {}\n\n", page.title));
                CallToolResult::success(vec![ContentBlock::text(text)])
            }
            Ok(Err(refusal)) => refused(&refusal),
            Err(_) => failed("the host is stopping"),
        }
    }

    async fn publish(&self, arguments: JsonObject) -> CallToolResult {
        let asked: VisualArguments = match read(arguments) {
            Ok(asked) => asked,
            Err(problem) => return failed(format!("visual-invalid: {problem}")),
        };
        let VisualArguments { title, html, max_height, heights } = asked;
        let visual = Box::new(NewVisual { title, html, max_height, heights, turn_id: None });
        let (answered, answer) = tokio::sync::oneshot::channel();
        let reply = Box::new(move |answer| drop(answered.send(answer)));
        self.host.visual_of_agent(&self.user, VisualCommand::Publish(visual), reply);
        match answer.await {
            Ok(Ok(visual)) => {
                let visual: Value = serde_json::from_str(visual.get()).unwrap_or_default();
                let id = visual.get("id").and_then(Value::as_str).unwrap_or_default();
                CallToolResult::success(vec![ContentBlock::text(format!(
                    "Published as visual {id}: people see it in the chat."
                ))])
            }
            Ok(Err(refusal)) => refused(&refusal),
            Err(_) => failed("the host lost this call: it is not known whether the page was published"),
        }
    }
}

impl ServerHandler for HostToolServer {
    fn get_info(&self) -> ServerConfig {
        let implementation = Implementation::new("scrollback", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build()).with_server_info(implementation)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![context_tool(), visual_tool()]))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        [context_tool(), visual_tool()].into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = call.arguments.unwrap_or_default();
        let result = match &*call.name {
            GET_SESSION_CONTEXT => self.context(arguments).await,
            PUBLISH_VISUAL => self.publish(arguments).await,
            other => return Err(ErrorData::invalid_params(format!("there is no tool {other}"), None)),
        };
        Ok(result.into())
    }
}

fn read<T: for<'de> Deserialize<'de>>(arguments: JsonObject) -> Result<T, String> {
    serde_json::from_value(Value::Object(arguments)).map_err(|problem| problem.to_string())
}

fn failed(text: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text.into())])
}

fn refused(refusal: &Refusal) -> CallToolResult {
    failed(format!("{}: {}", refusal.code, refusal.message))
}

fn schema(properties: Value, required: &[&str]) -> JsonObject {
    let schema =
        json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
    match schema {
        Value::Object(schema) => schema,
        _ => JsonObject::new(),
    }
}

fn context_tool() -> Tool {
    let properties = json!({
        "chat": { "type": "string", "description": "The link of the chat (ahp-chat:…), or of a session for its main chat." },
        "upToTurn": { "type": "string", "description": "The last turn to read; without it, up to now." },
        "before": { "type": "string", "description": "What an earlier page said, to read the page before it." }
    });
    let words = "Reads another chat of this host: what people said and what the agent answered, oldest first. A page holds the \
                 last 16 KiB and says how to ask for the page before it.";
    let tool = Tool::new(GET_SESSION_CONTEXT, words, schema(properties, &["chat"]));
    tool.with_annotations(ToolAnnotations::new().read_only(true).open_world(false))
}

fn visual_tool() -> Tool {
    let pixels = json!({ "type": "integer", "minimum": 1 });
    let properties = json!({
        "title": { "type": "string", "minLength": 1, "maxLength": 200, "description": "What is shown, in a few words." },
        "html": { "type": "string", "description": "The page: whole or a fragment, with its styles, scripts and images in it." },
        "maxHeight": { "type": "integer", "minimum": 80, "maximum": 2000,
            "description": "How high the frame may become, in pixels; 600 where it is left out." },
        "heights": { "type": "array", "maxItems": 24, "description": "Heights of the page at some widths, where you measured them.",
            "items": { "type": "array", "items": pixels, "minItems": 2, "maxItems": 2 } }
    });
    let words = "Shows people a page in this chat: a chart, a table, a drawing, something to try. It runs in a sandbox: its own \
                 scripts and styles work, nothing is loaded from the network.";
    let tool = Tool::new(PUBLISH_VISUAL, words, schema(properties, &["title", "html"]));
    tool.with_annotations(ToolAnnotations::new().read_only(false).destructive(false).open_world(false))
}
