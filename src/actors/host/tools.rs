//! What the host's tools for its agents ask of the host.

use std::sync::Arc;

use super::{Host, not_found};
use crate::actors::command::{Refusal, RefusalKind};
use crate::actors::identity::Identity;
use crate::actors::transcript::{Cursor, Filling, turn_text};
use crate::events::rows::ChannelKind;
use crate::events::{Channel, ChannelId, ServerSeq};
use crate::projections::chat::ChatFold;
use crate::projections::people::Operation;
use crate::projections::transcript::Spoken;
use crate::projections::turns::{self, StoredTurn};
use crate::projections::{FoldFault, catalogue, replay};

/// Whose tools a request is for: a chat, and the agent that works in it.
#[derive(Debug, Clone)]
pub struct ToolUser {
    pub session: ChannelId,
    pub chat: Channel,
    /// `agent:<provider>`.
    pub principal: Arc<str>,
}

/// A page of a chat's transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscriptPage {
    pub title: String,
    pub text: String,
    /// What to ask with for the page before; `None` at the beginning of the chat.
    pub before: Option<String>,
}

impl Host {
    /// Who uses the tools of `chat` with `token`; `None` where the token is not that of the chat's session. Reads the store.
    ///
    /// # Errors
    /// [`FoldFault`] when the store cannot be read.
    pub fn tool_user(&self, chat: &Channel, token: &str) -> Result<Option<ToolUser>, FoldFault> {
        let found = self.shared.registry.resolve(chat.as_str())?.filter(|found| found.kind == ChannelKind::Chat);
        let Some(found) = found.filter(|found| self.shared.tokens.opens(found.session, token)) else { return Ok(None) };
        let entry = catalogue::entry(self.shared.store.as_ref(), found.session)?;
        let Some(provider) = entry.map(|entry| entry.summary.provider) else { return Ok(None) };
        let principal = Arc::from(format!("agent:{provider}"));
        Ok(Some(ToolUser { session: found.session, chat: found.channel, principal }))
    }

    /// A page of the transcript of the chat that `uri` names: a chat's link, or a session's for its default chat. Up to the end of
    /// `up_to`, or of what is there now with what runs. As it is on disk; wakes nobody. Reads the store.
    ///
    /// # Errors
    /// A [`Refusal`] for a chat, a turn or a cursor that is not there.
    pub fn transcript(
        &self,
        user: &ToolUser,
        uri: &str,
        up_to: Option<&str>,
        before: Option<&str>,
    ) -> Result<TranscriptPage, Refusal> {
        let (id, session) = self.chat_of_link(uri)?;
        let damaged = |fault: FoldFault| Refusal::new(RefusalKind::Internal, "damaged", fault.to_string());
        if session != user.session && !self.askers_may_read(user, session).map_err(damaged)? {
            return Err(not_found(uri));
        }
        let store = self.shared.store.as_ref();
        let at = replay::fold::<ChatFold>(store, id, ServerSeq::MAX, true).map_err(damaged)?;
        let Some(at) = at else { return Err(not_found(uri)) };
        let cursor = match before.map(|text| (text, Cursor::parse(text))) {
            Some((text, None)) => return Err(no_cursor(text)),
            Some((_, cursor)) => cursor,
            None => up_to.map(|turn_id| Cursor { turn_id: turn_id.to_owned(), had: 0 }),
        };
        let read = |n| turns::read(store, id, n);
        fill(&at.fold, cursor, up_to.is_some() && before.is_none(), read).map_err(|fault| match fault {
            Unfilled::Fault(fault) => damaged(fault),
            Unfilled::NoTurn(turn_id) => {
                let text = format!("upToTurn: there is no turn {turn_id} in {uri}");
                Refusal::new(RefusalKind::NotFound, "not-found", text)
            }
            Unfilled::NoCursor(turn_id) => no_cursor(&turn_id),
        })
    }

    /// Whether an agent may read the chats of another session for those whose work it does. Its token is its session's, and the
    /// chat is what it says: so everybody may have to whose turns run in the session, and somebody has to have asked in the chat.
    fn askers_may_read(&self, user: &ToolUser, session: ChannelId) -> Result<bool, FoldFault> {
        let (store, registry) = (self.shared.store.as_ref(), &self.shared.registry);
        let Some(uri) = registry.session_uri(session)? else { return Ok(false) };
        let may = |asker: &String| self.shared.may(&Identity::bare(asker), Operation::ChatTurns, Some(uri.as_str()));
        let mut is_asked = false;
        for running in self.running()? {
            let chat = registry.resolve(running.uri.as_str())?.filter(|chat| chat.session == user.session);
            let Some(chat) = chat else { continue };
            let Some(at) = replay::fold::<ChatFold>(store, chat.id, ServerSeq::MAX, true)? else { continue };
            if !at.fold.askers.iter().all(may) {
                return Ok(false);
            }
            is_asked |= chat.channel == user.chat && at.fold.state.active_turn.is_some() && !at.fold.askers.is_empty();
        }
        Ok(is_asked)
    }

    /// The chat that a link stands for, and its session.
    fn chat_of_link(&self, uri: &str) -> Result<(ChannelId, ChannelId), Refusal> {
        let found =
            self.shared.registry.resolve(uri).map_err(Refusal::log_unavailable)?.ok_or_else(|| not_found(uri))?;
        match found.kind {
            ChannelKind::Chat => Ok((found.id, found.session)),
            ChannelKind::Session => {
                let entry = catalogue::entry(self.shared.store.as_ref(), found.id).map_err(Refusal::log_unavailable)?;
                let chat = entry.and_then(|entry| entry.summary.default_chat).ok_or_else(|| not_found(uri))?;
                let chat = self
                    .shared
                    .registry
                    .resolve(&chat)
                    .map_err(Refusal::log_unavailable)?
                    .ok_or_else(|| not_found(uri))?;
                Ok((chat.id, found.id))
            }
            _ => Err(not_found(uri)),
        }
    }
}

fn no_cursor(text: &str) -> Refusal {
    let text = format!("before: {text} is not what an earlier page said: leave it out to begin at the end");
    Refusal::new(RefusalKind::InvalidParams, "unknown-cursor", text)
}

enum Unfilled {
    Fault(FoldFault),
    NoTurn(String),
    NoCursor(String),
}

/// Fills a page back from `end`, or from the end of what is there.
fn fill(
    fold: &ChatFold,
    end: Option<Cursor>,
    is_up_to: bool,
    read: impl Fn(u64) -> Result<StoredTurn, FoldFault>,
) -> Result<TranscriptPage, Unfilled> {
    let mut page = Filling::default();
    let mut more = None;
    let mut looks_for = end;
    if let Some(turn) = &fold.state.active_turn {
        let had = match &looks_for {
            None => Some(0),
            Some(cursor) if cursor.turn_id == turn.id => Some(cursor.had),
            Some(_) => None,
        };
        if let Some(had) = had {
            looks_for = None;
            more = page.put(&turn.id, turn_text(&Spoken::so_far(turn), true), had);
        }
    }
    let mut next = fold.head();
    while next != 0 && more.is_none() {
        let turn = read(next).map_err(Unfilled::Fault)?;
        next = turn.row.prev;
        let Some(spoken) = Spoken::of(&turn.json) else { continue };
        let had = match looks_for.take() {
            Some(cursor) if cursor.turn_id == spoken.turn_id => cursor.had,
            None => 0,
            elsewhere => {
                looks_for = elsewhere;
                continue;
            }
        };
        more = page.put(&spoken.turn_id, turn_text(&spoken, false), had);
    }
    match looks_for {
        Some(cursor) if is_up_to => Err(Unfilled::NoTurn(cursor.turn_id)),
        Some(cursor) => Err(Unfilled::NoCursor(cursor.text())),
        None => {
            let before = more.map(|cursor| cursor.text());
            Ok(TranscriptPage { title: fold.state.title.clone(), text: page.text(), before })
        }
    }
}
