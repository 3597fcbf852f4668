//! Numbers that look random and come from a seed, so that a run can be had again.

/// A stream of numbers (SplitMix64).
#[derive(Clone)]
pub struct Chance(u64);

impl Chance {
    /// The stream of several numbers together; another order is another stream.
    pub fn of(parts: &[u64]) -> Self {
        let mix = |state: u64, part: &u64| Self(state ^ part).any().rotate_left(17);
        Self(parts.iter().fold(0x5c40_11ba, mix))
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.any() % end.max(1)
    }

    /// A number in `from..=to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from) + 1)
    }

    /// A size in `from..=to`, each power of two as likely as another: many small ones and a few large.
    pub fn size(&mut self, from: u64, to: u64) -> usize {
        let octaves = u64::from((to / from.max(1)).max(1).ilog2());
        let low = from << self.between(0, octaves);
        self.between(low, (low * 2).min(to)) as usize
    }

    /// `length` printable characters that no compression shortens by much, without quotes and backslashes.
    pub fn text(&mut self, length: usize) -> String {
        const LETTERS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
        let mut text = String::with_capacity(length);
        while text.len() < length {
            let mut bits = self.any();
            for _ in 0..10.min(length - text.len()) {
                text.extend(LETTERS.get((bits & 63) as usize).map(|letter| char::from(*letter)));
                bits >>= 6;
            }
        }
        text
    }
}
