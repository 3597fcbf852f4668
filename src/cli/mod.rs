//! The command line: what is asked for, where the log is reached, and what is printed.
//!
//! Data goes to stdout, messages and logs to stderr. The exit status is 0 for done, 1 for failed, 2 for bad usage or bad
//! configuration; a failure is one line that names what it is about.
//! Source: the outer contract, the command.

mod agents;
mod args;
mod backup;
mod client;
mod compacting;
mod fault;
mod keeping;
mod listening;
mod log;
mod logs;
mod open_files;
mod out;
mod reach;
mod rebuilding;
mod serve;
mod tls;
mod users;

// Open for `fuzz/`: what is taken as a configuration has to become settings.
#[doc(hidden)]
pub mod settings;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use args::{Cli, Verb};
use fault::CliFault;
use out::Out;

use crate::config::Environment;

/// Runs the verb that the process was started with.
pub fn run() -> ExitCode {
    let environment = Environment::of_process();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return unparsed(&error),
    };
    match run_verb(cli.verb, &environment) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            fault.print();
            fault.status()
        }
    }
}

fn run_verb(verb: Verb, environment: &Environment) -> Result<(), CliFault> {
    match verb {
        Verb::Serve(args) => serve::run(&args, environment),
        Verb::Agents(args) => agents::run(&args, environment),
        Verb::Log { verb } => log::run(verb, environment),
        Verb::Backup { directory, place } => backup::backup(&directory, &place, environment),
        Verb::Restore { directory, data, at, json } => backup::restore(&directory, at, &data, json, environment),
        Verb::User { verb } => users::run(verb, environment),
        Verb::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell.generator(), &mut Cli::command(), "scrollback", &mut script);
            Out::new(false, environment).bytes(&script)
        }
        Verb::Man { directory } => write_man_pages(&directory),
    }
}

fn write_man_pages(directory: &Path) -> Result<(), CliFault> {
    let written = fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(Cli::command(), directory));
    written.map_err(|error| CliFault::Failed(format!("{}: {error}", directory.display())))
}

/// Prints help where help was asked for, and one line where the arguments are wrong.
fn unparsed(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Help into a closed pipe is nobody's failure.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => {
            let mut text = first_paragraph(&error.render().to_string());
            if !matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation) {
                text.push_str("; --help shows what there is");
            }
            let fault = CliFault::Usage(text);
            fault.print();
            fault.status()
        }
    }
}

/// What clap says is wrong, without the usage and the tips that follow.
fn first_paragraph(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ")
}
