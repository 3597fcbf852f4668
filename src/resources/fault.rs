//! Why something cannot be done with a resource.

use rustix::io::Errno;

/// Why something cannot be done with a resource. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ResourceFault {
    /// What was asked is wrong in itself.
    #[error("{0}")]
    Malformed(String),
    /// It is outside of the allowed directories, or the operating system does not permit it.
    #[error("outside of what this host lets clients reach")]
    Outside,
    #[error("there is nothing there")]
    NotFound,
    #[error("{0}")]
    Exists(&'static str),
    /// It is no longer what `ifMatch` says.
    #[error("it was changed meanwhile: ifMatch is another version")]
    Conflict,
    #[error("it is not a file")]
    NotAFile,
    #[error("it is not a directory")]
    NotADirectory,
    #[error("the directory is not empty: recursive deletes what is in it")]
    NotEmpty,
    /// More bytes than one message may carry.
    #[error("it is larger than a message may be ({0} bytes)")]
    TooLarge(u64),
    /// More than is watched.
    #[error("{0}")]
    TooMany(&'static str),
    #[error("the disk is full")]
    Full,
    /// The operating system says something else.
    #[error("{0}")]
    System(std::io::Error),
}

impl From<Errno> for ResourceFault {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::NOTDIR => Self::NotFound,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Self::Outside,
            Errno::EXIST => Self::Exists("there is something already"),
            Errno::NOTEMPTY => Self::NotEmpty,
            Errno::ISDIR => Self::NotAFile,
            // A link that took the place of what was looked at.
            Errno::LOOP => Self::Outside,
            Errno::NAMETOOLONG => Self::Malformed("a name is too long".into()),
            Errno::NOSPC | Errno::DQUOT => Self::Full,
            other => Self::System(other.into()),
        }
    }
}

impl From<std::io::Error> for ResourceFault {
    fn from(error: std::io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => Self::System(error),
        }
    }
}
