//! `createSession`: one batch that makes the session, its first chat, and says that it is ready.
//!
//! An agent's process starts at the first message, so a session is ready at once. Source: AHP `createSession`.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use actix::{AsyncContext, Context};
use ahp_types::actions::{
    SessionActiveClientSetAction, SessionChatAddedAction, SessionDefaultChatChangedAction, SessionReadyAction,
    StateAction,
};
use ahp_types::state::{
    ChatOrigin, ChatState, SessionConfigState, SessionLifecycle, SessionState, SessionStatus, SessionSummary,
};
use serde_json::json;

use super::{SessionActor, configuration, refusal_of_lost};
use crate::actors::command::{self, Reply};
use crate::actors::connection::Caller;
use crate::actors::core::{ChatCell, SessionCore, Unsaved};
use crate::actors::host::CreateSession;
use crate::actors::registry::{first_chat_uri, session_by_id};
use crate::actors::root::RootMessage;
use crate::clock;
use crate::events::rows::ChannelKind;
use crate::events::{Channel, ChannelId};
use crate::projections::action::Action;
use crate::projections::chat::ChatFold;
use crate::projections::fact::Fact;
use crate::projections::mirror;
use crate::projections::session::SessionFold;

/// A new chat's state.
pub fn new_chat(uri: &Channel, at: clock::Millis, origin: ChatOrigin, directories: Option<Vec<String>>) -> ChatState {
    ChatState {
        resource: uri.to_string(),
        title: String::new(),
        status: SessionStatus::Idle.bits(),
        activity: None,
        modified_at: clock::rfc3339(at),
        changes: None,
        origin: Some(origin),
        movable: None,
        interactivity: None,
        working_directories: directories,
        changesets: None,
        background_work: None,
        canvases: None,
        turns: Vec::new(),
        turns_next_cursor: None,
        active_turn: None,
        steering_message: None,
        queued_messages: None,
        draft: None,
        meta: None,
    }
}

impl SessionActor {
    /// Records the new session. The checks that need no session were made before.
    pub(super) fn create(
        &mut self,
        caller: &Caller,
        command: CreateSession,
        uri: Channel,
        chat: ChannelId,
        reply: Reply,
        ctx: &mut Context<Self>,
    ) {
        let at = self.shared.clock.now();
        let state = self.new_state(&command);
        let created_at = clock::rfc3339(at);
        let fold = SessionFold::new(state.clone(), created_at.clone());
        let shared = Arc::clone(&self.shared);
        let mut core = SessionCore::new(self.id, uri.clone(), fold, Unsaved::default(), None, shared, ctx.address());

        let first = Channel::from(first_chat_uri(uri.as_str()));
        let mut chat_state = new_chat(&first, at, ChatOrigin::User, None);
        chat_state.movable = Some(false);
        let cell = Rc::new(RefCell::new(ChatCell::new(
            chat,
            first.clone(),
            ChatFold::new(chat_state.clone()),
            Unsaved::default(),
        )));
        let by_id = session_by_id(&self.shared, uri.as_str(), self.id);
        let session_id = self.id;

        let mut recording = core.record(self.by(caller));
        recording.create_channel(&uri, session_id, ChannelKind::Session);
        recording.create_channel(&first, chat, ChannelKind::Chat);
        by_id.into_iter().for_each(|row| recording.row(row));
        recording.session_fact(&Fact::SessionCreated { created_at, state: Box::new(state) });
        let fact =
            Fact::ChatCreated { session: uri.to_string(), state: Box::new(chat_state), fork: None, context: None };
        recording.chat_fact(&mut cell.borrow_mut(), &fact);
        for action in opening(&cell.borrow().fold.state, &first, command.active_client.clone()) {
            recording.session_action(Action::host(action), None, false);
        }
        recording.finish(None);
        core.chats.insert(first.to_string(), cell);
        let enters = !core.fold.state.active_clients.is_empty();
        self.announce(&core, first, command.progress_token, reply);
        let core = Rc::new(RefCell::new(core));
        if enters {
            self.shared.clients.lists(&caller.client_id, self.id, true);
            self.is_used_by(caller, &uri);
            self.expect_entered(&core, &caller.client_id, ctx);
        }
        self.core = Some(core);
    }

    fn new_state(&self, command: &CreateSession) -> SessionState {
        let provider = command.provider.clone().unwrap_or_default();
        let config = self.shared.agent(&provider).map(|agent| {
            let (schema, mut values) = configuration::of(agent.as_ref());
            values.extend(command.config.clone().unwrap_or_default());
            SessionConfigState { schema, values }
        });
        SessionState {
            provider,
            title: String::new(),
            status: SessionStatus::Idle.bits(),
            activity: None,
            origin: None,
            project: None,
            working_directories: command.working_directories.clone(),
            annotations: None,
            lifecycle: SessionLifecycle::Creating,
            creation_error: None,
            server_tools: None,
            active_clients: Vec::new(),
            chats: Vec::new(),
            default_chat: None,
            config,
            customizations: None,
            changesets: None,
            input_needed: None,
            meta: None,
        }
    }

    /// Answers, and tells the root's subscribers, once the session is durable.
    fn announce(&self, core: &SessionCore, first: Channel, progress: Option<String>, reply: Reply) {
        let shared = Arc::clone(&self.shared);
        let summary: Option<SessionSummary> = core.summary().cloned();
        let uri = core.channel.clone();
        let (session, registry) = (uri.clone(), Arc::clone(&self.shared));
        core.lane.release_on_disk(Box::new(move |_| {
            registry.registry.settle(uri.as_str());
            registry.registry.settle(first.as_str());
        }));
        core.lane.release(
            None,
            Box::new(move |place| {
                if let Err(lost) = place {
                    return reply(Err(refusal_of_lost(&lost)));
                }
                let root = Channel::root();
                let params = json!({ "channel": root.as_str(), "summary": summary });
                shared.hub.notify(&session, &crate::actors::envelope::notification("root/sessionAdded", &params));
                if let Some(token) = progress {
                    let params = json!({ "channel": root.as_str(), "progressToken": token, "progress": 1, "total": 1 });
                    shared.hub.notify(&session, &crate::actors::envelope::notification("root/progress", &params));
                }
                if let Some(root) = shared.root.get() {
                    root.do_send(RootMessage::SessionsChanged { by: 1 });
                }
                reply(Ok(command::null()));
            }),
        );
    }
}

/// What the session's channel says at its beginning.
fn opening(
    chat: &ChatState,
    first: &Channel,
    client: Option<ahp_types::state::SessionActiveClient>,
) -> Vec<StateAction> {
    let mut actions = vec![
        StateAction::SessionChatAdded(SessionChatAddedAction { summary: mirror::summary_of(chat) }),
        StateAction::SessionDefaultChatChanged(SessionDefaultChatChangedAction {
            default_chat: Some(first.to_string()),
        }),
    ];
    if let Some(active_client) = client {
        actions.push(StateAction::SessionActiveClientSet(SessionActiveClientSetAction { active_client }));
    }
    actions.push(StateAction::SessionReady(SessionReadyAction {}));
    actions
}
