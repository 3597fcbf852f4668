//! Clients that behave: one sends drafts and waits for their echoes, another reads chats that stream.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;

use super::served::{CLOCK, Served};
use super::sockets::pause;
use crate::chunks;
use crate::client::Client;

/// Chats that stream, and how often each says something in a second.
const STREAMS: usize = 4;
const RATE: usize = 25;
/// Drafts go out one after the other with this pause.
const PAUSE: Duration = Duration::from_millis(10);
/// How long the reader says nothing at most: it answers no pings.
const SILENCE: Duration = Duration::from_secs(10);
/// For as long the chats stream: longer than any case.
const SECONDS: usize = 600;

/// What was seen while something else happened.
pub struct Phase(pub Samples);

#[derive(Default)]
pub struct Samples {
    /// From a draft to its echo.
    pub echoes: Vec<Duration>,
    /// From a word on the agent's output to the client.
    pub deltas: Vec<Duration>,
}

/// The clients, on threads of their own.
pub struct Honest {
    samples: Arc<Mutex<Samples>>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Honest {
    pub fn start(served: &Served) -> Self {
        let (samples, over) = (Arc::<Mutex<Samples>>::default(), Arc::<AtomicBool>::default());
        let mut writer = Client::shaken(served.address, "writer");
        let mut reader = Client::shaken(served.address, "reader");
        let drafts = writer.session("ahp-session:/drafts", "demo");
        writer.subscribe(&drafts);
        for n in 0..STREAMS {
            let chat = reader.session(&format!("ahp-session:/stream-{n}"), CLOCK);
            reader.subscribe(&chat);
            reader.say(&chat, "t", &format!("{} {RATE}", RATE * SECONDS));
        }
        let (kept, ends) = (Arc::clone(&samples), Arc::clone(&over));
        let writes = std::thread::spawn(move || {
            while !ends.load(Ordering::Acquire) {
                let draft = json!({ "text": "a few words of a draft", "origin": { "kind": "user" } });
                let sent = Instant::now();
                let seq = writer.dispatch(&drafts, &json!({ "type": "chat/draftChanged", "draft": draft }));
                writer.until(format!(r#""clientSeq":{seq}}}"#).as_bytes());
                kept.lock().unwrap_or_else(PoisonError::into_inner).echoes.push(sent.elapsed());
                pause(PAUSE);
            }
        });
        let (kept, ends) = (Arc::clone(&samples), Arc::clone(&over));
        let reads = std::thread::spawn(move || {
            let mut spoken = Instant::now();
            while !ends.load(Ordering::Acquire) {
                if spoken.elapsed() > SILENCE {
                    spoken = Instant::now();
                    reader.send(r#"{"jsonrpc":"2.0","id":"here","method":"ping"}"#);
                }
                let message = reader.next();
                let now = chunks::now();
                let text = String::from_utf8_lossy(&message);
                if text.contains(r#""type":"chat/delta""#) {
                    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    chunks::ages(&text, now, &mut kept.deltas);
                }
            }
        });
        Self { samples, over, threads: vec![writes, reads] }
    }

    /// Lets what is new become usual.
    pub fn settle(&self, time: Duration) {
        pause(time);
    }

    /// What they see while `act` runs.
    pub fn during(&self, act: impl FnOnce()) -> Phase {
        self.take();
        act();
        Phase(self.take())
    }

    fn take(&self) -> Samples {
        std::mem::take(&mut *self.samples.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn stop(self) {
        self.over.store(true, Ordering::Release);
        for thread in self.threads {
            if thread.join().is_err() {
                eprintln!("  an honest client was let down");
            }
        }
    }
}
