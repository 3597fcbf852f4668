//! Properties of the folds: what is kept apart (rows, a head, checkpoints, an index of parts, mirrors) is always what the
//! official reducers make of the whole story.
//!
//! Stories are random actions over few ids, so that they collide, come too late and go astray. Left out: what truncates and
//! resumes, whose folds need the named row first.

use ahp::reducers::{apply_action_to_chat, apply_action_to_session};
use ahp_types::actions::StateAction;
use ahp_types::state::{ChatState, SessionState, Turn};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use serde_json::{Value, json};

use super::action::Action;
use super::chat::{ChatFold, EndedTurn};
use super::fact::Fact;
use super::session::SessionFold;
use super::turns::{PageLimit, StoredTurn, at_ordinal};
use super::{inputs, mirror, replay, summary};
use crate::events::rows::TurnRow;

const CHAT: &str = "ahp-chat:/c";
const ALL: PageLimit = PageLimit { turns: u64::MAX, bytes: usize::MAX };

/// One action before it knows which turn runs: its kind, and three numbers for the details.
type Step = (u8, u8, u8, u8);

/// How many kinds of steps there are.
const KINDS: u8 = 28;

fn story(length: usize) -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec((0..KINDS, 0u8..6, any::<u8>(), any::<u8>()), 0..length)
}

/// Parts of few ids, and text for them and past them.
fn text_story(length: usize) -> impl Strategy<Value = Vec<Step>> {
    let kind = prop_oneof![Just(0u8), Just(1), Just(2), Just(3), Just(4), Just(5), Just(12), Just(24)];
    let weighted = prop_oneof![8 => 1u8..6, 1 => kind];
    proptest::collection::vec((weighted, 0u8..6, any::<u8>(), any::<u8>()), 0..length)
}

fn chat_state() -> ChatState {
    serde_json::from_value(
        json!({ "resource": CHAT, "title": "", "status": 1, "modifiedAt": "2026-11-30T12:00:00.000Z",
        "origin": { "kind": "user" }, "turns": [] }),
    )
    .unwrap()
}

fn session_state(chat: &ChatState) -> SessionState {
    let listed = mirror::summary_of(chat);
    serde_json::from_value(json!({ "provider": "demo", "title": "", "status": 1, "lifecycle": "ready",
        "activeClients": [], "chats": [listed], "defaultChat": CHAT }))
    .unwrap()
}

/// The steps as actions. Each start has a turn id of its own.
fn actions(story: &[Step]) -> Vec<Action> {
    let mut started = 0;
    let made = story.iter().map(|step| {
        if step.0 == 0 {
            started += 1;
        }
        Action::from_json(action(*step, started)).unwrap()
    });
    made.collect()
}

fn message(text: &str) -> Value {
    json!({ "text": text, "origin": { "kind": "user" } })
}

fn action((kind, a, b, c): Step, started: u32) -> Value {
    let turn = format!("t{started}");
    let id = format!("p{a}");
    let text = format!("{b} ");
    match kind {
        0 => json!({ "type": "chat/turnStarted", "turnId": turn, "startedAt": "2026-11-30T12:00:00.000Z",
            "message": message(&text) }),
        1 | 2 => {
            let kind = if kind == 1 { "markdown" } else { "reasoning" };
            json!({ "type": "chat/responsePart", "turnId": turn,
                "part": { "kind": kind, "id": id, "content": if b > 200 { "" } else { "begin " } } })
        }
        3 => json!({ "type": "chat/delta", "turnId": turn, "partId": id, "content": text }),
        4 => json!({ "type": "chat/reasoning", "turnId": turn, "partId": id, "content": text }),
        5 => {
            json!({ "type": "chat/toolCallStart", "turnId": turn, "toolCallId": id, "toolName": "n", "displayName": "N" })
        }
        6 => {
            let mut ready = json!({ "type": "chat/toolCallReady", "turnId": turn, "toolCallId": id,
                "invocationMessage": "runs" });
            if b % 2 == 0 {
                ready["confirmed"] = json!("not-needed");
            }
            ready
        }
        7 if b % 2 == 0 => {
            json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": id, "approved": true,
            "confirmed": "user-action" })
        }
        7 => json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": id, "approved": false,
            "reason": "denied" }),
        8 => json!({ "type": "chat/toolCallComplete", "turnId": turn, "toolCallId": id,
            "result": { "success": b % 2 == 0, "pastTenseMessage": "ran" },
            "requiresResultConfirmation": c % 3 == 0 }),
        9 => json!({ "type": "chat/inputRequested", "request": { "id": format!("r{}", a % 3),
            "questions": [{ "kind": "text", "id": "q", "message": text }] } }),
        10 => json!({ "type": "chat/inputAnswerChanged", "requestId": format!("r{}", a % 3), "questionId": "q",
            "answer": { "state": "draft", "value": { "kind": "text", "value": text } } }),
        11 => json!({ "type": "chat/inputCompleted", "requestId": format!("r{}", a % 3), "response": "cancel" }),
        12 => end(&turn, b),
        13 => json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": format!("m{}", a % 4),
            "message": message(&text) }),
        14 => json!({ "type": "chat/pendingMessageRemoved", "kind": "queued", "id": format!("m{}", a % 4) }),
        15 => {
            json!({ "type": "chat/queuedMessagesReordered", "order": [format!("m{}", a % 4), format!("m{}", b % 4)] })
        }
        16 if b % 3 == 0 => json!({ "type": "chat/draftChanged" }),
        16 => json!({ "type": "chat/draftChanged", "draft": message(&text) }),
        17 if b % 3 == 0 => json!({ "type": "chat/activityChanged" }),
        17 => json!({ "type": "chat/activityChanged", "activity": text }),
        18 => json!({ "type": "chat/isReadChanged", "isRead": b % 2 == 0 }),
        19 => json!({ "type": "chat/isArchivedChanged", "isArchived": b % 2 == 0 }),
        20 => json!({ "type": "chat/usage", "turnId": turn, "usage": { "inputTokens": b, "outputTokens": c } }),
        21 => json!({ "type": "session/titleChanged", "title": format!("title {b}") }),
        22 => json!({ "type": "chat/responsePart", "turnId": turn,
            "part": { "kind": "systemNotification", "content": text } }),
        23 => json!({ "type": "chat/movableChanged", "movable": b % 2 == 0 }),
        24 => json!({ "type": "chat/delta", "turnId": format!("t{}", u32::from(b) % (started + 2)), "partId": id,
            "content": text }),
        25 => json!({ "type": "chat/workingDirectorySet", "directory": format!("file:///d{}", a % 3) }),
        26 => json!({ "type": "chat/workingDirectoryRemoved", "directory": format!("file:///d{}", a % 3) }),
        _ => end(&format!("t{}", u32::from(c) % (started + 2)), b),
    }
}

fn end(turn: &str, how: u8) -> Value {
    let kind = ["chat/turnComplete", "chat/turnCancelled", "chat/error"][usize::from(how % 3)];
    json!({ "type": kind, "turnId": turn, "duration": how,
        "part": { "kind": "error", "error": { "errorType": "demo", "message": "broken" } } })
}

/// The chat as one who keeps every turn folds it.
fn plain(state: &mut ChatState, action: &Action) {
    if let StateAction::SessionTitleChanged(change) = &action.decoded {
        state.title.clone_from(&change.title);
    } else {
        apply_action_to_chat(state, &action.decoded);
    }
}

fn stored(rows: &[EndedTurn], n: u64) -> StoredTurn {
    let turn = &rows[usize::try_from(n).unwrap() - 1];
    StoredTurn { n, row: turn.row, json: turn.json.clone() }
}

fn spliced(fold: &ChatFold, rows: &[EndedTurn]) -> Value {
    let (text, _) = replay::chat_json(fold, ALL, |n| Ok(stored(rows, n))).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn json_of(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap()
}

fn rows_and_head_are_the_whole(story: &[Step]) -> Result<(), TestCaseError> {
    let (mut whole, mut fold, mut rows) = (chat_state(), ChatFold::new(chat_state()), Vec::new());
    for (at, action) in actions(story).iter().enumerate() {
        plain(&mut whole, action);
        rows.extend(fold.apply(action, 7));
        prop_assert!(fold.state.turns.len() <= 1);
        prop_assert_eq!(spliced(&fold, &rows), json_of(&whole), "after action {}: {:?}", at, action.decoded);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_and_head_are_the_full_official_fold_at_every_prefix(story in story(60)) {
        rows_and_head_are_the_whole(&story)?;
    }

    #[test]
    fn text_goes_where_the_official_reducer_puts_it(story in text_story(80)) {
        let begun = [vec![(0, 0, 0, 0)], story].concat();
        rows_and_head_are_the_whole(&begun)?;
    }

    #[test]
    fn a_chat_s_checkpoint_and_the_rest_are_the_whole_fold_at_every_cut(story in story(40)) {
        let actions = actions(&story);
        let mut whole = ChatFold::new(chat_state());
        let rows: Vec<EndedTurn> = actions.iter().filter_map(|action| whole.apply(action, 7)).collect();
        let mut before = ChatFold::new(chat_state());
        let mut ended = 0;
        for cut in 0..=actions.len() {
            let mut rest = ChatFold::from_checkpoint(&before.to_checkpoint()).unwrap();
            let rest_rows: Vec<EndedTurn> = actions[cut..].iter().filter_map(|action| rest.apply(action, 7)).collect();
            prop_assert_eq!(json_of(&rest), json_of(&whole), "cut at {}", cut);
            prop_assert_eq!(&rest_rows[..], &rows[ended..], "cut at {}", cut);
            if let Some(action) = actions.get(cut) {
                ended += usize::from(before.apply(action, 7).is_some());
            }
        }
    }

    #[test]
    fn a_session_s_mirrors_are_what_its_chat_says_and_are_said_once(story in story(60)) {
        let mut chat = ChatFold::new(chat_state());
        let mut session = session_state(&chat.state);
        for action in actions(&story) {
            chat.apply(&action, 7);
            for mirrored in mirror::of_chat(&session, &chat.state, true) {
                apply_action_to_session(&mut session, &mirrored);
            }
            prop_assert_eq!(json_of(&session.chats), json_of(&[mirror::summary_of(&chat.state)]), "{:?}", action.decoded);
            let wanted = inputs::of_chat(&chat.state);
            let listed: Vec<_> = session.input_needed.iter().flatten().collect();
            prop_assert_eq!(listed.len(), wanted.len(), "{:?}", action.decoded);
            prop_assert!(wanted.iter().all(|entry| listed.contains(&entry)), "{:?}", action.decoded);
            prop_assert!(chat.state.active_turn.is_some() || wanted.is_empty());
            prop_assert!(mirror::of_chat(&session, &chat.state, true).is_empty(), "said twice: {:?}", action.decoded);
        }
    }

    #[test]
    fn a_session_s_checkpoint_and_the_rest_are_the_whole_fold_at_every_cut(story in story(30)) {
        let mut chat = ChatFold::new(chat_state());
        let begin = SessionFold::new(session_state(&chat.state), "2026-11-30T12:00:00.000Z".into());
        let mut whole = begin.clone();
        let mut mirrored: Vec<Action> = Vec::new();
        for action in actions(&story) {
            chat.apply(&action, 7);
            for action in mirror::of_chat(&whole.state, &chat.state, true).into_iter().map(Action::host) {
                // As it is stored and read back.
                let action = Action::from_stored(action.bytes).unwrap();
                whole.apply(&action);
                mirrored.push(action);
            }
        }
        let mut before = begin;
        for cut in 0..=mirrored.len() {
            let mut rest = SessionFold::from_checkpoint(&before.to_checkpoint()).unwrap();
            mirrored[cut..].iter().for_each(|action| rest.apply(action));
            prop_assert_eq!(json_of(&rest), json_of(&whole), "cut at {}", cut);
            if let Some(action) = mirrored.get(cut) {
                before.apply(action);
            }
        }
    }

    #[test]
    fn the_changes_of_a_summary_lead_from_the_old_one_to_the_new(story in story(40)) {
        let mut chat = ChatFold::new(chat_state());
        let mut session = SessionFold::new(session_state(&chat.state), "2026-11-30T12:00:00.000Z".into());
        let mut held = json_of(&summary::of_session("ahp-session:/s", &session));
        for action in actions(&story) {
            chat.apply(&action, 7);
            let old = summary::of_session("ahp-session:/s", &session);
            for mirrored in mirror::of_chat(&session.state, &chat.state, true) {
                session.apply(&Action::host(mirrored));
            }
            let new = summary::of_session("ahp-session:/s", &session);
            for (key, value) in summary::changes(&old, &new).iter().flat_map(|changes| changes.as_object().unwrap()) {
                // An empty text stands for none: an absent field means "unchanged".
                if value == "" && key == "activity" {
                    held.as_object_mut().unwrap().remove(key);
                } else {
                    held[key] = value.clone();
                }
            }
            prop_assert_eq!(&held, &json_of(&new));
        }
    }

    #[test]
    fn jumps_lead_to_the_turn_whose_ordinal_lacks_the_lowest_bit(turns in 1u64..200) {
        let (mut fold, mut rows) = (ChatFold::new(chat_state()), Vec::new());
        for turn in 1..=turns {
            let started = u32::try_from(turn).unwrap();
            fold.apply(&Action::from_json(action((0, 0, 0, 0), started)).unwrap(), 7);
            rows.extend(fold.apply(&Action::from_json(end(&format!("t{turn}"), 0)).unwrap(), 7));
            if turn % 7 == 0 {
                fold = ChatFold::from_checkpoint(&fold.to_checkpoint()).unwrap();
            }
        }
        for (row, ordinal) in rows.iter().map(|turn| turn.row).zip(1..) {
            let expected = TurnRow { prev: ordinal - 1, jump: ordinal & (ordinal - 1), ordinal, rewindable: false };
            prop_assert_eq!(row, expected);
        }
        prop_assert_eq!((fold.head(), fold.ordinal()), (turns, turns));
    }

    #[test]
    fn a_turn_is_found_by_its_ordinal_on_any_branch_in_few_reads(parents in proptest::collection::vec(any::<u16>(), 1..150)) {
        let rows = branches(&parents);
        for head in 1..=rows.len() as u64 {
            let path = path(&rows, head);
            for ordinal in 0..=path.len() as u64 + 2 {
                let mut reads = 0;
                let found = at_ordinal(head, ordinal, |n| {
                    reads += 1;
                    Ok(StoredTurn { n, row: rows[n as usize - 1], json: Vec::new() })
                });
                let expected = ordinal.checked_sub(1).and_then(|at| path.get(at as usize)).copied();
                prop_assert_eq!(found.unwrap(), expected, "from {} to {}", head, ordinal);
                // A step back by one may set every lower bit again; at each step one more row is looked at.
                let bits = u64::BITS - (path.len() as u64).leading_zeros();
                prop_assert!(reads <= bits * (bits + 1) + 2, "{} reads among {} turns", reads, path.len());
            }
        }
    }

    #[test]
    fn facts_are_read_back_as_they_were_stored(which in 0u8..8, text in ".{0,40}", story in story(30)) {
        let fact = fact(which, &text, &story);
        let bytes = fact.bytes();
        let back = Fact::from_stored(&bytes).unwrap();
        prop_assert_eq!(json_of(&back), json_of(&fact));
        // Keys of maps have no order of their own.
        prop_assert_eq!(serde_json::from_slice::<Value>(&back.bytes()).unwrap(), serde_json::from_slice::<Value>(&bytes).unwrap());
    }

    #[test]
    fn any_bytes_are_a_fact_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Fact::from_stored(&bytes);
    }
}

/// A tree of turns: the n-th goes on from the one before it, or from one on that one's branch, or from none.
fn branches(parents: &[u16]) -> Vec<TurnRow> {
    let mut rows: Vec<TurnRow> = Vec::new();
    for parent in parents {
        // Mostly the newest, so that branches grow long.
        let newest = rows.len() as u64;
        let mut path = path(&rows, newest);
        if parent % 4 == 0 {
            path.truncate(usize::from(*parent / 4) % (path.len() + 1));
        }
        let prev = path.last().copied().unwrap_or(0);
        let ordinal = path.len() as u64 + 1;
        let target = ordinal & (ordinal - 1);
        let jump = target.checked_sub(1).map_or(0, |at| path[at as usize]);
        rows.push(TurnRow { prev, jump, ordinal, rewindable: false });
    }
    rows
}

/// The turns of a branch, oldest first.
fn path(rows: &[TurnRow], head: u64) -> Vec<u64> {
    let before = |n: &u64| Some(rows[*n as usize - 1].prev).filter(|n| *n != 0);
    let mut path: Vec<u64> = std::iter::successors(Some(head).filter(|n| *n != 0), before).collect();
    path.reverse();
    path
}

fn fact(which: u8, text: &str, story: &[Step]) -> Fact {
    let mut chat = chat_state();
    actions(story).iter().for_each(|action| plain(&mut chat, action));
    let text = text.to_owned();
    match which {
        0 => Fact::SessionCreated { created_at: text, state: Box::new(session_state(&chat)) },
        1 => Fact::SessionDisposed,
        2 => Fact::ChatCreated { session: text, state: Box::new(chat), fork: None, context: None },
        3 => Fact::Remembered { key: text.clone(), value: json!({ "deep": [text, null, 1.5] }) },
        4 => Fact::Conversation { id: text },
        5 => Fact::RewindPoint { turn_id: text.clone(), point: text },
        6 => Fact::Client { client_id: text, client: json_of(&chat) },
        _ => Fact::RootCreated { state: Box::new(serde_json::from_value(json!({ "agents": [] })).unwrap()) },
    }
}

#[test]
fn a_story_ends_turns_and_fills_them() {
    // The properties above say little when their stories say nothing.
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut ended, mut parts) = (0, 0);
    for _ in 0..50 {
        let story = story(60).new_tree(&mut runner).unwrap().current();
        let mut fold = ChatFold::new(chat_state());
        for turn in actions(&story).iter().filter_map(|action| fold.apply(action, 7)) {
            ended += 1;
            parts += serde_json::from_slice::<Turn>(&turn.json).unwrap().response_parts.len();
        }
    }
    assert!(ended > 20 && parts > 20, "{ended} turns ended, with {parts} parts");
}
