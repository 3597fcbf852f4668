//! A channel as a client sees it: its snapshot, and what came after it, folded by the official reducers.

use ahp::reducers::{apply_action_to_chat, apply_action_to_root, apply_action_to_session};
use ahp_types::actions::StateAction;
use ahp_types::state::{ChatState, RootState, SessionState};
use serde_json::Value;

use super::Broken;

/// The state of a channel, and the newest event that it holds.
#[derive(Debug, Clone)]
pub struct Mirror {
    pub seq: u64,
    pub state: State,
}

#[derive(Debug, Clone)]
pub enum State {
    Root(Box<RootState>),
    Session(Box<SessionState>),
    Chat(Box<ChatState>),
}

impl Mirror {
    /// Takes over an AHP snapshot.
    pub fn of(snapshot: &Value) -> Result<Self, Broken> {
        let resource = snapshot["resource"].as_str().unwrap_or_default();
        let json = snapshot["state"].clone();
        let state = if resource == "ahp-root://" {
            State::Root(Box::new(serde_json::from_value(json).map_err(Broken::new)?))
        } else if resource.starts_with("ahp-chat:") {
            State::Chat(Box::new(serde_json::from_value(json).map_err(Broken::new)?))
        } else {
            State::Session(Box::new(serde_json::from_value(json).map_err(Broken::new)?))
        };
        let seq = snapshot["fromSeq"].as_u64().ok_or_else(|| Broken::new("a snapshot without fromSeq"))?;
        Ok(Self { seq, state })
    }

    /// Folds the action of an envelope in, unless the state holds it already.
    pub fn apply(&mut self, seq: u64, action: &Value) -> Result<(), Broken> {
        if seq <= self.seq {
            return Ok(());
        }
        self.seq = seq;
        let action: StateAction =
            serde_json::from_value(action.clone()).map_err(|error| Broken::new(format!("{error}: {action}")))?;
        match &mut self.state {
            State::Root(state) => drop(apply_action_to_root(state, &action)),
            State::Session(state) => drop(apply_action_to_session(state, &action)),
            State::Chat(state) => drop(apply_action_to_chat(state, &action)),
        }
        Ok(())
    }

    /// The state as it can be compared: without what the official reducer of a chat does not fold.
    pub fn comparable(&self) -> Value {
        let mut value = match &self.state {
            State::Root(state) => serde_json::to_value(state),
            State::Session(state) => serde_json::to_value(state),
            State::Chat(state) => serde_json::to_value(state),
        }
        .unwrap_or_default();
        if let (State::Chat(_), Some(fields)) = (&self.state, value.as_object_mut()) {
            for field in ["title", "activity", "movable", "interactivity", "modifiedAt"] {
                fields.remove(field);
            }
        }
        value
    }
}
