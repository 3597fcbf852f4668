//! An ACP agent for tests: no model, no network. What it is able to do is told by its arguments, what it does in a turn by
//! the message, a script with one step a line. It says what real agents were seen to say, their faults included.
//!
//! It writes its messages by hand, not with the protocol's crate: much of what it says is wrong on purpose.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![allow(clippy::disallowed_methods, reason = "how long things take is what some tests are about")]

mod abilities;
mod script;
mod sessions;
mod wire;

use std::io::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use abilities::Abilities;
use script::Stop;
use sessions::Sessions;
use wire::{Incoming, Wire};

/// The agent.
struct Agent {
    abilities: Abilities,
    wire: Wire,
    sessions: Sessions,
}

fn main() {
    let abilities = Abilities::of(std::env::args().skip(1));
    if let Some(code) = abilities.exits {
        eprintln!("fake_acp: it was told to exit");
        std::process::exit(code);
    }
    if let Some(pid_file) = &abilities.pid_file {
        std::fs::write(pid_file, std::process::id().to_string()).unwrap();
    }
    let sessions = Sessions::at(abilities.state.clone());
    let wire = Wire::new(abilities.string_ids);
    let mut agent = Agent { abilities, wire, sessions };
    if agent.abilities.banner {
        println!("fake_acp: this line is no message");
        eprintln!("fake_acp: neither is this");
    }
    while let Some(incoming) = agent.wire.next() {
        if let Incoming::Request { id, method, params } = incoming {
            agent.serve(&id, &method, &params);
        }
    }
    if agent.abilities.ignores_end {
        loop {
            std::thread::park();
        }
    }
}

impl Agent {
    fn serve(&mut self, id: &Value, method: &str, params: &Value) {
        let answer = match method {
            "initialize" => self.initialize(),
            "session/new" => self.new_session(params),
            "session/load" => self.load(params),
            "session/resume" => self.resume(params),
            "session/close" if self.abilities.close => {
                self.note("closed");
                Ok(json!({}))
            }
            "session/set_mode" => self.set("mode", params, "modeId"),
            "session/set_model" => self.set("model", params, "modelId"),
            "session/set_config_option" => self.set_option(params),
            "session/prompt" => return self.prompt(id, params),
            other => Err((-32601, "\"Method not found\"".to_owned(), json!(other))),
        };
        self.wire.answer(id, answer);
    }

    /// Adds a line to the file that tests read, where they name one.
    fn note(&self, line: &str) {
        if let Some(notes) = &self.abilities.notes {
            let mut notes = std::fs::OpenOptions::new().create(true).append(true).open(notes).unwrap();
            writeln!(notes, "{line}").unwrap();
        }
    }

    fn initialize(&mut self) -> Answer {
        if self.abilities.never_ready {
            loop {
                std::thread::park();
            }
        }
        // How long a start takes is what is tested.
        std::thread::sleep(Duration::from_millis(self.abilities.slow));
        Ok(self.abilities.initialize())
    }

    fn new_session(&mut self, params: &Value) -> Answer {
        if self.abilities.login {
            return Err((-32000, "Authentication required".into(), Value::Null));
        }
        let id = self.sessions.open(params);
        self.say_commands(&id);
        let mut answer = self.abilities.settings();
        answer["sessionId"] = json!(id);
        Ok(answer)
    }

    fn say_commands(&mut self, id: &str) {
        let commands = json!([{ "name": "compact", "description": "Makes the context smaller" },
            { "name": "review", "description": "Looks at changes", "input": { "hint": "what to look at" } }]);
        self.wire.update(id, json!({ "sessionUpdate": "available_commands_update", "availableCommands": commands }));
    }

    fn load(&mut self, params: &Value) -> Answer {
        let id = params["sessionId"].as_str().unwrap().to_owned();
        if !self.abilities.load {
            return Err((-32601, "\"Method not found\"".into(), json!("session/load")));
        }
        self.note(&format!("load {id}"));
        if !self.sessions.reopen(&id, params) && !self.abilities.lies {
            return Err((-32002, "Resource not found".into(), json!({ "sessionId": id })));
        }
        for (kind, text) in self.sessions.history(&id) {
            let update = format!("{kind}_message_chunk");
            let content = json!({ "type": "text", "text": text });
            self.wire.update(&id, json!({ "sessionUpdate": update, "content": content }));
        }
        Ok(self.abilities.settings())
    }

    fn resume(&mut self, params: &Value) -> Answer {
        let id = params["sessionId"].as_str().unwrap().to_owned();
        self.note(&format!("resume {id}"));
        if !self.abilities.resume || self.abilities.resume_fails {
            return Err((-32601, "\"Method not found\"".into(), json!("session/resume")));
        }
        if !self.sessions.reopen(&id, params) && !self.abilities.lies {
            return Err((-32002, "Resource not found".into(), json!({ "sessionId": id })));
        }
        Ok(self.abilities.settings())
    }

    fn set(&mut self, what: &str, params: &Value, key: &str) -> Answer {
        let value = params[key].as_str().unwrap().to_owned();
        self.note(&format!("set {what} {value}"));
        if value == "refused" {
            return Err((-32602, "Invalid params".into(), json!("not today")));
        }
        self.abilities.take(what, &json!(value));
        Ok(json!({}))
    }

    fn set_option(&mut self, params: &Value) -> Answer {
        let id = params["configId"].as_str().unwrap().to_owned();
        self.note(&format!("set option {id} {}", params["value"]));
        self.abilities.take(&id, &params["value"]);
        Ok(json!({ "configOptions": self.abilities.settings()["configOptions"] }))
    }

    fn prompt(&mut self, id: &Value, params: &Value) {
        let session = params["sessionId"].as_str().unwrap().to_owned();
        if !self.sessions.knows(&session) {
            let data = json!({ "session_id": session });
            let error = (-32602, format!("Session not found: {session}"), data);
            return self.wire.answer(id, Err(error));
        }
        let blocks = params["prompt"].as_array().unwrap();
        let texts: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
        let script = texts.iter().find(|text| !text.starts_with("This conversation began before you"));
        let script = script.map_or(String::new(), |script| (*script).to_owned());
        self.sessions.add(&session, "user", &texts.join("\n"));
        let mut turn = script::Turn { agent: self, session: session.clone(), params: params.clone(), cancelled: false };
        let stop = turn.run(&script);
        match stop {
            Stop::Reason(answer) => self.wire.answer(id, Ok(answer)),
            Stop::Error(error) => self.wire.answer(id, Err(error)),
        }
    }
}

/// A result, or the code, the message and the data of an error.
type Answer = Result<Value, (i64, String, Value)>;
