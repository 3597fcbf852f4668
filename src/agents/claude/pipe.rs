//! A CLI that runs: lines out of it, each bounded, and lines into it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::codec::{AnyDelimiterCodec, AnyDelimiterCodecError, FramedRead};

use crate::agents::programs::{Group, Running, Tail};

/// How many lines in a row may be no JSON: programs print warnings.
const PLAIN_LINES: usize = 8;
/// How much of a plain line is logged, in bytes.
const SHOWN: usize = 200;
/// The bytes that may wait behind the line that is written before the program is at fault: it asks and does not read answers.
const WAITING: usize = 32 << 20;
/// How long a program that closed its output may take to exit before that is all that is known.
const EXIT: Duration = Duration::from_secs(2);

/// A running CLI. Dropped, its input closes and it ends in steps.
pub(super) struct Pipe {
    lines: FramedRead<ChildStdout, AnyDelimiterCodec>,
    input: UnboundedSender<Vec<u8>>,
    /// The bytes that were handed to `input` and that nobody began to write.
    waiting: Arc<AtomicUsize>,
    plain: usize,
    pub(super) stderr: Tail,
    group: Group,
}

impl Pipe {
    /// Takes over a program that was started; call it on the threads of the programs.
    pub(super) fn new(running: Running, max_line: usize) -> Self {
        let Running { stdin, stdout, stderr, group } = running;
        let (input, lines) = unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        tokio::spawn(write(stdin, lines, Arc::clone(&waiting)));
        let codec = AnyDelimiterCodec::new_with_max_length(b"\n".to_vec(), Vec::new(), max_line);
        Self { lines: FramedRead::new(stdout, codec), input, waiting, plain: 0, stderr, group }
    }

    /// Writes a line, in order. It never waits for the program to read; what was written before the pipe is dropped is
    /// written to its end before the input closes.
    pub(super) fn write(&self, line: &Value) {
        let mut line = line.to_string().into_bytes();
        line.push(b'\n');
        self.waiting.fetch_add(line.len(), Ordering::AcqRel);
        // A program that is gone ignores it.
        let _ = self.input.send(line);
    }

    /// The next line. Its error says why there will be no more, in words. May be dropped while it waits.
    pub(super) async fn next(&mut self) -> Result<Value, String> {
        loop {
            if self.is_deaf() {
                return Err("does not read what it is told".to_owned());
            }
            match self.lines.next().await {
                Some(Ok(line)) => {
                    if let Some(line) = self.read(&line)? {
                        return Ok(line);
                    }
                }
                Some(Err(AnyDelimiterCodecError::MaxChunkLengthExceeded)) => {
                    crate::agents::count_too_long();
                    return Err("said more in one line than the host reads".to_owned());
                }
                Some(Err(AnyDelimiterCodecError::Io(error))) => return Err(format!("cannot be read: {error}")),
                None => return Err(self.ended().await),
            }
        }
    }

    /// Whether more waits for the program than one that reads leaves.
    fn is_deaf(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > WAITING
    }

    fn read(&mut self, line: &Bytes) -> Result<Option<Value>, String> {
        let trimmed = line.trim_ascii();
        if trimmed.is_empty() {
            return Ok(None);
        }
        if let Ok(value @ Value::Object(_)) = serde_json::from_slice(trimmed) {
            self.plain = 0;
            return Ok(Some(value));
        }
        self.plain += 1;
        if trimmed.starts_with(b"{") || self.plain > PLAIN_LINES {
            return Err("says what is not stream-json".to_owned());
        }
        let shown = String::from_utf8_lossy(trimmed.get(..SHOWN).unwrap_or(trimmed));
        tracing::debug!(line = %shown, "a program prints a plain line");
        Ok(None)
    }

    async fn ended(&mut self) -> String {
        match tokio::time::timeout(EXIT, self.group.exited()).await {
            Ok(Some(status)) => {
                self.stderr.last_words().await;
                format!("ended ({status})")
            }
            _ => "closed its output".to_owned(),
        }
    }
}

async fn write(mut stdin: ChildStdin, mut lines: UnboundedReceiver<Vec<u8>>, waiting: Arc<AtomicUsize>) {
    while let Some(line) = lines.recv().await {
        waiting.fetch_sub(line.len(), Ordering::AcqRel);
        let wrote = async {
            stdin.write_all(&line).await?;
            stdin.flush().await
        };
        if wrote.await.is_err() {
            return;
        }
    }
}
