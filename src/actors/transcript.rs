//! What people said and an agent answered, as text, in pages that stay small.
//!
//! A page ends where it is asked to and reaches back as far as there is room. A turn that is longer than a page is cut, and the
//! rest of it is on the page before.

use crate::projections::transcript::Spoken;

/// Bytes of a page.
pub const PAGE: usize = 16 * 1024;

/// Where a page ends: before this many bytes from the end of this turn's text were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    pub turn_id: String,
    /// Bytes of the turn that later pages had.
    pub had: usize,
}

impl Cursor {
    /// As it is given to whoever reads on.
    pub fn text(&self) -> String {
        format!("{}:{}", self.had, self.turn_id)
    }

    /// A cursor as it was given.
    pub fn parse(text: &str) -> Option<Self> {
        let (had, turn_id) = text.split_once(':')?;
        Some(Self { turn_id: turn_id.to_owned(), had: had.parse().ok()? })
    }
}

/// A turn as it stands in a transcript.
pub fn turn_text(spoken: &Spoken, is_running: bool) -> String {
    let state = if is_running { ", still running" } else { "" };
    format!("[turn {}{state}]\n{}", spoken.turn_id, spoken.text())
}

/// A page that is being filled from its end.
pub struct Filling {
    /// Pieces, newest first.
    pieces: Vec<String>,
    room: usize,
}

impl Default for Filling {
    fn default() -> Self {
        Self { pieces: Vec::new(), room: PAGE }
    }
}

impl Filling {
    /// Puts a turn before what is there, without the last `had` bytes of it. Where it does not fit whole, as much of its end as
    /// does, and the cursor for the rest.
    pub fn put(&mut self, turn_id: &str, mut text: String, had: usize) -> Option<Cursor> {
        text.truncate(boundary(&text, text.len().saturating_sub(had)));
        if text.len() <= self.room {
            self.room -= text.len();
            self.pieces.push(text);
            return None;
        }
        let from = boundary(&text, text.len() - self.room);
        let piece = text.split_off(from);
        let had = had + piece.len();
        if !piece.is_empty() {
            self.pieces.push(piece);
        }
        self.room = 0;
        Some(Cursor { turn_id: turn_id.to_owned(), had })
    }

    /// The page, oldest first.
    pub fn text(self) -> String {
        self.pieces.into_iter().rev().collect()
    }
}

/// The first place at or after `at` where a character begins.
fn boundary(text: &str, at: usize) -> usize {
    (at..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads all pages of one long text, from its end.
    fn pages(text: &str) -> Vec<String> {
        let (mut pages, mut had) = (Vec::new(), 0);
        loop {
            let mut page = Filling::default();
            let more = page.put("t", text.to_owned(), had);
            pages.insert(0, page.text());
            match more {
                Some(cursor) => had = cursor.had,
                None => return pages,
            }
        }
    }

    #[test]
    fn a_turn_longer_than_a_page_is_read_whole_over_several() {
        for text in ["x".repeat(3 * PAGE + 5), "\u{1f600}".repeat(PAGE), "short".into(), "é".repeat(PAGE / 2)] {
            let pages = pages(&text);
            assert_eq!(pages.concat(), text);
            assert!(pages.iter().all(|page| page.len() <= PAGE), "a page is too long");
            assert_eq!(pages.len(), text.len().div_ceil(PAGE).max(1));
        }
    }

    #[test]
    fn a_cursor_is_read_back_whatever_the_turn_is_called() {
        let cursor = Cursor { turn_id: "a:b\n5".into(), had: 17 };
        assert_eq!(Cursor::parse(&cursor.text()), Some(cursor));
        for wrong in ["", "5", "x:t", ":t", "-1:t"] {
            assert_eq!(Cursor::parse(wrong), None, "{wrong}");
        }
    }
}
