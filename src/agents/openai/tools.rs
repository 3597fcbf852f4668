//! The host's own tools, called for a model that cannot call them itself: the official client of MCP.

use std::time::Duration;

use rmcp::model::{CallToolRequestParams, ContentBlock, JsonObject};
use rmcp::service::RunningService;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{RoleClient, ServiceExt as _};
use serde_json::Value;
use tokio::time::timeout;

use super::wire::{Function, Tool};
use crate::actors::tools::HostTools;

/// How long the list of tools may take.
const MAX_LIST: Duration = Duration::from_secs(10);
/// How long a call may take.
const MAX_CALL: Duration = Duration::from_secs(120);

/// The tools of one chat.
pub(super) struct Tools {
    mcp: RunningService<RoleClient, ()>,
    /// As the endpoint is told of them.
    pub listed: Vec<Tool>,
}

/// What came of a call.
pub(super) struct Outcome {
    pub text: String,
    pub success: bool,
}

impl Tools {
    /// Asks which there are.
    pub async fn list(of: &HostTools, client: reqwest::Client) -> Result<Self, String> {
        let config = StreamableHttpClientTransportConfig::with_uri(of.url.clone()).auth_header(of.token.clone());
        let asked = async {
            let transport = StreamableHttpClientTransport::with_client(client, config);
            let mcp = ().serve(transport).await.map_err(|error| error.to_string())?;
            let tools = mcp.list_all_tools().await.map_err(|error| error.to_string())?;
            Ok((mcp, tools))
        };
        let (mcp, tools) =
            timeout(MAX_LIST, asked).await.unwrap_or_else(|_| Err("they were not listed in time".to_owned()))?;
        let listed = tools.into_iter().map(|tool| Tool {
            r#type: "function",
            function: Function {
                name: tool.name.into_owned(),
                description: tool.description.unwrap_or_default().into_owned(),
                parameters: Value::Object((*tool.input_schema).clone()),
            },
        });
        Ok(Self { listed: listed.collect(), mcp })
    }

    /// Calls one. Whatever goes wrong is said to the model.
    pub async fn call(&self, name: &str, arguments: JsonObject) -> Outcome {
        let call = CallToolRequestParams::new(name.to_owned()).with_arguments(arguments);
        match timeout(MAX_CALL, self.mcp.call_tool(call)).await {
            Ok(Ok(result)) => {
                let texts = result.content.iter().filter_map(ContentBlock::as_text).map(|text| text.text.as_str());
                let text = texts.collect::<Vec<_>>().join("\n");
                Outcome { text, success: result.is_error != Some(true) }
            }
            Ok(Err(error)) => Outcome { text: format!("the call failed: {error}"), success: false },
            Err(_) => Outcome { text: "the call took too long".to_owned(), success: false },
        }
    }
}
