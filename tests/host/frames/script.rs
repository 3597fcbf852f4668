//! What a peer may do: requests of every method, right or bent, and everything else that bytes on a socket can be.

use std::path::PathBuf;

use actix_http::ws::{Codec, Item, Message};
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use tokio_util::codec::Encoder;

use super::MAX_MESSAGE;
use super::requests::{ACTIONS, METHODS, bend, params};

/// The one directory that the host serves.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(place.root().join("dir")).unwrap();
        std::fs::write(place.root().join("dir/file"), "text").unwrap();
        place
    }

    pub fn root(&self) -> PathBuf {
        self.0.path().canonicalize().unwrap()
    }

    pub fn root_uri(&self) -> String {
        format!("file://{}", self.root().display())
    }
}

/// How a valid message is bent: which of its nodes, and to what.
pub type Bend = (usize, usize);

/// One thing that a peer does.
#[derive(Debug, Clone)]
pub enum Deed {
    /// A handshake that succeeds, if it is the first.
    Handshake {
        client: usize,
    },
    /// A request, with the text of its id; `of` picks among what its method is asked about.
    Ask {
        id: &'static str,
        method: &'static str,
        of: usize,
        bends: Vec<Bend>,
        cuts: Vec<usize>,
    },
    /// The same without an id.
    Tell {
        method: &'static str,
        of: usize,
        bends: Vec<Bend>,
    },
    /// An action, now and then bent.
    Act {
        action: usize,
        chat: usize,
        seq: i64,
        bends: Vec<Bend>,
    },
    /// An answer to what the host asked, or to nothing.
    Answer {
        id: u8,
        is_error: bool,
    },
    /// Text that is no request, with the id that its refusal has.
    Malformed {
        text: &'static str,
        id: &'static str,
    },
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong,
    TooLong,
    NotUtf8,
    /// Bytes that are no frame.
    Broken(&'static [u8]),
    Close(u16),
    /// The end of the connection in the middle of a message.
    Cut {
        method: &'static str,
        at: usize,
    },
}

/// What a deed leads to.
pub enum Effect {
    Nothing,
    /// One answer with this id.
    Answered(String),
    /// The host closes with this code.
    Closed(u16),
    /// The peer is gone.
    Cut,
}

/// Ids that stay the text that they are; few, so that some are used again while they are in flight.
const IDS: &[&str] = &[
    "1",
    "1",
    "2",
    "3",
    "\"a\"",
    "null",
    "-7",
    "1.50",
    "1e400",
    "18446744073709551616",
    "\"\\ud83d\\ude00\\n\"",
    "\"\"",
];

/// Texts that are no request, each with the id of its refusal.
const MALFORMED: &[(&str, &str)] = &[
    ("", "null"),
    ("{", "null"),
    ("hello", "null"),
    ("5", "null"),
    ("[]", "null"),
    (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]"#, "null"),
    ("{}", "null"),
    (r#"{"jsonrpc":"2.0","id":4}"#, "4"),
    (r#"{"jsonrpc":"2.0","id":"q","method":5}"#, "\"q\""),
    (r#"{"jsonrpc":"1.0","id":4,"method":"ping"}"#, "4"),
    (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, "null"),
    (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, "null"),
    (r#"{"jsonrpc":"2.0","id":1,"method":"ping"} {}"#, "null"),
    (r#"{"jsonrpc":"2.0","id":5,"method":"\ud800"}"#, "5"),
    (
        concat!(
            r#"{"jsonrpc":"2.0","id":6,"method":"ping","params":"#,
            "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
            "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}"
        ),
        "6",
    ),
];

/// No mask, a reserved bit, an unknown opcode, a continuation of nothing.
const BROKEN: &[&[u8]] =
    &[&[0x81, 0x01, b'a'], &[0xc1, 0x80, 0, 0, 0, 0], &[0x83, 0x80, 0, 0, 0, 0], &[0x80, 0x80, 0, 0, 0, 0]];

pub fn script() -> impl Strategy<Value = Vec<Deed>> {
    let begin = prop_oneof![
        12 => (0usize..3).prop_map(|client| vec![Deed::Handshake { client }]),
        1 => Just(Vec::new()),
    ];
    let end = prop_oneof![5 => Just(None), 1 => ending().prop_map(Some)];
    (begin, proptest::collection::vec(deed(), 0..40), end)
        .prop_map(|(begin, deeds, end)| begin.into_iter().chain(deeds).chain(end).collect())
}

fn bends() -> impl Strategy<Value = Vec<Bend>> {
    prop_oneof![3 => Just(Vec::new()), 2 => proptest::collection::vec((0usize..12, 0usize..64), 1..3)]
}

fn deed() -> impl Strategy<Value = Deed> {
    let cuts = prop_oneof![5 => Just(Vec::new()), 1 => proptest::collection::vec(0usize..200, 1..4)];
    let ask = (select(IDS), select(METHODS), any::<usize>(), bends(), cuts)
        .prop_map(|(id, method, of, bends, cuts)| Deed::Ask { id, method, of, bends, cuts });
    let tell =
        (select(METHODS), any::<usize>(), bends()).prop_map(|(method, of, bends)| Deed::Tell { method, of, bends });
    let act = (0..ACTIONS, any::<usize>(), 0i64..1_000, bends()).prop_map(|(action, chat, seq, bends)| Deed::Act {
        action,
        chat,
        seq,
        bends,
    });
    prop_oneof![
        12 => ask,
        2 => tell,
        8 => act,
        1 => (0u8..6, any::<bool>()).prop_map(|(id, is_error)| Deed::Answer { id, is_error }),
        2 => select(MALFORMED).prop_map(|(text, id)| Deed::Malformed { text, id }),
        1 => proptest::collection::vec(any::<u8>(), 0..20).prop_map(Deed::Binary),
        1 => proptest::collection::vec(any::<u8>(), 0..20).prop_map(Deed::Ping),
        1 => Just(Deed::Pong),
    ]
}

fn ending() -> impl Strategy<Value = Deed> {
    prop_oneof![
        Just(Deed::TooLong),
        Just(Deed::NotUtf8),
        select(BROKEN).prop_map(Deed::Broken),
        select(&[1000, 1001, 1009, 3000, 4999][..]).prop_map(Deed::Close),
        (select(METHODS), 1usize..200).prop_map(|(method, at)| Deed::Cut { method, at }),
    ]
}

impl Deed {
    /// Whether it may be a handshake that fails.
    pub fn is_handshake(&self) -> bool {
        matches!(self, Deed::Ask { method: "initialize" | "reconnect", .. })
    }

    /// Its bytes, and what they lead to.
    pub fn on_the_wire(&self, place: &Place) -> (Bytes, Effect) {
        let (message, effect) = match self {
            Deed::Handshake { client } => {
                let params = params("initialize", *client, place);
                (Message::Text(request("\"hello\"", "initialize", &params).into()), answered("\"hello\""))
            }
            Deed::Ask { id, method, of, bends, cuts } => {
                let text = request(id, method, &bent(params(method, *of, place), bends));
                return (in_fragments(&text, cuts), answered(id));
            }
            Deed::Tell { method, of, bends } => {
                let params = bent(params(method, *of, place), bends);
                let text = json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string();
                (Message::Text(text.into()), Effect::Nothing)
            }
            Deed::Act { action, chat, seq, bends } => {
                let action = bent(super::requests::action(*action, *chat, place), bends);
                let channel = super::requests::channel(*chat);
                let params = json!({ "channel": channel, "clientSeq": seq, "action": action });
                let text = json!({ "jsonrpc": "2.0", "method": "dispatchAction", "params": params }).to_string();
                (Message::Text(text.into()), Effect::Nothing)
            }
            Deed::Answer { id, is_error: false } => {
                (Message::Text(json!({ "jsonrpc": "2.0", "id": id, "result": {} }).to_string().into()), Effect::Nothing)
            }
            Deed::Answer { id, .. } => {
                let text = json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -1, "message": "no" } }).to_string();
                (Message::Text(text.into()), Effect::Nothing)
            }
            Deed::Malformed { text, id } => (Message::Text((*text).into()), answered(id)),
            Deed::Binary(bytes) => (Message::Binary(bytes.clone().into()), answered("null")),
            Deed::Ping(bytes) => (Message::Ping(bytes.clone().into()), Effect::Nothing),
            Deed::Pong => (Message::Pong(Bytes::new()), Effect::Nothing),
            Deed::TooLong => (Message::Text("x".repeat(MAX_MESSAGE + 1).into()), Effect::Closed(1009)),
            Deed::NotUtf8 => return (frame(true, 1, &[0xff]), Effect::Closed(1007)),
            Deed::Broken(bytes) => return (Bytes::from_static(bytes), Effect::Closed(1002)),
            Deed::Close(code) => return (frame(true, 8, &code.to_be_bytes()), Effect::Closed(*code)),
            Deed::Cut { method, at } => {
                let whole = in_fragments(&request("1", method, &params(method, *at, place)), &[]);
                return (whole.slice(..(*at).min(whole.len() - 1)), Effect::Cut);
            }
        };
        (encoded(vec![message]), effect)
    }
}

fn answered(id: &str) -> Effect {
    Effect::Answered(id.to_owned())
}

fn bent(mut value: Value, bends: &[Bend]) -> Value {
    for (at, how) in bends {
        bend(&mut value, *at, *how);
    }
    value
}

/// The text of a request, whose id is put in as it is.
fn request(id: &str, method: &str, params: &Value) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

/// A text in fragments that end at `cuts`, with a ping between them.
fn in_fragments(text: &str, cuts: &[usize]) -> Bytes {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
    cuts.sort_unstable();
    let Some((first, rest)) = cuts.split_first() else { return encoded(vec![Message::Text(text.into())]) };
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    let mut messages = vec![Message::Continuation(Item::FirstText(bytes.slice(..*first)))];
    let mut from = *first;
    for cut in rest {
        messages.push(Message::Ping(Bytes::from_static(b"between")));
        messages.push(Message::Continuation(Item::Continue(bytes.slice(from..*cut))));
        from = *cut;
    }
    messages.push(Message::Continuation(Item::Last(bytes.slice(from..))));
    encoded(messages)
}

fn encoded(messages: Vec<Message>) -> Bytes {
    let (mut codec, mut bytes) = (Codec::new().client_mode(), BytesMut::new());
    for message in messages {
        codec.encode(message, &mut bytes).unwrap();
    }
    bytes.freeze()
}

/// One short frame with a mask of zeros.
pub fn frame(last: bool, opcode: u8, payload: &[u8]) -> Bytes {
    let length = u8::try_from(payload.len()).unwrap();
    assert!(length < 126);
    let head = [if last { 0x80 } else { 0 } | opcode, 0x80 | length, 0, 0, 0, 0];
    Bytes::from([&head[..], payload].concat())
}
