//! Cuts the power under the store, again and again, and says whether anything that was acknowledged is gone.
//!
//! `just powercut` runs it: 50 cuts under the store, which must lose nothing, and 10 under sled with `flush()` alone,
//! which must lose something, or else the rig cuts nothing. Needs root, /dev/fuse, loop devices and mkfs.ext4, and skips
//! with a message where one is missing (`--require` makes that a failure).
//!
//! A kill of the process shows none of this, since the kernel still holds what was written. Here the disk itself is
//! ours (`disk`), under a loop device and a real ext4 (`rig`), and forgets what was not synced. A cut notes what the
//! writer (`writer`, a process of its own) has acknowledged, then what the disk would hold, and another process
//! (`check`) opens the store on that. What is written follows from a seed (`script`), so that every byte is known.
//!
//! Exit status: 0 when all is well or nothing could be run, 1 when the store lost or broke something, when the control
//! lost nothing, or when the rig failed, 2 on bad usage, 130 after Ctrl-C.

mod chance;
mod check;
mod control;
mod disk;
mod rig;
mod script;
mod series;
mod store;
mod victim;
mod writer;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use crate::rig::{RigFault, Tools, at};
use crate::script::Script;
use crate::series::{Series, Tally};
use crate::victim::Which;

/// Cuts the power under the store.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Cuts under the store.
    #[arg(long, default_value_t = 50)]
    cuts: usize,
    /// Cuts under sled without fdatasync, which must lose; 0 leaves the control out.
    #[arg(long, default_value_t = 10)]
    control_cuts: usize,
    /// What is written and when it is cut; another one each time by default. It is printed.
    #[arg(long)]
    seed: Option<u64>,
    /// Of the blocks that were not synced, how many in 100 survive a cut; 0 and 50 in turns by default.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(0..=100))]
    subset: Option<u64>,
    /// Cuts under this victim alone, which must hold.
    #[arg(long, value_name = "VICTIM")]
    only: Option<Which>,
    /// Keeps the disk images of cuts that went wrong in this folder.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Fails where the power cannot be cut, instead of skipping.
    #[arg(long)]
    require: bool,
    #[command(subcommand)]
    inner: Option<Inner>,
}

/// What the rig starts in processes of their own.
#[derive(Debug, Subcommand)]
enum Inner {
    /// Writes to a store and acknowledges on stdout.
    #[command(hide = true)]
    Write {
        #[arg(long)]
        victim: Which,
        #[arg(long)]
        seed: u64,
        #[arg(long)]
        life: u64,
        folder: PathBuf,
    },
    /// Looks at a store and prints the findings.
    #[command(hide = true)]
    Check {
        #[arg(long)]
        victim: Which,
        #[arg(long)]
        seed: u64,
        #[arg(long)]
        acked: PathBuf,
        folder: PathBuf,
    },
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    let done = match arguments.inner.take() {
        Some(inner) => run_inner(inner).map(|()| ExitCode::SUCCESS),
        None => run_rig(arguments).map_err(|fault| fault.to_string()),
    };
    done.unwrap_or_else(|problem| {
        eprintln!("powercut: {problem}");
        ExitCode::FAILURE
    })
}

/// The part of a writer or a checker.
fn run_inner(inner: Inner) -> Result<(), String> {
    match inner {
        Inner::Write { victim, seed, life, folder } => {
            writer::write(victim, &folder, Script { seed, life }, &mut io::stdout())
        }
        Inner::Check { victim, seed, acked, folder } => {
            let acked = std::fs::read_to_string(&acked).map_err(|e| format!("{}: {e}", acked.display()))?;
            let findings = check::check(victim, &folder, seed, &acked)?;
            println!("{}", serde_json::to_string(&findings).map_err(|e| e.to_string())?);
            Ok(())
        }
    }
}

/// The rig, until it is done or told to stop. Either way all that it made is undone.
fn run_rig(arguments: Arguments) -> Result<ExitCode, RigFault> {
    let tools = match Tools::find() {
        Ok(tools) => tools,
        Err(missing) => {
            println!("powercut: skipped, the power cannot be cut here: {missing}");
            return Ok(if arguments.require { ExitCode::FAILURE } else { ExitCode::SUCCESS });
        }
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(at("the runtime".as_ref()))?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(at("SIGTERM".as_ref()))?;
        tokio::select! {
            verdict = series(arguments, tools) => verdict,
            _ = tokio::signal::ctrl_c() => Ok(ExitCode::from(130)),
            _ = terminate.recv() => Ok(ExitCode::from(143)),
        }
    })
}

/// All series, one after the other, and the verdict.
async fn series(arguments: Arguments, tools: Tools) -> Result<ExitCode, RigFault> {
    let seed = arguments.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("powercut: seed {seed}");
    let program = std::env::current_exe().map_err(at("this program".as_ref()))?;
    let (subset, keep) = (arguments.subset, arguments.keep);
    let run = async |which: Which, cuts: usize| {
        let (keep, tools, program) = (keep.clone(), tools.clone(), program.clone());
        Series { which, cuts, seed, subset, keep, tools, program }.run().await
    };
    if let Some(which) = arguments.only {
        return Ok(verdict(which, run(which, arguments.cuts).await?, None));
    }
    let control = run(Which::SledFlushOnly, arguments.control_cuts).await?;
    Ok(verdict(Which::Store, run(Which::Store, arguments.cuts).await?, Some(control)))
}

/// Says how it went. The victim must hold; the control must not.
fn verdict(which: Which, victim: Tally, control: Option<Tally>) -> ExitCode {
    let broken = if victim.broken > 0 { format!(", {} broken", victim.broken) } else { String::new() };
    println!("{}: {} cuts: {} lost{broken}", which.name(), victim.cuts, victim.lost);
    let mut good = victim.lost + victim.broken == 0;
    if let Some(control) = control.filter(|control| control.cuts > 0) {
        println!("control: {} of {} cuts lost acknowledged records", control.lost, control.cuts);
        if control.lost == 0 {
            println!("powercut: the control lost nothing, so this rig cuts no power and says nothing about the store");
            good = false;
        }
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
