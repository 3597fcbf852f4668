//! Clients that take more than their share: what others notice of it, and what is left of it in the host's memory.
//!
//! Each case has a host of its own, the real binary in a process of its own with its defaults, but for the connections that
//! one person may have: everybody here is the same one. Honest clients send drafts and read chats that stream, before and
//! during the abuse, and go on after it. The threads of the abusers have the lowest priority: they are on another machine,
//! if they are anywhere.

mod cases;
mod crowd;
mod honest;
mod served;
mod sockets;

use std::time::{Duration, Instant};

use crate::Scale;
use crate::report::{Goal, Report, percentile};
use crowd::Crowd;
use honest::{Honest, Phase, Samples};
use served::Served;

const MIB: f64 = 1_048_576.0;
/// What no case may exceed, in MiB.
const MEMORY: f64 = 1_024.0;
/// After which time memory is looked at again.
const LATER: Duration = Duration::from_secs(60);

/// An abuse: it ends by itself, in at most some two minutes. Returns what it has to say of itself.
type Abuse = fn(Scale, &Served, Option<&Crowd>) -> String;

/// What is there before anything is measured.
type Ready = fn(Scale, &Served) -> Option<Crowd>;

pub fn idle(scale: Scale, report: &mut Report) {
    case("5,000 idle connections", nothing, cases::idle, scale, report);
}

pub fn deaf(scale: Scale, report: &mut Report) {
    case("1,000 connections, 100 never read", |_, served| Some(Crowd::gather(served)), cases::deaf, scale, report);
}

pub fn channels(scale: Scale, report: &mut Report) {
    case("10,000 subscriptions", cases::make_chats, cases::channels, scale, report);
}

pub fn actions(scale: Scale, report: &mut Report) {
    case("100,000 actions", nothing, cases::actions, scale, report);
}

pub fn frames(scale: Scale, report: &mut Report) {
    case("frames of 48 MiB and a byte more", nothing, cases::frames, scale, report);
}

pub fn nesting(scale: Scale, report: &mut Report) {
    case("nested 100,000 deep", nothing, cases::nesting, scale, report);
}

pub fn slowloris(scale: Scale, report: &mut Report) {
    case("slowloris", nothing, cases::slowloris, scale, report);
}

fn nothing(_: Scale, _: &Served) -> Option<Crowd> {
    None
}

fn case(name: &str, ready: Ready, abuse: Abuse, scale: Scale, report: &mut Report) {
    sockets::raise_open_files();
    let served = Served::start();
    let crowd = ready(scale, &served);
    let honest = Honest::start(&served);
    honest.settle(scale.of(Duration::from_secs(5), Duration::from_secs(2)));
    let calm = scale.of(Duration::from_secs(20), Duration::from_secs(5));
    let before = honest.during(|| sockets::pause(calm));
    let start = served.resident();
    served.forget_peak();
    let began = Instant::now();
    let mut said = String::new();
    let during = honest.during(|| {
        std::thread::scope(|scope| {
            said = scope
                .spawn(|| abuse(scale, &served, crowd.as_ref()))
                .join()
                .unwrap_or_else(|_| "it broke off".to_owned());
        });
        // A short abuse is looked at for as long as what it left is worked on.
        sockets::pause(Duration::from_secs(2));
    });
    let (took, peak) = (began.elapsed(), served.peak());
    if let Some(crowd) = crowd {
        said = format!("{said}: {}", crowd.disperse());
    }
    sockets::pause(scale.of(LATER, Duration::from_secs(10)));
    let later = served.resident();
    let limits = served.limits();
    honest.stop();
    eprintln!("  {name}: {:.1} s; {said}; limits met: {limits}", took.as_secs_f64());
    row(report, name, "echo", &before, &during, |samples| &samples.echoes);
    row(report, name, "delta", &before, &during, |samples| &samples.deltas);
    report.number(&format!("{name}: memory at the start"), "MiB", Goal::None, start / MIB);
    report.number(&format!("{name}: memory at its peak"), "MiB", Goal::AtMost(MEMORY), peak / MIB);
    report.ratio(&format!("{name}: memory a minute later, of the start"), "MiB", Goal::None, start / MIB, later / MIB);
}

fn row(
    report: &mut Report,
    name: &str,
    what: &str,
    before: &Phase,
    during: &Phase,
    of: fn(&Samples) -> &Vec<Duration>,
) {
    let p99 = |phase: &Phase| percentile(&mut of(&phase.0).clone(), 0.99);
    let counts = format!("{} and {} samples", of(&before.0).len(), of(&during.0).len());
    report.ratio(
        &format!("{name}: {what}, p99, of before ({counts})"),
        "ms",
        Goal::AtMost(2.0),
        p99(before),
        p99(during),
    );
}
