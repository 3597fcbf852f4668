//! Chance that can be repeated: every choice follows from a seed, which a failure prints.

/// The environment variable that sets the seed of the random walks.
const SEED: &str = "SCROLLBACK_TEST_SEED";

/// The seed of this run, printed where a test that fails shows it.
pub fn seed(test: &str) -> u64 {
    let seed = from_environment(SEED).unwrap_or_else(|| u64::from(ulid::Ulid::new().random() as u32));
    println!("{test}: {SEED}={seed}");
    seed
}

/// The number that an environment variable holds.
pub fn from_environment(name: &str) -> Option<u64> {
    // The one place where the tests read their environment.
    #[allow(clippy::disallowed_methods)]
    let given = std::env::var(name).ok()?;
    given.parse().ok()
}

/// A stream of numbers (splitmix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }
}
