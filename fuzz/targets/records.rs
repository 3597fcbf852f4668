//! Bytes that a disk gives back: records, runs of them, and the rows beside the log.

use bytes::Bytes;
use scrollback::attachments::{FileRef, references};
use scrollback::events::codec::{self, CodecError, RECORD_VERSION};
use scrollback::events::rows::{self, ChannelRow, TurnRow};
use scrollback::events::sled_store::pieces::{self, Assembly};
use scrollback::events::sled_store::runs::{Directory, Run, RunWriter};
use scrollback::events::{Channel, ChannelId, Record};
use scrollback::projections::action::{self, Action};
use scrollback::projections::catalogue::CatalogueRow;
use scrollback::projections::chat::{ChatFold, Point};
use scrollback::projections::erasure::Erasure;
use scrollback::projections::fact::Fact;
use scrollback::projections::session::SessionFold;
use scrollback::projections::turns::{cursor, parse_cursor};
use scrollback::projections::visual::Visual;
use scrollback::protocol::clients::RememberedClient;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub fn run(data: &[u8]) {
    record(data);
    runs(data);
    in_pieces(data);
    keys(data);
    turn_row(data);
    json::<ChannelRow>(data);
    json::<CatalogueRow>(data);
    json::<RememberedClient>(data);
    json::<Erasure>(data);
    json::<Point>(data);
    json::<Visual>(data);
    checkpoints(data);
    let _ = action::type_of(data);
    let _ = Action::from_stored(Bytes::copy_from_slice(data));
    if let Ok(fact) = Fact::from_stored(data) {
        let again = Fact::from_stored(&fact.bytes()).expect("a stored fact is read back");
        assert_eq!(value(&again), value(&fact));
    }
}

fn decode(bytes: &Bytes) -> Result<Record, CodecError> {
    let channel = Channel::from("ahp-chat:/x");
    match codec::decode(bytes, &channel, ChannelId(1)) {
        Err(CodecError::Channel { found, .. }) => codec::decode(bytes, &channel, ChannelId(found)),
        decoded => decoded,
    }
}

/// As it is, and with the checksum made right: what decodes is decoded again from what it is encoded as.
fn record(data: &[u8]) {
    let _ = decode(&Bytes::copy_from_slice(data));
    let mut bytes = vec![RECORD_VERSION];
    bytes.extend_from_slice(data);
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
    let Ok(record) = decode(&Bytes::from(bytes)) else { return };
    let mut again = Vec::new();
    codec::encode_record(&record, &mut again).expect("a record is encoded");
    assert_eq!(decode(&Bytes::from(again)).as_ref(), Ok(&record));
}

fn runs(data: &[u8]) {
    if let Ok(directory) = Directory::parse(data) {
        assert_eq!(directory.to_bytes(), data);
    }
    let first = data.get(12..20).map_or(1, |bytes| u64::from_be_bytes(bytes.try_into().unwrap()));
    let _ = Run::parse_index(data, first);
    let Ok(run) = Run::parse(Bytes::copy_from_slice(data), first) else { return };
    let mut writer = RunWriter::new(run.previous);
    for (seq, range) in &run.entries {
        let record = run.record(range);
        let write = |out: &mut Vec<u8>| {
            out.extend_from_slice(&record);
            Ok(())
        };
        writer.push(*seq, write).expect("a record that was read is written");
    }
    assert_eq!(writer.finish(), data);
}

/// A value comes back from its pieces; bytes that are no piece are refused.
fn in_pieces(data: &[u8]) {
    let key = data.get(..9).unwrap_or(data);
    if let Ok(assembly) = Assembly::begin(key, data) {
        let _ = assembly.finish();
    }
    let mut stored = Vec::new();
    pieces::split(key, data, |key, piece| stored.push((key, piece))).expect("a small value is split");
    let (head, rest) = stored.split_first().expect("there is a first piece");
    let mut assembly = Assembly::begin(key, &head.1).expect("it begins with the first piece");
    for (key, piece) in rest {
        assembly.push(key, piece).expect("the next piece");
    }
    assert_eq!(assembly.finish().expect("all pieces are there"), data);
}

fn keys(data: &[u8]) {
    let _ = (rows::number_of_key(data), rows::leading_number(data), rows::owed_at(data));
    if let Some((file, rest)) = FileRef::parse_key(data) {
        assert_eq!([&file.key(), rest].concat(), data);
    }
    if let Some((chat, reference)) = references::parse_key(data) {
        assert_eq!(references::key(chat, &reference), data);
    }
    if let Some(oldest) = std::str::from_utf8(data).ok().and_then(|text| parse_cursor("ahp-chat:/c", text)) {
        assert_eq!(parse_cursor("ahp-chat:/c", &cursor("ahp-chat:/c", oldest)), Some(oldest));
    }
}

fn turn_row(data: &[u8]) {
    if let Some((row, turn)) = TurnRow::decode(data) {
        assert_eq!(row.encode(turn), data);
    }
}

fn value(of: &impl Serialize) -> Value {
    serde_json::to_value(of).expect("what is stored is JSON")
}

/// What is read is written as something that reads as the same.
fn json<T: DeserializeOwned + Serialize>(data: &[u8]) {
    let Ok(row) = serde_json::from_slice::<T>(data) else { return };
    let bytes = serde_json::to_vec(&row).expect("a row is JSON");
    let again: T = serde_json::from_slice(&bytes).expect("a row is read back");
    assert_eq!(value(&again), value(&row));
}

fn checkpoints(data: &[u8]) {
    if let Some(fold) = ChatFold::from_checkpoint(data) {
        let again = ChatFold::from_checkpoint(&fold.to_checkpoint()).expect("a checkpoint is read back");
        assert_eq!(value(&again), value(&fold));
    }
    if let Some(fold) = SessionFold::from_checkpoint(data) {
        let again = SessionFold::from_checkpoint(&fold.to_checkpoint()).expect("a checkpoint is read back");
        assert_eq!(value(&again), value(&fold));
    }
}
