//! Chats made out of others: a fork, which goes on with the turns of its source, and a side chat, which begins empty and whose
//! agent is told of a turn.
//!
//! A fork refers to its source's rows: it costs the same however long the source is. Source: AHP `createChat`, `source`.

use std::cell::RefCell;
use std::rc::Rc;

use ahp_types::state::{ActiveTurn, ChatOrigin, MultipleChatsCapability, SideChatSelection, Turn, TurnState};
use serde::Deserialize;
use serde_json::Value;

use super::SessionActor;
use super::chats::invalid;
use super::directories;
use crate::actors::chat::conversation::answer_text;
use crate::actors::chat::decide::truncated::branch;
use crate::actors::command::{Refusal, RefusalKind};
use crate::actors::core::{ChatCell, SessionCore};
use crate::actors::visuals::{self, Published};
use crate::events::rows::{self, leading_number};
use crate::events::{Channel, ServerSeq, Table};
use crate::projections::chat::{Branch, ChatFold, Forked};
use crate::projections::erasure::Erasure;
use crate::projections::turns::{self, StoredTurn};
use crate::projections::visual::Visual;
use crate::projections::{FoldFault, replay};

/// What a new chat is made out of.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// Goes on with the turns of `chat` up to and including `turn_id`.
    Fork { chat: String, turn_id: String },
    /// Begins empty; its agent is told what was said in `turn_id`.
    SideChat { chat: String, turn_id: String, selection: Option<SideChatSelection> },
    /// A fork at any turn that ever was, also one that a rewind dropped.
    ForkAt { chat: String, moment: Moment },
}

/// A point of a chat's story.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moment {
    /// The last turn that had ended at this event.
    Seq(ServerSeq),
    /// The newest turn with this id.
    Turn(String),
}

impl Source {
    /// A `source` as a client sent it. Its kind is read first: it decides what the rest means.
    ///
    /// # Errors
    /// A [`Refusal`] for an unknown kind, or one whose fields are missing.
    pub fn parse(value: &Value) -> Result<Self, Refusal> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Fields {
            chat: String,
            turn_id: String,
            #[serde(default)]
            selection: Option<SideChatSelection>,
        }
        let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default();
        if !["fork", "sideChat"].contains(&kind) {
            return Err(invalid("unsupported", format!("source: there is no kind {kind:?}: fork or sideChat")));
        }
        let fields: Fields =
            serde_json::from_value(value.clone()).map_err(|e| invalid("malformed", format!("source: {e}")))?;
        let Fields { chat, turn_id, selection } = fields;
        Ok(match kind {
            "fork" => Source::Fork { chat, turn_id },
            _ => {
                let selection = selection.filter(|selection| !selection.text.trim().is_empty());
                Source::SideChat { chat, turn_id, selection }
            }
        })
    }

    /// The chat that it is made out of.
    pub fn chat(&self) -> &str {
        match self {
            Source::Fork { chat, .. } | Source::SideChat { chat, .. } | Source::ForkAt { chat, .. } => chat,
        }
    }

    /// Whether an agent with these capabilities can do it.
    ///
    /// # Errors
    /// The [`Refusal`].
    pub fn check_capability(&self, can: &MultipleChatsCapability) -> Result<(), Refusal> {
        match self {
            Source::SideChat { .. } if can.side_chat != Some(true) => {
                Err(invalid("unsupported", "this session's agent has no side chats"))
            }
            Source::Fork { .. } | Source::ForkAt { .. } if can.fork != Some(true) => {
                Err(invalid("unsupported", "this session's agent cannot fork a chat"))
            }
            _ => Ok(()),
        }
    }
}

/// What a chat that is made out of another begins with.
pub struct Beginning {
    pub origin: ChatOrigin,
    pub title: String,
    pub directories: Option<Vec<String>>,
    pub fork: Option<Forked>,
    /// For a side chat, what its agent is told first.
    pub context: Option<String>,
    /// For a fork, its copies of the visuals in the turns that it has.
    pub visuals: Vec<Published>,
    /// The chat that it is made out of.
    pub source: Rc<RefCell<ChatCell>>,
}

impl SessionActor {
    /// Finds what a new chat begins with.
    ///
    /// # Errors
    /// A [`Refusal`] for a source that there is not, or that the agent cannot go on from.
    pub(super) fn beginning(
        &mut self,
        core: &Rc<RefCell<SessionCore>>,
        chat: &str,
        source: &Source,
    ) -> Result<Beginning, Refusal> {
        if source.chat() == chat {
            return Err(invalid("invalid-params", "source: a chat is not made out of itself"));
        }
        let cell = self.source_chat(core, source)?;
        let core = core.borrow();
        let of = cell.borrow();
        match source {
            Source::Fork { turn_id, .. } => {
                if of.fold.state.active_turn.as_ref().is_some_and(|turn| turn.id == *turn_id) {
                    let text = format!("turn {turn_id} is running: fork at one that has ended");
                    return Err(invalid("turn-in-progress", text));
                }
                let turn =
                    of.turn_on_branch(&core.shared, of.fold.head(), turn_id).map_err(Refusal::log_unavailable)?;
                forked(&core, &cell, &of, turn.ok_or_else(|| no_turn(turn_id))?, &of.fold.visuals)
            }
            Source::ForkAt { moment, .. } => {
                let turn = at(&core, &of, moment).map_err(Refusal::log_unavailable)?;
                let shown = shown_at(&core, &of, moment).map_err(Refusal::log_unavailable)?;
                forked(&core, &cell, &of, turn.ok_or_else(|| no_turn(&format!("{moment:?}")))?, &shown)
            }
            Source::SideChat { turn_id, selection, .. } => {
                let context = side_context(&core, &of, turn_id, selection.as_ref())?;
                let (chat, turn_id) = (of.channel.to_string(), turn_id.clone());
                Ok(Beginning {
                    origin: ChatOrigin::SideChat { chat, turn_id, selection: selection.clone() },
                    title: String::new(),
                    directories: None,
                    fork: None,
                    context: Some(context),
                    visuals: Vec::new(),
                    source: Rc::clone(&cell),
                })
            }
        }
    }

    /// The chat that a source names: one of this session; for a fork at any moment also one that was closed.
    fn source_chat(
        &mut self,
        core: &Rc<RefCell<SessionCore>>,
        source: &Source,
    ) -> Result<Rc<RefCell<ChatCell>>, Refusal> {
        let named = source.chat();
        let resolved = self.shared.registry.resolve(named).map_err(Refusal::log_unavailable)?;
        let uri = match &resolved {
            Some(found) if found.session == self.id => found.channel.clone(),
            Some(_) => return Err(invalid("invalid-params", format!("source: {named} is not a chat of this session"))),
            None => Channel::from(named),
        };
        if self.chat(core, &uri).is_some()
            && let Some(cell) = core.borrow().chats.get(uri.as_str())
        {
            return Ok(Rc::clone(cell));
        }
        let closed = match source {
            Source::ForkAt { .. } => self.read_chat(&uri).map_err(Refusal::log_unavailable)?,
            Source::Fork { .. } | Source::SideChat { .. } => None,
        };
        // What is being erased has turns for the forks that it had alone.
        let erasures = Erasure::under_way(self.shared.store.as_ref()).map_err(Refusal::log_unavailable)?;
        let stays = |cell: &ChatCell| !erasures.iter().any(|erasure| erasure.removes(cell.id));
        match closed.filter(|cell| cell.fold.state.resource == uri.as_str() && stays(cell)) {
            Some(cell) => Ok(Rc::new(RefCell::new(cell))),
            None => Err(Refusal::new(RefusalKind::NotFound, "not-found", format!("source: there is no chat {named}"))),
        }
    }
}

fn no_turn(turn: &str) -> Refusal {
    Refusal::new(RefusalKind::NotFound, "unknown-turn", format!("source: the chat has no turn {turn}"))
}

fn at(core: &SessionCore, of: &ChatCell, moment: &Moment) -> Result<Option<StoredTurn>, FoldFault> {
    let shared = &core.shared;
    match moment {
        Moment::Turn(turn_id) => of.turn_ever(shared, turn_id),
        Moment::Seq(seq) => {
            let prefix = rows::channel_key(of.id);
            let head = shared.store.last_row(Table::Head, &prefix, &rows::numbered_key(of.id, *seq))?;
            match head.and_then(|(_, value)| leading_number(&value)).filter(|head| *head != 0) {
                Some(head) => of.turn(shared, head).map(Some),
                None => Ok(None),
            }
        }
    }
}

/// The visuals that the chat showed at a moment.
fn shown_at(core: &SessionCore, of: &ChatCell, moment: &Moment) -> Result<Vec<Visual>, FoldFault> {
    let Moment::Seq(seq) = moment else { return Ok(of.fold.visuals.clone()) };
    let then = replay::fold::<ChatFold>(core.shared.store.as_ref(), of.id, *seq, true)?;
    Ok(then.map(|at| at.fold.visuals).unwrap_or_default())
}

/// A fork of `of` that ends with `turn`; `shown` are the visuals to copy from.
fn forked(
    core: &SessionCore,
    cell: &Rc<RefCell<ChatCell>>,
    of: &ChatCell,
    turn: StoredTurn,
    shown: &[Visual],
) -> Result<Beginning, Refusal> {
    let shared = &core.shared;
    let point = of.point(shared, turn.n).map_err(Refusal::log_unavailable)?;
    let Some(point) = point else {
        return Err(invalid("no-rewind-point", "source: the agent does not know how to go on from that turn"));
    };
    let visuals = visuals::copies(shared, of, shown, turn.n).map_err(Refusal::log_unavailable)?;
    let origin = ChatOrigin::Fork { chat: of.channel.to_string(), turn_id: point.turn_id.clone() };
    let branch = branch(shared, of, &turn, Some(point)).map_err(Refusal::log_unavailable)?;
    let outside = |path: Vec<(u64, u64)>| {
        path.into_iter().map(|(ordinal, n)| (ordinal, turns::from_outside(of.id, n))).collect::<Vec<_>>()
    };
    let branch = Branch { path: outside(branch.path), before: outside(branch.before), ..branch };
    let base = turns::from_outside(of.id, turn.n);
    let (chat, _) = turns::place(of.id, turn.n);
    let older = of.fold.bases.iter().skip_while(|older| chat != of.id && turns::place(of.id, **older).0 != chat);
    let older = older.skip(usize::from(chat != of.id));
    let bases = std::iter::once(base).chain(older.copied()).collect();
    Ok(Beginning {
        origin,
        title: of.fold.state.title.clone(),
        directories: of.fold.state.working_directories.as_ref().map(|own| directories::still(&core.fold.state, own)),
        fork: Some(Forked { branch, bases }),
        context: None,
        visuals,
        source: Rc::clone(cell),
    })
}

/// What the agent of a side chat is told before its first message.
fn side_context(
    core: &SessionCore,
    of: &ChatCell,
    turn_id: &str,
    selection: Option<&SideChatSelection>,
) -> Result<String, Refusal> {
    let active = of.fold.state.active_turn.as_ref().filter(|turn| turn.id == *turn_id);
    let turn = match active {
        Some(active) => so_far(active),
        None => {
            let stored = of.turn_on_branch(&core.shared, of.fold.head(), turn_id).map_err(Refusal::log_unavailable)?;
            let stored = stored.ok_or_else(|| no_turn(turn_id))?;
            serde_json::from_slice(&stored.json)
                .map_err(|e| Refusal::new(RefusalKind::Internal, "damaged", e.to_string()))?
        }
    };
    let how = if active.is_some() { "The answer so far, which was still being given:" } else { "The answer:" };
    let mut text = format!(
        "This conversation was opened beside another one. There, somebody said:\n\n{}\n\n{how}\n\n{}\n\n",
        turn.message.text,
        answer_text(&turn)
    );
    if let Some(selection) = selection {
        text.push_str(&format!("What this is about was picked out of it:\n\n{}\n\n", selection.text));
    }
    text.push_str(&format!("To read the rest of it, call the tool get_session_context with {}.", of.channel));
    Ok(text)
}

/// A running turn as it would be if it ended now.
fn so_far(active: &ActiveTurn) -> Turn {
    Turn {
        id: active.id.clone(),
        started_at: Some(active.started_at.clone()),
        duration: None,
        message: active.message.clone(),
        response_parts: active.response_parts.clone(),
        usage: None,
        state: TurnState::Complete,
    }
}
