//! The name of a channel, and the number that the store knows it by.
//!
//! A channel is an AHP URI (`ahp-root://`, `ahp-session:/…`, `ahp-chat:/…`). Stored keys hold its number, which is
//! given once, when the channel is made, and never used for another.

use std::fmt;
use std::sync::Arc;

/// The URI of the one root channel.
pub const ROOT: &str = "ahp-root://";

/// An AHP URI that names a channel. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Channel(Arc<str>);

impl Channel {
    /// The root channel.
    pub fn root() -> Self {
        Self::from(ROOT)
    }

    /// The URI as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Channel {
    fn from(uri: &str) -> Self {
        Self(Arc::from(uri))
    }
}

impl From<String> for Channel {
    fn from(uri: String) -> Self {
        Self(Arc::from(uri))
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// The number of a channel in stored keys. `0` is never given: it stands for "no channel" in a record's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub u64);

impl ChannelId {
    /// The root channel, which every store has.
    pub const ROOT: ChannelId = ChannelId(1);
}
