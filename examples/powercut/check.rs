//! Says whether a store that came back from a cut has all that was acknowledged, and nothing by halves.

use std::collections::BTreeSet;
use std::path::Path;

use scrollback::events::{Record, ServerSeq, Table};
use serde::{Deserialize, Serialize};

use crate::script::{Line, RowMap, Script, life_of};
use crate::victim::Which;

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
    let acked = acknowledged(acked);
    let victim = which.open(folder)?;
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
