//! Finding paths by a few letters: for who writes a message and wants to name a file.
//!
//! Best effort and quick: directories are looked into level by level until the time is over or enough was seen. Links are not
//! gone through, and one that leads out of its directory is not offered. Left out: what version control and builds keep for
//! themselves, and names with a dot in front unless they are asked for.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Dir, FileType};

use super::place::{Last, kind, open_listed, real_path, step_into};
use super::{Access, ResourceFault, Roots, uri};

/// Directories that are neither offered nor looked into.
const IGNORED: [&str; 6] = [".git", ".hg", ".jj", ".svn", "node_modules", "target"];
/// How deep directories are looked into.
const MAX_DEPTH: usize = 24;

/// How far a search goes.
#[derive(Debug, Clone, Copy)]
pub struct Reach {
    /// Paths that are found, at most.
    pub paths: usize,
    /// Entries that are looked at, at most.
    pub entries: usize,
    pub time: Duration,
}

/// A path that fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundPath {
    /// From its directory on.
    pub path: String,
    pub uri: String,
    pub is_directory: bool,
}

/// What was found, and whether the search saw everything.
#[derive(Debug, Default)]
pub struct Search {
    pub found: Vec<FoundPath>,
    pub is_whole: bool,
}

/// The paths in `directories` that `query` fits: those that begin with it first, then those that hold it, the ones that lie
/// higher before those that lie deeper. A directory that cannot be reached has none.
pub fn find(roots: &Roots, directories: &[String], query: &str, reach: Reach) -> Search {
    let mut walk = Walk {
        roots,
        query: query.strip_prefix("./").unwrap_or(query).to_lowercase(),
        left: reach.entries,
        until: Instant::now() + reach.time,
        fitting: Vec::new(),
    };
    let is_whole = directories.iter().all(|directory| walk.directory(directory));
    let mut fitting = walk.fitting;
    fitting.sort_by(|(rank, a), (other, b)| (rank, &a.path, &a.uri).cmp(&(other, &b.path, &b.uri)));
    fitting.dedup_by(|(_, a), (_, b)| a.uri == b.uri);
    fitting.truncate(reach.paths);
    Search { found: fitting.into_iter().map(|(_, found)| found).collect(), is_whole }
}

/// How well a path fits: less is better.
type Rank = (u8, usize);

struct Walk<'a> {
    roots: &'a Roots,
    /// In small letters.
    query: String,
    left: usize,
    until: Instant,
    fitting: Vec<(Rank, FoundPath)>,
}

impl Walk<'_> {
    /// Looks through a directory; says whether it saw all of it.
    fn directory(&mut self, directory: &str) -> bool {
        let base = uri::file_path(directory).and_then(|path| real_path(&path, Last::Follow));
        let Ok(base) = base else { return true };
        let mut open: VecDeque<PathBuf> = VecDeque::from([PathBuf::new()]);
        while let Some(inner) = open.pop_front() {
            match self.level(&base, &inner, &mut open) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(fault) => tracing::debug!(%fault, "a directory cannot be searched"),
            }
        }
        true
    }

    /// Looks at the entries of one directory; says whether there was room for all.
    fn level(&mut self, base: &Path, inner: &Path, open: &mut VecDeque<PathBuf>) -> Result<bool, ResourceFault> {
        let (mut dir, names, hidden) = self.roots.begin(base, Access::Look)?;
        for step in names.iter().map(|name| name.as_os_str()).chain(inner.components().map(|part| part.as_os_str())) {
            dir = step_into(&dir, step, hidden)?;
        }
        for entry in Dir::new(open_listed(&dir, OsStr::new("."), hidden)?)? {
            if self.left == 0 || Instant::now() > self.until {
                return Ok(false);
            }
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name == "." || name == ".." {
                continue;
            }
            self.left -= 1;
            self.entry(base, &inner.join(OsStr::from_bytes(name.as_bytes())), name, entry.file_type(), open);
        }
        Ok(true)
    }

    fn entry(&mut self, base: &Path, path: &Path, name: &str, kind: FileType, open: &mut VecDeque<PathBuf>) {
        let real = base.join(path);
        if (name.starts_with('.') && !self.asks_for_hidden()) || self.roots.data.as_deref() == Some(&real) {
            return;
        }
        let is_directory = match kind {
            FileType::Directory => true,
            FileType::RegularFile => false,
            FileType::Symlink | FileType::Unknown => match self.leads_to(base, &real) {
                Some(is_directory) => is_directory,
                None => return,
            },
            _ => return,
        };
        if is_directory && IGNORED.contains(&name) {
            return;
        }
        let depth = path.components().count();
        if kind == FileType::Directory && depth < MAX_DEPTH {
            open.push_back(path.to_owned());
        }
        let Some(text) = path.to_str() else { return };
        if let Some(rank) = self.rank(text, name, depth) {
            let found = FoundPath { path: text.to_owned(), uri: uri::file_uri(&real), is_directory };
            self.fitting.push((rank, found));
        }
    }

    /// Whether what a link leads to is a directory; nothing for one that leads out.
    fn leads_to(&self, base: &Path, link: &Path) -> Option<bool> {
        let real = real_path(link, Last::Follow).ok().filter(|real| real.starts_with(base))?;
        match kind(&self.roots.locate_path(&real, Access::Look).ok()?.there().ok()?) {
            FileType::Directory => Some(true),
            FileType::RegularFile => Some(false),
            _ => None,
        }
    }

    fn asks_for_hidden(&self) -> bool {
        self.query.starts_with('.') || self.query.contains("/.")
    }

    fn rank(&self, path: &str, name: &str, depth: usize) -> Option<Rank> {
        let path = path.to_lowercase();
        if path.starts_with(&self.query) || name.to_lowercase().starts_with(&self.query) {
            return Some((0, depth));
        }
        path.contains(&self.query).then_some((1, depth))
    }
}
