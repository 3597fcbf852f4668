//! The binary: see `scrollback::cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    scrollback::cli::run()
}
