//! The branches of a chat: the turns that ended in it, and those that a rewind dropped.
//!
//! Read from the rows that say where the chat's branch ended after which event, so the cost is a few bytes a turn and no
//! turn is read. Turns are named as in [`super::turns`].

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

use super::{FoldFault, turns};
use crate::events::rows::{channel_key, leading_number, number_of_key};
use crate::events::{ChannelId, Rows, ServerSeq, Table};

/// A turn that ended in the chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    pub n: u64,
    /// The event that ended it.
    pub seq: ServerSeq,
    /// The turn before it, 0 for none.
    pub before: u64,
    /// Whether a rewind dropped it since.
    pub is_dropped: bool,
}

/// Turns that were dropped together, or one by one from the same end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// The last of them and the first.
    pub tip: u64,
    pub first: u64,
    /// The turn that they followed, 0 for none.
    pub from: u64,
    pub turns: u64,
    /// The event that ended the last of them, and the one that dropped it.
    pub ended: ServerSeq,
    pub dropped: ServerSeq,
    /// The turn that came in the place of the first of them, where one did.
    pub replaced_by: Option<u64>,
}

/// See the head of this file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Branches {
    /// The turns that ended in the chat, in the order of the line.
    pub turns: Vec<Ended>,
    /// The last turn of the branch that the chat goes on with; 0 for none.
    pub head: u64,
    /// The newest first.
    pub dropped: Vec<Dropped>,
}

impl Branches {
    /// The branches of `chat`.
    ///
    /// # Errors
    /// [`FoldFault::Log`] when the rows cannot be read.
    pub fn read(rows: &dyn Rows, chat: ChannelId) -> Result<Self, FoldFault> {
        let mut heads = Vec::new();
        rows.scan_rows(Table::Head, &channel_key(chat), None, &mut |key, value| {
            heads.extend(number_of_key(key).zip(leading_number(value)));
            ControlFlow::Continue(())
        })?;
        Ok(Self::of(chat, &heads))
    }

    /// The branches that come of where the chat's branch ended after which event.
    fn of(chat: ChannelId, heads: &[(ServerSeq, u64)]) -> Self {
        let own = |turn: u64| turn != 0 && turns::place(chat, turn) == (chat, turn);
        let mut ended: BTreeMap<u64, Ended> = BTreeMap::new();
        let mut left: Vec<(ServerSeq, u64)> = Vec::new();
        let (mut head, mut newest) = (0, 0);
        for (seq, now) in heads {
            if own(*now) && *now > newest {
                newest = *now;
                ended.insert(*now, Ended { n: *now, seq: *seq, before: head, is_dropped: true });
            } else if own(head) {
                left.push((*seq, head));
            }
            head = *now;
        }
        let mut seen = HashSet::new();
        let mut at = head;
        while let Some(turn) = ended.get_mut(&at) {
            turn.is_dropped = false;
            seen.insert(at);
            at = turn.before;
        }
        let dropped = left.iter().rev().filter_map(|(seq, tip)| branch(&ended, &mut seen, *tip, *seq)).collect();
        Self { turns: ended.into_values().collect(), head, dropped }
    }
}

/// The turns that end with `tip` and that no branch before has.
fn branch(ended: &BTreeMap<u64, Ended>, seen: &mut HashSet<u64>, tip: u64, dropped: ServerSeq) -> Option<Dropped> {
    let last = ended.get(&tip).filter(|_| !seen.contains(&tip))?;
    let mut found = Dropped { tip, first: tip, from: 0, turns: 0, ended: last.seq, dropped, replaced_by: None };
    let mut at = tip;
    while let Some(turn) = ended.get(&at).filter(|_| seen.insert(at)) {
        found.turns += 1;
        found.first = at;
        at = turn.before;
    }
    found.from = at;
    let after = ended.values().find(|turn| turn.before == at && turn.seq > dropped);
    found.replaced_by = after.map(|turn| turn.n);
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAT: ChannelId = ChannelId(7);

    fn ns(branches: &Branches, is_dropped: bool) -> Vec<u64> {
        branches.turns.iter().filter(|turn| turn.is_dropped == is_dropped).map(|turn| turn.n).collect()
    }

    #[test]
    fn a_chat_that_never_went_back_has_one_branch() {
        let branches = Branches::of(CHAT, &[(10, 1), (20, 2), (30, 3)]);
        assert_eq!((ns(&branches, false), branches.head, branches.dropped.len()), (vec![1, 2, 3], 3, 0));
    }

    #[test]
    fn a_rewind_leaves_a_branch_that_says_where_it_began_and_what_came_instead() {
        let branches = Branches::of(CHAT, &[(10, 1), (20, 2), (30, 3), (40, 1), (50, 4)]);
        assert_eq!((ns(&branches, false), ns(&branches, true)), (vec![1, 4], vec![2, 3]));
        let expected = Dropped { tip: 3, first: 2, from: 1, turns: 2, ended: 30, dropped: 40, replaced_by: Some(4) };
        assert_eq!(branches.dropped, [expected]);
    }

    #[test]
    fn each_rewind_leaves_what_no_other_branch_has() {
        let stepwise = Branches::of(CHAT, &[(10, 1), (20, 2), (30, 3), (40, 2), (50, 1)]);
        assert_eq!(stepwise.dropped.iter().map(|d| (d.tip, d.turns)).collect::<Vec<_>>(), [(2, 1), (3, 1)]);
        let nested = Branches::of(CHAT, &[(10, 1), (20, 2), (30, 3), (40, 2), (50, 4), (60, 1)]);
        let of = |d: &Dropped| (d.tip, d.from, d.turns);
        assert_eq!(nested.dropped.iter().map(of).collect::<Vec<_>>(), [(4, 1, 2), (3, 2, 1)]);
    }

    #[test]
    fn a_forks_first_turns_are_another_chats_and_never_dropped_here() {
        let base = turns::from_outside(ChannelId(3), 9);
        let branches = Branches::of(CHAT, &[(5, base), (10, 1), (20, base), (30, 2), (40, 0)]);
        assert_eq!((ns(&branches, false), branches.head), (vec![], 0));
        assert_eq!(branches.dropped.iter().map(|d| (d.tip, d.from)).collect::<Vec<_>>(), [(2, base), (1, base)]);
    }
}
