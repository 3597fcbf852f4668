//! A chat that a message names, as the agent is told of it: its link, how to read it, and the end of what was said in it.
//!
//! Read from the rows of its turns, so it may be asleep or in another session. Only the branch that ends at the chat's head
//! counts: a turn that was dropped is not there. Source: AHP chat attachments.

use serde_json::{Map, Value};

use crate::actors::identity::Identity;
use crate::actors::rejection::{Code, Rejection};
use crate::actors::shared::Shared;
use crate::attachments::sent::text;
use crate::events::rows::ChannelKind;
use crate::events::{ChannelId, ServerSeq};
use crate::projections::chat::ChatFold;
use crate::projections::transcript::{self, Spoken};
use crate::projections::turns;
use crate::projections::{FoldFault, replay};

/// What came of an attached chat.
pub struct Excerpt {
    /// The turn that it was read up to.
    pub end_turn: Option<String>,
    /// What the agent is given.
    pub text: String,
}

/// Reads the chat that `attachment`, the one at this place of its message, names.
///
/// # Errors
/// [`Code::BadAttachment`] for a turn that is not among the chat's finished ones; [`Code::LogUnavailable`].
pub fn of(shared: &Shared, who: &Identity, at: usize, attachment: &Map<String, Value>) -> Result<Excerpt, Rejection> {
    let label = text(attachment, "label").unwrap_or_default();
    let resource = text(attachment, "resource").unwrap_or_default();
    let wanted = text(attachment, "endTurn");
    let unavailable = |fault: FoldFault| Rejection::new(Code::LogUnavailable, fault.to_string());
    let found = shared.registry.resolve(resource).map_err(unavailable)?;
    let found = found.filter(|found| found.kind == ChannelKind::Chat && shared.may_read(who, found));
    let Some(found) = found else {
        return Ok(Excerpt { end_turn: None, text: pointer(label, resource) });
    };
    let limit = shared.settings.max_chat_excerpt;
    let (end_turn, said) = read(shared, found.id, wanted, limit).map_err(unavailable)?;
    if let (Some(turn), None) = (wanted, &end_turn) {
        let problem = format!("attachment {}: {turn} is no finished turn of {resource}", at + 1);
        return Err(Rejection::new(Code::BadAttachment, problem));
    }
    let mut text = pointer(label, found.channel.as_str());
    if !said.is_empty() {
        text.push_str("\n\nThe end of it:\n\n");
        text.push_str(&said);
    }
    Ok(Excerpt { end_turn, text })
}

/// The label, the link, and how to read it.
fn pointer(label: &str, link: &str) -> String {
    format!("{label}\n{link}\nAnother chat. Call get_session_context with this link to read it.")
}

/// The turn that the chat is read up to (the one that is wanted, else the last) and the last `limit` characters up to its end.
fn read(
    shared: &Shared,
    chat: ChannelId,
    wanted: Option<&str>,
    limit: usize,
) -> Result<(Option<String>, String), FoldFault> {
    let store = shared.store.as_ref();
    let now = replay::fold::<ChatFold>(store, chat, ServerSeq::MAX, true)?;
    let mut next = now.map_or(0, |now| now.fold.head());
    let (mut pinned, mut said, mut length) = (None, Vec::new(), 0);
    while next != 0 && length < limit {
        let turn = turns::read(store, chat, next)?;
        next = turn.row.prev;
        let Some(spoken) = Spoken::of(&turn.json) else { continue };
        if pinned.is_none() && wanted.is_some_and(|wanted| wanted != spoken.turn_id) {
            continue;
        }
        let text = spoken.text();
        length += text.chars().count();
        said.push(text);
        pinned.get_or_insert(spoken.turn_id);
    }
    said.reverse();
    Ok((pinned, transcript::end_of(&said.concat(), limit)))
}
