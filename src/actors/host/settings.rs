//! What the host is told by its configuration.

use std::time::Duration;

use crate::actors::writer::Durability;
use crate::config::RESUME_WORDS;

/// What the host is told by its configuration. Every field is a key of the configuration file.
#[derive(Debug, Clone)]
pub struct HostSettings {
    pub host_name: String,
    pub durability: Durability,
    /// `file:` URI of the directory that sessions get which name none.
    pub default_directory: String,
    /// Directories that sessions may work in, by real path.
    pub allowed_directories: Vec<std::path::PathBuf>,
    /// The host's own data directory, which no client reaches; by real path, since messages name attachments in it. Without
    /// one no attachment can be stored.
    pub data_directory: Option<std::path::PathBuf>,
    /// Files that hold secrets of the host's, such as its token: no client reaches them.
    pub secret_files: Vec<std::path::PathBuf>,
    /// Provider of sessions that name none.
    pub default_agent: Option<String>,
    /// A disposed session is erased.
    pub erase_disposed: bool,
    /// A closed chat is erased.
    pub erase_closed: bool,
    /// For an operator's verb on a directory that nobody serves: interrupted turns are left as they are.
    pub maintenance: bool,
    pub idle_timeout: Duration,
    pub delta_window: Duration,
    pub client_grace: Duration,
    pub client_tool_timeout: Duration,
    /// Bytes of an action, or of a first message, without the bytes of its attachments.
    pub max_action: usize,
    /// Bytes.
    pub max_message_text: usize,
    /// Attachments of a message.
    pub max_attachments: usize,
    pub max_queued_messages: usize,
    pub max_chats_in_session: usize,
    pub max_parts_in_turn: usize,
    /// Workers within workers.
    pub max_worker_depth: usize,
    pub max_workers_in_turn: usize,
    /// Processes that a turn is handed to one after the other, before it ends as cancelled when it is interrupted again.
    pub max_turn_processes: usize,
    /// When a turn that was stopped by an overloaded model is taken up, counted by how many ended at a limit in a row.
    pub overload_retries: Vec<Duration>,
    /// How many turns in a row that ended at a limit the host takes up by itself.
    pub limit_resumes: usize,
    /// What the agent is told of a turn that it is to take up.
    pub resume_words: String,
    /// `None`: no limit.
    pub max_sessions: Option<usize>,
    /// Bytes of one snapshot's JSON.
    pub max_snapshot: usize,
    /// Watches of files that one connection began.
    pub max_watches: usize,
    /// Directories that one of them watches.
    pub max_watched_directories: usize,
    /// How long changes are gathered before they are told.
    pub watch_window: Duration,
    /// Bytes of one chat that wait for the disk, beyond which its agent is not read and clients hear `busy`.
    pub max_chat_in_flight: usize,
    /// The URL of the address that the host listens at, without a slash at its end.
    pub address_url: String,
    /// The URL that the host's own agents reach it under, likewise.
    pub inner_url: String,
    /// The URL that others reach the host under, where it is another one.
    pub public_url: Option<String>,
    /// Bytes of a stored page.
    pub max_visual: usize,
    pub max_visuals_in_chat: usize,
    /// How long a client may take to hand over the files of one message that only it holds.
    pub attachment_timeout: Duration,
    /// Bytes of a file that is fetched from a client.
    pub max_fetched_attachment: usize,
    /// Bytes of an image that a model is given inline.
    pub max_inline_image: usize,
    /// Bytes of a text that a model is given inline.
    pub max_inline_text: usize,
    /// Characters of an attached chat that a model is given.
    pub max_chat_excerpt: usize,
}

impl Default for HostSettings {
    fn default() -> Self {
        Self {
            host_name: "localhost".into(),
            durability: Durability::Commit,
            default_directory: "file:///".into(),
            allowed_directories: vec!["/".into()],
            data_directory: None,
            secret_files: Vec::new(),
            default_agent: None,
            erase_disposed: false,
            erase_closed: false,
            maintenance: false,
            idle_timeout: Duration::from_secs(60),
            delta_window: Duration::from_millis(16),
            client_grace: Duration::from_secs(30),
            client_tool_timeout: Duration::from_secs(600),
            max_action: 8 << 20,
            max_message_text: 1 << 20,
            max_attachments: 1_000,
            max_queued_messages: 1_000,
            max_chats_in_session: 1_000,
            max_parts_in_turn: 10_000,
            max_worker_depth: 5,
            max_workers_in_turn: 100,
            max_turn_processes: 2,
            overload_retries: [60, 300, 900].map(Duration::from_secs).to_vec(),
            limit_resumes: 3,
            resume_words: RESUME_WORDS.into(),
            max_sessions: None,
            max_snapshot: 48 << 20,
            max_watches: 100,
            max_watched_directories: 10_000,
            watch_window: Duration::from_millis(50),
            max_chat_in_flight: 256 << 10,
            address_url: "http://127.0.0.1:7878".into(),
            inner_url: "http://127.0.0.1:7878".into(),
            public_url: None,
            max_visual: 16 << 20,
            max_visuals_in_chat: 500,
            attachment_timeout: Duration::from_secs(30),
            max_fetched_attachment: 32 << 20,
            max_inline_image: 5 << 20,
            max_inline_text: 64 << 10,
            max_chat_excerpt: 1_000,
        }
    }
}
