//! Work that an agent has going past its turn.

use ahp_types::actions::{ChatBackgroundWorkSetAction, StateAction};
use ahp_types::state::BackgroundWork;

use super::ChatActor;
use super::decide::Entry;
use crate::clock;

impl ChatActor {
    /// The work as it is listed: it began now, where its agent does not say when.
    pub(super) fn background_work(&self, mut work: BackgroundWork) -> Entry {
        let started_at = match &mut work {
            BackgroundWork::Shell(work) => Some(&mut work.started_at),
            BackgroundWork::Subagent(work) => Some(&mut work.started_at),
            BackgroundWork::Unknown(_) => None,
        };
        if let Some(started_at) = started_at.filter(|at| at.is_empty()) {
            *started_at = clock::rfc3339(self.shared.clock.now());
        }
        Entry::Host(StateAction::ChatBackgroundWorkSet(ChatBackgroundWorkSetAction { work }))
    }
}
