//! A CLI that runs: lines out of it, each bounded, and lines into it.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::codec::{AnyDelimiterCodec, AnyDelimiterCodecError, FramedRead};

use crate::agents::programs::{Group, Running, Tail};

/// Lines that are no JSON and are passed over: programs print warnings.
const PLAIN_LINES: usize = 8;
/// How long a program that closed its output may take to exit before that is all that is known.
const EXIT: Duration = Duration::from_secs(2);

/// How long what a program wrote to stderr at its end is waited for.
const LAST_WORDS: Duration = Duration::from_millis(20);

/// A running CLI. Dropped, its input closes and it ends in steps.
pub(super) struct Pipe {
    lines: FramedRead<ChildStdout, AnyDelimiterCodec>,
    input: UnboundedSender<Value>,
    plain: usize,
    pub(super) stderr: Tail,
    group: Group,
}

impl Pipe {
    /// Takes over a program that was started; call it on the threads of the programs.
    pub(super) fn new(running: Running, max_line: usize) -> Self {
        let Running { stdin, stdout, stderr, group } = running;
        let (input, lines) = unbounded_channel();
        tokio::spawn(write(stdin, lines));
        let codec = AnyDelimiterCodec::new_with_max_length(b"\n".to_vec(), Vec::new(), max_line);
        Self { lines: FramedRead::new(stdout, codec), input, plain: 0, stderr, group }
    }

    /// Writes a line, in order. It never waits for the program to read.
    pub(super) fn write(&self, line: Value) {
        // A program that is gone ignores it.
        let _ = self.input.send(line);
    }

    /// The next line. Its error says why there will be no more, in words. May be dropped while it waits.
    pub(super) async fn next(&mut self) -> Result<Value, String> {
        loop {
            match self.lines.next().await {
                Some(Ok(line)) => {
                    if let Some(line) = self.read(&line)? {
                        return Ok(line);
                    }
                }
                Some(Err(AnyDelimiterCodecError::MaxChunkLengthExceeded)) => {
                    return Err("said more in one line than the host reads".to_owned());
                }
                Some(Err(AnyDelimiterCodecError::Io(error))) => return Err(format!("cannot be read: {error}")),
                None => return Err(self.ended().await),
            }
        }
    }

    fn read(&mut self, line: &Bytes) -> Result<Option<Value>, String> {
        let trimmed = line.trim_ascii();
        if trimmed.is_empty() {
            return Ok(None);
        }
        if let Ok(value @ Value::Object(_)) = serde_json::from_slice(trimmed) {
            return Ok(Some(value));
        }
        self.plain += 1;
        if trimmed.starts_with(b"{") || self.plain > PLAIN_LINES {
            return Err("says what is not stream-json".to_owned());
        }
        tracing::debug!(line = %String::from_utf8_lossy(trimmed), "a program prints a plain line");
        Ok(None)
    }

    async fn ended(&mut self) -> String {
        match tokio::time::timeout(EXIT, self.group.exited()).await {
            Ok(Some(status)) => {
                // Its last words may still be on their way.
                tokio::time::sleep(LAST_WORDS).await;
                format!("ended ({status})")
            }
            _ => "closed its output".to_owned(),
        }
    }
}

async fn write(mut stdin: ChildStdin, mut lines: UnboundedReceiver<Value>) {
    while let Some(line) = lines.recv().await {
        let mut line = line.to_string();
        line.push('\n');
        let wrote = async {
            stdin.write_all(line.as_bytes()).await?;
            stdin.flush().await
        };
        if wrote.await.is_err() {
            return;
        }
    }
}
