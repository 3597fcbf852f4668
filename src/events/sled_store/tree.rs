//! The engine as the rest of the store sees it: whole values under keys, and no panics.
//!
//! sled panics on some damage also after it has opened, so each call into it is caught. Values come out whole and
//! checked: their pieces joined, their checksums right.

use std::io;
use std::ops::Bound;

use bytes::Bytes;

use super::keys::{self, Key};
use super::pieces::Assembly;
use crate::events::{LogFault, quiet};

/// Why a value could not be read.
#[derive(Debug)]
pub enum Unread {
    /// Its bytes are not what was written.
    Damaged(String),
    /// The engine said no.
    Engine(String),
    /// The operating system refused the engine something; the bytes may be well.
    System(io::ErrorKind, String),
}

impl Unread {
    /// The fault that names `place`.
    pub fn at(self, place: impl Into<String>) -> LogFault {
        match self {
            Unread::Damaged(problem) => LogFault::Damaged { place: place.into(), problem },
            Unread::Engine(problem) | Unread::System(_, problem) => {
                LogFault::Engine(format!("{}: {problem}", place.into()))
            }
        }
    }

    /// What is wrong, in words.
    pub fn problem(self) -> String {
        let (Unread::Damaged(problem) | Unread::Engine(problem) | Unread::System(_, problem)) = self;
        problem
    }
}

impl From<String> for Unread {
    fn from(problem: String) -> Self {
        Unread::Damaged(problem)
    }
}

/// A change that is to be made in one step.
#[derive(Default)]
pub struct Changes {
    batch: sled::Batch,
    /// The keys that come new, where their leaves are made first.
    places: Option<Vec<Vec<u8>>>,
    /// Bytes of keys and values.
    pub bytes: u64,
}

impl Changes {
    /// Changes that write keys in their order behind all that are there. The engine writes a leaf whole when it splits, so the leaves are
    /// made of empty values first: each value is then written once, instead of three times.
    pub fn in_order() -> Self {
        Self { places: Some(Vec::new()), ..Self::default() }
    }

    /// Writes the pieces of `value` under `key`.
    ///
    /// # Errors
    /// As [`super::pieces::split`].
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        super::pieces::split(key, value, |key, piece| {
            self.bytes = self.bytes.saturating_add((key.len() + piece.len()) as u64);
            if let Some(places) = &mut self.places {
                places.push(key.clone());
            }
            self.batch.insert(key, piece);
        })
    }

    /// Removes the pieces of `key` in `from..to`.
    pub fn remove(&mut self, key: &[u8], from: usize, to: usize) {
        for number in (from..to).filter_map(|n| u16::try_from(n).ok()) {
            self.bytes = self.bytes.saturating_add((key.len() + keys::SUFFIX) as u64);
            self.batch.remove(keys::piece(key, number));
        }
    }
}

/// The open engine.
pub struct Tree(Option<sled::Db>);

impl Tree {
    /// Takes the engine over.
    pub fn new(db: sled::Db) -> Self {
        Self(Some(db))
    }

    /// Another handle on the same engine.
    #[cfg(test)]
    pub fn another(&self) -> Self {
        Self(self.0.clone())
    }

    fn db(&self) -> Result<&sled::Db, Unread> {
        self.0.as_ref().ok_or_else(|| Unread::Engine("the engine is closed".to_owned()))
    }

    /// Makes the changes, which the engine writes to its file when it likes.
    ///
    /// # Errors
    /// A text; it is then unknown what the file has.
    pub fn apply_later(&self, changes: Changes) -> Result<(), String> {
        let db = self.db().map_err(|_| "the engine is closed")?;
        let Changes { batch, places, .. } = changes;
        let make = |key: Vec<u8>| db.insert(key, b"").map(drop);
        let write = || places.into_iter().flatten().try_for_each(make).and_then(|()| db.apply_batch(batch));
        caught(write).map_err(Unread::problem)
    }

    /// Makes the changes, and has the engine write them to its file. They are not on disk yet.
    ///
    /// # Errors
    /// A text; it is then unknown what the file has.
    pub fn apply(&self, changes: Changes) -> Result<(), String> {
        let db = self.db().map_err(|_| "the engine is closed")?;
        caught(|| db.apply_batch(changes.batch).and_then(|()| db.flush())).map(drop).map_err(Unread::problem)
    }

    /// The value under `key`, whole.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Unread> {
        match self.begin(key)? {
            Some(assembly) => Ok(Some(self.complete(key, assembly)?)),
            None => Ok(None),
        }
    }

    /// Piece 0 of the value under `key`.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn begin(&self, key: &[u8]) -> Result<Option<Assembly>, Unread> {
        let stored = self.stored(&keys::piece(key, 0))?;
        Ok(stored.map(|stored| Assembly::begin(key, &stored)).transpose()?)
    }

    /// The rest of a value that was begun.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn complete(&self, key: &[u8], mut assembly: Assembly) -> Result<Bytes, Unread> {
        while let Some(number) = assembly.wanted() {
            let key = keys::piece(key, number);
            let stored = self.stored(&key)?.ok_or_else(|| format!("piece {number} is missing"))?;
            assembly.push(&key, &stored)?;
        }
        Ok(assembly.finish()?)
    }

    /// The value under `key`, whose piece 0 is at hand.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn whole(&self, key: &[u8], first: &[u8]) -> Result<Bytes, Unread> {
        self.complete(key, Assembly::begin(key, first)?)
    }

    /// How many pieces lie under `key`, for a value that cannot be read.
    pub fn pieces_there(&self, key: &[u8]) -> usize {
        let there = |number: &u16| {
            !matches!(self.stored(&keys::piece(key, *number)), Ok(None) | Err(Unread::Engine(_) | Unread::System(..)))
        };
        (0..u16::MAX).take_while(there).count()
    }

    fn stored(&self, key: &[u8]) -> Result<Option<sled::IVec>, Unread> {
        let db = self.db()?;
        caught(|| db.get(key))
    }

    /// The stored keys in `bounds`, in either direction, with what is stored under them.
    ///
    /// # Errors
    /// [`Unread::Engine`] when the engine is closed.
    pub fn range(&self, bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Result<Stored, Unread> {
        let db = self.db()?;
        let iter = caught(|| Ok(db.range(bounds)))?;
        Ok(Stored { iter: Some(iter) })
    }

    /// The last key of runs or directories at or before `upto` that begins with `prefix`.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn last_key(&self, prefix: &[u8], upto: &[u8]) -> Result<Option<Key>, Unread> {
        let bounds = (Bound::Included(prefix.to_vec()), Bound::Included(keys::piece(upto, u16::MAX)));
        match self.range(bounds)?.next_back() {
            Some(found) => {
                let (stored, _) = found?;
                Ok(keys::split(&stored).map(|(key, _)| key.to_vec()))
            }
            None => Ok(None),
        }
    }

    /// Closes the engine, which must be open no longer when its directory is opened again.
    pub fn close(&mut self) {
        if let Some(db) = self.0.take() {
            // A panic here has nobody to go to: what was acknowledged is on disk already.
            let _ = quiet::catch(|| drop(db));
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.close();
    }
}

/// Stored keys and values, from either end.
pub struct Stored {
    iter: Option<sled::Iter>,
}

/// A stored key and what is under it, or why it cannot be read.
pub type Entry = Result<(sled::IVec, sled::IVec), Unread>;

impl Stored {
    /// From the back; after an error there is nothing more.
    pub fn next_back(&mut self) -> Option<Entry> {
        self.step(|iter| iter.next_back())
    }

    fn step(
        &mut self,
        step: impl FnOnce(&mut sled::Iter) -> Option<sled::Result<(sled::IVec, sled::IVec)>>,
    ) -> Option<Entry> {
        let iter = self.iter.as_mut()?;
        let entry = caught(|| step(iter).transpose()).transpose();
        if !matches!(entry, Some(Ok(_))) {
            self.iter = None;
        }
        entry
    }
}

impl Iterator for Stored {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        self.step(|iter| iter.next())
    }
}

/// Whole values of runs or directories, whose pieces lie side by side, ascending.
pub struct Values(Stored);

impl Values {
    /// The values of `stored`, which begins with a piece 0.
    pub fn new(stored: Stored) -> Self {
        Self(stored)
    }

    fn value(&mut self, key: &[u8], piece: u16, stored: &[u8]) -> Result<Bytes, Unread> {
        if piece != 0 {
            return Err(Unread::Damaged("piece 0 is missing".to_owned()));
        }
        let mut assembly = Assembly::begin(key, stored)?;
        while let Some(number) = assembly.wanted() {
            let (stored_key, stored) =
                self.0.next().transpose()?.ok_or_else(|| format!("piece {number} is missing"))?;
            if keys::split(&stored_key) != Some((key, number)) {
                return Err(Unread::Damaged(format!("piece {number} is missing")));
            }
            assembly.push(&stored_key, &stored)?;
        }
        Ok(assembly.finish()?)
    }
}

impl Iterator for Values {
    /// A key with its value or what is wrong with that; a key is empty where even that could not be read.
    type Item = (Key, Result<Bytes, Unread>);

    fn next(&mut self) -> Option<Self::Item> {
        let (stored_key, stored) = match self.0.next()? {
            Ok(entry) => entry,
            Err(unread) => return Some((Key::new(), Err(unread))),
        };
        let Some((key, piece)) = keys::split(&stored_key) else {
            return Some((stored_key.to_vec(), Err(Unread::Damaged("the key is too short".to_owned()))));
        };
        Some((key.to_vec(), self.value(key, piece, &stored)))
    }
}

/// What `call` into the engine returns; a panic and an error of it alike become [`Unread`].
pub fn caught<T>(call: impl FnOnce() -> sled::Result<T>) -> Result<T, Unread> {
    match quiet::catch(call) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(sled::Error::Corruption { .. })) => Err(Unread::Damaged("the engine found its file damaged".to_owned())),
        Ok(Err(sled::Error::Io(error))) => Err(Unread::System(error.kind(), error.to_string())),
        Ok(Err(error)) => Err(Unread::Engine(error.to_string())),
        Err(panic) => Err(Unread::Damaged(format!("the engine gave up: {panic}"))),
    }
}
