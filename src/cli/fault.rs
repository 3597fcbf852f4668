//! How a verb fails, and with which exit status.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use super::out::visible;
use crate::actors::command::Refusal;
use crate::admin::inspect::BadFilter;
use crate::backup::BackupFault;
use crate::config::ConfigFault;
use crate::events::LogFault;
use crate::projections::FoldFault;

/// Why a verb did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum CliFault {
    /// A flag, a key or a file of configuration is wrong: exit 2.
    #[error("{0}")]
    Usage(String),
    /// It was tried and failed: exit 1.
    #[error("{0}")]
    Failed(String),
    /// It failed and was already said on stdout: exit 1.
    #[error("")]
    Said,
    /// Whoever read the output wants no more: exit 0.
    #[error("")]
    BrokenPipe,
}

impl CliFault {
    /// Writes the one line to stderr.
    pub fn print(&self) {
        let text = visible(&self.to_string().replace(['\n', '\r'], " "));
        if !text.is_empty() {
            // Nobody is left to be told that stderr is closed.
            let _ = writeln!(io::stderr(), "scrollback: {text}");
        }
    }

    /// The exit status.
    pub fn status(&self) -> ExitCode {
        match self {
            CliFault::Usage(_) => ExitCode::from(2),
            CliFault::Failed(_) | CliFault::Said => ExitCode::FAILURE,
            CliFault::BrokenPipe => ExitCode::SUCCESS,
        }
    }

    /// A write to stdout that failed.
    pub fn of_output(error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => CliFault::BrokenPipe,
            _ => CliFault::Failed(format!("stdout: {error}")),
        }
    }
}

impl From<LogFault> for CliFault {
    fn from(fault: LogFault) -> Self {
        CliFault::Failed(fault.to_string())
    }
}

impl From<FoldFault> for CliFault {
    fn from(fault: FoldFault) -> Self {
        CliFault::Failed(fault.to_string())
    }
}

impl From<BackupFault> for CliFault {
    fn from(fault: BackupFault) -> Self {
        match fault {
            BackupFault::Gone => CliFault::BrokenPipe,
            fault => CliFault::Failed(fault.to_string()),
        }
    }
}

impl From<Refusal> for CliFault {
    fn from(refusal: Refusal) -> Self {
        CliFault::Failed(refusal.message)
    }
}

impl From<ConfigFault> for CliFault {
    fn from(fault: ConfigFault) -> Self {
        CliFault::Usage(fault.to_string())
    }
}

impl From<BadFilter> for CliFault {
    fn from(bad: BadFilter) -> Self {
        CliFault::Usage(format!("--{bad}"))
    }
}
