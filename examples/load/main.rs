//! The load run: what the host does beside the bare limit of each thing, in one run, as one JSON object on stdout.
//!
//! `cargo run --release --example load` takes some minutes; `-- --quick` scales the logs down; `-- --only NAME` runs one
//! measure; `-- --only abuse` runs the cases of abuse, which are left out otherwise, and need the binary beside this program.
//! Progress goes to stderr. The host runs in this process on its own threads, over a directory beside the
//! program; what needs a cold start runs in a child. Always: a ratio compares numbers of the same run, taken in turns.
//! Left out on purpose: any verdict by exit status. Times on a shared machine decide nothing.
//!
//! Source of the goals: `docs/benchmarks.md`.

#![allow(clippy::expect_used, reason = "a measure that cannot go on may say so and end")]

#[path = "../../benches/support/mod.rs"]
mod support;

mod abuse;
mod agent;
mod appends;
mod awake;
mod bare;
mod child;
mod chunks;
mod client;
mod echo;
mod fanout;
mod flood;
mod folds;
mod host;
mod list;
mod long;
mod looking;
mod replay;
mod report;
mod start;
mod wake;

use report::Report;

/// As the binary has it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    pub quick: bool,
}

impl Scale {
    /// `whole`, or `quick` of a quick run.
    pub fn of<T>(self, whole: T, quick: T) -> T {
        if self.quick { quick } else { whole }
    }
}

type Measure = fn(Scale, &mut Report);

/// Every measure by its name, in the order of the table of goals.
const MEASURES: [(&str, Measure); 13] = [
    ("appends", appends::measure),
    ("echo", echo::measure),
    ("flood", flood::measure),
    ("fan-out", fanout::measure),
    ("replay", replay::measure),
    ("folds", folds::measure),
    ("start", start::measure),
    ("wake", wake::measure),
    ("long", long::measure),
    ("list", list::measure),
    ("looking", looking::measure),
    ("awake", awake::measure),
    ("chunks", chunks::measure),
];

/// Every abuse by its name.
const ABUSES: [(&str, Measure); 7] = [
    ("abuse-idle", abuse::idle),
    ("abuse-deaf", abuse::deaf),
    ("abuse-channels", abuse::channels),
    ("abuse-actions", abuse::actions),
    ("abuse-frames", abuse::frames),
    ("abuse-nesting", abuse::nesting),
    ("abuse-slowloris", abuse::slowloris),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((child::FLAG, rest)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return child::run(rest);
    }
    if arguments.first().is_some_and(|first| first == chunks::FLAG) {
        return chunks::run();
    }
    let scale = Scale { quick: arguments.iter().any(|argument| argument == "--quick") };
    let only = arguments.iter().position(|argument| argument == "--only").and_then(|at| arguments.get(at + 1));
    let mut report = Report::new(scale);
    let usual = MEASURES.iter().filter(|(name, _)| only.is_none_or(|only| only == name));
    let abuses = ABUSES.iter().filter(|(name, _)| only.is_some_and(|only| only == name || only == "abuse"));
    for (name, measure) in usual.chain(abuses) {
        eprintln!("{name} …");
        measure(scale, &mut report);
    }
    println!("{}", report.json());
}
