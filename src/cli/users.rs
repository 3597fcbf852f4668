//! `scrollback user …`: the people who share the host.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde_json::Value;

use super::args::{Given, Place, UserVerb};
use super::fault::CliFault;
use super::keeping::with_host;
use super::out::Out;
use super::reach::Reach;
use crate::actors::identity::Identity;
use crate::actors::people::{PeopleChange, PeopleInForce, Told};
use crate::admin::users::{Granted, NewToken, NewUser};
use crate::config::Environment;
use crate::events::sled_store::Access;

/// Runs a verb.
pub fn run(verb: UserVerb, environment: &Environment) -> Result<(), CliFault> {
    match verb {
        UserVerb::List { place } => list(&place, environment),
        UserVerb::Add { name, given: Given { roles, grants }, expires, place } => {
            let asked = NewUser { name, roles, grants, expires };
            let told = change_with(&place, environment, "/api/users".into(), asked, NewUser::add)?;
            print(&told, &place, environment, "added")
        }
        UserVerb::Grant { name, given: Given { roles, grants }, place } => {
            let (path, asked) = (path(&name, "/grant"), Granted { roles, grants });
            let told = change_with(&place, environment, path, asked, |asked| asked.give(name))?;
            print(&told, &place, environment, "changed")
        }
        UserVerb::Revoke { name, given: Given { roles, grants }, place } => {
            let (path, asked) = (path(&name, "/revoke"), Granted { roles, grants });
            let told = change_with(&place, environment, path, asked, |asked| asked.take(name))?;
            print(&told, &place, environment, "changed")
        }
        UserVerb::Token { name, replace, expires, place } => {
            let (path, asked) = (path(&name, "/token"), NewToken { replace, expires });
            let told = change_with(&place, environment, path, asked, |asked| asked.make(name))?;
            print(&told, &place, environment, "has a new token")
        }
        UserVerb::Rm { name, place } => {
            let told = match Reach::of(&place, Access::Write, environment)? {
                Reach::Host(host) => host.delete(&path(&name, ""))?,
                Reach::Directory(directory) => in_directory(*directory, environment, PeopleChange::Remove { name })?,
            };
            print(&told, &place, environment, "removed")
        }
    }
}

fn path(name: &str, what: &str) -> String {
    format!("/api/users/{}{what}", utf8_percent_encode(name, NON_ALPHANUMERIC))
}

/// Sends what is asked to the host, or does it in the directory as `change` has it.
fn change_with<T: Serialize>(
    place: &Place,
    environment: &Environment,
    path: String,
    asked: T,
    change: impl FnOnce(T) -> PeopleChange,
) -> Result<Value, CliFault> {
    match Reach::of(place, Access::Write, environment)? {
        Reach::Host(host) => host.post(&path, &to_value(&asked)?),
        Reach::Directory(directory) => in_directory(*directory, environment, change(asked)),
    }
}

fn in_directory(
    directory: super::reach::OpenDirectory,
    environment: &Environment,
    change: PeopleChange,
) -> Result<Value, CliFault> {
    let who = Identity::root(&environment.host_name());
    let told = with_host(directory, environment, async move |host| host.change_people(&who, change).await)?;
    to_value(&told)
}

fn list(place: &Place, environment: &Environment) -> Result<(), CliFault> {
    let people: Vec<Value> = match Reach::of(place, Access::Read, environment)? {
        Reach::Host(host) => host.object("/api/users", &[])?,
        Reach::Directory(directory) => {
            let people = PeopleInForce::read(&directory.store).map_err(|fault| CliFault::Failed(fault.to_string()))?;
            people
                .now()
                .iter()
                .map(|(name, person)| to_value(&Told::of(name, person, None)))
                .collect::<Result<_, _>>()?
        }
    };
    let mut out = Out::new(place.json, environment);
    for person in &people {
        if out.json {
            out.object(person)?;
        } else {
            out.person(person)?;
        }
    }
    if people.is_empty() && !out.json {
        out.line("nobody yet: scrollback user add NAME --role member")?;
    }
    out.flush()
}

/// Who it is now. A token goes to stdout alone, so that it can be kept; the rest is said on stderr.
fn print(told: &Value, place: &Place, environment: &Environment, done: &str) -> Result<(), CliFault> {
    let mut out = Out::new(place.json, environment);
    if out.json {
        out.object(told)?;
        return out.flush();
    }
    let name = told.get("name").and_then(Value::as_str).unwrap_or_default();
    eprintln!("{name}: {done}");
    let may_nothing =
        ["roles", "grants"].iter().all(|key| told.get(key).and_then(Value::as_array).is_none_or(Vec::is_empty));
    if may_nothing && done == "added" {
        eprintln!("{name} may do nothing: scrollback user grant {name} --role member");
    }
    match told.get("token").and_then(Value::as_str) {
        Some(token) => out.line(token)?,
        None if done == "removed" => {}
        None => out.person(told)?,
    }
    out.flush()
}

fn to_value(value: &impl Serialize) -> Result<Value, CliFault> {
    serde_json::to_value(value).map_err(|error| CliFault::Failed(error.to_string()))
}
