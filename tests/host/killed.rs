//! The real host killed under load: a few rounds of what `examples/crash.rs` does many times.

use std::path::PathBuf;

use crate::crash::{Settings, run};

async fn survives(durability: &str, seed: u64) {
    let settings = Settings {
        binary: PathBuf::from(env!("CARGO_BIN_EXE_scrollback")),
        rounds: 4,
        seed,
        durability: durability.into(),
        people: 3,
        frames: 300,
    };
    let mut rounds = Vec::new();
    let ran = run(&settings, &mut |round| rounds.push(round.to_string())).await;
    assert!(ran.is_ok(), "seed {seed}: {}\n{}", ran.unwrap_err(), rounds.join("\n"));
    assert_eq!(rounds.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_killed_has_shown_nothing_that_is_not_in_its_log() {
    survives("commit", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_shows_first_and_is_killed_uses_no_number_twice() {
    survives("interval", 2).await;
}
