//! A client's action until another connection hears it, beside one synced write.

use std::time::Instant;

use serde_json::json;

use crate::Scale;
use crate::client::Client;
use crate::host::Running;
use crate::report::{Goal, Report, percentile};
use crate::support::directory;
use crate::support::limit::{self, PlainFile};

pub fn measure(scale: Scale, report: &mut Report) {
    let directory = directory();
    let running = Running::on(directory.path());
    let mut plain = PlainFile::new(directory.path());
    let bytes = limit::bytes_of(limit::commit().get(..1).unwrap_or_default());
    let mut sender = Client::shaken(running.address, "sender");
    let mut hearer = Client::shaken(running.address, "hearer");
    let chat = sender.session("ahp-session:/echo", "load");
    hearer.subscribe(&chat);
    let (mut plain_times, mut our_times) = (Vec::new(), Vec::new());
    for round in 0..scale.of(600, 150) {
        let before = Instant::now();
        plain.commit(&bytes);
        plain_times.push(before.elapsed());
        let draft = json!({ "text": format!("{round} {}", "x".repeat(200)), "origin": { "kind": "user" } });
        let before = Instant::now();
        let seq = sender.dispatch(&chat, &json!({ "type": "chat/draftChanged", "draft": draft }));
        hearer.until(format!(r#""clientSeq":{seq}}}"#).as_bytes());
        our_times.push(before.elapsed());
    }
    let (plain, ours) = (percentile(&mut plain_times, 0.5), percentile(&mut our_times, 0.5));
    report.ratio("dispatchAction to the echo on another connection, p50", "ms", Goal::AtMost(3.5), plain, ours);
}
