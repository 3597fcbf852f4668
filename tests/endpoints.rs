//! The HTTP endpoints over a real socket, with a host whose log the tests append to.

// A test may fail by panicking, and so may what only tests call.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod command;

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpServer, web};
use metrics_exporter_prometheus::PrometheusBuilder;
use scrollback::access::Gate;
use scrollback::access::seats::Seats;
use scrollback::actors::host::{Host, HostSettings};
use scrollback::admin::{self, Admin, Limits, Shown};
use scrollback::clock::Clock;
use scrollback::events::rows::ChannelRow;
use scrollback::events::sled_store::{SledOptions, SledStore};
use scrollback::events::{
    Batch, Channel, ChannelId, ChannelKind, FreeSpace, Kind, MemoryStore, NewEvent, RowOp, Store, Table,
};
use serde_json::{Value, json};

/// A host with its endpoints on a socket. Ends with the test.
struct Served {
    address: SocketAddr,
    host: Arc<Host>,
    /// The newest event that the host made by itself when it started.
    base: u64,
    server: ServerHandle,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone, Default)]
struct Options {
    token: Option<&'static str>,
    data: Option<std::path::PathBuf>,
    metrics_public: bool,
    unsent_limit: Option<usize>,
    seats: Option<usize>,
}

impl Served {
    fn start(store: Arc<dyn Store>, options: Options) -> Self {
        let (started, start) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            actix_web::rt::System::new().block_on(async move {
                let mut settings = HostSettings::default();
                settings.data_directory.clone_from(&options.data);
                let host = Host::start(settings, store, Vec::new(), Clock::system()).unwrap();
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let address = listener.local_addr().unwrap();
                let admin = web::Data::new(admin_of(&host, address, &options));
                let server = HttpServer::new(move || App::new().configure(|cfg| admin::routes(cfg, admin.clone())))
                    .workers(2)
                    .disable_signals()
                    .shutdown_timeout(1)
                    .listen(listener)
                    .unwrap()
                    .run();
                started.send((address, host, server.handle())).unwrap();
                server.await.unwrap();
            });
        });
        let (address, host, server) = start.recv().unwrap();
        let mut served = Self { address, host, base: 0, server, thread: Some(thread) };
        served.append(Batch::default());
        served.base = served.host.store().tail();
        served
    }

    fn in_memory() -> Self {
        Self::start(Arc::new(MemoryStore::new().unwrap()), Options::default())
    }

    /// Appends a batch and waits until it is on disk.
    fn append(&self, batch: Batch) {
        let lane = self.host.writer().lane(ChannelId::ROOT);
        let (done, wait) = mpsc::channel();
        lane.append(batch);
        lane.release(None, Box::new(move |place| done.send(place.is_ok()).unwrap()));
        assert!(wait.recv().unwrap());
    }

    /// Appends actions of the root channel that count on from `first`.
    fn count_on(&self, first: u64, events: u64) {
        let numbers = first..first + events;
        let events = numbers.map(|n| command::event(n, Kind::Action, "host", command::sessions(n))).collect();
        self.append(Batch { events, rows: Vec::new() });
    }

    /// Makes a channel, with its first event.
    fn channel(&self, uri: &str) -> (Channel, ChannelId) {
        let (channel, id) = (Channel::from(uri), self.host.store().new_channel_id());
        let row = ChannelRow { id: id.0, kind: ChannelKind::Session, session: id.0 };
        let row = serde_json::to_vec(&row).unwrap();
        let put = RowOp::Put { table: Table::ChannelByUri, key: uri.as_bytes().to_vec(), value: row.into() };
        self.append(Batch { events: vec![of_channel(&channel, id)], rows: vec![put] });
        (channel, id)
    }

    fn get(&self, path: &str, headers: &[(&str, &str)]) -> (u16, ureq::Body) {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let request = agent.get(format!("http://{}{path}", self.address));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let response = request.call().unwrap();
        (response.status().as_u16(), response.into_body())
    }

    fn json(&self, path: &str) -> (u16, Value) {
        let (status, mut body) = self.get(path, &[]);
        (status, serde_json::from_str(&body.read_to_string().unwrap()).unwrap())
    }

    fn lines(&self, path: &str) -> Vec<Value> {
        let (status, mut body) = self.get(path, &[]);
        assert_eq!(status, 200);
        body.read_to_string().unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn live(&self, query: &str, last_seen: Option<u64>) -> Live {
        let last_seen = last_seen.map(|seq| seq.to_string());
        let mut headers = vec![("Accept", "text/event-stream")];
        headers.extend(last_seen.as_deref().map(|seq| ("Last-Event-ID", seq)));
        let (status, body) = self.get(&format!("/api/events{query}"), &headers);
        assert_eq!(status, 200);
        Live(Box::new(BufReader::new(body.into_reader())))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.server.stop(false));
        let _ = self.thread.take().map(JoinHandle::join);
        self.host.writer().stop();
    }
}

fn admin_of(host: &Arc<Host>, bind: SocketAddr, options: &Options) -> Admin {
    let gate = Gate {
        token: options.token.map(str::to_owned),
        host_secret: Some("of this run".into()),
        host_name: "box".into(),
        people: Arc::clone(host.people_in_force()),
        clock: host.clock().clone(),
        ..Gate::at(bind)
    };
    Admin {
        host: Arc::clone(host),
        gate,
        metrics: PrometheusBuilder::new().build_recorder().handle(),
        metrics_public: options.metrics_public,
        unsent_limit: options.unsent_limit.unwrap_or(8 << 20),
        max_body: 1 << 20,
        seats: Seats::new(options.seats.unwrap_or(100), 100),
        shown: Shown::new(host, Vec::new(), Limits::default()),
    }
}

fn of_channel(channel: &Channel, id: ChannelId) -> NewEvent {
    let event = command::event(1, Kind::Action, "host", r#"{"type":"session/ready"}"#.into());
    NewEvent { channel: channel.clone(), channel_id: id, ..event }
}

/// A stream of server-sent events.
struct Live(Box<dyn BufRead>);

impl Live {
    /// The next event's id and data, `None` at the end of the stream. Comments are passed over.
    fn next(&mut self) -> Option<(u64, Value)> {
        let mut id = None;
        loop {
            let mut line = String::new();
            // A stream that is cut ends like one that was closed.
            if self.0.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            if let Some(text) = line.strip_prefix("id: ") {
                id = Some(text.trim().parse().unwrap());
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some((id.unwrap(), serde_json::from_str(data).unwrap()));
            }
        }
    }

    /// The ids of the next `count` events.
    fn ids(&mut self, count: usize) -> Vec<u64> {
        (0..count).map(|_| self.next().unwrap().0).collect()
    }
}

fn seqs(lines: &[Value]) -> Vec<u64> {
    lines.iter().map(|line| line["serverSeq"].as_u64().unwrap()).collect()
}

#[test]
fn events_are_envelopes_ascending_without_records_of_the_host() {
    let served = Served::in_memory();
    served.append(Batch { events: command::events(4), rows: Vec::new() });
    let at = |n: u64| served.base + n;
    let lines = served.lines(&format!("/api/events?after={}", at(0)));
    assert_eq!(seqs(&lines), [at(2), at(3), at(4)]);
    assert_eq!(
        lines[0],
        json!({
            "channel": "ahp-root://", "serverSeq": at(2), "origin": {"clientId": "client \"one\"", "clientSeq": 7},
            "action": {"type": "root/activeSessionsChanged", "activeSessions": 2},
        })
    );
    assert_eq!(seqs(&served.lines(&format!("/api/events?after={}", at(2)))), [at(3), at(4)]);
    assert_eq!(seqs(&served.lines(&format!("/api/events?after={}&limit=1", at(1)))), [at(2)]);
    assert_eq!(seqs(&served.lines("/api/log")), (1..=at(4)).collect::<Vec<u64>>());
}

#[test]
fn several_channels_come_merged_in_the_order_of_the_line() {
    let served = Served::in_memory();
    let (a, a_id) = served.channel("ahp-session:/a");
    let (b, b_id) = served.channel("ahp-session:/b");
    let (c, c_id) = served.channel("ahp-session:/c");
    for _ in 0..1_500 {
        let events = vec![of_channel(&a, a_id), of_channel(&b, b_id), of_channel(&c, c_id), of_channel(&b, b_id)];
        served.append(Batch { events, rows: Vec::new() });
    }
    let lines = served.lines("/api/events?channel=ahp-session:/a&channel=ahp-session:/c&channel=ahp-session:/a");
    assert_eq!(lines.len(), 2 * 1_501);
    assert!(lines.iter().all(|line| line["channel"] != "ahp-session:/b"));
    assert!(seqs(&lines).is_sorted_by(|a, b| a < b));
    assert_eq!(served.lines("/api/events?channel=ahp-session:/b").len(), 3_001);
    assert_eq!(served.lines(&format!("/api/events?after={}", served.base)).len(), 6_003);
}

#[test]
fn a_line_end_between_the_tokens_of_an_action_breaks_no_line() {
    let served = Served::in_memory();
    let action = "{\"type\":\"root/activeSessionsChanged\",\r\n \"activeSessions\":1}".to_owned();
    served.append(Batch { events: vec![command::event(1, Kind::Action, "host", action)], rows: Vec::new() });
    let query = format!("?after={}", served.base);
    assert_eq!(served.lines(&format!("/api/events{query}")).len(), 1);
    assert_eq!(served.lines(&format!("/api/log{query}")).len(), 1);
    assert_eq!(served.live(&query, None).next().unwrap().1["action"]["activeSessions"], json!(1));
}

#[test]
fn a_live_stream_replays_and_goes_on_without_a_gap_or_a_double() {
    let served = Served::in_memory();
    let at = |n: u64| served.base + n;
    served.count_on(1, 3_000);
    let after = format!("?after={}", at(1_000));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (0..200).for_each(|part| served.count_on(3_001 + part * 10, 10)));
        let readers: Vec<_> = (0..4).map(|_| scope.spawn(|| served.live(&after, None).ids(4_000))).collect();
        for reader in readers {
            assert_eq!(reader.join().unwrap(), (at(1_001)..=at(5_000)).collect::<Vec<u64>>());
        }
        writer.join().unwrap();
    });
    assert_eq!(served.live("", Some(at(4_990))).ids(10), (at(4_991)..=at(5_000)).collect::<Vec<u64>>());
    assert_eq!(served.live("?after=3", Some(at(4_999))).ids(1), [at(5_000)]);
    let mut limited = served.live(&format!("?after={}&limit=2", at(2)), None);
    assert_eq!((limited.ids(2), limited.next()), (vec![at(3), at(4)], None));
}

#[test]
fn a_live_stream_of_a_channel_hears_that_one_alone() {
    let served = Served::in_memory();
    let (a, id) = served.channel("ahp-session:/a");
    let mut of_a = served.live("?channel=ahp-session:/a", None);
    assert_eq!(of_a.ids(1), [served.base + 1]);
    served.count_on(2, 5);
    served.append(Batch { events: vec![of_channel(&a, id)], rows: Vec::new() });
    let (seq, envelope) = of_a.next().unwrap();
    assert_eq!((seq, &envelope["channel"]), (served.base + 7, &json!("ahp-session:/a")));
}

#[test]
fn live_streams_end_when_the_host_closes_its_connections() {
    let served = Served::in_memory();
    served.count_on(1, 2);
    let mut live = served.live("", Some(served.base));
    assert_eq!(live.ids(2), [served.base + 1, served.base + 2]);
    let (_, follow) = served.get("/api/log?follow=true", &[]);
    let mut follow = BufReader::new(follow.into_reader()).lines();
    follow.next().unwrap().unwrap();
    served.host.hub().close_all(1001, "the host is stopping");
    assert_eq!(live.next(), None);
    assert!(follow.all(|line| line.is_ok()));
}

#[test]
fn a_live_stream_that_is_not_read_ends_and_is_resumed_where_it_was() {
    let options = Options { unsent_limit: Some(64 << 10), ..Options::default() };
    let served = Served::start(Arc::new(MemoryStore::new().unwrap()), options);
    let mut live = served.live("", Some(served.base));
    let long = |n: u64| format!(r#"{{"type":"root/x","n":{n},"text":"{}"}}"#, "x".repeat(60_000));
    let events = 600;
    for n in 1..=events {
        served.append(Batch { events: vec![command::event(n, Kind::Action, "host", long(n))], rows: Vec::new() });
    }
    let (mut seen, last) = (served.base, served.base + events);
    while let Some((seq, _)) = live.next() {
        assert_eq!(seq, seen + 1);
        seen = seq;
    }
    assert!(seen < last, "36 MB fit into the buffers of a socket");
    let rest = usize::try_from(last - seen).unwrap();
    assert_eq!(served.live("", Some(seen)).ids(rest), (seen + 1..=last).collect::<Vec<u64>>());
}

#[test]
fn following_the_log_shows_records_of_the_host_as_they_come() {
    let served = Served::in_memory();
    served.append(Batch { events: command::events(2), rows: Vec::new() });
    let (_, body) = served.get(&format!("/api/log?follow=true&type=host/*&after={}", served.base), &[]);
    let mut lines = BufReader::new(body.into_reader()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["serverSeq"], json!(served.base + 1));
    let fact = command::event(3, Kind::Host, "host", r#"{"type":"host/sessionDisposed"}"#.into());
    served.append(Batch { events: vec![fact], rows: Vec::new() });
    let event = next();
    assert_eq!((&event["serverSeq"], &event["type"]), (&json!(served.base + 3), &json!("host/sessionDisposed")));
}

#[test]
fn the_log_is_shown_summed_and_verified() {
    let served = Served::in_memory();
    served.append(Batch { events: command::events(4), rows: Vec::new() });
    let at = |n: u64| served.base + n;
    assert_eq!(seqs(&served.lines(&format!("/api/log?by=user:ada&before={}", at(4)))), [at(2)]);
    assert_eq!(served.json(&format!("/api/log/{}", at(2))).1["principal"], json!("user:ada"));
    assert_eq!(served.json("/api/log/stats").1["events"], json!(at(4)));
    let verdict = served.json("/api/log/verify");
    assert_eq!((verdict.0, &verdict.1["ok"], &verdict.1["events"]), (200, &json!(true), &json!(at(4))));
}

/// The numbers in a window, counted from the first event of the test.
fn window(served: &Served, query: &str) -> (Vec<u64>, Value) {
    let (status, window) = served.json(&format!("/api/log/window?{query}"));
    assert_eq!(status, 200, "{query}: {window}");
    (seqs(window["events"].as_array().unwrap()).into_iter().map(|seq| seq - served.base).collect(), window)
}

#[test]
fn windows_of_the_log_go_back_from_the_end_and_forth_from_a_number() {
    let served = Served::in_memory();
    served.append(Batch { events: command::events(9), rows: Vec::new() });
    let at = |n: u64| served.base + n;
    let (newest, window_of_newest) = window(&served, "channel=ahp-root://&limit=3");
    assert_eq!((newest, &window_of_newest["older"]), (vec![7, 8, 9], &json!(at(7))));
    assert_eq!(window_of_newest["newer"], json!(at(9)));
    assert!(window_of_newest["events"][0]["brief"].is_string() && window_of_newest["events"][0]["action"].is_null());
    let (older, _) = window(&served, &format!("limit=3&before={}", at(7)));
    assert_eq!(older, [4, 5, 6]);
    let (forth, window_forth) = window(&served, &format!("limit=2&after={}", at(3)));
    assert_eq!((forth, &window_forth["newer"]), (vec![4, 5], &json!(at(5))));
    // Behind the last one there is nothing, and what comes later is found from there.
    let (none, behind) = window(&served, &format!("after={}", at(9)));
    assert_eq!((none.len(), &behind["newer"]), (0, &json!(at(9))));
    served.append(Batch { events: command::events(1), rows: Vec::new() });
    assert_eq!(window(&served, &format!("after={}", at(9))).0, [10]);
    let (all, whole) = window(&served, "limit=500");
    assert_eq!((all.last(), &whole["older"]), (Some(&10), &Value::Null));
}

#[test]
fn a_window_is_filtered_by_type_person_and_time() {
    let served = Served::in_memory();
    let event =
        |at: i64, by: &str, n: u64| NewEvent { at, ..command::event(n, Kind::Action, by, command::sessions(n)) };
    let (hour, begin) = (3_600_000, 4_000_000_000_000);
    let events =
        (1..=8).map(|n| event(begin + n * hour, if n % 2 == 0 { "user:ada" } else { "user:bob" }, n as u64)).collect();
    let base = served.base;
    served.append(Batch { events, rows: Vec::new() });
    let times = |since: i64, until: i64| {
        let of = |hours: i64| scrollback::clock::rfc3339(begin + hours * hour);
        window(&served, &format!("since={}&until={}", of(since), of(until))).0
    };
    assert_eq!(times(3, 5), [3, 4, 5]);
    assert_eq!(times(9, 10), [] as [u64; 0]);
    assert_eq!(window(&served, &format!("by=user:ada&after={base}")).0, [2, 4, 6, 8]);
    assert_eq!(window(&served, &format!("by=user:ada&type=root/*&limit=1&before={}", base + 8)).0, [6]);
    assert_eq!(window(&served, &format!("type=chat/*&after={base}")).0, [] as [u64; 0]);
    let (status, refused) = served.json("/api/log/window?before=3&after=1");
    assert_eq!((status, &refused["error"]["code"]), (400, &json!("bad-parameter")));
}

#[test]
fn a_slider_is_told_where_the_events_of_a_channel_are() {
    let served = Served::in_memory();
    let (channel, id) = served.channel("ahp-session:/s");
    served.count_on(1, 3);
    served.append(Batch { events: vec![of_channel(&channel, id), of_channel(&channel, id)], rows: Vec::new() });
    let first = served.base + 1;
    let extent = served.json("/api/extent?channel=ahp-session:/s").1;
    assert_eq!(extent["marks"], json!([first, first + 4, first + 5]));
    assert_eq!((&extent["events"], &extent["isCounted"]), (&json!(3), &json!(true)));
    let around = |at: u64| {
        let around = served.json(&format!("/api/around?channel=ahp-session:/s&at={at}")).1;
        ["previous", "here", "next"].map(|name| around[name]["serverSeq"].as_u64().unwrap_or(0))
    };
    assert_eq!(around(first), [0, first, first + 4]);
    assert_eq!(around(first + 2), [0, first, first + 4]);
    assert_eq!(around(first + 4), [first, first + 4, first + 5]);
    assert_eq!(around(first + 99), [first + 4, first + 5, 0]);
    assert_eq!(served.json("/api/extent?channel=ahp-session:/none").0, 404);
}

#[test]
fn errors_are_json_with_their_status_and_name_the_parameter() {
    let served = Served::in_memory();
    let refused = |path: &str, status: u16, code: &str, word: &str| {
        let (got, body) = served.json(path);
        assert_eq!((got, &body["error"]["code"]), (status, &json!(code)), "{path}: {body}");
        assert!(body["error"]["message"].as_str().unwrap().contains(word), "{path}: {body}");
    };
    refused("/api/events?after=x", 400, "bad-parameter", "after");
    refused("/api/events?limit=-1", 400, "bad-parameter", "limit");
    refused("/api/events?chanel=x", 400, "bad-parameter", "chanel");
    refused("/api/events?after=1&after=2", 400, "bad-parameter", "after");
    refused("/api/events?channel=ahp-chat:/none", 404, "unknown-channel", "ahp-chat:/none");
    refused("/api/log?since=soon", 400, "bad-parameter", "since");
    refused("/api/log?type=%5B", 400, "bad-parameter", "type");
    refused("/api/log?follow=maybe", 400, "bad-parameter", "follow");
    refused("/api/log/777", 404, "unknown-event", "777");
    refused("/api/log/seven", 400, "bad-parameter", "seq");
    refused("/api/state", 400, "bad-parameter", "channel");
    refused("/api/state?channel=ahp-root://&at=x", 400, "bad-parameter", "at");
    refused("/api/diff?channel=ahp-root://&from=1", 400, "bad-parameter", "to");
    refused("/api/diff?channel=ahp-chat:/none&from=1&to=1", 404, "not-found", "ahp-chat:/none");
    let (status, mut body) = served.get("/api/events", &[("Accept", "text/event-stream"), ("Last-Event-ID", "last")]);
    assert_eq!(status, 400);
    assert!(body.read_to_string().unwrap().contains("Last-Event-ID"));
}

#[test]
fn everything_but_health_is_behind_the_gate() {
    let options = Options { token: Some("t"), ..Options::default() };
    let served = Served::start(Arc::new(MemoryStore::new().unwrap()), options.clone());
    let guarded = [
        "/metrics",
        "/api/host",
        "/api/events",
        "/api/state",
        "/api/diff",
        "/api/log",
        "/api/log/1",
        "/api/log/stats",
        "/api/log/verify",
        "/api/log/window",
        "/api/overview",
        "/api/sessions",
        "/api/lineage",
        "/api/config",
        "/api/me",
    ];
    for path in guarded {
        let (status, body) = served.json(path);
        assert_eq!((status, &body["error"]["code"]), (401, &json!("no-token")), "{path}");
        assert_ne!(served.get(&format!("{path}?tkn=t"), &[]).0, 401, "{path}");
        assert_ne!(served.get(path, &[("Authorization", "Bearer t")]).0, 401, "{path}");
        let foreign = [("Authorization", "Bearer t"), ("Origin", "https://evil.example")];
        assert_eq!(served.get(path, &foreign).0, 403, "{path}");
    }
    assert_eq!((served.get("/healthz", &[]).0, served.get("/readyz", &[]).0), (200, 200));
    let open = Served::start(Arc::new(MemoryStore::new().unwrap()), Options { metrics_public: true, ..options });
    assert_eq!(open.get("/metrics", &[]).0, 200);
}

#[test]
fn the_secret_of_this_run_is_told_from_another_one() {
    let served = Served::in_memory();
    let this_run = |secret: &str| {
        let (_, body) = served.get("/api/host", &[("Authorization", &format!("Bearer {secret}"))]);
        serde_json::from_reader::<_, Value>(body.into_reader().take(1_000)).unwrap()["thisRun"].clone()
    };
    assert_eq!((this_run("of this run"), this_run("of another run")), (json!(true), json!(false)));
}

#[test]
fn a_host_without_room_is_alive_and_not_ready_until_there_is_room_again() {
    let directory = tempfile::tempdir().unwrap();
    let free = FreeSpace::fixed(1 << 30);
    let options = SledOptions { free: free.clone(), ..SledOptions::default() };
    let served = Served::start(Arc::new(SledStore::open(directory.path(), options).unwrap()), Options::default());
    assert_eq!(served.get("/readyz", &[]).0, 200);
    free.set(0);
    assert_eq!((served.get("/healthz", &[]).0, served.get("/readyz", &[]).0), (200, 503));
    free.set(1 << 30);
    assert_eq!(served.get("/readyz", &[]).0, 200);
}

/// A host with one stored attachment: the file's URI, and the directory that everything is in.
fn with_an_attachment(token: Option<&'static str>, bytes: &[u8]) -> (Served, String, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let data = Some(directory.path().canonicalize().unwrap());
    let served = Served::start(Arc::new(MemoryStore::new().unwrap()), Options { token, data, ..Options::default() });
    let mut staged = served.host.attachments().stage(ChannelId(7));
    let uri = served.host.attachments().uri(staged.write(bytes).unwrap());
    staged.keep();
    (served, uri, directory)
}

#[test]
fn an_attachment_is_a_download_and_never_a_page_of_this_origin() {
    let page = b"<script>alert(1)</script>";
    let (served, uri, _directory) = with_an_attachment(None, page);
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let response = agent.get(format!("http://{}/api/attachments?uri={uri}", served.address)).call().unwrap();
    assert_eq!(response.status().as_u16(), 200);
    let header = |name: &str| response.headers().get(name).unwrap().to_str().unwrap().to_owned();
    assert!(header("content-disposition").starts_with("attachment"));
    assert_eq!(header("x-content-type-options"), "nosniff");
    assert!(header("content-security-policy").split(';').any(|rule| rule.trim() == "sandbox"));
    assert_eq!(header("content-type"), "application/octet-stream");
    assert_eq!(response.into_body().read_to_vec().unwrap(), page);
}

#[test]
fn only_what_is_stored_is_a_download() {
    let (served, uri, directory) = with_an_attachment(None, b"x");
    let secret = directory.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let stored = std::path::PathBuf::from(uri.strip_prefix("file://").unwrap());
    let link = stored.with_file_name("f".repeat(32));
    std::os::unix::fs::symlink(&secret, &link).unwrap();
    let folder = stored.with_file_name("e".repeat(32));
    std::fs::create_dir(&folder).unwrap();
    let name = stored.file_name().unwrap().to_str().unwrap();
    for uri in [
        format!("file://{}", secret.display()),
        format!("file://{}", link.display()),
        format!("file://{}", folder.display()),
        format!("file://{}/../../{name}", stored.parent().unwrap().display()),
        format!("file://{}/%2e%2e/%2e%2e/secret", stored.parent().unwrap().display()),
        format!("file:///x/attachments/8/{name}"),
        "file:///etc/passwd".to_owned(),
        "https://example.org/attachments/7/0".to_owned(),
        String::new(),
    ] {
        let (status, body) = served.json(&format!("/api/attachments?uri={}", uri.replace('%', "%25")));
        assert_eq!((status, &body["error"]["code"]), (404, &json!("not-found")), "{uri}");
    }
    assert_eq!(served.json("/api/attachments").0, 400);
    assert_eq!(served.json(&format!("/api/attachments?uri={uri}&more=1")).0, 400);
}

#[test]
fn an_attachment_needs_the_token() {
    let (served, uri, _directory) = with_an_attachment(Some("t"), b"x");
    let (status, _) = served.get(&format!("/api/attachments?uri={uri}"), &[]);
    assert_eq!(status, 401);
    let (status, _) = served.get(&format!("/api/attachments?uri={uri}&tkn=t"), &[]);
    assert_eq!(status, 200);
    let foreign = [("origin", "https://evil.example")];
    assert_eq!(served.get(&format!("/api/attachments?uri={uri}&tkn=t"), &foreign).0, 403);
}
