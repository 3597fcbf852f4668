//! Kills a host at random moments while people work with it, starts it again, and says whether anybody was lied to.
//!
//! The host is the real binary as a child process. Several people drive it over their sockets: they chat, queue and steer,
//! rewind, clear, fork, move and close chats, and note everything that they are shown. An operator brings some of what they
//! closed back, and erases some. A round ends with SIGKILL after a random number of frames. Then the log is verified as it lies on the
//! disk, the host is started again, and it is checked that
//!
//! - everything that anybody was shown is in the log, under the same number and with the same bytes (with `interval`
//!   durability it may be gone, but its number never stands for anything else);
//! - what an earlier round found in the log is still in it, but for what was erased since;
//! - what was answered to a command holds: what was created is there, what was brought back too, and what was erased is
//!   nowhere;
//! - every turn has at most one ending, and none goes on past a second kill;
//! - people who come back from the last number that they saw have, after what they are sent, the state of a new snapshot.
//!
//! Used by `examples/crash.rs`, which runs many rounds, and by a test, which runs a few. Knows the host's outer contract
//! alone, and nothing of its code. A kill of the process shows what the process acknowledged too early; what a power cut
//! does is the business of `examples/powercut`.

mod checks;
mod child;
mod dice;
mod mirror;
mod operator;
mod person;

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use checks::{Erased, Log, Open};
use child::Child;
use dice::Dice;
use operator::{Closed, Operator};
use person::Person;

/// What is run.
pub struct Settings {
    /// The host's binary.
    pub binary: PathBuf,
    pub rounds: u32,
    /// What people do and when the host is killed follows from it, as far as the machine's scheduling lets it.
    pub seed: u64,
    /// `commit` or `interval`.
    pub durability: String,
    /// How many people work at once.
    pub people: usize,
    /// A round ends after at most this many frames.
    pub frames: u64,
}

/// What a round saw.
pub struct Round {
    pub number: u32,
    /// Frames that people received before the kill.
    pub frames: u64,
    /// Events in the log after it.
    pub events: usize,
    /// Events that people were shown in this round.
    pub shown: usize,
    /// Of those shown so far, how many the log lost; always 0 with `commit`.
    pub lost: usize,
    /// Turns that ran at the kill, or since: those that the next start took up, and those that it ended.
    pub interrupted: usize,
    /// Sessions and chats that were brought back so far, and that were erased.
    pub restored: usize,
    pub erased: usize,
    /// States of people that were compared with snapshots.
    pub mirrors: usize,
    /// From the start of the process to its `READY` line.
    pub started_in: Duration,
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "round {:>3}: killed after {:>4} frames; log {:>6} events, {:>4} shown, {:>3} lost, {:>2} turns interrupted, \
             {:>3} restored, {:>3} erased, {:>3} mirrors equal, ready in {:>4} ms",
            self.number,
            self.frames,
            self.events,
            self.shown,
            self.lost,
            self.interrupted,
            self.restored,
            self.erased,
            self.mirrors,
            self.started_in.as_millis()
        )
    }
}

/// Something that must never happen, in words.
#[derive(Debug)]
pub struct Broken(pub String);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Broken {
    fn new(words: impl fmt::Display) -> Self {
        Self(words.to_string())
    }
}

/// Runs the rounds; `report` hears of each as it ends.
///
/// # Errors
/// [`Broken`] at the first fault.
pub async fn run(settings: &Settings, report: &mut dyn FnMut(&Round)) -> Result<(), Broken> {
    let directory = tempfile::tempdir().map_err(Broken::new)?;
    let mut dice = Dice::new(settings.seed);
    let mut people: Vec<Person> = (0..settings.people).map(|n| Person::new(n, dice.fork())).collect();
    let mut operator = Operator::new(dice.fork());
    let mut log = Log::default();
    let mut erased = Erased::default();
    let mut open = Open::new();
    let mut host = Child::start(settings, directory.path())?;
    for number in 1..=settings.rounds {
        let before: usize = people.iter().map(Person::shown).sum();
        let frames = work(&mut people, &mut operator, &mut host, dice.between(1, settings.frames)).await?;
        child::verify(settings, directory.path())?;
        let starts = Instant::now();
        host = Child::start(settings, directory.path())?;
        let started_in = starts.elapsed();
        let newer = checks::read_log(&host)?;
        let seen = people.iter().flat_map(|person| person.seen().map(|(_, envelope)| envelope));
        erased.follow(log.values().map(String::as_str).chain(seen))?;
        erased.take(operator::erased(host.port)?, &operator)?;
        checks::kept(&log, &newer, &erased)?;
        let (lost, allowed) = (checks::shown(&people, &newer, &erased)?, settings.durability == "interval");
        if lost > 0 && !allowed {
            return Err(Broken::new(format!("{lost} events that people were shown are not in the log")));
        }
        let interrupted = checks::endings(&log, &newer, &mut open)?;
        let mirrors = come_back(&mut people, &operator, &host, !allowed).await?;
        log = newer;
        let shown = people.iter().map(Person::shown).sum::<usize>() - before;
        report(&Round {
            number,
            frames,
            events: log.len(),
            shown,
            lost,
            interrupted,
            restored: operator.restored.len(),
            erased: erased.count(),
            mirrors,
            started_in,
        });
    }
    Ok(())
}

/// Lets everybody work until `frames` were received in all, then kills the host. Returns how many were.
async fn work(people: &mut Vec<Person>, operator: &mut Operator, host: &mut Child, frames: u64) -> Result<u64, Broken> {
    let received = Arc::new(AtomicU64::new(0));
    let (closes, closed) = tokio::sync::mpsc::unbounded_channel::<Closed>();
    let mut working = Vec::new();
    for mut person in people.drain(..) {
        let (port, received, closes) = (host.port, Arc::clone(&received), closes.clone());
        working.push(tokio::spawn(async move {
            let worked = person.work(port, &received, closes).await;
            (person, worked)
        }));
    }
    drop(closes);
    let keeping = operator.work(host.port, closed);
    let until_killed = async {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut often = tokio::time::interval(Duration::from_millis(1));
        while received.load(Ordering::Relaxed) < frames && Instant::now() < deadline {
            often.tick().await;
        }
        host.kill();
    };
    let (kept, ()) = tokio::join!(keeping, until_killed);
    kept?;
    for task in working {
        let (person, worked) = task.await.map_err(Broken::new)?;
        people.push(person);
        worked?;
    }
    Ok(received.load(Ordering::Relaxed))
}

/// Everybody reconnects from the last number that they saw, and has the state of a new snapshot then.
async fn come_back(
    people: &mut [Person],
    operator: &Operator,
    host: &Child,
    commands_hold: bool,
) -> Result<usize, Broken> {
    let mut compared = 0;
    let mut inspector = Person::inspector();
    inspector.shake_hands(host.port).await?;
    let known: BTreeSet<String> =
        operator.erased.iter().filter(|(_, answered)| **answered).map(|(uri, _)| uri.clone()).collect();
    if let Some(uri) = known.difference(&inspector.misses(&known).await?).next() {
        return Err(Broken::new(format!("{uri} was erased and is there")));
    }
    if commands_hold {
        restored_is_there(&mut inspector, operator).await?;
    }
    for person in people {
        person.come_back(host.port).await?;
        let gone = inspector.misses(&person.created()).await?;
        if let Some(uri) = gone.iter().next().filter(|_| commands_hold) {
            return Err(Broken::new(format!("{uri} was created and is not there")));
        }
        person.forget(&gone);
        compared += inspector.compare(person).await?;
    }
    Ok(compared)
}

/// What was brought back is there. Nobody closes it again, but its session may be disposed.
async fn restored_is_there(inspector: &mut Person, operator: &Operator) -> Result<(), Broken> {
    let uris: BTreeSet<String> = operator.restored.iter().map(|back| back.uri.clone()).collect();
    let sessions: BTreeSet<String> = operator.restored.iter().filter_map(|back| back.session.clone()).collect();
    let (missing, disposed) = (inspector.misses(&uris).await?, inspector.misses(&sessions).await?);
    let excused = |back: &Closed| back.session.as_ref().is_some_and(|session| disposed.contains(session));
    match operator.restored.iter().find(|back| missing.contains(&back.uri) && !excused(back)) {
        Some(back) => Err(Broken::new(format!("{} was brought back and is not there", back.uri))),
        None => Ok(()),
    }
}
