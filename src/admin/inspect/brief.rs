//! What an event says, in one short line.

use serde_json::Value;

/// Characters of it, at most.
const LENGTH: usize = 160;

/// Where an action says what it is about, the most telling first.
const TELLING: &[&str] = &[
    "/content",
    "/message/text",
    "/title",
    "/error/message",
    "/part/content",
    "/part/error/message",
    "/invocationMessage",
    "/toolName",
    "/request/message",
    "/result/pastTenseMessage",
    "/summary/title",
    "/changes/title",
    "/changes/activity",
    "/activity",
    "/state/title",
    "/user",
    "/uri",
    "/key",
    "/toolCallId",
    "/turnId",
    "/chat",
    "/id",
];

/// A line about `action`; empty where there is nothing to say.
pub fn brief(action: &[u8]) -> String {
    let value: Value = serde_json::from_slice(action).unwrap_or_default();
    let text = |place: &&str| value.pointer(place).and_then(text_of).filter(|text| !text.trim().is_empty());
    TELLING.iter().find_map(text).map(one_line).unwrap_or_default()
}

fn text_of(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("markdown").and_then(Value::as_str))
}

/// The beginning of `text`, its blanks and line ends each as one blank.
pub fn one_line(text: &str) -> String {
    let mut line = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        let room = LENGTH.saturating_sub(length);
        if room <= 1 {
            line.push('…');
            break;
        }
        if length > 0 {
            line.push(' ');
            length += 1;
        }
        let taken: String = word.chars().take(room).collect();
        length += taken.chars().count();
        line.push_str(&taken);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_the_most_telling_thing_and_is_short() {
        assert_eq!(brief(br#"{"type":"chat/delta","turnId":"t","content":"two\n lines"}"#), "two lines");
        assert_eq!(brief(br#"{"type":"chat/turnStarted","turnId":"t","message":{"text":"hello"}}"#), "hello");
        assert_eq!(brief(br#"{"type":"chat/turnComplete","turnId":"t"}"#), "t");
        assert_eq!(brief(b"no JSON"), "");
        let long = one_line(&"word ".repeat(100));
        assert!(long.chars().count() <= LENGTH + 2 && long.ends_with('…'), "{long}");
    }
}
