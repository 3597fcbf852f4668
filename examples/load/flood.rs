//! Chats that stream at a person's pace, alone and beside one that floods.
//!
//! Every text is an event of its own: the joining of text that usually spares the log is off.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::Scale;
use crate::agent::{self, micros};
use crate::client::Client;
use crate::host::Running;
use crate::report::{Goal, Report, median, percentile};
use crate::support::directory;

const CHATS: usize = 32;
const PERIOD_MS: u64 = 16;

pub fn measure(scale: Scale, report: &mut Report) {
    let directory = directory();
    let running = Running::on(directory.path());
    let mut client = Client::shaken(running.address, "reader");
    let chats: Vec<String> =
        (0..CHATS).map(|n| client.session(&format!("ahp-session:/calm-{n}"), agent::PROVIDER)).collect();
    chats.iter().for_each(|chat| client.subscribe(chat));
    let mut other = Client::shaken(running.address, "flooder");
    let loud = other.session("ahp-session:/loud", agent::PROVIDER);
    let length = scale.of(3_000, 1_500);
    let (mut middle, mut idle, mut flooded) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..scale.of(5, 3) {
        let mut times = stream(&mut client, &chats, &format!("idle-{round}"), length);
        middle.push(percentile(&mut times, 0.5));
        idle.push(percentile(&mut times, 0.99));
        other.say(&loud, &format!("loud-{round}"), "flood");
        let mut times = stream(&mut client, &chats, &format!("loud-{round}"), length);
        flooded.push(percentile(&mut times, 0.99));
        let turn = format!("loud-{round}");
        other.dispatch(&loud, &json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 }));
    }
    report.number("a delta of 32 chats, idle, p50", "ms", Goal::None, median(&mut middle));
    let (idle, flooded) = (median(&mut idle), median(&mut flooded));
    report.ratio("a delta of 32 chats beside a flood, p99, of the idle one", "ms", Goal::AtMost(3.0), idle, flooded);
}

/// A turn in each chat; how late each delta was, after a moment to settle.
fn stream(client: &mut Client, chats: &[String], turn: &str, length: u64) -> Vec<Duration> {
    for chat in chats {
        client.say(chat, turn, &format!("every {PERIOD_MS} FOR {length}"));
    }
    let (mut ended, mut times) = (0, Vec::new());
    while ended < chats.len() {
        let message = client.next();
        let now = micros(Instant::now());
        let text = std::str::from_utf8(&message).unwrap_or_default();
        if text.contains("chat/turnComplete") {
            ended += 1;
        }
        let due = text.split_once(r#""content":"@"#).and_then(|(_, rest)| rest.split_once(' '));
        times.extend(
            due.and_then(|(due, _)| due.parse().ok()).map(|due| Duration::from_micros(now.saturating_sub(due))),
        );
    }
    let settled = times.len() / 10;
    times.split_off(settled)
}
