//! Which events are marked for those who look after others: what somebody with more rights than most did, or let an agent do.
//!
//! Source: AHP threat model, audit of privileged actions.

use crate::actors::identity::Identity;
use crate::events::Record;
use crate::projections::action::type_of;

/// The types of privileged events: permissions, settings, decisions about tools, files, and what was removed or brought back.
const PRIVILEGED: &[&str] = &[
    "root/configChanged",
    "session/configChanged",
    "session/workingDirectorySet",
    "session/workingDirectoryRemoved",
    "session/workingDirectoryReplaced",
    "chat/workingDirectorySet",
    "chat/workingDirectoryRemoved",
    "chat/toolCallConfirmed",
    "chat/toolCallResultConfirmed",
    "host/sessionDisposed",
    "host/sessionRestored",
    "host/erased",
    "host/restored",
    "host/resourceChanged",
    "host/userAdded",
    "host/userGranted",
    "host/userRevoked",
    "host/userTokenMade",
    "host/userRemoved",
];

/// Whether `record` is marked: of those types, and not of the host's or an agent's own accord.
pub fn is_privileged(record: &Record) -> bool {
    Identity::is_of_somebody(&record.principal) && PRIVILEGED.contains(&&*type_of(&record.action))
}
