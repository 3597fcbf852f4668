//! Somebody who brings back what people closed, or erases it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

use super::Broken;
use super::dice::Dice;

/// What was closed: a session, or a chat with the session that it was in.
#[derive(Debug, Clone)]
pub struct Closed {
    pub uri: String,
    pub session: Option<String>,
}

/// See the head of this file.
pub struct Operator {
    dice: Dice,
    /// Everything whose erasure was asked for; whether it was answered.
    pub erased: BTreeMap<String, bool>,
    /// What was brought back: with the session of a chat.
    pub restored: Vec<Closed>,
}

impl Operator {
    pub fn new(dice: Dice) -> Self {
        Self { dice, erased: BTreeMap::new(), restored: Vec::new() }
    }

    /// Works on what people close until nobody closes anything any more.
    pub async fn work(&mut self, port: u16, mut closed: UnboundedReceiver<Closed>) -> Result<(), Broken> {
        while let Some(closed) = closed.recv().await {
            let back = self.dice.chance(50);
            if back && post(port, "restore", &closed.uri).await? {
                self.restored.push(closed.clone());
            }
            if self.dice.chance(if back { 20 } else { 60 }) {
                // Asked for from here on, whatever becomes of it.
                self.erased.entry(closed.uri.clone()).or_default();
                self.restored.retain(|gone| gone.uri != closed.uri && gone.session.as_ref() != Some(&closed.uri));
                if post(port, "erase", &closed.uri).await? {
                    self.erased.insert(closed.uri, true);
                }
            }
        }
        Ok(())
    }
}

/// Whether it was done. A host that is gone did nothing that counts.
async fn post(port: u16, verb: &str, uri: &str) -> Result<bool, Broken> {
    let url = format!("http://127.0.0.1:{port}/api/log/{verb}");
    let body = json!({ "uri": uri }).to_string();
    let send = move || ureq::post(&url).header("content-type", "application/json").send(body).is_ok();
    tokio::task::spawn_blocking(send).await.map_err(Broken::new)
}

/// What the log says was erased: its record stands there though its events do not.
pub fn erased(port: u16) -> Result<BTreeSet<String>, Broken> {
    #[derive(Deserialize)]
    struct Line {
        action: Value,
    }
    let url = format!("http://127.0.0.1:{port}/api/log?type=host/erased");
    let mut answer = ureq::get(&url).call().map_err(Broken::new)?;
    let text = answer.body_mut().read_to_string().map_err(Broken::new)?;
    let uri = |line: &str| {
        let line: Line = serde_json::from_str(line).map_err(|error| Broken::new(format!("{error}: {line}")))?;
        Ok(line.action["uri"].as_str().unwrap_or_default().to_owned())
    };
    text.lines().map(uri).collect()
}
