//! From the bytes of a socket to whole messages, within a limit.
//!
//! The decoding of frames is actix's. It checks the size of a frame only when all of it is there, so the length that a
//! frame claims is read here first: what is over the limit is refused at its header and never kept.
//!
//! Source: RFC 6455, 5.2 and 5.4; AHP transport.

use actix_http::ws::{Codec, Frame, Item};
use bytes::{Buf, Bytes, BytesMut};
use tokio_util::codec::Decoder;

/// What came in, continuations joined.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrived {
    /// The bytes of a text message; whether they are text is not looked at.
    Text(Bytes),
    /// A binary message, whatever is in it.
    Binary,
    Ping(Bytes),
    Pong,
    /// The peer's close, with its code.
    Close(Option<u16>),
}

/// Why nothing more can be read.
#[derive(Debug, PartialEq, Eq)]
pub enum Broken {
    /// A message that is longer than the limit.
    TooLong,
    /// The peer does not speak WebSocket as it should.
    Protocol(String),
}

/// What arrived of a socket and was not taken yet.
pub struct Inbox {
    bytes: BytesMut,
    codec: Codec,
    joined: Option<Joined>,
    /// Bytes still to come of a frame that was refused at its header.
    skip: u64,
}

enum Joined {
    Text(BytesMut),
    /// Only its length is kept.
    Binary(usize),
}

impl Joined {
    fn len(&self) -> usize {
        match self {
            Joined::Text(bytes) => bytes.len(),
            Joined::Binary(len) => *len,
        }
    }

    fn add(&mut self, bytes: &Bytes) {
        match self {
            Joined::Text(joined) => joined.extend_from_slice(bytes),
            Joined::Binary(len) => *len += bytes.len(),
        }
    }
}

impl Default for Inbox {
    fn default() -> Self {
        Self { bytes: BytesMut::new(), codec: Codec::new().max_size(usize::MAX), joined: None, skip: 0 }
    }
}

impl Inbox {
    /// Takes bytes off the socket.
    pub fn feed(&mut self, bytes: &Bytes) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether nothing waits, not even a part of a message.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Forgets what was fed: nothing more is read from this socket.
    pub fn clear(&mut self) {
        self.bytes = BytesMut::new();
        self.joined = None;
    }

    /// The next message, or nothing until more bytes are fed. `limit` is in bytes of a message. After
    /// [`Broken::TooLong`] it goes on behind the frame that was too long.
    ///
    /// # Errors
    /// [`Broken`] when the socket has to be closed.
    pub fn next(&mut self, limit: usize) -> Result<Option<Arrived>, Broken> {
        loop {
            self.skip_refused();
            if self.skip > 0 {
                return Ok(None);
            }
            if self.bytes.is_empty() {
                // Else the room of a long message is kept for as long as the socket lives.
                self.bytes = BytesMut::new();
                return Ok(None);
            }
            if !self.check_length(limit)? {
                return Ok(None);
            }
            let frame = self.codec.decode(&mut self.bytes).map_err(|error| Broken::Protocol(error.to_string()))?;
            let Some(frame) = frame else { return Ok(None) };
            if let Some(arrived) = self.take(frame) {
                return Ok(Some(arrived));
            }
        }
    }

    fn skip_refused(&mut self) {
        let here = usize::try_from(self.skip).unwrap_or(usize::MAX).min(self.bytes.len());
        self.bytes.advance(here);
        self.skip -= here as u64;
    }

    /// Whether the length of the next frame is there, and fits. Nothing else of a frame is looked at before, so that what comes
    /// out does not depend on how the bytes were cut.
    fn check_length(&mut self, limit: usize) -> Result<bool, Broken> {
        let Some(Header { length, payload }) = header(&self.bytes) else { return Ok(false) };
        let so_far = self.joined.as_ref().map_or(0, Joined::len) as u64;
        if so_far.saturating_add(payload) <= limit as u64 {
            return Ok(true);
        }
        self.skip = payload.saturating_add(length);
        self.joined = None;
        Err(Broken::TooLong)
    }

    fn take(&mut self, frame: Frame) -> Option<Arrived> {
        match frame {
            Frame::Text(bytes) => Some(Arrived::Text(bytes)),
            Frame::Binary(_) => Some(Arrived::Binary),
            Frame::Ping(bytes) => Some(Arrived::Ping(bytes)),
            Frame::Pong(_) => Some(Arrived::Pong),
            Frame::Close(reason) => Some(Arrived::Close(reason.map(|reason| reason.code.into()))),
            Frame::Continuation(item) => self.join(item),
        }
    }

    fn join(&mut self, item: Item) -> Option<Arrived> {
        match item {
            Item::FirstText(bytes) => self.joined = Some(Joined::Text(BytesMut::from(&bytes[..]))),
            Item::FirstBinary(bytes) => self.joined = Some(Joined::Binary(bytes.len())),
            Item::Continue(bytes) => {
                if let Some(joined) = self.joined.as_mut() {
                    joined.add(&bytes);
                }
            }
            Item::Last(bytes) => {
                let mut joined = self.joined.take()?;
                joined.add(&bytes);
                return Some(match joined {
                    Joined::Text(bytes) => Arrived::Text(bytes.freeze()),
                    Joined::Binary(_) => Arrived::Binary,
                });
            }
        }
        None
    }
}

/// What a frame says of itself: the bytes of its header and of its payload.
struct Header {
    length: u64,
    payload: u64,
}

/// The header at the front of `bytes`, once all of it is there.
fn header(bytes: &[u8]) -> Option<Header> {
    let second = *bytes.get(1)?;
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    let (length, payload) = match second & 0x7f {
        126 => (4, u64::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?))),
        127 => (10, u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?)),
        short => (2, u64::from(short)),
    };
    Some(Header { length: length + mask, payload })
}

#[cfg(test)]
mod tests {
    use actix_http::ws::Message;
    use tokio_util::codec::Encoder;

    use super::*;

    fn encoded(messages: Vec<Message>) -> Bytes {
        let mut codec = Codec::new().client_mode();
        let mut bytes = BytesMut::new();
        for message in messages {
            codec.encode(message, &mut bytes).unwrap();
        }
        bytes.freeze()
    }

    fn text(text: &str) -> Message {
        Message::Text(text.to_owned().into())
    }

    #[test]
    fn messages_come_out_whole_however_the_bytes_are_cut() {
        let bytes = encoded(vec![
            Message::Continuation(Item::FirstText("Hel".into())),
            Message::Ping("p".into()),
            Message::Continuation(Item::Continue("lo ".into())),
            Message::Continuation(Item::Last("you".into())),
            text("next"),
        ]);
        let mut inbox = Inbox::default();
        let mut arrived = Vec::new();
        for byte in bytes.chunks(1) {
            inbox.feed(&Bytes::copy_from_slice(byte));
            arrived.extend(inbox.next(1_000).unwrap());
        }
        let expected = [Arrived::Ping("p".into()), Arrived::Text("Hello you".into()), Arrived::Text("next".into())];
        assert_eq!(arrived, expected);
    }

    #[test]
    fn a_frame_over_the_limit_is_refused_at_its_header() {
        let mut inbox = Inbox::default();
        inbox.feed(&encoded(vec![text("ok"), text(&"x".repeat(200))]).slice(..8 + 8));
        assert_eq!(inbox.next(100), Ok(Some(Arrived::Text("ok".into()))));
        assert_eq!(inbox.next(100), Err(Broken::TooLong));
    }

    #[test]
    fn a_frame_that_is_wrong_and_too_long_is_refused_for_the_same_however_it_is_cut() {
        // A reserved bit, no mask, and 200 bytes.
        let bytes = [0xc1, 126, 0, 200];
        let mut whole = Inbox::default();
        whole.feed(&Bytes::copy_from_slice(&bytes));
        let mut cut = Inbox::default();
        for byte in bytes {
            assert_eq!(cut.next(100), Ok(None));
            cut.feed(&Bytes::copy_from_slice(&[byte]));
        }
        assert_eq!((whole.next(100), cut.next(100)), (Err(Broken::TooLong), Err(Broken::TooLong)));
    }

    #[test]
    fn continuations_count_together() {
        let mut inbox = Inbox::default();
        let first = Message::Continuation(Item::FirstText("x".repeat(60).into()));
        inbox.feed(&encoded(vec![first, Message::Continuation(Item::Last("x".repeat(60).into()))]));
        assert_eq!(inbox.next(100), Err(Broken::TooLong));
    }

    #[test]
    fn what_follows_a_refused_frame_is_still_read() {
        let mut inbox = Inbox::default();
        inbox.feed(&encoded(vec![text(&"x".repeat(200)), Message::Close(None)]));
        assert_eq!(inbox.next(100), Err(Broken::TooLong));
        assert_eq!(inbox.next(100), Ok(Some(Arrived::Close(None))));
    }

    #[test]
    fn an_endless_frame_is_refused_without_being_kept() {
        let mut inbox = Inbox::default();
        inbox.feed(&Bytes::from_static(&[0x81, 0xff, 0, 1, 0, 0, 0, 0, 0, 0]));
        assert_eq!(inbox.next(100), Err(Broken::TooLong));
        inbox.feed(&Bytes::from(vec![0; 1_000]));
        assert_eq!(inbox.next(100), Ok(None));
        assert!(inbox.bytes.is_empty());
    }

    #[test]
    fn a_frame_without_a_mask_breaks_the_protocol() {
        let mut inbox = Inbox::default();
        inbox.feed(&Bytes::from_static(&[0x81, 1, b'x']));
        assert!(matches!(inbox.next(100), Err(Broken::Protocol(_))));
    }
}
