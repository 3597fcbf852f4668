//! Streams that do not end: replay, then what happens.
//!
//! The hand-over has no gap and nothing twice: the stream reads the log to near its end, becomes a watcher, waits until
//! everything that was shown so far is on disk, reads on to the end, and then takes from its queue what is newer. A
//! reader that is too slow has its stream ended, and resumes where it was; nothing is left out in silence.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_web::{HttpResponse, web};
use bytes::Bytes;
use futures_util::stream;
use serde::Deserialize;
use tokio::sync::mpsc;

use super::Admin;
use super::answer::{Admitted, ApiFault, off_thread};
use super::events::{Render, envelope, is_had_in_part, push_envelope, room_for, snapshot};
use super::inspect::{Reading, event_at, on_one_line};
use crate::actors::connection::Connection;
use crate::actors::envelope::envelope_of;
use crate::actors::router::{Router, Watch};
use crate::events::{Record, ServerSeq, Store};

/// How often an idle stream says that it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How often a follower looks for records that nobody publishes.
const LOOK: Duration = Duration::from_millis(100);
/// How near the end of the log a replay must be before the stream becomes a watcher.
const NEAR: u64 = 1_000;
/// Bytes that are sent in one piece.
const PIECE: usize = 64 * 1024;

/// Why a stream ends: its reader is gone or too slow, the host stops, or the log could not be read.
struct Over;

/// What a stream works with.
struct Streaming {
    admin: web::Data<Admin>,
    connection: Rc<Connection>,
    reading: Reading,
    out: mpsc::Sender<Bytes>,
}

/// Replay, then live, as server-sent events.
///
/// # Errors
/// The caller, or the host, has all its connections.
pub fn server_sent(admitted: Admitted, reading: Reading, watch: Watch) -> Result<HttpResponse, ApiFault> {
    let body = started(admitted, reading, async move |stream, router| stream.replay_and_watch(router, watch).await)?;
    let response = HttpResponse::Ok()
        .content_type("text/event-stream")
        .insert_header(("Cache-Control", "no-cache"))
        .insert_header(("X-Accel-Buffering", "no"))
        .streaming(body);
    Ok(response)
}

/// Everything that `reading` wants, also what is appended later, records of the host included.
///
/// # Errors
/// The caller, or the host, has all its connections.
pub fn follow(admitted: Admitted, reading: Reading, render: Render) -> Result<HttpResponse, ApiFault> {
    let body = started(admitted, reading, async move |stream, _| stream.read_for_ever(render).await)?;
    Ok(HttpResponse::Ok().content_type("application/x-ndjson").streaming(body))
}

/// Runs `work` on this worker's thread until it is over; the body is what it sends.
fn started<F>(
    admitted: Admitted,
    reading: Reading,
    work: F,
) -> Result<impl futures_util::Stream<Item = Result<Bytes, ApiFault>> + use<F>, ApiFault>
where
    F: AsyncFnOnce(&mut Streaming, &Router) -> Result<(), Over> + 'static,
{
    let (out, body) = mpsc::channel(2);
    let Admitted { admin, router, who } = admitted;
    let seat = admin.seats.take(&who.principal)?;
    let (connection, _) = router.connect(who, admin.unsent_limit);
    connection.is_stream.set(true);
    let left = connection.who.time_left(admin.host.clock().now());
    let connection_of = Rc::clone(&connection);
    let mut streaming = Streaming { admin, connection, reading, out };
    actix_web::rt::spawn(async move {
        // It is among the router's connections by now: what is taken away later ends it, what was before is looked for here.
        let is_known = streaming.admin.host.is_known(&connection_of.who);
        tokio::select! {
            _ = work(&mut streaming, &router), if is_known => {}
            () = connection_of.ending.notified() => {}
            () = over(left) => {}
        }
        router.disconnect(connection_of.id);
        drop(seat);
    });
    Ok(stream::unfold(body, |mut body| async move { Some((Ok(body.recv().await?), body)) }))
}

/// Waits until what is left of somebody's time is over; for ever where it does not end.
async fn over(left: Option<Duration>) {
    match left {
        Some(left) => tokio::time::sleep(left).await,
        None => std::future::pending().await,
    }
}

impl Streaming {
    async fn replay_and_watch(&mut self, router: &Router, watch: Watch) -> Result<(), Over> {
        let admin = self.admin.clone();
        let store = admin.host.store();
        self.send(Bytes::from_static(b": replay\n\n")).await?;
        while self.reading.left() > 0 && store.tail().saturating_sub(self.reading.reached()) > NEAR {
            self.read_to_the_end(server_sent_events).await?;
        }
        router.watch(&self.connection, watch);
        admin.host.writer().barrier().await.map_err(|_| Over)?;
        self.read_to_the_end(server_sent_events).await?;
        let seen = self.reading.reached();
        self.send_live(seen).await
    }

    async fn read_for_ever(&mut self, render: Render) -> Result<(), Over> {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            self.read_to_the_end(render).await?;
            if self.reading.is_over() {
                return Ok(());
            }
            tokio::select! {
                _ = look.tick() => {}
                () = self.out.closed() => return Err(Over),
            }
        }
    }

    /// Sends the pages up to what is on disk.
    async fn read_to_the_end(&mut self, render: Render) -> Result<(), Over> {
        while let Some(page) = self.page(render).await? {
            if !page.is_empty() {
                self.send(page).await?;
            }
        }
        if self.connection.is_closing() { Err(Over) } else { Ok(()) }
    }

    async fn page(&mut self, render: Render) -> Result<Option<Bytes>, Over> {
        let store = Arc::clone(self.admin.host.store());
        let mut reading = self.reading.clone();
        let read = off_thread(move || {
            let after = reading.reached();
            let page = reading.next_page(&*store)?.map(|records| render(&*store, &records, after)).transpose()?;
            Ok::<_, ApiFault>((page, reading))
        });
        let (page, reading) = read.await.map_err(|_| Over)?;
        self.reading = reading;
        Ok(page)
    }

    async fn send(&self, bytes: Bytes) -> Result<(), Over> {
        if self.connection.is_closing() {
            return Err(Over);
        }
        self.out.send(bytes).await.map_err(|_| Over)
    }

    /// Sends what the router queues, without what is at or before `seen`.
    async fn send_live(&self, seen: ServerSeq) -> Result<(), Over> {
        let mut left = self.reading.left();
        while left > 0 {
            let piece = self.queued(seen, &mut left).await?;
            if !piece.is_empty() {
                self.send(piece).await?;
                continue;
            }
            if self.connection.is_closing() {
                return Err(Over);
            }
            self.wait().await?;
        }
        Ok(())
    }

    /// What is queued, as server-sent events, at most a piece.
    async fn queued(&self, seen: ServerSeq, left: &mut u64) -> Result<Bytes, Over> {
        let mut text = String::new();
        while text.len() < PIECE && *left > 0 {
            let Some(frame) = self.connection.pop() else { break };
            let envelope = envelope_of(&frame);
            let Some(head) = Head::of(envelope).filter(|head| head.server_seq > seen) else { continue };
            let whole = if head.is_page() { self.page_of_turns(head.server_seq).await? } else { None };
            let envelope = whole.unwrap_or_else(|| on_one_line(envelope.to_owned()));
            push_event(&mut text, head.server_seq, &envelope);
            *left -= 1;
        }
        Ok(Bytes::from(text))
    }

    /// The envelope of a page of older turns, of which the log keeps the range.
    async fn page_of_turns(&self, seq: ServerSeq) -> Result<Option<String>, Over> {
        self.admin.host.writer().barrier().await.map_err(|_| Over)?;
        let store = Arc::clone(self.admin.host.store());
        let read = off_thread(move || {
            let record = event_at(&*store, seq)?;
            Ok::<_, ApiFault>(record.map(|record| envelope(&*store, &record)))
        });
        read.await.map_err(|_| Over)
    }

    /// Waits for something in the queue; says now and then that the stream is still there.
    async fn wait(&self) -> Result<(), Over> {
        tokio::select! {
            () = self.connection.wake.notified() => Ok(()),
            () = self.out.closed() => Err(Over),
            () = tokio::time::sleep(KEEP_ALIVE) => self.send(Bytes::from_static(b": still here\n\n")).await,
        }
    }
}

fn server_sent_events(store: &dyn Store, records: &[Record], after: ServerSeq) -> Result<Bytes, ApiFault> {
    use std::fmt::Write as _;

    let mut text = room_for(records);
    for record in records {
        if is_had_in_part(record, after) {
            let _ = write!(text, "event: snapshot\nid: {}\ndata: {}\n\n", record.seq, snapshot(store, record)?);
            continue;
        }
        let _ = write!(text, "id: {}\ndata: ", record.seq);
        push_envelope(&mut text, store, record);
        text.push_str("\n\n");
    }
    Ok(Bytes::from(text))
}

fn push_event(text: &mut String, seq: ServerSeq, envelope: &str) {
    use std::fmt::Write as _;

    let _ = write!(text, "id: {seq}\ndata: {envelope}\n\n");
}

/// What must be known of an envelope to send it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head<'a> {
    server_seq: ServerSeq,
    #[serde(borrow)]
    action: ActionHead<'a>,
}

#[derive(Deserialize)]
struct ActionHead<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
}

impl<'a> Head<'a> {
    fn of(envelope: &'a str) -> Option<Self> {
        serde_json::from_str(envelope).ok()
    }

    fn is_page(&self) -> bool {
        self.action.kind == "chat/turnsLoaded"
    }
}
