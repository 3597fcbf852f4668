//! The fold of a session's channel: its state, when it was created, and what the host keeps for its agent.

use std::collections::BTreeMap;

use ahp::reducers::apply_action_to_session;
use ahp_types::state::SessionState;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::action::Action;
use super::fact::Fact;

/// The format of checkpoints made from this fold.
pub const CHECKPOINT_FORMAT: u32 = 1;

/// A session's state and what AHP has no field for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionFold {
    format: u32,
    pub state: SessionState,
    pub created_at: String,
    pub disposed: bool,
    /// What the agent asked to keep.
    pub memory: BTreeMap<String, Value>,
}

impl SessionFold {
    /// A session as it was created.
    pub fn new(state: SessionState, created_at: String) -> Self {
        Self { format: CHECKPOINT_FORMAT, state, created_at, disposed: false, memory: BTreeMap::new() }
    }

    /// A fold read back from a checkpoint, unless it is of another format.
    pub fn from_checkpoint(bytes: &[u8]) -> Option<Self> {
        let fold: Self = serde_json::from_slice(bytes).ok()?;
        (fold.format == CHECKPOINT_FORMAT).then_some(fold)
    }

    /// The fold as a checkpoint.
    pub fn to_checkpoint(&self) -> Vec<u8> {
        serde_json::to_value(self).map(|value| value.to_string().into_bytes()).unwrap_or_default()
    }

    /// Applies an action. One that does not fit changes nothing.
    ///
    /// The reducer leaves `movable` and `interactivity` out of `session/chatUpdated`; clients do too, so the host sends
    /// those as `session/chatAdded`.
    pub fn apply(&mut self, action: &Action) {
        apply_action_to_session(&mut self.state, &action.decoded);
    }

    /// Applies a fact of the host.
    pub fn apply_fact(&mut self, fact: &Fact) {
        match fact {
            Fact::SessionDisposed => self.disposed = true,
            Fact::SessionRestored => self.disposed = false,
            Fact::Remembered { key, value } => {
                self.memory.insert(key.clone(), value.clone());
            }
            _ => {}
        }
    }

    /// The value of one of our keys in the session's `_meta`.
    pub fn meta(&self, key: &str) -> Option<&Value> {
        self.state.meta.as_ref()?.get(key)
    }

    /// The chats whose queues are paused.
    pub fn paused_queues(&self) -> Vec<String> {
        let listed = self.meta(super::mirror::PAUSED_QUEUES).and_then(Value::as_array);
        listed.into_iter().flatten().filter_map(|chat| chat.as_str().map(str::to_owned)).collect()
    }
}
