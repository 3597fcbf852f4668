//! The binary: see `scrollback::cli`.

use std::process::ExitCode;

/// What connections and messages that are gone took is given back to the system: docs/adr/0007-allocator.md.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    scrollback::cli::run()
}
