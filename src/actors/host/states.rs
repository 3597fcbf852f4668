//! What a channel was at any point of the line, and whether a name always meant it. Reads the store.

use std::ops::ControlFlow;

use serde_json::Value;

use super::{Host, SnapshotJson, not_found};
use crate::actors::command::{Refusal, RefusalKind};
use crate::actors::identity::Identity;
use crate::actors::registry::first_chat_uri;
use crate::actors::shared::Shared;
use crate::attachments::{FileRef, references};
use crate::events::rows::{ChannelKind, ChannelRow};
use crate::events::{Channel, ChannelId, Kind, LogFault, ServerSeq, Store};
use crate::projections::action::type_of;
use crate::projections::canvas::CanvasFold;
use crate::projections::chat::ChatFold;
use crate::projections::people::{Operation, People};
use crate::projections::root::RootFold;
use crate::projections::session::SessionFold;
use crate::projections::turns::PageLimit;
use crate::projections::{FoldFault, catalogue, replay};

impl Host {
    /// Whether `uri` has named this channel for as long as it names anything: always for a channel's own name, and for a
    /// synonym while its session's default chat has been the same from the beginning. What somebody saw under a name that
    /// stood for another chat once is no baseline. Reads the session's events for a synonym.
    ///
    /// # Errors
    /// [`LogFault`] when the store cannot be read.
    pub fn has_always_named(&self, uri: &str, channel: &Channel) -> Result<bool, LogFault> {
        if uri == channel.as_str() {
            return Ok(true);
        }
        let Ok(Some(found)) = self.shared.registry.resolve(channel.as_str()) else { return Ok(false) };
        let session = self.shared.registry.session_uri(found.session).ok().flatten();
        if session.is_none_or(|session| first_chat_uri(session.as_str()) != channel.as_str()) {
            return Ok(false);
        }
        let mut always = true;
        self.shared.store.scan_channel(found.session, 0, ServerSeq::MAX, &mut |record| {
            always = record.kind != Kind::Action || keeps_default(&record.action, channel);
            if always { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(always)
    }

    /// `x-scrollback/stateAt`, `/api/state` and `log state`: the state of a channel right after event `at` (now for
    /// `None`), as it is on disk; a closed chat's and a disposed session's too. Reads the store: call it where blocking is
    /// fine.
    ///
    /// # Errors
    /// A [`Refusal`] of kind `NotFound` for a channel that is not there or had no events then, and for an event that is still
    /// to come.
    pub fn state_at(&self, who: &Identity, channel: &str, at: Option<ServerSeq>) -> Result<SnapshotJson, Refusal> {
        self.window_at(who, channel, at, u64::MAX)
    }

    /// The same, of a chat with its newest `turns` turns then.
    ///
    /// # Errors
    /// As [`Host::state_at`].
    pub fn window_at(
        &self,
        who: &Identity,
        channel: &str,
        at: Option<ServerSeq>,
        turns: u64,
    ) -> Result<SnapshotJson, Refusal> {
        let store = self.shared.store.as_ref();
        let (kind, id) =
            self.stored(who, channel).map_err(Refusal::log_unavailable)?.ok_or_else(|| not_found(channel))?;
        there_is(at, self.shared.writer.handed_over().max(store.tail()))?;
        let limit = PageLimit { turns, bytes: self.shared.settings.max_snapshot };
        let mut snapshot = window_of(store, channel, kind, id, at, limit)?;
        if kind == ChannelKind::Canvas {
            self.show_page(channel, &mut snapshot)?;
        }
        Ok(snapshot)
    }
}

impl Host {
    /// See [`Shared::stored`].
    ///
    /// # Errors
    /// [`FoldFault`] when it cannot be read.
    pub fn stored(&self, who: &Identity, uri: &str) -> Result<Option<(ChannelKind, ChannelId)>, FoldFault> {
        self.shared.stored(who, uri)
    }

    /// See [`Shared::may_read_log`].
    ///
    /// # Errors
    /// [`FoldFault`] when the store cannot be read.
    pub fn may_read_log(&self, who: &Identity, row: Option<&ChannelRow>) -> Result<bool, FoldFault> {
        self.shared.may_read_log(who, row)
    }

    /// Whether `who` may read what is stored under `uri`. Reads the store.
    pub fn may_read_stored(&self, who: &Identity, uri: &str) -> bool {
        self.shared.may_read_stored(who, uri)
    }

    /// Whether `who` may read the log of what is stored under `uri`. Reads the store.
    pub fn may_read_log_of(&self, who: &Identity, uri: &str) -> bool {
        self.shared.may_read_log_of(who, uri)
    }

    /// Whether `who` may read a chat that refers to a stored attachment. Reads the store.
    ///
    /// # Errors
    /// [`FoldFault`] when it cannot be read.
    pub fn may_read_attachment(&self, who: &Identity, file: FileRef) -> Result<bool, FoldFault> {
        self.shared.may_read_attachment(who, file)
    }
}

/// Who may read what is stored. All of it reads the store.
impl Shared {
    /// The channel that is stored under `uri`, or that it names now, where `who` may read it: a closed chat and a disposed
    /// session are for those who read the log.
    ///
    /// # Errors
    /// [`FoldFault`] when it cannot be read.
    pub fn stored(&self, who: &Identity, uri: &str) -> Result<Option<(ChannelKind, ChannelId)>, FoldFault> {
        let Some(row) = catalogue::channel(self.store.as_ref(), uri)? else {
            return Ok(self.find(who, uri)?.map(|found| (found.kind, found.id)));
        };
        let may = who.is_root()
            || match self.registry.resolve(uri)?.filter(|found| found.channel.as_str() == uri) {
                Some(found) => self.may_read(who, &found),
                None => self.may_read_log(who, Some(&row))?,
            };
        Ok(may.then_some((row.kind, ChannelId(row.id))))
    }

    /// Whether `who` may read what is stored under `uri`; see [`Host::stored`].
    pub fn may_read_stored(&self, who: &Identity, uri: &str) -> bool {
        who.is_root() || matches!(self.stored(who, uri), Ok(Some(_)))
    }

    /// Whether `who` may read the log of what is stored under `uri`.
    pub fn may_read_log_of(&self, who: &Identity, uri: &str) -> bool {
        let row = || catalogue::channel(self.store.as_ref(), uri).ok().flatten();
        who.is_root() || self.may_read_log(who, row().as_ref()).unwrap_or(false)
    }

    /// Whether `who` may read a chat that refers to a stored attachment.
    ///
    /// # Errors
    /// [`FoldFault`] when it cannot be read.
    pub fn may_read_attachment(&self, who: &Identity, file: FileRef) -> Result<bool, FoldFault> {
        if who.is_root() {
            return Ok(true);
        }
        let store = self.store.as_ref();
        for chat in references::chats_of(store, file)? {
            if catalogue::uri(store, chat)?.is_some_and(|uri| self.may_read_stored(who, uri.as_str())) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether `who` may name a stored attachment in a message of `session`: one that they may read, or that is on its way into
    /// a chat of the session, so that nothing refers to it yet.
    ///
    /// # Errors
    /// [`FoldFault`] when it cannot be read.
    pub fn may_name_attachment(&self, who: &Identity, file: FileRef, session: ChannelId) -> Result<bool, FoldFault> {
        let is_new = || references::chats_of(self.store.as_ref(), file).map(|chats| chats.is_empty());
        Ok(self.may_read_attachment(who, file)? || (file.folder == session.0 && is_new()?))
    }

    /// Whether `who` may read the log of the channel with this row, or all of it.
    ///
    /// # Errors
    /// [`FoldFault`] when the store cannot be read.
    pub fn may_read_log(&self, who: &Identity, row: Option<&ChannelRow>) -> Result<bool, FoldFault> {
        if self.may(who, Operation::LogRead, None) {
            return Ok(true);
        }
        let Some(row) = row.filter(|row| row.session != 0) else { return Ok(false) };
        let session = catalogue::uri(self.store.as_ref(), ChannelId(row.session))?;
        Ok(session.is_some_and(|session| self.may(who, Operation::LogRead, Some(session.as_str()))))
    }
}

/// Refuses a point of the line that is still to come.
///
/// # Errors
/// A [`Refusal`] of kind `NotFound` that names the newest event.
pub fn there_is(at: Option<ServerSeq>, newest: ServerSeq) -> Result<(), Refusal> {
    match at.filter(|at| *at > newest) {
        None => Ok(()),
        Some(at) => {
            let text = format!("there is no event {at}: the newest is {newest}");
            Err(Refusal::new(RefusalKind::NotFound, "not-found", text))
        }
    }
}

/// The state of a stored channel right after event `at`, as JSON.
///
/// # Errors
/// A [`Refusal`] of kind `NotFound` when the channel had no events then, `Internal` when they do not fold.
pub fn state_of(
    store: &dyn Store,
    name: &str,
    kind: ChannelKind,
    id: ChannelId,
    at: Option<ServerSeq>,
    max_bytes: usize,
) -> Result<SnapshotJson, Refusal> {
    window_of(store, name, kind, id, at, PageLimit { turns: u64::MAX, bytes: max_bytes })
}

/// The same, of a chat with the newest turns that `limit` allows.
///
/// # Errors
/// As [`state_of`].
pub fn window_of(
    store: &dyn Store,
    name: &str,
    kind: ChannelKind,
    id: ChannelId,
    at: Option<ServerSeq>,
    limit: PageLimit,
) -> Result<SnapshotJson, Refusal> {
    let upto = at.unwrap_or(ServerSeq::MAX);
    let damaged = |fault: FoldFault| Refusal::new(RefusalKind::Internal, "damaged", fault.to_string());
    let found = match kind {
        ChannelKind::Root => replay::fold::<RootFold>(store, id, upto, true)
            .map_err(damaged)?
            .map(|at| (at.seq, serde_json::to_string(&at.fold.state).unwrap_or_default())),
        ChannelKind::Session => replay::fold::<SessionFold>(store, id, upto, true)
            .map_err(damaged)?
            .map(|at| (at.seq, serde_json::to_value(&at.fold.state).unwrap_or_default().to_string())),
        ChannelKind::Canvas => replay::fold::<CanvasFold>(store, id, upto, false)
            .map_err(damaged)?
            .map(|at| (at.seq, serde_json::to_string(&at.fold.state).unwrap_or_default())),
        ChannelKind::People => replay::fold::<People>(store, id, upto, true)
            .map_err(damaged)?
            .map(|at| (at.seq, serde_json::to_string(&at.fold).unwrap_or_default())),
        ChannelKind::Chat => match replay::fold::<ChatFold>(store, id, upto, true).map_err(damaged)? {
            None => None,
            Some(at) => {
                let read = |n| crate::projections::turns::read(store, id, n);
                let (json, _) = replay::chat_json(&at.fold, limit, read).map_err(damaged)?;
                Some((at.seq, json))
            }
        },
    };
    let (from_seq, state) = found.ok_or_else(|| {
        let text = format!("{name} had no events at or before {upto}");
        Refusal::new(RefusalKind::NotFound, "not-found", text)
    })?;
    Ok(SnapshotJson { resource: Channel::from(name), state: state.into(), from_seq })
}

/// Whether `channel` is the session's default chat after this action if it was before.
fn keeps_default(action: &[u8], channel: &Channel) -> bool {
    if type_of(action) != "session/defaultChatChanged" {
        return true;
    }
    let value: Value = serde_json::from_slice(action).unwrap_or_default();
    value.get("defaultChat").and_then(Value::as_str) == Some(channel.as_str())
}
