//! Actions and facts, each on a line of its own as JSON, folded into a chat, a session and the root.

use ahp::reducers::apply_action_to_chat;
use ahp_types::actions::StateAction;
use ahp_types::state::ChatState;
use scrollback::projections::action::Action;
use scrollback::projections::chat::{ChatFold, EndedTurn};
use scrollback::projections::fact::Fact;
use scrollback::projections::root::RootFold;
use scrollback::projections::session::SessionFold;
use scrollback::projections::{inputs, mirror, summary};
use serde::Serialize;
use serde_json::{Value, json};

/// One line of the input.
enum Step {
    Action(Box<Action>),
    Fact(Fact),
}

pub fn run(text: &str) {
    let story: Vec<Step> = text.lines().take(100).filter_map(step).collect();
    as_the_official_reducers_do(&story);
    a_checkpoint_and_the_rest_are_the_whole(&story, text.len());
    session_and_root(&story, text.len());
}

fn step(line: &str) -> Option<Step> {
    let json: Value = serde_json::from_str(line).ok()?;
    if let Ok(action) = Action::from_json(json) {
        is_stored(&action);
        return Some(Step::Action(Box::new(action)));
    }
    Fact::from_stored(line.as_bytes()).ok().map(Step::Fact)
}

/// An action that was accepted is read back from the log as it was, and so is one that the host makes of it.
fn is_stored(action: &Action) {
    let stored = Action::from_stored(action.bytes.clone()).expect("an accepted action is read back");
    assert_eq!(value(&stored.decoded), value(&action.decoded));
    let made = Action::host(action.decoded.clone());
    let stored = Action::from_stored(made.bytes).expect("a made action is read back");
    assert_eq!(value(&stored.decoded), value(&action.decoded));
}

fn value(of: &impl Serialize) -> Value {
    serde_json::to_value(of).expect("a state is JSON")
}

fn chat_state() -> ChatState {
    let state = json!({ "resource": "ahp-chat:/c", "title": "", "status": 1, "modifiedAt": "2026-11-30T12:00:00.000Z",
        "origin": { "kind": "user" }, "turns": [] });
    serde_json::from_value(state).unwrap()
}

fn session() -> SessionFold {
    let state = json!({ "provider": "demo", "title": "", "status": 1, "lifecycle": "ready", "activeClients": [],
        "chats": [mirror::summary_of(&chat_state())], "defaultChat": "ahp-chat:/c" });
    SessionFold::new(serde_json::from_value(state).unwrap(), "2026-11-30T12:00:00.000Z".into())
}

fn apply(fold: &mut ChatFold, step: &Step) -> Option<EndedTurn> {
    match step {
        Step::Action(action) => fold.apply(action, 7),
        Step::Fact(fact) => {
            fold.apply_fact(fact);
            None
        }
    }
}

/// Up to the first step that names rows of the store, a chat is what the official reducers make of it, with its last turn alone.
fn as_the_official_reducers_do(story: &[Step]) {
    let (mut whole, mut fold, mut rows) = (chat_state(), ChatFold::new(chat_state()), 0);
    for step in story {
        let Step::Action(action) = step else { continue };
        match &action.decoded {
            StateAction::ChatTruncated(_) | StateAction::ChatTurnResume(_) | StateAction::ChatTurnsLoaded(_) => break,
            StateAction::SessionTitleChanged(change) => whole.title.clone_from(&change.title),
            decoded => drop(apply_action_to_chat(&mut whole, decoded)),
        }
        rows += usize::from(fold.apply(action, 7).is_some());
        assert_eq!(rows, whole.turns.len(), "after {:?}", action.decoded);
    }
    whole.turns.drain(..whole.turns.len().saturating_sub(1));
    assert_eq!(value(&fold.state), value(&whole));
}

fn a_checkpoint_and_the_rest_are_the_whole(story: &[Step], length: usize) {
    let (mut whole, mut cut) = (ChatFold::new(chat_state()), ChatFold::new(chat_state()));
    for (at, step) in story.iter().enumerate() {
        let ended = apply(&mut whole, step);
        if at == length % story.len() {
            cut = ChatFold::from_checkpoint(&cut.to_checkpoint()).expect("a checkpoint is read back");
        }
        assert_eq!(apply(&mut cut, step), ended);
    }
    assert_eq!(value(&cut), value(&whole));
}

fn session_and_root(story: &[Step], length: usize) {
    let (mut chat, mut whole, mut cut) = (ChatFold::new(chat_state()), session(), session());
    let mut root = RootFold::new(serde_json::from_value(json!({ "agents": [] })).unwrap());
    let before = summary::of_session("ahp-session:/s", &whole);
    for (at, step) in story.iter().enumerate() {
        apply(&mut chat, step);
        if at == length % story.len() {
            cut = SessionFold::from_checkpoint(&cut.to_checkpoint()).expect("a checkpoint is read back");
        }
        match step {
            Step::Action(action) => {
                whole.apply(action);
                cut.apply(action);
                root.apply(action);
            }
            Step::Fact(fact) => {
                whole.apply_fact(fact);
                cut.apply_fact(fact);
                root.apply_fact(fact);
            }
        }
    }
    assert_eq!(value(&cut), value(&whole));
    let _ = summary::changes(&before, &summary::of_session("ahp-session:/s", &whole));
    let _ = (inputs::of_chat(&chat.state), root.to_checkpoint());
    for mirrored in mirror::of_chat(&whole.state, &chat.state, true) {
        is_stored(&Action::host(mirrored));
    }
}
