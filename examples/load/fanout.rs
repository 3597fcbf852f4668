//! One chat and many subscribers, beside a bare broadcast of the same frames.
//!
//! First what is compared with like: frames that are there, handed over in commits of 32. Then, without a goal, from an
//! agent's words through the log to the last subscriber.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use scrollback::access::Identity;
use scrollback::actors::envelope::Envelope;
use scrollback::events::{Channel, ChannelId};

use crate::Scale;
use crate::agent;
use crate::bare::{Bare, Frames};
use crate::client::Client;
use crate::host::Running;
use crate::report::{Goal, Report, median};
use crate::support::{directory, limit};

const ROUNDS: usize = 9;
/// Frames that are handed over together.
const COMMIT: usize = 32;
/// What is in the last frame of a round alone.
const LAST: &str = "chat/turnComplete";
/// Bytes at the end of what was read that the last frame is looked for in.
const END: usize = 256;

pub fn measure(scale: Scale, report: &mut Report) {
    for subscribers in [100, 1_000] {
        let frames = scale.of(400_000, 100_000) / subscribers;
        fan_out(report, subscribers, frames);
    }
}

fn fan_out(report: &mut Report, subscribers: usize, frames: usize) {
    let directory = directory();
    let running = Running::on(directory.path());
    let bare = Bare::start();
    let mut speaker = Client::shaken(running.address, "speaker");
    let chat = speaker.session("ahp-session:/stage", agent::PROVIDER);
    let ours: Vec<TcpStream> = (0..subscribers)
        .map(|n| {
            let mut client = Client::shaken(running.address, &format!("hearer-{n}"));
            client.subscribe(&chat);
            client.stream
        })
        .collect();
    let theirs = (0..subscribers).map(|_| Client::connect(bare.address).stream).collect();
    let (ours, theirs) = (Readers::start(ours), Readers::start(theirs));
    let deliveries = (subscribers * frames) as f64;
    let rate = |spent: Duration| deliveries / spent.as_secs_f64();
    let (mut our_rates, mut bare_rates, mut whole_rates) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        whole_rates.push(rate(ours.time(|| {
            speaker.say(&chat, &format!("turn-{round}"), &format!("words {} 200", frames - 3));
        })));
    }
    let found = running.host.resolve(&Identity::root("test"), &chat).expect("resolved").expect("a chat");
    for round in 0..ROUNDS {
        let envelopes = envelopes(&found, frames, round);
        let commits: Vec<Frames> =
            envelopes.chunks(COMMIT).map(|some| some.iter().map(|envelope| envelope.frame.clone()).collect()).collect();
        bare_rates.push(rate(theirs.time(|| commits.iter().for_each(|frames| bare.send(frames)))));
        our_rates.push(rate(ours.time(|| {
            envelopes.chunks(COMMIT).for_each(|some| running.host.hub().publish(some.to_vec()));
        })));
    }
    let [ours, bare, whole] = [our_rates, bare_rates, whole_rates].map(|mut rates| median(&mut rates));
    let (name, unit) = (format!("fan-out to {subscribers} subscribers"), "frames/s");
    report.ratio(&name, unit, Goal::AtLeast(0.9), bare, ours);
    report.ratio(&format!("{name}, from the agent through the log"), unit, Goal::None, bare, whole);
}

/// Frames of one chat that were never published: their numbers are above all others.
fn envelopes((channel, id): &(Channel, ChannelId), count: usize, round: usize) -> Vec<Envelope> {
    let action = limit::commit().into_iter().next().and_then(|batch| batch.events.into_iter().next());
    let action = action.expect("an event").action;
    let first = 1 << 40 | (round as u64) << 30;
    let last = format!(r#"{{"type":"{LAST}","turnId":"t"}}"#);
    let of = |n: usize| if n + 1 == count { last.as_bytes() } else { &action[..] };
    (0..count).map(|n| Envelope::new(channel.clone(), *id, first + n as u64, None, of(n))).collect()
}

/// Sockets that are read on a thread of their own, until the last frame of each round is in all of them.
struct Readers {
    done: mpsc::Receiver<()>,
}

impl Readers {
    fn start(streams: Vec<TcpStream>) -> Self {
        let (sender, done) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, async move {
                let (ended, mut ends) = tokio::sync::mpsc::unbounded_channel();
                let count = streams.len();
                let buffer = Rc::new(RefCell::new(vec![0; 64 << 10]));
                for stream in streams {
                    tokio::task::spawn_local(read(stream, Rc::clone(&buffer), ended.clone()));
                }
                drop(ended);
                let mut seen = 0;
                while ends.recv().await.is_some() {
                    seen += 1;
                    if seen % count == 0 && sender.send(()).is_err() {
                        return;
                    }
                }
            });
        });
        Self { done }
    }

    /// How long it takes from `act` until every socket has the last frame.
    fn time(&self, act: impl FnOnce()) -> Duration {
        let before = Instant::now();
        act();
        self.done.recv_timeout(Duration::from_secs(60)).expect("every subscriber is served");
        before.elapsed()
    }
}

/// Reads, and says each time that the last frame of a round came. It ends what is sent, so the end alone is looked at.
async fn read(stream: TcpStream, buffer: Rc<RefCell<Vec<u8>>>, ended: tokio::sync::mpsc::UnboundedSender<()>) {
    stream.set_nonblocking(true).expect("nonblocking");
    let stream = tokio::net::TcpStream::from_std(stream).expect("a stream");
    let mut tail: Vec<u8> = Vec::new();
    while stream.readable().await.is_ok() {
        let mut buffer = buffer.borrow_mut();
        let read = match stream.try_read(&mut buffer) {
            Ok(read @ 1..) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Ok(_) | Err(_) => return,
        };
        let bytes = buffer.get(..read).unwrap_or_default();
        tail.extend_from_slice(bytes.get(read.saturating_sub(END)..).unwrap_or_default());
        tail.drain(..tail.len().saturating_sub(END));
        if tail.windows(LAST.len()).any(|found| found == LAST.as_bytes()) {
            tail.clear();
            if ended.send(()).is_err() {
                return;
            }
        }
    }
}
