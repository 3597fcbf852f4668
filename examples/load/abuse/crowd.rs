//! A thousand sockets that hear the same chat, in which something is said all the time. When they are told so, every tenth stops to
//! read.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;

use super::cases::many;
use super::served::Served;
use super::sockets::{frame, pause, request, until, yield_to_others};
use crate::client::Client;

const SIZE: usize = 1_000;
/// What is said, and how often.
const BYTES: usize = 6 << 10;
const PERIOD: Duration = Duration::from_millis(50);
/// A pong that nobody asked for: nobody here answers pings, and nobody is silent.
const PONG: &[u8] = &[0x8a, 0x80, 0, 0, 0, 0];
const SPOKEN: u32 = 200;

/// The sockets, read by a thread until the end.
pub struct Crowd {
    deaf: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    thread: JoinHandle<String>,
}

impl Crowd {
    pub fn gather(served: &Served) -> Self {
        let mut speaker = Client::shaken(served.address, "speaker");
        let chat = speaker.session("ahp-session:/loud", "demo");
        let (mut sockets, missing) = many(served, SIZE, "hearer");
        let subscribe = frame(&request(2, "subscribe", &json!({ "channel": chat }).to_string()));
        for socket in &mut sockets {
            if socket.write_all(&subscribe).and_then(|()| until(socket, br#""id":2,"#)).is_err() {
                eprintln!("  a hearer could not subscribe");
            }
            let _ = socket.set_nonblocking(true);
        }
        let (deaf, over) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (is_deaf, is_over) = (Arc::clone(&deaf), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            yield_to_others();
            let (said, read) = listen(&mut speaker, &chat, sockets, &is_deaf, &is_over);
            let read = read as f64 / 1e6;
            format!("{missing} not opened; {said} drafts of {BYTES} bytes, {read:.0} MB read")
        });
        Self { deaf, over, thread }
    }

    /// Every tenth reads nothing any more.
    pub fn stop_to_read(&self) {
        self.deaf.store(true, Ordering::Release);
    }

    /// What became of it.
    pub fn disperse(self) -> String {
        self.over.store(true, Ordering::Release);
        self.thread.join().unwrap_or_else(|_| "it broke off".into())
    }
}

fn listen(
    speaker: &mut Client,
    chat: &str,
    mut sockets: Vec<TcpStream>,
    is_deaf: &AtomicBool,
    is_over: &AtomicBool,
) -> (u32, usize) {
    let (began, long) = (Instant::now(), "x".repeat(BYTES));
    let mut buffer = vec![0; 256 << 10];
    let (mut said, mut read) = (0, 0);
    while !is_over.load(Ordering::Acquire) {
        let draft = json!({ "text": format!("{said} {long}"), "origin": { "kind": "user" } });
        speaker.dispatch(chat, &json!({ "type": "chat/draftChanged", "draft": draft }));
        said += 1;
        if said % SPOKEN == 0 {
            for socket in &mut sockets {
                let _ = socket.write_all(PONG);
            }
        }
        let deaf = if is_deaf.load(Ordering::Acquire) { SIZE / 10 } else { 0 };
        let next = began + PERIOD * said;
        loop {
            for socket in sockets.iter_mut().skip(deaf) {
                read += drain(socket, &mut buffer);
            }
            if Instant::now() >= next || is_over.load(Ordering::Acquire) {
                break;
            }
            pause(Duration::from_millis(10));
        }
    }
    (said, read)
}

/// Reads what is there.
fn drain(socket: &mut TcpStream, buffer: &mut [u8]) -> usize {
    let mut all = 0;
    loop {
        match socket.read(buffer) {
            Ok(0) => return all,
            Ok(read) => all += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return all,
        }
    }
}
