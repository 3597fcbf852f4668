//! A turn: the steps of its message, one a line. A line that is no step is said back.

use std::io::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Agent;
use crate::wire::Incoming;

/// A running turn.
pub struct Turn<'a> {
    pub agent: &'a mut Agent,
    pub session: String,
    pub params: Value,
    pub cancelled: bool,
}

/// How it stops.
pub enum Stop {
    Reason(Value),
    Error((i64, String, Value)),
}

impl Turn<'_> {
    pub fn run(&mut self, script: &str) -> Stop {
        for line in script.lines() {
            if let Some(stop) = self.step(line) {
                return stop;
            }
            if self.cancelled {
                return reason("cancelled");
            }
        }
        reason("end_turn")
    }

    fn step(&mut self, line: &str) -> Option<Stop> {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        match name {
            "/say" => self.say(rest),
            "/message" => {
                let (id, text) = rest.split_once(' ').unwrap();
                let content = json!({ "type": "text", "text": text });
                self.update(json!({ "sessionUpdate": "agent_message_chunk", "content": content, "messageId": id }));
            }
            "/think" => {
                let content = json!({ "type": "text", "text": rest });
                self.update(json!({ "sessionUpdate": "agent_thought_chunk", "content": content }));
            }
            "/echo-user" => {
                let content = json!({ "type": "text", "text": rest });
                self.update(json!({ "sessionUpdate": "user_message_chunk", "content": content }));
            }
            "/qwen-usage" => {
                let usage = json!({ "inputTokens": 10, "outputTokens": 5, "totalTokens": 15 });
                self.update(json!({ "sessionUpdate": "agent_message_chunk",
                    "content": { "type": "text", "text": "" }, "_meta": { "usage": usage } }));
            }
            "/usage" => {
                let (used, size) = rest.split_once(' ').unwrap();
                let number = |text: &str| text.parse::<u64>().unwrap();
                self.update(json!({ "sessionUpdate": "usage_update", "used": number(used), "size": number(size),
                    "cost": { "amount": 0.5, "currency": "USD" } }));
            }
            "/raw-update" => self.update(serde_json::from_str(rest).unwrap()),
            "/raw" => self.agent.wire.raw(format!("{rest}\n").as_bytes()),
            "/other-session" => {
                let content = json!({ "type": "text", "text": rest });
                let update = json!({ "sessionUpdate": "agent_message_chunk", "content": content });
                self.agent.wire.update("somebody-elses", update);
            }
            "/tool" => self.tool(rest),
            "/ask" => self.ask(rest, true),
            "/ask-unannounced" => self.ask(rest, false),
            "/ask-twice" => {
                self.permission("twice", "cancel me");
                let id = self.permission("late", "and me");
                self.agent
                    .wire
                    .send(&json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": { "requestId": id } }));
                self.wait_for_answer(&id);
            }
            "/ask-and-wait-for-nothing" => {
                self.permission("left", "left open");
                return Some(reason("end_turn"));
            }
            "/read" | "/write" | "/terminal" => self.file(name, rest),
            "/blocks" => self.say(&self.params["prompt"].to_string()),
            "/opened-with" => self.say(&self.agent.sessions.params(&self.session).to_string()),
            "/history" => self.say(&json!(self.agent.sessions.history(&self.session)).to_string()),
            "/settings" => self.say(&self.agent.abilities.held()),
            "/env" => self.say(&variable(rest)),
            "/compact" => self.compact(),
            "/flood" => self.flood(rest.parse().unwrap()),
            "/stderr" => stderr(rest.parse().unwrap()),
            "/complain" => eprintln!("{rest}"),
            "/wait" => self.wait_for_cancel(),
            // Waits for the stop, then for a file, and is gone.
            "/die-on-cancel" => {
                self.wait_for_cancel();
                while !std::path::Path::new(rest).exists() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                std::process::exit(4)
            }
            // Waits while a file is not there.
            "/wait-unless" if std::path::Path::new(rest).exists() => {}
            "/wait-unless" => self.wait_for_cancel(),
            "/deaf-to-cancel" => return Some(self.deaf()),
            "/late" => return Some(self.late()),
            "/stop" => return Some(reason(rest)),
            "/result" => return Some(Stop::Reason(serde_json::from_str(rest).unwrap())),
            "/error" => return Some(error(rest)),
            "/die" => {
                eprintln!("fake_acp: it was told to die");
                std::process::exit(rest.parse().unwrap())
            }
            "/cut" => self.cut(),
            "/sleep" => std::thread::sleep(Duration::from_millis(rest.parse().unwrap())),
            "/child" => self.child(),
            _ => self.say(&format!("You said: {line}")),
        }
        None
    }

    fn update(&self, update: Value) {
        self.agent.wire.update(&self.session, update);
    }

    fn say(&mut self, text: &str) {
        self.agent.sessions.add(&self.session, "agent", text);
        let content = json!({ "type": "text", "text": text });
        self.update(json!({ "sessionUpdate": "agent_message_chunk", "content": content }));
    }

    /// A call that runs without asking: `ID done|failed|open`.
    fn tool(&mut self, rest: &str) {
        let (id, end) = rest.split_once(' ').unwrap();
        let location = json!([{ "path": "/w/file.txt", "line": 7 }]);
        self.update(json!({ "sessionUpdate": "tool_call", "toolCallId": id, "title": "Edit", "kind": "edit",
            "status": "pending", "rawInput": {} }));
        self.update(json!({ "sessionUpdate": "tool_call_update", "toolCallId": id, "title": "Edit file.txt",
            "rawInput": { "file": "/w/file.txt" }, "locations": location }));
        self.update(json!({ "sessionUpdate": "tool_call_update", "toolCallId": id, "status": "in_progress" }));
        self.update(json!({ "sessionUpdate": "tool_call_update", "toolCallId": id, "content": [
            { "type": "diff", "path": "/w/file.txt", "oldText": "a\nb\n", "newText": "a\nc\n" },
            { "type": "content", "content": { "type": "text", "text": "went well" } }] }));
        match end {
            "done" => {
                self.update(json!({ "sessionUpdate": "tool_call_update", "toolCallId": id, "status": "completed" }));
            }
            "failed" => self.update(json!({ "sessionUpdate": "tool_call_update", "toolCallId": id, "status": "failed",
                "content": [{ "type": "content", "content": { "type": "text", "text": "no such file" } }] })),
            _ => {}
        }
    }

    /// A call that asks: `ID INPUT`. Says which option was chosen.
    fn ask(&mut self, rest: &str, announced: bool) {
        let (id, input) = rest.split_once(' ').unwrap();
        if announced {
            self.update(json!({ "sessionUpdate": "tool_call", "toolCallId": id, "title": "Run", "kind": "execute",
                "status": "pending" }));
        }
        let request = self.permission(id, input);
        let Some(answer) = self.wait_for_answer(&request) else { return };
        let chosen = answer["result"]["outcome"]["optionId"].as_str().unwrap_or("none").to_owned();
        if self.cancelled {
            self.agent.note(&format!("answered {}", answer["result"]["outcome"]["outcome"]));
        }
        let allowed = ["yes", "always"].contains(&chosen.as_str());
        let status = if allowed { "completed" } else { "failed" };
        self.update(json!({ "sessionUpdate": "tool_call_update", "toolCallId": id, "status": status,
            "rawOutput": { "output": format!("ran {input}") } }));
        self.say(&format!("chosen: {chosen}"));
    }

    fn permission(&mut self, id: &str, input: &str) -> Value {
        let options = json!([{ "optionId": "always", "name": "Always", "kind": "allow_always" },
            { "optionId": "yes", "name": "Yes", "kind": "allow_once" },
            { "optionId": "abort", "name": "No", "kind": "reject_once" }]);
        let call = json!({ "toolCallId": id, "title": format!("Run {input}"), "kind": "execute", "status": "pending",
            "rawInput": { "command": input } });
        let params = json!({ "sessionId": self.session, "toolCall": call, "options": options });
        self.agent.wire.ask("session/request_permission", params)
    }

    /// `/read PATH [LINE LIMIT]`, `/write PATH TEXT`, `/terminal COMMAND`: says what the host answered.
    fn file(&mut self, step: &str, rest: &str) {
        let words: Vec<&str> = rest.splitn(3, ' ').collect();
        let mut params = json!({ "sessionId": self.session, "path": words[0] });
        let method = match step {
            "/read" => {
                if let [_, line, limit] = words[..] {
                    params["line"] = json!(line.parse::<u32>().unwrap());
                    params["limit"] = json!(limit.parse::<u32>().unwrap());
                }
                "fs/read_text_file"
            }
            "/write" => {
                params["content"] = json!(words[1..].join(" "));
                "fs/write_text_file"
            }
            _ => "terminal/create",
        };
        let id = self.agent.wire.ask(method, params);
        let Some(answer) = self.wait_for_answer(&id) else { return };
        let said = answer.get("error").map_or_else(|| answer["result"].to_string(), |error| error["code"].to_string());
        self.say(&format!("{step}: {said}"));
    }

    /// `None` when the turn is cancelled while the answer is not there, and the answer is what came then.
    fn wait_for_answer(&mut self, wanted: &Value) -> Option<Value> {
        loop {
            match self.agent.wire.next()? {
                Incoming::Answer { id, answer } if id == *wanted => return Some(answer),
                Incoming::Notification { method } if method == "session/cancel" => {
                    self.agent.note("cancel");
                    self.cancelled = true;
                }
                Incoming::Answer { .. } | Incoming::Notification { .. } => {}
                Incoming::Request { id, .. } => self.agent.wire.answer(&id, Ok(json!({}))),
            }
        }
    }

    fn wait_for_cancel(&mut self) {
        while !self.cancelled {
            match self.agent.wire.next() {
                None => std::process::exit(0),
                Some(Incoming::Notification { method }) if method == "session/cancel" => {
                    self.agent.note("cancel");
                    self.cancelled = true;
                }
                Some(Incoming::Request { id, method, params }) => {
                    self.agent.note(&format!("{method} {}", params["modeId"]));
                    self.agent.wire.answer(&id, Ok(json!({})));
                }
                Some(_) => {}
            }
        }
    }

    /// Never stops, whatever it is told.
    fn deaf(&mut self) -> Stop {
        self.say("listening to nobody");
        self.wait_for_cancel();
        self.agent.note("deaf");
        while self.agent.wire.next().is_some() {}
        std::process::exit(0)
    }

    /// Goes on after it was cancelled, and says that all went well.
    fn late(&mut self) -> Stop {
        self.say("before ");
        self.wait_for_cancel();
        self.say("after");
        self.update(json!({ "sessionUpdate": "tool_call", "toolCallId": "late", "title": "Late" }));
        let id = self.permission("late", "too late");
        let answer = self.wait_for_answer(&id);
        self.agent.note(&format!("late {}", answer.unwrap_or_default()["result"]["outcome"]["outcome"]));
        reason("end_turn")
    }

    fn compact(&mut self) {
        self.update(json!({ "sessionUpdate": "usage_update", "used": 50, "size": 1000 }));
        self.say("Context compacted");
    }

    fn flood(&mut self, chunks: u64) {
        for number in 0..chunks {
            let content = json!({ "type": "text", "text": format!("{number} ") });
            self.update(json!({ "sessionUpdate": "agent_message_chunk", "content": content }));
        }
    }

    /// Ends in the middle of a message, and of a character.
    fn cut(&mut self) {
        let update = json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "ä" } });
        let params = json!({ "sessionId": self.session, "update": update });
        let message = json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }).to_string();
        let cut = message.find('ä').unwrap() + 1;
        self.agent.wire.raw(&message.as_bytes()[..cut]);
        std::process::exit(0)
    }

    /// Leaves a child behind that would outlive it.
    #[allow(clippy::zombie_processes, reason = "it is the host that has to end it")]
    fn child(&mut self) {
        let child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        self.say(&child.id().to_string());
    }
}

fn reason(reason: &str) -> Stop {
    Stop::Reason(json!({ "stopReason": reason }))
}

/// `CODE MESSAGE | DATA`.
fn error(rest: &str) -> Stop {
    let (code, rest) = rest.split_once(' ').unwrap();
    let (message, data) = rest.split_once(" | ").unwrap_or((rest, "null"));
    Stop::Error((code.parse().unwrap(), message.to_owned(), serde_json::from_str(data).unwrap()))
}

/// Writes this many bytes to stderr, faster than anybody reads.
fn stderr(bytes: usize) {
    let block = vec![b'e'; 1 << 16];
    let mut stderr = std::io::stderr().lock();
    let mut left = bytes;
    while left > 0 {
        let now = left.min(block.len());
        if stderr.write_all(&block[..now]).is_err() {
            return;
        }
        left -= now;
    }
}

fn variable(name: &str) -> String {
    std::env::vars().find(|(known, _)| known == name).map_or_else(|| "(not set)".to_owned(), |(_, value)| value)
}
