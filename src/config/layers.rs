//! The layers that a configuration is made of, and what is wrong with one.

use std::path::{Path, PathBuf};

use figment::error::Kind;
use figment::providers::Serialized;
use figment::value::{Dict, Map, Value};
use figment::{Error, Figment, Metadata, Profile, Provider};

use super::agents::{self, AgentConfig};
use super::{Config, Environment};

/// The table of agents, which is read by itself.
const AGENTS: &str = "agents";
const DEFAULT: &str = "default";
const ENVIRONMENT: &str = "environment";
const FLAG: &str = "flag";

/// What is wrong with the configuration, in one line.
#[derive(Debug, thiserror::Error)]
pub enum ConfigFault {
    /// A value that cannot be read or served.
    #[error("{from}: {key}: {problem}")]
    Value { from: String, key: String, problem: String },
    /// A flag or a variable, which is named after its key.
    #[error("{from}: {problem}")]
    Named { from: String, problem: String },
    /// A key that there is not.
    #[error("{}: unknown key {key}", path.display())]
    UnknownKey { path: PathBuf, key: String },
    /// A file that cannot be read.
    #[error("{}: {problem}", path.display())]
    File { path: PathBuf, problem: String },
}

/// A flag that was given, as its key and its value.
pub type Flag = (&'static str, String);

/// One key as `--print-config` shows it.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Setting {
    pub key: String,
    pub value: serde_json::Value,
    /// `default`, `file PATH`, `environment NAME` or `flag --x`.
    pub from: String,
}

/// A configuration, and where each value came from.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    /// The agents beside the one that every host has, by name.
    pub agents: Vec<AgentConfig>,
    pub settings: Vec<Setting>,
}

impl Setting {
    /// The key with its value, as a line of the configuration file.
    pub fn line(&self) -> String {
        // JSON writes this one as it is, which TOML does not take.
        format!("{} = {}", self.key, self.value.to_string().replace('\u{7f}', "\\u007f"))
    }
}

impl Loaded {
    /// Where the value of `key` came from.
    pub fn source_of(&self, key: &str) -> &str {
        self.settings.iter().find(|setting| setting.key == key).map_or(DEFAULT, |setting| &setting.from)
    }
}

/// Puts the layers together: defaults, `file`, `environment`, `flags`.
///
/// # Errors
/// The first thing that is wrong, in the order of the layers for unknown keys and of the keys for values.
pub fn load(file: Option<&Path>, environment: &Environment, flags: &[Flag]) -> Result<Loaded, ConfigFault> {
    let defaults = Config::defaults(environment);
    let keys = keys_of(&defaults);
    let mut figment = Figment::from(Serialized::from(&defaults, Profile::Default).with_name(DEFAULT));
    let mut agents = Vec::new();
    if let Some(path) = file {
        let (layer, tables) = read_file(path, &keys)?;
        figment = figment.merge(layer);
        agents = tables;
    }
    let figment = figment.merge(variables(environment, &keys)).merge(given(flags));
    let config: Config = figment.extract().map_err(|error| fault(&figment, error))?;
    if let Some((key, problem)) = config.refused() {
        return Err(value_fault(origin(&figment, key), key.to_owned(), problem));
    }
    let mut settings = settings(&figment, &config);
    for agent in &agents {
        let from = file.map_or_else(String::new, |path| format!("file {}", path.display()));
        settings.push(Setting { key: format!("agents.{}", agent.name), value: agent.shown(), from });
    }
    Ok(Loaded { config, agents, settings })
}

/// Values of one origin.
struct Layer {
    name: String,
    values: Dict,
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, Error> {
        Ok(Profile::Default.collect(self.values.clone()))
    }
}

/// Names the layer of defaults.
trait Named: Provider + Sized {
    fn with_name(self, name: &str) -> Layer;
}

impl<P: Provider> Named for P {
    fn with_name(self, name: &str) -> Layer {
        let values = self.data().unwrap_or_default().remove(&Profile::Default).unwrap_or_default();
        Layer { name: name.to_owned(), values }
    }
}

fn keys_of(config: &Config) -> Vec<String> {
    match serde_json::to_value(config) {
        Ok(serde_json::Value::Object(keys)) => keys.into_iter().map(|(key, _)| key).collect(),
        _ => Vec::new(),
    }
}

fn read_file(path: &Path, keys: &[String]) -> Result<(Layer, Vec<AgentConfig>), ConfigFault> {
    let wrong = |problem: String| ConfigFault::File { path: path.to_owned(), problem };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let mut table: toml::Table = toml::from_str(&text).map_err(|error| wrong(syntax(&text, &error)))?;
    if let Some(key) = table.keys().find(|key| *key != AGENTS && !keys.contains(key)) {
        return Err(ConfigFault::UnknownKey { path: path.to_owned(), key: key.clone() });
    }
    let agents = table.remove(AGENTS).map(|agents| agents::read(&agents)).transpose().map_err(wrong)?;
    let values = Value::serialize(&table).ok().and_then(Value::into_dict).unwrap_or_default();
    Ok((Layer { name: format!("file {}", path.display()), values }, agents.unwrap_or_default()))
}

/// The message of a TOML error with its line, without the excerpt that makes several lines of it.
fn syntax(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().replace('\n', " ");
    match error.span().and_then(|span| text.get(..span.start)) {
        Some(before) => format!("line {}: {message}", before.matches('\n').count() + 1),
        None => message,
    }
}

fn variable_of(key: &str) -> String {
    format!("SCROLLBACK_{}", key.to_uppercase())
}

fn flag_of(key: &str) -> String {
    format!("--{}", key.replace('_', "-"))
}

fn variables(environment: &Environment, keys: &[String]) -> Layer {
    let of = |key: &String| Some((key.clone(), Value::from(environment.get(&variable_of(key))?.to_owned())));
    Layer { name: ENVIRONMENT.to_owned(), values: keys.iter().filter_map(of).collect() }
}

fn given(flags: &[Flag]) -> Layer {
    let of = |(key, value): &Flag| ((*key).to_owned(), Value::from(value.clone()));
    Layer { name: FLAG.to_owned(), values: flags.iter().map(of).collect() }
}

/// Where the value of `key` comes from, in the words of `--print-config`.
fn origin(figment: &Figment, key: &str) -> String {
    match figment.find_metadata(key).map(|metadata| metadata.name.as_ref()) {
        Some(ENVIRONMENT) => format!("environment {}", variable_of(key)),
        Some(FLAG) => format!("flag {}", flag_of(key)),
        Some(name) => name.to_owned(),
        None => DEFAULT.to_owned(),
    }
}

fn settings(figment: &Figment, config: &Config) -> Vec<Setting> {
    let Ok(serde_json::Value::Object(values)) = serde_json::to_value(config) else { return Vec::new() };
    let setting = |(key, value): (String, serde_json::Value)| Setting { from: origin(figment, &key), key, value };
    values.into_iter().map(setting).collect()
}

fn fault(figment: &Figment, error: Error) -> ConfigFault {
    let key = error.path.join(".");
    let problem = match error.kind {
        Kind::Message(message) => message,
        kind => kind.to_string(),
    };
    value_fault(origin(figment, &key), key, problem.replace('\n', " "))
}

fn value_fault(from: String, key: String, problem: String) -> ConfigFault {
    match from.strip_prefix("flag ").or_else(|| from.strip_prefix("environment ")) {
        Some(name) => ConfigFault::Named { from: name.to_owned(), problem },
        None => {
            let from = from.strip_prefix("file ").unwrap_or(&from).to_owned();
            ConfigFault::Value { from, key, problem }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DurabilityWord, LogFormat};
    use super::*;
    use std::time::Duration;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    fn of_file(text: &str) -> Result<Loaded, String> {
        let file = file(text);
        let path = file.path().display().to_string();
        load(Some(file.path()), &Environment::default(), &[]).map_err(|f| f.to_string().replace(&path, "FILE"))
    }

    #[test]
    fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
        let file = file("log_level = \"warn\"\nlisten = \"127.0.0.1:1\"\nidle_timeout = \"5s\"\n");
        let environment = Environment::of(&[("SCROLLBACK_LOG_LEVEL", "debug"), ("SCROLLBACK_LISTEN", "127.0.0.1:2")]);
        let loaded = load(Some(file.path()), &environment, &[("listen", "127.0.0.1:3".into())]).unwrap();
        assert_eq!(loaded.config.listen.port(), 3);
        assert_eq!(loaded.config.log_level, "debug");
        assert_eq!(loaded.config.idle_timeout, Duration::from_secs(5));
        assert_eq!(loaded.config.max_nesting, 64);
        assert_eq!(loaded.source_of("listen"), "flag --listen");
        assert_eq!(loaded.source_of("log_level"), "environment SCROLLBACK_LOG_LEVEL");
        assert_eq!(loaded.source_of("idle_timeout"), format!("file {}", file.path().display()));
        assert_eq!(loaded.source_of("max_nesting"), "default");
    }

    #[test]
    fn every_kind_of_value_may_be_text() {
        let environment = Environment::of(&[
            ("SCROLLBACK_MAX_QUEUED_MESSAGES", "12"),
            ("SCROLLBACK_METRICS_PUBLIC", "true"),
            ("SCROLLBACK_ALLOWED_ORIGINS", "https://a, https://b"),
            ("SCROLLBACK_MAX_SESSIONS", "7"),
            ("SCROLLBACK_DURABILITY", "interval"),
            ("SCROLLBACK_LOG_FORMAT", "json"),
            ("SCROLLBACK_HOST_NAME", "1234"),
            ("SCROLLBACK_MAX_UNSENT", "2MiB"),
        ]);
        let config = load(None, &environment, &[]).unwrap().config;
        assert_eq!(config.max_queued_messages, 12);
        assert!(config.metrics_public);
        assert_eq!(config.allowed_origins, ["https://a", "https://b"]);
        assert_eq!(config.max_sessions, Some(7));
        assert_eq!(config.durability, DurabilityWord::Interval);
        assert_eq!(config.log_format, LogFormat::Json);
        assert_eq!(config.host_name, "1234");
        assert_eq!(config.max_unsent, 2 << 20);
    }

    #[test]
    fn sizes_are_numbers_of_bytes_or_have_a_unit() {
        let of = |text: &str| of_file(&format!("max_unsent = {text}")).map(|l| l.config.max_unsent);
        assert_eq!(of("4096").unwrap(), 4096);
        assert_eq!(of("\"4096\"").unwrap(), 4096);
        assert_eq!(of("\"8MiB\"").unwrap(), 8 << 20);
        assert_eq!(of("\"8 MB\"").unwrap(), 8_000_000);
        let wants = "FILE: max_unsent: wants a size above 0, such as \"8MiB\", or a number of bytes";
        for wrong in ["0", "-1", "\"much\"", "true", "1.5", "\"9223372036854775808\""] {
            assert_eq!(of(wrong).unwrap_err(), wants, "{wrong}");
        }
        assert_eq!(of_file("min_free = 0").unwrap().config.min_free, 0);
    }

    #[test]
    fn durations_need_a_unit() {
        let of = |text: &str| of_file(&format!("client_grace = {text}")).map(|l| l.config.client_grace);
        assert_eq!(of("\"1m 30s\"").unwrap(), Duration::from_secs(90));
        assert_eq!(of("\"250ms\"").unwrap(), Duration::from_millis(250));
        let wants =
            "FILE: client_grace: wants a duration of at most 100 years with its unit, such as \"30s\" or \"500ms\"";
        for wrong in ["30", "\"30\"", "\"soon\"", "[]", "\"101years\"", "\"500000000000years\""] {
            assert_eq!(of(wrong).unwrap_err(), wants, "{wrong}");
        }
    }

    #[test]
    fn a_message_names_the_file_and_the_key() {
        assert_eq!(of_file("idle_timeot = \"5s\"").unwrap_err(), "FILE: unknown key idle_timeot");
        assert_eq!(of_file("delta_window = \"2s\"").unwrap_err(), "FILE: delta_window: at most 1s");
        assert!(of_file("a = 1\nb = = 2").unwrap_err().starts_with("FILE: line 2: "));
        assert!(!of_file("a = 1\nb = = 2").unwrap_err().contains('\n'));
        assert_eq!(
            of_file("[agents.codex]\npreset = \"nobody\"").unwrap_err(),
            "FILE: agents.codex.preset: there is no preset nobody; there are claude, codex, gemini, opencode, qwen, vibe"
        );
        assert!(of_file("closed_chats = \"delete\"\ndisposed_sessions = \"delete\"").is_ok());
        assert!(
            of_file("durability = \"never\"").unwrap_err().starts_with("FILE: durability: unknown variant `never`")
        );
    }

    #[test]
    fn a_message_names_the_variable_or_the_flag() {
        let environment = Environment::of(&[("SCROLLBACK_LISTEN", "nowhere")]);
        let of_variable = load(None, &environment, &[]).unwrap_err().to_string();
        assert_eq!(of_variable, "SCROLLBACK_LISTEN: wants an address and a port, such as \"127.0.0.1:7878\"");
        let of_flag = load(None, &Environment::default(), &[("durability", "x".into())]).unwrap_err().to_string();
        assert!(of_flag.starts_with("--durability: unknown variant `x`"), "{of_flag}");
    }

    #[test]
    fn what_is_printed_reads_back_as_the_same_configuration() {
        let environment = Environment::of(&[("HOME", "/home/ada"), ("SCROLLBACK_RESUME_WORDS", "go\u{7f} on\n")]);
        let loaded = load(None, &environment, &[("token_file", "/t".into())]).unwrap();
        let text: String = loaded.settings.iter().map(|setting| setting.line() + "\n").collect();
        let again = load(Some(file(&text).path()), &Environment::default(), &[]).unwrap();
        assert_eq!(again.config, loaded.config);
    }
}
