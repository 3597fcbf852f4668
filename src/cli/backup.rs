//! `scrollback log export` and `log import`, `scrollback backup` and `restore`: a log on its way.
//!
//! Files are written by who runs the verb, also where a host has the log: it sends lines and writes nothing.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::args::{NewPlace, Place};
use super::client::Client;
use super::fault::CliFault;
use super::log::with_progress;
use super::out::Out;
use super::reach::{OpenDirectory, Reach};
use crate::backup::BackupFault;
use crate::backup::folder::{self, BackedUp, Backup};
use crate::backup::incoming::{By, Incoming, Lines, Loaded};
use crate::backup::line::Line;
use crate::backup::outgoing::{Outgoing, Wanted};
use crate::clock::{self, Clock};
use crate::config::Environment;
use crate::events::durable::sync_directory;
use crate::events::sled_store::Access;

/// How often a log that is changed while it is sent is asked for again.
const ATTEMPTS: u32 = 3;

/// `log export [--channel URI] [-o FILE]`.
pub fn export(
    channel: Option<&str>,
    output: Option<&Path>,
    place: &Place,
    environment: &Environment,
) -> Result<(), CliFault> {
    let wanted = Wanted { channel: channel.map(str::to_owned), ..Wanted::default() };
    let reach = Reach::of(place, Access::Salvage, environment)?;
    let mut sink = Sink::of(output)?;
    let events = with_progress(|progress| match &reach {
        Reach::Host(host) => {
            let query: Vec<_> = channel.map(|channel| ("channel", channel.to_owned())).into_iter().collect();
            let mut lines = Lines::of(host.address().to_owned(), BufReader::new(host.get("/api/log/export", &query)?));
            exported(&mut lines, &mut sink, progress)
        }
        Reach::Directory(directory) => {
            let outgoing = Outgoing::of(&directory.store, directory.path(), &wanted, now())?;
            let mut events = 0;
            outgoing.send(&mut |line| sink.write(line), &mut |sent| {
                events = sent;
                progress(sent);
            })?;
            Ok(events)
        }
    });
    let events = sink.done(events)?;
    if let Reach::Directory(directory) = &reach
        && let Some(lost) = directory.store.lost()
    {
        return Err(CliFault::Failed(format!("{lost}; what is there was written")));
    }
    let Some(output) = output else { return Ok(()) };
    said(place.json, environment, json!({ "file": named(output), "events": events }), |_| {
        format!("exported {events} events to {}", output.display())
    })
}

fn exported<R: BufRead>(lines: &mut Lines<R>, sink: &mut Sink, progress: &mut dyn FnMut(u64)) -> Result<u64, CliFault> {
    lines.header()?;
    sink.write(lines.raw())?;
    let mut events = 0;
    lines.rest(|raw, line| {
        count(&line, &mut events, progress);
        sink.write(raw)
    })?;
    Ok(events)
}

/// `log import FILE`.
pub fn import(file: &Path, place: &NewPlace, environment: &Environment) -> Result<(), CliFault> {
    let data = place.data(environment);
    let name = file.display().to_string();
    let reader: Box<dyn Read> = match name.as_str() {
        "-" => Box::new(io::stdin()),
        _ => Box::new(File::open(file).map_err(|error| CliFault::Failed(format!("{name}: {error}")))?),
    };
    let mut lines = Lines::of(name, BufReader::with_capacity(256 << 10, reader));
    let loaded = with_progress(|progress| {
        let header = lines.header()?;
        if header.after > 0 {
            return Err(lines.fault(format!("it begins behind event {}: it is a part of a backup", header.after)));
        }
        let mut incoming = Incoming::begin(&data, None)?;
        let read = lines.rest(|_, line| {
            incoming.take(line)?;
            if incoming.events().is_multiple_of(10_000) {
                progress(incoming.events());
            }
            Ok(())
        });
        match read {
            Ok(()) => incoming.finish(header.next, header.channels, None, progress),
            Err(fault) => {
                incoming.abandon();
                Err(fault)
            }
        }
    })?;
    told(&data, loaded, "imported", place.json, environment)
}

/// `backup DIR`.
pub fn backup(directory: &Path, place: &Place, environment: &Environment) -> Result<(), CliFault> {
    let reach = Reach::of(place, Access::Read, environment)?;
    let backup = Backup::open(directory)?;
    if let Some(damage) = &backup.damage {
        // A terminal that is gone wants no message.
        let _ = writeln!(io::stderr(), "scrollback: {damage}: the backup is made anew");
    }
    let mut attempts = 0;
    let done = loop {
        attempts += 1;
        let since = backup.has().filter(|_| attempts == 1);
        let done = with_progress(|progress| match &reach {
            Reach::Host(host) => of_host(host, &backup, since, progress),
            Reach::Directory(open) => of_directory(open, &backup, since, progress),
        });
        match done {
            Err(Failed::Backup(BackupFault::Changed)) if attempts < ATTEMPTS => {}
            done => break done.map_err(CliFault::from)?,
        }
    };
    let mut shown = serde_json::to_value(&done).unwrap_or_default();
    if let Some(shown) = shown.as_object_mut() {
        shown.insert("directory".into(), named(directory));
    }
    let BackedUp { upto, events, written, bytes, .. } = done;
    said(place.json, environment, shown, |_| {
        format!("backed up to event {upto}: {events} new events, {written} bytes written, {bytes} in all")
    })
}

/// Why an attempt failed: to reach the host, or to write what it sent.
enum Failed {
    Cli(CliFault),
    Backup(BackupFault),
}

impl From<CliFault> for Failed {
    fn from(fault: CliFault) -> Self {
        Failed::Cli(fault)
    }
}

impl From<BackupFault> for Failed {
    fn from(fault: BackupFault) -> Self {
        Failed::Backup(fault)
    }
}

impl From<Failed> for CliFault {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Cli(fault) => fault,
            Failed::Backup(fault) => fault.into(),
        }
    }
}

type Since = Option<(u64, String)>;

fn of_host(host: &Client, backup: &Backup, since: Since, progress: &mut dyn FnMut(u64)) -> Result<BackedUp, Failed> {
    let asked = since.map_or_else(|| json!({}), |(after, print)| json!({ "after": after, "print": print }));
    let mut lines = Lines::of(host.address().to_owned(), BufReader::new(host.post_for_lines("/api/backup", &asked)?));
    let mut writing = backup.write(lines.header()?)?;
    let mut events = 0;
    lines.rest(|raw, line| {
        count(&line, &mut events, progress);
        writing.take(raw, &line)
    })?;
    Ok(writing.finish(progress)?)
}

fn of_directory(
    open: &OpenDirectory,
    backup: &Backup,
    since: Since,
    progress: &mut dyn FnMut(u64),
) -> Result<BackedUp, Failed> {
    let wanted = Wanted { since, secrets: true, channel: None };
    let outgoing = Outgoing::of(&open.store, open.path(), &wanted, now())?;
    let mut writing = backup.write(outgoing.header.clone())?;
    let parse = |raw: &[u8]| Line::parse(raw.strip_suffix(b"\n").unwrap_or(raw)).map_err(BackupFault::Refused);
    outgoing.send(&mut |raw| writing.take(raw, &parse(raw)?), progress)?;
    Ok(writing.finish(progress)?)
}

/// `restore DIR --data NEW [--at SEQ]`.
pub fn restore(
    directory: &Path,
    at: Option<u64>,
    data: &Path,
    json: bool,
    environment: &Environment,
) -> Result<(), CliFault> {
    let by = By { principal: format!("root:{}", environment.host_name()), at: Clock::system().now() };
    let loaded = with_progress(|progress| folder::restore(directory, data, at, &by, progress))?;
    told(data, loaded, "restored", json, environment)
}

fn told(data: &Path, loaded: Loaded, done: &str, json: bool, environment: &Environment) -> Result<(), CliFault> {
    let mut shown = serde_json::to_value(loaded).unwrap_or_default();
    if let Some(shown) = shown.as_object_mut() {
        shown.insert("data".into(), named(data));
    }
    let Loaded { events, upto, next, left_out_to, .. } = loaded;
    let cut = left_out_to
        .map(|last| format!("; what came next is one decision up to event {last}, and comes whole or not at all"));
    said(json, environment, shown, |_| {
        let cut = cut.unwrap_or_default();
        format!("{done} {events} events up to event {upto} into {}; the log goes on at {next}{cut}", data.display())
    })
}

/// A path in JSON, also one that is no UTF-8.
fn named(path: &Path) -> Value {
    json!(path.to_string_lossy())
}

fn said(
    json: bool,
    environment: &Environment,
    value: Value,
    words: impl FnOnce(&Value) -> String,
) -> Result<(), CliFault> {
    let mut out = Out::new(json, environment);
    if out.json {
        out.object(&value)?
    } else {
        out.line(&words(&value))?
    }
    out.flush()
}

fn count(line: &Line, events: &mut u64, progress: &mut dyn FnMut(u64)) {
    if matches!(line, Line::Record(_)) {
        *events += 1;
        if events.is_multiple_of(10_000) {
            progress(*events);
        }
    }
}

fn now() -> String {
    clock::rfc3339(Clock::system().now())
}

/// Where an export goes: stdout, a file that is there whole or not at all, or what is there and is no file, such as a pipe.
struct Sink {
    to: BufWriter<Box<dyn Write>>,
    /// Its name until it is whole, which nobody else gives, and then.
    file: Option<(PathBuf, PathBuf)>,
}

impl Sink {
    fn of(output: Option<&Path>) -> Result<Self, CliFault> {
        let Some(path) = output else {
            return Ok(Self { to: BufWriter::new(Box::new(io::stdout().lock())), file: None });
        };
        // What a link names is replaced, and not the link; what is no file is never replaced.
        let fault = |error: io::Error| CliFault::Failed(format!("{}: {error}", path.display()));
        let named = match fs::canonicalize(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => path.to_owned(),
            found => found.map_err(fault)?,
        };
        let is_file = fs::metadata(&named).map_or(true, |found| found.is_file());
        let mut temporary = OsString::from(".scrollback-");
        temporary.push(named.file_name().unwrap_or_default());
        let temporary = named.with_file_name(temporary);
        let opened = match is_file {
            true => OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary),
            false => OpenOptions::new().write(true).open(path),
        };
        let to: BufWriter<Box<dyn Write>> = BufWriter::with_capacity(256 << 10, Box::new(opened.map_err(fault)?));
        Ok(Self { to, file: is_file.then_some((temporary, named)) })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), BackupFault> {
        let name = self.file.as_ref().map_or(Path::new("the output"), |(_, path)| path.as_path());
        self.to.write_all(bytes).map_err(|source| match source.kind() {
            io::ErrorKind::BrokenPipe => BackupFault::Gone,
            _ => BackupFault::Io { path: name.to_owned(), source },
        })
    }

    /// Puts the file in its place where all of it was written, and takes it away where it was not.
    fn done(mut self, written: Result<u64, CliFault>) -> Result<u64, CliFault> {
        let written = written.and_then(|events| self.to.flush().map(|()| events).map_err(|e| CliFault::of_output(&e)));
        let Some((temporary, path)) = &self.file else { return written };
        let fault = |error: io::Error| CliFault::Failed(format!("{}: {error}", path.display()));
        let kept = written.and_then(|events| {
            File::open(temporary).and_then(|file| file.sync_all()).map_err(fault)?;
            fs::rename(temporary, path).map_err(fault)?;
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            sync_directory(folder).map_err(fault)?;
            Ok(events)
        });
        kept.inspect_err(|_| drop(fs::remove_file(temporary)))
    }
}
