//! Whole directories: deleted and copied without following a link, and without the host's own.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, fchmod, fsync, mkdirat, openat, readlinkat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::ResourceFault;
use super::place::{Identity, identity, kind, open_listed};

/// How deep directories may lie in each other.
const MAX_DEPTH: usize = 200;

/// Deletes `name` in `dir` with all that is in it.
pub(super) fn remove(dir: impl AsFd, name: &OsStr, hidden: Option<Identity>) -> Result<(), ResourceFault> {
    remove_at(dir, name, hidden, MAX_DEPTH)
}

fn remove_at(dir: impl AsFd, name: &OsStr, hidden: Option<Identity>, depth: usize) -> Result<(), ResourceFault> {
    let dir = dir.as_fd();
    if kind(&statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?) != FileType::Directory {
        return Ok(unlinkat(dir, name, AtFlags::empty())?);
    }
    let depth = depth.checked_sub(1).ok_or_else(too_deep)?;
    let inner = open_listed(dir, name, hidden)?;
    for entry in entries(&inner)? {
        match remove_at(&inner, &entry, hidden, depth) {
            // Somebody else was quicker.
            Ok(()) | Err(ResourceFault::NotFound) => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(unlinkat(dir, name, AtFlags::REMOVEDIR)?)
}

/// Copies `name` in `from` to `to_name` in `to`, where nothing is: files with their modes, links as links. What is neither is
/// left out.
pub(super) fn copy(
    from: impl AsFd,
    name: &OsStr,
    to: impl AsFd,
    to_name: &OsStr,
    hidden: Option<Identity>,
) -> Result<(), ResourceFault> {
    copy_at(from.as_fd(), name, to.as_fd(), to_name, hidden, MAX_DEPTH)
}

fn copy_at(
    from: impl AsFd,
    name: &OsStr,
    to: impl AsFd,
    to_name: &OsStr,
    hidden: Option<Identity>,
    depth: usize,
) -> Result<(), ResourceFault> {
    let (from, to) = (from.as_fd(), to.as_fd());
    let stat = statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match kind(&stat) {
        FileType::Directory if hidden == Some(identity(&stat)) => Ok(()),
        FileType::Directory => {
            let depth = depth.checked_sub(1).ok_or_else(too_deep)?;
            let inner = open_listed(from, name, hidden)?;
            mkdirat(to, to_name, Mode::RWXU)?;
            let made = open_listed(to, to_name, None)?;
            for entry in entries(&inner)? {
                copy_at(&inner, &entry, &made, &entry, hidden, depth)?;
            }
            fchmod(&made, Mode::from_raw_mode(stat.st_mode))?;
            Ok(fsync(&made)?)
        }
        FileType::RegularFile => copy_file(from, name, to, to_name),
        FileType::Symlink => Ok(symlinkat(readlinkat(from, name, Vec::new())?, to, to_name)?),
        _ => Ok(()),
    }
}

fn copy_file(from: impl AsFd, name: &OsStr, to: impl AsFd, to_name: &OsStr) -> Result<(), ResourceFault> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut source = std::fs::File::from(openat(from, name, flags | OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?);
    let new = flags | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let mut copy = std::fs::File::from(openat(to, to_name, new, Mode::RUSR | Mode::WUSR)?);
    std::io::copy(&mut source, &mut copy)?;
    copy.set_permissions(source.metadata()?.permissions())?;
    Ok(copy.sync_all()?)
}

/// The names in an open directory.
pub(super) fn entries(dir: &OwnedFd) -> Result<Vec<OsString>, ResourceFault> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

fn too_deep() -> ResourceFault {
    ResourceFault::System(Errno::NAMETOOLONG.into())
}
