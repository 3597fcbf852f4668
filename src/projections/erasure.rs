//! What is removed with a session or a chat, and what of it forks need and keep.
//!
//! An erasure is written down before anything is removed, and can be carried out again from there: after a crash it is. Turns
//! that a fork's branch has stay as rows, with the ids and the points that belong to them; all else goes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::catalogue;
use super::closed::is_closed_before;
use super::turns;
use super::{FoldFault, fact::Fact};
use crate::clock::Millis;
use crate::events::rows::{self, ChannelKind, ChannelRow, channel_key, number_of_key};
use crate::events::{Batch, Channel, ChannelId, Fate, Kind, NewEvent, RowOp, ServerSeq, Store, Table};

/// How many rows are removed in one step.
const STEP: usize = 1_000;

/// What is to be erased: a session with all its chats, or one chat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Erasure {
    pub uri: String,
    channel: u64,
    /// The session that a chat belongs to; `None` for a session itself.
    session: Option<u64>,
    /// The chats that go, by number, with their URIs.
    chats: Vec<(u64, String)>,
    /// The canvases of their visuals that ever were.
    canvases: Vec<(u64, String)>,
    /// The chats with the sessions that they were ever in: what is said of them there goes too.
    mirrors: Vec<(u64, u64)>,
    /// What the chats are forks of, and what that is a fork of, each behind its forks: it may be gone already, and keep turns
    /// for them alone.
    #[serde(default)]
    sources: Vec<u64>,
    pub events: u64,
    pub first: ServerSeq,
    pub last: ServerSeq,
    /// Who asked for it.
    principal: String,
    /// Whether it is in the log that this is erased.
    begun: bool,
}

/// What stands beside a chat's events and is nobody's here: gives the rows that go with it but for those of turns that stay.
pub type Beside<'a> = &'a dyn Fn(ChannelId, &dyn Fn(&str) -> bool) -> Result<Vec<RowOp>, FoldFault>;

impl Erasure {
    /// What erasing `uri` takes; `None` for what is no session and no chat.
    ///
    /// # Errors
    /// [`FoldFault`] when the store cannot be read.
    pub fn plan(store: &dyn Store, uri: &str, principal: &str) -> Result<Option<Self>, FoldFault> {
        let Some(row) = catalogue::channel(store, uri)? else { return Ok(None) };
        let (session, chats) = match row.kind {
            ChannelKind::Chat => (Some(row.session), vec![(row.id, uri.to_owned())]),
            ChannelKind::Session => (None, chats_of(store, ChannelId(row.id))?),
            _ => return Ok(None),
        };
        let mut plan = Self::of(uri, row.id, session, chats, principal);
        for (chat, _) in plan.chats.clone() {
            let beside = Elsewhere::of(store, ChannelId(chat))?;
            plan.canvases.extend(beside.canvases);
            plan.mirrors.extend(beside.sessions.into_iter().map(|session| (chat, session)));
        }
        plan.sources = plan.sources(store)?;
        let mut seqs = (0, ServerSeq::MAX, 0);
        plan.each_event(store, &mut |seq| seqs = (seqs.0 + 1, seqs.1.min(seq), seqs.2.max(seq)))?;
        (plan.events, plan.first, plan.last) = seqs;
        Ok(Some(plan))
    }

    fn of(uri: &str, channel: u64, session: Option<u64>, chats: Vec<(u64, String)>, principal: &str) -> Self {
        let (uri, principal) = (uri.to_owned(), principal.to_owned());
        Self {
            uri,
            channel,
            session,
            chats,
            canvases: Vec::new(),
            mirrors: Vec::new(),
            sources: Vec::new(),
            events: 0,
            first: 0,
            last: 0,
            principal,
            begun: false,
        }
    }

    /// The row that says that a channel, whose end is in the same batch, is to be erased.
    pub fn wanted(uri: &str, channel: ChannelId, session: Option<ChannelId>, principal: &str) -> RowOp {
        Self::of(uri, channel.0, session.map(|session| session.0), Vec::new(), principal).row()
    }

    /// The chats that go.
    pub fn chats(&self) -> impl Iterator<Item = (ChannelId, &str)> {
        self.chats.iter().map(|(id, uri)| (ChannelId(*id), uri.as_str()))
    }

    fn sources(&self, store: &dyn Store) -> Result<Vec<u64>, FoldFault> {
        let mut above: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        store.scan_rows(Table::Fork, &[], None, &mut |key, _| {
            if let (Some(source), Some(fork)) = (rows::leading_number(key), number_of_key(key)) {
                above.entry(fork).or_default().push(source);
            }
            ControlFlow::Continue(())
        })?;
        let mut sources: Vec<u64> = Vec::new();
        let mut below: Vec<u64> = self.chats.iter().map(|(chat, _)| *chat).collect();
        while let Some(fork) = below.pop() {
            for source in above.get(&fork).into_iter().flatten() {
                sources.retain(|known| known != source);
                sources.push(*source);
                below.push(*source);
            }
        }
        Ok(sources)
    }

    fn each_event(&self, store: &dyn Store, visit: &mut dyn FnMut(ServerSeq)) -> Result<(), FoldFault> {
        let whole = self
            .chats
            .iter()
            .chain(&self.canvases)
            .map(|(id, _)| *id)
            .chain(self.session.is_none().then_some(self.channel));
        for channel in whole {
            store.scan_channel(ChannelId(channel), 0, ServerSeq::MAX, &mut |record| {
                visit(record.seq);
                ControlFlow::Continue(())
            })?;
        }
        Ok(())
    }

    /// The event and the row that say that this is being erased.
    pub fn begin(&mut self, at: i64) -> Batch {
        self.begun = true;
        let fact = Fact::Erased { uri: self.uri.clone(), events: self.events, first: self.first, last: self.last };
        let event = NewEvent {
            channel: Channel::root(),
            channel_id: ChannelId::ROOT,
            kind: Kind::Host,
            at,
            principal: self.principal.as_str().into(),
            origin: None,
            about: None,
            action: fact.bytes(),
        };
        Batch { events: vec![event], rows: vec![self.row()] }
    }

    /// The row that keeps the erasure until it is done.
    fn row(&self) -> RowOp {
        let value = Bytes::from(serde_json::to_vec(self).unwrap_or_default());
        RowOp::Put { table: Table::Erasing, key: channel_key(ChannelId(self.channel)), value }
    }

    /// Does what was begun, or asked for, and is not done: at a start, before anything else.
    ///
    /// # Errors
    /// [`FoldFault`] when the store cannot be read or written.
    pub fn finish_all(store: &dyn Store, at: i64, beside: Beside<'_>) -> Result<usize, FoldFault> {
        let all = Self::all(store)?;
        let count = all.len();
        for erasure in all {
            if erasure.begun {
                erasure.carry_out(store, beside)?;
            } else if !is_closed_before(store, &erasure.uri, Millis::MAX)? {
                // It came back since.
                append(
                    store,
                    vec![RowOp::Delete { table: Table::Erasing, key: channel_key(ChannelId(erasure.channel)) }],
                )?;
            } else if let Some(mut erasure) = Self::plan(store, &erasure.uri, &erasure.principal)? {
                store.append(&[erasure.begin(at)])?;
                erasure.carry_out(store, beside)?;
            }
        }
        Ok(count)
    }

    fn all(store: &dyn Store) -> Result<Vec<Self>, FoldFault> {
        let mut all = Vec::new();
        store.scan_rows(Table::Erasing, &[], None, &mut |_, value| {
            all.extend(serde_json::from_slice::<Self>(value).ok());
            ControlFlow::Continue(())
        })?;
        Ok(all)
    }

    /// Those that are in the log and not done.
    ///
    /// # Errors
    /// [`FoldFault`] when the store cannot be read.
    pub fn under_way(store: &dyn Store) -> Result<Vec<Self>, FoldFault> {
        Ok(Self::all(store)?.into_iter().filter(|erasure| erasure.begun).collect())
    }

    /// Whether this channel goes with it.
    pub fn removes(&self, channel: ChannelId) -> bool {
        let whole = self.session.is_none() && self.channel == channel.0;
        whole || self.chats.iter().chain(&self.canvases).any(|(id, _)| *id == channel.0)
    }

    /// Whether it takes words out of this session's channel.
    pub fn rewrites(&self, session: ChannelId) -> bool {
        self.mirrors.iter().any(|(_, of)| *of == session.0)
    }

    /// Removes it all. May be done again where it was left.
    ///
    /// # Errors
    /// [`FoldFault`] when the store cannot be read or written.
    pub fn carry_out(&self, store: &dyn Store, beside: Beside<'_>) -> Result<(), FoldFault> {
        for (canvas, uri) in &self.canvases {
            let canvas = ChannelId(*canvas);
            store.erase(canvas, &|_| Fate::Goes)?;
            let mut ops = forget_channel(uri, canvas);
            ops.push(RowOp::Delete { table: Table::Canvas, key: channel_key(canvas) });
            append(store, ops)?;
        }
        for (chat, uri) in self.chats() {
            erase_chat(store, chat, uri, beside)?;
        }
        for source in self.sources.iter().copied().map(ChannelId) {
            if catalogue::uri(store, source)?.is_none() {
                keep_for_forks(store, source, beside)?;
            }
        }
        for (chat, session) in self.mirrors.iter().map(|(chat, session)| (ChannelId(*chat), ChannelId(*session))) {
            store.erase(session, &|record| match record.about == Some(chat) {
                true => silenced(&record.action),
                false => Fate::Stays,
            })?;
            remove(store, Table::Checkpoint, &channel_key(session), &|_| true)?;
        }
        if self.session.is_none() {
            self.erase_session(store)?;
        }
        let done = RowOp::Delete { table: Table::Erasing, key: channel_key(ChannelId(self.channel)) };
        append(store, vec![done])
    }

    fn erase_session(&self, store: &dyn Store) -> Result<(), FoldFault> {
        let id = ChannelId(self.channel);
        store.erase(id, &|_| Fate::Goes)?;
        remove(store, Table::Checkpoint, &channel_key(id), &|_| true)?;
        let mut ops = Vec::new();
        if let Some(old) = catalogue::entry(store, id)? {
            ops.extend(catalogue::forget(id, &old));
        }
        let segment = catalogue::last_segment(&self.uri).unwrap_or_default();
        let by_id = store.get(Table::SessionById, segment.as_bytes())?;
        if by_id.and_then(|value| rows::leading_number(&value)) == Some(id.0) {
            ops.push(RowOp::Delete { table: Table::SessionById, key: segment.as_bytes().to_vec() });
        }
        ops.extend(forget_channel(&self.uri, id));
        append(store, ops)
    }
}

/// Every chat that a session ever had, by number.
fn chats_of(store: &dyn Store, session: ChannelId) -> Result<Vec<(u64, String)>, FoldFault> {
    let mut chats = BTreeMap::new();
    let mut found = None;
    store.scan_rows(Table::ChannelByUri, &[], None, &mut |key, value| {
        match serde_json::from_slice::<ChannelRow>(value) {
            Ok(row) if row.kind == ChannelKind::Chat && row.session == session.0 => {
                chats.insert(row.id, String::from_utf8_lossy(key).into_owned());
            }
            Ok(_) => {}
            Err(problem) => found = Some(problem.to_string()),
        }
        ControlFlow::Continue(())
    })?;
    match found {
        Some(problem) => Err(FoldFault::Row { place: "of a channel".into(), problem }),
        None => Ok(chats.into_iter().collect()),
    }
}

/// Where else something is said of a chat.
struct Elsewhere {
    /// The canvases of every visual that was ever published in it.
    canvases: Vec<(u64, String)>,
    /// The sessions that it was ever in.
    sessions: BTreeSet<u64>,
}

impl Elsewhere {
    fn of(store: &dyn Store, chat: ChannelId) -> Result<Self, FoldFault> {
        let (mut canvases, mut sessions) = (Vec::new(), Vec::new());
        store.scan_channel(chat, 0, ServerSeq::MAX, &mut |record| {
            let fact = (record.kind == Kind::Host).then(|| Fact::from_stored(&record.action));
            match fact {
                Some(Ok(Fact::VisualPublished { visual })) => canvases.push(visual.canvas().to_string()),
                Some(Ok(Fact::ChatCreated { session, .. } | Fact::ChatMoved { session })) => sessions.push(session),
                _ => {}
            }
            ControlFlow::Continue(())
        })?;
        let mut found = Self { canvases: Vec::new(), sessions: BTreeSet::new() };
        for uri in canvases {
            found.canvases.extend(catalogue::channel(store, &uri)?.map(|row| (row.id, uri)));
        }
        for uri in sessions {
            found.sessions.extend(catalogue::channel(store, &uri)?.map(|row| row.id));
        }
        Ok(found)
    }
}

fn erase_chat(store: &dyn Store, chat: ChannelId, uri: &str, beside: Beside<'_>) -> Result<(), FoldFault> {
    store.erase(chat, &|_| Fate::Goes)?;
    let prefix = channel_key(chat);
    for table in [Table::Head, Table::Checkpoint, Table::Running] {
        remove(store, table, &prefix, &|_| true)?;
    }
    append(store, forget_channel(uri, chat))?;
    keep_for_forks(store, chat, beside)
}

/// Removes the rows of an erased chat but for the turns that forks have. Where these go on in what it is itself a fork of, it
/// still counts as one.
fn keep_for_forks(store: &dyn Store, chat: ChannelId, beside: Beside<'_>) -> Result<(), FoldFault> {
    let prefix = channel_key(chat);
    let mut ends = Vec::new();
    store.scan_rows(Table::Fork, &prefix, None, &mut |key, _| {
        ends.extend(key.get(8..16).and_then(|n| Some(u64::from_be_bytes(n.try_into().ok()?))));
        ControlFlow::Continue(())
    })?;
    let (mut needed, mut ids) = (BTreeSet::new(), BTreeMap::<String, u64>::new());
    let mut goes_on = false;
    for end in ends {
        let mut next = end;
        while next != 0 && turns::place(chat, next).0 == chat && needed.insert(next) {
            let turn = turns::read(store, chat, next)?;
            if let Some(id) = turn.id() {
                let newest = ids.entry(id).or_default();
                *newest = next.max(*newest);
            }
            next = turn.row.prev;
        }
        goes_on |= next != 0 && turns::place(chat, next).0 != chat;
    }
    for table in [Table::Turn, Table::Point] {
        remove(store, table, &prefix, &|key| !number_of_key(key).is_some_and(|n| needed.contains(&n)))?;
    }
    append(store, beside(chat, &|turn| ids.contains_key(turn))?)?;
    let used: BTreeMap<Vec<u8>, u64> = ids.iter().map(|(id, n)| (rows::used_key(chat, b't', id), *n)).collect();
    remove(store, Table::Used, &prefix, &|key| !used.contains_key(key))?;
    // What is kept of a turn may be how it had ended before it was taken up again.
    let named = used.into_iter().map(|(key, n)| {
        let value = Bytes::copy_from_slice(&n.to_be_bytes());
        RowOp::Put { table: Table::Used, key, value }
    });
    append(store, named.collect())?;
    match goes_on {
        true => Ok(()),
        false => remove(store, Table::Fork, &[], &|key| key.ends_with(&prefix)),
    }
}

/// What a session's channel says of a chat, without what was said in the chat: the states that it folds to differ in nothing else.
fn silenced(action: &Bytes) -> Fate {
    let Ok(mut value) = serde_json::from_slice::<Value>(action) else { return Fate::Goes };
    let before = value.clone();
    match value.get("type").and_then(Value::as_str) {
        Some("session/chatAdded") => value.get_mut("summary").map_or((), silence_summary),
        Some("session/chatUpdated") => value.get_mut("changes").map_or((), silence_summary),
        Some("session/inputNeededSet") => value.get_mut("request").map_or((), silence_input),
        _ => {}
    }
    if value == before { Fate::Stays } else { Fate::Says(Bytes::from(value.to_string())) }
}

fn silence_summary(summary: &mut Value) {
    for key in ["title", "activity"] {
        if let Some(text) = summary.get_mut(key).filter(|text| text.is_string()) {
            *text = Value::from("");
        }
    }
    if let Some(origin) = summary.get_mut("origin").and_then(Value::as_object_mut) {
        origin.remove("selection");
    }
}

/// A question keeps its id, and a tool call what AHP has in every one: an entry that its reducers do not know stays for ever.
fn silence_input(request: &mut Value) {
    const KEPT: [&str; 4] = ["status", "toolCallId", "confirmed", "success"];
    const EMPTY: [&str; 4] = ["toolName", "displayName", "invocationMessage", "pastTenseMessage"];
    if let Some(question) = request.get_mut("request").and_then(Value::as_object_mut) {
        question.retain(|key, _| key == "id");
    }
    if let Some(call) = request.get_mut("toolCall").and_then(Value::as_object_mut) {
        call.retain(|key, _| KEPT.contains(&key.as_str()) || EMPTY.contains(&key.as_str()));
        for (_, words) in call.iter_mut().filter(|(key, _)| EMPTY.contains(&key.as_str())) {
            *words = Value::from("");
        }
    }
}

fn forget_channel(uri: &str, id: ChannelId) -> Vec<RowOp> {
    vec![
        RowOp::Delete { table: Table::ChannelByUri, key: uri.as_bytes().to_vec() },
        RowOp::Delete { table: Table::ChannelById, key: channel_key(id) },
    ]
}

/// Removes the rows of a table under `prefix` that `goes` names.
fn remove(store: &dyn Store, table: Table, prefix: &[u8], goes: &dyn Fn(&[u8]) -> bool) -> Result<(), FoldFault> {
    let mut keys = Vec::new();
    store.scan_rows(table, prefix, None, &mut |key, _| {
        if goes(key) {
            keys.push(key.to_vec());
        }
        ControlFlow::Continue(())
    })?;
    for keys in keys.chunks(STEP) {
        append(store, keys.iter().map(|key| RowOp::Delete { table, key: key.clone() }).collect())?;
    }
    Ok(())
}

fn append(store: &dyn Store, rows: Vec<RowOp>) -> Result<(), FoldFault> {
    if !rows.is_empty() {
        store.append(&[Batch { events: Vec::new(), rows }])?;
    }
    Ok(())
}
