//! Says whether a store that came back from a cut has all that was acknowledged, and nothing by halves.

use std::collections::BTreeSet;
use std::path::Path;

use scrollback::events::{Record, ServerSeq, Table};
use serde::{Deserialize, Serialize};

use crate::script::{Line, RowMap, Script, life_of};
use crate::victim::{Victim, Which};

/// The first and the last number of a commit.
type Commit = (ServerSeq, ServerSeq);

/// What came back.
///
/// The checking process prints it as JSON.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// Commits that were acknowledged.
    pub acked: usize,
    /// Commits that were acknowledged and are not there, byte for byte.
    pub lost: usize,
    /// The newest number that is there.
    pub newest: ServerSeq,
    /// Rows that are there.
    pub rows: usize,
    /// What is there and should not be so, apart from losses: half a commit, a row of another value.
    pub faults: Vec<String>,
}

/// Opens the victim in `folder` and holds it against `acked`, the writer's lines, and the script of `seed`.
///
/// # Errors
/// What the victim says when it is opened or read.
pub fn check(which: Which, folder: &Path, seed: u64, acked: &str) -> Result<Findings, String> {
    compare(which.open(folder)?.as_ref(), seed, acked)
}

/// Holds what `victim` has against `acked` and the script of `seed`.
fn compare(victim: &dyn Victim, seed: u64, acked: &str) -> Result<Findings, String> {
    let acked = acknowledged(acked);
    let (records, rows) = victim.read()?;
    let mut walk = Walk::default();
    walk.records(seed, &records);
    walk.rows(&rows);
    let newest = records.last().map_or(0, |record| record.seq);
    if victim.next_seq() <= newest {
        walk.faults.push(format!("the next number is {}, but {newest} is taken", victim.next_seq()));
    }
    if let Err(fault) = victim.cross_check(&records, &walk.line) {
        walk.faults.push(fault);
    }
    let lost = acked.iter().filter(|commit| !walk.whole.contains(commit)).count();
    Ok(Findings { acked: acked.len(), lost, newest, rows: rows.len(), faults: walk.faults })
}

/// The commits that the writer said were on disk. A line that is not whole was not said.
fn acknowledged(lines: &str) -> Vec<Commit> {
    let whole = lines.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let parse = |line: &str| {
        let (first, last) = line.split_once(' ')?;
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    whole.lines().filter_map(parse).collect()
}

/// A walk along the records, in order, that writes the script again beside them.
#[derive(Default)]
struct Walk {
    line: Line,
    /// The rows that the commits found so far leave.
    expected: RowMap,
    /// Commits that are there byte for byte.
    whole: BTreeSet<Commit>,
    faults: Vec<String>,
}

impl Walk {
    /// Goes along `records` commit by commit, up to the first that is not as it was written.
    fn records(&mut self, seed: u64, records: &[Record]) {
        let mut rest = records;
        while let Some(record) = rest.first() {
            let Some(life) = life_of(record) else {
                self.faults.push(format!("{} was written by nobody", record.seq));
                return;
            };
            let batches = Script { seed, life }.commit(record.seq);
            let (should, changes) = self.line.append(record.seq, &batches);
            let same = should.iter().zip(rest).take_while(|(should, is)| should == is).count();
            if same < should.len() {
                let (first, count) = (record.seq, should.len());
                self.faults
                    .push(format!("of the commit at {first}, {same} of {count} records are as they were written"));
                return;
            }
            for (key, value) in changes {
                match value {
                    Some(value) => self.expected.insert(key, value),
                    None => self.expected.remove(&key),
                };
            }
            self.whole.insert((record.seq, record.seq + should.len() as u64 - 1));
            rest = rest.get(should.len()..).unwrap_or_default();
        }
    }

    /// Holds `rows` against what the commits leave.
    fn rows(&mut self, rows: &RowMap) {
        let wrong = self.expected.iter().filter(|(key, value)| rows.get(key) != Some(value)).map(|(key, _)| key);
        // A store may have rows of channels of its own, such as the root's.
        let own = |table: Table| matches!(table, Table::ChannelByUri | Table::ChannelById);
        let extra = rows.keys().filter(|key| !own(key.0) && !self.expected.contains_key(key));
        let (wrong, extra): (Vec<_>, Vec<_>) = (wrong.collect(), extra.collect());
        for (what, keys) in [("missing or of another value", wrong), ("of no commit that is there", extra)] {
            if let Some((table, key)) = keys.first() {
                let first = format!("{table:?} {}", key.escape_ascii());
                self.faults.push(format!("{} rows are {what}, the first is {first}", keys.len()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use scrollback::events::Batch;

    use super::*;

    /// What came back, in memory.
    #[derive(Default)]
    struct Planted {
        records: Vec<Record>,
        rows: RowMap,
        line: Line,
    }

    impl Victim for Planted {
        fn next_seq(&self) -> ServerSeq {
            self.records.last().map_or(1, |record| record.seq + 1)
        }

        fn append(&mut self, batches: &[Batch]) -> Result<(), String> {
            let (records, changes) = self.line.append(self.next_seq(), batches);
            self.records.extend(records);
            for (key, value) in changes {
                self.rows.remove(&key);
                self.rows.extend(value.map(|value| (key, value)));
            }
            Ok(())
        }

        fn read(&self) -> Result<(Vec<Record>, RowMap), String> {
            Ok((self.records.clone(), self.rows.clone()))
        }
    }

    /// A victim to which `commits` commits were written, in two lives, and the writer's lines.
    fn written(commits: usize) -> (Planted, String) {
        let (mut victim, mut acked) = (Planted::default(), String::new());
        for n in 0..commits {
            let first = victim.next_seq();
            victim.append(&Script { seed: 7, life: u64::from(n > commits / 2) }.commit(first)).unwrap();
            acked.push_str(&format!("{first} {}\n", victim.next_seq() - 1));
        }
        (victim, acked)
    }

    #[test]
    fn a_store_that_has_all_is_found_whole() {
        let (victim, acked) = written(40);
        let findings = compare(&victim, 7, &acked).unwrap();
        assert_eq!((findings.acked, findings.lost, findings.faults), (40, 0, vec![]));
    }

    #[test]
    fn a_commit_that_was_not_acknowledged_may_be_there_or_not() {
        let (victim, acked) = written(40);
        let but_one = acked.trim_end().rsplit_once('\n').unwrap().0.to_owned() + "\n";
        let findings = compare(&victim, 7, &but_one).unwrap();
        assert_eq!((findings.acked, findings.lost, findings.faults), (39, 0, vec![]));
    }

    #[test]
    fn a_line_that_is_not_whole_acknowledges_nothing() {
        assert_eq!(acknowledged("1 4\n5 9\n10 1"), [(1, 4), (5, 9)]);
        assert_eq!(acknowledged("1 4"), []);
    }

    #[test]
    fn an_empty_store_lost_all_that_was_acknowledged() {
        let (_, acked) = written(40);
        assert_eq!(compare(&Planted::default(), 7, &acked).unwrap().lost, 40);
    }

    #[test]
    fn half_a_commit_is_a_fault_and_a_loss() {
        let (mut victim, acked) = written(40);
        while victim.records.last().unwrap().seq == victim.records.last().unwrap().batch.0 {
            victim.records.pop();
        }
        victim.records.pop();
        let findings = compare(&victim, 7, &acked).unwrap();
        assert!(findings.lost >= 1, "{findings:?}");
        assert!(findings.faults.iter().any(|fault| fault.starts_with("of the commit at")), "{findings:?}");
    }

    #[test]
    fn one_byte_of_another_value_in_an_event_is_a_loss() {
        let (mut victim, acked) = written(40);
        let record = victim.records.last_mut().unwrap();
        let mut action = record.action.to_vec();
        *action.last_mut().unwrap() ^= 1;
        record.action = action.into();
        assert_eq!(compare(&victim, 7, &acked).unwrap().lost, 1);
    }

    #[test]
    fn a_row_that_is_missing_changed_or_left_over_is_a_fault() {
        let (mut victim, acked) = written(40);
        let (key, value) = victim.rows.pop_last().unwrap();
        assert_eq!(compare(&victim, 7, &acked).unwrap().faults.len(), 1, "missing");
        victim.rows.insert(key.clone(), [&value[..], b"!"].concat());
        assert_eq!(compare(&victim, 7, &acked).unwrap().faults.len(), 1, "changed");
        victim.rows.insert(key, value);
        victim.rows.insert((Table::Used, b"of nobody".to_vec()), Vec::new());
        assert_eq!(compare(&victim, 7, &acked).unwrap().faults.len(), 1, "left over");
    }
}
