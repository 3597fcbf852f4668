//! The floor: a small file beside the log which says what the log must hold, and which numbers are taken.
//!
//! Two fears, one file. A log that comes back with less than was on disk must be refused, not gone on with; and no
//! number may be used twice, even where it was shown before it was on disk. So numbers are reserved in blocks by a
//! synced rename before the first of a block is used.
//!
//! Always: `start - 1` was the log's newest number, on disk, when the file was written; no number from `end` on was
//! ever used. Left out on purpose: the log's tail at every commit, which would cost a second sync.
//! Source: `docs/adr/0003-durability.md`.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::{ServerSeq, durable};

/// Numbers that are reserved at once.
pub const BLOCK: u64 = 10_000;

/// Numbers beyond the next one that are always reserved, for what is shown before it is appended.
pub const MARGIN: u64 = BLOCK / 2;

/// Numbers that are passed over where nobody knows which were given: behind a log whose floor is gone, and behind one that was brought
/// back from a backup.
pub const JUMP: u64 = 1 << 32;

/// The first line of the file.
const HEADING: &str = "scrollback-floor 1";

/// What the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Floor {
    /// The log holds everything before this number.
    pub start: ServerSeq,
    /// The first number that is not reserved.
    pub end: ServerSeq,
    /// Whether numbers of the block may have been shown without being on disk: the next start goes on at `end`.
    pub ahead: bool,
}

/// What was found where the file should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Floor(Floor),
    Missing,
    /// Not such a file: what is wrong with it.
    Garbage(String),
}

impl Floor {
    /// The floor of a log whose newest number is `tail` and whose next one is `next`, with a block reserved behind `used`,
    /// the number after those that are to be used now.
    ///
    /// It stays `ahead` while the log has a gap before `next`, since what lies in the gap was shown by an earlier run.
    pub fn reserve(tail: ServerSeq, next: ServerSeq, used: ServerSeq, ahead: bool) -> Self {
        let start = tail.saturating_add(1);
        Self { start, end: used.saturating_add(BLOCK), ahead: ahead || start < next }
    }

    /// The floor of a log that was closed in order: nothing before `next` is in doubt.
    pub fn closed(tail: ServerSeq, next: ServerSeq) -> Self {
        let start = tail.saturating_add(1);
        Self { start, end: next, ahead: start < next }
    }

    /// The number that the next event gets in a log which opened with `tail` as its newest.
    pub fn next(&self, tail: ServerSeq) -> ServerSeq {
        let follows = tail.saturating_add(1);
        if self.ahead { follows.max(self.end) } else { follows }
    }

    /// Whether numbers up to, not including, `next` are reserved, and the margin beyond it.
    pub fn covers(&self, next: ServerSeq) -> bool {
        next.saturating_add(MARGIN) <= self.end
    }

    /// Puts it on disk under `path`.
    ///
    /// # Errors
    /// The step that failed; the file then holds this floor or the one before, and neither promises too much.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        durable::write_whole(path, self.to_text().as_bytes())
    }

    /// Reads the file under `path`.
    ///
    /// # Errors
    /// What the file system says, apart from a missing file.
    pub fn read(path: &Path) -> io::Result<Found> {
        match fs::read(path) {
            Ok(bytes) => Ok(Self::from_bytes(&bytes).map_or_else(Found::Garbage, Found::Floor)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(Found::Missing),
            Err(e) => Err(e),
        }
    }

    fn to_text(self) -> String {
        let body = format!("{HEADING}\nstart {}\nend {}\nahead {}\n", self.start, self.end, u8::from(self.ahead));
        format!("{body}crc {:08x}\n", crc32fast::hash(body.as_bytes()))
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?;
        let mut lines = text.lines();
        let heading = lines.next().unwrap_or_default();
        if heading != HEADING {
            return Err(format!("it begins with {heading:?} instead of {HEADING:?}"));
        }
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok();
        let floor = match (field("start"), field("end"), field("ahead")) {
            (Some(start), Some(end), Some(ahead @ 0..=1)) if start <= end => Self { start, end, ahead: ahead == 1 },
            _ => return Err("its fields cannot be read".to_owned()),
        };
        if text == floor.to_text() { Ok(floor) } else { Err("its checksum is wrong".to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_text_is_frozen() {
        let floor = Floor { start: 43, end: 10_043, ahead: true };
        assert_eq!(floor.to_text(), "scrollback-floor 1\nstart 43\nend 10043\nahead 1\ncrc d33c801d\n");
        assert_eq!(Floor::from_bytes(floor.to_text().as_bytes()), Ok(floor));
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_is_refused() {
        let whole = Floor { start: 1, end: 10_001, ahead: false }.to_text().into_bytes();
        for length in 0..whole.len() {
            assert!(Floor::from_bytes(&whole[..length]).is_err(), "{length} bytes were taken for a floor");
        }
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Floor::from_bytes(&flipped).is_err(), "bit {bit} flipped was not noticed");
        }
    }

    #[test]
    fn numbering_goes_on_at_the_end_of_the_block_only_when_numbers_were_shown_ahead() {
        let shown = Floor { start: 1, end: 10_001, ahead: true };
        assert_eq!(shown.next(50), 10_001);
        assert_eq!(Floor { ahead: false, ..shown }.next(50), 51);
    }

    #[test]
    fn a_block_reserved_for_an_append_shows_nothing_ahead() {
        assert!(!Floor::reserve(50, 51, 115, false).ahead);
    }

    #[test]
    fn a_gap_keeps_the_floor_ahead_until_it_is_closed_by_an_event() {
        assert!(Floor::reserve(50, 10_001, 10_001, false).ahead);
        assert_eq!(Floor::closed(50, 10_001), Floor { start: 51, end: 10_001, ahead: true });
        assert_eq!(Floor::closed(10_001, 10_002), Floor { start: 10_002, end: 10_002, ahead: false });
    }

    #[test]
    fn a_missing_file_is_missing_and_a_written_one_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("floor");
        assert_eq!(Floor::read(&path).expect("read"), Found::Missing);
        let floor = Floor::reserve(0, 1, 1, false);
        floor.write(&path).expect("written");
        assert_eq!(Floor::read(&path).expect("read"), Found::Floor(floor));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_floor_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = Floor::from_bytes(&bytes);
        }
    }
}
