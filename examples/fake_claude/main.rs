//! A program that speaks stream-json as the Claude Code CLI does, from a script: for tests, without a model or a login.
//!
//! Each line of a message that begins with `!` is a step; see [`Run::step`]. Its conversations are files in the folder
//! `CLAUDE_CONFIG_DIR`. `FAKE_CLAUDE` makes it misbehave from the start: see [`misbehave`].

// A stand-in for a program of others: it reads its own environment, and a line that it cannot read may end it.
#![allow(clippy::disallowed_methods, clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::{Value, json};

/// Whether it reads no more of what it is told.
static DEAF: AtomicBool = AtomicBool::new(false);
/// How long a word takes that waits for something.
const TICK: Duration = Duration::from_millis(10);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let how = std::env::var("FAKE_CLAUDE").unwrap_or_default();
    if arguments.iter().any(|argument| argument == "--version") {
        println!("2.1.332 (Claude Code)");
        return;
    }
    misbehave(&how);
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            while DEAF.load(Ordering::Acquire) {
                std::thread::park();
            }
            if let Ok(line) = serde_json::from_str::<Value>(&line)
                && sender.send(line).is_err()
            {
                return;
            }
        }
    });
    let mut fake = Fake::new(arguments, how, lines);
    fake.resume();
    fake.serve();
}

/// What goes wrong before anything is said.
fn misbehave(how: &str) {
    match how {
        "exit" => {
            eprintln!("error: unknown option '--include-partial-messages'");
            exit(1);
        }
        "mute" => loop {
            std::thread::park();
        },
        "not-json" => {
            for _ in 0..20 {
                println!("Welcome to something else");
            }
            std::thread::park();
        }
        "broken" => {
            println!("{{\"type\":");
            std::thread::park();
        }
        "chatty" => {
            println!("a warning about the weather");
            println!();
        }
        "flood" => {
            let line = vec![b'e'; 1 << 20];
            for _ in 0..100 {
                let _ = std::io::stderr().write_all(&line);
            }
            eprintln!("\nthe last words");
        }
        _ => {}
    }
}

fn new_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// The value of an argument that is written with `=`.
fn value_of(arguments: &[String], name: &str) -> Option<String> {
    arguments.iter().find_map(|argument| Some(argument.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
}

struct Fake {
    arguments: Vec<String>,
    how: String,
    lines: Receiver<Value>,
    session: String,
    /// The conversation: uuid, role and text of each entry.
    entries: Vec<(String, String, String)>,
    queue: VecDeque<(String, String)>,
    /// The message that it answers.
    heard: String,
    model: String,
    mode: String,
    /// The turn is to end.
    interrupted: bool,
    /// The stopped task.
    stopped: Option<String>,
    answers: Vec<Value>,
    /// The input is closed.
    closed: bool,
    failed: bool,
    /// Why it has no conversation to go on with.
    lost: Option<String>,
    asked: usize,
    calls: usize,
}

impl Fake {
    fn new(arguments: Vec<String>, how: String, lines: Receiver<Value>) -> Self {
        Self {
            model: value_of(&arguments, "--model").unwrap_or_else(|| "fake-model".to_owned()),
            mode: value_of(&arguments, "--permission-mode").unwrap_or_else(|| "default".to_owned()),
            arguments,
            how,
            lines,
            session: new_id(),
            entries: Vec::new(),
            queue: VecDeque::new(),
            heard: String::new(),
            interrupted: false,
            stopped: None,
            answers: Vec::new(),
            closed: false,
            failed: false,
            lost: None,
            asked: 0,
            calls: 0,
        }
    }

    fn file(&self, session: &str) -> Option<PathBuf> {
        Some(PathBuf::from(std::env::var_os("CLAUDE_CONFIG_DIR")?).join(format!("{session}.jsonl")))
    }

    /// Reads the conversation that it is to go on with.
    fn resume(&mut self) {
        let Some(session) = value_of(&self.arguments, "--resume") else { return };
        let text = self.file(&session).and_then(|file| fs::read_to_string(file).ok());
        let Some(text) = text else {
            return self.lost(&session, format!("No conversation found with session ID: {session}"));
        };
        self.entries = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if let Some(at) = value_of(&self.arguments, "--resume-session-at") {
            let Some(place) = self.entries.iter().position(|(id, ..)| *id == at) else {
                return self.lost(&session, format!("No message found with message.uuid of: {at}"));
            };
            self.entries.truncate(place + 1);
        }
        if !self.arguments.iter().any(|argument| argument == "--fork-session") {
            self.session = session;
        }
        self.store();
    }

    /// The conversation is not there: told at once, or, by a version that looks late, at the first message.
    fn lost(&mut self, session: &str, why: String) {
        if self.how == "late" && self.lost.is_none() {
            self.lost = Some(why);
            return;
        }
        eprintln!("{why}");
        // A version that says it in words alone.
        if self.how != "terse" {
            let errors = [why];
            self.say(json!({ "type": "result", "subtype": "error_during_execution", "is_error": true, "num_turns": 0,
                "session_id": session, "total_cost_usd": 0, "usage": {}, "errors": errors }));
        }
        exit(1);
    }

    /// Notes beside its conversation what it was told, for who cannot hear its answer.
    fn note(&self, what: &str) {
        if let Some(file) = self.file("notes") {
            let _ = fs::write(file, what);
        }
    }

    fn store(&self) {
        if let Some(file) = self.file(&self.session) {
            let text: Vec<String> = self.entries.iter().map(|entry| json!(entry).to_string()).collect();
            let _ = fs::write(file, text.join("\n"));
        }
    }

    fn remember(&mut self, id: &str, role: &str, text: &str) {
        self.entries.push((id.to_owned(), role.to_owned(), text.to_owned()));
        self.store();
    }

    /// Writes a line.
    fn say(&self, mut line: Value) {
        if let Some(line) = line.as_object_mut() {
            line.entry("session_id").or_insert_with(|| self.session.clone().into());
            line.entry("uuid").or_insert_with(|| new_id().into());
        }
        let mut out = std::io::stdout().lock();
        if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
            exit(1);
        }
    }

    fn lifecycle(&self, id: &str, state: &str) {
        if self.how != "old" {
            self.say(json!({ "type": "command_lifecycle", "command_uuid": id, "state": state }));
        }
    }

    fn serve(&mut self) {
        loop {
            while let Some((id, text)) = self.queue.pop_front() {
                self.turn(&id, &text);
            }
            if self.closed {
                exit(i32::from(self.failed));
            }
            self.listen(Duration::from_secs(3_600));
        }
    }

    /// Hears at most one line.
    fn listen(&mut self, patience: Duration) {
        match self.lines.recv_timeout(patience) {
            Ok(line) => self.hear(&line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                self.closed = true;
                std::thread::sleep(TICK);
            }
        }
    }

    fn hear(&mut self, line: &Value) {
        match line["type"].as_str() {
            Some("user") => {
                let id = line["uuid"].as_str().map_or_else(new_id, str::to_owned);
                let blocks = line["message"]["content"].as_array().cloned().unwrap_or_default();
                let text: Vec<String> = blocks.iter().map(block_text).collect();
                self.lifecycle(&id, "queued");
                self.queue.push_back((id, text.join("\n")));
            }
            Some("control_request") => self.request(&line["request_id"], &line["request"]),
            Some("control_response") => self.answers.push(line["response"].clone()),
            _ => {}
        }
    }

    fn request(&mut self, id: &Value, request: &Value) {
        let answer = match request["subtype"].as_str() {
            Some("initialize") => json!({
                "commands": [{ "name": "compact", "description": "Free up context", "argumentHint": "[instructions]" }],
                "models": [{ "value": "default", "displayName": "Default", "description": "The default" },
                    { "value": "opus", "displayName": "Opus", "description": "The big one" }],
                "claude_code_version": "2.1.332" }),
            Some("interrupt") => {
                self.interrupted = true;
                self.note("interrupt");
                let queued: Vec<&String> = self.queue.iter().map(|(id, _)| id).collect();
                json!({ "still_queued": queued })
            }
            Some("set_model") => {
                self.model = request["model"].as_str().unwrap_or("fake-model").to_owned();
                let done = format!("<local-command-stdout>Set model to {}</local-command-stdout>", self.model);
                self.say(json!({ "type": "user", "isReplay": true, "message": { "role": "user", "content": done } }));
                json!({ "model": self.model })
            }
            Some("set_permission_mode") if request["mode"] == "bypassPermissions" => {
                let error = "Cannot set permission mode to bypassPermissions";
                return self.say(json!({ "type": "control_response",
                    "response": { "subtype": "error", "request_id": id, "error": error } }));
            }
            Some("set_permission_mode") => {
                self.mode = request["mode"].as_str().unwrap_or_default().to_owned();
                json!({ "mode": self.mode })
            }
            Some("cancel_async_message") => {
                let wanted = request["message_uuid"].as_str().unwrap_or_default();
                let before = self.queue.len();
                self.queue.retain(|(id, _)| id != wanted);
                let cancelled = self.queue.len() < before;
                if cancelled {
                    self.lifecycle(wanted, "cancelled");
                }
                json!({ "cancelled": cancelled })
            }
            Some("stop_task") => {
                self.stopped = request["task_id"].as_str().map(str::to_owned);
                json!({})
            }
            other => {
                let error = format!("Unsupported control request subtype: {}", other.unwrap_or_default());
                return self.say(json!({ "type": "control_response",
                    "response": { "subtype": "error", "request_id": id, "error": error } }));
            }
        };
        self.say(json!({ "type": "control_response",
            "response": { "subtype": "success", "request_id": id, "response": answer } }));
    }

    fn init(&self) {
        self.say(json!({ "type": "system", "subtype": "init", "model": self.model, "permissionMode": self.mode,
            "tools": ["Bash"], "slash_commands": ["compact"] }));
    }

    /// A run for one message.
    fn turn(&mut self, id: &str, text: &str) {
        self.interrupted = false;
        if let Some(why) = self.lost.clone() {
            self.lost("", why);
        }
        self.lifecycle(id, "started");
        self.init();
        self.remember(id, "user", text);
        self.heard = text.to_owned();
        self.echo(id, text);
        self.say(json!({ "type": "system", "subtype": "status", "status": "requesting" }));
        let mut run = Run { fake: self, over: None, unprompted: None };
        if text.trim() == "/compact" {
            run.compact();
        } else {
            // A transcript that goes before the message is no script.
            let script = text.rsplit("The next message is:").next().unwrap_or_default();
            let steps: Vec<&str> = script.lines().filter_map(|line| line.trim().strip_prefix('!')).collect();
            if steps.is_empty() {
                run.stream("Hello from the fake.");
            }
            for step in steps {
                if run.over.is_some() || run.fake.interrupted {
                    break;
                }
                run.step(step);
            }
        }
        let (over, unprompted) = (run.over.take(), run.unprompted.take());
        self.result(over);
        self.lifecycle(id, if self.interrupted { "cancelled" } else { "completed" });
        if let Some(text) = unprompted {
            self.init();
            Run { fake: self, over: None, unprompted: None }.stream(&text);
            self.result(None);
        }
    }

    fn echo(&self, id: &str, text: &str) {
        if self.how != "old" {
            self.say(
                json!({ "type": "user", "message": { "role": "user", "content": [{ "type": "text", "text": text }] },
                "parent_tool_use_id": null, "uuid": id, "isReplay": true }),
            );
        }
    }

    fn result(&mut self, over: Option<Value>) {
        let mut result = json!({ "duration_api_ms": 1, "type": "result", "subtype": "success", "is_error": false,
            "num_turns": 1, "result": "done", "stop_reason": "end_turn", "terminal_reason": "completed",
            "total_cost_usd": 0.5, "usage": { "input_tokens": 10, "cache_read_input_tokens": 3, "output_tokens": 5 },
            "modelUsage": { "fake-model": { "costUSD": 0.5 } },
            "model_usage_since_last_result": { "fake-model": { "costUSD": 0.25 } } });
        self.failed = over.is_some() || self.interrupted;
        let change = match over {
            Some(over) => over,
            None if self.interrupted => {
                let id = new_id();
                self.remember(&id, "user", "[Request interrupted by user]");
                self.say(json!({ "type": "user", "uuid": id, "parent_tool_use_id": null, "message": { "role": "user",
                    "content": [{ "type": "text", "text": "[Request interrupted by user]" }] } }));
                json!({ "subtype": "error_during_execution", "is_error": true, "terminal_reason": "aborted_streaming",
                    "errors": ["aborted"] })
            }
            None => json!({}),
        };
        for (key, value) in change.as_object().into_iter().flatten() {
            result[key] = value.clone();
        }
        self.say(result);
    }
}

fn block_text(block: &Value) -> String {
    match block["type"].as_str() {
        Some("text") => block["text"].as_str().unwrap_or_default().to_owned(),
        Some("image") => {
            let data = block["source"]["data"].as_str().unwrap_or_default();
            format!("image {} {data}", block["source"]["media_type"].as_str().unwrap_or_default())
        }
        _ => String::new(),
    }
}

/// A run that goes on.
struct Run<'a> {
    fake: &'a mut Fake,
    /// How it ends, other than well.
    over: Option<Value>,
    /// What it says after its end, unasked.
    unprompted: Option<String>,
}

impl Run<'_> {
    /// Does one step.
    fn step(&mut self, step: &str) {
        let (name, rest) = step.split_once(' ').unwrap_or((step, ""));
        match name {
            // Text, thoughts, an empty piece.
            "say" => self.stream(rest),
            "think" => self.block("thinking", "thinking_delta", "thinking", rest),
            "empty" => self.stream(""),
            // A tool that asks nobody; one that asks; one that asks before it is announced; one that never ends.
            "tool" => self.tool(rest, false),
            "ask" => self.tool(rest, true),
            "ask-first" => self.ask_first(rest),
            "withdraw" => self.withdraw(),
            "unfinished" => drop(self.tool_use("Bash", &json!({ "command": rest }), None)),
            "edit" => self.edit(rest),
            "question" => self.question(),
            "task" => self.task(rest, false),
            "task-background" => self.task(rest, true),
            "task-wait" => self.task_wait(rest),
            // What it was given: arguments, the conversation, its model and mode, a variable, its directory.
            "args" => self.stream(&json!(self.fake.arguments).to_string()),
            "history" => {
                let entries: Vec<&str> = self.fake.entries.iter().map(|(.., text)| text.as_str()).collect();
                let entries = json!(entries.get(..entries.len() - 1)).to_string();
                self.stream(&entries);
            }
            "mode" => self.stream(&format!("{} {}", self.fake.model, self.fake.mode)),
            "env" => self.stream(&std::env::var(rest).unwrap_or_default()),
            "cwd" => self.stream(&std::env::current_dir().unwrap_or_default().display().to_string()),
            "heard" => {
                let text = self.fake.heard.clone();
                self.stream(&text);
            }
            // Waiting: until it is interrupted; whatever it is told; for a message into the run.
            "wait" => self.wait(),
            "hang" => loop {
                self.fake.listen(TICK);
                if self.fake.closed {
                    exit(1);
                }
            },
            "await-steering" => self.await_steering(),
            "after" => self.unprompted = Some(rest.to_owned()),
            // Ends.
            "limit" => self.limit(rest),
            "fail" => self.fail(Value::Null, rest),
            "login" => self.fail(json!(401), "Invalid API key · Please run /login"),
            "die" => {
                eprintln!("it went wrong");
                exit(3);
            }
            "cut" => {
                let mut out = std::io::stdout().lock();
                let _ = out
                    .write_all(b"{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"\xc3");
                let _ = out.flush();
                exit(0);
            }
            "plain" => {
                for number in 0..rest.parse().unwrap_or(0) {
                    println!("warning {number}");
                }
            }
            // Asks for what nobody gives, again and again, and reads none of the answers.
            "deaf" => {
                DEAF.store(true, Ordering::Release);
                for _ in 0..100 {
                    self.fake.say(json!({ "type": "control_request", "request_id": "x".repeat(1 << 20),
                        "request": { "subtype": "elicitation" } }));
                }
                std::thread::park();
            }
            "garbage" => {
                println!("{{\"type\": nonsense}}");
                std::thread::park();
            }
            "long" => {
                println!("{}", json!({ "type": "x", "long": "x".repeat(rest.parse().unwrap_or(0)) }));
                std::thread::park();
            }
            "flood" => {
                for number in 0..rest.parse().unwrap_or(0) {
                    self.stream(&format!("{number} "));
                }
            }
            _ => self.stream(&format!("unknown step {name}")),
        }
    }

    fn event(&self, event: Value) {
        self.fake.say(json!({ "type": "stream_event", "event": event, "parent_tool_use_id": null }));
    }

    fn entry(&mut self, parent: Option<&str>, content: Value, text: &str) {
        let id = new_id();
        if parent.is_none() {
            self.fake.remember(&id, "assistant", text);
        }
        self.fake.say(json!({ "type": "assistant", "uuid": id, "parent_tool_use_id": parent,
            "message": { "id": "m", "role": "assistant", "model": self.fake.model, "content": [content] } }));
    }

    fn block(&mut self, kind: &str, delta: &str, key: &str, text: &str) {
        self.event(json!({ "type": "message_start", "message": { "id": "m" } }));
        self.event(json!({ "type": "content_block_start", "index": 0, "content_block": { "type": kind, key: "" } }));
        for word in text.split_inclusive(' ') {
            self.event(json!({ "type": "content_block_delta", "index": 0, "delta": { "type": delta, key: word } }));
        }
        self.event(json!({ "type": "content_block_delta", "index": 0, "delta": { "type": delta, key: "" } }));
        self.entry(None, json!({ "type": kind, key: text }), text);
        self.event(json!({ "type": "content_block_stop", "index": 0 }));
        self.event(json!({ "type": "message_stop" }));
    }

    fn stream(&mut self, text: &str) {
        self.block("text", "text_delta", "text", text);
    }

    /// Announces a call; its id.
    fn tool_use(&mut self, tool: &str, input: &Value, parent: Option<&str>) -> String {
        self.fake.calls += 1;
        let call = format!("toolu_{}_{}", std::process::id(), self.fake.calls);
        let block = json!({ "type": "tool_use", "id": call, "name": tool, "input": {} });
        if parent.is_none() {
            self.event(json!({ "type": "content_block_start", "index": 0, "content_block": block }));
        }
        let block = json!({ "type": "tool_use", "id": call, "name": tool, "input": input });
        self.entry(parent, block, &format!("[{tool}]"));
        if parent.is_none() {
            self.event(json!({ "type": "content_block_stop", "index": 0 }));
        }
        call
    }

    fn tool_result(&mut self, call: &str, text: &str, failed: bool, parent: Option<&str>, outcome: Value) {
        let id = new_id();
        if parent.is_none() {
            self.fake.remember(&id, "user", text);
        }
        self.fake.say(json!({ "type": "user", "uuid": id, "parent_tool_use_id": parent, "tool_use_result": outcome,
            "message": { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": call, "content": text, "is_error": failed }] } }));
    }

    fn tool(&mut self, rest: &str, asks: bool) {
        let (tool, input) = rest.split_once(' ').unwrap_or((rest, "{}"));
        let input: Value = serde_json::from_str(input).unwrap_or_default();
        let call = self.tool_use(tool, &input, None);
        self.finish(tool, &call, input, asks, None);
    }

    fn finish(&mut self, tool: &str, call: &str, input: Value, asks: bool, parent: Option<&str>) {
        let mut ran = input.clone();
        if asks {
            let Some(answer) = self.ask(tool, call, input) else { return };
            if answer["behavior"] != "allow" {
                let why = answer["message"].as_str().unwrap_or_default().to_owned();
                return self.tool_result(call, &why, true, parent, Value::Null);
            }
            ran = answer["updatedInput"].clone();
            if let Some(granted) = answer.get("updatedPermissions") {
                ran["granted"] = granted.clone();
            }
        }
        self.tool_result(call, &ran.to_string(), false, parent, Value::Null);
    }

    /// Asks, and waits for the answer; nothing when it was interrupted.
    fn ask(&mut self, tool: &str, call: &str, input: Value) -> Option<Value> {
        self.fake.asked += 1;
        let request = format!("ask-{}", self.fake.asked);
        let suggestions = json!([
            { "type": "addRules", "rules": [{ "toolName": tool, "ruleContent": "x" }], "behavior": "allow",
                "destination": "localSettings" },
            { "type": "setMode", "mode": "acceptEdits", "destination": "session" }]);
        self.fake.say(json!({ "type": "control_request", "request_id": request, "request": {
            "subtype": "can_use_tool", "tool_name": tool, "display_name": tool, "input": input, "tool_use_id": call,
            "permission_suggestions": suggestions } }));
        loop {
            self.fake.listen(TICK);
            let at = self.fake.answers.iter().position(|answer| answer["request_id"] == json!(request));
            if let Some(at) = at {
                return Some(self.fake.answers.remove(at)["response"].clone());
            }
            if self.fake.interrupted || self.fake.closed {
                self.fake.say(json!({ "type": "control_cancel_request", "request_id": request }));
                self.tool_result(call, "The tool use was rejected.", true, None, Value::Null);
                return None;
            }
        }
    }

    fn ask_first(&mut self, command: &str) {
        self.fake.calls += 1;
        let call = format!("toolu_{}_{}", std::process::id(), self.fake.calls);
        let input = json!({ "command": command });
        let answer = self.ask("Bash", &call, input.clone());
        let block = json!({ "type": "tool_use", "id": call, "name": "Bash", "input": input });
        self.entry(None, block, "[Bash]");
        if answer.is_some() {
            self.tool_result(&call, "ran", false, None, Value::Null);
        }
    }

    fn withdraw(&mut self) {
        let input = json!({ "command": "x" });
        let call = self.tool_use("Bash", &input, None);
        self.fake.say(json!({ "type": "control_request", "request_id": "gone", "request": {
            "subtype": "can_use_tool", "tool_name": "Bash", "input": input, "tool_use_id": call } }));
        self.fake.say(json!({ "type": "control_cancel_request", "request_id": "gone" }));
    }

    fn edit(&mut self, path: &str) {
        let call = self.tool_use("Edit", &json!({ "file_path": path }), None);
        let outcome = json!({ "filePath": path, "structuredPatch": [{ "lines": ["-a", "+b", "+c"] }] });
        self.tool_result(&call, "The file has been updated.", false, None, outcome);
    }

    fn question(&mut self) {
        let input = json!({ "questions": [
            { "question": "Which colour?", "header": "Colour", "multiSelect": false,
                "options": [{ "label": "Red", "description": "warm" }, { "label": "Blue", "description": "cold" }] },
            { "question": "What else?", "header": "Else", "multiSelect": true,
                "options": [{ "label": "A" }, { "label": "B" }] }] });
        let call = self.tool_use("AskUserQuestion", &input, None);
        let Some(answer) = self.ask("AskUserQuestion", &call, input) else { return };
        match answer["behavior"].as_str() {
            Some("allow") => {
                let answers = answer["updatedInput"]["answers"].to_string();
                self.tool_result(&call, &answers, false, None, Value::Null);
            }
            _ => {
                let why = answer["message"].as_str().unwrap_or_default().to_owned();
                self.tool_result(&call, &why, true, None, Value::Null);
            }
        }
    }

    fn spawn(&mut self, prompt: &str, background: bool) -> (String, String) {
        let input = json!({ "description": "look around", "prompt": prompt, "subagent_type": "Explore" });
        let call = self.tool_use("Task", &input, None);
        let task = format!("task-{call}");
        self.fake.say(json!({ "type": "system", "subtype": "task_started", "task_id": task, "tool_use_id": call,
            "description": "look around", "subagent_type": "Explore", "is_backgrounded": background,
            "task_type": "local_agent", "prompt": prompt }));
        (call, task)
    }

    fn task_over(&mut self, call: &str, task: &str, status: &str) {
        self.fake.say(json!({ "type": "system", "subtype": "task_notification", "task_id": task, "tool_use_id": call,
            "status": status, "summary": "look around" }));
    }

    /// A subagent that says its prompt and uses a tool that asks.
    fn task(&mut self, prompt: &str, background: bool) {
        let (call, task) = self.spawn(prompt, background);
        if background {
            self.tool_result(&call, "Async agent launched", false, None, Value::Null);
        }
        self.entry(Some(&call), json!({ "type": "text", "text": format!("sub: {prompt}") }), "");
        if !background {
            let inner = self.tool_use("Bash", &json!({ "command": "sub" }), Some(&call));
            self.finish("Bash", &inner, json!({ "command": "sub" }), true, Some(&call));
        }
        self.task_over(&call, &task, "completed");
        if !background {
            self.tool_result(&call, "the report", false, None, Value::Null);
        }
    }

    /// A subagent that goes on until it is stopped.
    fn task_wait(&mut self, prompt: &str) {
        let (call, task) = self.spawn(prompt, false);
        while self.fake.stopped.as_ref() != Some(&task) {
            self.fake.listen(TICK);
            if self.fake.interrupted || self.fake.closed {
                return;
            }
        }
        self.task_over(&call, &task, "stopped");
        self.tool_result(&call, "[Request interrupted by user for tool use]", true, None, Value::Null);
    }

    fn wait(&mut self) {
        self.event(json!({ "type": "message_start", "message": { "id": "m" } }));
        self.event(
            json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
        );
        self.event(
            json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "tick" } }),
        );
        while !self.fake.interrupted && !self.fake.closed {
            self.fake.listen(TICK);
        }
        self.entry(None, json!({ "type": "text", "text": "tick" }), "tick");
        // What arrives late, after the interrupt.
        self.stream("too late");
    }

    fn await_steering(&mut self) {
        let call = self.tool_use("Bash", &json!({ "command": "sleep" }), None);
        while self.fake.queue.is_empty() && !self.fake.interrupted && !self.fake.closed {
            self.fake.listen(TICK);
        }
        self.tool_result(&call, "slept", false, None, Value::Null);
        if let Some((id, text)) = self.fake.queue.pop_front() {
            self.fake.remember(&id, "user", &text);
            self.fake.echo(&id, &text);
            self.fake.lifecycle(&id, "started");
            self.stream(&format!("steered: {text}"));
        }
    }

    fn limit(&mut self, rest: &str) {
        let (kind, at) = rest.split_once(' ').unwrap_or((rest, ""));
        if let Ok(at) = at.parse::<i64>() {
            self.fake.say(json!({ "type": "rate_limit_event",
                "rate_limit_info": { "status": "rejected", "resetsAt": at, "rateLimitType": "five_hour" } }));
        }
        let (status, error) = if kind == "overload" { (529, "server_error") } else { (429, "rate_limit") };
        self.fake.say(json!({ "type": "system", "subtype": "api_retry", "attempt": 1, "error_status": status,
            "error": error }));
        self.synthetic(error, "API Error: no more");
        self.fail(json!(status), "API Error: no more");
    }

    fn synthetic(&mut self, error: &str, text: &str) {
        self.fake.say(json!({ "type": "assistant", "parent_tool_use_id": null, "error": error,
            "is_api_error_message": true,
            "message": { "model": "<synthetic>", "content": [{ "type": "text", "text": text }] } }));
    }

    fn fail(&mut self, status: Value, text: &str) {
        self.over = Some(json!({ "is_error": true, "api_error_status": status, "result": text,
            "terminal_reason": "api_error" }));
    }

    fn compact(&mut self) {
        let say = |line| self.fake.say(line);
        say(json!({ "type": "system", "subtype": "status", "status": "compacting" }));
        say(json!({ "type": "system", "subtype": "status", "status": null, "compact_result": "success" }));
        self.fake.init();
        self.fake.say(json!({ "type": "system", "subtype": "compact_boundary",
            "compact_metadata": { "trigger": "manual", "pre_tokens": 900, "post_tokens": 90 } }));
        // As of now nothing before can be gone back to.
        self.fake.entries.clear();
        let id = new_id();
        self.fake.remember(&id, "user", "the summary");
        self.fake.say(json!({ "type": "user", "uuid": id, "isSynthetic": true, "parent_tool_use_id": null,
            "message": { "role": "user", "content": "This session is being continued" } }));
        self.fake.echo(&new_id(), "<local-command-stdout>Compacted </local-command-stdout>");
    }
}
