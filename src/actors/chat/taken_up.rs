//! What becomes of a turn that was interrupted: a turn that runs and that nobody works on, after a crash or a stop of the
//! host, of the chat's actor or of a commit.
//!
//! It is taken up on a new process where its agent can do that, a few times at most, and that it is stands in the log before
//! the process starts. Else it says why, and ends as cancelled. What somebody stopped does not run, so it is never taken up.

use actix::{AsyncContext, Context};
use ahp_types::state::ChatOrigin;

use super::decide::{Effect, Entry};
use super::queue::Input;
use super::{ChatActor, ending, unanswered, waiting};
use crate::actors::session::RETRY;
use crate::projections::fact::Fact;

/// What a process that is gone has left in its chat.
#[derive(PartialEq, Eq)]
struct Left {
    turn: Option<String>,
    /// Background work is listed.
    works: bool,
}

impl Left {
    fn is_nothing(&self) -> bool {
        self.turn.is_none() && !self.works
    }
}

impl ChatActor {
    /// Takes the running turn up, or ends it. While the disk takes nothing it waits, so that the chat can be read meanwhile.
    pub(super) fn recover(&mut self, ctx: &mut Context<Self>) {
        if self.shared.is_stopping() {
            return;
        }
        let left = self.left();
        if left.is_nothing() {
            return;
        }
        if self.shared.store.accepts_appends().is_err() {
            ctx.run_later(RETRY, move |actor, ctx| {
                if actor.left() == left && actor.handed.is_none() && actor.process.is_none() {
                    actor.recover(ctx);
                }
            });
            return;
        }
        self.end_background_work(ctx);
        let Some(turn_id) = left.turn else { return };
        match self.why_not() {
            None => self.take_up(turn_id, ctx),
            Some(why) => self.give_up(&turn_id, why, ctx),
        }
    }

    fn left(&self) -> Left {
        let cell = self.cell.borrow();
        let state = &cell.fold.state;
        Left {
            turn: state.active_turn.as_ref().map(|turn| turn.id.clone()),
            works: state.background_work.iter().flatten().next().is_some(),
        }
    }

    /// Why the running turn cannot be taken up, in words for its reader.
    fn why_not(&self) -> Option<&'static str> {
        let (core, cell) = (self.core.borrow(), self.cell.borrow());
        let agent = self.shared.agent(&core.fold.state.provider);
        if matches!(cell.fold.state.origin, Some(ChatOrigin::Tool { .. })) {
            return Some("It is a worker's: the turn that it works for begins it anew.");
        }
        if agent.is_none() {
            return Some("Its agent is not configured on this host.");
        }
        if !agent.is_some_and(|agent| agent.extras().resume) {
            return Some("Its agent cannot take up a turn.");
        }
        let processes = u64::from(cell.fold.attempts.interrupted) + 1;
        if processes >= self.shared.settings.max_turn_processes as u64 {
            metrics::counter!("scrollback_limit_met_total", "limit" => "turn_processes").increment(1);
            return Some("It had been taken up before: send the message again to try once more.");
        }
        None
    }

    /// Writes the attempt down, with an end to all that the old process had open, and prompts a new one once that is on disk.
    fn take_up(&mut self, turn_id: String, ctx: &mut Context<Self>) {
        let by = self.by_host();
        let at = by.at;
        let entries = {
            let (core, cell) = (self.core.borrow(), self.cell.borrow());
            let turn = cell.fold.state.active_turn.as_ref();
            let mut entries = turn.map(|turn| unanswered::settle(&turn_id, &turn.response_parts)).unwrap_or_default();
            entries.extend(ending::quiet(&cell));
            let (waiting, _) = waiting::follow(&core, &cell, Input::TakenUp, None, at).unwrap_or_default();
            entries.extend(waiting);
            let attempt = cell.fold.attempts.taken_up.saturating_add(1);
            entries.push(Entry::Fact(Fact::Attempt { turn_id: turn_id.clone(), attempt }));
            entries
        };
        self.record(by, entries, vec![Effect::Prompt { turn_id }], ctx);
    }

    fn give_up(&mut self, turn_id: &str, why: &str, ctx: &mut Context<Self>) {
        let text = format!("The host was interrupted while this turn ran. It was not taken up again. {why}");
        let by = self.by_host();
        let (entries, effects) = {
            let (core, cell) = (self.core.borrow(), self.cell.borrow());
            let Some(action) = ending::cancelled(&cell.fold, by.at) else { return };
            let (after, effects) = ending::after(&core, &cell, false, by.at);
            let mut entries = vec![Entry::Host(ending::notice(turn_id, &text)), Entry::Host(action)];
            entries.extend(after);
            (entries, effects)
        };
        self.record(by, entries, effects, ctx);
    }
}
