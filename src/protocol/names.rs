//! What kind of channel a URI can name, as far as its text tells.

/// Whether `uri` has the shape of a session's: `ahp-session:/<id>`, or `<provider>:/<id>` for one of `providers`.
pub fn is_session<'a>(uri: &str, mut providers: impl Iterator<Item = &'a str>) -> bool {
    let Some((scheme, path)) = uri.split_once(":/") else { return false };
    let is_other = path.ends_with("/annotations") || path.contains("/changeset");
    let is_text = !path.contains(['?', '#']) && is_plain(path);
    let is_id = !path.is_empty() && !path.starts_with('/') && is_text && !is_other;
    is_id && (scheme == "ahp-session" || (is_provider(scheme) && providers.any(|provider| provider == scheme)))
}

/// Whether a channel's name reads like a session's, whoever its provider is.
pub fn reads_as_session(uri: &str) -> bool {
    uri.split_once(":/").is_some_and(|(scheme, _)| is_session(uri, std::iter::once(scheme)))
}

/// Whether `uri` may name a chat: anything with a scheme that is not another kind of channel's.
pub fn is_chat(uri: &str) -> bool {
    let Some((scheme, rest)) = uri.split_once(':') else { return false };
    let is_own_kind = scheme.starts_with("ahp-") && scheme != "ahp-chat";
    !scheme.is_empty() && !rest.is_empty() && !is_own_kind && is_plain(uri)
}

/// Whether `text` shows what it is: no white space, no control characters, none that turn the direction of writing.
fn is_plain(text: &str) -> bool {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !text.contains(|c: char| c.is_whitespace() || c.is_control() || turns(c))
}

fn is_provider(scheme: &str) -> bool {
    !scheme.is_empty() && !scheme.starts_with("ahp-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_nothing_that_hides_or_turns() {
        for odd in ["\0", "\u{1b}[31m", "a b", "\u{202e}", "\n"] {
            assert!(!is_session(&format!("ahp-session:/{odd}"), std::iter::empty()), "{odd:?}");
            assert!(!is_chat(&format!("ahp-chat:/{odd}")), "{odd:?}");
        }
        assert!(is_session("ahp-session:/größe", std::iter::empty()));
    }

    #[test]
    fn sessions_are_named_by_ahp_or_by_a_provider() {
        let is = |uri| is_session(uri, ["demo"].into_iter());
        for good in ["ahp-session:/s1", "demo:/s1", "ahp-session:/3f2a-%20b"] {
            assert!(is(good), "{good}");
        }
        for bad in
            ["ahp-session:/", "ahp-session://s1", "ahp-session:/s1/annotations", "other:/s1", "s1", "ahp-chat:/c"]
        {
            assert!(!is(bad), "{bad}");
        }
    }

    #[test]
    fn channels_of_sessions_read_as_such() {
        assert!(reads_as_session("ahp-session:/s1") && reads_as_session("demo:/s1"));
        assert!(!reads_as_session("ahp-root://") && !reads_as_session("ahp-chat:/c1"));
    }

    #[test]
    fn chats_are_not_named_like_other_channels() {
        assert!(is_chat("ahp-chat:/c1") && is_chat("ahp-chat://id/c2Vzcw"));
        assert!(!is_chat("ahp-root://") && !is_chat("ahp-session:/s") && !is_chat("c1") && !is_chat(":/x"));
    }
}
