//! The tables `[agents.NAME]` of the configuration file.
//!
//! A preset stands for the table that would be written without it; what the table says itself goes before the preset's.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::resource::ResourceConfig;

/// An agent as it is configured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentConfig {
    /// The provider id: the NAME of the table.
    pub name: String,
    /// What people see.
    pub display_name: String,
    pub kind: AgentKind,
}

impl AgentConfig {
    /// As `--print-config` shows it: the values of variables may be secrets, and are left out.
    pub fn shown(&self) -> serde_json::Value {
        let mut shown = serde_json::to_value(&self.kind).unwrap_or_default();
        if let Some(env) = shown.get_mut("env").and_then(serde_json::Value::as_object_mut) {
            env.values_mut().for_each(|value| *value = "(set)".into());
        }
        if let Some(shown) = shown.as_object_mut() {
            shown.insert("display_name".into(), self.display_name.clone().into());
        }
        shown
    }
}

/// How an agent is talked to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum AgentKind {
    /// A program that speaks the Agent Client Protocol on its standard input and output.
    Acp(ProgramConfig),
    /// The Claude Code CLI.
    Claude(ProgramConfig),
    /// An endpoint that speaks OpenAI's chat completions.
    OpenAi(EndpointConfig),
}

/// A program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProgramConfig {
    /// The program and its arguments; not empty.
    pub command: Vec<String>,
    /// Variables of its environment.
    pub env: BTreeMap<String, String>,
    /// Variables that it is given from the host's own environment, where they are set there.
    pub pass_env: Vec<String>,
    /// The model to begin with, for programs that are told on their command line.
    pub model: Option<String>,
}

/// An endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EndpointConfig {
    /// Up to and with the version, such as `http://127.0.0.1:11434/v1`.
    pub base_url: String,
    /// The model to begin with.
    pub model: String,
    /// The models that sessions may choose from beside that one; all that the endpoint lists where this is empty.
    pub models: Vec<String>,
    /// The variable of the host's environment that holds the key; none for an endpoint that wants none.
    pub api_key_env: Option<String>,
    /// What every conversation begins with, before what people say.
    pub system: Option<String>,
    /// Whether the model takes images.
    pub images: bool,
    /// What people bring tokens of their own for, in the place of a key.
    #[serde(flatten)]
    pub resource: Option<ResourceConfig>,
}

/// The kinds, as they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Acp,
    Claude,
    OpenAi,
}

/// One table, as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    preset: Option<String>,
    kind: Option<Kind>,
    display_name: Option<String>,
    command: Option<Vec<String>>,
    env: Option<BTreeMap<String, String>>,
    pass_env: Option<Vec<String>>,
    base_url: Option<String>,
    model: Option<String>,
    models: Option<Vec<String>>,
    api_key_env: Option<String>,
    system: Option<String>,
    images: Option<bool>,
    protected_resource: Option<String>,
    resource_name: Option<String>,
    authorization_servers: Option<Vec<String>>,
    scopes: Option<Vec<String>>,
}

/// An agent that is known well enough to be named in one word.
struct Preset {
    name: &'static str,
    display_name: &'static str,
    command: &'static [&'static str],
    pass_env: &'static [&'static str],
}

/// The presets; all of them speak ACP.
const PRESETS: [Preset; 6] = [
    Preset {
        name: "claude",
        display_name: "Claude",
        command: &["claude-agent-acp"],
        pass_env: &["ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL", "CLAUDE_CONFIG_DIR"],
    },
    Preset {
        name: "codex",
        display_name: "Codex",
        command: &["codex-acp"],
        pass_env: &["OPENAI_API_KEY", "CODEX_API_KEY", "CODEX_HOME"],
    },
    Preset {
        name: "gemini",
        display_name: "Gemini",
        command: &["gemini", "--acp"],
        pass_env: &["GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"],
    },
    Preset {
        name: "opencode",
        display_name: "OpenCode",
        command: &["opencode", "acp"],
        pass_env: &["OPENCODE_CONFIG", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"],
    },
    Preset {
        name: "qwen",
        display_name: "Qwen Code",
        command: &["qwen", "--acp"],
        pass_env: &["OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "DASHSCOPE_API_KEY"],
    },
    Preset {
        name: "vibe",
        display_name: "Mistral Vibe",
        command: &["vibe-acp"],
        pass_env: &["MISTRAL_API_KEY", "VIBE_HOME"],
    },
];

/// The variable by which the host knows its programs again.
pub const MARK: &str = "SCROLLBACK_AGENT";

/// The provider id of the agent that every host has.
const BUILT_IN: &str = "demo";

/// Reads the table `agents`.
///
/// # Errors
/// The first thing that is wrong, with its key.
pub fn read(agents: &toml::Value) -> Result<Vec<AgentConfig>, String> {
    let Some(tables) = agents.as_table() else { return Err("agents: wants tables such as [agents.codex]".into()) };
    tables.iter().map(|(name, value)| one(name, value).map_err(|problem| format!("agents.{name}{problem}"))).collect()
}

fn one(name: &str, value: &toml::Value) -> Result<AgentConfig, String> {
    if !value.is_table() {
        return Err(": wants a table".to_owned());
    }
    let letters =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-' || letter == '_';
    if name.is_empty() || name.len() > 64 || !name.chars().all(letters) {
        return Err(": a name is made of a-z, 0-9, - and _".to_owned());
    }
    if name == BUILT_IN {
        return Err(": this is the name of the agent that every host has".to_owned());
    }
    let table: Table = value.clone().try_into().map_err(|error: toml::de::Error| format!(": {}", error.message()))?;
    kind(name, table)
}

fn kind(name: &str, table: Table) -> Result<AgentConfig, String> {
    let preset = match &table.preset {
        Some(wanted) => Some(PRESETS.iter().find(|preset| preset.name == wanted).ok_or_else(|| {
            let there = PRESETS.map(|preset| preset.name).join(", ");
            format!(".preset: there is no preset {wanted}; there are {there}")
        })?),
        None => None,
    };
    let kind = match (table.kind, preset) {
        (Some(kind), None) => kind,
        (None | Some(Kind::Acp), Some(_)) => Kind::Acp,
        (Some(_), Some(_)) => return Err(".kind: a preset speaks ACP: leave `kind` out".to_owned()),
        (None, None) => return Err(": wants `preset` or `kind` (acp, claude or openai)".to_owned()),
    };
    let display_name = table.display_name.clone().or_else(|| preset.map(|preset| preset.display_name.to_owned()));
    let display_name = display_name.unwrap_or_else(|| name.to_owned());
    let of = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let kind = match kind {
        Kind::OpenAi => AgentKind::OpenAi(endpoint(table)?),
        kind => {
            if let Some(key) = table.belongs_to_an_endpoint() {
                return Err(format!(".{key}: only for kind = \"openai\""));
            }
            if kind == Kind::Acp && table.model.is_some() {
                return Err(".model: an ACP agent is told its model by the session".to_owned());
            }
            let default = match kind {
                Kind::Claude => Some(of(&["claude"])),
                _ => preset.map(|preset| of(preset.command)),
            };
            let command = table.command.or(default).ok_or(".command: is missing")?;
            if command.first().is_none_or(String::is_empty) {
                return Err(".command: wants a program and its arguments, such as [\"codex-acp\"]".to_owned());
            }
            let given = table.env.iter().flatten().map(|(name, value)| (".env", name, value.as_str()));
            let passed = table.pass_env.iter().flatten().map(|name| (".pass_env", name, ""));
            for (key, name, value) in given.chain(passed) {
                variable(name, value).map_err(|problem| format!("{key}: {problem}"))?;
            }
            let own = if kind == Kind::Claude { CLAUDE_ENV } else { preset.map_or(&[][..], |preset| preset.pass_env) };
            let program = ProgramConfig {
                command,
                env: table.env.unwrap_or_default(),
                pass_env: table.pass_env.unwrap_or_else(|| of(own)),
                model: table.model,
            };
            if kind == Kind::Claude { AgentKind::Claude(program) } else { AgentKind::Acp(program) }
        }
    };
    Ok(AgentConfig { name: name.to_owned(), display_name, kind })
}

/// Whether a program can be given this variable.
fn variable(name: &str, value: &str) -> Result<(), String> {
    if name.is_empty() || name.contains(['=', '\0', ' ']) {
        return Err(format!("{name:?} is no name of a variable"));
    }
    if name == MARK {
        return Err(format!("{MARK} is the host's own"));
    }
    if value.contains('\0') {
        return Err(format!("the value of {name} holds a NUL"));
    }
    Ok(())
}

/// What the Claude Code CLI is given where its table does not say.
const CLAUDE_ENV: &[&str] = &["ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL", "CLAUDE_CONFIG_DIR"];

impl Table {
    fn belongs_to_an_endpoint(&self) -> Option<&'static str> {
        let keys = [
            ("base_url", self.base_url.is_some()),
            ("models", self.models.is_some()),
            ("api_key_env", self.api_key_env.is_some()),
            ("system", self.system.is_some()),
            ("images", self.images.is_some()),
            ("protected_resource", self.protected_resource.is_some()),
        ];
        keys.into_iter().find(|(_, given)| *given).map(|(key, _)| key).or(self.belongs_to_a_resource())
    }

    fn belongs_to_a_resource(&self) -> Option<&'static str> {
        let keys = [
            ("resource_name", self.resource_name.is_some()),
            ("authorization_servers", self.authorization_servers.is_some()),
            ("scopes", self.scopes.is_some()),
        ];
        keys.into_iter().find(|(_, given)| *given).map(|(key, _)| key)
    }

    /// The resource that people bring tokens for, taken out of the table.
    fn resource(&mut self) -> Result<Option<ResourceConfig>, String> {
        let other = self.belongs_to_a_resource();
        let Some(protected_resource) = self.protected_resource.take() else {
            return other.map_or(Ok(None), |key| Err(format!(".{key}: only beside `protected_resource`")));
        };
        if self.api_key_env.is_some() {
            return Err(".api_key_env: not beside `protected_resource`: each person brings a token".to_owned());
        }
        let resource = ResourceConfig {
            protected_resource,
            resource_name: self.resource_name.take(),
            authorization_servers: self.authorization_servers.take().unwrap_or_default(),
            scopes: self.scopes.take().unwrap_or_default(),
        };
        resource.check().map(|()| Some(resource))
    }
}

fn endpoint(mut table: Table) -> Result<EndpointConfig, String> {
    for (key, given) in
        [("command", table.command.is_some()), ("env", table.env.is_some()), ("pass_env", table.pass_env.is_some())]
    {
        if given {
            return Err(format!(".{key}: an endpoint is no program"));
        }
    }
    let resource = table.resource()?;
    let base_url = table.base_url.ok_or(".base_url: is missing")?;
    if !(base_url.starts_with("http://") || base_url.starts_with("https://")) {
        return Err(".base_url: wants a URL such as \"http://127.0.0.1:11434/v1\"".to_owned());
    }
    // It is shown to clients and in errors.
    if base_url.contains(['@', '?', '#']) {
        return Err(".base_url: holds a name, a query or a fragment: the key belongs into `api_key_env`".to_owned());
    }
    if let Some(name) = &table.api_key_env {
        variable(name, "").map_err(|_| ".api_key_env: wants the name of a variable, and not a key".to_owned())?;
    }
    let model = table.model.filter(|model| !model.is_empty()).ok_or(".model: is missing")?;
    Ok(EndpointConfig {
        base_url: base_url.trim_end_matches('/').to_owned(),
        model,
        models: table.models.unwrap_or_default(),
        api_key_env: table.api_key_env,
        system: table.system,
        images: table.images.unwrap_or(false),
        resource,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Vec<AgentConfig>, String> {
        let table: toml::Table = toml::from_str(text).unwrap();
        read(table.get("agents").unwrap())
    }

    #[test]
    fn a_preset_is_one_line_and_what_the_table_says_goes_before_it() {
        let [codex] = &of("[agents.codex]\npreset = \"codex\"").unwrap()[..] else { panic!() };
        let AgentKind::Acp(program) = &codex.kind else { panic!() };
        assert_eq!((codex.display_name.as_str(), &program.command[..]), ("Codex", &["codex-acp".to_owned()][..]));
        assert!(program.pass_env.contains(&"OPENAI_API_KEY".to_owned()));
        let own = of("[agents.mine]\npreset = \"codex\"\ncommand = [\"/opt/codex\", \"-x\"]\npass_env = []").unwrap();
        let AgentKind::Acp(program) = &own[0].kind else { panic!() };
        assert_eq!((program.command.len(), program.pass_env.len()), (2, 0));
    }

    #[test]
    fn an_endpoint_may_want_tokens_of_people_in_the_place_of_a_key() {
        let with = |lines: &str| {
            of(&format!("[agents.x]\nkind = \"openai\"\nbase_url = \"https://x/v1\"\nmodel = \"m\"\n{lines}"))
        };
        let all = "protected_resource = \"https://api.example.com\"\nresource_name = \"Example\"\n\
                   authorization_servers = [\"https://login.example.com/a\"]\nscopes = [\"read\", \"chat:write\"]";
        let [agent] = &with(all).unwrap()[..] else { panic!() };
        let AgentKind::OpenAi(endpoint) = &agent.kind else { panic!() };
        assert_eq!(endpoint.resource.as_ref().unwrap().scopes, ["read", "chat:write"]);
        assert_eq!(agent.shown()["protected_resource"], "https://api.example.com");
        let resource = "protected_resource = \"https://api.example.com\"\n";
        for (lines, problem) in [
            (format!("{resource}api_key_env = \"KEY\""), "agents.x.api_key_env: not beside `protected_resource`"),
            ("protected_resource = \"\"".to_owned(), "agents.x.protected_resource: wants a URL"),
            ("protected_resource = \"http://x\"".to_owned(), "agents.x.protected_resource: wants a URL"),
            ("protected_resource = \"https://\"".to_owned(), "agents.x.protected_resource: wants a URL"),
            ("protected_resource = \"https://x#y\"".to_owned(), "agents.x.protected_resource: wants a URL"),
            (format!("{resource}authorization_servers = [\"x\"]"), "agents.x.authorization_servers: wants a URL"),
            (format!("{resource}scopes = [\"a b\"]"), "agents.x.scopes: wants words"),
            (format!("{resource}resource_name = \"\""), "agents.x.resource_name: wants text"),
            ("scopes = [\"a\"]".to_owned(), "agents.x.scopes: only beside `protected_resource`"),
        ] {
            let refused = with(&lines).unwrap_err();
            assert!(refused.starts_with(problem), "{lines}: {refused}");
        }
    }

    #[test]
    fn each_kind_has_its_own_keys() {
        assert!(of("[agents.c]\nkind = \"claude\"\nmodel = \"opus\"").is_ok());
        assert!(of("[agents.o]\nkind = \"openai\"\nbase_url = \"http://127.0.0.1:1/v1/\"\nmodel = \"m\"").is_ok());
        for (table, problem) in [
            ("[agents.x]", "agents.x: wants `preset` or `kind` (acp, claude or openai)"),
            ("[agents.x]\npreset = \"nobody\"", "agents.x.preset: there is no preset nobody; "),
            ("[agents.x]\nkind = \"acp\"", "agents.x.command: is missing"),
            ("[agents.x]\nkind = \"acp\"\ncommand = []", "agents.x.command: wants a program"),
            ("[agents.x]\nkind = \"acp\"\ncommand = [\"a\"]\nmodel = \"m\"", "agents.x.model: "),
            ("[agents.x]\nkind = \"claude\"\nbase_url = \"http://x\"", "agents.x.base_url: only for kind = \"openai\""),
            ("[agents.x]\nkind = \"openai\"\nmodel = \"m\"", "agents.x.base_url: is missing"),
            ("[agents.x]\nkind = \"openai\"\nmodel = \"m\"\nbase_url = \"x\"", "agents.x.base_url: wants a URL"),
            (
                "[agents.x]\nkind = \"openai\"\nmodel = \"m\"\nbase_url = \"http://me:secret@x\"",
                "agents.x.base_url: holds",
            ),
            ("[agents.x]\nkind = \"openai\"\nbase_url = \"http://x\"\ncommand = [\"a\"]", "agents.x.command: "),
            ("[agents.x]\nkind = \"claude\"\nenv = { \"A=B\" = \"x\" }", "agents.x.env: \"A=B\" is no name"),
            (
                "[agents.x]\nkind = \"claude\"\nenv = { SCROLLBACK_AGENT = \"x\" }",
                "agents.x.env: SCROLLBACK_AGENT is the host's",
            ),
            ("[agents.x]\nkind = \"claude\"\npass_env = [\"A=B\"]", "agents.x.pass_env: "),
            (
                "[agents.x]\nkind = \"openai\"\nbase_url = \"http://x\"\nmodel = \"m\"\napi_key_env = \"sk-1 2\"",
                "agents.x.api_key_env: ",
            ),
            ("[agents.x]\nkind = \"claude\"\nscopes = []", "agents.x.scopes: only for kind = \"openai\""),
            ("[agents.x]\nkind = \"telnet\"", "agents.x: unknown variant `telnet`"),
            ("[agents.x]\nkind = \"claude\"\ncolour = 1", "agents.x: unknown field `colour`"),
            ("[agents.demo]\nkind = \"claude\"", "agents.demo: "),
            ("[agents.\"A b\"]\nkind = \"claude\"", "agents.A b: a name"),
            ("[agents]\nx = 1", "agents.x: wants a table"),
        ] {
            let refused = of(table).unwrap_err();
            assert!(refused.starts_with(problem), "{table}: {refused}");
        }
    }
}
