//! Tool calls in words, and their results.

use ahp_types::state::{
    ContentRef, FileEditDiffStats, FileEditSide, ToolCallResult, ToolResultContent, ToolResultEmbeddedResourceContent,
    ToolResultFileEditContent, ToolResultTextContent,
};
use serde_json::{Value, json};

use crate::resources::uri::file_uri;

/// What a tool does in words, now and then, and the key of its input that says to what.
const WORDS: [(&str, &str, &str, &str); 16] = [
    ("Bash", "Run", "Ran", "command"),
    ("Read", "Read", "Read", "file_path"),
    ("Write", "Write", "Wrote", "file_path"),
    ("Edit", "Edit", "Edited", "file_path"),
    ("MultiEdit", "Edit", "Edited", "file_path"),
    ("NotebookEdit", "Edit", "Edited", "notebook_path"),
    ("Glob", "Find files", "Found files", "pattern"),
    ("Grep", "Search for", "Searched for", "pattern"),
    ("WebFetch", "Fetch", "Fetched", "url"),
    ("WebSearch", "Search the web for", "Searched the web for", "query"),
    ("Task", "Delegate:", "Delegated:", "description"),
    ("Agent", "Delegate:", "Delegated:", "description"),
    ("Skill", "Use the skill", "Used the skill", "skill"),
    ("AskUserQuestion", "Ask", "Asked", "header"),
    ("EnterPlanMode", "Make a plan", "Made a plan", ""),
    ("ExitPlanMode", "Carry out the plan", "Carried out the plan", "plan"),
];
/// How much of an input stands in a line, in bytes.
const SHOWN: usize = 200;

/// The name of a tool for people: tools of MCP servers come as `mcp__SERVER__TOOL`.
pub(super) fn display_name(tool: &str) -> String {
    match tool.strip_prefix("mcp__").and_then(|rest| rest.split_once("__")) {
        Some((server, tool)) => format!("{tool} ({server})"),
        None => tool.to_owned(),
    }
}

/// What a call does.
pub(super) fn invocation(tool: &str, input: &Value) -> String {
    words(tool, input, false)
}

fn words(tool: &str, input: &Value, past: bool) -> String {
    let Some((_, now, then, key)) = WORDS.iter().find(|(name, ..)| *name == tool) else {
        let verb = if past { "Used" } else { "Use" };
        return format!("{verb} {}", display_name(tool));
    };
    let verb = if past { then } else { now };
    match input.get(key).and_then(Value::as_str).filter(|object| !object.is_empty()) {
        Some(object) => format!("{verb} {}", shown(object)),
        None if key.is_empty() => (*verb).to_owned(),
        None => format!("{verb} …"),
    }
}

/// The first line, not too much of it.
fn shown(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let cut = line.floor_char_boundary(SHOWN);
    let whole = cut == line.len() && line.len() == text.trim_end().len();
    let line = line.get(..cut).unwrap_or_default();
    if whole { line.to_owned() } else { format!("{line}…") }
}

/// An input as people see and edit it.
pub(super) fn input_text(input: &Value) -> String {
    serde_json::to_string_pretty(input).unwrap_or_default()
}

/// How a call ended. `block` is the result as the model is given it, `outcome` what the CLI says beside it.
pub(super) fn result(tool: &str, input: &Value, block: &Value, outcome: &Value) -> ToolCallResult {
    let failed = block.get("is_error") == Some(&Value::Bool(true));
    let mut content = Vec::new();
    if !failed {
        content.extend(edit(outcome).map(ToolResultContent::FileEdit));
    }
    match block.get("content") {
        Some(Value::String(text)) if !text.is_empty() => content.push(plain(text)),
        Some(Value::Array(blocks)) => content.extend(blocks.iter().filter_map(piece)),
        _ => {}
    }
    let problem = || block.get("content").map(|content| json!({ "message": problem_of(content) }));
    ToolCallResult {
        success: !failed,
        past_tense_message: words(tool, input, true).into(),
        content: Some(content),
        structured_content: None,
        error: failed.then(problem).flatten(),
    }
}

fn problem_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        other => other.as_array().into_iter().flatten().filter_map(|block| block.get("text")?.as_str()).collect(),
    }
}

fn plain(text: &str) -> ToolResultContent {
    ToolResultContent::Text(ToolResultTextContent { text: text.to_owned() })
}

fn piece(block: &Value) -> Option<ToolResultContent> {
    match block.get("type")?.as_str()? {
        "text" => Some(plain(block.get("text")?.as_str()?)),
        "image" => {
            let source = block.get("source")?;
            Some(ToolResultContent::EmbeddedResource(ToolResultEmbeddedResourceContent {
                data: source.get("data")?.as_str()?.to_owned(),
                content_type: source.get("media_type")?.as_str()?.to_owned(),
            }))
        }
        _ => None,
    }
}

/// The file that a call changed, in place: what it held before is not kept.
fn edit(outcome: &Value) -> Option<ToolResultFileEditContent> {
    let patch = outcome.get("structuredPatch")?.as_array()?;
    let uri = file_uri(std::path::Path::new(outcome.get("filePath")?.as_str()?));
    let lines = patch.iter().filter_map(|hunk| hunk.get("lines")?.as_array()).flatten().filter_map(Value::as_str);
    let (mut added, mut removed) = (0, 0);
    for line in lines {
        added += i64::from(line.starts_with('+'));
        removed += i64::from(line.starts_with('-'));
    }
    if outcome.get("type").and_then(Value::as_str) == Some("create") {
        let made = outcome.get("content").and_then(Value::as_str).unwrap_or_default();
        added = i64::try_from(made.lines().count()).unwrap_or(i64::MAX);
    }
    let content = ContentRef { uri: uri.clone(), size_hint: None, content_type: None, nonce: None };
    Some(ToolResultFileEditContent {
        before: None,
        after: Some(FileEditSide { uri, content }),
        diff: Some(FileEditDiffStats { added: Some(added), removed: Some(removed) }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_told_in_words_and_long_inputs_are_cut() {
        assert_eq!(invocation("Bash", &json!({ "command": "ls -l\nrm x" })), "Run ls -l…");
        assert_eq!(invocation("Read", &json!({ "file_path": "/a/b" })), "Read /a/b");
        assert_eq!(invocation("ExitPlanMode", &json!({})), "Carry out the plan …");
        assert_eq!(invocation("mcp__scrollback__publish_visual", &json!({})), "Use publish_visual (scrollback)");
        assert!(invocation("Bash", &json!({ "command": "ä".repeat(500) })).len() < 220);
        assert_eq!(invocation("Bash", &Value::Null), "Run …");
    }

    #[test]
    fn a_changed_file_is_an_edit_with_its_lines_counted() {
        let outcome =
            json!({ "filePath": "/w/a b.txt", "structuredPatch": [{ "lines": ["-abc", "+abcd", " x", "+y"] }] });
        let block = json!({ "type": "tool_result", "tool_use_id": "c", "content": "updated" });
        let done = result("Edit", &json!({ "file_path": "/w/a b.txt" }), &block, &outcome);
        let content = serde_json::to_value(done.content).unwrap();
        assert_eq!(content[0]["type"], "fileEdit");
        assert_eq!(content[0]["after"]["uri"], "file:///w/a%20b.txt");
        assert_eq!(content[0]["diff"], json!({ "added": 2, "removed": 1 }));
        assert_eq!(content[1]["text"], "updated");
    }

    #[test]
    fn a_call_that_failed_says_why_and_changed_no_file() {
        let block = json!({ "content": "no thanks", "is_error": true });
        let outcome = json!({ "filePath": "/w/a", "structuredPatch": [] });
        let done = result("Write", &json!({}), &block, &outcome);
        assert!(!done.success);
        assert_eq!(done.error.unwrap()["message"], "no thanks");
        assert_eq!(done.content.unwrap().len(), 1);
    }
}
