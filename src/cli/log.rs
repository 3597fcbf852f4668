//! `scrollback log …`.

use std::io::{IsTerminal, Write};

use json_patch::Patch;
use serde_json::Value;

use super::args::{ListArgs, LogVerb, Place};
use super::client::{Client, Pair};
use super::fault::CliFault;
use super::out::Out;
use super::reach::{OpenDirectory, Reach};
use crate::admin::inspect::{self, EventFilter, EventLine, LogStats, RawFilter, Reading, Scope, Verdict};
use crate::clock::Clock;
use crate::config::Environment;
use crate::events::sled_store::Access;

/// Runs one verb.
pub fn run(verb: LogVerb, environment: &Environment) -> Result<(), CliFault> {
    match verb {
        LogVerb::List(args) => list(&args, environment),
        LogVerb::Show { seq, place } => show(seq, &place, environment),
        LogVerb::State { uri, at, place } => state(&uri, at, &place, environment),
        LogVerb::Diff { uri, from, to, place } => diff(&uri, (from, to), &place, environment),
        LogVerb::Verify { rebuild: true, place } => super::rebuilding::rebuild(&place, environment),
        LogVerb::Verify { place, .. } => verify(&place, environment),
        LogVerb::Export { channel, output, place } => {
            super::backup::export(channel.as_deref(), output.as_deref(), &place, environment)
        }
        LogVerb::Import { file, place } => super::backup::import(&file, &place, environment),
        LogVerb::Stats { place } => stats(&place, environment),
        LogVerb::Compact { before, place } => super::compacting::compact(before.as_deref(), &place, environment),
        LogVerb::Restore { uri, place } => super::keeping::restore(&uri, &place, environment),
        LogVerb::Erase { uri, yes, place } => super::keeping::erase(&uri, yes, &place, environment),
    }
}

fn reach(place: &Place, environment: &Environment) -> Result<Reach, CliFault> {
    Reach::of(place, Access::Read, environment)
}

fn list(args: &ListArgs, environment: &Environment) -> Result<(), CliFault> {
    // Read here too, so that a mistake is told before anything is opened.
    let filter = EventFilter::parse(raw_filter(args), Clock::system().now())?;
    let mut out = Out::new(args.place.json, environment);
    match reach(&args.place, environment)? {
        Reach::Host(host) => list_of_host(&host, args, &mut out)?,
        Reach::Directory(_) if args.follow => {
            return Err(CliFault::Failed("--follow: no host has this directory open, so nothing can follow".into()));
        }
        Reach::Directory(directory) => list_of_directory(&directory, args.channel.as_deref(), filter, &mut out)?,
    }
    out.flush()
}

fn raw_filter(args: &ListArgs) -> RawFilter {
    RawFilter {
        kind: args.kind.clone(),
        after: args.after,
        before: args.before,
        since: args.since.clone(),
        by: args.by.clone(),
        privileged: args.privileged,
        limit: args.limit,
    }
}

fn list_of_host(host: &Client, args: &ListArgs, out: &mut Out) -> Result<(), CliFault> {
    let number = |number: Option<u64>| number.map(|n| n.to_string());
    let all = [
        ("channel", args.channel.clone()),
        ("type", args.kind.clone()),
        ("after", number(args.after)),
        ("before", number(args.before)),
        ("since", args.since.clone()),
        ("by", args.by.clone()),
        ("privileged", args.privileged.then(|| "true".to_owned())),
        ("limit", number(args.limit)),
        ("follow", args.follow.then(|| "true".to_owned())),
    ];
    let query: Vec<Pair> = all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    host.lines("/api/log", &query, |line| {
        if out.json {
            out.line(line)?;
        } else {
            out.event(&event_of(line)?)?;
        }
        if args.follow { out.flush() } else { Ok(()) }
    })
}

fn event_of(line: &str) -> Result<EventLine, CliFault> {
    serde_json::from_str(line).map_err(|error| CliFault::Failed(format!("the host answered something else: {error}")))
}

fn list_of_directory(
    directory: &OpenDirectory,
    channel: Option<&str>,
    filter: EventFilter,
    out: &mut Out,
) -> Result<(), CliFault> {
    let scope = match channel {
        Some(uri) => match inspect::find_channel(&directory.store, uri)? {
            Some((_, id)) => Scope::Channels(vec![id]),
            None => return Err(CliFault::Failed(format!("there is no channel {uri}"))),
        },
        None => Scope::All,
    };
    let mut reading = Reading::new(scope, filter, None);
    while let Some(records) = reading.next_page(&directory.store)? {
        for line in records.iter().map(EventLine::from) {
            if out.json { out.line(&line.json())? } else { out.event(&line)? }
        }
    }
    Ok(())
}

fn show(seq: u64, place: &Place, environment: &Environment) -> Result<(), CliFault> {
    let event = match reach(place, environment)? {
        Reach::Host(host) => host.object(&format!("/api/log/{seq}"), &[])?,
        Reach::Directory(directory) => {
            let found = inspect::event_at(&directory.store, seq)?;
            EventLine::from(&found.ok_or_else(|| CliFault::Failed(format!("there is no event {seq}")))?)
        }
    };
    let mut out = Out::new(place.json, environment);
    if out.json {
        out.object(&event)?
    } else {
        out.whole_event(&event)?
    }
    out.flush()
}

fn state(uri: &str, at: Option<u64>, place: &Place, environment: &Environment) -> Result<(), CliFault> {
    let snapshot: Value = match reach(place, environment)? {
        Reach::Host(host) => {
            let mut query = vec![("channel", uri.to_owned())];
            query.extend(at.map(|at| ("at", at.to_string())));
            host.object("/api/state", &query)?
        }
        Reach::Directory(directory) => {
            let snapshot = inspect::state_at(&directory.store, uri, at)?;
            serde_json::from_str(&snapshot.json()).map_err(|error| CliFault::Failed(error.to_string()))?
        }
    };
    let mut out = Out::new(place.json, environment);
    if out.json {
        out.object(&snapshot)?
    } else {
        out.state(&snapshot)?
    }
    out.flush()
}

fn diff(uri: &str, (from, to): (u64, u64), place: &Place, environment: &Environment) -> Result<(), CliFault> {
    let patch: Patch = match reach(place, environment)? {
        Reach::Host(host) => {
            let query = [("channel", uri.to_owned()), ("from", from.to_string()), ("to", to.to_string())];
            host.object("/api/diff", &query)?
        }
        Reach::Directory(directory) => {
            inspect::diff(|at| inspect::state_at(&directory.store, uri, Some(at)), from, to)?
        }
    };
    let mut out = Out::new(place.json, environment);
    if out.json {
        out.object(&patch)?
    } else {
        out.patch(&patch)?
    }
    out.flush()
}

fn verify(place: &Place, environment: &Environment) -> Result<(), CliFault> {
    let verdict: Verdict = match Reach::of(place, Access::Salvage, environment)? {
        Reach::Host(host) => host.object("/api/log/verify", &[])?,
        Reach::Directory(directory) => {
            let verdict = with_progress(|progress| inspect::verify(&directory.store, progress));
            verdict.or_fault(directory.store.lost())
        }
    };
    let mut out = Out::new(place.json, environment);
    if out.json {
        out.object(&verdict)?
    } else {
        out.verdict(&verdict)?
    }
    out.flush()?;
    if verdict.ok { Ok(()) } else { Err(CliFault::Said) }
}

/// Runs `work`, which says on a terminal how far it is, and nothing elsewhere.
pub fn with_progress<T>(work: impl FnOnce(&mut dyn FnMut(u64)) -> T) -> T {
    let mut terminal = std::io::stderr();
    if !terminal.is_terminal() {
        return work(&mut |_| ());
    }
    // A terminal that is gone wants no progress.
    let done = work(&mut |events| drop(write!(std::io::stderr(), "\r{events} events read\x1b[K")));
    let _ = write!(terminal, "\r\x1b[K");
    done
}

fn stats(place: &Place, environment: &Environment) -> Result<(), CliFault> {
    let stats = match reach(place, environment)? {
        Reach::Host(host) => host.object("/api/log/stats", &[])?,
        Reach::Directory(directory) => LogStats::of(&directory.store)?,
    };
    let mut out = Out::new(place.json, environment);
    if out.json {
        out.object(&stats)?
    } else {
        out.stats(&stats)?
    }
    out.flush()
}
