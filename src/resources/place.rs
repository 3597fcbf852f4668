//! A place in an allowed directory, reached one step at a time.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, open, openat, statat};
use rustix::io::Errno;

use super::{Access, ResourceFault, Roots, uri};

/// How many symbolic links a path may lead through.
const MAX_LINKS: usize = 40;

/// What becomes of a symbolic link at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    Follow,
    /// It is meant itself.
    Keep,
}

/// How directories on the way are opened: to go through, nothing else.
#[cfg(target_os = "linux")]
const STEP: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
const STEP: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How what is there is opened: never a link, and never one that waits, such as a pipe.
const PLAIN: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Tells a directory from every other, under whatever name.
pub(super) type Identity = (u64, u64);

/// The identity in what the system says of something.
pub(super) fn identity(stat: &Stat) -> Identity {
    #[allow(clippy::unnecessary_cast)]
    (stat.st_dev as u64, stat.st_ino as u64)
}

/// The identity of what stands at `path` now.
pub(super) fn identity_of(path: &Path) -> Option<Identity> {
    statat(CWD, path, AtFlags::empty()).ok().map(|stat| identity(&stat))
}

/// Something in an allowed directory, or where something could be: its name in its directory.
pub(super) struct Place {
    pub(super) dir: OwnedFd,
    /// `None`: the allowed directory itself, which `dir` is.
    pub(super) name: Option<OsString>,
    pub(super) real: PathBuf,
    /// The data directory, which nothing leads into.
    pub(super) hidden: Option<Identity>,
}

impl Roots {
    /// Finds the place that `uri` names.
    pub(super) fn locate(&self, uri: &str, access: Access, last: Last) -> Result<Place, ResourceFault> {
        let path = uri::file_path(uri)?;
        self.locate_path(&real_path(&path, last)?, access)
    }

    /// Finds the place of a real path.
    pub(super) fn locate_path(&self, real: &Path, access: Access) -> Result<Place, ResourceFault> {
        let (dir, mut names, hidden) = self.begin(real, access)?;
        let name = names.pop_back();
        let mut dir = dir;
        for step in names {
            dir = step_into(&dir, &step, hidden)?;
        }
        Ok(Place { dir, name, real: real.to_owned(), hidden })
    }

    /// The allowed directory that `real` is in, opened, and the names from there on.
    pub(super) fn begin(
        &self,
        real: &Path,
        access: Access,
    ) -> Result<(OwnedFd, VecDeque<OsString>, Option<Identity>), ResourceFault> {
        let root = self.root_of(real, access)?;
        let names = real.strip_prefix(root).map_err(|_| ResourceFault::Outside)?;
        let names = names.components().map(|part| part.as_os_str().to_owned()).collect();
        let is_own = self.data.as_deref() == Some(root);
        Ok((open(root, STEP, Mode::empty())?, names, self.hidden.filter(|_| !is_own)))
    }
}

/// Opens the directory `name` in `dir`, to go on from there.
pub(super) fn step_into(dir: &OwnedFd, name: &OsStr, hidden: Option<Identity>) -> Result<OwnedFd, ResourceFault> {
    let next = openat(dir, name, STEP, Mode::empty())?;
    if hidden.is_some() && hidden == Some(identity(&fstat(&next)?)) {
        return Err(ResourceFault::Outside);
    }
    Ok(next)
}

impl Place {
    /// What is there; a link is not followed.
    pub(super) fn stat(&self) -> Result<Option<Stat>, ResourceFault> {
        let found = match &self.name {
            None => fstat(&self.dir),
            Some(name) => statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW),
        };
        match found {
            Ok(stat) if self.hidden == Some(identity(&stat)) => Err(ResourceFault::Outside),
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// What is there.
    ///
    /// # Errors
    /// [`ResourceFault::NotFound`] when nothing is.
    pub(super) fn there(&self) -> Result<Stat, ResourceFault> {
        self.stat()?.ok_or(ResourceFault::NotFound)
    }

    /// Its name: the allowed directory itself cannot be changed.
    pub(super) fn named(&self) -> Result<&OsStr, ResourceFault> {
        self.name.as_deref().ok_or(ResourceFault::Outside)
    }

    /// Opens the file that is there.
    pub(super) fn open_file(&self, flags: OFlags) -> Result<std::fs::File, ResourceFault> {
        if kind(&self.there()?) != FileType::RegularFile {
            return Err(ResourceFault::NotAFile);
        }
        let file = openat(&self.dir, self.named()?, flags | PLAIN, Mode::empty())?;
        if kind(&fstat(&file)?) != FileType::RegularFile {
            return Err(ResourceFault::NotAFile);
        }
        Ok(file.into())
    }

    /// Opens the directory that is there, to list it.
    pub(super) fn open_directory(&self) -> Result<OwnedFd, ResourceFault> {
        if kind(&self.there()?) != FileType::Directory {
            return Err(ResourceFault::NotADirectory);
        }
        let name = self.name.as_deref().unwrap_or(OsStr::new("."));
        open_listed(&self.dir, name, self.hidden)
    }
}

/// Opens a directory so that it can be listed.
pub(super) fn open_listed(dir: impl AsFd, name: &OsStr, hidden: Option<Identity>) -> Result<OwnedFd, ResourceFault> {
    let opened = openat(dir, name, OFlags::RDONLY | OFlags::DIRECTORY | PLAIN, Mode::empty())?;
    if hidden.is_some() && hidden == Some(identity(&fstat(&opened)?)) {
        return Err(ResourceFault::Outside);
    }
    Ok(opened)
}

/// What kind of thing it is.
pub(super) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Where an absolute path leads when its symbolic links are followed; what is missing stands for itself.
pub(super) fn real_path(path: &Path, last: Last) -> Result<PathBuf, ResourceFault> {
    let mut left: VecDeque<OsString> = names(path);
    let mut real = PathBuf::from("/");
    let mut links = 0;
    while let Some(name) = left.pop_front() {
        if name == ".." {
            real.pop();
            continue;
        }
        let next = real.join(&name);
        let keeps = left.is_empty() && last == Last::Keep;
        match std::fs::read_link(&next) {
            Ok(target) if !keeps => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(ResourceFault::Outside);
                }
                if target.is_absolute() {
                    real = PathBuf::from("/");
                }
                names(&target).into_iter().rev().for_each(|name| left.push_front(name));
            }
            _ => real = next,
        }
    }
    Ok(real)
}

fn names(path: &Path) -> VecDeque<OsString> {
    let name = |part: Component<'_>| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        _ => None,
    };
    path.components().filter_map(name).collect()
}
