//! An AHP action in both of its forms: the bytes that go on the wire and into the log, and what the reducers take.
//!
//! The crate reads an action of a known type that lacks a field as one of an unknown type; here the two are told apart
//! by the `type` in the JSON. Source: AHP actions; the crate's `StateAction`.

use std::borrow::Cow;

use ahp_types::actions::StateAction;
use bytes::Bytes;
use serde_json::Value;

/// An action, decoded once.
#[derive(Debug, Clone)]
pub struct Action {
    pub bytes: Bytes,
    pub decoded: StateAction,
}

/// Why JSON is no action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActionFault {
    #[error("the action has no type")]
    NoType,
    #[error("no action of type {0} is known")]
    Unknown(String),
    #[error("{action}: {problem}")]
    Malformed { action: String, problem: String },
}

impl Action {
    /// An action that the host made.
    pub fn host(decoded: StateAction) -> Self {
        let bytes = match &decoded {
            // Most of what is ever written.
            StateAction::ChatDelta(_) | StateAction::ChatReasoning(_) => serde_json::to_string(&decoded),
            // Through `Value`, because the crate writes one tool-call state with a doubled key otherwise.
            _ => serde_json::to_value(&decoded).map(|value| value.to_string()),
        };
        Self { bytes: Bytes::from(bytes.unwrap_or_default()), decoded }
    }

    /// An action as somebody sent it; its JSON is kept as it is, with fields that the crate does not know.
    ///
    /// # Errors
    /// [`ActionFault`], which names the type.
    pub fn from_json(value: Value) -> Result<Self, ActionFault> {
        let kind = value.get("type").and_then(Value::as_str).ok_or(ActionFault::NoType)?.to_owned();
        let bytes = Bytes::from(value.to_string());
        match StateAction::deserialize_value(value) {
            StateAction::Unknown(_) if KNOWN_TYPES.contains(&kind.as_str()) => {
                Err(ActionFault::Malformed { problem: "a field is missing or of the wrong type".into(), action: kind })
            }
            StateAction::Unknown(_) => Err(ActionFault::Unknown(kind)),
            decoded => Ok(Self { bytes, decoded }),
        }
    }

    /// An action as it was stored.
    ///
    /// # Errors
    /// The problem, in words.
    pub fn from_stored(bytes: Bytes) -> Result<Self, String> {
        let decoded: StateAction = serde_json::from_slice(&bytes).map_err(|e| e.to_string())?;
        match decoded {
            StateAction::Unknown(value) => Err(format!(
                "an action of type {} does not decode",
                value.get("type").and_then(Value::as_str).unwrap_or("(none)")
            )),
            decoded => Ok(Self { bytes, decoded }),
        }
    }
}

trait DeserializeValue {
    fn deserialize_value(value: Value) -> Self;
}

impl DeserializeValue for StateAction {
    fn deserialize_value(value: Value) -> Self {
        let kept = value.clone();
        serde_json::from_value(value).unwrap_or(StateAction::Unknown(kept))
    }
}

/// The `type` of stored action JSON, without decoding it whole; empty where it has none.
pub fn type_of(action: &[u8]) -> Cow<'_, str> {
    #[derive(serde::Deserialize)]
    struct Typed<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
    }
    serde_json::from_slice::<Typed<'_>>(action).map(|typed| typed.kind).unwrap_or_default()
}

/// The actions that a client may dispatch on a session's, a chat's or the root's channel. The crate does not say.
pub const CLIENT_TYPES: &[&str] = &[
    "root/configChanged",
    "session/titleChanged",
    "session/isReadChanged",
    "session/isArchivedChanged",
    "session/configChanged",
    "session/activeClientSet",
    "session/activeClientRemoved",
    "session/workingDirectorySet",
    "session/workingDirectoryRemoved",
    "session/workingDirectoryReplaced",
    "session/customizationToggled",
    "session/mcpServerStartRequested",
    "session/mcpServerStopRequested",
    "session/mcpServerBackgroundRequested",
    "session/defaultChatChanged",
    "chat/turnStarted",
    "chat/turnCancelled",
    "chat/turnResume",
    "chat/truncated",
    "chat/toolCallConfirmed",
    "chat/toolCallComplete",
    "chat/toolCallContentChanged",
    "chat/toolCallResultConfirmed",
    "chat/inputAnswerChanged",
    "chat/inputCompleted",
    "chat/pendingMessageSet",
    "chat/pendingMessageRemoved",
    "chat/queuedMessagesReordered",
    "chat/draftChanged",
    "chat/isReadChanged",
    "chat/isArchivedChanged",
    "chat/workingDirectorySet",
    "chat/workingDirectoryRemoved",
];

/// Every action type of AHP 1.0.0.
pub const KNOWN_TYPES: &[&str] = &[
    "annotations/entryRemoved",
    "annotations/entrySet",
    "annotations/removed",
    "annotations/set",
    "annotations/updated",
    "automation/createRequested",
    "automation/removed",
    "automation/set",
    "automation/updateRequested",
    "automationRun/cancelRequested",
    "automationRun/lifecycleChanged",
    "automationRun/primarySessionChanged",
    "automationRun/sessionRemoved",
    "automationRun/sessionSet",
    "canvas/stateChanged",
    "changeset/cleared",
    "changeset/contentChanged",
    "changeset/fileRemoved",
    "changeset/fileSet",
    "changeset/filesReviewChanged",
    "changeset/operationStatusChanged",
    "changeset/operationsChanged",
    "changeset/statusChanged",
    "chat/activityChanged",
    "chat/backgroundWorkRemoved",
    "chat/backgroundWorkSet",
    "chat/canvasesChanged",
    "chat/changesetsChanged",
    "chat/delta",
    "chat/draftChanged",
    "chat/error",
    "chat/inputAnswerChanged",
    "chat/inputCompleted",
    "chat/inputRequested",
    "chat/isArchivedChanged",
    "chat/isReadChanged",
    "chat/movableChanged",
    "chat/pendingMessageRemoved",
    "chat/pendingMessageSet",
    "chat/queuedMessagesReordered",
    "chat/reasoning",
    "chat/responsePart",
    "chat/toolCallAuthRequired",
    "chat/toolCallAuthResolved",
    "chat/toolCallComplete",
    "chat/toolCallConfirmed",
    "chat/toolCallContentChanged",
    "chat/toolCallDelta",
    "chat/toolCallReady",
    "chat/toolCallResultConfirmed",
    "chat/toolCallStart",
    "chat/truncated",
    "chat/turnCancelled",
    "chat/turnComplete",
    "chat/turnResume",
    "chat/turnStarted",
    "chat/turnsLoaded",
    "chat/usage",
    "chat/workingDirectoryRemoved",
    "chat/workingDirectorySet",
    "resourceWatch/changed",
    "root/activeSessionsChanged",
    "root/agentsChanged",
    "root/configChanged",
    "root/terminalsChanged",
    "session/activeClientRemoved",
    "session/activeClientSet",
    "session/activityChanged",
    "session/changesetsChanged",
    "session/chatAdded",
    "session/chatRemoved",
    "session/chatUpdated",
    "session/chatsReordered",
    "session/configChanged",
    "session/creationFailed",
    "session/customizationRemoved",
    "session/customizationToggled",
    "session/customizationUpdated",
    "session/customizationsChanged",
    "session/defaultChatChanged",
    "session/inputNeededRemoved",
    "session/inputNeededSet",
    "session/isArchivedChanged",
    "session/isReadChanged",
    "session/mcpServerBackgroundRequested",
    "session/mcpServerStartRequested",
    "session/mcpServerStateChanged",
    "session/mcpServerStopRequested",
    "session/metaChanged",
    "session/ready",
    "session/serverToolsChanged",
    "session/titleChanged",
    "session/workingDirectoryRemoved",
    "session/workingDirectoryReplaced",
    "session/workingDirectorySet",
    "terminal/claimed",
    "terminal/cleared",
    "terminal/commandDetectionAvailable",
    "terminal/commandExecuted",
    "terminal/commandFinished",
    "terminal/cwdChanged",
    "terminal/data",
    "terminal/exited",
    "terminal/input",
    "terminal/resized",
    "terminal/titleChanged",
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_known_type_that_lacks_a_field_is_malformed() {
        let fault = Action::from_json(json!({"type": "chat/turnStarted", "turnId": "t"})).unwrap_err();
        assert!(matches!(fault, ActionFault::Malformed { .. }), "{fault:?}");
    }

    #[test]
    fn a_type_of_a_newer_protocol_is_unknown() {
        let fault = Action::from_json(json!({"type": "chat/levitated"})).unwrap_err();
        assert_eq!(fault, ActionFault::Unknown("chat/levitated".into()));
    }

    #[test]
    fn fields_that_the_crate_does_not_know_are_kept() {
        let action = Action::from_json(json!({"type": "chat/isReadChanged", "isRead": true, "later": 1})).unwrap();
        assert!(std::str::from_utf8(&action.bytes).unwrap().contains("\"later\":1"));
    }

    #[test]
    fn every_client_type_is_known() {
        for name in CLIENT_TYPES {
            assert!(KNOWN_TYPES.contains(name), "{name}");
        }
    }
}
