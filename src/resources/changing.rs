//! Copying, moving, deleting, and making directories.

use std::ffi::OsStr;

use rustix::fs::{AtFlags, FileType, Mode, RenameFlags, Stat, mkdirat, renameat, renameat_with, unlinkat};
use rustix::io::Errno;

use super::place::{Last, Place, kind, real_path, step_into};
use super::writing::{name_beside, put, sync, turn};
use super::{Access, ResourceFault, Roots, tree, uri};

const NEW_DIRECTORY: Mode = Mode::from_raw_mode(0o777);

/// Copies a file, or a directory with all that is in it. What was at the destination is replaced in one step, or with
/// `only_new` stays and is the fault.
///
/// # Errors
/// [`ResourceFault`]: nothing there, out of reach, something at the destination.
pub fn copy(roots: &Roots, source: &str, destination: &str, only_new: bool) -> Result<(), ResourceFault> {
    let from = roots.locate(source, Access::Look, Last::Follow)?;
    let to = roots.locate(destination, Access::Write, Last::Keep)?;
    let stat = from.there()?;
    if roots.holds_secret(&from.real) {
        return Err(ResourceFault::Outside);
    }
    let _turn = turn(&to.real);
    let Some(replaced) = check(roots, &from, &stat, &to, only_new)? else { return Ok(()) };
    arrive(&from, &to, only_new, replaced)
}

/// Moves a file, a link, or a directory. What was at the destination is replaced, or with `only_new` stays and is the fault.
///
/// # Errors
/// [`ResourceFault`]: nothing there, out of reach, something at the destination.
pub fn rename(roots: &Roots, source: &str, destination: &str, only_new: bool) -> Result<(), ResourceFault> {
    let from = roots.locate(source, Access::Write, Last::Keep)?;
    let to = roots.locate(destination, Access::Write, Last::Keep)?;
    let stat = from.there()?;
    let (name, to_name) = (from.named()?, to.named()?);
    if roots.holds_data(&from.real) {
        return Err(ResourceFault::Outside);
    }
    let _turn = turn(&to.real);
    let Some(replaced) = check(roots, &from, &stat, &to, only_new)? else { return Ok(()) };
    let moved = match replaced {
        Replaced::Directory => renameat_with(&from.dir, name, &to.dir, to_name, RenameFlags::EXCHANGE),
        _ if only_new => renameat_with(&from.dir, name, &to.dir, to_name, RenameFlags::NOREPLACE),
        _ => renameat(&from.dir, name, &to.dir, to_name),
    };
    match moved {
        Ok(()) if replaced == Replaced::Directory => tree::remove(&from.dir, name, from.hidden)?,
        Ok(()) => {}
        // Another file system, or one that cannot do this in one step.
        Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS) => {
            arrive(&from, &to, only_new, replaced)?;
            tree::remove(&from.dir, name, from.hidden)?;
        }
        Err(errno) => return Err(errno.into()),
    }
    sync(&from.dir)?;
    sync(&to.dir)
}

/// What gives way at a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replaced {
    Nothing,
    /// A file or a link.
    File,
    Directory,
}

/// Whether `from` may go to `to`; `None` where it is there already.
fn check(
    roots: &Roots,
    from: &Place,
    stat: &Stat,
    to: &Place,
    only_new: bool,
) -> Result<Option<Replaced>, ResourceFault> {
    to.named()?;
    let there = to.stat()?;
    if there.is_some() && only_new {
        return Err(ResourceFault::Exists("there is something at the destination"));
    }
    if from.real == to.real {
        return Ok(None);
    }
    if to.real.starts_with(&from.real) || from.real.starts_with(&to.real) {
        return Err(ResourceFault::Malformed("one of source and destination lies in the other".into()));
    }
    let is_directory = |stat: &Stat| kind(stat) == FileType::Directory;
    let Some(there) = there else { return Ok(Some(Replaced::Nothing)) };
    if roots.holds_data(&to.real) {
        return Err(ResourceFault::Outside);
    }
    match (is_directory(stat), is_directory(&there)) {
        (true, true) => Ok(Some(Replaced::Directory)),
        (false, false) => Ok(Some(Replaced::File)),
        (true, false) => Err(ResourceFault::Exists("a file is at the destination of a directory")),
        (false, true) => Err(ResourceFault::Exists("a directory is at the destination")),
    }
}

/// Copies beside the destination and takes its place.
fn arrive(from: &Place, to: &Place, only_new: bool, replaced: Replaced) -> Result<(), ResourceFault> {
    let beside = name_beside();
    let name = from.name.as_deref().unwrap_or(OsStr::new("."));
    let placed = tree::copy(&from.dir, name, &to.dir, &beside, from.hidden)
        .and_then(|()| place(to, &beside, only_new, replaced));
    if placed.is_err() {
        let _ = tree::remove(&to.dir, &beside, None);
    }
    placed?;
    sync(&to.dir)
}

fn place(to: &Place, beside: &OsStr, only_new: bool, replaced: Replaced) -> Result<(), ResourceFault> {
    let name = to.named()?;
    if replaced != Replaced::Directory {
        return put(&to.dir, beside, name, only_new);
    }
    renameat_with(&to.dir, beside, &to.dir, name, RenameFlags::EXCHANGE)?;
    tree::remove(&to.dir, beside, to.hidden)
}

/// Deletes a file, a link, or an empty directory; with `recursive` a directory with all that is in it.
///
/// # Errors
/// [`ResourceFault`]: nothing there, not empty, out of reach.
pub fn delete(roots: &Roots, uri: &str, recursive: bool) -> Result<(), ResourceFault> {
    let place = roots.locate(uri, Access::Write, Last::Keep)?;
    let stat = place.there()?;
    let name = place.named()?;
    if roots.holds_data(&place.real) {
        return Err(ResourceFault::Outside);
    }
    let _turn = turn(&place.real);
    match (kind(&stat), recursive) {
        (FileType::Directory, true) => tree::remove(&place.dir, name, place.hidden)?,
        (FileType::Directory, false) => unlinkat(&place.dir, name, AtFlags::REMOVEDIR)?,
        _ => unlinkat(&place.dir, name, AtFlags::empty())?,
    }
    sync(&place.dir)
}

/// Makes a directory, and those that it lies in. One that is there is fine.
///
/// # Errors
/// [`ResourceFault`]: something else is there, out of reach.
pub fn make_directory(roots: &Roots, uri: &str) -> Result<(), ResourceFault> {
    let real = real_path(&uri::file_path(uri)?, Last::Follow)?;
    let (mut dir, names, hidden) = roots.begin(&real, Access::Write)?;
    for name in names {
        let made = match mkdirat(&dir, &name, NEW_DIRECTORY) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(errno) => return Err(errno.into()),
        };
        let next = match step_into(&dir, &name, hidden) {
            Err(ResourceFault::NotFound) => Err(ResourceFault::Exists("something that is no directory is there")),
            stepped => stepped,
        }?;
        if made {
            sync(&dir)?;
        }
        dir = next;
    }
    Ok(())
}
