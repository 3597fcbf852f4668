//! What waits in a chat, read from the folds for the law of [`queue`], and the entries and effects that its steps are.

use ahp_types::actions::{SessionMetaChangedAction, StateAction};
use serde_json::json;

use super::decide::{Effect, Entry, turn_started};
use super::ending;
use super::queue::{self, Input, Refused, Step, Takes, Waiting};
use crate::actors::core::{ChatCell, Recording, SessionCore};
use crate::clock::{self, Millis};
use crate::events::{Channel, ChannelId};
use crate::projections::action::Action;
use crate::projections::fact::Fact;
use crate::projections::mirror;

/// What follows: entries, and what the agent is told once they are durable.
pub type Following = (Vec<Entry>, Vec<Effect>);

/// What waits in the chat now.
pub fn of<'a>(core: &'a SessionCore, cell: &'a ChatCell) -> Waiting<'a> {
    let state = &cell.fold.state;
    Waiting {
        queued: state.queued_messages.iter().flatten().collect(),
        steering: state.steering_message.as_ref(),
        handed: cell.fold.handed.iter().collect(),
        running: state.active_turn.is_some(),
        paused: is_paused(core, cell),
        owes_resume: cell.fold.attempts.owed.is_some(),
        agent: takes(core, cell),
        limit: core.shared.settings.max_queued_messages,
    }
}

fn takes(core: &SessionCore, cell: &ChatCell) -> Takes {
    let steers = core.shared.agent(&core.fold.state.provider).is_some_and(|agent| agent.extras().steering);
    let turn = cell.fold.state.active_turn.as_ref().map(|turn| turn.id.as_str());
    match turn {
        _ if !steers => Takes::Never,
        Some(turn) if cell.takes_steering.as_deref() == Some(turn) => Takes::Now,
        _ => Takes::Later,
    }
}

/// What follows from `input`; nothing where it changes nothing. `accepted` is the person's own action.
///
/// # Errors
/// [`Refused`], for what a person asks.
pub fn follow<'a>(
    core: &'a SessionCore,
    cell: &'a ChatCell,
    input: Input<'a>,
    accepted: Option<Action>,
    at: Millis,
) -> Result<Following, Refused> {
    let steps = queue::decide(of(core, cell), input).inspect_err(count)?;
    let mut following = (Vec::new(), Vec::new());
    let mut accepted = accepted;
    for step in &steps {
        match step {
            Step::Accept => following.0.extend(accepted.take().map(Entry::Client)),
            step => add(core, cell, step, at, &mut following),
        }
    }
    Ok(following)
}

fn count(refused: &Refused) {
    if matches!(refused, Refused::Full(_)) {
        metrics::counter!("scrollback_limit_met_total", "limit" => "queued_messages").increment(1);
    }
}

fn add(core: &SessionCore, cell: &ChatCell, step: &Step<'_>, at: Millis, (entries, effects): &mut Following) {
    let running = cell.fold.state.active_turn.as_ref().map(|turn| turn.id.clone());
    match step {
        Step::Pause(paused) => entries.push(Entry::Pause(*paused)),
        Step::Stop => {
            entries.extend(ending::cancelled(&cell.fold, at).map(Entry::Host));
            entries.extend(ending::quiet(cell));
            effects.extend(running.map(|turn_id| Effect::Cancel { turn_id }));
        }
        Step::HandOver(message) => {
            entries.push(Entry::Fact(Fact::SteeringHanded {
                id: message.id.clone(),
                message: Box::new(message.message.clone()),
            }));
            effects.extend(running.map(|turn_id| Effect::Steer { turn_id, id: message.id.clone() }));
        }
        Step::Lapse => {
            let owed = cell.fold.attempts.owed.iter();
            let lapsed = owed.map(|owed| Entry::Fact(Fact::ResumeLapsed { turn_id: owed.turn_id.clone() }));
            entries.extend(lapsed);
        }
        Step::Settle(id) => entries.push(Entry::Fact(Fact::SteeringSettled { id: (*id).to_owned() })),
        Step::Begin(message) => {
            let turn_id = ulid::Ulid::new().to_string();
            entries.extend(step.action(&turn_id, &clock::rfc3339(at)).map(Entry::Host));
            entries.extend(turn_started::named(core, cell, &message.message));
            effects.push(Effect::Prompt { turn_id });
        }
        step => entries.extend(step.action("", "").map(Entry::Host)),
    }
}

fn is_paused(core: &SessionCore, cell: &ChatCell) -> bool {
    core.fold.paused_queues().iter().any(|chat| chat == cell.channel.as_str())
}

/// Lists the chat in the session's `_meta` among those whose queues are paused, or takes it off the list. A chat that goes is
/// taken off; one that comes back with messages waiting and no turn is paused.
pub fn list_paused(recording: &mut Recording<'_>, chat: &Channel, about: Option<ChannelId>, paused: bool) {
    let listed = recording.core.fold.paused_queues();
    if listed.iter().any(|one| one == chat.as_str()) == paused {
        return;
    }
    let mut chats = listed;
    chats.retain(|one| one != chat.as_str());
    if paused {
        chats.push(chat.to_string());
    }
    let mut meta = recording.core.fold.state.meta.clone().unwrap_or_default();
    meta.insert(mirror::PAUSED_QUEUES.into(), json!(chats));
    let changed = StateAction::SessionMetaChanged(SessionMetaChangedAction { meta: Some(meta) });
    recording.session_action(Action::host(changed), about, false);
}
