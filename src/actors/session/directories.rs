//! The directories of a session: what its clients may change, and what follows for its chats.
//!
//! A chat works in all of them, or in those that it names itself; what goes from the session goes from its chats, in the
//! same batch. An agent hears of a change at its chat's next turn, for which its process is started anew. That the directories
//! are allowed ones was checked before. Source: AHP session, working directories; AHP `multipleWorkingDirectories`.

use ahp_types::actions::{
    ChatWorkingDirectoryRemovedAction, ChatWorkingDirectorySetAction, SessionWorkingDirectoryReplacedAction,
    StateAction,
};
use ahp_types::state::{ChatState, MultipleWorkingDirectoriesCapability, SessionState};

use super::beside::InChat;
use crate::actors::core::SessionCore;
use crate::actors::rejection::{Code, Rejection};
use crate::events::Channel;

/// What the session's agent can do with several directories.
///
/// # Errors
/// [`Code::Unsupported`] where it works in one.
pub fn several(core: &SessionCore) -> Result<MultipleWorkingDirectoriesCapability, Rejection> {
    let agent = core.shared.agent(&core.fold.state.provider);
    let can = agent.and_then(|agent| agent.info().capabilities).and_then(|can| can.multiple_working_directories);
    can.ok_or_else(|| Rejection::new(Code::Unsupported, "the session's agent works in one directory"))
}

/// Whether an action about the session's directories changes them.
///
/// # Errors
/// The [`Rejection`] that its sender hears.
pub fn decide(core: &SessionCore, action: &StateAction) -> Result<bool, Rejection> {
    let can = several(core)?;
    let listed: Vec<&String> = core.fold.state.working_directories.iter().flatten().collect();
    let place = |directory: &String| listed.iter().position(|listed| *listed == directory);
    let bad = |text: &str| Err(Rejection::new(Code::BadDirectory, text));
    let replaceable = can.primary_replacement == Some(true);
    match action {
        StateAction::SessionWorkingDirectorySet(set) => Ok(place(&set.directory).is_none()),
        StateAction::SessionWorkingDirectoryRemoved(removed) => match place(&removed.directory) {
            None => Ok(false),
            Some(_) if listed.len() == 1 => bad("a session works in one directory at least"),
            Some(0) if replaceable => bad("the first directory is not removed, but replaced"),
            Some(0) if can.immutable_primary == Some(true) => bad("the first directory stays"),
            Some(_) => Ok(true),
        },
        StateAction::SessionWorkingDirectoryReplaced(replaced) => match place(&replaced.directory) {
            None => Ok(false),
            Some(0) if !replaceable => bad("this session's agent stays in its first directory"),
            Some(_) => Ok(replaced.directory != replaced.replacement),
        },
        _ => Ok(false),
    }
}

/// What an accepted action about the session's directories does to its chats' own lists.
pub fn in_chats(state: &SessionState, action: &StateAction) -> Vec<InChat> {
    let (gone, replaced) = match action {
        StateAction::SessionWorkingDirectoryRemoved(removed) => (&removed.directory, None),
        StateAction::SessionWorkingDirectoryReplaced(replaced) => (&replaced.directory, Some(replaced)),
        _ => return Vec::new(),
    };
    let own = state.chats.iter().filter_map(|chat| Some((&chat.resource, chat.working_directories.as_ref()?)));
    own.filter(|(_, own)| own.contains(gone))
        .map(|(chat, own)| {
            let kept = match replaced {
                Some(replaced) => after_replacing(own, replaced),
                None => own.iter().filter(|directory| *directory != gone).cloned().collect(),
            };
            change(Channel::from(chat.as_str()), own, &kept)
        })
        .collect()
}

/// Those of `own` that the session has: a chat that was closed keeps its list, whatever went from the session since.
pub fn still(state: &SessionState, own: &[String]) -> Vec<String> {
    let listed: Vec<&String> = state.working_directories.iter().flatten().collect();
    own.iter().filter(|directory| listed.contains(directory)).cloned().collect()
}

/// What a chat's own list loses when it comes back into its session.
pub fn on_return(state: &SessionState, chat: &ChatState) -> Vec<StateAction> {
    let Some(own) = &chat.working_directories else { return Vec::new() };
    change(Channel::from(chat.resource.as_str()), own, &still(state, own)).before
}

/// The list as the reducer of `session/workingDirectoryReplaced` leaves it.
fn after_replacing(list: &[String], replaced: &SessionWorkingDirectoryReplacedAction) -> Vec<String> {
    let place = list.iter().position(|directory| *directory == replaced.directory);
    let is_before = |at: usize| list.iter().take(at).any(|directory| *directory == replaced.replacement);
    let stays = place.is_some_and(is_before);
    let kept = list.iter().filter(|directory| stays || **directory != replaced.replacement);
    kept.filter_map(|directory| match *directory == replaced.directory {
        true => (!stays).then(|| replaced.replacement.clone()),
        false => Some(directory.clone()),
    })
    .collect()
}

/// The steps from one list of a chat to another: a chat has no action that puts a directory elsewhere than behind the others.
fn change(chat: Channel, from: &[String], to: &[String]) -> InChat {
    let same = from.iter().zip(to).take_while(|(from, to)| from == to).count();
    let removed = |directory: &String| {
        StateAction::ChatWorkingDirectoryRemoved(ChatWorkingDirectoryRemovedAction { directory: directory.clone() })
    };
    let set = |directory: &String| {
        StateAction::ChatWorkingDirectorySet(ChatWorkingDirectorySetAction { directory: directory.clone() })
    };
    // One that only goes leaves the others where they are.
    let goes: Vec<&String> = from.iter().filter(|directory| !to.contains(directory)).collect();
    let stays: Vec<&String> = from.iter().filter(|directory| to.contains(directory)).collect();
    if stays.iter().copied().eq(to) {
        return InChat {
            chat,
            before: goes.into_iter().map(removed).collect(),
            after: Vec::new(),
            effects: Vec::new(),
        };
    }
    let before = from.iter().skip(same).map(removed).collect();
    InChat { chat, before, after: to.iter().skip(same).map(set).collect(), effects: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &str) -> Vec<String> {
        names.chars().map(|name| format!("file:///{name}")).collect()
    }

    fn replaced(from: &str, directory: &str, replacement: &str) -> Vec<String> {
        let first = |name: &str| list(name).remove(0);
        let action =
            SessionWorkingDirectoryReplacedAction { directory: first(directory), replacement: first(replacement) };
        after_replacing(&list(from), &action)
    }

    #[test]
    fn a_replacement_stands_once_at_the_earlier_of_its_places() {
        assert_eq!(replaced("abc", "b", "d"), list("adc"));
        assert_eq!(replaced("abc", "b", "c"), list("ac"));
        assert_eq!(replaced("abc", "c", "a"), list("ab"));
        assert_eq!(replaced("a", "a", "b"), list("b"));
    }

    #[test]
    fn the_steps_between_two_lists_lead_from_one_to_the_other() {
        for (from, to) in [("abc", "adc"), ("abc", "ac"), ("abc", "bc"), ("a", "b"), ("abc", "ab"), ("ab", "ab")] {
            let steps = change(Channel::from("ahp-chat:/c"), &list(from), &list(to));
            let mut state = crate::actors::session::new_chat(
                &Channel::from("ahp-chat:/c"),
                0,
                ahp_types::state::ChatOrigin::User,
                Some(list(from)),
            );
            for action in steps.before.iter().chain(&steps.after) {
                ahp::reducers::apply_action_to_chat(&mut state, action);
            }
            assert_eq!(state.working_directories, Some(list(to)), "{from} to {to}");
        }
    }
}
