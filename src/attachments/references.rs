//! Who refers to which file: an index beside the log, changed in the batches that change it.
//!
//! A row a reference: folder and name of the file, the chat, and what in it refers to it: a turn, a waiting message, the
//! draft. So a file's references are together, and it goes with the last of them. A turn's reference stays when the turn is
//! dropped; erasure alone removes it ([`erase_chat`]).
//!
//! Always: a function of the chat's events, so the rows can be rebuilt and verified.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use ahp_types::actions::StateAction;
use ahp_types::state::{ChatState, Message, MessageAttachment, PendingMessageKind};
use bytes::Bytes;

use super::FileRef;
use crate::events::{ChannelId, LogFault, RowOp, Rows, Table};

/// What in a chat refers to a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Referrer {
    /// A turn, by its id.
    Turn(String),
    /// A message that waits, by its id.
    Pending(String),
    Draft,
}

/// A file, and what in a chat refers to it.
pub type Reference = (FileRef, Referrer);

/// What an action changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub added: Vec<Reference>,
    pub removed: Vec<Reference>,
}

impl Changes {
    /// The rows of it, for this chat.
    pub fn rows(&self, chat: ChannelId) -> impl Iterator<Item = RowOp> {
        let table = Table::Attachment;
        let added = self.added.iter().map(move |r| RowOp::Put { table, key: key(chat, r), value: Bytes::new() });
        let removed = self.removed.iter().map(move |r| RowOp::Delete { table, key: key(chat, r) });
        added.chain(removed)
    }
}

/// Whether an action may change who refers to what.
pub fn is_touched_by(action: &StateAction) -> bool {
    matches!(
        action,
        StateAction::ChatTurnStarted(_)
            | StateAction::ChatPendingMessageSet(_)
            | StateAction::ChatPendingMessageRemoved(_)
            | StateAction::ChatDraftChanged(_)
            | StateAction::ChatTruncated(_)
    )
}

/// What waits in a chat and refers to files.
pub fn held(state: &ChatState) -> BTreeSet<Reference> {
    let waiting = state.queued_messages.iter().flatten().chain(&state.steering_message);
    let waiting = waiting.flat_map(|m| files_of(&m.message).map(|file| (file, Referrer::Pending(m.id.clone()))));
    let draft = state.draft.iter().flat_map(|draft| files_of(draft).map(|file| (file, Referrer::Draft)));
    waiting.chain(draft).collect()
}

/// What `action` changed: `before` is what waited before it, `state` the chat after it.
pub fn changes(before: &BTreeSet<Reference>, state: &ChatState, action: &StateAction, by_client: bool) -> Changes {
    let after = held(state);
    let mut added: Vec<Reference> = after.difference(before).cloned().collect();
    let removed: Vec<Reference> = before.difference(&after).cloned().collect();
    match action {
        StateAction::ChatTurnStarted(started) => {
            let of = |file| (file, Referrer::Turn(started.turn_id.clone()));
            added.extend(files_of(&started.message).map(of).collect::<BTreeSet<_>>());
        }
        // Taken by the host from its slot: it goes into the turn that runs.
        StateAction::ChatPendingMessageRemoved(taken) if taken.kind == PendingMessageKind::Steering && !by_client => {
            let turn = state.active_turn.as_ref().map(|turn| turn.id.clone());
            let into = |turn: String| removed.iter().map(move |(file, _)| (*file, Referrer::Turn(turn.clone())));
            added.extend(turn.into_iter().flat_map(into));
        }
        _ => {}
    }
    Changes { added, removed }
}

/// The files that a message refers to.
pub fn files_of(message: &Message) -> impl Iterator<Item = FileRef> {
    message.attachments.iter().flatten().filter_map(|attachment| match attachment {
        MessageAttachment::Resource(resource) => FileRef::of_uri(&resource.uri),
        _ => None,
    })
}

/// The key of a reference's row.
pub fn key(chat: ChannelId, (file, referrer): &Reference) -> Vec<u8> {
    let mut key = file.key();
    key.extend_from_slice(&chat.0.to_be_bytes());
    let (kind, id) = match referrer {
        Referrer::Turn(id) => (b't', id.as_str()),
        Referrer::Pending(id) => (b'm', id.as_str()),
        Referrer::Draft => (b'd', ""),
    };
    key.push(kind);
    key.extend_from_slice(id.as_bytes());
    key
}

/// The chat and the reference of a row's key.
pub fn parse_key(key: &[u8]) -> Option<(ChannelId, Reference)> {
    let (file, rest) = FileRef::parse_key(key)?;
    let (chat, rest) = rest.split_at_checked(8)?;
    let chat = ChannelId(u64::from_be_bytes(chat.try_into().ok()?));
    let (kind, id) = rest.split_first()?;
    let id = String::from_utf8(id.to_vec()).ok()?;
    let referrer = match kind {
        b't' => Referrer::Turn(id),
        b'm' => Referrer::Pending(id),
        b'd' if id.is_empty() => Referrer::Draft,
        _ => return None,
    };
    Some((chat, (file, referrer)))
}

/// The chats that refer to `file`.
///
/// # Errors
/// [`LogFault`] when the store cannot be read.
pub fn chats_of(rows: &dyn Rows, file: FileRef) -> Result<BTreeSet<ChannelId>, LogFault> {
    let mut chats = BTreeSet::new();
    rows.scan_rows(Table::Attachment, &file.key(), None, &mut |key, _| {
        chats.extend(parse_key(key).map(|(chat, _)| chat));
        ControlFlow::Continue(())
    })?;
    Ok(chats)
}

/// Whether anything refers to `file`.
///
/// # Errors
/// [`LogFault`] when the store cannot be read.
pub fn is_referred_to(rows: &dyn Rows, file: FileRef) -> Result<bool, LogFault> {
    let mut found = false;
    rows.scan_rows(Table::Attachment, &file.key(), None, &mut |_, _| {
        found = true;
        ControlFlow::Break(())
    })?;
    Ok(found)
}

/// What goes with a chat whose events are erased.
#[derive(Debug, Default)]
pub struct Erased {
    /// The rows of its references: to be removed in the batch that erases it.
    pub rows: Vec<RowOp>,
    /// The files that nothing else refers to: to be handed to [`super::Attachments::collect`] when that batch is on disk.
    pub files: Vec<FileRef>,
}

/// What goes with `chat` when its events are erased; `keeps` names the turns that a fork of it still needs.
///
/// # Errors
/// [`LogFault`] when the store cannot be read.
pub fn erase_chat(rows: &dyn Rows, chat: ChannelId, keeps: &dyn Fn(&str) -> bool) -> Result<Erased, LogFault> {
    let mut erased = Erased::default();
    let (mut own, mut others) = (BTreeSet::new(), BTreeSet::new());
    rows.scan_rows(Table::Attachment, &[], None, &mut |key, _| {
        let Some((of, (file, referrer))) = parse_key(key) else { return ControlFlow::Continue(()) };
        let stays = of != chat || matches!(&referrer, Referrer::Turn(id) if keeps(id));
        if stays {
            others.insert(file);
        } else {
            own.insert(file);
            erased.rows.push(RowOp::Delete { table: Table::Attachment, key: key.to_vec() });
        }
        ControlFlow::Continue(())
    })?;
    erased.files = own.difference(&others).copied().collect();
    Ok(erased)
}

#[cfg(test)]
mod tests {
    use ahp_types::actions::{ChatPendingMessageRemovedAction, ChatTurnStartedAction};
    use serde_json::json;

    use super::*;
    use crate::events::{Batch, EventLog, MemoryStore};

    const FILE: FileRef = FileRef { folder: 7, name: 0xabc };
    const OTHER: FileRef = FileRef { folder: 7, name: 0xdef };

    fn message(files: &[FileRef]) -> Message {
        let attachments: Vec<_> = files
            .iter()
            .map(|file| {
                let uri = format!("file:///d/attachments/{}/{:032x}", file.folder, file.name);
                json!({ "type": "resource", "label": "x", "uri": uri })
            })
            .collect();
        serde_json::from_value(json!({ "text": "", "origin": { "kind": "user" }, "attachments": attachments })).unwrap()
    }

    fn chat(queued: &[(&str, &[FileRef])], draft: Option<&[FileRef]>) -> ChatState {
        let queued: Vec<_> = queued.iter().map(|(id, files)| json!({ "id": id, "message": message(files) })).collect();
        let mut state = json!({ "resource": "ahp-chat:/c", "title": "", "status": 1, "turns": [],
            "modifiedAt": "2026-01-01T00:00:00Z", "queuedMessages": queued });
        if let Some(files) = draft {
            state["draft"] = json!(message(files));
        }
        serde_json::from_value(state).unwrap()
    }

    fn started(files: &[FileRef]) -> StateAction {
        StateAction::ChatTurnStarted(ChatTurnStartedAction {
            turn_id: "t".into(),
            started_at: String::new(),
            message: message(files),
            queued_message_id: None,
            meta: None,
        })
    }

    #[test]
    fn a_message_that_goes_out_hands_its_file_to_its_turn() {
        let before = held(&chat(&[("m", &[FILE, OTHER])], None));
        let changes = changes(&before, &chat(&[], None), &started(&[FILE, OTHER, FILE]), false);
        let turn = || Referrer::Turn("t".into());
        assert_eq!(changes.added, [(FILE, turn()), (OTHER, turn())]);
        let pending = || Referrer::Pending("m".into());
        assert_eq!(changes.removed, [(FILE, pending()), (OTHER, pending())]);
    }

    #[test]
    fn a_steering_message_that_its_sender_takes_back_leaves_nothing_and_one_that_is_used_belongs_to_the_turn() {
        let before = BTreeSet::from([(FILE, Referrer::Pending("s".into()))]);
        let mut after = chat(&[], None);
        after.active_turn =
            serde_json::from_value(json!({ "id": "t", "startedAt": "", "message": message(&[]), "responseParts": [] }))
                .unwrap();
        let taken = StateAction::ChatPendingMessageRemoved(ChatPendingMessageRemovedAction {
            kind: PendingMessageKind::Steering,
            id: "s".into(),
        });
        assert_eq!(changes(&before, &after, &taken, true).added, []);
        assert_eq!(changes(&before, &after, &taken, false).added, [(FILE, Referrer::Turn("t".into()))]);
    }

    #[test]
    fn keys_come_back() {
        for referrer in [Referrer::Turn("ü".into()), Referrer::Pending(String::new()), Referrer::Draft] {
            let reference = (FILE, referrer);
            assert_eq!(parse_key(&key(ChannelId(9), &reference)), Some((ChannelId(9), reference)));
        }
        assert_eq!(parse_key(b"short"), None);
        let behind_a_draft = [key(ChannelId(9), &(FILE, Referrer::Draft)), b"t1".to_vec()].concat();
        assert_eq!(parse_key(&behind_a_draft), None);
    }

    #[test]
    fn erasing_a_chat_takes_the_files_that_nobody_else_refers_to() {
        let store = MemoryStore::new().unwrap();
        let put = |chat, reference: Reference| RowOp::Put {
            table: Table::Attachment,
            key: key(ChannelId(chat), &reference),
            value: Bytes::new(),
        };
        let third = FileRef { folder: 7, name: 1 };
        let rows = vec![
            put(1, (FILE, Referrer::Turn("a".into()))),
            put(1, (OTHER, Referrer::Turn("b".into()))),
            put(2, (OTHER, Referrer::Draft)),
            put(1, (third, Referrer::Turn("kept".into()))),
        ];
        store.append(&[Batch { events: Vec::new(), rows }]).unwrap();
        let erased = erase_chat(&store, ChannelId(1), &|turn| turn == "kept").unwrap();
        assert_eq!(erased.files, [FILE]);
        assert_eq!(erased.rows.len(), 2);
        store.append(&[Batch { events: Vec::new(), rows: erased.rows }]).unwrap();
        let left = [FILE, OTHER, third].map(|file| is_referred_to(&store, file).unwrap());
        assert_eq!(left, [false, true, true]);
    }
}
