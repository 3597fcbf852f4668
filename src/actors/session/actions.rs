//! A client's actions on a session's channel.
//!
//! Each is served, echoed to its sender alone where it changes nothing, or refused. Source: PROTOCOL.md of AHP 1.0.0,
//! `session/*` actions that a client may dispatch.

use ahp_types::actions::StateAction;
use ahp_types::state::{ChatInteractivity, ChatOrigin, SessionLifecycle, SessionStatus};

use super::{configuration, echo, reject};
use crate::actors::core::{By, ClientAction, SessionCore};
use crate::actors::rejection::{Code, Rejection};
use crate::projections::action::{Action, CLIENT_TYPES, type_of};

/// What becomes of an action.
enum Verdict {
    /// It is recorded as it is.
    Accept,
    /// It changes nothing.
    Nothing,
}

/// Decides on a client's action for the session's channel, and records it.
pub fn dispatch(core: &mut SessionCore, client: ClientAction, action: Action) {
    if core.lane.is_full() {
        return reject(
            &core.lane,
            client,
            Rejection::new(Code::Busy, "the session is waiting for the disk: try again"),
        );
    }
    match decide(core, &client, &action) {
        Ok(Verdict::Nothing) => echo(&core.lane, client),
        Err(rejection) => reject(&core.lane, client, rejection),
        Ok(Verdict::Accept) => {
            let principal = std::sync::Arc::clone(&client.caller.principal);
            let by = By { principal, at: core.shared.clock.now(), client: Some(client) };
            let mut recording = core.record(by);
            recording.session_action(action, None, true);
            recording.finish(None);
        }
    }
}

fn decide(core: &SessionCore, client: &ClientAction, action: &Action) -> Result<Verdict, Rejection> {
    let state = &core.fold.state;
    let flag = |flag: SessionStatus, wanted: bool| (state.status & flag.bits() != 0) == wanted;
    let unchanged = |same: bool| Ok(if same { Verdict::Nothing } else { Verdict::Accept });
    match &action.decoded {
        StateAction::SessionTitleChanged(change) => {
            title(&change.title)?;
            unchanged(state.title == change.title)
        }
        StateAction::SessionIsReadChanged(change) => unchanged(flag(SessionStatus::IsRead, change.is_read)),
        StateAction::SessionIsArchivedChanged(change) => unchanged(flag(SessionStatus::IsArchived, change.is_archived)),
        StateAction::SessionConfigChanged(change) => {
            let Some(config) = &state.config else {
                return Err(Rejection::new(Code::Malformed, "the session has no configuration"));
            };
            let replaces = change.replace.unwrap_or(false);
            let agent = core.shared.agent(&state.provider).map(|agent| &**agent);
            configuration::check_change(agent, config, &change.config, replaces)?;
            let same = change.config.iter().all(|(key, value)| config.values.get(key) == Some(value));
            unchanged(same && !(replaces && config.values.len() > change.config.len()))
        }
        StateAction::SessionActiveClientSet(set) => {
            own_client(&set.active_client.client_id, client)?;
            unchanged(state.active_clients.contains(&set.active_client))
        }
        StateAction::SessionActiveClientRemoved(removed) => {
            own_client(&removed.client_id, client)?;
            unchanged(!state.active_clients.iter().any(|c| c.client_id == removed.client_id))
        }
        StateAction::SessionDefaultChatChanged(change) => {
            let wanted = change.default_chat.as_deref();
            fit_for_default(core, wanted)?;
            unchanged(state.default_chat.as_deref() == wanted)
        }
        StateAction::SessionWorkingDirectorySet(_)
        | StateAction::SessionWorkingDirectoryRemoved(_)
        | StateAction::SessionWorkingDirectoryReplaced(_)
        | StateAction::SessionCustomizationToggled(_)
        | StateAction::SessionMcpServerStartRequested(_)
        | StateAction::SessionMcpServerStopRequested(_)
        | StateAction::SessionMcpServerBackgroundRequested(_) => Err(Rejection::unsupported(&type_of(&action.bytes))),
        _ => Err(not_for_this_channel(&action.bytes, "a session's channel")),
    }
}

/// The refusal of an action that no client may dispatch, or not here.
pub fn not_for_this_channel(action: &[u8], here: &str) -> Rejection {
    let name = type_of(action);
    if CLIENT_TYPES.contains(&name.as_ref()) {
        Rejection::new(Code::NotDispatchable, format!("{name} is not for {here}"))
    } else {
        Rejection::new(Code::NotDispatchable, format!("only the host says {name}"))
    }
}

/// A title that may be given: not blank.
///
/// # Errors
/// [`Code::Malformed`].
pub fn title(title: &str) -> Result<(), Rejection> {
    if title.trim().is_empty() {
        return Err(Rejection::new(Code::Malformed, "a title cannot be blank"));
    }
    if title.len() > 4_096 {
        return Err(Rejection::new(Code::LimitExceeded, "a title has at most 4096 bytes"));
    }
    Ok(())
}

fn own_client(named: &str, client: &ClientAction) -> Result<(), Rejection> {
    if named == &*client.caller.client_id {
        return Ok(());
    }
    Err(Rejection::new(Code::NotPermitted, "a client speaks for itself alone"))
}

fn fit_for_default(core: &SessionCore, wanted: Option<&str>) -> Result<(), Rejection> {
    let Some(wanted) = wanted else {
        return Err(Rejection::new(Code::Malformed, "a session has a default chat: name one"));
    };
    let Some(chat) = core.fold.state.chats.iter().find(|chat| chat.resource == wanted) else {
        return Err(Rejection::new(Code::Malformed, format!("{wanted} is not in the session's catalogue")));
    };
    let hidden = chat.interactivity.is_some_and(|how| how != ChatInteractivity::Full);
    if hidden || matches!(chat.origin, Some(ChatOrigin::Tool { .. })) {
        return Err(Rejection::new(Code::Malformed, "a worker or a hidden chat is no default"));
    }
    if core.fold.state.lifecycle != SessionLifecycle::Ready {
        return Err(Rejection::new(Code::NotReady, "the session is not ready"));
    }
    Ok(())
}
