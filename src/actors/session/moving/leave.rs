//! A chat leaves its session, with its workers.

use std::collections::VecDeque;

use actix::{AsyncContext, Context};
use ahp_types::actions::{ChatMovableChangedAction, SessionChatRemovedAction, StateAction};
use ahp_types::state::{ChatOrigin, ChatSummary, SessionState};
use serde_json::{Value, json};

use super::{Core, SessionActor, invalid};
use crate::actors::chat::{self, ChatMessage};
use crate::actors::command::{self, Refusal, RefusalKind, Reply};
use crate::actors::core::{By, SessionCore};
use crate::actors::host::check_count;
use crate::actors::moves::{Accepted, Arrival, Back, Gate, MoveChat, MoveTo, MovedChat, Ticket};
use crate::actors::root::RootMessage;
use crate::actors::session::beside::Awake;
use crate::actors::session::{Boot, SessionMessage, no_such_chat, refusal_of_lost, refuse, role};
use crate::events::rows::ChannelKind;
use crate::events::{Channel, ChannelId};
use crate::projections::action::Action;
use crate::projections::fact::Fact;
use crate::projections::{catalogue, mirror};

/// A move that this session's chats are in.
pub struct Leaving {
    ticket: Ticket,
    by: By,
    /// As the destination was told of them.
    chats: Vec<MovedChat>,
    destination: Destination,
    /// Until it is answered, or its answer waits for the batch.
    reply: Option<Reply>,
    /// Once the batch is queued.
    gate: Option<Gate>,
}

#[derive(Clone)]
struct Destination {
    session: Channel,
    id: ChannelId,
    is_new: bool,
}

impl SessionActor {
    /// `moveChat`.
    pub(in crate::actors::session) fn move_chat(&mut self, core: &Core, command: MoveChat, ctx: &mut Context<Self>) {
        let MoveChat { caller, chat, to, ticket, reply } = command;
        if let Err(refusal) = may_move(&core.borrow().fold.state, &chat, &to) {
            return refuse(&core.borrow(), refusal, reply);
        }
        let goes_away = !matches!(&to, MoveTo::Session { id, .. } if *id == self.id);
        if goes_away && self.is_attaching() {
            let text = "the attachments of a message are being worked on: try again";
            return refuse(&core.borrow(), Refusal::new(RefusalKind::Unavailable, "busy", text), reply);
        }
        let (destination, after) = match to {
            MoveTo::Session { id, after, .. } if id == self.id => {
                return self.reorder(core, &caller, &chat, after.as_deref(), reply, ctx);
            }
            MoveTo::Session { session, id, after } => (Destination { session, id, is_new: false }, after),
            MoveTo::NewSession => match self.new_destination() {
                Ok(destination) => (destination, None),
                Err(refusal) => return refuse(&core.borrow(), refusal, reply),
            },
        };
        let chats = match self.going(core, &chat, destination.is_new) {
            Ok((_, chats)) => chats,
            Err(refusal) => {
                self.forget_destination(&destination);
                return refuse(&core.borrow(), refusal, reply);
            }
        };
        let by = self.by(&caller);
        let back = Back::new(ctx.address(), ticket.number);
        let arrival = arrival(&core.borrow(), by.clone(), chats.clone(), after, back);
        self.moving =
            Some(Leaving { ticket, by, chats, destination: destination.clone(), reply: Some(reply), gate: None });
        match destination.is_new {
            true => self.shared.registry.create(destination.id, Boot::Arrive(Box::new(arrival), destination.session)),
            false => self.shared.registry.send(destination.id, SessionMessage::MoveIn(Box::new(arrival))),
        }
    }

    /// A session that is still to be made, under a name of the host's.
    fn new_destination(&self) -> Result<Destination, Refusal> {
        check_count(&self.shared)?;
        let session = Channel::from(format!("ahp-session:/{}", ulid::Ulid::new().to_string().to_lowercase()));
        let id = self.shared.registry.reserve(session.as_str(), ChannelKind::Session, None);
        match id.map_err(Refusal::log_unavailable)? {
            Some(id) => Ok(Destination { session, id, is_new: true }),
            None => Err(Refusal::log_unavailable("a new session's name was taken: try again")),
        }
    }

    fn forget_destination(&self, destination: &Destination) {
        if destination.is_new {
            self.shared.registry.settle(destination.session.as_str());
        }
    }

    /// The chat and its workers, awake, as they are to be listed where they go.
    fn going(&mut self, core: &Core, chat: &Channel, to_new: bool) -> Result<(Vec<Awake>, Vec<MovedChat>), Refusal> {
        let uris = with_workers(&core.borrow().fold.state, chat);
        let (mut awake, mut chats) = (Vec::with_capacity(uris.len()), Vec::with_capacity(uris.len()));
        for uri in uris {
            let Some(one) = self.awake(core, &uri) else {
                let text = format!("{uri} cannot be read from the log: see the host's own log");
                return Err(Refusal::log_unavailable(text));
            };
            {
                let cell = one.0.borrow();
                let state = &cell.fold.state;
                let text = if state.active_turn.is_some() {
                    Some(format!("a turn runs in {uri}: it ends, or is stopped, before the chat moves"))
                } else if state.background_work.iter().flatten().next().is_some() {
                    Some(format!(
                        "work goes on in the background of {uri}: it ends, or is stopped, before the chat moves"
                    ))
                } else {
                    None
                };
                if let Some(text) = text {
                    return Err(Refusal::new(RefusalKind::TurnInProgress, "turn-in-progress", text));
                }
                let mut summary = mirror::summary_of(state);
                if to_new && uri == *chat {
                    summary.movable = Some(false);
                }
                let is_paused = core.borrow().fold.paused_queues().iter().any(|paused| paused == uri.as_str());
                chats.push(MovedChat { uri: uri.clone(), id: cell.id, summary, is_paused });
            }
            awake.push(one);
        }
        Ok((awake, chats))
    }

    /// The destination has taken the chats into its fold, or refuses them.
    pub(in crate::actors::session) fn move_answered(
        &mut self,
        number: u64,
        answer: Result<Accepted, Refusal>,
        ctx: &mut Context<Self>,
    ) {
        let is_it = |moving: &mut Leaving| moving.ticket.number == number && moving.gate.is_none();
        let Some(mut moving) = self.moving.take_if(is_it) else { return };
        let Some(reply) = moving.reply.take() else { return };
        let gone = || Refusal::log_unavailable("the session is read anew: try again");
        let core = self.core.clone().filter(|core| !core.borrow().lane.is_over());
        let unchanged = match (core, answer) {
            (None, _) => Err((None, gone())),
            (Some(core), Err(refusal)) => Err((Some(core), refusal)),
            (Some(core), Ok(accepted)) => match self.still_going(&core, &moving) {
                Ok(awake) => Ok((core, awake, accepted)),
                Err(refusal) => Err((Some(core), refusal)),
            },
        };
        match unchanged {
            Ok((core, awake, accepted)) => self.let_go(&core, &awake, moving, accepted, reply),
            Err((core, refusal)) => {
                self.forget_destination(&moving.destination);
                drop(moving);
                match core {
                    Some(core) => refuse(&core.borrow(), refusal, reply),
                    None => reply(Err(refusal)),
                }
                self.unpark(ctx);
            }
        }
    }

    /// The chats, if they are as the destination was told.
    fn still_going(&mut self, core: &Core, moving: &Leaving) -> Result<Vec<Awake>, Refusal> {
        let changed = || Refusal::new(RefusalKind::Unavailable, "busy", "the chat changed meanwhile: try again");
        let chat = moving.chats.first().map(|chat| chat.uri.clone()).ok_or_else(changed)?;
        let (awake, chats) = self.going(core, &chat, moving.destination.is_new)?;
        if chats == moving.chats { Ok(awake) } else { Err(changed()) }
    }

    /// Queues the batch of both sessions.
    fn let_go(&mut self, core: &Core, awake: &[Awake], mut moving: Leaving, accepted: Accepted, reply: Reply) {
        let Accepted { part, held, gate } = accepted;
        let Destination { session, id, is_new } = moving.destination.clone();
        {
            let mut core = core.borrow_mut();
            let mut recording = core.record(moving.by.clone());
            for (chat, (cell, _)) in moving.chats.iter().zip(awake) {
                let removed = SessionChatRemovedAction { chat: chat.uri.to_string() };
                let removed = Action::host(StateAction::SessionChatRemoved(removed));
                recording.session_action(removed, Some(chat.id), false);
                chat::list_paused(&mut recording, &chat.uri, Some(chat.id), false);
                chat::list_process(&mut recording, &chat.uri, Some(chat.id), chat::Listed::Left);
                let mut cell = cell.borrow_mut();
                recording.chat_fact(&mut cell, &Fact::ChatMoved { session: session.to_string() });
                if chat.summary.movable != cell.fold.state.movable {
                    let change = ChatMovableChangedAction { movable: chat.summary.movable == Some(true) };
                    recording.chat_action(&mut cell, Action::host(StateAction::ChatMovableChanged(change)), false);
                }
                let rows = catalogue::register(&chat.uri, chat.id, ChannelKind::Chat, id);
                rows.into_iter().for_each(|row| recording.row(row));
                cell.is_gone = true;
            }
            // From here on they are looked for there. Before the batch is queued: with it this session lists them no more, and
            // nobody may look for them here then.
            recording.core.shared.registry.moved(moving.chats.iter().map(|chat| chat.uri.as_str()), id);
            let moved = |chat: &Channel| recording.core.shared.hub.moved(chat);
            moving.chats.iter().for_each(|chat| moved(&chat.uri));
            recording.finish_with(part, held);
            for chat in &moving.chats {
                core.chats.remove(chat.uri.as_str());
            }
        }
        for (chat, (_, actor)) in moving.chats.iter().zip(awake) {
            self.chats.remove(&chat.uri);
            actor.do_send(ChatMessage::Abandon);
        }
        let core = core.borrow();
        let (shared, address, number) = (self.shared.clone(), core.address.clone(), moving.ticket.number);
        core.lane.release(
            None,
            Box::new(move |place| match place {
                Ok(_) => {
                    if let Some(root) = shared.root.get().filter(|_| is_new) {
                        root.do_send(RootMessage::SessionsChanged { by: 1 });
                    }
                    reply(Ok(command::json(&json!({ "session": session.as_str() }))));
                }
                Err(lost) => reply(Err(refusal_of_lost(&lost))),
            }),
        );
        let (shared, back) = (self.shared.clone(), self.id);
        let uris: Vec<Channel> = moving.chats.iter().map(|chat| chat.uri.clone()).collect();
        core.lane.release_on_disk(Box::new(move |place| {
            if place.is_err() {
                shared.registry.moved(uris.iter().map(Channel::as_str), back);
                uris.iter().for_each(|chat| shared.hub.moved(chat));
            }
            address.do_send(SessionMessage::Left { number, kept: place.is_ok() });
        }));
        moving.gate = Some(gate);
        self.moving = Some(moving);
    }

    /// The batch is on disk, or lost. What was sent for the chats before they were looked for elsewhere is all here by now.
    pub(in crate::actors::session) fn left(&mut self, number: u64, kept: bool, ctx: &mut Context<Self>) {
        let is_it = |moving: &mut Leaving| moving.ticket.number == number;
        let Some(moving) = self.moving.take_if(is_it) else { return };
        let Leaving { ticket, chats, destination, gate, .. } = moving;
        self.forget_destination(&destination);
        if kept {
            let of_them = |message: &SessionMessage| {
                message.channel().is_some_and(|channel| chats.iter().any(|chat| chat.uri == *channel))
            };
            let (theirs, rest): (Vec<_>, VecDeque<_>) = {
                let parked = std::mem::take(&mut self.parked);
                let (theirs, rest): (Vec<_>, Vec<_>) = parked.into_iter().partition(of_them);
                (theirs, rest.into())
            };
            self.parked = rest;
            if let Some(gate) = gate {
                gate.open(theirs);
            }
        } else {
            drop(gate);
        }
        drop(ticket);
        self.unpark(ctx);
    }

    /// The actor ends: who waits for the move is told.
    pub(in crate::actors::session) fn give_up_moving(&mut self) {
        self.receiving = None;
        let reply = self.moving.take().and_then(|moving| moving.reply);
        if let Some(reply) = reply {
            reply(Err(Refusal::new(RefusalKind::Unavailable, "busy", "the host is stopping")));
        }
        for message in std::mem::take(&mut self.parked) {
            message.refuse_busy(&self.shared);
        }
    }
}

/// Refuses what cannot be moved, or not there.
fn may_move(state: &SessionState, chat: &Channel, to: &MoveTo) -> Result<(), Refusal> {
    let listed = state.chats.iter().find(|listed| listed.resource == chat.as_str());
    let listed = listed.ok_or_else(|| no_such_chat(chat))?;
    if !role::is_movable(state, listed) {
        return Err(invalid(
            "not-movable",
            format!("{chat}: a default chat, a worker or a hidden chat stays where it is"),
        ));
    }
    match to {
        MoveTo::Session { after: Some(after), .. } if after == chat.as_str() => {
            Err(invalid("bad-anchor", "after: a chat does not stand behind itself"))
        }
        _ => Ok(()),
    }
}

/// The chat, and the workers that it or they spawned, in the order of the catalogue.
fn with_workers(state: &SessionState, chat: &Channel) -> Vec<Channel> {
    let mut all = vec![chat.to_string()];
    let spawned_by = |entry: &ChatSummary, all: &[String]| matches!(&entry.origin, Some(ChatOrigin::Tool { chat, .. }) if all.contains(chat));
    loop {
        let next = state.chats.iter().filter(|entry| !all.contains(&entry.resource) && spawned_by(entry, &all));
        let next: Vec<String> = next.map(|entry| entry.resource.clone()).collect();
        if next.is_empty() {
            break;
        }
        all.extend(next);
    }
    let workers = state.chats.iter().map(|entry| &entry.resource).filter(|uri| all.iter().skip(1).any(|w| w == *uri));
    let first = chat.clone();
    std::iter::once(first).chain(workers.map(|uri| Channel::from(uri.as_str()))).collect()
}

fn arrival(core: &SessionCore, by: By, chats: Vec<MovedChat>, after: Option<String>, back: Back) -> Arrival {
    let state = &core.fold.state;
    let all: &[String] = state.working_directories.as_deref().unwrap_or_default();
    let works_in = |chat: &MovedChat, directory: &String| {
        chat.summary.working_directories.as_ref().is_none_or(|own| own.contains(directory))
    };
    let directories = all.iter().filter(|directory| chats.iter().any(|chat| works_in(chat, directory))).cloned();
    // By the port's rule, what an agent keeps under a key that ends with the chat's name is the chat's.
    let is_of =
        |key: &str, chat: &MovedChat| key.strip_suffix(chat.uri.as_str()).is_some_and(|head| head.ends_with(':'));
    let kept = core.fold.memory.iter().filter(|(key, _)| chats.iter().any(|chat| is_of(key, chat)));
    let memory: Vec<(String, Value)> = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
    Arrival {
        number: back.number,
        by,
        after,
        provider: state.provider.clone(),
        config: state.config.clone(),
        directories: directories.collect(),
        memory,
        chats,
        back,
    }
}
