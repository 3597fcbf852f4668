//! How the CLI is started: its arguments and its environment.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::settings::{Chosen, DEFAULT};
use crate::actors::tools::HostTools;
use crate::agents::programs::Program;
use crate::resources::uri::file_path;

/// It talks over its standard input and output, all the time, and asks there.
const ALWAYS: [&str; 9] = [
    "-p",
    "--input-format=stream-json",
    "--output-format=stream-json",
    "--verbose",
    "--include-partial-messages",
    "--replay-user-messages",
    "--forward-subagent-text",
    "--permission-prompt-tool",
    "stdio",
];
/// The variable that holds the token of the host's tools: arguments are for everybody to see.
const TOKEN: &str = "SCROLLBACK_MCP_TOKEN";
/// The name of the host's tools as an MCP server.
const SERVER: &str = "scrollback";
/// Variables that are set unless the configuration does.
const DEFAULTS: [(&str, &str); 1] = [("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1")];

/// Where the CLI goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum From {
    /// A new conversation.
    New,
    /// The end of a conversation.
    End(String),
    /// An entry of a conversation, as a conversation of its own.
    Entry { conversation: String, entry: String },
}

/// The program with all its arguments.
pub(super) fn program(
    program: &Program,
    chosen: &Chosen,
    from: &From,
    directories: &[PathBuf],
    tools: Option<&HostTools>,
) -> Program {
    let mut started = program.clone();
    let arguments = &mut started.arguments;
    arguments.extend(ALWAYS.map(str::to_owned));
    if chosen.model != DEFAULT {
        arguments.push(format!("--model={}", chosen.model));
    }
    if chosen.mode != DEFAULT {
        arguments.push(format!("--permission-mode={}", chosen.mode));
    }
    match from {
        From::New => {}
        From::End(conversation) => arguments.push(format!("--resume={conversation}")),
        From::Entry { conversation, entry } => arguments.extend([
            format!("--resume={conversation}"),
            "--fork-session".to_owned(),
            format!("--resume-session-at={entry}"),
        ]),
    }
    arguments.extend(directories.iter().skip(1).map(|directory| format!("--add-dir={}", directory.display())));
    if let Some(tools) = tools {
        let server =
            json!({ "type": "http", "url": tools.url, "headers": { "Authorization": format!("Bearer ${{{TOKEN}}}") } });
        arguments.push(format!("--mcp-config={}", json!({ "mcpServers": { SERVER: server } })));
        arguments.push(format!("--allowedTools=mcp__{SERVER}"));
        started.env.insert(TOKEN.to_owned(), tools.token.clone());
    }
    with_defaults(started)
}

/// The program as it is asked what it can do.
pub(super) fn probed(program: &Program) -> Program {
    let mut probed = program.clone();
    probed.arguments.extend(ALWAYS.map(str::to_owned));
    probed.arguments.push("--no-session-persistence".to_owned());
    with_defaults(probed)
}

fn with_defaults(mut program: Program) -> Program {
    for (name, value) in DEFAULTS {
        program.env.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }
    program
}

/// The paths of a chat's directories, the primary one first.
///
/// # Errors
/// Why there is none to work in.
pub(super) fn paths(directories: &[String]) -> Result<Vec<PathBuf>, String> {
    let paths: Result<Vec<PathBuf>, _> = directories.iter().map(|directory| file_path(directory)).collect();
    let paths = paths.map_err(|fault| format!("a working directory is none of this host: {fault}"))?;
    if paths.is_empty() {
        return Err("the chat has no working directory".to_owned());
    }
    Ok(paths)
}

/// Where a probe works: any directory that is there.
pub(super) fn anywhere() -> &'static Path {
    Path::new("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_of_the_tools_stands_in_no_argument() {
        let tools = HostTools { url: "http://127.0.0.1:1/mcp/x".into(), token: "secret".into() };
        let chosen = Chosen { model: "opus".into(), mode: "plan".into() };
        let from = From::Entry { conversation: "c".into(), entry: "e".into() };
        let directories = [PathBuf::from("/a"), PathBuf::from("/b c")];
        let started = program(&Program::default(), &chosen, &from, &directories, Some(&tools));
        let all = started.arguments.join("\n");
        assert!(!all.contains("secret") && started.env["SCROLLBACK_MCP_TOKEN"] == "secret", "{all}");
        for wanted in [
            "--model=opus",
            "--permission-mode=plan",
            "--resume=c\n--fork-session\n--resume-session-at=e",
            "--add-dir=/b c",
            "Bearer ${SCROLLBACK_MCP_TOKEN}",
        ] {
            assert!(all.contains(wanted), "{all}");
        }
        assert!(!all.contains("--add-dir=/a"));
    }
}
