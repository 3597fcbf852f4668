//! How a model is given a stored attachment: as an image, as text, or by its path.
//!
//! Decided once, when the message is accepted, from the type, the size and the bytes; for every agent alike but for whether
//! it takes images.

/// The way to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SentAs {
    Image,
    Text,
    Path,
}

impl SentAs {
    /// The word in the attachment's `_meta`.
    pub fn word(self) -> &'static str {
        match self {
            SentAs::Image => "image",
            SentAs::Text => "text",
            SentAs::Path => "path",
        }
    }
}

/// What may go inline.
#[derive(Debug, Clone, Copy)]
pub struct Inline {
    /// Whether the agent takes images.
    pub images: bool,
    /// Bytes of an image, inclusive.
    pub max_image: usize,
    /// Bytes of a text, inclusive.
    pub max_text: usize,
}

/// The type of bytes that nobody named a type of.
pub const OCTETS: &str = "application/octet-stream";

/// A media type without its parameters, in lower case.
pub fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The media type of an image that goes inline, as it is named to a model.
pub fn image_type(content_type: &str) -> Option<&'static str> {
    match essence(content_type).as_str() {
        "image/jpeg" | "image/jpg" => Some("image/jpeg"),
        "image/png" => Some("image/png"),
        "image/gif" => Some("image/gif"),
        "image/webp" => Some("image/webp"),
        _ => None,
    }
}

/// Whether the type says that the bytes are text.
fn is_text(content_type: &str) -> bool {
    let essence = essence(content_type);
    let Some((kind, name)) = essence.split_once('/') else { return false };
    match kind {
        "text" => true,
        "application" => {
            const NAMES: [&str; 12] = [
                "json",
                "xml",
                "javascript",
                "ecmascript",
                "typescript",
                "x-javascript",
                "x-typescript",
                "x-sh",
                "yaml",
                "x-yaml",
                "toml",
                "sql",
            ];
            NAMES.contains(&name) || name.ends_with("+json") || name.ends_with("+xml") || name.ends_with("+yaml")
        }
        _ => false,
    }
}

/// How bytes of this type go to the model.
pub fn sent_as(content_type: &str, bytes: &[u8], inline: Inline) -> SentAs {
    if image_type(content_type).is_some() {
        let fits = inline.images && !bytes.is_empty() && bytes.len() <= inline.max_image;
        return if fits { SentAs::Image } else { SentAs::Path };
    }
    if is_text(content_type) && bytes.len() <= inline.max_text && std::str::from_utf8(bytes).is_ok() {
        return SentAs::Text;
    }
    SentAs::Path
}

/// The type of bytes that came without one, by the name that they have and by what they look like.
pub fn guess(name: &str, bytes: &[u8]) -> &'static str {
    let ending = name.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    match ending.as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "pdf" => "application/pdf",
        _ if std::str::from_utf8(bytes).is_ok_and(|text| !text.contains('\0')) => "text/plain",
        _ => OCTETS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INLINE: Inline = Inline { images: true, max_image: 5 << 20, max_text: 64 << 10 };

    fn of(content_type: &str, size: usize) -> SentAs {
        sent_as(content_type, &vec![b'a'; size], INLINE)
    }

    #[test]
    fn the_four_kinds_of_images_go_inline_up_to_the_limit() {
        for kind in ["image/jpeg", "image/png", "image/gif", "image/webp", "IMAGE/PNG; q=1", "image/jpg"] {
            assert_eq!(of(kind, (5 << 20) - 1), SentAs::Image, "{kind}");
            assert_eq!(of(kind, 5 << 20), SentAs::Image, "{kind}");
            assert_eq!(of(kind, (5 << 20) + 1), SentAs::Path, "{kind}");
        }
        assert_eq!(of("image/png", 0), SentAs::Path);
        for kind in ["image/svg+xml", "image/bmp", "image/tiff", "video/mp4"] {
            assert_eq!(of(kind, 10), SentAs::Path, "{kind}");
        }
        let blind = Inline { images: false, ..INLINE };
        assert_eq!(sent_as("image/png", b"a", blind), SentAs::Path);
    }

    #[test]
    fn text_goes_inline_up_to_the_limit_where_it_is_text() {
        for kind in ["text/plain", "text/x-rust; charset=utf-8", "application/json", "application/ld+json"] {
            assert_eq!(of(kind, 65_535), SentAs::Text, "{kind}");
            assert_eq!(of(kind, 65_536), SentAs::Text, "{kind}");
            assert_eq!(of(kind, 65_537), SentAs::Path, "{kind}");
        }
        assert_eq!(of("text/plain", 0), SentAs::Text);
        assert_eq!(sent_as("text/plain", &[0xff, 0xfe], INLINE), SentAs::Path);
        for kind in ["application/pdf", OCTETS, "", "json", "font/ttf"] {
            assert_eq!(of(kind, 10), SentAs::Path, "{kind}");
        }
    }

    #[test]
    fn a_type_is_guessed_by_name_and_looks() {
        assert_eq!(guess("file:///x/Shot.PNG", &[0xff]), "image/png");
        assert_eq!(guess("file:///x/notes", b"hi"), "text/plain");
        assert_eq!(guess("file:///x/blob", &[0, 1]), OCTETS);
    }
}
