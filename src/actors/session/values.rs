//! The values of a session's configuration, held against the schema of its agent.
//!
//! Source: AHP session configuration; `session/configChanged`.

use std::collections::HashMap;

use ahp_types::common::JsonObject;
use ahp_types::state::{ConfigPropertySchema, SessionConfigPropertySchema, SessionConfigSchema, SessionConfigState};
use serde_json::Value;

use super::configuration;
use crate::actors::agent::Agent;
use crate::actors::rejection::{Code, Rejection};
use crate::projections::action::Action;

/// The values of a new session, with what the agent sets where nothing was chosen.
///
/// # Errors
/// What is wrong, in words: an unknown property, a value that does not fit, one that is only shown, one that is missing.
pub fn resolved(agent: &dyn Agent, chosen: Option<JsonObject>) -> Result<(SessionConfigSchema, JsonObject), String> {
    let (schema, mut values) = configuration::of(agent);
    for (key, value) in chosen.unwrap_or_default() {
        let property = schema.properties.get(&key).ok_or_else(|| format!("the agent has no property {key}"))?;
        if property.read_only == Some(true) && values.get(&key) != Some(&value) {
            return Err(format!("{key} is shown and cannot be set"));
        }
        check(agent, &key, property, &value)?;
        values.insert(key, value);
    }
    match missing(&schema, &values) {
        Some(key) => Err(format!("{key} is missing")),
        None => Ok((schema, values)),
    }
}

fn missing<'a>(schema: &'a SessionConfigSchema, values: &JsonObject) -> Option<&'a String> {
    schema.required.iter().flatten().find(|key| !values.contains_key(*key))
}

/// Only known properties that may change in a session, with values that their schema allows. Where the values are replaced,
/// those that may not change are among the new ones.
pub(super) fn check_change(
    agent: Option<&dyn Agent>,
    config: &SessionConfigState,
    changes: &JsonObject,
    replaces: bool,
) -> Result<(), Rejection> {
    let of = |key: &str| config.schema.properties.get(key).cloned().or_else(|| configuration::own(key));
    let fixed = |key: &String| of(key).is_none_or(|property| !may_change(&property));
    let dropped = config.values.keys().find(|key| replaces && !changes.contains_key(*key) && fixed(key));
    if let Some(key) = dropped {
        return Err(Rejection::new(Code::NotPermitted, format!("{key} is set when the session is created")));
    }
    for (key, value) in changes {
        let Some(property) = of(key) else {
            return Err(Rejection::new(Code::Malformed, format!("the session's configuration has no {key}")));
        };
        if !may_change(&property) && config.values.get(key) != Some(value) {
            return Err(Rejection::new(Code::NotPermitted, format!("{key} is set when the session is created")));
        }
        let fits = match agent {
            Some(agent) => check(agent, key, &property, value),
            None => check_value(key, &property, value),
        };
        fits.map_err(|problem| Rejection::new(Code::Malformed, problem))?;
    }
    match missing(&config.schema, changes).filter(|_| replaces) {
        Some(key) => Err(Rejection::new(Code::Malformed, format!("{key} is missing"))),
        None => Ok(()),
    }
}

/// A replacement keeps what is only shown, which nobody sends.
pub(super) fn keeping_shown(config: Option<&SessionConfigState>, action: Action) -> Action {
    let ahp_types::actions::StateAction::SessionConfigChanged(change) = &action.decoded else { return action };
    let Some(config) = config.filter(|_| change.replace == Some(true)) else { return action };
    let is_shown = |key: &&String| {
        let property = config.schema.properties.get(*key);
        property.is_some_and(|property| property.read_only == Some(true)) && !change.config.contains_key(*key)
    };
    let shown: Vec<&String> = config.values.keys().filter(is_shown).collect();
    if shown.is_empty() {
        return action;
    }
    let mut whole: Value = serde_json::from_slice(&action.bytes).unwrap_or_default();
    if let Some(values) = whole.get_mut("config").and_then(Value::as_object_mut) {
        values.extend(shown.into_iter().filter_map(|key| Some((key.clone(), config.values.get(key)?.clone()))));
    }
    Action::from_json(whole).unwrap_or(action)
}

fn may_change(property: &SessionConfigPropertySchema) -> bool {
    property.session_mutable == Some(true) && property.read_only != Some(true)
}

fn check(agent: &dyn Agent, key: &str, property: &SessionConfigPropertySchema, value: &Value) -> Result<(), String> {
    check_value(key, property, value)?;
    let is_dynamic = property.enum_dynamic == Some(true);
    if is_dynamic && property.default.as_ref() != Some(value) && !agent.takes_config_value(key, value) {
        return Err(format!("{key} has no value {value}"));
    }
    Ok(())
}

/// Whether `value` fits the schema of the property `key`.
fn check_value(key: &str, property: &SessionConfigPropertySchema, value: &Value) -> Result<(), String> {
    let is_dynamic = property.enum_dynamic == Some(true);
    let own = Rules {
        kind: &property.r#type,
        allowed: property.r#enum.as_deref().filter(|_| !is_dynamic),
        items: property.items.as_ref(),
        items_from: property.min_items,
        items_to: property.max_items,
        members: property.properties.as_ref().map(|all| all.iter().map(|(key, one)| (key.as_str(), one)).collect()),
        required: property.required.as_deref(),
        others: property.additional_properties.as_ref(),
    };
    own.check(key, value)
}

/// What a schema asks of a value, at the top or inside.
struct Rules<'a> {
    kind: &'a str,
    allowed: Option<&'a [Value]>,
    items: Option<&'a ConfigPropertySchema>,
    items_from: Option<i64>,
    items_to: Option<i64>,
    members: Option<HashMap<&'a str, &'a ConfigPropertySchema>>,
    required: Option<&'a [String]>,
    others: Option<&'a ConfigPropertySchema>,
}

impl<'a> Rules<'a> {
    fn of(schema: &'a ConfigPropertySchema) -> Self {
        let members = schema.properties.as_ref();
        Self {
            kind: &schema.r#type,
            allowed: schema.r#enum.as_deref(),
            items: schema.items.as_deref(),
            items_from: schema.min_items,
            items_to: schema.max_items,
            members: members.map(|all| all.iter().map(|(key, one)| (key.as_str(), &**one)).collect()),
            required: schema.required.as_deref(),
            others: schema.additional_properties.as_deref(),
        }
    }

    fn check(&self, key: &str, value: &Value) -> Result<(), String> {
        let fits = match self.kind {
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "number" => value.is_number(),
            "integer" => value.is_i64() || value.is_u64(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            _ => true,
        };
        if !fits {
            return Err(format!("{key} is of the type {}", self.kind));
        }
        if let Some(allowed) = self.allowed.filter(|allowed| !allowed.contains(value)) {
            let allowed: Vec<String> = allowed.iter().map(Value::to_string).collect();
            return Err(format!("{key} is one of {}", allowed.join(", ")));
        }
        match value {
            Value::Array(items) => self.check_items(key, items),
            Value::Object(members) => self.check_members(key, members),
            _ => Ok(()),
        }
    }

    fn check_items(&self, key: &str, items: &[Value]) -> Result<(), String> {
        let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
        if self.items_from.is_some_and(|from| count < from) || self.items_to.is_some_and(|to| count > to) {
            let bound = |bound: Option<i64>| bound.map_or("any".to_owned(), |bound| bound.to_string());
            return Err(format!("{key} has from {} to {} items", bound(self.items_from), bound(self.items_to)));
        }
        let Some(schema) = self.items.map(Rules::of) else { return Ok(()) };
        items.iter().enumerate().try_for_each(|(index, item)| schema.check(&format!("{key}[{index}]"), item))
    }

    fn check_members(&self, key: &str, members: &JsonObject) -> Result<(), String> {
        if let Some(lacks) = self.required.iter().copied().flatten().find(|name| !members.contains_key(*name)) {
            return Err(format!("{key}.{lacks} is missing"));
        }
        for (name, value) in members {
            let known = self.members.as_ref().and_then(|all| all.get(name.as_str()).copied());
            if let Some(schema) = known.or(self.others) {
                Rules::of(schema).check(&format!("{key}.{name}"), value)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fits(schema: Value, value: Value) -> Result<(), String> {
        let mut whole = json!({ "title": "T" });
        whole.as_object_mut().unwrap().extend(schema.as_object().unwrap().clone());
        check_value("p", &serde_json::from_value(whole).unwrap(), &value)
    }

    #[test]
    fn values_fit_their_schema_or_the_problem_is_named() {
        let array =
            json!({ "type": "array", "minItems": 1, "maxItems": 2, "items": { "type": "string", "title": "I" } });
        let object = json!({ "type": "object", "required": ["a"], "properties": { "a": { "type": "integer", "title": "A" } },
            "additionalProperties": { "type": "boolean", "title": "B" } });
        for (schema, good, bad) in [
            (json!({ "type": "string" }), json!("x"), json!(1)),
            (json!({ "type": "string", "enum": ["x"] }), json!("x"), json!("y")),
            (json!({ "type": "boolean" }), json!(true), json!("true")),
            (json!({ "type": "number" }), json!(1.5), json!("1.5")),
            (json!({ "type": "integer" }), json!(-1), json!(1.5)),
            (array.clone(), json!(["x"]), json!([])),
            (array.clone(), json!(["x", "y"]), json!(["x", "y", "z"])),
            (array, json!(["x"]), json!([1])),
            (object.clone(), json!({ "a": 1, "b": true }), json!({ "b": true })),
            (object.clone(), json!({ "a": 1 }), json!({ "a": "1" })),
            (object, json!({ "a": 1 }), json!({ "a": 1, "b": 2 })),
        ] {
            assert_eq!(fits(schema.clone(), good.clone()), Ok(()), "{schema} {good}");
            assert!(fits(schema.clone(), bad.clone()).is_err(), "{schema} {bad}");
        }
        let dynamic = json!({ "type": "string", "enum": ["x"], "enumDynamic": true });
        assert_eq!(fits(dynamic, json!("other")), Ok(()));
    }
}
