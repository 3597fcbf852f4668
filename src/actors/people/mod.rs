//! The people: what each may do now, and how that is changed.
//!
//! What is in force is read without a lock, at every command. A change is decided on what is in force, recorded in the
//! people's channel, and takes effect when it is on disk: then every router looks again at who may hear what.
//! Source: the list of features, who may do what.

mod change;

use std::sync::Arc;

use arc_swap::ArcSwap;

pub use change::{MAX_EXPIRY, MIN_EXPIRY, PeopleChange, TOKEN, Told};

use super::identity::Identity;
use super::registry::Resolved;
use super::shared::Shared;
use crate::events::rows::ChannelKind;
use crate::events::{Channel, ChannelId, ServerSeq, Store};
use crate::projections::people::{Grant, Operation, PEOPLE, People};
use crate::projections::{FoldFault, catalogue, replay};
use crate::telemetry;

/// The people in force.
#[derive(Default)]
pub struct PeopleInForce {
    now: ArcSwap<People>,
    /// Held while a change is decided and recorded: the number of the people's channel, once it has one. With `interval` its row may not
    /// be on disk yet.
    changing: tokio::sync::Mutex<Option<ChannelId>>,
}

impl PeopleInForce {
    /// The people as the log has them.
    ///
    /// # Errors
    /// [`FoldFault`] when they cannot be read.
    pub fn read(store: &dyn Store) -> Result<Self, FoldFault> {
        let row = catalogue::channel(store, PEOPLE)?;
        let channel = row.map(|row| ChannelId(row.id));
        let at = match channel {
            Some(channel) => replay::fold::<People>(store, channel, ServerSeq::MAX, false)?,
            None => None,
        };
        let now = ArcSwap::from_pointee(at.map(|at| at.fold).unwrap_or_default());
        Ok(Self { now, changing: tokio::sync::Mutex::new(channel) })
    }

    /// Who there is, as of now.
    pub fn now(&self) -> Arc<People> {
        self.now.load_full()
    }

    /// Whether `holds` is so of any grant that somebody has.
    fn any(&self, who: &Identity, holds: impl Fn(&Grant) -> bool) -> bool {
        if who.roles.iter().flat_map(|role| role.grants()).any(&holds) {
            return true;
        }
        let people = self.now.load();
        people.of_principal(&who.principal).is_some_and(|person| person.all_grants().any(holds))
    }
}

/// Whether somebody may read a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    Yes,
    No,
    /// It is not there any more, or not yet, or cannot be looked up: that takes nothing away from anybody.
    NotThere,
}

impl Reads {
    fn known(may: bool) -> Self {
        if may { Reads::Yes } else { Reads::No }
    }
}

impl Shared {
    /// Whether `who` may do it for the host as a whole, or in the session that `session` names.
    pub fn may(&self, who: &Identity, operation: Operation, session: Option<&str>) -> bool {
        if who.is_root() {
            return true;
        }
        let covers =
            |grant: &Grant| grant.covers(operation) && grant.session().is_none_or(|granted| Some(granted) == session);
        !who.is_over(self.clock.now()) && self.people.any(who, covers)
    }

    /// Whether `who` may do it in any session at all.
    pub fn may_somewhere(&self, who: &Identity, operation: Operation) -> bool {
        who.is_root() || (!who.is_over(self.clock.now()) && self.people.any(who, |grant| grant.covers(operation)))
    }

    /// Whether `who` may do it in the session of a channel.
    pub fn may_there(&self, who: &Identity, operation: Operation, found: &Resolved) -> bool {
        if self.may(who, operation, None) {
            return true;
        }
        self.may_somewhere(who, operation)
            && self.session_of(found).is_some_and(|session| self.may(who, operation, Some(session.as_str())))
    }

    fn session_of(&self, found: &Resolved) -> Option<Channel> {
        match found.kind {
            ChannelKind::Root | ChannelKind::People => None,
            ChannelKind::Session => Some(found.channel.clone()),
            ChannelKind::Chat | ChannelKind::Canvas => self.registry.session_uri(found.session).ok().flatten(),
        }
    }

    /// Whether `who` may read a channel that was found. The root is for everybody who was let in.
    pub fn may_read(&self, who: &Identity, found: &Resolved) -> bool {
        match reading(found.kind) {
            Some(operation) => self.may_there(who, operation, found),
            None => found.kind == ChannelKind::Root && self.is_known(who),
        }
    }

    /// Whether `who` may read what `channel` names now.
    pub fn reads(&self, who: &Identity, channel: &str) -> Reads {
        if who.is_root() {
            return Reads::Yes;
        }
        if super::host::is_watch(channel) {
            return Reads::known(self.may(who, Operation::FileRead, None));
        }
        if telemetry::is_telemetry(channel) {
            return Reads::known(self.may(who, Operation::HostRead, None));
        }
        match self.registry.resolve(channel) {
            Ok(Some(found)) => Reads::known(self.may_read(who, &found)),
            Ok(None) | Err(_) => Reads::NotThere,
        }
    }

    /// The channel that `uri` names now, where `who` may read it: for everybody else there is none.
    ///
    /// # Errors
    /// [`FoldFault`] when the store cannot be read.
    pub fn find(&self, who: &Identity, uri: &str) -> Result<Option<Resolved>, FoldFault> {
        let found = self.registry.resolve(uri)?;
        Ok(found.filter(|found| who.is_root() || self.may_read(who, found)))
    }

    /// Whether who was let in would be let in now, with the same token.
    pub fn is_known(&self, who: &Identity) -> bool {
        if who.is_root() {
            return true;
        }
        let has = |token: &Arc<str>| {
            let people = self.people.now.load();
            let person = people.of_principal(&who.principal);
            person.is_some_and(|person| person.tokens.iter().any(|kept| *kept.id == **token))
        };
        !who.is_over(self.clock.now()) && who.token.as_ref().is_none_or(has)
    }
}

/// What reading a channel of this kind needs; `None` where no grant says so.
pub fn reading(kind: ChannelKind) -> Option<Operation> {
    match kind {
        ChannelKind::Session => Some(Operation::SessionState),
        ChannelKind::Chat | ChannelKind::Canvas => Some(Operation::ChatTurns),
        ChannelKind::Root | ChannelKind::People => None,
    }
}
