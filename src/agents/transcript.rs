//! A conversation as text, for an agent that cannot go on with its own: it goes before the first message of a new one.

use std::collections::VecDeque;
use std::fmt::Write as _;

use crate::actors::agent::Exchange;

/// A conversation as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcript {
    pub text: String,
    /// How many of the oldest turns did not fit and are not in it.
    pub left_out: usize,
}

impl Transcript {
    /// The newest turns that fit into `limit` bytes, each whole, oldest first; `None` where there are no turns. A newest turn
    /// that does not fit alone is cut at its beginning, so that the agent knows where it was.
    pub fn of(exchanges: &[Exchange], limit: usize) -> Option<Self> {
        if exchanges.is_empty() {
            return None;
        }
        let mut room = limit;
        let mut turns = Vec::new();
        for exchange in exchanges.iter().rev() {
            let turn = as_text(exchange);
            if turn.len() > room {
                break;
            }
            room -= turn.len();
            turns.push(turn);
        }
        if let (true, Some(newest)) = (turns.is_empty(), exchanges.last()) {
            let turn = as_text(newest);
            let cut = turn.ceil_char_boundary(turn.len().saturating_sub(limit));
            turns.push(turn.get(cut..).unwrap_or_default().to_owned());
        }
        let left_out = exchanges.len() - turns.len();
        let mut text = "This conversation began before you. What was said in it so far stands here".to_owned();
        if left_out > 0 {
            let _ = write!(text, ", without its first {left_out} turns");
        }
        text.push_str("; go on with it, and do not answer again what was answered.\n\n");
        turns.iter().rev().for_each(|turn| text.push_str(turn));
        text.push_str("That was the conversation. The next message is:");
        Some(Self { text, left_out })
    }

    /// What people are told behind why it was needed: that the agent has the transcript, and what is not in it.
    pub fn notice(&self, why: &str) -> String {
        let told = format!("{why} It began a new conversation with the transcript of this one.");
        match self.left_out {
            0 => told,
            1 => format!("{told} The first turn did not fit and was left out."),
            turns => format!("{told} The first {turns} turns did not fit and were left out."),
        }
    }
}

/// What was said since a process started, which the conversation that it was handed does not hold: as much of its end as a
/// transcript may hold.
#[derive(Debug, Default)]
pub struct Since {
    exchanges: VecDeque<Exchange>,
    /// How many turns were before.
    forgotten: usize,
    /// In bytes.
    limit: usize,
}

impl Since {
    /// `limit` is the one of a transcript, in bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// A turn begins, or is tried again.
    pub fn asked(&mut self, turn_id: String, message: String) {
        self.exchanges.retain(|exchange| exchange.turn_id != turn_id);
        self.exchanges.push_back(Exchange { turn_id, message, answer: String::new() });
        let size = |exchange: &Exchange| exchange.message.len() + exchange.answer.len();
        let mut held: usize = self.exchanges.iter().map(size).sum();
        // The last one that was answered is kept, however long it is.
        while self.exchanges.len() > 2
            && held > self.limit
            && let Some(oldest) = self.exchanges.pop_front()
        {
            held -= size(&oldest);
            self.forgotten += 1;
        }
    }

    /// More of the newest turn's answer; whether it is a part of its own.
    pub fn answered(&mut self, turn_id: &str, text: &str, is_part: bool) {
        let newest = self.exchanges.back_mut().filter(|newest| newest.turn_id == turn_id);
        let Some(Exchange { answer, .. }) = newest else { return };
        if is_part && !answer.is_empty() {
            answer.push_str("\n\n");
        }
        answer.push_str(text);
        if answer.len() > self.limit.saturating_mul(2) {
            let cut = answer.ceil_char_boundary(answer.len() - self.limit);
            answer.drain(..cut);
        }
    }

    /// All of it as text, behind what was said before the process started, for the turn `next`; `None` where nothing was
    /// said.
    pub fn transcript(&self, before: Vec<Exchange>, next: Option<&str>) -> Option<Transcript> {
        let is_told_again = |told: &Exchange| self.exchanges.iter().any(|since| since.turn_id == told.turn_id);
        let mut all: Vec<Exchange> = before.into_iter().filter(|exchange| !is_told_again(exchange)).collect();
        all.extend(self.exchanges.iter().cloned());
        all.retain(|exchange| next != Some(&exchange.turn_id));
        let mut transcript = Transcript::of(&all, self.limit)?;
        // What is no longer held would not have fitted.
        transcript.left_out += self.forgotten;
        Some(transcript)
    }
}

fn as_text(exchange: &Exchange) -> String {
    format!("User:\n{}\n\nYou:\n{}\n\n", exchange.message.trim_end(), exchange.answer.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(number: usize, answer: &str) -> Exchange {
        Exchange { turn_id: format!("t{number}"), message: format!("ask {number}"), answer: answer.to_owned() }
    }

    #[test]
    fn a_conversation_without_turns_needs_no_transcript() {
        assert_eq!(Transcript::of(&[], 100), None);
    }

    #[test]
    fn the_newest_turns_are_kept_whole_and_what_is_left_out_is_said() {
        let all: Vec<Exchange> = (1..=3).map(|number| exchange(number, "fine")).collect();
        let whole = Transcript::of(&all, 1_000).unwrap();
        assert!(whole.text.contains("User:\nask 1\n\nYou:\nfine\n\nUser:\nask 2"), "{}", whole.text);
        assert_eq!(whole.left_out, 0);
        let newest = Transcript::of(&all, 2 * as_text(&all[0]).len()).unwrap();
        assert_eq!(newest.left_out, 1);
        assert!(!newest.text.contains("ask 1") && newest.text.contains("ask 2") && newest.text.contains("ask 3"));
        assert!(newest.text.contains("without its first 1 turns") && newest.notice("Why.").ends_with("left out."));
    }

    #[test]
    fn what_was_said_since_goes_behind_what_was_said_before_and_its_oldest_turns_are_forgotten() {
        let mut since = Since::new(150);
        for number in 2..=4 {
            since.asked(format!("t{number}"), format!("ask {number}"));
            let turn = format!("t{number}");
            since.answered(&turn, "well", true);
            since.answered(&turn, ",", false);
            since.answered(&turn, "fine", true);
            since.answered("t0", "of a turn that nobody asked for", true);
        }
        since.asked("t5".into(), "never read".into());
        let before = vec![exchange(1, "old"), exchange(2, "told twice")];
        let transcript = since.transcript(before, Some("t5")).unwrap();
        let whole = "ask 1\n\nYou:\nold\n\nUser:\nask 2\n\nYou:\nwell,\n\nfine\n\nUser:\nask 3";
        assert!(transcript.text.contains(whole), "{}", transcript.text);
        assert!(!transcript.text.contains("twice") && !transcript.text.contains("never"), "{}", transcript.text);
        assert_eq!(transcript.left_out, 0);
        since.asked("t5".into(), "x".repeat(200));
        since.answered("t5", &"y".repeat(1_000), true);
        since.asked("t6".into(), "ask 6".into());
        let cut = since.transcript(Vec::new(), None).unwrap();
        assert_eq!(cut.left_out, 4);
        assert!(cut.text.len() < 1_000, "{}", cut.text);
    }

    #[test]
    fn a_newest_turn_that_is_too_long_alone_is_cut_between_two_characters() {
        let long = [exchange(1, "x"), exchange(2, &"ä".repeat(100))];
        let cut = Transcript::of(&long, 11).unwrap();
        assert_eq!(cut.left_out, 1);
        assert!(cut.text.contains("äää"), "{}", cut.text);
    }
}
