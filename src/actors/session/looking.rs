//! What a chat is in, as whoever writes a message to it needs to know: nothing is changed.

use ahp_types::state::ChatInteractivity;

use super::answers::{no_such_chat, refusal_of_lost};
use crate::actors::command::Refusal;
use crate::actors::core::SessionCore;
use crate::events::Channel;

/// What a chat is in.
#[derive(Debug, Clone)]
pub struct ChatLook {
    pub provider: String,
    /// Its working directories as `file:` URIs.
    pub directories: Vec<String>,
    /// The session's other chats that show: each with its title.
    pub others: Vec<(String, String)>,
}

/// What happens with it. Hands over and returns.
pub type OnLook = Box<dyn FnOnce(Result<ChatLook, Refusal>) + Send>;

/// Looks at a chat of the session; what is said rests on what was decided before.
pub fn look(core: &SessionCore, chat: &Channel, then: OnLook) {
    let seen = seen(core, chat).ok_or_else(|| no_such_chat(chat));
    let say = move |place: Result<_, _>| then(place.map_err(|lost| refusal_of_lost(&lost)).and(seen));
    core.lane.release(None, Box::new(say));
}

fn seen(core: &SessionCore, chat: &Channel) -> Option<ChatLook> {
    let state = &core.fold.state;
    if core.fold.disposed {
        return None;
    }
    let own = state.chats.iter().find(|entry| entry.resource == chat.as_str())?;
    let directories = own.working_directories.as_ref().or(state.working_directories.as_ref());
    let others = state
        .chats
        .iter()
        .filter(|entry| entry.resource != chat.as_str() && entry.interactivity != Some(ChatInteractivity::Hidden));
    Some(ChatLook {
        provider: state.provider.clone(),
        directories: directories.cloned().unwrap_or_default(),
        others: others.map(|entry| (entry.resource.clone(), entry.title.clone())).collect(),
    })
}
