//! What the agent is able to do, as its arguments say.

use std::path::PathBuf;

use serde_json::{Value, json};

/// The arguments, and the values of its settings.
#[derive(Default)]
pub struct Abilities {
    pub load: bool,
    pub resume: bool,
    /// It says that it resumes, and does not know the method.
    pub resume_fails: bool,
    /// It opens sessions that it does not know.
    pub lies: bool,
    pub close: bool,
    pub http: bool,
    pub images: bool,
    pub directories: bool,
    pub login: bool,
    pub never_ready: bool,
    pub ignores_end: bool,
    pub banner: bool,
    pub string_ids: bool,
    /// How long its first answer takes, in milliseconds.
    pub slow: u64,
    pub version: Option<i64>,
    pub exits: Option<i32>,
    /// Where conversations are kept over its end.
    pub state: Option<PathBuf>,
    /// Where it writes down what it is asked.
    pub notes: Option<PathBuf>,
    pub pid_file: Option<PathBuf>,
    settings: Option<Form>,
    mode: String,
    model: String,
    fast: bool,
}

/// The form of its settings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Modes and models, as gemini has them.
    Old,
    /// Options, as codex and opencode have them.
    Options,
}

impl Abilities {
    pub fn of(arguments: impl Iterator<Item = String>) -> Self {
        let mut abilities = Self { mode: "ask".into(), model: "small".into(), ..Self::default() };
        for argument in arguments {
            let (name, value) = argument.split_once('=').unwrap_or((&argument, ""));
            let path = || Some(PathBuf::from(value));
            match name {
                "load" => abilities.load = true,
                "resume" => abilities.resume = true,
                "resume-fails" => (abilities.resume, abilities.resume_fails) = (true, true),
                "lies" => abilities.lies = true,
                "close" => abilities.close = true,
                "http" => abilities.http = true,
                "images" => abilities.images = true,
                "directories" => abilities.directories = true,
                "login" => abilities.login = true,
                "never-ready" => abilities.never_ready = true,
                "ignores-end" => abilities.ignores_end = true,
                "banner" => abilities.banner = true,
                "string-ids" => abilities.string_ids = true,
                "slow" => abilities.slow = value.parse().unwrap(),
                "version" => abilities.version = value.parse().ok(),
                "exits" => abilities.exits = value.parse().ok(),
                "state" => abilities.state = path(),
                "notes" => abilities.notes = path(),
                "pid" => abilities.pid_file = path(),
                "modes" => abilities.settings = Some(Form::Old),
                "options" => abilities.settings = Some(Form::Options),
                other => panic!("there is no argument {other}"),
            }
        }
        abilities
    }

    /// The answer to `initialize`.
    pub fn initialize(&self) -> Value {
        let mut of_sessions = json!({});
        for (name, able) in
            [("resume", self.resume), ("close", self.close), ("additionalDirectories", self.directories)]
        {
            if able {
                of_sessions[name] = json!({});
            }
        }
        json!({ "protocolVersion": self.version.unwrap_or(1),
            "agentCapabilities": { "loadSession": self.load, "promptCapabilities": { "image": self.images },
                "mcpCapabilities": { "http": self.http }, "sessionCapabilities": of_sessions },
            "authMethods": [{ "id": "plan", "name": "Log in with a plan", "description": "Opens a browser" },
                { "type": "env_var", "id": "key", "name": "Use FAKE_KEY", "vars": [{ "name": "FAKE_KEY" }] }],
            "agentInfo": { "name": "fake-acp", "version": "1.2.3" } })
    }

    /// What it says of its settings when a session opens.
    pub fn settings(&self) -> Value {
        let choice = |value: &str, name: &str| json!({ "value": value, "name": name });
        match self.settings {
            None => json!({}),
            Some(Form::Old) => json!({
                "modes": { "currentModeId": self.mode, "availableModes": [
                    { "id": "ask", "name": "Ask" }, { "id": "auto", "name": "Automatic", "description": "Asks nobody" },
                    { "id": "refused", "name": "Refused" }] },
                "models": { "currentModelId": self.model, "availableModels": [
                    { "modelId": "small", "name": "Small", "_meta": { "contextLimit": 1000 } },
                    { "modelId": "large", "name": "Large" }] } }),
            Some(Form::Options) => json!({ "configOptions": [
                { "id": "llm", "name": "Model", "category": "model", "type": "select", "currentValue": self.model,
                    "options": [choice("small", "Small"), choice("large", "Large")] },
                { "id": "mode", "name": "Mode", "category": "mode", "type": "select", "currentValue": self.mode,
                    "options": [choice("ask", "Ask"), choice("auto", "Automatic")] },
                { "id": "fast", "name": "Fast", "type": "boolean", "currentValue": self.fast }] }),
        }
    }

    /// Makes a setting hold.
    pub fn take(&mut self, what: &str, value: &Value) {
        let word = value.as_str().unwrap_or_default().to_owned();
        match what {
            "mode" => self.mode = word,
            "model" | "llm" => self.model = word,
            "fast" => self.fast = value == &json!(true),
            _ => {}
        }
    }

    /// What holds, in words.
    pub fn held(&self) -> String {
        format!("mode {}, model {}, fast {}", self.mode, self.model, self.fast)
    }
}
