//! Attachments: bytes that messages refer to, in files beside the log.
//!
//! `<data>/attachments/<folder>/<name>`: the folder is the session's number, 0700; a file has a random name, 0400, and is
//! never changed. Nothing of what a peer says becomes part of a path; its label and its type are in the message alone. A file
//! is synced before an event names it, and goes when the last message that refers to it goes: an index beside the log says
//! who refers to what ([`references`]). What a host that died left without a reference is swept when its session is next
//! loaded.
//!
//! Always: a file that a turn refers to stays, also when the turn was dropped. Left out on purpose: what the bytes mean; how
//! a model is given them is decided by [`kind`] from the type and the size.

mod files;
pub mod kind;
pub mod references;
pub mod sent;

pub use files::{Attachments, FOLDER, FileRef, Staged};
