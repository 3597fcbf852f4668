//! The fold of the root channel.

use ahp::reducers::apply_action_to_root;
use ahp_types::state::RootState;

use super::action::Action;
use super::fact::Fact;

/// The root's state.
#[derive(Debug, Clone)]
pub struct RootFold {
    pub state: RootState,
}

impl RootFold {
    /// The root as it was created.
    pub fn new(state: RootState) -> Self {
        Self { state }
    }

    /// Applies an action. One that does not fit changes nothing.
    pub fn apply(&mut self, action: &Action) {
        apply_action_to_root(&mut self.state, &action.decoded);
    }

    /// Applies a fact of the host: a root that is begun anew has the state that it says.
    pub fn apply_fact(&mut self, fact: &Fact) {
        if let Fact::RootCreated { state } = fact {
            self.state = state.as_ref().clone();
        }
    }

    /// The fold as a checkpoint.
    pub fn to_checkpoint(&self) -> Vec<u8> {
        serde_json::to_vec(&self.state).unwrap_or_default()
    }
}
