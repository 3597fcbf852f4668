//! What a backup on disk is made of: written last, in one step, so that it names whole files alone.
//!
//! Frozen by `docs/adr/0010-logs-as-lines.md`.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::BackupFault;
use super::line::FORMAT;
use crate::attachments::{FOLDER, FileRef};
use crate::events::ServerSeq;
use crate::events::durable::write_whole;

/// The name of the file.
pub const FILE: &str = "manifest.json";
/// The folder of the parts.
pub const PARTS: &str = "parts";

/// See the head of this file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The version of Scrollback that wrote it.
    pub scrollback: String,
    pub format: u32,
    /// When, RFC 3339.
    pub at: String,
    /// How many backups were made into this directory: no two name a file alike.
    pub run: u64,
    pub upto: ServerSeq,
    pub next: ServerSeq,
    pub channels: u64,
    /// What the newest record is known by.
    pub print: String,
    /// In the order of the line.
    pub parts: Vec<Part>,
    pub attachments: Vec<Kept>,
}

/// A file of lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// Its name in the folder.
    pub file: String,
    pub lines: u64,
    pub records: u64,
    pub bytes: u64,
    pub sha256: String,
}

/// An attachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    pub folder: u64,
    pub name: String,
    pub bytes: u64,
    pub sha256: String,
}

impl Kept {
    /// Which it is.
    pub fn file(&self) -> Option<FileRef> {
        FileRef::of_name(self.folder, &self.name)
    }
}

/// What is said of a manifest that cannot be trusted.
const NOT_WRITTEN: &str =
    "it is not what was written, so nothing of this backup can be trusted: back up into another directory";

#[derive(Serialize, Deserialize)]
struct Summed<'a> {
    #[serde(borrow)]
    manifest: &'a RawValue,
    sha256: String,
}

impl Manifest {
    /// Reads that of the backup in `directory`; `None` where there is none.
    ///
    /// # Errors
    /// [`BackupFault::Refused`] for one that a newer version wrote, and for what is none.
    pub fn read(directory: &Path) -> Result<Option<Self>, BackupFault> {
        let path = directory.join(FILE);
        let refused = |problem: String| BackupFault::Refused(format!("{}: {problem}", path.display()));
        let text = match fs::read_to_string(&path) {
            Err(fault) if fault.kind() == ErrorKind::NotFound => return Ok(None),
            Err(fault) if fault.kind() == ErrorKind::InvalidData => return Err(refused(NOT_WRITTEN.into())),
            read => read.map_err(BackupFault::io(&path))?,
        };
        let no_manifest = |error: serde_json::Error| refused(format!("{NOT_WRITTEN} ({error})"));
        let summed: Summed<'_> = serde_json::from_str(&text).map_err(no_manifest)?;
        if hex(&Sha256::digest(summed.manifest.get())) != summed.sha256 {
            return Err(refused(NOT_WRITTEN.into()));
        }
        #[derive(Deserialize)]
        struct Version {
            scrollback: String,
            format: u32,
        }
        let version: Version = serde_json::from_str(summed.manifest.get()).map_err(no_manifest)?;
        if version.format > FORMAT {
            let Version { scrollback, format } = version;
            return Err(refused(format!(
                "written by a newer Scrollback ({scrollback}, format {format}), this one reads format {FORMAT}"
            )));
        }
        serde_json::from_str(summed.manifest.get()).map(Some).map_err(no_manifest)
    }

    /// Puts it in place of the one before, durably.
    ///
    /// # Errors
    /// [`BackupFault::Io`]; one of the two is there then.
    pub fn write(&self, directory: &Path) -> Result<(), BackupFault> {
        let path = directory.join(FILE);
        let raw = serde_json::value::to_raw_value(self).map_err(|error| BackupFault::Refused(error.to_string()))?;
        let summed = Summed { sha256: hex(&Sha256::digest(raw.get())), manifest: &raw };
        let text = serde_json::to_string(&summed).map_err(|error| BackupFault::Refused(error.to_string()))?;
        write_whole(&path, format!("{text}\n").as_bytes()).map_err(BackupFault::io(&path))
    }

    /// Whether a file of the backup is as it was written, each in turn.
    ///
    /// # Errors
    /// [`BackupFault::Refused`] that names the first which is not.
    pub fn check(&self, directory: &Path) -> Result<(), BackupFault> {
        for part in &self.parts {
            // Never out of the folder, whoever wrote the manifest.
            if Path::new(&part.file).file_name() != Some(part.file.as_ref()) {
                return Err(BackupFault::Refused(format!("{:?} is no name of a part", part.file)));
            }
            as_written(&directory.join(PARTS).join(&part.file), part.bytes, &part.sha256)?;
        }
        for kept in &self.attachments {
            let file = kept.file().ok_or_else(|| BackupFault::Refused(format!("{} is no attachment", kept.name)))?;
            as_written(&directory.join(FOLDER).join(file.place()), kept.bytes, &kept.sha256)?;
        }
        Ok(())
    }

    /// Bytes of all its files.
    pub fn bytes(&self) -> u64 {
        let parts: u64 = self.parts.iter().map(|part| part.bytes).sum();
        self.attachments.iter().map(|kept| kept.bytes).sum::<u64>() + parts
    }
}

/// Checks one file.
///
/// # Errors
/// [`BackupFault::Refused`] that names it where it is not what was written.
pub fn as_written(path: &Path, bytes: u64, sha256: &str) -> Result<(), BackupFault> {
    let damaged = |problem: &str| BackupFault::Refused(format!("{}: {problem}", path.display()));
    let found = match fs::metadata(path) {
        Err(fault) if fault.kind() == ErrorKind::NotFound => return Err(damaged("it is missing in the backup")),
        found => found.map_err(BackupFault::io(path))?,
    };
    if !found.is_file() {
        return Err(damaged("it is not what was written, and no file"));
    }
    let mut file = fs::File::open(path).map_err(BackupFault::io(path))?;
    if found.len() != bytes {
        return Err(damaged("it is not what was written: its length is wrong"));
    }
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        let read = file.read(&mut buffer).map_err(BackupFault::io(path))?;
        match buffer.get(..read) {
            Some([]) | None => break,
            Some(some) => hash.update(some),
        }
    }
    if hex(&hash.finalize()) == sha256 {
        Ok(())
    } else {
        Err(damaged("it is not what was written: its checksum is wrong"))
    }
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;

    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
