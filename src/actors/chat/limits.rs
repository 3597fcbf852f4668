//! Turns that ended at a limit: whether and when the host takes them up by itself, and when it does not any more.
//!
//! The resume that is owed is a fact in the chat's log, in the batch that ends the turn. It lapses when somebody sends, stops
//! the turn for good, goes back or starts over, or turns it off. [`crate::actors::owed`] waits for its time, for all chats.

use actix::Context;
use ahp_types::actions::{ChatErrorAction, ChatTurnResumeAction, StateAction};
use ahp_types::common::JsonObject;
use ahp_types::state::{ErrorInfo, ErrorResponsePart};
use serde_json::{Value, json};

use super::decide::{Effect, Entry};
use super::{ChatActor, ending, unanswered};
use crate::actors::agent::LimitKind;
use crate::actors::core::SessionCore;
use crate::actors::host::HostSettings;
use crate::actors::session::configuration::{RESUME_AT_RESET, RESUME_AT_RESET_OFF};
use crate::clock::{self, Millis};
use crate::projections::attempts::LIMIT;
use crate::projections::chat::{ChatFold, is_resumable};
use crate::projections::fact::Fact;

/// A limit that a turn hit, as its agent says.
pub struct Limit {
    pub kind: LimitKind,
    pub message: String,
    /// When it lifts, where that is known.
    pub resets_at: Option<Millis>,
}

/// Whether the session's configuration lets the host take up limited turns of this chat.
pub fn resumes(core: &SessionCore, chat: &str) -> bool {
    let none = JsonObject::new();
    let values = core.fold.state.config.as_ref().map_or(&none, |config| &config.values);
    let is_on = values.get(RESUME_AT_RESET).and_then(Value::as_bool).unwrap_or(true);
    let off = values.get(RESUME_AT_RESET_OFF).and_then(Value::as_array);
    is_on && !off.into_iter().flatten().any(|off| off.as_str() == Some(chat))
}

/// When a turn that ended now is taken up, the `row`-th in a row that ended at a limit; `None` leaves it to a person.
fn due(settings: &HostSettings, limit: &Limit, row: u32, now: Millis) -> Option<Millis> {
    let row = usize::try_from(row).unwrap_or(usize::MAX);
    if row > settings.limit_resumes {
        metrics::counter!("scrollback_limit_met_total", "limit" => "limit_resumes").increment(1);
        return None;
    }
    match (limit.resets_at, limit.kind) {
        (Some(at), _) => Some(at.max(now)),
        (None, LimitKind::Usage) => None,
        (None, LimitKind::Overload) => {
            let wait = settings.overload_retries.get(row.saturating_sub(1))?;
            Some(clock::later(now, *wait))
        }
    }
}

/// The action that ends the running turn at a limit, when there is one.
fn limited(chat: &ChatFold, at: Millis, limit: &Limit) -> Option<StateAction> {
    let turn = chat.state.active_turn.as_ref()?;
    let mut said = json!({ "kind": limit.kind.word() });
    if let (Some(resets_at), Some(said)) = (limit.resets_at, said.as_object_mut()) {
        said.insert("resetsAt".into(), clock::rfc3339(resets_at).into());
    }
    let error = ErrorInfo {
        error_type: limit.kind.error_type().to_owned(),
        message: limit.message.clone(),
        stack: None,
        meta: Some(JsonObject::from_iter([(LIMIT.to_owned(), said)])),
    };
    Some(StateAction::ChatError(ChatErrorAction {
        turn_id: turn.id.clone(),
        duration: ending::duration(chat, at),
        part: ErrorResponsePart { error, resumable: Some(true) },
        meta: None,
    }))
}

impl ChatActor {
    /// Ends the running turn at a limit, and writes down whether it is taken up later.
    pub(super) fn end_limited(&mut self, limit: &Limit, ctx: &mut Context<Self>) {
        let owed = self.owed(limit).map(Entry::Fact);
        self.end_turn(|chat, at| limited(chat, at, limit), false, owed.into_iter().collect(), ctx);
    }

    fn owed(&self, limit: &Limit) -> Option<Fact> {
        let (core, cell) = (self.core.borrow(), self.cell.borrow());
        let turn_id = cell.fold.state.active_turn.as_ref()?.id.clone();
        if !resumes(&core, cell.channel.as_str()) {
            return None;
        }
        let row = cell.fold.attempts.limited.saturating_add(1);
        let at = due(&self.shared.settings, limit, row, self.shared.clock.now())?;
        Some(Fact::ResumeOwed { turn_id, at })
    }

    /// The time of the owed resume has come: the turn goes on, unless that has been turned off.
    pub(super) fn resume_due(&mut self, ctx: &mut Context<Self>) {
        let by = self.by_host();
        if self.shared.is_stopping() || self.shared.store.accepts_appends().is_err() {
            return;
        }
        let (entries, effects) = {
            let (core, cell) = (self.core.borrow(), self.cell.borrow());
            let Some(owed) = cell.fold.attempts.owed.clone().filter(|owed| owed.at <= by.at) else { return };
            let turn_id = owed.turn_id;
            let idle = cell.fold.state.active_turn.is_none();
            let last = cell.fold.last_turn().filter(|turn| idle && turn.id == turn_id && is_resumable(turn));
            match last.filter(|_| resumes(&core, cell.channel.as_str())) {
                None => (vec![Entry::Fact(Fact::ResumeLapsed { turn_id })], Vec::new()),
                Some(turn) => {
                    let resume = ChatTurnResumeAction { turn_id: turn_id.clone() };
                    let mut entries = vec![
                        Entry::Fact(Fact::ResumeDue { turn_id: turn_id.clone() }),
                        Entry::Host(StateAction::ChatTurnResume(resume)),
                    ];
                    entries.extend(unanswered::settle(&turn_id, &turn.response_parts));
                    (entries, vec![Effect::Prompt { turn_id }])
                }
            }
        };
        self.record(by, entries, effects, ctx);
    }

    /// The owed resume is turned off.
    pub(super) fn lapse(&mut self, ctx: &mut Context<Self>) {
        let owed = self.cell.borrow().fold.attempts.owed.clone();
        if let Some(owed) = owed {
            let by = self.by_host();
            let lapsed = Fact::ResumeLapsed { turn_id: owed.turn_id };
            self.record(by, vec![Entry::Fact(lapsed)], Vec::new(), ctx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn limit(kind: LimitKind, resets_at: Option<Millis>) -> Limit {
        Limit { kind, message: "no more".into(), resets_at }
    }

    #[test]
    fn a_limit_with_a_time_is_waited_for_until_then_and_one_that_has_passed_not_at_all() {
        let settings = HostSettings::default();
        for kind in [LimitKind::Usage, LimitKind::Overload] {
            assert_eq!(due(&settings, &limit(kind, Some(5_000)), 1, 1_000), Some(5_000));
            assert_eq!(due(&settings, &limit(kind, Some(500)), 3, 1_000), Some(1_000));
        }
    }

    #[test]
    fn without_a_time_an_overload_is_tried_again_after_1_5_and_15_minutes_and_a_usage_limit_waits_for_a_person() {
        let settings = HostSettings::default();
        let minutes = |row| due(&settings, &limit(LimitKind::Overload, None), row, 0).map(|at| at / 60_000);
        assert_eq!([1, 2, 3, 4, 5].map(minutes), [Some(1), Some(5), Some(15), None, None]);
        assert_eq!(due(&settings, &limit(LimitKind::Usage, None), 1, 0), None);
    }

    #[test]
    fn the_fourth_limited_turn_in_a_row_waits_for_a_person_whatever_else_is_configured() {
        let retries = vec![Duration::from_secs(1); 9];
        let settings = HostSettings { overload_retries: retries, ..HostSettings::default() };
        for at in [None, Some(9_000)] {
            let of = |row| due(&settings, &limit(LimitKind::Overload, at), row, 0).is_some();
            assert_eq!([3, 4].map(of), [true, false]);
        }
        let few = HostSettings { overload_retries: vec![Duration::from_secs(1)], ..HostSettings::default() };
        assert_eq!(due(&few, &limit(LimitKind::Overload, None), 2, 0), None);
    }
}
