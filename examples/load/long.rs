//! Chats of 100, 1,000 and 10,000 finished turns, side by side: to fork one, to go back in it, to wake it, to page it, and to
//! read what it was.
//!
//! Some turns have a tool call. Every measure takes the three chats in turns, and is held against the chat of 100. A fork, a
//! rewind and a page are one durable commit each, so a plain write with its sync stands beside them; a state is all its turns,
//! so reading these and nothing else stands beside it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use scrollback::actors::registry::first_chat_uri;
use scrollback::events::{Batch, ChannelId, EventLog, Kind, ServerSeq, Store};
use scrollback::projections::action::type_of;
use scrollback::projections::chat::ChatFold;
use scrollback::projections::replay;
use scrollback::projections::turns::{self, PageLimit};
use serde_json::json;

use crate::Scale;
use crate::child::{self, number};
use crate::client::{Client, get};
use crate::host::Running;
use crate::report::{Goal, Report, median};
use crate::support::author::{self, Session, Shape};
use crate::support::limit::{self, PlainFile};
use crate::support::{channels_of, directory, store};

const SHAPE: Shape = Shape { deltas: 4, bytes: 60 };
/// One turn of so many has a tool call.
const TOOLS: usize = 5;
/// Turns that a rewind drops.
const DROPPED: usize = 10;
/// Turns that a client is shown at first, and those of a page.
const WINDOW: usize = 50;
const PAGE: usize = 50;

/// Chats of each length: how the engine's pages lie differs from one to the next.
const COPIES: u64 = 3;

const GROWTH: Goal = Goal::AtMost(1.5);

/// The measures, what is wanted of the long chat beside the short one, and what else its time is held against.
const MEASURES: [(&str, Goal, Bare); 9] = [
    ("fork at the last turn", GROWTH, Bare::Sync),
    ("fork at the middle turn", GROWTH, Bare::Sync),
    ("rewind by 10 turns", GROWTH, Bare::Sync),
    ("wake with the newest 50", GROWTH, Bare::None),
    ("page of 50 behind the newest 50", GROWTH, Bare::Sync),
    ("page of 50 from the middle", GROWTH, Bare::Sync),
    ("the fold in the middle, without its turns", Goal::None, Bare::None),
    ("/api/state?at= in the middle", Goal::None, Bare::Rows),
    ("/api/state?at= at the end", Goal::None, Bare::Rows),
];

/// The bare limit of a measure.
#[derive(Clone, Copy)]
enum Bare {
    None,
    /// A plain write and its sync.
    Sync,
    /// The rows of the turns, read and not sent.
    Rows,
}

/// A chat that is measured.
struct Chat {
    number: u64,
    session: String,
    uri: String,
    id: ChannelId,
    /// How many turns it was written with.
    length: usize,
    /// The turns that it has, by id.
    turns: Vec<String>,
    /// The events that ended the turn in the middle and the last one.
    middle: ServerSeq,
    end: ServerSeq,
}

/// Milliseconds by measure and length.
#[derive(Default)]
struct Times(BTreeMap<(&'static str, usize), Vec<f64>>);

impl Times {
    fn add(&mut self, what: &'static str, length: usize, ms: f64) {
        self.0.entry((what, length)).or_default().push(ms);
    }

    fn median(&mut self, what: &'static str, length: usize) -> f64 {
        self.0.get_mut(&(what, length)).map_or(f64::NAN, |times| median(times))
    }
}

pub fn measure(scale: Scale, report: &mut Report) {
    let directory = directory();
    let lengths = scale.of([100, 1_000, 10_000], [100, 300, 1_000]);
    let log = store(directory.path());
    let numbered = (0..COPIES).flat_map(|_| lengths).zip(0..);
    let mut chats: Vec<Chat> = numbered.map(|(length, number)| write(&log, number, length)).collect();
    drop(log);
    let mut times = Times::default();
    for _ in 0..scale.of(5, 1) {
        for chat in &chats {
            let found = child::of("wake", directory.path(), &chat.number.to_string());
            times.add("wake with the newest 50", chat.length, number(&found, "ms"));
        }
    }
    let running = Running::on(directory.path());
    let mut client = Client::shaken(running.address, "long");
    let mut plain = PlainFile::new(directory.path());
    let commit = limit::commit();
    let bytes = limit::bytes_of(commit.get(..1).unwrap_or_default());
    // One thing after the other: what is large leaves its traces in the caches of what comes next.
    for round in 0..scale.of(15, 3) {
        for chat in &chats {
            times.add("sync", 0, timed(|| plain.commit(&bytes)));
            chat.fork(&mut client, round, &mut times);
        }
    }
    for round in 0..scale.of(15, 3) {
        chats.iter_mut().for_each(|chat| chat.rewind(&mut client, round, &mut times));
    }
    for _ in 0..scale.of(15, 3) {
        chats.iter().for_each(|chat| chat.page(&mut client, &mut times));
    }
    for _ in 0..scale.of(7, 2) {
        chats.iter().for_each(|chat| chat.states(&running, &mut times));
    }
    told(&lengths, &mut times, report);
}

/// Each measure in the longer chats beside the shortest, and in the longest beside its bare limit.
fn told(lengths: &[usize; 3], times: &mut Times, report: &mut Report) {
    let [short, middle, long] = *lengths;
    for (what, goal, bare) in MEASURES {
        let [of_short, of_middle, of_long] = [short, middle, long].map(|length| times.median(what, length));
        report.ratio(&format!("{what}, {middle} turns, of {short}"), "ms", Goal::None, of_short, of_middle);
        report.ratio(&format!("{what}, {long} turns, of {short}"), "ms", goal, of_short, of_long);
        let of_bare = match bare {
            Bare::None => continue,
            Bare::Sync => ("of a plain write and sync", times.median("sync", 0)),
            Bare::Rows => ("of reading its rows", times.median(rows_of(what), long)),
        };
        report.ratio(&format!("{what}, {long} turns, {}", of_bare.0), "ms", Goal::None, of_bare.1, of_long);
    }
}

fn rows_of(what: &'static str) -> &'static str {
    if what.ends_with("middle") { "rows up to the middle" } else { "rows up to the end" }
}

/// The `number`th session of the log, with a chat of `length` turns.
fn write(log: &dyn Store, number: u64, length: usize) -> Chat {
    let (mut session, batch) = Session::create(log, number);
    let mut waiting: Vec<Batch> = vec![batch];
    let mut turns = Vec::with_capacity(length);
    for at in 0..length {
        waiting.extend(if at % TOOLS == 0 { session.tool_turn(SHAPE) } else { session.turn(SHAPE) });
        turns.push(session.turn_id());
        if waiting.len() >= 4_000 {
            log.append(&waiting).expect("the log is appended to");
            waiting.clear();
        }
    }
    log.append(&waiting).expect("the log is appended to");
    let (id, of_session) = channels_of(log, number);
    author::thin(log, id);
    author::thin(log, of_session);
    let ends = ends(log, id);
    let end = |turn: usize| ends.get(turn - 1).copied().unwrap_or(0);
    let uri = format!("ahp-session:/load-{number}");
    let (middle, end) = (end(length / 2), end(length));
    Chat { number, uri: first_chat_uri(&uri), session: uri, id, length, turns, middle, end }
}

/// The events that ended the turns of a chat.
fn ends(log: &dyn EventLog, chat: ChannelId) -> Vec<ServerSeq> {
    let mut ends = Vec::new();
    let collect = &mut |record: scrollback::events::Record| {
        if record.kind == Kind::Action && type_of(&record.action) == "chat/turnComplete" {
            ends.push(record.seq);
        }
        ControlFlow::Continue(())
    };
    log.scan_channel(chat, 0, ServerSeq::MAX, collect).expect("read");
    ends
}

impl Chat {
    /// A fork up to its answer. It is closed again, so that the session stays as it is.
    fn fork(&self, client: &mut Client, round: usize, times: &mut Times) {
        let last = self.turns.len() - 1;
        for (what, turn) in [("fork at the last turn", last), ("fork at the middle turn", last / 2)] {
            let fork = format!("ahp-chat:/fork-{}-{round}-{turn}", self.number);
            let source = json!({ "kind": "fork", "chat": self.uri, "turnId": self.turns.get(turn) });
            let params = json!({ "channel": self.session, "chat": fork, "source": source });
            times.add(what, self.length, timed(|| drop(client.ask("createChat", &params))));
            client.ask("disposeChat", &json!({ "channel": fork }));
        }
    }

    /// A rewind up to its echo. The turns that it drops are said again.
    fn rewind(&mut self, client: &mut Client, round: usize, times: &mut Times) {
        self.open(client, WINDOW);
        self.turns.truncate(self.turns.len() - DROPPED);
        let back = json!({ "type": "chat/truncated", "turnId": self.turns.last() });
        let ms = timed(|| {
            client.dispatch(&self.uri, &back);
            let echo = client.until(b"chat/truncated");
            assert!(!echo.windows(9).any(|found| found == b"rejection"), "{}", String::from_utf8_lossy(&echo));
        });
        times.add("rewind by 10 turns", self.length, ms);
        for more in 0..DROPPED {
            let turn = format!("again-{round}-{more}");
            client.say(&self.uri, &turn, "and so on");
            client.until(b"chat/turnComplete");
            self.turns.push(turn);
        }
    }

    /// Pages up to their answers, which come behind the turns: from the newest turns back to the middle.
    fn page(&self, client: &mut Client, times: &mut Times) {
        self.open(client, WINDOW);
        let middle = self.length / 2 + 1;
        for oldest in (middle..=self.length - WINDOW + 1).rev().step_by(PAGE) {
            let cursor = turns::cursor(&self.uri, oldest as u64);
            let params = json!({ "channel": self.uri, "cursor": cursor });
            let ms = timed(|| drop(client.ask("fetchTurns", &params)));
            if oldest == self.length - WINDOW + 1 {
                times.add("page of 50 behind the newest 50", self.length, ms);
            }
            if oldest < middle + PAGE {
                times.add("page of 50 from the middle", self.length, ms);
            }
        }
    }

    /// Subscribes to the newest turns.
    fn open(&self, client: &mut Client, turns: usize) {
        client.ask("subscribe", &json!({ "channel": self.uri, "view": { "turns": turns } }));
    }

    /// States over HTTP, whole, and the rows of their turns alone.
    fn states(&self, running: &Running, times: &mut Times) {
        let store: &Arc<dyn Store> = running.host.store();
        let points = [
            ("/api/state?at= in the middle", self.middle, self.length / 2),
            ("/api/state?at= at the end", self.end, self.length),
        ];
        for (what, seq, head) in points {
            let path = format!("/api/state?channel={}&at={seq}", self.uri);
            let mut whole = 0;
            times.add(what, self.length, timed(|| whole = get(running.address, &path)));
            if seq == self.middle {
                let fold = || drop(replay::fold::<ChatFold>(store.as_ref(), self.id, seq, true).expect("folded"));
                times.add("the fold in the middle, without its turns", self.length, timed(fold));
            }
            let mut bytes = 0;
            times.add(rows_of(what), self.length, timed(|| bytes = rows(store.as_ref(), self.id, head)));
            assert!(whole > bytes, "the state is not whole: {whole} of {bytes}");
        }
    }
}

/// Reads the rows of a chat's first `head` turns; returns their bytes.
fn rows(store: &dyn Store, chat: ChannelId, head: usize) -> usize {
    let all = PageLimit { turns: u64::MAX, bytes: usize::MAX };
    let (turns, _) = turns::branch(head as u64, all, |n| turns::read(store, chat, n)).expect("read");
    turns.iter().map(|turn| turn.json.len()).sum()
}

fn timed(act: impl FnOnce()) -> f64 {
    let before = Instant::now();
    act();
    before.elapsed().as_secs_f64() * 1_000.0
}
