//! Opening and closing chats, and the end of the session.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use actix::{Actor, ActorFutureExt, AsyncContext, Context};
use ahp_types::actions::{
    SessionActiveClientRemovedAction, SessionChatAddedAction, SessionChatRemovedAction,
    SessionDefaultChatChangedAction, StateAction,
};
use ahp_types::state::{ChatOrigin, ChatState, SessionLifecycle};
use serde_json::json;

use super::attaching::of_first_message;
use super::beside::{Awake, act_once_durable, keep_until_durable, record_in};
use super::create::new_chat;
use super::loading::running;
use super::owed;
use super::role;
use super::sources::Beginning;
use super::{SessionActor, SessionMessage, answer, no_such_chat, refusal_of_lost, refuse};
use crate::actors::chat::{self, ChatActor, ChatMessage, Effect};
use crate::actors::command::{self, Refusal, RefusalKind, Reply};
use crate::actors::connection::{Caller, ConnectionId};
use crate::actors::core::{ChatCell, Ends, Recording, SessionCore, Unsaved};
use crate::actors::envelope;
use crate::actors::host::CreateChat;
use crate::actors::root::RootMessage;
use crate::actors::visuals;
use crate::clock::{self, Millis};
use crate::events::rows::ChannelKind;
use crate::events::{Channel, ChannelId};
use crate::projections::action::Action;
use crate::projections::chat::ChatFold;
use crate::projections::erasure::Erasure;
use crate::projections::fact::Fact;
use crate::projections::visual::Visual;
use crate::projections::{mirror, rebuild};

type Core = Rc<RefCell<SessionCore>>;

/// No connection has this number.
const NO_CONNECTION: ConnectionId = 0;

pub(super) fn invalid(code: &'static str, message: impl Into<String>) -> Refusal {
    Refusal::new(RefusalKind::InvalidParams, code, message)
}

impl SessionActor {
    /// `createChat`: a peer chat under the URI that the client chose.
    pub(super) fn create_chat(&mut self, core: &Core, caller: &Caller, command: CreateChat, reply: Reply) {
        let uri = Channel::from(command.chat.as_str());
        let own_default = core.borrow().fold.state.default_chat.as_deref() == Some(uri.as_str());
        if own_default && command.source.is_none() {
            return answer(&core.borrow(), Ok(command::null()), reply);
        }
        if let Err(refusal) = self.check_new_chat(&core.borrow(), &command) {
            return refuse(&core.borrow(), refusal, reply);
        }
        let shared = Arc::clone(&self.shared);
        let parse = |raw: &serde_json::value::RawValue| chat::parse_message(raw.get(), &shared.settings);
        let beginning = match &command.source {
            None => None,
            Some(source) => match self.beginning(core, uri.as_str(), source) {
                Ok(beginning) => Some(beginning),
                Err(refusal) => return refuse(&core.borrow(), refusal, reply),
            },
        };
        let message = match command.initial_message.as_deref().map(parse).transpose() {
            Ok(message) => message,
            Err(problem) => return refuse(&core.borrow(), of_first_message(&problem), reply),
        };
        let id = match self.shared.registry.reserve(uri.as_str(), ChannelKind::Chat, Some(self.id)) {
            Ok(Some(id)) => id,
            Ok(None) => {
                let text = format!("there is a channel {uri} already");
                let refusal = Refusal::new(RefusalKind::AlreadyExists, "already-exists", text);
                return refuse(&core.borrow(), refusal, reply);
            }
            Err(fault) => {
                return refuse(&core.borrow(), Refusal::log_unavailable(fault), reply);
            }
        };
        let by = self.by(caller);
        let (state, mut cell) = new_cell(id, &uri, by.at, command.working_directories, beginning.as_ref());
        let first = message.map(|message| chat::first_turn(&core.borrow(), &cell, message, &by.principal, by.at));
        let (turn_id, entries) = match first.transpose() {
            Ok(first) => first.unzip(),
            Err(problem) => {
                self.shared.registry.settle(uri.as_str());
                return refuse(&core.borrow(), of_first_message(&problem), reply);
            }
        };
        let (fork, context) = beginning.as_ref().map(|b| (b.fork.clone(), b.context.clone())).unwrap_or_default();
        let mut beginning = beginning;
        let visuals = beginning.as_mut().map(|b| std::mem::take(&mut b.visuals)).unwrap_or_default();
        let depends = beginning.as_ref().and_then(|b| {
            cell.borrow_turns(&b.source.borrow());
            rebuild::begins_with(b.fork.as_ref()?, id)
        });
        let awake = self.start_chat(core, cell, turn_id.clone());
        let mut core = core.borrow_mut();
        {
            let session = core.channel.to_string();
            let mut recording = core.record(by);
            let mut cell = awake.0.borrow_mut();
            recording.create_channel(&uri, id, ChannelKind::Chat);
            let summary = mirror::summary_of(&state);
            let (state, fork) = (Box::new(state), fork.map(Box::new));
            recording.chat_fact(&mut cell, &Fact::ChatCreated { session, state, fork, context });
            depends.into_iter().for_each(|row| recording.row(row));
            let added = StateAction::SessionChatAdded(SessionChatAddedAction { summary });
            recording.session_action(Action::host(added), None, false);
            visuals::publish(&mut recording, &mut cell, visuals);
            // The first turn begins in the same breath.
            for entry in chat::with_chats(entries.unwrap_or_default(), command.attached.as_deref()) {
                chat::apply(&mut recording, &mut cell, entry);
            }
            recording.mirror(&cell, true);
            drop(cell);
            recording.also(Rc::clone(&awake.0));
            recording.finish(None);
        }
        let shared = Arc::clone(&self.shared);
        core.lane.release_on_disk(Box::new(move |_| shared.registry.settle(uri.as_str())));
        if let Some(attached) = command.attached {
            attached.keep_once_durable(&core.lane);
        }
        act_once_durable(&core, &awake, turn_id.map(|turn_id| Effect::Prompt { turn_id }).into_iter().collect());
        answer(&core, Ok(command::null()), reply);
    }

    /// Starts the actor of a new chat, whose first turn has this id.
    fn start_chat(&mut self, core: &Core, cell: ChatCell, turn_id: Option<String>) -> Awake {
        let uri = cell.channel.clone();
        let cell = Rc::new(RefCell::new(cell));
        let (of, its) = (Rc::clone(core), Rc::clone(&cell));
        let actor = match turn_id {
            Some(turn_id) => ChatActor::with_turn(of, its, turn_id),
            None => ChatActor::new(of, its),
        };
        let addr = actor.start();
        cell.borrow_mut().actor = Some(addr.clone());
        core.borrow_mut().chats.insert(uri.to_string(), Rc::clone(&cell));
        self.chats.insert(uri, addr.clone());
        (cell, addr)
    }

    pub(super) fn check_new_chat(&self, core: &SessionCore, command: &CreateChat) -> Result<(), Refusal> {
        let state = &core.fold.state;
        if state.lifecycle != SessionLifecycle::Ready {
            return Err(Refusal::new(RefusalKind::InvalidRequest, "not-ready", "the session is not ready"));
        }
        let info = self.shared.agent(&state.provider).map(|agent| agent.info());
        let Some(can) = info.and_then(|info| info.capabilities).and_then(|can| can.multiple_chats) else {
            return Err(invalid("unsupported", "this session's agent holds one chat only"));
        };
        command.source.as_ref().map_or(Ok(()), |source| source.check_capability(&can))?;
        if state.chats.len() >= self.shared.settings.max_chats_in_session {
            metrics::counter!("scrollback_limit_met_total", "limit" => "chats").increment(1);
            let text = format!("a session holds at most {} chats", self.shared.settings.max_chats_in_session);
            return Err(Refusal::new(RefusalKind::Unavailable, "limit-exceeded", text));
        }
        check_chat_uri(&command.chat)?;
        self.check_free(&command.chat)?;
        let outside = command
            .working_directories
            .iter()
            .flatten()
            .find(|directory| !state.working_directories.iter().flatten().any(|allowed| allowed == *directory));
        match outside {
            Some(directory) => Err(invalid("bad-directory", format!("{directory} is not a directory of the session"))),
            None => Ok(()),
        }
    }

    /// A name that reaches a channel is taken, also one that is only a synonym.
    fn check_free(&self, uri: &str) -> Result<(), Refusal> {
        match self.shared.registry.resolve(uri) {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(Refusal::new(
                RefusalKind::AlreadyExists,
                "already-exists",
                format!("there is a chat {uri} already"),
            )),
            Err(fault) => Err(Refusal::log_unavailable(fault)),
        }
    }

    /// `disposeChat`: ends one chat. Its turn is cancelled first, and the default role moves on, in one batch.
    pub(super) fn dispose_chat(&mut self, core: &Core, caller: &Caller, uri: &Channel, reply: Reply) {
        let place = core.borrow().fold.state.chats.iter().position(|chat| chat.resource == uri.as_str());
        let Some(place) = place else { return refuse(&core.borrow(), no_such_chat(uri), reply) };
        if is_last(&core.borrow(), uri) {
            let refusal = invalid("last-chat", "the last chat of a session is not disposed: dispose the session");
            return refuse(&core.borrow(), refusal, reply);
        }
        let actor = self.chat(core, uri);
        let by = self.by(caller);
        let cell = core.borrow().chats.get(uri.as_str()).cloned();
        let successor = successor(&core.borrow(), uri, place);
        let changes = successor.as_deref().map(|next| role::in_chats(&core.borrow().fold.state, next));
        let changes = changes.into_iter().flatten().filter(|change| change.chat != *uri).collect();
        let mut heirs = self.wake_for(core, changes);
        {
            let mut core = core.borrow_mut();
            let mut recording = core.record(by);
            if let Some(cell) = &cell {
                end_what_runs(&mut recording, &mut cell.borrow_mut());
                // Its process goes with it: nobody speaks for its workers any more. They stay listed.
                recording.end_workers(&mut cell.borrow_mut(), Ends::All);
                recording.owes_nothing(&mut cell.borrow_mut());
                cell.borrow_mut().is_gone = true;
            }
            chat::list_paused(&mut recording, uri, None, false);
            chat::list_process(&mut recording, uri, None, chat::Listed::Left);
            let removed = StateAction::SessionChatRemoved(SessionChatRemovedAction { chat: uri.to_string() });
            recording.session_action(Action::host(removed), None, false);
            if let Some(next) = successor {
                let change = SessionDefaultChatChangedAction { default_chat: Some(next) };
                recording.session_action(Action::host(StateAction::SessionDefaultChatChanged(change)), None, false);
            }
            if self.shared.settings.erase_closed
                && let Some(cell) = &cell
            {
                let wanted = Erasure::wanted(uri.as_str(), cell.borrow().id, Some(self.id), &caller.principal);
                recording.row(wanted);
            }
            for ((cell, _), change) in &mut heirs {
                record_in(&mut recording, &mut cell.borrow_mut(), std::mem::take(&mut change.after));
            }
            recording.finish(None);
            heirs.iter().for_each(|(awake, _)| keep_until_durable(&core, awake));
            core.chats.remove(uri.as_str());
        }
        self.chats.remove(uri);
        if let Some(actor) = actor {
            actor.do_send(ChatMessage::Abandon);
        }
        let erases = self.shared.settings.erase_closed.then(|| (uri.clone(), Arc::clone(&caller.principal)));
        let canvases = cell.iter().flat_map(|cell| canvases(&cell.borrow()));
        let gone = std::iter::once(uri.clone()).chain(canvases).collect();
        self.answer_gone(&core.borrow(), gone, None, erases, reply);
    }

    /// `disposeSession`: off every list; what was said stays in the log.
    pub(super) fn dispose_session(&mut self, core: &Core, caller: &Caller, reply: Reply) {
        let by = self.by(caller);
        // What is owed to a chat that sleeps is not left behind either, nor a turn that nobody has taken up again yet.
        let awake = owed::of(&core.borrow()).into_iter().chain(running(&core.borrow()));
        for chat in awake.collect::<Vec<_>>() {
            self.chat(core, &chat);
        }
        let uris: Vec<Channel> =
            core.borrow().fold.state.chats.iter().map(|chat| Channel::from(chat.resource.as_str())).collect();
        let cells: Vec<_> = core.borrow().chats.values().cloned().collect();
        {
            let mut core = core.borrow_mut();
            let mut recording = core.record(by);
            for cell in &cells {
                end_what_runs(&mut recording, &mut cell.borrow_mut());
                recording.owes_nothing(&mut cell.borrow_mut());
                cell.borrow_mut().is_gone = true;
            }
            recording.session_fact(&Fact::SessionDisposed);
            if self.shared.settings.erase_disposed {
                let session = recording.core.channel.clone();
                recording.row(Erasure::wanted(session.as_str(), self.id, None, &caller.principal));
            }
            recording.finish(None);
            core.chats.clear();
        }
        for (_, chat) in self.chats.drain() {
            chat.do_send(ChatMessage::Abandon);
        }
        self.shared.tokens.forget(self.id);
        let session = core.borrow().channel.clone();
        let mut gone = uris;
        gone.extend(cells.iter().flat_map(|cell| canvases(&cell.borrow())));
        gone.push(session.clone());
        let erases = self.shared.settings.erase_disposed.then(|| (session.clone(), Arc::clone(&caller.principal)));
        self.answer_gone(&core.borrow(), gone, Some(session), erases, reply);
    }

    /// `erases`: what is to be erased now that it is gone, and who closed it.
    fn answer_gone(
        &self,
        core: &SessionCore,
        gone: Vec<Channel>,
        session: Option<Channel>,
        erases: Option<(Channel, Arc<str>)>,
        reply: Reply,
    ) {
        let shared = Arc::clone(&self.shared);
        let address = core.address.clone();
        core.lane.release(
            None,
            Box::new(move |place| {
                if let Err(lost) = place {
                    // Told when the session was read again: what was to go is listed then.
                    let refuse = move || reply(Err(refusal_of_lost(&lost)));
                    return address.do_send(SessionMessage::Tell(Box::new(refuse)));
                }
                for channel in &gone {
                    shared.hub.drop_channel(channel);
                }
                if let Some(session) = session {
                    let root = Channel::root();
                    let params = json!({ "channel": root.as_str(), "session": session.as_str() });
                    shared.hub.notify(&session, &envelope::notification("root/sessionRemoved", &params));
                    if let Some(root) = shared.root.get() {
                        root.do_send(RootMessage::SessionsChanged { by: -1 });
                    }
                }
                if let Some((uri, principal)) = erases
                    && let Some(root) = shared.root.get()
                {
                    root.do_send(RootMessage::Erase { principal, uri });
                }
                reply(Ok(command::null()));
            }),
        );
    }

    /// A client has left: after the grace time its entry goes too, unless it is back; at once where it said that it leaves.
    pub(super) fn client_left(
        &mut self,
        core: &Core,
        client_id: &Arc<str>,
        connection: ConnectionId,
        at_once: bool,
        ctx: &mut Context<Self>,
    ) {
        if !is_active(&core.borrow(), client_id) {
            return;
        }
        if at_once {
            return self.client_stayed_away(client_id, connection);
        }
        self.leaves += 1;
        let leave = self.leaves;
        self.leaving.insert(Arc::clone(client_id), leave);
        let (client_id, clock) = (Arc::clone(client_id), self.shared.clock.clone());
        let at = clock::later(clock.now(), self.shared.settings.client_grace);
        let waits = actix::fut::wrap_future::<_, Self>(async move { clock.wait_until(at).await });
        ctx.spawn(waits.map(move |(), actor, _| {
            if actor.leaving.get(&client_id) == Some(&leave) {
                actor.leaving.remove(&client_id);
                actor.client_stayed_away(&client_id, connection);
            }
        }));
    }

    /// The client's entry goes, and its calls end, unless it is here on another connection.
    fn client_stayed_away(&mut self, client_id: &Arc<str>, connection: ConnectionId) {
        let Some(core) = self.core.clone() else { return };
        let session = core.borrow().channel.clone();
        let is_here = self.shared.clients.is_elsewhere(client_id, &session, connection);
        if !is_here && is_active(&core.borrow(), client_id) {
            let removed = SessionActiveClientRemovedAction { client_id: client_id.to_string() };
            let removed = Action::host(StateAction::SessionActiveClientRemoved(removed));
            self.record(&core, self.by_host(), removed, false);
        }
    }

    /// A client uses the session: it has not left, unless its connection was gone before this came.
    pub(super) fn is_used_by(&mut self, caller: &Caller, session: &Channel) {
        self.shared.clients.sees(&caller.client_id, caller.connection.id, session);
        if self.shared.clients.is_elsewhere(&caller.client_id, session, NO_CONNECTION) {
            self.leaving.remove(&caller.client_id);
        }
    }

    /// A client whose connection was gone before it was listed has the grace time to be here: nobody says again that it left.
    pub(super) fn expect_entered(&mut self, core: &Core, client_id: &Arc<str>, ctx: &mut Context<Self>) {
        let session = core.borrow().channel.clone();
        if !self.shared.clients.is_elsewhere(client_id, &session, NO_CONNECTION) {
            self.client_left(core, client_id, NO_CONNECTION, false, ctx);
        }
    }

    /// Nobody says that a client left which was here when the host stopped, or while the session could not be read: each has
    /// the grace time to be here.
    pub(super) fn expect_clients(&mut self, core: &Core, ctx: &mut Context<Self>) {
        let clients =
            core.borrow().fold.state.active_clients.iter().map(|client| client.client_id.as_str().into()).collect();
        let clients: Vec<Arc<str>> = clients;
        for client_id in clients {
            self.shared.clients.lists(&client_id, self.id, true);
            self.client_left(core, &client_id, NO_CONNECTION, false, ctx);
        }
    }
}

fn is_active(core: &SessionCore, client_id: &str) -> bool {
    core.fold.state.active_clients.iter().any(|client| client.client_id == client_id)
}

/// A new chat's state and its cell: a fork has the turns and the directories of its source.
fn new_cell(
    id: ChannelId,
    uri: &Channel,
    at: Millis,
    directories: Option<Vec<String>>,
    beginning: Option<&Beginning>,
) -> (ChatState, ChatCell) {
    let Some(beginning) = beginning else {
        let mut state = new_chat(uri, at, ChatOrigin::User, directories);
        state.movable = Some(true);
        return (state.clone(), ChatCell::new(id, uri.clone(), ChatFold::new(state), Unsaved::default()));
    };
    let directories = if beginning.fork.is_some() { beginning.directories.clone() } else { directories };
    let mut state = new_chat(uri, at, beginning.origin.clone(), directories);
    state.movable = Some(true);
    state.title.clone_from(&beginning.title);
    let fold = ChatFold::created(state.clone(), beginning.fork.clone(), beginning.context.clone());
    (state, ChatCell::new(id, uri.clone(), fold, Unsaved::default()))
}

/// Nobody may create a chat under a name that stands for another, or for a worker.
fn check_chat_uri(uri: &str) -> Result<(), Refusal> {
    let taken = ["ahp-chat://default/", "ahp-chat://subagent/"].iter().any(|prefix| uri.starts_with(prefix));
    if !uri.starts_with("ahp-chat:/") || uri.len() > 2_048 || uri.chars().any(char::is_control) {
        return Err(invalid("malformed", "chat: a chat's URI begins with ahp-chat:/ and has at most 2048 characters"));
    }
    if taken {
        return Err(invalid("malformed", format!("chat: {uri} is a name that the host gives")));
    }
    Ok(())
}

/// Who is the default chat when the one at `place` goes, if it is the default: the next in order, else the one before.
fn successor(core: &SessionCore, uri: &Channel, place: usize) -> Option<String> {
    let state = &core.fold.state;
    if state.default_chat.as_deref() != Some(uri.as_str()) {
        return None;
    }
    let fit = |chat: &&ahp_types::state::ChatSummary| role::is_peoples(chat);
    let after = state.chats.iter().skip(place + 1).find(fit);
    after.or_else(|| state.chats.iter().take(place).rev().find(fit)).map(|chat| chat.resource.clone())
}

/// Whether a session without this chat would have none that people write in.
fn is_last(core: &SessionCore, uri: &Channel) -> bool {
    let state = &core.fold.state;
    let is_worker = |chat: &&ahp_types::state::ChatSummary| matches!(chat.origin, Some(ChatOrigin::Tool { .. }));
    let others = state.chats.iter().filter(|chat| chat.resource != uri.as_str());
    !state.chats.iter().any(|chat| chat.resource == uri.as_str() && is_worker(&chat))
        && others.filter(|chat| !is_worker(chat)).count() == 0
}

/// The canvases of a chat, which go with it.
fn canvases(cell: &ChatCell) -> Vec<Channel> {
    cell.fold.visuals.iter().map(Visual::canvas).collect()
}

/// Ends what runs in a chat that goes, so that it is at rest when it comes back.
fn end_what_runs(recording: &mut Recording<'_>, cell: &mut ChatCell) {
    recording.flush_text(cell);
    let entries = chat::with_the_chat(recording.core, cell, recording.at());
    if !entries.is_empty() {
        entries.into_iter().for_each(|entry| chat::apply(recording, cell, entry));
        recording.mirror(cell, true);
    }
}
