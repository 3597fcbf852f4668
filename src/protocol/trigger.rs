//! What somebody is about to write: the word before the cursor, and what it begins with. Pure.
//!
//! Offsets are in UTF-16 code units, as clients count them.

/// What a word asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// `/` at the beginning of a line.
    Command,
    /// `@`
    Path,
    /// `#`
    Reference,
}

/// A word that asks for something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked<'a> {
    pub trigger: Trigger,
    /// What was written behind the trigger.
    pub query: &'a str,
    /// Where the trigger stands, in UTF-16 code units.
    pub start: u64,
}

/// The place in `text` that `offset` UTF-16 code units lead to; nothing inside a character and beyond the end.
pub fn place(text: &str, offset: u64) -> Option<usize> {
    let mut units = 0;
    for (at, c) in text.char_indices() {
        if units == offset {
            return Some(at);
        }
        units += c.len_utf16() as u64;
    }
    (units == offset).then_some(text.len())
}

/// What is asked for at the end of `before`.
pub fn asked(before: &str) -> Option<Asked<'_>> {
    let start =
        before.rfind(char::is_whitespace).map_or(0, |at| at + before[at..].chars().next().map_or(0, char::len_utf8));
    let word = before.get(start..)?;
    // A name in brackets or quotes is one, too.
    let opened = word.trim_start_matches(['(', '[', '{', '<', '"', '\'', '`']);
    let start = start + (word.len() - opened.len());
    let mut chars = opened.chars();
    let trigger = match chars.next()? {
        '/' if before.get(..start)?.chars().next_back().is_none_or(|c| c == '\n') => Trigger::Command,
        '@' => Trigger::Path,
        '#' => Trigger::Reference,
        _ => return None,
    };
    let start = before.get(..start)?.encode_utf16().count() as u64;
    Some(Asked { trigger, query: chars.as_str(), start })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(before: &str) -> Option<(Trigger, &str, u64)> {
        asked(before).map(|asked| (asked.trigger, asked.query, asked.start))
    }

    #[test]
    fn offsets_count_utf16_units_and_never_split_a_character() {
        let text = "a😀é";
        let places: Vec<_> = (0..=5).map(|offset| place(text, offset)).collect();
        assert_eq!(places, [Some(0), Some(1), None, Some(5), Some(7), None]);
        assert_eq!((place("", 0), place("", 1)), (Some(0), None));
    }

    #[test]
    fn the_word_before_the_cursor_asks_by_what_it_begins_with() {
        assert_eq!(found("look at @foo"), Some((Trigger::Path, "foo", 8)));
        assert_eq!(found("😀 @"), Some((Trigger::Path, "", 3)));
        assert_eq!(found("see (#chat:x"), Some((Trigger::Reference, "chat:x", 5)));
        assert_eq!(found("/sa"), Some((Trigger::Command, "sa", 0)));
        assert_eq!(found("one\n/"), Some((Trigger::Command, "", 4)));
        for nothing in ["", "word", "a@b", "see /usr", "@foo ", "/say x", " /say", "(/x"] {
            assert_eq!(found(nothing), None, "{nothing}");
        }
    }
}
