//! A client of raw frames that costs little, so that what is measured is the host.
//!
//! Blocking, one socket. Its frames are masked with zeros, which masks nothing and is legal.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

/// Reads an answer over HTTP whole, and returns its bytes, the head too: what is read costs little.
pub fn get(address: SocketAddr, path: &str) -> usize {
    let mut stream = TcpStream::connect(address).expect("connected");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("written");
    let (mut buffer, mut all) = (vec![0; 256 << 10], 0);
    loop {
        match stream.read(&mut buffer).expect("read") {
            0 => return all,
            read => all += read,
        }
    }
}

/// A connection.
pub struct Client {
    pub stream: TcpStream,
    buffer: Vec<u8>,
    /// Where the unread bytes begin.
    at: usize,
    next_id: u64,
    next_seq: u64,
}

impl Client {
    /// A socket that was upgraded, without a handshake.
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connected");
        stream.set_nodelay(true).expect("no delay");
        let mut client = Self { stream, buffer: Vec::new(), at: 0, next_id: 0, next_seq: 0 };
        let key = "dGhlIHNhbXBsZSBub25jZQ==";
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
        );
        client.stream.write_all(request.as_bytes()).expect("written");
        while !client.unread().windows(4).any(|four| four == b"\r\n\r\n") {
            client.fill();
        }
        let end = client.unread().windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(0);
        client.at += end + 4;
        client
    }

    /// `connect` and `initialize`.
    pub fn shaken(address: SocketAddr, id: &str) -> Self {
        let mut client = Self::connect(address);
        let params = json!({ "channel": "ahp-root://", "protocolVersions": ["1.0.0"], "clientId": id,
            "initialSubscriptions": [] });
        client.ask("initialize", &params);
        client
    }

    /// Sends a text message.
    pub fn send(&mut self, text: &str) {
        let mut frame = vec![0x81];
        match text.len() {
            short @ 0..126 => frame.push(0x80 | short as u8),
            medium @ 126..65_536 => {
                frame.push(0x80 | 126);
                frame.extend_from_slice(&(medium as u16).to_be_bytes());
            }
            long => {
                frame.push(0x80 | 127);
                frame.extend_from_slice(&(long as u64).to_be_bytes());
            }
        }
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(text.as_bytes());
        self.stream.write_all(&frame).expect("written");
    }

    /// Sends a request and returns the text of the whole answer; what comes before it is dropped.
    pub fn ask_raw(&mut self, method: &str, params: &Value) -> Vec<u8> {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string());
        loop {
            let message = self.next();
            if !message.starts_with(br#"{"jsonrpc":"2.0","method""#) {
                return message;
            }
        }
    }

    /// Sends a request and returns its result.
    pub fn ask(&mut self, method: &str, params: &Value) -> Value {
        let answer: Value = serde_json::from_slice(&self.ask_raw(method, params)).expect("JSON");
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer.get("result").cloned().unwrap_or_default()
    }

    /// Sends an action; returns its number.
    pub fn dispatch(&mut self, channel: &str, action: &Value) -> u64 {
        self.next_seq += 1;
        let params = json!({ "channel": channel, "clientSeq": self.next_seq, "action": action });
        self.send(&json!({ "jsonrpc": "2.0", "method": "dispatchAction", "params": params }).to_string());
        self.next_seq
    }

    /// Starts a turn with a message for the load agent.
    pub fn say(&mut self, chat: &str, turn: &str, text: &str) {
        let action = json!({ "type": "chat/turnStarted", "turnId": turn, "startedAt": "2026-01-01T00:00:00.000Z",
            "message": { "text": text, "origin": { "kind": "user" } } });
        self.dispatch(chat, &action);
    }

    /// Makes a session of `provider`, and returns its chat.
    pub fn session(&mut self, uri: &str, provider: &str) -> String {
        self.ask("createSession", &json!({ "channel": uri, "provider": provider }));
        scrollback::actors::registry::first_chat_uri(uri)
    }

    pub fn subscribe(&mut self, channel: &str) {
        self.ask("subscribe", &json!({ "channel": channel }));
    }

    /// The next text message, its continuations joined.
    pub fn next(&mut self) -> Vec<u8> {
        let mut message = Vec::new();
        loop {
            let (first, header, length) = self.header();
            while self.unread().len() < header + length {
                self.fill();
            }
            let payload = self.unread().get(header..header + length).unwrap_or_default();
            let is_text = matches!(first & 0x0f, 0 | 1);
            if is_text {
                message.extend_from_slice(payload);
            }
            assert_ne!(first & 0x0f, 8, "the host closed: {}", String::from_utf8_lossy(payload));
            self.at += header + length;
            if is_text && first & 0x80 != 0 {
                return message;
            }
        }
    }

    /// Sends a request and reads the next message, of which it returns the bytes alone: what is read costs little.
    pub fn ask_bytes(&mut self, method: &str, params: &Value) -> usize {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string());
        let mut bytes = 0;
        loop {
            let (first, header, length) = self.header();
            let here = self.unread().len().min(header + length);
            self.at += here;
            self.skip(header + length - here);
            bytes += length;
            if first & 0x80 != 0 {
                return bytes;
            }
        }
    }

    fn skip(&mut self, mut bytes: usize) {
        let mut buffer = vec![0; bytes.min(256 << 10)];
        while bytes > 0 {
            let room = bytes.min(buffer.len());
            let read = self.stream.read(buffer.get_mut(..room).unwrap_or_default()).expect("read");
            assert_ne!(read, 0, "the host ended the connection");
            bytes -= read;
        }
    }

    /// Messages up to one that has `marker` in it, which is returned.
    pub fn until(&mut self, marker: &[u8]) -> Vec<u8> {
        loop {
            let message = self.next();
            if message.windows(marker.len()).any(|found| found == marker) {
                return message;
            }
        }
    }

    /// The first byte of the next frame, and the lengths of its header and its payload.
    fn header(&mut self) -> (u8, usize, usize) {
        loop {
            let bytes = self.unread();
            if let [first, second, rest @ ..] = bytes {
                match (second & 0x7f, rest) {
                    (126, [a, b, ..]) => return (*first, 4, usize::from(u16::from_be_bytes([*a, *b]))),
                    (127, _) if let Some(length) = rest.first_chunk::<8>() => {
                        return (*first, 10, usize::try_from(u64::from_be_bytes(*length)).unwrap_or(0));
                    }
                    (short @ 0..126, _) => return (*first, 2, usize::from(short)),
                    _ => {}
                }
            }
            self.fill();
        }
    }

    fn unread(&self) -> &[u8] {
        self.buffer.get(self.at..).unwrap_or_default()
    }

    fn fill(&mut self) {
        if self.at > 1 << 20 {
            self.buffer.drain(..self.at);
            self.at = 0;
        }
        let end = self.buffer.len();
        self.buffer.resize(end + (64 << 10), 0);
        let read = self.stream.read(self.buffer.get_mut(end..).unwrap_or_default()).expect("read");
        assert_ne!(read, 0, "the host ended the connection");
        self.buffer.truncate(end + read);
    }
}
