//! What the law promises, whatever people, turns and agents do: its steps, folded by the official reducer, are what waits, and
//! a plain model that knows ids alone says the same.

use std::collections::BTreeMap;

use ahp::reducers::{ReduceOutcome, apply_action_to_chat};
use ahp_types::state::ChatState;
use proptest::prelude::*;
use serde_json::json;

use super::*;

const LIMIT: usize = 6;

fn message(id: &str, text: &str) -> PendingMessage {
    serde_json::from_value(json!({ "id": id, "message": { "text": text, "origin": { "kind": "user" } } })).unwrap()
}

/// The chat as folds have it.
#[derive(Clone)]
struct Chat {
    state: ChatState,
    handed: Vec<PendingMessage>,
    resumed: bool,
    paused: bool,
    owes_resume: bool,
    agent: Takes,
}

impl Chat {
    fn new(agent: Takes) -> Self {
        let state = json!({ "resource": "ahp-chat:/c", "title": "", "status": 1,
            "modifiedAt": "2026-11-30T12:00:00.000Z", "origin": { "kind": "user" }, "turns": [] });
        let state = serde_json::from_value(state).unwrap();
        Self { state, handed: Vec::new(), resumed: false, paused: false, owes_resume: false, agent }
    }

    fn waiting(&self) -> Waiting<'_> {
        Waiting {
            queued: self.state.queued_messages.iter().flatten().collect(),
            steering: self.state.steering_message.as_ref(),
            handed: self.handed.iter().collect(),
            running: self.state.active_turn.is_some(),
            paused: self.paused,
            owes_resume: self.owes_resume,
            agent: self.agent,
            limit: LIMIT,
        }
    }

    fn reduce(&mut self, action: &StateAction) {
        assert_eq!(apply_action_to_chat(&mut self.state, action), ReduceOutcome::Applied, "{action:?}");
    }

    fn end(&mut self) {
        let turn_id = self.state.active_turn.as_ref().unwrap().id.clone();
        let end = json!({ "type": "chat/turnCancelled", "turnId": turn_id, "duration": 0 });
        self.reduce(&serde_json::from_value(end).unwrap());
        self.handed.clear();
        self.resumed = false;
    }

    fn begin(&mut self, turn_id: &str) {
        let started = json!({ "type": "chat/turnStarted", "turnId": turn_id, "startedAt": "2026-11-30T12:00:00.000Z",
            "message": message("", "").message });
        self.reduce(&serde_json::from_value(started).unwrap());
    }

    /// Folds one step, as the host does.
    fn fold(&mut self, step: &Step<'_>, accepted: &Option<StateAction>, turn_id: &str) {
        match step {
            Step::Accept => match accepted {
                Some(action) => self.reduce(action),
                None => self.begin(turn_id),
            },
            Step::Pause(paused) => self.paused = *paused,
            Step::Stop => self.end(),
            Step::HandOver(message) => {
                self.handed.push((*message).clone());
                self.agent = Takes::Later;
            }
            Step::Settle(id) => self.handed.retain(|message| message.id != *id),
            Step::Lapse => self.owes_resume = false,
            step => {
                let action = step.action(turn_id, "2026-11-30T12:00:00.000Z").unwrap();
                self.reduce(&action);
            }
        }
    }
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    WentOut,
    Taken,
    TakenBack,
    Replaced,
    Cleared,
}

/// What should be, in ids.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    queue: Vec<String>,
    slot: Option<String>,
    handed: Vec<String>,
    running: bool,
    /// Somebody has to lift the pause, if there is anything to wait.
    held: bool,
    fates: BTreeMap<String, Fate>,
    begun: Vec<String>,
}

impl Model {
    fn fate(&mut self, id: String, fate: Fate) {
        let before = self.fates.insert(id.clone(), fate);
        assert_eq!(before, None, "{id} has a second fate: {fate:?}");
    }

    fn go(&mut self) {
        if !self.running && !self.held && !self.queue.is_empty() {
            let id = self.queue.remove(0);
            self.begun.push(id.clone());
            self.fate(id, Fate::WentOut);
            self.running = true;
        }
    }

    fn ends(&mut self, place: usize) {
        self.running = false;
        let left: Vec<String> = self.handed.drain(..).chain(self.slot.take()).collect();
        self.queue.splice(place..place, left);
    }

    /// Hands the slot's message over to an agent that waits for one.
    fn take(&mut self, agent: Takes) {
        if agent == Takes::Now {
            self.handed.extend(self.slot.take());
        }
    }

    /// Every message that was ever accepted is in one place or has a fate, and not both.
    fn places(&self, id: &str) -> usize {
        let in_queue = self.queue.iter().filter(|one| *one == id).count();
        let handed = self.handed.iter().filter(|one| *one == id).count();
        in_queue + handed + usize::from(self.slot.as_deref() == Some(id)) + usize::from(self.fates.contains_key(id))
    }
}

/// A story under way.
struct Story {
    chat: Chat,
    model: Model,
    /// The text that each message should go out with.
    texts: BTreeMap<String, String>,
    names: usize,
}

type Happening = (u8, u8, u8);

impl Story {
    fn new(steers: bool) -> Self {
        let agent = if steers { Takes::Later } else { Takes::Never };
        Self { chat: Chat::new(agent), model: Model::default(), texts: BTreeMap::new(), names: 0 }
    }

    fn name(&mut self, what: &str) -> String {
        self.names += 1;
        format!("{what}{}", self.names)
    }

    fn queued(&self, which: u8) -> String {
        let at = usize::from(which) % (self.model.queue.len() + 1);
        self.model.queue.get(at).cloned().unwrap_or_else(|| "nobody".into())
    }

    fn used(&self, which: u8) -> String {
        let used: Vec<&String> = self.texts.keys().collect();
        used.get(usize::from(which) % used.len().max(1)).map_or_else(|| "m0".into(), |id| (*id).clone())
    }

    fn set(&mut self, kind: PendingMessageKind, id: &str, text: &str) {
        let set = message(id, text);
        let used = self.texts.contains_key(id);
        let fits = self.may_set(kind, id, used);
        let action = ChatPendingMessageSetAction { kind, id: id.into(), message: set.message.clone() };
        let input = match kind {
            PendingMessageKind::Queued => Input::Queue { message: &set, used },
            PendingMessageKind::Steering => Input::Steer { message: &set, used },
        };
        let agent = self.chat.agent;
        assert_eq!(self.happens(input, Some(StateAction::ChatPendingMessageSet(action))), fits, "{kind:?} {id}");
        if !fits {
            return;
        }
        self.texts.insert(id.into(), text.into());
        let model = &mut self.model;
        match kind {
            PendingMessageKind::Queued if !model.queue.iter().any(|one| one == id) => {
                model.slot.take_if(|slot| slot == id);
                model.queue.push(id.into());
                model.held = false;
                model.go();
            }
            PendingMessageKind::Queued => {}
            PendingMessageKind::Steering => {
                model.queue.retain(|one| one != id);
                let old = model.slot.replace(id.into());
                if let Some(old) = old.filter(|old| old != id) {
                    model.fate(old, Fate::Replaced);
                }
                model.take(agent);
            }
        }
    }

    fn may_set(&self, kind: PendingMessageKind, id: &str, used: bool) -> bool {
        let model = &self.model;
        let queued = model.queue.iter().any(|one| one == id);
        let known = !used || queued || model.slot.as_deref() == Some(id);
        match kind {
            PendingMessageKind::Queued => known && (queued || model.queue.len() < LIMIT),
            PendingMessageKind::Steering => known && model.running && self.chat.agent != Takes::Never,
        }
    }

    fn take_back(&mut self, kind: PendingMessageKind, id: &str) {
        let waits = match kind {
            PendingMessageKind::Queued => self.model.queue.iter().any(|one| one == id),
            PendingMessageKind::Steering => self.model.slot.as_deref() == Some(id),
        };
        let removed = ChatPendingMessageRemovedAction { kind, id: id.into() };
        let action = StateAction::ChatPendingMessageRemoved(removed);
        assert_eq!(self.happens(Input::TakeBack { kind, id }, Some(action)), waits);
        if waits {
            self.model.queue.retain(|one| one != id);
            self.model.slot.take_if(|slot| slot == id);
            self.model.fate(id.into(), Fate::TakenBack);
        }
    }

    fn order(&mut self, a: u8, b: u8) {
        let mut wanted: Vec<String> = (0..b % 4).map(|n| self.queued(a.wrapping_mul(n + 1).wrapping_add(b))).collect();
        wanted.push(self.used(a));
        let fits = self.happens(Input::Order(&wanted), None);
        assert_eq!(fits, !self.model.queue.is_empty());
        let mut first: Vec<String> = Vec::new();
        for id in wanted {
            if self.model.queue.contains(&id) && !first.contains(&id) {
                first.push(id);
            }
        }
        self.model.queue.retain(|id| !first.contains(id));
        self.model.queue.splice(0..0, first);
    }

    fn send_now(&mut self, id: &str) {
        let waits = self.model.queue.iter().any(|one| one == id);
        assert_eq!(self.happens(Input::SendNow { id }, None), waits);
        if waits {
            self.model.queue.retain(|one| one != id);
            self.model.queue.insert(0, id.into());
            if self.model.running {
                self.model.ends(1);
            }
            self.model.held = false;
            self.model.go();
            assert_eq!(self.model.begun.last().map(String::as_str), Some(id));
        }
    }

    fn ends(&mut self, completes: bool) {
        if !self.model.running {
            return;
        }
        let end = match completes {
            true if self.chat.resumed => End::ResumedComplete,
            true => End::Complete,
            false => End::Other,
        };
        self.happens(Input::Ended(end), None);
        self.model.ends(0);
        match end {
            End::Complete => {}
            End::ResumedComplete => self.model.held = false,
            End::Other => self.model.held = !self.model.queue.is_empty(),
        }
        self.model.go();
    }

    fn takes(&mut self) {
        if self.model.running && self.chat.agent != Takes::Never {
            self.chat.agent = Takes::Now;
            self.happens(Input::AgentTakes, None);
            self.model.take(Takes::Now);
        }
    }

    fn taken(&mut self, which: u8) {
        let at = usize::from(which) % (self.model.handed.len() + 1);
        let id = self.model.handed.get(at).cloned().unwrap_or_else(|| "never handed".into());
        self.happens(Input::Taken { id: &id }, None);
        if at < self.model.handed.len() {
            self.model.handed.remove(at);
            self.model.fate(id, Fate::Taken);
        }
    }

    fn taken_up(&mut self) {
        if self.model.running {
            self.happens(Input::TakenUp, None);
            if self.chat.agent == Takes::Now {
                self.chat.agent = Takes::Later;
            }
            let handed: Vec<String> = self.model.handed.drain(..).collect();
            self.model.queue.splice(0..0, handed);
        }
    }

    fn clear(&mut self) {
        self.happens(Input::Clear, None);
        let model = &mut self.model;
        model.running = false;
        let gone: Vec<String> = model.queue.drain(..).chain(model.slot.take()).chain(model.handed.drain(..)).collect();
        gone.into_iter().for_each(|id| model.fate(id, Fate::Cleared));
    }

    fn start(&mut self) {
        let free = !self.model.running;
        assert_eq!(self.happens(Input::Start, None), free);
        if free {
            self.model.running = true;
            self.model.held = false;
        }
    }

    fn step(&mut self, (what, a, b): Happening) {
        use PendingMessageKind::{Queued, Steering};
        let (new, text) = (self.name("m"), self.name("text "));
        let slot = self.model.slot.clone().unwrap_or_else(|| "nobody".into());
        match what % 26 {
            0..=4 => self.set(Queued, &new, &text),
            5 => self.set(Queued, &self.queued(a), &text),
            6..=7 => self.set(Steering, &new, &text),
            8 => self.set(Steering, &slot, &text),
            9 => self.set(Steering, &self.queued(a), &text),
            10 => self.set(Queued, &slot, &text),
            11 => self.set(if b % 2 == 0 { Queued } else { Steering }, &self.used(a), &text),
            12 => self.take_back(Queued, &self.queued(a)),
            13 => self.take_back(Steering, &slot),
            14 => self.order(a, b),
            15 => self.start(),
            16 => self.send_now(&self.queued(a)),
            17..=18 => self.ends(true),
            19..=20 => self.ends(false),
            21 => self.takes(),
            22 => self.taken(a),
            23 => self.taken_up(),
            24 if a % 8 == 0 => self.clear(),
            24 => self.chat.owes_resume = !self.model.running,
            // A resume is for others to decide: it touches nothing that waits.
            _ if !self.model.running => {
                self.chat.begin(&new);
                (self.chat.resumed, self.model.running) = (true, true);
            }
            _ => {}
        }
        self.model.held &= !self.model.queue.is_empty();
        self.holds();
    }

    /// Decides and folds. Whether it was not refused.
    fn happens(&mut self, input: Input<'_>, accepted: Option<StateAction>) -> bool {
        let before = self.chat.clone();
        let sends = matches!(input, Input::Start | Input::SendNow { .. } | Input::Clear);
        let Ok(law) = decided(before.waiting(), input.clone()) else { return false };
        let turn_id = self.name("t");
        if matches!(input, Input::Ended(_)) {
            self.chat.end();
        }
        let mut left: Option<Step<'_>> = None;
        for step in &law.steps {
            match step {
                Step::Begin(next) => {
                    assert_eq!(left, Some(Step::Remove(PendingMessageKind::Queued, &next.id)));
                    let text = self.texts.get(&next.id).or(match &accepted {
                        Some(StateAction::ChatPendingMessageSet(set)) => Some(&set.message.text),
                        _ => None,
                    });
                    assert_eq!(Some(&next.message.text), text, "an old edit of {} goes out", next.id);
                }
                Step::HandOver(next) => {
                    assert_eq!(left, Some(Step::Remove(PendingMessageKind::Steering, &next.id)));
                }
                Step::Order(ids) => {
                    assert_eq!(ids.len(), self.chat.waiting().queued.len(), "an order without every id");
                }
                _ => {}
            }
            if !matches!(step, Step::Pause(_)) {
                left = Some(step.clone());
            }
            self.chat.fold(step, &accepted, &turn_id);
        }
        assert!(!(sends && self.chat.owes_resume), "an owed resume outlives what was sent");
        let mut folded = self.chat.waiting();
        folded.agent = law.now.agent;
        assert_eq!(folded, law.now);
        true
    }

    /// What must be true at every moment.
    fn holds(&self) {
        let (waiting, model) = (self.chat.waiting(), &self.model);
        let ids = |messages: &[&PendingMessage]| messages.iter().map(|m| m.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&waiting.queued), model.queue);
        assert_eq!(waiting.steering.map(|m| m.id.clone()), model.slot);
        assert_eq!(ids(&waiting.handed), model.handed);
        assert_eq!(waiting.running, model.running);
        assert_eq!(waiting.paused, model.held, "paused, and nothing holds it up, or the other way round");
        assert!(!waiting.paused || !model.queue.is_empty(), "an empty queue is paused");
        if !model.running {
            assert!(model.slot.is_none() && model.handed.is_empty(), "something waits for a turn that is over");
            assert!(model.held || model.queue.is_empty(), "the queue stands still and is not paused");
        }
        for id in self.texts.keys() {
            assert_eq!(model.places(id), 1, "{id} is lost or there twice: {model:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_waits_is_never_lost_nor_sent_twice_nor_out_of_order(
        steers in any::<bool>(),
        story in proptest::collection::vec(any::<Happening>(), 0..120),
    ) {
        let mut under_way = Story::new(steers || story.len() % 2 == 0);
        for happening in story {
            under_way.step(happening);
        }
    }
}
