//! The configuration of a session: its agent's own properties, and those that the host adds for every agent.

use ahp_types::common::JsonObject;
use ahp_types::state::{SessionConfigPropertySchema, SessionConfigSchema};
use serde_json::{Value, json};

use crate::actors::agent::Agent;

/// Whether the host takes up turns that ended at a limit when it lifts.
pub const RESUME_AT_RESET: &str = "resumeAtReset";
/// The chats where it does not all the same.
pub const RESUME_AT_RESET_OFF: &str = "resumeAtResetOff";

/// All properties of an agent's sessions, and their defaults.
pub fn of(agent: &dyn Agent) -> (SessionConfigSchema, JsonObject) {
    let (mut schema, mut values) = agent.configuration();
    for name in [RESUME_AT_RESET, RESUME_AT_RESET_OFF] {
        let Some(property) = own(name) else { continue };
        values.insert(name.to_owned(), property.default.clone().unwrap_or_default());
        schema.properties.insert(name.to_owned(), property);
    }
    (schema, values)
}

/// A property that the host adds. Sessions that were made before it was added have it too.
pub fn own(name: &str) -> Option<SessionConfigPropertySchema> {
    match name {
        RESUME_AT_RESET => Some(SessionConfigPropertySchema {
            session_mutable: Some(true),
            ..property(
                "boolean",
                "Resume when a limit lifts",
                "Whether a turn that ended at a limit of the plan or of an overloaded model is taken up when that lifts",
                json!(true),
            )
        }),
        RESUME_AT_RESET_OFF => Some(SessionConfigPropertySchema {
            items: serde_json::from_value(json!({ "type": "string", "title": "Chat" })).ok(),
            session_mutable: Some(true),
            ..property(
                "array",
                "Chats that do not resume",
                "Chats whose limited turns wait for a person all the same",
                json!([]),
            )
        }),
        _ => None,
    }
}

/// A property with this default, which is set when a session is created.
pub fn property(kind: &str, title: &str, description: &str, default: Value) -> SessionConfigPropertySchema {
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
