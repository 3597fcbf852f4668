//! The conversation as the endpoint is told it, which holds none itself.
//!
//! Two halves: what was said before the process started, as text, and the turns of this process with their calls and results.
//! Roles alternate, since some models take nothing else. A turn that was stopped or failed counts with what it had said.

use super::wire::{Called, CalledFunction, Content, Message};
use crate::actors::agent::Exchange;

/// What stands where a turn got no answer.
const UNANSWERED: &str = "(no answer)";
/// What stands where a call got no result, since its turn was stopped.
const NO_RESULT: &str = "(stopped before there was a result)";

#[derive(Default)]
pub(super) struct History {
    before: Vec<(Content, String)>,
    /// Turns of this process, oldest first; the last one is running.
    since: Vec<Told>,
    /// How many of the oldest turns the endpoint is not told.
    left_out: usize,
}

struct Told {
    turn_id: String,
    message: Content,
    rounds: Vec<Round>,
}

/// What the model said in one go, and what it called then.
#[derive(Default)]
struct Round {
    text: String,
    calls: Vec<Call>,
}

/// A call of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Call {
    /// The model's own id for it.
    pub id: String,
    pub name: String,
    /// A JSON object.
    pub arguments: String,
    pub result: Option<String>,
}

impl History {
    /// What was said before the process started, except for a turn that it takes up.
    pub fn told_before(&mut self, exchanges: Vec<Exchange>) {
        let is_new = |exchange: &Exchange| self.since.iter().all(|told| told.turn_id != exchange.turn_id);
        let before = exchanges.into_iter().filter(is_new);
        self.before = before.map(|exchange| (Content::Text(exchange.message), exchange.answer)).collect();
    }

    /// Begins a turn. One that is taken up is asked again.
    pub fn begin(&mut self, turn_id: &str, message: Content) {
        self.since.retain(|told| told.turn_id != turn_id);
        self.since.push(Told { turn_id: turn_id.to_owned(), message, rounds: vec![Round::default()] });
    }

    /// Adds what the running turn says.
    pub fn said(&mut self, text: &str) {
        if let Some(round) = self.round() {
            round.text.push_str(text);
        }
    }

    /// What the model called, once it has said all of it.
    pub fn called(&mut self, calls: Vec<Call>) {
        if let Some(round) = self.round() {
            round.calls = calls;
        }
    }

    /// What came of the call at this place.
    pub fn resulted(&mut self, at: usize, result: &str) {
        if let Some(call) = self.round().and_then(|round| round.calls.get_mut(at)) {
            call.result = Some(result.to_owned());
        }
    }

    /// The model is asked once more in the same turn.
    pub fn next_round(&mut self) {
        if let Some(told) = self.since.last_mut() {
            told.rounds.push(Round::default());
        }
    }

    fn round(&mut self) -> Option<&mut Round> {
        self.since.last_mut()?.rounds.last_mut()
    }

    /// Leaves out the older half of the turns before the running one: how many are left out now; `None` when there are none.
    pub fn leave_out_older(&mut self) -> Option<usize> {
        let told = (self.before.len() + self.since.len()).saturating_sub(1 + self.left_out);
        self.left_out += told.div_ceil(2);
        (told > 0).then_some(self.left_out)
    }

    /// All of it, for the running turn.
    pub fn messages<'a>(&'a self, system: Option<&'a str>) -> Vec<Message<'a>> {
        let mut messages: Vec<Message<'a>> = system.map(|content| Message::System { content }).into_iter().collect();
        for (message, answer) in self.before.iter().skip(self.left_out) {
            messages.push(Message::User { content: message });
            messages.push(Message::Assistant { content: or_unanswered(answer), tool_calls: Vec::new() });
        }
        let since = self.since.iter().skip(self.left_out.saturating_sub(self.before.len()));
        for told in since {
            messages.push(Message::User { content: &told.message });
            let first = messages.len();
            told.rounds.iter().for_each(|round| round.tell(&mut messages));
            let runs = self.since.last().is_some_and(|last| std::ptr::eq(last, told));
            if messages.len() == first && !runs {
                messages.push(Message::Assistant { content: UNANSWERED, tool_calls: Vec::new() });
            }
        }
        messages
    }
}

impl Round {
    fn tell<'a>(&'a self, messages: &mut Vec<Message<'a>>) {
        if self.text.is_empty() && self.calls.is_empty() {
            return;
        }
        let tool_calls = self.calls.iter().map(|call| Called {
            id: &call.id,
            r#type: "function",
            function: CalledFunction { name: &call.name, arguments: &call.arguments },
        });
        messages.push(Message::Assistant { content: &self.text, tool_calls: tool_calls.collect() });
        for call in &self.calls {
            let content = call.result.as_deref().unwrap_or(NO_RESULT);
            messages.push(Message::Tool { tool_call_id: &call.id, content });
        }
    }
}

fn or_unanswered(answer: &str) -> &str {
    if answer.is_empty() { UNANSWERED } else { answer }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn text(text: &str) -> Content {
        Content::Text(text.to_owned())
    }

    fn told(history: &History) -> Value {
        serde_json::to_value(history.messages(None)).unwrap()
    }

    fn exchange(turn: &str, message: &str, answer: &str) -> Exchange {
        Exchange { turn_id: turn.into(), message: message.into(), answer: answer.into() }
    }

    #[test]
    fn both_halves_are_told_in_order_and_roles_alternate() {
        let mut history = History::default();
        history.begin("t3", text("c"));
        history.told_before(vec![exchange("t1", "a", ""), exchange("t2", "b", "B"), exchange("t3", "c", "half")]);
        history.said("C");
        history.begin("t4", text("d"));
        history.begin("t5", text("e"));
        let expected = json!([
            { "role": "user", "content": "a" }, { "role": "assistant", "content": "(no answer)" },
            { "role": "user", "content": "b" }, { "role": "assistant", "content": "B" },
            { "role": "user", "content": "c" }, { "role": "assistant", "content": "C" },
            { "role": "user", "content": "d" }, { "role": "assistant", "content": "(no answer)" },
            { "role": "user", "content": "e" },
        ]);
        assert_eq!(told(&history), expected);
    }

    #[test]
    fn every_call_has_a_result_and_a_turn_that_is_asked_again_forgets_the_last_try() {
        let mut history = History::default();
        history.begin("t1", text("a"));
        history.said("let me see");
        let call = |id: &str| Call { id: id.into(), name: "look".into(), arguments: "{}".into(), result: None };
        history.called(vec![call("1"), call("2")]);
        history.resulted(0, "seen");
        history.next_round();
        let called =
            |id: &str| json!({ "id": id, "type": "function", "function": { "name": "look", "arguments": "{}" } });
        let expected = json!([
            { "role": "user", "content": "a" },
            { "role": "assistant", "content": "let me see", "tool_calls": [called("1"), called("2")] },
            { "role": "tool", "tool_call_id": "1", "content": "seen" },
            { "role": "tool", "tool_call_id": "2", "content": NO_RESULT },
        ]);
        assert_eq!(told(&history), expected);
        history.begin("t1", text("a"));
        assert_eq!(told(&history), json!([{ "role": "user", "content": "a" }]));
    }

    #[test]
    fn the_oldest_turns_are_left_out_by_halves_until_none_is_left() {
        let mut history = History::default();
        history.told_before((0..3).map(|n| exchange(&format!("t{n}"), &n.to_string(), "x")).collect());
        history.begin("t4", text("3"));
        history.begin("now", text("4"));
        let first = |history: &History| told(history)[0]["content"].clone();
        assert_eq!((history.leave_out_older(), first(&history)), (Some(2), json!("2")));
        assert_eq!((history.leave_out_older(), first(&history)), (Some(3), json!("3")));
        assert_eq!((history.leave_out_older(), first(&history)), (Some(4), json!("4")));
        assert_eq!((history.leave_out_older(), first(&history)), (None, json!("4")));
        history.begin("next", text("5"));
        assert_eq!(first(&history), json!("4"));
    }
}
