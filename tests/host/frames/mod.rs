//! Any sequence of frames, from a few clients at once: the host never panics, answers each request once and no other, and keeps
//! nothing when the sockets are gone.
//!
//! What a peer may do is in `script`, the socket in `wire`. A failure shrinks to a short sequence; its seed is kept beside this
//! file and tried first from then on.

mod requests;
mod script;
mod wire;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, TestRunner};
use scrollback::actors::host::HostSettings;
use scrollback::events::memory::MemoryStore;
use scrollback::projections::verify::verify;
use scrollback::protocol::ProtocolSettings;

use crate::harness::{Options, PATIENCE, TestHost, chat_of};
use script::{Deed, Place, script};
use wire::{Ended, Wire};

/// Where seeds of failures are kept.
const SEEDS: &str = "tests/host/frames/regressions.txt";

/// Bytes of the longest message, so that one over the limit is short.
const MAX_MESSAGE: usize = 64 << 10;

/// Panics of the host's threads. Those that a test asks for are none.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    let (before, own) = (std::panic::take_hook(), std::thread::current().id());
    std::panic::set_hook(Box::new(move |panic| {
        let is_asked = panic.payload_as_str().is_some_and(|text| text.ends_with("was asked to panic"));
        if std::thread::current().id() != own && !is_asked {
            PANICS.fetch_add(1, Ordering::AcqRel);
        }
        before(panic);
    }));
}

fn options(place: &Place) -> Options {
    let short = Duration::from_millis(30);
    let settings = HostSettings {
        default_directory: place.root_uri(),
        allowed_directories: vec![place.root()],
        idle_timeout: short,
        client_grace: short,
        client_tool_timeout: short,
        attachment_timeout: short,
        delta_window: Duration::ZERO,
        ..HostSettings::default()
    };
    let protocol = ProtocolSettings {
        max_message: MAX_MESSAGE,
        max_message_before_handshake: MAX_MESSAGE,
        close_timeout: Duration::from_secs(5),
        ..ProtocolSettings::default()
    };
    Options { settings, protocol, ..Options::default() }
}

/// One peer: it does its deeds, and looks at what came back.
async fn peer(host: &TestHost, place: &Place, deeds: &[Deed]) {
    let mut wire = Wire::open(host.address).await;
    for deed in deeds {
        if wire.send(deed, place).await == Ended::Yes {
            break;
        }
    }
    wire.check().await;
}

/// Waits until nothing is left of the sockets: no connection, subscription or request, and nobody who is awake for them.
async fn nothing_is_left(host: &TestHost) {
    let counts = host.host.hub().counts();
    let left = || [counts.connections(), counts.subscriptions(), counts.requests(), host.host.actors()];
    let mut often = tokio::time::interval(Duration::from_millis(1));
    let waited = async {
        while left() != [0; 4] {
            often.tick().await;
        }
    };
    let is_over = tokio::time::timeout(PATIENCE, waited).await.is_ok();
    assert!(is_over, "connections, subscriptions, requests, actors are left: {:?}", left());
}

#[test]
fn no_sequence_of_frames_makes_the_host_panic_or_leak_or_answer_twice_or_never() {
    count_panics();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let seeds = Box::new(FileFailurePersistence::Direct(SEEDS));
    let config = Config { cases: 8, failure_persistence: Some(seeds), max_shrink_time: 60_000, ..Config::default() };
    let peers = proptest::collection::vec(script(), 1..4);
    TestRunner::new(config)
        .run(&peers, |peers| {
            runtime.block_on(async {
                let place = Place::new();
                let host = TestHost::start(Arc::new(MemoryStore::new().unwrap()), options(&place));
                futures_util::future::join_all(peers.iter().map(|deeds| peer(&host, &place, deeds))).await;
                nothing_is_left(&host).await;
                // It still serves, and its log is whole.
                host.client("after").await;
                verify(host.host.store().as_ref(), &mut |_| ()).unwrap();
                host.stop();
            });
            prop_assert_eq!(PANICS.swap(0, Ordering::AcqRel), 0, "a thread of the host panicked");
            Ok(())
        })
        .unwrap();
}

/// The property says little where nothing is served: of every method, but those that need what no script makes, a request is.
#[tokio::test]
async fn the_scripts_ask_what_the_host_serves() {
    const NEVER: [&str; 8] = [
        "authenticate",
        "initialize",
        "reconnect",
        "createSession",
        "x-scrollback/sendNow",
        "x-scrollback/removeVisual",
        "x-scrollback/stopBackgroundWork",
        "unheardOf",
    ];
    let place = Place::new();
    let host = TestHost::start(Arc::new(MemoryStore::new().unwrap()), options(&place));
    let mut client = host.client("p0").await;
    for session in 0..3 {
        let params = requests::params("createSession", session, &place);
        client.ask("createSession", params.clone()).await.unwrap();
        let chat = chat_of(params["channel"].as_str().unwrap());
        client.subscribe(&chat).await;
        client.run(&chat, "t1", "hello").await;
    }
    let mut unserved = Vec::new();
    let (disposals, others): (Vec<&str>, Vec<&str>) =
        requests::METHODS.iter().partition(|method| method.starts_with("dispose"));
    for method in others.iter().chain(disposals.iter().rev()).filter(|method| !NEVER.contains(method)) {
        let mut refusals = BTreeSet::new();
        for of in 0..60 {
            match client.ask(method, requests::params(method, of, &place)).await {
                Ok(_) => {
                    refusals.clear();
                    break;
                }
                Err(refusal) => drop(refusals.insert(refusal["message"].to_string())),
            }
        }
        unserved.extend(refusals.iter().map(|refusal| format!("{method}: {refusal}")));
    }
    assert!(unserved.is_empty(), "{}", unserved.join("\n"));
}
