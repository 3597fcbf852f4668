//! The memory of chats that are awake, and that none is left when they sleep.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use scrollback::actors::registry::first_chat_uri;
use serde_json::{Value, json};

use crate::Scale;
use crate::child::{self, number, resident};
use crate::client::Client;
use crate::host::{self, Running};
use crate::report::{Goal, Report};
use crate::support::author::{self, Shape};
use crate::support::{directory, store};

const KIB: f64 = 1_024.0;

pub fn measure(scale: Scale, report: &mut Report) {
    let directory = directory();
    let chats = scale.of(2_000, 500);
    author::write(&store(directory.path()), 0..chats, 3, Shape { deltas: 10, bytes: 100 });
    let found = child::of("awake", directory.path(), &chats.to_string());
    let each = (number(&found, "resident") / chats as f64 - number(&found, "state")) / KIB;
    report.number("an awake chat and its session beside the state", "KiB", Goal::AtMost(50.0), each);
    report.number("actors that are left when all chats sleep", "actors", Goal::AtMost(0.0), number(&found, "actors"));
}

/// What waking the chats took of memory, the JSON of one state in bytes, and the actors that are left after their sleep.
pub fn cold(directory: &Path, chats: &str) -> Value {
    let chats: u64 = chats.parse().unwrap_or(0);
    let (mut settings, protocol) = host::settings();
    settings.idle_timeout = Duration::from_secs(20);
    let running = Running::over(Arc::new(store(directory)), (settings, protocol));
    let mut client = Client::shaken(running.address, "waker");
    let wake = |client: &mut Client, number: u64| {
        let chat = first_chat_uri(&format!("ahp-session:/load-{number}"));
        client.ask_raw("subscribe", &json!({ "channel": chat })).len()
    };
    // What the engine caches is not the chats'.
    for number in 0..chats {
        scan(&running, number);
    }
    let before = resident();
    let bytes: usize = (0..chats).map(|number| wake(&mut client, number)).sum();
    let taken = resident() - before;
    let slept = Instant::now();
    while running.host.actors() > 0 && slept.elapsed() < Duration::from_secs(60) {
        // The doze is the actors' own; this thread only looks.
        let (_keep, wait) = std::sync::mpsc::channel::<()>();
        let _ = wait.recv_timeout(Duration::from_millis(100));
    }
    json!({ "resident": taken, "state": bytes as f64 / chats.max(1) as f64, "actors": running.host.actors() })
}

fn scan(running: &Running, number: u64) {
    let (chat, session) = crate::support::channels_of(running.host.store().as_ref(), number);
    for channel in [chat, session] {
        let read = &mut |_| std::ops::ControlFlow::Continue(());
        running.host.store().scan_channel(channel, 0, u64::MAX, read).expect("read");
    }
}
