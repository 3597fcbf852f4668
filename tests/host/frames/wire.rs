//! A socket down to its bytes: what is sent may be broken, and what comes back is counted.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use actix_http::ws::{Codec, Frame};
use bytes::BytesMut;
use futures_util::StreamExt;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;
use tokio_util::codec::{Decoder, FramedRead};

use super::script::{Deed, Effect, Place};
use crate::harness::PATIENCE;

const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: ADDRESS\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// The id of the request that asks whether everything was answered.
const LAST: &str = "\"the last one\"";

/// Whether a deed was the last of its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Yes,
    No,
}

/// What the host sent.
#[derive(Debug)]
enum Came {
    /// An answer, with the text of its id.
    Answer(String),
    /// The code that it closed with.
    Close(Option<u16>),
    /// The TCP connection ended.
    End,
}

/// A socket, with what it is owed.
pub struct Wire {
    to: Option<OwnedWriteHalf>,
    from: UnboundedReceiver<Came>,
    /// How many answers each id is owed.
    owed: BTreeMap<String, i64>,
    /// The code that it has to be closed with, where what was sent forces that.
    closes: Option<u16>,
    /// Whether a handshake may have failed for good.
    may_be_turned_away: bool,
    /// What was sent, for whoever reads a failure.
    sent: Vec<String>,
}

impl Wire {
    pub async fn open(address: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(UPGRADE.replace("ADDRESS", &address.to_string()).as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
        let (read, to) = stream.into_split();
        let (came, from) = unbounded_channel();
        tokio::spawn(async move {
            let mut frames = FramedRead::new(read, FromHost(Codec::new().client_mode().max_size(1 << 26)));
            while let Some(Ok(one)) = frames.next().await {
                if one.is_some_and(|one| came.send(one).is_err()) {
                    return;
                }
            }
            let _ = came.send(Came::End);
        });
        Self { to: Some(to), from, owed: BTreeMap::new(), closes: None, may_be_turned_away: false, sent: Vec::new() }
    }

    /// Does a deed; says whether nothing more can follow it.
    pub async fn send(&mut self, deed: &Deed, place: &Place) -> Ended {
        let (bytes, effect) = deed.on_the_wire(place);
        self.sent.push(format!("{deed:?}"));
        self.may_be_turned_away |= deed.is_handshake();
        if let Some(to) = self.to.as_mut() {
            // A host that closed the socket meanwhile takes nothing more; that is looked at in the end.
            let _ = to.write_all(&bytes).await;
        }
        match effect {
            Effect::Nothing => Ended::No,
            Effect::Answered(id) => {
                *self.owed.entry(id).or_default() += 1;
                Ended::No
            }
            Effect::Closed(code) => {
                self.closes = Some(code);
                Ended::Yes
            }
            Effect::Cut => {
                self.to = None;
                Ended::Yes
            }
        }
    }

    /// Reads to the end of the socket, and compares.
    pub async fn check(mut self) {
        if self.to.is_none() {
            // Nothing can be said of what a cut socket would have heard.
            return;
        }
        if self.closes.is_none() {
            self.ask_last().await;
        }
        let sent = std::mem::take(&mut self.sent);
        let all = || sent.join("\n");
        let code = loop {
            match self.next(&all).await {
                Came::Answer(id) => self.answered(&id, &all),
                Came::Close(code) => break code,
                Came::End => panic!("the socket ended without a close:\n{}", all()),
            }
            if self.closes.is_none() && self.owed.is_empty() {
                self.closes = Some(1000);
                let close = super::script::frame(true, 8, &1000_u16.to_be_bytes());
                let _ = self.to.as_mut().expect("it is open").write_all(&close).await;
            }
        };
        match (self.closes, code) {
            (Some(expected), Some(code)) if expected == code => {}
            // No handshake of it can succeed any more.
            (_, Some(1008)) if self.may_be_turned_away => {}
            (expected, code) => panic!("closed with {code:?} instead of {expected:?}:\n{}", all()),
        }
        while !matches!(self.next(&all).await, Came::End) {}
    }

    async fn next(&mut self, sent: &impl Fn() -> String) -> Came {
        match timeout(PATIENCE, self.from.recv()).await {
            Ok(came) => came.unwrap_or(Came::End),
            Err(_) => panic!("still owed: {:?}, closes: {:?}\n{}", self.owed, self.closes, sent()),
        }
    }

    async fn ask_last(&mut self) {
        let ping = format!(r#"{{"jsonrpc":"2.0","id":{LAST},"method":"ping","params":{{"channel":"ahp-root://"}}}}"#);
        self.owed.insert(LAST.to_owned(), 1);
        let _ = self.to.as_mut().expect("it is open").write_all(&super::script::frame(true, 1, ping.as_bytes())).await;
    }

    fn answered(&mut self, id: &str, sent: &impl Fn() -> String) {
        let Some(owed) = self.owed.get_mut(id) else { panic!("{id} was answered once too often:\n{}", sent()) };
        *owed -= 1;
        if *owed == 0 {
            self.owed.remove(id);
        }
    }
}

/// Whole messages of the host.
struct FromHost(Codec);

impl Decoder for FromHost {
    type Item = Option<Came>;
    type Error = std::io::Error;

    fn decode(&mut self, bytes: &mut BytesMut) -> Result<Option<Self::Item>, Self::Error> {
        let frame = self.0.decode(bytes).expect("the host's framing is right");
        Ok(frame.map(|frame| match frame {
            Frame::Text(text) => answer(std::str::from_utf8(&text).expect("the host sends UTF-8")),
            Frame::Close(reason) => Some(Came::Close(reason.map(|reason| reason.code.into()))),
            Frame::Ping(_) | Frame::Pong(_) => None,
            other => panic!("the host sent {other:?}"),
        }))
    }
}

/// The answer in a message; anything else is the host's own.
fn answer(text: &str) -> Option<Came> {
    let message: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text).expect("the host sends JSON-RPC");
    if message.contains_key("method") {
        return None;
    }
    assert_ne!(message.contains_key("result"), message.contains_key("error"), "{text}");
    assert!(!text.contains("-32603"), "something was lost in the host: {text}");
    Some(Came::Answer(message["id"].get().to_owned()))
}
