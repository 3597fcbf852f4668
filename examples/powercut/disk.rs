//! A disk that forgets what was not synced: a FUSE file system with one file, `disk`.
//!
//! Used by `rig`, which puts a loop device over the file. Always: a block that was written is pending until the file is
//! synced, and a cut leaves either what was synced or that and some of the pending blocks, as a drive with a volatile
//! write cache does. A cut falls between any two blocks, also of one write. Left out on purpose: blocks that are torn in the middle, and syncs that fail.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackgroundSession, FileAttr, FileType, Filesystem, MountOption, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
};

use tokio::sync::oneshot;

use crate::chance::Chance;

/// Bytes of a block: what a drive writes whole or not at all.
const BLOCK: usize = 4096;
/// The inode of the one folder.
const FOLDER: u64 = 1;
/// The inode of the one file.
const FILE: u64 = 2;
/// How long the kernel may keep names and sizes; they never change.
const FOREVER: Duration = Duration::from_secs(24 * 3600);
/// The name of the one file.
pub const NAME: &str = "disk";

/// Blocks by number. One that is not there is all zeros.
type Blocks = BTreeMap<u64, Arc<[u8]>>;

/// What a drive holds after a power cut.
#[derive(Debug, Clone, Default)]
pub struct Image(Blocks);

impl Image {
    /// Writes the image to `path`, a sparse file of `size` bytes.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write(&self, path: &Path, size: u64) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(size)?;
        for (number, block) in &self.0 {
            file.write_all_at(block, number * BLOCK as u64)?;
        }
        Ok(())
    }
}

/// The blocks of a disk at one moment, by where each of them is.
#[derive(Debug, Clone)]
pub struct Moment {
    /// Survive a cut.
    durable: Blocks,
    /// Written since the last sync.
    pending: Blocks,
}

impl Moment {
    /// What is left when the power goes at this moment: all that was synced, and each pending block with a chance of
    /// `subset` in 100.
    pub fn cut(mut self, subset: u64, chance: &mut Chance) -> Image {
        let kept = self.pending.into_iter().filter(|_| chance.below(100) < subset);
        self.durable.extend(kept);
        Image(self.durable)
    }

    /// How many blocks are not synced.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }
}

/// A disk's blocks, and who waits for a moment to come.
struct Cache {
    now: Moment,
    /// After how many more blocks the moment is to be told, and to whom.
    awaited: Option<(u64, oneshot::Sender<Moment>)>,
}

impl Cache {
    /// The block as a reader sees it, `None` for zeros.
    fn block(&self, number: u64) -> Option<&Arc<[u8]>> {
        self.now.pending.get(&number).or_else(|| self.now.durable.get(&number))
    }

    /// `length` bytes from `offset` on.
    fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let (number, inside) = place(offset + bytes.len() as u64);
            let count = (BLOCK - inside).min(length - bytes.len());
            match self.block(number).and_then(|block| block.get(inside..inside + count)) {
                Some(part) => bytes.extend_from_slice(part),
                None => bytes.resize(bytes.len() + count, 0),
            }
        }
        bytes
    }

    /// Puts `bytes` at `offset`, pending.
    fn write(&mut self, offset: u64, mut bytes: &[u8]) {
        let mut at = offset;
        while !bytes.is_empty() {
            let (number, inside) = place(at);
            let (part, rest) = bytes.split_at((BLOCK - inside).min(bytes.len()));
            let mut block = self.block(number).map_or_else(|| vec![0; BLOCK], |block| block.to_vec());
            if let Some(target) = block.get_mut(inside..inside + part.len()) {
                target.copy_from_slice(part);
            }
            self.now.pending.insert(number, block.into());
            self.tell();
            at += part.len() as u64;
            bytes = rest;
        }
    }

    /// Makes all that is pending durable.
    fn sync(&mut self) {
        self.now.durable.append(&mut self.now.pending);
    }

    /// Counts a block, and tells the moment where it has come.
    fn tell(&mut self) {
        self.awaited = match self.awaited.take() {
            Some((left, waiting)) if left > 1 => Some((left - 1, waiting)),
            Some((_, waiting)) => {
                // Who asked may have lost patience.
                let _ = waiting.send(self.now.clone());
                None
            }
            None => None,
        };
    }
}

/// The number of the block that holds `offset`, and where in it.
fn place(offset: u64) -> (u64, usize) {
    (offset / BLOCK as u64, (offset % BLOCK as u64) as usize)
}

/// A disk with a volatile write cache. Cheap to clone; all clones are the same disk.
#[derive(Clone)]
pub struct Disk {
    size: u64,
    cache: Arc<Mutex<Cache>>,
}

impl Disk {
    /// A disk of `size` bytes that holds `image`.
    pub fn new(size: u64, image: Image) -> Self {
        let now = Moment { durable: image.0, pending: Blocks::new() };
        let cache = Cache { now, awaited: None };
        Self { size, cache: Arc::new(Mutex::new(cache)) }
    }

    /// The disk as it is now.
    pub fn now(&self) -> Moment {
        self.cache().now.clone()
    }

    /// The disk as it will be when `blocks` more blocks were written to it, from now on. It goes on meanwhile.
    pub fn after(&self, blocks: u64) -> oneshot::Receiver<Moment> {
        let (waiting, moment) = oneshot::channel();
        self.cache().awaited = Some((blocks, waiting));
        moment
    }

    /// Shows the disk as the file `disk` in `folder`, until the session is dropped.
    ///
    /// # Errors
    /// What the kernel says to the mount.
    pub fn mount(&self, folder: &Path) -> io::Result<BackgroundSession> {
        fuser::spawn_mount2(self.clone(), folder, &[MountOption::FSName("powercut".into())])
    }

    /// The cache. No code that holds it can panic half-way, so a poisoned lock is as good as another.
    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the kernel wants to know of an inode.
    fn attr(&self, ino: u64) -> FileAttr {
        let folder = ino == FOLDER;
        FileAttr {
            ino,
            size: if folder { 0 } else { self.size },
            blocks: if folder { 0 } else { self.size / 512 },
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if folder { FileType::Directory } else { FileType::RegularFile },
            perm: if folder { 0o700 } else { 0o600 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: BLOCK as u32,
            flags: 0,
        }
    }
}

impl Filesystem for Disk {
    fn lookup(&mut self, _: &Request<'_>, _: u64, name: &OsStr, reply: ReplyEntry) {
        if name == NAME { reply.entry(&FOREVER, &self.attr(FILE), 0) } else { reply.error(libc::ENOENT) }
    }

    fn getattr(&mut self, _: &Request<'_>, ino: u64, _: Option<u64>, reply: ReplyAttr) {
        reply.attr(&FOREVER, &self.attr(ino));
    }

    fn setattr(
        &mut self,
        _: &Request<'_>,
        ino: u64,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<u64>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<u32>,
        reply: ReplyAttr,
    ) {
        reply.attr(&FOREVER, &self.attr(ino));
    }

    fn open(&mut self, _: &Request<'_>, ino: u64, _flags: i32, reply: ReplyOpen) {
        reply.opened(ino, 0);
    }

    fn read(
        &mut self,
        _: &Request<'_>,
        _ino: u64,
        _fh: u64,
        offset: i64,
        size: u32,
        _flags: i32,
        _lock_owner: Option<u64>,
        reply: ReplyData,
    ) {
        let offset = u64::try_from(offset).unwrap_or(0).min(self.size);
        let length = u64::from(size).min(self.size - offset) as usize;
        reply.data(&self.cache().read(offset, length));
    }

    fn write(
        &mut self,
        _: &Request<'_>,
        _ino: u64,
        _fh: u64,
        offset: i64,
        bytes: &[u8],
        _write_flags: u32,
        _flags: i32,
        _lock_owner: Option<u64>,
        reply: ReplyWrite,
    ) {
        let offset = u64::try_from(offset).unwrap_or(u64::MAX);
        if offset.saturating_add(bytes.len() as u64) > self.size {
            return reply.error(libc::ENOSPC);
        }
        self.cache().write(offset, bytes);
        reply.written(bytes.len() as u32);
    }

    /// Comes with each close of the file; a close makes nothing durable.
    fn flush(&mut self, _: &Request<'_>, _ino: u64, _fh: u64, _lock_owner: u64, reply: ReplyEmpty) {
        reply.ok();
    }

    /// A flush of the drive's cache: the loop device turns the block layer's flushes into it.
    fn fsync(&mut self, _: &Request<'_>, _ino: u64, _fh: u64, _datasync: bool, reply: ReplyEmpty) {
        self.cache().sync();
        reply.ok();
    }

    /// Holes cannot be punched, so that a discard never makes anything durable behind the cache's back.
    fn fallocate(&mut self, _: &Request<'_>, _ino: u64, _fh: u64, _at: i64, _len: i64, _mode: i32, reply: ReplyEmpty) {
        reply.error(libc::EOPNOTSUPP);
    }

    fn statfs(&mut self, _: &Request<'_>, _ino: u64, reply: ReplyStatfs) {
        let blocks = self.size / BLOCK as u64;
        reply.statfs(blocks, blocks, blocks, 2, 0, BLOCK as u32, 255, BLOCK as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small disk, and a stream of chances that nothing depends on.
    fn disk() -> (Disk, Chance) {
        (Disk::new(1 << 20, Image::default()), Chance::of(&[1]))
    }

    #[test]
    fn a_cut_forgets_what_was_not_synced() {
        let (disk, mut chance) = disk();
        disk.cache().write(100, b"synced");
        disk.cache().sync();
        disk.cache().write(100, b"newer!");
        disk.cache().write(9000, b"never");
        assert_eq!(disk.now().pending(), 2);
        let after = Disk::new(1 << 20, disk.now().cut(0, &mut chance));
        assert_eq!(after.cache().read(100, 6), b"synced");
        assert_eq!(after.cache().read(9000, 5), [0; 5]);
        let after = Disk::new(1 << 20, disk.now().cut(100, &mut chance));
        assert_eq!(after.cache().read(100, 6), b"newer!");
        assert_eq!(after.cache().read(9000, 5), b"never");
    }

    #[test]
    fn a_write_over_several_blocks_reads_back_and_leaves_its_neighbours() {
        let (disk, _) = disk();
        disk.cache().write(0, &[1; 3 * BLOCK]);
        disk.cache().write(BLOCK as u64 - 10, &[2; BLOCK + 20]);
        let bytes = disk.cache().read(0, 4 * BLOCK);
        let expected = [vec![1; BLOCK - 10], vec![2; BLOCK + 20], vec![1; BLOCK - 10], vec![0; BLOCK]].concat();
        assert!(bytes == expected);
    }

    #[test]
    fn a_moment_comes_in_the_middle_of_a_write() {
        let (disk, _) = disk();
        let mut moment = disk.after(2);
        disk.cache().write(0, &[1; 3 * BLOCK]);
        assert_eq!(moment.try_recv().map(|moment| moment.pending()), Ok(2));
    }
}
