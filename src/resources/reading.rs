//! Reading, listing, resolving.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Dir, FileType, OFlags, Stat};

use super::place::{Last, Place, kind, real_path};
use super::{Access, ResourceFault, Roots, uri};

/// How many bytes of a file its type is told by.
const HEAD: usize = 512;

/// How bytes are written as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Base64,
    Utf8,
}

/// A file's content.
#[derive(Debug, PartialEq, Eq)]
pub struct Content {
    pub bytes: Vec<u8>,
    /// UTF-8 where it was not asked otherwise and the bytes are text.
    pub encoding: Encoding,
    pub content_type: String,
}

/// Reads a file of at most `max` bytes.
///
/// # Errors
/// [`ResourceFault`]: not there, not a file, out of reach, too large.
pub fn read(roots: &Roots, uri: &str, wanted: Option<Encoding>, max: u64) -> Result<Content, ResourceFault> {
    let place = roots.locate(uri, Access::Read, Last::Follow)?;
    let file = place.open_file(OFlags::RDONLY)?;
    let size = file.metadata()?.len();
    if size > max {
        return Err(ResourceFault::TooLarge(max));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    file.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(ResourceFault::TooLarge(max));
    }
    let is_text = std::str::from_utf8(&bytes).is_ok();
    let encoding = match wanted {
        Some(Encoding::Base64) => Encoding::Base64,
        Some(Encoding::Utf8) if is_text => Encoding::Utf8,
        // A NUL is a sign of something binary that happens to be UTF-8.
        None if is_text && !bytes.contains(&0) => Encoding::Utf8,
        _ => Encoding::Base64,
    };
    let content_type = content_type(&place.real, bytes.get(..HEAD.min(bytes.len())).unwrap_or_default());
    Ok(Content { bytes, encoding, content_type })
}

/// The media type by the name, where that does not contradict the first bytes.
fn content_type(path: &Path, head: &[u8]) -> String {
    let is_text = is_text(head);
    let guessed = mime_guess::from_path(path).first_raw();
    match guessed {
        // `.ts` is a program more often than a film.
        Some(guess) if is_text && !(guess.starts_with("video/") || guess.starts_with("audio/")) => guess.into(),
        Some(guess) if !is_text && !guess.starts_with("text/") => guess.into(),
        _ if is_text => "text/plain".into(),
        _ => "application/octet-stream".into(),
    }
}

/// How a file of this name shows, as AHP's attachments say it.
pub fn display_kind(name: &str) -> &'static str {
    let is_image = mime_guess::from_path(name).first_raw().is_some_and(|guess| guess.starts_with("image/"));
    if is_image { "image" } else { "document" }
}

/// Whether these first bytes are of a text; a character that is cut off at their end is fine.
fn is_text(head: &[u8]) -> bool {
    let cut = |error: std::str::Utf8Error| error.error_len().is_none() && head.len() == HEAD;
    !head.contains(&0) && std::str::from_utf8(head).map_or_else(cut, |_| true)
}

/// What stands in a directory.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub name: String,
    pub is_directory: bool,
}

/// The entries of a directory, by name. Their names together have at most `max` bytes.
///
/// # Errors
/// [`ResourceFault`]: not there, not a directory, out of reach, too much.
pub fn list(roots: &Roots, uri: &str, max: u64) -> Result<Vec<Entry>, ResourceFault> {
    let place = roots.locate(uri, Access::Look, Last::Follow)?;
    let mut entries = Vec::new();
    let mut bytes = 0;
    for entry in Dir::new(place.open_directory()?)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." || roots.data.as_deref() == Some(&place.real.join(name)) {
            continue;
        }
        bytes += name.len() as u64;
        if bytes > max {
            return Err(ResourceFault::TooLarge(max));
        }
        let is_directory = match entry.file_type() {
            FileType::Directory => true,
            FileType::Symlink | FileType::Unknown => leads_to_directory(roots, &place.real.join(name)),
            _ => false,
        };
        entries.push(Entry { name: name.to_string_lossy().into_owned(), is_directory });
    }
    entries.sort();
    Ok(entries)
}

/// Whether a link leads to a directory that can be reached.
fn leads_to_directory(roots: &Roots, path: &Path) -> bool {
    let stat = real_path(path, Last::Follow).and_then(|real| roots.locate_path(&real, Access::Look)?.there());
    stat.is_ok_and(|stat| kind(&stat) == FileType::Directory)
}

/// What kind of resource it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundKind {
    File,
    Directory,
    Symlink,
}

/// What is known of a resource.
#[derive(Debug)]
pub struct Found {
    /// Its one URI where links were followed, else the URI that was asked for.
    pub uri: String,
    pub kind: FoundKind,
    /// Absent for directories.
    pub size: Option<u64>,
    pub modified: Option<std::time::SystemTime>,
    pub created: Option<std::time::SystemTime>,
    /// Of files.
    pub content_type: Option<String>,
    pub etag: String,
}

/// Finds out what is there.
///
/// # Errors
/// [`ResourceFault`]: not there, out of reach.
pub fn resolve(roots: &Roots, uri: &str, follow: bool) -> Result<Found, ResourceFault> {
    let place = roots.locate(uri, Access::Read, if follow { Last::Follow } else { Last::Keep })?;
    let stat = place.there()?;
    let kind = match kind(&stat) {
        FileType::Directory => FoundKind::Directory,
        FileType::Symlink => FoundKind::Symlink,
        _ => FoundKind::File,
    };
    let size = (kind != FoundKind::Directory).then(|| u64::try_from(stat.st_size).unwrap_or_default());
    let content_type = if kind == FoundKind::File { head_of(&place) } else { None };
    let uri = if follow { uri::file_uri(&place.real) } else { uri.to_owned() };
    let modified = time(stat.st_mtime, u64::from(stat.st_mtime_nsec as u32));
    Ok(Found { uri, kind, size, modified, created: created(&place), content_type, etag: etag(&stat) })
}

fn head_of(place: &Place) -> Option<String> {
    let mut head = Vec::new();
    place.open_file(OFlags::RDONLY).ok()?.take(HEAD as u64).read_to_end(&mut head).ok()?;
    Some(content_type(&place.real, &head))
}

/// When it was made, where the file system knows; of a link it is not asked.
fn created(place: &Place) -> Option<std::time::SystemTime> {
    let file = match place.open_file(OFlags::RDONLY) {
        Ok(file) => file,
        Err(_) => place.open_directory().ok()?.into(),
    };
    file.metadata().ok()?.created().ok()
}

fn time(seconds: i64, nanos: u64) -> Option<std::time::SystemTime> {
    let since = std::time::Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanos).ok()?);
    std::time::UNIX_EPOCH.checked_add(since)
}

/// A version of what is there: it changes with every write.
pub(super) fn etag(stat: &Stat) -> String {
    let (dev, inode) = super::place::identity(stat);
    let (modified, changed) = ((stat.st_mtime, stat.st_mtime_nsec), (stat.st_ctime, stat.st_ctime_nsec));
    format!("{dev:x}-{inode:x}-{:x}-{:x}.{:x}-{:x}.{:x}", stat.st_size, modified.0, modified.1, changed.0, changed.1)
}
