//! Values of any size as pieces that the engine can keep.
//!
//! sled writes a leaf that is too large to a file of its own under `blobs/`, which it never syncs, and it splits leaves
//! by their count. So no value is larger than [`VALUE_MAX`], and larger ones become numbered pieces of one batch.
//!
//! A piece is `content | CRC32 (4)`; the content of piece 0 begins with the length of the whole value (`u32`). The
//! checksum covers the piece's key and content, so that a value which comes back under another key is noticed.

use bytes::{Bytes, BytesMut};

use super::keys;

/// The most bytes that a value of the tree has.
pub const VALUE_MAX: usize = 48 * 1024;

/// Bytes of the whole value's length at the head of piece 0.
const LENGTH: usize = 4;
/// Bytes of the checksum at the end of each piece.
const SUM: usize = 4;
/// The most bytes of the value that a piece carries.
pub const CONTENT_MAX: usize = VALUE_MAX - LENGTH - SUM;
/// The most pieces that a value has.
const PIECES_MAX: usize = u16::MAX as usize + 1;

/// How many pieces a value of `length` bytes has; at least one.
pub fn count(length: usize) -> usize {
    length.div_ceil(CONTENT_MAX).max(1)
}

/// Hands each piece of `value` to `put` as key and value of the tree.
///
/// # Errors
/// A text for a value that has more pieces than numbers, 3 GiB.
pub fn split(key: &[u8], value: &[u8], mut put: impl FnMut(Vec<u8>, Vec<u8>)) -> Result<(), String> {
    let too_large = || format!("a value of {} bytes is more than a store keeps under one key", value.len());
    let length = u32::try_from(value.len()).map_err(|_| too_large())?;
    if count(value.len()) > PIECES_MAX {
        return Err(too_large());
    }
    let first = value.get(..CONTENT_MAX).unwrap_or(value);
    let mut head = Vec::with_capacity(LENGTH + first.len() + SUM);
    head.extend_from_slice(&length.to_be_bytes());
    head.extend_from_slice(first);
    put_piece(key, 0, head, &mut put);
    let rest = value.get(CONTENT_MAX..).unwrap_or_default();
    for (number, content) in (1..).zip(rest.chunks(CONTENT_MAX)) {
        let mut piece = Vec::with_capacity(content.len() + SUM);
        piece.extend_from_slice(content);
        put_piece(key, number, piece, &mut put);
    }
    Ok(())
}

fn put_piece(key: &[u8], number: u16, mut content: Vec<u8>, put: &mut impl FnMut(Vec<u8>, Vec<u8>)) {
    let key = keys::piece(key, number);
    let sum = checksum(&key, &content);
    content.extend_from_slice(&sum.to_be_bytes());
    put(key, content);
}

/// A value that is being put together from its pieces, which come in order.
pub struct Assembly {
    length: usize,
    pieces: usize,
    seen: usize,
    value: BytesMut,
}

impl Assembly {
    /// Begins with piece 0 of `key`.
    ///
    /// # Errors
    /// What is wrong with the piece.
    pub fn begin(key: &[u8], stored: &[u8]) -> Result<Self, String> {
        let content = checked(&keys::piece(key, 0), stored)?;
        let (length, content) = content.split_first_chunk::<LENGTH>().ok_or("piece 0 is too short")?;
        let length = u32::from_be_bytes(*length) as usize;
        let mut value = BytesMut::with_capacity(content.len());
        value.extend_from_slice(content);
        Ok(Self { length, pieces: count(length), seen: 1, value })
    }

    /// The number of the piece that comes next, `None` when all are there.
    pub fn wanted(&self) -> Option<u16> {
        (self.seen < self.pieces).then(|| u16::try_from(self.seen).ok()).flatten()
    }

    /// Takes the next piece.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn push(&mut self, stored_key: &[u8], stored: &[u8]) -> Result<(), String> {
        if self.seen == 1 {
            self.value.reserve(self.length.saturating_sub(self.value.len()));
        }
        self.value.extend_from_slice(checked(stored_key, stored)?);
        self.seen = self.seen.saturating_add(1);
        Ok(())
    }

    /// What is there of the value so far, from its beginning.
    pub fn so_far(self) -> Bytes {
        self.value.freeze()
    }

    /// The whole value.
    ///
    /// # Errors
    /// When bytes are missing or too many.
    pub fn finish(self) -> Result<Bytes, String> {
        if self.value.len() == self.length && self.seen == self.pieces {
            return Ok(self.value.freeze());
        }
        Err(format!("{} bytes in {} of {} pieces instead of {}", self.value.len(), self.seen, self.pieces, self.length))
    }
}

/// The content of a piece whose checksum is right.
fn checked<'a>(stored_key: &[u8], stored: &'a [u8]) -> Result<&'a [u8], String> {
    let (content, sum) = stored.split_last_chunk::<SUM>().ok_or("a piece is too short")?;
    let (stored, computed) = (u32::from_be_bytes(*sum), checksum(stored_key, content));
    if stored != computed {
        return Err(format!("a piece's checksum is {computed:08x}, and {stored:08x} was stored"));
    }
    Ok(content)
}

fn checksum(stored_key: &[u8], content: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(stored_key);
    sum.update(content);
    sum.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces_of(value: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut pieces = Vec::new();
        split(b"k", value, |key, piece| pieces.push((key, piece))).expect("splits");
        pieces
    }

    fn join(pieces: &[(Vec<u8>, Vec<u8>)]) -> Result<Bytes, String> {
        let mut assembly = Assembly::begin(b"k", &pieces[0].1)?;
        for (key, piece) in &pieces[1..] {
            assembly.push(key, piece)?;
        }
        assembly.finish()
    }

    #[test]
    fn pieces_are_under_the_cap_and_join_to_the_value_at_every_boundary() {
        for length in [0, 1, CONTENT_MAX - 1, CONTENT_MAX, CONTENT_MAX + 1, 2 * CONTENT_MAX, 2 * CONTENT_MAX + 1] {
            let value: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
            let pieces = pieces_of(&value);
            assert_eq!(pieces.len(), count(length), "{length}");
            assert!(pieces.iter().all(|(_, piece)| piece.len() <= VALUE_MAX));
            assert_eq!(join(&pieces).expect("joins"), value);
        }
    }

    #[test]
    fn a_missing_an_exchanged_and_a_changed_piece_are_refused() {
        let pieces = pieces_of(&vec![7; 3 * CONTENT_MAX]);
        assert!(join(&pieces[..2]).is_err());
        let exchanged = [pieces[0].clone(), (pieces[1].0.clone(), pieces[2].1.clone()), pieces[1].clone()];
        assert!(join(&exchanged).is_err());
        let mut changed = pieces.clone();
        changed[2].1[9] ^= 1;
        assert!(join(&changed).is_err());
        assert!(Assembly::begin(b"other", &pieces[0].1).is_err());
        assert!(Assembly::begin(b"k", b"ab").is_err());
    }
}
