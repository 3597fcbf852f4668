//! The files: written, held while somebody means to refer to them, and removed.
//!
//! Writing blocks and is for a blocking pool. Removing is done by one thread of its own, one file after the other, so that
//! neither a session nor the log waits for it.
//!
//! Always: a file that is *in hand* (written for an event that is not on disk yet, or named by a message that is being
//! decided) is neither removed nor swept.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::references;
use crate::events::durable::{make_directory, sync_directory};
use crate::events::{ChannelId, Store};
use crate::resources::uri::{file_path, file_uri};

/// The name of the folder in the data directory.
pub const FOLDER: &str = "attachments";

/// Where nothing can be written.
const NOWHERE: &str = "/dev/null";

/// One stored file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileRef {
    /// The number of the session whose folder it is in.
    pub folder: u64,
    /// 128 random bits.
    pub name: u128,
}

impl FileRef {
    /// The file that a URI names by its last three segments, wherever the data directory was when it was written.
    pub fn of_uri(uri: &str) -> Option<Self> {
        let path = file_path(uri).ok()?;
        let mut parts = path.components().rev().map(|part| part.as_os_str().to_str());
        let (name, folder, above) = (parts.next()??, parts.next()??, parts.next()??);
        let is_folder = folder == "0" || (!folder.starts_with('0') && folder.bytes().all(|b| b.is_ascii_digit()));
        if above != FOLDER || !is_folder {
            return None;
        }
        Self::of_name(folder.parse().ok()?, name)
    }

    /// What the keys of its references begin with.
    pub fn key(self) -> Vec<u8> {
        let mut key = self.folder.to_be_bytes().to_vec();
        key.extend_from_slice(&self.name.to_be_bytes());
        key
    }

    /// The file at the start of a key, and the rest of it.
    pub fn parse_key(key: &[u8]) -> Option<(Self, &[u8])> {
        let (folder, rest) = key.split_at_checked(8)?;
        let (name, rest) = rest.split_at_checked(16)?;
        let folder = u64::from_be_bytes(folder.try_into().ok()?);
        Some((Self { folder, name: u128::from_be_bytes(name.try_into().ok()?) }, rest))
    }

    fn new(folder: u64) -> Self {
        let random = || ulid::Ulid::new().random();
        Self { folder, name: (random() << 64) ^ random() }
    }

    /// Where it is in [`FOLDER`].
    pub fn place(self) -> PathBuf {
        Path::new(&self.folder.to_string()).join(self.text())
    }

    /// Its name as a path has it.
    pub fn text(self) -> String {
        format!("{:032x}", self.name)
    }

    /// The file that has this name in a folder.
    pub fn of_name(folder: u64, name: &str) -> Option<Self> {
        let is_name = name.len() == 32 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        is_name.then(|| Some(Self { folder, name: u128::from_str_radix(name, 16).ok()? })).flatten()
    }
}

/// All stored files of a host. Cheap to clone.
#[derive(Clone)]
pub struct Attachments {
    inner: Arc<Inner>,
    jobs: Sender<Job>,
}

struct Inner {
    root: PathBuf,
    store: Arc<dyn Store>,
    in_hand: Mutex<HashMap<FileRef, Hand>>,
    swept: Mutex<HashSet<u64>>,
}

/// How often a file is in hand.
#[derive(Default)]
struct Hand {
    by: usize,
    /// Its last reference went meanwhile.
    is_due: bool,
}

/// What the thread is told.
enum Job {
    /// References to these went.
    Collect(Vec<FileRef>),
    /// What was written for an event that will never be.
    Discard(Vec<FileRef>),
    /// What is in this folder and referred to by nothing goes.
    Sweep(u64),
}

impl Attachments {
    /// The files of a data directory; without one none can be stored.
    pub fn start(data: Option<&Path>, store: Arc<dyn Store>) -> Self {
        let root = data.unwrap_or(Path::new(NOWHERE)).join(FOLDER);
        let inner = Arc::new(Inner { root, store, in_hand: Mutex::default(), swept: Mutex::default() });
        let (jobs, told) = channel();
        let worker = Arc::clone(&inner);
        let started = std::thread::Builder::new().name("attachments".into()).spawn(move || worker.run(&told));
        if let Err(fault) = started {
            tracing::error!(%fault, "no attachment that nobody refers to is removed until the host is started again");
        }
        Self { inner, jobs }
    }

    /// Begins to write for one message of the session with this number.
    pub fn stage(&self, session: ChannelId) -> Staged {
        Staged {
            of: self.clone(),
            folder: session.0,
            written: Vec::new(),
            taken: Vec::new(),
            is_kept: AtomicBool::new(false),
        }
    }

    /// The `file:` URI of a file.
    pub fn uri(&self, file: FileRef) -> String {
        file_uri(&self.inner.path(file))
    }

    /// The bytes of a file. Blocks.
    ///
    /// # Errors
    /// Where it is not there, or is no plain file in its folder.
    pub fn read(&self, file: FileRef) -> io::Result<Vec<u8>> {
        let (mut open, size) = self.open(file)?;
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        open.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// An open file and its size. Blocks.
    ///
    /// # Errors
    /// As [`Attachments::read`].
    pub fn open(&self, file: FileRef) -> io::Result<(File, u64)> {
        let path = self.inner.path(file);
        let real = path.canonicalize()?;
        if real != self.inner.root.canonicalize()?.join(file.folder.to_string()).join(file.text()) {
            return Err(io::Error::new(ErrorKind::NotFound, "it leads out of the folder"));
        }
        let open = File::open(real)?;
        let found = open.metadata()?;
        if !found.is_file() {
            return Err(io::Error::new(ErrorKind::NotFound, "it is no file"));
        }
        Ok((open, found.len()))
    }

    /// Removes those of `files` that nothing refers to any more: to be called when the batch that says so is on disk.
    pub fn collect(&self, files: Vec<FileRef>) {
        self.tell(Job::Collect(files));
    }

    /// Removes what a host that died left in the folder of this session. Once in a process: later nothing is left.
    pub fn sweep(&self, session: ChannelId) {
        if lock(&self.inner.swept).insert(session.0) {
            self.tell(Job::Sweep(session.0));
        }
    }

    fn tell(&self, job: Job) {
        // The thread is there as long as anybody can tell it something, or could not be started.
        let _ = self.jobs.send(job);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    fn folder(&self, folder: u64) -> PathBuf {
        self.root.join(folder.to_string())
    }

    fn path(&self, file: FileRef) -> PathBuf {
        self.folder(file.folder).join(file.text())
    }

    fn run(&self, jobs: &Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            match job {
                Job::Collect(files) => files.into_iter().for_each(|file| self.remove_unused(file)),
                Job::Discard(files) => {
                    for file in files {
                        lock(&self.in_hand).remove(&file);
                        self.remove_unused(file);
                    }
                }
                Job::Sweep(folder) => self.sweep(folder),
            }
        }
    }

    /// Removes a file that nobody has in hand and nothing refers to.
    fn remove_unused(&self, file: FileRef) {
        // Held until it is gone: who takes it in hand meanwhile sees that it is not there.
        let mut in_hand = lock(&self.in_hand);
        if let Some(hand) = in_hand.get_mut(&file) {
            hand.is_due = true;
            return;
        }
        match references::is_referred_to(self.store.as_ref(), file) {
            Ok(true) => {}
            Ok(false) => match fs::remove_file(self.path(file)) {
                Err(fault) if fault.kind() != ErrorKind::NotFound => {
                    tracing::warn!(%fault, "an attachment that nobody refers to cannot be removed");
                }
                _ => {}
            },
            Err(fault) => tracing::error!(%fault, "it cannot be told who refers to an attachment"),
        }
    }

    fn sweep(&self, folder: u64) {
        let Ok(entries) = fs::read_dir(self.folder(folder)) else { return };
        for entry in entries.flatten() {
            // What is no name of ours was not written by us.
            if let Some(file) = FileRef::of_uri(&file_uri(&entry.path())) {
                self.remove_unused(file);
            }
        }
    }

    fn take(&self, file: FileRef) {
        lock(&self.in_hand).entry(file).or_default().by += 1;
    }

    /// Lets a file go; says whether its last reference went meanwhile.
    fn let_go(&self, file: FileRef) -> bool {
        let mut in_hand = lock(&self.in_hand);
        let Some(hand) = in_hand.get_mut(&file) else { return false };
        hand.by = hand.by.saturating_sub(1);
        let is_due = hand.by == 0 && hand.is_due;
        if hand.by == 0 {
            in_hand.remove(&file);
        }
        is_due
    }
}

/// The files of one message on its way: those that were written for it, and those that it names already. What was written goes
/// again when this is dropped and was not [kept](Staged::keep).
pub struct Staged {
    of: Attachments,
    folder: u64,
    written: Vec<FileRef>,
    taken: Vec<FileRef>,
    is_kept: AtomicBool,
}

impl std::fmt::Debug for Staged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Staged").field("written", &self.written).field("taken", &self.taken).finish_non_exhaustive()
    }
}

impl Staged {
    /// Writes a file, whole and synced, with the folder that names it. Blocks.
    ///
    /// # Errors
    /// The first step that failed; nothing is left then.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<FileRef> {
        let file = FileRef::new(self.folder);
        let folder = self.of.inner.folder(self.folder);
        make_directory(&self.of.inner.root)?;
        make_directory(&folder)?;
        self.of.inner.take(file);
        self.written.push(file);
        let path = self.of.inner.path(file);
        write_synced(&path, &folder, bytes).inspect_err(|_| {
            self.written.pop();
            let _ = fs::remove_file(&path);
            self.of.inner.let_go(file);
        })?;
        Ok(file)
    }

    /// Takes a file in hand that a message names; says whether it is there. Blocks.
    pub fn take(&mut self, file: FileRef) -> bool {
        self.of.inner.take(file);
        self.taken.push(file);
        self.of.open(file).is_ok()
    }

    /// The bytes of a file. Blocks.
    ///
    /// # Errors
    /// As [`Attachments::read`].
    pub fn read(&self, file: FileRef) -> io::Result<Vec<u8>> {
        self.of.read(file)
    }

    /// The `file:` URI of a file.
    pub fn uri(&self, file: FileRef) -> String {
        self.of.uri(file)
    }

    /// The event that names the files is on disk: they stay.
    pub fn keep(&self) {
        self.is_kept.store(true, Ordering::Release);
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let taken = std::mem::take(&mut self.taken);
        let mut due: Vec<FileRef> = taken.into_iter().filter(|file| self.of.inner.let_go(*file)).collect();
        let written = std::mem::take(&mut self.written);
        if self.is_kept.load(Ordering::Acquire) {
            due.extend(written.into_iter().filter(|file| self.of.inner.let_go(*file)));
        } else if !written.is_empty() {
            self.of.tell(Job::Discard(written));
        }
        if !due.is_empty() {
            self.of.collect(due);
        }
    }
}

fn write_synced(path: &Path, folder: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o400).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    sync_directory(folder)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use bytes::Bytes;

    use super::super::references::{Referrer, key};
    use super::*;
    use crate::events::{Batch, EventLog, MemoryStore, RowOp, Table};

    const SESSION: ChannelId = ChannelId(7);

    struct Place {
        directory: tempfile::TempDir,
        store: Arc<MemoryStore>,
        files: Attachments,
    }

    fn place() -> Place {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(MemoryStore::new().unwrap());
        let files = Attachments::start(Some(directory.path()), Arc::clone(&store) as Arc<dyn Store>);
        Place { directory, store, files }
    }

    impl Place {
        fn path(&self, file: FileRef) -> PathBuf {
            self.files.inner.path(file)
        }

        fn refer(&self, file: FileRef, refers: bool) {
            let (table, key) = (Table::Attachment, key(ChannelId(9), &(file, Referrer::Draft)));
            let row = match refers {
                true => RowOp::Put { table, key, value: Bytes::new() },
                false => RowOp::Delete { table, key },
            };
            self.store.append(&[Batch { events: Vec::new(), rows: vec![row] }]).unwrap();
        }

        /// Waits until everything that the thread was told is done.
        fn settle(self) -> (tempfile::TempDir, Vec<FileRef>) {
            let Place { directory, store, files } = self;
            let root = files.inner.root.clone();
            drop(files);
            while Arc::strong_count(&store) > 1 {
                std::thread::yield_now();
            }
            let folder = fs::read_dir(root.join(SESSION.0.to_string())).unwrap();
            let left = folder.map(|entry| FileRef::of_uri(&file_uri(&entry.unwrap().path())).unwrap()).collect();
            (directory, left)
        }
    }

    #[test]
    fn a_file_is_its_owners_to_read_and_has_a_name_of_its_own() {
        let place = place();
        let mut staged = place.files.stage(SESSION);
        let (one, other) = (staged.write(b"a").unwrap(), staged.write(b"a").unwrap());
        assert_ne!(one, other);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&place.path(one)), 0o400);
        assert_eq!(mode(place.path(one).parent().unwrap()), 0o700);
        assert_eq!(place.files.read(one).unwrap(), b"a");
        assert_eq!(FileRef::of_uri(&place.files.uri(one)), Some(one));
    }

    #[test]
    fn what_was_written_goes_unless_it_is_kept() {
        let place = place();
        let (mut lost, mut kept) = (place.files.stage(SESSION), place.files.stage(SESSION));
        lost.write(b"lost").unwrap();
        let file = kept.write(b"kept").unwrap();
        place.refer(file, true);
        kept.keep();
        drop((lost, kept));
        assert_eq!(place.settle().1, [file]);
    }

    #[test]
    fn a_file_in_hand_outlives_its_last_reference_until_it_is_let_go() {
        for refers_again in [true, false] {
            let place = place();
            let mut first = place.files.stage(SESSION);
            let file = first.write(b"x").unwrap();
            place.refer(file, true);
            first.keep();
            drop(first);
            let mut second = place.files.stage(SESSION);
            assert!(second.take(file));
            place.refer(file, false);
            place.files.collect(vec![file]);
            place.files.sweep(SESSION);
            // Another file is gone only after the jobs before it are done.
            let mut marker = place.files.stage(SESSION);
            let marked = marker.write(b"m").unwrap();
            drop(marker);
            while place.path(marked).exists() {
                std::thread::yield_now();
            }
            assert!(place.path(file).exists());
            if refers_again {
                place.refer(file, true);
            }
            drop(second);
            assert_eq!(place.settle().1, if refers_again { vec![file] } else { Vec::new() });
        }
    }

    #[test]
    fn a_sweep_takes_what_nothing_refers_to_and_nothing_that_is_not_ours() {
        let place = place();
        let mut staged = place.files.stage(SESSION);
        let (orphan, kept) = (staged.write(b"o").unwrap(), staged.write(b"k").unwrap());
        place.refer(kept, true);
        staged.keep();
        drop(staged);
        let folder = place.files.inner.folder(SESSION.0);
        fs::create_dir(folder.join("f".repeat(32))).unwrap();
        place.files.sweep(SESSION);
        let (directory, mut left) = place.settle();
        left.retain(|file| file.name != u128::MAX);
        assert!(!left.contains(&orphan));
        assert_eq!(left.iter().filter(|file| **file == kept).count(), 1);
        drop(directory);
    }

    #[test]
    fn only_a_file_by_its_own_name_is_one_of_ours() {
        let name = "0123456789abcdef0123456789abcdef";
        let good = FileRef { folder: 12, name: 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef };
        assert_eq!(FileRef::of_uri(&format!("file:///any/where/attachments/12/{name}")), Some(good));
        for bad in [
            format!("file:///d/attachments/012/{name}"),
            format!("file:///d/attachments/+1/{name}"),
            format!("file:///d/attachments/1/{}", name.to_uppercase()),
            format!("file:///d/attachments/1/x/../../{name}"),
            format!("file:///d/other/1/{name}"),
            format!("file:///d/attachments/1/{name}0"),
            format!("https:///d/attachments/1/{name}"),
            "file:///etc/passwd".to_owned(),
        ] {
            assert_eq!(FileRef::of_uri(&bad), None, "{bad}");
        }
    }

    #[test]
    fn a_name_that_leads_out_of_the_folder_is_not_read() {
        let place = place();
        let mut staged = place.files.stage(SESSION);
        let file = staged.write(b"x").unwrap();
        let secret = place.directory.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        fs::remove_file(place.path(file)).unwrap();
        std::os::unix::fs::symlink(&secret, place.path(file)).unwrap();
        assert!(place.files.read(file).is_err());
        assert!(place.files.read(FileRef { folder: 8, ..file }).is_err());
    }
}
