//! How often a chat's turn was handed to an agent, and the resume that is owed to it: part of the chat's fold.
//!
//! Source: AHP `chat/turnResume`; the rest are facts of the host, which a restart must not forget.

use ahp_types::actions::StateAction;
use serde::{Deserialize, Serialize};

use super::fact::Fact;
use crate::clock::Millis;

/// The key of an error's `_meta` that says which limit the turn hit, and when it lifts.
pub const LIMIT: &str = "scrollback.limit";

/// The attempts at the running turn, or at the one that ended last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Attempts {
    /// How often it was taken up: resumed after an error, or handed to a new process after an interruption.
    pub taken_up: u32,
    /// How often it was handed to a new process after an interruption, since a person began or resumed it.
    pub interrupted: u32,
    /// Whether the running turn was resumed after an error.
    pub resumed: bool,
    /// How many turns in a row ended at a limit.
    pub limited: u32,
    /// The resume that is owed to it.
    pub owed: Option<Owed>,
    /// The next `chat/turnResume` is the host's own.
    by_host: bool,
}

/// A turn that the host takes up by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owed {
    pub turn_id: String,
    /// When.
    pub at: Millis,
}

impl Attempts {
    /// Applies an action that changed the chat.
    pub fn apply(&mut self, action: &StateAction) {
        match action {
            StateAction::ChatTurnStarted(_) => *self = Self { limited: self.limited, ..Self::default() },
            StateAction::ChatTruncated(_) => *self = Self::default(),
            StateAction::ChatTurnComplete(_) | StateAction::ChatTurnCancelled(_) => {
                (self.resumed, self.limited) = (false, 0);
            }
            StateAction::ChatError(end) => {
                self.resumed = false;
                let at_limit = end.part.error.meta.as_ref().is_some_and(|meta| meta.contains_key(LIMIT));
                self.limited = if at_limit { self.limited.saturating_add(1) } else { 0 };
            }
            StateAction::ChatTurnResume(_) => {
                self.taken_up = self.taken_up.saturating_add(1);
                self.resumed = true;
                self.owed = None;
                if !std::mem::take(&mut self.by_host) {
                    self.interrupted = 0;
                }
            }
            _ => {}
        }
    }

    /// Applies a fact of the host.
    pub fn apply_fact(&mut self, fact: &Fact) {
        match fact {
            Fact::Attempt { .. } => {
                self.taken_up = self.taken_up.saturating_add(1);
                self.interrupted = self.interrupted.saturating_add(1);
            }
            Fact::ResumeOwed { turn_id, at } => self.owed = Some(Owed { turn_id: turn_id.clone(), at: *at }),
            Fact::ResumeLapsed { .. } => self.owed = None,
            Fact::ResumeDue { .. } => self.by_host = true,
            _ => {}
        }
    }
}
