//! Sockets of abusers: many of them, and no more to each than it takes.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// What every read and write may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The threads that run this yield to all others.
pub fn yield_to_others() {
    let _ = rustix::process::setpriority_process(None, 19);
}

/// Waits, so that others run.
pub fn pause(time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}

/// As many open files as may be.
pub fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// The head of an upgrade.
pub fn upgrade(address: SocketAddr) -> String {
    format!(
        "GET / HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}

/// A TCP connection that waits for nothing without end.
pub fn tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A socket that was upgraded and has shaken hands as `id`. Its answers were read.
pub fn shaken(address: SocketAddr, id: &str) -> io::Result<TcpStream> {
    let mut stream = tcp(address)?;
    stream.write_all(upgrade(address).as_bytes())?;
    until(&mut stream, b"\r\n\r\n")?;
    let params = format!(r#"{{"channel":"ahp-root://","protocolVersions":["1.0.0"],"clientId":"{id}"}}"#);
    stream.write_all(&frame(&request(1, "initialize", &params)))?;
    until(&mut stream, br#""id":1,"#)?;
    Ok(stream)
}

pub fn request(id: usize, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

/// A text frame with a mask of zeros.
pub fn frame(text: &str) -> Vec<u8> {
    let mut frame = head(text.len());
    frame.extend_from_slice(text.as_bytes());
    frame
}

/// The head of a text frame of so many bytes.
fn head(length: usize) -> Vec<u8> {
    let mut head = vec![0x81];
    match length {
        0..126 => head.push(0x80 | length as u8),
        126..65_536 => {
            head.push(0x80 | 126);
            head.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            head.push(0x80 | 127);
            head.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    head.extend_from_slice(&[0; 4]);
    head
}

/// Reads until `marker` comes, and some of what is behind it.
pub fn until(stream: &mut TcpStream, marker: &[u8]) -> io::Result<Vec<u8>> {
    let (mut buffer, mut all) = (vec![0; 64 << 10], Vec::new());
    loop {
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let from = all.len().saturating_sub(marker.len());
        all.extend_from_slice(buffer.get(..read).unwrap_or_default());
        if all.get(from..).unwrap_or_default().windows(marker.len()).any(|found| found == marker) {
            return Ok(all);
        }
    }
}

/// Reads up to a close frame and returns its code; none where the connection ends without one, or nothing comes for a while.
pub fn close_code(stream: &mut TcpStream, wait: Duration) -> Option<u16> {
    let _ = stream.set_read_timeout(Some(wait));
    let (mut buffer, mut all) = (vec![0; 64 << 10], Vec::new());
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        all.extend_from_slice(buffer.get(..read).unwrap_or_default());
        let last = all.iter().rposition(|byte| *byte == 0x88).and_then(|at| all.get(at..)).unwrap_or_default();
        if let [_, length, high, low, reason @ ..] = last
            && usize::from(*length) == reason.len() + 2
        {
            return Some(u16::from_be_bytes([*high, *low]));
        }
        all.drain(..all.len().saturating_sub(256));
    }
    None
}
