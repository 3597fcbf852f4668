//! A chat read back through `reconnect` and `/api/events`, beside a scan of the log that sends nothing.

use std::ops::ControlFlow;
use std::time::Instant;

use scrollback::events::{ChannelId, Kind, ServerSeq, Store};
use serde_json::json;

use crate::Scale;
use crate::client::{Client, get};
use crate::host::Running;
use crate::report::{Goal, Report, median};
use crate::support::author::{self, Shape};
use crate::support::{channels_of, directory, store};

const ROUNDS: usize = 15;

pub fn measure(scale: Scale, report: &mut Report) {
    let directory = directory();
    let log = store(directory.path());
    // As much of one chat as an answer of 8 MiB holds.
    author::write(&log, 0..1, scale.of(400, 200), Shape { deltas: 40, bytes: 200 });
    author::write(&log, 1..10, scale.of(200, 30), Shape { deltas: 40, bytes: 200 });
    drop(log);
    let running = Running::on(directory.path());
    let store = running.host.store();
    let (chat, _) = channels_of(store.as_ref(), 0);
    let uri = scrollback::actors::registry::first_chat_uri("ahp-session:/load-0");
    let mut rates: [Vec<f64>; 5] = Default::default();
    for round in 0..ROUNDS {
        let mut client = Client::connect(running.address);
        let params = json!({ "channel": "ahp-root://", "clientId": format!("back-{round}"), "lastSeenServerSeq": 1,
            "subscriptions": [uri] });
        let (bytes, events) = scanned(store.as_ref(), Some(chat));
        rates[0].push(timed(events, || assert_ne!(scanned(store.as_ref(), Some(chat)).1, 0)));
        rates[1].push(timed(events, || {
            let answer = client.ask_bytes("reconnect", &params);
            assert!(answer > bytes, "the replay is not whole: {answer}");
        }));
        let path = format!("/api/events?channel={uri}");
        rates[2].push(timed(events, || assert!(get(running.address, &path) > bytes, "the answer is not whole")));
        let (bytes, events) = scanned(store.as_ref(), None);
        rates[3].push(timed(events, || assert_ne!(scanned(store.as_ref(), None).1, 0)));
        rates[4]
            .push(timed(events, || assert!(get(running.address, "/api/events") > bytes, "the answer is not whole")));
    }
    let [scan, reconnect, one, line, all] = rates.map(|mut rates| median(&mut rates));
    let unit = "events/s";
    report.ratio("replay of a chat through reconnect", unit, Goal::AtLeast(0.5), scan, reconnect);
    report.ratio("replay of a chat through /api/events", unit, Goal::AtLeast(0.5), scan, one);
    report.ratio("replay of the line through /api/events", unit, Goal::AtLeast(0.5), line, all);
}

/// Bytes and number of the actions of a channel, or of all.
fn scanned(store: &dyn Store, channel: Option<ChannelId>) -> (usize, usize) {
    let (mut bytes, mut events) = (0, 0);
    let visit = &mut |record: scrollback::events::Record| {
        if record.kind == Kind::Action {
            bytes += record.action.len();
            events += 1;
        }
        ControlFlow::Continue(())
    };
    match channel {
        Some(channel) => store.scan_channel(channel, 0, ServerSeq::MAX, visit),
        None => store.scan(0, ServerSeq::MAX, visit),
    }
    .expect("read");
    (bytes, events)
}

fn timed(events: usize, act: impl FnOnce()) -> f64 {
    let before = Instant::now();
    act();
    events as f64 / before.elapsed().as_secs_f64()
}
