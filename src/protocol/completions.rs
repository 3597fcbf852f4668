//! `completions`: what a message that is being written may go on with.
//!
//! The chat's agent and directories are looked up on its session's thread; files are searched on the blocking pool.
//! Source: AHP `completions`; the list of features, C3.

use std::rc::Rc;
use std::sync::Arc;

use ahp_types::commands::{CompletionItem, CompletionItemKind, CompletionsResult};
use ahp_types::state::{MessageAttachment, MessageChatAttachment, MessageResourceAttachment, SimpleMessageAttachment};
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use super::error::{count_limit, internal, invalid_params};
use super::params::Params;
use super::peer::Peer;
use super::ticket::Ticket;
use super::trigger::{self, Trigger};
use crate::access::Identity;
use crate::actors::agent::AgentCommand;
use crate::actors::command::{self, Refusal};
use crate::actors::connection::Caller;
use crate::actors::session::ChatLook;
use crate::projections::people::Operation;
use crate::resources::{self, FoundPath, Reach, Roots};

/// What a reference to a chat begins with, behind the `#`.
const CHAT: &str = "chat:";
/// Entries of directories that one answer looks at.
const MAX_ENTRIES: usize = 50_000;

/// Answers the items for a message that is being written.
pub fn completions(peer: &Rc<Peer>, caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let Some((ticket, (chat, before))) = ticket.checked(read(params)) else { return };
    let (sender, looked) = oneshot::channel();
    peer.app.host.look_at_chat(&caller.who, &chat, Box::new(move |look| drop(sender.send(look))));
    let (peer, who) = (Rc::clone(peer), Arc::clone(&caller.who));
    actix_rt::spawn(async move {
        let look = match looked.await {
            Ok(Ok(look)) => shown_to(&peer, &who, look),
            Ok(Err(refusal)) => return ticket.refuse(refusal),
            Err(fault) => return ticket.refuse(internal(&fault)),
        };
        let commands = peer.app.host.agent(&look.provider).map(|agent| agent.commands()).unwrap_or_default();
        let (roots, settings) = (Arc::clone(peer.app.host.roots()), &peer.app.settings);
        let reach = Reach { paths: settings.max_completions, entries: MAX_ENTRIES, time: settings.completion_time };
        let Ok(_turn) = Arc::clone(&peer.app.searches).acquire_owned().await else { return };
        let items = actix_web::web::block(move || items(&before, &look, &commands, &roots, reach)).await;
        ticket.answer(match items {
            Ok(items) => Ok(command::json(&CompletionsResult { items })),
            Err(fault) => Err(internal(&fault)),
        });
    });
}

/// What of a chat's surroundings somebody may see: files are for those who read files.
fn shown_to(peer: &Peer, who: &Identity, mut look: ChatLook) -> ChatLook {
    if !peer.app.host.may(who, Operation::FileRead, None) {
        look.directories.clear();
    }
    look.others.retain(|(chat, _)| peer.app.host.may_read(who, chat));
    look
}

/// The chat, and the text up to the cursor. A kind of text that is not known has nothing to go on with.
fn read(params: &Params<'_>) -> Result<(String, String), Refusal> {
    let chat = params.channel()?;
    let kind: CompletionItemKind = params.required("kind", "userMessage")?;
    let mut text: String = params.required("text", "a string")?;
    let offset: u64 = params.required("offset", "a whole number from 0")?;
    let place = trigger::place(&text, offset)
        .ok_or_else(|| invalid_params("offset", "must be between characters of the text, in UTF-16 code units"))?;
    text.truncate(if kind == CompletionItemKind::UserMessage { place } else { 0 });
    Ok((chat, text))
}

fn items(before: &str, look: &ChatLook, commands: &[AgentCommand], roots: &Roots, reach: Reach) -> Vec<CompletionItem> {
    let Some(asked) = trigger::asked(before) else { return Vec::new() };
    let range = (asked.start, before.encode_utf16().count() as u64);
    let item = |(insert_text, attachment): (String, MessageAttachment)| CompletionItem {
        insert_text,
        range_start: i64::try_from(range.0).ok(),
        range_end: i64::try_from(range.1).ok(),
        attachment,
    };
    let mut found = match asked.trigger {
        Trigger::Command => of_commands(commands, asked.query),
        Trigger::Path => of_files("@", look, asked.query, roots, reach),
        Trigger::Reference => {
            let mut found = of_chats(look, asked.query);
            found.extend(of_files("#", look, asked.query, roots, reach));
            found
        }
    };
    found.truncate(reach.paths);
    found.into_iter().map(item).collect()
}

type Offered = (String, MessageAttachment);

fn of_commands(commands: &[AgentCommand], query: &str) -> Vec<Offered> {
    let query = query.to_lowercase();
    let fitting = commands.iter().filter(|command| command.name.to_lowercase().starts_with(&query));
    let offered = fitting.map(|command| {
        let meta = Map::from_iter([
            ("scrollback.description".to_owned(), Value::from(command.description.as_str())),
            ("scrollback.arguments".to_owned(), Value::from(command.arguments.as_str())),
        ]);
        let name = format!("/{}", command.name);
        let attachment = SimpleMessageAttachment {
            label: name.clone(),
            range: None,
            display_kind: Some("command".to_owned()),
            meta: Some(meta),
            model_representation: None,
        };
        (name, MessageAttachment::Simple(attachment))
    });
    offered.collect()
}

/// The session's other chats, on the way to `#chat:` and behind it.
fn of_chats(look: &ChatLook, query: &str) -> Vec<Offered> {
    let query = query.to_lowercase();
    let wanted = match query.strip_prefix(CHAT) {
        Some(wanted) => wanted,
        None if CHAT.starts_with(&query) => "",
        None => return Vec::new(),
    };
    let fits = |title: &str| title.to_lowercase().contains(wanted);
    let mut fitting: Vec<&(String, String)> = look.others.iter().filter(|(_, title)| fits(title)).collect();
    fitting.sort_by_key(|(_, title)| !title.to_lowercase().starts_with(wanted));
    let offered = fitting.into_iter().map(|(resource, title)| {
        let label = if title.is_empty() { resource.clone() } else { title.clone() };
        let insert = format!("#{CHAT}{label}");
        let attachment = MessageChatAttachment {
            label,
            range: None,
            display_kind: None,
            meta: None,
            resource: resource.clone(),
            end_turn: None,
        };
        (insert, MessageAttachment::Chat(attachment))
    });
    offered.collect()
}

fn of_files(mark: &str, look: &ChatLook, query: &str, roots: &Roots, reach: Reach) -> Vec<Offered> {
    let search = resources::find(roots, &look.directories, query, reach);
    if !search.is_whole {
        count_limit("completions");
    }
    search.found.into_iter().map(|found| (format!("{mark}{}", found.path), attached(found))).collect()
}

fn attached(found: FoundPath) -> MessageAttachment {
    let name = found.path.rsplit('/').next().unwrap_or_default().to_owned();
    let kind = if found.is_directory { "directory" } else { resources::display_kind(&name) };
    MessageAttachment::Resource(MessageResourceAttachment {
        label: name,
        range: None,
        display_kind: Some(kind.to_owned()),
        meta: None,
        uri: found.uri,
        size_hint: None,
        content_type: None,
        nonce: None,
        selection: None,
    })
}
