//! What the end of a turn does to the workers that it spawned, and what the end of a worker does to the chat that spawned it.
//!
//! All of it is in the batch of the ending itself, whoever decides it: a client, the agent, a recovery, a disposal. So no
//! worker runs for a turn that was stopped, and the links between a call and its workers stay. A worker that the turn does
//! not wait for goes on, and so does one that is left over when a turn completes: it is listed as background work then.

use ahp_types::actions::{
    ChatActivityChangedAction, ChatBackgroundWorkRemovedAction, ChatBackgroundWorkSetAction,
    ChatToolCallCompleteAction, StateAction,
};
use ahp_types::state::{
    BackgroundSubagentWork, BackgroundWork, ToolCallResult, ToolResultContent, ToolResultSubagentContent,
};
use serde_json::json;

use super::{ChatCell, Recording};
use crate::actors::chat;
use crate::clock;
use crate::projections::action::Action;
use crate::projections::workers::{self, Spawning};

/// Which workers of a chat end.
#[derive(Clone, Copy)]
pub enum Ends<'a> {
    /// All that run.
    All,
    /// Those in the background: the others end with their turn.
    Background,
    /// This one.
    One(&'a str),
}

/// What the host says of a call that its agent gave no result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Its worker ended by itself.
    Done,
    /// Its worker goes on in the background.
    GoesOn,
    Stopped,
}

impl Recording<'_> {
    /// Ends workers that a chat spawned, as cancelled, and theirs. They stay listed.
    pub fn end_workers(&mut self, chat: &mut ChatCell, which: Ends<'_>) {
        for worker in workers::running(&self.core.fold.state, chat.channel.as_str()) {
            let ends = match which {
                Ends::All => true,
                Ends::Background => workers::background_id(&chat.fold.state, &worker).is_some(),
                Ends::One(one) => worker == one,
            };
            if ends {
                self.end_worker(chat, &worker);
            }
        }
    }

    /// Ends one worker of `chat`.
    fn end_worker(&mut self, chat: &mut ChatCell, worker: &str) {
        let Some(cell) = self.core.chats.get(worker).cloned() else { return };
        if let Ok(mut worker) = cell.try_borrow_mut() {
            let Some(action) = chat::cancelled(&worker.fold, self.at()) else { return };
            if let (Some(actor), StateAction::ChatTurnCancelled(ending)) = (worker.actor.clone(), &action) {
                self.stopped.push((actor, ending.turn_id.clone()));
            }
            self.flush_text(&mut worker);
            self.chat_action(&mut worker, Action::host(action), false);
            if worker.fold.state.activity.is_some() {
                let cleared = StateAction::ChatActivityChanged(ChatActivityChangedAction { activity: None });
                self.one_action(&mut worker, Action::host(cleared), false);
            }
            self.mirror(&worker, true);
        }
        self.also(cell);
        self.unlist_worker(chat, worker);
    }

    /// Before the running turn of `chat` ends: its workers end with it, or go on by themselves, and the calls that spawned them
    /// get a result, since a call that a turn leaves open loses what it shows.
    pub(super) fn before_ending(&mut self, chat: &mut ChatCell, ending: &StateAction) {
        let Some(turn) = &chat.fold.state.active_turn else { return };
        let turn_id = turn.id.clone();
        let links: Vec<ToolResultSubagentContent> =
            workers::spawning(turn).flat_map(Spawning::links).cloned().collect();
        let open: Vec<(String, Vec<ToolResultContent>)> = workers::spawning(turn)
            .filter(|call| call.is_open)
            .map(|call| (call.tool_call_id.to_owned(), call.content.to_vec()))
            .collect();
        let completes = matches!(ending, StateAction::ChatTurnComplete(_));
        let running = workers::running(&self.core.fold.state, chat.channel.as_str());
        let goes_on = |content: &[ToolResultContent]| {
            content.iter().any(|item| matches!(item, ToolResultContent::Subagent(to) if running.contains(&to.resource)))
        };
        for link in links.iter().filter(|link| running.contains(&link.resource)) {
            if workers::background_id(&chat.fold.state, &link.resource).is_some() {
                continue;
            }
            if completes {
                self.list_worker(chat, &link.title, &link.resource);
            } else {
                self.end_worker(chat, &link.resource);
            }
        }
        for (tool_call_id, content) in open {
            let outcome = match completes {
                true if goes_on(&content) => Outcome::GoesOn,
                true => Outcome::Done,
                false => Outcome::Stopped,
            };
            self.settle(chat, &turn_id, tool_call_id, content, outcome);
        }
    }

    /// After a turn of `chat` ended: where it is a worker, the chat that spawned it no longer lists it as background work, and
    /// its call has a result where a person stopped it and the agent cannot.
    pub(super) fn after_ending(&mut self, chat: &ChatCell, ending: &StateAction) {
        let Some((spawner, call)) = workers::spawner(chat.fold.state.origin.as_ref()) else { return };
        let Some(cell) = self.core.chats.get(spawner).cloned() else { return };
        // Borrowed, it is what ends the worker, and sees to itself.
        let Ok(mut above) = cell.try_borrow_mut() else { return };
        let agent = self.core.shared.agent(&self.core.fold.state.provider);
        let stops_alone = agent.is_some_and(|agent| agent.extras().stops_workers);
        let by_a_person = matches!(ending, StateAction::ChatTurnCancelled(_)) && self.is_by_client();
        let turn = above.fold.state.active_turn.as_ref();
        let open = turn.and_then(|turn| Some((turn.id.clone(), workers::spawning_call(turn, call)?)));
        let open = open.filter(|(_, call)| call.is_open && by_a_person && !stops_alone);
        let open = open.map(|(turn, call)| (turn, call.tool_call_id.to_owned(), call.content.to_vec()));
        let listed = workers::background_id(&above.fold.state, chat.channel.as_str()).is_some();
        if open.is_none() && !listed {
            return;
        }
        self.flush_text(&mut above);
        if let Some((turn_id, tool_call_id, content)) = open {
            self.settle(&mut above, &turn_id, tool_call_id, content, Outcome::Stopped);
            self.mirror(&above, true);
        }
        self.unlist_worker(&mut above, chat.channel.as_str());
        drop(above);
        self.also(cell);
    }

    /// Gives an open call that spawned workers its result.
    fn settle(
        &mut self,
        chat: &mut ChatCell,
        turn_id: &str,
        tool_call_id: String,
        content: Vec<ToolResultContent>,
        outcome: Outcome,
    ) {
        let words = match outcome {
            Outcome::Done => "The worker is done",
            Outcome::GoesOn => "The worker goes on in the background",
            Outcome::Stopped => "The worker was stopped",
        };
        let stopped = outcome == Outcome::Stopped;
        let result = ToolCallResult {
            success: !stopped,
            past_tense_message: words.into(),
            content: Some(content),
            structured_content: None,
            error: stopped.then(|| json!({ "message": "the worker was stopped" })),
        };
        let done = ChatToolCallCompleteAction {
            turn_id: turn_id.to_owned(),
            tool_call_id,
            meta: None,
            result,
            requires_result_confirmation: None,
        };
        self.one_action(chat, Action::host(StateAction::ChatToolCallComplete(done)), false);
    }

    /// Lists a worker as background work of the chat that spawned it.
    pub fn list_worker(&mut self, chat: &mut ChatCell, title: &str, worker: &str) {
        let work = BackgroundWork::Subagent(BackgroundSubagentWork {
            id: worker.to_owned(),
            label: title.to_owned(),
            started_at: clock::rfc3339(self.at()),
            meta: None,
            chat: worker.to_owned(),
        });
        let set = StateAction::ChatBackgroundWorkSet(ChatBackgroundWorkSetAction { work });
        self.one_action(chat, Action::host(set), false);
    }

    fn unlist_worker(&mut self, chat: &mut ChatCell, worker: &str) {
        if let Some(id) = workers::background_id(&chat.fold.state, worker).map(str::to_owned) {
            let removed = StateAction::ChatBackgroundWorkRemoved(ChatBackgroundWorkRemovedAction { id });
            self.one_action(chat, Action::host(removed), false);
        }
    }
}
