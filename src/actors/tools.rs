//! What the host's own tools for its agents are opened with: a token for each session, made when a process first needs it,
//! held in memory alone, gone with the session and at a restart.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq as _;

use crate::events::{Channel, ChannelId};

/// The path that the tools are served under, by MCP.
pub const PATH: &str = "/mcp";

/// Where a process finds the host's tools, as an MCP server over streamable HTTP.
#[derive(Clone, PartialEq, Eq)]
pub struct HostTools {
    /// Names the chat whose process it is.
    pub url: String,
    /// To be sent as a bearer token.
    pub token: String,
}

impl fmt::Debug for HostTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostTools").field("url", &self.url).finish_non_exhaustive()
    }
}

/// The name of a chat in the path of its tools.
pub fn name_in_path(chat: &Channel) -> String {
    URL_SAFE_NO_PAD.encode(chat.as_str())
}

/// The chat that a name in a path stands for.
pub fn chat_in_path(name: &str) -> Option<Channel> {
    let uri = URL_SAFE_NO_PAD.decode(name).ok()?;
    String::from_utf8(uri).ok().map(Channel::from)
}

/// The tokens of all sessions.
#[derive(Default)]
pub struct ToolTokens(Mutex<HashMap<ChannelId, String>>);

impl ToolTokens {
    fn all(&self) -> MutexGuard<'_, HashMap<ChannelId, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token of a session, made where it has none.
    pub fn of(&self, session: ChannelId) -> String {
        self.all().entry(session).or_insert_with(random).clone()
    }

    /// Whether `sent` is the token of this session. Tells nothing by its time.
    pub fn opens(&self, session: ChannelId, sent: &str) -> bool {
        self.all().get(&session).is_some_and(|token| bool::from(token.as_bytes().ct_eq(sent.as_bytes())))
    }

    /// The session is gone, and so is its token.
    pub fn forget(&self, session: ChannelId) {
        self.all().remove(&session);
    }
}

/// 160 random bits: the parts of two ids that are random.
fn random() -> String {
    format!("{:020x}{:020x}", ulid::Ulid::new().random(), ulid::Ulid::new().random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_its_own_session_until_it_is_forgotten() {
        let tokens = ToolTokens::default();
        let (one, two) = (ChannelId(1), ChannelId(2));
        let token = tokens.of(one);
        assert_eq!((token.len(), tokens.of(one)), (40, token.clone()));
        assert_ne!(tokens.of(two), token);
        assert!(tokens.opens(one, &token) && !tokens.opens(two, &token));
        assert!(!tokens.opens(one, "") && !tokens.opens(ChannelId(3), "") && !tokens.opens(one, &token[1..]));
        tokens.forget(one);
        assert!(!tokens.opens(one, &token));
    }

    #[test]
    fn a_chat_is_named_in_a_path() {
        let chat = Channel::from("ahp-chat://default/YQ?x/../y");
        let name = name_in_path(&chat);
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)), "{name}");
        assert_eq!(chat_in_path(&name), Some(chat));
        assert_eq!(chat_in_path("%"), None);
    }

    #[test]
    fn a_token_is_not_shown() {
        let tools = HostTools { url: "u".into(), token: "secret".into() };
        assert!(!format!("{tools:?}").contains("secret"));
    }
}
