//! The fold of the people: who there is, what each was granted, and the hashes of their tokens.
//!
//! A channel of its own that no client sees; everything in it is a fact of the host. Who granted what, and when, are the
//! principal and the time of the record. A token itself is never stored: 256 random bits need no slow hash.
//! Source: the list of features, who may do what.

mod grants;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use grants::{BadGrant, Grant, Operation, Role, Subject, known};

use super::action::Action;
use super::fact::Fact;
use super::replay::Fold;
use crate::clock::Millis;

/// The name of the people's channel. No session can have it: theirs have a path.
pub const PEOPLE: &str = "scrollback:people";

/// What a person's principal begins with.
pub const USER: &str = "user:";

/// A token of a person, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptToken {
    /// What it is called; says nothing of the token.
    pub id: String,
    /// When it was made.
    pub made_at: Millis,
    /// When it ends; `None` for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Millis>,
}

/// A person.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    pub roles: BTreeSet<Role>,
    pub grants: BTreeSet<Grant>,
    pub tokens: Vec<KeptToken>,
}

impl Person {
    /// Everything that it was granted, by its roles too.
    pub fn all_grants(&self) -> impl Iterator<Item = &Grant> {
        self.roles.iter().flat_map(|role| role.grants()).chain(&self.grants)
    }
}

/// The people of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct People {
    persons: BTreeMap<String, Person>,
    /// By the hash of a token, whose it is and what it is called. In no state that is shown.
    #[serde(skip)]
    tokens: HashMap<String, (String, String)>,
}

impl People {
    /// The person of this name.
    pub fn get(&self, name: &str) -> Option<&Person> {
        self.persons.get(name)
    }

    /// The person behind a principal; `None` for the deployment, an agent, and who is not on the list.
    pub fn of_principal(&self, principal: &str) -> Option<&Person> {
        self.get(principal.strip_prefix(USER)?)
    }

    /// By name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Person)> {
        self.persons.iter().map(|(name, person)| (name.as_str(), person))
    }

    /// Whose `token` is, and what is kept of it; ended or not.
    pub fn of_token(&self, token: &str) -> Option<(&str, &KeptToken)> {
        let (name, id) = self.tokens.get(&hash(token))?;
        let kept = self.persons.get(name)?.tokens.iter().find(|kept| kept.id == *id)?;
        Some((name, kept))
    }

    /// Applies a fact; one that is about nobody who is here changes nothing.
    pub fn apply(&mut self, fact: &Fact, at: Millis) {
        match fact {
            Fact::UserAdded { user, roles, grants } => {
                let person = Person {
                    roles: roles.iter().copied().collect(),
                    grants: grants.iter().cloned().collect(),
                    tokens: Vec::new(),
                };
                self.persons.insert(user.clone(), person);
            }
            Fact::UserGranted { user, roles, grants } => {
                if let Some(person) = self.persons.get_mut(user) {
                    person.roles.extend(roles);
                    person.grants.extend(grants.iter().cloned());
                }
            }
            Fact::UserRevoked { user, roles, grants } => {
                if let Some(person) = self.persons.get_mut(user) {
                    person.roles.retain(|role| !roles.contains(role));
                    person.grants.retain(|grant| !grants.contains(grant));
                }
            }
            Fact::UserTokenMade { user, id, hash, expires_at, replaces } => {
                let Some(person) = self.persons.get_mut(user) else { return };
                if *replaces {
                    person.tokens.clear();
                    self.tokens.retain(|_, (owner, _)| owner != user);
                }
                person.tokens.push(KeptToken { id: id.clone(), made_at: at, expires_at: *expires_at });
                self.tokens.insert(hash.clone(), (user.clone(), id.clone()));
            }
            Fact::UserRemoved { user } => {
                self.persons.remove(user);
                self.tokens.retain(|_, (owner, _)| owner != user);
            }
            _ => {}
        }
    }
}

/// What is stored of a token: its SHA-256 in hexadecimal.
pub fn hash(token: &str) -> String {
    use std::fmt::Write as _;

    Sha256::digest(token.as_bytes()).iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Whether a person can be called so: 1 to 128 printable characters of ASCII without spaces and `:`, so that a name fits into
/// a line and a principal as it is, and nobody's looks like another's.
pub fn is_name(name: &str) -> bool {
    (1..=128).contains(&name.len()) && name.chars().all(|c| c.is_ascii_graphic() && c != ':')
}

impl Fold for People {
    fn begin(fact: Fact, at: Millis) -> Option<Self> {
        let mut people = People::default();
        people.apply(&fact, at);
        Some(people)
    }

    /// There are no checkpoints: the facts are few.
    fn restore(_: &[u8]) -> Option<Self> {
        None
    }

    fn apply_action(&mut self, _: &Action, _: Millis) {}

    fn apply_fact(&mut self, fact: &Fact, at: Millis) {
        self.apply(fact, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(user: &str) -> Fact {
        Fact::UserAdded { user: user.into(), roles: vec![Role::Guest], grants: vec!["chat:send".parse().unwrap()] }
    }

    fn token(user: &str, token: &str, replaces: bool) -> Fact {
        Fact::UserTokenMade { user: user.into(), id: token.into(), hash: hash(token), expires_at: None, replaces }
    }

    fn people(facts: &[Fact]) -> People {
        let mut people = People::default();
        facts.iter().for_each(|fact| people.apply(fact, 7));
        people
    }

    #[test]
    fn a_token_is_found_by_what_it_is_and_stored_nowhere() {
        let people = people(&[added("ada"), token("ada", "s3cret", false)]);
        let (name, kept) = people.of_token("s3cret").unwrap();
        assert_eq!((name, kept.made_at), ("ada", 7));
        assert!(people.of_token("s3cre").is_none());
        let shown = serde_json::to_string(&people).unwrap();
        assert!(!shown.contains(&hash("s3cret")), "{shown}");
    }

    #[test]
    fn a_replacing_token_and_a_removed_person_end_the_tokens_before() {
        let mut people = people(&[added("ada"), token("ada", "a", false), token("ada", "b", true)]);
        assert!(people.of_token("a").is_none() && people.of_token("b").is_some());
        people.apply(&Fact::UserRemoved { user: "ada".into() }, 8);
        assert!(people.of_token("b").is_none() && people.get("ada").is_none());
        people.apply(&added("ada"), 9);
        assert!(people.of_token("b").is_none());
    }

    #[test]
    fn what_is_revoked_is_gone_and_the_rest_stays() {
        let revoked = Fact::UserRevoked { user: "ada".into(), roles: vec![Role::Guest], grants: vec![] };
        let people = people(&[added("ada"), revoked]);
        let grants: Vec<String> = people.get("ada").unwrap().all_grants().map(Grant::to_string).collect();
        assert_eq!(grants, ["chat:send"]);
    }

    #[test]
    fn names_fit_into_a_line_and_a_principal() {
        for good in ["ada", "ada@example.com", "a.b-c_d+e", "auth0|123", "x%2Fy", "a/b"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "a b", "a:b", "ü", "a\n", &"x".repeat(129)] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
