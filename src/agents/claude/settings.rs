//! The configuration of a session: its model and its permission mode.

use std::collections::HashMap;

use crate::actors::session::configuration;
use ahp_types::commands::SessionConfigValueItem;
use ahp_types::common::JsonObject;
use ahp_types::state::{SessionConfigPropertySchema, SessionConfigSchema, SessionModelInfo};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The property that names the model.
pub(super) const MODEL: &str = "model";
/// The property that names the permission mode.
pub(super) const MODE: &str = "mode";
/// The model that the CLI chooses by itself.
pub(super) const DEFAULT: &str = "default";
/// How many models are offered at once.
const OFFERED: usize = 50;

/// The permission modes, each with its name and what it does.
const MODES: [(&str, &str, &str); 4] = [
    (DEFAULT, "Ask", "Tools that change something ask first"),
    ("acceptEdits", "Accept edits", "Edits of files in the working directories run without asking"),
    ("plan", "Plan", "Nothing is changed: a plan is made, and asked about"),
    ("bypassPermissions", "Bypass permissions", "No tool asks; only for a machine that has nothing to lose"),
];
/// The argument that lets the last mode be chosen ends with this.
const BYPASS: &str = "dangerously-skip-permissions";

/// A model that the CLI offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Model {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) description: String,
}

/// What a session has chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) model: String,
    pub(super) mode: String,
}

impl Chosen {
    /// Reads the values of a session; what is absent, or is of another kind, has its default.
    pub(super) fn of(config: &JsonObject, model: &str) -> Self {
        let text = |key: &str| config.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let mode = text(MODE).unwrap_or(DEFAULT).to_owned();
        Self { model: text(MODEL).unwrap_or(model).to_owned(), mode }
    }
}

/// Whether the CLI is started in a way that lets no tool ask.
pub(super) fn may_bypass(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| argument.ends_with(BYPASS))
}

/// The properties and their defaults.
pub(super) fn schema(model: &str, models: &[Model], bypass: bool) -> (SessionConfigSchema, JsonObject) {
    let modes = MODES.iter().take(if bypass { MODES.len() } else { MODES.len() - 1 });
    let mut mode = property("Permission mode", "Which tools ask before they run", DEFAULT);
    mode.r#enum = Some(modes.clone().map(|(id, ..)| json!(id)).collect());
    mode.enum_labels = Some(modes.clone().map(|(_, name, _)| (*name).to_owned()).collect());
    mode.enum_descriptions = Some(modes.map(|(_, _, what)| (*what).to_owned()).collect());
    let mut choice = property("Model", "The model that answers", model);
    let known = with_own(model, models);
    choice.r#enum = Some(known.iter().map(|model| json!(model.id)).collect());
    choice.enum_labels = Some(known.iter().map(|model| model.name.clone()).collect());
    choice.enum_dynamic = Some(true);
    let defaults = JsonObject::from_iter([(MODE.to_owned(), json!(DEFAULT)), (MODEL.to_owned(), json!(model))]);
    let properties = HashMap::from([(MODE.to_owned(), mode), (MODEL.to_owned(), choice)]);
    (SessionConfigSchema { r#type: "object".to_owned(), properties, required: None }, defaults)
}

/// The models, with the configured one where the CLI does not list it.
fn with_own(own: &str, models: &[Model]) -> Vec<Model> {
    let listed = models.iter().any(|model| model.id == own);
    let own = Model { id: own.to_owned(), name: own.to_owned(), description: String::new() };
    (!listed).then_some(own).into_iter().chain(models.iter().cloned()).collect()
}

/// The models whose id or name fits.
pub(super) fn fitting(own: &str, models: &[Model], query: &str) -> Vec<SessionConfigValueItem> {
    let query = query.to_lowercase();
    let fits = |model: &Model| model.id.to_lowercase().contains(&query) || model.name.to_lowercase().contains(&query);
    let models = with_own(own, models).into_iter().filter(fits).take(OFFERED);
    let item = |model: Model| SessionConfigValueItem {
        value: model.id,
        label: model.name,
        description: Some(model.description).filter(|text| !text.is_empty()),
    };
    models.map(item).collect()
}

/// The models as an agent's description has them.
pub(super) fn listed(provider: &str, own: &str, models: &[Model]) -> Vec<SessionModelInfo> {
    let info = |model: Model| SessionModelInfo {
        id: model.id,
        provider: provider.to_owned(),
        name: model.name,
        max_context_window: None,
        max_output_tokens: None,
        max_prompt_tokens: None,
        supports_vision: Some(true),
        policy_state: None,
        config_schema: None,
        meta: None,
    };
    with_own(own, models).into_iter().map(info).collect()
}

fn property(title: &str, description: &str, default: &str) -> SessionConfigPropertySchema {
    let property = configuration::property("string", title, description, json!(default));
    SessionConfigPropertySchema { session_mutable: Some(true), ..property }
}
