//! The configuration of an endpoint's sessions: the model, and how it answers.

use std::collections::HashMap;

use crate::actors::session::configuration;
use ahp_types::common::JsonObject;
use ahp_types::state::{SessionConfigPropertySchema, SessionConfigSchema};
use serde_json::{Value, json};

/// The property whose values the endpoint lists.
pub(super) const MODEL: &str = "model";
const TEMPERATURE: &str = "temperature";
const EFFORT: &str = "reasoningEffort";
/// The effort that the endpoint takes by itself: nothing is said of it.
const UNSAID: &str = "default";
const EFFORTS: [&str; 6] = [UNSAID, "none", "minimal", "low", "medium", "high"];
/// The highest temperature that endpoints know.
const HOTTEST: f64 = 2.0;

/// What the configuration of a session asks of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Settings {
    pub model: String,
    pub temperature: Option<f64>,
    pub effort: Option<String>,
}

impl Settings {
    /// Reads the values of a session; what is absent, or is of another kind, has its default.
    pub fn of(config: &JsonObject, model: &str) -> Self {
        let text = |key: &str| config.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        Self {
            model: text(MODEL).unwrap_or(model).to_owned(),
            temperature: config.get(TEMPERATURE).and_then(Value::as_f64).map(|value| value.clamp(0.0, HOTTEST)),
            effort: text(EFFORT).filter(|effort| *effort != UNSAID).map(str::to_owned),
        }
    }
}

/// All properties and their defaults. There is no temperature by default: the endpoint has its own.
pub(super) fn configuration(models: &[String], model: &str) -> (SessionConfigSchema, JsonObject) {
    let model_property = SessionConfigPropertySchema {
        r#enum: Some(models.iter().map(|id| json!(id)).collect()),
        enum_dynamic: Some(true),
        ..property("string", "Model", "The model that answers", Some(json!(model)))
    };
    let effort = SessionConfigPropertySchema {
        r#enum: Some(EFFORTS.iter().map(|effort| json!(effort)).collect()),
        ..property(
            "string",
            "Reasoning effort",
            "How much the model thinks before it answers; default says nothing of it, for models that know no effort",
            Some(json!(UNSAID)),
        )
    };
    let temperature = property(
        "number",
        "Temperature",
        "From 0 for the likeliest words to 2; the endpoint's own where it is not set",
        None,
    );
    let properties = [(MODEL, model_property), (EFFORT, effort), (TEMPERATURE, temperature)];
    let values = properties.iter().filter_map(|(key, property)| Some(((*key).to_owned(), property.default.clone()?)));
    let values = values.collect();
    let properties: HashMap<_, _> = properties.map(|(key, property)| (key.to_owned(), property)).into();
    (SessionConfigSchema { r#type: "object".to_owned(), properties, required: None }, values)
}

fn property(kind: &str, title: &str, description: &str, default: Option<Value>) -> SessionConfigPropertySchema {
    let property = configuration::property(kind, title, description, Value::Null);
    SessionConfigPropertySchema { default, session_mutable: Some(true), ..property }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(config: Value) -> Settings {
        let Value::Object(config) = config else { panic!("not an object") };
        Settings::of(&config, "m")
    }

    #[test]
    fn values_of_another_kind_have_the_default() {
        let (_, defaults) = configuration(&["m".to_owned()], "m");
        let plain = Settings::of(&defaults, "m");
        assert_eq!(plain, Settings { model: "m".into(), temperature: None, effort: None });
        assert_eq!(of(json!({ "model": 3, "temperature": "hot", "reasoningEffort": [] })), plain);
        let set = of(json!({ "model": "n", "temperature": 7, "reasoningEffort": "low" }));
        assert_eq!(set, Settings { model: "n".into(), temperature: Some(2.0), effort: Some("low".into()) });
    }
}
