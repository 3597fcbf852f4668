//! Changes that wait to be told: one for each path, and few. Pure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Changes that wait, at most. More become one of the whole.
const MAX_PENDING: usize = 1_000;

/// What happened to something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Updated,
    Deleted,
}

/// Something that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub uri: String,
    pub kind: ChangeKind,
}

/// What waits to be told of one watch, by the path from its root on.
#[derive(Debug, Default)]
pub(super) struct Pending {
    changes: BTreeMap<PathBuf, ChangeKind>,
    /// There was more than is told one by one.
    is_over: bool,
}

impl Pending {
    /// Adds a change to what is known of its path.
    pub(super) fn note(&mut self, path: &Path, kind: ChangeKind) {
        use ChangeKind::{Added, Deleted, Updated};

        if self.is_over {
            return;
        }
        let joined = match (self.changes.get(path), kind) {
            (Some(Added), Updated | Added) => Some(Added),
            // It came and went: nobody has to know.
            (Some(Added), Deleted) => None,
            (Some(Deleted), Added) => Some(Updated),
            (Some(Updated), Added) => Some(Updated),
            (_, kind) => Some(kind),
        };
        match joined {
            Some(kind) => drop(self.changes.insert(path.to_owned(), kind)),
            None => drop(self.changes.remove(path)),
        }
        if self.changes.len() > MAX_PENDING {
            self.overflow();
        }
    }

    /// Says that changes were not counted one by one.
    pub(super) fn overflow(&mut self) {
        metrics::counter!("scrollback_limit_met_total", "limit" => "watch_changes").increment(1);
        self.changes.clear();
        self.is_over = true;
    }

    /// Takes what waits. Too much is told as one change of the root.
    pub(super) fn take(&mut self) -> Vec<(PathBuf, ChangeKind)> {
        let taken = std::mem::take(self);
        if taken.is_over {
            return vec![(PathBuf::new(), ChangeKind::Updated)];
        }
        taken.changes.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::ChangeKind::{Added, Deleted, Updated};
    use super::*;

    fn after(kinds: &[ChangeKind]) -> Vec<ChangeKind> {
        let mut pending = Pending::default();
        kinds.iter().for_each(|kind| pending.note(Path::new("a"), *kind));
        pending.take().into_iter().map(|(_, kind)| kind).collect()
    }

    #[test]
    fn changes_of_one_path_become_one() {
        for (kinds, wanted) in [
            (&[Added, Updated, Updated][..], &[Added][..]),
            (&[Added, Deleted], &[]),
            (&[Deleted, Added], &[Updated]),
            (&[Updated, Deleted], &[Deleted]),
            (&[Updated, Updated], &[Updated]),
            (&[Added, Deleted, Added], &[Added]),
            (&[], &[]),
        ] {
            assert_eq!(after(kinds), wanted, "{kinds:?}");
        }
    }

    #[test]
    fn too_many_changes_become_one_of_the_whole_and_the_next_ones_count_again() {
        let mut pending = Pending::default();
        for number in 0..=MAX_PENDING {
            pending.note(Path::new(&number.to_string()), Added);
        }
        pending.note(Path::new("more"), Added);
        assert_eq!(pending.take(), [(PathBuf::new(), Updated)]);
        pending.note(Path::new("a"), Added);
        assert_eq!(pending.take(), [("a".into(), Added)]);
        assert_eq!(pending.take(), []);
    }
}
