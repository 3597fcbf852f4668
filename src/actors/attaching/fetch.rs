//! Files that only a client holds, fetched from it by a request of the host.
//!
//! All of a message's files share one time limit, and a few are asked for at once. A client that is gone is not waited for:
//! what was asked of it fails at once.

use std::time::Duration;

use ahp_types::commands::ResourceReadResult;
use futures_util::{StreamExt, stream};
use serde_json::json;
use serde_json::value::RawValue;

use crate::actors::asked::NoAnswer;
use crate::actors::connection::ConnectionRef;
use crate::events::Channel;

/// The method that a client is asked with.
pub const READ: &str = "resourceRead";
/// How many files are asked for at once.
const AT_ONCE: usize = 4;

/// What a client answered: the file as JSON, or why there is none.
pub type Fetched = (usize, Result<Box<RawValue>, String>);

/// Asks the client for each of `wanted`, an attachment's place and its URI.
pub async fn all(connection: &ConnectionRef, wanted: Vec<(usize, String)>, patience: Duration) -> Vec<Fetched> {
    let deadline = tokio::time::Instant::now() + patience;
    let asked = wanted.into_iter().map(|(at, uri)| async move {
        let params = json!({ "channel": Channel::root().as_str(), "uri": uri, "encoding": "base64" });
        let answer = tokio::time::timeout_at(deadline, connection.ask(READ, params)).await;
        (at, answer.unwrap_or(Err(NoAnswer::Late)).map_err(|problem| problem.to_string()))
    });
    stream::iter(asked).buffer_unordered(AT_ONCE).collect().await
}

/// The answer, decoded.
///
/// # Errors
/// What is wrong with it, in words.
pub fn decode(answer: &RawValue) -> Result<ResourceReadResult, String> {
    serde_json::from_str(answer.get()).map_err(|problem| format!("the answer is no file: {problem}"))
}
