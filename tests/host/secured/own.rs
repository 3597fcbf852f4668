//! The host's own TLS.

use std::io::Read;
use std::net::TcpStream;
use std::process::Command;

use futures_util::SinkExt;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ProtocolVersion, SupportedProtocolVersion};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::{Authority, NAME, Secured, replace, shaken};
use crate::command::host_file;
use crate::harness::{Client, PATIENCE, chat_of, eventually, streamed};

const SESSION: &str = "ahp-session:/secured";

/// A client whose session's first chat is open.
async fn open(host: &Secured) -> (Client, String) {
    let mut client = Client::over(host.authority.socket(host.address()).await);
    client.initialize("c", &["ahp-root://"]).await;
    let chat = client.create_session(SESSION).await;
    client.subscribe(&chat).await;
    (client, chat)
}

fn only(authority: &Authority, version: &'static SupportedProtocolVersion) -> ClientConfig {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.root.clone()).unwrap();
    builder.with_root_certificates(roots).with_no_client_auth()
}

#[tokio::test]
async fn connections_have_tls_1_2_or_1_3_and_http_1_1_and_nothing_else_is_served() {
    let host = Secured::start(&[]);
    for (version, spoken) in [(&TLS12, ProtocolVersion::TLSv1_2), (&TLS13, ProtocolVersion::TLSv1_3)] {
        let mut config = only(&host.authority, version);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let connection = shaken(host.address(), config).unwrap();
        assert_eq!(connection.protocol_version(), Some(spoken));
        assert_eq!(connection.alpn_protocol(), Some(b"http/1.1".as_slice()));
    }
    assert_eq!(host.get("/healthz").await, r#"{"ok":true}"#);
    let plain = format!("http://127.0.0.1:{}/healthz", host.host.port);
    assert!(host.authority.web().get(plain).send().await.is_err());
    assert!(
        shaken(host.address(), Authority::new().trusted()).is_err(),
        "a certificate by another authority was taken"
    );
}

#[tokio::test]
async fn a_turn_goes_over_wss_and_links_to_visuals_are_https() {
    let host = Secured::start(&[]);
    let (mut client, chat) = open(&host).await;
    let turn = client.run(&chat, "t", "hello there").await;
    assert_eq!(streamed(&turn), "You said: hello there ");
    let page = json!({ "channel": chat, "title": "page", "html": "<p>a page</p>" });
    let visual = client.ask("x-scrollback/publishVisual", page).await.unwrap();
    let path = visual["url"].as_str().unwrap().strip_prefix(&format!("https://{NAME}:{}", host.host.port)).unwrap();
    assert!(host.get(path).await.ends_with("<p>a page</p>"));
    assert_eq!(host.host.stop("TERM").0, 0);
}

#[tokio::test]
async fn a_new_certificate_is_shown_to_who_comes_and_a_bad_one_is_not() {
    let host = Secured::start(&[("SCROLLBACK_TLS_RELOAD_INTERVAL", "10ms")]);
    let (mut client, chat) = open(&host).await;
    assert_eq!(host.shows(), host.first);
    let second = host.authority.issue(&host.pair);
    eventually("the new certificate is shown", || host.shows() == second).await;

    let failed = || async {
        let metrics = host.get("/metrics").await;
        let line = metrics.lines().find_map(|line| line.strip_prefix("scrollback_tls_reloads_failed_total "));
        line.map_or(0, |count| count.parse().unwrap())
    };
    // Between its two files a pair fits nothing, which may have been seen.
    let before: u64 = failed().await;
    replace(&host.pair.key, "no key");
    timeout(PATIENCE, async { while failed().await == before {} }).await.expect("the bad key was not noticed");
    assert_eq!(host.shows(), second);
    let third = host.authority.issue(&host.pair);
    eventually("the next good one is shown", || host.shows() == third).await;

    let turn = client.run(&chat, "t", "still here").await;
    assert_eq!(streamed(&turn), "You said: still here ");
}

#[tokio::test]
async fn a_hangup_reads_the_certificate_again() {
    let host = Secured::start(&[("SCROLLBACK_TLS_RELOAD_INTERVAL", "1h")]);
    let second = host.authority.issue(&host.pair);
    assert_eq!(host.shows(), host.first);
    let sent = Command::new("kill").args(["-HUP", &host.host.pid().to_string()]).status().unwrap();
    assert!(sent.success());
    eventually("the new certificate is shown", || host.shows() == second).await;
}

#[test]
fn a_handshake_that_dawdles_is_cut() {
    let host = Secured::start(&[("SCROLLBACK_HANDSHAKE_TIMEOUT", "100ms")]);
    let mut silent = TcpStream::connect(host.address()).unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
}

#[tokio::test]
async fn a_peer_that_does_not_read_is_cut_off_under_tls_too() {
    let host = Secured::start(&[("SCROLLBACK_CLOSE_TIMEOUT", "100ms")]);
    let mut socket = host.authority.socket(host.address()).await;
    // Each answer carries its id back; none of them is read.
    let ping = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "x".repeat(256 * 1024));
    let sends = async { while socket.send(Message::text(ping.as_str())).await.is_ok() {} };
    timeout(PATIENCE, sends).await.expect("the connection was not cut");
}

#[tokio::test]
async fn agents_reach_the_tools_without_tls_on_loopback_and_the_gate_is_the_same_there() {
    let fake = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("examples/fake_acp");
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("s.toml");
    let table = format!("[agents.fake]\nkind = \"acp\"\ncommand = [\"{}\", \"http\"]\n", fake.display());
    std::fs::write(&config, table).unwrap();
    let host = Secured::with(&["--config", config.to_str().unwrap()], &[]);
    let inner = host_file(&host.data).address;
    assert!(inner.starts_with("127.0.0.1:") && inner != host.address().to_string(), "{inner}");

    let mut client = Client::over(host.authority.socket(host.address()).await);
    client.initialize("c", &["ahp-root://"]).await;
    client.ask("createSession", json!({ "channel": SESSION, "provider": "fake" })).await.unwrap();
    let chat = chat_of(SESSION);
    client.subscribe(&chat).await;
    let turn = client.run(&chat, "t", "/opened-with").await;
    let opened: Value = serde_json::from_str(&streamed(&turn)).unwrap();
    let tools = opened["mcpServers"][0]["url"].as_str().unwrap();
    assert!(tools.starts_with(&format!("http://{inner}/mcp/")), "{tools}");

    let web = host.authority.web();
    let status = async |path: &str, name: &str, value: &str| {
        web.get(path).header(name, value).send().await.unwrap().status().as_u16()
    };
    assert_eq!(status(tools, "Accept", "*/*").await, 401);
    let log = format!("http://{inner}/api/log");
    assert_eq!(status(&log, "Accept", "*/*").await, 401);
    assert_eq!(status(&log, "Authorization", "Bearer t").await, 200);
    assert_eq!(status(&format!("{log}?tkn=t"), "Host", "evil.example").await, 403);
}
