//! Where the page of a visual is to be had: a path that nobody can guess, new at every start of the host.
//!
//! The path is the visual's id and a code of it under a key of this run, so that who knows one path, such as the page itself,
//! knows nothing of another.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// The path that pages are served under.
pub const PATH: &str = "/visuals";

/// The links of this run.
pub struct Links {
    /// Where the host is reached, without a slash at its end.
    base: String,
    key: Hmac<Sha256>,
}

impl Links {
    /// Links under `base`, with a key that nobody had before.
    pub fn new(base: &str) -> Self {
        let mut key = [0; 64];
        for part in key.chunks_mut(8) {
            // The random part of an id: 80 bits, of which 64 are taken.
            part.copy_from_slice(&(ulid::Ulid::new().random() as u64).to_be_bytes());
        }
        Self { base: base.trim_end_matches('/').to_owned(), key: Hmac::new(&key.into()) }
    }

    /// The absolute URL of a visual's page.
    pub fn url(&self, id: &str) -> String {
        let code = URL_SAFE_NO_PAD.encode(self.code_of(id).finalize().into_bytes());
        format!("{}{PATH}/{code}/{id}", self.base)
    }

    /// Whether `code` opens the page of the visual `id`. Tells nothing by its time.
    pub fn opens(&self, code: &str, id: &str) -> bool {
        let code = URL_SAFE_NO_PAD.decode(code).unwrap_or_default();
        self.code_of(id).verify_slice(&code).is_ok()
    }

    fn code_of(&self, id: &str) -> Hmac<Sha256> {
        let mut code = self.key.clone();
        code.update(id.as_bytes());
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(url: &str) -> (&str, &str) {
        url.strip_prefix("https://box/x/visuals/").unwrap().split_once('/').unwrap()
    }

    #[test]
    fn a_link_opens_its_own_visual_in_its_own_run() {
        let (one, other) = (Links::new("https://box/x/"), Links::new("https://box/x"));
        let url = one.url("A");
        let (code, id) = parts(&url);
        assert_eq!((id, code.len()), ("A", 43));
        assert!(one.opens(code, "A"));
        assert!(!one.opens(code, "B") && !other.opens(code, "A"));
        for wrong in ["", "A", &code[1..], &format!("{code}A"), "%%%"] {
            assert!(!one.opens(wrong, "A"), "{wrong}");
        }
    }
}
