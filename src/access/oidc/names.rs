//! Names of people, and how a claim becomes one.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::projections::people::is_name;

/// What of ASCII a name does not have; and `%`, so that no two claims become the same name.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b':').add(b'%');

/// The name of the person whom an issuer calls `claim`: white space, control characters, `:`, `%` and all that is not ASCII
/// are percent-encoded, the rest stays. `None` where that is empty or too long.
pub fn user_name(claim: &str) -> Option<String> {
    let name = utf8_percent_encode(claim, ENCODED).to_string();
    is_name(&name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_become_names_and_no_two_the_same() {
        let names = [
            ("ada", "ada"),
            ("auth0|5f7c", "auth0|5f7c"),
            ("ada@box.example", "ada@box.example"),
            ("urn:user:7", "urn%3Auser%3A7"),
            ("urn%3Auser%3A7", "urn%253Auser%253A7"),
            ("Ada Lovelace", "Ada%20Lovelace"),
            ("zoë", "zo%C3%AB"),
            ("a\u{0}b", "a%00b"),
        ];
        for (claim, name) in names {
            assert_eq!(user_name(claim).as_deref(), Some(name));
        }
        assert_eq!(user_name(""), None);
        assert_eq!(user_name(&"x".repeat(129)), None);
        assert_eq!(user_name(&":".repeat(43)), None);
    }
}
