//! One request that waits for its answer.
//!
//! Always: answered exactly once. A ticket that is dropped, because what should answer it went away, answers with an
//! internal error by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytestring::ByteString;
use tracing::Span;

use super::error::{limit, refusal_frame, result_frame};
use crate::actors::command::{Answer, Refusal, RefusalKind, Reply};
use crate::actors::connection::{Connection, ConnectionRef};
use crate::actors::counts::Counted;
use crate::actors::received::Held;

/// How many requests of a connection are not answered yet.
#[derive(Debug, Clone, Default)]
pub struct InFlight(Arc<AtomicUsize>);

/// The right to answer a request.
#[derive(Debug)]
pub struct Ticket {
    /// The JSON of its id; taken when it is answered.
    id: Option<String>,
    to: ConnectionRef,
    in_flight: InFlight,
    _counted: Counted,
    /// Bytes of the longest answer.
    max_answer: usize,
    /// What was sent, until it is answered.
    _held: Held,
    trail: Trail,
}

/// What the process's own log says of a request, from its arrival to its answer.
#[derive(Debug)]
struct Trail {
    span: Span,
    began: Instant,
}

impl InFlight {
    /// A ticket for the request `id`, of so many bytes, answered through `to`.
    ///
    /// # Errors
    /// A refusal when `max` requests are in flight.
    pub fn ticket(
        &self,
        id: &str,
        bytes: usize,
        to: &ConnectionRef,
        max: usize,
        max_answer: usize,
    ) -> Result<Ticket, Refusal> {
        if self.0.load(Ordering::Acquire) >= max {
            return Err(limit("requests_in_flight", "too many requests in flight: wait for answers"));
        }
        self.0.fetch_add(1, Ordering::AcqRel);
        let (_counted, _held) = (to.count_request(), to.received.hold_request(bytes));
        let trail = Trail { span: Span::current(), began: Instant::now() };
        Ok(Ticket {
            id: Some(id.to_owned()),
            to: to.clone(),
            in_flight: self.clone(),
            _counted,
            max_answer,
            _held,
            trail,
        })
    }
}

impl Ticket {
    /// The value of `checked`, or nothing after it was refused.
    pub fn checked<T>(self, checked: Result<T, Refusal>) -> Option<(Self, T)> {
        match checked {
            Ok(value) => Some((self, value)),
            Err(refusal) => {
                self.refuse(refusal);
                None
            }
        }
    }

    /// Answers, from any thread, behind what is on its way to the connection.
    pub fn answer(mut self, answer: Answer) {
        if let Some(frame) = self.take_frame(answer.map(|result| String::from(Box::<str>::from(result)))) {
            self.to.send(frame);
        }
    }

    /// Refuses.
    pub fn refuse(self, refusal: Refusal) {
        self.answer(Err(refusal));
    }

    /// Answers with JSON on the connection's thread, right here among its frames.
    pub fn answer_on(self, connection: &Connection, json: Result<String, Refusal>) {
        connection.push(self.into_frame(json));
        connection.wake.notify_one();
    }

    /// The frame of the answer, for whoever queues it.
    pub fn into_frame(mut self, json: Result<String, Refusal>) -> ByteString {
        self.take_frame(json).unwrap_or_default()
    }

    /// The ticket as the reply of a command.
    pub fn reply(self) -> Reply {
        Box::new(move |answer| self.answer(answer))
    }

    fn take_frame(&mut self, json: Result<String, Refusal>) -> Option<ByteString> {
        let id = self.id.take()?;
        self.in_flight.0.fetch_sub(1, Ordering::AcqRel);
        self.trail.ends(json.as_ref().err());
        Some(match json {
            Ok(result) if result.len() > self.max_answer => {
                refusal_frame(&id, &limit("message_sent", "the answer is larger than a message may be: ask for less"))
            }
            Ok(result) => result_frame(&id, result),
            Err(refusal) => refusal_frame(&id, &refusal),
        })
    }
}

impl Trail {
    fn ends(&self, refusal: Option<&Refusal>) {
        let micros = self.began.elapsed().as_micros() as u64;
        self.span.in_scope(|| match refusal {
            Some(refusal) => tracing::debug!(micros, code = refusal.code, "refused"),
            None => tracing::debug!(micros, "answered"),
        });
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let lost = Refusal::new(RefusalKind::Internal, "internal", "the command was lost: its outcome is not known");
        if let Some(frame) = self.take_frame(Err(lost)) {
            self.to.send(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use serde_json::Value;

    use super::*;
    use crate::access::Identity;
    use crate::actors::command::null;
    use crate::actors::router::{Hub, Router};

    fn connection() -> (Rc<Connection>, ConnectionRef) {
        Router::start(&Hub::new(1, Arc::new(|_, _| None))).connect(Arc::new(Identity::root("test")), 1 << 20)
    }

    /// What was answered, once everything on its way has arrived.
    async fn answers(connection: &Connection, to: &ConnectionRef) -> Vec<Value> {
        let (done, waits) = tokio::sync::oneshot::channel();
        to.run(Box::new(|_| assert_eq!(done.send(()), Ok(()))));
        waits.await.unwrap();
        std::iter::from_fn(|| connection.pop()).map(|frame| serde_json::from_str(&frame).unwrap()).collect()
    }

    #[actix_web::test]
    async fn a_ticket_that_is_dropped_answers_by_itself_and_one_that_answered_does_not() {
        let (connection, to) = connection();
        let in_flight = InFlight::default();
        let ticket = |id| in_flight.ticket(id, 1, &to, 9, 100).unwrap();
        drop(ticket("1").reply());
        ticket("2").answer(Ok(null()));
        ticket("3").answer_on(&connection, Ok("{}".into()));
        let mut answers = answers(&connection, &to).await;
        answers.sort_by_key(|answer| answer["id"].as_u64());
        assert_eq!(answers.len(), 3);
        assert_eq!((answers[0]["error"]["code"].as_i64(), &answers[1]["result"]), (Some(-32603), &Value::Null));
        assert_eq!(in_flight.0.load(Ordering::Acquire), 0);
    }

    #[actix_web::test]
    async fn requests_in_flight_are_limited_until_one_is_answered() {
        let (_connection, to) = connection();
        let in_flight = InFlight::default();
        let first = in_flight.ticket("1", 1, &to, 1, 100).unwrap();
        assert_eq!(in_flight.ticket("2", 1, &to, 1, 100).unwrap_err().code, "limit-exceeded");
        first.answer(Ok(null()));
        assert!(in_flight.ticket("3", 1, &to, 1, 100).is_ok());
    }

    #[actix_web::test]
    async fn an_answer_that_is_larger_than_a_message_is_refused() {
        let (connection, to) = connection();
        let ticket = InFlight::default().ticket("1", 1, &to, 1, 5).unwrap();
        ticket.answer_on(&connection, Ok(r#""too long""#.into()));
        assert_eq!(answers(&connection, &to).await[0]["error"]["code"], -32000);
    }
}
