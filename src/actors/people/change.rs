//! A change of the people: decided, recorded, and then in force.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::actors::command::{Refusal, RefusalKind};
use crate::actors::host::Host;
use crate::actors::identity::Identity;
use crate::actors::shared::Shared;
use crate::clock::{self, Millis};
use crate::events::rows::ChannelKind;
use crate::events::{Batch, Channel, ChannelId, Kind, NewEvent};
use crate::projections::catalogue;
use crate::projections::fact::Fact;
use crate::projections::people::{Grant, KeptToken, PEOPLE, People, Person, Role, USER, hash, is_name};

/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;
/// How tokens begin, so that they are found where they should not be.
pub const TOKEN: &str = "sbt_";
/// How soon a token may end, and how late.
pub const MIN_EXPIRY: Duration = Duration::from_secs(1);
pub const MAX_EXPIRY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// The most tokens of one person.
const MAX_TOKENS: usize = 100;

/// What somebody wants to be different.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeopleChange {
    /// A new person, with a token that ends after `expires`.
    Add {
        name: String,
        roles: Vec<Role>,
        grants: Vec<Grant>,
        expires: Option<Duration>,
    },
    Grant {
        name: String,
        roles: Vec<Role>,
        grants: Vec<Grant>,
    },
    Revoke {
        name: String,
        roles: Vec<Role>,
        grants: Vec<Grant>,
    },
    /// One more token, or one instead of all others.
    Token {
        name: String,
        replace: bool,
        expires: Option<Duration>,
    },
    Remove {
        name: String,
    },
}

/// A person as those who run the host are told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    pub name: String,
    pub principal: String,
    pub roles: Vec<Role>,
    pub grants: Vec<Grant>,
    /// A token that was made just now: it is shown once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    pub tokens: Vec<ToldToken>,
}

/// What is told of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToldToken {
    pub id: String,
    /// RFC 3339.
    pub made_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

impl Told {
    /// What is told of a person.
    pub fn of(name: &str, person: &Person, token: Option<String>) -> Self {
        let told = |kept: &KeptToken| ToldToken {
            id: kept.id.clone(),
            made_at: clock::rfc3339(kept.made_at),
            expires_at: kept.expires_at.map(clock::rfc3339),
        };
        Self {
            name: name.to_owned(),
            principal: format!("{USER}{name}"),
            roles: person.roles.iter().copied().collect(),
            grants: person.grants.iter().cloned().collect(),
            token,
            tokens: person.tokens.iter().map(told).collect(),
        }
    }
}

impl Host {
    /// Everybody, by name.
    pub fn people(&self) -> Vec<Told> {
        self.shared.people.now().iter().map(|(name, person)| Told::of(name, person, None)).collect()
    }

    /// Changes the people, and answers what the person is then, or was before it went. In force, and on disk, once this is
    /// answered. Nobody gives, and nobody takes on, more than they may do themselves.
    ///
    /// # Errors
    /// A [`Refusal`]; then nothing was changed.
    pub async fn change_people(&self, who: &Identity, change: PeopleChange) -> Result<Told, Refusal> {
        let (shared, who) = (Arc::clone(&self.shared), who.clone());
        // Who asked may be gone before it is done: what is recorded has to be in force all the same.
        let changed = tokio::spawn(async move { changed(&shared, &who, change).await });
        changed.await.map_err(|fault| Refusal::new(RefusalKind::Internal, "internal", fault.to_string()))?
    }
}

async fn changed(shared: &Shared, who: &Identity, change: PeopleChange) -> Result<Told, Refusal> {
    let mut channel = shared.people.changing.lock().await;
    let now = shared.clock.now();
    let people = shared.people.now();
    let Decided { name, facts, token } = decide(shared, who, &people, change, now)?;
    let mut after = People::clone(&people);
    facts.iter().for_each(|fact| after.apply(fact, now));
    if !facts.is_empty() {
        record(shared, who, &facts, now, &mut channel).await?;
        shared.people.now.store(Arc::new(after.clone()));
        shared.hub.look_again(Some(Arc::from(format!("{USER}{name}"))));
    }
    // Who was removed has no token any more.
    let gone = || people.get(&name).map(|person| Person { tokens: Vec::new(), ..person.clone() });
    let person = after.get(&name).cloned().or_else(gone).unwrap_or_default();
    Ok(Told::of(&name, &person, token))
}

/// What is to be recorded, and the token that was made for it.
struct Decided {
    name: String,
    facts: Vec<Fact>,
    token: Option<String>,
}

fn decide(
    shared: &Shared,
    who: &Identity,
    people: &People,
    change: PeopleChange,
    now: Millis,
) -> Result<Decided, Refusal> {
    let there = |name: &str| {
        let text = format!("there is nobody called {name}");
        people.get(name).ok_or_else(|| Refusal::new(RefusalKind::NotFound, "unknown-user", text))
    };
    match change {
        PeopleChange::Add { name, roles, grants, expires } => {
            if !is_name(&name) {
                let text = "name: 1 to 128 printable characters of ASCII, without spaces and colons";
                return Err(Refusal::new(RefusalKind::InvalidParams, "bad-name", text));
            }
            if people.get(&name).is_some() {
                let text = format!("there is somebody called {name} already");
                return Err(Refusal::new(RefusalKind::AlreadyExists, "user-exists", text));
            }
            holds(shared, who, &roles, &grants)?;
            let (token, made) = token(&name, false, expires, now)?;
            let added = Fact::UserAdded { user: name.clone(), roles, grants };
            Ok(Decided { name, facts: vec![added, made], token: Some(token) })
        }
        PeopleChange::Grant { name, mut roles, mut grants } => {
            let person = there(&name)?;
            something(&roles, &grants)?;
            holds(shared, who, &roles, &grants)?;
            roles.retain(|role| !person.roles.contains(role));
            grants.retain(|grant| !person.grants.contains(grant));
            let changes = !roles.is_empty() || !grants.is_empty();
            let facts = changes.then(|| Fact::UserGranted { user: name.clone(), roles, grants });
            Ok(Decided { name, facts: facts.into_iter().collect(), token: None })
        }
        PeopleChange::Revoke { name, roles, grants } => {
            let person = there(&name)?;
            something(&roles, &grants)?;
            outranks(shared, who, person)?;
            let role = roles.iter().find(|role| !person.roles.contains(role)).map(ToString::to_string);
            let grant = grants.iter().find(|grant| !person.grants.contains(grant)).map(ToString::to_string);
            if let Some(missing) = role.or(grant) {
                let text = format!("{name} was not given {missing} by that name: see what user list says");
                return Err(Refusal::new(RefusalKind::NotFound, "not-granted", text));
            }
            let revoked = Fact::UserRevoked { user: name.clone(), roles, grants };
            Ok(Decided { name, facts: vec![revoked], token: None })
        }
        PeopleChange::Token { name, replace, expires } => {
            let person = there(&name)?;
            outranks(shared, who, person)?;
            let living = person.tokens.iter().filter(|kept| kept.expires_at.is_none_or(|at| at > now)).count();
            if !replace && living >= MAX_TOKENS {
                metrics::counter!("scrollback_limit_met_total", "limit" => "tokens").increment(1);
                let text = format!("{name} has {MAX_TOKENS} tokens, which is the most: replace them");
                return Err(Refusal::new(RefusalKind::Unavailable, "limit-exceeded", text));
            }
            let (token, made) = token(&name, replace, expires, now)?;
            Ok(Decided { name, facts: vec![made], token: Some(token) })
        }
        PeopleChange::Remove { name } => {
            outranks(shared, who, there(&name)?)?;
            let removed = Fact::UserRemoved { user: name.clone() };
            Ok(Decided { name, facts: vec![removed], token: None })
        }
    }
}

fn something(roles: &[Role], grants: &[Grant]) -> Result<(), Refusal> {
    if roles.is_empty() && grants.is_empty() {
        let text = "name a role or a grant: --role ROLE, --grant SUBJECT:OPERATION";
        return Err(Refusal::new(RefusalKind::InvalidParams, "invalid-params", text));
    }
    Ok(())
}

/// Refuses who gives more than they may do themselves.
fn holds(shared: &Shared, who: &Identity, roles: &[Role], grants: &[Grant]) -> Result<(), Refusal> {
    let lacks = |grant: &Grant| grant.operations().find(|operation| !shared.may(who, *operation, grant.session()));
    let given = roles.iter().flat_map(|role| role.grants()).chain(grants);
    match given.filter_map(lacks).next() {
        None => Ok(()),
        Some(operation) => {
            let text = format!("nobody gives what they may not do themselves: {operation}");
            Err(Refusal::new(RefusalKind::NotPermitted, "not-permitted", text))
        }
    }
}

/// Refuses who takes on somebody that may do more than they.
fn outranks(shared: &Shared, who: &Identity, person: &Person) -> Result<(), Refusal> {
    let (roles, grants): (Vec<_>, Vec<_>) =
        (person.roles.iter().copied().collect(), person.grants.iter().cloned().collect());
    holds(shared, who, &roles, &grants).map_err(|refusal| Refusal {
        message: refusal.message.replace("nobody gives what they may not do themselves", "they may do more than you"),
        ..refusal
    })
}

/// A new token, and what is recorded of it.
fn token(name: &str, replaces: bool, expires: Option<Duration>, now: Millis) -> Result<(String, Fact), Refusal> {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    if expires.is_some_and(|time| !(MIN_EXPIRY..=MAX_EXPIRY).contains(&time)) {
        let text = "expires: from 1 second to 100 years";
        return Err(Refusal::new(RefusalKind::InvalidParams, "invalid-params", text));
    }
    let expires = expires.map(|time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
    let mut random = [0; TOKEN_BYTES];
    getrandom::fill(&mut random)
        .map_err(|error| Refusal::new(RefusalKind::Internal, "internal", format!("no random bytes: {error}")))?;
    let token = format!("{TOKEN}{}", URL_SAFE_NO_PAD.encode(random));
    let made = Fact::UserTokenMade {
        user: name.to_owned(),
        id: ulid::Ulid::new().to_string().to_ascii_lowercase(),
        hash: hash(&token),
        expires_at: expires.map(|time| now.saturating_add(time)),
        replaces,
    };
    Ok((token, made))
}

/// Records facts of the people; `channel` is the number of theirs, once it is handed over.
async fn record(
    shared: &Shared,
    who: &Identity,
    facts: &[Fact],
    at: Millis,
    channel: &mut Option<ChannelId>,
) -> Result<(), Refusal> {
    let name = Channel::from(PEOPLE);
    let (id, rows) = match *channel {
        Some(id) => (id, Vec::new()),
        None => {
            let id = shared.store.new_channel_id();
            (id, catalogue::register(&name, id, ChannelKind::People, ChannelId(0)))
        }
    };
    let event = |fact: &Fact| NewEvent {
        channel: name.clone(),
        channel_id: id,
        kind: Kind::Host,
        at,
        principal: Arc::clone(&who.principal),
        origin: None,
        about: None,
        action: fact.bytes(),
    };
    let batch = Batch { events: facts.iter().map(event).collect(), rows };
    shared.record(batch).await?;
    *channel = Some(id);
    Ok(())
}
