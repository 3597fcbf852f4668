//! What an endpoint is let in with, taken out of what it says: some repeat it in their errors.

use secrecy::{ExposeSecret as _, SecretString};

/// What stands in its place.
const HIDDEN: &str = "(hidden)";
/// Shorter ones are no secrets, and stand in many words.
const SHORTEST: usize = 4;

/// The secret of one request; none where it has none.
#[derive(Debug, Clone, Default)]
pub(super) struct Hidden(Option<SecretString>);

impl Hidden {
    /// Nothing is hidden.
    #[cfg(test)]
    pub const NOTHING: Self = Self(None);

    pub fn new(secret: Option<&SecretString>) -> Self {
        Self(secret.cloned())
    }

    /// `text` without it.
    pub fn from(&self, text: &str) -> String {
        let secret = self.0.as_ref().map(|secret| secret.expose_secret().trim());
        match secret.filter(|secret| secret.len() >= SHORTEST) {
            Some(secret) => text.replace(secret, HIDDEN),
            None => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_does_not_hold_the_secret() {
        let hidden = |secret: &str| Hidden::new(Some(&secret.to_owned().into()));
        assert_eq!(hidden("sk-123").from("no key sk-123, no sk-123!"), "no key (hidden), no (hidden)!");
        assert_eq!(hidden(" sk-123\n").from("sk-123"), "(hidden)");
        assert_eq!(hidden("a").from("a cat"), "a cat");
        assert_eq!(Hidden::default().from("a cat"), "a cat");
        assert!(!format!("{:?}", hidden("sk-123")).contains("sk-123"));
    }
}
