//! Which events somebody wants to see.

use globset::{GlobBuilder, GlobMatcher};

use super::privileged::is_privileged;
use crate::clock::{self, Millis};
use crate::events::{Kind, Record, ServerSeq};
use crate::projections::action::type_of;

/// A filter as it was written, on the command line or in a query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RawFilter {
    /// A glob over the type, such as `chat/*`; `*` also stands for slashes.
    pub kind: Option<String>,
    pub after: Option<ServerSeq>,
    pub before: Option<ServerSeq>,
    /// RFC 3339, or a duration back from now.
    pub since: Option<String>,
    pub by: Option<String>,
    /// Only what an audit looks for.
    pub privileged: bool,
    pub limit: Option<u64>,
}

/// A part of a filter that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {problem}")]
pub struct BadFilter {
    /// The parameter: `type`, `since` or `until`.
    pub name: &'static str,
    pub problem: String,
}

/// Which events of a channel or of the whole log are wanted. All conditions hold at once.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    /// Whether records of the host are left out.
    actions_only: bool,
    kind: Option<GlobMatcher>,
    since: Option<Millis>,
    by: Option<String>,
    privileged: bool,
    /// Later ones only.
    pub after: ServerSeq,
    /// Earlier ones only; `None`: up to the newest.
    pub before: Option<ServerSeq>,
    /// At most so many.
    pub limit: Option<u64>,
}

impl EventFilter {
    /// What clients may see, after `after`.
    pub fn actions(after: ServerSeq, limit: Option<u64>) -> Self {
        Self { actions_only: true, after, limit, ..Self::default() }
    }

    /// Reads `raw`; `now` is what a duration counts back from.
    ///
    /// # Errors
    /// [`BadFilter`] with the part that cannot be read.
    pub fn parse(raw: RawFilter, now: Millis) -> Result<Self, BadFilter> {
        Ok(Self {
            actions_only: false,
            kind: raw.kind.as_deref().map(glob).transpose()?,
            since: raw.since.as_deref().map(|text| time("since", text, now)).transpose()?,
            by: raw.by,
            privileged: raw.privileged,
            after: raw.after.unwrap_or(0),
            before: raw.before,
            limit: raw.limit,
        })
    }

    /// Whether `record` is of the wanted type, time and person. Its place on the line is not looked at.
    pub fn wants(&self, record: &Record) -> bool {
        (!self.actions_only || record.kind == Kind::Action)
            && self.since.is_none_or(|since| record.at >= since)
            && self.by.as_deref().is_none_or(|by| record.principal == by)
            && (!self.privileged || is_privileged(record))
            && self.kind.as_ref().is_none_or(|glob| glob.is_match(&*type_of(&record.action)))
    }
}

fn glob(text: &str) -> Result<GlobMatcher, BadFilter> {
    let glob = GlobBuilder::new(text).literal_separator(false).build();
    let problem = |error: globset::Error| BadFilter { name: "type", problem: error.kind().to_string() };
    Ok(glob.map_err(problem)?.compile_matcher())
}

/// The time that `text` names in the parameter `name`: RFC 3339, or a duration back from now.
///
/// # Errors
/// [`BadFilter`] for another text.
pub fn time(name: &'static str, text: &str, now: Millis) -> Result<Millis, BadFilter> {
    if let Some(at) = clock::parse_rfc3339(text) {
        return Ok(at);
    }
    let back = humantime::parse_duration(text).ok().and_then(|back| i64::try_from(back.as_millis()).ok());
    let problem = || format!("\"{text}\" is neither an RFC 3339 time nor a duration such as 30d");
    Ok(now.saturating_sub(back.ok_or_else(|| BadFilter { name, problem: problem() })?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{Channel, ChannelId};

    fn record(kind: &str, at: Millis, principal: &str) -> Record {
        Record {
            seq: 1,
            channel: Channel::root(),
            channel_id: ChannelId::ROOT,
            kind: Kind::Action,
            at,
            principal: principal.into(),
            origin: None,
            about: None,
            covers_from: None,
            batch: (1, 1),
            action: format!(r#"{{"x":{{"type":"no"}},"type":"{kind}"}}"#).into(),
        }
    }

    fn filter(raw: RawFilter) -> EventFilter {
        EventFilter::parse(raw, 1_000_000).unwrap()
    }

    #[test]
    fn a_glob_is_matched_against_the_whole_type() {
        let wants = |glob: &str, kind: &str| {
            filter(RawFilter { kind: Some(glob.into()), ..RawFilter::default() }).wants(&record(kind, 0, "host"))
        };
        assert!(wants("chat/*", "chat/delta"));
        assert!(!wants("chat/*", "session/ready"));
        assert!(!wants("chat", "chat/delta"));
        assert!(wants("*", "host/rewindPoint"));
        assert!(wants("{chat,session}/*", "session/ready"));
    }

    #[test]
    fn since_is_a_time_or_a_duration_back_from_now() {
        let at = |text: &str| filter(RawFilter { since: Some(text.into()), ..RawFilter::default() }).since.unwrap();
        assert_eq!(at("1970-01-01T00:00:05Z"), 5_000);
        assert_eq!(at("1970-01-01T02:00:05.5+02:00"), 5_500);
        assert_eq!(at("10s"), 990_000);
        assert_eq!(at("30d"), 1_000_000 - 30 * 86_400_000);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let of = |raw| EventFilter::parse(raw, 0).unwrap_err();
        assert_eq!(of(RawFilter { kind: Some("[".into()), ..RawFilter::default() }).name, "type");
        let since = of(RawFilter { since: Some("yesterday".into()), ..RawFilter::default() });
        assert_eq!(since.to_string(), "since: \"yesterday\" is neither an RFC 3339 time nor a duration such as 30d");
    }

    #[test]
    fn all_conditions_hold_at_once() {
        let raw = RawFilter {
            by: Some("user:ada".into()),
            since: Some("1970-01-01T00:00:05Z".into()),
            ..RawFilter::default()
        };
        let filter = filter(raw);
        assert!(filter.wants(&record("chat/delta", 5_000, "user:ada")));
        assert!(!filter.wants(&record("chat/delta", 4_999, "user:ada")));
        assert!(!filter.wants(&record("chat/delta", 5_000, "user:adam")));
    }
}
