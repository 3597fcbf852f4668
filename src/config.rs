//! What an operator sets: every key with its default, and where its value came from.
//!
//! A flag beats the environment, which beats the configuration file, which beats the default. Used by `cli`, which turns
//! it into the settings of the host, the protocol and the store. Every value may be written as text, so that a flag, an
//! environment variable and a file say the same thing in the same way. This is the one place that reads the environment.
//!
//! Always: an unknown key is an error, and an error names the file, key, variable or flag, in one line. Left out on
//! purpose: the token itself, which is no key and is never printed; only the file that holds it is.

pub mod agents;
mod environment;
mod kinds;
mod layers;
pub mod oidc;
pub mod resource;
mod token;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use environment::Environment;
pub use layers::{ConfigFault, Flag, Loaded, Setting, load};
pub use token::{token, token_in};

/// Every key of the configuration file; the fields are the keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where the host listens.
    #[serde(with = "kinds::address")]
    pub listen: SocketAddr,
    /// The URL that others reach the host under, where that is not the address it listens at.
    #[serde(with = "kinds::optional_text")]
    pub public_url: Option<String>,
    /// PEM files of a certificate with its chain, and of its key: with both the host listens with TLS.
    #[serde(with = "kinds::optional_path")]
    pub tls_certificate: Option<PathBuf>,
    #[serde(with = "kinds::optional_path")]
    pub tls_key: Option<PathBuf>,
    /// How often it is looked whether these files changed.
    #[serde(with = "kinds::span")]
    pub tls_reload_interval: Duration,
    /// The data directory.
    #[serde(with = "kinds::path")]
    pub data: PathBuf,
    /// A file that holds the deployment token.
    #[serde(with = "kinds::optional_path")]
    pub token_file: Option<PathBuf>,
    /// Whether events are shown after or before they are on disk.
    #[serde(with = "kinds::word")]
    pub durability: DurabilityWord,
    /// How long what was shown may wait for the disk with `durability = "interval"`.
    #[serde(with = "kinds::span")]
    pub commit_interval: Duration,
    /// The collector of OpenTelemetry that is sent the trails of messages and turns.
    #[serde(with = "kinds::optional_text")]
    pub otlp_endpoint: Option<String>,
    /// What is logged: a level, or directives such as `info,scrollback::actors=debug`.
    #[serde(with = "kinds::text")]
    pub log_level: String,
    #[serde(with = "kinds::word")]
    pub log_format: LogFormat,
    /// What the host calls itself in `root:<host>`.
    #[serde(with = "kinds::text")]
    pub host_name: String,
    /// The directory of sessions that name none.
    #[serde(with = "kinds::path")]
    pub default_directory: PathBuf,
    /// Directories that sessions may work in.
    #[serde(with = "kinds::paths")]
    pub allowed_directories: Vec<PathBuf>,
    /// Origins of web pages that may connect, besides the host's own.
    #[serde(with = "kinds::texts")]
    pub allowed_origins: Vec<String>,
    /// The agent of sessions that name none; the first configured one where it is empty, else the demo.
    #[serde(with = "kinds::optional_text")]
    pub default_agent: Option<String>,
    /// What becomes of a disposed session's events.
    #[serde(with = "kinds::word")]
    pub disposed_sessions: Kept,
    /// What becomes of a closed chat's events.
    #[serde(with = "kinds::word")]
    pub closed_chats: Kept,
    /// Whether `/metrics` is open to all.
    #[serde(with = "kinds::flag")]
    pub metrics_public: bool,

    /// The URL of the OpenID Connect issuer whose people may come in.
    #[serde(with = "kinds::optional_text")]
    pub oidc_issuer: Option<String>,
    /// Whom its tokens may be for.
    #[serde(with = "kinds::texts")]
    pub oidc_audience: Vec<String>,
    /// The claim that names the person.
    #[serde(with = "kinds::text")]
    pub oidc_user_claim: String,
    /// The claim that holds the person's roles.
    #[serde(with = "kinds::optional_text")]
    pub oidc_roles_claim: Option<String>,
    /// The roles of those whose token has no such claim.
    #[serde(with = "kinds::texts")]
    pub oidc_default_roles: Vec<String>,
    /// A file of the only authorities that the issuer's certificate may come from.
    #[serde(with = "kinds::optional_path")]
    pub oidc_ca: Option<PathBuf>,
    /// How old the issuer's keys may become before it is asked again.
    #[serde(with = "kinds::span")]
    pub oidc_keys_ttl: Duration,
    /// How far the clocks of the issuer and of the host may be apart.
    #[serde(with = "kinds::span")]
    pub oidc_leeway: Duration,

    /// When an unused chat leaves memory.
    #[serde(with = "kinds::span")]
    pub idle_timeout: Duration,
    /// How long the words of an answer are gathered into one event, at most a second.
    #[serde(with = "kinds::span")]
    pub delta_window: Duration,
    /// How long a client that dropped keeps the tools that it offered.
    #[serde(with = "kinds::span")]
    pub client_grace: Duration,
    /// How long a client may take to run a tool that it offered.
    #[serde(with = "kinds::span")]
    pub client_tool_timeout: Duration,
    /// How long an upgrade or a handshake may take.
    #[serde(with = "kinds::span")]
    pub handshake_timeout: Duration,
    /// When an idle socket is asked whether it is still there.
    #[serde(with = "kinds::span")]
    pub ping_after: Duration,
    /// How long after that it is closed.
    #[serde(with = "kinds::span")]
    pub ping_timeout: Duration,
    /// How long a peer may take to read that it is closed.
    #[serde(with = "kinds::span")]
    pub close_timeout: Duration,
    /// How long a client may take to hand over the files of a message that only it holds.
    #[serde(with = "kinds::span")]
    pub attachment_timeout: Duration,

    /// Bytes of a message from a client, its continuations joined.
    #[serde(with = "kinds::size")]
    pub max_message: usize,
    /// The same before the handshake.
    #[serde(with = "kinds::size")]
    pub max_handshake_message: usize,
    /// Arrays and objects within each other in a message from a client.
    #[serde(with = "kinds::count")]
    pub max_nesting: usize,
    /// Bytes of an action, or of a new chat's first message, beside the files that it brings.
    #[serde(with = "kinds::size")]
    pub max_action: usize,
    /// Bytes of the text of a message or a draft.
    #[serde(with = "kinds::size")]
    pub max_message_text: usize,
    /// Attachments of a message or a draft.
    #[serde(with = "kinds::count")]
    pub max_attachments: usize,
    #[serde(with = "kinds::count")]
    pub max_queued_messages: usize,
    #[serde(with = "kinds::count")]
    pub max_chats_in_session: usize,
    /// A number, or `none`.
    #[serde(with = "kinds::optional_count")]
    pub max_sessions: Option<usize>,
    /// Subscriptions of one connection.
    #[serde(with = "kinds::count")]
    pub max_subscriptions: usize,
    #[serde(with = "kinds::count")]
    pub max_connections: usize,
    #[serde(with = "kinds::count")]
    pub max_connections_per_person: usize,
    /// Bytes of a connection that wait to be sent, behind the answer that is being sent.
    #[serde(with = "kinds::size")]
    pub max_unsent: usize,
    /// Bytes of one frame that the host sends.
    #[serde(with = "kinds::size")]
    pub max_frame: usize,
    /// Bytes of one message that the host sends, and so of a snapshot.
    #[serde(with = "kinds::size")]
    pub max_snapshot: usize,
    /// Unanswered requests of one connection.
    #[serde(with = "kinds::count")]
    pub max_requests_in_flight: usize,
    /// Actions of one connection that nothing has become of yet; then it is not read for a while.
    #[serde(with = "kinds::count")]
    pub max_actions_in_flight: usize,
    /// Bytes of what one connection sent and nothing has become of yet; then it is not read for a while.
    #[serde(with = "kinds::size")]
    pub max_received: usize,
    /// Messages of one connection that are served in a second, and at once; more wait.
    #[serde(with = "kinds::count")]
    pub max_messages_per_second: usize,
    /// Bytes of one connection that are read in a second; one message may come at once.
    #[serde(with = "kinds::size")]
    pub max_bytes_per_second: usize,
    /// Bytes of the body of a request to an endpoint.
    #[serde(with = "kinds::size")]
    pub max_request_body: usize,
    /// How long the body of a request may take to arrive.
    #[serde(with = "kinds::span")]
    pub request_body_timeout: Duration,
    #[serde(with = "kinds::count")]
    pub max_parts_in_turn: usize,
    /// How deep workers that agents spawn may be nested.
    #[serde(with = "kinds::count")]
    pub max_worker_depth: usize,
    #[serde(with = "kinds::count")]
    pub max_workers_in_turn: usize,
    /// Processes that a turn is handed to, one after the other, when it is interrupted again and again.
    #[serde(with = "kinds::count")]
    pub max_turn_processes: usize,
    /// A start of an agent's program that takes longer is told in the chat.
    #[serde(with = "kinds::span")]
    pub agent_slow_start: Duration,
    /// How long the start of an agent's program may take.
    #[serde(with = "kinds::span")]
    pub agent_start_timeout: Duration,
    /// How long an agent may take to end a turn that was stopped; then its program is ended.
    #[serde(with = "kinds::span")]
    pub agent_cancel_timeout: Duration,
    /// How long an agent's program that nobody uses is kept up.
    #[serde(with = "kinds::span")]
    pub agent_idle_timeout: Duration,
    /// How long an agent's program has from the end of its input to SIGTERM.
    #[serde(with = "kinds::span")]
    pub agent_terminate_after: Duration,
    /// How long it has from SIGTERM to SIGKILL.
    #[serde(with = "kinds::span")]
    pub agent_kill_after: Duration,
    /// Bytes of one message of an agent's program.
    #[serde(with = "kinds::size")]
    pub max_agent_message: usize,
    /// Bytes of a conversation that an agent is given as text when it cannot go on with its own.
    #[serde(with = "kinds::size")]
    pub max_agent_transcript: usize,
    /// How long a connection to an endpoint may take to stand.
    #[serde(with = "kinds::span")]
    pub endpoint_connect_timeout: Duration,
    /// How long an endpoint may say nothing, before its first word and between two.
    #[serde(with = "kinds::span")]
    pub endpoint_idle_timeout: Duration,
    /// How long an endpoint may take to list its models.
    #[serde(with = "kinds::span")]
    pub endpoint_probe_timeout: Duration,
    /// How often the model of an endpoint may call tools in one turn before it has to answer.
    #[serde(with = "kinds::count")]
    pub max_tool_rounds: usize,
    /// How long a turn that an overloaded model stopped waits before it is taken up: the first in a row, the second, and so on.
    #[serde(with = "kinds::spans")]
    pub overload_retries: Vec<Duration>,
    /// Turns in a row that ended at a limit and that the host takes up by itself.
    #[serde(with = "kinds::count")]
    pub limit_resumes: usize,
    /// What an agent is told, behind the message, of a turn that it is to take up.
    #[serde(with = "kinds::text")]
    pub resume_words: String,
    /// Bytes of a file that is fetched from a client; a larger one is left where it is.
    #[serde(with = "kinds::size")]
    pub max_fetched_attachment: usize,
    /// Bytes of an image that a model is given inline, and not by its path.
    #[serde(with = "kinds::size")]
    pub max_inline_image: usize,
    /// Bytes of a text that a model is given inline, and not by its path.
    #[serde(with = "kinds::size")]
    pub max_inline_text: usize,
    /// Characters of an attached chat that a model is given.
    #[serde(with = "kinds::count")]
    pub max_chat_excerpt: usize,
    /// Watches of files that one connection began.
    #[serde(with = "kinds::count")]
    pub max_watches: usize,
    /// Directories that one of them watches.
    #[serde(with = "kinds::count")]
    pub max_watched_directories: usize,
    /// How long changes of files are gathered before they are told.
    #[serde(with = "kinds::span")]
    pub watch_window: Duration,
    /// Bytes of one chat that wait for the disk.
    #[serde(with = "kinds::size")]
    pub max_chat_in_flight: usize,
    /// Bytes of a visual's page as it is stored.
    #[serde(with = "kinds::size")]
    pub max_visual: usize,
    #[serde(with = "kinds::count")]
    pub max_visuals_in_chat: usize,
    /// Bytes of a replay in one answer; beyond it snapshots are sent.
    #[serde(with = "kinds::size")]
    pub replay_limit: usize,
    /// Items of one answer to `completions`.
    #[serde(with = "kinds::count")]
    pub max_completions: usize,
    /// How long files are searched for them.
    #[serde(with = "kinds::span")]
    pub completion_time: Duration,
    /// Bytes free on the disk below which nothing is appended.
    #[serde(with = "kinds::size_or_zero")]
    pub min_free: usize,
    /// Bytes of the store's cache.
    #[serde(with = "kinds::size")]
    pub cache_capacity: usize,
}

/// The values of `durability`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DurabilityWord {
    Commit,
    Interval,
}

/// The values of `log_format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

/// The values of `disposed_sessions` and `closed_chats`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kept {
    /// Kept in the log for admins, and listed nowhere.
    Hidden,
    /// Erased.
    Delete,
}

/// What an agent is told of a turn that it is to take up, where nothing else is configured.
pub const RESUME_WORDS: &str = "This turn was interrupted and is taken up again. You may know its message already: go on \
    where you stopped, and do not do again what is done.";

/// What `max_nesting` may be: the protocol's own messages nest some ten deep, and parsers of JSON stop at 128, in a snapshot that
/// nests deeper than the action did.
const NESTING: std::ops::RangeInclusive<usize> = 16..=100;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

impl Config {
    /// The values of a host that was told nothing, on this machine.
    pub fn defaults(environment: &Environment) -> Self {
        let home = environment.home();
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7878)),
            public_url: None,
            tls_certificate: None,
            tls_key: None,
            tls_reload_interval: Duration::from_secs(30),
            data: PathBuf::from("./scrollback-data"),
            token_file: None,
            durability: DurabilityWord::Commit,
            commit_interval: Duration::from_millis(100),
            log_level: "info".into(),
            log_format: LogFormat::Text,
            otlp_endpoint: None,
            host_name: environment.host_name(),
            default_directory: home.clone(),
            allowed_directories: vec![home],
            allowed_origins: vec!["vscode-file://vscode-app".into()],
            default_agent: None,
            disposed_sessions: Kept::Hidden,
            closed_chats: Kept::Hidden,
            metrics_public: false,
            oidc_issuer: None,
            oidc_audience: Vec::new(),
            oidc_user_claim: "sub".into(),
            oidc_roles_claim: None,
            oidc_default_roles: Vec::new(),
            oidc_ca: None,
            oidc_keys_ttl: Duration::from_secs(60 * 60),
            oidc_leeway: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(60),
            delta_window: Duration::from_millis(16),
            client_grace: Duration::from_secs(30),
            client_tool_timeout: Duration::from_secs(600),
            handshake_timeout: Duration::from_secs(10),
            ping_after: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(30),
            close_timeout: Duration::from_secs(10),
            attachment_timeout: Duration::from_secs(30),
            max_message: 48 * MIB,
            max_handshake_message: MIB,
            max_nesting: 64,
            max_action: 8 * MIB,
            max_message_text: MIB,
            max_attachments: 1_000,
            max_queued_messages: 1_000,
            max_chats_in_session: 1_000,
            max_sessions: None,
            max_subscriptions: 10_000,
            max_connections: 10_000,
            max_connections_per_person: 1_000,
            max_unsent: 8 * MIB,
            max_frame: MIB,
            max_snapshot: 48 * MIB,
            max_requests_in_flight: 256,
            max_actions_in_flight: 32,
            max_received: 128 * KIB,
            max_messages_per_second: 1_000,
            max_bytes_per_second: 8 * MIB,
            max_request_body: MIB,
            request_body_timeout: Duration::from_secs(30),
            max_parts_in_turn: 10_000,
            max_worker_depth: 5,
            max_workers_in_turn: 100,
            max_turn_processes: 2,
            agent_slow_start: Duration::from_secs(30),
            agent_start_timeout: Duration::from_secs(120),
            agent_cancel_timeout: Duration::from_secs(10),
            agent_idle_timeout: Duration::from_secs(30 * 60),
            agent_terminate_after: Duration::from_secs(3),
            agent_kill_after: Duration::from_secs(2),
            max_agent_message: 32 * MIB,
            max_agent_transcript: 256 * KIB,
            endpoint_connect_timeout: Duration::from_secs(10),
            endpoint_idle_timeout: Duration::from_secs(5 * 60),
            endpoint_probe_timeout: Duration::from_secs(5),
            max_tool_rounds: 25,
            overload_retries: [60, 300, 900].map(Duration::from_secs).to_vec(),
            limit_resumes: 3,
            resume_words: RESUME_WORDS.into(),
            max_fetched_attachment: 32 * MIB,
            max_inline_image: 5 * MIB,
            max_inline_text: 64 * KIB,
            max_chat_excerpt: 1_000,
            max_watches: 100,
            max_watched_directories: 10_000,
            watch_window: Duration::from_millis(50),
            max_chat_in_flight: 256 * KIB,
            max_visual: 16 * MIB,
            max_visuals_in_chat: 500,
            replay_limit: 8 * MIB,
            max_completions: 50,
            completion_time: Duration::from_millis(200),
            min_free: 64 * MIB,
            cache_capacity: 64 * MIB,
        }
    }

    /// The first value that is well written and still cannot be served: its key, and why.
    fn refused(&self) -> Option<(&'static str, String)> {
        if !NESTING.contains(&self.max_nesting) {
            return Some(("max_nesting", format!("wants {} to {}", NESTING.start(), NESTING.end())));
        }
        if self.delta_window > Duration::from_secs(1) {
            return Some(("delta_window", "at most 1s".into()));
        }
        if self.public_url.as_deref().is_some_and(|url| !is_base_url(url)) {
            return Some(("public_url", "wants http:// or https:// and a host, such as https://box.example".into()));
        }
        match (&self.tls_certificate, &self.tls_key) {
            (Some(_), None) => return Some(("tls_certificate", "wants tls_key beside it".into())),
            (None, Some(_)) => return Some(("tls_key", "wants tls_certificate beside it".into())),
            _ => {}
        }
        if self.otlp_endpoint.as_deref().is_some_and(|url| !is_base_url(url)) {
            return Some((
                "otlp_endpoint",
                "wants http:// or https:// and a host, such as http://127.0.0.1:4318".into(),
            ));
        }
        if self.tls_reload_interval.is_zero() {
            return Some(("tls_reload_interval", "wants more than 0".into()));
        }
        if !self.log_level.split(',').all(is_directive) {
            let wants = "wants error, warn, info, debug, trace or off, or directives such as info,scrollback=debug";
            return Some(("log_level", wants.into()));
        }
        oidc::refused(self).or_else(|| self.relative_directory())
    }

    /// Sessions are told absolute directories, so the configuration names absolute ones.
    fn relative_directory(&self) -> Option<(&'static str, String)> {
        if !self.default_directory.is_absolute() {
            return Some(("default_directory", format!("{} is not absolute", self.default_directory.display())));
        }
        if let Some(relative) = self.allowed_directories.iter().find(|directory| !directory.is_absolute()) {
            return Some(("allowed_directories", format!("{} is not absolute", relative.display())));
        }
        self.outside_directory()
    }

    /// A session that names no directory works in an allowed one too.
    fn outside_directory(&self) -> Option<(&'static str, String)> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let default = real(&self.default_directory);
        let inside = self.allowed_directories.iter().any(|allowed| default.starts_with(real(allowed)));
        let text =
            || format!("default_directory {} is in none of them: set both keys", self.default_directory.display());
        (!inside).then(|| ("allowed_directories", text()))
    }
}

/// An absolute URL that paths can be put behind.
fn is_base_url(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")).unwrap_or_default();
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#' | '@' | '"' | '<' | '>' | '\\');
    !rest.is_empty() && !rest.starts_with(['/', ':']) && !rest.contains(odd)
}

/// A level, or a target with its level. A bare target would be taken for one that shows everything.
fn is_directive(text: &str) -> bool {
    let level = text.rsplit('=').next().unwrap_or_default();
    ["error", "warn", "info", "debug", "trace", "off"].contains(&level.trim())
}
