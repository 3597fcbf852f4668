//! Bringing a store up: making it, or opening it and holding it against its floor.
//!
//! Always: the engine's file is synced before it is opened, so that what is found is what stays, and again before
//! anything rests on it. A store that cannot be trusted is refused with what to do, and nothing of it is deleted.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use super::keys::{self, Key};
use super::runs::Directory;
use super::tree::{Changes, Tree, Unread, caught};
use super::{Access, Engine, Names, SledOptions, SledStore, Writer};
use crate::events::durable::{self, io_fault};
use crate::events::floor::{Floor, Found, JUMP};
use crate::events::rows::number_of_key;
use crate::events::stage::{self, RowChanges};
use crate::events::{ChannelId, LogFault, ServerSeq, Table};

/// The engine's directory and the floor file, in the data directory.
pub const LOG: &str = "log";
pub const FLOOR: &str = "floor";

/// Where a compaction writes the new log, in the data directory.
pub const COMPACTING: &str = "compacting";

/// The engine's files that are synced when they are made.
const ENGINE_FILE: &str = "db";
const ENGINE_SETTINGS: &str = "conf";

/// Bytes of the engine's segments; a quarter of it is the most that a leaf has before it goes to `blobs/`.
const SEGMENT: usize = 4 << 20;
/// How often the engine flushes by itself. Without it, it collects no garbage.
const FLUSH_EVERY_MS: u64 = 500;

/// How long a file may be held by a store that is being dropped.
const LETTING_GO: Duration = Duration::from_secs(5);

/// What a reader can do about a log that does not open.
const REMEDY: &str = "nothing was deleted: `scrollback log verify` says what can still be read, \
                      or restore the directory from a backup";

/// See [`SledStore::open`].
pub fn open(directory: &Path, options: SledOptions) -> Result<SledStore, LogFault> {
    super::compact::recover(directory, options.access)?;
    let opening = Opening { directory, access: options.access };
    let floor = opening.found_floor()?;
    let (tree, synced) = opening.engine(floor.is_some(), options.cache_capacity)?;
    let found = Contents::of(&tree).map_err(|unread| opening.unreadable(unread))?;
    let lost = opening.hold_against(floor, &found)?;
    if options.access == Access::Write && !found.has_root {
        make_root(&tree, &synced).map_err(|cause| opening.fault(format!("the log cannot be made: {cause}")))?;
    }
    let tail = found.tail;
    let next = next_number(floor, tail, lost.is_some());
    if next > tail.saturating_add(1) {
        tracing::info!(tail, next, "numbers may have been shown that are not on disk: numbering goes on above them");
    }
    let floor = Floor::reserve(tail, next, next, false);
    if options.access == Access::Write {
        let path = directory.join(FLOOR);
        floor.write(&path).map_err(io_fault(&path))?;
    }
    let read_only = (options.access != Access::Write).then(|| "the log was opened for reading".to_owned());
    Ok(SledStore {
        directory: directory.to_owned(),
        engine: ArcSwap::from_pointee(Engine { tree, synced }),
        options,
        lost,
        writer: Mutex::new(Writer {
            floor,
            ahead: false,
            highest_channel: found.noted_channel,
            newest: Default::default(),
            read_only,
            changed: None,
        }),
        before: RwLock::new(RowChanges::new()),
        names: Names::default(),
        tail: AtomicU64::new(tail),
        next: AtomicU64::new(next),
        channels: AtomicU64::new(found.highest_channel),
        last_sync: AtomicU64::new(0),
    })
}

/// The number that the next event gets: above all that may have been given, also where the log has less than was promised or nobody
/// knows what was.
fn next_number(floor: Option<Floor>, tail: ServerSeq, is_short: bool) -> ServerSeq {
    let follows = tail.saturating_add(1);
    match floor {
        Some(floor) if is_short => follows.max(floor.end),
        Some(floor) => floor.next(tail),
        None if tail > 0 => follows.saturating_add(JUMP),
        None => follows,
    }
}

/// Puts the engine's file on disk, and waits until a store that was dropped has let go of it: the engine's own threads do
/// so a moment later. Where it stays held, opening says so.
fn settle(file: &File) -> io::Result<()> {
    file.sync_data()?;
    let started = Instant::now();
    while matches!(file.try_lock(), Err(TryLockError::WouldBlock)) && started.elapsed() < LETTING_GO {
        std::thread::park_timeout(Duration::from_millis(5));
    }
    let _ = file.unlock();
    Ok(())
}

/// A store that is being opened.
struct Opening<'a> {
    directory: &'a Path,
    access: Access,
}

impl Opening<'_> {
    /// The floor, `None` for a store that was never written to, and for salvage without one.
    fn found_floor(&self) -> Result<Option<Floor>, LogFault> {
        let path = self.directory.join(FLOOR);
        match Floor::read(&path).map_err(io_fault(&path))? {
            Found::Floor(floor) => Ok(Some(floor)),
            Found::Missing => Ok(None),
            Found::Garbage(_) if self.access == Access::Salvage => Ok(None),
            Found::Garbage(problem) => Err(self.fault(format!("its file {FLOOR} is damaged: {problem}; {REMEDY}"))),
        }
    }

    /// Opens the engine, whose file is synced when this returns.
    fn engine(&self, has_floor: bool, cache: u64) -> Result<(Tree, File), LogFault> {
        let log = self.directory.join(LOG);
        let file = log.join(ENGINE_FILE);
        let is_new = !file.exists();
        if is_new && has_floor {
            return Err(self.fault(format!("the log's file {LOG}/{ENGINE_FILE} is missing; {REMEDY}")));
        }
        if is_new && self.access != Access::Write {
            return Err(self.fault("there is no log in it".to_owned()));
        }
        durable::make_directory(&log).map_err(io_fault(&log))?;
        if !is_new {
            File::open(&file).and_then(|file| settle(&file)).map_err(io_fault(&file))?;
        }
        let config = sled::Config::new().path(&log).segment_size(SEGMENT).cache_capacity(cache);
        let config = config.flush_every_ms(Some(FLUSH_EVERY_MS));
        let db = caught(|| config.open()).map_err(|unread| self.unopened(has_floor, unread))?;
        let tree = Tree::new(db);
        let synced = self.synced(&log).map_err(io_fault(&file))?;
        Ok((tree, synced))
    }

    /// Syncs what the engine made, and returns the descriptor for the syncs to come.
    fn synced(&self, log: &Path) -> io::Result<File> {
        let file = File::open(log.join(ENGINE_FILE))?;
        file.sync_data()?;
        File::open(log.join(ENGINE_SETTINGS))?.sync_data()?;
        durable::sync_directory(log)?;
        Ok(file)
    }

    /// Refuses a store that has less than its floor promises, or a log whose floor is gone. One that is to be salvaged
    /// opens all the same; what it has lost is returned.
    fn hold_against(&self, floor: Option<Floor>, found: &Contents) -> Result<Option<String>, LogFault> {
        match self.objection(floor, found) {
            Some(fault) if self.access != Access::Salvage => Err(fault),
            // Without its floor nobody knows what is missing; what is there may be whole.
            objection => Ok(objection.filter(|fault| matches!(fault, LogFault::Short { .. })).map(|f| f.to_string())),
        }
    }

    fn objection(&self, floor: Option<Floor>, found: &Contents) -> Option<LogFault> {
        match floor {
            Some(floor) if found.tail.saturating_add(1) < floor.start || !found.has_root => {
                Some(LogFault::Short { path: self.directory.to_owned(), found: found.tail, promised: floor.start })
            }
            None if found.tail > 0 => {
                Some(self.fault(format!("its file {FLOOR} is missing beside a log that has events; {REMEDY}")))
            }
            _ => None,
        }
    }

    fn unopened(&self, has_floor: bool, unread: Unread) -> LogFault {
        let remedy = match unread {
            Unread::System(ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge, _) => {
                "make room on its disk: a log needs some to be opened"
            }
            Unread::System(ErrorKind::PermissionDenied, _) => {
                "give the files in it back to the user who runs the host, with chown -R"
            }
            _ if has_floor => REMEDY,
            _ => "the making of the log was interrupted, and it holds no events: move the directory away",
        };
        let problem = unread.problem();
        self.fault(format!("the log cannot be opened: {}; {remedy}", problem.lines().next().unwrap_or_default()))
    }

    fn unreadable(&self, unread: Unread) -> LogFault {
        self.fault(format!("the log cannot be read: {}; {REMEDY}", unread.problem()))
    }

    fn fault(&self, problem: String) -> LogFault {
        LogFault::Directory { path: self.directory.to_owned(), problem }
    }
}

/// What an opened tree says of itself.
struct Contents {
    tail: ServerSeq,
    has_root: bool,
    /// The highest channel number that is noted, 0 for none.
    noted_channel: u64,
    /// The highest channel number that is anywhere to be found.
    highest_channel: u64,
}

impl Contents {
    fn of(tree: &Tree) -> Result<Self, Unread> {
        let tail = match tree.last_key(b"O", &keys::directory(ServerSeq::MAX))? {
            Some(key) => Directory::parse(&tree.get(&key)?.unwrap_or_default())?.last,
            None => 0,
        };
        let root = keys::row(Table::ChannelById, &ChannelId::ROOT.0.to_be_bytes());
        let noted = tree.get(&keys::highest_channel())?;
        let noted_channel = noted.and_then(|number| number_of_key(&number)).unwrap_or(0);
        let named = tree.last_key(&[Table::ChannelById as u8], &keys::row(Table::ChannelById, &[0xff; 8]))?;
        let written = tree.last_key(b"E", &keys::run(ChannelId(u64::MAX), ServerSeq::MAX))?;
        let from_key = |key: Option<Key>| key.and_then(|key| keys::channel_of(&key)).map_or(0, |id| id.0);
        let highest_channel = noted_channel.max(from_key(named)).max(from_key(written)).max(ChannelId::ROOT.0);
        Ok(Self { tail, has_root: tree.get(&root)?.is_some(), noted_channel, highest_channel })
    }
}

/// Writes the root channel's rows, which every store has from its creation.
fn make_root(tree: &Tree, synced: &File) -> Result<(), String> {
    let mut changes = Changes::default();
    for ((table, key), value) in stage::root_rows().map_err(|e| e.to_string())? {
        changes.put(&keys::row(table, &key), &value)?;
    }
    tree.apply(changes)?;
    synced.sync_data().map_err(|e| e.to_string())
}
