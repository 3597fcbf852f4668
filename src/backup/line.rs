//! One line: a JSON object with what a log is made of, and a checksum of it.
//!
//! `{"header":…}` comes first; then the records, ascending, each an event as `log list --json` shows it and what else is stored of
//! it; then rows that no record says, and the pieces of attachments; `{"end":…}` comes last, so that a file which was cut off is
//! noticed. `{"failed":…}` ends what a host could not send to its end.
//!
//! Always: a record is read back to the byte. A line whose content is not what was written is refused.
//! Frozen by `docs/adr/0010-logs-as-lines.md`.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::attachments::FileRef;
use crate::clock;
use crate::events::{Channel, ChannelId, Kind, Origin, Record, ServerSeq, Table, codec};
use crate::projections::action::type_of;
use crate::projections::fact::Fact;

/// The format that this build writes and reads.
pub const FORMAT: u32 = 1;

/// Bytes of an attachment in one line.
pub const PIECE: usize = 512 << 10;

/// A line that was read.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    Header(Header),
    Record(Box<Record>),
    Row(Row),
    Piece(Piece),
    End(End),
    /// Why the rest does not come.
    Failed(String),
}

/// What the lines behind it are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// The version of Scrollback that wrote it.
    pub scrollback: String,
    pub format: u32,
    /// When, RFC 3339.
    pub at: String,
    /// The records behind this number; 0 for all.
    pub after: ServerSeq,
    /// The newest number that the log had.
    pub upto: ServerSeq,
    /// The number that its next event would have had.
    pub next: ServerSeq,
    /// The highest number of a channel.
    pub channels: u64,
    /// The one channel that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Whether the hashes of people's tokens are in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secrets: bool,
    /// What the newest record is known by; empty for an empty log.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub print: String,
}

/// A row that no record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub table: Table,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// A piece of an attachment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub file: FileRef,
    /// How many bytes of it came before.
    pub offset: u64,
    pub is_last: bool,
    pub data: Vec<u8>,
}

/// How much there was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Lines before this one.
    pub lines: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordLine<'a> {
    server_seq: ServerSeq,
    #[serde(borrow)]
    channel: Cow<'a, str>,
    channel_id: u64,
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    /// A fact of the host, which no client sees.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    host: bool,
    at: String,
    #[serde(borrow)]
    principal: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<OriginOfLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    about: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    covers_from: Option<ServerSeq>,
    batch: (ServerSeq, ServerSeq),
    bytes: usize,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    action: Option<&'a RawValue>,
    /// Instead of `action`, where its bytes would not come back from a line of JSON as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    crc: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OriginOfLine {
    client_id: String,
    client_seq: i64,
}

#[derive(Serialize, Deserialize)]
struct RowLine {
    table: char,
    key: String,
    value: String,
    crc: String,
}

#[derive(Serialize, Deserialize)]
struct PieceLine {
    folder: u64,
    name: String,
    offset: u64,
    last: bool,
    data: String,
    crc: String,
}

/// What a record is known by: its checksum with the name of its channel.
pub fn print(record: &Record) -> String {
    let mut bytes = Vec::with_capacity(record.action.len() + 100);
    // It has no reason to refuse a record that was read.
    let _ = codec::encode_record(record, &mut bytes);
    sum(&[&bytes, record.channel.as_str().as_bytes()])
}

/// The line of a record, with its end. Without `secrets` the hash of a token is left out of it.
///
/// # Errors
/// What makes it no line.
pub fn of_record(record: &Record, secrets: bool) -> Result<Vec<u8>, String> {
    if !secrets && let Some(told) = without_hash(record) {
        return of_record(&told, true);
    }
    let raw = (!record.action.contains(&b'\n') && !record.action.contains(&b'\r'))
        .then(|| serde_json::from_slice::<&RawValue>(&record.action).ok())
        .flatten()
        .filter(|raw| raw.get().len() == record.action.len());
    let at = clock::rfc3339(record.at);
    if clock::parse_rfc3339(&at) != Some(record.at) {
        return Err(format!("event {} has the time {}, which cannot be written down", record.seq, record.at));
    }
    let line = RecordLine {
        server_seq: record.seq,
        channel: record.channel.as_str().into(),
        channel_id: record.channel_id.0,
        kind: type_of(&record.action),
        host: record.kind == Kind::Host,
        at,
        principal: record.principal.as_str().into(),
        origin: record
            .origin
            .as_ref()
            .map(|o| OriginOfLine { client_id: o.client_id.clone(), client_seq: o.client_seq }),
        about: record.about.map(|chat| chat.0),
        covers_from: record.covers_from,
        batch: record.batch,
        bytes: record.action.len(),
        action: raw,
        base64: raw.is_none().then(|| STANDARD.encode(&record.action)),
        crc: print(record),
    };
    text(&line)
}

/// The record of a token without its hash; `None` for every other record.
fn without_hash(record: &Record) -> Option<Record> {
    if record.kind != Kind::Host || type_of(&record.action) != "host/userTokenMade" {
        return None;
    }
    match Fact::from_stored(&record.action).ok()? {
        Fact::UserTokenMade { user, id, hash, expires_at, replaces } if !hash.is_empty() => {
            let fact = Fact::UserTokenMade { user, id, hash: String::new(), expires_at, replaces };
            Some(Record { action: fact.bytes(), ..record.clone() })
        }
        _ => None,
    }
}

impl Line {
    /// The line as JSON, with its end.
    ///
    /// # Errors
    /// What makes it no line.
    pub fn to_bytes(&self) -> Result<Vec<u8>, String> {
        match self {
            Line::Header(header) => text(&serde_json::json!({ "header": header })),
            Line::Record(record) => of_record(record, true),
            Line::Row(row) => {
                let (table, crc) = (char::from(row.table as u8), sum(&[&row.key, &row.value]));
                let line = RowLine { table, key: STANDARD.encode(&row.key), value: STANDARD.encode(&row.value), crc };
                text(&serde_json::json!({ "row": line }))
            }
            Line::Piece(piece) => {
                let line = PieceLine {
                    folder: piece.file.folder,
                    name: piece.file.text(),
                    offset: piece.offset,
                    last: piece.is_last,
                    data: STANDARD.encode(&piece.data),
                    crc: sum(&[piece.file.text().as_bytes(), &piece.offset.to_be_bytes(), &piece.data]),
                };
                text(&serde_json::json!({ "attachment": line }))
            }
            Line::End(end) => text(&serde_json::json!({ "end": end })),
            Line::Failed(message) => text(&serde_json::json!({ "failed": message })),
        }
    }

    /// Reads a line, without its end.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Named {
            header: Option<Header>,
            row: Option<RowLine>,
            attachment: Option<PieceLine>,
            end: Option<End>,
            failed: Option<String>,
        }
        if line.starts_with(b"{\"serverSeq\":") {
            return parse_record(line).map(|record| Line::Record(Box::new(record)));
        }
        let named: Named = serde_json::from_slice(line).map_err(|error| not_json(&error))?;
        match named {
            Named { header: Some(header), .. } if header.format > FORMAT => Err(format!(
                "written by a newer Scrollback ({}, format {}), this one reads format {FORMAT}",
                header.scrollback, header.format
            )),
            Named { header: Some(header), .. } => Ok(Line::Header(header)),
            Named { row: Some(row), .. } => parse_row(&row).map(Line::Row),
            Named { attachment: Some(piece), .. } => parse_piece(&piece).map(Line::Piece),
            Named { end: Some(end), .. } => Ok(Line::End(end)),
            Named { failed: Some(message), .. } => Ok(Line::Failed(message)),
            _ => Err("it is no line of a Scrollback log".into()),
        }
    }
}

fn parse_record(line: &[u8]) -> Result<Record, String> {
    let line: RecordLine<'_> = serde_json::from_slice(line).map_err(|error| not_json(&error))?;
    let action = match (line.action, &line.base64) {
        (Some(action), None) => Bytes::copy_from_slice(action.get().as_bytes()),
        (None, Some(text)) => Bytes::from(STANDARD.decode(text).map_err(|error| error.to_string())?),
        _ => return Err("it has no action".into()),
    };
    let record = Record {
        seq: line.server_seq,
        channel: Channel::from(line.channel.into_owned()),
        channel_id: ChannelId(line.channel_id),
        kind: if line.host { Kind::Host } else { Kind::Action },
        at: clock::parse_rfc3339(&line.at).ok_or("its time cannot be read")?,
        principal: line.principal.into_owned(),
        origin: line.origin.map(|o| Origin { client_id: o.client_id, client_seq: o.client_seq }),
        about: line.about.map(ChannelId),
        covers_from: line.covers_from,
        batch: line.batch,
        action,
    };
    if line.bytes != record.action.len() || type_of(&record.action) != line.kind {
        return Err(changed());
    }
    checked(&line.crc, &print(&record))?;
    Ok(record)
}

fn parse_row(line: &RowLine) -> Result<Row, String> {
    let table = Table::ALL.iter().find(|table| char::from(**table as u8) == line.table);
    let table = *table.ok_or_else(|| format!("there is no table {}", line.table))?;
    let decoded = |text: &str| STANDARD.decode(text).map_err(|error| error.to_string());
    let row = Row { table, key: decoded(&line.key)?, value: decoded(&line.value)? };
    checked(&line.crc, &sum(&[&row.key, &row.value]))?;
    Ok(row)
}

fn parse_piece(line: &PieceLine) -> Result<Piece, String> {
    let file = FileRef::of_name(line.folder, &line.name).ok_or("its name is none of an attachment")?;
    let data = STANDARD.decode(&line.data).map_err(|error| error.to_string())?;
    checked(&line.crc, &sum(&[line.name.as_bytes(), &line.offset.to_be_bytes(), &data]))?;
    Ok(Piece { file, offset: line.offset, is_last: line.last, data })
}

fn not_json(error: &serde_json::Error) -> String {
    format!("it cannot be read: {error}")
}

fn changed() -> String {
    "it is not what was written: its checksum is wrong".into()
}

fn checked(stored: &str, computed: &str) -> Result<(), String> {
    if stored == computed { Ok(()) } else { Err(changed()) }
}

/// A CRC-32 (IEEE) of the parts in a row, in hexadecimal.
fn sum(parts: &[&[u8]]) -> String {
    let mut hasher = crc32fast::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    format!("{:08x}", hasher.finalize())
}

fn text(line: &impl Serialize) -> Result<Vec<u8>, String> {
    let mut bytes = serde_json::to_vec(line).map_err(|error| error.to_string())?;
    bytes.push(b'\n');
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(action: &[u8]) -> Record {
        Record {
            seq: 7,
            channel: "ahp-chat:/c\"ü".into(),
            channel_id: ChannelId(3),
            kind: Kind::Action,
            at: 1_795_000_000_123,
            principal: "user:ann".into(),
            origin: Some(Origin { client_id: "c\n1".into(), client_seq: -2 }),
            about: Some(ChannelId(9)),
            covers_from: Some(5),
            batch: (4, 8),
            action: Bytes::copy_from_slice(action),
        }
    }

    fn back(bytes: &[u8]) -> Result<Line, String> {
        assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 1);
        Line::parse(bytes.strip_suffix(b"\n").unwrap())
    }

    #[test]
    fn the_line_of_a_record_is_frozen() {
        let line = String::from_utf8(of_record(&record(br#"{"type":"chat/delta","a":1.0}"#), true).unwrap()).unwrap();
        let frozen = r#"{"serverSeq":7,"channel":"ahp-chat:/c\"ü","channelId":3,"type":"chat/delta","at":"2026-11-18T11:06:40.123Z","principal":"user:ann","origin":{"clientId":"c\n1","clientSeq":-2},"about":9,"coversFrom":5,"batch":[4,8],"bytes":29,"action":{"type":"chat/delta","a":1.0},"crc":"FROZEN"}"#;
        let crc = line.rsplit_once("\"crc\":\"").unwrap().1.get(..8).unwrap().to_owned();
        assert_eq!(line, frozen.replace("FROZEN", &crc) + "\n");
    }

    #[test]
    fn an_action_comes_back_to_the_byte() {
        for action in [
            br#"{"type":"x","n":1.00}"#.as_slice(),
            b"{\n\"type\":\"x\"}",
            b" {\"type\":\"x\"} ",
            b"no json",
            b"",
            b"\xff\xfe",
        ] {
            let record = record(action);
            let line = of_record(&record, true).unwrap();
            assert_eq!(back(&line).unwrap(), Line::Record(Box::new(record)));
        }
    }

    #[test]
    fn every_other_line_comes_back() {
        let file = FileRef { folder: 7, name: 0xabc };
        for line in [
            Line::Row(Row { table: Table::Dispatched, key: vec![0, 255], value: Vec::new() }),
            Line::Piece(Piece { file, offset: 9, is_last: true, data: vec![1, 2, 3] }),
            Line::End(End { lines: 3 }),
            Line::Failed("no".into()),
        ] {
            assert_eq!(back(&line.to_bytes().unwrap()).unwrap(), line);
        }
    }

    #[test]
    fn what_was_edited_is_refused() {
        let line = String::from_utf8(of_record(&record(br#"{"type":"x","text":"one"}"#), true).unwrap()).unwrap();
        for (from, to) in [("one", "two"), ("user:ann", "user:bob"), ("[4,8]", "[4,9]"), ("ahp-chat:/c", "ahp-chat:/d")]
        {
            let edited = line.replace(from, to);
            assert_ne!(edited, line);
            assert!(back(edited.as_bytes()).unwrap_err().contains("not what was written"), "{edited}");
        }
        assert!(Line::parse(b"{\"else\":1}").unwrap_err().contains("no line of a Scrollback log"));
    }

    #[test]
    fn the_hash_of_a_token_leaves_with_secrets_alone() {
        let fact = Fact::UserTokenMade {
            user: "ada".into(),
            id: "t".into(),
            hash: "ab".repeat(32),
            expires_at: None,
            replaces: false,
        };
        let record = Record { kind: Kind::Host, ..record(&fact.bytes()) };
        let has_it = |secrets| String::from_utf8(of_record(&record, secrets).unwrap()).unwrap().contains("abab");
        assert!(has_it(true) && !has_it(false));
        assert!(back(&of_record(&record, false).unwrap()).is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_line_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Line::parse(&bytes);
        }
    }
}
