//! The directories that a chat works in: all of its session's, or those that it names.
//!
//! Source: AHP `chat/workingDirectorySet`, `chat/workingDirectoryRemoved`.

use ahp_types::actions::{ChatWorkingDirectorySetAction, StateAction};

use super::{Entry, Verdict, View};
use crate::actors::rejection::{Code, Rejection};
use crate::actors::session::several;
use crate::projections::action::Action;

/// `chat/workingDirectorySet`. A chat that named none works in this one alone from then on: so the reducer has it.
pub fn set(view: &View<'_>, directory: &str, action: Action) -> Result<Verdict, Rejection> {
    several(view.core)?;
    if !of_session(view).any(|listed| listed == directory) {
        let text = format!("{directory} is not a directory of the session");
        return Err(Rejection::new(Code::BadDirectory, text));
    }
    let listed = view.chat().working_directories.iter().flatten().any(|listed| listed == directory);
    Ok(Verdict::unless(listed, action))
}

/// `chat/workingDirectoryRemoved`. A chat that named none names all others first.
pub fn removed(view: &View<'_>, directory: &str, action: Action) -> Result<Verdict, Rejection> {
    several(view.core)?;
    let own = view.chat().working_directories.as_ref();
    if let Some(own) = own {
        return Ok(Verdict::unless(!own.iter().any(|listed| listed == directory), action));
    }
    if !of_session(view).any(|listed| listed == directory) {
        return Ok(Verdict::Nothing(action.bytes));
    }
    let named = of_session(view).map(|listed| {
        let set = ChatWorkingDirectorySetAction { directory: listed.to_owned() };
        Entry::Host(StateAction::ChatWorkingDirectorySet(set))
    });
    Ok(Verdict::with(named.chain([Entry::Client(action)]).collect(), Vec::new()))
}

fn of_session<'a>(view: &'a View<'_>) -> impl Iterator<Item = &'a str> {
    view.core.fold.state.working_directories.iter().flatten().map(String::as_str)
}
