//! Where a verb finds the log: in a directory that nobody has open, or with the host that has.

use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;

use super::args::Place;
use super::client::Client;
use super::fault::CliFault;
use super::tls::certificates_in;
use crate::config::{Environment, token_in};
use crate::events::sled_store::{Access, SledOptions, SledStore};
use crate::events::{DataDirectory, HostFile, LogFault};

/// The way to a log.
pub enum Reach {
    Directory(Box<OpenDirectory>),
    Host(Client),
}

/// A data directory that this process has locked.
pub struct OpenDirectory {
    /// Before the lock: dropped in this order.
    pub store: SledStore,
    _lock: DataDirectory,
}

impl OpenDirectory {
    /// Where it is.
    pub fn path(&self) -> &Path {
        self._lock.path()
    }

    /// Its real path, the store, and the lock, which is to be held longer.
    pub fn into_parts(self) -> (PathBuf, SledStore, DataDirectory) {
        (self._lock.path().to_owned(), self.store, self._lock)
    }
}

impl Reach {
    /// The host at `--url`; the host that has the directory open; or the directory itself, locked and opened with
    /// `access`.
    pub fn of(place: &Place, access: Access, environment: &Environment) -> Result<Self, CliFault> {
        if let Some(url) = &place.url {
            let authorities = authorities(place, environment)?;
            return Ok(Reach::Host(Client::new(checked(url)?, token(place, environment)?, authorities.as_deref())));
        }
        let data = data(place, environment);
        match DataDirectory::open_existing(data) {
            Ok(lock) => Ok(Reach::Directory(Box::new(open(lock, access)?))),
            Err(held @ LogFault::Held { .. }) => Ok(Reach::Host(running_host(data).ok_or(held)?)),
            Err(fault) => Err(fault.into()),
        }
    }
}

/// The host at `--url`, or the one that has the data directory open; `None` where nobody has.
pub fn host_of(place: &Place, environment: &Environment) -> Result<Option<Client>, CliFault> {
    if place.url.is_some()
        || matches!(DataDirectory::open_existing(data(place, environment)), Err(LogFault::Held { .. }))
    {
        return match Reach::of(place, Access::Read, environment)? {
            Reach::Host(host) => Ok(Some(host)),
            Reach::Directory(_) => Ok(None),
        };
    }
    Ok(None)
}

/// The directory that is meant.
fn data<'a>(place: &'a Place, environment: &'a Environment) -> &'a Path {
    match &place.data {
        Some(data) => data.as_path(),
        None => Path::new(environment.get("SCROLLBACK_DATA").unwrap_or("./scrollback-data")),
    }
}

/// The host that `host.json` in `data` names, if it answers. It is asked only where somebody holds the lock: a copy
/// of the directory of a running host has its `host.json` too.
fn running_host(data: &Path) -> Option<Client> {
    Client::of_this_run(&HostFile::read(data).ok()??)
}

fn open(lock: DataDirectory, access: Access) -> Result<OpenDirectory, CliFault> {
    let store = SledStore::open(lock.path(), SledOptions { access, ..SledOptions::default() })?;
    Ok(OpenDirectory { store, _lock: lock })
}

fn checked(url: &str) -> Result<&str, CliFault> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    match rest {
        Some(rest) if !rest.is_empty() => Ok(url),
        _ => Err(CliFault::Usage(format!("--url: {url} is not an http:// or https:// address"))),
    }
}

/// The authorities of `--ca`, else of `SCROLLBACK_CA`; `None` for the public ones.
fn authorities(place: &Place, environment: &Environment) -> Result<Option<Vec<CertificateDer<'static>>>, CliFault> {
    let of_flag = place.ca.as_deref().map(|path| ("--ca", path));
    let named = of_flag.or_else(|| Some(("SCROLLBACK_CA", Path::new(environment.get("SCROLLBACK_CA")?))));
    let read = |(name, path): (&str, &Path)| {
        certificates_in(path).map_err(|problem| CliFault::Usage(format!("{name}: {}: {problem}", path.display())))
    };
    named.map(read).transpose()
}

/// The token of the one who asks: `--token-file`, else `SCROLLBACK_TOKEN`.
fn token(place: &Place, environment: &Environment) -> Result<Option<String>, CliFault> {
    match &place.token_file {
        Some(path) => Ok(Some(token_in(path).map_err(|problem| CliFault::Usage(format!("--token-file: {problem}")))?)),
        None => Ok(environment.token().map(str::to_owned)),
    }
}
