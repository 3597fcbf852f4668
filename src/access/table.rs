//! The one table of who may do what: for every command, every client's action and every route, the operation that it needs.
//!
//! What is not in here is refused to everybody but the deployment. A test holds it against the methods that are served, the
//! routes that there are, and the actions that the protocol lets a client dispatch.
//! Source: the list of features, who may do what.

use crate::events::rows::ChannelKind;
use crate::projections::people::Operation;
use Operation::{
    ChatAnswer, ChatCancel, ChatCreate, ChatDispose, ChatDraft, ChatFolders, ChatFork, ChatMark, ChatMove, ChatRename,
    ChatSend, ChatTool, ChatTruncate, ChatTurns, ChatVisual, ConfigChange, ConfigRead, FileRead, FileWrite, HostRead,
    LogAdmin, LogRead, SessionConfigure, SessionCreate, SessionDispose, SessionFolders, SessionList, SessionMark,
    SessionRename, UserChange, UserRead,
};

/// What a command or a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing but to be let in.
    Nothing,
    /// An operation of the host as a whole, or in the session that `channel` names.
    Operation(Operation),
    /// An operation in the session that `channel` names, which is not there yet.
    New(Operation),
    /// An operation in any session: what is answered is cut to where it is granted.
    Somewhere(Operation),
    /// To read the channel that is named: for who may not, it is not there.
    Reading,
    /// What its action needs.
    Action,
    /// The deployment's token: nobody can be granted it.
    Deployment,
}

use Needs::{Action, Deployment, New, Nothing, Reading, Somewhere};

const fn op(operation: Operation) -> Needs {
    Needs::Operation(operation)
}

/// Every method, in the order of the protocol.
pub const COMMANDS: &[(&str, Needs)] = &[
    ("ping", Nothing),
    ("initialize", Nothing),
    ("reconnect", Nothing),
    ("authenticate", Nothing),
    ("subscribe", Reading),
    ("unsubscribe", Nothing),
    ("dispatchAction", Action),
    ("listSessions", Somewhere(SessionList)),
    ("createSession", New(SessionCreate)),
    ("disposeSession", op(SessionDispose)),
    ("resolveSessionConfig", Somewhere(SessionCreate)),
    ("sessionConfigCompletions", Somewhere(SessionCreate)),
    ("createChat", op(ChatCreate)),
    ("disposeChat", op(ChatDispose)),
    ("moveChat", op(ChatMove)),
    ("fetchTurns", op(ChatTurns)),
    ("completions", op(ChatTurns)),
    ("resourceRead", op(FileRead)),
    ("resourceList", op(FileRead)),
    ("resourceResolve", op(FileRead)),
    ("resourceRequest", op(FileRead)),
    ("createResourceWatch", op(FileRead)),
    ("resourceWrite", op(FileWrite)),
    ("resourceCopy", op(FileWrite)),
    ("resourceMove", op(FileWrite)),
    ("resourceDelete", op(FileWrite)),
    ("resourceMkdir", op(FileWrite)),
    ("setClientManagedSettingsPermissions", Nothing),
    ("x-scrollback/stateAt", Reading),
    ("x-scrollback/sendNow", op(ChatSend)),
    ("x-scrollback/clear", op(ChatTruncate)),
    ("x-scrollback/compact", op(ChatSend)),
    ("x-scrollback/stopBackgroundWork", op(ChatCancel)),
    ("x-scrollback/forkAt", op(ChatFork)),
    ("x-scrollback/publishVisual", op(ChatVisual)),
    ("x-scrollback/removeVisual", op(ChatVisual)),
    ("x-scrollback/listVisuals", op(ChatTurns)),
];

/// Every action that a client may dispatch: on which kind of channel, its type, and what it needs. Actions that this version
/// refuses as `unsupported` are in here too.
pub const ACTIONS: &[(ChannelKind, &str, Operation)] = &[
    (ChannelKind::Root, "root/configChanged", ConfigChange),
    (ChannelKind::Session, "session/titleChanged", SessionRename),
    (ChannelKind::Session, "session/isReadChanged", SessionMark),
    (ChannelKind::Session, "session/isArchivedChanged", SessionMark),
    (ChannelKind::Session, "session/configChanged", SessionConfigure),
    (ChannelKind::Session, "session/defaultChatChanged", SessionConfigure),
    (ChannelKind::Session, "session/activeClientSet", ChatTool),
    (ChannelKind::Session, "session/activeClientRemoved", ChatTool),
    (ChannelKind::Session, "session/workingDirectorySet", SessionFolders),
    (ChannelKind::Session, "session/workingDirectoryRemoved", SessionFolders),
    (ChannelKind::Session, "session/workingDirectoryReplaced", SessionFolders),
    (ChannelKind::Session, "session/customizationToggled", SessionConfigure),
    (ChannelKind::Session, "session/mcpServerStartRequested", SessionConfigure),
    (ChannelKind::Session, "session/mcpServerStopRequested", SessionConfigure),
    (ChannelKind::Session, "session/mcpServerBackgroundRequested", SessionConfigure),
    (ChannelKind::Chat, "chat/turnStarted", ChatSend),
    (ChannelKind::Chat, "chat/turnResume", ChatSend),
    (ChannelKind::Chat, "chat/turnCancelled", ChatCancel),
    (ChannelKind::Chat, "chat/truncated", ChatTruncate),
    (ChannelKind::Chat, "chat/toolCallConfirmed", ChatAnswer),
    (ChannelKind::Chat, "chat/toolCallResultConfirmed", ChatAnswer),
    (ChannelKind::Chat, "chat/toolCallComplete", ChatTool),
    (ChannelKind::Chat, "chat/toolCallContentChanged", ChatTool),
    (ChannelKind::Chat, "chat/inputAnswerChanged", ChatAnswer),
    (ChannelKind::Chat, "chat/inputCompleted", ChatAnswer),
    (ChannelKind::Chat, "chat/pendingMessageSet", ChatSend),
    (ChannelKind::Chat, "chat/pendingMessageRemoved", ChatSend),
    (ChannelKind::Chat, "chat/queuedMessagesReordered", ChatSend),
    (ChannelKind::Chat, "chat/draftChanged", ChatDraft),
    (ChannelKind::Chat, "chat/isReadChanged", ChatMark),
    (ChannelKind::Chat, "chat/isArchivedChanged", ChatMark),
    (ChannelKind::Chat, "chat/workingDirectorySet", ChatFolders),
    (ChannelKind::Chat, "chat/workingDirectoryRemoved", ChatFolders),
    (ChannelKind::Chat, "session/titleChanged", ChatRename),
];

/// Every route behind the gate: the HTTP method, the path as it is registered, and what it needs.
pub const ROUTES: &[(&str, &str, Needs)] = &[
    ("GET", "/metrics", op(HostRead)),
    ("GET", "/api/host", op(HostRead)),
    ("GET", "/api/me", Nothing),
    ("GET", "/api/agents", op(HostRead)),
    ("GET", "/api/events", Reading),
    ("GET", "/api/state", Reading),
    ("GET", "/api/diff", Reading),
    ("GET", "/api/attachments", Reading),
    ("GET", "/api/log", Somewhere(LogRead)),
    ("GET", "/api/log/stats", op(LogRead)),
    ("GET", "/api/log/verify", op(LogRead)),
    ("GET", "/api/log/window", Somewhere(LogRead)),
    ("GET", "/api/log/{seq}", Somewhere(LogRead)),
    ("POST", "/api/log/compact", op(LogAdmin)),
    ("GET", "/api/log/export", op(LogAdmin)),
    ("POST", "/api/backup", Deployment),
    ("POST", "/api/log/erase", op(LogAdmin)),
    ("POST", "/api/log/restore", op(LogAdmin)),
    ("GET", "/api/extent", Reading),
    ("GET", "/api/around", Reading),
    ("GET", "/api/lineage", Reading),
    ("GET", "/api/sessions", Somewhere(SessionList)),
    ("GET", "/api/overview", op(HostRead)),
    ("GET", "/api/config", op(ConfigRead)),
    ("GET", "/api/users", op(UserRead)),
    ("POST", "/api/users", op(UserChange)),
    ("POST", "/api/users/{name}/grant", op(UserChange)),
    ("POST", "/api/users/{name}/revoke", op(UserChange)),
    ("POST", "/api/users/{name}/token", op(UserChange)),
    ("DELETE", "/api/users/{name}", op(UserChange)),
];

/// What a method needs; `None` where nothing is written down.
pub fn of_command(method: &str) -> Option<Needs> {
    COMMANDS.iter().find(|(name, _)| *name == method).map(|(_, needs)| *needs)
}

/// What an action of this type needs on a channel of this kind; `None` where nothing is written down.
pub fn of_action(kind: ChannelKind, action: &str) -> Option<Operation> {
    ACTIONS.iter().find(|(on, name, _)| *on == kind && *name == action).map(|(_, _, operation)| *operation)
}

/// What a route needs; `None` where nothing is written down.
pub fn of_route(method: &str, path: &str) -> Option<Needs> {
    ROUTES.iter().find(|(verb, pattern, _)| *verb == method && *pattern == path).map(|(_, _, needs)| *needs)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What clients may dispatch, by the protocol.
    const CLIENT_ACTIONS: &str = include_str!("../../tests/fixtures/client-actions.txt");
    /// Where routes are registered.
    const REGISTERED: &str = include_str!("../admin/mod.rs");
    /// Routes that are open to all.
    const OPEN: &[&str] = &["GET /healthz", "GET /readyz"];

    fn kind(word: &str) -> ChannelKind {
        match word {
            "root" => ChannelKind::Root,
            "session" => ChannelKind::Session,
            _ => ChannelKind::Chat,
        }
    }

    #[test]
    fn every_action_of_clients_has_written_down_what_it_needs_and_nothing_else_has() {
        let lines = CLIENT_ACTIONS.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let by_protocol: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(' ')).collect();
        for (channel, action) in &by_protocol {
            assert!(of_action(kind(channel), action).is_some(), "{channel} {action}");
        }
        assert_eq!(by_protocol.len(), ACTIONS.len());
    }

    #[test]
    fn every_route_has_written_down_what_it_needs_and_nothing_else_has() {
        let route = |rest: &str| {
            let (path, rest) = rest.split_once('"')?;
            let (_, rest) = rest.split_once("web::")?;
            Some(format!("{} {path}", rest.split_once('(')?.0.to_ascii_uppercase()))
        };
        let registered: BTreeSet<String> = REGISTERED.split(".route(\"").skip(1).filter_map(route).collect();
        let written = ROUTES.iter().map(|(method, path, _)| format!("{method} {path}"));
        let open = OPEN.iter().map(|open| (*open).to_owned());
        assert_eq!(registered, written.chain(open).collect::<BTreeSet<_>>());
    }

    #[test]
    fn nothing_is_written_down_twice() {
        let commands: BTreeSet<_> = COMMANDS.iter().map(|(name, _)| name).collect();
        assert_eq!(commands.len(), COMMANDS.len());
        let actions: BTreeSet<_> = ACTIONS.iter().map(|(on, name, _)| (format!("{on:?}"), name)).collect();
        assert_eq!(actions.len(), ACTIONS.len());
    }
}
