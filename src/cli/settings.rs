//! The settings of the host, of its sockets and of its store, made of the configuration.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::actors::host::HostSettings;
use crate::actors::writer::Durability;
use crate::admin::Limits;
use crate::agents::programs::EndingSteps;
use crate::agents::{AgentLimits, EndpointLimits};
use crate::config::{Config, DurabilityWord, Kept};
use crate::events::sled_store::SledOptions;
use crate::protocol::ProtocolSettings;
use crate::resources::uri::file_uri;

/// What the host is told.
pub fn host(config: &Config) -> HostSettings {
    HostSettings {
        host_name: config.host_name.clone(),
        durability: match config.durability {
            DurabilityWord::Commit => Durability::Commit,
            DurabilityWord::Interval => Durability::Interval(config.commit_interval),
        },
        default_directory: file_uri(&real(&config.default_directory)),
        allowed_directories: config.allowed_directories.iter().map(|directory| real(directory)).collect(),
        data_directory: Some(real(&config.data)),
        secret_files: config.token_file.iter().chain(&config.tls_key).map(|file| real(file)).collect(),
        default_agent: config.default_agent.clone(),
        erase_disposed: config.disposed_sessions == Kept::Delete,
        erase_closed: config.closed_chats == Kept::Delete,
        maintenance: false,
        idle_timeout: config.idle_timeout,
        delta_window: config.delta_window,
        client_grace: config.client_grace,
        client_tool_timeout: config.client_tool_timeout,
        max_action: config.max_action,
        max_message_text: config.max_message_text,
        max_attachments: config.max_attachments,
        max_queued_messages: config.max_queued_messages,
        max_chats_in_session: config.max_chats_in_session,
        max_parts_in_turn: config.max_parts_in_turn,
        max_worker_depth: config.max_worker_depth,
        max_workers_in_turn: config.max_workers_in_turn,
        max_turn_processes: config.max_turn_processes,
        overload_retries: config.overload_retries.clone(),
        limit_resumes: config.limit_resumes,
        resume_words: config.resume_words.clone(),
        max_sessions: config.max_sessions,
        max_snapshot: config.max_snapshot,
        max_watches: config.max_watches,
        max_watched_directories: config.max_watched_directories,
        watch_window: config.watch_window,
        max_chat_in_flight: config.max_chat_in_flight,
        address_url: address_url("http", config.listen),
        inner_url: address_url("http", config.listen),
        public_url: config.public_url.clone(),
        max_visual: config.max_visual,
        max_visuals_in_chat: config.max_visuals_in_chat,
        attachment_timeout: config.attachment_timeout,
        max_fetched_attachment: config.max_fetched_attachment,
        max_inline_image: config.max_inline_image,
        max_inline_text: config.max_inline_text,
        max_chat_excerpt: config.max_chat_excerpt,
    }
}

/// The times and sizes of what is said with agents.
pub fn agents(config: &Config) -> AgentLimits {
    AgentLimits {
        slow_start: config.agent_slow_start,
        max_start: config.agent_start_timeout,
        cancel_timeout: config.agent_cancel_timeout,
        idle_timeout: config.agent_idle_timeout,
        max_message: config.max_agent_message,
        max_transcript: config.max_agent_transcript,
        endpoint: EndpointLimits {
            connect_timeout: config.endpoint_connect_timeout,
            idle_timeout: config.endpoint_idle_timeout,
            probe_timeout: config.endpoint_probe_timeout,
            max_tool_rounds: config.max_tool_rounds,
        },
    }
}

/// How an agent's program is ended.
pub fn ending_steps(config: &Config) -> EndingSteps {
    EndingSteps { terminate_after: config.agent_terminate_after, kill_after: config.agent_kill_after }
}

/// The limits of sockets.
pub fn protocol(config: &Config) -> ProtocolSettings {
    ProtocolSettings {
        max_message: config.max_message,
        max_message_before_handshake: config.max_handshake_message,
        max_nesting: config.max_nesting,
        max_frame_sent: config.max_frame,
        max_message_sent: config.max_snapshot,
        max_unsent: config.max_unsent,
        max_subscriptions: config.max_subscriptions,
        max_connections: config.max_connections,
        max_connections_of_one: config.max_connections_per_person,
        max_in_flight: config.max_requests_in_flight,
        max_actions_in_flight: config.max_actions_in_flight,
        max_received: config.max_received,
        max_messages_a_second: config.max_messages_per_second,
        max_bytes_a_second: config.max_bytes_per_second,
        handshake_timeout: config.handshake_timeout,
        ping_after: config.ping_after,
        pong_timeout: config.ping_timeout,
        close_timeout: config.close_timeout,
        replay_limit: config.replay_limit,
        max_completions: config.max_completions,
        completion_time: config.completion_time,
    }
}

/// What somebody is warned of before it is met.
pub fn limits(config: &Config) -> Limits {
    Limits {
        connections: config.max_connections,
        connections_of_one: config.max_connections_per_person,
        sessions: config.max_sessions,
        min_free: config.min_free as u64,
    }
}

/// How the store is opened.
pub fn store(config: &Config) -> SledOptions {
    SledOptions {
        cache_capacity: config.cache_capacity as u64,
        min_free: config.min_free as u64,
        ..SledOptions::default()
    }
}

/// The URL of an address; one that stands for all addresses of the machine is reached from here.
pub fn address_url(scheme: &str, address: SocketAddr) -> String {
    let mut address = address;
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    format!("{scheme}://{address}")
}

/// The origin that `public_url` names, as browsers write it.
pub fn public_origin(config: &Config) -> Option<String> {
    let (scheme, rest) = config.public_url.as_deref()?.split_once("://")?;
    let authority = rest.split('/').next().unwrap_or(rest);
    let default_port = if scheme == "https" { ":443" } else { ":80" };
    let authority = authority.strip_suffix(default_port).unwrap_or(authority);
    Some(format!("{scheme}://{}", authority.to_ascii_lowercase()))
}

/// The real path, as sessions' directories are compared by it; the path itself where there is nothing yet.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, load};

    #[test]
    fn an_address_becomes_a_url_that_reaches_it() {
        let url = |address: &str| address_url("http", address.parse().unwrap());
        assert_eq!(url("127.0.0.1:7878"), "http://127.0.0.1:7878");
        assert_eq!(url("0.0.0.0:80"), "http://127.0.0.1:80");
        assert_eq!(url("[::]:80"), "http://[::1]:80");
        assert_eq!(url("[fe80::1]:80"), "http://[fe80::1]:80");
    }

    #[test]
    fn the_defaults_of_the_keys_are_those_of_the_settings() {
        let config = load(None, &Environment::default(), &[]).unwrap().config;
        let (of_keys, own) = (host(&config), HostSettings::default());
        let machine = |settings: HostSettings| HostSettings {
            host_name: String::new(),
            default_directory: String::new(),
            allowed_directories: Vec::new(),
            data_directory: None,
            ..settings
        };
        assert_eq!(format!("{:?}", machine(of_keys)), format!("{:?}", machine(own)));
        assert_eq!(format!("{:?}", protocol(&config)), format!("{:?}", ProtocolSettings::default()));
    }

    #[test]
    fn the_public_origin_is_the_one_that_browsers_send() {
        let origin = |url: &str| {
            let environment = Environment::of(&[("SCROLLBACK_PUBLIC_URL", url)]);
            public_origin(&load(None, &environment, &[]).unwrap().config)
        };
        assert_eq!(origin(""), None);
        assert_eq!(origin("https://Box.example").unwrap(), "https://box.example");
        assert_eq!(origin("https://box.example:443/a/b").unwrap(), "https://box.example");
        assert_eq!(origin("https://box.example:8443").unwrap(), "https://box.example:8443");
        assert_eq!(origin("http://[fe80::443]/").unwrap(), "http://[fe80::443]");
    }

    #[test]
    fn the_data_directory_is_told_to_the_host_by_its_real_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        std::os::unix::fs::symlink(&path, path.join("link")).unwrap();
        let link = path.join("link");
        let environment = Environment::of(&[("SCROLLBACK_DATA", link.to_str().unwrap())]);
        let config = load(None, &environment, &[]).unwrap().config;
        assert_eq!(host(&config).data_directory, Some(path));
    }

    #[test]
    fn interval_carries_its_time() {
        let environment =
            Environment::of(&[("SCROLLBACK_DURABILITY", "interval"), ("SCROLLBACK_COMMIT_INTERVAL", "40ms")]);
        let config = load(None, &environment, &[]).unwrap().config;
        assert_eq!(host(&config).durability, Durability::Interval(std::time::Duration::from_millis(40)));
    }
}
