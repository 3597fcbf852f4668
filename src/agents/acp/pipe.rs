//! The way to and from a program: one message a line, bounded in both directions.
//!
//! What a line says is the crate's to read; how much of it is taken is decided here. A program that does not read what it is
//! sent is not read itself, once too much waits for it.

use std::collections::VecDeque;

use agent_client_protocol::{Error, RawJsonRpcId, RawJsonRpcMessage, TransportFrame};
use futures_util::StreamExt as _;
use serde::Serialize;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{ChildStdin, ChildStdout};
use tokio_util::codec::{AnyDelimiterCodec, AnyDelimiterCodecError, FramedRead};

/// How many lines in a row may be no message: programs print warnings.
const PLAIN_LINES: usize = 8;
/// The bytes that wait for a program beyond which it is not read.
const FULL: usize = 8 << 20;
/// How much of a bad line is shown.
const SHOWN: usize = 200;

/// What a program writes.
pub(super) struct Reader {
    lines: FramedRead<ChildStdout, AnyDelimiterCodec>,
    plain: usize,
}

/// What a program is sent.
pub(super) struct Writer {
    stdin: ChildStdin,
    waiting: VecDeque<Vec<u8>>,
    /// The bytes of `waiting`, and how many of its first line are written.
    bytes: usize,
    written: usize,
    next_id: i64,
}

/// What a program sent.
#[derive(Debug)]
pub(super) enum Said {
    Message(RawJsonRpcMessage),
    /// Nothing that is to be answered.
    Nothing,
    /// It closed its output.
    End,
    /// What is wrong with it.
    Fault(String),
}

impl Reader {
    /// `max_agent_message` in bytes.
    pub(super) fn new(stdout: ChildStdout, max_message: usize) -> Self {
        let codec = AnyDelimiterCodec::new_with_max_length(b"\n".to_vec(), Vec::new(), max_message);
        Self { lines: FramedRead::new(stdout, codec), plain: 0 }
    }

    /// Reads one line. Dropped before it is ready, it has taken nothing.
    pub(super) async fn read(&mut self) -> Said {
        match self.lines.next().await {
            None => Said::End,
            Some(Ok(line)) => self.understand(&line),
            Some(Err(AnyDelimiterCodecError::MaxChunkLengthExceeded)) => {
                crate::agents::count_too_long();
                Said::Fault("it sent a message that is longer than `max_agent_message`".to_owned())
            }
            Some(Err(AnyDelimiterCodecError::Io(error))) => Said::Fault(format!("its output cannot be read: {error}")),
        }
    }

    fn understand(&mut self, line: &[u8]) -> Said {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Said::Nothing;
        }
        let frame = std::str::from_utf8(line).ok().map(TransportFrame::parse_json);
        if let Some(TransportFrame::Single(message)) = frame {
            self.plain = 0;
            return Said::Message(message);
        }
        self.plain += 1;
        let shown = String::from_utf8_lossy(line.get(..SHOWN.min(line.len())).unwrap_or_default()).into_owned();
        if line.starts_with(b"{") || self.plain > PLAIN_LINES {
            return Said::Fault(format!("it does not speak the Agent Client Protocol: it wrote {shown:?}"));
        }
        tracing::debug!(line = shown, "a program of an agent printed a line");
        Said::Nothing
    }
}

impl Writer {
    pub(super) fn new(stdin: ChildStdin) -> Self {
        Self { stdin, waiting: VecDeque::new(), bytes: 0, written: 0, next_id: 0 }
    }

    /// Sends a request and returns its number.
    pub(super) fn ask(&mut self, method: &str, params: &impl Serialize) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        let params = serde_json::to_value(params).unwrap_or_default();
        self.queue(RawJsonRpcMessage::request(method.to_owned(), params, id));
        id
    }

    pub(super) fn notify(&mut self, method: &str, params: &impl Serialize) {
        let params = serde_json::to_value(params).unwrap_or_default();
        self.queue(RawJsonRpcMessage::notification(method.to_owned(), params));
    }

    pub(super) fn answer(&mut self, id: RawJsonRpcId, result: Result<serde_json::Value, Error>) {
        self.queue(Ok(RawJsonRpcMessage::response(id, result)));
    }

    fn queue(&mut self, message: Result<RawJsonRpcMessage, Error>) {
        let line = message.and_then(|message| serde_json::to_vec(&message).map_err(Error::into_internal_error));
        match line {
            Ok(mut line) => {
                line.push(b'\n');
                self.bytes += line.len();
                self.waiting.push_back(line);
            }
            Err(error) => tracing::error!(%error, "a message to an agent cannot be written"),
        }
    }

    /// Whether anything waits to be written.
    pub(super) fn has_output(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether so much waits that the program is not to be read.
    pub(super) fn is_full(&self) -> bool {
        self.bytes > FULL
    }

    /// Writes some of what waits. Dropped before it is ready, it has written nothing.
    ///
    /// # Errors
    /// When the program does not take it any more.
    pub(super) async fn write(&mut self) -> std::io::Result<()> {
        let Some(line) = self.waiting.front() else { return Ok(()) };
        let wrote = self.stdin.write(line.get(self.written..).unwrap_or_default()).await?;
        if wrote == 0 {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        self.written += wrote;
        if self.written >= line.len() {
            self.bytes -= line.len();
            self.written = 0;
            self.waiting.pop_front();
        }
        Ok(())
    }
}
