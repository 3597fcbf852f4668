//! The demo's models and its configuration: one property of each kind that a client has to show.
//!
//! Every property does what its description says; the defaults leave each step of the contract as it is written there.

use std::collections::HashMap;
use std::time::Duration;

use ahp_types::common::JsonObject;
use ahp_types::state::{SessionConfigPropertySchema, SessionConfigSchema, SessionModelInfo};
use serde_json::{Value, json};

use super::{PROVIDER, languages};
use crate::actors::session::configuration::property;

/// The property whose values are looked up.
pub(super) const LANGUAGE: &str = "language";
/// Tools that never ask, at most.
const MAX_UNASKED: i64 = 100;
/// The longest pause between two words.
const MAX_PACE: f64 = 10_000.0;

const MODELS: [(&str, &str); 2] = [("demo-1", "Demo 1"), ("demo-2", "Demo 2")];

/// What the configuration of a session asks of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settings {
    /// Whether tools ask before they run.
    asks: bool,
    /// Tools that do not, whatever the mode.
    unasked: Vec<String>,
    pub(super) model: String,
    /// Whether reasoning is said.
    pub(super) thinks: bool,
    /// What goes before the first answer of a chat; may be empty.
    pub(super) greeting: String,
    /// Whether texts are said in capitals.
    capitals: bool,
    /// The pause after a word of a text.
    pace: Duration,
}

impl Settings {
    /// Reads the values of a session; what is absent, or is of another kind, has its default.
    pub(super) fn of(config: &JsonObject) -> Self {
        let text = |key: &str| config.get(key).and_then(Value::as_str);
        let unasked = config.get("unasked").and_then(Value::as_array).into_iter().flatten();
        let hello = text(LANGUAGE).and_then(languages::hello);
        let greeting = text("greeting").filter(|greeting| !greeting.is_empty());
        let pace = config.get("pace").and_then(Value::as_f64).unwrap_or_default();
        Self {
            asks: text("mode") != Some("auto"),
            unasked: unasked.filter_map(|name| name.as_str().map(str::to_owned)).collect(),
            model: text("model").unwrap_or(MODELS[0].0).to_owned(),
            thinks: config.get("verbosity").and_then(Value::as_i64).is_none_or(|verbosity| verbosity > 0),
            greeting: hello.into_iter().chain(greeting).collect::<Vec<_>>().join(" "),
            capitals: config.get("capitals") == Some(&Value::Bool(true)),
            pace: Duration::from_secs_f64(pace.clamp(0.0, MAX_PACE) / 1_000.0),
        }
    }

    /// Whether this tool waits for a person.
    pub(super) fn asks_for(&self, tool: &str) -> bool {
        self.asks && !self.unasked.iter().any(|name| name == tool)
    }

    /// A text as it is said.
    pub(super) fn worded(&self, text: &str) -> String {
        if self.capitals { text.to_uppercase() } else { text.to_owned() }
    }

    /// Waits as long as there is between two words.
    pub(super) async fn pause(&self) {
        if !self.pace.is_zero() {
            tokio::time::sleep(self.pace).await;
        }
    }
}

/// The models, the default one first.
pub(super) fn models() -> Vec<SessionModelInfo> {
    MODELS.iter().map(|(id, name)| model(id, name)).collect()
}

/// All properties of a session's configuration.
pub(super) fn schema() -> SessionConfigSchema {
    let properties = HashMap::from([
        ("mode".to_owned(), mode()),
        ("model".to_owned(), model_choice()),
        ("verbosity".to_owned(), verbosity()),
        ("greeting".to_owned(), greeting()),
        (LANGUAGE.to_owned(), language()),
        ("capitals".to_owned(), capitals()),
        ("pace".to_owned(), pace()),
        ("unasked".to_owned(), unasked()),
        ("version".to_owned(), version()),
    ]);
    let required = Some(vec!["mode".to_owned()]);
    SessionConfigSchema { r#type: "object".to_owned(), properties, required }
}

/// The default of every property.
pub(super) fn defaults() -> JsonObject {
    schema().properties.into_iter().filter_map(|(key, property)| Some((key, property.default?))).collect()
}

fn mode() -> SessionConfigPropertySchema {
    SessionConfigPropertySchema {
        r#enum: Some(vec![json!("interactive"), json!("auto")]),
        enum_labels: Some(vec!["Interactive".to_owned(), "Automatic".to_owned()]),
        enum_descriptions: Some(vec![
            "Tools that ask wait for a person".to_owned(),
            "Tools that ask run without asking".to_owned(),
        ]),
        session_mutable: Some(true),
        ..property("string", "Permission mode", "Whether tools that ask wait for a person", json!("interactive"))
    }
}

fn model_choice() -> SessionConfigPropertySchema {
    SessionConfigPropertySchema {
        r#enum: Some(MODELS.iter().map(|(id, _)| json!(id)).collect()),
        enum_labels: Some(MODELS.iter().map(|(_, name)| (*name).to_owned()).collect()),
        session_mutable: Some(true),
        ..property("string", "Model", "The model that is named in what a turn used", json!(MODELS[0].0))
    }
}

fn verbosity() -> SessionConfigPropertySchema {
    SessionConfigPropertySchema {
        session_mutable: Some(true),
        ..property("integer", "Verbosity", "0 leaves reasoning out of the answers; 1 or more says it", json!(1))
    }
}

fn greeting() -> SessionConfigPropertySchema {
    property("string", "Greeting", "What goes before the first answer of a chat; empty for nothing", json!(""))
}

fn language() -> SessionConfigPropertySchema {
    SessionConfigPropertySchema {
        r#enum: Some(languages::SEEDS.iter().map(|tag| json!(tag)).collect()),
        enum_dynamic: Some(true),
        ..property(
            "string",
            "Language",
            "The language of the hello before the first answer of a chat; empty for none",
            json!(""),
        )
    }
}

fn capitals() -> SessionConfigPropertySchema {
    SessionConfigPropertySchema {
        session_mutable: Some(true),
        ..property("boolean", "Capitals", "Whether texts are said in capitals", json!(false))
    }
}

fn pace() -> SessionConfigPropertySchema {
    SessionConfigPropertySchema {
        session_mutable: Some(true),
        ..property("number", "Pace", "Milliseconds after each word of a text, at most 10000", json!(0))
    }
}

fn unasked() -> SessionConfigPropertySchema {
    let name = json!({ "type": "string", "title": "Tool", "description": "The name of a tool" });
    SessionConfigPropertySchema {
        items: serde_json::from_value(name).ok(),
        max_items: Some(MAX_UNASKED),
        session_mutable: Some(true),
        ..property("array", "Unasked tools", "Tools that run without asking, whatever the mode", json!([]))
    }
}

fn version() -> SessionConfigPropertySchema {
    let version = json!(env!("CARGO_PKG_VERSION"));
    SessionConfigPropertySchema {
        read_only: Some(true),
        ..property("string", "Version", "The version of the demo that the session began with", version)
    }
}

fn model(id: &str, name: &str) -> SessionModelInfo {
    SessionModelInfo {
        id: id.to_owned(),
        provider: PROVIDER.to_owned(),
        name: name.to_owned(),
        max_context_window: Some(200_000),
        max_output_tokens: None,
        max_prompt_tokens: None,
        supports_vision: Some(true),
        policy_state: None,
        config_schema: None,
        meta: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_schema_and_read_back_as_the_contract_has_it() {
        let settings = Settings::of(&defaults());
        assert_eq!(settings, Settings::of(&JsonObject::new()));
        assert!(settings.asks && settings.thinks && settings.greeting.is_empty());
        assert_eq!(settings.model, "demo-1");
        assert_eq!(defaults().len(), schema().properties.len());
    }

    #[test]
    fn every_property_has_a_title_and_a_description_and_those_of_the_beginning_stay_as_they_were_made() {
        for (key, property) in schema().properties {
            assert!(!property.title.is_empty() && property.description.is_some(), "{key}");
            let stays = ["greeting", LANGUAGE, "version"].contains(&key.as_str());
            assert_eq!(property.session_mutable == Some(true), !stays, "{key}");
        }
    }

    #[test]
    fn values_of_another_kind_have_the_default() {
        let config = json!({"mode": 3, "model": null, "verbosity": "0", "greeting": []});
        let Value::Object(config) = config else { panic!("not an object") };
        assert_eq!(Settings::of(&config), Settings::of(&defaults()));
    }
}
