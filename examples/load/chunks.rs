//! A program that streams ten thousand chunks a second as an ACP agent: how long the host takes from a chunk on the program's
//! output to a client's frame, beside a reader of the same output, and the memory that it takes meanwhile.
//!
//! The program is this one, started with [`FLAG`]. Each chunk is the time at which it was written.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use scrollback::agents::programs::{EndingSteps, Programs};
use scrollback::agents::{AgentLimits, Surroundings, configured};
use scrollback::config::Environment;
use scrollback::config::agents::read;
use scrollback::resources::Roots;
use serde_json::{Value, json};

use crate::Scale;
use crate::child::resident;
use crate::client::Client;
use crate::host::{Running, settings};
use crate::report::{Goal, Report, percentile};
use crate::support::{directory, store};

/// Makes this program the agent.
pub const FLAG: &str = "--stream-chunks";
/// Chunks a second, and how many are written at once.
const RATE: usize = 10_000;
const BURST: usize = 10;

/// Microseconds since 1970: a clock that two programs share.
#[allow(clippy::disallowed_methods)]
pub fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

fn chunk() -> Value {
    let update = json!({ "sessionUpdate": "agent_message_chunk",
        "content": { "type": "text", "text": format!("<{}> and some words more", now()) } });
    json!({ "jsonrpc": "2.0", "method": "session/update", "params": { "sessionId": "s", "update": update } })
}

/// The agent: a prompt is how many chunks to stream, and how many of them in a second where it is not [`RATE`].
pub fn run() {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lines() {
        let Ok(request) = serde_json::from_str::<Value>(&line.expect("a line")) else { continue };
        let result = match request.get("method").and_then(Value::as_str) {
            Some("initialize") => json!({ "protocolVersion": 1, "agentCapabilities": {} }),
            Some("session/new") => json!({ "sessionId": "s" }),
            Some("session/prompt") => {
                let text = request.pointer("/params/prompt/0/text").and_then(Value::as_str).unwrap_or_default();
                let mut numbers = text.split(' ').map(|number| number.parse().unwrap_or(0));
                stream(&mut out, numbers.next().unwrap_or(0), numbers.next().unwrap_or(RATE));
                json!({ "stopReason": "end_turn" })
            }
            _ => continue,
        };
        writeln!(out, "{}", json!({ "jsonrpc": "2.0", "id": request.get("id"), "result": result })).expect("written");
        out.flush().expect("flushed");
    }
}

fn stream(out: &mut impl Write, chunks: usize, rate: usize) {
    let began = Instant::now();
    let at_once = if rate < RATE { 1 } else { BURST };
    for burst in 0..chunks / at_once {
        let due = Duration::from_secs_f64((burst * at_once) as f64 / rate as f64);
        // On time to some hundred microseconds.
        std::thread::park_timeout(due.saturating_sub(began.elapsed()));
        let lines: String = (0..at_once).map(|_| format!("{}\n", chunk())).collect();
        out.write_all(lines.as_bytes()).and_then(|()| out.flush()).expect("written");
    }
}

/// How long ago each chunk in `text` was written.
pub fn ages(text: &str, now: u64, times: &mut Vec<Duration>) {
    let written = text.split('<').skip(1).filter_map(|rest| rest.split('>').next()?.parse::<u64>().ok());
    times.extend(written.map(|at| Duration::from_micros(now.saturating_sub(at))));
}

/// The same output, read by a loop and nothing else.
fn bare(chunks: usize) -> Vec<Duration> {
    let this = std::env::current_exe().expect("this program");
    let mut child = Command::new(this).arg(FLAG).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("started");
    let prompt =
        json!({ "id": 1, "method": "session/prompt", "params": { "prompt": [{ "text": chunks.to_string() }] } });
    writeln!(child.stdin.take().expect("input"), "{prompt}").expect("written");
    let mut times = Vec::with_capacity(chunks);
    for line in BufReader::new(child.stdout.take().expect("output")).lines() {
        ages(&line.expect("a line"), now(), &mut times);
    }
    let _ = child.wait();
    times
}

pub fn measure(scale: Scale, report: &mut Report) {
    let chunks = scale.of(10 * RATE, 2 * RATE);
    let folder = directory();
    let this = std::env::current_exe().expect("this program");
    let table = format!("[agents.chunks]\nkind = \"acp\"\ncommand = [{:?}, {FLAG:?}]", this.display().to_string());
    let tables: toml::Table = toml::from_str(&table).expect("a table");
    let environment = Environment::of_process();
    let programs = Programs::new(&environment, None, EndingSteps::default()).expect("threads");
    let surroundings = Surroundings {
        programs: programs.clone(),
        roots: Arc::new(Roots::new(&[], None)),
        data_directory: None,
        limits: AgentLimits::default(),
    };
    let agents =
        configured(&read(tables.get("agents").expect("a table")).expect("agents"), &environment, &surroundings);

    let mut plain = bare(chunks);
    let (mut host, protocol) = settings();
    host.delta_window = Duration::from_millis(16);
    let window = host.delta_window;
    let running = Running::with(Arc::new(store(folder.path())), (host, protocol), agents);
    let mut client = Client::shaken(running.address, "reader");
    let chat = client.session("ahp-session:/chunks", "chunks");
    client.subscribe(&chat);
    let before = resident();
    let mut highest: f64 = 0.0;
    let mut times = Vec::with_capacity(chunks);
    let mut frames = 0;
    let began = Instant::now();
    client.say(&chat, "t", &chunks.to_string());
    loop {
        let message = client.next();
        let text = String::from_utf8_lossy(&message);
        if text.contains(r#""type":"chat/delta""#) || text.contains(r#""type":"chat/responsePart""#) {
            ages(&text, now(), &mut times);
            frames += 1;
            highest = highest.max(resident());
        }
        if text.contains(r#""type":"chat/turnComplete""#) {
            break;
        }
    }
    let took = began.elapsed().as_secs_f64();
    assert_eq!(times.len(), chunks, "every chunk arrives once");
    drop(running);
    programs.shut_down();
    let what =
        format!("a chunk of an agent's program to a client's frame, of {RATE} a second, text joined for {window:?}");
    report.ratio(&format!("{what}, p50"), "ms", Goal::None, percentile(&mut plain, 0.5), percentile(&mut times, 0.5));
    report.ratio(&format!("{what}, p99"), "ms", Goal::None, percentile(&mut plain, 0.99), percentile(&mut times, 0.99));
    report.number("chunks that reached the client, a second", "", Goal::None, chunks as f64 / took);
    report.number("chunks in one frame, on average", "", Goal::None, chunks as f64 / f64::from(frames));
    report.number(
        "memory of the host above that before the stream",
        "MiB",
        Goal::None,
        (highest - before) / 1_048_576.0,
    );
}
