//! `GET /api/lineage`: the chats of a session, where each came from, and the turns that rewinds dropped.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse};
use ahp_types::actions::StateAction;
use ahp_types::state::{ChatOrigin, ChatSummary, SessionSummary};
use serde::{Deserialize, Serialize};

use super::answer::{Admitted, ApiFault, off_thread};
use super::inspect::one_line;
use super::query::Query;
use crate::actors::command::{Refusal, RefusalKind};
use crate::actors::host::Host;
use crate::actors::identity::Identity;
use crate::events::rows::{ChannelKind, ChannelRow};
use crate::events::{ChannelId, Kind, ServerSeq, Store};
use crate::projections::action::{Action, type_of};
use crate::projections::branches::{Branches, Dropped};
use crate::projections::session::SessionFold;
use crate::projections::{FoldFault, catalogue, replay, turns};

/// Dropped branches of one chat that are shown, the newest ones.
const BRANCHES: usize = 50;

/// The answer.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Lineage {
    session: SessionSummary,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    disposed: bool,
    chats: Vec<Listed>,
}

/// A chat of the session.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    #[serde(flatten)]
    summary: ChatSummary,
    /// Whether it was closed, or is in another session now.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    closed: bool,
    /// The chat that it came from: the source of a fork or a side chat, or the one whose tool call spawned it.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    /// How many turns its branch has, those of its source too.
    turns: u64,
    /// The turns that rewinds dropped, by branch, the newest first; at most 50 of them.
    branches: Vec<Branch>,
}

/// Turns that a rewind dropped.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Branch {
    turns: u64,
    /// The last of them, and the event that ended it: where the chat can be forked.
    turn_id: String,
    ended: ServerSeq,
    /// The event that dropped them.
    dropped: ServerSeq,
    /// The turn that they followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<String>,
    /// How the first of them begins.
    text: String,
}

/// The chats of the session that `session` names, itself or with one of its chats; with `closed=true` those that were
/// closed too, for who reads their log.
pub async fn show(admitted: Admitted, request: HttpRequest) -> Result<HttpResponse, ApiFault> {
    let query = Query::of(&request, &["session", "closed"])?;
    let uri = query.text("session")?.ok_or_else(|| ApiFault::bad_parameter("session", "is needed"))?;
    let closed = query.flag("closed")?;
    let (host, who) = (Arc::clone(&admitted.admin.host), Arc::clone(&admitted.who));
    let _ = admitted.admin.host.writer().barrier().await;
    Ok(HttpResponse::Ok().json(off_thread(move || lineage(&host, &who, &uri, closed)).await?))
}

fn lineage(host: &Host, who: &Identity, uri: &str, closed: bool) -> Result<Lineage, ApiFault> {
    let store = &**host.store();
    let missing = || ApiFault::from(unknown(uri));
    let (_, id) = host.stored(who, uri)?.ok_or_else(missing)?;
    let row = row_of(store, id)?.ok_or_else(missing)?;
    let session = ChannelId(row.session);
    let entry = catalogue::entry(store, session)?.ok_or_else(missing)?;
    if host.stored(who, &entry.summary.resource)?.is_none() {
        return Err(missing());
    }
    let fold = replay::fold::<SessionFold>(store, session, ServerSeq::MAX, true)?.ok_or_else(missing)?;
    let open = fold.fold.state.chats;
    let mut chats = Vec::with_capacity(open.len());
    if closed && host.may_read_log(who, Some(&row))? {
        for summary in gone(store, session, &open)? {
            chats.push(listed(host, who, summary, true)?);
        }
    }
    for summary in open {
        chats.push(listed(host, who, summary, false)?);
    }
    Ok(Lineage { session: entry.summary, disposed: entry.disposed, chats })
}

fn unknown(uri: &str) -> Refusal {
    Refusal::new(RefusalKind::NotFound, "not-found", format!("there is no channel {uri}"))
}

fn row_of(store: &dyn Store, id: ChannelId) -> Result<Option<ChannelRow>, FoldFault> {
    match catalogue::uri(store, id)? {
        Some(uri) => Ok(catalogue::channel(store, uri.as_str())?.filter(|row| row.session != 0)),
        None => Ok(None),
    }
}

/// The chats that the session's log names and that are not in it any more. Reads the session's events.
fn gone(store: &dyn Store, session: ChannelId, open: &[ChatSummary]) -> Result<Vec<ChatSummary>, FoldFault> {
    let mut known: BTreeMap<String, ChatSummary> = BTreeMap::new();
    store.scan_channel(session, 0, ServerSeq::MAX, &mut |record| {
        let tells = record.kind == Kind::Action
            && matches!(&*type_of(&record.action), "session/chatAdded" | "session/chatUpdated");
        let action = tells.then(|| Action::from_stored(record.action.clone()).ok()).flatten();
        match action.map(|action| action.decoded) {
            Some(StateAction::SessionChatAdded(added)) => {
                known.insert(added.summary.resource.clone(), added.summary);
            }
            Some(StateAction::SessionChatUpdated(updated)) => {
                let chat = known.get_mut(&updated.chat);
                if let Some((chat, title)) = chat.zip(updated.changes.title) {
                    chat.title = title;
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    for chat in open {
        known.remove(&chat.resource);
    }
    Ok(known.into_values().collect())
}

/// A chat with what it came from. What rewinds dropped of it is for those who may read it.
fn listed(host: &Host, who: &Identity, summary: ChatSummary, closed: bool) -> Result<Listed, FoldFault> {
    let store = &**host.store();
    let parent = match &summary.origin {
        Some(ChatOrigin::Fork { chat, .. } | ChatOrigin::SideChat { chat, .. } | ChatOrigin::Tool { chat, .. }) => {
            Some(chat.clone())
        }
        _ => None,
    };
    let row = catalogue::channel(store, &summary.resource)?.filter(|row| row.kind == ChannelKind::Chat);
    let Some(id) = row.map(|row| ChannelId(row.id)) else {
        // It was erased.
        return Ok(Listed { summary, closed, parent, turns: 0, branches: Vec::new() });
    };
    let branches = Branches::read(store, id)?;
    let turns = if branches.head == 0 { 0 } else { turns::read(store, id, branches.head)?.row.ordinal };
    let mut shown = Vec::new();
    if host.may_read_stored(who, &summary.resource) {
        for dropped in branches.dropped.iter().take(BRANCHES) {
            shown.extend(branch(store, id, dropped)?);
        }
    }
    Ok(Listed { summary, closed, parent, turns, branches: shown })
}

/// What a turn is called, and how it begins.
#[derive(Deserialize)]
struct Told {
    id: String,
    message: Said,
}

#[derive(Deserialize)]
struct Said {
    #[serde(default)]
    text: String,
}

/// `None` for a turn that was taken up again: it goes on under its own id.
fn branch(store: &dyn Store, chat: ChannelId, dropped: &Dropped) -> Result<Option<Branch>, FoldFault> {
    let told = |n: u64| -> Result<Option<Told>, FoldFault> {
        Ok(if n == 0 { None } else { serde_json::from_slice(&turns::read(store, chat, n)?.json).ok() })
    };
    let (Some(tip), Some(first)) = (told(dropped.tip)?, told(dropped.first)?) else { return Ok(None) };
    if let Some(instead) = dropped.replaced_by
        && told(instead)?.is_some_and(|instead| instead.id == first.id)
    {
        return Ok(None);
    }
    Ok(Some(Branch {
        turns: dropped.turns,
        turn_id: tip.id,
        ended: dropped.ended,
        dropped: dropped.dropped,
        after: told(dropped.from)?.map(|turn| turn.id),
        text: one_line(&first.message.text),
    }))
}
