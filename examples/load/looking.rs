//! What the pages for admins ask of a long log, over HTTP: the list of sessions and its search, the log in windows with and
//! without filters, the steps of a slider, and how soon what happens is seen.
//!
//! A session of many turns is among the others. The first search makes the index, so it is told apart.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use scrollback::actors::registry::first_chat_uri;
use serde_json::{Value, json};

use crate::Scale;
use crate::child::{self, number, resident};
use crate::client::{Client, get};
use crate::host::Running;
use crate::report::{Goal, Report, percentile};
use crate::support::author::{self, Session, Shape};
use crate::support::{directory, store};

const MIB: f64 = 1_048_576.0;
/// What one step may take, in milliseconds.
const STEP: Goal = Goal::AtMost(200.0);
/// How often each is asked.
const ROUNDS: u64 = 40;

pub fn measure(scale: Scale, report: &mut Report) {
    let directory = directory();
    let (sessions, turns) = (scale.of(100_000, 5_000), scale.of(10_000, 500));
    let shape = Shape { deltas: 20, bytes: 60 };
    let log = store(directory.path());
    let (events, _) = author::write(&log, 0..sessions, 4, shape);
    let (mut long, batch) = Session::create(&log, sessions);
    let mut waiting = vec![batch];
    for _ in 0..turns {
        waiting.extend(long.turn(shape));
        if waiting.len() >= 4_000 {
            scrollback::events::EventLog::append(&log, &waiting).expect("the log is appended to");
            waiting.clear();
        }
    }
    scrollback::events::EventLog::append(&log, &waiting).expect("the log is appended to");
    drop(log);
    let found = child::of("looking", directory.path(), &sessions.to_string());
    let of = format!("{} events in {sessions} sessions", events + long.events);
    let mut told = |what: &str, unit: &str, goal: Goal, name: &str| {
        report.number(&format!("{what}, {of}"), unit, goal, number(&found, name));
    };
    told("opening the store", "s", Goal::None, "open");
    told("the first list of sessions, which makes the index", "s", Goal::None, "first");
    told("reading the log for people behind it", "s", Goal::None, "people");
    told("memory of the index", "MiB", Goal::None, "memory");
    for (name, what) in STEPS {
        told(&format!("{what}, p50"), "ms", Goal::None, &format!("{name} p50"));
        told(&format!("{what}, the slowest"), "ms", STEP, &format!("{name} max"));
    }
}

const STEPS: [(&str, &str); 16] = [
    ("list", "a page of 50 sessions"),
    ("search", "a search that fits one session"),
    ("none", "a search that fits none"),
    ("newest", "the newest window of a long chat"),
    ("middle", "a window in its middle"),
    ("filter", "a filter that fits nothing, as far as one window looks"),
    ("whole", "the same over the whole log"),
    ("slider", "a step of the slider: the state with 20 turns"),
    ("somebody", "a search by somebody"),
    ("extent", "where the long chat's events are, for the slider"),
    ("around", "the events beside a number"),
    ("diff", "what changed between two events of the long chat"),
    ("lineage", "the lineage of a session"),
    ("overview", "the overview"),
    ("tail", "from an event to where a window shows it"),
    ("live", "from an event to where a live stream shows it"),
];

/// The times of each step.
pub fn cold(directory: &Path, argument: &str) -> Value {
    let sessions: u64 = argument.parse().expect("a number");
    let before = Instant::now();
    let running = Running::on(directory);
    let mut found = serde_json::Map::new();
    note(&mut found, "open", before.elapsed().as_secs_f64());
    let (address, memory) = (running.address, resident());
    let before = Instant::now();
    get(address, "/api/sessions?limit=50");
    note(&mut found, "first", before.elapsed().as_secs_f64());
    let before = Instant::now();
    while !is_read(&running) {
        std::thread::park_timeout(Duration::from_millis(50));
    }
    note(&mut found, "people", before.elapsed().as_secs_f64());
    note(&mut found, "memory", (resident() - memory) / MIB);
    let session = format!("ahp-session:/load-{sessions}");
    let chat = first_chat_uri(&session);
    let tail = running.host.store().tail();
    let many = sessions.max(1);
    let at = |round: u64| tail - 1 - round * 997 % (tail / 100).max(1);
    let paths: [(&str, Box<dyn Fn(u64) -> String>); 14] = [
        ("list", Box::new(|_| "/api/sessions?limit=50".into())),
        ("search", Box::new(move |round| format!("/api/sessions?search=load-{}", round * 7_919 % many))),
        ("none", Box::new(|round| format!("/api/sessions?search=nothing-{round}"))),
        (
            "newest",
            Box::new({
                let chat = chat.clone();
                move |_| format!("/api/log/window?channel={chat}")
            }),
        ),
        (
            "middle",
            Box::new({
                let chat = chat.clone();
                move |round| format!("/api/log/window?channel={chat}&before={}", at(round))
            }),
        ),
        (
            "filter",
            Box::new({
                let chat = chat.clone();
                move |round| format!("/api/log/window?channel={chat}&type=chat/error&before={}", at(round))
            }),
        ),
        ("whole", Box::new(move |round| format!("/api/log/window?by=user:nobody&before={}", at(round)))),
        (
            "slider",
            Box::new({
                let chat = chat.clone();
                move |round| format!("/api/state?channel={chat}&turns=20&at={}", at(round))
            }),
        ),
        ("somebody", Box::new(|_| "/api/sessions?search=root:load".into())),
        (
            "extent",
            Box::new({
                let chat = chat.clone();
                move |_| format!("/api/extent?channel={chat}")
            }),
        ),
        (
            "around",
            Box::new({
                let chat = chat.clone();
                move |round| format!("/api/around?channel={chat}&at={}", at(round))
            }),
        ),
        (
            "diff",
            Box::new({
                let chat = chat.clone();
                move |round| format!("/api/diff?channel={chat}&from={}&to={}", at(round), tail)
            }),
        ),
        ("lineage", Box::new(move |round| format!("/api/lineage?session=ahp-session:/load-{}", round * 7_919 % many))),
        ("overview", Box::new(|_| "/api/overview?since=1h".into())),
    ];
    for (name, path) in paths {
        let times = (0..ROUNDS).map(|round| timed(|| assert!(get(address, &path(round)) > 100)));
        tell(&mut found, name, times.collect());
    }
    let mut client = Client::shaken(address, "looker");
    client.ask("subscribe", &json!({ "channel": chat, "view": { "turns": 1 } }));
    let times = (0..ROUNDS).map(|round| {
        let after = running.host.store().tail();
        timed(|| {
            let read = json!({ "type": "chat/isReadChanged", "isRead": round % 2 == 0 });
            client.dispatch(&chat, &read);
            client.until(b"chat/isReadChanged");
            get(address, &format!("/api/log/window?channel={chat}&after={after}"));
        })
    });
    tell(&mut found, "tail", times.collect());
    let mut stream =
        Stream::open(address, &format!("/api/events?channel={chat}&after={}", running.host.store().tail()));
    let times = (0..ROUNDS).map(|round| {
        timed(|| {
            let read = json!({ "type": "chat/isReadChanged", "isRead": round % 2 == 0 });
            client.dispatch(&chat, &read);
            stream.until("chat/isReadChanged");
        })
    });
    tell(&mut found, "live", times.collect());
    Value::Object(found)
}

/// A live stream of events.
struct Stream(BufReader<TcpStream>);

impl Stream {
    fn open(address: SocketAddr, path: &str) -> Self {
        let mut stream = TcpStream::connect(address).expect("connected");
        let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("written");
        Self(BufReader::new(stream))
    }

    /// Reads up to the line that has these words.
    fn until(&mut self, words: &str) {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert!(self.0.read_line(&mut line).expect("read") > 0, "the stream ended");
        }
    }
}

fn note(found: &mut serde_json::Map<String, Value>, name: &str, number: f64) {
    found.insert(name.to_owned(), json!(number));
}

/// Whether the log was read for people to its end.
fn is_read(running: &Running) -> bool {
    let agent: ureq::Agent = ureq::Agent::config_builder().build().into();
    let answer = agent.get(format!("http://{}/api/sessions?limit=1", running.address)).call().expect("answered");
    let page: Value = serde_json::from_reader(answer.into_body().into_reader()).expect("JSON");
    page.get("peopleUpTo") == page.get("newest")
}

fn tell(found: &mut serde_json::Map<String, Value>, name: &str, mut times: Vec<Duration>) {
    note(found, &format!("{name} p50"), percentile(&mut times, 0.5));
    note(found, &format!("{name} max"), percentile(&mut times, 1.0));
}

fn timed(act: impl FnOnce()) -> Duration {
    let before = Instant::now();
    act();
    before.elapsed()
}
