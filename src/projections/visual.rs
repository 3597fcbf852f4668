//! A visual: a page that an agent or a client published in a chat.
//!
//! The chat's channel says what was published ([`Visual`]), in order; which of them are still there is what
//! `chat/canvasesChanged` lists. The page itself is in the first record of the visual's own channel, its canvas, where only
//! those who want the page read it. A visual never changes; it comes and it goes.

use ahp_types::state::{CanvasReference, CanvasState};
use serde::{Deserialize, Serialize};

use crate::events::Channel;

/// How the URI of a canvas begins.
const CANVAS: &str = "ahp-canvas:/";
/// Who is behind a canvas, for clients that show canvases of several providers.
const PROVIDER: (&str, &str) = ("scrollback", "Scrollback");
/// What kind of canvas of ours it is.
const KIND: &str = "visual";

/// What is known of a visual beside its page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Visual {
    pub id: String,
    pub title: String,
    /// When it was published, RFC 3339.
    pub at: String,
    /// Bytes of the stored page.
    pub size: u64,
    /// How high a frame around it may become, in pixels.
    pub max_height: u32,
    /// Heights that the page has at some widths, as whoever published it measured them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heights: Option<Vec<(u32, u32)>>,
    /// The turn that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    /// For one that belongs to no turn, the last turn that had ended when it was published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_turn: Option<String>,
}

impl Visual {
    /// The URI of its canvas.
    pub fn canvas(&self) -> Channel {
        canvas_of(&self.id)
    }

    /// How the chat's state names it.
    pub fn reference(&self) -> CanvasReference {
        CanvasReference { resource: self.canvas().to_string() }
    }

    /// The state of its canvas, as it is stored. Where the page is to be had is no part of it: that changes with every start
    /// of the host.
    pub fn state(&self) -> CanvasState {
        CanvasState {
            instance_id: self.id.clone(),
            extension_id: PROVIDER.0.to_owned(),
            extension_name: Some(PROVIDER.1.to_owned()),
            canvas_id: KIND.to_owned(),
            title: Some(self.title.clone()),
            status: None,
            url: None,
        }
    }
}

/// The URI of the canvas of the visual with this id.
pub fn canvas_of(id: &str) -> Channel {
    Channel::from(format!("{CANVAS}{id}"))
}

/// The id of the visual whose canvas this is; `None` for another kind of channel.
pub fn of_canvas(uri: &str) -> Option<&str> {
    uri.strip_prefix(CANVAS)
}
