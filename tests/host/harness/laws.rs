//! What must hold of a whole log, whoever wrote it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use scrollback::events::{Kind, ServerSeq, Store};
use scrollback::projections::inputs::id_and_chat;
use scrollback::projections::replay;
use scrollback::projections::session::SessionFold;
use serde_json::Value;

use super::is_ending;

/// The turns of a chat as its log tells them.
#[derive(Default)]
struct Turns {
    running: Option<String>,
    seen: BTreeSet<String>,
    /// It began with turns of another chat, the last of which may be taken up.
    is_fork: bool,
    /// The ids that are queued, and the one in the slot.
    queued: BTreeSet<String>,
    steering: Option<String>,
    /// The queued messages whose turns began.
    went_out: BTreeSet<String>,
    /// What happened to turns, for the message of a failure.
    story: Vec<String>,
}

/// Reads the line and checks, batch by batch, that no chat ever has two running turns, that every turn ends once (and again
/// where it was resumed), that no message goes out twice, and that in a chat without a running turn nothing waits for an
/// answer, the slot is empty, and the queue is empty or paused. Returns the turns that run at its end.
pub fn check(store: &dyn Store) -> Vec<String> {
    let mut chats: BTreeMap<String, Turns> = BTreeMap::new();
    let mut sessions: BTreeMap<String, Option<replay::At<SessionFold>>> = BTreeMap::new();
    let visit = &mut |record: scrollback::events::Record| {
        let channel = record.channel.to_string();
        if channel.starts_with("ahp-session:") {
            replay::step(sessions.entry(channel).or_default(), &record).unwrap();
        } else if record.kind == Kind::Action {
            let action: Value = serde_json::from_slice(&record.action).unwrap();
            turn(chats.entry(channel.clone()).or_default(), &action, record.seq);
            message(chats.entry(channel).or_default(), &action, record.seq);
        } else {
            let fact: Value = serde_json::from_slice(&record.action).unwrap();
            chats.entry(channel).or_default().is_fork |= fact["state"]["origin"]["kind"] == "fork";
        }
        if record.seq == record.batch.1 {
            nothing_outlives_its_turn(&chats, &sessions, record.seq);
            what_waits_is_paused(&chats, &sessions, record.seq);
        }
        ControlFlow::Continue(())
    };
    store.scan(0, ServerSeq::MAX, visit).unwrap();
    chats.into_values().filter_map(|turns| turns.running).collect()
}

/// The ids of every chat's turns, oldest first, as rewinds and forks leave them: told from the actions and the origins alone, by
/// somebody who knows nothing of how the host keeps them.
pub fn branches(store: &dyn Store) -> BTreeMap<String, Vec<String>> {
    let mut chats: BTreeMap<String, Vec<String>> = BTreeMap::new();
    // By chat and turn, what led to it, itself at the end.
    let mut paths: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    let visit = &mut |record: scrollback::events::Record| {
        let channel = record.channel.to_string();
        let said: Value = serde_json::from_slice(&record.action).unwrap();
        match said["type"].as_str().unwrap() {
            "host/chatCreated" => {
                let origin = &said["state"]["origin"];
                let from = |key: &str| origin[key].as_str().unwrap_or_default().to_owned();
                let path = match origin["kind"] == "fork" {
                    true => paths[&(from("chat"), from("turnId"))].clone(),
                    false => Vec::new(),
                };
                for (at, turn) in path.iter().enumerate() {
                    paths.insert((channel.clone(), turn.clone()), path[..=at].to_vec());
                }
                chats.insert(channel, path);
            }
            "chat/truncated" => {
                let path = chats.get_mut(&channel).unwrap();
                let kept = said["turnId"].as_str().map_or(0, |turn| 1 + path.iter().position(|t| t == turn).unwrap());
                path.truncate(kept);
            }
            // It is taken up: it ends once more.
            "chat/turnResume" => drop(chats.get_mut(&channel).unwrap().pop()),
            _ if is_ending(&said) && record.kind == Kind::Action => {
                let turn = said["turnId"].as_str().unwrap().to_owned();
                let path = chats.get_mut(&channel).unwrap();
                path.push(turn.clone());
                paths.insert((channel, turn), path.clone());
            }
            _ => {}
        }
        ControlFlow::Continue(())
    };
    store.scan(0, ServerSeq::MAX, visit).unwrap();
    chats
}

fn turn(turns: &mut Turns, action: &Value, seq: ServerSeq) {
    let id = action["turnId"].as_str().unwrap_or_default().to_owned();
    if !id.is_empty() {
        turns.story.push(format!("{seq} {} {id}", action["type"]));
    }
    let story = || turns.story.iter().rev().take(12).cloned().collect::<Vec<_>>();
    if action["type"] == "chat/turnStarted" {
        assert_eq!(turns.running, None, "event {seq}: a turn starts over another: {action}: {:?}", story());
        assert!(turns.seen.insert(id.clone()), "event {seq}: a turn id comes twice: {action}");
        turns.running = Some(id);
    } else if action["type"] == "chat/turnResume" {
        assert_eq!(turns.running, None, "event {seq}: a turn is resumed over another: {action}: {:?}", story());
        let ran = turns.seen.contains(&id) || turns.is_fork;
        assert!(ran, "event {seq}: what is resumed never ran: {action}");
        turns.running = Some(id);
    } else if action["type"] == "chat/truncated" {
        assert_eq!(turns.running, None, "event {seq}: a rewind drops a turn that runs: {:?}", story());
    } else if is_ending(action) {
        assert_eq!(turns.running, Some(id), "event {seq}: what ends does not run: {action}: {:?}", story());
        turns.running = None;
    }
}

fn nothing_outlives_its_turn(
    chats: &BTreeMap<String, Turns>,
    sessions: &BTreeMap<String, Option<replay::At<SessionFold>>>,
    seq: ServerSeq,
) {
    for entry in sessions.values().flatten().flat_map(|at| at.fold.state.input_needed.iter().flatten()) {
        let chat = id_and_chat(entry).unwrap().1;
        let runs = chats.get(chat).is_some_and(|turns| turns.running.is_some());
        assert!(runs, "event {seq}: {chat} waits for an answer and no turn runs in it");
    }
}

fn message(chat: &mut Turns, action: &Value, seq: ServerSeq) {
    let id = || action["id"].as_str().unwrap_or_default().to_owned();
    let is_queued = action["kind"] == "queued";
    match action["type"].as_str().unwrap_or_default() {
        "chat/pendingMessageSet" if is_queued => drop(chat.queued.insert(id())),
        "chat/pendingMessageSet" => chat.steering = Some(id()),
        "chat/pendingMessageRemoved" if is_queued => assert!(chat.queued.remove(&id()), "event {seq}: {action}"),
        "chat/pendingMessageRemoved" => assert_eq!(chat.steering.take(), Some(id()), "event {seq}"),
        "chat/turnStarted" => {
            if let Some(queued) = action["queuedMessageId"].as_str() {
                assert!(!chat.queued.contains(queued), "event {seq}: {queued} goes out and waits on");
                assert!(chat.went_out.insert(queued.to_owned()), "event {seq}: {queued} goes out again");
            }
        }
        _ => {}
    }
}

fn what_waits_is_paused(
    chats: &BTreeMap<String, Turns>,
    sessions: &BTreeMap<String, Option<replay::At<SessionFold>>>,
    seq: ServerSeq,
) {
    for fold in sessions.values().flatten().map(|at| &at.fold).filter(|fold| !fold.disposed) {
        let paused = fold.paused_queues();
        for chat in fold.state.chats.iter().map(|chat| &chat.resource) {
            let Some(turns) = chats.get(chat) else { continue };
            let is_paused = paused.contains(chat);
            assert!(!(is_paused && turns.queued.is_empty()), "event {seq}: {chat}: an empty queue is paused");
            if turns.running.is_none() {
                assert_eq!(turns.steering, None, "event {seq}: {chat}: the slot outlives its turn");
                assert_eq!(is_paused, !turns.queued.is_empty(), "event {seq}: {chat}: nobody sends what is queued");
            }
        }
    }
}
