//! Random sequences of what two clients do, as proptest makes them, so that a failure shrinks to a short one.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use scrollback::actors::host::HostSettings;
use scrollback::events::memory::MemoryStore;

use crate::harness::walk::{Choice, Deed, Walk};
use crate::harness::{Options, TestHost};

fn choice() -> impl Strategy<Value = Choice> {
    (0u64..2, 0u64..Deed::weights(), 0u64..1024, 0u64..1024).prop_map(|(who, what, a, b)| Choice { who, what, a, b })
}

/// Few cases, each a host of its own: the walks of `mirrors` are long, these are short and start from nothing.
#[test]
fn no_sequence_of_client_actions_makes_mirrors_disagree_or_loses_the_end_of_a_turn() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { cases: 12, failure_persistence: None, max_shrink_iters: 64, ..Config::default() };
    let walk = proptest::collection::vec(choice(), 1..60);
    TestRunner::new(config)
        .run(&walk, |choices| {
            runtime.block_on(async {
                // Every delta is an event of its own, so that steps fall between them.
                let settings = HostSettings { delta_window: std::time::Duration::ZERO, ..HostSettings::default() };
                let options = Options { settings, ..Options::default() };
                let host = TestHost::start(Arc::new(MemoryStore::new().unwrap()), options);
                let mut walk = Walk::begin(host).await;
                for choice in choices {
                    walk.step(choice).await;
                }
                // Panics where two turns ran in a chat, one never ended, or something waits under a finished one.
                walk.finish().await;
            });
            Ok(())
        })
        .unwrap();
}
