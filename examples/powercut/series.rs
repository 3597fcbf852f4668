//! A series of cuts under one victim.
//!
//! A victim lives: the writer runs on the disk, and at random moments it is noted what was acknowledged, and only then
//! what the disk would hold if the power went. Then the writer is killed, and each of those images is looked at. Every
//! other life goes on with the last image of the one before, so that a store that came back is written to and cut again.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::time::timeout;

use crate::chance::Chance;
use crate::check::Findings;
use crate::disk::{self, Disk, Image};
use crate::rig::{Killed, LoopDevice, Mounted, RigFault, Tools, at, output};
use crate::victim::Which;

/// Bytes of the disk. Only what is written takes memory.
const SIZE: u64 = 768 << 20;
/// Cuts in one life, at most.
const CUTS_A_LIFE: usize = 5;
/// Lives on one disk, at most.
const LIVES: u64 = 3;
/// How long a cut waits for the blocks that it is to come after.
const PATIENCE: Duration = Duration::from_secs(2);
/// The folder of the victim on the file system.
pub const STORE: &str = "store";

/// What is cut, and how.
pub struct Series {
    pub which: Which,
    pub cuts: usize,
    pub seed: u64,
    /// Of the blocks that were not synced, how many in 100 survive; `None` for 0 and 50 in turns.
    pub subset: Option<u64>,
    /// Where the images of cuts that went wrong are kept.
    pub keep: Option<PathBuf>,
    pub tools: Tools,
    /// This program.
    pub program: PathBuf,
}

/// How a series ended.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Cuts that were made and looked at.
    pub cuts: usize,
    /// Cuts after which something that was acknowledged was not there.
    pub lost: usize,
    /// Cuts that lost nothing, after which the store was wrong all the same.
    pub broken: usize,
}

/// What the power left behind.
struct Cut {
    image: Image,
    /// The writer's lines up to the cut.
    acked: String,
    /// Blocks that were not synced.
    pending: usize,
    subset: u64,
    /// Since the start of the writer.
    after: Duration,
}

/// What a life begins with.
#[derive(Default)]
struct Birth {
    image: Image,
    acked: String,
    life: u64,
}

/// What was found after a cut.
enum Outcome {
    /// The store opened.
    Opened(Findings),
    /// It did not, or could not be read.
    Dead { acked: usize, why: String },
}

impl Outcome {
    /// Whether something that was acknowledged is gone.
    fn lost(&self) -> bool {
        match self {
            Outcome::Opened(findings) => findings.lost > 0,
            Outcome::Dead { acked, .. } => *acked > 0,
        }
    }

    /// Whether all is as it should be.
    fn held(&self) -> bool {
        matches!(self, Outcome::Opened(findings) if findings.lost == 0 && findings.faults.is_empty())
    }

    /// In a few words.
    fn text(&self) -> String {
        match self {
            Outcome::Opened(f) if f.lost == 0 && f.faults.is_empty() => {
                format!("{} commits acknowledged, all there; newest {}, {} rows", f.acked, f.newest, f.rows)
            }
            Outcome::Opened(f) => {
                let faults = f.faults.iter().map(|fault| format!("; {fault}"));
                format!("LOST {} of {} commits; newest {}{}", f.lost, f.acked, f.newest, faults.collect::<String>())
            }
            Outcome::Dead { acked, why } => format!("LOST the store, {acked} commits acknowledged: {why}"),
        }
    }
}

impl Series {
    /// Makes the cuts and says a line about each.
    ///
    /// # Errors
    /// When the rig fails. What the victim does is in the tally.
    pub async fn run(&self) -> Result<Tally, RigFault> {
        let mut chance = Chance::of(&[self.seed, self.which as u64]);
        let mut tally = Tally::default();
        let mut birth = Birth::default();
        while tally.cuts < self.cuts {
            let wanted = CUTS_A_LIFE.min(self.cuts - tally.cuts);
            let life = birth.life;
            let cuts = self.live(birth, wanted, tally.cuts, &mut chance).await?;
            let mut held = true;
            for cut in &cuts {
                let outcome = self.look(cut).await?;
                tally.cuts += 1;
                tally.lost += usize::from(outcome.lost());
                tally.broken += usize::from(!outcome.lost() && !outcome.held());
                held &= outcome.held();
                self.say(tally.cuts, life, cut, &outcome);
                if !outcome.held() {
                    self.keep_image(tally.cuts, cut)?;
                }
            }
            birth = match cuts.into_iter().next_back() {
                Some(cut) if held && self.which.can_go_on() && life + 1 < LIVES => {
                    Birth { image: cut.image, acked: cut.acked, life: life + 1 }
                }
                _ => Birth::default(),
            };
        }
        Ok(tally)
    }

    /// Runs the writer once, from `birth` on, and cuts `wanted` times; `before` cuts were made in earlier lives.
    async fn live(
        &self,
        birth: Birth,
        wanted: usize,
        before: usize,
        chance: &mut Chance,
    ) -> Result<Vec<Cut>, RigFault> {
        let folder = tempfile::tempdir().map_err(at(Path::new("a temporary folder")))?;
        let [fuse, ext4, acked, errors] = ["fuse", "ext4", "acked", "errors"].map(|name| folder.path().join(name));
        for mount_point in [&fuse, &ext4] {
            fs::create_dir(mount_point).map_err(at(mount_point))?;
        }
        let fresh = birth.life == 0;
        let disk = Disk::new(SIZE, birth.image);
        // Guards are dropped from the last to the first.
        let _session = disk.mount(&fuse).map_err(at(&fuse))?;
        let _fuse = Mounted::guard(&self.tools, &fuse);
        let device = LoopDevice::over(&self.tools, &fuse.join(disk::NAME)).await?;
        if fresh {
            device.format(&self.tools).await?;
        }
        let _ext4 = Mounted::ext4(&self.tools, &device, &ext4).await?;
        fs::write(&acked, &birth.acked).map_err(at(&acked))?;
        let mut writer = self.start_writer(&ext4, birth.life, &acked, &errors)?;

        let (mut cuts, mut after) = (Vec::new(), Duration::ZERO);
        while cuts.len() < wanted {
            // The first cut may fall into the opening of the store.
            let wait = if cuts.is_empty() { chance.between(5, 500) } else { chance.between(100, 900) };
            let wait = Duration::from_millis(wait);
            tokio::time::sleep(wait).await;
            after += wait;
            if let Ok(Some(status)) = writer.0.try_wait() {
                let said = fs::read_to_string(&errors).unwrap_or_default();
                return Err(RigFault::Writer(format!("{status}, {}", said.trim())));
            }
            let subset = self.subset.unwrap_or((before + cuts.len()) as u64 % 2 * 50);
            // In this order: what is acknowledged before the power goes has to be there afterwards.
            let acked = fs::read_to_string(&acked).map_err(at(&acked))?;
            // Some blocks later, so that it goes in the middle of a commit and not in the pause after one.
            let moment = timeout(PATIENCE, disk.after(chance.between(1, 120))).await;
            let moment = moment.ok().and_then(Result::ok).unwrap_or_else(|| disk.now());
            let pending = moment.pending();
            let image = moment.cut(subset, chance);
            cuts.push(Cut { image, acked, pending, subset, after });
        }
        Ok(cuts)
    }

    /// Starts the writer on the file system `ext4`, its acknowledgements going to the end of `acked`.
    fn start_writer(&self, ext4: &Path, life: u64, acked: &Path, errors: &Path) -> Result<Killed, RigFault> {
        let lines = File::options().append(true).open(acked).map_err(at(acked))?;
        let errors = File::create(errors).map_err(at(errors))?;
        let mut command = Command::new(&self.program);
        command.args(["write", "--victim", self.which.name(), "--seed", &self.seed.to_string()]);
        command.args(["--life", &life.to_string()]).arg(ext4.join(STORE));
        let child = command.stdin(Stdio::piped()).stdout(lines).stderr(errors).spawn().map_err(at(&self.program))?;
        Ok(Killed(child))
    }

    /// Mounts what `cut` left and has a process of its own look at the store.
    async fn look(&self, cut: &Cut) -> Result<Outcome, RigFault> {
        let folder = tempfile::tempdir().map_err(at(Path::new("a temporary folder")))?;
        let [image, ext4, acked] = ["image", "ext4", "acked"].map(|name| folder.path().join(name));
        fs::create_dir(&ext4).map_err(at(&ext4))?;
        fs::write(&acked, &cut.acked).map_err(at(&acked))?;
        cut.image.write(&image, SIZE).map_err(at(&image))?;
        let device = LoopDevice::over(&self.tools, &image).await?;
        let _ext4 = Mounted::ext4(&self.tools, &device, &ext4).await?;
        let mut command = tokio::process::Command::new(&self.program);
        command.env("RUST_BACKTRACE", "0").args([
            "check",
            "--victim",
            self.which.name(),
            "--seed",
            &self.seed.to_string(),
        ]);
        let done = output(command.arg("--acked").arg(&acked).arg(ext4.join(STORE))).await?;
        let acked = cut.acked.lines().count();
        if let Ok(findings) = serde_json::from_slice(&done.stdout) {
            return Ok(Outcome::Opened(findings));
        }
        let why = format!("{}, {}", done.status, last_words(&String::from_utf8_lossy(&done.stderr)));
        Ok(Outcome::Dead { acked, why })
    }

    /// Keeps the image of a cut that went wrong, with what was acknowledged, where that was asked for.
    fn keep_image(&self, number: usize, cut: &Cut) -> Result<(), RigFault> {
        let Some(keep) = &self.keep else { return Ok(()) };
        let name = format!("{}-{number}", self.which.name());
        let [image, acked] = ["img", "acked"].map(|ending| keep.join(format!("{name}.{ending}")));
        fs::create_dir_all(keep).map_err(at(keep))?;
        cut.image.write(&image, SIZE).map_err(at(&image))?;
        fs::write(&acked, &cut.acked).map_err(at(&acked))
    }

    /// The line of one cut.
    fn say(&self, number: usize, life: u64, cut: &Cut, outcome: &Outcome) {
        let how = format!("life {life} at {:>4} ms, {:>4} blocks unsynced", cut.after.as_millis(), cut.pending);
        let line = format!("{} cut {number:>2}: {how}, {:>2}% kept: {}", self.which.name(), cut.subset, outcome.text());
        // Whoever reads the lines may have gone away; the verdict is the exit status.
        let _ = writeln!(std::io::stdout(), "{line}");
    }
}

/// Why a process ended, from what it said: the message of its last panic, or else its last line.
fn last_words(said: &str) -> &str {
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    let panic = lines.iter().rposition(|line| line.contains("panicked at")).and_then(|at| lines.get(at + 1));
    panic.or(lines.last()).map_or("without a word", |line| line.trim())
}
