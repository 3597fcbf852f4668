//! What an agent shows, in AHP's words: content of answers as markdown, content of tool calls as their results.

use std::fmt::Write as _;
use std::path::Path;

use agent_client_protocol::v1::schema::{
    ContentBlock, Diff, EmbeddedResourceResource, Plan, PlanEntryStatus, ToolCallContent,
};
use ahp_types::state::{
    ContentRef, FileEditDiffStats, FileEditSide, ToolResultContent, ToolResultEmbeddedResourceContent,
    ToolResultFileEditContent, ToolResultResourceContent, ToolResultTextContent,
};
use serde_json::Value;

use crate::resources::uri::file_uri;

/// Lines that are the same around a change that is shown.
const CONTEXT: usize = 3;
/// Lines of a change that are shown, at most.
const MAX_LINES: usize = 400;

/// A block of an answer as markdown; empty for what cannot be shown as text.
pub(super) fn markdown(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::ResourceLink(link) => format!("[{}]({})", link.title.as_ref().unwrap_or(&link.name), link.uri),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            EmbeddedResourceResource::TextResourceContents(text) => text.text.clone(),
            EmbeddedResourceResource::BlobResourceContents(blob) => format!("<{}>", blob.uri),
            _ => String::new(),
        },
        ContentBlock::Image(image) => image
            .uri
            .as_ref()
            .map_or_else(|| format!("(an image, {})", image.mime_type), |uri| format!("![image]({uri})")),
        _ => String::new(),
    }
}

/// The content of a tool call. A diff becomes an edit of its file, and the changed lines as text; the output of a terminal,
/// which none is offered for, stands as its name.
pub(super) fn of_call(content: &[ToolCallContent]) -> Vec<ToolResultContent> {
    let mut shown = Vec::new();
    for content in content {
        match content {
            ToolCallContent::Content(content) => shown.extend(of_block(&content.content)),
            ToolCallContent::Diff(diff) => shown.extend(of_diff(diff)),
            ToolCallContent::Terminal(terminal) => shown.push(text(format!("terminal {}", terminal.terminal_id))),
            _ => {}
        }
    }
    shown
}

/// What a call that says nothing else gave back.
pub(super) fn of_output(output: &Value) -> Option<ToolResultContent> {
    let named = ["output", "formatted_output", "stdout"].iter().find_map(|key| output.get(key)?.as_str());
    let shown = match (output.as_str(), named) {
        (Some(words), _) | (None, Some(words)) => words.to_owned(),
        (None, None) => serde_json::to_string_pretty(output).unwrap_or_default(),
    };
    (!output.is_null() && !shown.is_empty()).then(|| text(shown))
}

/// A plan as a list that people can read.
pub(super) fn of_plan(plan: &Plan) -> String {
    let mut list = String::new();
    for entry in &plan.entries {
        let (mark, hint) = match entry.status {
            PlanEntryStatus::Completed => ("x", ""),
            PlanEntryStatus::InProgress => (" ", " _(now)_"),
            _ => (" ", ""),
        };
        let _ = writeln!(list, "- [{mark}] {}{hint}", entry.content);
    }
    list
}

pub(super) fn text(text: String) -> ToolResultContent {
    ToolResultContent::Text(ToolResultTextContent { text })
}

fn of_block(block: &ContentBlock) -> Option<ToolResultContent> {
    Some(match block {
        ContentBlock::Image(image) => ToolResultContent::EmbeddedResource(ToolResultEmbeddedResourceContent {
            data: image.data.clone(),
            content_type: image.mime_type.clone(),
        }),
        ContentBlock::Audio(audio) => ToolResultContent::EmbeddedResource(ToolResultEmbeddedResourceContent {
            data: audio.data.clone(),
            content_type: audio.mime_type.clone(),
        }),
        ContentBlock::ResourceLink(link) => ToolResultContent::Resource(ToolResultResourceContent {
            uri: link.uri.clone(),
            size_hint: link.size,
            content_type: link.mime_type.clone(),
            nonce: None,
        }),
        block => {
            let shown = markdown(block);
            if shown.is_empty() {
                return None;
            }
            text(shown)
        }
    })
}

fn of_diff(diff: &Diff) -> [ToolResultContent; 2] {
    let change = Change::of(diff.old_text.as_deref().unwrap_or_default(), &diff.new_text);
    let stats = FileEditDiffStats { added: count(change.added.len()), removed: count(change.removed.len()) };
    // The text before is nowhere to be read again, so the edit is one in place.
    let after = side(&diff.path, diff.new_text.len());
    let edit = ToolResultFileEditContent { before: None, after: Some(after), diff: Some(stats) };
    [ToolResultContent::FileEdit(edit), text(change.shown(&diff.path))]
}

fn side(path: &Path, size: usize) -> FileEditSide {
    let uri = file_uri(path);
    let content = ContentRef { uri: uri.clone(), size_hint: count(size), content_type: None, nonce: None };
    FileEditSide { uri, content }
}

fn count(number: usize) -> Option<i64> {
    i64::try_from(number).ok()
}

/// What differs between two texts: all lines between the first and the last that differ.
struct Change<'a> {
    before: Vec<&'a str>,
    removed: Vec<&'a str>,
    added: Vec<&'a str>,
    after: Vec<&'a str>,
    /// The number of the first line of `before`, from 1.
    first: usize,
}

impl<'a> Change<'a> {
    fn of(old: &'a str, new: &'a str) -> Self {
        let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
        let same = |(a, b): &(&&str, &&str)| a == b;
        let head = old.iter().zip(&new).take_while(same).count();
        let (old_rest, new_rest) = (old.get(head..).unwrap_or_default(), new.get(head..).unwrap_or_default());
        let tail = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(same).count();
        let cut = |rest: &[&'a str]| rest.get(..rest.len() - tail).unwrap_or_default().to_vec();
        let context = head.saturating_sub(CONTEXT);
        let after = old_rest.get(old_rest.len() - tail..).unwrap_or_default();
        Self {
            before: old.get(context..head).unwrap_or_default().to_vec(),
            removed: cut(old_rest),
            added: cut(new_rest),
            after: after.get(..CONTEXT.min(after.len())).unwrap_or_default().to_vec(),
            first: context + 1,
        }
    }

    /// As a unified diff with one hunk.
    fn shown(&self, path: &Path) -> String {
        let around = self.before.len() + self.after.len();
        let (old, new) = (around + self.removed.len(), around + self.added.len());
        let mut shown = format!("{}\n@@ -{},{old} +{},{new} @@\n", path.display(), self.first, self.first);
        let lines = [(' ', &self.before), ('-', &self.removed), ('+', &self.added), (' ', &self.after)];
        let lines: Vec<_> = lines.iter().flat_map(|(sign, lines)| lines.iter().map(move |line| (sign, line))).collect();
        for (sign, line) in lines.iter().take(MAX_LINES) {
            let _ = writeln!(shown, "{sign}{line}");
        }
        if lines.len() > MAX_LINES {
            let _ = writeln!(shown, "… {} more lines", lines.len() - MAX_LINES);
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_diff_is_an_edit_of_its_file_and_the_lines_that_changed() {
        let old = "1\n2\n3\n4\nold\n6\n7\n8\n9\n";
        let diff = Diff::new("/w/a b.txt", old.replace("old", "new\nand more")).old_text(old.to_owned());
        let [ToolResultContent::FileEdit(edit), ToolResultContent::Text(text)] = of_diff(&diff) else { panic!() };
        assert_eq!(edit.after.unwrap().uri, "file:///w/a%20b.txt");
        let stats = edit.diff.unwrap();
        assert_eq!((stats.added, stats.removed), (Some(2), Some(1)));
        assert_eq!(text.text, "/w/a b.txt\n@@ -2,7 +2,8 @@\n 2\n 3\n 4\n-old\n+new\n+and more\n 6\n 7\n 8\n");
    }

    #[test]
    fn a_new_file_and_one_that_is_emptied_are_diffs_too_and_long_ones_are_cut() {
        let shown = |old: &str, new: &str| Change::of(old, new).shown(Path::new("f"));
        assert_eq!(shown("", "a\n"), "f\n@@ -1,0 +1,1 @@\n+a\n");
        assert_eq!(shown("a\n", ""), "f\n@@ -1,1 +1,0 @@\n-a\n");
        assert_eq!(shown("a\na\n", "a\n"), "f\n@@ -1,2 +1,1 @@\n a\n-a\n");
        assert!(shown("", &"x\n".repeat(500)).ends_with("+x\n… 100 more lines\n"));
    }

    #[test]
    fn an_output_is_its_words_where_it_has_any() {
        let shown = |value: Value| match of_output(&value) {
            Some(ToolResultContent::Text(text)) => Some(text.text),
            _ => None,
        };
        assert_eq!(shown(json!("fine")), Some("fine".into()));
        assert_eq!(shown(json!({ "output": "fine", "x": 1 })), Some("fine".into()));
        assert_eq!(shown(json!({ "x": 1 })), Some("{\n  \"x\": 1\n}".into()));
        assert_eq!((shown(json!(null)), shown(json!(""))), (None, None));
    }
}
