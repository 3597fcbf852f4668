//! The commands of resources: `resourceRead` and its like, on the blocking pool.
//!
//! Source: AHP `resource*`.

use std::rc::Rc;
use std::sync::Arc;

use ahp_types::commands::{
    ContentEncoding, DirectoryEntry, ResourceListResult, ResourceReadResult, ResourceResolveResult, ResourceType,
    ResourceWriteMode,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::SecondsFormat;
use serde_json::json;
use serde_json::value::RawValue;

use super::error::{internal, invalid_params, limit};
use super::params::Params;
use super::peer::Peer;
use super::ticket::Ticket;
use crate::access::Identity;
use crate::actors::command::{self, Refusal, RefusalKind};
use crate::actors::connection::Caller;
use crate::actors::host::Host;
use crate::attachments::FileRef;
use crate::events::channel::ROOT;
use crate::projections::fact::Fact;
use crate::resources::{self, Access, Content, Encoding, Found, FoundKind, Mode, ResourceFault, Roots, Write};

/// What a command has found or done; its JSON.
pub(super) type Done = Result<Box<RawValue>, ResourceFault>;

/// What a resource is wanted for, as a refusal says it.
#[derive(Clone, Copy)]
enum Want {
    Read,
    Write,
}

/// A resource that a command names.
pub(super) struct Named {
    uri: String,
    want: Want,
}

/// Works on files and answers. `named` are the resources that a refusal may be about, the likeliest first.
pub(super) fn serve(
    peer: &Peer,
    ticket: Ticket,
    named: Vec<Named>,
    work: impl FnOnce(&Roots, &[Named]) -> Done + Send + 'static,
) {
    serve_and_note(peer, ticket, named, None, work);
}

/// The same for what changes files, which the log says of the caller once it is done.
fn change(
    peer: &Peer,
    ticket: Ticket,
    operation: &str,
    named: Vec<Named>,
    work: impl FnOnce(&Roots, &[Named]) -> Done + Send + 'static,
) {
    let uri_at = |at: usize| named.get(at).map(|one| one.uri.clone());
    let (uri, destination) = (uri_at(0).unwrap_or_default(), uri_at(1));
    let fact = Fact::ResourceChanged { operation: operation.to_owned(), uri, destination };
    serve_and_note(peer, ticket, named, Some(fact), work);
}

/// Works on files, notes `fact` in the log where it is done, and answers.
fn serve_and_note(
    peer: &Peer,
    ticket: Ticket,
    named: Vec<Named>,
    fact: Option<Fact>,
    work: impl FnOnce(&Roots, &[Named]) -> Done + Send + 'static,
) {
    let (host, files, who) = (Arc::clone(&peer.app.host), Arc::clone(&peer.app.files), Arc::clone(&peer.who));
    actix_rt::spawn(async move {
        let Ok(_turn) = files.acquire_owned().await else { return };
        let (of_work, by, is_noted) = (Arc::clone(&host), Arc::clone(&who), fact.is_some());
        let done = move || {
            let (host, roots) = (&of_work, of_work.roots());
            if is_noted {
                // What cannot be written down is not done.
                host.store().accepts_appends().map_err(Refusal::log_unavailable)?;
            }
            let reach = || reaches_own(host, &by, roots, &named);
            reach().and_then(|()| work(roots, &named)).map_err(|fault| refusal(fault, roots, &named))
        };
        let answer = actix_web::web::block(done).await.unwrap_or_else(|fault| Err(internal(&fault)));
        ticket.answer(match (answer, fact) {
            (Ok(done), Some(fact)) => host.note_resource_change(&who.principal, fact).await.map(|()| done),
            (answer, _) => answer,
        });
    });
}

/// Refuses what is in the data directory and no attachment of a chat that `who` may read.
fn reaches_own(host: &Host, who: &Identity, roots: &Roots, named: &[Named]) -> Result<(), ResourceFault> {
    for Named { uri, .. } in named.iter().filter(|_| !who.is_root()) {
        let may = |file| host.may_read_attachment(who, file).unwrap_or(false);
        if roots.is_own(uri).unwrap_or(false) && !FileRef::of_uri(uri).is_some_and(may) {
            return Err(ResourceFault::Outside);
        }
    }
    Ok(())
}

/// The refusal of a command. Of several resources the one is named that may not be reached.
fn refusal(fault: ResourceFault, roots: &Roots, named: &[Named]) -> Refusal {
    let denied = |one: &&Named| roots.permit(&one.uri, access(one.want)).is_err();
    let about = named.iter().find(denied).or(named.first());
    let uri = about.map(|one| one.uri.as_str()).unwrap_or_default();
    let text = format!("{uri}: {fault}");
    match fault {
        ResourceFault::Malformed(_) => Refusal::new(RefusalKind::InvalidParams, "invalid-params", text),
        ResourceFault::Outside => {
            let mut refusal = Refusal::new(RefusalKind::NotPermitted, "not-permitted", text);
            let flag = if matches!(about, Some(Named { want: Want::Write, .. })) { "write" } else { "read" };
            refusal.data = Some(json!({ "request": { "channel": ROOT, "uri": uri, flag: true } }));
            refusal
        }
        ResourceFault::NotFound => Refusal::new(RefusalKind::NotFound, "not-found", text),
        ResourceFault::Exists(_) => Refusal::new(RefusalKind::AlreadyExists, "already-exists", text),
        ResourceFault::Conflict => Refusal::new(RefusalKind::Conflict, "conflict", text),
        ResourceFault::NotAFile => Refusal::new(RefusalKind::InvalidParams, "not-a-file", text),
        ResourceFault::NotADirectory => Refusal::new(RefusalKind::InvalidParams, "not-a-directory", text),
        ResourceFault::NotEmpty => Refusal::new(RefusalKind::InvalidParams, "not-empty", text),
        ResourceFault::TooLarge(_) => limit("message_sent", text),
        ResourceFault::TooMany(_) => limit("watches", text),
        ResourceFault::Full => Refusal::new(RefusalKind::Unavailable, "disk-full", text),
        ResourceFault::System(error) => internal(&format!("a resource: {error}")),
    }
}

fn access(want: Want) -> Access {
    match want {
        Want::Read => Access::Read,
        Want::Write => Access::Write,
    }
}

/// A resource that is only looked at.
pub(super) fn looked_at(uri: String) -> Vec<Named> {
    one(uri, Want::Read)
}

fn one(uri: String, want: Want) -> Vec<Named> {
    vec![Named { uri, want }]
}

/// The URI of the first resource.
fn first(named: &[Named]) -> &str {
    named.first().map(|one| one.uri.as_str()).unwrap_or_default()
}

/// The result `{}`.
fn nothing() -> Box<RawValue> {
    command::json(&json!({}))
}

/// The URI under `name`. What it can name is said when it is looked for.
pub(super) fn uri(params: &Params<'_>, name: &str) -> Result<String, Refusal> {
    let uri: String = params.required(name, "a URI")?;
    super::params::check_uri(name, &uri)?;
    Ok(uri)
}

fn flag(params: &Params<'_>, name: &str) -> Result<Option<bool>, Refusal> {
    params.optional(name, "true or false")
}

/// Answers the content of a file.
pub fn read(peer: &Rc<Peer>, _caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let read = || -> Result<_, Refusal> {
        params.for_root()?;
        let encoding: Option<String> = params.optional("encoding", "base64 or utf-8")?;
        Ok((uri(params, "uri")?, encoding))
    };
    let Some((ticket, (uri, encoding))) = ticket.checked(read()) else { return };
    // What is asked in another way is answered in one of the two.
    let wanted = match encoding.as_deref() {
        Some("base64") => Some(Encoding::Base64),
        Some("utf-8") => Some(Encoding::Utf8),
        _ => None,
    };
    let max = peer.app.settings.max_message_sent as u64;
    serve(peer, ticket, one(uri, Want::Read), move |roots, named| {
        resources::read(roots, first(named), wanted, max).map(|content| command::json(&written(content)))
    });
}

fn written(content: Content) -> ResourceReadResult {
    let Content { bytes, encoding, content_type } = content;
    let text = match encoding {
        Encoding::Utf8 => String::from_utf8(bytes).map_err(|error| error.into_bytes()),
        Encoding::Base64 => Err(bytes),
    };
    let (data, encoding) = match text {
        Ok(text) => (text, ContentEncoding::Utf8),
        Err(bytes) => (STANDARD.encode(bytes), ContentEncoding::Base64),
    };
    ResourceReadResult { data, encoding, content_type: Some(content_type) }
}

/// What `resourceWrite` asks for.
struct Asked {
    uri: String,
    data: Vec<u8>,
    create_only: bool,
    mode: Mode,
    position: u64,
    if_match: Option<String>,
}

/// Writes a file; answers `{}`.
pub fn write(peer: &Rc<Peer>, _caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let Some((ticket, asked)) = ticket.checked(read_write(params)) else { return };
    let Asked { uri, data, create_only, mode, position, if_match } = asked;
    change(peer, ticket, "write", one(uri, Want::Write), move |roots, named| {
        let write = Write { data: &data, create_only, mode, position, if_match: if_match.as_deref() };
        resources::write(roots, first(named), &write).map(|()| nothing())
    });
}

fn read_write(params: &Params<'_>) -> Result<Asked, Refusal> {
    params.for_root()?;
    let uri = uri(params, "uri")?;
    let encoding: ContentEncoding = params.required("encoding", "base64 or utf-8")?;
    let data: String = params.required("data", "a string")?;
    let data = match encoding {
        ContentEncoding::Utf8 => data.into_bytes(),
        ContentEncoding::Base64 => STANDARD.decode(data).map_err(|_| invalid_params("data", "is not base64"))?,
    };
    let mode: Option<ResourceWriteMode> = params.optional("mode", "truncate, append or insert")?;
    let mode = match mode {
        None | Some(ResourceWriteMode::Truncate) => Mode::Truncate,
        Some(ResourceWriteMode::Append) => Mode::Append,
        Some(ResourceWriteMode::Insert) => Mode::Insert,
    };
    let position: Option<u64> = params.optional("position", "a whole number from 0")?;
    let _: Option<String> = params.optional("contentType", "a string")?;
    let create_only = flag(params, "createOnly")?.unwrap_or(false);
    let if_match = params.optional("ifMatch", "a string")?;
    Ok(Asked { uri, data, create_only, mode, position: position.unwrap_or(0), if_match })
}

/// Answers the entries of a directory.
pub fn list(peer: &Rc<Peer>, _caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let read = params.for_root().and_then(|()| uri(params, "uri"));
    let Some((ticket, uri)) = ticket.checked(read) else { return };
    let max = peer.app.settings.max_message_sent as u64;
    serve(peer, ticket, one(uri, Want::Read), move |roots, named| {
        let entries = resources::list(roots, first(named), max)?.into_iter().map(|entry| DirectoryEntry {
            name: entry.name,
            r#type: if entry.is_directory { "directory" } else { "file" }.to_owned(),
        });
        Ok(command::json(&ResourceListResult { entries: entries.collect() }))
    });
}

/// Copies; answers `{}`.
pub fn copy(peer: &Rc<Peer>, _caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let Some((ticket, (source, destination, only_new))) = ticket.checked(read_pair(params)) else { return };
    let named = vec![Named { uri: source, want: Want::Read }, Named { uri: destination, want: Want::Write }];
    change(peer, ticket, "copy", named, move |roots, named| both(roots, named, only_new, resources::copy));
}

/// Moves; answers `{}`.
pub fn rename(peer: &Rc<Peer>, _caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let Some((ticket, (source, destination, only_new))) = ticket.checked(read_pair(params)) else { return };
    let named = vec![Named { uri: source, want: Want::Write }, Named { uri: destination, want: Want::Write }];
    change(peer, ticket, "move", named, move |roots, named| both(roots, named, only_new, resources::rename));
}

/// Something that is done with a source and a destination.
type OfBoth = fn(&Roots, &str, &str, bool) -> Result<(), ResourceFault>;

fn both(roots: &Roots, named: &[Named], only_new: bool, what: OfBoth) -> Done {
    let [source, destination] = named else { return Err(ResourceFault::NotFound) };
    what(roots, &source.uri, &destination.uri, only_new).map(|()| nothing())
}

fn read_pair(params: &Params<'_>) -> Result<(String, String, bool), Refusal> {
    params.for_root()?;
    let only_new = flag(params, "failIfExists")?.unwrap_or(false);
    Ok((uri(params, "source")?, uri(params, "destination")?, only_new))
}

/// Deletes; answers `{}`.
pub fn delete(peer: &Rc<Peer>, _caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let read = || -> Result<_, Refusal> {
        params.for_root()?;
        Ok((uri(params, "uri")?, flag(params, "recursive")?.unwrap_or(false)))
    };
    let Some((ticket, (uri, recursive))) = ticket.checked(read()) else { return };
    change(peer, ticket, "delete", one(uri, Want::Write), move |roots, named| {
        resources::delete(roots, first(named), recursive).map(|()| nothing())
    });
}

/// Answers what is known of a resource.
pub fn resolve(peer: &Rc<Peer>, _caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let read = || -> Result<_, Refusal> {
        params.for_root()?;
        Ok((uri(params, "uri")?, flag(params, "followSymlinks")?.unwrap_or(true)))
    };
    let Some((ticket, (uri, follow))) = ticket.checked(read()) else { return };
    serve(peer, ticket, one(uri, Want::Read), move |roots, named| {
        resources::resolve(roots, first(named), follow).map(|found| command::json(&told(found)))
    });
}

fn told(found: Found) -> ResourceResolveResult {
    let time = |at: std::time::SystemTime| {
        chrono::DateTime::<chrono::Utc>::from(at).to_rfc3339_opts(SecondsFormat::Millis, true)
    };
    ResourceResolveResult {
        uri: found.uri,
        r#type: match found.kind {
            FoundKind::File => ResourceType::File,
            FoundKind::Directory => ResourceType::Directory,
            FoundKind::Symlink => ResourceType::Symlink,
        },
        size: found.size.and_then(|size| i64::try_from(size).ok()),
        mtime: found.modified.map(time),
        ctime: found.created.map(time),
        content_type: found.content_type,
        etag: Some(found.etag),
    }
}

/// Makes a directory; answers `{}`.
pub fn make_directory(peer: &Rc<Peer>, _caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let read = params.for_root().and_then(|()| uri(params, "uri"));
    let Some((ticket, uri)) = ticket.checked(read) else { return };
    change(peer, ticket, "mkdir", one(uri, Want::Write), move |roots, named| {
        resources::make_directory(roots, first(named)).map(|()| nothing())
    });
}

/// Answers `{}` where a resource may be reached: whatever lies in the allowed directories.
pub fn request(peer: &Rc<Peer>, _caller: &Caller, params: &Params<'_>, ticket: Ticket) {
    let read = || -> Result<_, Refusal> {
        params.for_root()?;
        let (reads, writes) = (flag(params, "read")?, flag(params, "write")?);
        Ok((uri(params, "uri")?, if writes == Some(true) { Want::Write } else { Want::Read }, reads))
    };
    let Some((ticket, (uri, want, _))) = ticket.checked(read()) else { return };
    serve(peer, ticket, one(uri, want), move |roots, named| {
        // Whoever may write a resource may read it.
        roots.permit(first(named), access(want)).map(|()| nothing())
    });
}
