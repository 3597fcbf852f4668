//! A message as its agent is given it, attachments resolved.
//!
//! How each goes was decided when the message was accepted, and is in its `_meta`. Files are read when the turn is handed over,
//! off the session's thread; one that cannot be read goes by its path.

use actix::{AsyncContext, Context};
use ahp_types::state::{Message, MessageAttachment, MessageEmbeddedResourceAttachment, MessageResourceAttachment};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{ChatActor, ChatMessage};
use crate::actors::agent::{AgentInput, Prompt, PromptBlock};
use crate::attachments::kind::{self, Inline, SentAs};
use crate::attachments::sent::SENT_AS;
use crate::attachments::{Attachments, FileRef};
use crate::projections::fact::{ChatText, MessageOf};

impl ChatActor {
    /// Resolves the attachments of a message for the agent, off this thread where files are to be read, and hands it over.
    pub(super) fn resolve(&mut self, of: MessageOf, input: AgentInput, ctx: &Context<Self>) {
        let chats = self.cell.borrow().fold.attached_to(&of).to_vec();
        let (files, inline) = (self.shared.attachments.clone(), self.inline());
        if !needs_files(&input) {
            return self.hand_over(with_blocks(input, &chats, &files, inline));
        }
        let address = ctx.address();
        tokio::task::spawn_blocking(move || {
            let input = with_blocks(input, &chats, &files, inline);
            address.do_send(ChatMessage::Read(Box::new(input)));
        });
    }

    /// Hands a message to the process, unless its turn, or this attempt at it, is over by now. What is taken up is told so.
    pub(super) fn hand_over(&mut self, mut input: AgentInput) {
        let (AgentInput::Prompt(Prompt { turn_id, .. }) | AgentInput::Steer { turn_id, .. }) = &input else { return };
        let runs = self.cell.borrow().fold.state.active_turn.as_ref().is_some_and(|turn| turn.id == *turn_id);
        if !runs || self.handed.as_ref() != Some(turn_id) {
            return;
        }
        if let AgentInput::Prompt(Prompt { attempt, blocks, .. }) = &mut input {
            if *attempt != self.cell.borrow().fold.attempts.taken_up {
                return;
            }
            if *attempt > 0 {
                blocks.push(PromptBlock::Text { text: self.shared.settings.resume_words.clone() });
            }
        }
        self.tell(input);
    }

    /// What may go to the agent inline.
    fn inline(&self) -> Inline {
        let provider = &self.core.borrow().fold.state.provider;
        let images = self.shared.agent(provider).is_some_and(|agent| agent.extras().images);
        let settings = &self.shared.settings;
        Inline { images, max_image: settings.max_inline_image, max_text: settings.max_inline_text }
    }
}

/// The same, with its message's blocks behind those that it has.
fn with_blocks(mut input: AgentInput, chats: &[ChatText], files: &Attachments, inline: Inline) -> AgentInput {
    match &mut input {
        AgentInput::Prompt(Prompt { message, blocks, .. }) | AgentInput::Steer { message, blocks, .. } => {
            blocks.extend(blocks_of(message, chats, files, inline));
        }
        _ => {}
    }
    input
}

/// Whether stored files have to be read for it.
fn needs_files(input: &AgentInput) -> bool {
    let (AgentInput::Prompt(Prompt { message, .. }) | AgentInput::Steer { message, .. }) = input else { return false };
    message.attachments.iter().flatten().any(|attachment| match attachment {
        MessageAttachment::Resource(resource) => is_inline(resource),
        MessageAttachment::EmbeddedResource(_) => true,
        _ => false,
    })
}

/// The blocks of a message; `chats` is what stands for the chats that it attaches. Blocks where [`needs_files`].
fn blocks_of(message: &Message, chats: &[ChatText], files: &Attachments, inline: Inline) -> Vec<PromptBlock> {
    let text = PromptBlock::Text { text: message.text.clone() };
    let attachments = message.attachments.iter().flatten().enumerate();
    let blocks = attachments.filter_map(|(at, attachment)| match attachment {
        MessageAttachment::Resource(resource) => Some(of_resource(resource, files)),
        MessageAttachment::Simple(simple) => simple.model_representation.clone().map(|text| PromptBlock::Text { text }),
        MessageAttachment::Chat(_) => {
            let text = chats.iter().find(|chat| chat.index == at)?.text.clone();
            Some(PromptBlock::Text { text })
        }
        MessageAttachment::EmbeddedResource(embedded) => Some(of_embedded(embedded, inline)),
        _ => None,
    });
    std::iter::once(text).chain(blocks).collect()
}

fn is_inline(resource: &MessageResourceAttachment) -> bool {
    sent_as(resource).is_some_and(|how| how != SentAs::Path.word())
}

fn sent_as(resource: &MessageResourceAttachment) -> Option<&str> {
    resource.meta.as_ref()?.get(SENT_AS)?.as_str()
}

fn of_resource(resource: &MessageResourceAttachment, files: &Attachments) -> PromptBlock {
    read(resource, files).unwrap_or_else(|| PromptBlock::ResourceLink {
        uri: resource.uri.clone(),
        name: resource.label.clone(),
        mime_type: resource.content_type.clone(),
    })
}

/// What goes inline, where it does and can be read.
fn read(resource: &MessageResourceAttachment, files: &Attachments) -> Option<PromptBlock> {
    if !is_inline(resource) {
        return None;
    }
    let bytes = match files.read(FileRef::of_uri(&resource.uri)?) {
        Ok(bytes) => bytes,
        Err(fault) => {
            tracing::warn!(%fault, "a stored attachment cannot be read and goes by its path");
            return None;
        }
    };
    if sent_as(resource) == Some(SentAs::Text.word()) {
        return String::from_utf8(bytes).ok().map(|text| PromptBlock::Text { text });
    }
    let mime_type = kind::image_type(resource.content_type.as_deref()?)?.to_owned();
    Some(PromptBlock::Image { mime_type, data: STANDARD.encode(bytes) })
}

/// Bytes that could not be stored and are in the message: inline where they may be. There is no path to go by.
fn of_embedded(embedded: &MessageEmbeddedResourceAttachment, inline: Inline) -> PromptBlock {
    let bytes = STANDARD.decode(&embedded.data).unwrap_or_default();
    match kind::sent_as(&embedded.content_type, &bytes, inline) {
        SentAs::Image => {
            let mime_type = kind::image_type(&embedded.content_type).unwrap_or_default().to_owned();
            PromptBlock::Image { mime_type, data: embedded.data.clone() }
        }
        SentAs::Text => PromptBlock::Text { text: String::from_utf8(bytes).unwrap_or_default() },
        SentAs::Path => {
            let text = format!("{}: an attachment that the host could not store", embedded.label);
            PromptBlock::Text { text }
        }
    }
}
