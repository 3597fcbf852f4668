//! The fold of a canvas's channel, and the page in its first record.

use std::ops::ControlFlow;

use ahp::reducers::apply_action_to_canvas;
use ahp_types::state::CanvasState;

use super::FoldFault;
use super::action::Action;
use super::fact::Fact;
use super::replay::Fold;
use crate::clock::Millis;
use crate::events::rows::{channel_key, leading_number};
use crate::events::{ChannelId, RowOp, Rows, ServerSeq, Store, Table};

/// A canvas and whether it is still there.
#[derive(Debug, Clone)]
pub struct CanvasFold {
    pub state: CanvasState,
    /// The URI of the chat that it belongs to.
    pub chat: String,
    pub is_open: bool,
}

impl Fold for CanvasFold {
    fn begin(fact: Fact, _: Millis) -> Option<Self> {
        match fact {
            Fact::CanvasCreated { chat, state, .. } => Some(Self { state: *state, chat, is_open: true }),
            _ => None,
        }
    }

    /// Canvases have no checkpoints: their channels are a few events.
    fn restore(_: &[u8]) -> Option<Self> {
        None
    }

    fn apply_action(&mut self, action: &Action, _at: Millis) {
        apply_action_to_canvas(&mut self.state, &action.decoded);
    }

    fn apply_fact(&mut self, fact: &Fact, _: Millis) {
        if matches!(fact, Fact::CanvasClosed) {
            self.is_open = false;
        }
    }
}

/// The row of an open canvas: the chat that it belongs to.
pub fn open_row(canvas: ChannelId, chat: ChannelId) -> RowOp {
    RowOp::Put { table: Table::Canvas, key: channel_key(canvas), value: channel_key(chat).into() }
}

/// What removes that row.
pub fn closed_row(canvas: ChannelId) -> RowOp {
    RowOp::Delete { table: Table::Canvas, key: channel_key(canvas) }
}

/// The chat of a canvas that is open.
///
/// # Errors
/// [`FoldFault::Log`] when the row cannot be read.
pub fn chat_of(rows: &dyn Rows, canvas: ChannelId) -> Result<Option<ChannelId>, FoldFault> {
    let row = rows.get(Table::Canvas, &channel_key(canvas))?;
    Ok(row.and_then(|value| leading_number(&value)).map(ChannelId))
}

/// The page of a canvas, as it is served.
///
/// # Errors
/// [`FoldFault`] when its first record cannot be read or is something else.
pub fn page(store: &dyn Store, canvas: ChannelId) -> Result<String, FoldFault> {
    let mut found =
        Err(FoldFault::Row { place: format!("of canvas {}", canvas.0), problem: "it has no events".into() });
    store.scan_channel(canvas, 0, ServerSeq::MAX, &mut |record| {
        let problem = |problem| FoldFault::Event { seq: record.seq, channel: record.channel.to_string(), problem };
        found = match Fact::from_stored(&record.action) {
            Ok(Fact::CanvasCreated { page, .. }) => Ok(page),
            Ok(_) => Err(problem("a canvas begins with an event that has no page".into())),
            Err(fault) => Err(problem(fault)),
        };
        ControlFlow::Break(())
    })?;
    found
}
