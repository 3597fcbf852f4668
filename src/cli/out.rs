//! What is printed on stdout.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use json_patch::Patch;
use serde::Serialize;
use serde_json::Value;

use super::fault::CliFault;
use crate::admin::inspect::{EventLine, LogStats, Verdict};
use crate::config::Environment;

/// Stdout, as JSON or as text for people.
pub struct Out {
    pub json: bool,
    colours: bool,
    stdout: BufWriter<StdoutLock<'static>>,
}

const DIM: &str = "\x1b[2m";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

impl Out {
    /// Colours are for terminals whose user did not ask for none.
    pub fn new(json: bool, environment: &Environment) -> Self {
        let stdout = io::stdout();
        let colours = stdout.is_terminal() && !environment.no_color();
        Self { json, colours, stdout: BufWriter::new(stdout.lock()) }
    }

    /// Bytes as they are, at once.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), CliFault> {
        self.stdout.write_all(bytes).and_then(|()| self.stdout.flush()).map_err(|error| CliFault::of_output(&error))
    }

    /// One line; it may wait for [`Out::flush`].
    pub fn line(&mut self, line: &str) -> Result<(), CliFault> {
        writeln!(self.stdout, "{line}").map_err(|error| CliFault::of_output(&error))
    }

    /// Hands over what waits.
    pub fn flush(&mut self) -> Result<(), CliFault> {
        self.stdout.flush().map_err(|error| CliFault::of_output(&error))
    }

    /// One object.
    pub fn object(&mut self, value: &impl Serialize) -> Result<(), CliFault> {
        let text = serde_json::to_string(value).map_err(|error| CliFault::Failed(error.to_string()))?;
        self.line(&text)
    }

    fn painted(&self, paint: &str, text: &str) -> String {
        if self.colours { format!("{paint}{text}{PLAIN}") } else { text.to_owned() }
    }

    /// One event of a list, for people.
    pub fn event(&mut self, event: &EventLine) -> Result<(), CliFault> {
        let seq = self.painted(BOLD, &format!("{:>8}", event.server_seq));
        let rest =
            self.painted(DIM, &format!("{:<12}  {}  {} B", event.principal, visible(&event.channel), event.bytes));
        let mark = if event.privileged { "!" } else { " " };
        self.line(&format!("{seq} {mark}{}  {:<30}  {rest}", event.at, visible(&event.kind)))
    }

    /// One event, whole, for people.
    pub fn whole_event(&mut self, event: &EventLine) -> Result<(), CliFault> {
        let origin = event.origin.as_ref().map(|o| format!("{} {}", o.client_id, o.client_seq));
        let fields = [
            ("serverSeq", event.server_seq.to_string()),
            ("channel", visible(&event.channel)),
            ("type", event.kind.clone()),
            ("at", event.at.clone()),
            ("principal", event.principal.clone()),
            ("privileged", if event.privileged { "yes" } else { "no" }.into()),
            ("origin", origin.unwrap_or_else(|| "the host".into())),
            ("bytes", event.bytes.to_string()),
        ];
        self.fields(&fields)?;
        self.pretty(event.action.get())
    }

    /// A snapshot `{resource, state, fromSeq}`, for people.
    pub fn state(&mut self, snapshot: &Value) -> Result<(), CliFault> {
        let text = |key: &str| match snapshot.get(key) {
            Some(Value::String(text)) => text.clone(),
            other => other.map(Value::to_string).unwrap_or_default(),
        };
        self.fields(&[("resource", text("resource")), ("fromSeq", text("fromSeq"))])?;
        if snapshot.get("folded").is_some() {
            self.fields(&[("folded", text("folded"))])?;
        }
        self.pretty(&text("state"))
    }

    /// What changed, for people: a line for each change.
    pub fn patch(&mut self, patch: &Patch) -> Result<(), CliFault> {
        for change in &patch.0 {
            let change = serde_json::to_value(change).unwrap_or_default();
            let text = |key: &str| change.get(key).and_then(Value::as_str).map(visible).unwrap_or_default();
            let (what, path) = (self.painted(BOLD, &format!("{:<7}", text("op"))), text("path"));
            match change.get("value") {
                Some(value) => self.line(&format!("{what}  {path}  {}", visible(&value.to_string())))?,
                None => self.line(&format!("{what}  {path}"))?,
            }
        }
        if patch.0.is_empty() { self.line("nothing changed") } else { Ok(()) }
    }

    /// What is said of an agent, for people.
    pub fn agent(&mut self, report: &Value) -> Result<(), CliFault> {
        let text = |key: &str| report.get(key).and_then(Value::as_str).map(visible).unwrap_or_default();
        let provider = self.painted(BOLD, &format!("{:<12}", text("provider")));
        let able = report.get("capabilities").and_then(Value::as_object).into_iter().flatten();
        let able: Vec<&str> =
            able.filter(|(_, can)| can.as_bool() == Some(true)).map(|(name, _)| name.as_str()).collect();
        let (says, rest) = match report.get("starts").and_then(Value::as_bool) {
            Some(true) => (format!("starts  {}", text("version")), able.join(", ")),
            _ => ("does not start".to_owned(), text("problem")),
        };
        let rest = self.painted(DIM, &rest);
        self.line(&format!("{provider}  {:<20}  {}  {rest}", text("displayName"), says.trim_end()))
    }

    /// Somebody on the list, for people.
    pub fn person(&mut self, person: &Value) -> Result<(), CliFault> {
        let name = self
            .painted(BOLD, &format!("{:<20}", visible(person.get("name").and_then(Value::as_str).unwrap_or_default())));
        let list = |key: &str| person.get(key).and_then(Value::as_array).into_iter().flatten();
        let words = list("roles").chain(list("grants")).filter_map(Value::as_str).map(visible);
        let words = words.collect::<Vec<_>>().join(", ");
        let ends = |token: &Value| token.get("expiresAt").and_then(Value::as_str).map(str::to_owned);
        let latest = list("tokens").map(ends).max_by_key(|end| (end.is_none(), end.clone()));
        let tokens = match latest {
            None => "no token".to_owned(),
            Some(None) => "a token for good".to_owned(),
            Some(Some(end)) => format!("a token until {end}"),
        };
        let tokens = self.painted(DIM, &tokens);
        self.line(&format!("{name}  {:<40}  {tokens}", if words.is_empty() { "nothing" } else { &words }))
    }

    /// The sums of a log, for people.
    pub fn stats(&mut self, stats: &LogStats) -> Result<(), CliFault> {
        self.fields(&[
            ("events", stats.events.to_string()),
            ("bytes", stats.bytes.to_string()),
            ("disk bytes", stats.disk_bytes.to_string()),
            ("oldest", stats.oldest.to_string()),
            ("newest", stats.newest.to_string()),
        ])?;
        let channels = stats.channels.iter().map(|c| (c.events, c.bytes, c.channel.as_str()));
        self.sums("channel", channels.collect())?;
        self.sums("type", stats.types.iter().map(|t| (t.events, t.bytes, t.kind.as_str())).collect())
    }

    fn sums(&mut self, what: &str, rows: Vec<(u64, u64, &str)>) -> Result<(), CliFault> {
        let head = self.painted(BOLD, &format!("\n{:>10}  {:>14}  {what}", "events", "bytes"));
        self.line(&head)?;
        rows.into_iter().try_for_each(|(e, b, name)| self.line(&format!("{e:>10}  {b:>14}  {}", visible(name))))
    }

    /// What a verification found, for people.
    pub fn verdict(&mut self, verdict: &Verdict) -> Result<(), CliFault> {
        let Verdict { events, channels, checkpoints, .. } = verdict;
        let checked = format!("{events} events in {channels} channels, {checkpoints} checkpoints");
        match &verdict.fault {
            None => self.line(&format!("ok: {checked}")),
            Some(fault) => self.line(&format!("fault: {} (after {checked})", visible(fault))),
        }
    }

    fn fields(&mut self, fields: &[(&str, String)]) -> Result<(), CliFault> {
        for (name, value) in fields {
            let name = self.painted(DIM, &format!("{name:<10}"));
            self.line(&format!("{name}  {}", visible(value)))?;
        }
        Ok(())
    }

    fn pretty(&mut self, json: &str) -> Result<(), CliFault> {
        let value: Option<Value> = serde_json::from_str(json).ok();
        let text = value.and_then(|value| serde_json::to_string_pretty(&value).ok());
        text.as_deref().unwrap_or(json).lines().try_for_each(|line| self.line(&visible(line)))
    }
}

/// Text of a peer, without what a terminal would take for a command.
pub fn visible(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if c.is_control() || turns(c) { '\u{fffd}' } else { c }).collect()
}
