//! A host in this process, and two clients of it: raw frames, and the official library.

mod agent;
mod asking;
pub mod attaching;
mod client;
pub mod endpoint;
mod host;
pub mod issuer;
pub mod laws;
mod metrics;
mod mirror;
mod random;
pub mod rebuilt;
mod served;
mod store;
pub mod walk;

pub use agent::RecordingAgent;
pub use asking::{envelopes, markdown, on, streamed, types, word};
pub use client::{Client, chat_of, is_ending, message};
pub use host::{Options, TestHost, opened};
pub use metrics::{met, met_in};
pub use mirror::{Mirrored, ROOT, canonical, difference};
pub use random::{Random, from_environment, seed};
pub use store::Watched;

use std::time::Duration;

/// Waits until `holds`; it is asked again and again.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let mut often = tokio::time::interval(Duration::from_millis(1));
    let waited = async {
        while !holds() {
            often.tick().await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waited).await.is_ok(), "never: {what}");
}

/// What every wait in these tests may take at most. Nothing is ever waited for by its time.
pub const PATIENCE: Duration = Duration::from_secs(30);
