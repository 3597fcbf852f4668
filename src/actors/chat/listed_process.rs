//! `_meta["scrollback.process"]` of a session: for each of its chats, what there is of its agent's process.
//!
//! A chat that is not listed has had none. What is listed is an event, so it comes back with the log: a host that was
//! killed lists what ran as ended when the session is read again.

use ahp_types::actions::{SessionMetaChangedAction, StateAction};
use serde_json::{Value, json};

use super::ChatActor;
use crate::actors::core::{Recording, SessionCore};
use crate::events::{Channel, ChannelId};
use crate::projections::action::Action;
use crate::projections::mirror::PROCESSES;

/// What there is of a chat's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    /// It was started and has not said anything.
    Starting,
    Alive,
    Ended,
    /// The chat is no longer of this session.
    Left,
}

impl Listed {
    fn word(self) -> Option<&'static str> {
        match self {
            Listed::Starting => Some("starting"),
            Listed::Alive => Some("alive"),
            Listed::Ended => Some("ended"),
            Listed::Left => None,
        }
    }
}

fn word<'a>(core: &'a SessionCore, chat: &str) -> Option<&'a str> {
    core.fold.state.meta.as_ref()?.get(PROCESSES)?.get(chat)?.as_str()
}

/// Lists what there is of the chat's process. One that never was does not end.
pub fn list_process(recording: &mut Recording<'_>, chat: &Channel, about: Option<ChannelId>, now: Listed) {
    let listed = word(recording.core, chat.as_str());
    if listed == now.word() || (listed.is_none() && now == Listed::Ended) {
        return;
    }
    let mut meta = recording.core.fold.state.meta.clone().unwrap_or_default();
    let processes = meta.entry(PROCESSES).or_insert_with(|| json!({}));
    if let Value::Object(processes) = processes {
        match now.word() {
            Some(word) => drop(processes.insert(chat.to_string(), word.into())),
            None => drop(processes.remove(chat.as_str())),
        }
    }
    let changed = StateAction::SessionMetaChanged(SessionMetaChangedAction { meta: Some(meta) });
    recording.session_action(Action::host(changed), about, false);
}

/// The chats whose processes are listed as running.
pub fn listed_as_running(core: &SessionCore) -> Vec<Channel> {
    let listed = core.fold.state.meta.as_ref().and_then(|meta| meta.get(PROCESSES)).and_then(Value::as_object);
    let running = listed.into_iter().flatten().filter(|(_, word)| word.as_str() != Listed::Ended.word());
    running.map(|(chat, _)| Channel::from(chat.as_str())).collect()
}

impl ChatActor {
    /// What there is of its own process; `None` for a worker's chat, whose words come from its parent's.
    pub(super) fn listed(&self) -> Option<Listed> {
        match (&self.process, &self.employer) {
            (_, Some(_)) => None,
            (Some(process), None) if process.has_spoken => Some(Listed::Alive),
            (Some(_), None) => Some(Listed::Starting),
            (None, None) => Some(Listed::Ended),
        }
    }
}
