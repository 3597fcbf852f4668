//! A client's actions on a session's channel.
//!
//! Each is served, echoed to its sender alone where it changes nothing, or refused. Source: PROTOCOL.md of AHP 1.0.0,
//! `session/*` actions that a client may dispatch.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use ahp_types::actions::StateAction;
use ahp_types::state::{SessionLifecycle, SessionState, SessionStatus, ToolDefinition};

use super::beside::{InChat, act_once_durable, keep_until_durable, record_in};
use super::{SessionActor, directories, echo, reject, role, values};
use crate::actors::chat;
use crate::actors::core::{By, ChatCell, ClientAction, SessionCore};
use crate::actors::rejection::{Code, Rejection};
use crate::projections::action::{Action, CLIENT_TYPES, type_of};

/// What becomes of an action.
enum Verdict {
    /// It is recorded as it is.
    Accept,
    /// It changes nothing.
    Nothing,
}

impl SessionActor {
    /// Decides on a client's action for the session's channel, and records it with what follows in its chats.
    pub(super) fn act(&mut self, core: &Rc<RefCell<SessionCore>>, client: ClientAction, action: Action) {
        let verdict = {
            let core = core.borrow();
            match core.lane.is_full() {
                true => Err(Rejection::too_much("the session is waiting for the disk: try again")),
                false => decide(&core, &client, &action),
            }
        };
        match verdict {
            Ok(Verdict::Nothing) => return echo(&core.borrow().lane, client),
            Err(rejection) => return reject(&core.borrow().lane, client, rejection),
            Ok(Verdict::Accept) => {}
        }
        let principal = Arc::clone(&client.caller.principal);
        let by = By { principal, at: self.shared.clock.now(), client: Some(client) };
        self.record(core, by, action, true);
    }

    /// Records an action on the session's channel, with what follows in its chats. `by_client`: it is the client's own.
    pub(super) fn record(&mut self, core: &Rc<RefCell<SessionCore>>, by: By, action: Action, by_client: bool) {
        let changes = in_chats(&core.borrow(), &action);
        let mut awake = self.wake_for(core, changes);
        let mut core = core.borrow_mut();
        let listed = match &action.decoded {
            StateAction::SessionActiveClientSet(set) => Some((set.active_client.client_id.clone(), true)),
            StateAction::SessionActiveClientRemoved(removed) => Some((removed.client_id.clone(), false)),
            _ => None,
        };
        let mut recording = core.record(by);
        for ((cell, _), change) in &mut awake {
            record_in(&mut recording, &mut cell.borrow_mut(), std::mem::take(&mut change.before));
        }
        recording.session_action(action, None, by_client);
        for ((cell, _), change) in &mut awake {
            record_in(&mut recording, &mut cell.borrow_mut(), std::mem::take(&mut change.after));
        }
        recording.finish(None);
        for (awake, change) in awake {
            act_once_durable(&core, &awake, change.effects);
            keep_until_durable(&core, &awake);
        }
        if let Some((client_id, lists)) = listed {
            self.shared.clients.lists(&client_id, self.id, lists);
        }
    }
}

/// What an accepted action does to the session's chats.
fn in_chats(core: &SessionCore, action: &Action) -> Vec<InChat> {
    let state = &core.fold.state;
    match &action.decoded {
        StateAction::SessionDefaultChatChanged(change) => {
            change.default_chat.as_deref().map(|next| role::in_chats(state, next)).unwrap_or_default()
        }
        StateAction::SessionActiveClientRemoved(removed) => abandoned(core, &removed.client_id),
        other => directories::in_chats(state, other),
    }
}

/// The calls of its tools that a client leaves open.
fn abandoned(core: &SessionCore, client_id: &str) -> Vec<InChat> {
    let in_chat = |chat: &ChatCell| {
        let (after, effects) = chat::abandoned(&chat.fold.state, client_id).into_iter().unzip();
        InChat { chat: chat.channel.clone(), before: Vec::new(), after, effects }
    };
    let chats = core.chats.values().map(|cell| in_chat(&cell.borrow()));
    chats.filter(|change| !change.after.is_empty()).collect()
}

/// The tools that a client offers: each under a name of its own, which is none of the host's tools. Several clients may offer the
/// same: the one that is listed first is called.
fn check_tools(state: &SessionState, offered: &[ToolDefinition]) -> Result<(), Rejection> {
    let mut names = HashSet::new();
    let taken: HashSet<&str> = state.server_tools.iter().flatten().map(|tool| tool.name.as_str()).collect();
    for tool in offered {
        let name = tool.name.as_str();
        if name.is_empty() || !names.insert(name) {
            return Err(Rejection::new(Code::Malformed, format!("tools: {name:?} is empty, or there twice")));
        }
        if taken.contains(name) {
            return Err(Rejection::new(Code::Malformed, format!("tools: {name} is a tool of the host's own")));
        }
    }
    Ok(())
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
            values::check_change(agent, config, &change.config, replaces)?;
            let same = change.config.iter().all(|(key, value)| config.values.get(key) == Some(value));
            unchanged(same && !(replaces && config.values.len() > change.config.len()))
        }
        StateAction::SessionActiveClientSet(set) => {
            own_client(&set.active_client.client_id, client)?;
            check_tools(state, &set.active_client.tools)?;
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
        | StateAction::SessionWorkingDirectoryReplaced(_) => unchanged(!directories::decide(core, &action.decoded)?),
        StateAction::SessionCustomizationToggled(_)
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
        metrics::counter!("scrollback_limit_met_total", "limit" => "title").increment(1);
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
    if !role::is_peoples(chat) {
        return Err(Rejection::new(Code::Malformed, "a worker or a hidden chat is no default"));
    }
    if core.fold.state.lifecycle != SessionLifecycle::Ready {
        return Err(Rejection::new(Code::NotReady, "the session is not ready"));
    }
    Ok(())
}
