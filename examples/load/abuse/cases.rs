//! What each abuser does. All loops are bounded, and each ends after [`LONGEST`].

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use super::crowd::Crowd;
use super::served::Served;
use super::sockets::{close_code, frame, pause, request, shaken, tcp, until, upgrade, yield_to_others};
use crate::Scale;
use crate::client::Client;

/// After which time an abuser gives up.
const LONGEST: Duration = Duration::from_secs(120);
/// Threads that open sockets.
const OPENERS: usize = 4;
const LIMIT: usize = 48 << 20;

/// `count` sockets that have shaken hands; how many could not.
pub fn many(served: &Served, count: usize, name: &str) -> (Vec<TcpStream>, usize) {
    let mut all = Vec::with_capacity(count);
    let open = |opener: usize| {
        yield_to_others();
        let numbers = (opener..count).step_by(OPENERS);
        let opened = numbers.filter_map(|n| shaken(served.address, &format!("{name}-{n}")).ok());
        opened.collect::<Vec<TcpStream>>()
    };
    std::thread::scope(|scope| {
        let open = &open;
        let openers: Vec<_> = (0..OPENERS).map(|opener| scope.spawn(move || open(opener))).collect();
        all.extend(openers.into_iter().filter_map(|opener| opener.join().ok()).flatten());
    });
    let missing = count - all.len();
    (all, missing)
}

/// Sockets that shake hands and then say nothing.
pub fn idle(scale: Scale, served: &Served, _: Option<&Crowd>) -> String {
    let began = Instant::now();
    let (sockets, missing) = many(served, scale.of(5_000, 1_000), "idle");
    let opened = began.elapsed();
    pause(scale.of(Duration::from_secs(15), Duration::from_secs(3)));
    format!("{} opened in {:.1} s, {missing} not", sockets.len(), opened.as_secs_f64())
}

/// A tenth of the crowd that was there before stops to read.
pub fn deaf(scale: Scale, _: &Served, crowd: Option<&Crowd>) -> String {
    let Some(crowd) = crowd else { return "nobody is there".into() };
    crowd.stop_to_read();
    pause(scale.of(Duration::from_secs(110), Duration::from_secs(10)).min(LONGEST));
    "every tenth stopped to read".into()
}

fn counts(scale: Scale) -> (usize, usize) {
    scale.of((10, 1_000), (2, 500))
}

fn chat(session: usize, chat: usize) -> String {
    format!("ahp-chat:/many-{session}-{chat}")
}

/// The chats for the next one.
pub fn make_chats(scale: Scale, served: &Served) -> Option<Crowd> {
    let (sessions, chats) = counts(scale);
    let mut maker = Client::shaken(served.address, "maker");
    for session in 0..sessions {
        let uri = format!("ahp-session:/many-{session}");
        maker.session(&uri, "demo");
        for n in 1..chats {
            maker.ask("createChat", &json!({ "channel": uri, "chat": chat(session, n) }));
        }
    }
    None
}

/// A client that subscribes to as many channels as one may, and to one more.
pub fn channels(scale: Scale, served: &Served, _: Option<&Crowd>) -> String {
    yield_to_others();
    let (sessions, chats) = counts(scale);
    let mut client = Client::shaken(served.address, "subscriber");
    let began = Instant::now();
    let mut count = 0;
    for session in 0..sessions {
        client.subscribe(&format!("ahp-session:/many-{session}"));
        count += 1;
        for n in 1..chats {
            client.subscribe(&chat(session, n));
            count += 1;
        }
    }
    let took = began.elapsed();
    let more = client.ask_raw("subscribe", &json!({ "channel": "ahp-root://" }));
    let refused = String::from_utf8_lossy(&more).contains("limit-exceeded");
    pause(Duration::from_secs(5));
    format!("{count} subscriptions in {:.1} s, one more refused: {refused}", took.as_secs_f64())
}

/// A client that sends as fast as it can, and reads what comes back.
pub fn actions(scale: Scale, served: &Served, _: Option<&Crowd>) -> String {
    yield_to_others();
    let count = scale.of(100_000, 20_000);
    let mut client = Client::shaken(served.address, "quick");
    let chat = client.session("ahp-session:/quick", "demo");
    client.subscribe(&chat);
    let (Ok(mut out), began) = (client.stream.try_clone(), Instant::now()) else { return "no second handle".into() };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            yield_to_others();
            for n in 1..=count {
                let draft = json!({ "text": format!("draft {n}"), "origin": { "kind": "user" } });
                let action = json!({ "type": "chat/draftChanged", "draft": draft });
                let params = json!({ "channel": chat, "clientSeq": n, "action": action });
                let message = json!({ "jsonrpc": "2.0", "method": "dispatchAction", "params": params }).to_string();
                if out.write_all(&frame(&message)).is_err() || began.elapsed() > LONGEST {
                    return;
                }
            }
        });
        let (mut echoes, mut refused) = (0, 0);
        while echoes < count && began.elapsed() < LONGEST {
            let message = client.next();
            let text = String::from_utf8_lossy(&message);
            if text.contains(r#""clientSeq":"#) {
                echoes += 1;
                refused += usize::from(text.contains("rejectionReason"));
            }
        }
        let took = began.elapsed().as_secs_f64();
        format!("{echoes} echoes in {took:.1} s, {refused} of them refusals")
    })
}

/// Frames as long as one may be, as a ping and as a draft, and one byte longer.
pub fn frames(scale: Scale, served: &Served, _: Option<&Crowd>) -> String {
    yield_to_others();
    let ping = request(2, "ping", r#"{"channel":"ahp-root://"}"#);
    let padded = |length: usize| format!("{ping}{}", " ".repeat(length - ping.len()));
    let begin = r#"{"jsonrpc":"2.0","method":"dispatchAction","params":{"channel":"CHAT","clientSeq":1,"action":{"type":"chat/draftChanged","draft":{"origin":{"kind":"user"},"text":""#;
    let (mut answered, mut refused, mut closed) = (0, 0, 0);
    let began = Instant::now();
    let mut maker = Client::shaken(served.address, "maker");
    let uri = maker.session("ahp-session:/long", "demo");
    let rounds = scale.of(8, 2);
    for _ in 0..rounds {
        let Ok(mut socket) = shaken(served.address, "long") else { continue };
        let whole = frame(&padded(LIMIT));
        answered += usize::from(socket.write_all(&whole).and_then(|()| until(&mut socket, br#""id":2,"#)).is_ok());
        let start = begin.replace("CHAT", &uri);
        let draft = format!("{start}{}\"}}}}}}}}", "x".repeat(LIMIT - start.len() - 5));
        let sent = socket.write_all(&frame(&draft));
        refused += usize::from(sent.and_then(|()| until(&mut socket, b"rejectionReason")).is_ok());
        let more = frame(&padded(LIMIT + 1));
        let _ = socket.write_all(&more);
        closed += usize::from(close_code(&mut socket, Duration::from_secs(5)) == Some(1009));
        if began.elapsed() > LONGEST {
            break;
        }
    }
    format!("of {rounds}: {answered} pings answered, {refused} drafts refused, {closed} closed with 1009")
}

/// Messages that nest deeper than anything is parsed.
pub fn nesting(scale: Scale, served: &Served, _: Option<&Crowd>) -> String {
    yield_to_others();
    let deep = 100_000;
    let shapes = [
        format!("{}{}", "[".repeat(deep), "]".repeat(deep)),
        format!("{}1{}", r#"{"a":"#.repeat(deep), "}".repeat(deep)),
        "[".repeat(deep),
    ];
    let (mut sent, mut refused, began) = (0, 0, Instant::now());
    let length = scale.of(Duration::from_secs(60), Duration::from_secs(10));
    let Ok(mut socket) = shaken(served.address, "deep") else { return "not opened".into() };
    while began.elapsed() < length {
        for shape in &shapes {
            sent += 1;
            let written = socket.write_all(&frame(&request(sent, "ping", shape)));
            refused += usize::from(written.and_then(|()| until(&mut socket, br#""error":"#)).is_ok());
        }
    }
    format!("{refused} of {sent} refused")
}

/// Upgrades that come a byte a second; who is cut off begins again.
pub fn slowloris(scale: Scale, served: &Served, _: Option<&Crowd>) -> String {
    yield_to_others();
    let count = scale.of(2_000, 500);
    let head = upgrade(served.address);
    let mut buffer = vec![0; 4_096];
    let (mut slow, mut cut, mut failed): (Vec<(TcpStream, usize)>, usize, usize) = (Vec::new(), 0, 0);
    let began = Instant::now();
    let length = scale.of(Duration::from_secs(40), Duration::from_secs(13));
    for second in 1.. {
        while slow.len() < count {
            match tcp(served.address) {
                Ok(stream) => {
                    let _ = stream.set_nonblocking(true);
                    slow.push((stream, 0));
                }
                Err(_) => {
                    failed += 1;
                    break;
                }
            }
        }
        let before = slow.len();
        slow.retain_mut(|(stream, at)| {
            let byte = head.as_bytes().get(*at..*at + 1).unwrap_or_default();
            *at += 1;
            let is_open = stream.write_all(byte).is_ok();
            is_open && stream.read(&mut buffer).is_err()
        });
        cut += before - slow.len();
        if began.elapsed() > length {
            break;
        }
        pause((began + Duration::from_secs(second)).saturating_duration_since(Instant::now()));
    }
    format!("{count} at a time, {cut} cut off, {failed} not opened")
}
