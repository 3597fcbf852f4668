//! What a program writes to stderr: read all the time, its end kept.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStderr;
use tokio::sync::watch;

/// How many bytes are kept.
const KEPT: usize = 2_048;
/// How much is read at once.
const READ: usize = 16 << 10;

/// How long the last words of a program that has ended are waited for.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The end of what a program wrote to stderr. Cheap to clone.
#[derive(Clone)]
pub struct Tail {
    kept: Arc<Mutex<VecDeque<u8>>>,
    /// Its sender is gone when nothing more comes.
    open: watch::Receiver<()>,
    /// What is taken out of it.
    secrets: Arc<[String]>,
}

impl Tail {
    /// Reads all of it from now on. Call it on the threads of the programs.
    pub(super) fn drain(mut stderr: ChildStderr, secrets: Vec<String>) -> Self {
        let (writes, mut tail) = Self::new();
        tail.secrets = secrets.into();
        let kept = tail.clone();
        tokio::spawn(async move {
            let mut buffer = vec![0; READ];
            while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
                kept.keep(buffer.get(..read).unwrap_or_default());
            }
            drop(writes);
        });
        tail
    }

    fn new() -> (watch::Sender<()>, Self) {
        let (writes, open) = watch::channel(());
        (writes, Self { kept: Arc::default(), open, secrets: Arc::default() })
    }

    /// Waits, for a moment at most, until all that a program which has ended wrote is here.
    pub async fn last_words(&mut self) {
        let closed = async { while self.open.changed().await.is_ok() {} };
        let _ = tokio::time::timeout(LAST_WORDS, closed).await;
    }

    fn keep(&self, bytes: &[u8]) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let new = bytes.get(bytes.len().saturating_sub(KEPT)..).unwrap_or_default();
        let over = (kept.len() + new.len()).saturating_sub(KEPT).min(kept.len());
        kept.drain(..over);
        kept.extend(new);
    }

    /// The last lines, as text, without the codes of terminals; empty where nothing was written.
    pub fn text(&self) -> String {
        let bytes: Vec<u8> = self.kept.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let mut shown = String::with_capacity(text.len());
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                // An escape sequence ends with a letter.
                '\u{1b}' if letters.next_if_eq(&'[').is_some() => {
                    while letters.next().is_some_and(|next| !next.is_ascii_alphabetic() && next != '~') {}
                }
                '\n' | '\t' => shown.push(letter),
                letter if letter.is_control() || letter == char::REPLACEMENT_CHARACTER => {}
                letter => shown.push(letter),
            }
        }
        for secret in self.secrets.iter() {
            shown = shown.replace(secret.as_str(), "(hidden)");
        }
        shown.trim().to_owned()
    }

    /// `problem`, with the tail behind it where there is one.
    pub fn explain(&self, problem: &str) -> String {
        match self.text() {
            tail if tail.is_empty() => problem.to_owned(),
            tail => format!("{problem}; the end of what it wrote to stderr: {tail}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept_and_shown_without_what_moves_a_terminal() {
        let tail = Tail::new().1;
        tail.keep(&vec![b'x'; 100_000]);
        tail.keep("\n\u{1b}[31mno key\u{1b}[0m: log in first\r\n".as_bytes());
        assert!(tail.text().ends_with("x\nno key: log in first"));
        assert!(tail.text().len() <= KEPT);
        assert_eq!(Tail::new().1.explain("it is gone"), "it is gone");
        let (_writes, mut tail) = Tail::new();
        tail.secrets = vec!["sk-12345678".to_owned()].into();
        tail.keep(b"bad key sk-12345678!");
        assert_eq!(tail.text(), "bad key (hidden)!");
    }
}
