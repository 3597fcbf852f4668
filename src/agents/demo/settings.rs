//! The demo's models and its configuration: one property of each kind that a client has to show.
//!
//! Every property does what its description says; the defaults leave each step of the contract as it is written there.

use std::collections::HashMap;

use ahp_types::common::JsonObject;
use ahp_types::state::{SessionConfigPropertySchema, SessionConfigSchema, SessionModelInfo};
use serde_json::{Value, json};

use super::PROVIDER;

const MODELS: [(&str, &str); 2] = [("demo-1", "Demo 1"), ("demo-2", "Demo 2")];

/// What the configuration of a session asks of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settings {
    /// Whether tools ask before they run.
    pub(super) asks: bool,
    pub(super) model: String,
    /// Whether reasoning is said.
    pub(super) thinks: bool,
    /// What goes before the first answer of a chat; may be empty.
    pub(super) greeting: String,
}

impl Settings {
    /// Reads the values of a session; what is absent, or is of another kind, has its default.
    pub(super) fn of(config: &JsonObject) -> Self {
        let text = |key: &str| config.get(key).and_then(Value::as_str);
        Self {
            asks: text("mode") != Some("auto"),
            model: text("model").unwrap_or(MODELS[0].0).to_owned(),
            thinks: config.get("verbosity").and_then(Value::as_i64).is_none_or(|verbosity| verbosity > 0),
            greeting: text("greeting").unwrap_or_default().to_owned(),
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
    ]);
    SessionConfigSchema { r#type: "object".to_owned(), properties, required: None }
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
        ..property("string", "Mode", "Whether tools that ask wait for a person", json!("interactive"))
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

fn property(kind: &str, title: &str, description: &str, default: Value) -> SessionConfigPropertySchema {
    SessionConfigPropertySchema {
        r#type: kind.to_owned(),
        title: title.to_owned(),
        description: Some(description.to_owned()),
        default: Some(default),
        r#enum: None,
        enum_labels: None,
        enum_descriptions: None,
        read_only: None,
        items: None,
        min_items: None,
        max_items: None,
        properties: None,
        required: None,
        additional_properties: None,
        enum_dynamic: None,
        session_mutable: None,
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
    fn every_property_has_a_title_and_a_description_and_only_the_greeting_stays_as_it_was_made() {
        for (key, property) in schema().properties {
            assert!(!property.title.is_empty() && property.description.is_some(), "{key}");
            assert_eq!(property.session_mutable == Some(true), key != "greeting", "{key}");
        }
    }

    #[test]
    fn values_of_another_kind_have_the_default() {
        let config = json!({"mode": 3, "model": null, "verbosity": "0", "greeting": []});
        let Value::Object(config) = config else { panic!("not an object") };
        assert_eq!(Settings::of(&config), Settings::of(&defaults()));
    }
}
