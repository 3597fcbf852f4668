//! The tables that are read without opening anything, against the log: what runs, which ids were used, and how sessions are
//! listed and found.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;

use ahp_types::actions::StateAction;
use bytes::Bytes;
use serde::Deserialize;

use super::{Fault, fault, while_it_goes_on};
use crate::events::rows::{ChannelKind, channel_key, leading_number, number_of_key, numbered_key, used_key};
use crate::events::{ChannelId, Kind, LogFault, Record, RowOp, ServerSeq, Store, Table};
use crate::projections::action::Action;
use crate::projections::chat::{ChatFold, EndedTurn};
use crate::projections::erasure::Erasure;
use crate::projections::fact::Fact;
use crate::projections::{catalogue, turns};

/// The rows of one chat as its log has them, followed event by event.
#[derive(Default)]
pub struct OfChat {
    /// How often what runs was taken up when it was written down.
    running: Option<u32>,
    /// The ids that the chat has seen, by key, with n of a turn that ended.
    used: BTreeMap<Vec<u8>, Option<u64>>,
}

impl OfChat {
    pub fn after(&mut self, chat: ChannelId, fold: &ChatFold, record: &Record, ended: Option<&EndedTurn>) {
        let mut begins = false;
        if record.kind == Kind::Host {
            begins = matches!(Fact::from_stored(&record.action), Ok(Fact::Attempt { .. }));
        } else if let Ok(action) = Action::from_stored(record.action.clone()) {
            match &action.decoded {
                StateAction::ChatTurnStarted(started) => {
                    begins = true;
                    self.used.insert(used_key(chat, b't', &started.turn_id), None);
                }
                StateAction::ChatTurnResume(_) | StateAction::ChatBackgroundWorkSet(_) => begins = true,
                StateAction::ChatPendingMessageSet(set) => {
                    self.used.insert(used_key(chat, b'm', &set.id), None);
                }
                _ => {}
            }
        }
        if let Some(turn) = ended {
            self.used.insert(used_key(chat, b't', &turn.turn_id), Some(turn.n));
        }
        if begins {
            self.running = Some(fold.attempts.taken_up);
        }
        if !fold.works() {
            self.running = None;
        }
    }

    /// The value of the row of what runs.
    fn runs(&self) -> Option<Vec<u8>> {
        self.running.map(|attempts| match attempts {
            0 => Vec::new(),
            attempts => attempts.to_be_bytes().to_vec(),
        })
    }

    /// The rows themselves.
    pub fn rows(&self, chat: ChannelId) -> impl Iterator<Item = RowOp> {
        let (table, key) = (Table::Running, channel_key(chat));
        let runs = self.runs().map(|value| RowOp::Put { table, key, value: Bytes::from(value) });
        let used = self.used.iter().map(|(key, n)| {
            let value = n.map_or_else(Bytes::new, |n| Bytes::copy_from_slice(&n.to_be_bytes()));
            RowOp::Put { table: Table::Used, key: key.clone(), value }
        });
        runs.into_iter().chain(used)
    }

    pub fn compare(&self, store: &dyn Store, uri: &str, chat: ChannelId) -> Result<(), Fault> {
        let row = store.get(Table::Running, &channel_key(chat))?;
        if row != self.runs() {
            return Err(fault(None, format!("the row of what runs in {uri} is not what the log says")));
        }
        let mut seen: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        store.scan_rows(Table::Used, &channel_key(chat), None, &mut |key, value| {
            seen.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        })?;
        for (key, n) in &self.used {
            let row = seen.remove(key);
            // Hosts before this one wrote no n down.
            if !row.is_some_and(|row| row.is_empty() || leading_number(&row) == *n) {
                return Err(fault(None, format!("the row of id {} in {uri} is not what the log says", id_of(key))));
            }
        }
        match seen.keys().next() {
            Some(key) => {
                Err(fault(None, format!("a row says that {uri} has seen id {}, which it has not", id_of(key))))
            }
            None => Ok(()),
        }
    }
}

/// The id in a key of [`Table::Used`].
fn id_of(key: &[u8]) -> String {
    String::from_utf8_lossy(key.get(9..).unwrap_or_default()).into_owned()
}

/// The session's place in the order of `listSessions`.
pub fn place(store: &dyn Store, uri: &str, session: ChannelId, row: &catalogue::CatalogueRow) -> Result<(), Fault> {
    let Some(key) = catalogue::place(session, row) else { return Ok(()) };
    match store.get(Table::Recent, &key)? {
        Some(_) => Ok(()),
        None => Err(fault(None, format!("no row says where {uri} stands in the order of sessions"))),
    }
}

/// The rows that no channel asks for: what stands in a table has to belong to something.
pub fn rows_of_nobody(store: &dyn Store) -> Result<(), Fault> {
    for key in keys(store, Table::Recent)? {
        while_it_goes_on(store, || place_of_nobody(store, &key))?;
    }
    for table in [Table::Running, Table::Used] {
        let chats: BTreeSet<u64> = keys(store, table)?.iter().filter_map(|key| leading_number(key)).collect();
        for chat in chats.into_iter().map(ChannelId) {
            while_it_goes_on(store, || rows_of_no_chat(store, table, chat))?;
        }
    }
    while_it_goes_on(store, || names(store))
}

fn keys(store: &dyn Store, table: Table) -> Result<Vec<Vec<u8>>, LogFault> {
    let mut keys = Vec::new();
    store.scan_rows(table, &[], None, &mut |key, _| {
        keys.push(key.to_vec());
        ControlFlow::Continue(())
    })?;
    Ok(keys)
}

fn place_of_nobody(store: &dyn Store, key: &[u8]) -> Result<(), Fault> {
    let session = ChannelId(number_of_key(key).unwrap_or_default());
    let row = catalogue::entry(store, session)?;
    if row.and_then(|row| catalogue::place(session, &row)).as_deref() == Some(key) {
        return Ok(());
    }
    // It may have gone to another place meanwhile.
    match store.get(Table::Recent, key)? {
        None => Ok(()),
        Some(_) => {
            let named = catalogue::uri(store, session)?.map_or_else(|| session.0.to_string(), |uri| uri.to_string());
            Err(fault(None, format!("a row puts session {named} where it does not stand in the order of sessions")))
        }
    }
}

/// Of a chat that is erased, the ids of turns that forks have stay.
fn rows_of_no_chat(store: &dyn Store, table: Table, chat: ChannelId) -> Result<(), Fault> {
    if catalogue::uri(store, chat)?.is_some() || !Erasure::under_way(store)?.is_empty() {
        return Ok(());
    }
    let mut rows = Vec::new();
    store.scan_rows(table, &channel_key(chat), None, &mut |key, value| {
        rows.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })?;
    for (key, value) in rows {
        if table != Table::Used {
            return Err(fault(None, format!("a row says that something runs in chat {}, which is not there", chat.0)));
        }
        if !is_kept(store, chat, &key, &value)? {
            let id = id_of(&key);
            return Err(fault(None, format!("a row says that chat {}, which is not there, has seen id {id}", chat.0)));
        }
    }
    Ok(())
}

fn is_kept(store: &dyn Store, chat: ChannelId, key: &[u8], value: &[u8]) -> Result<bool, Fault> {
    #[derive(Deserialize)]
    struct Id {
        id: String,
    }
    let n = match leading_number(value) {
        Some(n) => Some(n),
        None => turns::ever_ended(store, chat, &id_of(key))?,
    };
    let Some(n) = n.filter(|_| key.get(8) == Some(&b't')) else { return Ok(false) };
    let mut has_fork = false;
    store.scan_rows(Table::Fork, &channel_key(chat), None, &mut |_, _| {
        has_fork = true;
        ControlFlow::Break(())
    })?;
    if !has_fork || store.get(Table::Turn, &numbered_key(chat, n))?.is_none() {
        return Ok(false);
    }
    let turn = turns::read(store, chat, n)?;
    Ok(serde_json::from_slice::<Id>(&turn.json).is_ok_and(|turn| turn.id == id_of(key)))
}

/// The short names of sessions: the oldest keeps its name until it is erased, and the next that is created takes it then.
fn names(store: &dyn Store) -> Result<(), Fault> {
    let mut sessions: HashMap<String, BTreeMap<u64, String>> = HashMap::new();
    for (uri, row) in super::channels(store)? {
        let name = catalogue::last_segment(&uri).filter(|_| row.kind == ChannelKind::Session).map(str::to_owned);
        if let Some(name) = name {
            sessions.entry(name).or_default().insert(row.id, uri);
        }
    }
    let mut erased: BTreeSet<String> = BTreeSet::new();
    store.scan_channel(ChannelId::ROOT, 0, ServerSeq::MAX, &mut |record| {
        if record.kind == Kind::Host
            && let Ok(Fact::Erased { uri, .. }) = Fact::from_stored(&record.action)
        {
            erased.extend(catalogue::last_segment(&uri).map(str::to_owned));
        }
        ControlFlow::Continue(())
    })?;
    let mut stored: HashMap<String, u64> = HashMap::new();
    store.scan_rows(Table::SessionById, &[], None, &mut |key, value| {
        stored.insert(String::from_utf8_lossy(key).into_owned(), leading_number(value).unwrap_or_default());
        ControlFlow::Continue(())
    })?;
    for (name, of_it) in sessions {
        let row = stored.remove(&name);
        let same = match row {
            Some(row) if erased.contains(&name) => of_it.contains_key(&row),
            None if erased.contains(&name) => true,
            row => row.as_ref() == of_it.keys().next(),
        };
        if !same {
            let oldest = of_it.values().next().map_or("", String::as_str);
            return Err(fault(None, format!("the row of the short name {name} is not that of {oldest}")));
        }
    }
    match stored.keys().next() {
        Some(name) => Err(fault(None, format!("a row gives the short name {name}, which no session has"))),
        None => Ok(()),
    }
}
