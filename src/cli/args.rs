//! The verbs and their flags.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::actors::people::{MAX_EXPIRY, MIN_EXPIRY};
use crate::config::{Environment, Flag};
use crate::projections::people::{Grant, Role};

/// An Agent Host Protocol host whose chats are logs.
#[derive(Debug, Parser)]
#[command(name = "scrollback", version, arg_required_else_help = true, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run the host
    #[command(after_help = SERVE_HELP)]
    Serve(ServeArgs),
    /// Look into the log, whether or not a host has it open
    #[command(arg_required_else_help = true, disable_help_subcommand = true)]
    Log {
        #[command(subcommand)]
        verb: LogVerb,
    },
    /// Make a consistent copy of everything, also of a running host; a second one into the same directory adds what is new
    #[command(after_help = BACKUP_HELP)]
    Backup {
        /// The directory of the backup; made where it is missing
        directory: PathBuf,
        #[command(flatten)]
        place: Place,
    },
    /// Bring a backup back into a new data directory, whole or up to an event
    #[command(after_help = RESTORE_HELP)]
    Restore {
        /// The directory of the backup
        directory: PathBuf,
        /// The data directory to make; one that holds events is refused
        #[arg(long, value_name = "NEW")]
        data: PathBuf,
        /// Nothing behind this event. Of one decision all events come, or none
        #[arg(long, value_name = "SEQ")]
        at: Option<u64>,
        /// JSON for programs
        #[arg(long)]
        json: bool,
    },
    /// People who share the host: their roles, grants and tokens
    #[command(arg_required_else_help = true, disable_help_subcommand = true, after_help = USER_HELP)]
    User {
        #[command(subcommand)]
        verb: UserVerb,
    },
    /// Say which agents are configured, and whether each can start here
    Agents(AgentsArgs),
    /// Print the completions of a shell
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Write man pages, one for each verb
    Man {
        /// The directory that they go into, such as /usr/local/share/man/man1; made where it is missing
        directory: PathBuf,
    },
}

const BACKUP_HELP: &str = "\
The files are written by who runs this; a running host only sends. It holds all that the data directory does, hashes of tokens \
too: a host elsewhere (--url) is asked with the token of the deployment. Before it says that it is done, everything was read \
again. Until then, and after a crash, the former backup in the directory is whole.";

const RESTORE_HELP: &str = "\
The log goes on behind a jump of its numbers, since the host that the backup was made of may have given more: no number is \
given twice, and clients that saw later events get snapshots.";

const SERVE_HELP: &str = "\
When the host accepts connections it prints READY:<port> on stdout. SIGTERM or SIGINT ends it in order.
A flag beats the environment (SCROLLBACK_<KEY>), which beats the configuration file; --print-config shows every key.
The deployment token comes from --token-file or SCROLLBACK_TOKEN. Without one a loopback address is open to anybody on \
the machine, and any other address is refused.";

/// Flags that are keys too. Their values are read with the configuration, so that all of them are checked alike.
#[derive(Debug, Default, Args)]
pub struct ServeArgs {
    /// Where to listen; port 0 picks one [default: 127.0.0.1:7878] [env: SCROLLBACK_LISTEN]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<String>,
    /// The data directory; made where it is missing [default: ./scrollback-data] [env: SCROLLBACK_DATA]
    #[arg(long, value_name = "DIR")]
    pub data: Option<String>,
    /// A configuration file, TOML [env: SCROLLBACK_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A file that holds the deployment token [env: SCROLLBACK_TOKEN_FILE]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<String>,
    /// "commit" (the default) shows an event when it is on disk. "interval" shows it at once and writes within
    /// 100 ms: a crash then loses what was shown in that time [env: SCROLLBACK_DURABILITY]
    #[arg(long, value_name = "commit|interval")]
    pub durability: Option<String>,
    /// error, warn, info, debug, trace, or directives such as info,scrollback=debug [default: info] [env:
    /// SCROLLBACK_LOG_LEVEL]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// How logs are written to stderr [default: text] [env: SCROLLBACK_LOG_FORMAT]
    #[arg(long, value_name = "text|json")]
    pub log_format: Option<String>,
    /// Print every key with its value and where it came from, and exit
    #[arg(long)]
    pub print_config: bool,
    /// With --print-config: JSON lines
    #[arg(long, requires = "print_config")]
    pub json: bool,
}

impl ServeArgs {
    /// The flags that were given.
    pub fn flags(&self) -> Vec<Flag> {
        let all = [
            ("listen", &self.listen),
            ("data", &self.data),
            ("token_file", &self.token_file),
            ("durability", &self.durability),
            ("log_level", &self.log_level),
            ("log_format", &self.log_format),
        ];
        all.into_iter().filter_map(|(key, value)| Some((key, value.clone()?))).collect()
    }
}

#[derive(Debug, Subcommand)]
pub enum LogVerb {
    /// List events, oldest first
    List(ListArgs),
    /// Show one event, whole
    Show {
        /// Its number
        seq: u64,
        #[command(flatten)]
        place: Place,
    },
    /// Show the state of a channel, now or as it was
    State {
        /// The channel
        uri: String,
        /// As it was right after this event
        #[arg(long, value_name = "SEQ")]
        at: Option<u64>,
        #[command(flatten)]
        place: Place,
    },
    /// Show what changed in a channel's state between two events: a JSON Patch (RFC 6902)
    Diff {
        /// The channel
        uri: String,
        /// From the state right after this event
        #[arg(long, value_name = "SEQ")]
        from: u64,
        /// To the state right after this event
        #[arg(long, value_name = "SEQ")]
        to: u64,
        #[command(flatten)]
        place: Place,
    },
    /// Read every record and refold every channel; exit 1 at the first fault
    Verify {
        /// First make rows, index, catalogue and checkpoints anew from the log; no host may have the directory open
        #[arg(long)]
        rebuild: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Fold the streamed text of finished turns, and leave nothing of what was erased; states do not change
    Compact {
        /// Only what is older: RFC 3339, or a duration such as 30d [default: all finished turns]
        #[arg(long, value_name = "TIME")]
        before: Option<String>,
        #[command(flatten)]
        place: Place,
    },
    /// Bring back a disposed session or a closed chat
    Restore {
        /// The session or the chat
        uri: String,
        #[command(flatten)]
        place: Place,
    },
    /// Remove a session's or a chat's events for good
    Erase {
        /// The session or the chat
        uri: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Write the log as JSON lines, without hashes of tokens; attachments and visuals are in it
    Export {
        /// Only this channel, with what it needs: a chat's session, a session's chats, turns that a fork began with
        #[arg(long, value_name = "URI")]
        channel: Option<String>,
        /// Into this file [default: stdout]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        #[command(flatten)]
        place: Place,
    },
    /// Make a data directory of an export: the same states under the same numbers
    Import {
        /// The file; - for stdin
        file: PathBuf,
        #[command(flatten)]
        place: NewPlace,
    },
    /// Sum up events and bytes, by channel and by type
    Stats {
        #[command(flatten)]
        place: Place,
    },
}

#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only this channel
    #[arg(long, value_name = "URI")]
    pub channel: Option<String>,
    /// Only these types, such as 'chat/*'; records that no client sees are host/<kind>
    #[arg(long = "type", value_name = "GLOB")]
    pub kind: Option<String>,
    /// Only later ones
    #[arg(long, value_name = "SEQ")]
    pub after: Option<u64>,
    /// Only earlier ones
    #[arg(long, value_name = "SEQ")]
    pub before: Option<u64>,
    /// Only since then: RFC 3339, or a duration such as 30d
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only what this principal caused: host, agent:demo, user:<name>, or root:<host> for who has the
    /// deployment token
    #[arg(long, value_name = "PRINCIPAL")]
    pub by: Option<String>,
    /// Only what an audit looks for: permissions, settings, decisions about tools, files, erasures. Marked with ! in the list
    #[arg(long)]
    pub privileged: bool,
    /// At most so many
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Go on with what happens; needs a running host
    #[arg(long)]
    pub follow: bool,
    #[command(flatten)]
    pub place: Place,
}

/// What is asked of agents.
#[derive(Debug, Args)]
pub struct AgentsArgs {
    /// The configuration file that is looked into where no host runs, TOML [env: SCROLLBACK_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub place: Place,
}

const USER_HELP: &str = "\
Roles: admin (everything), member (works in every session, and with files), guest (reads every session).
A grant is SUBJECT:OPERATION, or SUBJECT:OPERATION@SESSION-URI for one session, such as \
session:read@ahp-session:/<id>; * stands for every subject or operation, read and write for groups of them.
A token is shown once, when it is made. What is taken away ends at once, on open connections too.";

#[derive(Debug, Subcommand)]
pub enum UserVerb {
    /// Add somebody; prints their token, this once
    Add {
        /// What they are called: printable characters of ASCII, without spaces and colons
        name: String,
        #[command(flatten)]
        given: Given,
        /// After which time the token ends, such as 30d [default: never]
        #[arg(long, value_name = "DURATION", value_parser = expiry)]
        expires: Option<Duration>,
        #[command(flatten)]
        place: Place,
    },
    /// List everybody
    List {
        #[command(flatten)]
        place: Place,
    },
    /// Give somebody roles or grants
    Grant {
        /// Who
        name: String,
        #[command(flatten)]
        given: Given,
        #[command(flatten)]
        place: Place,
    },
    /// Take roles or grants from somebody
    Revoke {
        /// Who
        name: String,
        #[command(flatten)]
        given: Given,
        #[command(flatten)]
        place: Place,
    },
    /// Make somebody another token; prints it, this once
    Token {
        /// Who
        name: String,
        /// End their other tokens
        #[arg(long)]
        replace: bool,
        /// After which time it ends, such as 30d [default: never]
        #[arg(long, value_name = "DURATION", value_parser = expiry)]
        expires: Option<Duration>,
        #[command(flatten)]
        place: Place,
    },
    /// Remove somebody, with their tokens; what they did stays in the log
    Rm {
        /// Who
        name: String,
        #[command(flatten)]
        place: Place,
    },
}

/// After which time a token ends.
fn expiry(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| format!("{error}; such as 30d"))?;
    let fits = (MIN_EXPIRY..=MAX_EXPIRY).contains(&time);
    if fits { Ok(time) } else { Err("from 1s to 100y".into()) }
}

/// What is given or taken.
#[derive(Debug, Clone, Args)]
pub struct Given {
    /// A role; may be repeated
    #[arg(long = "role", value_name = "admin|member|guest")]
    pub roles: Vec<Role>,
    /// A grant; may be repeated
    #[arg(long = "grant", value_name = "SUBJECT:OPERATION[@SESSION-URI]")]
    pub grants: Vec<Grant>,
}

/// Where the log is.
#[derive(Debug, Args)]
pub struct Place {
    /// The data directory; a host that has it open is asked [default: ./scrollback-data] [env: SCROLLBACK_DATA]
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    pub data: Option<PathBuf>,
    /// A host elsewhere, such as https://host.example
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// A file of the authorities that the certificate of --url may be by, PEM, in place of the public ones [env: SCROLLBACK_CA]
    #[arg(long, value_name = "FILE", requires = "url")]
    pub ca: Option<PathBuf>,
    /// A file that holds the token for --url; else SCROLLBACK_TOKEN
    #[arg(long, value_name = "FILE", requires = "url")]
    pub token_file: Option<PathBuf>,
    /// JSON for programs
    #[arg(long)]
    pub json: bool,
}

/// A data directory that is to be made.
#[derive(Debug, Args)]
pub struct NewPlace {
    /// The data directory to make; one that holds events is refused [default: ./scrollback-data] [env: SCROLLBACK_DATA]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// JSON for programs
    #[arg(long)]
    pub json: bool,
}

impl NewPlace {
    /// Where it is to be.
    pub fn data(&self, environment: &Environment) -> PathBuf {
        let named = || PathBuf::from(environment.get("SCROLLBACK_DATA").unwrap_or("./scrollback-data"));
        self.data.clone().unwrap_or_else(named)
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    pub fn generator(self) -> clap_complete::Shell {
        match self {
            Shell::Bash => clap_complete::Shell::Bash,
            Shell::Zsh => clap_complete::Shell::Zsh,
            Shell::Fish => clap_complete::Shell::Fish,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_of_the_verbs_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_and_flag_has_a_help_text() {
        let mut waiting = vec![Cli::command()];
        while let Some(command) = waiting.pop() {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
            }
            waiting.extend(command.get_subcommands().cloned());
        }
    }
}
