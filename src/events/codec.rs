//! The bytes of one stored record.
//!
//! `version (1) | header (bincode) | action | CRC32 (4)`, where the checksum covers everything before it. The header
//! has plain fields only, big-endian, integers of variable length. The action is stored as it goes on the wire, so a
//! replay copies it. Used by every store that keeps bytes; frozen by `docs/adr/0001-record-format.md`.
//!
//! Always: decoding never panics and allocates nothing larger than its input, whatever the bytes. Left out on
//! purpose: the channel's URI, which the store knows by its number.

use bincode::config::{BigEndian, Configuration};
use bincode::{BorrowDecode, Encode};
use bytes::Bytes;

use super::{Channel, ChannelId, Kind, NewEvent, Origin, Record, ServerSeq};

/// The version that this build writes: the first byte of each record.
pub const RECORD_VERSION: u8 = 1;

/// Bytes of the checksum at the end.
const SUM: usize = 4;

/// What is wrong with bytes that should be a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    #[error("{0} bytes are too few for a record")]
    TooShort(usize),
    #[error("record version {0} is not known to this build")]
    Version(u8),
    #[error("the checksum is {computed:08x}, and {stored:08x} was stored")]
    Checksum { stored: u32, computed: u32 },
    #[error("the header cannot be read: {0}")]
    Header(String),
    #[error("the header's field {field} has the unknown value {value}")]
    Value { field: &'static str, value: u8 },
    #[error("the record is of channel {found}, and channel {wanted} was read")]
    Channel { found: u64, wanted: u64 },
}

/// The header as it is stored. A `0` in `about` and `covers_from` stands for none.
#[derive(Debug, Encode, BorrowDecode)]
struct Header<'a> {
    seq: u64,
    channel: u64,
    kind: u8,
    at: i64,
    principal: &'a str,
    has_origin: u8,
    client_id: &'a str,
    client_seq: i64,
    about: u64,
    covers_from: u64,
    batch_first: u64,
    batch_last: u64,
}

/// Appends the record of `event`, which got number `seq` in the batch from `batch.0` to `batch.1`, to `out`.
///
/// # Errors
/// [`CodecError::Header`] when bincode refuses the header, which it has no reason to.
pub fn encode(
    event: &NewEvent,
    seq: ServerSeq,
    batch: (ServerSeq, ServerSeq),
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let (has_origin, client_id, client_seq) = origin_fields(event.origin.as_ref());
    let header = Header {
        seq,
        channel: event.channel_id.0,
        kind: kind_byte(event.kind),
        at: event.at,
        principal: &event.principal,
        has_origin,
        client_id,
        client_seq,
        about: event.about.map_or(0, |c| c.0),
        covers_from: 0,
        batch_first: batch.0,
        batch_last: batch.1,
    };
    write(&header, &event.action, out)
}

/// Appends `record` to `out` as it is, for what copies a log: compaction, export, restore.
///
/// # Errors
/// As [`encode`].
pub fn encode_record(record: &Record, out: &mut Vec<u8>) -> Result<(), CodecError> {
    let (has_origin, client_id, client_seq) = origin_fields(record.origin.as_ref());
    let header = Header {
        seq: record.seq,
        channel: record.channel_id.0,
        kind: kind_byte(record.kind),
        at: record.at,
        principal: &record.principal,
        has_origin,
        client_id,
        client_seq,
        about: record.about.map_or(0, |c| c.0),
        covers_from: record.covers_from.unwrap_or(0),
        batch_first: record.batch.0,
        batch_last: record.batch.1,
    };
    write(&header, &record.action, out)
}

/// Reads a record of `channel`, whose number is `channel_id`. The action shares the memory of `bytes`.
///
/// # Errors
/// A [`CodecError`] that says what is wrong; the checksum is looked at before anything but the version.
pub fn decode(bytes: &Bytes, channel: &Channel, channel_id: ChannelId) -> Result<Record, CodecError> {
    let header_and_action = checked_body(bytes)?;
    let (header, used): (Header<'_>, usize) = bincode::borrow_decode_from_slice(header_and_action, layout())
        .map_err(|e| CodecError::Header(e.to_string()))?;
    if header.channel != channel_id.0 {
        return Err(CodecError::Channel { found: header.channel, wanted: channel_id.0 });
    }
    let action = header_and_action.get(used..).unwrap_or_default();
    Ok(Record {
        seq: header.seq,
        channel: channel.clone(),
        channel_id,
        kind: kind_of(header.kind)?,
        at: header.at,
        principal: header.principal.to_owned(),
        origin: origin_of(&header)?,
        about: some_unless_zero(header.about).map(ChannelId),
        covers_from: some_unless_zero(header.covers_from),
        batch: (header.batch_first, header.batch_last),
        action: bytes.slice_ref(action),
    })
}

fn layout() -> Configuration<BigEndian> {
    bincode::config::standard().with_big_endian()
}

fn write(header: &Header<'_>, action: &[u8], out: &mut Vec<u8>) -> Result<(), CodecError> {
    let start = out.len();
    out.push(RECORD_VERSION);
    bincode::encode_into_std_write(header, out, layout()).map_err(|e| CodecError::Header(e.to_string()))?;
    out.extend_from_slice(action);
    let sum = crc32fast::hash(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&sum.to_be_bytes());
    Ok(())
}

/// Header and action of a record whose version is known and whose checksum is right.
fn checked_body(bytes: &[u8]) -> Result<&[u8], CodecError> {
    let (body, sum) = bytes.split_last_chunk::<SUM>().ok_or(CodecError::TooShort(bytes.len()))?;
    let (version, rest) = body.split_first().ok_or(CodecError::TooShort(bytes.len()))?;
    if *version != RECORD_VERSION {
        return Err(CodecError::Version(*version));
    }
    let (stored, computed) = (u32::from_be_bytes(*sum), crc32fast::hash(body));
    if stored != computed {
        return Err(CodecError::Checksum { stored, computed });
    }
    Ok(rest)
}

fn origin_fields(origin: Option<&Origin>) -> (u8, &str, i64) {
    origin.map_or((0, "", 0), |o| (1, o.client_id.as_str(), o.client_seq))
}

fn origin_of(header: &Header<'_>) -> Result<Option<Origin>, CodecError> {
    match header.has_origin {
        0 => Ok(None),
        1 => Ok(Some(Origin { client_id: header.client_id.to_owned(), client_seq: header.client_seq })),
        value => Err(CodecError::Value { field: "origin", value }),
    }
}

fn kind_byte(kind: Kind) -> u8 {
    match kind {
        Kind::Action => 0,
        Kind::Host => 1,
    }
}

fn kind_of(value: u8) -> Result<Kind, CodecError> {
    match value {
        0 => Ok(Kind::Action),
        1 => Ok(Kind::Host),
        value => Err(CodecError::Value { field: "kind", value }),
    }
}

fn some_unless_zero(number: u64) -> Option<u64> {
    (number != 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> Record {
        Record {
            seq: 70_000,
            channel: Channel::from("ahp-chat:/x"),
            channel_id: ChannelId(300),
            kind: Kind::Action,
            at: 1_795_000_000_123,
            principal: "user:ann".to_owned(),
            origin: Some(Origin { client_id: "c-1".to_owned(), client_seq: -2 }),
            about: Some(ChannelId(7)),
            covers_from: Some(69_990),
            batch: (69_999, 70_001),
            action: Bytes::from_static(br#"{"type":"chat/delta"}"#),
        }
    }

    fn bytes_of(record: &Record) -> Bytes {
        let mut out = Vec::new();
        encode_record(record, &mut out).expect("encodes");
        Bytes::from(out)
    }

    fn read(bytes: &Bytes) -> Result<Record, CodecError> {
        let expected = sample();
        decode(bytes, &expected.channel, expected.channel_id)
    }

    fn any_record() -> impl Strategy<Value = Record> {
        let numbers = (any::<u64>(), any::<i64>(), any::<bool>(), 1..=u64::MAX, 1..=u64::MAX);
        let texts = (".*", proptest::option::of((".*", any::<i64>())), proptest::collection::vec(any::<u8>(), 0..400));
        (numbers, texts, any::<(bool, bool)>()).prop_map(|(numbers, texts, (about, covers))| Record {
            seq: numbers.0,
            at: numbers.1,
            kind: if numbers.2 { Kind::Action } else { Kind::Host },
            about: about.then_some(ChannelId(numbers.3)),
            covers_from: covers.then_some(numbers.4),
            batch: (numbers.3, numbers.4),
            principal: texts.0,
            origin: texts.1.map(|(client_id, client_seq)| Origin { client_id, client_seq }),
            action: Bytes::from(texts.2),
            ..sample()
        })
    }

    #[test]
    fn format_1_is_frozen_to_the_byte() {
        let frozen: &[u8] = b"\x01\xfc\x00\x01\x11\x70\xfb\x01\x2c\x00\xfd\x00\x00\x03\x43\xdc\xac\xbc\xf6\x08user:ann\
            \x01\x03c-1\x03\x07\xfc\x00\x01\x11\x66\xfc\x00\x01\x11\x6f\xfc\x00\x01\x11\x71{\"type\":\"chat/delta\"}";
        let mut frozen = frozen.to_vec();
        frozen.extend_from_slice(&FROZEN_SUM.to_be_bytes());
        assert_eq!(bytes_of(&sample()), frozen);
        assert_eq!(read(&Bytes::from(frozen)).expect("decodes"), sample());
    }

    /// CRC-32 (IEEE) of the bytes of the frozen record before it.
    const FROZEN_SUM: u32 = 0x1049cd82;

    #[test]
    fn a_new_event_is_read_back_with_its_number_and_batch() {
        let event = NewEvent {
            channel: Channel::from("ahp-chat:/x"),
            channel_id: ChannelId(300),
            kind: Kind::Host,
            at: -1,
            principal: "host".into(),
            origin: None,
            about: None,
            action: Bytes::from_static(b"{}"),
        };
        let mut out = Vec::new();
        encode(&event, 5, (4, 6), &mut out).expect("encodes");
        let record = read(&Bytes::from(out)).expect("decodes");
        assert_eq!((record.seq, record.batch, record.kind, record.at), (5, (4, 6), Kind::Host, -1));
        assert_eq!((record.origin, record.about, record.covers_from), (None, None, None));
        assert_eq!(record.action, "{}");
    }

    #[test]
    fn every_truncation_is_refused() {
        let whole = bytes_of(&sample());
        for length in 0..whole.len() {
            assert!(read(&whole.slice(..length)).is_err(), "{length} bytes were taken for a record");
        }
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let whole = bytes_of(&sample());
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&Bytes::from(flipped)).is_err(), "bit {bit} flipped was not noticed");
        }
    }

    #[test]
    fn a_record_of_another_channel_is_refused() {
        let found = decode(&bytes_of(&sample()), &Channel::root(), ChannelId::ROOT);
        assert_eq!(found, Err(CodecError::Channel { found: 300, wanted: 1 }));
    }

    #[test]
    fn a_later_version_is_named() {
        let mut bytes = bytes_of(&sample()).to_vec();
        bytes[0] = 2;
        assert_eq!(read(&Bytes::from(bytes)), Err(CodecError::Version(2)));
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(record in any_record()) {
            prop_assert_eq!(read(&bytes_of(&record)).expect("decodes"), record);
        }

        #[test]
        fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&Bytes::from(bytes));
        }

        /// Past the checksum too: the header alone decides whether these bytes are a record.
        #[test]
        fn any_bytes_with_a_right_checksum_decode_or_are_refused(
            body in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut bytes = vec![RECORD_VERSION];
            bytes.extend_from_slice(&body);
            bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
            let _ = read(&Bytes::from(bytes));
        }
    }
}
