//! What must hold of a whole log, whoever wrote it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use ahp_types::state::{ChatInteractivity, ChatOrigin};
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

/// What the sessions are by an event of the line.
type Sessions = BTreeMap<String, Option<replay::At<SessionFold>>>;

/// What one batch says of where chats are.
#[derive(Default)]
struct Places {
    /// The session that each chat is in, or was closed in.
    homes: BTreeMap<String, String>,
    /// Chats that the batch has records of.
    touched: BTreeSet<String>,
    /// The chats that it closes, and the sessions that it disposes.
    closed: BTreeSet<String>,
}

/// Reads the line and checks, batch by batch, that no chat ever has two running turns, that every turn ends once (and again
/// where it was resumed), that no message goes out twice, that in a chat without a running turn nothing waits for an answer,
/// the slot is empty, and the queue is empty or paused, that chats work in directories of their sessions, that all but the
/// default chat may be moved, and that nothing happens in what is closed. Returns the turns that run at its end.
pub fn check(store: &dyn Store) -> Vec<String> {
    check_after_erasures(store, &BTreeSet::new())
}

/// The same of a log from which these sessions and chats were erased.
pub fn check_after_erasures(store: &dyn Store, erased: &BTreeSet<String>) -> Vec<String> {
    let mut chats: BTreeMap<String, Turns> = BTreeMap::new();
    let mut sessions = Sessions::new();
    let mut places = Places::default();
    let visit = &mut |record: scrollback::events::Record| {
        let channel = record.channel.to_string();
        assert!(!erased.contains(&channel), "event {}: {channel} was erased", record.seq);
        let said: Value = serde_json::from_slice(&record.action).unwrap();
        places.after(&channel, &said);
        if channel.starts_with("ahp-session:") {
            replay::step(sessions.entry(channel).or_default(), &record).unwrap();
        } else if record.kind == Kind::Action {
            turn(chats.entry(channel.clone()).or_default(), &said, record.seq);
            message(chats.entry(channel).or_default(), &said, record.seq);
        } else {
            chats.entry(channel).or_default().is_fork |= said["state"]["origin"]["kind"] == "fork";
        }
        if record.seq == record.batch.1 {
            nothing_outlives_its_turn(&chats, &sessions, erased, record.seq);
            what_waits_is_paused(&chats, &sessions, record.seq);
            chats_fit_their_sessions(&sessions, record.seq);
            places.nothing_happens_in_what_is_closed(&sessions, erased, record.seq);
        }
        ControlFlow::Continue(())
    };
    store.scan(0, ServerSeq::MAX, visit).unwrap();
    chats.into_values().filter_map(|turns| turns.running).collect()
}

/// By chat and turn, what led to it, itself at the end.
pub type Paths = BTreeMap<(String, String), Vec<String>>;

/// The turns that a log tells of.
pub struct Branches {
    /// The ids of every chat's turns, oldest first.
    pub chats: BTreeMap<String, Vec<String>>,
    pub paths: Paths,
}

/// The ids of every chat's turns, oldest first, as rewinds and forks leave them: told from the actions and the origins alone, by
/// somebody who knows nothing of how the host keeps them. `erased` is what was told of chats that are not in the log any more.
pub fn branches(store: &dyn Store, erased: &Paths) -> Branches {
    let mut chats: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut paths = erased.clone();
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
                let place = |turn| {
                    let place = path.iter().position(|t| t == turn);
                    1 + place.unwrap_or_else(|| panic!("event {}: {channel} has {path:?}: {said}", record.seq))
                };
                let kept = said["turnId"].as_str().map_or(0, place);
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
    Branches { chats, paths }
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
    sessions: &Sessions,
    erased: &BTreeSet<String>,
    seq: ServerSeq,
) {
    for entry in sessions.values().flatten().flat_map(|at| at.fold.state.input_needed.iter().flatten()) {
        let Some((_, chat)) = id_and_chat(entry) else { panic!("event {seq}: what is this: {entry:?}") };
        if erased.contains(chat) {
            continue;
        }
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

fn open(sessions: &Sessions) -> impl Iterator<Item = &SessionFold> {
    sessions.values().flatten().map(|at| &at.fold).filter(|fold| !fold.disposed)
}

fn chats_fit_their_sessions(sessions: &Sessions, seq: ServerSeq) {
    for state in open(sessions).map(|fold| &fold.state) {
        let listed: Vec<&String> = state.working_directories.iter().flatten().collect();
        for chat in &state.chats {
            let mut own = chat.working_directories.iter().flatten();
            assert!(own.all(|own| listed.contains(&own)), "event {seq}: {listed:?} are not all of {chat:?}");
            let is_default = state.default_chat.as_deref() == Some(&chat.resource);
            let moves = chat.movable.unwrap_or(false);
            let peoples = chat.interactivity.is_none_or(|how| how == ChatInteractivity::Full)
                && !matches!(chat.origin, Some(ChatOrigin::Tool { .. }));
            assert_eq!(moves, peoples && !is_default, "event {seq}: who may move {chat:?}?");
        }
    }
}

impl Places {
    fn after(&mut self, channel: &str, said: &Value) {
        let text = |key: &str| said[key].as_str().unwrap_or_default().to_owned();
        match said["type"].as_str().unwrap() {
            "host/chatCreated" | "host/chatMoved" => drop(self.homes.insert(channel.to_owned(), text("session"))),
            "session/chatRemoved" => drop(self.closed.insert(text("chat"))),
            "host/sessionDisposed" => drop(self.closed.insert(channel.to_owned())),
            _ => {}
        }
        if channel.starts_with("ahp-chat:") {
            self.touched.insert(channel.to_owned());
        }
    }

    /// At the end of a batch.
    fn nothing_happens_in_what_is_closed(&mut self, sessions: &Sessions, erased: &BTreeSet<String>, seq: ServerSeq) {
        let closed = std::mem::take(&mut self.closed);
        for chat in std::mem::take(&mut self.touched) {
            let home = &self.homes[&chat];
            if closed.contains(&chat) || closed.contains(home) || erased.contains(home) {
                continue;
            }
            let fold = &sessions[home].as_ref().unwrap().fold;
            let is_open = !fold.disposed && fold.state.chats.iter().any(|listed| listed.resource == chat);
            assert!(is_open, "event {seq}: something happens in {chat}, which is closed");
        }
    }
}

fn what_waits_is_paused(chats: &BTreeMap<String, Turns>, sessions: &Sessions, seq: ServerSeq) {
    for fold in open(sessions) {
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
