//! The work on one message's attachments. Everything here blocks.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use ahp_types::commands::{ContentEncoding, ResourceReadResult};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::excerpt;
use super::fetch::{self, Fetched};
use super::{Attached, Job};
use crate::actors::chat::message::clean;
use crate::actors::rejection::{Code, Rejection};
use crate::actors::shared::Shared;
use crate::attachments::kind::{self, Inline};
use crate::attachments::sent::{self, text};
use crate::attachments::{FileRef, Staged};
use crate::projections::fact::ChatText;
use crate::projections::people::Operation;
use crate::resources::Access;
use crate::resources::uri::file_path;

/// What is to be done with an attachment, by its place in the message.
enum Item {
    /// Its bytes are to be written.
    Bytes(usize, Vec<u8>),
    /// It refers to a file that is stored already.
    Stored(usize, FileRef),
    /// Only the client holds the file with this URI.
    Fetch(usize, String),
}

/// A message whose attachments are looked at, and what is to be done with them.
pub struct Work {
    shared: Arc<Shared>,
    /// The action or message; of what is to be written the bytes are taken out.
    value: Value,
    is_action: bool,
    items: Vec<Item>,
    chats: Vec<ChatText>,
    files: Staged,
    inline: Inline,
}

impl Work {
    /// Looks at every attachment. Nothing is written.
    ///
    /// # Errors
    /// As [`super::prepare`].
    pub fn begin(job: &Job) -> Result<Self, Rejection> {
        let malformed = |e: serde_json::Error| Rejection::new(Code::Malformed, e.to_string());
        let settings = &job.shared.settings;
        let mut work = Self {
            shared: Arc::clone(&job.shared),
            value: serde_json::from_slice(&job.sent).map_err(malformed)?,
            is_action: job.is_action,
            items: Vec::new(),
            chats: Vec::new(),
            files: job.shared.attachments.stage(job.session),
            inline: Inline {
                images: job.images,
                max_image: settings.max_inline_image,
                max_text: settings.max_inline_text,
            },
        };
        let mut value = std::mem::take(&mut work.value);
        clean(&mut value);
        if let Some(message) = message(&mut value, job.is_action) {
            for (at, attachment) in entries(message) {
                work.look_at(at, attachment, job)?;
            }
        }
        work.value = value;
        Ok(work)
    }

    fn look_at(&mut self, at: usize, attachment: &mut Map<String, Value>, job: &Job) -> Result<(), Rejection> {
        match text(attachment, "type") {
            Some("embeddedResource") => self.items.push(Item::Bytes(at, embedded(at, attachment)?)),
            Some("resource") => self.look_at_resource(at, attachment, job)?,
            Some("chat") if job.pins => {
                let excerpt = excerpt::of(&job.shared, &job.caller.who, at, attachment)?;
                if let Some(turn) = excerpt.end_turn {
                    attachment.insert("endTurn".into(), json!(turn));
                }
                self.chats.push(ChatText { index: at, text: excerpt.text });
            }
            _ => {}
        }
        Ok(())
    }

    fn look_at_resource(&mut self, at: usize, attachment: &Map<String, Value>, job: &Job) -> Result<(), Rejection> {
        let uri = text(attachment, "uri").unwrap_or_default();
        if !sent::is_file(uri) {
            return Ok(());
        }
        let (shared, who) = (&job.shared, &job.caller.who);
        if let Some(file) = FileRef::of_uri(uri).filter(|file| self.files.take(*file)) {
            let may = shared.may_name_attachment(who, file, job.session);
            if !may.map_err(|fault| Rejection::new(Code::LogUnavailable, fault.to_string()))? {
                let text = format!("attachment {}: there is no stored attachment {uri}", at + 1);
                return Err(Rejection::new(Code::BadAttachment, text));
            }
            self.items.push(Item::Stored(at, file));
            return Ok(());
        }
        let limit = self.shared.settings.max_fetched_attachment;
        let size = attachment.get("sizeHint").and_then(Value::as_u64);
        // Who may not look at it is not told whether it is there: their client is asked.
        let may_look = shared.may(who, Operation::FileRead, None) && shared.roots.permit(uri, Access::Read).is_ok();
        let is_here = (who.is_root() || may_look) && is_here(uri);
        if is_here || sent::is_directory(attachment) {
            return Ok(());
        }
        if size.is_some_and(|size| size > limit as u64) {
            too_large(limit);
            return Ok(());
        }
        self.items.push(Item::Fetch(at, uri.to_owned()));
        Ok(())
    }

    /// What only the client holds.
    pub fn to_fetch(&self) -> Vec<(usize, String)> {
        let wanted = self.items.iter().filter_map(|item| match item {
            Item::Fetch(at, uri) => Some((*at, uri.clone())),
            _ => None,
        });
        wanted.collect()
    }

    /// Writes what is to be written, and makes the attachments refer to it.
    pub fn write(&mut self, fetched: Vec<Fetched>) {
        // A log that takes nothing is told by what follows; its disk is not filled meanwhile.
        if self.shared.store.accepts_appends().is_err() {
            return;
        }
        let mut items = std::mem::take(&mut self.items);
        items.retain(|item| !matches!(item, Item::Fetch(..)));
        let mut value = std::mem::take(&mut self.value);
        if let Some(message) = message(&mut value, self.is_action) {
            let mut attachments: Vec<(usize, &mut Map<String, Value>)> = entries(message).collect();
            let mut with = |at: usize, act: &mut dyn FnMut(&mut Map<String, Value>)| {
                if let Some((_, attachment)) = attachments.iter_mut().find(|(place, _)| *place == at) {
                    act(attachment);
                }
            };
            for item in items {
                match item {
                    Item::Bytes(at, bytes) => with(at, &mut |attachment| self.store_embedded(attachment, &bytes)),
                    Item::Stored(at, file) => with(at, &mut |attachment| self.refer_again(attachment, file)),
                    Item::Fetch(..) => {}
                }
            }
            for (at, answer) in fetched {
                with(at, &mut |attachment| self.store_fetched(attachment, &answer));
            }
        }
        self.value = value;
    }

    /// The action or message as it is to be recorded.
    pub fn finish(mut self) -> (Value, Attached) {
        if let Some(message) = message(&mut self.value, self.is_action) {
            sent::each(message).for_each(sent::by_path_where_tagged);
        }
        (self.value, Attached { chats: self.chats, files: self.files })
    }

    fn store_embedded(&mut self, attachment: &mut Map<String, Value>, bytes: &[u8]) {
        let content_type = text(attachment, "contentType").unwrap_or(kind::OCTETS).to_owned();
        self.store(attachment, bytes, &content_type);
    }

    fn store_fetched(
        &mut self,
        attachment: &mut Map<String, Value>,
        answer: &Result<Box<serde_json::value::RawValue>, String>,
    ) {
        let limit = self.shared.settings.max_fetched_attachment;
        let file =
            answer.clone().and_then(|answer| fetch::decode(&answer)).and_then(|file| Ok((bytes_of(&file)?, file)));
        let (bytes, file) = match file {
            Ok((bytes, _)) if bytes.len() > limit => return too_large(limit),
            Ok(file) => file,
            Err(problem) => {
                return tracing::warn!(problem, "an attachment that only a client holds is left where it is");
            }
        };
        let name = text(attachment, "uri").unwrap_or_default();
        let named = text(attachment, "contentType").map(str::to_owned).or(file.content_type);
        let content_type = named.unwrap_or_else(|| kind::guess(name, &bytes).to_owned());
        self.store(attachment, &bytes, &content_type);
    }

    fn store(&mut self, attachment: &mut Map<String, Value>, bytes: &[u8], content_type: &str) {
        match self.files.write(bytes) {
            Ok(file) => {
                let sent_as = kind::sent_as(content_type, bytes, self.inline);
                sent::refer(attachment, &self.files.uri(file), bytes.len() as u64, content_type, sent_as);
            }
            Err(fault) => tracing::warn!(%fault, "an attachment cannot be written and is left as it was sent"),
        }
    }

    /// A copy that is stored already, such as that of a draft which is sent now.
    fn refer_again(&mut self, attachment: &mut Map<String, Value>, file: FileRef) {
        match self.files.read(file) {
            Ok(bytes) => {
                let uri = text(attachment, "uri").unwrap_or_default().to_owned();
                let named = text(attachment, "contentType").map(str::to_owned);
                let content_type = named.unwrap_or_else(|| kind::guess(&uri, &bytes).to_owned());
                let sent_as = kind::sent_as(&content_type, &bytes, self.inline);
                sent::refer(attachment, &self.files.uri(file), bytes.len() as u64, &content_type, sent_as);
            }
            Err(fault) => tracing::warn!(%fault, "a stored attachment cannot be read and is left as it was sent"),
        }
    }
}

fn too_large(limit: usize) {
    metrics::counter!("scrollback_limit_met_total", "limit" => "fetched_attachment").increment(1);
    tracing::warn!(limit, "an attachment that only a client holds is too large to fetch and is left where it is");
}

/// The message in an action, or the message itself.
fn message(value: &mut Value, is_action: bool) -> Option<&mut Value> {
    if is_action { sent::message_of(value) } else { Some(value) }
}

/// Each attachment with its place.
fn entries(message: &mut Value) -> impl Iterator<Item = (usize, &mut Map<String, Value>)> {
    let attachments = message.get_mut("attachments").and_then(Value::as_array_mut);
    let all = attachments.into_iter().flatten().enumerate();
    all.filter_map(|(at, attachment)| Some((at, attachment.as_object_mut()?)))
}

fn embedded(at: usize, attachment: &Map<String, Value>) -> Result<Vec<u8>, Rejection> {
    let data = text(attachment, "data").unwrap_or_default();
    STANDARD.decode(data).map_err(|problem| {
        Rejection::new(Code::BadAttachment, format!("attachment {}: its data is not base64: {problem}", at + 1))
    })
}

fn bytes_of(file: &ResourceReadResult) -> Result<Vec<u8>, String> {
    match &file.encoding {
        ContentEncoding::Base64 => {
            STANDARD.decode(&file.data).map_err(|problem| format!("the file is not base64: {problem}"))
        }
        ContentEncoding::Utf8 => Ok(file.data.clone().into_bytes()),
    }
}

/// Whether this host has what the URI names. What it may not look at it has.
fn is_here(uri: &str) -> bool {
    let Ok(path) = file_path(uri) else { return false };
    let gone = |kind: ErrorKind| {
        matches!(
            kind,
            ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidFilename | ErrorKind::InvalidInput
        )
    };
    !Path::new(&path).metadata().is_err_and(|fault| gone(fault.kind()))
}
