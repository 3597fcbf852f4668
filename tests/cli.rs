//! The command line as scripts meet it: exit statuses, one-line messages, and what is printed.

// A test may fail by panicking, and so may what only tests call.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod command;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc;
use std::time::Duration;

use command::{Host, filled, host_file, run, scrollback};
use scrollback::events::rows::ChannelKind;
use scrollback::events::sled_store::{SledOptions, SledStore};
use scrollback::events::{Batch, ChannelId, EventLog, HostFile};
use scrollback::projections::catalogue;
use serde_json::{Value, json};
use tempfile::TempDir;

fn home() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn bad_usage_is_one_line_and_exit_2() {
    let home = home();
    let refused = |args: &[&str], words: &[&str]| run(home.path(), args).is_refused(2, words);
    refused(&["serve", "--listne", "x"], &["--listne"]);
    refused(&["log", "show"], &["<SEQ>"]);
    refused(&["log", "show", "five"], &["five", "<SEQ>"]);
    refused(&["log", "list", "--since", "yesterday"], &["--since", "yesterday"]);
    refused(&["log", "list", "--type", "["], &["--type"]);
    refused(&["log", "list", "--data", "d", "--url", "http://h"], &["--data", "--url"]);
    refused(&["log", "stats", "--url", "ftp://h"], &["--url", "ftp://h"]);
    refused(&["log", "stats", "--url", "http://h", "--token-file", "/no/such"], &["--token-file", "/no/such"]);
    refused(&["serve", "--json"], &["--print-config"]);
    refused(&["completion", "tcsh"], &["tcsh"]);
    refused(&["restore", "backup"], &["--data"]);
    refused(&["log", "diff", "ahp-root://", "--from", "1"], &["--to"]);
    refused(&["log", "import", "file", "--url", "http://h"], &["--url"]);
    refused(&["frobnicate"], &["frobnicate", "--help"]);
}

#[test]
fn a_bad_value_names_the_flag_the_variable_or_the_file_and_key() {
    let home = home();
    let refused = |args: &[&str], words: &[&str]| run(home.path(), args).is_refused(2, words);
    refused(&["serve", "--listen", "here"], &["--listen", "127.0.0.1:7878"]);
    refused(&["serve", "--durability", "never"], &["--durability", "never"]);
    refused(&["serve", "--log-level", "loud"], &["--log-level", "debug"]);
    refused(&["serve", "--log-format", "xml"], &["--log-format", "xml"]);
    refused(&["serve", "--config", "/no/such.toml"], &["/no/such.toml"]);
    refused(&["serve", "--token-file", "/no/such"], &["token_file", "--token-file", "/no/such"]);
    let variable = scrollback(home.path(), &["serve"]).env("SCROLLBACK_IDLE_TIMEOUT", "1 moment").output().unwrap();
    command::Ran::from(variable).is_refused(2, &["SCROLLBACK_IDLE_TIMEOUT", "30s"]);
    for (text, words) in [
        ("unkown = 1", ["unknown key unkown", ""]),
        ("max_unsent = \"lots\"", ["max_unsent", "8MiB"]),
        ("delta_window = \"1001ms\"", ["delta_window", "at most 1s"]),
        ("closed_chats = \"never\"", ["closed_chats", "hidden"]),
        ("[agents.codex]\npreset = \"code\"", ["agents.codex.preset", "codex, gemini"]),
        ("default_agent = \"claude\"", ["default_agent: claude", "demo"]),
        ("allowed_directories = [\"/srv\"]", ["allowed_directories: default_directory", "set both keys"]),
        ("a = \n", ["line 1", ""]),
    ] {
        fs::write(home.path().join("s.toml"), text).unwrap();
        refused(&["serve", "--config", "s.toml"], &[&["s.toml"], words.as_slice()].concat());
    }
}

#[test]
fn a_host_that_is_not_there_or_goes_away_is_told_of() {
    let home = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let hangs_up = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut head = [0; 1024];
        assert!(socket.read(&mut head).unwrap() > 0);
    });
    let stats = || run(home.path(), &["log", "stats", "--url", &url]);
    stats().is_refused(1, &[&url, "the host went away before it answered"]);
    hangs_up.join().unwrap();
    stats().is_refused(1, &[&url, "no host answers there"]);
}

/// A collector that keeps what it was sent: head and body of each request.
fn collector() -> (u16, mpsc::Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, (sender, receiver)) = (listener.local_addr().unwrap().port(), mpsc::channel());
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let mut socket = BufReader::new(socket);
            loop {
                let (mut head, mut length) = (String::new(), 0);
                while socket.read_line(&mut head).is_ok_and(|read| read > 2) {}
                for line in head.lines() {
                    let (name, value) = line.split_once(':').unwrap_or_default();
                    if name.eq_ignore_ascii_case("content-length") {
                        length = value.trim().parse().unwrap();
                    }
                }
                let mut body = vec![0; length];
                if head.is_empty() || socket.read_exact(&mut body).is_err() {
                    break;
                }
                let _ = sender.send((head, body));
                socket.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
            }
        }
    });
    (port, receiver)
}

/// What makes a session and has its agent answer in it.
fn turn(session: &str, text: &str) -> [Value; 2] {
    let message = json!({ "text": text, "origin": { "kind": "user" } });
    [
        json!({ "method": "createSession", "params": { "channel": session, "provider": "demo" } }),
        json!({ "method": "createChat", "params": { "channel": session, "chat": "ahp-chat:/c", "initialMessage": message } }),
    ]
}

#[tokio::test]
async fn the_trails_of_messages_and_turns_go_to_a_collector_without_what_is_said() {
    let (home, (port, sent)) = (home(), collector());
    let data = home.path().join("data");
    let mut command = scrollback(home.path(), &["serve", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()]);
    let host = Host::spawn(command.env("SCROLLBACK_OTLP_ENDPOINT", format!("http://127.0.0.1:{port}")));
    ask(&host, &turn("ahp-session:/traced", "a secret of mine")).await;
    // What is left is sent when the host stops.
    assert_eq!(host.stop("TERM").0, 0);
    let (mut heads, mut bodies) = (String::new(), Vec::new());
    while let Ok((head, body)) = sent.recv_timeout(Duration::from_secs(1)) {
        heads.push_str(&head);
        bodies.extend(body);
    }
    assert!(heads.starts_with("POST /v1/traces "), "{heads}");
    let has = |text: &str| bodies.windows(text.len()).any(|window| window == text.as_bytes());
    for name in ["scrollback", "turn", "message", "createSession", "ahp-session:/traced", "demo"] {
        assert!(has(name), "{name} is missing");
    }
    assert!(!has("a secret of mine"));
}

#[tokio::test]
async fn a_collector_that_is_not_there_is_said_in_the_log_and_holds_nothing_up() {
    let home = home();
    let refused =
        scrollback(home.path(), &["serve"]).env("SCROLLBACK_OTLP_ENDPOINT", "collector:4318").output().unwrap();
    command::Ran::from(refused).is_refused(2, &["SCROLLBACK_OTLP_ENDPOINT", "http://127.0.0.1:4318"]);
    let data = home.path().join("data");
    let mut command = scrollback(home.path(), &["serve", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()]);
    let log = home.path().join("host.log");
    let command = command.env("SCROLLBACK_OTLP_ENDPOINT", "http://127.0.0.1:9");
    let host = Host::spawn_logging(command, fs::File::create(&log).unwrap().into());
    ask(&host, &turn("ahp-session:/traced", "hello")).await;
    assert_eq!(host.stop("TERM").0, 0);
    let log = fs::read_to_string(&log).unwrap();
    assert!(log.contains("WARN") || log.contains("ERROR"), "{log}");
}

#[test]
fn an_address_of_the_network_needs_a_token() {
    let home = home();
    run(home.path(), &["serve", "--listen", "0.0.0.0:0"]).is_refused(2, &["listen", "0.0.0.0:0", "SCROLLBACK_TOKEN"]);
    let mut command = scrollback(home.path(), &["serve", "--listen", "0.0.0.0:0"]);
    let host = Host::spawn(command.env("SCROLLBACK_TOKEN", "t"));
    assert_eq!(host.stop("TERM").0, 0);
}

#[test]
fn a_port_in_use_is_one_line_and_exit_1() {
    let home = home();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    run(home.path(), &["serve", "--log-level", "warn", "--listen", &address]).is_refused(1, &[&address, "in use"]);
}

#[test]
fn a_directory_that_cannot_be_used_is_one_line_and_exit_1() {
    let home = home();
    fs::write(home.path().join("file"), "").unwrap();
    fs::create_dir(home.path().join("foreign")).unwrap();
    fs::write(home.path().join("foreign/letter"), "dear").unwrap();
    fs::create_dir(home.path().join("newer")).unwrap();
    fs::write(home.path().join("newer/FORMAT"), "scrollback 999\n").unwrap();
    for data in ["file", "file/below", "foreign", "newer", "/proc/nothing-of-ours"] {
        run(home.path(), &["serve", "--listen", "127.0.0.1:0", "--data", data]).is_refused(1, &[data]);
        run(home.path(), &["log", "stats", "--data", data]).is_refused(1, &[data]);
    }
    assert_eq!(fs::read_to_string(home.path().join("foreign/letter")).unwrap(), "dear");
    run(home.path(), &["log", "list"]).is_refused(1, &["scrollback-data", "no such directory"]);
    assert!(!home.path().join("scrollback-data").exists());
}

#[test]
fn a_second_host_names_the_first() {
    let home = home();
    let data = home.path().join("data");
    let host = Host::start(home.path(), &data, &[]);
    let second = ["serve", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()];
    let words = [host.pid().to_string(), format!("127.0.0.1:{}", host.port)];
    run(home.path(), &second).is_refused(1, &[&words[0], &words[1]]);
}

#[test]
fn a_host_says_ready_once_and_ends_in_order_at_a_signal() {
    for signal in ["TERM", "INT"] {
        let home = home();
        let data = home.path().join("data");
        let host = Host::start(home.path(), &data, &[]);
        let file = host_file(&data);
        assert_eq!((file.pid, file.address), (host.pid(), format!("127.0.0.1:{}", host.port)));
        assert_eq!(file.secret.len(), 40);
        let mode = fs::metadata(data.join("host.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(host.stop(signal), (0, String::new()));
        assert_eq!(HostFile::read(&data).unwrap(), None);
        assert_eq!(Host::start(home.path(), &data, &[]).stop(signal).0, 0);
    }
}

#[tokio::test]
async fn a_host_that_stops_closes_its_sockets_with_1001_and_waits_for_nobody() {
    use futures_util::StreamExt;
    use tokio_tungstenite::connect_async;
    use tokio_tungstenite::tungstenite::Message;

    let home = home();
    let host = Host::start(home.path(), &home.path().join("data"), &[]);
    let url = format!("ws://127.0.0.1:{}/", host.port);
    let (mut socket, _) = connect_async(&url).await.unwrap();
    let (_unread, _) = connect_async(&url).await.unwrap();
    let live = ureq::get(format!("{}/api/events", host.url())).header("Accept", "text/event-stream").call().unwrap();
    let stopped = tokio::task::spawn_blocking(move || host.stop("TERM"));
    let Some(Ok(Message::Close(Some(close)))) = socket.next().await else { panic!("no close frame") };
    assert_eq!(u16::from(close.code), 1001);
    assert_eq!(stopped.await.unwrap(), (0, String::new()));
    drop(live);
}

/// Asks a host for this and waits for the answers, which have no error.
async fn ask(host: &Host, requests: &[Value]) {
    use futures_util::{SinkExt, StreamExt};
    use tokio_tungstenite::tungstenite::Message;

    let (mut socket, _) = tokio_tungstenite::connect_async(format!("ws://127.0.0.1:{}/", host.port)).await.unwrap();
    let hello = json!({ "method": "initialize", "params": { "channel": "ahp-root://", "protocolVersions": ["1.0.0"],
        "clientId": "c" } });
    for (id, request) in std::iter::once(&hello).chain(requests).enumerate() {
        let mut request = request.clone();
        (request["jsonrpc"], request["id"]) = (json!("2.0"), json!(id));
        socket.send(Message::text(request.to_string())).await.unwrap();
        loop {
            let Some(Ok(Message::Text(text))) = socket.next().await else { continue };
            let answer: Value = serde_json::from_str(&text).unwrap();
            if answer["id"] == json!(id) {
                assert_eq!(answer.get("error"), None, "{request}");
                break;
            }
        }
    }
}

#[tokio::test]
async fn what_was_disposed_is_restored_and_erased_with_and_without_a_running_host() {
    let s = "ahp-session:/s";
    let home = home();
    let data = home.path().join("data");
    let place = data.to_str().unwrap();
    let verb = |args: &[&str]| run(home.path(), &[&["log"], args, &["--json", "--data", place]].concat());
    let host = Host::start(home.path(), &data, &[]);
    let create = json!({ "method": "createSession", "params": { "channel": s, "provider": "demo" } });
    let dispose = json!({ "method": "disposeSession", "params": { "channel": s } });
    ask(&host, &[create.clone(), dispose.clone()]).await;
    assert_eq!(verb(&["restore", s]).json_lines(), [json!({ "uri": s })]);
    verb(&["restore", s]).is_refused(1, &[s, "not disposed"]);
    ask(&host, &[dispose]).await;
    assert_eq!(host.stop("TERM").0, 0);
    assert_eq!(verb(&["restore", s]).json_lines(), [json!({ "uri": s })]);
    verb(&["erase", s]).is_refused(2, &["--yes"]);
    verb(&["erase", "ahp-chat:/none", "--yes"]).is_refused(1, &["ahp-chat:/none"]);
    let erased = &verb(&["erase", s, "--yes"]).json_lines()[0];
    assert!(erased["uri"] == json!(s) && erased["events"].as_u64().unwrap() > 5, "{erased}");
    verb(&["erase", s, "--yes"]).is_refused(1, &[s]);
    assert_eq!(verb(&["verify"]).json_lines()[0]["ok"], json!(true));
    let host = Host::start(home.path(), &data, &[]);
    ask(&host, &[create]).await;
    assert_eq!(verb(&["erase", s, "--yes"]).json_lines()[0]["uri"], json!(s));
    assert_eq!(verb(&["list", "--type", "host/erased"]).json_lines().len(), 2);
    assert_eq!(verb(&["verify"]).json_lines()[0]["ok"], json!(true));
    assert_eq!(host.stop("TERM").0, 0);
}

#[test]
fn the_secret_is_another_one_at_each_start() {
    let home = home();
    let data = home.path().join("data");
    let secrets = [(), ()].map(|()| {
        let host = Host::start(home.path(), &data, &[]);
        let secret = host_file(&data).secret;
        host.stop("TERM");
        secret
    });
    assert_ne!(secrets[0], secrets[1]);
}

/// The verbs that print data, with what they print of a log of ten events.
fn verbs_print(home: &TempDir, place: &[&str]) {
    let lines = |args: &[&str]| run(home.path(), &[&["log"], args, &["--json"], place].concat()).json_lines();
    let seqs = |args: &[&str]| -> Vec<u64> {
        let seq = |event: &Value| event["serverSeq"].as_u64().unwrap();
        lines(&[&["list"], args].concat()).iter().map(seq).collect()
    };
    let third = json!({
        "serverSeq": 4, "channel": "ahp-root://", "type": "root/activeSessionsChanged", "at": "1970-01-01T00:04:00.000Z",
        "principal": "user:ada", "origin": {"clientId": "client \"one\"", "clientSeq": 7}, "bytes": 56,
        "action": {"type": "root/activeSessionsChanged", "activeSessions": 4},
    });
    assert_eq!(lines(&["show", "4"])[0], third);
    assert_eq!(lines(&["list", "--limit", "4"])[3], third);
    let first = &lines(&["show", "1"])[0];
    assert_eq!((&first["type"], &first["principal"]), (&json!("host/rootCreated"), &json!("host")));
    assert_eq!(first.get("origin"), None);
    assert_eq!(seqs(&[]), (1..=10).collect::<Vec<u64>>());
    assert_eq!(seqs(&["--channel", "ahp-root://", "--after", "7"]), [8, 9, 10]);
    assert_eq!(seqs(&["--type", "host/*"]), [1]);
    assert_eq!(seqs(&["--before", "3"]), [1, 2]);
    assert_eq!(seqs(&["--by", "user:ada", "--limit", "2"]), [2, 4]);
    assert_eq!(seqs(&["--since", "1970-01-01T00:09:00Z"]), [9, 10]);
    assert_eq!(seqs(&["--since", "1h"]), [0; 0]);
    let stats = &lines(&["stats"])[0];
    assert_eq!((&stats["events"], &stats["oldest"], &stats["newest"]), (&json!(10), &json!(1), &json!(10)));
    assert!(stats["diskBytes"].as_u64().unwrap() > 0);
    let channel = json!([{"channel": "ahp-root://", "events": 10, "bytes": stats["bytes"]}]);
    assert_eq!(stats["channels"], channel);
    assert_eq!(stats["types"][0], json!({"type": "root/activeSessionsChanged", "events": 9, "bytes": 9 * 56 + 1}));
}

#[test]
fn the_log_verbs_print_the_same_of_a_directory_and_of_its_host() {
    let home = home();
    let data = filled(home.path(), 10);
    let data = data.to_str().unwrap();
    verbs_print(&home, &["--data", data]);
    let host = Host::start(home.path(), data.as_ref(), &[]);
    // A host may add events of its own when it starts; what is asked for here lies before them.
    let of_host = run(home.path(), &["log", "list", "--json", "--data", data, "--before", "11"]).json_lines();
    let show = run(home.path(), &["log", "show", "4", "--json", "--data", data]).json_lines();
    assert_eq!(host.stop("TERM").0, 0);
    assert_eq!(run(home.path(), &["log", "list", "--json", "--data", data, "--before", "11"]).json_lines(), of_host);
    assert_eq!(run(home.path(), &["log", "show", "4", "--json", "--data", data]).json_lines(), show);
}

#[test]
fn the_state_of_a_channel_is_what_it_was_right_after_an_event() {
    let home = home();
    let data = filled(home.path(), 10);
    let data = data.to_str().unwrap();
    let of = |at: &[&str]| run(home.path(), &[&["log", "state", "ahp-root://", "--json", "--data", data], at].concat());
    let state = |count: u64| json!({"agents": [], "activeSessions": count});
    assert_eq!(of(&["--at", "4"]).json_lines(), [json!({"resource": "ahp-root://", "state": state(4), "fromSeq": 4})]);
    assert_eq!(of(&[]).json_lines(), [json!({"resource": "ahp-root://", "state": state(10), "fromSeq": 10})]);
    of(&["--at", "0"]).is_refused(1, &["ahp-root://", "0"]);
    of(&["--at", "11"]).is_refused(1, &["no event 11", "the newest is 10"]);
}

#[test]
fn a_diff_makes_one_state_of_the_other_with_and_without_a_host() {
    let home = home();
    let data = filled(home.path(), 10);
    let data = data.to_str().unwrap();
    let state = |at: &str| {
        let of = run(home.path(), &["log", "state", "ahp-root://", "--at", at, "--json", "--data", data]).json_lines();
        of[0]["state"].clone()
    };
    let diff = |from: &str, to: &str, more: &[&str]| {
        run(home.path(), &[&["log", "diff", "ahp-root://", "--from", from, "--to", to, "--data", data], more].concat())
    };
    let both_ways = || {
        for (from, to) in [("1", "7"), ("7", "1"), ("4", "4"), ("4", "10")] {
            let patch = diff(from, to, &["--json"]).json_lines().remove(0);
            let mut patched = state(from);
            json_patch::patch(&mut patched, &serde_json::from_value::<json_patch::Patch>(patch).unwrap()).unwrap();
            assert_eq!(patched, state(to), "{from} to {to}");
        }
        assert_eq!(diff("4", "7", &[]).printed(), "replace  /activeSessions  7\n");
        assert_eq!(diff("4", "4", &[]).printed(), "nothing changed\n");
        diff("0", "4", &[]).is_refused(1, &["ahp-root://", "0"]);
        diff("4", "99999", &[]).is_refused(1, &["there is no event 99999"]);
    };
    both_ways();
    let _host = Host::start(home.path(), data.as_ref(), &[]);
    both_ways();
}

#[test]
fn the_text_for_people_has_no_colours_in_a_pipe() {
    let home = home();
    let data = filled(home.path(), 10);
    let data = data.to_str().unwrap();
    let text = |args: &[&str]| run(home.path(), &[&["log"], args, &["--data", data]].concat()).printed();
    let list = text(&["list"]);
    assert_eq!(list.lines().count(), 10);
    assert!(list.lines().nth(3).unwrap().contains("root/activeSessionsChanged"));
    assert!(text(&["show", "4"]).contains("\"activeSessions\": 4"));
    assert!(text(&["stats"]).contains("ahp-root://"));
    assert!(text(&["state", "ahp-root://"]).contains("\"activeSessions\": 10"));
    assert!(!list.contains('\u{1b}'));
}

#[test]
fn verify_says_what_it_checked_and_exits_1_at_a_fault() {
    let home = home();
    let data = filled(home.path(), 10);
    let data = data.to_str().unwrap();
    let verdict = &run(home.path(), &["log", "verify", "--json", "--data", data]).json_lines()[0];
    assert_eq!((&verdict["ok"], &verdict["events"], verdict.get("fault")), (&json!(true), &json!(10), None));
    assert!(run(home.path(), &["log", "verify", "--data", data]).printed().starts_with("ok: 10 events"));
    let host = Host::start(home.path(), data.as_ref(), &[]);
    assert_eq!(run(home.path(), &["log", "verify", "--json", "--data", data]).json_lines()[0]["ok"], json!(true));
    assert_eq!(host.stop("TERM").0, 0);
    // A row of a channel that has no events.
    let store = SledStore::open(data.as_ref(), SledOptions::default()).unwrap();
    let rows = catalogue::register(&"ahp-chat:/x".into(), ChannelId(1 << 40), ChannelKind::Chat, ChannelId(1 << 40));
    store.append(&[Batch { events: Vec::new(), rows }]).unwrap();
    store.close_clean().unwrap();
    drop(store);
    let verdict = run(home.path(), &["log", "verify", "--json", "--data", data]);
    let printed: Value = serde_json::from_str(&verdict.out).unwrap();
    assert_eq!((verdict.status, &printed["ok"]), (1, &json!(false)), "{verdict:?}");
    assert!(printed["fault"].to_string().contains("ahp-chat:/x"), "{verdict:?}");
}

#[test]
fn a_copy_of_a_running_hosts_directory_is_not_taken_for_the_host() {
    let home = home();
    let data = filled(home.path(), 3);
    let _host = Host::start(home.path(), &data, &[]);
    let copy = home.path().join("copy");
    fs::create_dir(&copy).unwrap();
    for file in ["FORMAT", "floor", "host.json"] {
        fs::copy(data.join(file), copy.join(file)).unwrap();
    }
    run(home.path(), &["log", "verify", "--data", copy.to_str().unwrap()])
        .is_refused(1, &["copy", "log/db is missing"]);
}

#[test]
fn a_seq_or_a_channel_that_is_not_there_is_one_line_and_exit_1() {
    let home = home();
    let data = filled(home.path(), 10);
    let data = data.to_str().unwrap();
    let missing = || {
        let refused = |args: &[&str], word: &str| {
            run(home.path(), &[args, &["--data", data]].concat()).is_refused(1, &[word]);
        };
        refused(&["log", "show", "99999"], "there is no event 99999");
        refused(&["log", "list", "--channel", "ahp-chat:/none"], "there is no channel ahp-chat:/none");
    };
    missing();
    let _host = Host::start(home.path(), data.as_ref(), &[]);
    missing();
}

#[test]
fn nothing_follows_where_no_host_runs() {
    let home = home();
    let data = filled(home.path(), 1);
    run(home.path(), &["log", "list", "--follow", "--data", data.to_str().unwrap()])
        .is_refused(1, &["--follow", "no host"]);
}

#[test]
fn following_a_host_ends_at_the_limit_or_with_the_host() {
    let home = home();
    let data = filled(home.path(), 10);
    let host = Host::start(home.path(), &data, &[]);
    let args = ["log", "list", "--json", "--follow", "--data", data.to_str().unwrap()];
    let limited = run(home.path(), &[args.as_slice(), &["--limit", "3"]].concat());
    assert_eq!(limited.json_lines().len(), 3);
    let mut follower = scrollback(home.path(), &args).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(follower.stdout.take().unwrap()));
    for seq in 1..=10 {
        let event: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(event["serverSeq"], json!(seq));
    }
    assert_eq!(host.stop("TERM").0, 0);
    follower.wait().unwrap();
}

#[test]
fn a_host_elsewhere_is_reached_with_its_token() {
    let home = home();
    let data = filled(home.path(), 10);
    fs::write(home.path().join("token"), "s3cret\n").unwrap();
    fs::write(home.path().join("wrong"), "wrong").unwrap();
    let host = Host::start(home.path(), &data, &["--token-file", "token"]);
    let url = host.url();
    let show = ["log", "show", "4", "--json", "--url", &url];
    run(home.path(), &show).is_refused(1, &[&url, "wants a token", "--token-file"]);
    run(home.path(), &[show.as_slice(), &["--token-file", "wrong"]].concat())
        .is_refused(1, &[&url, "does not take this token"]);
    let by_file = run(home.path(), &[show.as_slice(), &["--token-file", "token"]].concat()).json_lines();
    let by_variable = scrollback(home.path(), &show).env("SCROLLBACK_TOKEN", "s3cret").output().unwrap();
    assert_eq!(command::Ran::from(by_variable).json_lines(), by_file);
    // The directory's own verbs know the secret of the run, and need no token.
    let by_data = run(home.path(), &["log", "show", "4", "--json", "--data", data.to_str().unwrap()]).json_lines();
    assert_eq!(by_data, by_file);
    let gone = format!("http://127.0.0.1:{}", {
        host.stop("TERM");
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    });
    run(home.path(), &["log", "stats", "--url", &gone]).is_refused(1, &[&gone]);
}

#[test]
fn a_stale_host_file_does_not_lead_to_another_host() {
    let home = home();
    let data = filled(home.path(), 10);
    let other = Host::start(home.path(), &home.path().join("other"), &[]);
    let stale =
        HostFile { pid: other.pid(), address: format!("127.0.0.1:{}", other.port), secret: "of a dead run".into() };
    stale.write(&data).unwrap();
    assert_eq!(run(home.path(), &["log", "list", "--json", "--data", data.to_str().unwrap()]).json_lines().len(), 10);
}

#[test]
fn a_reader_that_wants_no_more_is_no_failure() {
    let home = home();
    let data = filled(home.path(), 3_000);
    let data = data.to_str().unwrap();
    let mut list = scrollback(home.path(), &["log", "list", "--json", "--data", data]);
    let mut list = list.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    drop(list.stdout.take());
    let ended: command::Ran = list.wait_with_output().unwrap().into();
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
}

#[test]
fn print_config_shows_each_key_with_its_value_and_origin() {
    let home = home();
    fs::write(home.path().join("s.toml"), "idle_timeout = \"90s\"\n").unwrap();
    let args = ["serve", "--print-config", "--config", "s.toml", "--listen", "127.0.0.1:9"];
    let mut command = scrollback(home.path(), &args);
    let text = command::Ran::from(command.env("SCROLLBACK_MIN_FREE", "1GiB").output().unwrap()).printed();
    let line = |key: &str| {
        let line = text.lines().find(|line| line.starts_with(&format!("{key} = "))).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("listen"), "listen = \"127.0.0.1:9\" # flag --listen");
    assert_eq!(line("idle_timeout"), "idle_timeout = \"1m 30s\" # file s.toml");
    assert_eq!(line("min_free"), "min_free = \"1024MiB\" # environment SCROLLBACK_MIN_FREE");
    assert_eq!(line("replay_limit"), "replay_limit = \"8MiB\" # default");
    let json = run(home.path(), &["serve", "--print-config", "--json"]).json_lines();
    assert!(json.contains(&json!({"key": "max_unsent", "value": "8MiB", "from": "default"})));
    assert_eq!(json.len(), text.lines().count());
    // What is printed is a configuration file.
    fs::write(home.path().join("again.toml"), &text).unwrap();
    assert_eq!(run(home.path(), &["serve", "--print-config", "--config", "again.toml"]).status, 0);
}

#[test]
fn every_verb_has_help_on_stdout() {
    let home = home();
    let verbs: [&[&str]; 15] = [
        &[],
        &["serve"],
        &["log"],
        &["log", "list"],
        &["log", "show"],
        &["log", "state"],
        &["log", "diff"],
        &["log", "verify"],
        &["log", "stats"],
        &["log", "export"],
        &["log", "import"],
        &["backup"],
        &["restore"],
        &["completion"],
        &["man"],
    ];
    for verb in verbs {
        let help = run(home.path(), &[verb, &["--help"]].concat()).printed();
        assert!(help.contains("Usage: scrollback"), "{help}");
    }
    let without = run(home.path(), &[]);
    assert_eq!((without.status, without.out.as_str()), (2, ""));
    assert!(without.err.contains("Usage: scrollback"));
}

#[test]
fn completions_are_printed_for_each_shell() {
    let home = home();
    for (shell, word) in [("bash", "complete -F"), ("zsh", "#compdef scrollback"), ("fish", "complete -c scrollback")] {
        assert!(run(home.path(), &["completion", shell]).printed().contains(word), "{shell}");
    }
}

#[test]
fn every_verb_has_a_man_page() {
    let home = home();
    let pages = home.path().join("share/man1");
    run(home.path(), &["man", pages.to_str().unwrap()]).printed();
    let page = |name: &str| fs::read_to_string(pages.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(page("scrollback.1").contains("scrollback\\-serve(1)"));
    assert!(page("scrollback-serve.1").contains("READY:"));
    for name in ["log-list", "log-diff", "log-compact", "backup", "restore", "user-add", "agents", "completion"] {
        assert!(page(&format!("scrollback-{name}.1")).contains(".SH SYNOPSIS"), "{name}");
    }
    run(home.path(), &["man", "/dev/null/man1"]).is_refused(1, &["/dev/null/man1"]);
}
