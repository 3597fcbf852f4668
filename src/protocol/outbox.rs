//! From a connection's queue to the bytes of its socket, as the body of the upgraded response.
//!
//! A frame leaves the queue only when the socket takes more, so what a peer does not read stays counted as unsent, and
//! the queue's limit is the limit. Frames that are there together are written together.
//!
//! Always: messages are not longer than a frame may be, or go as continuations, cut at any byte.
//! Source: RFC 6455, 5.4; the outer contract, limits.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::rc::Rc;

use actix_http::ws::{CloseCode, CloseReason, Codec, Item, Message};
use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use futures_util::Stream;
use tokio_util::codec::Encoder;

use crate::actors::connection::{CLOSE_SLOW, Closing, Connection};

/// How many bytes are gathered before they are handed to the socket.
const CHUNK: usize = 64 * 1024;
/// Bytes of a close reason that fit into its control frame.
const MAX_REASON: usize = 120;

/// What the reading and the writing side of a socket share.
pub struct Wire {
    pub connection: Rc<Connection>,
    ping: Cell<bool>,
    /// The newest ping of the peer that was not answered.
    pong: RefCell<Option<Bytes>>,
    finished: Cell<bool>,
}

impl Wire {
    pub fn new(connection: Rc<Connection>) -> Rc<Self> {
        Rc::new(Self { connection, ping: Cell::new(false), pong: RefCell::default(), finished: Cell::new(false) })
    }

    /// Pings the peer.
    pub fn ping(&self) {
        self.ping.set(true);
        self.connection.wake.notify_one();
    }

    /// Answers a ping of the peer.
    pub fn pong(&self, payload: Bytes) {
        self.pong.replace(Some(payload));
        self.connection.wake.notify_one();
    }

    /// Ends the response: nobody reads it any more, or the closing is done.
    pub fn finish(&self) {
        self.finished.set(true);
        self.connection.wake.notify_one();
    }
}

/// The body of the response. Ends after the close frame, once [`Wire::finish`] was called.
pub fn body(wire: Rc<Wire>, max_frame: usize) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let outbox = Outbox { wire, codec: Codec::new(), max_frame: max_frame.max(1), rest: None, closed: false };
    futures_util::stream::unfold(outbox, |mut outbox| async move {
        loop {
            let bytes = outbox.fill();
            if !bytes.is_empty() {
                return Some((Ok(bytes), outbox));
            }
            if outbox.wire.finished.get() {
                return None;
            }
            outbox.wire.connection.wake.notified().await;
        }
    })
}

struct Outbox {
    wire: Rc<Wire>,
    codec: Codec,
    max_frame: usize,
    /// What is left of a message that goes as continuations.
    rest: Option<Bytes>,
    closed: bool,
}

impl Outbox {
    fn fill(&mut self) -> Bytes {
        let mut bytes = BytesMut::new();
        while bytes.len() < CHUNK {
            let Some(message) = self.next() else { break };
            if let Err(error) = self.codec.encode(message, &mut bytes) {
                tracing::error!(%error, "a frame could not be written");
                self.wire.connection.close(1011, "internal error".into());
            }
        }
        bytes.freeze()
    }

    fn next(&mut self) -> Option<Message> {
        if self.closed {
            return None;
        }
        if let Some(payload) = self.wire.pong.take() {
            return Some(Message::Pong(payload));
        }
        if self.wire.ping.take() {
            return Some(Message::Ping(Bytes::new()));
        }
        let closing = self.wire.connection.closing();
        // A slow peer is not made to read the rest of a long message first.
        let rest = self.rest.take_if(|_| closing.as_ref().is_none_or(|closing| closing.code != CLOSE_SLOW));
        if let Some(rest) = rest {
            return Some(Message::Continuation(self.piece(rest)));
        }
        if let Some(frame) = self.wire.connection.pop() {
            return Some(self.message(frame));
        }
        let closing = closing.or_else(|| self.wire.connection.closing())?;
        self.closed = true;
        Some(Message::Close(Some(reason(closing))))
    }

    fn message(&mut self, frame: ByteString) -> Message {
        if frame.len() <= self.max_frame {
            return Message::Text(frame);
        }
        let mut bytes = frame.into_bytes();
        let first = bytes.split_to(self.max_frame);
        self.rest = Some(bytes);
        Message::Continuation(Item::FirstText(first))
    }

    fn piece(&mut self, mut rest: Bytes) -> Item {
        if rest.len() <= self.max_frame {
            return Item::Last(rest);
        }
        let piece = rest.split_to(self.max_frame);
        self.rest = Some(rest);
        Item::Continue(piece)
    }
}

fn reason(closing: Closing) -> CloseReason {
    let end = closing.reason.floor_char_boundary(MAX_REASON);
    let description = closing.reason.get(..end).unwrap_or_default().to_owned();
    CloseReason { code: CloseCode::from(closing.code), description: Some(description) }
}

#[cfg(test)]
mod tests {
    use actix_http::ws::Frame;
    use tokio_util::codec::Decoder;

    use std::sync::Arc;

    use super::*;
    use crate::access::Identity;
    use crate::actors::counts::Counts;

    fn outbox(max_frame: usize) -> Outbox {
        let wire = Wire::new(Connection::new(1, Arc::new(Identity::root("test")), 1_000, &Counts::default()));
        Outbox { wire, codec: Codec::new(), max_frame, rest: None, closed: false }
    }

    fn frames(bytes: Bytes) -> Vec<Frame> {
        let mut codec = Codec::new().client_mode();
        let mut bytes = BytesMut::from(&bytes[..]);
        std::iter::from_fn(|| codec.decode(&mut bytes).unwrap()).collect()
    }

    #[test]
    fn frames_that_are_there_together_are_written_together() {
        let mut outbox = outbox(100);
        outbox.wire.connection.push("a".into());
        outbox.wire.connection.push("b".into());
        assert_eq!(frames(outbox.fill()), [Frame::Text("a".into()), Frame::Text("b".into())]);
    }

    #[test]
    fn long_messages_go_as_continuations_cut_at_any_byte() {
        let mut outbox = outbox(2);
        outbox.wire.connection.push("aéé".into());
        let expected = [
            Frame::Continuation(Item::FirstText(Bytes::from_static(b"a\xc3"))),
            Frame::Continuation(Item::Continue(Bytes::from_static(b"\xa9\xc3"))),
            Frame::Continuation(Item::Last(Bytes::from_static(b"\xa9"))),
        ];
        assert_eq!(frames(outbox.fill()), expected);
    }

    #[test]
    fn a_close_follows_what_was_queued_before_it_and_ends_everything() {
        let mut outbox = outbox(2);
        outbox.wire.connection.push("long".into());
        outbox.wire.connection.close(1001, "x".repeat(500));
        outbox.wire.connection.push("late".into());
        let frames = frames(outbox.fill());
        assert_eq!(frames.len(), 3);
        let Some(Frame::Close(Some(reason))) = frames.last() else { panic!("{frames:?}") };
        assert_eq!(reason.code, CloseCode::Away);
        outbox.wire.pong("p".into());
        assert!(outbox.fill().is_empty());
    }

    #[test]
    fn a_slow_peer_is_closed_without_the_rest_of_a_long_message() {
        let mut outbox = outbox(CHUNK);
        outbox.wire.connection.push("x".repeat(3 * CHUNK).into());
        assert_eq!(frames(outbox.fill()).len(), 1);
        for _ in 0..3 {
            outbox.wire.connection.push_notification("y".repeat(600).into());
        }
        assert!(matches!(frames(outbox.fill())[..], [Frame::Close(Some(_))]));
    }
}
