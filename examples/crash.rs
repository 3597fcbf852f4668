//! Kills the real host at random moments under load and checks what it left, many times over.
//!
//! `cargo run --example crash -- --rounds 100 [--seed S] [--durability commit|interval]`, or `just crash`. The host's
//! binary is built first where it is not beside this program. What is checked stands at the head of
//! `tests/support/crash/mod.rs`; results are in `docs/crash.md`. Prints a line a round and a summary.
//!
//! Exit status: 0 when nothing was wrong, 1 at the first fault, 2 on bad usage.

// JSON's index of what is not there is null.
#[allow(clippy::indexing_slicing)]
#[path = "../tests/support/crash/mod.rs"]
mod crash;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use clap::Parser;

/// Kills a host under load, again and again.
#[derive(Debug, Parser)]
struct Arguments {
    /// How often the host is killed.
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// What is done and when it is killed; another one each time by default. It is printed.
    #[arg(long)]
    seed: Option<u64>,
    /// The host's durability.
    #[arg(long, default_value = "commit", value_parser = ["commit", "interval"])]
    durability: String,
    /// How many people work at once.
    #[arg(long, default_value_t = 4)]
    people: usize,
    /// A round ends after at most this many frames that people received.
    #[arg(long, default_value_t = 600)]
    frames: u64,
    /// The host's binary, where it is not beside this program.
    #[arg(long, env = "SCROLLBACK_BIN")]
    binary: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let Some(binary) = arguments.binary.clone().or_else(built) else {
        eprintln!("the host's binary could not be built: name it with --binary");
        return ExitCode::FAILURE;
    };
    let seed = arguments.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("{} rounds with durability {}, seed {seed}", arguments.rounds, arguments.durability);
    let settings = crash::Settings {
        binary,
        rounds: arguments.rounds,
        seed,
        durability: arguments.durability,
        people: arguments.people,
        frames: arguments.frames,
    };
    let started = Instant::now();
    let (mut shown, mut interrupted, mut events, mut lost) = (0, 0, 0, 0);
    let mut report = |round: &crash::Round| {
        println!("{round}");
        shown += round.shown;
        interrupted += round.interrupted;
        (events, lost) = (round.events, round.lost);
    };
    if let Err(broken) = crash::run(&settings, &mut report).await {
        println!("BROKEN with seed {seed}: {broken}");
        return ExitCode::FAILURE;
    }
    println!(
        "{} kills in {} s: {events} events in the log, {shown} times one was shown, {lost} of them lost, {interrupted} \
         interrupted turns taken up or ended; nothing was wrong",
        settings.rounds,
        started.elapsed().as_secs()
    );
    ExitCode::SUCCESS
}

/// The host's binary beside the folder of this program, built where it is not there.
fn built() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let folder = program.parent()?.parent()?;
    let binary = folder.join("scrollback");
    if !binary.exists() {
        build(folder);
    }
    binary.exists().then_some(binary)
}

fn build(folder: &Path) {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--bin", "scrollback"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    if let Some(target) = folder.parent() {
        cargo.env("CARGO_TARGET_DIR", target);
    }
    if let Err(error) = cargo.status() {
        eprintln!("cargo: {error}");
    }
}
