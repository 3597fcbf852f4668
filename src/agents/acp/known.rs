//! What is known of an agent: what its first answers say that it can do, its settings and its commands.
//!
//! Settings come in three forms, of which an agent has any: modes, models, and options with ids of their own, which repeat
//! modes and models where an agent has both. They become the properties of a session's configuration, and its models.

use std::collections::HashMap;

use agent_client_protocol::v1::schema::{
    AvailableCommand, AvailableCommandInput, InitializeResponse, SessionConfigKind, SessionConfigOption,
    SessionConfigOptionCategory, SessionConfigSelectOption, SessionConfigSelectOptions, SessionModeState,
};
use ahp_types::common::JsonObject;
use ahp_types::state::{SessionConfigPropertySchema, SessionConfigSchema, SessionModelInfo};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::actors::agent::AgentCommand;

/// The command that agents have for a smaller context.
pub(super) const COMPACT: &str = "compact";
/// The properties of what is no option with an id.
const MODE: &str = "mode";
const MODEL: &str = "model";
/// Properties of the host's own begin with it: see `actors::session::configuration`.
const OF_THE_HOST: &str = "resumeAtReset";

/// What is known of an agent, kept over restarts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Known {
    pub version: Option<String>,
    pub images: bool,
    /// Takes more directories than one.
    pub directories: bool,
    pub settings: Settings,
    pub commands: Vec<Command>,
}

/// A command of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Command {
    name: String,
    description: String,
    arguments: String,
}

/// What can be set in a session, with the values that hold in one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Settings(Vec<Setting>);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Setting {
    /// The name of the property.
    id: String,
    name: String,
    description: Option<String>,
    how: How,
    is_model: bool,
    /// None for one that is on or off.
    choices: Option<Vec<Choice>>,
    value: Value,
}

/// How it is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum How {
    Mode,
    Model,
    Option,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Choice {
    value: String,
    name: String,
    description: Option<String>,
    /// Of a model: how many tokens it holds.
    context: Option<i64>,
}

/// The models of an agent without options: no part of the schema any more, and still what some say.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Models {
    current_model_id: String,
    available_models: Vec<Model>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Model {
    model_id: String,
    name: Option<String>,
    description: Option<String>,
    #[serde(rename = "_meta")]
    meta: Option<Value>,
}

impl Known {
    /// Takes what `initialize` was answered with.
    pub(super) fn initialized(&mut self, response: &InitializeResponse) {
        let version = |name: &str, version: &str| format!("{name} {version}").trim().to_owned();
        self.version = response.agent_info.as_ref().map(|agent| version(&agent.name, &agent.version));
        self.images = response.agent_capabilities.prompt_capabilities.image;
        self.directories = response.agent_capabilities.session_capabilities.additional_directories.is_some();
    }

    pub(super) fn compacts(&self) -> bool {
        self.commands.iter().any(|command| command.name == COMPACT)
    }

    pub(super) fn commands(&self) -> Vec<AgentCommand> {
        let command = |Command { name, description, arguments }: Command| AgentCommand { name, description, arguments };
        self.commands.iter().cloned().map(command).collect()
    }
}

/// The commands as an agent says them.
pub(super) fn commands(said: Vec<AvailableCommand>) -> Vec<Command> {
    let arguments = |input: Option<AvailableCommandInput>| match input {
        Some(AvailableCommandInput::Unstructured(input)) => input.hint,
        _ => String::new(),
    };
    let command = |said: AvailableCommand| Command {
        name: said.name,
        description: said.description,
        arguments: arguments(said.input),
    };
    said.into_iter().map(command).collect()
}

impl Settings {
    /// What the answer to a new or an old session says. Parts of it that cannot be read are as if they were not there.
    pub(super) fn of(opened: &Value) -> Self {
        let options: Vec<Value> = part(opened, "configOptions");
        let options = options.into_iter().filter_map(|option| serde_json::from_value(option).ok());
        let mut settings: Vec<Setting> = options.filter_map(Setting::of_option).collect();
        let has = |settings: &[Setting], name: &str| settings.iter().any(|setting| setting.id == name);
        let has_models = has(&settings, MODEL) || settings.iter().any(|setting| setting.is_model);
        if let (false, Some(models)) = (has_models, part::<Option<Models>>(opened, "models")) {
            settings.push(Setting::of_models(models));
        }
        if let (false, Some(modes)) = (has(&settings, MODE), part::<Option<SessionModeState>>(opened, "modes")) {
            settings.push(Setting::of_modes(modes));
        }
        settings.retain(|setting| !setting.id.starts_with(OF_THE_HOST));
        Self(settings)
    }

    /// Those of another session, of whose values nothing is known in this one.
    pub(super) fn in_another(mut self) -> Self {
        self.0.iter_mut().for_each(|setting| setting.value = Value::Null);
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes options that the agent says anew; the others stay.
    pub(super) fn take_options(&mut self, options: Vec<SessionConfigOption>) {
        for setting in options.into_iter().filter_map(Setting::of_option) {
            match self.0.iter_mut().find(|known| known.id == setting.id) {
                Some(known) => *known = setting,
                None if setting.id.starts_with(OF_THE_HOST) => {}
                None => self.0.push(setting),
            }
        }
    }

    /// Takes a mode that the agent went to by itself.
    pub(super) fn take_mode(&mut self, mode: &str) {
        self.take(MODE, mode.into());
    }

    /// Notes the value that holds now.
    pub(super) fn take(&mut self, id: &str, value: Value) {
        if let Some(setting) = self.0.iter_mut().find(|setting| setting.id == id) {
            setting.value = value;
        }
    }

    /// The method and the parameters beside the session's that make `value` hold; `None` where it holds, or cannot.
    pub(super) fn request(&self, id: &str, value: &Value) -> Option<(&'static str, JsonObject)> {
        let setting = self.0.iter().find(|setting| setting.id == id)?;
        if setting.value == *value || !setting.takes(value) {
            return None;
        }
        let (method, params) = match setting.how {
            How::Mode => ("session/set_mode", json!({ "modeId": value })),
            How::Model => ("session/set_model", json!({ "modelId": value })),
            How::Option if value.is_boolean() => {
                ("session/set_config_option", json!({ "configId": id, "type": "boolean", "value": value }))
            }
            How::Option => ("session/set_config_option", json!({ "configId": id, "value": value })),
        };
        Some((method, params.as_object().cloned().unwrap_or_default()))
    }

    /// Whether it is a setting that cannot have this value.
    pub(super) fn lacks(&self, id: &str, value: &Value) -> bool {
        self.0.iter().any(|setting| setting.id == id && !setting.takes(value))
    }

    /// The property that says the model.
    pub(super) fn model(&self) -> Option<&str> {
        self.0.iter().find(|setting| setting.is_model).map(|setting| setting.id.as_str())
    }

    /// The schema of a session's configuration, and the defaults: what held in a session that nobody had set anything in.
    pub(super) fn schema(&self) -> (SessionConfigSchema, JsonObject) {
        let properties: HashMap<_, _> = self.0.iter().map(|setting| (setting.id.clone(), setting.schema())).collect();
        let defaults = self.0.iter().map(|setting| (setting.id.clone(), setting.value.clone())).collect();
        (SessionConfigSchema { r#type: "object".to_owned(), properties, required: None }, defaults)
    }

    /// The models, as `RootState.agents` lists them.
    pub(super) fn models(&self, provider: &str, images: bool) -> Vec<SessionModelInfo> {
        let setting = self.0.iter().find(|setting| setting.is_model);
        let choices = setting.and_then(|setting| setting.choices.as_deref()).unwrap_or_default();
        choices.iter().map(|choice| choice.as_model(provider, images)).collect()
    }
}

/// A part of an answer, or nothing where it cannot be read.
fn part<T: DeserializeOwned + Default>(answer: &Value, key: &str) -> T {
    answer.get(key).and_then(|part| T::deserialize(part).ok()).unwrap_or_default()
}

impl Setting {
    fn of_option(option: SessionConfigOption) -> Option<Self> {
        let (choices, value) = match option.kind {
            SessionConfigKind::Select(select) => (Some(choices(select.options)), json!(select.current_value)),
            SessionConfigKind::Boolean(boolean) => (None, json!(boolean.current_value)),
            _ => return None,
        };
        Some(Self {
            id: option.id.to_string(),
            name: option.name,
            description: option.description,
            how: How::Option,
            is_model: option.category == Some(SessionConfigOptionCategory::Model),
            choices,
            value,
        })
    }

    fn of_models(models: Models) -> Self {
        let choice = |model: Model| Choice {
            name: model.name.unwrap_or_else(|| model.model_id.clone()),
            value: model.model_id,
            description: model.description,
            context: model.meta.and_then(|meta| meta.get("contextLimit")?.as_i64()),
        };
        Self {
            id: MODEL.to_owned(),
            name: "Model".to_owned(),
            description: None,
            how: How::Model,
            is_model: true,
            choices: Some(models.available_models.into_iter().map(choice).collect()),
            value: models.current_model_id.into(),
        }
    }

    fn of_modes(modes: SessionModeState) -> Self {
        let modes_of = modes.available_modes.into_iter();
        let choices = modes_of.map(|mode| Choice {
            value: mode.id.to_string(),
            name: mode.name,
            description: mode.description,
            context: None,
        });
        Self {
            id: MODE.to_owned(),
            name: "Mode".to_owned(),
            description: None,
            how: How::Mode,
            is_model: false,
            choices: Some(choices.collect()),
            value: modes.current_mode_id.to_string().into(),
        }
    }

    fn takes(&self, value: &Value) -> bool {
        match &self.choices {
            None => value.is_boolean(),
            Some(choices) => value.as_str().is_some_and(|value| choices.iter().any(|choice| choice.value == value)),
        }
    }

    fn schema(&self) -> SessionConfigPropertySchema {
        let choices = self.choices.as_deref();
        let of = |text: fn(&Choice) -> String| choices.map(|choices| choices.iter().map(text).collect::<Vec<String>>());
        SessionConfigPropertySchema {
            r#type: if choices.is_some() { "string" } else { "boolean" }.to_owned(),
            title: self.name.clone(),
            description: self.description.clone(),
            default: Some(self.value.clone()),
            r#enum: choices.map(|choices| choices.iter().map(|choice| json!(choice.value)).collect()),
            enum_labels: of(|choice| choice.name.clone()),
            enum_descriptions: of(|choice| choice.description.clone().unwrap_or_default()),
            read_only: None,
            items: None,
            min_items: None,
            max_items: None,
            properties: None,
            required: None,
            additional_properties: None,
            enum_dynamic: None,
            session_mutable: Some(true),
        }
    }
}

impl Choice {
    fn as_model(&self, provider: &str, images: bool) -> SessionModelInfo {
        SessionModelInfo {
            id: self.value.clone(),
            provider: provider.to_owned(),
            name: self.name.clone(),
            max_context_window: self.context,
            max_output_tokens: None,
            max_prompt_tokens: None,
            supports_vision: images.then_some(true),
            policy_state: None,
            config_schema: None,
            meta: None,
        }
    }
}

fn choices(options: SessionConfigSelectOptions) -> Vec<Choice> {
    let choice = |option: SessionConfigSelectOption| Choice {
        value: option.value.to_string(),
        name: option.name,
        description: option.description,
        context: None,
    };
    match options {
        SessionConfigSelectOptions::Ungrouped(options) => options.into_iter().map(choice).collect(),
        SessionConfigSelectOptions::Grouped(groups) => {
            groups.into_iter().flat_map(|group| group.options).map(choice).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn qwen() -> Value {
        json!({ "sessionId": "s",
            "models": { "currentModelId": "a", "availableModels": [
                { "modelId": "a", "name": "A", "_meta": { "contextLimit": 1000 } }, { "modelId": "b", "description": null }] },
            "modes": { "currentModeId": "default", "availableModes": [
                { "id": "plan", "name": "Plan" }, { "id": "default", "name": "Default" }] } })
    }

    #[test]
    fn models_and_modes_become_properties_and_each_is_set_in_its_own_way() {
        let settings = Settings::of(&qwen());
        let (schema, defaults) = settings.schema();
        assert_eq!(Value::Object(defaults), json!({ "model": "a", "mode": "default" }));
        assert_eq!(schema.properties["mode"].r#enum, Some(vec![json!("plan"), json!("default")]));
        let models = settings.models("qwen", false);
        assert_eq!((models[0].max_context_window, models[1].name.as_str()), (Some(1000), "b"));
        let (method, params) = settings.request("mode", &json!("plan")).unwrap();
        assert_eq!((method, Value::Object(params)), ("session/set_mode", json!({ "modeId": "plan" })));
        assert_eq!(settings.request("model", &json!("b")).unwrap().0, "session/set_model");
    }

    #[test]
    fn what_holds_or_is_not_there_is_not_asked_for() {
        let mut settings = Settings::of(&qwen());
        for (id, value) in [("mode", json!("default")), ("mode", json!("nope")), ("mode", json!(3)), ("x", json!("y"))]
        {
            assert_eq!(settings.request(id, &value), None);
        }
        settings.take_mode("plan");
        assert!(settings.request("mode", &json!("default")).is_some());
    }

    #[test]
    fn options_stand_before_the_modes_and_models_that_they_repeat() {
        let mut answer = qwen();
        answer["configOptions"] = json!([
            { "id": "mode", "name": "Mode", "category": "mode", "type": "select", "currentValue": "x",
              "options": [{ "value": "x", "name": "X" }] },
            { "id": "llm", "name": "Model", "category": "model", "type": "select", "currentValue": "m",
              "options": [{ "group": "g", "name": "G", "options": [{ "value": "m", "name": "M" }] }] },
            { "id": "fast", "name": "Fast", "type": "boolean", "currentValue": false },
            { "id": "resumeAtReset", "name": "Taken", "type": "boolean", "currentValue": false },
            { "id": "odd", "name": "Odd", "type": "from the future" }]);
        let settings = Settings::of(&answer);
        let (_, defaults) = settings.schema();
        assert_eq!(Value::Object(defaults), json!({ "mode": "x", "llm": "m", "fast": false }));
        assert_eq!(settings.model(), Some("llm"));
        let (_, params) = settings.request("fast", &json!(true)).unwrap();
        assert_eq!(Value::Object(params), json!({ "configId": "fast", "type": "boolean", "value": true }));
    }

    #[test]
    fn answers_that_make_no_sense_are_answers_without_settings() {
        for odd in [json!(null), json!([]), json!({ "modes": 3, "models": [], "configOptions": {} })] {
            assert_eq!(Settings::of(&odd), Settings::default());
        }
    }
}
