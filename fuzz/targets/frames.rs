//! What a peer sends on a socket: bytes that become messages, and text that becomes requests.

use std::collections::BTreeMap;

use actix_http::ws::{Codec, Item, Message};
use bytes::{Bytes, BytesMut};
use scrollback::protocol::frame::{self, Incoming};
use scrollback::protocol::inbox::{Arrived, Broken, Inbox};
use scrollback::protocol::params::{MAX_NAME, Params};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio_util::codec::Encoder;

/// How deep a message may nest.
const MAX_NESTING: usize = 64;

/// Bytes of a message that the inbox takes here: few, so that the limit is met often.
const LIMIT: usize = 96;

pub fn run(data: &[u8]) {
    cut_in_any_pieces(data);
    if let Ok(text) = std::str::from_utf8(data) {
        split(text);
        sent_in_fragments(text);
    }
}

/// The bytes of a socket give the same messages, and the same end, however they arrive.
fn cut_in_any_pieces(data: &[u8]) {
    let whole = arrived(data, std::iter::repeat(data.len().max(1)), LIMIT);
    let bytewise = arrived(data, std::iter::repeat(1), LIMIT);
    assert_eq!(whole, bytewise, "byte by byte");
    let sizes = data.iter().map(|byte| usize::from(*byte % 19) + 1);
    assert_eq!(whole, arrived(data, sizes, LIMIT), "in pieces");
    let text: usize = whole.iter().map(|taken| if let Ok(Arrived::Text(text)) = taken { text.len() } else { 0 }).sum();
    assert!(text <= data.len(), "{text} bytes of text came out of {}", data.len());
}

/// What comes out of an inbox that is fed `data` in pieces of these sizes.
fn arrived(data: &[u8], sizes: impl Iterator<Item = usize>, limit: usize) -> Vec<Result<Arrived, Broken>> {
    let (mut inbox, mut all, mut rest) = (Inbox::default(), Vec::new(), data);
    for size in sizes {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at(size.min(rest.len()));
        rest = after;
        inbox.feed(&Bytes::copy_from_slice(piece));
        loop {
            match inbox.next(limit) {
                Ok(None) => break,
                Ok(Some(arrived)) => {
                    if let Arrived::Text(text) = &arrived {
                        assert!(text.len() <= limit, "a text of {} bytes", text.len());
                    }
                    all.push(Ok(arrived));
                }
                Err(Broken::TooLong) => all.push(Err(Broken::TooLong)),
                // Nothing more is read of such a socket.
                Err(broken) => {
                    all.push(Err(broken));
                    return all;
                }
            }
        }
    }
    all
}

/// A text comes out of the socket as it went in, whole or in fragments with a ping between them.
fn sent_in_fragments(text: &str) {
    let mut codec = Codec::new().client_mode();
    let mut bytes = BytesMut::new();
    let mut send = |message| codec.encode(message, &mut bytes).unwrap();
    let at = text.char_indices().map(|(at, _)| at).nth(text.len() / 3).unwrap_or(0);
    let (head, tail) = text.split_at(at);
    send(Message::Continuation(Item::FirstText(Bytes::copy_from_slice(head.as_bytes()))));
    send(Message::Ping(Bytes::from_static(b"p")));
    send(Message::Continuation(Item::Last(Bytes::copy_from_slice(tail.as_bytes()))));
    send(Message::Text(text.into()));
    let out = arrived(&bytes, std::iter::repeat(7), text.len() + 1);
    let whole = || Ok(Arrived::Text(Bytes::copy_from_slice(text.as_bytes())));
    assert_eq!(out, [Ok(Arrived::Ping(Bytes::from_static(b"p"))), whole(), whole()]);
}

/// A text is a request, a notification or a response, or is answered once with an error.
fn split(text: &str) {
    let value: Option<Value> = serde_json::from_str(text).ok();
    match frame::split(text, MAX_NESTING) {
        Ok(Incoming::Request { id, method, params }) => {
            assert!(serde_json::from_str::<&RawValue>(id).is_ok(), "the id {id} is no JSON");
            if let Some(value) = value {
                assert_eq!(value["method"], method.as_str());
                assert!(!value["id"].is_object() && !value["id"].is_array() && !value["id"].is_boolean());
            }
            read(params);
        }
        Ok(Incoming::Notification { method, params }) => {
            if let Some(value) = value {
                assert_eq!((value.get("id"), &value["method"]), (None, &Value::from(method)));
            }
            read(params);
        }
        Ok(Incoming::Response { outcome, .. }) => {
            if let Err(error) = outcome {
                let problem = frame::problem_of(error);
                assert!(!problem.contains(char::is_control), "{problem:?} breaks its line");
            }
        }
        Err(malformed) => {
            // An id may be a number that no number type holds: it goes back as the text that it was.
            let frame = malformed.frame();
            let answer: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&frame).expect("the answer is JSON");
            assert!(
                answer.contains_key("id") && answer.contains_key("error") && !answer.contains_key("result"),
                "{frame}"
            );
        }
    }
}

fn read(params: Option<&RawValue>) {
    let Ok(params) = Params::read(params) else { return };
    for name in ["channel", "clientId", "limit", "uri", "action"] {
        if let Ok(read) = params.name(name) {
            assert!((1..=MAX_NAME).contains(&read.len()));
        }
        let _ = params.optional::<u64>(name, "a number");
        let _ = params.optional::<Vec<String>>(name, "a list of strings");
        let _ = params.required::<Value>(name, "anything");
    }
    if params.for_root().is_ok() {
        assert_eq!(params.channel().unwrap(), "ahp-root://");
    }
}
