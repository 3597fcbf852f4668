//! One WebSocket from its upgrade to its end.
//!
//! Two sides: the response's body writes ([`super::outbox`]), and a task here reads, keeps the time, and lets the
//! connection go. A socket that is closing has its close frame written after what is queued; then the peer has
//! `close_timeout` to answer it, or its TCP connection is cut, which is what ends one that reads nothing at all. A client
//! whose messages come faster than they are served is not read for a while: TCP makes it wait.
//!
//! Close codes: 1000 answers the peer's own close; 1001 the host stops, or the peer was silent (it may come back); 1002
//! broken framing; 1007 text that is not UTF-8; 1008 no handshake, or none that can succeed; 1009 a message over the
//! limit; 1013 too slow.
//! Source: RFC 6455, 7; AHP transport; the outer contract, limits.

use std::net::Shutdown;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_http::ws::handshake;
use actix_tls::accept::rustls_0_23::TlsStream;
use actix_web::body::{BodyStream, MessageBody};
use actix_web::dev::Extensions;
use actix_web::rt::net::TcpStream;
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::time::{Instant, sleep_until};

use super::error::count_limit;
use super::inbox::{Arrived, Broken, Inbox};
use super::outbox::{self, Wire};
use super::pace::Pace;
use super::peer::{NOT_UTF_8, Peer};
use super::{LONG, ProtocolSettings, Transport, Worker};
use crate::access::seats::Seat;
use crate::actors::connection::CLOSE_NOT_PERMITTED;
use crate::actors::router::TOKEN_ENDED;

/// The TCP connection below a request, so that it can be cut.
#[derive(Clone)]
struct Tcp(Rc<std::net::TcpStream>);

/// For `HttpServer::on_connect`: sends small frames at once, instead of holding them until the peer has acknowledged the
/// ones before (which a client that only listens does some 40 ms late), and keeps a second handle of the TCP connection,
/// without which a peer that reads nothing can only be cut when the operating system gives it up.
pub fn on_connect(transport: &Transport, extensions: &mut Extensions) {
    let Some(stream) = tcp_below(transport) else { return };
    if let Err(error) = stream.set_nodelay(true) {
        tracing::warn!(%error, "a connection sends its small frames late");
    }
    match stream.as_fd().try_clone_to_owned() {
        Ok(fd) => drop(extensions.insert(Tcp(Rc::new(std::net::TcpStream::from(fd))))),
        Err(error) => tracing::warn!(%error, "no second handle of a connection"),
    }
}

/// The TCP connection of a transport, with TLS or without.
fn tcp_below(transport: &Transport) -> Option<&TcpStream> {
    let secured = || Some(transport.downcast_ref::<TlsStream<TcpStream>>()?.get_ref().0);
    transport.downcast_ref().or_else(secured)
}

/// Upgrades an admitted request.
pub async fn upgrade(worker: &Worker, req: &HttpRequest, payload: web::Payload) -> HttpResponse {
    let app = &worker.app;
    let identity = match app.gate.admit(req).await {
        Ok(identity) => identity,
        Err(refused) => return refused.response(),
    };
    let mut response = match handshake(req.head()) {
        Ok(response) => response,
        Err(error) => return HttpResponse::from(actix_http::Response::from(error)),
    };
    let seat = match app.seats.take(&identity.principal) {
        Ok(seat) => seat,
        Err(full) => return full.response(),
    };
    let peer = Peer::new(Arc::clone(app), Rc::clone(worker.router()), identity);
    let wire = Wire::new(Rc::clone(&peer.connection));
    let body = outbox::body(Rc::clone(&wire), app.settings.max_frame_sent);
    let socket = Socket::new(peer, wire, req.conn_data::<Tcp>().cloned(), seat);
    actix_rt::spawn(socket.read(payload));
    match response.message_body(BodyStream::new(Box::pin(body)).boxed()) {
        Ok(response) => HttpResponse::from(response),
        Err(_) => HttpResponse::InternalServerError().finish(),
    }
}

/// The reading side of a socket.
struct Socket {
    peer: Rc<Peer>,
    wire: Rc<Wire>,
    inbox: Inbox,
    tcp: Option<Tcp>,
    opened: Instant,
    heard: Instant,
    /// When the peer was pinged and has not been heard since.
    pinged: Option<Instant>,
    /// When closing began.
    closing: Option<Instant>,
    /// When the peer's token ends.
    over: Option<Instant>,
    /// Whether nothing of what still comes can be understood.
    deaf: bool,
    pace: Pace,
    /// When more may be served, where it came too quickly.
    waits_until: Option<Instant>,
    /// Whether so much is being worked on, or came so quickly, that the client is not read.
    held_up: bool,
    _seat: Seat,
}

impl Socket {
    fn new(peer: Rc<Peer>, wire: Rc<Wire>, tcp: Option<Tcp>, seat: Seat) -> Self {
        let now = Instant::now();
        let wall = peer.app.host.clock().now();
        let over = peer.who.time_left(wall).and_then(|left| now.checked_add(left));
        let settings = &peer.app.settings;
        let (messages, bytes) = (settings.max_messages_a_second, settings.max_bytes_a_second);
        let pace = Pace::new(messages, bytes, settings.max_message, now);
        Self {
            peer,
            wire,
            inbox: Inbox::default(),
            tcp,
            opened: now,
            heard: now,
            pinged: None,
            closing: None,
            over,
            deaf: false,
            pace,
            waits_until: None,
            held_up: false,
            _seat: seat,
        }
    }

    async fn read(mut self, mut payload: web::Payload) {
        let connection = Rc::clone(&self.peer.connection);
        let received = Arc::clone(&self.peer.to.received);
        loop {
            tokio::select! {
                bytes = payload.next(), if !self.held_up => match bytes {
                    Some(Ok(bytes)) => if self.take(&bytes) { break },
                    // The peer is gone.
                    Some(Err(_)) | None => break,
                },
                () = received.less(), if self.held_up => if self.go_on() { break },
                () = connection.ending.notified() => {
                    self.begin_closing();
                    if self.held_up && self.go_on() { break }
                }
                () = sleep_until(self.deadline()) => if self.tick() { break },
            }
        }
        self.wire.finish();
        self.peer.leave();
    }

    fn settings(&self) -> &ProtocolSettings {
        &self.peer.app.settings
    }

    /// When something is to be done if nothing arrives before.
    fn deadline(&self) -> Instant {
        let settings = self.settings();
        if let Some(closing) = self.closing {
            return closing + settings.close_timeout;
        }
        let silence = match self.pinged {
            Some(pinged) => pinged + settings.pong_timeout,
            None => self.heard + settings.ping_after,
        };
        let silence = self.over.map_or(silence, |over| silence.min(over));
        let silence = self.waits_until.filter(|_| self.held_up).map_or(silence, |until| silence.min(until));
        let shakes = self.peer.is_fresh() && !self.held_up;
        if shakes { silence.min(self.opened + settings.handshake_timeout) } else { silence }
    }

    /// Does what a deadline asks for; says whether the socket is over.
    fn tick(&mut self) -> bool {
        let (settings, now) = (self.settings(), Instant::now());
        if self.deadline() > now {
            return false;
        }
        if self.closing.is_some() {
            self.cut();
            return true;
        }
        if self.over.is_some_and(|over| over <= now) {
            self.close(CLOSE_NOT_PERMITTED, TOKEN_ENDED);
        } else if self.held_up {
            // Whatever it says meanwhile is not heard.
            (self.heard, self.pinged) = (now, None);
            return self.go_on();
        } else if self.peer.is_fresh() && passed(self.opened, settings.handshake_timeout, now) {
            count_limit("handshake_time");
            self.close(1008, "no handshake");
        } else if self.pinged.is_some() {
            count_limit("silence");
            self.close(1001, "nothing was heard: reconnect to go on");
        } else {
            self.pinged = Some(now);
            self.wire.ping();
        }
        false
    }

    /// From now on nothing is served; nor is anything done any more with what its peer gave.
    fn begin_closing(&mut self) {
        self.closing.get_or_insert_with(Instant::now);
        self.peer.forget_tokens();
    }

    fn close(&mut self, code: u16, reason: &str) {
        self.begin_closing();
        self.peer.connection.close(code, reason.to_owned());
    }

    fn cut(&self) {
        if let Some(Tcp(stream)) = &self.tcp {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Takes what arrived; says whether the socket is over.
    fn take(&mut self, bytes: &Bytes) -> bool {
        if self.deaf {
            return false;
        }
        self.heard = Instant::now();
        self.pinged = None;
        self.pace.took_bytes(bytes.len());
        self.inbox.feed(bytes);
        self.serve_all()
    }

    /// Goes on with what was held up, if there is room for it; says whether the socket is over.
    fn go_on(&mut self) -> bool {
        if self.is_too_much() {
            return false;
        }
        self.held_up = false;
        self.heard = Instant::now();
        self.serve_all()
    }

    /// Whether the client has to wait. One that is asked something is read for its answer.
    fn is_too_much(&mut self) -> bool {
        self.waits_until = self.pace.waits_until(Instant::now());
        let settings = self.settings();
        let received = &self.peer.to.received;
        let is_full = received.is_full(settings.max_actions_in_flight, settings.max_received);
        let is_busy = self.peer.is_working() || self.waits_until.is_some();
        self.closing.is_none() && (is_busy || (is_full && !self.peer.connection.is_asked()))
    }

    /// Serves the messages that are there, as long as there is room; says whether the socket is over.
    fn serve_all(&mut self) -> bool {
        loop {
            if !self.inbox.is_empty() && self.is_too_much() {
                count_limit("received");
                self.held_up = true;
                return false;
            }
            match self.inbox.next(self.limit()) {
                Ok(None) => return false,
                Ok(Some(Arrived::Close(_))) if self.closing.is_some() => return true,
                Ok(Some(arrived)) => {
                    self.pace.took_message();
                    self.serve(arrived);
                }
                Err(Broken::TooLong) => self.too_long(),
                Err(Broken::Protocol(problem)) => {
                    self.deaf = true;
                    self.inbox.clear();
                    self.close(1002, &problem);
                    return false;
                }
            }
        }
    }

    fn limit(&self) -> usize {
        let settings = self.settings();
        if self.peer.is_fresh() { settings.max_message_before_handshake } else { settings.max_message }
    }

    fn too_long(&mut self) {
        count_limit("message");
        let limit = self.limit();
        self.close(1009, &format!("a message is longer than {limit} bytes"));
    }

    fn serve(&mut self, arrived: Arrived) {
        if self.closing.is_some() || self.peer.connection.is_closing() {
            return;
        }
        match arrived {
            Arrived::Text(bytes) if bytes.len() >= LONG => self.peer.receive_long(bytes),
            Arrived::Text(bytes) => match std::str::from_utf8(&bytes) {
                Ok(text) => self.peer.receive(text),
                Err(_) => self.close(1007, NOT_UTF_8),
            },
            Arrived::Binary => self.peer.refuse_binary(),
            Arrived::Ping(payload) => self.wire.pong(payload),
            Arrived::Pong => {}
            Arrived::Close(code) => {
                // What is queued still goes out, then the answer to the close; the peer has nothing more to say.
                self.close(answer_to_close(code), "");
                self.deaf = true;
                self.wire.finish();
            }
        }
    }
}

/// The code that answers the peer's close.
fn answer_to_close(code: Option<u16>) -> u16 {
    match code {
        Some(code) if matches!(code, 1000..=1003 | 1007..=1011 | 3000..=4999) => code,
        _ => 1000,
    }
}

fn passed(since: Instant, wait: Duration, now: Instant) -> bool {
    since + wait <= now
}
