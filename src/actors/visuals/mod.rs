//! Visuals: pages that agents and clients publish in a chat.
//!
//! What is published is checked ([`check`]), gets a script of ours ([`page`]), and is recorded in one batch: the canvas with
//! its page on a channel of its own, and what the chat says of it. The page is in the record and nowhere else, so a crash
//! leaves neither a page that nobody names nor a name without its page, and whatever copies the log copies the pages. Where a
//! page is to be had ([`links`]) is made anew at every start and never stored.

pub mod check;
pub mod links;
pub mod page;

use ahp_types::actions::{CanvasStateChangedAction, ChatCanvasesChangedAction, StateAction};
use ahp_types::state::CanvasReference;
use serde_json::{Map, Value};

use super::core::{ChatCell, Recording};
use super::shared::Shared;
use crate::events::rows::ChannelKind;
use crate::events::{Channel, ChannelId};
use crate::projections::action::Action;
use crate::projections::canvas::{self, closed_row, open_row};
use crate::projections::chat::ChatFold;
use crate::projections::fact::Fact;
use crate::projections::visual::Visual;
use crate::projections::{FoldFault, catalogue};

pub use check::NewVisual;
pub use links::Links;

/// What is asked of a chat's visuals.
#[derive(Debug, Clone)]
pub enum VisualCommand {
    Publish(Box<NewVisual>),
    List,
    Remove { id: String },
}

/// A visual with its page, ready to be recorded.
#[derive(Debug, Clone)]
pub struct Published {
    pub visual: Visual,
    /// The page as it is stored and served.
    pub page: String,
}

/// A canvas of a chat that is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenCanvas {
    pub visual: Visual,
    pub id: ChannelId,
}

/// Records visuals: their canvases, their rows, and what the chat says of them. Nothing is recorded where there are none.
pub fn publish(recording: &mut Recording<'_>, chat: &mut ChatCell, all: Vec<Published>) {
    if all.is_empty() {
        return;
    }
    for Published { visual, page } in all {
        let (channel, id) = (visual.canvas(), recording.core.shared.store.new_channel_id());
        recording.beside(page.len());
        recording.create_channel(&channel, id, ChannelKind::Canvas);
        let state = Box::new(visual.state());
        let created = Fact::CanvasCreated { chat: chat.channel.to_string(), state, page };
        recording.canvas_fact(&channel, id, &created);
        recording.row(open_row(id, chat.id));
        chat.new_canvases.insert(visual.id.clone(), id);
        recording.chat_fact(chat, &Fact::VisualPublished { visual });
    }
    let listed = chat.fold.visuals.iter().map(Visual::reference).collect();
    recording.chat_action(chat, canvases_changed(listed), false);
}

/// Records that canvases of a chat are gone, those of [`open`] or some of them. Their pages are not served any more, and their
/// subscribers are told. Nothing is recorded where there are none.
pub fn close(recording: &mut Recording<'_>, chat: &mut ChatCell, gone: &[OpenCanvas]) {
    if gone.is_empty() {
        return;
    }
    for OpenCanvas { visual, id } in gone {
        let channel = visual.canvas();
        let change = CanvasStateChangedAction { canvas: visual.state() };
        recording.canvas_action(&channel, *id, &Action::host(StateAction::CanvasStateChanged(change)));
        recording.canvas_fact(&channel, *id, &Fact::CanvasClosed);
        recording.row(closed_row(*id));
        recording.channel_gone(channel);
        chat.new_canvases.remove(&visual.id);
    }
    let is_left = |visual: &&Visual| !gone.iter().any(|gone| gone.visual.id == visual.id);
    let left = chat.fold.visuals.iter().filter(is_left).map(Visual::reference).collect();
    recording.chat_action(chat, canvases_changed(left), false);
}

fn canvases_changed(listed: Vec<CanvasReference>) -> Action {
    let canvases = (!listed.is_empty()).then_some(listed);
    Action::host(StateAction::ChatCanvasesChanged(ChatCanvasesChangedAction { canvases }))
}

/// The open canvases of a chat that `wanted` picks, in order. Emptying a chat is [`close`] of all of them.
///
/// # Errors
/// [`FoldFault`] when the number of one cannot be read.
pub fn open(shared: &Shared, chat: &ChatCell, wanted: impl Fn(&Visual) -> bool) -> Result<Vec<OpenCanvas>, FoldFault> {
    let mut found = Vec::new();
    for visual in chat.fold.visuals.iter().filter(|visual| wanted(visual)) {
        let id = match chat.new_canvases.get(&visual.id) {
            Some(id) => *id,
            None => number_of(shared, visual)?,
        };
        found.push(OpenCanvas { visual: visual.clone(), id });
    }
    Ok(found)
}

fn number_of(shared: &Shared, visual: &Visual) -> Result<ChannelId, FoldFault> {
    let uri = visual.canvas();
    let row = catalogue::channel(shared.store.as_ref(), uri.as_str())?;
    let missing = || FoldFault::Row { place: format!("of channel {uri}"), problem: "it is missing".into() };
    row.map(|row| ChannelId(row.id)).ok_or_else(missing)
}

/// Copies for a fork that ends with the turn that `source` names `last`: of what was published in the turns that it has, and
/// between them. Each has an id and a page of its own. `shown` is what the source showed at the moment that is forked at: the pages
/// of what was removed since are still in the log.
///
/// # Errors
/// [`FoldFault`] when something cannot be read; a page that was published a moment ago may not be on disk yet.
pub fn copies(shared: &Shared, source: &ChatCell, shown: &[Visual], last: u64) -> Result<Vec<Published>, FoldFault> {
    let mut copies = Vec::new();
    for visual in shown {
        if let Some(turn_id) = visual.turn_id.as_ref().or(visual.after_turn.as_ref())
            && source.turn_on_branch(shared, last, turn_id)?.is_none()
        {
            continue;
        }
        let id = match source.new_canvases.get(&visual.id) {
            Some(id) => *id,
            None => number_of(shared, visual)?,
        };
        let page = canvas::page(shared.store.as_ref(), id)?;
        copies.push(Published { visual: Visual { id: new_id(), ..visual.clone() }, page });
    }
    Ok(copies)
}

/// An id that no other visual has.
pub fn new_id() -> String {
    ulid::Ulid::new().to_string()
}

/// A visual as it is told: what is known of it, and where its page is to be had now.
pub fn described(visual: &Visual, links: &Links) -> Value {
    let mut value = serde_json::to_value(visual).unwrap_or_default();
    if let Some(members) = value.as_object_mut() {
        members.remove("afterTurn");
        members.insert("url".into(), Value::from(links.url(&visual.id)));
    }
    value
}

/// All visuals of a chat as they are told.
pub fn listed(chat: &ChatFold, links: &Links) -> Value {
    let visuals = chat.visuals.iter().map(|visual| described(visual, links)).collect();
    Value::Object(Map::from_iter([("visuals".to_owned(), Value::Array(visuals))]))
}

/// The state of an open canvas as its subscribers are shown it: as it is stored, with where its page is to be had now.
pub fn shown(visual: &Visual, links: &Links) -> String {
    let mut state = visual.state();
    state.url = Some(links.url(&visual.id));
    serde_json::to_string(&state).unwrap_or_default()
}

/// The number of an open canvas and the URI of its chat, as the log has them.
///
/// # Errors
/// [`FoldFault`] when they cannot be looked up.
pub fn chat_of_canvas(shared: &Shared, canvas: &Channel) -> Result<Option<(ChannelId, Channel)>, FoldFault> {
    let store = shared.store.as_ref();
    let Some(row) = catalogue::channel(store, canvas.as_str())? else { return Ok(None) };
    let id = ChannelId(row.id);
    let Some(chat) = canvas::chat_of(store, id)? else { return Ok(None) };
    Ok(catalogue::uri(store, chat)?.map(|uri| (id, uri)))
}
