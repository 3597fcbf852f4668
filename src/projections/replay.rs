//! A channel's state at any point of the line: the newest checkpoint before it, and the events after that.
//!
//! Used when an actor wakes, for `stateAt`, and by the verification, which also folds without checkpoints.

use std::ops::ControlFlow;

use super::action::Action;
use super::chat::ChatFold;
use super::fact::Fact;
use super::root::RootFold;
use super::session::SessionFold;
use super::{FoldFault, turns};
use crate::clock::Millis;
use crate::events::rows::{number_of_key, numbered_key};
use crate::events::{ChannelId, Kind, Record, ServerSeq, Store, Table};

/// A fold and the newest event in it.
#[derive(Debug, Clone)]
pub struct At<F> {
    pub fold: F,
    /// 0 before the first event.
    pub seq: ServerSeq,
    /// How many events and bytes of actions were applied since the checkpoint.
    pub since_checkpoint: (u64, u64),
}

/// A state that events of one channel are folded into.
pub trait Fold: Sized {
    /// The state that a fact begins, when it begins one.
    fn begin(fact: Fact, at: Millis) -> Option<Self>;
    /// A state read from a checkpoint, unless it is of another format.
    fn restore(checkpoint: &[u8]) -> Option<Self>;
    fn apply_action(&mut self, action: &Action, at: Millis);
    fn apply_fact(&mut self, fact: &Fact, at: Millis);
}

impl Fold for ChatFold {
    fn begin(fact: Fact, _: Millis) -> Option<Self> {
        match fact {
            Fact::ChatCreated { state, fork, context, .. } => {
                Some(ChatFold::created(*state, fork.map(|fork| *fork), context))
            }
            _ => None,
        }
    }
    fn restore(checkpoint: &[u8]) -> Option<Self> {
        ChatFold::from_checkpoint(checkpoint)
    }
    fn apply_action(&mut self, action: &Action, at: Millis) {
        self.apply(action, at);
    }
    fn apply_fact(&mut self, fact: &Fact, _: Millis) {
        ChatFold::apply_fact(self, fact);
    }
}

impl Fold for SessionFold {
    fn begin(fact: Fact, _: Millis) -> Option<Self> {
        match fact {
            Fact::SessionCreated { created_at, state } => Some(SessionFold::new(*state, created_at)),
            _ => None,
        }
    }
    fn restore(checkpoint: &[u8]) -> Option<Self> {
        SessionFold::from_checkpoint(checkpoint)
    }
    fn apply_action(&mut self, action: &Action, _at: Millis) {
        self.apply(action);
    }
    fn apply_fact(&mut self, fact: &Fact, _: Millis) {
        SessionFold::apply_fact(self, fact);
    }
}

impl Fold for RootFold {
    fn begin(fact: Fact, _: Millis) -> Option<Self> {
        match fact {
            Fact::RootCreated { state } => Some(RootFold::new(*state)),
            _ => None,
        }
    }
    fn restore(checkpoint: &[u8]) -> Option<Self> {
        serde_json::from_slice(checkpoint).ok().map(RootFold::new)
    }
    fn apply_action(&mut self, action: &Action, _at: Millis) {
        self.apply(action);
    }
    fn apply_fact(&mut self, fact: &Fact, _: Millis) {
        RootFold::apply_fact(self, fact);
    }
}

/// The fold of `channel` right after event `upto` (`ServerSeq::MAX`: now); `None` when it had no events then.
///
/// # Errors
/// [`FoldFault`] naming the event that cannot be folded.
pub fn fold<F: Fold>(
    store: &dyn Store,
    channel: ChannelId,
    upto: ServerSeq,
    use_checkpoints: bool,
) -> Result<Option<At<F>>, FoldFault> {
    let mut at = if use_checkpoints { from_checkpoint(store, channel, upto)? } else { None };
    let after = at.as_ref().map_or(0, |at| at.seq);
    let mut fault = None;
    let mut is_within = false;
    store.scan_channel(channel, after, upto, &mut |record| {
        // The checkpoint has some of what a compaction made one since it was read.
        is_within = record.covers_from.is_some_and(|from| from <= after);
        if is_within {
            return ControlFlow::Break(());
        }
        match step(&mut at, &record) {
            Ok(()) => ControlFlow::Continue(()),
            Err(problem) => {
                fault = Some(FoldFault::Event { seq: record.seq, channel: record.channel.to_string(), problem });
                ControlFlow::Break(())
            }
        }
    })?;
    if is_within {
        return self::fold(store, channel, upto, false);
    }
    fault.map_or(Ok(at), Err)
}

fn from_checkpoint<F: Fold>(
    store: &dyn Store,
    channel: ChannelId,
    upto: ServerSeq,
) -> Result<Option<At<F>>, FoldFault> {
    let prefix = channel.0.to_be_bytes();
    let found = store.last_row(Table::Checkpoint, &prefix, &numbered_key(channel, upto))?;
    Ok(found.and_then(|(key, value)| {
        Some(At { fold: F::restore(&value)?, seq: number_of_key(&key)?, since_checkpoint: (0, 0) })
    }))
}

/// Applies one record to a fold that may not have begun.
///
/// # Errors
/// The problem, in words.
pub fn step<F: Fold>(at: &mut Option<At<F>>, record: &Record) -> Result<(), String> {
    match (record.kind, at.as_mut()) {
        (Kind::Host, None) => {
            let fact = Fact::from_stored(&record.action)?;
            let fold = F::begin(fact, record.at).ok_or("the channel begins with an event that creates nothing")?;
            *at = Some(At { fold, seq: record.seq, since_checkpoint: (1, record.action.len() as u64) });
            return Ok(());
        }
        (Kind::Host, Some(at)) => at.fold.apply_fact(&Fact::from_stored(&record.action)?, record.at),
        (Kind::Action, None) => return Err("an action before the channel was created".into()),
        (Kind::Action, Some(at)) => {
            let action = Action::from_stored(record.action.clone())?;
            at.fold.apply_action(&action, record.at);
        }
    }
    if let Some(at) = at {
        at.seq = record.seq;
        at.since_checkpoint.0 += 1;
        at.since_checkpoint.1 += record.action.len() as u64;
    }
    Ok(())
}

/// Bytes of a message beside the state in it: its names, its number, a cursor.
const AROUND: usize = 8 * 1024;

/// The JSON of a chat's state with all turns that `limit` allows, read from their rows.
///
/// # Errors
/// Those of `read`.
pub fn chat_json(
    fold: &ChatFold,
    limit: turns::PageLimit,
    read: impl FnMut(u64) -> Result<turns::StoredTurn, FoldFault>,
) -> Result<(String, Option<u64>), FoldFault> {
    json_of(fold, &[], limit, read)
}

/// The same for a client whose version of the protocol has no canvases.
///
/// # Errors
/// Those of `read`.
pub fn chat_json_without_canvases(
    fold: &ChatFold,
    limit: turns::PageLimit,
    read: impl FnMut(u64) -> Result<turns::StoredTurn, FoldFault>,
) -> Result<(String, Option<u64>), FoldFault> {
    json_of(fold, &["canvases"], limit, read)
}

fn json_of(
    fold: &ChatFold,
    without: &[&str],
    limit: turns::PageLimit,
    read: impl FnMut(u64) -> Result<turns::StoredTurn, FoldFault>,
) -> Result<(String, Option<u64>), FoldFault> {
    let mut value = serde_json::to_value(&fold.state).unwrap_or_default();
    if let Some(state) = value.as_object_mut() {
        state.remove("turns");
        state.remove("turnsNextCursor");
        for member in without {
            state.remove(*member);
        }
    }
    let text = value.to_string();
    let room = limit.bytes.saturating_sub(text.len() + AROUND);
    let (mut page, mut before) = turns::branch(fold.head(), turns::PageLimit { bytes: room, ..limit }, read)?;
    if let [only] = page.as_slice()
        && only.json.len() > room
    {
        // A page has one turn at least, a state does not: what is too large for a message is asked for by its cursor.
        before = fold.head();
        page.clear();
    }
    let oldest = page.first().map(|turn| turn.row.ordinal).or_else(|| (before != 0).then(|| fold.ordinal() + 1));
    let cursor = (before != 0).then(|| oldest.map(|oldest| turns::cursor(&fold.state.resource, oldest))).flatten();
    let window = (before != 0).then_some(oldest).flatten();
    Ok((turns::splice(&text, &page, cursor.as_deref()), window))
}
