//! Log lines as records of OTLP/JSON, gathered for a moment and handed on from a thread of their own.

use std::fmt::Debug;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::clock::Clock;

/// Records that may wait for the thread; more are dropped, and counted.
const WAITING: usize = 4_096;
/// How long records are gathered, and how many at most.
const GATHERED: Duration = Duration::from_millis(100);
const AT_ONCE: usize = 512;

/// How grave a record is: the first number of its band in OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Trace = 1,
    Debug = 5,
    Info = 9,
    Warn = 13,
    Error = 17,
    Fatal = 21,
}

impl Severity {
    /// All, from the least.
    pub const ALL: [Self; 6] = [Self::Trace, Self::Debug, Self::Info, Self::Warn, Self::Error, Self::Fatal];

    /// The one with this short name, in any case.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name().eq_ignore_ascii_case(name))
    }

    /// Its short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Fatal => "fatal",
        }
    }

    fn of_level(level: Level) -> Self {
        match level {
            Level::TRACE => Self::Trace,
            Level::DEBUG => Self::Debug,
            Level::INFO => Self::Info,
            Level::WARN => Self::Warn,
            Level::ERROR => Self::Error,
        }
    }
}

/// One log line.
#[derive(Debug, Clone)]
pub struct Record {
    pub severity: Severity,
    /// A `LogRecord` of OTLP/JSON.
    json: String,
}

/// The `ExportLogsServiceRequest` with those records that are at least so grave; `None` where there are none.
pub fn payload(records: &[Record], least: Severity) -> Option<String> {
    let told: Vec<&str> = records.iter().filter(|r| r.severity >= least).map(|r| r.json.as_str()).collect();
    if told.is_empty() {
        return None;
    }
    let attribute = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
    let resource = json!({ "attributes": [
        attribute("service.name", env!("CARGO_PKG_NAME")), attribute("service.version", env!("CARGO_PKG_VERSION"))] });
    let scope = json!({ "name": env!("CARGO_PKG_NAME") });
    Some(format!(
        r#"{{"resourceLogs":[{{"resource":{resource},"scopeLogs":[{{"scope":{scope},"logRecords":[{}]}}]}}]}}"#,
        told.join(",")
    ))
}

/// Takes what is logged of this crate, and tells it to the readers of [`super::read_by`].
pub struct ToClients {
    sender: SyncSender<Record>,
    clock: Clock,
}

impl ToClients {
    /// Starts the thread that hands records on.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(clock: Clock) -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING);
        std::thread::Builder::new().name("logs".into()).spawn(move || hand_on(&receiver))?;
        Ok(Self { sender, clock })
    }
}

fn hand_on(receiver: &Receiver<Record>) {
    while let Ok(first) = receiver.recv() {
        let (mut records, until) = (vec![first], Instant::now() + GATHERED);
        while records.len() < AT_ONCE {
            match receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(record) => records.push(record),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        super::tell(&records.into());
    }
}

/// The fields of an event or a span as attributes.
#[derive(Default)]
struct Fields {
    message: String,
    attributes: Map<String, Value>,
}

impl Fields {
    fn set(&mut self, field: &Field, value: Value) {
        self.attributes.insert(field.name().to_owned(), value);
    }
}

impl Visit for Fields {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, json!({ "intValue": value.to_string() }));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, json!({ "intValue": value.to_string() }));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, json!({ "boolValue": value }));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, json!({ "stringValue": value }));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.set(field, json!({ "stringValue": text }));
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for ToClients {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        span.extensions_mut().insert(fields);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        // What its libraries log may come of telling it.
        if !metadata.target().starts_with(env!("CARGO_PKG_NAME")) {
            return;
        }
        let mut fields = Fields::default();
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(of_span) = span.extensions().get::<Fields>() {
                fields.attributes.extend(of_span.attributes.clone());
            }
        }
        event.record(&mut fields);
        fields.attributes.insert("code.namespace".into(), json!({ "stringValue": metadata.target() }));
        let severity = Severity::of_level(*metadata.level());
        let now = (i128::from(self.clock.now()) * 1_000_000).to_string();
        let attributes: Vec<Value> =
            fields.attributes.into_iter().map(|(key, value)| json!({ "key": key, "value": value })).collect();
        let json = json!({
            "timeUnixNano": now, "observedTimeUnixNano": now, "severityNumber": severity as u8,
            "severityText": severity.name(), "body": { "stringValue": fields.message }, "attributes": attributes,
        });
        if self.sender.try_send(Record { severity, json: json.to_string() }).is_err() {
            metrics::counter!("scrollback_log_records_dropped_total").increment(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    struct Kept(Mutex<Sender<Arc<[Record]>>>);

    impl super::super::Reader for Kept {
        fn told(&self, records: &Arc<[Record]>) {
            let _ = self.0.lock().unwrap().send(Arc::clone(records));
        }
    }

    #[test]
    fn a_line_is_a_record_with_its_fields_and_those_of_the_spans_around_it() {
        let (sender, told) = channel();
        let kept: Arc<dyn super::super::Reader> = Arc::new(Kept(Mutex::new(sender)));
        super::super::read_by(Arc::downgrade(&kept));
        let layer = ToClients::start(Clock::fixed(1_500)).unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::info_span!("request", method = "ping", id = 7).in_scope(|| {
                tracing::warn!(problem = %"no disk", count = 3, "it failed");
            });
            tracing::info!(target: "sled", "of a library");
            tracing::info!("done");
        });
        let mut records: Vec<Record> = Vec::new();
        while records.len() < 2 {
            records.extend(told.recv_timeout(Duration::from_secs(30)).unwrap().iter().cloned());
        }
        let all: Value = serde_json::from_str(&payload(&records, Severity::Trace).unwrap()).unwrap();
        let records_of = |all: &Value| all["resourceLogs"][0]["scopeLogs"][0]["logRecords"].clone();
        let both = records_of(&all);
        assert_eq!(both.as_array().unwrap().len(), 2, "{both}");
        assert_eq!(both[0]["body"]["stringValue"], "it failed");
        assert_eq!((&both[0]["severityNumber"], &both[0]["timeUnixNano"]), (&json!(13), &json!("1500000000")));
        let attribute = |key: &str| {
            let attributes = both[0]["attributes"].as_array().unwrap();
            attributes.iter().find(|attribute| attribute["key"] == key).unwrap()["value"].clone()
        };
        assert_eq!(attribute("problem"), json!({ "stringValue": "no disk" }));
        assert_eq!(attribute("count"), json!({ "intValue": "3" }));
        assert_eq!(
            (attribute("method"), attribute("id")),
            (json!({ "stringValue": "ping" }), json!({ "intValue": "7" }))
        );
        let grave: Value = serde_json::from_str(&payload(&records, Severity::Warn).unwrap()).unwrap();
        assert_eq!(records_of(&grave).as_array().unwrap().len(), 1);
        assert_eq!(payload(&records, Severity::Error), None);
    }

    #[test]
    fn a_severity_has_its_short_name_in_any_case() {
        assert_eq!(Severity::of("WARN"), Some(Severity::Warn));
        assert_eq!(Severity::of("info"), Some(Severity::Info));
        assert_eq!(Severity::of("verbose"), None);
    }
}
