//! What the host asks a client, and what becomes of it.
//!
//! Requests of the host have numbers of their own, one line a connection. A question whose client is gone is answered at
//! once: nobody is waited for that cannot answer. Source: AHP, requests in both directions.

use std::collections::HashMap;

use serde_json::value::RawValue;
use tokio::sync::oneshot;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    #[error("the client is gone")]
    Gone,
    #[error("the client did not answer in time")]
    Late,
    #[error("the client refused: {0}")]
    Refused(String),
}

/// What a client answered.
pub type Answered = Result<Box<RawValue>, NoAnswer>;

/// The questions of one connection that are not answered yet.
#[derive(Debug, Default)]
pub struct Asked {
    last: u64,
    open: HashMap<u64, oneshot::Sender<Answered>>,
}

impl Asked {
    /// Notes a question; returns its number. Those that nobody waits for any more are forgotten.
    pub fn note(&mut self, answer: oneshot::Sender<Answered>) -> u64 {
        self.open.retain(|_, waits| !waits.is_closed());
        self.last += 1;
        self.open.insert(self.last, answer);
        self.last
    }

    /// Gives an answer to whoever asked. One that nobody waits for is ignored.
    pub fn answer(&mut self, number: u64, answer: Answered) {
        if let Some(waits) = self.open.remove(&number) {
            let _ = waits.send(answer);
        }
    }

    /// Whether somebody waits for an answer.
    pub fn is_open(&mut self) -> bool {
        self.open.retain(|_, waits| !waits.is_closed());
        !self.open.is_empty()
    }

    /// The client is gone.
    pub fn give_up(&mut self) {
        self.open.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_goes_to_the_question_with_its_number_alone() {
        let mut asked = Asked::default();
        let (one, mut first) = oneshot::channel();
        let (two, mut second) = oneshot::channel();
        assert_eq!((asked.note(one), asked.note(two)), (1, 2));
        asked.answer(7, Err(NoAnswer::Gone));
        asked.answer(2, Err(NoAnswer::Refused("no".into())));
        assert_eq!(second.try_recv().unwrap().unwrap_err(), NoAnswer::Refused("no".into()));
        assert!(first.try_recv().is_err());
        asked.give_up();
        assert_eq!(first.try_recv().unwrap_err(), oneshot::error::TryRecvError::Closed);
    }

    #[test]
    fn a_question_that_nobody_waits_for_is_forgotten() {
        let mut asked = Asked::default();
        let (one, first) = oneshot::channel();
        asked.note(one);
        drop(first);
        let (two, _second) = oneshot::channel();
        asked.note(two);
        assert_eq!(asked.open.len(), 1);
    }
}
